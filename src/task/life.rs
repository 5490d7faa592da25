//! The life of one task, decided once, as plain functions. They run under the task's lock. They return the work that
//! must be done without the lock. The lock itself and its callers are in `task/shared.rs`.
//!
//! | | `begin` | `end` by return | `end` from outside | `end` unless it has begun, `recall` |
//! |---|---|---|---|---|
//! | Scheduled | Running; returns the closure | (cannot happen) | Over; returns the closure, uncalled | the same |
//! | Running | refused | Over | Over | refused |
//! | Over | refused | refused; the result comes back | refused | refused |
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

/// The life of a task whose closure has the type `F`.
pub(super) struct Life<T, E, F> {
    phase: Phase,
    /// The closure, until it is called or dropped.
    body: Option<F>,
    /// The result, from the end until the handle takes it.
    exit: Option<Exit<T, E>>,
    loose: Loose,
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
pub(super) struct End<T, E> {
    status: Status,
    exit: Exit<T, E>,
    told: Exit<(), Arc<str>>,
    unless_begun: bool,
}

/// Items that must be cleared when a task has ended or begun.
#[derive(Default)]
pub(super) struct Loose {
    ticket: Option<Ticket>,
    start_by: Option<TimerKey>,
    // The delay's timer is separate from the timeout's. The thread that begins may note the timeout while the
    // submitting thread still notes the delay.
    delay: Option<TimerKey>,
    timer: Option<TimerKey>,
    link: Option<Box<Link>>,
    bell: Option<Waker>,
}

/// One item that must be cleared.
pub(super) enum LooseEnd {
    /// The job in the pool's queue.
    Waits(Ticket),
    /// The timer by which the task must begin.
    StartBy(TimerKey),
    /// The timer by which the task must end.
    Timer(TimerKey),
    /// The timer that hands the task to the pool.
    Delay(TimerKey),
    /// The task's link to the token that it is under.
    Link(Box<Link>),
    /// The bell of a pool thread that waits for the task and would run it. It rings when the job is in the pool's
    /// queue, or when it never will be. (There is one handle, and so one such thread.)
    Bell(Waker),
}

/// A node below the token that a task is under. Because it is a separate node, the token's list can drop it without a
/// search.
pub(super) struct Link {
    pub(super) _node: CancelToken,
    pub(super) _registration: CancelCallback,
}

/// Work that remains for the caller that ended a task, without the lock.
pub(super) struct Left<F> {
    /// The closure, if it was never called.
    pub(super) body: Option<F>,
    /// The token that the closure got, and the closure's thread.
    pub(super) running: Option<(CancelToken, ThreadId)>,
    pub(super) loose: Loose,
}

impl<T, E> End<T, E> {
    /// An end by the closure's return. `told` has the same exit with the error as text.
    pub(super) fn by_return(exit: Exit<T, E>, told: Exit<(), Arc<str>>) -> End<T, E> {
        End { status: Status::Completed, exit, told, unless_begun: false }
    }

    /// An end from outside.
    pub(super) fn from_outside(status: Status, reason: Reason) -> End<T, E> {
        let told = Exit::Terminated(reason.clone());
        End { status, exit: Exit::Terminated(reason), told, unless_begun: false }
    }

    /// An end from outside that has no effect if the task has begun.
    pub(super) fn before_begin(status: Status, reason: Reason) -> End<T, E> {
        End { unless_begun: true, ..End::from_outside(status, reason) }
    }

    pub(super) fn status(&self) -> Status {
        self.status
    }

    /// The reason with which the closure's token is cancelled.
    pub(super) fn reason(&self) -> Reason {
        match &self.told {
            Exit::Terminated(reason) => reason.clone(),
            _ => Reason::Ended,
        }
    }
}

impl<T, E, F> Life<T, E, F> {
    pub(super) fn new(body: F) -> Life<T, E, F> {
        Life { phase: Phase::Scheduled, body: Some(body), exit: None, loose: Loose::default() }
    }

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

    /// Returns the closure, with the timer that is no longer needed. Returns nothing if the task has ended.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        context: &CancelToken,
        thread: ThreadId,
    ) -> Option<(F, Option<TimerKey>)> {
        let Phase::Scheduled = self.phase else { return None };
        let body = self.body.take()?;
        self.phase = Phase::Running { since: now, context: context.clone(), thread };
        // The pool has taken the job out of the queue.
        self.loose.ticket = None;
        Some((body, self.loose.start_by.take()))
    }

