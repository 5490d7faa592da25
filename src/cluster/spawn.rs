//! The calls that spawn processes on other nodes.

use std::time::Duration;

use super::builder::Cluster;
use super::remote::RemoteProcess;
use super::remote_spawn::{Begins, FarOptions, SpawnOrder};
use crate::outcome::{Failure, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::{Ask, CommandError, NodeError, Reply, SpawnError, SpawnOptions, Spawned, StepOutput, Tag};
use crate::runtime::AskFuture;
use crate::sched::non_local::NonLocal as _;

impl Cluster {
    /// Spawns a process on the node with this name.
    ///
    /// The future resolves to the address of the process, after `init` has returned on that node. Register the type of
    /// the process by [`Wire::process`](super::Wire::process) on both nodes.
    ///
    /// The name may be that of this node. Then `init` runs on the calling thread, and the limit has no effect.
    ///
    /// Errors are answers, too:
    ///
    /// - [`CommandError::Node`]: the node is not connected, the connection broke before the answer came, or one of the
    ///   nodes does not have the type. If the connection broke, the process may live.
    /// - [`CommandError::Failed`] or [`CommandError::Panicked`]: [`RemoteProcess::begin`] or `init` has failed, the
    ///   other node has reached its limit of processes, or an option is refused. [`entry`](SpawnOptions::entry) and
    ///   [`recover_with`](SpawnOptions::recover_with) cannot be sent to another node. `link`, `monitor` and
    ///   `report_started` need a step: see [`StepOutput::spawn_on`].
    /// - [`CommandError::TimedOut`]: the limit is over. A process that starts later is terminated, unless the
    ///   connection breaks meanwhile.
    ///
    /// The name and the groups in the options are registered on the other node.
    ///
    /// ```
    /// # use procession::cluster::{Cluster, MemoryNetwork, Wire};
    /// use procession::cluster::RemoteProcess;
    /// # use procession::{BoxError, Event, Events, Process, Reply, Runtime, SpawnOptions};
    /// # use procession::{Step, StepOutput, StepResult, remote};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Count(Reply<u64>);
    /// remote!(Count, "demo::Count", 1);
    ///
    /// struct Counter(u64);
    ///
    /// impl RemoteProcess for Counter {
    ///     const NAME: &'static str = "demo::Counter";
    ///     const VERSION: u32 = 1;
    ///     type Argument = u64;
    ///
    ///     fn begin(from: u64) -> Result<Counter, BoxError> {
    ///         Ok(Counter(from))
    ///     }
    /// }
    /// # impl Process for Counter {
    /// #     type Message = Count;
    /// #     type Output = ();
    /// #     fn step(&mut self, events: &mut Events<'_, Count>, out: &mut StepOutput) -> StepResult<()> {
    /// #         for event in events {
    /// #             if let Event::Message(Count(reply)) = event {
    /// #                 self.0 += 1;
    /// #                 out.reply(reply, self.0);
    /// #             }
    /// #         }
    /// #         Ok(Step::Idle)
    /// #     }
    /// # }
    ///
    /// # let (network, limit) = (MemoryNetwork::new(), Duration::from_secs(5));
    /// # let (here, there) = (Runtime::start()?, Runtime::start()?);
    /// let wire = || Wire::new().message::<Count>().process::<Counter>();
    /// let a = Cluster::named("a", wire()).memory(&network).start(&here)?;
    /// let b = Cluster::named("b", wire()).memory(&network).start(&there)?;
    ///
    /// a.wait_for("b", limit)?;
    /// let counter = a.spawn::<Counter>("b", 40, SpawnOptions::new(), limit).wait()?.address;
    /// assert_eq!(here.ask(counter, Count, limit).wait()?, 41);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn<P: RemoteProcess>(
        &self,
        node: &str,
        argument: P::Argument,
        options: SpawnOptions,
        limit: Duration,
    ) -> AskFuture<Spawned<P::Message>> {
        let target = self.node_pid(node);
        self.access.ask_elsewhere(target, limit, |ask| {
            let spawned = options.check_unrelated().map_err(failed).and_then(|()| match target {
                None if node == self.here.name() => self.spawn_locally::<P>(argument, options, ask),
                None => Err(CommandError::Node { pid: ask.target(), why: NodeError::NodeDown }),
                Some(target) => self.order::<P>(target, argument, &options, ask),
            });
            spawned.err().into_iter().for_each(|why| ask.give_up(why));
        })
    }

    fn spawn_locally<P: RemoteProcess>(
        &self,
        argument: P::Argument,
        options: SpawnOptions,
        ask: &Arc<Ask>,
    ) -> Result<(), CommandError> {
        FarOptions::of(&options, || 0).map_err(failed)?;
        let spawned = self.runtime.spawn_with(Begins::<P>::new(argument), options);
        let spawned = spawned.map_err(|refused| failed(refused.into_parts().1))?;
        if let Some(reply) = Reply::to(ask.clone()) {
            reply.send(Spawned::<P::Message>::of(spawned.pid(), None));
        }
        Ok(())
    }

    fn order<P: RemoteProcess>(
        &self,
        target: Pid,
        argument: P::Argument,
        options: &SpawnOptions,
        ask: &Arc<Ask>,
    ) -> Result<(), CommandError> {
        let options = FarOptions::of(options, || 0).map_err(failed)?;
        let order = SpawnOrder::new::<P>(argument, options, Reply::new(ask.clone()));
        let node = self.members.node().ok_or(CommandError::Node { pid: target, why: NodeError::NodeDown })?;
        node.post(None, target, Box::new(order), None).map_err(|(order, why)| {
            ask.give_up(why.into());
            drop_contained(order);
            CommandError::Dropped
        })
    }
}

