//! Counts the stored messages over the whole life of a store.
//!
//! The tables count the entries that are written and removed, by their classes (`journal/entry_counts.rs`). A message
//! is one entry of the class `MAIL` from its acceptance until it is stepped or becomes a dead letter. So a message that
//! is stepped twice is removed twice. A lost message was written, and is neither removed nor in the tables.
//!
//! | a message | its record |
//! |---|---|
//! | is accepted | writes `MAIL` |
//! | is stepped | removes `MAIL` |
//! | becomes a dead letter | removes `MAIL`, and writes `DEAD` |
//! | becomes a dead letter that has no row | removes `MAIL` and `UNSTORED` |
//! | becomes a dead letter because its receiver is full | writes `DEAD`, and removes `FULL` |
//!
//! Entries of the classes `UNSTORED` and `FULL` are never written. Their removals only count.

use serde::{Deserialize, Serialize};

use super::journal::{COUNTS, Damage, EntryCounts, JournalError, Reader};
use super::rows::{DEAD, FULL, MAIL, UNSTORED};

/// The number of messages that are read at once.
const PAGE: usize = 1_000;

/// Counts of the stored messages of a store, over its whole life.
///
/// `accepted` is the sum of the other three. A dead letter that is sent again is counted as accepted again.
///
/// If a version without these counts made the store, they begin with the messages that waited when this version opened
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MailCounts {
    /// Messages that the store has accepted.
    pub accepted: u64,
    /// Messages that a step has taken.
    pub stepped: u64,
    /// Messages that became dead letters.
    pub dead_letters: u64,
    /// Messages that wait now.
    pub queued: u64,
}

/// Counts the mail of these tables. Returns the damage if a message is missing or was taken twice.
pub(super) fn count_mail(reader: &mut dyn Reader) -> Result<Result<MailCounts, Damage>, JournalError> {
    let counts = reader.name(COUNTS.0, COUNTS.1)?.and_then(|row| EntryCounts::read(&row)).unwrap_or_default();
    let (mut queued, mut after) = (0, (0, 0));
    loop {
        let page = reader.of_class(MAIL, after, PAGE)?;
        queued += page.len() as u64;
        match page.last() {
            Some((serial, number, _)) if page.len() == PAGE => after = (*serial, *number),
            _ => break,
        }
    }
    let (mail, full, unstored) = (counts.of(MAIL), counts.of(FULL).removed, counts.of(UNSTORED).removed);
    let dead_letters = counts.of(DEAD).written + unstored;
    let stepped = (mail.removed + full).saturating_sub(dead_letters);
    if mail.written != mail.removed + queued {
        return Ok(Err(Damage::Mail { accepted: mail.written, taken: mail.removed, queued }));
    }
    Ok(Ok(MailCounts { accepted: mail.written + full, stepped, dead_letters, queued }))
}

/// Adds the damage of the counts to that of the rows. Rows that cannot be read are not counted.
pub(super) fn with_mail(mut found: Vec<Damage>, reader: &mut dyn Reader) -> Result<Vec<Damage>, JournalError> {
    match count_mail(reader) {
        Ok(counts) => found.extend(counts.err()),
        Err(JournalError::Damaged(_)) if !found.is_empty() => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}
