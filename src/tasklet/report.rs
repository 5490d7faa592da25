//! Reports of a loop: its work so far, the tasklets that hold it, and why a run was cut short.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::directive::{Directive, TaskletId};
use crate::outcome::{Panic, Reason, contain, tell_log};
use crate::primitives::Arc;

/// The most tasklets that a report names, so that the report of a large loop stays small. The counts are exact.
pub const MAX_NAMED: usize = 100;

/// A count of what a loop has done since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Steps on the home thread.
    pub home_steps: u64,
    /// Steps on the pool.
    pub pool_steps: u64,
    /// Tasklets that said that they were done, or were given [`Directive::Done`].
    pub finished: u64,
    /// Tasklets that panicked.
    pub panicked: u64,
    /// Tasklets that were cancelled, one by one or with their loop.
    pub cancelled: u64,
    /// Tasklets that waited for a resumption that was dropped.
    pub abandoned: u64,
    /// Tasklets whose pool step the pool has refused.
    pub refused: u64,
    /// The panics: the first [`MAX_NAMED`].
    pub panics: Vec<TaskletPanic>,
    /// The tasklets that were abandoned: the first [`MAX_NAMED`].
    pub abandoned_waits: Vec<AbandonedTasklet>,
}

/// A tasklet that waited for a resumption that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedTasklet {
    /// Which one.
    pub id: TaskletId,
    /// Its [name](super::Tasklet::name).
    pub name: Cow<'static, str>,
}

/// A panic in a step.
#[derive(Clone)]
pub struct TaskletPanic {
    /// Of which tasklet.
    pub id: TaskletId,
    /// Its [name](super::Tasklet::name).
    pub name: Cow<'static, str>,
    /// Where the step ran: [`Directive::Home`] at home, [`Directive::Pool`] on the pool.
    pub directive: Directive,
    /// The panic.
    pub panic: Panic,
}

/// How a loop goes on when a step panics. The tasklet is finished in any case, and the report names it.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The others go on.
    #[default]
    Finish,
    /// The run that is going on, or else the next one, ends with the panic as its error.
    Stop,
    /// This is called, on the thread of the step, with no lock held. The others go on. A panic in it is contained.
    Handler(PanicHandler),
}

/// The function that [`PanicPolicy::Handler`] calls.
pub type PanicHandler = Arc<dyn Fn(&TaskletPanic) + Send + Sync>;

/// A tasklet that holds a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskletInfo {
    /// Which one.
    pub id: TaskletId,
    /// Its [name](super::Tasklet::name).
    pub name: Cow<'static, str>,
    /// Where it goes next: [`Directive::Home`] for the home thread, [`Directive::Pool`] for the pool, [`Directive::Wait`]
    /// for being resumed.
    pub directive: Directive,
    /// Whether it is in a step now.
    pub running: bool,
    /// How long it has had this directive, by the loop's clock.
    pub since: Duration,
}

/// How a [turn](super::Loop::turn) ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "whether there is more to do"]
pub enum TurnOutcome {
    /// It took so many steps; there may be more to do at once.
    Ran(usize),
    /// There was nothing to do at once, but there are tasklets that wait or are on the pool.
    Idle,
    /// There is no tasklet left.
    Finished,
    /// A step panicked, and the policy is [`PanicPolicy::Stop`].
    Stopped(TaskletPanic),
}

/// A run ended before the loop was empty. Nothing is lost: the loop can be run again, and goes on where it was.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the run was cut short: {}; {} tasklets are left", .inner.why, .inner.left)]
pub struct InterruptedError {
    inner: Box<Cut>,
}

#[derive(Clone, Debug)]
struct Cut {
    why: Interruption,
    report: Report,
    left: usize,
    holding: Vec<TaskletInfo>,
}

/// Why a run was cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interruption {
    /// The token was cancelled.
    Cancelled(Reason),
    /// The limit was over.
    TimedOut,
    /// The caller is a step of a process, which does not wait: it would block its worker.
    InsideStep,
    /// A step panicked, and the policy is [`PanicPolicy::Stop`].
    Panicked(TaskletPanic),
}

