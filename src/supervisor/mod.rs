//! Supervision: processes that start others, restart those that fail, and stop them in order.
//!
//! A [`Supervisor`] is a process like any other. It uses the public interface of the crate, with one exception: it asks
//! the runtime whether its store knows the type of a child. It does not start such a child, because a durable process
//! needs no supervisor. A [builder](Supervisor::builder) has the options of the supervisor, and a [`ChildSpec`]
//! describes each child. At run time, programs send requests to it as [`SupervisorMessage`]s. A [`Tree`] shows a
//! supervisor and all processes below it.
//!
//! ```
//! use procession::supervisor::{ChildSpec, Supervisor, SupervisorMessage, Tree};
//! use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};
//! use std::time::Duration;
//!
//! /// Fails when it is told to.
//! struct Fragile;
//!
//! impl Process for Fragile {
//!     type Message = &'static str;
//!     type Output = ();
//!
//!     fn step(&mut self, events: &mut Events<&'static str>, _: &mut StepOutput) -> StepResult<()> {
//!         for event in events {
//!             match event {
//!                 Event::Message(why) => return Err(why.into()),
//!                 Event::Cancel(_) => return Ok(Step::Done(())),
//!                 _ => {}
//!             }
//!         }
//!         Ok(Step::Idle)
//!     }
//! }
//!
//! let runtime = Runtime::builder().workers(1).start()?;
//! let limit = Duration::from_secs(10);
//! let supervisor = Supervisor::builder().child(ChildSpec::in_place("fragile", || Fragile)).build()?;
//! let supervisor = runtime.spawn(supervisor)?;
//! runtime.ask(supervisor.address(), SupervisorMessage::started, limit).wait()?;
//!
//! let children = runtime.ask(supervisor.address(), SupervisorMessage::children, limit).wait()?;
//! let fragile = children[0].pid.ok_or("it is up")?;
//! runtime.send(fragile, "a bad day")?;
//! runtime.send(fragile, "another one")?;
//! while Tree::of(&runtime, supervisor.address(), limit)?.children[0].0.restarts < 2 {}
//! assert!(runtime.is_alive(fragile), "it was restarted under the same PID, with its mailbox");
//!
//! runtime.cancel(supervisor.pid(), "closing time")?;
//! assert!(supervisor.join()?.is_done());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod intensity;
pub(crate) mod contained;
mod spec;
mod backoff;
mod message;
mod in_place;
mod child;
mod process;
mod batch;
mod starting;
mod stopping;
mod restart;
mod request;
mod builder;
mod tree;

pub use self::backoff::Backoff;
pub use self::builder::SupervisorBuilder;
pub use self::message::{ChildError, ChildInfo, ChildState, SupervisorError, SupervisorMessage};
pub use self::process::Supervisor;
pub use self::spec::{AutoShutdown, ChildSpec, Restart, Shutdown, SpecError, Strategy};
pub use self::tree::Tree;
