//! The contract between a durable process and its store.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::coding::Format;
use crate::outcome::BoxError;
use crate::process::{Attempt, Command, Process, Retry};

/// A process whose state is stored after every step, so that it survives the end of its program.
///
/// The value of the process *is* its state: the store has what `serde` writes of it. You write the process like any
/// other, and the same type can be spawned without a store. Give `#[serde(skip)]` to fields that cannot be stored, and
/// make them again in [`resumed`](Self::resumed).
///
/// A durable process is not replayed. So its steps may use random numbers, the time, and code that differs in each run.
///
/// ```
/// use procession::durable::Durable;
/// use procession::{Event, Events, Process, Reply, Step, StepOutput, StepResult};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Account { balance: i64 }
///
/// #[derive(Serialize, Deserialize)]
/// enum AccountMessage { Pay(i64), Balance(Reply<i64>) }
///
/// impl Process for Account {
///     type Message = AccountMessage;
///     type Output = ();
///
///     fn step(&mut self, events: &mut Events<AccountMessage>, out: &mut StepOutput) -> StepResult<()> {
///         for event in events {
///             match event {
///                 Event::Message(AccountMessage::Pay(amount)) => self.balance += amount,
///                 Event::Message(AccountMessage::Balance(reply)) => out.reply(reply, self.balance),
///                 _ => {}
///             }
///         }
///         Ok(Step::Idle)
///     }
/// }
///
/// impl Durable for Account {
///     const NAME: &str = "account";
/// }
/// ```
///
/// Actors and async processes are not durable. The state of an async process is a future, which cannot be stored:
///
/// ```compile_fail,E0277
/// use procession::async_process::{Context, async_process};
/// use procession::durable::Store;
///
/// fn begin(store: &Store) {
///     let process = async_process(async |context: Context<u32>| Ok(context.next().await));
///     let _ = store.begin("counter", process);
/// }
/// ```
///
/// Nor is an actor, even if its own state can be stored:
///
/// ```compile_fail,E0277
/// use procession::durable::Store;
/// use procession::prelude::*;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Counter { total: u64 }
///
/// #[actor]
/// impl Counter {
///     fn add(&mut self, n: u64) { self.total += n; }
/// }
///
/// fn begin(store: &Store) {
///     let _ = store.begin("counter", actor(Counter { total: 0 }));
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not durable",
    label = "this process cannot be stored",
    note = "only a type with its own `impl Process`, whose `step` matches on events, can be `Durable`",
    note = "an actor and an async process are not: write a `Process` instead, and implement `Durable` for it"
)]
pub trait Durable: Process<Message: Stored, Output: Stored> + Stored {
    /// The name of the type in the store. It stays the same when the type is renamed.
    const NAME: &'static str;

    /// The version of the state. Increase it when [`migrate`](Self::migrate) has something to do. A new field with
    /// `#[serde(default)]` needs no new version.
    const VERSION: u32 = 1;

    /// The format in which states and messages are stored.
    const FORMAT: Format = Format::Json;

    /// How long a process of this kind rests before it leaves memory. `None` means the time of the store: see
    /// [`StoreBuilder::sleep_after`](super::StoreBuilder::sleep_after).
    const SLEEP_AFTER: Option<Duration> = None;

    /// Converts the state of an older version to this version. It is called when a program with this version loads the
    /// process. The next step of the process stores the new state. Until that is done, the store has the old one. So
    /// after a step that has failed, and in the next run if there was no step, this is called again with the same old
    /// state. It never gets a state that it has converted.
    ///
    /// The default implementation decodes the old state as if it were of this version.
    ///
    /// # Errors
    ///
    /// The process is parked with the error, and its state stays as it is.
    fn migrate(from: u32, state: Encoded<'_>) -> Result<Self, BoxError> {
        let _ = from;
        state.decode()
    }

    /// Called when the process has been loaded from the store, before its next step, and when its state has been read
    /// again after a step that failed. The store has called [`init`](Process::init) and [`start`](Process::start) when
    /// the process was begun, and does not call them again.
    fn resumed(&mut self) {}
}

/// A command that is stored with the step that yields it.
///
/// It reaches its handler only when the step is on disk. If the program ends before the answer is on disk, the handler
/// is called again in the next run, with the same command. So a handler may be called more than once, and its process
/// gets one answer. The [key](crate::command::Responder::key) of the command is the same in each attempt. Pass it to
/// the service that the handler calls, as an idempotency key.
///
/// Name the type with [`StoreBuilder::command`](super::StoreBuilder::command), and give its handler to the builder of
/// the runtime. Commands of a type that is not named are not stored. They are answered with
/// [`CommandError::Interrupted`](crate::CommandError::Interrupted) when the process is loaded again.
///
/// A [limit](crate::StepOutput::command_timeout) of the command is stored with it, as a time of the wall clock.
pub trait DurableCommand: Command<Output: Stored> + Stored {
    /// The name of the type in the store. It stays the same when the type is renamed.
    const NAME: &'static str;

    /// The error of its handler. The process gets it with its type, in any run: see
    /// [`CommandError::downcast_ref`](crate::CommandError::downcast_ref). An error of another type is stored as its
    /// text. Once it is stored, the process gets it as an [`ErrorText`](super::ErrorText).
    type Error: std::error::Error + Stored + Send + Sync + 'static;

    /// When a failed attempt is repeated. The default is one attempt.
    ///
    /// The time of the next attempt is stored. An attempt that the end of the program has interrupted counts. It is
    /// repeated in the next run, even if it was the last one. So each kill during an attempt may add one attempt to
    /// [`attempts`](Retry::attempts). The process gets the error of the last attempt only.
    fn retry(&self) -> Retry {
        Retry::new().attempts(1)
    }

    /// Called before each attempt. An asynchronous handler has no [`Responder`](crate::command::Responder). To give it
    /// the key and the number of the attempt, keep them here in fields with `#[serde(skip)]`.
    fn begin_attempt(&mut self, attempt: &Attempt) {
        let _ = attempt;
    }
}

/// The answer to a stored command: its output, or the error of its handler.
pub type CommandResult<C> = Result<<C as Command>::Output, <C as DurableCommand>::Error>;

/// A value that can be stored. Every type is `Stored` that `serde` can write and read.
pub trait Stored: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> Stored for T {}

/// A state as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    /// The format.
    pub format: Format,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Encoded<'_> {
    /// Decodes the state. JSON can also be decoded as a `serde_json::Value`.
    ///
    /// # Errors
    ///
    /// If the bytes are not a `T` in this format.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, BoxError> {
        self.format.decode(self.bytes)
    }
}

/// Decodes the state of a process. One of an older version is migrated.
pub(super) fn decode_state<P: Durable>(version: u32, state: Encoded<'_>) -> Result<P, BoxError> {
    match version {
        version if version == P::VERSION => state.decode(),
        newer if newer > P::VERSION => {
            Err(format!("the state has version {newer}, and this program knows {}", P::VERSION).into())
        }
        older => P::migrate(older, state),
    }
}
