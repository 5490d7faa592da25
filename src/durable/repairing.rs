//! Carries out the orders of operators.
//!
//! An order changes the rows of a process while the process is out of memory. A resident is called to leave first. Its
//! residence stays `Loading`, so nobody else changes the row. The load finds the order, stores the change, and reads
//! the process again when the change is on disk. Mail that comes meanwhile waits in the residence, as in any load.

use super::core::{Found, Kind, StoreCore};
use super::dead_letters::LEFT_AT_AN_END;
use super::journal::{Change, EncodedRecord, Record};
use super::notice::ORDER;
use super::repair::{Action, NotRepaired, Repair};
use super::residency::{Call, Place};
use super::rows::{
    self, DEAD, DownExit, EventAnswer, FailedEvent, Rest, StoredDead, StoredEvent, StoredExit, WhyDead, WhyNoReply,
};
use super::tail::{Fate, Life};
use super::trail::Traced;
use crate::latch::Latch;
use crate::outcome::{BoxError, contain};
use crate::primitives::Arc;
use crate::process::reply::QuestionKey;
use crate::process::{DeadLetter, DeadLetterReason};
use crate::runtime::Core;

/// The times of a change, in milliseconds: now, and the retention of ended processes and dead letters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: u64,
    pub(super) keep: u64,
}

/// The rows that an order changes.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) changes: Vec<Change>,
    /// Messages that have become dead letters, by their numbers.
    pub(super) dead: Vec<(u64, WhyDead)>,
    /// Stored questions of a process that goes on, which have no answer.
    pub(super) askers: Vec<QuestionKey>,
}

impl Action {
    /// The rows that this order changes. `number` is one that no message has had.
    pub(super) fn apply(&self, found: &Found, times: Times, number: u64) -> Result<Changed, NotRepaired> {
        let Found { serial, row, head, .. } = found;
        let (mut head, mut state, mut version) = (head.clone(), row.state.clone(), row.version);
        let mut changed = Changed::default();
        let parked = head.parked.clone();
        let traced = match self {
            Action::Retry | Action::Skip | Action::Replace { .. } if parked.is_none() => {
                return Err(NotRepaired::NotParked);
            }
            Action::Retry => Traced::Retried,
            Action::Skip => {
                match parked.and_then(|parked| parked.event) {
                    None => return Err(NotRepaired::NothingToSkip),
                    Some(FailedEvent::Mail(number)) => {
                        let mail = found.mail.iter().find(|(other, _)| *other == number);
                        changed.askers = mail.map_or(Vec::new(), |(_, mail)| mail.questions.clone());
                        let given_up = changed.give_up(&changed.askers.clone(), WhyNoReply::Dropped);
                        given_up.map_err(|error| NotRepaired::State(error.to_string()))?;
                        changed.bury(found, number, WhyDead::Skipped, times)?;
                    }
                    Some(FailedEvent::Answer(tag)) => {
                        head.open.retain(|open| *open != tag);
                        let is_of_tag = |(class, number): &&(u8, u64)| {
                            (rows::is_answered(*class) || *class == rows::TRACES) && *number == tag
                        };
                        let of_tag = found.entries.iter().filter(is_of_tag);
                        changed.changes.extend(of_tag.map(|(class, tag)| rows::answered(*serial, *class, *tag)));
                        let waits_for = |(class, number): &(u8, u64)| rows::is_answered(*class) && *number != tag;
                        if head.rest == Rest::Wait && head.open.is_empty() && !found.entries.iter().any(waits_for) {
                            // It would wait for nothing.
                            head.rest = Rest::Idle;
                        }
                    }
                }
                Traced::Skipped
            }
            Action::Replace { state: new, of } => {
                state = new.clone();
                (version, head.format) = of.unwrap_or((version, head.format));
                Traced::Replaced
            }
            Action::Terminate => return found.end(times, StoredExit::Terminated),
            #[cfg(feature = "sqlite")]
            Action::Cancel => {
                let stop = rows::StoredRequest::Stop { reason: rows::StoredReason::Cancelled, deadline: None };
                return found.requested(number, &stop);
            }
            Action::Resend(dead) => {
                let letter = found.dead.iter().find(|(number, _)| number == dead);
                let Some((_, letter)) = letter else { return Err(NotRepaired::NoDeadLetter) };
                let mail =
                    rows::mail(*serial, number, &letter.mail).map_err(|error| NotRepaired::State(error.to_string()))?;
                changed.changes.extend([rows::answered(*serial, DEAD, *dead), mail]);
                Traced::Resent
            }
        };
        if !matches!(self, Action::Resend(_)) {
            head.parked = None;
        }
        head.trail.note(times.now, traced, (0, 0));
        let row = head.row(&row.kind, version, state).map_err(|error| NotRepaired::State(error.to_string()))?;
        changed.changes.push(Change::Process { serial: *serial, row: Some(row) });
        Ok(changed)
    }
}

