//! The stored form of the messages of a step to processes of its store.

use super::core::{StepError, StoreCore};
use super::journal::Change;
use super::letter::{Letter, questions_of};
use super::residency::StoredBytes;
use super::rows::{self, StoredMail};
use crate::outcome::{Failure, contain};
use crate::pid::Pid;
use crate::process::propagation::encode;

/// The most bytes of a broadcast in the record of its step, in all copies. It is half of the largest record.
const LARGEST_BROADCAST: usize = 4 << 20;

impl StoreCore {
    /// Gives messages their stored form, if they can have one, and their numbers in order.
    pub(super) fn encode_letters(&self, letters: &mut [Letter]) -> Result<(), StepError> {
        let number = || self.number().map_err(|_| StepError::Rewound);
        for letter in letters {
            if let Some((given, _)) = &mut letter.stored {
                *given = number()?;
                continue;
            }
            if letter.unsent.is_some() {
                continue;
            }
            let Some(kind) = self.messages.get(&(*letter.message).type_id()) else { continue };
            let (encoded, replies) = self.code(|| contain(|| (kind.encode)(kind.format, &*letter.message)));
            let bytes = encoded.map_err(Failure::new)??;
            if let Some(questions) = questions_of(&replies) {
                letter.stored = Some((number()?, StoredBytes { format: kind.format, bytes, questions }));
            }
        }
        Ok(())
    }

    /// Whether so many copies of a message fit into a record, beside the rest of its step.
    pub(super) fn fits(&self, letter: &Letter, copies: usize) -> bool {
        let Some(kind) = self.messages.get(&(*letter.message).type_id()) else { return true };
        // An error, and a panic, come back when the message gets its stored form.
        let (encoded, _) = self.code(|| contain(|| (kind.encode)(kind.format, &*letter.message)));
        encoded.is_ok_and(|bytes| bytes.is_ok_and(|bytes| bytes.len().saturating_mul(copies) <= LARGEST_BROADCAST))
    }

    /// The row of a message of this process.
    pub(super) fn mail_of(&self, from: Pid, letter: &Letter) -> Result<Option<Change>, StepError> {
        let kind = self.messages.get(&(*letter.message).type_id());
        let (Some(kind), Some((number, stored))) = (kind, &letter.stored) else { return Ok(None) };
        let mail = StoredMail {
            from: Some(self.run.note(from)),
            kinds: kind.kinds.clone(),
            format: stored.format,
            message: stored.bytes.clone(),
            questions: stored.questions.clone(),
            trace: letter.trace.get().and_then(|trace| encode(&**trace)),
        };
        Ok(Some(rows::mail(self.number_of(letter.to).unwrap_or_default(), *number, &mail)?))
    }
}
