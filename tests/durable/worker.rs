//! A durable process that does what it is told.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use procession::command::{Command, TimerFired};
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, DurableCommand, ErrorText, Store};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, until};

/// Does what it is told, and notes what it gets.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(crate) value: u64,
    notes: Vec<String>,
    pub(crate) filling: String,
    waits: bool,
    timer: Option<Tag<TimerFired>>,
    #[serde(skip)]
    resumed: u32,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    Set(u64),
    /// Notes who has sent it.
    Who,
    /// Has another one note who has sent.
    Introduce(Address<WorkerMessage>),
    /// Sends the number to an ordinary process.
    Tell(Address<u64>, u64),
    Charge(u64),
    /// Sets a timer of so many days.
    Days(u64),
    CancelTimer,
    /// Begins a future and a blocking closure, which count themselves.
    Closures,
    /// Begins a future that is never ready.
    Hang,
    /// As `Hang`, and waits for it.
    HangAndWait,
    /// Sets the value to the number, and fails as often as the static counter says.
    Fail(u64),
    Grow(usize),
    Look(Reply<(u64, Vec<String>, u32)>),
    Keep(Reply<()>),
    Over,
}

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A command to the world outside.
#[derive(Serialize, Deserialize)]
pub(crate) struct Charge;

impl Command for Charge {
    type Output = u64;
}

impl DurableCommand for Charge {
    const NAME: &str = "charge";
    type Error = ErrorText;
}

/// How often a step is to fail.
pub(crate) static FAILURES: AtomicU32 = AtomicU32::new(0);

/// The futures and the blocking closures that have begun. One test has them.
pub(crate) static CLOSURES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Process for Worker {
    type Message = WorkerMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, WorkerMessage>, out: &mut StepOutput) -> StepResult<u64> {
        while let Some(event) = events.next() {
            match event {
                Event::Message(WorkerMessage::Set(value)) => self.value = value,
                Event::Message(WorkerMessage::Who) => self.notes.push(format!("{:?}", events.sender())),
                Event::Message(WorkerMessage::Introduce(to)) => out.send(to, WorkerMessage::Who),
                Event::Message(WorkerMessage::Tell(to, number)) => out.send(to, number),
                Event::Message(WorkerMessage::Charge(value)) => {
                    self.value = value;
                    out.command(Charge);
                }
                Event::Message(WorkerMessage::Days(days)) => self.timer = Some(out.after(DAY * days as u32)),
                Event::Message(WorkerMessage::CancelTimer) => {
                    self.timer.take().into_iter().for_each(|timer| out.cancel_timer(timer));
                }
                Event::Message(WorkerMessage::Closures) => {
                    out.future(async { CLOSURES[0].fetch_add(1, Ordering::SeqCst) });
                    out.blocking(|| CLOSURES[1].fetch_add(1, Ordering::SeqCst));
                }
                Event::Message(WorkerMessage::Hang) => drop(out.future(std::future::pending::<()>())),
                Event::Message(WorkerMessage::HangAndWait) => {
                    out.future(std::future::pending::<()>());
                    self.waits = true;
                    return Ok(Step::Wait);
                }
                Event::Message(WorkerMessage::Fail(value)) => {
                    self.value = value;
                    if FAILURES.load(Ordering::SeqCst) > 0 {
                        FAILURES.fetch_sub(1, Ordering::SeqCst);
                        return Err("on purpose".into());
                    }
                }
                Event::Message(WorkerMessage::Grow(size)) => self.filling = "x".repeat(size),
                Event::Message(WorkerMessage::Look(reply)) => {
                    out.reply(reply, (self.value, self.notes.clone(), self.resumed));
                }
                Event::Message(WorkerMessage::Keep(reply)) => drop(reply),
                Event::Message(WorkerMessage::Over) => return Ok(Step::Done(self.value)),
                Event::Completed(_) => self.notes.push("answer".into()),
                Event::Cancel(request) => self.notes.push(format!("cancel: {}", request.reason)),
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Worker {
    const NAME: &str = "worker";

    fn resumed(&mut self) {
        self.resumed += 1;
    }
}

pub(crate) fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> (Store, Runtime) {
    store_in(journal).kind::<Worker>().start(builder.workers(2)).unwrap()
}

pub(crate) fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    start(MemoryJournal::new(disk), Runtime::builder())
}

pub(crate) fn end((store, runtime): (Store, Runtime)) {
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
}

/// Ends a program as a kill does: nothing reaches the disk any more.
pub(crate) fn kill(disk: &MemoryDisk, (store, runtime): (Store, Runtime)) {
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    let report = runtime.shutdown(LIMIT).unwrap();
    assert_eq!((report.terminated, report.stuck.len()), (0, 0), "{report}");
    drop(store.close());
    disk.crash();
    disk.heal();
}

/// Waits until no message waits and no process is stepped. Commands may be outstanding.
pub(crate) fn stepped(runtime: &Runtime) {
    until("all messages are stepped", || runtime.stats().messages.queued == 0 && runtime.is_idle());
}

/// Asks until there is an answer. While the store opens its files again, a question may be dropped.
pub(crate) fn asked<T>(ask: impl Fn() -> Option<T>) -> T {
    let mut answer = None;
    until("there is an answer", || {
        answer = ask();
        answer.is_some()
    });
    answer.unwrap()
}

pub(crate) fn look(runtime: &Runtime, worker: Address<WorkerMessage>) -> (u64, Vec<String>, u32) {
    runtime.ask(worker, WorkerMessage::Look, LIMIT).wait().unwrap()
}

/// Asks, and looks whether the answer has come. A process that pauses answers when the clock goes on, which it does
/// between two looks.
pub(crate) fn answer_of<F: Future + Unpin>(asked: &mut Option<F>, ask: impl FnOnce() -> F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(asked.get_or_insert_with(ask)).poll(&mut context) {
        std::task::Poll::Ready(answer) => {
            *asked = None;
            Some(answer)
        }
        std::task::Poll::Pending => None,
    }
}
