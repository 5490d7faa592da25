//! The life of one task, decided once, as plain functions. They run under the task's lock. They return the work that
//! must be done without the lock. The lock itself and its callers are in `task/shared.rs`.
//!
//! | | `begin` | `end` by return | `end` from outside | `end` unless it has begun |
//! |---|---|---|---|---|
//! | Scheduled | Running; the closure is taken | (cannot happen) | Over; returns the closure, uncalled | the same |
//! | Running | refused | Over | Over | refused |
//! | Over | refused | refused | refused | refused |
//!
//! So the first of returned, cancelled, timed out and stopped decides. The same step changes the status, notes the
//! end and stores the result. No thread can see one of these without the others. A begin follows the same rule. A
//! call that ends a task before it has begun takes its closure, so the closure is never called.

use std::fmt::Display;
use std::task::Waker;
use std::time::Instant;

use super::info::{Status, TaskInfo};
use crate::cancel::{CancelCallback, CancelToken};
use crate::outcome::{Exit, Reason};
use crate::pool::Ticket;
use crate::primitives::{Arc, ThreadId};
use crate::timer::{TimerKey, Timers};

/// A closure that a task calls once.
pub(super) trait Body: Send + 'static {
    type Output: Send + 'static;
    type Error: Display + Send + 'static;

    fn call(self, cancel: &CancelToken) -> Result<Self::Output, Self::Error>;
}

impl<T, E, F> Body for F
where
    T: Send + 'static,
    E: Display + Send + 'static,
    F: FnOnce(&CancelToken) -> Result<T, E> + Send + 'static,
{
    type Output = T;
    type Error = E;

    fn call(self, cancel: &CancelToken) -> Result<T, E> {
        self(cancel)
    }
}

/// A task's closure and result.
pub(super) struct Values<B: Body> {
    /// The closure, until it is called or dropped.
    pub(super) body: Option<B>,
    /// The result, from the end until the handle takes it.
    pub(super) exit: Option<Exit<B::Output, B::Error>>,
}

/// The values of a task of any type.
pub(super) trait AnyValues: Send {
    /// Stores the exit of a terminated task. Returns the closure, if it was never called.
    fn terminate(&mut self, reason: Reason) -> Option<Box<dyn Send>>;
}

/// The values of a task whose result types are known.
pub(super) trait ExitValue<T, E>: AnyValues {
    fn exit(&mut self) -> &mut Option<Exit<T, E>>;
}

impl<B: Body> AnyValues for Values<B> {
    fn terminate(&mut self, reason: Reason) -> Option<Box<dyn Send>> {
        self.exit = Some(Exit::Terminated(reason));
        self.body.take().map(|body| Box::new(body) as _)
    }
}

impl<B: Body> ExitValue<B::Output, B::Error> for Values<B> {
    fn exit(&mut self) -> &mut Option<Exit<B::Output, B::Error>> {
        &mut self.exit
    }
}

/// The life of a task that has these values.
pub(super) struct Life<V: ?Sized> {
    pub(super) info: TaskInfo,
    /// While the task is running: the token that the closure got, and the closure's thread.
    pub(super) running: Option<(CancelToken, ThreadId)>,
    pub(super) loose: Loose,
    pub(super) values: V,
}

/// A requested end of a task. It has no effect if another end came first.
pub(super) struct End {
    pub(super) status: Status,
    /// The exit without the output, and with the error as text.
    pub(super) exit: Exit<(), Arc<str>>,
    /// Whether the end has no effect on a task that has begun.
    pub(super) unless_begun: bool,
}

/// Items that must be cleared when a task has ended. The ticket and the timers are cleared when it begins.
#[derive(Default)]
pub(super) struct Loose {
    /// The job in the pool's queue.
    pub(super) ticket: Option<Ticket>,
    /// Before the begin: the timers of the delay and of a late start. After it: the timer of the timeout.
    pub(super) timers: Vec<TimerKey>,
    /// The task's link to the token that it is under.
    ///
    /// It has a node below that token, and the callback of the node. The node belongs to this task alone, so the
    /// token's list can drop it without a search.
    pub(super) link: Option<Box<(CancelToken, CancelCallback)>>,
    /// The bell of a pool thread that waits for the task and would run it. It rings when the job is in the pool's
    /// queue, or when it never will be. (There is one handle, and so one such thread.)
    pub(super) bell: Option<Waker>,
}

