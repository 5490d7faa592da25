//! The inspection of a runtime: descriptions of its processes, and counts since its start.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::dispatch::Core;
use crate::primitives::{Arc, Ordering, lock};
use crate::process::{DeadLetterReason, Pid};
use crate::sched::cell::{BORN_SPAN, Look, Rest};
use crate::sched::counters::{Count, Counters};
use crate::sched::road::Road;
use crate::sched::stuck_steps::{StuckSteps, WorkerView};

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ProcessState {
    /// It is ready to be stepped, but no thread steps it yet.
    Ready,
    /// It is being stepped.
    Running,
    /// It waits for the answer to a command.
    Blocked,
    /// It waits for an event.
    Idle,
    /// It has ended.
    Complete,
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProcessState::Ready => "ready",
            ProcessState::Running => "running",
            ProcessState::Blocked => "blocked",
            ProcessState::Idle => "idle",
            ProcessState::Complete => "complete",
        })
    }
}

/// The description of one process at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Its PID.
    pub pid: Pid,
    /// Its name, if it has one. If it has several, this is the oldest one.
    pub name: Option<Arc<str>>,
    /// All its names, oldest first.
    pub names: Vec<Arc<str>>,
    /// The type of the process.
    pub type_name: &'static str,
    /// The state of the process.
    pub state: ProcessState,
    /// The number of steps that have returned.
    pub steps: u64,
    /// The number of times that its state machine has failed and was [replaced in place](crate::Process::recover). The
    /// count begins anew after 65,535.
    pub restarts: u32,
    /// The number of messages in its mailbox, with the messages that steps have passed over.
    pub mailbox: usize,
    /// The time since it was spawned. It may be too long by about a millisecond. If a step spawned the process, it may
    /// also be too long by the duration of the last 32 steps of that worker.
    pub age: Duration,
    /// The time since its current step began. `None` if it is not in a step.
    /// [`RuntimeBuilder::exact_step_times`](crate::config::RuntimeBuilder::exact_step_times) says how exact this is.
    pub in_step: Option<Duration>,
}

/// Counts since the runtime was started. If processes run while the counts are added up, the counts may not agree with
/// each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Stats {
    /// The number of living processes.
    pub processes: u64,
    /// The number of processes that were spawned.
    pub spawned: u64,
    /// The number of processes that have ended, by kind of exit.
    pub ended: ExitCounts,
    /// Counts of messages.
    pub messages: MessageCounts,
    /// The number of answers that were discarded. Their process had ended, its state machine had failed and was
    /// replaced, or the command had timed out or was cancelled.
    pub discarded_answers: u64,
    /// The number of replies that came after the asker had stopped waiting.
    pub late_replies: u64,
    /// The number of pending timers. The timer of the watchdog is not counted.
    pub timers: usize,
    /// The counts of each worker, followed by the counts of each spare worker. Spare workers that do not run are
    /// included.
    pub workers: Vec<WorkerStats>,
    /// The number of spare workers that run now. See
    /// [`Watchdog::spare_workers`](crate::config::Watchdog::spare_workers).
    pub spare_workers: usize,
    /// The number of steps that the [`Watchdog`](crate::config::Watchdog) has found to be stuck. Steps that are still
    /// stuck are included.
    pub stuck_steps: u64,
    /// The number of steps that did not run on a worker. They ran on the pool, or on the thread of a shutdown.
    pub steps_elsewhere: u64,
    /// The number of messages that such steps have taken, if they were successful.
    pub messages_elsewhere: u64,
    /// The number of ready processes in the global queue. [`WorkerStats::queue`] has the number in the queues of each
    /// worker, including its shard of this queue.
    pub global_queue: usize,
    /// The number of blocking closures and blocking steps that wait for a thread.
    pub blocking_queue: usize,
}

/// The number of processes that have ended, by kind of exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct ExitCounts {
    /// Processes that returned [`Step::Done`](crate::Step::Done).
    pub done: u64,
    /// Processes that failed.
    pub failed: u64,
    /// Processes that panicked.
    pub panicked: u64,
    /// Processes that were terminated.
    pub terminated: u64,
}

