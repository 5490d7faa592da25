//! Stored questions between processes of a store: they survive kills of both, and get exactly one answer.
//!
//! `docs/durable.md` has the protocol. The *asker* has an entry with the tag of the command. The *reply* is in one
//! place of the store: in a message, in a state, or nowhere. Each record that takes it out of its place has its next
//! place, or the answer, which is a stored event of the asker.
//!
//! **A step that asks.** The reply is named before the message is written. So the message has the name, and is stored
//! as any other. The question in memory is decided from then on: nothing but a record answers it.
//!
//! **A step with replies.** It has in hand the replies of the state as its last record has it, and those of the
//! messages that it takes. Each of them has one fate, in this order:
//!
//! | the reply is | the record has |
//! |---|---|
//! | answered | the value, for the asker |
//! | dropped | an error, for the asker |
//! | in a message to a process of the store | the message with the question |
//! | in the new state | an entry, unless there is one |
//! | anywhere else | an error, for the asker |
//!
//! A reply that is not in hand was given up before. Its answer comes too late, and is counted.
//!
//! **A question that is not stored** goes on with the stored messages of its step, in their order, when the record of
//! the step is in the tail. It names the record, so all that the asked process does after it waits until that record
//! is on disk. If the record is lost, the asked process leaves memory with it, and the asker too. The question is
//! decided before its asker is loaded again. So no answer comes to a later command with the same tag.
//!
//! **The end of a process** gives up all replies in hand, and those of the messages that no step has taken.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use super::burial::Buried;
use super::contract::Durable;
use super::core::{Found, StepError, StoreCore};
use super::held::Sorted;
use super::journal::{Change, EncodedRecord, Position, Record};
use super::letter::{Letter, Unsent, questions_of};
use super::machine::DurableMachine;
use super::notice::Notice;
use super::open_questions::NewQuestion;
use super::replies::SeenReply;
use super::residency::{Place, Residence, Resident, StoredBytes, Taken};
use super::rows::{self, ANSWERS, EventAnswer, KEPT_REPLIES, StoredEvent, WhyNoReply};
use super::tail::Fate;
use crate::outcome::{BoxError, Failure, contain, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, MutexGuard, lock};
use crate::process::host::Host;
use crate::process::reply::{Ask, QuestionKey, ReplyKey};
use crate::process::{Answer, CommandError, DeadLetterReason, NoSuchProcessError};
use crate::runtime::{Core, Timed};
use crate::sched::body::{Head, StepOutput, Stepped};
use crate::sched::cell::Missed;
use crate::sched::non_local::NonLocal;
use crate::timer::TimerKey;

/// The fates of the replies that a step has in hand.
#[derive(Default)]
pub(super) struct RepliesOfStep {
    pub(super) changes: Vec<Change>,
    pub(super) notices: Vec<Notice>,
    /// The replies that the new state has.
    pub(super) kept: BTreeMap<u64, QuestionKey>,
    /// The answers that are too late.
    pub(super) late: u64,
}

impl WhyNoReply {
    fn error(self, pid: impl Fn(u64) -> Option<Pid>) -> Result<CommandError, BoxError> {
        let pid = |serial| pid(serial).ok_or("the serial number of an asked process is out of range");
        Ok(match self {
            WhyNoReply::Dropped => CommandError::Dropped,
            WhyNoReply::TimedOut => CommandError::TimedOut,
            WhyNoReply::Ended(serial) => CommandError::Ended(pid(serial)?),
            WhyNoReply::Full(serial) => CommandError::Full(pid(serial)?),
            WhyNoReply::WrongType(serial) => CommandError::WrongType {
                pid: pid(serial)?,
                takes: "another type".into(),
                sent: "a stored question".into(),
            },
        })
    }
}

