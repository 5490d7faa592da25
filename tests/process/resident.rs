//! The memory and the threads of this program, as Linux knows them, for tests that are programs of their own.

/// A number that Linux keeps about this program.
pub fn system(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The resident memory of this program. `None` under a sanitizer, which keeps freed memory for reasons of its own.
pub fn resident_kib() -> Option<u64> {
    let sanitized = cfg!(any(procession_sanitize_thread, procession_sanitize_address));
    (!sanitized).then(|| system("VmRSS:"))
}

/// The memory is where it was, but for so much.
pub fn assert_grown_by_at_most(kib: u64, before: Option<u64>) {
    if let Some((before, after)) = before.zip(resident_kib()) {
        assert!(after < before + kib, "{before} KiB before, {after} KiB after");
    }
}
