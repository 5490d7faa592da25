//! The questions between two nodes, by their numbers.
//!
//! **At the asker.** A message with a reply is encoded. The encoder [exports](Questions::export) the question: it gives
//! the question a number and keeps it. The answer arrives with this number, or the reason why none will come. It takes
//! the question out. So each question is answered once, even if a frame says so twice. When the connection breaks, all
//! questions that are left are answered.
//!
//! **At the other node.** The decoder makes a reply whose asker is this number. Its answer is encoded, and goes back on
//! the same connection. The encoder of a type is noted when a reply of that type is decoded.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::guarded;
use super::output::Output;
use crate::outcome::{BoxError, contain, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicU64, Mutex, Ordering, Weak, lock};
use crate::process::far_asker::{ClosesElsewhere, Exported};
use crate::process::{Ask, CommandError, Reply};

/// The relations of a process, from its start on, to the process that spawns it on another node.
#[derive(Clone, Copy)]
pub(crate) struct Relations {
    /// The process that spawns it. `None` if the two are not related.
    pub(crate) of: Option<Pid>,
    pub(crate) link: bool,
    /// The number of the spawner's monitor.
    pub(crate) monitor: Option<u64>,
}

/// Decodes the answer to a question. Refuses bytes that are not such an answer.
pub(crate) type ReadAnswer = fn(&[u8]) -> Result<Answer, BoxError>;

/// An answer that was decoded, as a call that gives it to the asker. Returns whether the asker still waited.
pub(crate) type Answer = Box<dyn FnOnce(Arc<Ask>) -> bool>;

/// Encodes an answer.
pub(crate) type WriteAnswer = fn(&dyn Any, &mut Output) -> Result<(), BoxError>;

/// The questions of one connection whose replies are on the other node.
pub(crate) struct Questions {
    next: AtomicU64,
    /// By their numbers, so that all are told in the order in which they were asked.
    open: Mutex<BTreeMap<u64, Open>>,
    /// Told the numbers of questions that are decided here, and their senders.
    closed: Box<dyn Fn(u64, u64) + Send + Sync>,
    me: Weak<Questions>,
}

/// A question that waits for its answer.
pub(crate) struct Open {
    ask: Arc<Ask>,
    read: ReadAnswer,
    /// The packed PID of the process that has sent the reply, or 0.
    sender: u64,
    /// If the question is the order for a process: how that process is related to the one that spawns it.
    spawned: Option<Relations>,
}

impl Questions {
    /// No questions. `closed` is called with the number of a question whose asker has given up, and with the sender.
    pub(crate) fn new(closed: impl Fn(u64, u64) + Send + Sync + 'static) -> Arc<Questions> {
        Arc::new_cyclic(|me: &Weak<Questions>| Questions {
            next: AtomicU64::new(0),
            open: Mutex::default(),
            closed: Box::new(closed),
            me: me.clone(),
        })
    }

    /// Gives a question a number. From now on the drop of its reply tells the asker nothing. `sender` is the packed PID
    /// of the process that sends the reply, or 0. `T` is the type of the answer.
    pub(crate) fn export<T: DeserializeOwned + Send + 'static>(&self, ask: &Arc<Ask>, sender: u64) -> u64 {
        self.add(ask, Open { ask: ask.clone(), read: read_answer::<T>, sender, spawned: None })
    }

    /// As `export`, for the order for a process. The report of its start is read in this way.
    pub(crate) fn export_order(&self, ask: &Arc<Ask>, sender: u64, read: ReadAnswer, spawned: Relations) -> u64 {
        self.add(ask, Open { ask: ask.clone(), read, sender, spawned: Some(spawned) })
    }

    fn add(&self, ask: &Arc<Ask>, open: Open) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(number, open);
        ask.export(Exported { desk: self.me.clone(), number });
        number
    }

    /// The message with the reply to this question was not sent.
    pub(crate) fn take_back(&self, number: u64, ask: &Ask) {
        drop(lock(&self.open).remove(&number));
        ask.take_export_back();
    }

    /// Takes a question out, to answer it. `from` is the process that has answered.
    pub(crate) fn take(&self, number: u64, from: Option<Pid>) -> Option<Open> {
        let open = lock(&self.open).remove(&number)?;
        open.ask.set_answered_by(from);
        Some(open)
    }

    /// Whether a question was neither answered nor given up.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        lock(&self.open).contains_key(&number)
    }

    /// Answers all open questions with an error, which is made of the asked process.
    pub(crate) fn answer_all(&self, why: impl Fn(Pid) -> CommandError) {
        let all = std::mem::take(&mut *lock(&self.open));
        all.into_values().for_each(|open| open.ask.give_up(why(open.ask.target())));
    }

    /// The number of open questions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.open).len()
    }
}

impl ClosesElsewhere for Questions {
    fn closed(&self, number: u64) {
        let open = lock(&self.open).remove(&number);
        if let Some(open) = open {
            (self.closed)(number, open.sender);
        }
    }
}

impl Open {
    /// The relations of the process that was ordered. `None` if the question is no order.
    pub(crate) fn spawned(&self) -> Option<Relations> {
        self.spawned
    }

    /// Decodes the answer. It runs in the scope of the value.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Answer, BoxError> {
        (self.read)(bytes)
    }

    /// Gives the asker the answer. Its wakers and callbacks run. Returns whether it still waited.
    pub(crate) fn answer(self, answer: Answer) -> bool {
        contain(|| answer(self.ask)).unwrap_or_else(|panic| {
            tell_log(|| tracing::error!(%panic, "an asker panicked when its answer arrived"));
            // It was answered before its callbacks were called.
            true
        })
    }

    /// Tells the asker that there is no answer.
    pub(crate) fn give_up(self, why: CommandError) {
        self.ask.give_up(why);
    }
}

fn read_answer<T: DeserializeOwned + Send + 'static>(bytes: &[u8]) -> Result<Answer, BoxError> {
    let answer: T = guarded::decode(bytes)?;
    Ok(Box::new(move |ask| Reply::to(ask).is_some_and(|reply| reply.send(answer))))
}

/// The encoders of the answers to questions of other nodes.
#[derive(Default)]
pub(crate) struct AnswerTypes(Mutex<HashMap<TypeId, WriteAnswer>>);

impl AnswerTypes {
    /// Notes how an answer of this type is encoded.
    pub(crate) fn note<T: Serialize + 'static>(&self) {
        lock(&self.0).entry(TypeId::of::<T>()).or_insert(write_answer::<T>);
    }

    /// The encoder of this answer.
    pub(crate) fn of(&self, answer: &dyn Any) -> Option<WriteAnswer> {
        lock(&self.0).get(&answer.type_id()).copied()
    }
}

fn write_answer<T: Serialize + 'static>(answer: &dyn Any, to: &mut Output) -> Result<(), BoxError> {
    let answer = answer.downcast_ref::<T>().ok_or("an answer has another type than its question")?;
    to.encode(answer)
}
