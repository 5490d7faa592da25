//! The writer of a store: commits what is in the tail, and opens the journal anew after errors.

use super::journal::{Damage, Journal, JournalError, Log, Opened};
use super::tail::{Tail, Work};

/// How many errors in a row close the store. A full disk does not count, and neither does a file that is locked.
const ERRORS: u32 = 3;

/// Commits all records of a tail until it is closed.
///
/// After an error the processes of the store are those of an earlier life: everything that is not on disk is lost.
/// `reopened` gets the journal as it is then. It is called before the tail takes records again. Its error is one of the
/// tables: the fates of lost records are known without them.
///
/// `pause` is called before each attempt to open the journal. A full disk can let the journal be opened and refuse the
/// next record, so that the writer would spin without it.
///
/// # Errors
///
/// The last error, after the third in a row. Also the error of an attempt while the tail is being closed, and an error
/// that no later attempt can change: damage, another format, and a journal that has lost records which were on disk.
pub(crate) fn write(
    tail: &Tail,
    journal: &mut dyn Journal,
    log: Box<dyn Log>,
    mut reopened: impl FnMut(Opened) -> (Box<dyn Log>, Result<(), JournalError>),
    mut pause: impl FnMut(),
) -> Result<(), JournalError> {
    let _closes = ClosesTail(tail);
    let mut writer = Writer::new(log);
    loop {
        if writer.is_broken() {
            pause();
            writer.open(tail, journal, &mut reopened)?;
        } else if !writer.work(tail, tail.take())? {
            return Ok(());
        }
    }
}

/// A writer between two of its calls of the journal.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` if the journal is to be opened anew.
    log: Option<Box<dyn Log>>,
    /// The errors in a row.
    errors: u32,
}

impl Writer {
    pub(crate) fn new(log: Box<dyn Log>) -> Writer {
        Writer { log: Some(log), errors: 0 }
    }

    /// Whether the journal is to be opened anew, after a pause.
    pub(crate) fn is_broken(&self) -> bool {
        self.log.is_none()
    }

    /// Does work of the tail. Returns whether there will be more.
    pub(crate) fn work(&mut self, tail: &Tail, work: Work) -> Result<bool, JournalError> {
        let error = match (work, &mut self.log) {
            (Work::End, _) => return Ok(false),
            (Work::Reopen { why }, _) => {
                why.map(|why| JournalError::Io { call: "reading or writing the tables", source: why.into() })
            }
            (Work::Commit(batch), Some(log)) => match log.commit(&batch) {
                Ok(()) => {
                    self.errors = 0;
                    tail.committed(&batch);
                    return Ok(true);
                }
                Err(error) => Some(error),
            },
            (Work::Commit(_), None) => Some(JournalError::Broken),
        };
        tail.rewind();
        // The files are closed before they are opened anew.
        self.log = None;
        error.map_or(Ok(()), |error| self.note(error)).map(|()| true)
    }

    /// Opens the journal anew. If that fails, it is to be tried again.
    pub(crate) fn open(
        &mut self,
        tail: &Tail,
        journal: &mut dyn Journal,
        reopened: &mut impl FnMut(Opened) -> (Box<dyn Log>, Result<(), JournalError>),
    ) -> Result<(), JournalError> {
        let error = match journal.open() {
            Ok(opened) if opened.recovered.last < tail.released() => {
                JournalError::Damaged(Damage::Missing(opened.recovered.last.next()))
            }
            Ok(opened) => {
                let last = opened.recovered.last;
                let (log, tables) = reopened(opened);
                self.log = Some(log);
                tail.reopened(last);
                if let Err(error) = tables {
                    tail.reopen(tail.life(), &error);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if tail.is_closing() {
            return Err(error);
        }
        self.note(error)
    }

    /// Notes an error. Returns it, if it ends the writer.
    fn note(&mut self, error: JournalError) -> Result<(), JournalError> {
        self.errors += u32::from(error.counts());
        let is_final = matches!(error, JournalError::Damaged(_) | JournalError::Format { .. });
        if is_final || self.errors >= ERRORS { Err(error) } else { Ok(()) }
    }
}

/// Closes the tail when the writer ends, also if it panics. Otherwise its waiters would wait for ever.
struct ClosesTail<'a>(&'a Tail);

impl Drop for ClosesTail<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
