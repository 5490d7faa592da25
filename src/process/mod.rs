//! The contract between a process and the runtime.
//!
//! A [`Process`] is a state machine. The runtime steps it with [`Events`]. The step writes actions to a [`StepOutput`]
//! and returns a [`Step`]. A process is addressed by its [`Pid`], or by its typed [`Address`]. The answer to a command
//! is a [`Completion`]. A process answers a question of another process with a [`Reply`].

pub(crate) mod no_such_process;
pub(crate) mod names;
pub(crate) mod entry;
#[cfg(feature = "cluster")]
mod node_error;
pub(crate) mod dead_letter;
pub(crate) mod propagation;
mod span_propagator;
mod cycle;
pub(crate) mod command;
pub(crate) mod host;
pub(crate) mod attempt;
pub(crate) mod duty;
pub(crate) mod handler;
pub(crate) mod permits;
mod async_handler;
#[cfg(feature = "cluster")]
pub(crate) mod far_asker;
pub(crate) mod reply;
mod reply_question;
#[cfg(feature = "durable")]
pub(crate) mod stored_reply;
#[cfg(feature = "cluster")]
mod exported_reply;
pub(crate) mod output_answer;
pub(crate) mod relation;
pub(crate) mod step_activity;
pub(crate) mod cut_text;
pub(crate) mod process_trace;
mod event_box;
pub(crate) mod event;
pub(crate) mod contract;
pub(crate) mod recipient;
pub(crate) mod target;
mod own;
mod step_output;
mod step_commands;
mod step_sends;
mod lent_output;
mod retry;
pub(crate) mod future_output;
mod feed;
#[cfg(feature = "stream")]
mod stream;
mod spawn;
mod run;
mod retrying;
mod observer;

pub use self::attempt::{AnsweredLater, Attempt, CommandKey, ParseCommandKeyError};
pub use self::command::{CancelRequest, Command, CommandError, Tag, TimerFired};
pub use self::contract::{Process, Step, StepResult, Upgrade, WaitedForNothing};
pub use self::cycle::Cycle;
pub use self::dead_letter::{DeadLetter, DeadLetterReason, SendError};
pub use self::entry::{EntryArgs, EntryError, EntryMethods, InitResult};
pub use self::event::{Event, Events};
pub use self::event_box::EventBox;
pub use self::feed::{Feed, PutFuture};
pub use self::handler::Responder;
pub use self::host::SpawnError;
pub use self::names::{AddressError, GroupChange, GroupEvent, NameError, Subscription};
pub use self::no_such_process::NoSuchProcessError;
#[cfg(feature = "cluster")]
pub use self::node_error::NodeError;
pub use self::observer::{Observer, ProcessIdentity, StuckStep};
pub use self::process_trace::ProcessEvent;
pub use self::propagation::{Propagator, StepEnd, StepSpan, TraceContext, TracedEvent, TracedStep};
pub use self::recipient::Recipient;
pub use self::relation::{Down, ExitSignal, Monitor, ParentEndPolicy, Recovered, RecoveredBy};
pub use self::reply::{Completion, Reply};
pub use self::retry::Retry;
pub use self::span_propagator::SpanPropagator;
pub use self::spawn::{SpawnOptions, Spawned};
pub use self::step_activity::StepActivity;
#[cfg(feature = "cluster")]
pub use self::target::Shared;
pub use self::target::{Accepts, Member, Target};
pub use crate::pid::{Address, ParsePidError, Pid};
pub use crate::sched::body::StepOutput;
pub use crate::sched::mailbox::Overflow;

pub(crate) use self::async_handler::{AnyHandler, AsyncHandler};
pub(crate) use self::command::Answer;
pub(crate) use self::duty::Duty;
pub(crate) use self::handler::handler;
#[cfg(test)]
pub(crate) use self::host::Clerk;
pub(crate) use self::names::Naming;
pub(crate) use self::relation::{Bond, LinkedBy, Relate};
pub(crate) use self::reply::{Ask, Decided};
pub(crate) use self::spawn::described_body;
pub(crate) use self::target::OwnedTarget;
pub(crate) use self::target::sealed::{Named, Resolve};
