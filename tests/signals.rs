//! The feature `signals`: signals of the operating system ask for a shutdown, and the second one is told of.

#![cfg(unix)]

#[path = "common/example.rs"]
mod example;
#[path = "common/wait.rs"]
mod wait;

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use procession::ShutdownNode;
use procession::shutdown::{Signal, SignalError};
use procession::sync::Latch;

use crate::example::signal;
use crate::wait::wait;

const CHILD: &str = "PROCESSION_SIGNALS_CHILD";

/// Starts a test of this program again, in a process that ignores these signals.
fn start(test: &str, ignores: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let trap = if ignores.is_empty() { String::new() } else { format!("trap '' {ignores}; ") };
    let mut child = Command::new("sh")
        .args(["-c", &format!("{trap}exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn say(line: &str) {
    println!("child: {line}");
    std::io::stdout().flush().unwrap();
}

fn until(lines: &mut Lines<BufReader<ChildStdout>>, line: &str) {
    assert!(lines.by_ref().any(|there| there.unwrap().contains(line)), "the child has not said: {line}");
}

/// Whether this process ignores a signal, given by its number. `nohup` makes it so, and shells for what they run in
/// the background.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    ignored & 1 << (number - 1) != 0
}

const HANG_UP: u32 = 1;
const INTERRUPT: u32 = 2;
const TERMINATE: u32 = 15;

/// In a process of its own: signals are for all of a process.
fn lives_as_a_child() {
    let (state, tail) = ShutdownNode::job([]);
    let signals = state.shutdown_on_signals().unwrap();
    let again = Latch::new();
    let set = again.clone();
    let _second = signals.on_second(move || set.set(()).unwrap());
    // A callback of the shutdown that hangs until the second signal comes: it must come all the same.
    let hangs = again.clone();
    let _hangs = tail.end().on_cancel(move |_| wait(&hangs));
    // Another state is asked as well.
    let (other, other_tail) = ShutdownNode::job([]);
    let others = other.shutdown_on_signals().unwrap();
    say("ready");
    wait(tail.end());
    wait(other_tail.end());
    assert!(state.is_shutting_down() && signals.count() == 1 && others.count() == 1);
    say("told");
    wait(&again);
    assert_eq!(signals.count(), 2);
    tail.done();
    state.wait_closed_timeout(wait::LIMIT).unwrap();
    say("closed");
}

#[test]
fn ctrl_c_asks_for_a_shutdown_and_the_second_one_is_told_of() {
    if is_child() {
        return lives_as_a_child();
    }
    // The children of this process ignore the signals that it ignores.
    let able = |signals: &[(&'static str, u32); 2]| signals.iter().all(|(_, number)| !is_ignored(*number));
    let rounds = [[("INT", INTERRUPT), ("INT", INTERRUPT)], [("TERM", TERMINATE), ("HUP", HANG_UP)]];
    for signals in rounds.into_iter().filter(able) {
        let (mut child, mut lines) = start("ctrl_c_asks_for_a_shutdown_and_the_second_one_is_told_of", "");
        until(&mut lines, "ready");
        signal(&child, signals[0].0);
        until(&mut lines, "told");
        signal(&child, signals[1].0);
        until(&mut lines, "closed");
        assert!(wait(&mut child).success());
    }
}

/// As under `nohup`, and with `&` in a script.
#[test]
#[cfg(target_os = "linux")]
fn a_program_started_with_ignored_signals_ends_at_the_others() {
    if is_child() {
        let (state, tail) = ShutdownNode::job([]);
        let signals = state.shutdown_on_signals().unwrap();
        assert_eq!(signals.handled(), [Signal::Terminate]);
        assert_eq!(signals.ignored(), [Signal::Interrupt, Signal::HangUp]);
        assert!(is_ignored(INTERRUPT) && is_ignored(HANG_UP) && !is_ignored(TERMINATE));
        say("ready");
        wait(tail.end());
        assert_eq!(signals.count(), 1, "the others never came");
        tail.done();
        state.wait_closed_timeout(wait::LIMIT).unwrap();
        return say("closed");
    }
    if is_ignored(TERMINATE) {
        return;
    }
    let (mut child, mut lines) = start("a_program_started_with_ignored_signals_ends_at_the_others", "INT HUP");
    until(&mut lines, "ready");
    ["INT", "HUP", "TERM"].iter().for_each(|which| signal(&child, which));
    until(&mut lines, "closed");
    assert!(wait(&mut child).success());
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_that_was_started_with_all_of_them_ignored_is_told_so() {
    if is_child() {
        let (state, _tail) = ShutdownNode::job([]);
        let error = state.shutdown_on_signals().unwrap_err();
        assert!(matches!(error, SignalError::AllIgnored), "{error}");
        return say("refused");
    }
    let name = "a_program_that_was_started_with_all_of_them_ignored_is_told_so";
    let (mut child, mut lines) = start(name, "INT HUP TERM");
    until(&mut lines, "refused");
    assert!(wait(&mut child).success());
}
