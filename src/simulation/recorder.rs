//! The turns of a run: for its hash, and for the trace of a run that is to be shown.

use std::time::Duration;

use super::coverage::{PartialOrder, Taken};
use super::faults::What;
use super::fold::Fold;
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::process::StepActivity;
use crate::process::step_activity::Sight;
use crate::sched::body::{Ready, StepOutput, Stepped, Verdict, Yield};
use crate::sched::orders::Order;

/// A fault that was injected.
#[derive(Clone, Debug)]
pub(super) struct Injected {
    pub(super) of: Pid,
    pub(super) what: What,
}

/// One turn of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnRecord {
    pub(super) number: u32,
    /// Whether another entry was first in the order in which they became possible.
    pub(super) is_out_of_order: bool,
    pub(super) at: Duration,
    /// The process and its type. `None` for timers and jobs.
    pub(super) process: Option<(Pid, &'static str)>,
    pub(super) took: Vec<StepActivity>,
    pub(super) verdict: Option<Verdict>,
    /// How the step failed, if it did.
    pub(super) failed: Option<String>,
    pub(super) yields: Vec<String>,
    pub(super) injected: Vec<Injected>,
    /// Other effects of the turn.
    pub(super) notes: Vec<String>,
    /// The hash of the run when the turn began.
    pub(super) hash: u64,
}

/// Records the turns of a run, if they are to be shown.
#[derive(Default)]
pub(super) struct Recorder {
    turns: Option<Vec<TurnRecord>>,
    /// Memory for the activities of a step.
    took: Vec<StepActivity>,
}

impl Recorder {
    /// A recorder that keeps every turn.
    pub(super) fn with_turns() -> Recorder {
        Recorder { turns: Some(Vec::new()), ..Recorder::default() }
    }

    pub(super) fn take_turns(&mut self) -> Vec<TurnRecord> {
        self.turns.take().unwrap_or_default()
    }

    /// Begins the record of a turn.
    pub(super) fn turn(&mut self, number: u32, is_out_of_order: bool) {
        if let Some(turns) = &mut self.turns {
            turns.push(TurnRecord { number, is_out_of_order, ..TurnRecord::default() });
        }
    }

    pub(super) fn begin(&mut self, pid: Pid, body: &Ready, (at, hash): (Duration, u64)) {
        if let Some(turn) = self.turns.as_mut().and_then(|turns| turns.last_mut()) {
            (turn.at, turn.hash) = (at, hash);
            turn.process = Some((pid, (body.machine.kind().process)()));
        }
    }

    /// Whether turns are recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.turns.is_some()
    }

    /// Adds a note to the last turn of this process.
    pub(super) fn note(&mut self, of: Pid, note: String) {
        let mut turns = self.turns.iter_mut().flatten().rev();
        if let Some(turn) = turns.find(|turn| turn.process.is_some_and(|(pid, _)| pid == of)) {
            turn.notes.push(note);
        }
    }

    pub(super) fn injected(&mut self, injected: Injected) {
        if let Some(turn) = self.turns.as_mut().and_then(|turns| turns.last_mut()) {
            turn.injected.push(injected);
        }
    }
}

/// Records the events that a step has taken, its verdict, and its yields.
pub(super) fn took(
    (fold, order, recorder): (&mut Fold, &mut PartialOrder, &mut Recorder),
    sight: &Sight,
    pid: Pid,
    stepped: &Stepped,
    out: &StepOutput,
) {
    let mut took = std::mem::take(&mut recorder.took);
    sight.take_log(&mut took);
    for activity in &took {
        fold.add(&number_of(activity));
        let (kind, from) = match activity {
            StepActivity::Message { from } => (0, *from),
            StepActivity::Completed { .. } => (1, None),
            StepActivity::Down { pid } | StepActivity::Exit { pid } => (2, Some(*pid)),
            StepActivity::Cancel | StepActivity::Group | StepActivity::Recovered { .. } => (3, None),
            _ => continue,
        };
        // The order of the events of one process is folded, so their numbers in it need not be.
        order.took(pid, Taken { kind, from, number: 0 });
    }
    fold.add(&[stepped.verdict as u64, u64::from(stepped.taken)]);
    let is_broken = stepped.verdict == Verdict::Broken;
    if !is_broken {
        let mut others = out.yields.iter();
        for one in out.orders.newest() {
            match one {
                Order::Send { count, to, .. } => fold.add(&[20, u64::from(*count), to.to_word()]),
                Order::Next => others.next().into_iter().for_each(|one| fold.add(&number_of_yield(one))),
            }
        }
    }
    if let Some(turns) = &mut recorder.turns
        && let Some(turn) = turns.iter_mut().rev().find(|turn| turn.process.is_some_and(|(of, _)| of == pid))
    {
        turn.took.append(&mut took);
        turn.verdict = Some(stepped.verdict);
        turn.failed = match &out.failure {
            Some(Exit::Failed(failure)) if is_broken => Some(format!("failed: {failure}")),
            Some(Exit::Panicked(panic)) if is_broken => Some(format!("panicked: {panic}")),
            _ => None,
        };
        if !is_broken {
            let mut others = out.yields.iter();
            turn.yields.extend(out.orders.newest().iter().filter_map(|order| match order {
                Order::Send { count: 1, to, .. } => Some(format!("send {to}")),
                Order::Send { count, to, .. } => Some(format!("send {to} {count} messages")),
                Order::Next => others.next().and_then(name_of_yield),
            }));
        }
    }
    took.clear();
    recorder.took = took;
}

