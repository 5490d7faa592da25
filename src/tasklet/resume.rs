//! The object that wakes a waiting tasklet.

use std::fmt;
use std::time::Duration;

use super::directive::{Directive, TaskletId};
use super::shared::Control;
use super::slots::Ticket;
use crate::outcome::drop_contained;
use crate::primitives::Weak;

/// Wakes one tasklet, once, from any thread. [`TaskletContext::suspend`](super::TaskletContext::suspend) returns it.
///
/// It may be used at any time. If it is used before its step has returned [`Directive::Wait`], it takes effect when
/// the step returns so. If there are several for one wait, the first use counts, and later uses do nothing. If the
/// last one for a wait is dropped unused, the tasklet ends, because nothing could wake it. The loop's
/// [report](super::Report) then names the tasklet. If the tasklet or its loop has already ended, nothing happens.
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
    /// The id of the tasklet.
    pub fn id(&self) -> TaskletId {
        self.ticket.id
    }

    /// Gives the tasklet its next directive. The effect is that of [scheduling](super::LoopHandle::schedule) it with
    /// this directive. With [`Directive::Done`] the tasklet ends without another step. With [`Directive::Wait`] it
    /// goes on waiting, and then only its [handle](super::TaskletHandle) can wake it.
    ///
    /// With [`Directive::Pool`], the tasklet is held until a thread is in the loop. A destructor of user code may run
    /// before this call returns.
    pub fn resume(mut self, directive: Directive) {
        if let Some(control) = self.of.take().and_then(|of| of.upgrade()) {
            control.resume(self.ticket, directive, false);
        }
    }

    /// As [`resume`](Self::resume), as a callback for interfaces that take one. Dropping the callback without a call
    /// drops this object.
    pub fn resume_later(self, directive: Directive) -> impl FnOnce() + Send + 'static {
        move || self.resume(directive)
    }

    /// Resumes the tasklet after `delay`, by the loop's clock, unless the wait has ended before. It never resumes
    /// earlier. With the greatest delays, the tasklet waits until it is cancelled. If no thread can be started for
    /// the loop's timers, this object counts as dropped.
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
