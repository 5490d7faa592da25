//! The meaning of PIDs and replies while a value is encoded for another node, or decoded from one.
//!
//! A PID is written as the index of its life, its slot and its generation. The life with index 0 is the node that
//! writes, and 1 is the node that reads. Other lives get the next indices, and a table of them follows the value. So a
//! value can be read alone, whatever was sent before.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::lives::{Life, Lives, NoNumberError};
use super::questions::{AnswerTypes, Questions};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::far_asker::{AnswersElsewhere, FarAsker};
use crate::process::host::CountedHost;
use crate::process::{Ask, Reply};

/// A PID as it travels: the index of its life, its slot and its generation.
type Noted = (u32, u32, u32);

/// The names of the newtypes in which PIDs and replies travel. They take no bytes. The shapes of types have them. So a
/// number is not taken for a reply.
const PID: &str = "procession::Pid";
const REPLY: &str = "procession::Reply";

/// Reads the value in a newtype.
struct Inner<T>(PhantomData<T>);

impl<T> Inner<T> {
    fn new() -> Inner<T> {
        Inner(PhantomData)
    }
}

impl<'a, T: Deserialize<'a>> Visitor<'a> for Inner<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PID or a reply")
    }

    fn visit_newtype_struct<D: Deserializer<'a>>(self, from: D) -> Result<T, D::Error> {
        T::deserialize(from)
    }
}

/// The index of the node that writes.
const WRITER: u32 = 0;
/// The index of the node that reads.
const READER: u32 = 1;
/// The first index of the table.
const OTHERS: u32 = 2;

/// The most lives in the table of one value.
pub(crate) const MAX_LIVES: usize = 1_000;

/// The most replies in one value.
pub(crate) const MAX_ASKS: usize = 1_000;

/// Why a PID or a reply cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScopeError {
    #[error("{0} is a PID of a node that this node does not know")]
    UnknownNode(Pid),
    #[error("the reply has been used, or was sent to another node before")]
    SpentReply,
    #[cfg(feature = "durable")]
    #[error("a reply to a stored question of a durable process cannot leave its store")]
    StoredReply,
    #[error("one message cannot have PIDs of more than {MAX_LIVES} nodes: send several messages")]
    TooManyLives,
    #[error("the value has a reply to the question {0}, which its table does not have, or has too many replies")]
    NoQuestion(u64),
    #[error("one message cannot have more than {MAX_ASKS} replies")]
    TooManyReplies,
    #[error("a PID has numbers that no PID has: life {}, slot {}, generation {}", .0.0, .0.1, .0.2)]
    NoPid(Noted),
    #[error(transparent)]
    NoNumber(#[from] NoNumberError),
    #[error("values are only encoded here")]
    OtherDirection,
}

/// One side of a connection.
pub(crate) struct Side {
    pub(crate) lives: Arc<Lives>,
    /// The number of this node.
    pub(crate) here: u32,
    /// The number that the other node has here.
    pub(crate) there: u32,
    /// The name of the other node.
    pub(crate) peer: Arc<str>,
    /// The questions of this node.
    pub(crate) questions: Arc<Questions>,
    /// The encoders of answers to the other node.
    pub(crate) answers: Arc<AnswerTypes>,
    /// Takes the answers to the questions of the other node.
    pub(crate) desk: Arc<dyn AnswersElsewhere>,
    /// The host of questions. `None` if the runtime has ended.
    pub(crate) host: Box<dyn Fn() -> Option<CountedHost> + Send + Sync>,
}

/// A value that is being encoded or decoded by this thread.
pub(crate) enum Scope {
    Writing {
        side: Arc<Side>,
        /// The numbers of the lives from [`OTHERS`] on.
        table: RefCell<Vec<u32>>,
        exported: RefCell<Vec<(u64, Arc<Ask>)>>,
        /// The packed PID of the process that sends the value, or 0.
        sender: u64,
        /// The first error, because the format does not keep texts.
        problem: RefCell<Option<ScopeError>>,
    },
    Reading {
        side: Arc<Side>,
        /// The lives from [`OTHERS`] on, with the numbers that they wish.
        table: Vec<(Life, u32)>,
        /// The questions whose replies the value has.
        asks: Vec<u64>,
        /// The process that is presumed to answer.
        reader: Cell<Option<Pid>>,
        /// The questions whose replies were decoded.
        imported: RefCell<Vec<(u64, Arc<Ask>)>>,
    },
    /// The shape of a type is taken.
    Probing,
}

