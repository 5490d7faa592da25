//! Values of users as bytes: they are encoded and decoded within their scope, and contained.
//!
//! Two tables follow the bytes of a value, and then the lengths of the two. The first one has the lives that the value
//! names, and the second one the numbers of the questions whose replies it has. Most values have empty tables. If a
//! value cannot be decoded, the second table says which askers are to be told.
//!
//! A value may have *headers*, in front of the tables. The highest bit of the length of the second table says that it
//! has. Each header has a sort, and a reader passes over the sorts that it does not know. A value without headers has
//! no byte for them.

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

/// The bit of the number of questions that says that the value has headers.
const HAS_HEADERS: u16 = 1 << 15;

/// The header with the context of a trace.
const TRACE: u8 = 1;

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
    encode_in_trace(side, (sender, limit), None, write)
}

/// As `encode`. The value has the context of a trace, as its propagator has written it.
pub(crate) fn encode_in_trace<R>(
    side: &Arc<Side>,
    (sender, limit): (u64, usize),
    trace: Option<&[u8]>,
    write: impl FnOnce(&mut Output) -> Result<R, NotEncoded>,
) -> Result<(R, Encoded), NotEncoded> {
    let scope = Rc::new(Scope::writing(side.clone(), sender));
    let encoded = encode_within(&scope, limit, trace, write);
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
    trace: Option<&[u8]>,
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
    trace.into_iter().for_each(|trace| put_headers(&mut bytes, &[(TRACE, trace)]));
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
    let has_headers = if trace.is_some() { HAS_HEADERS } else { 0 };
    bytes.extend((asks.len() as u16 | has_headers).to_le_bytes());
    Ok((result, bytes))
}

/// Writes headers, and then their length. Each has less than 64 KiB, and so have all together.
fn put_headers(bytes: &mut Vec<u8>, headers: &[(u8, &[u8])]) {
    let begin = bytes.len();
    for (sort, header) in headers {
        bytes.push(*sort);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(*header);
    }
    bytes.extend(((bytes.len() - begin) as u16).to_le_bytes());
}

/// The header with the context of a trace, if there is one. An error if the headers are torn.
fn trace_in(mut headers: &[u8]) -> Result<Option<&[u8]>, BadTables> {
    let mut trace = None;
    while let Some((sort, rest)) = headers.split_first() {
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(BadTables)?;
        let (header, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or(BadTables)?;
        if *sort == TRACE {
            trace = Some(header);
        }
        headers = rest;
    }
    Ok(trace)
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
    /// The context of a trace, as a propagator has written it.
    pub(crate) trace: Option<&'b [u8]>,
    scope: Rc<Scope>,
}

/// Looks at the tables behind a value.
pub(crate) fn open<'b>(side: &Arc<Side>, bytes: &'b [u8]) -> Result<Opened<'b>, BoxError> {
    let (value, headers, lives, asks) = split(bytes).ok_or(BadTables)?;
    Ok(Opened { value, trace: trace_in(headers)?, scope: Rc::new(Scope::reading(side.clone(), lives, asks)) })
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

/// The bytes of a value, its headers, and the two tables behind them.
type Parts<'b> = (&'b [u8], &'b [u8], LifeTable, Vec<u64>);

fn split(bytes: &[u8]) -> Option<Parts<'_>> {
    let (rest, asks) = bytes.split_last_chunk::<2>()?;
    let (rest, lives) = rest.split_last_chunk::<2>()?;
    let (lives, asks) = (u16::from_le_bytes(*lives), u16::from_le_bytes(*asks));
    let has_headers = asks & HAS_HEADERS != 0;
    let (lives, asks) = (usize::from(lives), usize::from(asks & !HAS_HEADERS));
    if lives > MAX_LIVES || asks > MAX_ASKS {
        return None;
    }
    let (rest, asks) = rest.split_at_checked(rest.len().checked_sub(asks * ASK)?)?;
    let (rest, lives) = rest.split_at_checked(rest.len().checked_sub(lives * LIFE)?)?;
    let (value, headers) = if has_headers { split_headers(rest)? } else { (rest, &[][..]) };
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
    Some((value, headers, lives?, asks.collect()))
}

fn split_headers(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, length) = bytes.split_last_chunk::<2>()?;
    rest.split_at_checked(rest.len().checked_sub(u16::from_le_bytes(*length).into())?)
}

#[cfg(all(test, not(loom)))]
mod tests;
