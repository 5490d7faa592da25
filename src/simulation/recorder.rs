//! The turns of a run: for its hash, and for the trace of a run that is to be shown.

use std::collections::VecDeque;
use std::time::Duration;

use super::coverage::{PartialOrder, Taken};
use super::faults::What;
use super::fold::Fold;
use super::trace_formatter::{TraceFormatter, short};
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::step_activity::Sight;
use crate::process::{DeadLetter, DeadLetterReason, Naming, Relate, StepActivity};
use crate::sched::body::{Ready, Stage, StepOutput, Stepped, Verdict, Yield};
use crate::sched::orders::Order;

/// A fault that was injected.
#[derive(Clone, Debug)]
pub(super) struct Injected {
    pub(super) of: Pid,
    pub(super) what: What,
}

/// Work of the connection between two nodes, which are named.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code))]
pub(super) enum ConnectionWork {
    /// The node sends what it has for the peer.
    Sends(Arc<str>, Arc<str>),
    /// The node takes a frame of the peer.
    Takes(Arc<str>, Arc<str>),
    /// A frame of the first node arrives at the second one.
    Arrives(Arc<str>, Arc<str>),
    /// The other nodes learn that this one has crashed.
    Crash(Arc<str>),
}

/// The subject of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Subject {
    /// A step of this process.
    Process(Pid),
    /// The timer that was due.
    #[default]
    Timer,
    /// A blocking closure of this process.
    Blocking(Pid),
    /// The late answer to a command of this process.
    Answer(Pid),
    /// A message that was held on its way from one process to another.
    Delivery(Pid, Pid),
    /// Work of a store.
    Store(&'static str),
    /// Work of a connection.
    Connection(ConnectionWork),
}

impl Subject {
    pub(super) fn is_process(&self, pid: Pid) -> bool {
        *self == Subject::Process(pid)
    }
}

/// One turn of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnRecord {
    pub(super) number: u32,
    /// Whether another entry was first in the order in which they became possible.
    pub(super) is_out_of_order: bool,
    pub(super) at: Duration,
    pub(super) subject: Subject,
    /// The type of the process.
    pub(super) type_name: &'static str,
    /// The name of the process.
    pub(super) name: Option<Arc<str>>,
    /// Whether the process has not begun yet.
    pub(super) is_first: bool,
    pub(super) took: Vec<StepActivity>,
    /// The messages that the step has taken, in words.
    pub(super) messages: VecDeque<String>,
    /// How many of these messages have become dead letters.
    lost: usize,
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
    formatter: Arc<TraceFormatter>,
    /// Whether the last turn is a timer or a job, and wakes the processes that are found next.
    wakes: bool,
}

impl Recorder {
    /// A recorder that keeps every turn.
    pub(super) fn with_turns(formatter: Arc<TraceFormatter>) -> Recorder {
        Recorder { turns: Some(Vec::new()), formatter, ..Recorder::default() }
    }

    pub(super) fn take_turns(&mut self) -> Vec<TurnRecord> {
        self.turns.take().unwrap_or_default()
    }

    /// Begins the record of a turn.
    pub(super) fn turn(&mut self, number: u32, is_out_of_order: bool, subject: Subject, at: Duration) {
        if let Some(turns) = &mut self.turns {
            self.wakes = !matches!(subject, Subject::Process(_));
            turns.push(TurnRecord { number, is_out_of_order, subject, at, ..TurnRecord::default() });
        }
    }

    /// Describes the process of the last turn.
    pub(super) fn of_process(&mut self, body: &Ready) {
        if let Some(turn) = self.turns.as_mut().and_then(|turns| turns.last_mut()) {
            turn.type_name = (body.machine.kind().process)();
            turn.name = body.head.name().cloned();
            turn.is_first = body.head.stage != Stage::Open;
        }
    }

    /// The step of the last turn begins. `hash` is that of the run.
    pub(super) fn begin(&mut self, hash: u64) {
        if let Some(turn) = self.turns.as_mut().and_then(|turns| turns.last_mut()) {
            turn.hash = hash;
        }
    }

    pub(super) fn is_recording(&self) -> bool {
        self.turns.is_some()
    }

    /// How messages are shown, if turns are recorded.
    pub(super) fn formatter(&self) -> Option<Arc<TraceFormatter>> {
        self.turns.is_some().then(|| self.formatter.clone())
    }

    /// The last turn of this process.
    fn last_of(&mut self, pid: Pid) -> Option<&mut TurnRecord> {
        self.turns.iter_mut().flatten().rev().find(|turn| turn.subject.is_process(pid))
    }

    /// The turn of the process in hand, or else the last turn.
    fn current(&mut self, in_hand: Option<Pid>) -> Option<&mut TurnRecord> {
        match in_hand {
            Some(pid) => self.last_of(pid),
            None => self.turns.as_mut().and_then(|turns| turns.last_mut()),
        }
    }