fn failed(why: SpawnError) -> CommandError {
    match why {
        // As another node says it.
        SpawnError::Init(failure) => CommandError::Failed(failure),
        SpawnError::InitPanicked(panic) => CommandError::Panicked(panic),
        why => CommandError::Failed(Failure::new(why)),
    }
}

/// Processes on other nodes.
impl StepOutput {
    /// Spawns a process on a node of the cluster, which may be this node.
    ///
    /// The command completes with the address of the process, after `init` has returned on that node. With
    /// [`SpawnOptions::link`] the two processes are linked before the new one starts. With [`SpawnOptions::monitor`]
    /// the answer has the monitor. A durable process cannot use these two options for another node.
    ///
    /// If the connection breaks, a linked process gets an exit with [`Reason::NodeDown`](crate::Reason::NodeDown). It
    /// ends, unless it traps exits. If the process fails before it has started, the answer is the error, and no other
    /// event follows.
    ///
    /// The errors and the other options are those of [`Cluster::spawn`]. On this node itself the limit has no effect.
    ///
    /// ```
    /// use procession::cluster::{Cluster, RemoteProcess};
    /// use procession::spawn::Spawned;
    /// use procession::{BoxError, Event, Events, Process, SpawnOptions, Step, StepOutput, StepResult, Tag};
    /// use std::time::Duration;
    ///
    /// /// Keeps a worker on the node `b`.
    /// struct Keeper { cluster: Cluster, worker: Option<Tag<Spawned<u64>>> }
    /// # struct Worker;
    /// # impl Process for Worker {
    /// #     type Message = u64;
    /// #     type Output = ();
    /// #     fn step(&mut self, _: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> { Ok(Step::Idle) }
    /// # }
    /// # impl RemoteProcess for Worker {
    /// #     const NAME: &'static str = "demo::Worker";
    /// #     const VERSION: u32 = 1;
    /// #     type Argument = ();
    /// #     fn begin((): ()) -> Result<Worker, BoxError> { Ok(Worker) }
    /// # }
    ///
    /// impl Process for Keeper {
    ///     type Message = ();
    ///     type Output = ();
    ///
    ///     fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
    ///         let options = SpawnOptions::new().link();
    ///         self.worker = Some(out.spawn_on::<Worker>(&self.cluster, "b", (), options, Duration::from_secs(5)));
    ///         Ok(())
    ///     }
    ///
    ///     fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
    ///         for event in events {
    ///             if let Event::Completed(done) = event
    ///                 && let Some(answer) = done.take(self.worker)
    ///             {
    ///                 out.send(answer?.address, 7);
    ///             }
    ///         }
    ///         Ok(Step::Idle)
    ///     }
    /// }
    /// ```
    pub fn spawn_on<P: RemoteProcess>(
        &mut self,
        cluster: &Cluster,
        node: &str,
        argument: P::Argument,
        options: SpawnOptions,
        limit: Duration,
    ) -> Tag<Spawned<P::Message>> {
        let far = match FarOptions::of(&options, || self.new_number()) {
            Ok(far) => far,
            Err(why) => return self.refused(failed(why)),
        };
        if node == cluster.here().name() {
            return self.spawn_here(Begins::<P>::new(argument), options);
        }
        let Some(target) = cluster.node_pid(node) else {
            let why = NodeError::NodeDown;
            return self.refused(CommandError::Node { pid: self.link.nobody(), why });
        };
        self.ask(target.typed::<SpawnOrder>(), |reply| SpawnOrder::new::<P>(argument, far, reply), limit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