impl Found {
    /// The rows that change when a process ends that is not in memory.
    pub(super) fn end(&self, times: Times, exit: StoredExit) -> Result<Changed, NotRepaired> {
        let (serial, mut head, mut changed) = (self.serial, self.head.clone(), Changed::default());
        let refused = |error: BoxError| NotRepaired::State(error.to_string());
        let size = |number: &u64| Some(self.mail.iter().find(|(other, _)| other == number)?.1.message.len());
        let is_read = |number: &u64| self.dead.iter().any(|(other, _)| other == number);
        // Its own questions end with it.
        let others = |questions: &[QuestionKey]| -> Vec<QuestionKey> {
            questions.iter().filter(|key| key.asker != serial).copied().collect()
        };
        changed.give_up(&others(&self.kept), WhyNoReply::Ended(serial)).map_err(refused)?;
        let mut bytes = 0;
        for (class, number) in &self.entries {
            match *class {
                rows::MAIL => {
                    // A damaged one cannot be a dead letter.
                    let left = size(number);
                    bytes += left.unwrap_or(0);
                    let mail = self.mail.iter().find(|(other, _)| other == number);
                    let questions = mail.map_or(&[][..], |(_, mail)| &mail.questions);
                    changed.give_up(&others(questions), WhyNoReply::Ended(serial)).map_err(refused)?;
                    match left.is_none() || bytes > LEFT_AT_AN_END {
                        true => changed.changes.extend([rows::taken(serial, *number), rows::unstored(serial, *number)]),
                        false => changed.bury(self, *number, WhyDead::Ended, times)?,
                    }
                }
                DEAD if is_read(number) => {}
                class => changed.changes.push(rows::answered(serial, class, *number)),
            }
        }
        changed.changes.push(rows::kept(serial, times.now, times.keep));
        for (id, by) in self.watchers() {
            let down = StoredEvent::Down { exit: DownExit::of(&exit) };
            changed.changes.push(rows::event(by, (rows::DOWNS, id), &down).map_err(refused)?);
        }
        for other in self.linked() {
            let event = StoredEvent::Exit { exit: DownExit::of(&exit) };
            changed.changes.push(rows::answered(other, rows::LINKS, serial));
            changed.changes.push(rows::event(other, (rows::EXITS, serial), &event).map_err(refused)?);
        }
        let has = |key: (u8, u64)| self.events.iter().any(|(other, _)| *other == key);
        if let Some(parent) = self.head.parent.filter(|_| !has(ORDER)) {
            let (kind, format) = (self.row.kind.clone(), self.head.format);
            let answer = StoredEvent::Answer(EventAnswer::Child { serial, kind, format, exit: exit.clone() });
            changed.changes.push(rows::event(parent.serial, (rows::ANSWERS, parent.tag), &answer).map_err(refused)?);
        }
        for (tag, child) in self.ties.children.iter().filter(|(tag, _)| !has((rows::ANSWERS, **tag))) {
            let _ = tag;
            let order = StoredEvent::Order(child.at_end);
            changed.changes.push(rows::event(child.serial, ORDER, &order).map_err(refused)?);
        }
        head.exit = Some(exit);
        head.open = Vec::new();
        head.parked = None;
        head.trail.note(times.now, Traced::Ended, (0, 0));
        let row = head.row(&self.row.kind, self.row.version, Vec::new());
        let row = Some(row.map_err(|error| NotRepaired::State(error.to_string()))?);
        changed.changes.push(Change::Process { serial, row });
        Ok(changed)
    }

