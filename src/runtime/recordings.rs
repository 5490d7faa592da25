//! Calls about the recordings of processes.

use std::any::Any;
use std::path::PathBuf;

use super::system::Runtime;
use crate::process::Target;
use crate::recording::{RuntimeRecorder, SaveError};

impl Runtime {
    /// Saves the recording of a living process. Returns the file, unless the recorder gives recordings to a function.
    ///
    /// The process may be in a step. Then the recording ends with what the step has read so far. The calling thread
    /// writes the file.
    ///
    /// # Errors
    /// There is no recorder, there is no such process, the process is not recorded, or the recording cannot be saved.
    pub fn save_recording(&self, target: impl Target) -> Result<Option<PathBuf>, SaveError> {
        let recorder = self.recorder().ok_or(SaveError::NoRecorder)?;
        let pid = self.core().resolve(&target).map_err(SaveError::NoSuchProcess)?;
        recorder.save(pid)
    }

    /// The number of processes that are recorded now, and the bytes that their recordings have in memory.
    pub fn recording_usage(&self) -> (usize, usize) {
        self.recorder().map_or((0, 0), RuntimeRecorder::usage)
    }

    fn recorder(&self) -> Option<&RuntimeRecorder> {
        let recorder: &dyn Any = &**self.core().road.recorder.as_ref()?;
        recorder.downcast_ref()
    }
}