impl ExitCounts {
    /// The sum of the four counts.
    pub fn total(self) -> u64 {
        self.done + self.failed + self.panicked + self.terminated
    }
}

/// Counts of messages. While no step runs and no message is being sent, `accepted = stepped + dead + queued`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct MessageCounts {
    /// Messages that successful steps have yielded, and messages from outside that were not refused.
    pub accepted: u64,
    /// Messages that a successful step has taken.
    pub stepped: u64,
    /// Dead letters, by reason.
    #[cfg_attr(feature = "serde", serde(with = "super::coded_figures::by_reason"))]
    pub dead_by_reason: HashMap<DeadLetterReason, u64>,
    /// Messages that are in mailboxes now.
    pub queued: u64,
}

impl MessageCounts {
    /// The number of dead letters, of all reasons together.
    pub fn dead(&self) -> u64 {
        self.dead_by_reason.values().sum()
    }
}

/// The counts of one worker, and the length of its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct WorkerStats {
    /// Steps that the worker has run.
    pub steps: u64,
    /// Messages that successful steps of the worker have taken.
    pub messages: u64,
    /// Processes that the worker found in its hand-off slot.
    pub handed_off: u64,
    /// Processes that the worker found in its own deque.
    pub from_own: u64,
    /// Processes that the worker found in the global queue. It takes those from outside a batch at a time. Each batch
    /// counts once, because the rest of the batch goes into the worker's own deque.
    pub from_global: u64,
    /// Processes that the worker stole from another worker. Each batch counts once. The rest of a batch counts again
    /// when the worker finds it among its own.
    pub stolen: u64,
    /// Times that the worker went to sleep.
    pub parked: u64,
    /// Times that the worker woke another worker.
    pub woke_others: u64,
    /// Ready processes in the worker's deque and in its shard of the global queue now. The process that it steps is not
    /// counted. Nor are the process in its hand-off slot, and processes that its step has just woken.
    pub queue: usize,
    /// The time during which the worker has slept, or a spare worker has had no thread. `None` without
    /// [`RuntimeBuilder::metrics`](crate::config::RuntimeBuilder::metrics).
    pub asleep: Option<Duration>,
    /// The time during which the worker has worked, or looked for work: all time since the start of the runtime without
    /// `asleep`. `None` without [`RuntimeBuilder::metrics`](crate::config::RuntimeBuilder::metrics).
    pub busy: Option<Duration>,
}

fn of_worker(road: &Road, worker: usize, view: &WorkerView) -> WorkerStats {
    let counters = &view.counters;
    let times = road.directory.as_ref().zip(counters.figures.as_ref());
    let times = times.map(|(directory, figures)| directory.times(worker, figures, || road.now_nanos()));
    WorkerStats {
        steps: counters.steps.get(),
        messages: counters.stepped.get(),
        handed_off: counters.handed_off.get(),
        from_own: counters.from_own.get(),
        from_global: counters.from_global.get(),
        stolen: counters.stolen.get(),
        parked: counters.parked.get(),
        woke_others: counters.woke_others.get(),
        queue: road.queues.own_len(worker) + road.queues.shard_len(worker),
        asleep: times.map(|(asleep, _)| Duration::from_nanos(asleep)),
        busy: times.map(|(_, busy)| Duration::from_nanos(busy)),
    }
}

impl Core {
    /// The counters of all workers and spares, followed by those of all other threads.
    pub(super) fn all_counters(&self) -> impl Iterator<Item = &Counters> {
        self.road.views.iter().map(|view| &view.counters).chain([&self.road.outside])
    }

    /// The number of messages in all mailboxes.
    pub(super) fn queued(&self) -> u64 {
        let looks = self.road.table.cells().filter_map(|(_, cell)| cell.look());
        looks.map(|look| u64::from(look.queued)).sum()
    }

