//! The access of relations to processes and to watchers outside.

use super::dispatch::Core;
#[cfg(feature = "durable")]
use crate::outcome::Exit;
use crate::outcome::drop_contained;
use crate::primitives::AtomicUsize;
use crate::process::Pid;
use crate::relations::{Cells, Told};
use crate::sched::cell::Cell;
#[cfg(feature = "cluster")]
use crate::sched::mailbox::Signal;
use crate::sched::non_local::NonLocal;
use crate::sched::road::{Executor, Road};

impl Cells for Road {
    fn cell(&self, pid: Pid) -> Option<&Cell> {
        self.table.cell(pid)
    }

    fn dooms(&self) -> &AtomicUsize {
        &self.dooms
    }

    fn elsewhere(&self, pid: Pid) -> Option<&dyn NonLocal> {
        self.elsewhere(pid)
    }
}

impl Core {
    /// Tells ordinary processes the end of one that has linked itself to them in its last step.
    #[cfg(feature = "durable")]
    pub(crate) fn tell_linked_last(&self, pid: Pid, exit: &Exit, partners: &[Pid]) {
        for partner in partners {
            self.told(self.relations.linked_last(&*self.road, *partner, (pid, exit)), &mut self.executor());
        }
    }

    /// Performs the action that remains after a process was notified.
    pub(crate) fn told<H: Executor>(&self, told: Told, executor: &mut H) {
        match told {
            Told::Nothing => {}
            Told::Woken(ready) => executor.woken(ready),
            Told::Doomed(pid, ready) => {
                ready.into_iter().for_each(|ready| executor.woken(ready));
                self.leave_pool(pid);
            }
            Told::Refused(control) => drop_contained(control),
            #[cfg(feature = "cluster")]
            Told::Elsewhere(to, control) => {
                executor.let_go();
                let refused = self.road.elsewhere(to).map(|node| node.signal(to, Signal::Control(control)));
                drop_contained(refused);
            }
            Told::Outside(latch, down) => {
                // The set calls the wakers and callbacks of the watcher.
                executor.let_go();
                drop_contained(latch.set(down));
                drop_contained(latch);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use crate::latch::Latch;
    use crate::process::{Address, Event, Events, Overflow, Pid, Process, SpawnOptions, Step, StepOutput, StepResult};
    use crate::runtime::Runtime;
    use crate::supervisor::{ChildSpec, Supervisor, SupervisorMessage};
    use crate::testing::question;
    use crate::threads;
    use crate::wait::{until, wait};

    /// Is done when it receives an event.
    struct Waits;

    impl Process for Waits {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
        }
    }

    /// Monitors and links in rounds, and takes all of it back.
    struct Fickle {
        of: Pid,
        rounds: u32,
    }

    const A_ROUND: u32 = 1_000;

    impl Process for Fickle {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            for _ in 0..A_ROUND {
                let monitor = out.monitor(self.of);
                out.demonitor(monitor);
            }
            out.link(self.of);
            out.unlink(self.of);
            self.rounds -= 1;
            Ok(if self.rounds == 0 { Step::Done(()) } else { Step::Continue })
        }
    }

    #[test]
    fn a_million_monitors_taken_back_leave_no_trace() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let of = runtime.spawn(Waits).unwrap();
        let fickle = runtime.spawn(Fickle { of: of.pid(), rounds: 1_000_000 / A_ROUND }).unwrap();
        assert!(wait(&fickle).is_done());
        assert_eq!(runtime.core().relations.len(), 0);
    }

    /// Relates itself to another in every way, and waits.
    struct Related {
        to: Address<()>,
        begun: Latch<()>,
    }

