//! Loads durable processes from the store, begins them, and notes that they have left memory.

use std::any::{TypeId, type_name};
use std::collections::HashSet;
use std::time::Duration;

use super::burial::Buried;
use super::children::begin_child;
use super::coding::Format;
use super::command_steps;
use super::command_traces::with_traces;
use super::contract::{Durable, Encoded, decode_state};
use super::core::{End, Found, Kind, MakeBody, Show, StoreCore, Unreadable};
use super::journal::{Change, Damage, EncodedRecord, EntryRow, JournalError, Position, Record};
use super::left::Left;
use super::loaded::{Loaded, LoadedMail, body_of};
use super::monitors::watcher_of;
use super::new_child::ChildType;
use super::repair::NotRepaired;
use super::residency::{Call, Given, Kept, Place, Resident, StoredBytes};
use super::rows::{
    self, ANSWERS, CHILDREN, COMMANDS, DownExit, FailedEvent, MAIL, QUESTIONS, StoredEvent, StoredMail, StoredRequest,
    TIMERS, WATCHERS, WhyDead, WhyNoReply,
};
use super::tail::{Fate, Life, Refused};
use super::trail::Traced;
use crate::outcome::{BoxError, contain, drop_contained, tell_log};
use crate::primitives::Arc;
use crate::process::propagation::with_trace;
use crate::process::{DeadLetter, DeadLetterReason};
use crate::runtime::Core;
use crate::sched::body::{Ready, Yield};
use crate::sched::outbox::Outbox;
use crate::sched::trace_marks::MessageTrace;
use crate::sched::turn::Engine;

impl Kind {
    pub(super) fn of<P: Durable>() -> Kind {
        let encode = |json: &str| P::FORMAT.encode(&Format::Json.decode::<P>(json.as_bytes())?);
        Kind {
            name: P::NAME,
            version: P::VERSION,
            format: P::FORMAT,
            load: load::<P>,
            show: Show::of::<P>(),
            encode,
            child: ChildType::of::<P>(),
            begin_child: begin_child::<P>,
        }
    }
}

/// Decodes a process and its mail, and makes its resident.
fn load<P: Durable>(store: &Arc<StoreCore>, found: &Found) -> Result<(Arc<Resident>, MakeBody), Unreadable> {
    let Found { serial, life, row, head, mail, timers, commands, questions, ties, events, .. } = found;
    let state = Encoded { format: head.format, bytes: &row.state };
    let (decoded, replies) = store.code(|| contain(|| decode_state(row.version, state)));
    let process: P = decoded.unwrap_or_else(|panic| Err(Box::new(panic)))?;
    let Some(pid) = store.ticket(*serial) else { return Err("its serial number is out of range".into()) };
    let resident = Resident::new((*serial, pid), *life, (TypeId::of::<P::Message>(), type_name::<P::Message>));
    let mut messages = Vec::with_capacity(mail.len());
    for (number, stored) in mail {
        let decode = || stored.format.decode::<P::Message>(&stored.message);
        let message = store.code(|| contain(decode)).0.unwrap_or_else(|panic| Err(Box::new(panic)));
        let message = message.map_err(|error| {
            let error = format!("a message cannot be read: {error}").into();
            Unreadable { error, event: Some(FailedEvent::Mail(*number)) }
        })?;
        let from = stored.from.and_then(|from| store.run.read(from));
        let StoredMail { format, message: bytes, questions, trace, .. } = stored.clone();
        let trace = MessageTrace::new(trace.and_then(|trace| store.read_trace(&trace)));
        let kept = Kept { from, stored: StoredBytes { format, bytes, questions }, trace };
        messages.push(LoadedMail { number: *number, kept, message });
    }
    let timers = timers.iter().map(|(tag, _)| (*tag, TIMERS));
    let run = ties.children.keys().map(|tag| (*tag, CHILDREN));
    let asked = questions.iter().map(|(tag, _)| (*tag, QUESTIONS));
    let open = timers.chain(commands.iter().map(|(tag, _)| (*tag, COMMANDS))).chain(run).chain(asked).collect();
    let answered = |(key, event): &((u8, u64), StoredEvent)| {
        let answer = match event {
            StoredEvent::Answer(stored) => Some(store.answer_of(stored)?),
            _ => None,
        };
        Ok((*key, event.clone(), answer))
    };
    let loaded = Loaded {
        process,
        state: row.state.clone(),
        version: row.version,
        head: head.clone(),
        mail: messages,
        open,
        traces: found.traced(),
        ties: ties.clone(),
        events: events.iter().map(answered).collect::<Result<_, BoxError>>()?,
        replies: replies.iter().map(|reply| reply.key).collect(),
        questions: questions.clone(),
        kept: found.kept.iter().map(|key| (key.number, *key)).collect(),
        rests_on: Position::START,
    };
    let (store, made_for, traces) = (store.clone(), resident.clone(), store.traces_of(found));
    let make = move |local, without: &HashSet<u64>| body_of(store, made_for, loaded, (local, without));
    Ok((resident, Box::new(move |local, without| with_traces(make(local, without), traces))))
}

