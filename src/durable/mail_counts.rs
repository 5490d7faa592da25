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
//! Entries of the last two classes are never written. Their removals only count. No message becomes a dead letter in
//! two records: see `burial`.

use serde::{Deserialize, Serialize};

use super::journal::{COUNTS, Damage, EntryCounts, JournalError, Position, Reader, Tables};
use super::rows::{DEAD, FULL, MAIL, UNSTORED};

/// The stored messages of a store, over its whole life: `accepted` is the sum of the others. Each sending of a dead
/// letter again is accepted anew.
///
/// The counts of a store that another version has written begin again when this version first brings the tables up to
/// the log. They begin with the messages that wait then.
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

/// Counts the mail of these tables. The damage, if a message is missing or was taken twice.
///
/// Counts that are not those of the mark, or that cannot be read, begin with the messages that wait.
pub(super) fn count_mail(
    tables: &mut dyn Tables,
    reader: &mut dyn Reader,
) -> Result<Result<MailCounts, Damage>, JournalError> {
    // This applies nothing, and returns the mark.
    let mark = tables.apply(Position::START)?;
    let row = match reader.name(COUNTS.0, COUNTS.1) {
        Err(JournalError::Damaged(_)) => None,
        row => row?,
    };
    let queued = reader.count_at_once(MAIL)?;
    let counts = row.and_then(|row| EntryCounts::read(&row, mark));
    let counts = counts.unwrap_or_else(|| EntryCounts::of_waiting(queued));
    let (mail, full, unstored) = (counts.of(MAIL), counts.of(FULL).removed, counts.of(UNSTORED).removed);
    let dead_letters = counts.of(DEAD).written + unstored;
    let stepped = (mail.removed + full).checked_sub(dead_letters);
    Ok(match stepped.filter(|_| mail.written == mail.removed + queued) {
        Some(stepped) => Ok(MailCounts { accepted: mail.written + full, stepped, dead_letters, queued }),
        None => Err(Damage::Mail { accepted: mail.written, taken: mail.removed, queued }),
    })
}

/// Finds the damage of the rows, and of the counts. Rows that cannot be read are not counted.
pub(super) fn check(tables: &mut dyn Tables, reader: &mut dyn Reader) -> Result<Vec<Damage>, JournalError> {
    let mut found = tables.check()?;
    match count_mail(tables, reader) {
        Ok(counts) => found.extend(counts.err()),
        Err(JournalError::Damaged(_)) if !found.is_empty() => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}
