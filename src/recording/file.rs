//! The file of a recording: how it is written, and how it is read.
//!
//! ```text
//! file  = "PROCREC" format:u8 frame*
//! frame = length:u32 kind:u8 check:u32 body crc:u32
//! ```
//!
//! Numbers of a fixed size have their lowest byte first. `length` is that of the body. `check` is the CRC-32 of the
//! number of the frame in the file, the length and the kind. `crc` is the CRC-32 of `check` and the body. So a reader
//! trusts a length only if it is intact. A frame that is missing, or in another place, does not fit either.
//!
//! The first frame says what is recorded. The last one says that the file is whole. Other numbers inside of bodies have
//! seven bits a byte: see `codec.rs`. Readers skip frames of a kind that they do not know. A change that readers must
//! not skip needs another number of the format.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::codec::{DecodeError, Input, Recordable, put_list};
use super::item::RecordedStep;
use super::log::{Frames, RecordedProcess};
use super::ring::{SNAPSHOT, STEP};
use crate::primitives::Arc;
use crate::process::Pid;

/// The number of the format that this version of the crate writes, and the only one that it reads.
pub const FORMAT: u8 = 1;

const MAGIC: &[u8; 7] = b"PROCREC";

/// The kinds of frames, beside `STEP` and `SNAPSHOT`.
const ABOUT: u8 = 1;
const UNFINISHED: u8 = 4;
const END: u8 = 5;

/// The bytes of a frame before its body.
const HEAD: usize = 9;

/// The bytes of a frame after its body.
const TAIL: usize = 4;

/// Why a recording was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaveCause {
    /// A step has failed.
    Failed,
    /// A step has panicked.
    Panicked,
    /// A step runs for longer than the [`Watchdog`](crate::config::Watchdog) allows.
    Stuck,
    /// [`Runtime::save_recording`](crate::Runtime::save_recording) was called.
    Asked,
    /// The process has ended, and [`Recorder::save_at_end`](super::Recorder::save_at_end) was set.
    Ended,
}

impl SaveCause {
    const ALL: [SaveCause; 5] =
        [SaveCause::Failed, SaveCause::Panicked, SaveCause::Stuck, SaveCause::Asked, SaveCause::Ended];
}

impl fmt::Display for SaveCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SaveCause::Failed => "a step failed",
            SaveCause::Panicked => "a step panicked",
            SaveCause::Stuck => "a step was stuck",
            SaveCause::Asked => "it was asked for",
            SaveCause::Ended => "the process ended",
        })
    }
}

/// Why a file is no recording, or not one that this version can read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error("the recording {path:?} cannot be read: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
    /// The file does not begin as a recording does.
    #[error("this is no recording: it does not begin with `PROCREC`")]
    NotARecording,
    /// The file has another format.
    #[error("the recording has format {found}, and this version of the crate reads format {known}")]
    Format {
        /// The format of the file.
        found: u8,
        /// The format that this version reads: [`FORMAT`].
        known: u8,
    },
    /// The file ends before it says what is recorded.
    #[error("the recording ends at byte {at}, before it says what is recorded")]
    Cut {
        /// The number of bytes that the file has.
        at: usize,
    },
    /// A byte of the file was changed.
    #[error("the recording is damaged at byte {at}: {what}")]
    Damaged {
        /// The byte at which the damaged frame begins.
        at: usize,
        /// The part that does not fit.
        what: &'static str,
    },
    /// A frame cannot be decoded.
    #[error("the recording says something that this version cannot decode, at byte {at}: {error}")]
    Malformed {
        /// The byte at which the frame begins.
        at: usize,
        /// Why not.
        #[source]
        error: DecodeError,
    },
}

/// The head of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) crate_version: String,
    pub(super) version: String,
    pub(super) process: String,
    pub(super) message: String,
    pub(super) pid: Pid,
    pub(super) name: Option<Arc<str>>,
    pub(super) seed: u64,
    pub(super) cause: u8,
    pub(super) entry: Option<Vec<u8>>,
}

impl Recordable for About {
    fn encode(&self, to: &mut Vec<u8>) {
        self.crate_version.encode(to);
        self.version.encode(to);
        self.process.encode(to);
        self.message.encode(to);
        self.pid.encode(to);
        self.name.encode(to);
        self.seed.encode(to);
        self.cause.encode(to);
        self.entry.is_some().encode(to);
        self.entry.iter().for_each(|entry| put_list(entry, to));
    }

    fn decode(from: &mut Input<'_>) -> Result<About, DecodeError> {
        Ok(About {
            crate_version: from.take()?,
            version: from.take()?,
            process: from.take()?,
            message: from.take()?,
            pid: from.take()?,
            name: from.take()?,
            seed: from.take()?,
            cause: from.take()?,
            entry: if from.take()? { Some(from.take_list()?.to_vec()) } else { None },
        })
    }
}