    /// Adds a note to the current turn.
    pub(super) fn note(&mut self, in_hand: Option<Pid>, note: String) {
        if let Some(turn) = self.current(in_hand) {
            turn.notes.push(note);
        }
    }

    /// Records that a handler has answered a command of this process in the current turn. `error` says what the process
    /// is given in the place of the output.
    pub(super) fn answered(&mut self, in_hand: Option<Pid>, name: &str, of: Pid, error: Option<String>) {
        if let Some(turn) = self.current(in_hand) {
            let error = error.map_or(String::new(), |error| format!(": {error}"));
            turn.yields.push(format!("answer to {} of {of}{error}", short(name)));
        }
    }

    /// Adds a dead letter to the turn of the process in hand, or else to the last turn. `content` is its message, if it
    /// still exists.
    pub(super) fn dead_letter(&mut self, in_hand: Option<Pid>, letter: &DeadLetter<'_>, content: Option<String>) {
        let is_lost = letter.reason == DeadLetterReason::StepFailed;
        let lost = self.last_of(letter.to).filter(|_| is_lost).and_then(|turn| {
            turn.lost += 1;
            turn.messages.get(turn.lost - 1).cloned()
        });
        let content = content.or(lost).unwrap_or_else(|| short(letter.type_name).to_owned());
        let to = letter.name.map_or_else(|| letter.to.to_string(), |name| format!("{name:?}"));
        self.note(in_hand, format!("dead letter: {content} to {to}: {}", letter.reason));
    }

    /// Records that a process was woken, if the last turn is one of a timer or a job.
    pub(super) fn woken(&mut self, body: &Ready) {
        if self.wakes
            && let Some(turn) = self.turns.as_mut().and_then(|turns| turns.last_mut())
        {
            turn.yields.push(format!("wakes {} {}", body.head.pid, short((body.machine.kind().process)())));
        }
    }

    /// The processes that are woken from now on are woken by the scenario.
    pub(super) fn scenario_goes_on(&mut self) {
        self.wakes = false;
    }

    /// Adds a fault to the turn of the process in hand, or else to the last turn.
    pub(super) fn injected(&mut self, in_hand: Option<Pid>, injected: Injected) {
        if let Some(turn) = self.current(in_hand) {
            turn.injected.push(injected);
        }
    }

    /// Adds the messages that the last step of this process has taken, and its yields.
    pub(super) fn shows(&mut self, pid: Pid, mut taken: Vec<(Option<Pid>, String)>, mut yields: Vec<String>) {
        let Some(turn) = self.last_of(pid) else { return };
        let senders = turn.took.iter().filter_map(|activity| match activity {
            StepActivity::Message { from } => Some(*from),
            _ => None,
        });
        let mut of = |sender| taken.iter().position(|(from, _)| *from == sender).map(|place| taken.remove(place).1);
        // An item of a feed does not wait in the mailbox.
        turn.messages.extend(senders.map(|sender| of(sender).unwrap_or_else(|| String::from("item"))));
        turn.yields.append(&mut yields);
    }
}

/// Folds the yields into the hash of the run: what they are, their targets and tags, and the types of what they carry.
pub(super) fn fold_yields(fold: &mut Fold, out: &StepOutput) {
    if out.orders.has_slices() {
        fold_orders(fold, out, out.orders.iter());
    } else {
        fold_orders(fold, out, out.orders.newest().iter().copied());
    }
}

fn fold_orders(fold: &mut Fold, out: &StepOutput, orders: impl Iterator<Item = Order>) {
    let mut others = out.yields.iter();
    for one in orders {
        match one {
            Order::Send { lane, count, to } => {
                fold.add(&[20, u64::from(count), to.to_word()]);
                fold_type(fold, out, lane);
            }
            Order::Next => others.next().into_iter().for_each(|one| fold_yield(fold, out, one)),
        }
    }
}

/// Folds the type of the messages of a lane, which all have one type. The first one is there, because none is sent yet.
fn fold_type(fold: &mut Fold, out: &StepOutput, lane: u32) {
    fold.add_text(out.outbox.look(lane, 0).map_or("", |(_, type_name)| type_name));
}

/// Records the events that a step has taken, its verdict and its yields.
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
        let (kind, from, number) = match activity {
            StepActivity::Message { from } => (0, *from, 0),
            StepActivity::Completed { tag } => (1, None, *tag),
            StepActivity::Down { pid } => (2, Some(*pid), 0),
            StepActivity::Exit { pid } => (3, Some(*pid), 0),
            StepActivity::Recovered { pid } => (4, Some(*pid), 0),
            StepActivity::Cancel => (5, None, 0),
            StepActivity::Group => (6, None, 0),
            _ => continue,
        };
        // The order of the events of one process is folded, so the numbers of its messages need not be.
        order.took(pid, Taken { kind, from, number });
    }
    fold.add(&[stepped.verdict as u64, u64::from(stepped.taken)]);
    let is_broken = stepped.verdict == Verdict::Broken;
    if !is_broken {
        fold_yields(fold, out);
    }
    if let Some(turn) = recorder.last_of(pid) {
        turn.took.append(&mut took);
        turn.verdict = Some(stepped.verdict);
        turn.failed = match &out.failure {
            Some(Exit::Failed(failure)) if is_broken => Some(format!("failed: {failure}")),
            Some(Exit::Panicked(panic)) if is_broken => Some(panic.to_string()),
            _ => None,
        };
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
        StepActivity::Describe => [18, 4],
    }
}

