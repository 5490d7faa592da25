//! The records of a random program: what its processes have done, and in a simulation in which order.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::actor::PendingLetter;
use crate::acts::Plan;
use crate::helpers::Mutex;
use crate::monitor::Note;
use crate::observations::Observations;
use crate::relations::Relations;
use procession::command::Responder;
use procession::observe::{ProcessInfo, ProcessState};
use procession::sync::CancelCallback;
use procession::{CommandError, Exit, Pid};

/// The numbers of letters, in order, by receiver and sender.
pub type Letters = HashMap<(Pid, Option<Pid>), Vec<u64>>;

/// How the processes of a program are written.
#[derive(Clone, Copy, Debug, Default)]
pub enum WrittenAs {
    #[default]
    Machine,
    AsyncProcess,
    Actor,
}

/// The records of all processes.
#[derive(Default)]
pub struct World {
    pub written_as: WrittenAs,
    pub plans: Vec<Plan>,
    pub known: Mutex<Vec<Pid>>,
    /// Processes that take messages of many types, if there are any.
    pub sinks: Mutex<Vec<Pid>>,
    pub sent: Mutex<Letters>,
    pub received: Mutex<Letters>,
    pub asked: Mutex<HashSet<(Pid, u64)>>,
    pub answered: Mutex<Vec<(Pid, u64)>>,
    /// Questions of state machines that have failed since.
    pub abandoned: Mutex<HashSet<(Pid, u64)>>,
    pub relations: Relations,
    /// Parents and the children that were linked to them at birth.
    pub linked: Mutex<HashSet<(Pid, Pid)>>,
    /// The records of a simulation. On real workers there is no single order of events, and this is `None`.
    pub simulated: Option<Simulated>,
    pub numbers: AtomicUsize,
    /// Letters that may wait for room, and their receivers.
    pub rooms: Mutex<HashMap<u64, Pid>>,
    /// Processes whose last step has taken nothing. Events may wait for them at rest.
    pub idlers: Mutex<HashSet<Pid>>,
    /// Processes whose last step has said `Wait`.
    pub waiters: Mutex<HashSet<Pid>>,
    pub inits: AtomicUsize,
    pub closes: AtomicUsize,
    /// The counts of steps that have succeeded.
    pub counted: AtomicUsize,
    /// Children that were run and had no output, and their ends.
    pub ran: Mutex<Vec<(Pid, String)>>,
    pub violations: Mutex<Vec<String>>,
}

/// The records of a program in a simulation.
pub struct Simulated {
    start: Instant,
    pub notes: Mutex<Vec<Note>>,
    /// The effects of the last step, which count unless the simulation lets it fail after all.
    last: Mutex<Option<(Pid, Vec<Effect>)>>,
    /// Commands that are answered by the next step of any process.
    pub open: Mutex<Vec<Responder<u32>>>,
    /// Futures that are woken by the next step of any process.
    pub wakers: Mutex<Vec<Waker>>,
    /// They note when an open command is cancelled.
    pub callbacks: Mutex<Vec<CancelCallback>>,
    pub observations: Observations,
}

impl Simulated {
    /// Records that begin now, by the clock of the simulation.
    pub fn new(now: Instant, observations: Observations) -> Simulated {
        Simulated {
            start: now,
            notes: Mutex::default(),
            last: Mutex::default(),
            open: Mutex::default(),
            wakers: Mutex::default(),
            callbacks: Mutex::default(),
            observations,
        }
    }
}

/// Writes down an effect of a step that has succeeded.
pub type Effect = Box<dyn FnOnce(&World) + Send>;

impl World {
    /// The virtual time since the beginning of a simulation.
    pub fn elapsed(&self, now: Instant) -> Duration {
        self.simulated.as_ref().map_or(Duration::ZERO, |simulated| now.duration_since(simulated.start))
    }

    /// Writes down what happens in a simulation.
    pub fn note(&self, note: impl FnOnce() -> Note) {
        if let Some(simulated) = &self.simulated {
            simulated.notes.lock().unwrap().push(note());
        }
    }

    /// Writes down the effects of a step. In a simulation they are only kept: it decides now whether the step fails
    /// at its end.
    pub fn settle(&self, of: Pid, effects: Vec<Effect>) {
        match &self.simulated {
            Some(simulated) => *simulated.last.lock().unwrap() = Some((of, effects)),
            None => effects.into_iter().for_each(|effect| effect(self)),
        }
    }

    /// The step before has succeeded, or is known to have failed.
    pub fn settle_last(&self) {
        let last = self.simulated.as_ref().and_then(|simulated| simulated.last.lock().unwrap().take());
        last.iter().for_each(|_| self.observations().into_iter().for_each(|seen| seen.stepped(false)));
        last.into_iter().for_each(|(_, effects)| effects.into_iter().for_each(|effect| effect(self)));
    }

