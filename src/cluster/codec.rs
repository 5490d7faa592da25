//! Values of users as bytes: they are encoded and decoded within their scope, and contained.
//!
//! The bytes of a value are followed by the table of the lives that it names, and by the length of that table. Most
//! values name the two nodes only, and have an empty table.

use std::rc::Rc;

use super::lives::Life;
use super::output::Output;
use super::scope::{Scope, Side, within};
use super::wire::NotEncoded;
use crate::outcome::{BoxError, contain};
use crate::pid::Pid;
use crate::primitives::Arc;

/// The bytes of one life: its sort, its number, and the number that it wishes.
const LIFE: usize = 1 + 8 + 2;

/// A value that was encoded, and was not sent yet.
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    scope: Rc<Scope>,
}

impl Encoded {
    /// The value is not sent. The replies in it answer again.
    pub(crate) fn take_back(self) {
        self.scope.take_back();
    }
}

/// Encodes a value for the other side. If that fails, the replies in the value are as they were before.
pub(crate) fn encode<R>(
    side: &Arc<Side>,
    limit: usize,
    write: impl FnOnce(&mut Output) -> Result<R, NotEncoded>,
) -> Result<(R, Encoded), NotEncoded> {
    let scope = Rc::new(Scope::writing(side.clone()));
    let encoded = encode_within(&scope, limit, write);
    match encoded {
        Ok((result, bytes)) => Ok((result, Encoded { bytes, scope })),
        Err(error) => {
            scope.take_back();
            Err(error)
        }
    }
}

fn encode_within<R>(
    scope: &Rc<Scope>,
    limit: usize,
    write: impl FnOnce(&mut Output) -> Result<R, NotEncoded>,
) -> Result<(R, Vec<u8>), NotEncoded> {
    let mut output = Output::new(limit);
    let written = within(scope, || contain(|| write(&mut output)));
    let written = written.unwrap_or_else(|panic| Err(NotEncoded::Failed(panic.into())));
    // A type may hide an error. Its value is not sent all the same.
    if let Some(problem) = scope.take_problem() {
        return Err(NotEncoded::Failed(problem.into()));
    }
    let result = written?;
    let lives = scope.lives();
    let mut bytes = output.finish()?;
    for (life, wish) in &lives {
        let (sort, number) = match life {
            Life::Node(number) => (0, *number),
            Life::Store(number) => (1, *number),
        };
        bytes.push(sort);
        bytes.extend(number.to_le_bytes());
        bytes.extend((*wish as u16).to_le_bytes());
    }
    bytes.extend((lives.len() as u16).to_le_bytes());
    Ok((result, bytes))
}

/// Why the bytes of the other side were not decoded.
#[derive(Debug, thiserror::Error)]
#[error("the table of lives is not whole")]
struct BadTable;

/// Decodes a value of the other side for a process.
pub(crate) fn decode<R>(
    side: &Arc<Side>,
    reader: Pid,
    bytes: &[u8],
    read: impl FnOnce(&[u8]) -> Result<R, BoxError>,
) -> Result<R, BoxError> {
    let (value, lives) = split(bytes).ok_or(BadTable)?;
    let scope = Rc::new(Scope::reading(side.clone(), &lives, reader)?);
    within(&scope, || contain(|| read(value)))?
}

/// The lives that a value names, each with the number that it wishes.
type LifeTable = Vec<(Life, u32)>;

/// The bytes of the value, and the table of lives behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], LifeTable)> {
    let (rest, count) = bytes.split_last_chunk::<2>()?;
    let count = usize::from(u16::from_le_bytes(*count));
    let (value, table) = rest.split_at_checked(rest.len().checked_sub(count * LIFE)?)?;
    let life = |entry: &[u8]| {
        let (sort, entry) = entry.split_first()?;
        let (number, wish) = entry.split_first_chunk::<8>()?;
        let (number, wish) = (u64::from_le_bytes(*number), u16::from_le_bytes(wish.try_into().ok()?));
        let life = match sort {
            0 => Life::Node(number),
            1 => Life::Store(number),
            _ => return None,
        };
        Some((life, u32::from(wish)))
    };
    let lives: Option<LifeTable> = table.chunks_exact(LIFE).map(life).collect();
    Some((value, lives?))
}

#[cfg(all(test, not(loom)))]
mod tests;