    /// Ends the task, unless it has ended before. If this end requires a task that has not begun, a begun task is
    /// left alone. If the task is not ended, the result is handed back.
    pub(super) fn end(&mut self, end: End<T, E>, now: Instant) -> Result<Left<F>, Exit<T, E>> {
        let End { status, exit, told, unless_begun } = end;
        let is_too_late = match self.phase {
            Phase::Scheduled => false,
            Phase::Running { .. } => unless_begun,
            Phase::Over(_) => true,
        };
        if is_too_late {
            return Err(exit);
        }
        let ended = Ended { status, exit: told, started: self.started(), at: now };
        let running = match std::mem::replace(&mut self.phase, Phase::Over(ended)) {
            Phase::Running { context, thread, .. } => Some((context, thread)),
            _ => None,
        };
        self.exit = Some(exit);
        Ok(Left { body: self.body.take(), running, loose: std::mem::take(&mut self.loose) })
    }

    /// Takes the task back before it has begun, as if it had never been accepted.
    pub(super) fn recall(&mut self, now: Instant) -> Option<Left<F>> {
        let Phase::Scheduled = self.phase else { return None };
        let exit = Exit::Terminated(Reason::Shutdown);
        self.phase = Phase::Over(Ended { status: Status::Stopped, exit, started: None, at: now });
        Some(Left { body: self.body.take(), running: None, loose: std::mem::take(&mut self.loose) })
    }

    /// Takes the result for the handle.
    pub(super) fn take(&mut self) -> Option<Exit<T, E>> {
        self.exit.take()
    }

    /// Puts a result back that was taken only to be read.
    pub(super) fn put_back(&mut self, exit: Exit<T, E>) {
        self.exit = Some(exit);
    }

    /// Whether the closure runs on this thread.
    pub(super) fn runs_on(&self, who: ThreadId) -> bool {
        matches!(&self.phase, Phase::Running { thread, .. } if *thread == who)
    }

    /// The job's ticket in the pool's queue, if the job waits there.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.loose.ticket.clone()
    }

    /// Notes an item that must be cleared later. If the item is handed back, the caller must clear it now.
    pub(super) fn attach(&mut self, end: LooseEnd) -> Option<LooseEnd> {
        match (&self.phase, end) {
            // The job was taken out of the queue when the task began.
            (Phase::Running { .. } | Phase::Over(Ended { started: Some(_), .. }), LooseEnd::Waits(_)) => None,
            (Phase::Scheduled, LooseEnd::Waits(ticket)) => {
                self.loose.ticket = Some(ticket);
                self.loose.bell.take().map(LooseEnd::Bell)
            }
            (Phase::Scheduled, bell @ LooseEnd::Bell(_)) if self.loose.ticket.is_some() => Some(bell),
            (Phase::Scheduled, end) | (Phase::Running { .. }, end @ (LooseEnd::Timer(_) | LooseEnd::Link(_))) => {
                self.loose.add(end);
                None
            }
            (_, end) => Some(end),
        }
    }
}

impl Loose {
    fn add(&mut self, end: LooseEnd) {
        match end {
            LooseEnd::Waits(ticket) => self.ticket = Some(ticket),
            LooseEnd::StartBy(key) => self.start_by = Some(key),
            LooseEnd::Timer(key) => self.timer = Some(key),
            LooseEnd::Delay(key) => self.delay = Some(key),
            LooseEnd::Link(link) => self.link = Some(link),
            LooseEnd::Bell(bell) => self.bell = Some(bell),
        }
    }