thread_local! {
    static SCOPE: RefCell<Option<Rc<Scope>>> = const { RefCell::new(None) };
}

/// The scope of the value that this thread encodes or decodes.
pub(crate) fn here() -> Option<Rc<Scope>> {
    // A value may be dropped, and its reply answered, while the thread ends.
    SCOPE.try_with(|scope| scope.borrow().clone()).unwrap_or_default()
}

/// Runs code within a scope. Values within values are those of the inner scope.
pub(crate) fn within<R>(scope: &Rc<Scope>, code: impl FnOnce() -> R) -> R {
    /// Sets the outer scope back, also if the code panics.
    struct Reset(Option<Rc<Scope>>);
    impl Drop for Reset {
        fn drop(&mut self) {
            let _ = SCOPE.try_with(|scope| scope.replace(self.0.take()));
        }
    }
    // A store within which this runs does not see its own values here. One that runs within this scope does.
    #[cfg(feature = "durable")]
    let _store = crate::durable::leave_run();
    let _reset = Reset(SCOPE.try_with(|outer| outer.replace(Some(scope.clone()))).unwrap_or_default());
    code()
}

impl Scope {
    pub(crate) fn writing(side: Arc<Side>, sender: u64) -> Scope {
        let (table, exported, problem) = (RefCell::default(), RefCell::default(), RefCell::default());
        Scope::Writing { side, table, exported, sender, problem }
    }

    /// Reads a value with these lives, and with the replies to these questions.
    pub(crate) fn reading(side: Arc<Side>, table: Vec<(Life, u32)>, asks: Vec<u64>) -> Scope {
        Scope::Reading { side, table, asks, reader: Cell::new(None), imported: RefCell::default() }
    }

    /// The numbers of the questions whose replies the value has that is read.
    pub(crate) fn asks_to_read(&self) -> &[u64] {
        match self {
            Scope::Reading { asks, .. } => asks,
            _ => &[],
        }
    }

    pub(crate) fn set_reader(&self, pid: Option<Pid>) {
        if let Scope::Reading { reader, .. } = self {
            reader.set(pid);
        }
    }

    /// Takes the questions whose replies were decoded, with their numbers.
    pub(crate) fn take_imported(&self) -> Vec<(u64, Arc<Ask>)> {
        match self {
            Scope::Reading { imported, .. } => imported.take(),
            _ => Vec::new(),
        }
    }

    /// The numbers of the questions that were exported with the value.
    pub(crate) fn asks(&self) -> Vec<u64> {
        match self {
            Scope::Writing { exported, .. } => exported.borrow().iter().map(|(number, _)| *number).collect(),
            _ => Vec::new(),
        }
    }

    /// The table of lives that follows the value that was written.
    pub(crate) fn lives(&self) -> Vec<(Life, u32)> {
        let Scope::Writing { side, table, .. } = self else { return Vec::new() };
        // Each has a life: that was looked up when it got its index.
        let table = table.borrow();
        let lives = table.iter().filter_map(|number| Some((side.lives.life(*number)?, *number)));
        lives.collect()
    }

    /// Takes all exports of the value back, because it was not sent.
    pub(crate) fn take_back(&self) {
        if let Scope::Writing { side, exported, .. } = self {
            exported.take().into_iter().for_each(|(number, ask)| side.questions.take_back(number, &ask));
        }
    }

    /// Why the value was not encoded, if that is due to a PID or a reply.
    pub(crate) fn take_problem(&self) -> Option<ScopeError> {
        match self {
            Scope::Writing { problem, .. } => problem.take(),
            _ => None,
        }
    }

    /// Keeps the first error.
    fn keep<R, E: serde::ser::Error>(&self, result: Result<R, ScopeError>) -> Result<R, E> {
        result.map_err(|error| {
            let text = E::custom(&error);
            if let Scope::Writing { problem, .. } = self {
                problem.borrow_mut().get_or_insert(error);
            }
            text
        })
    }

    /// Writes a PID as it travels.
    pub(crate) fn write<S: Serializer>(&self, pid: Pid, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_newtype_struct(PID, &self.keep::<_, S::Error>(self.note(pid))?)
    }

