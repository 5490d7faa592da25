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

/// The most resident memory of this program since [`forget_peak`]. `None` under a sanitizer.
pub fn peak_kib() -> Option<u64> {
    resident_kib().map(|_| system("VmHWM:"))
}

/// Resets the peak of the resident memory of this program. See proc(5), `clear_refs`.
pub fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The memory is where it was, but for so much.
pub fn assert_grown_by_at_most(kib: u64, before: Option<u64>) {
    if let Some((before, after)) = before.zip(resident_kib()) {
        assert!(after < before + kib, "{before} KiB before, {after} KiB after");
    }
}

/// Set in a program that runs one test.
const ALONE: &str = "PROCESSION_TEST_ALONE";

/// Runs the rest of the test that calls it in a program of its own.
#[track_caller]
pub fn alone(test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let thread = std::thread::current();
    let name = thread.name().expect("the harness names the thread of a test after it");
    let program = std::env::current_exe().expect("a test knows where it is");
    let mut command = std::process::Command::new(program);
    let output = command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(ALONE, "1").output();
    let output = output.expect("this program can be started again");
    let out = String::from_utf8_lossy(&output.stdout);
    print!("{out}");
    let has_run = out.contains("1 passed");
    assert!(output.status.success() && has_run, "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
