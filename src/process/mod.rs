//! The contract between a process and the runtime: the page that a user reads.
//!
//! A [`Process`] is a state machine. It is stepped with [`Events`], returns a [`Step`], and writes what it wants done
//! to a [`StepOutput`]; it is reached by its [`Pid`], or by the typed [`Address`]. Commands are answered by
//! [`Completed`] events, questions of other processes by a [`Reply`].

mod contract;
mod event;
mod output;
mod spawn;

mod entry;
mod pid;

mod command;
mod hook;
mod refusal;
mod reply;

pub(crate) mod body;
pub(crate) mod bounded;
pub(crate) mod machine;
pub(crate) mod mailbox;
pub(crate) mod outbox;

pub use self::body::StepOutput;
pub use self::command::{CancelRequest, Command, CommandError, Completed, Completion, Elapsed, Tag};
pub use self::contract::{Process, Step, StepResult, Upgrade, WaitedForNothing};
pub use self::entry::{Entry, EntryError, InitResult, Offered};
pub use self::event::{Event, Events};
pub use self::hook::{Hook, ProcessRef};
pub use self::mailbox::Overflow;
pub use self::pid::{Address, ParsePidError, Pid};
pub use self::refusal::{DeadLetter, DeadReason, SendError};
pub use self::reply::Reply;
pub use self::spawn::{SpawnError, SpawnOptions};

pub(crate) use self::command::{Answer, AnswerTo, Handler, HandlerFn};
pub(crate) use self::reply::{AskLink, Decided, OutsideAsk, ProcessAsk};
pub(crate) use self::spawn::described_body;
