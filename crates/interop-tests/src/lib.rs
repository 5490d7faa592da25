//! Programs of futures that the tests run under several executors.

use std::time::Duration;

use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{
    CancelToken, CommandError, Event, Events, Process, ProcessRef, Reason, Reply, Runtime, SpawnOptions, Step,
    StepOutput, StepResult,
};

/// The limit of each wait. Only broken code reaches it.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The messages of [`Sum`].
pub enum SumMessage {
    /// Adds a number.
    Add(u64),
    /// Reads the sum.
    Read(Reply<u64>),
    /// Ends the process.
    End,
}

/// Adds numbers.
#[derive(Debug, Default)]
pub struct Sum(u64);

impl Process for Sum {
    type Message = SumMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, SumMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(SumMessage::Add(n)) => self.0 += n,
                Event::Message(SumMessage::Read(reply)) => out.reply(reply, self.0),
                _ => return Ok(Step::Done(self.0)),
            }
        }
        Ok(Step::Idle)
    }
}

/// The bound of the mailbox of the process that [`start`] returns.
pub const BOUND: usize = 16;

/// A runtime with one process.
pub fn start() -> (Runtime, procession::Handle<Sum>) {
    let runtime = Runtime::builder().workers(2).start().expect("a runtime starts");
    let sum = runtime.spawn_with(Sum::default(), SpawnOptions::new().mailbox(BOUND, Overflow::Refuse));
    (runtime, sum.expect("a process is spawned"))
}

/// Sends the numbers below `many`, each when there is room, and asks now and then.
pub async fn add(sum: ProcessRef<SumMessage>, many: u64) {
    for n in 0..many {
        sum.send_timeout(SumMessage::Add(n), LIMIT).await.expect("there will be room");
        if n % 50 == 0 {
            read(&sum).await;
        }
    }
}

/// Asks for the sum. A question does not wait for room, so this asks until there is some.
pub async fn read(sum: &ProcessRef<SumMessage>) -> u64 {
    loop {
        match sum.ask(SumMessage::Read, LIMIT).await {
            Ok(read) => return read,
            Err(CommandError::Full(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Awaits one future of each kind.
pub async fn every_kind(runtime: &Runtime, sum: &procession::Handle<Sum>) {
    let (latch, cancel, watch) = (Latch::new(), CancelToken::new(), runtime.watch(sum));
    let (sets, cancels, ends) = (latch.clone(), cancel.clone(), sum.process_ref());
    let other = std::thread::spawn(move || {
        sets.set(5).expect("it is set once");
        cancels.cancel(Reason::Cancelled);
    });
    assert_eq!((latch.await, cancel.cancelled().await), (5, Reason::Cancelled));
    other.join().expect("it does not panic");
    let read = read(&ends).await;
    ends.send_timeout(SumMessage::End, LIMIT).await.expect("there will be room");
    assert_eq!(sum.clone().await.output().map(|sum| **sum), Some(read));
    assert!(watch.await.exit.is_done());
    assert!(sum.ask(SumMessage::Read, LIMIT).await.is_err());
}
