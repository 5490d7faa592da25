//! How often a test does something.

/// The small count, or the full one with `PROCESSION_FULL=1`.
pub(crate) fn counts(few: u64, full: u64) -> u64 {
    if std::env::var_os("PROCESSION_FULL").is_some() { full } else { few }
}
