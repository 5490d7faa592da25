//! Carries out the requests of an operator in the store of a folder.

use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use super::closed::ClosedStore;
use super::error::StoreError;
use super::journal::{JournalError, SqliteJournal};
use super::query::Request;

/// Carries out a request of an operator in the store of a folder. The answer is JSON: see the variants of [`Request`].
///
/// If a program has the store open, that program carries the request out, and goes on meanwhile. Otherwise this call
/// opens the store, without the types of the program. So it cannot show states that are not JSON, and the next start
/// checks a state that [`Request::Replace`] has given. A start fails while this call has the store open.
///
/// # Errors
///
/// - [`StoreError::NoStore`] if the folder has no store.
/// - [`StoreError::Refused`] if the program that has the store open refuses.
/// - The errors of the methods of [`Store`](super::Store) with the name of the request.
pub fn operate(folder: impl AsRef<Path>, request: &Request) -> Result<Value, StoreError> {
    let folder = folder.as_ref();
    if !folder.join("tables.db").is_file() {
        return Err(StoreError::NoStore(folder.into()));
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_millis() as u64);
    match ClosedStore::open(&mut SqliteJournal::new(folder), now) {
        Err(StoreError::Journal(in_use @ JournalError::InUse { .. })) => ask(folder, request, in_use),
        Err(error) => Err(error),
        Ok(mut store) => store.carry_out(request),
    }
}

#[cfg(unix)]
fn ask(folder: &Path, request: &Request, in_use: JournalError) -> Result<Value, StoreError> {
    super::control::ask(folder, request).map_err(|error| match error {
        StoreError::NotStored(why) => StoreError::Refused(format!("{in_use}, and {why}")),
        error => error,
    })
}

#[cfg(not(unix))]
fn ask(_: &Path, _: &Request, in_use: JournalError) -> Result<Value, StoreError> {
    Err(in_use.into())
}
