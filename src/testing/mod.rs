//! Tests of processes as plain functions: events in, yields and a status out, and a manual clock.
//!
//! A [`Driver`] has one process, and no thread. It records the yields of the process instead of performing them. The
//! test can inspect messages and children. It can run, answer or refuse each command. A timer is due
//! when the test moves the clock. The rules are those of the runtime: a failed step yields nothing, a step after
//! `Wait` is given no messages, and each command is answered once. To drive several processes that send to each other,
//! use [`Driver::builder`].
//!
//! ```
//! use procession::testing::{Driver, Status};
//! use procession::{Event, Events, Process, Step, StepOutput, StepResult, Tag};
//! use procession::command::TimerFired;
//! use std::time::Duration;
//!
//! /// Gives up when nobody has called for a minute.
//! struct Patience { timer: Option<Tag<TimerFired>> }
//!
//! impl Process for Patience {
//!     type Message = ();
//!     type Output = &'static str;
//!
//!     fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<&'static str> {
//!         let timer = *self.timer.get_or_insert_with(|| out.after(Duration::from_secs(60)));
//!         for event in events {
//!             match event {
//!                 Event::Message(()) => return Ok(Step::Done("called")),
//!                 Event::Completed(done) if done.is(timer) => return Ok(Step::Done("gave up")),
//!                 _ => {}
//!             }
//!         }
//!         Ok(Step::Idle)
//!     }
//! }
//!
//! let mut patience = Driver::new(Patience { timer: None });
//! assert_eq!(patience.run(), Status::Idle);
//! patience.advance(Duration::from_secs(59));
//! assert_eq!(patience.run(), Status::Idle);
//! patience.advance(Duration::from_secs(1));
//! assert_eq!(patience.run(), Status::Ended);
//! assert_eq!(**patience.exit().unwrap().output().unwrap(), "gave up");
//! ```

mod notes;
mod engine;
mod helpers;
mod question;
mod driver;
mod builder;
#[cfg(all(test, loom))]
mod models;

pub use self::builder::DriverBuilder;
pub use self::driver::{Driver, Outstanding, SentError, Status};
pub use self::question::{Asked, question};
