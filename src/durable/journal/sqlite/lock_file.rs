//! The lock of a store: one process of the operating system has it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::durable::journal::error::JournalError;

/// A locked file, with the number of the process that has locked it. The system unlocks it when the process ends.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
}

impl LockFile {
    /// Locks a file. It does not wait.
    pub(super) fn lock(path: &Path) -> Result<LockFile, JournalError> {
        let io = |error| JournalError::of_system("opening the lock file", error);
        let options = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = options().map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { holder: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        // If the disk is full, the number is missing. The lock holds all the same.
        let number = std::process::id().to_string();
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(number.as_bytes()));
        Ok(LockFile { file })
    }
}

#[cfg(test)]
impl LockFile {
    /// As a process has it that was forked.
    pub(super) fn copy(&self) -> File {
        self.file.try_clone().unwrap()
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The next process has the lock before it has written its number. Nobody should see this number then.
        let _ = self.file.set_len(0);
        // To close the file is not enough: a program that another thread is starting has a copy of it for a moment.
        let _ = self.file.unlock();
    }
}

/// The number of the process that has the file. A process that has just locked it may not have written the number.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    // A process that was killed leaves its number.
    text.parse().ok().filter(|number| !has_ended(*number))
}

/// Whether the system says that there is no such process.
fn has_ended(number: u32) -> bool {
    cfg!(target_os = "linux") && Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{number}")).exists()
}
