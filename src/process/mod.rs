//! The contract between a process and the runtime: the page that a user reads.
//!
//! A [`Process`] is a state machine. It is stepped with [`Events`], returns a [`Step`], and writes what it wants done
//! to a [`StepOutput`]; it is reached by its [`Pid`], or by the typed [`Address`]. Commands are answered by
//! [`Completion`] events, questions of other processes by a [`Reply`].

pub(crate) mod pid;
mod target;
mod naming;
mod entry;
mod refusal;
mod cycle;
mod command;
mod handler;
mod reply;
pub(crate) mod asked;
mod relation;
pub(crate) mod sight;
mod signals;
pub(crate) mod mailbox;
pub(crate) mod bounded;
mod told;
mod event;
pub(crate) mod outbox;
mod link;
mod pending_names;
pub(crate) mod body;
mod contract;
pub(crate) mod machine;
mod output;
mod spawn;
mod relating;
mod named;
mod hook;

pub use self::body::StepOutput;
pub use self::command::{CancelRequest, Command, CommandError, Completion, Tag, TimerFired};
pub use self::contract::{Process, Step, StepResult, Upgrade, WaitedForNothing};
pub use self::cycle::Cycle;
pub use self::entry::{EntryArgs, EntryError, EntryMethods, InitResult};
pub use self::event::{Event, Events};
pub use self::handler::Responder;
pub use self::hook::{Observer, ProcessIdentity, StuckStep};
pub use self::mailbox::Overflow;
pub use self::naming::{GroupChange, GroupEvent, NameError, Subscription};
pub use self::pid::{Address, ParsePidError, Pid};
pub use self::refusal::{DeadLetter, DeadLetterReason, SendError};
pub use self::relation::{Down, ExitSignal, Monitor, Recovered, RecoveredBy};
pub use self::reply::Reply;
pub use self::sight::StepActivity;
pub use self::spawn::{SpawnError, SpawnOptions, Spawned};
pub use self::target::{Accepts, Member, NoSuchProcessError, Target};

pub(crate) use self::command::{Answer, AnswerTo};
pub(crate) use self::handler::{Handler, HandlerFn};
pub(crate) use self::naming::Naming;
pub(crate) use self::relation::{Bond, LinkedBy, Relate};
#[cfg(all(test, loom))]
pub(crate) use self::reply::Clerk;
pub(crate) use self::reply::{AskLink, Decided, OutsideAsk, PendingReply, ProcessAsk};
pub(crate) use self::spawn::described_body;
pub(crate) use self::target::sealed::{Directory, Resolve};
