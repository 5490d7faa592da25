//! The limit of stored messages that wait for one process.

use std::collections::{HashMap, HashSet};

use super::core::StoreCore;
use super::journal::{Change, Record};
use super::letter::Letter;
use super::notice::Notice;
use super::residency::{Mail, Place, Residence, StoredBytes};
use super::rows::{self, MAIL, StoredDead, StoredMail, WhyDead, WhyNoReply};
use crate::primitives::{MutexGuard, lock};

/// The stored messages among these.
fn stored(mail: &[Mail]) -> usize {
    mail.iter().filter(|mail| mail.number.is_some()).count()
}

impl Residence {
    /// The number of stored messages that wait for the process, as far as it is known. A process that sleeps is loaded
    /// for the first message, and the load counts those on disk.
    pub(super) fn mail_count(&self) -> usize {
        match &self.place {
            Place::Resident(resident) => lock(&resident.mail).len(),
            _ => self.on_disk + stored(&self.waiting),
        }
    }

    /// A load has read these messages. Those that wait here as well are counted here.
    pub(super) fn count_mail(&mut self, read: &[(u64, StoredMail)]) {
        let waiting: HashSet<u64> = self.waiting.iter().filter_map(|mail| mail.number).collect();
        self.on_disk = read.iter().filter(|(number, _)| !waiting.contains(number)).count();
    }

    /// Takes out the messages that wait. Stored messages stay on disk, and are counted there.
    pub(super) fn leave_on_disk(&mut self) -> Vec<Mail> {
        self.on_disk += stored(&self.waiting);
        std::mem::take(&mut self.waiting)
    }
}

/// The messages of a step whose receivers are full.
#[derive(Default)]
pub(super) struct Surplus {
    /// Their places.
    pub(super) places: HashSet<usize>,
    /// The answers to the questions in them.
    pub(super) refused: Vec<Notice>,
}

impl StoreCore {
    /// Messages that were accepted in this run stay on disk.
    pub(super) fn take_back(&self, messages: u64) {
        if let Some(core) = self.core().filter(|_| messages > 0) {
            let counters = &core.road.outside;
            counters.take_back(&counters.accepted, messages);
        }
    }

    pub(super) fn is_full(&self, residence: &Residence) -> bool {
        residence.mail_count() >= self.settings.mailbox_limit
    }

    /// Makes dead letters of the messages of a step whose receivers are full, in the record of the step. Returns their
    /// places.
    pub(super) fn bury_surplus(
        &self,
        record: &mut Record,
        mail: &mut [Letter],
        (serials, locked): (&[u64], &[MutexGuard<'_, Residence>]),
    ) -> Surplus {
        let (mut sent, mut surplus, mut dead) = (HashMap::new(), Surplus::default(), HashSet::new());
        for (index, Letter { to, stored, .. }) in mail.iter_mut().enumerate() {
            let place = self.number_of(*to).and_then(|serial| serials.binary_search(&serial).ok());
            let Some(place) = place else { continue };
            // Also those that this step has sent before.
            let count: &mut usize = sent.entry(place).or_insert_with(|| locked[place].mail_count());
            if *count < self.settings.mailbox_limit {
                *count += usize::from(stored.is_some());
                continue;
            }
            surplus.places.insert(index);
            if let Some((number, StoredBytes { questions, .. })) = stored.take() {
                let why = WhyNoReply::Full(serials[place]);
                surplus.refused.extend(questions.into_iter().map(|key| self.no_reply(key, why)));
                dead.insert((serials[place], number));
            }
        }
        if !dead.is_empty() {
            let buried = record.changes.iter_mut().filter_map(|change| {
                let (serial, number) = mail_key(change).filter(|key| dead.contains(key))?;
                self.bury_row(change).then(|| rows::full(serial, number))
            });
            let buried: Vec<Change> = buried.collect();
            record.changes.extend(buried);
        }
        surplus
    }

    /// Makes a dead letter of a message that begins to wait. Returns whether it could.
    fn bury_row(&self, change: &mut Change) -> bool {
        let Change::Entry { serial, number, row: Some(row), .. } = &*change else { return false };
        let Some(mail) = rows::read_mail(&row.body) else { return false };
        let dead = StoredDead { mail, why: WhyDead::Full, since: self.wall_millis() };
        let Ok(dead) = rows::dead(*serial, *number, &dead, self.keep) else { return false };
        *change = dead;
        self.keep_for_now();
        true
    }
}

/// The receiver and the number of a message that begins to wait.
fn mail_key(change: &Change) -> Option<(u64, u64)> {
    match change {
        Change::Entry { serial, class: MAIL, number, row: Some(_) } => Some((*serial, *number)),
        _ => None,
    }
}