/// Folds a yield that is no plain message.
fn fold_yield(fold: &mut Fold, out: &StepOutput, one: &Yield) {
    fold.add(&number_of_yield(one));
    match one {
        Yield::Ask { lane, .. } => fold_type(fold, out, *lane),
        Yield::Broadcast { lane, to } => {
            to.iter().for_each(|to| fold.add(&[to.to_word()]));
            fold_type(fold, out, *lane);
        }
        Yield::SendNowhere { lane, why } => {
            fold_type(fold, out, *lane);
            fold.add_text(&why.to_string());
        }
        Yield::Spawn(body) => {
            fold.add_text((body.machine.kind().process)());
            fold.add_text(body.head.name().map_or("", |name| name));
        }
        Yield::Command { command, .. } => fold.add_text(command.name),
        Yield::CommandTimeout(limited) => fold.add_text(limited.command.name),
        Yield::SendTimeout(request) => match &request.to {
            Ok(to) => fold.add(&[to.to_word()]),
            Err(why) => fold.add_text(&why.to_string()),
        },
        Yield::Relate(Relate::Subscribe(subscription)) => fold.add_text(subscription.group()),
        Yield::Naming { naming, .. } => {
            let (name, pid) = match &**naming {
                Naming::Register { name, pid } => (name, Some(*pid)),
                Naming::Unregister { name } => (name, None),
                Naming::Join { group, pid } | Naming::Leave { group, pid } => (group, Some(*pid)),
            };
            fold.add(&[pid.map_or(0, Pid::to_word)]);
            fold.add_text(name);
        }
        _ => {}
    }
}

/// The kind, the tag and the limit of a yield, and the target if it is a process.
fn number_of_yield(one: &Yield) -> [u64; 3] {
    let nanos = |limit: &Duration| limit.as_nanos() as u64;
    match one {
        Yield::Ask { to, limit, .. } => [30, to.to_word(), nanos(limit)],
        Yield::Broadcast { to, .. } => [31, to.len() as u64, 0],
        Yield::SendNowhere { .. } => [32, 0, 0],
        Yield::Refused { tag, .. } => [33, *tag, 0],
        Yield::Reply(reply) => {
            let (asker, tag) = reply.identity();
            [34, asker.map_or(0, Pid::to_word), tag]
        }
        Yield::Spawn(body) => [35, body.head.pid.to_word(), 0],
        Yield::Blocking { tag, .. } => [36, *tag, 0],
        Yield::Timer { tag, delay } => [37, *tag, nanos(delay)],
        Yield::CancelTimer { tag } => [38, *tag, 0],
        Yield::Command { tag, .. } => [39, *tag, 0],
        Yield::CommandTimeout(limited) => [40, limited.tag, nanos(&limited.limit)],
        Yield::CancelCommand { tag } => [41, *tag, 0],
        Yield::SendTimeout(request) => [42, request.send.number(), nanos(&request.limit)],
        Yield::BeginRun { duty, limit } => [43, duty.tag(), nanos(limit)],
        Yield::Entrust { tag, .. } => [44, *tag, 0],
        Yield::Future { tag, limit, .. } => [45, *tag, nanos(limit)],
        Yield::CancelFuture { tag } => [46, *tag, 0],
        Yield::Feed(_) => [47, 0, 0],
        Yield::Cancel { tag, to, .. } => [48, *tag, to.to_word()],
        Yield::Terminate { tag, to } => [49, *tag, to.to_word()],
        Yield::Relate(relate) => match relate {
            Relate::Monitor(monitor) => [50, monitor.id(), monitor.pid().to_word()],
            Relate::Demonitor(monitor) => [54, monitor.id(), monitor.pid().to_word()],
            Relate::Link(to) => [55, to.to_word(), 0],
            Relate::Unlink(to) => [56, to.to_word(), 0],
            Relate::TrapExits(trap) => [57, u64::from(*trap), 0],
            Relate::Subscribe(subscription) => [58, subscription.id(), 0],
            Relate::Unsubscribe(subscription) => [59, subscription.id(), 0],
        },
        Yield::Drawn => [51, 0, 0],
        Yield::Naming { tag, naming } => {
            let kind = match &**naming {
                Naming::Register { .. } => 1,
                Naming::Unregister { .. } => 2,
                Naming::Join { .. } => 3,
                Naming::Leave { .. } => 4,
            };
            [52, *tag, kind]
        }
        Yield::Performed => [53, 0, 0],
    }
}
