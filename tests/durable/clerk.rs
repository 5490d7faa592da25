//! A durable process that asks others and is asked, for the tests of stored questions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, until};
use crate::worker::{end, stepped};

/// An answer whose type the stores of these tests know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Price(pub(crate) u64);

/// Asks others, and is asked.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Clerk {
    /// The questions that it has asked, with their names.
    asked: Vec<(String, Tag<Price>)>,
    /// Their answers.
    notes: Vec<String>,
    /// The questions of others that it keeps.
    open: Vec<Reply<Price>>,
    /// Answers for which there was no question yet.
    prices: Vec<u64>,
    /// Those that it still asks, one after the other.
    in_a_row: Vec<Address<ClerkMessage>>,
    /// Whether some of these questions have a limit.
    has_limits: bool,
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum How {
    /// Answers at once.
    Now,
    /// Answers at once, with `Reply::send`.
    Send,
    Keep,
    /// Keeps the question, and has no answer.
    Never,
    Discard,
    /// Ends without an answer.
    End,
    /// Answers in the step in which it ends.
    AnswerAndEnd,
    /// Answers, and fails at each attempt.
    AnswerAndAlwaysFail,
    /// Answers, and fails as often as the static counter says.
    AnswerAndFail,
    /// Drops the reply, and fails in the same way.
    DiscardAndFail,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ClerkMessage {
    /// Asks another one, with a name for the question, and its limit in seconds.
    Ask {
        to: Address<ClerkMessage>,
        how: How,
        name: String,
        limit: Option<u64>,
    },
    /// As `Ask`, and returns `Wait`.
    AskAndWait(Address<ClerkMessage>, How),
    AskAndFail(Address<ClerkMessage>),
    /// Asks another one, and then tells it to end.
    AskAndEnd(Address<ClerkMessage>),
    /// Asks these, one after the other. Whether there are questions with a limit.
    InARow(Vec<Address<ClerkMessage>>, bool),
    Price(How, Reply<Price>),
    /// Answers the oldest question, or the next one.
    Answer(u64),
    Drop,
    /// Has another clerk answer the oldest question in this way.
    PassOn(Address<ClerkMessage>, How),
    /// Moves the oldest reply into an ordinary process.
    HandOn(Address<Reply<Price>>),
    Fail,
    Nothing,
    Over,
    Look(Reply<Vec<String>>),
}

/// How many of the next steps fail that can do so. One test sets it.
pub(crate) static FAILURES: AtomicU32 = AtomicU32::new(0);

fn fails() -> bool {
    FAILURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

const IN_A_ROW: [(How, &str); 6] = [
    (How::Now, "q: 7"),
    (How::Keep, "q: 7"),
    (How::Discard, "q: dropped without an answer"),
    (How::End, "q: ended"),
    (How::Send, "q: 7"),
    (How::Never, "q: timed out"),
];

fn way(left: usize, has_limits: bool) -> (How, &'static str) {
    IN_A_ROW[left % (IN_A_ROW.len() - usize::from(!has_limits))]
}

/// The answers of so many that are asked one after the other.
pub(crate) fn in_a_row(others: usize, has_limits: bool) -> Vec<&'static str> {
    (0..others).rev().map(|left| way(left, has_limits).1).collect()
}

impl Clerk {
    fn ask(&mut self, out: &mut StepOutput, (to, how): (Address<ClerkMessage>, How), name: String, limit: Option<u64>) {
        let limit = limit.map_or(Duration::MAX, Duration::from_secs);
        let tag = out.ask(to, |reply| ClerkMessage::Price(how, reply), limit);
        self.asked.push((name, tag));
    }

    fn next(&mut self, out: &mut StepOutput) {
        if let Some(next) = self.in_a_row.pop() {
            let how = way(self.in_a_row.len(), self.has_limits).0;
            self.ask(out, (next, how), "q".into(), Some(5).filter(|_| how == How::Never));
            if how == How::Keep {
                out.send(next, ClerkMessage::Answer(7));
            }
        }
    }

    fn answer(&mut self, out: &mut StepOutput, reply: Reply<Price>) {
        match self.prices.pop() {
            Some(price) => out.reply(reply, Price(price)),
            None => self.open.push(reply),
        }
    }
}

impl Process for Clerk {
    type Message = ClerkMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ClerkMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(ClerkMessage::Ask { to, how, name, limit }) => self.ask(out, (to, how), name, limit),
                Event::Message(ClerkMessage::AskAndWait(to, how)) => {
                    self.ask(out, (to, how), "q".into(), None);
                    self.waits = true;
                }
                Event::Message(ClerkMessage::AskAndFail(to)) => {
                    self.ask(out, (to, How::Now), "q".into(), None);
                    if fails() {
                        return Err("on purpose".into());
                    }
                }
                Event::Message(ClerkMessage::AskAndEnd(to)) => {
                    self.ask(out, (to, How::Now), "q".into(), None);
                    out.send(to, ClerkMessage::Over);
                }
                Event::Message(ClerkMessage::InARow(others, has_limits)) => {
                    (self.in_a_row, self.has_limits) = (others, has_limits);
                    self.next(out);
                }
                Event::Message(ClerkMessage::Price(how, reply)) => match how {
                    How::Now => out.reply(reply, Price(7)),
                    How::Send => assert!(reply.send(Price(7))),
                    How::Keep => self.answer(out, reply),
                    How::Never => self.open.push(reply),
                    How::Discard => drop(reply),
                    How::End => return Ok(Step::Done(())),
                    How::AnswerAndEnd => {
                        out.reply(reply, Price(7));
                        return Ok(Step::Done(()));
                    }
                    How::AnswerAndAlwaysFail => {
                        out.reply(reply, Price(7));
                        return Err("on purpose".into());
                    }
                    How::AnswerAndFail => {
                        out.reply(reply, Price(7));
                        if fails() {
                            return Err("on purpose".into());
                        }
                    }
                    How::DiscardAndFail => {
                        drop(reply);
                        if fails() {
                            return Err("on purpose".into());
                        }
                    }
                },
                Event::Message(ClerkMessage::Answer(price)) if self.open.is_empty() => self.prices.push(price),
                Event::Message(ClerkMessage::Answer(price)) => out.reply(self.open.remove(0), Price(price)),
                Event::Message(ClerkMessage::Drop) => drop(self.open.remove(0)),
                Event::Message(ClerkMessage::PassOn(to, how)) => {
                    out.send(to, ClerkMessage::Price(how, self.open.remove(0)));
                }
                Event::Message(ClerkMessage::HandOn(to)) => out.send(to, self.open.remove(0)),
                Event::Message(ClerkMessage::Fail) => return Err("on purpose".into()),
                Event::Message(ClerkMessage::Nothing) => {}
                Event::Message(ClerkMessage::Over) => return Ok(Step::Done(())),
                Event::Message(ClerkMessage::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Completed(done) => {
                    let place = self.asked.iter().position(|(_, tag)| done.is(*tag));
                    let (name, tag) = self.asked.remove(place.ok_or("an answer without a question")?);
                    self.notes.push(match done.take(tag).ok_or("no answer")? {
                        Ok(Price(price)) => format!("{name}: {price}"),
                        Err(CommandError::Ended(_)) => format!("{name}: ended"),
                        Err(CommandError::Full(_)) => format!("{name}: full"),
                        Err(CommandError::WrongType { .. }) => format!("{name}: wrong type"),
                        Err(error) => format!("{name}: {error}"),
                    });
                    self.waits = false;
                    self.next(out);
                }
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(if self.waits { Step::Wait } else { Step::Idle })
    }
}

impl Durable for Clerk {
    const NAME: &str = "clerk";
}

/// Answers what it gets, and says whether that was in time.
pub(crate) struct Stranger(pub(crate) std::sync::mpsc::Sender<bool>);

impl Process for Stranger {
    type Message = Reply<Price>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<Price>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => drop(self.0.send(reply.send(Price(1)))),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) type Opened = (Store, Runtime);

pub(crate) fn start(journal: impl Journal + 'static, builder: RuntimeBuilder) -> Opened {
    store_in(journal).kind::<Clerk>().answers::<Price>("price").start(builder.workers(2)).unwrap()
}

pub(crate) fn open(disk: &MemoryDisk) -> Opened {
    start(MemoryJournal::new(disk), Runtime::builder())
}

pub(crate) fn by_clock(disk: &MemoryDisk, clock: &ManualClock) -> Opened {
    start(MemoryJournal::new(disk), Runtime::builder().clock(clock.clock()))
}

pub(crate) fn begin<const N: usize>(store: &Store) -> [Address<ClerkMessage>; N] {
    let address = |n: usize| {
        let begun = store.begin(&n.to_string(), Clerk::default()).unwrap();
        begun.wait(Duration::MAX).unwrap();
        begun.address()
    };
    std::array::from_fn(address)
}

pub(crate) fn tell(store: &Store, to: Address<ClerkMessage>, message: ClerkMessage) {
    store.send(to, message).unwrap().wait(Duration::MAX).unwrap();
}

pub(crate) fn question(to: Address<ClerkMessage>, how: How) -> ClerkMessage {
    limited(to, how, None)
}

pub(crate) fn limited(to: Address<ClerkMessage>, how: How, limit: Option<u64>) -> ClerkMessage {
    ClerkMessage::Ask { to, how, name: "q".into(), limit }
}

pub(crate) fn look(runtime: &Runtime, of: Address<ClerkMessage>) -> Option<Vec<String>> {
    runtime.ask(of, ClerkMessage::Look, LIMIT).wait().ok()
}

/// The answers of a process by a clock that stands still.
pub(crate) fn notes(runtime: &Runtime, of: Address<ClerkMessage>) -> Vec<String> {
    runtime.ask(of, ClerkMessage::Look, Duration::MAX).wait().unwrap()
}

pub(crate) fn shut((store, runtime): Opened) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

/// Looks in several runs: an answer that comes once is there once.
pub(crate) fn is_told(disk: &MemoryDisk, asker: Address<ClerkMessage>, told: &[&str]) {
    for _ in 0..2 {
        let (store, runtime) = open(disk);
        until("it is told", || look(&runtime, asker).is_some_and(|notes| notes.len() >= told.len()));
        stepped(&runtime);
        assert_eq!(look(&runtime, asker).unwrap(), told);
        end((store, runtime));
    }
}
