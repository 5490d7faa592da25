//! A durable process that yields stored commands, and notes their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use procession::command::{Attempt, Command, CommandKey, Responder, Retry};
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, Journal, MemoryDisk};
use procession::durable::{Durable, DurableCommand, Store};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, Mutex};
use crate::worker::stepped;

/// A command with a plan of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pay {
    pub(crate) amount: u64,
    pub(crate) attempts: u32,
    /// The first pause, in seconds. The next ones are twice as long.
    pub(crate) pause: u64,
    /// The longest pause, in seconds.
    pub(crate) longest: Option<u64>,
    /// The part of each pause that chance may take off.
    pub(crate) jitter: f64,
    /// The limit of all attempts together, in seconds.
    pub(crate) total: Option<u64>,
    /// Set before each attempt.
    #[serde(skip)]
    pub(crate) attempt: Option<Attempt>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum PayError {
    #[error("busy {0}")]
    Busy(u32),
    #[error("no such account")]
    NoSuchAccount,
}

impl Pay {
    /// One attempt.
    pub(crate) fn once(amount: u64) -> Pay {
        Pay { amount, attempts: 1, pause: 0, longest: None, jitter: 0.0, total: None, attempt: None }
    }

    pub(crate) fn with(amount: u64, attempts: u32, pause: u64) -> Pay {
        Pay { attempts, pause, ..Pay::once(amount) }
    }
}

impl Command for Pay {
    type Output = u64;
}

impl DurableCommand for Pay {
    const NAME: &str = "pay";
    type Error = PayError;

    fn retry(&self) -> Retry {
        let retry = Retry::new().first_pause(Duration::from_secs(self.pause)).attempts(self.attempts);
        let retry = retry.cap(self.longest.map_or(Duration::MAX, Duration::from_secs)).jitter(self.jitter);
        let retry = retry.final_if(|why| why.downcast_ref() == Some(&PayError::NoSuchAccount));
        self.total.map_or(retry, |total| retry.total_time(Duration::from_secs(total)))
    }

    fn begin_attempt(&mut self, attempt: &Attempt) {
        self.attempt = Some(*attempt);
    }
}

/// A stored command of another type.
#[derive(Serialize, Deserialize)]
pub(crate) struct Refund;

impl Command for Refund {
    type Output = u64;
}

impl DurableCommand for Refund {
    const NAME: &str = "refund";
    type Error = PayError;
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Payer {
    pub(crate) notes: Vec<String>,
    open: Vec<Tag<u64>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum PayerMessage {
    Pay(Pay),
    /// As `Pay`, with a limit in seconds.
    PayWithin(Pay, u64),
    /// Cancels the command in the same step.
    PayAndCancel(Pay),
    /// Changes nothing. When it is on disk, all before it is.
    Mark,
    /// Cancels the last command.
    Cancel,
    Look(Reply<Vec<String>>),
    Over,
}

/// How often a step that takes an answer is to fail.
pub(crate) static FAILURES: AtomicU32 = AtomicU32::new(0);

impl Process for Payer {
    type Message = PayerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PayerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PayerMessage::Pay(pay)) => self.open.push(out.command(pay)),
                Event::Message(PayerMessage::PayWithin(pay, limit)) => {
                    self.open.push(out.command_timeout(pay, Duration::from_secs(limit)));
                }
                Event::Message(PayerMessage::PayAndCancel(pay)) => {
                    let tag = out.command(pay);
                    self.open.push(tag);
                    out.cancel_command(tag);
                }
                Event::Message(PayerMessage::Mark) => {}
                Event::Message(PayerMessage::Cancel) => {
                    self.open.last().into_iter().for_each(|tag| out.cancel_command(*tag));
                }
                Event::Message(PayerMessage::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Message(PayerMessage::Over) => return Ok(Step::Done(())),
                Event::Completed(done) => {
                    let Some(answer) = self.open.iter().find_map(|tag| done.take(*tag)) else { continue };
                    self.notes.push(match answer {
                        Ok(value) => value.to_string(),
                        Err(why) => match why.downcast_ref::<PayError>() {
                            Some(why) => format!("{why:?}"),
                            None => why.to_string(),
                        },
                    });
                    if self.notes.last().is_some_and(|note| note == "13") && FAILURES.load(Ordering::SeqCst) > 0 {
                        FAILURES.fetch_sub(1, Ordering::SeqCst);
                        return Err("on purpose".into());
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Payer {
    const NAME: &str = "payer";
}

/// An attempt that a handler has got: its key and its number, and the responder, if it was kept.
type Call = (CommandKey, u32, Option<Responder<u64>>);

/// The attempts that a handler has got.
#[derive(Clone, Default)]
pub(crate) struct Calls(pub(crate) Arc<Mutex<Vec<Call>>>);

impl Calls {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().map(|(_, number, _)| *number).collect()
    }

    pub(crate) fn keys(&self) -> Vec<CommandKey> {
        self.0.lock().unwrap().iter().map(|(key, ..)| *key).collect()
    }

    /// A builder with a handler that notes each call. `answer` answers, or returns the responder, which is kept.
    pub(crate) fn handled_by(
        &self,
        answer: impl Fn(&Pay, Responder<u64>) -> Option<Responder<u64>> + Send + Sync + 'static,
    ) -> RuntimeBuilder {
        let calls = self.clone();
        Runtime::builder().workers(2).handler(move |pay: Pay, done: Responder<u64>| {
            let (key, number) = (done.key().expect("it is stored"), done.attempt());
            assert_eq!(pay.attempt, Some(Attempt { key, number }));
            // Noted before it is answered.
            calls.0.lock().unwrap().push((key, number, None));
            let kept = answer(&pay, done);
            let mut calls = calls.0.lock().unwrap();
            let call = calls.iter_mut().rfind(|call| (call.0, call.1) == (key, number));
            call.expect("it was noted").2 = kept;
            Ok(())
        })
    }
}

pub(crate) fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> (Store, Runtime) {
    store_in(journal).kind::<Payer>().command::<Pay>().start(builder).unwrap()
}

/// Fails with the number of the attempt.
pub(crate) fn busy(done: Responder<u64>) {
    let why = PayError::Busy(done.attempt());
    done.fail(why);
}

pub(crate) fn begin(store: &Store) -> Address<PayerMessage> {
    store.begin("payer", Payer::default()).unwrap().address()
}

pub(crate) fn notes(runtime: &Runtime, payer: Address<PayerMessage>) -> Vec<String> {
    runtime.ask(payer, PayerMessage::Look, LIMIT).wait().unwrap()
}

/// Waits until all that was done is on disk.
pub(crate) fn on_disk(store: &Store, runtime: &Runtime, payer: Address<PayerMessage>) {
    stepped(runtime);
    store.send(payer, PayerMessage::Mark).unwrap().wait(LIMIT).unwrap();
    // The answer rests on the step that has taken the mark.
    notes(runtime, payer);
}

/// Has all calls of the disk fail from now on.
pub(crate) fn fail_all(disk: &MemoryDisk) {
    (disk.calls()..disk.calls() + 1_000).for_each(|call| disk.fail_at(call, Fault::Error));
}

/// Ends a run as a kill does: nothing reaches the disk any more.
pub(crate) fn kill((store, runtime): (Store, Runtime), disk: &MemoryDisk) {
    fail_all(disk);
    drop(runtime.shutdown(LIMIT).unwrap());
    drop(store.close());
    drop((store, runtime));
    disk.crash();
    disk.heal();
}