impl Found {
    /// Takes the messages of another type. `same` are the kinds that take the messages of this process in this program.
    /// The program that has sent a message may not have known all of them.
    fn take_wrong_mail(&mut self, same: &[String]) -> Vec<(u64, StoredMail)> {
        self.mail.extract_if(.., |(_, mail)| mail.kinds.iter().all(|kind| !same.contains(kind))).collect()
    }
}

/// The rows of a process.
enum Read {
    Found(Box<Found>),
    /// It has ended, and this is how, or there is no such process.
    Nobody(Option<End>, Left),
}

impl Read {
    fn nobody(entries: &[(u8, u64, EntryRow)]) -> Read {
        let watchers = entries.iter().filter(|(class, ..)| *class == WATCHERS);
        let by = |row: &EntryRow| watcher_of(&postcard::from_bytes(&row.body).ok()?);
        let watchers = watchers.filter_map(|(_, id, row)| Some((*id, by(row)?))).collect();
        let mail = entries.iter().filter(|(class, ..)| *class == MAIL);
        let mail = mail.filter_map(|(_, number, row)| Some((*number, rows::read_mail(&row.body)?)));
        let keys = entries.iter().map(|(class, number, _)| (*class, *number));
        Read::Nobody(None, Left { watchers, ..Left::of(mail, keys) })
    }
}