    /// Clears the item. No lock may be held, because this may drop the user's values.
    pub(super) fn clear(self, timers: &Timers) {
        for key in [self.start_by, self.delay, self.timer].into_iter().flatten() {
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

impl From<LooseEnd> for Loose {
    fn from(end: LooseEnd) -> Loose {
        let mut loose = Loose::default();
        loose.add(end);
        loose
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Bench = Life<u8, String, &'static str>;

    fn begin(life: &mut Bench) -> Option<&'static str> {
        life.begin(Instant::now(), &CancelToken::new(), std::thread::current().id()).map(|(body, _)| body)
    }

    fn finish(life: &mut Bench, output: u8) -> Result<Left<&'static str>, Exit<u8, String>> {
        life.end(End::by_return(Exit::Done(output), Exit::Done(())), Instant::now())
    }

    fn cancel(life: &mut Bench) -> Result<Left<&'static str>, Exit<u8, String>> {
        life.end(End::from_outside(Status::Cancelled, Reason::Cancelled), Instant::now())
    }

    fn begins_too_late(life: &mut Bench) -> bool {
        life.end(End::before_begin(Status::TimedOut, Reason::TimedOut), Instant::now()).is_ok()
    }

    #[test]
    fn the_table_of_phases_and_arrows_is_what_the_code_does() {
        // Scheduled.
        let mut life = Bench::new("closure");
        assert_eq!(life.status(), Status::Scheduled);
        let left = cancel(&mut life).ok().unwrap();
        assert_eq!((left.body, left.running.is_some()), (Some("closure"), false), "the closure was never called");

        // Ended, from Scheduled.
        assert_eq!(life.status(), Status::Cancelled);
        assert!(begin(&mut life).is_none());
        assert!(matches!(finish(&mut life, 1), Err(Exit::Done(1))));
        assert!(matches!(cancel(&mut life), Err(Exit::Terminated(Reason::Cancelled))));
        assert!(!begins_too_late(&mut life) && life.recall(Instant::now()).is_none());
        assert!(life.started().is_none() && life.status() == Status::Cancelled);

        // Ended, from Scheduled, by a later call.
        let mut life = Bench::new("closure");
        assert!(begins_too_late(&mut life) && life.status() == Status::TimedOut);
        let mut life = Bench::new("closure");
        assert_eq!(life.recall(Instant::now()).unwrap().body, Some("closure"));
        assert!(begin(&mut life).is_none() && cancel(&mut life).is_err() && life.take().is_none());

        // Running.
        let mut life = Bench::new("closure");
        assert_eq!(begin(&mut life), Some("closure"));
        assert_eq!((life.status(), life.started().is_some()), (Status::Running, true));
        assert!(begin(&mut life).is_none(), "once");
        assert!(!begins_too_late(&mut life) && life.recall(Instant::now()).is_none());
        assert_eq!(life.status(), Status::Running);
        let left = finish(&mut life, 2).ok().unwrap();
        assert_eq!((left.body, left.running.is_some()), (None, true));

        // Ended, from Running.
        assert_eq!(life.status(), Status::Completed);
        assert!(cancel(&mut life).is_err());
        assert_eq!(life.status(), Status::Completed);
        assert!(life.started().is_some() && matches!(life.take(), Some(Exit::Done(2))) && life.take().is_none());

        let mut life = Bench::new("closure");
        begin(&mut life);
        assert!(cancel(&mut life).ok().unwrap().body.is_none());
        assert!(matches!(finish(&mut life, 3), Err(Exit::Done(3))), "the late result comes back");
        assert_eq!(life.status(), Status::Cancelled);
    }

    #[test]
    fn loose_ends_are_handed_out_once_or_come_back_at_once() {
        let timers = Timers::new(crate::clock::ManualClock::new().clock(), "test-timers");
        let timer = || timers.after(std::time::Duration::from_secs(1), Box::new(|| ())).ok().unwrap().unwrap();
        let mut life = Bench::new("closure");
        assert!(life.attach(LooseEnd::StartBy(timer())).is_none());
        assert!(life.attach(LooseEnd::Timer(timer())).is_none());
        let (_, moot) = life.begin(Instant::now(), &CancelToken::new(), std::thread::current().id()).unwrap();
        assert!(timers.cancel(moot.unwrap()).is_some());
        assert_eq!(timers.pending(), 1, "who has begun waits for its timeout only");
        Loose::from(life.attach(LooseEnd::StartBy(timer())).unwrap()).clear(&timers);
        assert_eq!(timers.pending(), 1);
        finish(&mut life, 1).ok().unwrap().loose.clear(&timers);
        assert_eq!(timers.pending(), 0);
        Loose::from(life.attach(LooseEnd::Timer(timer())).unwrap()).clear(&timers);
        assert_eq!(timers.pending(), 0);
    }
}
