//! The log of a simulated program, and what its observer is told: each end and each recovery has one line.

use std::sync::Arc;

use procession::Pid;
use tracing::Level;

use crate::helpers::Mutex;
use crate::log::Recorder;

/// The lines of the log, and what the observer was told among them.
#[derive(Clone, Default)]
pub struct Logged(Arc<Mutex<Vec<String>>>);

/// The words of the lines, and the level of each end.
const ENDS: [&str; 4] = ["message=done", "message=terminated", "message=failed", "message=panicked"];
const LEVELS: [&str; 4] = ["DEBUG", "INFO", "WARN", "ERROR"];
const RECOVERY: &str = "message=recovered from a failure";

impl Logged {
    pub fn recorder(&self) -> Recorder {
        Recorder { level: Level::DEBUG, records: self.0.clone(), check: |_| () }
    }

    pub fn observer_is_told(&self, what: &str, pid: Pid) {
        self.0.lock().unwrap().push(format!("the observer is told: {what} {pid}"));
    }

    /// A process takes the recovery of a child that was linked to it at birth.
    pub fn parent_is_told(&self, child: Pid) {
        self.0.lock().unwrap().push(format!("the parent is told: the recovery of {child}"));
    }

    /// Each recovery is told to the parent, or is a warning.
    fn check_parents(&self) -> Result<(), String> {
        let lines = self.0.lock().unwrap();
        for line in lines.iter() {
            let Some(pid) = line.strip_prefix("the parent is told: the recovery of ") else { continue };
            let is_warning = |other: &&String| other.starts_with("WARN") && other.contains(&format!("pid={pid} "));
            let warnings = lines.iter().filter(is_warning).filter(|other| other.contains(RECOVERY)).count();
            let told = lines.iter().filter(|other| *other == line).count();
            let recoveries = lines.iter().filter_map(|other| told_of(other, "the recovery of")).filter(|of| *of == pid);
            let recoveries = recoveries.count();
            if warnings + told > recoveries {
                return Err(format!(
                    "log: of {recoveries} recoveries of {pid}, {told} were told and {warnings} logged"
                ));
            }
        }
        Ok(())
    }

    /// The observer is told of an end after the log, and of a recovery before it.
    pub fn check(&self) -> Result<(), String> {
        self.check_parents()?;
        let lines = self.0.lock().unwrap();
        for (words, level) in ENDS.iter().zip(LEVELS) {
            if let Some(line) = lines.iter().find(|line| line.contains(words) && !line.starts_with(level)) {
                return Err(format!("log: the level of {line:?} is not {level}"));
            }
        }
        let is_logged = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
        for (what, words, is_before) in [("the end of", &ENDS[..], true), ("the recovery of", &[RECOVERY], false)] {
            let mut told = 0;
            for (at, line) in lines.iter().enumerate() {
                let Some(pid) = told_of(line, what) else { continue };
                told += 1;
                let logged = if is_before { at.checked_sub(1) } else { Some(at + 1) };
                let logged = logged.and_then(|at| lines.get(at));
                let pid = format!("pid={pid} ");
                if !logged.is_some_and(|logged| is_logged(logged, words) && logged.contains(&pid)) {
                    return Err(format!("log: {line:?} is beside {logged:?}"));
                }
            }
            let logged = lines.iter().filter(|line| is_logged(line, words)).count();
            if logged != told {
                return Err(format!("log: {logged} lines, and the observer was told of {what} a process {told} times"));
            }
        }
        Ok(())
    }
}

fn told_of<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    Some(line.strip_prefix("the observer is told: ")?.strip_prefix(what)?.trim())
}
