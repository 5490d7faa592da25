//! The recorder: which processes are recorded, how, and where recordings go.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use super::codec::{Codec, Recordable, Snapshot};
use super::file::SaveCause;
use super::machine::{ProcessCodec, RecordedType, TypeRecorder, save_of};
use super::recordings::{Recordings, SaveError, SaveReport, Setup, Sink};
use super::value::{ValueCodec, Values};
use crate::primitives::Arc;
use crate::process::{Pid, Process, TimerFired};
use crate::sched::body::{Body, BodyRecorder, Ready};
use crate::sched::machine::Typed;

/// The bytes of the newest steps of one process, if [`Recorder::ring`] is not called.
pub const DEFAULT_RING: usize = 64 << 10;

/// The bytes of all processes together, if [`Recorder::total`] is not called.
pub const DEFAULT_TOTAL: usize = 64 << 20;

/// The most recordings that one runtime saves, if [`Recorder::most_files`] is not called.
pub const DEFAULT_MOST_FILES: usize = 1_000;

/// Says which processes are recorded, and how. See [the module](super).
///
/// Give it to [`RuntimeBuilder::recorder`](crate::config::RuntimeBuilder::recorder), and give one that is set up in the
/// same way to [`Recording::replay`](super::Recording::replay). So write a function that makes it.
#[derive(Clone)]
#[must_use = "a recorder records nothing until it is given to a runtime"]
pub struct Recorder {
    pub(super) setup: Setup,
    processes: HashMap<TypeId, Arc<dyn RecordedType>>,
}

impl Recorder {
    /// Makes a recorder that saves to files in this folder. It makes the folder with the first file.
    pub fn new(folder: impl Into<PathBuf>) -> Recorder {
        Recorder::with(Sink::Folder(folder.into()))
    }

    /// Makes a recorder that gives the bytes of each saved recording to this function. It is called by the thread that
    /// saves, mostly a worker.
    pub fn to(call: impl Fn(Vec<u8>) + Send + Sync + 'static) -> Recorder {
        Recorder::with(Sink::Call(Arc::new(call)))
    }

    fn with(sink: Sink) -> Recorder {
        let setup = Setup {
            sink,
            version: String::new(),
            ring: DEFAULT_RING,
            total: DEFAULT_TOTAL,
            most_files: DEFAULT_MOST_FILES,
            saves_at_end: false,
            values: Values::default(),
            renames: HashMap::new(),
            on_save: None,
        };
        let recorder = Recorder { setup, processes: HashMap::new() };
        recorder
            .answer(Codec::<()>::of())
            .answer(Codec::<bool>::of())
            .answer(Codec::<u32>::of())
            .answer(Codec::<u64>::of())
            .answer(Codec::<i64>::of())
            .answer(Codec::<usize>::of())
            .answer(Codec::<String>::of())
            .answer(Codec::<TimerFired>::of())
            .answer(Codec::<Pid>::of())
            .answer(Codec::<Option<Pid>>::of())
    }

    /// Sets the version of the program. A recording of another version is not replayed, unless it was
    /// [renamed](Self::renamed).
    pub fn version(mut self, version: impl Into<String>) -> Recorder {
        self.setup.version = version.into();
        self
    }

    /// Sets how many bytes the newest steps of one process may have. The default is [`DEFAULT_RING`].
    ///
    /// Older steps are dropped. So without snapshots, the recording of a process that has read more is not whole, and
    /// cannot be replayed. A step with one message has some 60 bytes, and the bytes of the message. A process keeps a
    /// buffer of up to 4 KiB beside that, in which messages are encoded.
    pub fn ring(mut self, bytes: usize) -> Recorder {
        self.setup.ring = bytes;
        self
    }

    /// Sets how many bytes the recordings of all processes together may have. The default is [`DEFAULT_TOTAL`]. When
    /// they are used up, each process makes room in its own ring. A process without a ring is not recorded until there
    /// is room.
    pub fn total(mut self, bytes: usize) -> Recorder {
        self.setup.total = bytes;
        self
    }

    /// Sets how many recordings one runtime saves at most. The default is [`DEFAULT_MOST_FILES`].
    pub fn most_files(mut self, most: usize) -> Recorder {
        self.setup.most_files = most;
        self
    }

    /// Saves the recording of each process when it ends, and not only if it fails.
    pub fn save_at_end(mut self) -> Recorder {
        self.setup.saves_at_end = true;
        self
    }