impl Report {
    /// Whether every tasklet that ended said itself that it was done.
    pub fn is_clean(&self) -> bool {
        self.panicked + self.cancelled + self.abandoned + self.refused == 0
    }

    /// How many tasklets have ended.
    pub fn ended(&self) -> u64 {
        self.finished + self.panicked + self.cancelled + self.abandoned + self.refused
    }

    pub(super) fn panicked(&mut self, panic: &TaskletPanic) {
        self.panicked += 1;
        if self.panics.len() < MAX_NAMED {
            self.panics.push(panic.clone());
        }
    }

    pub(super) fn abandoned(&mut self, id: TaskletId, name: Cow<'static, str>) {
        self.abandoned += 1;
        if self.abandoned_waits.len() < MAX_NAMED {
            self.abandoned_waits.push(AbandonedTasklet { id, name });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} steps at home, {} on the pool; {} tasklets finished",
            self.home_steps, self.pool_steps, self.finished
        )?;
        let others = [
            ("panicked", self.panicked),
            ("cancelled", self.cancelled),
            ("abandoned", self.abandoned),
            ("refused", self.refused),
        ];
        for (what, count) in others.into_iter().filter(|(_, count)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        for panic in &self.panics {
            write!(f, "\n{panic}")?;
        }
        for AbandonedTasklet { id, name } in &self.abandoned_waits {
            write!(f, "\n{name} ({id}) waited for a resumption that was dropped")?;
        }
        Ok(())
    }
}

impl fmt::Display for TaskletPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.name, self.id, self.panic)
    }
}

impl fmt::Debug for TaskletPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskletPanic({self})")
    }
}

/// Of the same tasklet: one tasklet panics once.
impl PartialEq for TaskletPanic {
    fn eq(&self, other: &TaskletPanic) -> bool {
        self.id == other.id
    }
}

impl Eq for TaskletPanic {}

impl PanicPolicy {
    /// Calls `handler`.
    pub fn call(handler: impl Fn(&TaskletPanic) + Send + Sync + 'static) -> PanicPolicy {
        PanicPolicy::Handler(Arc::new(handler))
    }

    /// Logs the panic, and calls the handler.
    pub(super) fn tell(&self, panic: &TaskletPanic) {
        tell_log(|| tracing::error!(tasklet = %panic.name, id = %panic.id, panic = %panic.panic, "a step panicked"));
        if let PanicPolicy::Handler(handler) = self
            && let Err(panic) = contain(|| handler(panic))
        {
            tell_log(|| tracing::error!(%panic, "a handler of panics panicked"));
        }
    }
}

impl fmt::Debug for PanicPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PanicPolicy::Finish => "Finish",
            PanicPolicy::Stop => "Stop",
            PanicPolicy::Handler(_) => "Handler",
        })
    }
}

impl fmt::Display for TaskletInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = if self.running { ", in a step" } else { "" };
        write!(f, "{} ({}): {:?} for {:?}{running}", self.name, self.id, self.directive, self.since)
    }
}

impl InterruptedError {
    pub(super) fn new(why: Interruption, report: Report, mut holding: Vec<TaskletInfo>) -> InterruptedError {
        let left = holding.len();
        holding.truncate(MAX_NAMED);
        InterruptedError { inner: Box::new(Cut { why, report, left, holding }) }
    }

    /// Why the run was cut short.
    pub fn why(&self) -> &Interruption {
        &self.inner.why
    }

    /// The work that was done until then.
    pub fn report(&self) -> &Report {
        &self.inner.report
    }

    /// How many tasklets are left.
    pub fn left(&self) -> usize {
        self.inner.left
    }

    /// Which ones: the first [`MAX_NAMED`].
    pub fn tasklets(&self) -> &[TaskletInfo] {
        &self.inner.holding
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interruption::Cancelled(reason) => write!(f, "{reason}"),
            Interruption::TimedOut => f.write_str("the limit was over"),
            Interruption::InsideStep => f.write_str("a step of a process cannot wait, for it would block its worker"),
            Interruption::Panicked(panic) => panic.fmt(f),
        }
    }
}