    /// The processes that learn of the end of this one.
    pub(super) fn relatives(&self) -> Vec<u64> {
        let watchers = self.watchers().into_iter().map(|(_, by)| by);
        let children = self.ties.children.values().map(|child| child.serial);
        let askers = self.mail.iter().flat_map(|(_, mail)| &mail.questions).chain(&self.kept).map(|key| key.asker);
        let linked = self.linked().into_iter();
        watchers
            .chain(linked)
            .chain(children)
            .chain(askers)
            .chain(self.head.parent.map(|parent| parent.serial))
            .collect()
    }

    /// The row of a request, which the program finds when it loads the process.
    #[cfg(feature = "sqlite")]
    fn requested(&self, number: u64, request: &rows::StoredRequest) -> Result<Changed, NotRepaired> {
        let change = rows::request(self.serial, number, 0, request);
        let changes = vec![change.map_err(|error| NotRepaired::State(error.to_string()))?];
        Ok(Changed { changes, ..Changed::default() })
    }
}

impl Changed {
    /// Leaves stored questions without an answer.
    fn give_up(&mut self, questions: &[QuestionKey], why: WhyNoReply) -> Result<(), BoxError> {
        let answer = StoredEvent::Answer(EventAnswer::NoReply(why));
        for key in questions {
            self.changes.push(rows::event(key.asker, (rows::ANSWERS, key.tag), &answer)?);
        }
        Ok(())
    }

    /// Makes a stored message a dead letter. One that is not there any more is none.
    fn bury(&mut self, found: &Found, number: u64, why: WhyDead, times: Times) -> Result<(), NotRepaired> {
        let Some((_, mail)) = found.mail.iter().find(|(other, _)| *other == number) else { return Ok(()) };
        let letter = StoredDead { mail: mail.clone(), why, since: times.now };
        let dead = rows::dead(found.serial, number, &letter, times.keep);
        self.changes.push(rows::taken(found.serial, number));
        self.changes.push(dead.map_err(|error| NotRepaired::State(error.to_string()))?);
        self.dead.push((number, why));
        Ok(())
    }
}

impl StoreCore {
    pub(super) fn times(&self) -> Times {
        Times { now: self.wall_millis(), keep: self.keep }
    }

    /// Encodes a state that is given as JSON, as its kind encodes states.
    pub(super) fn encode_state(&self, kind: &Kind, json: &str) -> Result<Vec<u8>, NotRepaired> {
        let limit = self.settings.largest_state;
        let (encoded, has_reply) = self.run.code(|| contain(|| (kind.encode)(json)));
        match encoded {
            Ok(Ok(_)) if has_reply => Err(NotRepaired::State(rows::WITH_REPLY.into())),
            Ok(Ok(state)) if state.len() > limit => Err(NotRepaired::State(rows::too_large(state.len(), limit))),
            Ok(Ok(state)) => Ok(state),
            Ok(Err(error)) => Err(NotRepaired::State(error.to_string())),
            Err(panic) => Err(NotRepaired::State(panic.to_string())),
        }
    }

    /// Begins to change a process. The latch is set when the change is on disk, or was refused.
    pub(super) fn repair(&self, serial: u64, action: Action) -> Latch<Result<(), NotRepaired>> {
        let done = Latch::new();
        let repair = Repair { action, done: done.clone() };
        let Some(core) = self.core() else {
            repair.refuse(NotRepaired::Closed);
            return done;
        };
        if core.road.door.is_closed() || self.tail.is_closing() {
            repair.refuse(NotRepaired::Closed);
            return done;
        }
        let loads = self.residency.enter(serial, |residence| {
            let loads = match &residence.place {
                Place::Asleep | Place::Unreadable => true,
                Place::Nobody | Place::Removed => {
                    repair.refuse(NotRepaired::NoSuchProcess);
                    return false;
                }
                Place::Resident(resident) => {
                    resident.call(&core.road, Call::Repair);
                    false
                }
                Place::Loading | Place::Leaving | Place::LeavingToSleep | Place::Ending => false,
            };
            residence.repairs.push(repair);
            if loads {
                residence.place = Place::Loading;
            }
            loads
        });
        if loads {
            self.start_load(&core, serial);
        }
        done
    }

