//! The settings of a recorder, and the saving of recordings.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::file::{SaveCause, write};
use super::log::{Live, Log};
use super::value::Values;
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, AtomicUsize, Ordering};
use crate::process::{NoSuchProcessError, Pid};

/// The most names of files that are tried.
const MOST_NAMES: usize = 10_000;

/// Where recordings go.
#[derive(Clone)]
pub(super) enum Sink {
    Folder(PathBuf),
    Call(Arc<dyn Fn(Vec<u8>) + Send + Sync>),
}

type OnSave = dyn Fn(&SaveReport) + Send + Sync;

/// The settings of a recorder.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) sink: Sink,
    pub(super) version: String,
    pub(super) ring: usize,
    pub(super) total: usize,
    pub(super) most_files: usize,
    pub(super) saves_at_end: bool,
    pub(super) values: Values,
    pub(super) renames: HashMap<String, String>,
    pub(super) on_save: Option<Arc<OnSave>>,
}

impl Setup {
    /// The present name of something that was recorded under this one.
    pub(super) fn renamed(&self, name: &str) -> String {
        self.renames.get(name).map_or(name, String::as_str).to_owned()
    }
}

/// Why a recording was not saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The runtime has no recorder.
    #[error("nothing is recorded: the runtime was built without a recorder")]
    NoRecorder,
    /// There is no process at the target.
    #[error(transparent)]
    NoSuchProcess(NoSuchProcessError),
    /// The process is not recorded, or has ended.
    #[error("{0} is not recorded: it has ended, or `Recorder::process` was not called for its type")]
    NotRecorded(Pid),
    /// The process has read something that could not be encoded.
    #[error("the recording of {pid} is of no use: {what}")]
    NoCodec {
        /// The process.
        pid: Pid,
        /// The missing part, and why it is missing.
        what: String,
    },
    /// As many recordings were saved as is allowed.
    #[error("{limit} recordings are saved, and no more are allowed: see `Recorder::most_files`")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The file cannot be written.
    #[error("the recording cannot be written to {path:?}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
    /// The function that takes recordings has panicked.
    #[error("the function that takes recordings {0}")]
    Panicked(#[source] crate::outcome::Panic),
}

/// The result of a save, for [`Recorder::on_save`](super::Recorder::on_save).
#[derive(Debug)]
#[non_exhaustive]
pub struct SaveReport {
    /// The recorded process.
    pub pid: Pid,
    /// Its type.
    pub process_type: &'static str,
    /// Why it was to be saved.
    pub cause: SaveCause,
    /// The file, or why there is none. It is `Ok(None)` if the recording was given to the function of
    /// [`Recorder::to`](super::Recorder::to).
    pub saved: Result<Option<PathBuf>, SaveError>,
}

impl fmt::Display for SaveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SaveReport { pid, process_type, cause, saved } = self;
        write!(f, "recording of {pid} {process_type}, because {cause}: ")?;
        match saved {
            Ok(Some(path)) => write!(f, "saved to {path:?}"),
            Ok(None) => f.write_str("saved"),
            Err(error) => write!(f, "not saved: {error}"),
        }
    }
}

/// The recordings of one runtime.
pub(super) struct Recordings {
    pub(super) setup: Setup,
    pub(super) values: Arc<Values>,
    pub(super) live: Arc<Live>,
    saved: AtomicUsize,
}

impl Recordings {
    pub(super) fn new(setup: Setup) -> Recordings {
        let live = Arc::new(Live::new(setup.total));
        let values = Arc::new(setup.values.clone());
        Recordings { setup, values, live, saved: AtomicUsize::new(0) }
    }

    /// Saves the recording of a process, and says so in the log and to the hook if that fails.
    pub(super) fn save(&self, log: &Log, cause: SaveCause) -> Result<Option<PathBuf>, SaveError> {
        let saved = self.try_save(log, cause);
        let (pid, process_type) = (log.process.pid, log.process.process);
        match &saved {
            Ok(path) => tell_log(|| tracing::info!(%pid, process_type, %cause, ?path, "recording saved")),
            Err(error) => tell_log(|| tracing::error!(%pid, process_type, %cause, %error, "recording not saved")),
        }
        let Some(on_save) = &self.setup.on_save else { return saved };
        let report = SaveReport { pid, process_type, cause, saved };
        if let Err(panic) = contain(|| on_save(&report)) {
            tell_log(|| tracing::error!(%panic, "the hook of a recorder panicked"));
        }
        report.saved
    }

    fn try_save(&self, log: &Log, cause: SaveCause) -> Result<Option<PathBuf>, SaveError> {
        let (pid, limit) = (log.process.pid, self.setup.most_files);
        let frames = log.frames();
        if let Some(what) = frames.missing {
            return Err(SaveError::NoCodec { pid, what });
        }
        let next = |saved: usize| (saved < limit).then_some(saved + 1);
        let number = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = number.map_err(|_| SaveError::TooMany { limit })?;
        let bytes = write(&log.process, &self.setup.version, cause, &frames);
        let saved = match &self.setup.sink {
            Sink::Call(call) => contain(|| call(bytes)).map(|()| None).map_err(SaveError::Panicked),
            Sink::Folder(folder) => {
                let pid = format!("{}.{}.{}", pid.node(), pid.slot(), pid.generation());
                let name = format!("{}-{pid}", file_name(log.process.process));
                write_new(folder, &name, number, &bytes).map(Some)
            }
        };
        if saved.is_err() {
            // No file is there, so it is none of the most.
            self.saved.fetch_sub(1, Ordering::Relaxed);
        }
        saved
    }
}

/// Writes a new file. Files of earlier runs may have the first names.
fn write_new(folder: &Path, name: &str, number: usize, bytes: &[u8]) -> Result<PathBuf, SaveError> {
    let failed = |path: &Path, error| SaveError::Io { path: path.to_owned(), error };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for number in number..number.saturating_add(MOST_NAMES) {
        let path = folder.join(format!("{name}-{number}.recording"));
        let file = File::options().write(true).create_new(true).open(&path);
        match file.and_then(|mut file| file.write_all(bytes)) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Err(failed(folder, ErrorKind::AlreadyExists.into()))
}

/// The last part of the name of a type, as far as it can be in the name of a file.
fn file_name(process: &str) -> String {
    let plain = process.split('<').next().unwrap_or_default();
    let last = plain.rsplit("::").next().unwrap_or_default();
    last.chars().filter(|c| c.is_alphanumeric() || *c == '_').take(80).collect()
}
