//! Tasklets: work in several turns, which says after each turn where the next one runs.
//!
//! A [`Loop`] owns a state, and a thread that runs it is its home. A [`Tasklet`] is moved into the loop and stepped: at
//! home with the state ([`Directive::Home`]), or on a pool, where it may block and does not see the state
//! ([`Directive::Pool`]). It may wait until it is [resumed](Resume) ([`Directive::Wait`]), and ends with
//! [`Directive::Done`]. So what would be a nest of callbacks with locks is plain code without: read at home, call out on the
//! pool, write at home.
//!
//! ```
//! use procession::tasklet::{Loop, ready};
//! use std::cell::RefCell;
//! use std::rc::Rc;
//!
//! // The state need not be `Send`: it never leaves this thread.
//! let screen = Rc::new(RefCell::new(String::new()));
//! let mut home = Loop::new(screen.clone());
//! home.handle().call(
//!     ready::begin()
//!         .then(|screen: &mut Rc<RefCell<String>>, ()| screen.borrow_mut().push_str("loading… "))
//!         .then_blocking(|()| std::fs::read_to_string("Cargo.toml").map_or(0, |text| text.lines().count()))
//!         .then(|screen, lines| screen.borrow_mut().push_str(if lines > 0 { "loaded" } else { "nothing there" })),
//! )?;
//! let report = home.run()?;
//! assert!(report.is_clean());
//! assert_eq!(*screen.borrow(), "loading… loaded");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Loop::run`] is home until no tasklet is left; [`Loop::run_until`] and [`Loop::run_for`] can be cut short and
//!   resumed; [`Loop::turn`] is for a loop inside of another main loop.
//! - [`LoopHandle`] schedules from any thread; [`LoopHandle::current`] is the loop that the calling thread is in.
//! - [`TaskletContext::suspend`] gives a [`Resume`]; [`TaskletContext::suspend_for`] and [`Resume::resume_after`] go by the loop's clock.
//! - [`TaskletHandle`] and [`TaskletFuture`] wait for the end of a tasklet and for its value.
//! - [`ready`] has tasklets made of closures.
//! - [`on_automatic`] lends a loop of the thread that turns by itself.
//!
//! Panics are contained: see [`PanicPolicy`]. The promises, with the tests that show them, are in the repository's
//! `docs/guarantees/tasklets.md`.

mod directive;
mod report;
mod slots;
mod transitions;
mod current;
mod shared;
mod resume;
mod handle;
mod context;
mod event_loop;
pub mod ready;
mod automatic;
mod shutdown_node;
#[cfg(all(test, loom))]
mod models;

pub use self::automatic::{LoopInUseError, on_automatic, reset_automatic};
pub use self::context::{LoopHandle, Tasklet, TaskletContext};
pub use self::current::LoopBuilder;
pub use self::directive::{Directive, ScheduleError, TaskletId};
pub use self::event_loop::Loop;
pub use self::handle::{NoValueError, Promise, TaskletFuture, TaskletHandle};
pub use self::report::{
    AbandonedTasklet, InterruptedError, Interruption, MAX_NAMED, PanicHandler, PanicPolicy, Report, TaskletInfo,
    TaskletPanic, TurnOutcome,
};
pub use self::resume::Resume;