    /// Records processes of this type, whose messages are [`Recordable`].
    pub fn process<P: Process<Message: Recordable>>(self) -> Recorder {
        self.process_with::<P>(Codec::of())
    }

    /// Records processes of this type, whose messages this codec encodes.
    pub fn process_with<P: Process>(self, message: Codec<P::Message>) -> Recorder {
        self.add::<P>(message, None)
    }

    /// Records processes of this type with [snapshots](Snapshot).
    pub fn snapshots<P: Snapshot<Message: Recordable>>(self) -> Recorder {
        self.snapshots_with::<P>(Codec::of())
    }

    /// As [`snapshots`](Self::snapshots), with messages that this codec encodes.
    pub fn snapshots_with<P: Snapshot>(self, message: Codec<P::Message>) -> Recorder {
        self.add::<P>(message, Some(P::snapshot))
    }

    fn add<P: Process>(mut self, message: Codec<P::Message>, snapshot: Option<fn(&P, &mut Vec<u8>)>) -> Recorder {
        self.setup.values.add(ValueCodec::of_send(message.clone()));
        self = self.answer(message.clone());
        let recorder = TypeRecorder(Arc::new(ProcessCodec { message, snapshot }));
        self.processes.insert(TypeId::of::<Typed<P>>(), Arc::new(recorder));
        self
    }

    /// Adds a codec for values of one type: answers to commands, inputs of entry methods, and messages to processes
    /// that are not recorded themselves.
    ///
    /// An answer without a codec makes a recording useless, and saving it is an error. A sent message without a codec
    /// is compared by its type alone. There are codecs for numbers, `bool`, `String`, `()`, PIDs, and timers.
    pub fn answer<T: Send + 'static>(mut self, codec: Codec<T>) -> Recorder {
        self.setup.values.add(ValueCodec::new(codec));
        self
    }

    /// Says that a type, or the version of the program, has another name now. Recordings with the old name are then
    /// replayed. Use it if the old steps should still come to the same.
    pub fn renamed(mut self, old: impl Into<String>, new: impl Into<String>) -> Recorder {
        self.setup.renames.insert(old.into(), new.into());
        self
    }

    /// Sets a function that is told of each recording that was saved, or was to be saved. The function is called by the
    /// thread that saves. A panic of it is contained and logged.
    pub fn on_save(mut self, hook: impl Fn(&SaveReport) + Send + Sync + 'static) -> Recorder {
        self.setup.on_save = Some(Arc::new(hook));
        self
    }

    /// How processes of this type are recorded.
    pub(super) fn codec_of<P: Process>(&self) -> Option<Arc<ProcessCodec<P>>> {
        let recorder: &dyn Any = &**self.processes.get(&TypeId::of::<Typed<P>>())?;
        Some(recorder.downcast_ref::<TypeRecorder<P>>()?.0.clone())
    }

    /// Begins to record the processes of a runtime.
    pub(crate) fn for_runtime(self) -> RuntimeRecorder {
        RuntimeRecorder { recordings: Arc::new(Recordings::new(self.setup)), processes: self.processes }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("version", &self.setup.version)
            .field("ring", &self.setup.ring)
            .field("total", &self.setup.total)
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

/// Records the processes of one runtime.
pub(crate) struct RuntimeRecorder {
    recordings: Arc<Recordings>,
    processes: HashMap<TypeId, Arc<dyn RecordedType>>,
}

impl RuntimeRecorder {
    /// Saves the recording of a process.
    pub(crate) fn save(&self, pid: Pid) -> Result<Option<PathBuf>, SaveError> {
        save_of(&self.recordings, pid, SaveCause::Asked)
    }

    /// The number of recorded processes, and the bytes that their rings have.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.recordings.live.count(), self.recordings.live.total.used())
    }

    fn type_of(&self, body: &Body) -> Option<&Arc<dyn RecordedType>> {
        self.processes.get(&(&body.machine as &dyn Any).type_id())
    }
}

impl BodyRecorder for RuntimeRecorder {
    fn record(&self, body: &mut Ready, entry: Option<Vec<u8>>) {
        if let Some(recorded) = self.type_of(body) {
            recorded.record(body, entry, &self.recordings);
        }
    }

    fn entry_of(&self, body: &Body) -> Option<Vec<u8>> {
        self.type_of(body)?.entry_of(body, &self.recordings.setup.values)
    }

    fn stuck(&self, pid: Pid) {
        // Most processes are not recorded.
        drop(save_of(&self.recordings, pid, SaveCause::Stuck));
    }
}
