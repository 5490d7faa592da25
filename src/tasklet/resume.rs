//! The object that wakes a tasklet that waits.

use std::fmt;
use std::time::Duration;

use super::directive::{Directive, TaskletId};
use super::shared::Control;
use super::slots::Ticket;
use crate::primitives::{Arc, Weak};

/// Wakes one tasklet, once, from any thread. It is had from [`TaskletContext::suspend`](super::TaskletContext::suspend).
///
/// It may be used at any time: before the step that made it has returned [`Directive::Wait`], it takes effect when the step
/// does so. Where there are several for one wait, the first one that is used counts, and the others do nothing.
/// Dropped unused, as the last one for a wait, it finishes the tasklet, because nothing could ever wake it; the loop's
/// [report](super::Report) names it. If the tasklet or its loop has ended by then, nothing happens.
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
    // Nothing once it was used.
    of: Option<Weak<dyn Control>>,
    ticket: Ticket,
}

impl Resume {
    pub(super) fn new<C: Control + 'static>(of: &Arc<C>, ticket: Ticket) -> Resume {
        let weak: Weak<C> = Arc::downgrade(of);
        Resume { of: Some(weak), ticket }
    }

    /// Which tasklet it wakes.
    pub fn id(&self) -> TaskletId {
        self.ticket.id
    }

    /// Gives the tasklet its next directive: what [scheduling](super::LoopHandle::schedule) it so would do. With
    /// [`Directive::Done`] it ends without another step; with [`Directive::Wait`] it goes on waiting, and only its
    /// [handle](super::TaskletHandle) can wake it then.
    ///
    /// With [`Directive::Pool`], while no thread is in the loop, it is held until one is. A destructor of the user's may
    /// run before this returns.
    pub fn resume(mut self, directive: Directive) {
        if let Some(control) = self.of.take().and_then(|of| of.upgrade()) {
            control.resume(self.ticket, directive, false);
        }
    }

    /// The same as a plain callback, for an interface that takes one. If the callback is dropped uncalled, so is this.
    pub fn resume_later(self, directive: Directive) -> impl FnOnce() + Send + 'static {
        move || self.resume(directive)
    }

    /// The same when `delay` has passed by the loop's clock, and never before, unless the wait has ended otherwise by then.
    /// With the greatest delays the tasklet waits until it is cancelled. Should the operating system have no thread for the loop's timers, it is as if this had been
    /// dropped.
    pub fn resume_after(self, delay: Duration, directive: Directive) {
        if let Some(control) = self.of.as_ref().and_then(Weak::upgrade) {
            control.resume_after(self.ticket, delay, Box::new(move || self.resume(directive)));
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
