//! Dead letters: stored messages that no step will take.

use std::collections::{HashMap, HashSet};

use super::burial::Buried;
use super::core::StoreCore;
use super::journal::{Change, Record};
use super::repair::NotRepaired;
use super::residency::{Kept, Mail, Place, Resident, bury};
use super::rows::{self, REQUESTS, StoredDead, StoredMail, StoredRequest, WhyDead, WhyNoReply};
use super::tail::Life;
use crate::outcome::drop_contained;
use crate::primitives::Arc;
use crate::process::DeadLetterReason;
use crate::process::reply::QuestionKey;
use crate::runtime::Core;

/// The bytes of messages that a process can leave as dead letters when it ends. They go into its last record.
pub(super) const LEFT_AT_AN_END: usize = 1 << 20;

/// The numbers of the messages that a step takes, whose changes these are.
fn taken_by(resident: &Resident, changes: &[Change]) -> HashSet<u64> {
    let taken = |change: &Change| match change {
        Change::Entry { serial, class: rows::MAIL, number, row: None } if *serial == resident.serial => Some(*number),
        _ => None,
    };
    changes.iter().filter_map(taken).collect()
}

impl StoreCore {
    /// The rows that change when a stored message becomes a dead letter.
    pub(super) fn dead_rows(&self, (serial, number): (u64, u64), mail: StoredMail, why: WhyDead) -> Vec<Change> {
        let dead = rows::dead(serial, number, &StoredDead { mail, why, since: self.wall_millis() }, self.keep);
        vec![rows::taken(serial, number), dead.unwrap_or_else(|_| rows::unstored(serial, number))]
    }

    /// The rows that change when this message becomes a dead letter. None, if it is not stored.
    pub(super) fn dead_letter(&self, serial: u64, mail: &Mail, reason: DeadLetterReason) -> Vec<Change> {
        let (Some(number), Some(stored)) = (mail.number, &mail.stored) else { return Vec::new() };
        let kinds = self.messages.get(&(*mail.message).type_id()).map(|kind| kind.kinds.clone());
        let stored = StoredMail {
            from: mail.from.map(|from| self.run.note(from)),
            kinds: kinds.unwrap_or_default(),
            format: stored.format,
            message: stored.bytes.clone(),
            questions: stored.questions.clone(),
            trace: None,
        };
        let why = if reason == DeadLetterReason::WrongType { WhyDead::WrongType } else { WhyDead::Ended };
        self.dead_rows((serial, number), stored, why)
    }

    /// Makes dead letters of the messages that wait for a process that has ended, and of these rows, and reports the
    /// former. The burials of the rows have begun. Nothing is stored for waiting messages that are settled: they were
    /// lost with an earlier life, or have a row in `stored`.
    pub(super) fn becomes_nobody(
        &self,
        core: &Arc<Core>,
        (serial, life): (u64, Life),
        stored: Vec<(u64, StoredMail)>,
        is_settled: impl Fn(u64, Life) -> bool,
    ) {
        let is_settled = |mail: &Mail| mail.number.is_some_and(|number| is_settled(number, mail.life));
        let (waiting, requests, needless) = self.residency.enter(serial, |residence| {
            residence.place = Place::Nobody;
            let needless = residence.outside.forget_all();
            let waiting = std::mem::take(&mut residence.waiting);
            residence.burial.begin(waiting.iter().filter(|mail| mail.is_stored() && !is_settled(mail)).count());
            (waiting, std::mem::take(&mut residence.requests), needless)
        });
        drop_contained(needless);
        self.refuse_repairs(serial, &NotRepaired::NoSuchProcess);
        self.replies.give_up(serial, &[]);
        let to = self.ticket(serial).unwrap_or(core.road.table.nobody());
        let over = |(number, ..): (u64, Life, StoredRequest)| rows::answered(serial, REQUESTS, number);
        self.remove_in(life, requests.into_iter().map(over).collect());
        let why = WhyNoReply::Ended(serial);
        for mail in waiting.iter().filter(|mail| !is_settled(mail)) {
            let changes = self.dead_letter(serial, mail, DeadLetterReason::Ended);
            let buried = Buried { life: life.max(mail.life), changes, begun: usize::from(mail.is_stored()) };
            self.give_up(core, serial, buried, (&mail.questions(), why));
        }
        for (number, mail) in stored {
            let questions = mail.questions.clone();
            let changes = self.dead_rows((serial, number), mail, WhyDead::Ended);
            self.give_up(core, serial, Buried { life, changes, begun: 1 }, (&questions, why));
        }
        // These calls are last, because they run code of users, and a load of this process waits for open burials.
        for mail in waiting {
            let name = self.messages.get(&(*mail.message).type_id()).map_or("", |kind| kind.name);
            bury(&core.road, name, to, mail, DeadLetterReason::Ended);
        }
    }

    /// The fate of a record with dead letters of this process is known. Removes the residence if it was kept for them.
    pub(super) fn settle_burial(&self, serial: u64) {
        self.residency.forget_if(serial, |residence| {
            let is_settled = |(life, position)| self.tail.is_settled(life, position);
            residence.burial.settle(is_settled);
            let is_asleep = || matches!(residence.place, Place::Asleep) && residence.is_empty();
            (residence.is_needless_nobody() || is_asleep() && residence.outside.is_empty())
                && residence.burial.is_over()
                && residence.left_behind.is_none_or(is_settled)
        });
    }

    /// The questions in messages that a process has not taken, and that its last step does not take either.
    pub(super) fn left_questions(&self, resident: &Resident, record: &Record) -> Vec<QuestionKey> {
        let taken = taken_by(resident, &record.changes);
        resident.unread_questions(|number| taken.contains(&number))
    }

    /// The rows that change when a process ends before it has taken these messages. The first ones become dead letters.
    /// `changes` are those of its last step, with the messages that this step takes.
    pub(super) fn dead_mail(&self, resident: &Resident, left: &HashMap<u64, Kept>, changes: &[Change]) -> Vec<Change> {
        let taken = taken_by(resident, changes);
        let mut left: Vec<(&u64, &Kept)> = left.iter().filter(|(number, _)| !taken.contains(number)).collect();
        left.sort_unstable_by_key(|(number, _)| **number);
        let kinds = self.messages.get(&resident.message).map(|kind| kind.kinds.clone()).unwrap_or_default();
        let mut bytes = 0;
        let rows_of = |(number, kept): (&u64, &Kept)| {
            bytes += kept.stored.bytes.len();
            if bytes > LEFT_AT_AN_END {
                return vec![rows::taken(resident.serial, *number), rows::unstored(resident.serial, *number)];
            }
            let mail = StoredMail {
                from: kept.from.map(|from| self.run.note(from)),
                kinds: kinds.clone(),
                format: kept.stored.format,
                message: kept.stored.bytes.clone(),
                questions: kept.stored.questions.clone(),
                trace: None,
            };
            self.dead_rows((resident.serial, *number), mail, WhyDead::Ended)
        };
        left.into_iter().flat_map(rows_of).collect()
    }
}
