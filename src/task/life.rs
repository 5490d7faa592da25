//! The life of one task, decided once, as plain functions. They run under the task's lock. They return the work that
//! must be done without the lock. The lock itself and its callers are in `task/shared.rs`.
//!
//! | | `begin` | `end` by return | `end` from outside | `end` unless it has begun |
//! |---|---|---|---|---|
//! | Scheduled | Running; the caller takes the closure | (cannot happen) | Over; returns the closure, uncalled | the same |
//! | Running | refused | Over | Over | refused |
//! | Over | refused | refused | refused | refused |
//!
//! So the first of returned, cancelled, timed out and stopped decides. The same step changes the status, notes the
//! end and stores the result. No thread can see one of these without the others. A begin follows the same rule. A
//! call that ends a task before it has begun takes its closure, so the closure is never called.

use std::task::Waker;
use std::time::Instant;

use super::info::Status;
use crate::cancel::{CancelCallback, CancelToken};
use crate::outcome::{Exit, Reason};
use crate::pool::Ticket;
use crate::primitives::{Arc, ThreadId};
use crate::timer::{TimerKey, Timers};

/// The life of a task that has these values of the user's.
pub(super) struct Life<V: ?Sized> {
    phase: Phase,
    loose: Loose,
    pub(super) values: V,
}

/// A task's closure and result.
pub(super) struct Values<T, E, F> {
    /// The closure, until it is called or dropped.
    pub(super) closure: Option<F>,
    /// The result, from the end until the handle takes it.
    pub(super) exit: Option<Exit<T, E>>,
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

impl<T: Send, E: Send, F: Send + 'static> AnyValues for Values<T, E, F> {
    fn terminate(&mut self, reason: Reason) -> Option<Box<dyn Send>> {
        self.exit = Some(Exit::Terminated(reason));
        self.closure.take().map(|closure| Box::new(closure) as _)
    }
}

impl<T: Send, E: Send, F: Send + 'static> ExitValue<T, E> for Values<T, E, F> {
    fn exit(&mut self) -> &mut Option<Exit<T, E>> {
        &mut self.exit
    }
}

enum Phase {
    Scheduled,
    Running { since: Instant, context: CancelToken, thread: ThreadId },
    Over(Ended),
}

/// The end of a task.
pub(super) struct Ended {
    pub(super) status: Status,
    pub(super) exit: Exit<(), Arc<str>>,
    pub(super) started: Option<Instant>,
    pub(super) at: Instant,
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
    /// The task's link to the token that it is under: a node below that token, and the callback of the node. Because
    /// the node is the task's own, the token's list can drop it without a search.
    pub(super) link: Option<Box<(CancelToken, CancelCallback)>>,
    /// The bell of a pool thread that waits for the task and would run it. It rings when the job is in the pool's
    /// queue, or when it never will be. (There is one handle, and so one such thread.)
    pub(super) bell: Option<Waker>,
}

/// Work that remains for the caller that ended a task, without the lock.
pub(super) struct Left {
    /// The closure, if it was never called.
    pub(super) closure: Option<Box<dyn Send>>,
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

impl<T, E, F> Life<Values<T, E, F>> {
    pub(super) fn new(closure: F) -> Life<Values<T, E, F>> {
        let values = Values { closure: Some(closure), exit: None };
        Life { phase: Phase::Scheduled, loose: Loose::default(), values }
    }
}

impl<V: ?Sized + AnyValues> Life<V> {
    pub(super) fn status(&self) -> Status {
        match &self.phase {
            Phase::Scheduled => Status::Scheduled,
            Phase::Running { .. } => Status::Running,
            Phase::Over(ended) => ended.status,
        }
    }

    pub(super) fn started(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Scheduled => None,
            Phase::Running { since, .. } => Some(*since),
            Phase::Over(ended) => ended.started,
        }
    }