/// Writes frames one after the other.
struct Writer {
    bytes: Vec<u8>,
    frames: u32,
}

impl Writer {
    fn frame(&mut self, kind: u8, body: &[u8]) {
        let Ok(length) = u32::try_from(body.len()) else { return };
        let check = check_of(self.frames, length, kind);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&check.to_le_bytes());
        self.bytes.extend_from_slice(body);
        self.bytes.extend_from_slice(&crc_of(check, body).to_le_bytes());
        self.frames += 1;
    }
}

fn check_of(number: u32, length: u32, kind: u8) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(&[kind]);
    hasher.finalize()
}

fn crc_of(check: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&check.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// The bytes of a file with these frames.
pub(super) fn write(process: &RecordedProcess, version: &str, cause: SaveCause, frames: &Frames) -> Vec<u8> {
    let cause = SaveCause::ALL.iter().position(|one| *one == cause).unwrap_or_default() as u8;
    let about = About {
        crate_version: env!("CARGO_PKG_VERSION").to_owned(),
        version: version.to_owned(),
        process: process.process.to_owned(),
        message: process.message.to_owned(),
        pid: process.pid,
        name: process.name.clone(),
        seed: frames.seed,
        cause,
        entry: process.entry.clone(),
    };
    let mut writer = Writer { bytes: MAGIC.to_vec(), frames: 0 };
    writer.bytes.push(FORMAT);
    let mut body = Vec::new();
    about.encode(&mut body);
    writer.frame(ABOUT, &body);
    frames.all.iter().for_each(|(kind, body)| writer.frame(*kind, body));
    frames.unfinished.iter().for_each(|body| writer.frame(UNFINISHED, body));
    writer.frame(END, &[]);
    writer.bytes
}

/// The byte at which the first frame begins.
const FIRST: usize = MAGIC.len() + 1;

/// A frame that was read: its kind, the byte at which it begins, and its body.
struct Frame {
    kind: u8,
    at: usize,
    body: Range<usize>,
}

/// The result of a look for the next frame.
enum Found {
    Frame(Frame),
    /// The file ends within the frame, or before it.
    Cut,
    Damaged(&'static str),
}

fn frame_at(bytes: &[u8], at: usize, number: u32) -> Found {
    let Some(head) = bytes.get(at..at + HEAD) else { return Found::Cut };
    let word = |place: usize| u32::from_le_bytes([head[place], head[place + 1], head[place + 2], head[place + 3]]);
    let (length, kind, check) = (word(0), head[4], word(5));
    if check != check_of(number, length, kind) {
        return Found::Damaged("the head of a frame was changed");
    }
    let start = at + HEAD;
    let body = start..start.saturating_add(length as usize);
    let (Some(content), Some(crc)) = (bytes.get(body.clone()), bytes.get(body.end..body.end.saturating_add(TAIL)))
    else {
        return Found::Cut;
    };
    if crc != crc_of(check, content).to_le_bytes() {
        return Found::Damaged("the content of a frame was changed");
    }
    Found::Frame(Frame { kind, at, body })
}

/// A recording that was read from a file. [`Recording::replay`] steps its process again.
///
/// It keeps no list of the frames: for a file of small frames, the list would need more memory than the file.
pub struct Recording {
    /// The bytes up to the end of the last whole frame were checked.
    bytes: Vec<u8>,
    pub(super) about: About,
    /// The end of the last whole frame.
    end: usize,
    cut: Option<usize>,
    skipped: usize,
}

impl Recording {
    /// Reads the recording in this file.
    ///
    /// # Errors
    /// The file cannot be read, is no recording, has another format, or was damaged. A file that was cut off is no
    /// error, if it still says what is recorded: see [`cut`](Self::cut).
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, OpenError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        Recording::from_bytes(bytes)
    }

    /// Reads a recording. It needs no memory beside the bytes and the head.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Recording, OpenError> {
        let begins = bytes.iter().zip(MAGIC).all(|(one, other)| one == other);
        if !begins {
            return Err(OpenError::NotARecording);
        }
        match bytes.get(MAGIC.len()) {
            None => return Err(OpenError::Cut { at: bytes.len() }),
            Some(&FORMAT) => {}
            Some(&found) => return Err(OpenError::Format { found, known: FORMAT }),
        }
        let (mut at, mut number, mut about, mut skipped) = (FIRST, 0, None, 0);
        let cut = loop {
            let frame = match frame_at(&bytes, at, number) {
                Found::Frame(frame) => frame,
                Found::Cut => break Some(at),
                Found::Damaged(what) => return Err(OpenError::Damaged { at, what }),
            };
            (at, number) = (frame.body.end + TAIL, number + 1);
            match frame.kind {
                ABOUT if about.is_none() => {
                    let decoded = Input::new(&bytes[frame.body.clone()]).take();
                    about = Some(decoded.map_err(|error| OpenError::Malformed { at: frame.at, error })?);
                }
                _ if about.is_none() => {
                    return Err(OpenError::Damaged { at: frame.at, what: "it does not say what is recorded" });
                }
                STEP | SNAPSHOT | UNFINISHED => {}
                END if at == bytes.len() => break None,
                END => return Err(OpenError::Damaged { at, what: "bytes follow the end" }),
                _ => skipped += 1,
            }
        };
        let Some(about) = about else { return Err(OpenError::Cut { at: bytes.len() }) };
        Ok(Recording { bytes, about, end: at, cut, skipped })
    }

    /// The steps and snapshots, beginning with the frame at this byte.
    fn frames_from(&self, mut at: usize) -> impl Iterator<Item = Frame> {
        let next = move || {
            let head = self.bytes[..self.end].get(at..at + HEAD)?;
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let frame = Frame { kind: head[4], at, body: at + HEAD..at + HEAD + length };
            at = frame.body.end + TAIL;
            Some(frame)
        };
        std::iter::from_fn(next).filter(|frame| matches!(frame.kind, STEP | SNAPSHOT | UNFINISHED))
    }

    fn frames(&self) -> impl Iterator<Item = Frame> {
        self.frames_from(FIRST)
    }

    /// The PID of the process.
    pub fn pid(&self) -> Pid {
        self.about.pid
    }

    /// The name of the process, if it had one when it began.
    pub fn name(&self) -> Option<&str> {
        self.about.name.as_deref()
    }

    /// The type of the process, by the name that the recorded program had for it.
    pub fn process_type(&self) -> &str {
        &self.about.process
    }

    /// The type of the messages, by the name that the recorded program had for it.
    pub fn message_type(&self) -> &str {
        &self.about.message
    }

    /// The version of the program: see [`Recorder::version`](super::Recorder::version).
    pub fn version(&self) -> &str {
        &self.about.version
    }

    /// The version of this crate in the recorded program.
    pub fn crate_version(&self) -> &str {
        &self.about.crate_version
    }

    /// Why the recording was saved. `None` if this version does not know the cause.
    pub fn cause(&self) -> Option<SaveCause> {
        SaveCause::ALL.get(usize::from(self.about.cause)).copied()
    }

    /// The byte after the last whole frame, if the file was cut off.
    pub fn cut(&self) -> Option<usize> {
        self.cut
    }

    /// The number of frames that were skipped because this version does not know their kind.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// The number of whole steps, with the start of the process if it is recorded.
    pub fn steps(&self) -> usize {
        self.frames().filter(|frame| frame.kind == STEP).count()
    }

    /// Whether the recording begins with a snapshot of the process.
    pub fn begins_with_snapshot(&self) -> bool {
        self.frames().next().is_some_and(|frame| frame.kind == SNAPSHOT)
    }

    /// The number of the first step. The start of the process is step 0. Without a snapshot, only a recording from step
    /// 0 is whole.
    ///
    /// # Errors
    /// The step cannot be decoded.
    pub fn first_step(&self) -> Result<Option<u64>, OpenError> {
        let first = self.frames().find(|frame| frame.kind != SNAPSHOT);
        first.map(|frame| self.decode(&frame).map(|step| step.before.number)).transpose()
    }

    fn decode(&self, frame: &Frame) -> Result<RecordedStep, OpenError> {
        RecordedStep::decode(&self.bytes[frame.body.clone()])
            .map_err(|error| OpenError::Malformed { at: frame.at, error })
    }

    /// The number of the first step after the first snapshot, and the recorded state.
    pub(super) fn snapshot(&self) -> Option<Result<(u64, &[u8]), OpenError>> {
        let first = self.frames().next().filter(|frame| frame.kind == SNAPSHOT)?;
        let mut input = Input::new(&self.bytes[first.body.clone()]);
        let number = input.take().map_err(|error| OpenError::Malformed { at: first.at, error });
        Some(number.map(|number| (number, input.rest())))
    }

    /// Decodes the first step from the byte `at` on, and moves `at` to the end of this step. Snapshots are skipped.
    pub(super) fn step_from(&self, at: &mut usize) -> Option<Result<RecordedStep, OpenError>> {
        let frame = self.frames_from((*at).max(FIRST)).find(|frame| frame.kind != SNAPSHOT)?;
        *at = frame.body.end + TAIL;
        Some(self.decode(&frame))
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { pid, process, version, .. } = &self.about;
        write!(f, "{pid} {process} of version {version:?}, {} steps", self.steps())?;
        self.cause().map_or(Ok(()), |cause| write!(f, ", saved because {cause}"))?;
        self.cut.map_or(Ok(()), |at| write!(f, ", cut off at byte {at}"))
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({self})")
    }
}
