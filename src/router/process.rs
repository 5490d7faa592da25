//! The router: a process between senders and the children of a supervisor.
//!
//! A router spawns a supervisor with a link, and waits until all children have started. Each child is in a group of
//! its own, whose name it gets again when it is started again. By the group, the router finds the process of a child.
//! It monitors this process, and looks the group up again when the process has ended.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::rendezvous::{hash_of, pick};
use crate::names::Member;
use crate::supervisor::{ChildSpec, Shutdown, SpecError, Supervisor, SupervisorBuilder, SupervisorMessage};
use crate::{
    Address, BoxError, Event, Events, Exit, ExitError, Pid, Process, Reason, SpawnOptions, Step, StepOutput,
    StepResult, Tag,
};

/// A process that passes each message on to one of its children.
///
/// The children all take messages of type `M`. A router takes the same messages, so it can stand in the place of one
/// child. [`by_key`](Self::by_key) passes messages with the same key on to the same child. [`in_turn`](Self::in_turn)
/// gives the children one message after the other. The [module](super) has an example.
///
/// # Messages
///
/// - **Order.** Messages of one sender that go to the same child arrive in the order in which they were sent.
/// - **Questions.** The [`Reply`](crate::Reply) travels in its message, so the child replies to the asker. A cycle of
///   asks through a router is not recognised. It ends when a limit is over.
/// - **Sender.** The router is the sender of what it passes on, also for [`Events::sender`].
/// - **Start.** Messages wait in the mailbox of the router until all children have started.
/// - **A full child.** If the mailbox of a child has a [bound](SpawnOptions::mailbox), a message that finds no room is
///   treated as the child's [`Overflow`](crate::spawn::Overflow) says. The router does not wait, because the other
///   children would wait with it. Without a bound, the mailbox grows.
///
/// # Failures
///
/// A [`Supervisor`] restarts the children [in place](ChildSpec::in_place). A child that has failed keeps its PID, its
/// messages and its keys. Only the messages that the failed step had taken are lost.
///
/// A child that ends in another way, for example because it is done, gets a new process. A key stays with the child of
/// the same index. While a child has no process, messages with its keys are dead letters. Messages in turn go to the
/// next child that has a process.
///
/// The supervisor allows 3 restarts within 5 seconds, of all children together. With one more, it gives up. So four bad
/// messages within 5 seconds end the router and all its children. If there are many children, allow more restarts with
/// [`supervise`](Self::supervise).
///
/// If the supervisor gives up, the router fails with its error. A panic in the function that makes the key fails the
/// router as well. A [`Tree`](crate::supervisor::Tree) has one line for the router, and none for its children.
///
/// # Stop
///
/// A router that is asked to stop takes no further messages. It asks the supervisor to stop, and is done when all
/// children have ended. Each child has 5 seconds: see [`shutdown`](Self::shutdown). Messages that were not passed on,
/// and messages that a child has not taken, are dead letters. If the router ends in another way, the link ends the
/// children.
pub struct Router<M: Send + 'static> {
    way: Way<M>,
    make: Option<Box<MakeSupervisor>>,
    options: Arc<dyn Fn(usize) -> SpawnOptions + Send + Sync>,
    shutdown: Shutdown,
    adjust: Box<dyn FnOnce(SupervisorBuilder) -> SupervisorBuilder + Send>,
    places: Vec<Place<M>>,
    /// The places of the monitored processes.
    by_pid: HashMap<Pid, usize>,
    supervisor: Option<Pid>,
    stage: Stage,
}

/// How the child of a message is found.
enum Way<M> {
    ByKey(Box<dyn Fn(&M) -> u64 + Send>),
    /// The index of the child whose turn it is.
    InTurn(usize),
}

/// Makes the specifications of the children.
type MakeSupervisor = dyn FnOnce(&dyn Fn(usize) -> MakeOptions, Shutdown) -> Vec<ChildSpec> + Send;

type MakeOptions = Box<dyn Fn() -> SpawnOptions + Send + Sync>;

/// The place of one child.
struct Place<M> {
    /// The group of the child.
    group: Arc<str>,
    /// The process that is the child now, if the router knows it.
    child: Option<Address<M>>,
}

enum Stage {
    /// The router has no supervisor yet, or it has ended before it was up.
    New,
    /// The supervisor answers when all children have started.
    Starting(Tag<()>),
    Up,
    /// The router ends when the supervisor has ended, with this error if there is one.
    Ending(Option<BoxError>),
}