    /// Answers the commands that are kept for another process, and wakes the futures. Returns whether there were any.
    pub fn answer_open(&self) -> bool {
        let Some(simulated) = &self.simulated else { return false };
        let open = std::mem::take(&mut *simulated.open.lock().unwrap());
        let wakers = std::mem::take(&mut *simulated.wakers.lock().unwrap());
        let is_any = !open.is_empty() || !wakers.is_empty();
        open.into_iter().for_each(|answer| answer.ok(2));
        wakers.into_iter().for_each(Waker::wake);
        is_any
    }

    /// The observations of the runtime of a simulation.
    pub fn observations(&self) -> Option<&Observations> {
        self.simulated.as_ref().map(|simulated| &simulated.observations)
    }

    /// Looks at the runtime of a simulation.
    pub fn observe(&self, look: impl FnOnce(&Observations) -> Result<(), String>) {
        self.observations().map(look).into_iter().filter_map(Result::err).for_each(|wrong| self.violated(wrong));
    }

    /// A process has failed, or has ended. If the simulation has made its last step fail, that has no effects.
    pub fn failed(&self, of: Pid, why: &Exit) {
        // The exit of a process that is linked to one with an injected panic has that text, too.
        let is_injected =
            matches!(why, Exit::Panicked(panic) if panic.to_string().contains("injected by the simulation"));
        let Some(simulated) = self.simulated.as_ref().filter(|_| is_injected) else {
            return;
        };
        let is_last = simulated.last.lock().unwrap().take_if(|(last, _)| *last == of).is_some();
        if is_last {
            self.observations().into_iter().for_each(|seen| seen.stepped(true));
            self.note(|| Note::Failed(of));
        }
    }

    /// A process takes the recovery of another one.
    pub fn recovery(&self, me: Pid, of: Pid) {
        self.relations.recovery(me, of);
        if let Some(logged) = self.observations().and_then(|seen| seen.logged.as_ref())
            && self.linked.lock().unwrap().contains(&(me, of))
        {
            logged.parent_is_told(of);
        }
    }

    /// A step of this process takes events, or leaves all of them.
    pub fn takes(&self, me: Pid, takes: bool) {
        let mut idlers = self.idlers.lock().unwrap();
        _ = if takes { idlers.remove(&me) } else { idlers.insert(me) };
    }

    /// The last step of this process has said `Wait`, or something else.
    pub fn waits(&self, me: Pid, waits: bool) {
        let mut waiters = self.waiters.lock().unwrap();
        _ = if waits { waiters.insert(me) } else { waiters.remove(&me) };
    }

    /// Between two turns, a process that rests is shown as blocked if its last step has said `Wait`, and only then.
    pub fn check_states(&self, processes: &[ProcessInfo]) -> Result<(), String> {
        let waiters = self.waiters.lock().unwrap();
        let is_wrong = |info: &&ProcessInfo| match info.state {
            ProcessState::Blocked => !waiters.contains(&info.pid),
            ProcessState::Idle => waiters.contains(&info.pid),
            _ => false,
        };
        processes.iter().find(is_wrong).map_or(Ok(()), |info| Err(format!("states: {info:?} has not rested so")))
    }

    /// The processes that do not leave events.
    pub fn without_idlers(&self, mut alive: HashSet<Pid>) -> HashSet<Pid> {
        let idlers = self.idlers.lock().unwrap();
        alive.retain(|pid| !idlers.contains(pid));
        alive
    }

    /// A process is born with this plan.
    pub fn note_bound(&self, pid: Pid, plan: usize) {
        self.plans[plan].bound.iter().for_each(|(limit, _)| self.note(|| Note::Bound(pid, *limit)));
    }

    /// A letter may wait for room from now on.
    pub fn waits_for_room(&self, room: PendingLetter) {
        self.rooms.lock().unwrap().insert(room.number, room.to);
        self.observations().into_iter().for_each(Observations::allow_waiting_outside);
    }

    /// A letter waits for room no longer.
    pub fn forget_room(&self, number: u64) {
        self.rooms.lock().unwrap().remove(&number);
    }

    /// A process gets its letter back, which had no room.
    pub fn note_handed_back(&self, room: PendingLetter, me: Pid) {
        self.note(|| Note::Refused { number: room.number, is_full: false });
        let mut sent = self.sent.lock().unwrap();
        sent.entry((room.to, Some(me))).or_default().retain(|number| *number != room.number);
    }

    /// A step counts.
    pub fn counts(&self) {
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// A process is told that a child which it has run has ended.
    pub fn ran(&self, me: Pid, output: Result<(), CommandError>) {
        if let Err(CommandError::ChildExit { pid, exit }) = output {
            self.ran.lock().unwrap().push((pid, exit.to_string()));
            if exit.is_done() {
                self.violated(format!("runs: {me} got no output of {pid}, which is done"));
            }
        }
    }

    pub fn choose(&self, which: usize) -> Option<Pid> {
        let known = self.known.lock().unwrap();
        known.get(which % known.len().max(1)).copied()
    }

    pub fn violated(&self, law: String) {
        self.violations.lock().unwrap().push(law);
    }

    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) as u64
    }
}