    /// All counts, but for the number of messages in mailboxes.
    pub(super) fn counts(&self) -> Stats {
        let road = &self.road;
        let all: Vec<&Counters> = self.all_counters().collect();
        let sum = |which: fn(&Counters) -> &Count| all.iter().map(|counters| which(counters).get()).sum::<u64>();
        let ended = ExitCounts {
            done: sum(|counters| &counters.done),
            failed: sum(|counters| &counters.failed),
            panicked: sum(|counters| &counters.panicked),
            terminated: sum(|counters| &counters.terminated),
        };
        let spawned = sum(|counters| &counters.spawned);
        let dead = |place: usize| all.iter().map(|counters| counters.dead[place].get()).sum::<u64>();
        let stuck_steps = road.stuck_steps.as_ref();
        let looks = usize::from(stuck_steps.is_some_and(StuckSteps::is_armed));
        Stats {
            processes: spawned.saturating_sub(ended.total()),
            spawned,
            ended,
            messages: MessageCounts {
                accepted: sum(|counters| &counters.accepted),
                stepped: sum(|counters| &counters.stepped),
                dead_by_reason: DeadLetterReason::ALL.iter().copied().zip((0..).map(dead)).collect(),
                queued: 0,
            },
            discarded_answers: sum(|counters| &counters.discarded_answers),
            late_replies: sum(|counters| &counters.late_replies),
            timers: self.timers.pending().saturating_sub(looks),
            workers: road.views.iter().zip(0..).map(|(view, worker)| of_worker(road, worker, view)).collect(),
            spare_workers: stuck_steps.map_or(0, StuckSteps::spares),
            stuck_steps: stuck_steps.map_or(0, |stuck_steps| stuck_steps.stuck(0).1),
            steps_elsewhere: road.outside.steps.get(),
            messages_elsewhere: road.outside.stepped.get(),
            global_queue: road.queues.global_len(),
            blocking_queue: self.pool.stats().waiting,
        }
    }

    pub(super) fn look(&self, pid: Pid) -> Option<Look> {
        self.road.table.cell(pid)?.look().filter(|look| look.generation == pid.generation())
    }

    pub(super) fn processes(&self) -> Vec<ProcessInfo> {
        let mut names: HashMap<Pid, Vec<Arc<str>>> = self.names.all().into_iter().collect();
        let running = self.running();
        let table = &self.road.table;
        table
            .cells()
            .filter_map(|(slot, cell)| {
                let look = cell.look()?;
                let pid = table.pid(slot, look.generation)?;
                Some(self.info(pid, look, names.remove(&pid).unwrap_or_default(), &running))
            })
            .collect()
    }

    /// The processes that are in a step, with the time since the step began.
    pub(super) fn running(&self) -> HashMap<u64, Duration> {
        let road = &self.road;
        let now = road.now_nanos();
        let on_workers = road.views.iter().map(|view| {
            let current = view.current.load(Ordering::Acquire);
            (current, Duration::from_nanos(now.saturating_sub(view.since.load(Ordering::Relaxed))))
        });
        let mut running: HashMap<u64, Duration> = on_workers.filter(|(current, _)| *current != 0).collect();
        let now = road.clock.now();
        let on_pool = lock(&self.pool_steps);
        running.extend(on_pool.iter().map(|(pid, (began, _))| (*pid, now.saturating_duration_since(*began))));
        drop(on_pool);
        running
    }

    pub(super) fn info(
        &self,
        pid: Pid,
        look: Look,
        names: Vec<Arc<str>>,
        running: &HashMap<u64, Duration>,
    ) -> ProcessInfo {
        let in_step = running.get(&pid.to_word()).copied().filter(|_| look.rest == Rest::Out);
        ProcessInfo {
            pid,
            name: names.first().cloned(),
            names,
            type_name: (look.kind.process)(),
            state: state(look.rest, in_step.is_some()),
            steps: look.steps,
            restarts: u32::from(look.incarnation),
            mailbox: look.queued as usize,
            age: Duration::from_micros(self.road.now_micros().wrapping_sub(look.born) % BORN_SPAN),
            in_step,
        }
    }
}

pub(super) fn state(rest: Rest, in_step: bool) -> ProcessState {
    match rest {
        Rest::Idle => ProcessState::Idle,
        Rest::Waiting => ProcessState::Blocked,
        Rest::Out if in_step => ProcessState::Running,
        Rest::Out => ProcessState::Ready,
    }
}
