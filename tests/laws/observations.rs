//! Observations of the runtime of a simulated program, beside the events of processes: its figures, the traces of
//! messages, the waits, the random numbers, and the order in which the parts of a process are dropped.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use procession::clock::Clock;
use procession::observe::{DeadLetter, DeadLetterReason};
use procession::{Pid, Runtime, WeakRuntime};

use crate::acts::Letter;
use crate::helpers::Mutex;
use crate::logged::Logged;
use crate::monitor::{Note, Part};
use crate::parcels::stamp_of;
use crate::records::World;
use crate::sums::sums_agree;
use crate::traces::Traces;

/// One step in so many is within a new trace.
const TRACES_ONE_IN: u64 = 3;

/// The most that a measured wait may differ from the time between the send and the step, for each message.
const INEXACT: Duration = Duration::from_millis(1);

/// The observations of one simulation.
pub struct Observations {
    clock: Clock,
    runtime: OnceLock<WeakRuntime>,
    traces: Option<Traces>,
    pub logged: Option<Logged>,
    /// Whether the waits of messages are measured.
    has_figures: bool,
    /// Whether a message may arrive after the moment of its send.
    is_late: bool,
    /// Whether letters may wait for room before they are in a mailbox.
    wait_outside: AtomicBool,
    drawn: Mutex<HashSet<(Pid, u64)>>,
    /// The messages that steps have taken since the last moment between two turns. They may count as waiting still.
    unsettled: AtomicU64,
    /// The traces of commands, by process and tag.
    commands: Mutex<HashMap<(Pid, u64), usize>>,
    /// The traced dead letters that the observer was told of.
    dead: Mutex<Vec<(usize, DeadLetterReason)>>,
    /// The times from a send to the step that took the letter. Those of the step that runs come last.
    waits: Mutex<(Duration, Vec<Duration>)>,
}

impl Observations {
    pub fn new(
        clock: Clock,
        (traces, logged): (Option<Traces>, Option<Logged>),
        has_figures: bool,
        is_late: bool,
    ) -> Observations {
        Observations {
            clock,
            runtime: OnceLock::new(),
            traces,
            logged,
            has_figures,
            is_late,
            wait_outside: AtomicBool::new(false),
            drawn: Mutex::default(),
            unsettled: AtomicU64::new(0),
            commands: Mutex::default(),
            dead: Mutex::default(),
            waits: Mutex::default(),
        }
    }

    pub fn observe(&self, runtime: &Runtime) {
        _ = self.runtime.set(runtime.downgrade());
    }

    /// A letter may wait for room.
    pub fn allow_waiting_outside(&self) {
        self.wait_outside.store(true, Ordering::Relaxed);
    }

    /// A moment between two turns.
    pub fn between_turns(&self) {
        self.unsettled.store(0, Ordering::Relaxed);
    }

    /// Runs this within a new trace, or without one.
    pub fn in_trace<R>(&self, number: u64, run: impl FnOnce() -> R) -> R {
        let mut result = None;
        match &self.traces {
            Some(traces) if number.is_multiple_of(TRACES_ONE_IN) => {
                traces.root(|| result = Some(run()));
                result.unwrap()
            }
            _ => run(),
        }
    }

    /// The moment of a send, and its trace.
    pub fn stamp(&self) -> Stamp {
        Stamp { at: Some(self.clock.now()), trace: self.traces.as_ref().and_then(|_| Traces::current()) }
    }

    /// A step draws a random number. No step of the process has drawn it before, whatever became of that step.
    pub fn draws(&self, me: Pid, number: u64) -> Result<(), String> {
        if self.drawn.lock().unwrap().insert((me, number)) {
            return Ok(());
        }
        Err(format!("random numbers: {me} draws {number} again"))
    }

    /// A command is yielded in the trace in which the step is.
    pub fn yields(&self, me: Pid, tag: u64) {
        let trace = self.stamp().trace;
        trace.into_iter().for_each(|trace| _ = self.commands.lock().unwrap().insert((me, tag), trace));
    }

    /// A step takes a message.
    pub fn takes(&self, me: Pid, stamp: Stamp, what: impl FnOnce() -> String) -> Result<(), String> {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
        let waited = stamp.at.map(|at| self.clock.now().duration_since(at)).unwrap_or_default();
        self.waits.lock().unwrap().1.push(waited);
        self.is_in(stamp.trace, || format!("{me} takes {}", what()))
    }

    /// A step takes the answer to a command.
    pub fn answered(&self, me: Pid, tag: u64) -> Result<(), String> {
        let trace = self.commands.lock().unwrap().remove(&(me, tag));
        self.is_in(trace, || format!("{me} takes the answer to {tag}"))
    }

