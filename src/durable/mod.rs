//! Durable processes: they survive the end of their program.
//!
//! The state of a [`Durable`] process is stored after every step. A [`Store`] keeps the state and the messages that
//! wait for the process. When the program is started again, the process goes on where it was, with the same PID and id.
//! This also holds if the program was killed between any two instructions.
//!
//! A step does not wait for the disk. Its record goes to the end of a log, in memory, and the process goes on. A
//! message to a process of the same store is delivered at once. Everything else that a step yields waits until the
//! record of the step is on disk: replies, commands, and messages to ordinary processes.
//!
//! The file `docs/durable.md` of the repository has the protocols.

pub mod journal;

mod ahead;
mod answer_type;
mod answering;
mod applying;
mod begin_options;
mod beginning;
mod burial;
mod children;
#[cfg(feature = "sqlite")]
mod closed;
mod coding;
mod command_future;
mod command_steps;
mod command_traces;
mod command_type;
mod commit_counts;
mod contract;
#[cfg(all(unix, feature = "sqlite"))]
mod control;
mod core;
mod dead_letters;
mod departure;
mod ends;
mod error;
mod headers;
mod held;
mod keys;
mod kept_replies;
mod left;
mod letter;
mod letters;
mod links;
mod loaded;
mod loading;
mod look_flag;
mod machine;
mod mail_counts;
mod mail_limit;
mod mail_tap;
mod monitors;
mod naming;
mod new_child;
mod next_kind;
mod notice;
mod numbers;
mod offering;
mod open_commands;
mod open_questions;
#[cfg(feature = "sqlite")]
mod operate;
mod operating;
mod operator;
mod outside;
mod outside_links;
mod pool_jobs;
mod query;
mod questions;
mod repair;
mod repairing;
mod replies;
mod requests;
mod residency;
mod rest;
mod results;
mod retention;
mod salvaging;
mod rows;
mod seam;
mod send_once;
mod sending;
mod settings;
pub(crate) mod simulated;
mod sleep;
mod store;
mod store_calls;
mod store_settings;
mod storing;
mod subscriptions;
mod tail;
mod ties;
mod trail;
mod upgrading;
mod viewing;
mod waking;
mod wall_clock;
mod writer;

pub use self::begin_options::BeginOptions;
pub use self::coding::Format;
#[cfg(feature = "cluster")]
pub(crate) use self::coding::leave_run;
pub(crate) use self::coding::run;
pub use self::command_type::ErrorText;
pub use self::contract::{CommandResult, Durable, DurableCommand, Encoded, Stored};
pub use self::error::StoreError;
pub use self::mail_counts::MailCounts;
#[cfg(feature = "sqlite")]
pub use self::operate::operate;
pub use self::query::{
    Listed, Query, Request, Shown, ShownChild, ShownCommand, ShownDead, ShownMail, ShownTimer, Which,
};
pub use self::repair::NotRepaired;
pub use self::rows::WhyDead;
pub use self::store::{Begun, Receipt, ResultOf, Store, StoreBuilder};
pub use self::trail::{Traced, TrailStep};