impl StoreCore {
    /// Makes the letter of a stored question. `None` if the question is not one that is stored.
    pub(super) fn new_question(
        &self,
        (to, ask, limit): (Pid, &Arc<Ask>, Duration),
        (lane, out): (u32, &mut StepOutput),
    ) -> Option<(NewQuestion, Letter)> {
        if self.answers.is_empty() || !self.answers.contains_key(&ask.answer_type()) {
            return None;
        }
        let (message, _) = out.outbox.look(lane, 0)?;
        let kind = self.messages.get(&message.type_id())?;
        let (tag, asker) = (ask.tag()?, self.number_of(out.pid)?);
        let key = QuestionKey { number: self.number().ok()?, asker, tag };
        ask.store_as(ReplyKey::Question(key));
        let (encoded, replies) = self.code(|| contain(|| (kind.encode)(kind.format, message)));
        let questions = questions_of(&replies).filter(|questions| questions.contains(&key));
        let (Ok(Ok(bytes)), Some(questions)) = (encoded, questions) else {
            // As any question that is in memory only. If the message cannot be written, the asker gets that error.
            ask.store_no_longer(ReplyKey::Question(key));
            return None;
        };
        let popped = out.outbox.lane(lane).pop()?;
        ask.store();
        let stored = Some((0, StoredBytes { format: kind.format, bytes, questions }));
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let deadline = self.wall_millis().saturating_add(millis).min(i64::MAX as u64);
        let deadline = (limit < Duration::MAX).then_some(deadline);
        Some((NewQuestion { tag, deadline }, Letter::new(to, popped, stored)))
    }

    /// Makes the letter of a question that ends with the run. `None` if its message cannot be written, or has no reply
    /// to such a question.
    pub(super) fn question_in_memory(
        &self,
        to: Pid,
        ask: &Arc<Ask>,
        (lane, out): (u32, &mut StepOutput),
    ) -> Option<Letter> {
        let (message, _) = out.outbox.look(lane, 0)?;
        let kind = self.messages.get(&message.type_id())?;
        let (encoded, replies) = self.code(|| contain(|| (kind.encode)(kind.format, message)));
        if !matches!(encoded, Ok(Ok(_))) || questions_of(&replies).is_some() {
            return None;
        }
        let popped = out.outbox.lane(lane).pop()?;
        Some(Letter { unsent: Some(Unsent::new(ask.clone())), ..Letter::new(to, popped, None) })
    }

