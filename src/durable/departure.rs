//! A durable process leaves memory: the messages in its mailbox, and the report of its departure.

use std::time::Duration;

use super::contract::Durable;
use super::core::{End, StoreCore};
use super::journal::Position;
use super::machine::{ATTEMPTS, DurableMachine, Stage};
use super::repair::NotRepaired;
use super::residency::{Call, Place, Resident, Taken};
use super::rows::{FailedEvent, Parked};
use super::tail::Fate;
use super::trail::Traced;
use crate::outcome::{Exit, drop_contained, tell_log};
use crate::primitives::{Arc, lock};
use crate::sched::body::{LastWord, Machine, Stepped, TurnNote};
use crate::sched::mailbox::{AnyMailbox, Envelope, Mailbox};
use crate::sched::trace_marks::MessageTrace;
use crate::sched::turn::Engine;

impl<P: Durable> DurableMachine<P> {
    /// Whether it can leave memory now.
    pub(super) fn may_go(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn leave(&mut self) -> Stepped {
        self.stage = Stage::Gone;
        self.resident.set_gone();
        Stepped::GONE
    }

    /// Whether it holds yields that rest on a record on disk.
    pub(super) fn has_released(&self) -> bool {
        self.held.front().is_some_and(|held| self.is_released(held.rests_on))
    }

    /// Leaves memory in a rewind, when it is known which of its records are on disk. Before that, the held yields that
    /// rest on these records are performed in other turns. The other held yields are dropped. `taken` is the number of
    /// events that the step has taken.
    pub(super) fn leave_rewound(&mut self, taken: u32) -> Stepped {
        if let Some(held) = self.held.front() {
            let is_asked = self.rewound_at.replace(held.rests_on) == Some(held.rests_on);
            if self.store.is_kept(&self.resident, held.rests_on, is_asked) {
                return Stepped { taken, ..Stepped::without_a_step() };
            }
        }
        self.held.clear();
        Stepped { taken, ..self.leave() }
    }

    /// Whether it has ended, and its end is on disk.
    pub(super) fn has_ended(&self) -> bool {
        // An end that is lost is none.
        self.stored.exit.is_some() && self.stage == Stage::Gone && self.resident.has_released(self.rests_on)
    }

    /// The function that tells the store of the departure. Call it when the state is dropped.
    pub(super) fn depart(&mut self, exit: &Exit) -> LastWord {
        let others = self.typed.last_word(exit);
        let (store, resident) = (self.store.clone(), self.resident.clone());
        let has_ended = self.has_ended();
        let ended = self.stored.exit.take().filter(|_| has_ended).map(|exit| (exit, self.stored.format));
        let sleeper = self.sleeper.take();
        self.store.cancel_timers(self.resident.questions.take_timers());
        Box::new(move || {
            match sleeper {
                Some(sleeper) => store.fell_asleep(&resident, &sleeper),
                None => store.gone(&resident, ended),
            }
            others.and_then(|others| others())
        })
    }

    /// Takes the stored messages out of the mailbox of a process that has not ended: they stay on disk, and are no dead
    /// letters. If it has ended, its last record has removed them. Then they are dead letters of their real senders.
    pub(super) fn sift(&self, mailbox: &mut Mailbox<P::Message>) {
        let has_ended = self.has_ended();
        let pop = || {
            let trace = MessageTrace::new(mailbox.take_mark());
            Some((mailbox.pop_message()?, trace))
        };
        let all: Vec<(Envelope<P::Message>, MessageTrace)> = std::iter::from_fn(pop).collect();
        let mut stored = 0;
        for (envelope, mut trace) in all {
            let number = envelope.from.and_then(|from| self.store.number_of(from));
            let sender = number.and_then(|number| lock(&self.resident.mail).get(&number).map(|kept| kept.from));
            match sender {
                None => mailbox.messages.push(envelope),
                Some(from) if has_ended => mailbox.messages.push(Envelope { from, ..envelope }),
                Some(_) => {
                    stored += 1;
                    drop_contained(envelope);
                    continue;
                }
            }
            trace.take().into_iter().for_each(|trace| mailbox.mark(trace));
        }
        self.store.take_back(stored);
    }

    /// For a trace: a step has failed, and is repeated after this pause.
    pub(super) fn note_failure(&mut self, error: &str, pause: Duration) {
        let text = format!("{error}; it is attempt {} of {ATTEMPTS}, and the next is in {pause:?}", self.attempts);
        self.failed = Some(TurnNote { what: "failed", text, is_last: false });
    }

    /// The event of the last turn, if its verdict does not show it.
    pub(super) fn note_of_turn(&mut self) -> Option<TurnNote> {
        if self.stage != Stage::Gone {
            return self.failed.take();
        }
        let (what, text) = match &self.stored.exit {
            Some(exit) if self.has_ended() => ("ended", exit.exit(self.store.run).to_string()),
            _ if self.sleeper.is_some() => ("asleep", "it leaves memory until something comes for it".into()),
            _ => ("left", "it leaves memory, and is loaded again".into()),
        };
        Some(TurnNote { what, text, is_last: true })
    }

    /// Parks the process: nothing of it runs until an operator repairs it.
    pub(super) fn park(&mut self, error: String, event: Option<FailedEvent>) {
        let pid = self.resident.pid;
        self.failed = Some(TurnNote { what: "parked", text: error.clone(), is_last: false });
        tell_log(|| tracing::error!(%pid, process = P::NAME, error, "parked: its step fails each time"));
        let mut stored = self.stored.clone();
        stored.parked = Some(Parked { error, attempts: self.attempts, version: P::VERSION, event });
        stored.trail.note(self.store.wall_millis(), Traced::Parked, (0, 0));
        let state = (self.version, self.state.clone());
        self.stage = match self.append((stored, state), &Taken::default(), Default::default(), Vec::new()) {
            Ok(()) => Stage::Parked,
            // It is lost, or the store is closed. Then the process is loaded again, and fails again.
            Err(_) => {
                self.resident.note(Call::Leave);
                Stage::Leaving
            }
        };
    }
}

impl StoreCore {
    /// Returns whether this record of a resident is on disk, or may be. If so, the resident is called when that is
    /// known, or at once if it is known. `is_asked` says that this was asked before. Then a waiter exists, and no
    /// second one is added.
    fn is_kept(&self, resident: &Arc<Resident>, position: Position, is_asked: bool) -> bool {
        let (called, core) = (resident.clone(), self.core.get().cloned());
        let call = move |fate| {
            if fate == Fate::Released {
                called.note_released(position);
            }
            let core = core.and_then(|core| core.upgrade());
            core.into_iter().for_each(|core| called.call(&core.road, Call::Leave));
        };
        if is_asked && self.tail.fate(resident.life, position).is_none() {
            return true;
        }
        match self.tail.settles(resident.life, position, call) {
            Some((Fate::Released, call)) => {
                call(Fate::Released);
                true
            }
            Some((Fate::Lost | Fate::Unknown, _)) => false,
            None => true,
        }
    }