/// Work that remains for the caller that ended a task, without the lock.
pub(super) struct Left {
    /// The closure, if it was never called.
    pub(super) body: Option<Box<dyn Send>>,
    /// The token that the closure got, and the closure's thread.
    pub(super) running: Option<(CancelToken, ThreadId)>,
    pub(super) loose: Loose,
}

impl End {
    /// An end from outside.
    pub(super) fn terminated(status: Status, reason: Reason) -> End {
        End { status, exit: Exit::Terminated(reason), unless_begun: false }
    }
}

impl<B: Body> Life<Values<B>> {
    pub(super) fn new(info: TaskInfo, body: B) -> Life<Values<B>> {
        Life { info, running: None, loose: Loose::default(), values: Values { body: Some(body), exit: None } }
    }
}

impl<V: ?Sized + AnyValues> Life<V> {
    /// Whether the task begins now. Then its timers are exchanged for these. The caller clears the ones that it has
    /// afterwards.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        context: &CancelToken,
        thread: ThreadId,
        timers: &mut Vec<TimerKey>,
    ) -> bool {
        if self.info.status != Status::Scheduled {
            return false;
        }
        self.info.status = Status::Running;
        self.info.started = Some(now);
        self.running = Some((context.clone(), thread));
        // The pool has taken the job out of the queue.
        self.loose.ticket = None;
        std::mem::swap(&mut self.loose.timers, timers);
        true
    }

    /// Ends the task, unless it has ended before. If this end requires a task that has not begun, a begun task is
    /// left alone.
    pub(super) fn end(&mut self, end: End, now: Instant) -> Option<Left> {
        if self.info.status.is_finished() || (end.unless_begun && self.info.started.is_some()) {
            return None;
        }
        let body = match &end.exit {
            Exit::Terminated(reason) => self.values.terminate(reason.clone()),
            _ => None,
        };
        self.info.status = end.status;
        self.info.exit = Some(end.exit);
        self.info.ended = Some(now);
        Some(Left { body, running: self.running.take(), loose: std::mem::take(&mut self.loose) })
    }

    /// Notes items that must be cleared later. Returns those that the caller must clear now.
    pub(super) fn attach(&mut self, mut new: Loose) -> Loose {
        if self.info.started.is_some() {
            // The job was taken out of the queue when the task began.
            new.ticket = None;
        }
        if self.info.status != Status::Scheduled {
            return new;
        }
        let loose = &mut self.loose;
        loose.timers.append(&mut new.timers);
        loose.ticket = new.ticket.or(loose.ticket.take());
        loose.link = new.link.or(loose.link.take());
        loose.bell = new.bell.or(loose.bell.take());
        let rings = if loose.ticket.is_some() { loose.bell.take() } else { None };
        Loose { bell: rings, ..Loose::default() }
    }
}