impl<M: Send + 'static> Router<M> {
    /// Makes a router with `n` children, which passes messages with the same key on to the same child.
    ///
    /// `key` returns the key of a message. It must be quick, and must not panic. `child` makes the child with this
    /// index: 0 to `n` - 1. It is called again for each restart.
    ///
    /// The keys are spread evenly, by rendezvous hashing. The child of a key depends on `n` and the key alone. It is
    /// the same after a restart, in every run and on every machine, if the key writes the same values to its hasher
    /// there. With one more child, one key in `n` + 1 moves, and it moves to the new child.
    ///
    /// If `n` is 0, the router fails when it starts.
    pub fn by_key<K: Hash, P: Process<Message = M>>(
        n: usize,
        key: impl Fn(&M) -> K + Send + 'static,
        child: impl Fn(usize) -> P + Send + Sync + 'static,
    ) -> Router<M> {
        Router::with(n, Way::ByKey(Box::new(move |message| hash_of(&key(message)))), child)
    }

    /// Makes a router with `n` children, which get one message after the other.
    ///
    /// `child` makes the child with this index: 0 to `n` - 1. It is called again for each restart. If `n` is 0, the
    /// router fails when it starts.
    pub fn in_turn<P: Process<Message = M>>(n: usize, child: impl Fn(usize) -> P + Send + Sync + 'static) -> Router<M> {
        Router::with(n, Way::InTurn(0), child)
    }

    fn with<P: Process<Message = M>>(
        n: usize,
        way: Way<M>,
        child: impl Fn(usize) -> P + Send + Sync + 'static,
    ) -> Router<M> {
        let child = Arc::new(child);
        let make = move |options: &dyn Fn(usize) -> MakeOptions, shutdown| {
            let spec = |index| {
                let (child, options) = (child.clone(), options(index));
                let spec = ChildSpec::in_place(index.to_string(), move || child(index));
                spec.options(options).shutdown(shutdown)
            };
            (0..n).map(spec).collect()
        };
        Router {
            way,
            make: Some(Box::new(make)),
            options: Arc::new(|_| SpawnOptions::new()),
            shutdown: Shutdown::default(),
            adjust: Box::new(|builder| builder),
            places: Vec::new(),
            by_pid: HashMap::new(),
            supervisor: None,
            stage: Stage::New,
        }
    }

    /// Sets the spawn options of the child with this index, for example a bounded mailbox. Each start calls `options`.
    pub fn options(mut self, options: impl Fn(usize) -> SpawnOptions + Send + Sync + 'static) -> Router<M> {
        self.options = Arc::new(options);
        self
    }

    /// Sets how to stop each child. The default is 5 seconds.
    pub fn shutdown(mut self, shutdown: Shutdown) -> Router<M> {
        self.shutdown = shutdown;
        self
    }

    /// Sets options of the supervisor: the intensity, the delays and the strategy.
    ///
    /// ```
    /// use procession::router::Router;
    /// use procession::supervisor::Backoff;
    /// # use procession::{Events, Process, Step, StepOutput, StepResult};
    /// use std::time::Duration;
    /// # struct Clerk;
    /// # impl Process for Clerk {
    /// #     type Message = String; type Output = ();
    /// #     fn step(&mut self, _: &mut Events<String>, _: &mut StepOutput) -> StepResult<()> { Ok(Step::Idle) }
    /// # }
    ///
    /// let delays = Backoff::exponential(Duration::from_millis(50), Duration::from_secs(2));
    /// let router = Router::in_turn(4, |_| Clerk)
    ///     .supervise(|supervisor| supervisor.intensity(10, Duration::from_secs(60)).backoff(delays));
    /// # let _ = router;
    /// ```
    pub fn supervise(
        mut self,
        adjust: impl FnOnce(SupervisorBuilder) -> SupervisorBuilder + Send + 'static,
    ) -> Router<M> {
        self.adjust = Box::new(adjust);
        self
    }

    /// Makes the supervisor. `name` is a part of the names of the groups.
    fn supervisor(&mut self, name: &str) -> Result<Supervisor, SpecError> {
        let group = |index: usize| format!("{name}/{index}");
        let all_options = &self.options;
        let options = |index| -> MakeOptions {
            let (options, group) = (all_options.clone(), Arc::<str>::from(group(index)));
            Box::new(move || options(index).group(group.clone()))
        };
        let specs = self.make.take().map_or_else(Vec::new, |make| make(&options, self.shutdown));
        if specs.is_empty() {
            return Err(SpecError::NoChildren);
        }
        self.places = (0..specs.len()).map(|index| Place { group: group(index).into(), child: None }).collect();
        let adjust = std::mem::replace(&mut self.adjust, Box::new(|builder| builder));
        specs.into_iter().fold(adjust(Supervisor::builder()), SupervisorBuilder::child).build()
    }

    /// Passes a message on.
    fn route(&mut self, message: M, out: &mut StepOutput) {
        let count = self.places.len();
        let index = match &mut self.way {
            Way::ByKey(key) => pick(key(&message), 0..count as u64).unwrap_or_default(),
            Way::InTurn(next) => {
                let first = *next;
                *next = (first + 1) % count;
                (first..first + count).map(|n| n % count).find(|n| self.child(*n, out).is_some()).unwrap_or(first)
            }
        };
        match self.child(index, out) {
            Some(child) => out.send(child, message),
            // There is no member, so this makes a dead letter with the name of the group.
            None => out.send(Member(&self.places[index].group), message),
        }
    }

    /// Returns the process that is the child with this index, if there is one.
    fn child(&mut self, index: usize, out: &mut StepOutput) -> Option<Address<M>> {
        let place = &mut self.places[index];
        if place.child.is_none() {
            let pid = *out.group_members(&place.group).first()?;
            out.monitor(pid);
            self.by_pid.insert(pid, index);
            place.child = Some(pid.typed());
        }
        place.child
    }

    /// Asks the supervisor to stop. The router ends after it.
    fn end(&mut self, error: Option<BoxError>, out: &mut StepOutput) {
        if let Stage::Ending(_) = self.stage {
            return;
        }
        self.stage = Stage::Ending(error);
        // From now on no message makes a step. A process may say `Wait` as long as a command has no answer.
        out.after(Duration::MAX);
        if let Some(supervisor) = self.supervisor {
            out.cancel(supervisor, Reason::Cancelled);
        }
    }

    /// Returns the end of the router, when its supervisor has ended.
    fn ended(&mut self, exit: Exit) -> StepResult<()> {
        match std::mem::replace(&mut self.stage, Stage::Ending(None)) {
            Stage::Ending(Some(error)) => Err(error),
            _ => exit.into_result().map(|()| Step::Done(())).map_err(failure),
        }
    }
}