    impl Process for Related {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            if !self.begun.is_set() {
                let _ = self.begun.set(());
                out.trap_exits(true);
                out.monitor(self.to.pid());
                out.monitor(self.to.pid());
                out.link(self.to.pid());
            }
            let over = events.any(|event| matches!(event, Event::Message(())));
            Ok(if over { Step::Done(()) } else { Step::Idle })
        }
    }

    #[test]
    fn when_either_has_ended_nothing_of_their_relations_is_left() {
        for watched_first in [false, true] {
            let runtime = Runtime::builder().workers(1).start().unwrap();
            let of = runtime.spawn(Waits).unwrap();
            let related = Related { to: of.address(), begun: Latch::new() };
            let begun = related.begun.clone();
            let watcher = runtime.spawn(related).unwrap();
            wait(&begun);
            until("the runtime is at rest", || runtime.is_idle());
            assert_eq!(runtime.core().relations.len(), 2);
            let outside = runtime.watch(of.pid());
            let ends = if watched_first { of.address() } else { watcher.address() };
            runtime.send(ends, ()).unwrap();
            if watched_first {
                wait(&of).is_done()
            } else {
                wait(&watcher).is_done()
            };
            until("the runtime is at rest", || runtime.is_idle());
            drop(outside);
            assert_eq!(runtime.core().relations.len(), 0, "watched first: {watched_first}");
        }
    }

    /// Names itself, joins groups and subscribes, and ends.
    struct Sociable;

    impl Process for Sociable {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            let me = out.pid();
            out.register("sociable", me);
            for group in ["one", "two", "two"] {
                out.join_group(group, me);
                out.subscribe(group);
            }
            Ok(Step::Done(()))
        }
    }

    #[test]
    fn when_a_process_has_ended_nothing_of_its_names_and_groups_is_left() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        for _ in 0..100 {
            assert!(wait(&runtime.spawn(Sociable).unwrap()).is_done());
        }
        assert_eq!((runtime.core().groups.len(), runtime.core().names.all().len()), (0, 0));
    }

    /// The longest wait. A longer one is a hang. No test of correct code waits for it to pass.
    const LIMIT: Duration = Duration::from_secs(120);

    /// Holds its worker until it may go. From then on the worker is given no threads.
    struct Holds {
        begun: Latch<()>,
        go: Latch<()>,
    }

    impl Process for Holds {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            threads::refuse(true);
            let _ = self.begun.set(());
            self.go.wait();
            Ok(Step::Done(()))
        }
    }

    /// The child waits in its first step with a full mailbox. The supervisor's timer is refused.
    #[test]
    fn a_supervisor_without_a_timer_does_not_spin_on_a_full_child() {
        let runtime = Runtime::builder().workers(2).start().unwrap();
        let latches = [(); 2].map(|()| (Latch::new(), Latch::new()));
        let holds = latches.clone().map(|(begun, go)| runtime.spawn(Holds { begun, go }).unwrap());
        // Both workers have the refusal.
        latches.iter().for_each(|(begun, _)| wait(begun));
        let [(_, go_one), (_, go_other)] = latches;
        let (filled, stuck) = (Latch::new(), Latch::new());
        let (fills, gate, inside) = (filled.clone(), stuck.clone(), runtime.clone());
        let branch = move || {
            let (fills, gate, inside) = (fills.clone(), gate.clone(), inside.clone());
            let leaf = ChildSpec::new("leaf", move || {
                let (filler, _) = question();
                let _ = inside.send("branch", SupervisorMessage::children(filler));
                let _ = fills.set(());
                gate.wait();
                Waits
            });
            Supervisor::builder().child(leaf).build().unwrap()
        };
        let options = || SpawnOptions::new().name("branch").mailbox(1, Overflow::Refuse);
        let supervisor = Supervisor::builder().child(ChildSpec::supervisor("branch", branch).options(options));
        let supervisor = runtime.spawn(supervisor.build().unwrap()).unwrap();
        go_one.set(()).unwrap();
        wait(&filled);
        // Now the supervisor is stepped by the other worker, asks, and is to ask again later.
        go_other.set(()).unwrap();
        let branch = runtime.whereis("branch").unwrap();
        let began = std::time::Instant::now();
        while runtime.is_alive(branch) {
            assert!(began.elapsed() < LIMIT, "it is asked again and again");
            std::thread::yield_now();
        }
        stuck.set(()).unwrap();
        let exit = wait(&supervisor).without_output().to_string();
        assert!(exit.starts_with("failed: child \"branch\" did not start"), "{exit}");
        assert!(holds.iter().all(|held| wait(held).is_done()));
    }
}