impl StoreCore {
    /// Has the journal opened anew after an error of the tables. Damage concerns one row only, and is returned.
    pub(super) fn tables_failed<'a>(&self, life: Life, error: &'a JournalError) -> Option<&'a Damage> {
        match error {
            JournalError::Damaged(damage) => Some(damage),
            _ => {
                self.tail.reopen(life, error);
                None
            }
        }
    }

    /// Loads a process, and makes it resident. The tables have all of its records.
    pub(super) fn load(&self, serial: u64) {
        let Some(core) = self.core() else { return };
        if self.tail.is_closing() {
            return self.stays_asleep(serial);
        }
        // A process of the life of a rewind would not be called to leave.
        let Some(life) = self.tail.open_life() else { return self.load_later(&core, serial) };
        let (awaited, is_open, outside) = self.residency.enter(serial, |residence| {
            residence.outside.is_changed = false;
            (residence.awaited(life), residence.burial.is_open(), self.view_outside(residence))
        });
        let ending = outside.ending(self.run);
        drop_contained(outside);
        if is_open {
            return self.load_later(&core, serial);
        }
        if let Some(position) = awaited.filter(|position| *position > self.tail.released()) {
            let me = self.me.clone();
            let again = move |fate| {
                let Some(me) = me.upgrade() else { return };
                match me.core() {
                    Some(core) if fate != Fate::Unknown => me.start_load(&core, serial),
                    // A store that is closed reads nothing.
                    _ => me.stays_asleep(serial),
                }
            };
            return self.tail.when_released(life, position, again);
        }
        let through = self.tail.released();
        let found = match self.read(serial, life, through) {
            Ok(found) => found,
            Err(error) => {
                tell_log(|| tracing::warn!(serial, %error, "a durable process cannot be read now, and is read again"));
                if let JournalError::Damaged(damage) = &error {
                    if let Some(found) = self.is_to_end_damaged(serial, (life, through), ending) {
                        return self.end_unread(&core, found, through);
                    }
                    tell_log(|| tracing::error!(serial, %damage, "a durable process is damaged, and stays on disk"));
                    // Otherwise it would be read for them again and again.
                    self.refuse_repairs(serial, &NotRepaired::State(damage.to_string()));
                    return self.unreadable(serial, None);
                }
                return self.load_later(&core, serial);
            }
        };
        let mut found = match found {
            Read::Found(found) => *found,
            Read::Nobody(end, left) => {
                if !self.no_such_process(&core, serial, (life, through), left) {
                    return self.start_load(&core, serial);
                }
                // Its own thread may have taken the end for lost, and have told nobody: see `Tail::when_released`.
                if let (Some(end), Some(pid)) = (end, self.ticket(serial)) {
                    let reason = end.0.exit(self.run);
                    self.tell_end(serial, end);
                    core.tell_related(pid, &reason, &mut core.executor());
                } else {
                    self.tell_lost(serial);
                }
                return;
            }
        };
        found.outside = ending;
        let is_behind = self.residency.enter(serial, |residence| {
            residence.count_mail(&found.mail);
            residence.is_behind((life, through))
        });
        if is_behind {
            return self.start_load(&core, serial);
        }
        if self.carry_out(&core, &found, life) {
            return;
        }
        let Some(kind) = self.kinds.get(&*found.row.kind) else {
            let kind = &*found.row.kind;
            tell_log(|| tracing::warn!(serial, kind, "a durable process is of a kind that the program does not know"));
            if found.is_to_end(self.run) {
                return self.end_unread(&core, found, through);
            }
            self.follow_unread(&core, &found);
            return self.unreadable(serial, Some((life, through)));
        };
        // One that is to end is loaded, so that it ends as any other.
        if found.head.parked.as_ref().is_some_and(|parked| parked.version == kind.version) && !found.is_to_end(self.run)
        {
            self.follow_unread(&core, &found);
            return self.unreadable(serial, Some((life, through)));
        }
        let same = self.messages.values().find(|message| message.kinds.contains(&found.row.kind));
        let wrong = found.take_wrong_mail(same.map_or(&[], |message| &message.kinds));
        self.complete_questions(&mut found);
        let Some(me) = self.me.upgrade() else { return };
        let loaded = self.commands_of(&found).map_err(Unreadable::from);
        let loaded = loaded.and_then(|commands| Ok((commands, (kind.load)(&me, &found)?)));
        let (commands, (resident, make)) = match loaded {
            Ok(loaded) => loaded,
            Err(Unreadable { error, event }) => {
                tell_log(|| tracing::error!(serial, kind = kind.name, %error, "a durable process cannot be read"));
                found.mail.extend(wrong);
                if found.is_to_end(self.run) {
                    return self.end_unread(&core, found, through);
                }
                return match self.park_unread(&found, kind, (&error, event)) {
                    Err(Refused::Rewound) => self.load_later(&core, serial),
                    Err(Refused::Closed) => self.unreadable(serial, None),
                    Ok(()) => {
                        self.follow_unread(&core, &found);
                        self.unreadable(serial, Some((life, through)));
                        // If the record was lost before, its waiter has found nothing to load.
                        if self.tail.life() != life {
                            self.load_unreadable(&core, serial);
                        }
                    }
                };
            }
        };
        let refused_mail: HashSet<u64> = wrong.iter().map(|(number, _)| *number).collect();
        let known: HashSet<u64> = found.mail.iter().map(|(number, _)| *number).collect();
        let (mut ready, mut given, mut again) = (None, Vec::new(), false);
        let (mut make, mut refused, mut is_full, mut needless) = (Some(make), None, false, Vec::new());
        let (mut commands, mut at_work) = (Some(commands), Vec::new());
        self.residency.enter(serial, |residence| {
            if !matches!(residence.place, Place::Loading) {
                return;
            }
            if self.tail.life() != life || residence.is_behind((life, through)) {
                // The rows that were read may be older than those on disk now.
                again = true;
                return;
            }
            let Some(vacancy) = core.vacancy() else {
                is_full = true;
                return;
            };
            let _ = resident.local.set(vacancy);
            // A message that waits here keeps its place among the questions.
            let waiting: HashSet<u64> = residence.waiting.iter().filter_map(|mail| mail.number).collect();
            let Some(made) = make.take().map(|make| make(vacancy, &waiting)) else { return };
            needless = made.needless;
            match core.install_body(made.body) {
                Ok(body) => ready = Some(body),
                Err(body) => {
                    refused = Some(body);
                    return;
                }
            }
            if !residence.repairs.is_empty() {
                // Before its first turn.
                resident.note(Call::Repair);
            }
            // Under the lock, so that an answer from outside finds them.
            let commands = commands.take().into_iter().flatten();
            at_work.extend(commands.map(|command| command_steps::at_work(&me, &resident, command)));
            residence.place = Place::Resident(resident.clone());
            self.keeper.came();
            self.add_requests(life, &mut found, std::mem::take(&mut residence.requests));
            for mail in std::mem::take(&mut residence.waiting) {
                let is_there = mail.number.is_some_and(|number| known.contains(&number));
                let is_refused = mail.number.is_some_and(|number| refused_mail.contains(&number));
                let is_lost = match (mail.number, mail.rests_on) {
                    // A message of an earlier life that is not there is lost.
                    (Some(_), _) => mail.life != life && !is_there,
                    // A question is lost with the step that has asked it.
                    (None, Some(step)) => self.tail.is_lost(mail.life, step),
                    (None, None) => false,
                };
                let kind = self.messages.get(&(*mail.message).type_id());
                given.push(match kind {
                    Some(kind) if !is_lost && !is_refused => {
                        (kind.name, residence.take(&core.road, kind, mail, |number| self.ticket(number)))
                    }
                    _ => ("", Given::Stored(mail)),
                });
            }
        });
        // Dropped without the lock: they are users' values, and a question may be among them.
        needless.into_iter().for_each(drop_contained);
        if let Some(body) = refused {
            drop_contained(body);
            return self.stays_asleep(serial);
        }
        if is_full && core.road.door.is_closed() {
            return self.stays_asleep(serial);
        }
        if is_full {
            return self.load_later(&core, serial);
        }
        if again {
            return self.start_load(&core, serial);
        }
        let to = self.ticket(serial).unwrap_or(core.road.table.nobody());
        given.into_iter().for_each(|(name, given)| self.finish(&core, to, name, given));
        if let Some(mut body) = ready {
            self.refuse_mail(&core, (serial, life), wrong);
            self.set_timers(&core, &mut body, &found.timers);
            self.limit_questions(&core, &resident, &found.questions);
            self.give_requests(&core, &resident, &mut body, &found);
            self.watch_again(&core, &found.ties, &mut body);
            self.subscribe_again(&core, &found.ties, &mut body);
            self.link_again(&core, &resident, &found, &mut body);
            for one in at_work {
                core.perform(one, &mut body, &mut Outbox::default(), &mut core.executor());
            }
            core.began_body(body);
        }
    }

    /// Removes messages of another type. Their sender could not know the type while the process was asleep. The process
    /// is in memory, and has not begun its first turn. So no other load reads them meanwhile.
    fn refuse_mail(&self, core: &Arc<Core>, (serial, life): (u64, Life), wrong: Vec<(u64, StoredMail)>) {
        let to = self.ticket(serial).unwrap_or(core.road.table.nobody());
        for (_, mail) in &wrong {
            let from = mail.from.and_then(|from| self.run.read(from));
            let letter = DeadLetter { from, ..DeadLetter::new(to, DeadLetterReason::WrongType) };
            self.tell_stored(core, mail.trace.as_deref(), &letter);
        }
        for (number, mail) in wrong {
            let questions = mail.questions.clone();
            let changes = self.dead_rows((serial, number), mail, WhyDead::WrongType);
            let buried = Buried { life, changes, begun: 0 };
            self.give_up(core, serial, buried, (&questions, WhyNoReply::WrongType(serial)));
        }
    }

    /// Reports a stored message as a dead letter, in its trace.
    pub(super) fn tell_stored(&self, core: &Core, trace: Option<&[u8]>, letter: &DeadLetter<'_>) {
        let trace = MessageTrace::new(trace.and_then(|trace| self.read_trace(trace)));
        core.road.outside.add(&core.road.outside.accepted, 1);
        with_trace(trace.get().map(|trace| &**trace), letter, |letter| {
            core.road.dead_letter(&core.road.outside, letter);
        });
    }

    /// A process is not loaded in this run any more. Its stored messages stay on disk.
    pub(super) fn stays_asleep(&self, serial: u64) {
        let waiting = self.residency.enter(serial, |residence| {
            if matches!(residence.place, Place::Loading) {
                residence.place = Place::Asleep;
            }
            residence.requests.clear();
            std::mem::take(&mut residence.waiting)
        });
        self.refuse_repairs(serial, &NotRepaired::Closed);
        waiting.into_iter().for_each(|mail| drop_contained(mail.message));
    }

    /// Sets the timers of a process that was loaded. Those that were due meanwhile fire at once.
    fn set_timers(&self, core: &Arc<Core>, body: &mut Ready, timers: &[(u64, u64)]) {
        if timers.is_empty() {
            return;
        }
        let now = self.wall_millis();
        for (tag, due) in timers {
            let (tag, delay) = (*tag, Duration::from_millis(due.saturating_sub(now)));
            core.perform(Yield::Timer { tag, delay }, body, &mut Outbox::default(), &mut core.executor());
        }
    }

    /// Reads a process and its mail, with all records up to `through`, and perhaps later ones.
    fn read(&self, serial: u64, life: Life, through: Position) -> Result<Read, JournalError> {
        self.with_tables(|tables, reader| {
            self.catch_up_to(tables, through)?;
            let stored = reader.load(serial)?;
            if stored.row.is_none() {
                return Ok(Read::nobody(&stored.entries));
            }
            let Some(mut found) = Found::of(serial, life, stored)? else {
                return Ok(Read::Nobody(None, Left::default()));
            };
            if let Some(exit) = found.head.exit.take() {
                let watchers = found.watchers();
                let left = Left::of(found.mail.into_iter(), found.entries.into_iter());
                return Ok(Read::Nobody(Some((exit, found.head.format)), Left { watchers, ..left }));
            }
            self.find_downs(&mut found, reader)?;
            self.find_exits(&mut found, reader)?;
            Ok(Read::Found(Box::new(found)))
        })
    }

    /// Returns `false` if the process is to be read again: it may have begun after the last record that was read.
    fn no_such_process(
        &self,
        core: &Arc<Core>,
        serial: u64,
        (life, through): (Life, Position),
        Left { watchers, linked, mail, answers }: Left,
    ) -> bool {
        let is_later = self.residency.enter(serial, |residence| {
            if !matches!(residence.place, Place::Loading) {
                return None;
            }
            // In a later life, messages may wait that no look at these rows has to do with.
            let is_later = self.tail.life() != life || residence.is_behind((life, through));
            if !is_later {
                residence.place = Place::Nobody;
                // All that it has left behind was read.
                residence.left_behind = None;
                residence.burial.begin(mail.len());
            }
            Some(is_later)
        });
        match is_later {
            // It is in memory: it has just begun.
            None => return true,
            Some(true) => return false,
            Some(false) => {}
        }
        let dead: HashSet<u64> = mail.iter().map(|(number, _)| *number).collect();
        self.becomes_nobody(core, (serial, life), mail, |number, of| of < life || dead.contains(&number));
        if !watchers.is_empty() {
            self.tell_watchers(core, watchers, (serial, DownExit::NoSuchProcess));
        }
        if !linked.is_empty() {
            self.tell_linked(core, linked, (serial, DownExit::NoSuchProcess));
        }
        // Its questions have ended with it.
        self.count_late(answers.len() as u64);
        self.remove_in(life, answers.into_iter().map(|tag| rows::answered(serial, ANSWERS, tag)).collect());
        self.residency.forget(serial);
        true
    }

    /// A process stays on disk. `read` is the last record that its load has read, if it is to look at later ones.
    pub(super) fn unreadable(&self, serial: u64, read: Option<(Life, Position)>) {
        let is_end = |(_, _, request): &(u64, Life, StoredRequest)| *request == StoredRequest::End;
        let (waiting, is_ordered) = self.residency.enter(serial, |residence| {
            // A request to end may have come after the look at its rows.
            let is_to_end = std::mem::take(&mut residence.requests).iter().any(is_end);
            // So may the order of a parent that has ended.
            let is_later = |read| residence.is_behind(read);
            let is_given = residence.outside.is_changed;
            let is_ordered = is_to_end || is_given || !residence.repairs.is_empty() || read.is_some_and(is_later);
            residence.place = if is_ordered { Place::Loading } else { Place::Unreadable };
            residence.left_behind = is_to_end.then(|| self.tail.end()).or(residence.left_behind);
            // Stored messages stay on disk. Questions are dropped, which tells their askers.
            (residence.leave_on_disk(), is_ordered)
        });
        waiting.into_iter().for_each(|mail| drop_contained(mail.message));
        if let Some(core) = self.core().filter(|_| is_ordered) {
            self.start_load(&core, serial);
        }
    }

    /// Parks a process that cannot be read. If the record is lost, the process is loaded again.
    fn park_unread(
        &self,
        found: &Found,
        kind: &Kind,
        (error, event): (&BoxError, Option<FailedEvent>),
    ) -> Result<(), Refused> {
        let serial = found.serial;
        let mut head = found.head.clone();
        head.parked = Some(rows::Parked { error: error.to_string(), attempts: 0, version: kind.version, event });
        head.trail.note(self.wall_millis(), Traced::Parked, (0, 0));
        let row = head.row(&found.row.kind, found.row.version, found.row.state.clone());
        let record = row.ok().and_then(|row| {
            let changes = vec![Change::Process { serial, row: Some(row) }];
            EncodedRecord::new(&Record { changes }).ok()
        });
        let Some(record) = record else { return Ok(()) };
        let me = self.me.clone();
        let waiter = Box::new(move |fate| {
            if let Some(me) = me.upgrade().filter(|_| fate == Fate::Lost)
                && let Some(core) = me.core()
            {
                me.load_unreadable(&core, serial);
            }
        });
        self.tail.append(found.life, &record, Some(waiter)).map(drop)
    }

    /// Loads a process whose parking is lost.
    fn load_unreadable(&self, core: &Arc<Core>, serial: u64) {
        let loads = self.residency.enter(serial, |residence| {
            let is_unreadable = matches!(residence.place, Place::Unreadable);
            if is_unreadable {
                residence.place = Place::Loading;
            }
            is_unreadable
        });
        if loads {
            self.start_load(core, serial);
        }
    }
}
