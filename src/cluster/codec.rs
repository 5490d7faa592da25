//! Values of users as bytes: they are encoded and decoded within their scope, and contained.
//!
//! Two tables follow the bytes of a value, and then the lengths of the two. The first one has the lives that the value
//! names, and the second one the numbers of the questions whose replies it has. Most values have empty tables. If a
//! value cannot be decoded, the second table says which askers are to be told.

use std::rc::Rc;

use super::lives::Life;
use super::output::Output;
use super::scope::{MAX_ASKS, MAX_LIVES, Scope, Side, within};
use super::wire::NotEncoded;
use crate::outcome::{BoxError, contain};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::Ask;

/// The bytes of one life: its sort, its number, and the number that it wishes.
const LIFE: usize = 1 + 8 + 2;

/// The bytes of the number of a question.
const ASK: usize = 8;

/// A value that was encoded, and was not sent yet.
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    scope: Rc<Scope>,
}

/// The replies in a value that was encoded.
pub(crate) struct Exports(Rc<Scope>);

impl Exports {
    /// The numbers of their questions.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.asks()
    }

    /// The value is not sent. The replies in it answer again.
    pub(crate) fn take_back(self) {
        self.0.take_back();
    }
}

impl Encoded {
    pub(crate) fn has_replies(&self) -> bool {
        !self.scope.asks().is_empty()
    }

    /// The value is not sent. The replies in it answer again.
    pub(crate) fn take_back(self) {
        self.scope.take_back();
    }

    pub(crate) fn into_parts(self) -> (Vec<u8>, Exports) {
        (self.bytes, Exports(self.scope))
    }
}

/// Encodes a value for the other side. `sender` is the packed PID of the process that sends it, or 0. If that fails,
/// the replies in the value are as they were before.
pub(crate) fn encode<R>(
    side: &Arc<Side>,
    (sender, limit): (u64, usize),
    write: impl FnOnce(&mut Output) -> Result<R, NotEncoded>,
) -> Result<(R, Encoded), NotEncoded> {
    let scope = Rc::new(Scope::writing(side.clone(), sender));
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
    let asks = scope.asks();
    for (life, wish) in &lives {
        let (sort, number) = match life {
            Life::Node(number) => (0, *number),
            Life::Store(number) => (1, *number),
        };
        bytes.push(sort);
        bytes.extend(number.to_le_bytes());
        bytes.extend((*wish as u16).to_le_bytes());
    }
    asks.iter().for_each(|ask| bytes.extend(ask.to_le_bytes()));
    bytes.extend((lives.len() as u16).to_le_bytes());
    bytes.extend((asks.len() as u16).to_le_bytes());
    Ok((result, bytes))
}

/// The bytes of the other side are not a value with its tables.
#[derive(Debug, thiserror::Error)]
#[error("the tables behind a value are not whole")]
pub(crate) struct BadTables;

/// The lives that a value names, each with the number that it wishes.
type LifeTable = Vec<(Life, u32)>;

/// An encoded value of the other side.
pub(crate) struct Opened<'b> {
    /// The bytes of the value.
    pub(crate) value: &'b [u8],
    scope: Rc<Scope>,
}

/// Looks at the tables behind a value.
pub(crate) fn open<'b>(side: &Arc<Side>, bytes: &'b [u8]) -> Result<Opened<'b>, BoxError> {
    let (value, lives, asks) = split(bytes).ok_or(BadTables)?;
    Ok(Opened { value, scope: Rc::new(Scope::reading(side.clone(), lives, asks)) })
}

impl Opened<'_> {
    /// Decodes the value, or a part of it. `reader` is the process that is presumed to answer its questions.
    pub(crate) fn decode<R>(
        &self,
        reader: Option<Pid>,
        decode: impl FnOnce() -> Result<R, BoxError>,
    ) -> Result<R, BoxError> {
        self.scope.set_reader(reader);
        within(&self.scope, || contain(decode))?
    }

    /// The numbers of the questions whose replies the value has.
    pub(crate) fn asks(&self) -> &[u64] {
        self.scope.asks_to_read()
    }

    /// The questions whose replies were decoded, with their numbers.
    pub(crate) fn imported(&self) -> Vec<(u64, Arc<Ask>)> {
        self.scope.take_imported()
    }
}

/// The bytes of the value, and the two tables behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], LifeTable, Vec<u64>)> {
    let (rest, asks) = bytes.split_last_chunk::<2>()?;
    let (rest, lives) = rest.split_last_chunk::<2>()?;
    let (lives, asks) = (usize::from(u16::from_le_bytes(*lives)), usize::from(u16::from_le_bytes(*asks)));
    if lives > MAX_LIVES || asks > MAX_ASKS {
        return None;
    }
    let (rest, asks) = rest.split_at_checked(rest.len().checked_sub(asks * ASK)?)?;
    let (value, lives) = rest.split_at_checked(rest.len().checked_sub(lives * LIFE)?)?;
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
    let lives: Option<LifeTable> = lives.chunks_exact(LIFE).map(life).collect();
    let asks = asks.chunks_exact(ASK).filter_map(|number| Some(u64::from_le_bytes(number.try_into().ok()?)));
    Some((value, lives?, asks.collect()))
}

#[cfg(all(test, not(loom)))]
mod tests;
