//! Decisions of the program about its store.

use std::time::Duration;

/// The retention of ended processes, dead letters and keys of messages, unless the program says otherwise. A week
/// leaves a person the time to find them after a weekend. `procession-store` uses it for a store that no program has.
pub(super) const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The largest state, in bytes, unless the program says otherwise.
pub(super) const LARGEST_STATE: usize = 1 << 20;

/// The number of stored messages that may wait for one process, unless the program says otherwise.
const MAILBOX_LIMIT: usize = 100_000;

/// The bytes of the log that the tables may not have. A batch more may be on its way.
const LOG_LIMIT: u64 = 64 << 20;

/// How long the writer waits before each batch for tables that are late. With batches of 2 MiB, it commits at most 8
/// MiB a second meanwhile. The log has 21 MiB for that. If a piece takes longer than 2.6 s, the log reaches its limit.
const LATE_WAIT: Duration = Duration::from_millis(250);

/// A state of so many bytes is reported to the log, once for each process in each run. Each step of it writes as much.
pub(super) const LARGE_STATE: usize = 64 << 10;

/// Decisions of the program about its store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Whether steps go on before their records are on disk.
    pub(super) ahead: bool,
    /// The largest state, in bytes.
    pub(super) largest_state: usize,
    /// The number of stored messages that may wait for one process.
    pub(super) mailbox_limit: usize,
    /// The bytes of the log that the tables may not have.
    pub(super) log_limit: u64,
    /// How long the writer waits before each batch for tables that are late.
    pub(super) late_wait: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ahead: true,
            largest_state: LARGEST_STATE,
            mailbox_limit: MAILBOX_LIMIT,
            log_limit: LOG_LIMIT,
            late_wait: LATE_WAIT,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::durable::Store;
    use crate::durable::journal::{MemoryDisk, MemoryJournal};

    #[test]
    fn a_store_has_the_limits_that_its_documentation_says() {
        let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new()));
        assert_eq!(store.settings.mailbox_limit, 100_000);
        assert_eq!(store.settings.largest_state, 1024 * 1024);
        assert_eq!(store.memory.max_resident, 100_000);
        assert_eq!(KEEP, Duration::from_secs(7 * 24 * 3_600));
    }
}
