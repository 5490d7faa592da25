//! E. Ending: a shutdown asks every process to stop, and returns when all have ended.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::{Event, Events, Overflow, Process, Reason, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::helpers::*;

type Reasons = Vec<Reason>;

/// Works off what it is told, and does something else in the meantime, until it is asked to stop.
fn meanwhile(
    what: impl Fn(&mut StepOutput) -> Step<Reasons> + Send + 'static,
) -> impl Process<Message = u32, Output = Reasons> {
    script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        let mut reasons = Vec::new();
        for event in events {
            if let Event::Cancel(request) = event {
                assert!(request.deadline.is_some());
                reasons.push(request.reason.clone());
            }
        }
        Ok(if reasons.is_empty() { what(out) } else { Step::Done(reasons) })
    })
}

#[test]
fn shutdown_asks_each_process_once_to_stop_whatever_it_does_and_returns_when_all_have() {
    for workers in [1, 2] {
        // Nobody moves the clock, so a shutdown that waited for its limit would not return.
        let runtime = builder().workers(workers).clock(ManualClock::new().clock()).start().unwrap();
        let hour = Duration::from_secs(3_600);
        let kinds: [fn(&mut StepOutput) -> Step<Reasons>; 4] = [
            |_| Step::Idle,
            |_| Step::Continue,
            |_| Step::Blocking,
            |out| {
                out.after(Duration::from_secs(3_600));
                Step::Wait
            },
        ];
        let options = || [SpawnOptions::new(), SpawnOptions::new().mailbox(1, Overflow::Refuse)];
        let processes: Vec<_> = kinds
            .into_iter()
            .flat_map(|kind| options().map(|options| runtime.spawn_with(meanwhile(kind), options).unwrap()))
            .collect();
        // Each has had a step, and some have a message that waits, or a full mailbox.
        until("all are stepped", || processes.iter().all(|one| runtime.process(one.pid()).unwrap().steps > 0));
        processes.iter().for_each(|process| drop(runtime.send(process.address(), 1)));
        // One that has not had its first step, if this thread is fast enough.
        let new = runtime.spawn(meanwhile(kinds[0])).unwrap();
        std::thread::scope(|scope| {
            let report = wait(scope.spawn(|| runtime.shutdown(hour).unwrap())).unwrap();
            assert_eq!((report.ended, report.is_clean()), (processes.len() + 1, true), "{report}");
        });
        for process in processes.iter().chain([&new]) {
            assert!(process.is_finished(), "the shutdown has waited for it");
            assert_eq!(*output(process), [Reason::Shutdown]);
        }
    }
}

/// Notes at the end of a thread, or of a process, whether what was to wait for it has returned.
#[derive(Clone, Default)]
struct Waited {
    returned: Arc<AtomicBool>,
    before: Arc<AtomicUsize>,
}

struct Ending(Waited);

impl Drop for Ending {
    fn drop(&mut self) {
        // Long enough for one that does not wait to return.
        for _ in 0..5 {
            if self.0.returned.load(Ordering::SeqCst) {
                return;
            }
            std::thread::yield_now();
        }
        self.0.before.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static ENDING: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

/// Has a part in the end of its worker's thread, and a `close` that takes its time.
struct Lasting(Waited, Arc<Barrier>);

impl Process for Lasting {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        // One on each worker.
        wait(&self.1);
        ENDING.with(|ending| *ending.borrow_mut() = Some(Ending(self.0.clone())));
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        drop(Ending(self.0.clone()));
    }
}

#[test]
fn the_end_of_a_runtime_returns_when_all_are_closed_and_the_threads_of_its_workers_are_gone() {
    for end in [drop::<Runtime>, |runtime: Runtime| drop(runtime.shutdown(Duration::ZERO))] {
        // A machine that holds a thread up for longer than a shutdown waits may spoil a round, but not all of them.
        let waits = (0..20).any(|_| {
            let (runtime, waited, met) = (runtime(2), Waited::default(), Arc::new(Barrier::new(3)));
            let processes = [0, 1].map(|_| runtime.spawn(Lasting(waited.clone(), met.clone())).unwrap());
            wait(&*met);
            until("both steps are over", || runtime.is_idle());
            drop(processes);
            end(runtime);
            waited.returned.store(true, Ordering::SeqCst);
            waited.before.load(Ordering::SeqCst) == 4
        });
        assert!(waits, "two processes were closed, and two threads ended, before it returned");
    }
}
