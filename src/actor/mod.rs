//! Actors: states that handle one message in each step.
//!
//! A [`Process`](crate::Process) is stepped with all its events, and says what happens next. An [`Actor`] is simpler:
//! it has a callback for each kind of event, and ends when it is asked to stop. [`actor`](actor()) makes a process of
//! it. So an actor has a PID, names, links and supervisors, like any process.
//!
//! A process is the better choice for a workflow, whose steps match on a state and an event. An actor is the better
//! choice for a service, whose messages are independent of each other.
//! With the feature `macros`, which is on by default, the attribute `#[actor]` writes the message type, the [`Actor`]
//! and typed calls.

mod actions;
mod contract;
mod process;
mod reach;

pub use self::actions::Actions;
pub use self::contract::Actor;
pub use self::process::{ActorProcess, actor};
pub use self::reach::{CALL_LIMIT, Reach};

/// Makes an [`Actor`] of an `impl` block: a message and a call for each method.
///
/// For `impl Counter`, the attribute writes these items beside the block, which stays as it is:
///
/// - `enum CounterMessage`, with a variant for each method.
/// - `impl Actor for Counter`, which calls the methods.
/// - `trait CounterCalls`, with a method for each message. Everything that can [reach](Reach) the actor has it.
///
/// ```
/// use procession::prelude::*;
///
/// struct Counter { total: u64 }
///
/// #[actor]
/// impl Counter {
///     fn add(&mut self, n: u64) {
///         self.total += n;
///     }
///
///     fn read(&self) -> u64 {
///         self.total
///     }
/// }
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let counter = runtime.spawn(actor(Counter { total: 0 }))?;
/// counter.add(1)?;
/// assert_eq!(counter.read().wait()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Messages
///
/// Each method is a message. Put helpers into another `impl` block. All methods must have the same visibility, which
/// the enum and the trait have, too. If the type of the actor is public, its methods must be public. Without methods
/// that handle messages, neither is written, and the type of the messages is
/// [`Infallible`](std::convert::Infallible).
///
/// | method | the call |
/// |---|---|
/// | returns nothing | sends the message: `counter.add(1)?` |
/// | returns a value | asks, and returns a future: `counter.read().await?`, or `.wait()?` |
/// | has a parameter `Reply<T>` | asks, too; the actor may answer in a later step |
///
/// A call that asks has a limit of five seconds ([`CALL_LIMIT`]).
/// [`AskFuture::timeout`](crate::AskFuture::timeout) sets another limit: `counter.read().timeout(limit).await?`.
///
/// - A method may have a parameter `out: &mut Actions<Self>`, for its effects. It is not part of the message.
/// - Other parameters borrow nothing, because a message travels to another thread.
/// - A method is no `async fn`. Yield a future or another command, and handle its answer with
///   [`then`](crate::Tag::then).
/// - If a method returns a `Result`, the `Result` is the answer. With `#[fails]`, an error ends the actor, and only the
///   value of `Ok` is the answer. The error must convert to [`BoxError`](crate::BoxError) with `?`.
/// - Names of methods of a [`Handle`](crate::Handle) or a [`ProcessRef`](crate::ProcessRef) are refused, and those of
///   traits of the prelude, because those methods would hide the call: `address`, `ask`, `cancel`, `cancel_timeout`,
///   `clone`, `exit`, `info`, `into`, `into_future`, `is_alive`, `is_finished`, `join`, `join_group`, `join_timeout`,
///   `leave_group`, `map`, `pid`, `poll`, `process_ref`, `register`, `send`, `send_timeout`, `shutdown_node`, `state`,
///   `terminate`, `to_owned`, `try_into`, `watch`.
/// - Documentation and `#[cfg]` are carried over to the message and the call. Two methods may have one name, or handle
///   one event, if their `#[cfg]`s exclude each other. A `cfg_attr` that gives `cfg`, `fails` or `on` is refused.
///   Without a method that finishes, the output is `()`. A type parameter of the block that a message uses must be used
///   by a message without `#[cfg]`.
/// - A type has one such block. Other methods go into a plain `impl` block.
///
/// # Callbacks
///
/// A method with `#[on(..)]` handles another event. It is no message. Its parameters are the event and
/// `out: &mut Actions<Self>`. Each of the two may be left out.
///
/// | attribute | event | is called |
/// |---|---|---|
/// | `#[on(start)]` | | before the first message |
/// | `#[on(stop)]` | [`CancelRequest`] | when the actor is asked to stop; without it the actor ends |
/// | `#[on(down)]` | [`Down`] | when a monitored process has ended |
/// | `#[on(exit)]` | [`ExitSignal`] | when a linked process has ended, and the actor traps exits |
/// | `#[on(group)]` | [`GroupEvent`] | when a group has changed |
/// | `#[on(other)]` | [`Event`] | for every other event |
/// | `#[on(finish)]` | | at the end; the method returns the output |
///
/// [`CancelRequest`]: crate::command::CancelRequest
/// [`Down`]: crate::Down
/// [`ExitSignal`]: crate::exit::ExitSignal
/// [`GroupEvent`]: crate::names::GroupEvent
/// [`Event`]: crate::Event
///
/// # Arguments
///
/// `#[actor(derive(Clone, Debug))]` derives these traits for the message type. A [`Reply`](crate::Reply) cannot be
/// cloned, so `Clone` is refused if one of the methods is a call. `#[actor(messages_a_step = 16)]` sets
/// [`Actor::MESSAGES_A_STEP`].
///
/// The type parameters of the block are carried over. The message type has those that its fields use.
#[cfg(feature = "macros")]
pub use procession_macros::actor;