/// The activity as numbers, for the hash.
fn number_of(activity: &StepActivity) -> [u64; 2] {
    match activity {
        StepActivity::Message { from } => [10, from.map_or(0, Pid::to_word)],
        StepActivity::Completed { tag } => [11, *tag],
        StepActivity::Cancel => [12, 0],
        StepActivity::Down { pid } => [13, pid.to_word()],
        StepActivity::Exit { pid } => [14, pid.to_word()],
        StepActivity::Recovered { pid } => [15, pid.to_word()],
        StepActivity::Group => [16, 0],
        StepActivity::Poll { tag } => [17, *tag],
        StepActivity::Init => [18, 0],
        StepActivity::Start => [18, 1],
        StepActivity::Step => [18, 2],
        StepActivity::AfterStep => [18, 3],
    }
}

/// The yield as numbers, for the hash.
fn number_of_yield(one: &Yield) -> [u64; 3] {
    match one {
        Yield::Ask { to, limit, .. } => [30, to.to_word(), limit.as_nanos() as u64],
        Yield::Broadcast { to, .. } => [31, to.len() as u64, to.first().map_or(0, |pid| pid.to_word())],
        Yield::SendNowhere { .. } => [32, 0, 0],
        Yield::Refused { tag, .. } => [33, *tag, 0],
        Yield::Reply(_) => [34, 0, 0],
        Yield::Spawn(body) => [35, body.head.pid.to_word(), 0],
        Yield::Blocking { tag, .. } => [36, *tag, 0],
        Yield::Timer { tag, delay } => [37, *tag, delay.as_nanos() as u64],
        Yield::CancelTimer { tag } => [38, *tag, 0],
        Yield::Command { tag, .. } => [39, *tag, 0],
        Yield::CommandTimeout(limited) => [40, limited.tag, limited.limit.as_nanos() as u64],
        Yield::CancelCommand { tag } => [41, *tag, 0],
        Yield::SendTimeout(request) => [42, request.limit.as_nanos() as u64, 0],
        Yield::BeginRun { limit, .. } => [43, limit.as_nanos() as u64, 0],
        Yield::Entrust { tag, .. } => [44, *tag, 0],
        Yield::Future { tag, limit, .. } => [45, *tag, limit.as_nanos() as u64],
        Yield::CancelFuture { tag } => [46, *tag, 0],
        Yield::Feed(_) => [47, 0, 0],
        Yield::Cancel { tag, to, .. } => [48, *tag, to.to_word()],
        Yield::Terminate { tag, to } => [49, *tag, to.to_word()],
        Yield::Relate(_) => [50, 0, 0],
        Yield::Drawn => [51, 0, 0],
        Yield::Naming { tag, .. } => [52, *tag, 0],
        Yield::Performed => [53, 0, 0],
    }
}

/// The yield in words. `None` if a reader need not see it.
fn name_of_yield(one: &Yield) -> Option<String> {
    Some(match one {
        Yield::Ask { to, .. } => format!("ask {to}"),
        Yield::Broadcast { to, .. } => format!("broadcast to {} processes", to.len()),
        Yield::SendNowhere { why, .. } => format!("send, but {why}"),
        Yield::Refused { tag, why } => format!("command {tag} is refused: {why}"),
        Yield::Reply(_) => String::from("reply"),
        Yield::Spawn(body) => format!("spawn {} {}", body.head.pid, (body.machine.kind().process)()),
        Yield::Blocking { tag, .. } => format!("blocking closure {tag}"),
        Yield::Timer { tag, delay } => format!("timer {tag} in {delay:?}"),
        Yield::CancelTimer { tag } => format!("cancel timer {tag}"),
        Yield::Command { tag, command } => format!("command {tag} {}", command.name),
        Yield::CommandTimeout(limited) => format!("command {} {}", limited.tag, limited.command.name),
        Yield::CancelCommand { tag } => format!("cancel command {tag}"),
        Yield::SendTimeout(_) => String::from("send with a limit"),
        Yield::BeginRun { .. } => String::from("run"),
        Yield::Entrust { tag, .. } => format!("retry {tag}"),
        Yield::Future { tag, .. } => format!("future {tag}"),
        Yield::CancelFuture { tag } => format!("cancel future {tag}"),
        Yield::Feed(_) => String::from("feed"),
        Yield::Cancel { to, .. } => format!("cancel {to}"),
        Yield::Terminate { to, .. } => format!("terminate {to}"),
        Yield::Relate(_) => String::from("relate"),
        Yield::Naming { .. } => String::from("name"),
        Yield::Drawn | Yield::Performed => return None,
    })
}
