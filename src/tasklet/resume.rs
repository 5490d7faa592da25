//! The object that wakes a waiting tasklet.

use std::fmt;
use std::time::Duration;

use super::directive::{Directive, TaskletId};
use super::shared::Control;
use super::slots::Ticket;
use crate::outcome::drop_contained;
use crate::primitives::Weak;

/// Wakes one waiting tasklet, once, from any thread.
///
/// [`TaskletContext::suspend`](super::TaskletContext::suspend) returns a `Resume`.
///
/// It may be used at any time. If it is used before the step has returned, it takes effect when the step returns
/// [`Directive::Wait`]. One wait may have several `Resume`s. The first use ends the wait, and later uses do nothing. If
/// the last `Resume` of a wait is dropped unused, the tasklet ends, because nothing could wake it. The loop's
/// [report](super::Report) then names the tasklet. If the tasklet or its loop has already ended, a `Resume` does
/// nothing.
///
/// ```compile_fail,E0382
/// # use procession::tasklet::{Directive, Resume};
/// fn twice(resume: Resume) {
///     resume.resume(Directive::Home);
///     resume.resume(Directive::Home); // it has been used
/// }
/// ```
#[must_use = "a tasklet whose resumption is dropped is finished"]
pub struct Resume {
    // It is `None` after use.
    pub(super) of: Option<Weak<dyn Control>>,
    pub(super) ticket: Ticket,
}

impl Resume {
    /// Returns the id of the tasklet.
    pub fn id(&self) -> TaskletId {
        self.ticket.id
    }

    /// Ends the wait and gives the tasklet its next directive.
    ///
    /// The directive works as in [`schedule`](super::LoopHandle::schedule). With [`Directive::Done`] the tasklet ends
    /// without another step. With [`Directive::Wait`] it goes on waiting, and then only its
    /// [handle](super::TaskletHandle) can wake it.
    ///
    /// With [`Directive::Pool`], the pool step may be delayed until a thread runs the loop. If the tasklet ends, the
    /// call runs its destructor.
    pub fn resume(mut self, directive: Directive) {
        if let Some(control) = self.of.take().and_then(|of| of.upgrade()) {
            control.resume(self.ticket, directive, false);
        }
    }

    /// Returns a callback that does what [`resume`](Self::resume) does.
    ///
    /// Use it for interfaces that take a callback. Dropping the callback without a call drops the `Resume` unused.
    pub fn resume_later(self, directive: Directive) -> impl FnOnce() + Send + 'static {
        move || self.resume(directive)
    }

    /// Resumes the tasklet after `delay`, by the loop's clock.
    ///
    /// If the wait has ended before that, nothing happens. The tasklet is never resumed too early. If no `Instant` can
    /// express the end of the delay, the tasklet waits until it is cancelled. If no thread can be started for the
    /// loop's timers, the `Resume` counts as dropped unused.
    pub fn resume_after(self, delay: Duration, directive: Directive) {
        if let Some(control) = self.of.as_ref().and_then(Weak::upgrade) {
            drop_contained(control.set_timer(self.ticket, delay, Box::new(move || self.resume(directive))));
        }
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        if let Some(control) = self.of.take().and_then(|of| of.upgrade()) {
            control.release(self.ticket);
        }
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resume").field(&self.ticket.id).finish()
    }
}
