//! The feature `signals`: Ctrl-C asks for a shutdown, and the second one is told of.

#![cfg(unix)]

#[path = "common/wait.rs"]
mod wait;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use procession::{Latch, State};

use crate::wait::wait;

const CHILD: &str = "PROCESSION_SIGNALS_CHILD";

fn signal(child: &Child, signal: &str) {
    // By the shell, for the standard library has no word for it.
    let told = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status();
    assert!(told.is_ok_and(|status| status.success()));
}

/// In a process of its own: there is one handler for a process.
fn lives_as_a_child() {
    let (state, tail) = State::job([]);
    let signals = state.shutdown_on_signals().unwrap();
    assert!(state.shutdown_on_signals().is_err(), "there can be one handler only");
    let again = Latch::new();
    let set = again.clone();
    let _second = signals.on_second(move || set.set(()).unwrap());
    // A callback of the shutdown that hangs until the second signal comes: it must come all the same.
    let hangs = again.clone();
    let _hangs = tail.end().on_cancel(move |_| wait(&hangs));
    println!("child: ready");
    std::io::stdout().flush().unwrap();
    wait(tail.end());
    assert!(state.is_shutting_down() && signals.count() == 1);
    println!("child: told");
    std::io::stdout().flush().unwrap();
    wait(&again);
    assert_eq!(signals.count(), 2);
    tail.done();
    state.wait_closed(None);
    println!("child: closed");
}

/// Whether this process was started with one of the signals ignored, as `nohup` does it, and shells with what they run in
/// the background.
fn ignores_some() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    // Hang-up, interrupt, terminate.
    [1, 2, 15].iter().any(|signal| ignored & 1 << (signal - 1) != 0)
}

#[test]
fn ctrl_c_asks_for_a_shutdown_and_the_second_one_is_told_of() {
    if std::env::var_os(CHILD).is_some() {
        return lives_as_a_child();
    }
    if ignores_some() {
        let (state, tail) = State::job([]);
        assert!(state.shutdown_on_signals().is_err(), "what is ignored is not heard, and that is said");
        tail.done();
        return;
    }
    for signals in [["INT", "INT"], ["TERM", "INT"]] {
        let name = "ctrl_c_asks_for_a_shutdown_and_the_second_one_is_told_of";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut until = |word: &str| lines.by_ref().any(|line| line.unwrap().contains(word));
        assert!(until("child: ready"));
        signal(&child, signals[0]);
        assert!(until("child: told"));
        signal(&child, signals[1]);
        assert!(until("child: closed"));
        assert!(wait(&mut child).success());
    }
}
