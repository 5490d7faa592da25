//! Tasklets: work in several steps. After each step, the tasklet says where the next one runs.
//!
//! A [`Loop`] owns a state. The thread that runs the loop is its home thread. A [`Tasklet`] is moved into the loop,
//! which runs its steps. Each step returns a [`Directive`]:
//!
//! - [`Directive::Home`]: a home step follows, which gets the state.
//! - [`Directive::Pool`]: a pool step follows. It runs on a pool, may block, and has no access to the state.
//! - [`Directive::Wait`]: the tasklet waits until it is [resumed](Resume).
//! - [`Directive::Done`]: the tasklet ends.
//!
//! So a tasklet can read the state at home, make a blocking call on the pool, and write the result at home. It needs
//! neither nested callbacks nor locks.
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
//! - [`Loop::run`] runs the loop until no tasklet is left. [`Loop::run_until`] and [`Loop::run_for`] can be interrupted
//!   and continued. [`Loop::turn`] runs a loop inside another main loop.
//! - [`LoopHandle`] schedules tasklets from any thread. [`LoopHandle::current`] is the loop of the calling thread.
//! - [`TaskletContext::suspend`] returns a [`Resume`], which wakes a waiting tasklet. [`TaskletContext::suspend_for`]
//!   limits the wait, and [`Resume::resume_after`] wakes the tasklet after a delay.
//! - [`TaskletHandle`] and [`TaskletFuture`] wait for a tasklet's end and for its value.
//! - [`ready`] makes tasklets from closures.
//! - [`on_automatic`] lends the calling thread a loop that runs by itself.
//!
//! Panics are contained: see [`PanicPolicy`]. The repository's `docs/guarantees/tasklets.md` lists all guarantees,
//! with the tests that show them.

mod directive;
mod report;
mod table;
mod slots;
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
