//! Reports of a loop's work, and of the tasklets that are left.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::directive::{Directive, TaskletId};
use crate::outcome::{Panic, Reason, contain, tell_log};
use crate::primitives::Arc;

/// The most tasklets that a report names.
///
/// The limit keeps the report of a large loop small. The counts are exact.
pub const MAX_NAMED: usize = 100;

/// Counts of a loop's work since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Steps on the home thread.
    pub home_steps: u64,
    /// Steps on the pool.
    pub pool_steps: u64,
    /// Tasklets that ended with [`Directive::Done`], which a step returned or another thread gave.
    pub finished: u64,
    /// Tasklets that panicked.
    pub panicked: u64,
    /// Tasklets that were cancelled, alone or with their loop.
    pub cancelled: u64,
    /// Tasklets that waited when their last `Resume` was dropped unused.
    pub abandoned: u64,
    /// Tasklets whose pool step was refused by the pool.
    pub refused: u64,
    /// The first [`MAX_NAMED`] panics.
    pub panics: Vec<TaskletPanic>,
    /// The first [`MAX_NAMED`] abandoned tasklets.
    pub abandoned_waits: Vec<AbandonedTasklet>,
}

/// A tasklet that waited when its last `Resume` was dropped unused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedTasklet {
    /// The id of the tasklet.
    pub id: TaskletId,
    /// The tasklet's [name](super::Tasklet::name).
    pub name: Cow<'static, str>,
}

/// A panic in a step.
#[derive(Clone, thiserror::Error)]
#[error("{name} ({id}) {panic}")]
pub struct TaskletPanic {
    /// The id of the tasklet.
    pub id: TaskletId,
    /// The tasklet's [name](super::Tasklet::name).
    pub name: Cow<'static, str>,
    /// Where the step ran: [`Directive::Home`] or [`Directive::Pool`].
    pub directive: Directive,
    /// The panic.
    pub panic: Panic,
}

/// Says what a loop does when a step panics.
///
/// Under every policy, the tasklet ends, and the report names it.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The other tasklets go on.
    #[default]
    Finish,
    /// The current run ends with the panic as its error. If no run is going on, the next run does.
    Stop,
    /// The handler is called on the thread of the step, with no lock held. The other tasklets go on. A panic in the
    /// handler is contained.
    Handler(PanicHandler),
}

/// The function that [`PanicPolicy::Handler`] calls.
pub type PanicHandler = Arc<dyn Fn(&TaskletPanic) + Send + Sync>;

/// A snapshot of a tasklet that the loop still has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskletInfo {
    /// The id of the tasklet.
    pub id: TaskletId,
    /// The tasklet's [name](super::Tasklet::name).
    pub name: Cow<'static, str>,
    /// The tasklet's next or current action.
    ///
    /// [`Directive::Home`] is a home step, and [`Directive::Pool`] is a pool step. With [`Directive::Wait`], the
    /// tasklet waits until it is resumed.
    pub directive: Directive,
    /// Whether the tasklet is in a step now.
    pub running: bool,
    /// How long the tasklet has had this directive, by the loop's clock.
    pub since: Duration,
}

/// The outcome of a [turn](super::Loop::turn).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "whether there is more to do"]
pub enum TurnOutcome {
    /// The turn ran this many steps. More steps may be ready, or no tasklet may be left.
    Ran(usize),
    /// No step was ready. Tasklets wait or are on the pool.
    Idle,
    /// The turn ran no step, because no tasklet is left.
    Finished,
    /// A step panicked, and the policy is [`PanicPolicy::Stop`].
    Stopped(TaskletPanic),
}

/// A run or a close ended while tasklets were left.
///
/// After a run, the loop keeps its tasklets, and can be run again.
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

/// The reason why a run was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Interruption {
    /// The token was cancelled.
    #[error("{0}")]
    Cancelled(Reason),
    /// The limit has passed. A close by a step of the same loop, or at the end of one of its tasklets, does not wait.
    /// It gets this at once if a tasklet is in a step.
    #[error("the limit was over")]
    TimedOut,
    /// The caller is a step of a process. The call did not wait, because that would block the step's worker.
    #[error("a step of a process cannot wait, for it would block its worker")]
    InsideStep,
    /// A step panicked, and the policy is [`PanicPolicy::Stop`].
    #[error("{0}")]
    Panicked(TaskletPanic),
}

impl Report {
    /// Whether no tasklet panicked, was cancelled, was abandoned or was refused.
    pub fn is_clean(&self) -> bool {
        self.panicked + self.cancelled + self.abandoned + self.refused == 0
    }

    /// Returns the number of tasklets that have ended.
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

impl fmt::Debug for TaskletPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskletPanic({self})")
    }
}

/// Equal if both are of the same tasklet, because a tasklet panics only once.
impl PartialEq for TaskletPanic {
    fn eq(&self, other: &TaskletPanic) -> bool {
        self.id == other.id
    }
}

impl Eq for TaskletPanic {}

impl PanicPolicy {
    /// Makes a policy that calls `handler`.
    pub fn call(handler: impl Fn(&TaskletPanic) + Send + Sync + 'static) -> PanicPolicy {
        PanicPolicy::Handler(Arc::new(handler))
    }

    /// Logs the panic and calls the handler.
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

    /// Returns the reason of the interruption.
    pub fn why(&self) -> &Interruption {
        &self.inner.why
    }

    /// Returns the report of the work until the interruption.
    pub fn report(&self) -> &Report {
        &self.inner.report
    }

    /// Returns the number of tasklets that are left.
    pub fn left(&self) -> usize {
        self.inner.left
    }

    /// Returns the first [`MAX_NAMED`] of the tasklets that are left.
    pub fn tasklets(&self) -> &[TaskletInfo] {
        &self.inner.holding
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_clean_if_all_tasklets_have_finished() {
        let clean = Report { finished: 2, ..Report::default() };
        assert!(clean.is_clean() && clean.ended() == 2);
        let counts: [fn(&mut Report) -> &mut u64; 4] =
            [|it| &mut it.panicked, |it| &mut it.cancelled, |it| &mut it.abandoned, |it| &mut it.refused];
        for count in counts {
            let mut report = clean.clone();
            *count(&mut report) = 3;
            assert!(!report.is_clean() && report.ended() == 5, "{report}");
            report = Report { panicked: 1, cancelled: 1, abandoned: 1, refused: 1, ..report };
            assert!(!report.is_clean() && report.ended() == 6, "{report}");
        }
    }
}