/// The error of a supervisor that has not ended as done.
fn failure(error: ExitError) -> BoxError {
    error.into()
}

impl<M: Send + 'static> Process for Router<M> {
    type Message = M;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.trap_exits(true);
        // A router that is restarted in place has the same PID, and the groups of its predecessor may still exist.
        let name = format!("router {} {:016x}", out.pid(), out.random());
        let supervisor = self.supervisor(&name)?;
        let supervisor = out.spawn_with(supervisor, SpawnOptions::new().link())?;
        self.supervisor = Some(supervisor.pid());
        self.stage = Stage::Starting(out.ask(supervisor.pid(), SupervisorMessage::started, Duration::MAX));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) -> StepResult<()> {
        let mut goes_on = false;
        loop {
            let takes_messages = matches!(self.stage, Stage::Up) && !goes_on;
            let event = if takes_messages { events.next() } else { events.select(|_| false) };
            match event {
                Some(Event::Message(message)) => self.route(message, out),
                Some(Event::Completed(done)) => {
                    if let Stage::Starting(started) = self.stage
                        && let Some(started) = done.take(started)
                    {
                        // If the supervisor has ended instead, its exit follows.
                        self.stage = if started.is_ok() { Stage::Up } else { Stage::New };
                        // The messages that this step has passed over are given to the next one.
                        goes_on = started.is_ok();
                    }
                }
                Some(Event::Down(down)) => {
                    if let Some(index) = self.by_pid.remove(&down.pid) {
                        self.places[index].child = None;
                    }
                }
                Some(Event::Exit(signal)) => {
                    let signal = signal.into_inner();
                    if Some(signal.pid) == self.supervisor {
                        return self.ended(signal.exit);
                    }
                    // Another process to which the router is linked.
                    if let Err(error) = signal.exit.into_result() {
                        self.end(Some(failure(error)), out);
                    }
                }
                Some(Event::Cancel(_)) => self.end(None, out),
                Some(_) => {}
                None => break,
            }
        }
        Ok(match self.stage {
            Stage::Starting(_) | Stage::Ending(_) => Step::Wait,
            _ if goes_on => Step::Continue,
            _ => Step::Idle,
        })
    }
}

impl<M: Send + 'static> fmt::Debug for Router<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("children", &self.places.len()).finish_non_exhaustive()
    }
}