    /// Carries out the orders to a process that was read. Returns whether there were any: then it is to be read again.
    pub(super) fn carry_out(&self, core: &Arc<Core>, found: &Found, life: Life) -> bool {
        let mut repairs = self.residency.enter(found.serial, |residence| std::mem::take(&mut residence.repairs));
        if repairs.is_empty() {
            return false;
        }
        // One at a time: the next one is for the process as this one has left it.
        let Repair { action, done } = repairs.remove(0);
        let changed = match self.number() {
            Ok(number) => action.apply(found, self.times(), number),
            Err(_) => Err(NotRepaired::Lost),
        };
        let appended = changed.and_then(|changed| {
            let record = EncodedRecord::new(&Record { changes: changed.changes.clone() });
            let record = record.map_err(|error| NotRepaired::State(error.to_string()))?;
            let told = done.clone();
            let waiter = Box::new(move |fate| {
                let _ = told.set(match fate {
                    Fate::Released => Ok(()),
                    Fate::Lost => Err(NotRepaired::Lost),
                    Fate::Unknown => Err(NotRepaired::Closed),
                });
            });
            let position = self.tail.append(life, &record, Some(waiter)).map_err(|_| NotRepaired::Lost)?;
            Ok((position, changed))
        });
        self.residency.enter(found.serial, |residence| {
            repairs.append(&mut residence.repairs);
            residence.repairs = repairs;
            if let Ok((position, _)) = &appended {
                // One that has told the process something meanwhile has left a later position.
                let later = residence.left_behind.filter(|(of, other)| *of == life && other > position);
                residence.left_behind = Some(later.unwrap_or((life, *position)));
            }
        });
        match appended {
            Ok((_, changed)) => {
                self.tell_dead(core, found, &changed.dead);
                changed.askers.iter().for_each(|key| self.read_again(core, key.asker));
            }
            Err(why) => _ = done.set(Err(why)),
        }
        self.start_load(core, found.serial);
        true
    }

    /// Has a process read its rows again, because another process has stored an entry for it.
    pub(super) fn read_again(&self, core: &Arc<Core>, serial: u64) {
        let loads = self.residency.enter(serial, |residence| {
            match &residence.place {
                Place::Resident(resident) => {
                    resident.call(&core.road, Call::Repair);
                    return false;
                }
                Place::Ending | Place::Nobody | Place::Removed => return false,
                Place::LeavingToSleep => residence.place = Place::Leaving,
                Place::Asleep | Place::Unreadable | Place::Loading | Place::Leaving => {}
            }
            residence.left_behind = Some(self.tail.end());
            let loads = matches!(residence.place, Place::Asleep | Place::Unreadable);
            if loads {
                residence.place = Place::Loading;
            }
            loads
        });
        if loads {
            self.start_load(core, serial);
        }
    }

    /// Reports messages that have become dead letters.
    pub(super) fn tell_dead(&self, core: &Arc<Core>, found: &Found, dead: &[(u64, WhyDead)]) {
        let to = self.ticket(found.serial).unwrap_or(core.road.table.nobody());
        for (number, why) in dead {
            let mail = found.mail.iter().find(|(other, _)| other == number).map(|(_, mail)| mail);
            let from = mail.and_then(|mail| self.run.read(mail.from?));
            let reason = match why {
                WhyDead::Ended => DeadLetterReason::Ended,
                WhyDead::WrongType => DeadLetterReason::WrongType,
                WhyDead::Skipped => DeadLetterReason::StepFailed,
                WhyDead::Full => DeadLetterReason::Full,
            };
            let letter = DeadLetter { from, ..DeadLetter::new(to, reason) };
            self.tell_stored(core, mail.and_then(|mail| mail.trace.as_deref()), &letter);
        }
    }

    /// Refuses the orders to a process that is not loaded any more.
    pub(super) fn refuse_repairs(&self, serial: u64, why: &NotRepaired) {
        let repairs = self.residency.enter(serial, |residence| std::mem::take(&mut residence.repairs));
        repairs.into_iter().for_each(|repair| repair.refuse(why.clone()));
    }
}
