//! A process fails, and its recording is replayed, step by step.
//!
//! Try it: `cargo run --example replay`, or `cargo run --example replay -- FILE` for a recording of this program

use std::error::Error;
use std::path::{Path, PathBuf};

use procession::recording::{Recorder, Recording};
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};

/// An account that is never overdrawn.
struct Account {
    balance: u64,
}

impl Process for Account {
    type Message = i64;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, i64>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            if let Event::Message(change) = event {
                let changed = self.balance.checked_add_signed(change);
                self.balance = changed.ok_or_else(|| format!("{} {change:+} is below zero", self.balance))?;
            }
        }
        Ok(Step::Idle)
    }
}

fn recorder(folder: &Path) -> Recorder {
    Recorder::new(folder).version("accounts 1").process::<Account>()
}

/// Runs an account until it fails. Returns the recording.
fn record(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let runtime = Runtime::builder().workers(1).recorder(recorder(folder)).start()?;
    let account = runtime.spawn(Account { balance: 100 })?;
    for change in [50, -120, 10, -60] {
        runtime.send(account.address(), change)?;
    }
    println!("{} {}", account.pid(), account.join()?.without_output());
    let newest = std::fs::read_dir(folder)?.next().ok_or("no recording was saved")??;
    Ok(newest.path())
}

/// Replays a recording. Set a breakpoint in `Account::step`.
fn replay(file: &Path) -> Result<(), Box<dyn Error>> {
    let recording = Recording::open(file)?;
    println!("{recording}");
    let mut replay = recording.replay(&recorder(Path::new("recordings")), || Account { balance: 100 })?;
    while let Some(step) = replay.step()? {
        println!("{step}; balance {}", replay.process().map_or(0, |account| account.balance));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(file) = std::env::args_os().nth(1) {
        return replay(Path::new(&file));
    }
    let folder = std::env::temp_dir().join(format!("procession-replay-{}", std::process::id()));
    let replayed = record(&folder).and_then(|file| replay(&file));
    std::fs::remove_dir_all(&folder)?;
    replayed
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_recording_of_a_failure_is_replayed() {
        super::main().unwrap();
    }
}