    /// A process is out of memory.
    pub(super) fn gone(&self, resident: &Arc<Resident>, ended: Option<End>) {
        let serial = resident.serial;
        self.keeper.left();
        // A process that was ended by its local PID comes back. So does one that has left because of a rewind.
        let is_open = self.core().is_some_and(|core| !core.road.door.is_closed());
        let loads = self.residency.enter(serial, |residence| {
            let was_here = match &residence.place {
                Place::Resident(one) => Arc::ptr_eq(one, resident),
                Place::Leaving | Place::LeavingToSleep => true,
                // Its end is lost, or this run does not know that it is on disk.
                Place::Ending => ended.is_none(),
                _ => false,
            };
            if was_here {
                residence.place = if is_open { Place::Loading } else { Place::Asleep };
                self.open_commands.leave(serial);
                // Messages that were in its mailbox may be on their way to the disk.
                residence.left_behind = Some(self.tail.end());
                residence.on_disk = lock(&resident.mail).len();
            }
            was_here && is_open
        });
        if !is_open && ended.is_none() {
            self.keeper.left_at_end();
        }
        match ended {
            Some(_) => self.refuse_repairs(serial, &NotRepaired::NoSuchProcess),
            // Questions that have waited are dropped, so nobody waits for their answers.
            None if !is_open => self.stays_asleep(serial),
            None if !loads => self.refuse_repairs(serial, &NotRepaired::Closed),
            None => {}
        }
        let Some(core) = self.core() else { return };
        if loads {
            self.start_load(&core, serial);
        }
        if let Some(end) = ended {
            self.open_commands.forget_all(serial);
            let reason = end.0.exit(self.run);
            self.tell_end(serial, end);
            let is_settled = |_, life| life < resident.life;
            self.becomes_nobody(&core, (serial, resident.life), Vec::new(), is_settled);
            self.forget_applied(serial);
            core.tell_related(resident.pid, &reason, &mut core.executor());
            let linked = std::mem::take(&mut *lock(&resident.last_outside));
            core.tell_linked_last(resident.pid, &reason, &linked);
        }
    }
}