impl Loose {
    /// Clears the items. No lock may be held, because this may drop the user's values.
    pub(super) fn clear(self, timers: &Timers) {
        for key in self.timers {
            drop(timers.cancel(key));
        }
        if let Some(job) = self.ticket.and_then(|ticket| ticket.withdraw()) {
            // The closure was taken out of the job before.
            drop(job);
        }
        drop(self.link);
        if let Some(bell) = self.bell {
            bell.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::info::TaskId;
    use super::*;

    type Bench = Life<Values<fn(&CancelToken) -> Result<u8, String>>>;

    fn bench() -> Bench {
        Life::new(TaskInfo::scheduled(TaskId(1), None, Instant::now(), "u8"), |_| Ok(0))
    }

    fn begin(life: &mut Bench) -> bool {
        let begins = life.begin(Instant::now(), &CancelToken::new(), std::thread::current().id(), &mut Vec::new());
        assert_eq!(begins && life.values.body.take().is_some(), begins, "a task that begins has its closure");
        begins
    }

    fn finish(life: &mut Bench, output: u8) -> Option<Left> {
        let left =
            life.end(End { status: Status::Completed, exit: Exit::Done(()), unless_begun: false }, Instant::now());
        if left.is_some() {
            life.values.exit = Some(Exit::Done(output));
        }
        left
    }

    fn cancel(life: &mut Bench) -> Option<Left> {
        life.end(End::terminated(Status::Cancelled, Reason::Cancelled), Instant::now())
    }

    fn begins_too_late(life: &mut Bench) -> bool {
        let end = End { unless_begun: true, ..End::terminated(Status::TimedOut, Reason::TimedOut) };
        life.end(end, Instant::now()).is_some()
    }

    fn take(life: &mut Bench) -> Option<Exit<u8, String>> {
        life.values.exit().take()
    }

    #[test]
    fn the_table_of_phases_and_arrows_is_what_the_code_does() {
        // Scheduled.
        let mut life = bench();
        assert_eq!(life.info.status, Status::Scheduled);
        let left = cancel(&mut life).unwrap();
        assert!(left.body.is_some() && life.values.body.is_none() && left.running.is_none(), "it was never called");

        // Ended, from Scheduled.
        assert_eq!(life.info.status, Status::Cancelled);
        assert!(!begin(&mut life));
        assert!(finish(&mut life, 1).is_none() && cancel(&mut life).is_none() && !begins_too_late(&mut life));
        assert!(matches!(take(&mut life), Some(Exit::Terminated(Reason::Cancelled))));
        assert!(life.info.started.is_none() && life.info.status == Status::Cancelled);

        // Ended, from Scheduled, by a later call.
        let mut life = bench();
        assert!(begins_too_late(&mut life) && life.info.status == Status::TimedOut);
        assert!(!begin(&mut life) && cancel(&mut life).is_none());

        // Running.
        let mut life = bench();
        assert!(begin(&mut life));
        assert_eq!((life.info.status, life.info.started.is_some()), (Status::Running, true));
        assert!(!begin(&mut life), "once");
        assert!(!begins_too_late(&mut life));
        assert_eq!(life.info.status, Status::Running);
        let left = finish(&mut life, 2).unwrap();
        assert_eq!((left.body.is_some(), left.running.is_some()), (false, true));

        // Ended, from Running.
        assert_eq!(life.info.status, Status::Completed);
        assert!(cancel(&mut life).is_none());
        assert_eq!(life.info.status, Status::Completed);
        assert!(
            life.info.started.is_some() && matches!(take(&mut life), Some(Exit::Done(2))) && take(&mut life).is_none()
        );

        let mut life = bench();
        begin(&mut life);
        assert!(cancel(&mut life).unwrap().body.is_none());
        assert!(finish(&mut life, 3).is_none(), "it returns too late");
        assert_eq!(life.info.status, Status::Cancelled);
    }

    #[test]
    fn loose_ends_are_handed_out_once_or_come_back_at_once() {
        let timers = Timers::new(crate::clock::ManualClock::new().clock(), "test-timers");
        let timer = || timers.after(std::time::Duration::from_secs(1), Box::new(|| ())).ok().unwrap().unwrap();
        let attach = |life: &mut Bench, timer| {
            life.attach(Loose { timers: vec![timer], ..Loose::default() }).clear(&timers);
            timers.pending()
        };
        let mut life = bench();
        assert_eq!(attach(&mut life, timer()), 1);
        let mut keys = vec![timer()];
        assert!(life.begin(Instant::now(), &CancelToken::new(), std::thread::current().id(), &mut keys));
        keys.into_iter().for_each(|key| assert!(timers.cancel(key).is_some()));
        assert_eq!(timers.pending(), 1, "a task that has begun waits for its timeout only");
        assert_eq!(attach(&mut life, timer()), 1);
        finish(&mut life, 1).unwrap().loose.clear(&timers);
        assert_eq!((timers.pending(), attach(&mut life, timer())), (0, 0));

        let mut keys = vec![timer()];
        assert!(!life.begin(Instant::now(), &CancelToken::new(), std::thread::current().id(), &mut keys));
        assert_eq!(keys.len(), 1, "the timeout's timer is the caller's to clear");
    }
}