    pub(super) fn ended(&self) -> Option<&Ended> {
        match &self.phase {
            Phase::Over(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether the task begins now. Then its timers are exchanged for these. The caller clears the ones that it has
    /// afterwards.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        context: &CancelToken,
        thread: ThreadId,
        timers: &mut Vec<TimerKey>,
    ) -> bool {
        let Phase::Scheduled = self.phase else { return false };
        self.phase = Phase::Running { since: now, context: context.clone(), thread };
        // The pool has taken the job out of the queue.
        self.loose.ticket = None;
        std::mem::swap(&mut self.loose.timers, timers);
        true
    }

    /// Ends the task, unless it has ended before. If this end requires a task that has not begun, a begun task is
    /// left alone.
    pub(super) fn end(&mut self, end: End, now: Instant) -> Option<Left> {
        let End { status, exit, unless_begun } = end;
        match self.phase {
            Phase::Running { .. } if unless_begun => return None,
            Phase::Over(_) => return None,
            _ => {}
        }
        let closure = match &exit {
            Exit::Terminated(reason) => self.values.terminate(reason.clone()),
            _ => None,
        };
        let ended = Ended { status, exit, started: self.started(), at: now };
        let running = match std::mem::replace(&mut self.phase, Phase::Over(ended)) {
            Phase::Running { context, thread, .. } => Some((context, thread)),
            _ => None,
        };
        Some(Left { closure, running, loose: std::mem::take(&mut self.loose) })
    }

    /// Whether the closure runs on this thread.
    pub(super) fn runs_on(&self, who: ThreadId) -> bool {
        matches!(&self.phase, Phase::Running { thread, .. } if *thread == who)
    }

    /// The job's ticket in the pool's queue, if the job waits there.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.loose.ticket.clone()
    }

    /// Notes items that must be cleared later. Returns those that the caller must clear now.
    pub(super) fn attach(&mut self, mut new: Loose) -> Loose {
        if self.started().is_some() {
            // The job was taken out of the queue when the task began.
            new.ticket = None;
        }
        let loose = &mut self.loose;
        match self.phase {
            Phase::Scheduled => {
                loose.timers.append(&mut new.timers);
                loose.ticket = new.ticket.or(loose.ticket.take());
                loose.link = new.link.or(loose.link.take());
                loose.bell = new.bell.or(loose.bell.take());
                let rings = if loose.ticket.is_some() { loose.bell.take() } else { None };
                Loose { bell: rings, ..Loose::default() }
            }
            Phase::Running { .. } => {
                loose.link = new.link.take().or(loose.link.take());
                new
            }
            Phase::Over(_) => new,
        }
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
    use super::*;

    type Bench = Life<Values<u8, String, &'static str>>;

    fn begin(life: &mut Bench) -> Option<&'static str> {
        let begins = life.begin(Instant::now(), &CancelToken::new(), std::thread::current().id(), &mut Vec::new());
        if begins { life.values.closure.take() } else { None }
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
        let mut life = Bench::new("closure");
        assert_eq!(life.status(), Status::Scheduled);
        let left = cancel(&mut life).unwrap();
        assert!(
            left.closure.is_some() && life.values.closure.is_none() && left.running.is_none(),
            "it was never called"
        );

        // Ended, from Scheduled.
        assert_eq!(life.status(), Status::Cancelled);
        assert!(begin(&mut life).is_none());
        assert!(finish(&mut life, 1).is_none() && cancel(&mut life).is_none() && !begins_too_late(&mut life));
        assert!(matches!(take(&mut life), Some(Exit::Terminated(Reason::Cancelled))));
        assert!(life.started().is_none() && life.status() == Status::Cancelled);

        // Ended, from Scheduled, by a later call.
        let mut life = Bench::new("closure");
        assert!(begins_too_late(&mut life) && life.status() == Status::TimedOut);
        assert!(begin(&mut life).is_none() && cancel(&mut life).is_none());

        // Running.
        let mut life = Bench::new("closure");
        assert_eq!(begin(&mut life), Some("closure"));
        assert_eq!((life.status(), life.started().is_some()), (Status::Running, true));
        assert!(begin(&mut life).is_none(), "once");
        assert!(!begins_too_late(&mut life));
        assert_eq!(life.status(), Status::Running);
        let left = finish(&mut life, 2).unwrap();
        assert_eq!((left.closure.is_some(), left.running.is_some()), (false, true));

        // Ended, from Running.
        assert_eq!(life.status(), Status::Completed);
        assert!(cancel(&mut life).is_none());
        assert_eq!(life.status(), Status::Completed);
        assert!(
            life.started().is_some() && matches!(take(&mut life), Some(Exit::Done(2))) && take(&mut life).is_none()
        );

        let mut life = Bench::new("closure");
        begin(&mut life);
        assert!(cancel(&mut life).unwrap().closure.is_none());
        assert!(finish(&mut life, 3).is_none(), "it returns too late");
        assert_eq!(life.status(), Status::Cancelled);
    }

    #[test]
    fn loose_ends_are_handed_out_once_or_come_back_at_once() {
        let timers = Timers::new(crate::clock::ManualClock::new().clock(), "test-timers");
        let timer = || timers.after(std::time::Duration::from_secs(1), Box::new(|| ())).ok().unwrap().unwrap();
        let attach = |life: &mut Bench, timer| {
            life.attach(Loose { timers: vec![timer], ..Loose::default() }).clear(&timers);
            timers.pending()
        };
        let mut life = Bench::new("closure");
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
