//! E. Ending: a shutdown asks every process to stop, and returns when all have ended.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::spawn::Overflow;
use procession::{Event, Events, Process, Reason, Runtime, SpawnOptions, Step, StepOutput, StepResult};

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
fn a_shutdown_asks_each_process_once_and_waits_for_all_exits() {
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

/// Notes at the end of a thread, or of a process, whether the call that waits for it has returned.
#[derive(Clone, Default)]
struct Waited {
    /// How long an end takes.
    yields: usize,
    returned: Arc<AtomicBool>,
    before: Arc<AtomicUsize>,
}

struct Ending(Waited);

impl Drop for Ending {
    fn drop(&mut self) {
        // Long enough for a call that does not wait to return.
        for _ in 0..self.0.yields {
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

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        if events.any(|event| matches!(event, Event::Cancel(_))) {
            return Ok(Step::Done(()));
        }
        // One on each worker.
        wait(&self.1);
        ENDING.with(|ending| *ending.borrow_mut() = Some(Ending(self.0.clone())));
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        drop(Ending(self.0.clone()));
    }
}

/// How many processes were closed, and threads of workers ended, before `end` returned: of four.
fn ended_before(end: impl FnOnce(Runtime), yields: usize) -> usize {
    let (runtime, waited) = (runtime(2), Waited { yields, ..Waited::default() });
    let met = Arc::new(Barrier::new(3));
    let processes = [0, 1].map(|_| runtime.spawn(Lasting(waited.clone(), met.clone())).unwrap());
    wait(&*met);
    until("both steps are over", || runtime.is_idle());
    drop(processes);
    end(runtime);
    waited.returned.store(true, Ordering::SeqCst);
    waited.before.load(Ordering::SeqCst)
}

#[test]
fn a_shutdown_waits_for_all_closes_and_all_worker_threads() {
    let end = |runtime: Runtime| assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    assert_eq!(ended_before(end, 100), 4);
}

#[test]
fn the_drop_of_the_last_handle_waits_for_closes_and_threads() {
    // A busy machine may hold a thread up for longer than the drop waits, but not in all rounds.
    assert!((0..50).any(|_| ended_before(drop, 1) == 4));
}