    /// Why a question of a step to this process is a dead letter.
    pub(super) fn why_not_asked(
        &self,
        pid: Pid,
        (sent, message): (&'static str, &dyn Any),
        reason: DeadLetterReason,
    ) -> CommandError {
        match (reason, self.takes(pid, message.type_id())) {
            (DeadLetterReason::Full, _) => CommandError::Full(pid),
            (DeadLetterReason::WrongType, Err(Missed::WrongType(takes))) => {
                CommandError::WrongType { pid, takes: takes().into(), sent: sent.into() }
            }
            _ => NoSuchProcessError::Pid(pid).into(),
        }
    }

    /// The notice that a question has no answer.
    pub(super) fn no_reply(&self, key: QuestionKey, why: WhyNoReply) -> Notice {
        let answer = why.error(|serial| self.ticket(serial)).unwrap_or_else(CommandError::failed);
        Notice::reply(key, EventAnswer::NoReply(why), (None, Err(answer)))
    }

    /// Reads an answer to a question.
    pub(super) fn reply_of(&self, name: &str, value: &[u8]) -> Result<Answer, BoxError> {
        let kind = self.answers.values().find(|kind| kind.name == name);
        let kind = kind.ok_or_else(|| format!("the program does not know the answers {name:?}"))?;
        let (decoded, _) = self.run.code(|| contain(|| (kind.decode)(value)));
        Ok(Ok(decoded.unwrap_or_else(|panic| Err(Box::new(panic)))?))
    }

    pub(super) fn error_of(&self, why: WhyNoReply) -> Result<Answer, BoxError> {
        Ok(Err(why.error(|serial| self.ticket(serial))?))
    }

    /// Stores dead letters of this process. Their questions have no answer, and their askers are told so. No residence
    /// is locked. If the record is refused or lost, and if there are questions, the process is looked at again.
    pub(super) fn give_up(
        &self,
        core: &Arc<Core>,
        serial: u64,
        Buried { life, changes, begun }: Buried,
        (questions, why): (&[QuestionKey], WhyNoReply),
    ) {
        if changes.is_empty() && questions.is_empty() {
            return;
        }
        let mut notices: Vec<Notice> = questions.iter().map(|key| self.no_reply(*key, why)).collect();
        let (me, is_asked) = (self.me.clone(), !questions.is_empty());
        let waiter = Box::new(move |fate| {
            let Some(me) = me.upgrade() else { return };
            me.settle_burial(serial);
            if let Some(core) = me.core().filter(|_| is_asked && fate == Fate::Lost) {
                me.look_again(&core, serial);
            }
        });
        let told = self.with_residences(questions.iter().map(|key| key.asker).chain([serial]), |serials, locked| {
            notices.retain(|notice| notice.is_open(life, (serials, locked)));
            let mut record = Record { changes };
            let all = notices.iter().try_for_each(|notice| notice.change().map(|change| record.changes.push(change)));
            let record = all.ok().and_then(|()| EncodedRecord::new(&record).ok());
            let position = record.and_then(|record| self.tail.append(life, &record, Some(waiter)).ok());
            if let Ok(own) = serials.binary_search(&serial) {
                locked[own].burial.appended(begun, position.map(|position| (life, position)));
            }
            Some(self.notify_all(core, &mut notices, (serials, locked), (life, position?)))
        });
        self.keep_for_now();
        if told.is_none() {
            // No waiter settles it, because no record was appended.
            self.settle_burial(serial);
        }
        if told.is_none() && is_asked {
            self.look_again(core, serial);
        }
        for (to, key, notified) in told.into_iter().flatten() {
            self.notified(core, life, (to, to), key, notified);
        }
    }

    /// Has the messages of a process that is not in memory looked at again.
    pub(super) fn look_again(&self, core: &Arc<Core>, serial: u64) {
        let loads = self.residency.enter(serial, |residence| match residence.place {
            Place::Nobody | Place::Asleep => {
                residence.place = Place::Loading;
                true
            }
            Place::LeavingToSleep => {
                residence.place = Place::Leaving;
                false
            }
            _ => false,
        });
        if loads {
            // Not at once: the journal is about to be opened anew.
            self.load_later(core, serial);
        }
    }

    /// Calls `run` with the locked residences of these processes.
    fn with_residences<R>(
        &self,
        serials: impl Iterator<Item = u64>,
        run: impl FnOnce(&[u64], &mut [MutexGuard<'_, Residence>]) -> R,
    ) -> R {
        let mut serials: Vec<u64> = serials.collect();
        serials.sort_unstable();
        serials.dedup();
        loop {
            let residences: Vec<_> = serials.iter().map(|serial| self.residency.of(*serial)).collect();
            // In the order of the serial numbers. So no two threads wait for each other.
            let mut locked: Vec<MutexGuard<'_, Residence>> = residences.iter().map(|one| lock(one)).collect();
            if !locked.iter().any(|residence| matches!(residence.place, Place::Removed)) {
                return run(&serials, &mut locked);
            }
        }
    }

    /// Sets the timers of open questions of a process in memory.
    pub(super) fn limit_questions(&self, core: &Arc<Core>, resident: &Arc<Resident>, questions: &[(u64, Option<u64>)]) {
        if questions.is_empty() {
            return;
        }
        let now = self.wall_millis();
        for (tag, deadline) in questions.iter().filter_map(|(tag, deadline)| Some((*tag, (*deadline)?))) {
            let (me, weak, asker) = (self.me.clone(), Arc::downgrade(core), resident.clone());
            let over = move || {
                if let (Some(me), Some(core)) = (me.upgrade(), weak.upgrade()) {
                    me.time_out(&core, &asker, tag);
                }
            };
            let delay = Duration::from_millis(deadline.saturating_sub(now));
            // Without timers the runtime is shutting down.
            if let Ok(Some(key)) = core.timers.after(0, delay, Timed::Run(Box::new(over))) {
                let needless = resident.questions.note_timer(tag, key);
                self.cancel_timers(needless.into_iter().collect());
            }
        }
    }

    pub(super) fn cancel_timers(&self, timers: Vec<TimerKey>) {
        if let Some(core) = self.core().filter(|_| !timers.is_empty()) {
            timers.into_iter().for_each(|key| drop(core.timers.cancel(key.id())));
        }
    }

    /// The limit of a question is over. If its asker is not in memory, its next load finds that.
    fn time_out(&self, core: &Arc<Core>, asker: &Arc<Resident>, tag: u64) {
        let (serial, record) = (asker.serial, (asker.life, Position::START));
        let told = self.residency.enter(serial, |residence| {
            let is_here = matches!(&residence.place, Place::Resident(resident) if Arc::ptr_eq(resident, asker));
            let is_open = is_here && asker.awaits(tag);
            let mut notice = self.no_reply(QuestionKey { number: 0, asker: serial, tag }, WhyNoReply::TimedOut);
            is_open.then(|| residence.notify(&core.road, &mut notice, record))
        });
        if let Some(told) = told {
            self.notified(core, record.0, (serial, serial), (ANSWERS, tag), told);
        }
    }

    /// Completes the stored events of a process that was read: answers that came too late are removed, and questions
    /// whose limit is over have that answer.
    pub(super) fn complete_questions(&self, found: &mut Found) {
        let Found { serial, questions, events, .. } = found;
        let mut late = Vec::new();
        events.retain(|((class, tag), event)| {
            let is_reply = matches!(event, StoredEvent::Answer(EventAnswer::Reply { .. } | EventAnswer::NoReply(_)));
            let is_late = is_reply && questions.iter().all(|(open, _)| open != tag);
            late.extend(is_late.then(|| rows::answered(*serial, *class, *tag)));
            !is_late
        });
        self.count_late(late.len() as u64);
        self.remove(late);
        let now = self.wall_millis();
        for (tag, deadline) in questions.iter() {
            let key = (ANSWERS, *tag);
            if deadline.is_some_and(|deadline| deadline <= now) && events.iter().all(|(other, _)| *other != key) {
                let answer = EventAnswer::NoReply(WhyNoReply::TimedOut);
                events.push((key, StoredEvent::Answer(answer)));
            }
        }
    }

    pub(super) fn count_late(&self, answers: u64) {
        if let Some(core) = self.core() {
            (0..answers).for_each(|_| core.late_reply());
        }
    }
}

impl Resident {
    /// Whether this question of the process has no answer. The residence is locked.
    pub(super) fn awaits(&self, tag: u64) -> bool {
        self.questions.has(tag) && !lock(&self.events).contains_key(&(ANSWERS, tag))
    }

    /// The questions to others whose replies are in messages that no step has taken, but for those of these numbers.
    pub(super) fn unread_questions(&self, taken: impl Fn(u64) -> bool) -> Vec<QuestionKey> {
        let mail = lock(&self.mail);
        let left = mail.iter().filter(|(number, _)| !taken(**number)).flat_map(|(_, kept)| &kept.stored.questions);
        let mut left: Vec<QuestionKey> = left.filter(|key| key.asker != self.serial).copied().collect();
        left.sort_unstable();
        left
    }
}

/// The part of a step's record that concerns stored questions.
impl<P: Durable> DurableMachine<P> {
    /// Decides what becomes of the replies that a step has in hand. `state` has those of the new state.
    pub(super) fn settle_replies(
        &self,
        taken: &Taken,
        sorted: &mut Sorted,
        (state, is_over): (&[SeenReply], bool),
    ) -> Result<RepliesOfStep, StepError> {
        let (serial, mut all) = (self.resident.serial, RepliesOfStep::default());
        let mut in_hand = self.kept.clone();
        {
            let mail = lock(&self.resident.mail);
            let keys = taken.mail.iter().filter_map(|number| mail.get(number)).flat_map(|kept| &kept.stored.questions);
            in_hand.extend(keys.map(|key| (key.number, *key)));
        }
        let answered = std::mem::take(&mut sorted.replies);
        for ask in answered.iter().chain(&taken.dropped) {
            let Some(key) = ask.question() else { continue };
            let value = ask.take_any_answer();
            if in_hand.remove(&key.number).is_none() {
                all.late += u64::from(value.is_some());
                drop_contained(value);
                continue;
            }
            let notice = match value {
                Some(value) => self.reply(key, value)?,
                None if is_over => self.store.no_reply(key, WhyNoReply::Ended(serial)),
                None => self.store.no_reply(key, WhyNoReply::Dropped),
            };
            all.notices.push(notice);
        }
        for key in sorted.inside.iter().flat_map(Letter::questions) {
            in_hand.remove(&key.number);
        }
        for reply in state {
            if let ReplyKey::Question(key) = reply.key
                && in_hand.remove(&key.number).is_some()
            {
                all.kept.insert(key.number, key);
            }
        }
        let why = if is_over { WhyNoReply::Ended(serial) } else { WhyNoReply::Dropped };
        all.notices.extend(in_hand.into_values().map(|key| self.store.no_reply(key, why)));
        // Its own questions end with it.
        all.notices.retain(|notice| !(is_over && notice.to == serial));
        let gone = self.kept.keys().filter(|number| !all.kept.contains_key(number));
        all.changes.extend(gone.map(|number| rows::answered(serial, KEPT_REPLIES, *number)));
        for key in all.kept.values().filter(|key| !self.kept.contains_key(&key.number)) {
            all.changes.push(rows::kept_reply(serial, *key)?);
        }
        if !is_over {
            all.changes.extend(sorted.questions.iter().map(|new| rows::question(serial, new.tag, new.deadline)));
        }
        Ok(all)
    }

    /// The answer of a step to a stored question.
    fn reply(&self, key: QuestionKey, value: Box<dyn Any + Send>) -> Result<Notice, StepError> {
        let Some(kind) = self.store.answers.get(&(*value).type_id()) else {
            drop_contained(value);
            let why = "a stored question cannot be answered: name the type of its answer with `StoreBuilder::answers`";
            return Err(StepError::Failed(Failure::from(BoxError::from(why))));
        };
        let (encoded, has_reply) = self.store.run.code(|| contain(|| (kind.encode)(&*value)));
        let bytes = encoded.map_err(Failure::new)?.map_err(Failure::from)?;
        if has_reply {
            let why = "the answer to a stored question cannot have a reply";
            return Err(StepError::Failed(Failure::from(BoxError::from(why))));
        }
        let stored = EventAnswer::Reply { name: kind.name.to_owned(), value: bytes };
        Ok(Notice::reply(key, stored, (Some(self.resident.pid), Ok(value))))
    }

    /// Gives up replies that the last record has, and the state that was loaded has not: an operator has replaced it.
    /// Returns the result of the turn if their record is refused.
    pub(super) fn give_up_lost(&mut self, head: &mut Head, out: &mut StepOutput) -> Option<Stepped> {
        if self.kept.values().all(|key| self.replies.contains(&ReplyKey::Question(*key))) {
            return None;
        }
        let stored = self.store_step(head, out, &Taken::default(), self.stored.rest, None);
        let refused = Some(stored).filter(Result::is_err)?;
        let tags = head.tags;
        Some(self.after_store(head, out, (Taken::default(), tags), (Stepped::without_a_step(), false, refused)))
    }

    /// Sets the limits of questions that end with the run. Their messages were given to their receivers.
    pub(super) fn limit_asks(&self, head: &mut Head, asked: Vec<(Arc<Ask>, Duration)>) {
        let Some(core) = self.store.core() else { return };
        for (ask, limit) in asked {
            core.limit(&ask, limit, 0);
            head.rare().asked.note(ask);
        }
    }

    /// The record of a step was appended: its questions wait, and those that it has taken the answers of are over.
    pub(super) fn settle_questions(
        &mut self,
        taken: &Taken,
        new: Vec<NewQuestion>,
        step: RepliesOfStep,
        is_over: bool,
    ) {
        // First, because an answer that comes now must find that the question is over.
        self.store.cancel_timers(self.resident.questions.remove(taken.answers.iter()));
        self.store.count_late(step.late);
        self.kept = step.kept;
        if let Some(core) = self.store.core().filter(|_| !is_over && !new.is_empty()) {
            let new: Vec<_> = new.iter().map(|new| (new.tag, new.deadline)).collect();
            self.store.limit_questions(&core, &self.resident, &new);
        }
    }
}