    fn note(&self, pid: Pid) -> Result<Noted, ScopeError> {
        let Scope::Writing { side, table, .. } = self else { return Err(ScopeError::OtherDirection) };
        let number = pid.node();
        let index = if number == side.here {
            WRITER
        } else if number == side.there {
            READER
        } else {
            let mut table = table.borrow_mut();
            let found = table.iter().position(|known| *known == number);
            let index = match found {
                Some(index) => index,
                None => {
                    side.lives.life(number).ok_or(ScopeError::UnknownNode(pid))?;
                    if table.len() == MAX_LIVES {
                        return Err(ScopeError::TooManyLives);
                    }
                    table.push(number);
                    table.len() - 1
                }
            };
            OTHERS + index as u32
        };
        Ok((index, pid.slot(), pid.generation()))
    }

    /// Reads a PID that travelled so.
    pub(crate) fn read<'a, D: Deserializer<'a>>(&self, from: D) -> Result<Pid, D::Error> {
        self.pid(from.deserialize_newtype_struct(PID, Inner::new())?).map_err(D::Error::custom)
    }

    fn pid(&self, noted: Noted) -> Result<Pid, ScopeError> {
        let (side, table) = match self {
            Scope::Reading { side, table, .. } => (side, table),
            Scope::Probing => return Ok(Pid::FIRST),
            Scope::Writing { .. } => return Err(ScopeError::OtherDirection),
        };
        let (index, slot, generation) = noted;
        let number = match index {
            WRITER => Some(side.there),
            READER => Some(side.here),
            // A life gets its number when its first PID is read.
            other => match table.get((other - OTHERS) as usize) {
                Some((life, wish)) => Some(side.lives.number_through(&side.peer, *life, *wish)?),
                None => None,
            },
        };
        number.and_then(|number| Pid::new(number, slot, generation)).ok_or(ScopeError::NoPid(noted))
    }

    /// Writes a reply: exports its question, and writes the number.
    pub(crate) fn export<T, S>(&self, reply: &Reply<T>, to: S) -> Result<S::Ok, S::Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        S: Serializer,
    {
        to.serialize_newtype_struct(REPLY, &self.keep::<_, S::Error>(self.number_of(reply))?)
    }

    fn number_of<T: Serialize + DeserializeOwned + Send + 'static>(&self, reply: &Reply<T>) -> Result<u64, ScopeError> {
        let Scope::Writing { side, exported, sender, .. } = self else { return Err(ScopeError::OtherDirection) };
        let ask = reply.ask().ok_or(ScopeError::SpentReply)?;
        let mut exported = exported.borrow_mut();
        // A type may encode a field twice.
        if let Some((number, _)) = exported.iter().find(|(_, exported)| Arc::ptr_eq(exported, ask)) {
            return Ok(*number);
        }
        #[cfg(feature = "durable")]
        if ask.question().is_some() {
            return Err(ScopeError::StoredReply);
        }
        // A message that is cloned may share its reply. Only one node may answer it.
        if ask.is_exported() {
            return Err(ScopeError::SpentReply);
        }
        if exported.len() == MAX_ASKS {
            return Err(ScopeError::TooManyReplies);
        }
        let number = side.questions.export::<T>(ask, *sender);
        exported.push((number, ask.clone()));
        Ok(number)
    }

    /// Decodes a reply.
    pub(crate) fn import<'a, T, D>(&self, from: D) -> Result<Reply<T>, D::Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        D: Deserializer<'a>,
    {
        match self {
            Scope::Reading { side, reader, imported, asks, .. } => {
                let number: u64 = from.deserialize_newtype_struct(REPLY, Inner::new())?;
                // Each reply costs far more than its bytes.
                if !asks.contains(&number) || imported.borrow().len() >= MAX_ASKS {
                    return Err(D::Error::custom(ScopeError::NoQuestion(number)));
                }
                let host = (side.host)().ok_or_else(|| D::Error::custom("the runtime has ended"))?;
                side.answers.note::<T>();
                let target = reader.get().unwrap_or_else(|| host.nobody());
                let reply = Reply::to_elsewhere(FarAsker { desk: side.desk.clone(), number }, host, target);
                imported.borrow_mut().extend(reply.ask().map(|ask| (number, ask.clone())));
                Ok(reply)
            }
            // The shape of a reply is that of its answer.
            Scope::Probing => {
                let _: T = from.deserialize_newtype_struct(REPLY, Inner::new())?;
                Ok(Reply::spent())
            }
            Scope::Writing { .. } => Err(D::Error::custom(ScopeError::OtherDirection)),
        }
    }
}