    /// The span of the step is directly within the trace of the event.
    fn is_in(&self, trace: Option<usize>, what: impl FnOnce() -> String) -> Result<(), String> {
        let Some(traces) = &self.traces else { return Ok(()) };
        let current = Traces::current().and_then(|span| traces.parent(span));
        if current == trace {
            return Ok(());
        }
        Err(format!("traces: {} in {current:?} instead of {trace:?}", what()))
    }

    /// A step has ended. The waits of the letters of a step that has failed are not measured.
    pub fn stepped(&self, has_failed: bool) {
        let (sum, last) = &mut *self.waits.lock().unwrap();
        let last: Duration = last.drain(..).sum();
        *sum += if has_failed { Duration::ZERO } else { last };
    }

    /// The observer is told of a dead letter.
    pub fn dead(&self, letter: &DeadLetter<'_>) {
        let stamp = letter.message::<Letter>().map(|letter| letter.stamp).or_else(|| stamp_of(letter));
        let trace = stamp.and_then(|stamp| stamp.trace);
        trace.into_iter().for_each(|trace| self.dead.lock().unwrap().push((trace, letter.reason)));
    }

    /// Each message counts as accepted from the moment at which it waits or is dead, and not earlier. While messages
    /// are buried, some of them are neither.
    pub fn balance(&self, buries: bool) -> Result<(), String> {
        let Some(runtime) = self.runtime.get().and_then(WeakRuntime::upgrade) else { return Ok(()) };
        let messages = runtime.stats().messages;
        let sum = messages.stepped + messages.dead() + messages.queued;
        let unsettled = self.unsettled.load(Ordering::Relaxed);
        let accepted = messages.accepted;
        if accepted >= sum.saturating_sub(unsettled) && (buries || accepted <= sum) {
            return Ok(());
        }
        Err(format!("figures: {accepted} are accepted, {sum} are somewhere, and this turn has taken {unsettled}"))
    }

    /// The laws of the figures between two turns.
    pub fn check_sums(&self, runtime: &Runtime) -> Result<(), String> {
        if self.has_figures { sums_agree(runtime, &runtime.snapshot()) } else { Ok(()) }
    }

    /// The laws of a program that has ended.
    pub fn check(&self, runtime: &Runtime, world: &World) -> Result<(), String> {
        if self.has_figures {
            self.check_sums(runtime)?;
            self.check_waits(runtime)?;
            let counted: u64 = runtime.snapshot().types.iter().flat_map(|one| one.counted.values()).sum();
            let expected = world.counted.load(Ordering::Relaxed) as u64;
            if counted != expected {
                return Err(format!("figures: steps that succeeded have counted {expected}, and the sum is {counted}"));
            }
        }
        self.check_dead()
    }

    /// The wait of each message that a step has taken is measured.
    fn check_waits(&self, runtime: &Runtime) -> Result<(), String> {
        let figures = runtime.snapshot();
        let count: u64 = figures.types.iter().map(|one| one.wait_times.count).sum();
        let sum: Duration = figures.types.iter().map(|one| one.wait_times.sum).sum();
        let (stepped, waited) = (figures.stats.messages.stepped, self.waits.lock().unwrap().0);
        // The wait of a message that arrives later is not measured.
        let is_right = match self.is_late || self.wait_outside.load(Ordering::Relaxed) {
            true => count <= stepped,
            false => count == stepped && sum.abs_diff(waited) <= INEXACT * stepped as u32,
        };
        if !is_right {
            return Err(format!("waits: {count} of {stepped} were measured, for {sum:?} instead of {waited:?}"));
        }
        Ok(())
    }

    /// A trace is told of each of its messages that is dead.
    fn check_dead(&self) -> Result<(), String> {
        let Some(traces) = &self.traces else { return Ok(()) };
        let is_shown = |dead: &(usize, DeadLetterReason)| dead.1 != DeadLetterReason::StepFailed;
        let told: Vec<_> = traces.dead().into_iter().filter(is_shown).collect();
        let expected: Vec<_> = self.dead.lock().unwrap().iter().copied().filter(is_shown).collect();
        if told != expected {
            return Err(format!("traces: they were told of {told:?} instead of {expected:?}"));
        }
        Ok(())
    }
}

/// The moment of a send, and the trace in which it was.
#[derive(Clone, Copy, Default)]
pub struct Stamp {
    at: Option<std::time::Instant>,
    trace: Option<usize>,
}

/// A part of a process. It notes when it is dropped.
pub struct Owned {
    world: Weak<World>,
    of: Pid,
    part: Part,
}

impl Owned {
    pub fn new(world: &Arc<World>, of: Pid, part: Part) -> Owned {
        Owned { world: Arc::downgrade(world), of, part }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.world.upgrade().iter().for_each(|world| world.note(|| Note::Gone(self.of, self.part)));
    }
}
