//! Futures that processes have yielded.

use std::time::Duration;

use super::dispatch::Core;
use super::timed::Timed;
use crate::outcome::{Reason, drop_contained};
use crate::primitives::Arc;
use crate::process::CommandError;
use crate::sched::body::{Ready, Stage};
use crate::sched::polling::drop_future;
use crate::sched::residents::{BoxedFuture, Residents};
use crate::sched::road::Executor;

impl Core {
    /// Takes a future into the body in hand. It is polled before the body comes to rest.
    pub(super) fn host_future<H: Executor>(
        &self,
        body: &mut Ready,
        tag: u64,
        future: BoxedFuture,
        limit: Duration,
        executor: &mut H,
    ) {
        if body.head.stage == Stage::Done {
            // No turn follows that could poll it.
            executor.let_go();
            return drop_contained(future);
        }
        let pid = body.head.pid;
        let new = || Box::new(Residents::new(pid, Arc::downgrade(&self.road) as _));
        let residents = body.head.prepared().residents.get_or_insert_with(new);
        let waker = residents.admit(tag, future);
        if limit == Duration::MAX {
            return;
        }
        let waker = waker.clone();
        match self.timers.after(executor.number(), limit, Timed::Future(waker)) {
            Ok(key) => key.into_iter().for_each(|key| residents.set_timer(key.id())),
            Err(_) => self.drop_future(body, tag, self.why_no_timer(), executor),
        }
    }

    /// Drops a future of the process in hand, and answers its command, if it has not been answered.
    pub(super) fn drop_future<H: Executor>(&self, body: &mut Ready, tag: u64, why: Reason, executor: &mut H) {
        let Some(resident) = body.head.residents().and_then(|residents| residents.remove(tag)) else { return };
        executor.let_go();
        drop_future(self, resident);
        self.road.answer_in_hand(executor, body, tag, Err(CommandError::Cancelled(why)));
    }
}
