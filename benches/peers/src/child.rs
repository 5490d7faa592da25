//! Runs one command at a time and controls it. It ends by itself, at the time limit, or at Ctrl-C.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::ours::measure::Outcome;

/// The end of a command.
pub(crate) enum Ended {
    /// The command succeeded and printed this.
    Well(String),
    /// The command failed. The text gives the reason.
    Badly(String),
    /// Ctrl-C ended the command.
    Interrupted,
}

enum News {
    Interrupt,
    /// The whole output of the command with this number.
    Output(u64, std::io::Result<String>),
}

pub(crate) struct Keeper {
    news: Receiver<News>,
    teller: Sender<News>,
    commands: u64,
}

impl Keeper {
    /// Takes over Ctrl-C, which from now on is reported instead of ending the program.
    pub(crate) fn new() -> Outcome<Keeper> {
        let (teller, news) = channel();
        let interrupted = teller.clone();
        // If the receiver is gone, the program is about to end.
        ctrlc::set_handler(move || drop(interrupted.send(News::Interrupt)))?;
        Ok(Keeper { news, teller, commands: 0 })
    }

    pub(crate) fn run(&mut self, command: &mut Command, limit: Duration) -> Ended {
        apart(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let began = Instant::now();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(problem) => return Ended::Badly(format!("cannot be started: {problem}")),
        };
        self.commands += 1;
        let (number, teller, stdout) = (self.commands, self.teller.clone(), child.stdout.take());
        thread::spawn(move || {
            let mut output = String::new();
            let read = stdout.map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut output));
            let _ = teller.send(News::Output(number, read.map(|_| output)));
        });
        loop {
            match self.news.recv_timeout(limit.saturating_sub(began.elapsed())) {
                Ok(News::Output(whose, _)) if whose != number => {}
                Ok(News::Output(_, output)) => return end(&mut child, output),
                Ok(News::Interrupt) => return kill(&mut child, Ended::Interrupted),
                Err(RecvTimeoutError::Timeout) => {
                    return kill(&mut child, Ended::Badly(format!("has not ended in {limit:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return kill(&mut child, Ended::Badly(String::from("cannot be heard any more")));
                }
            }
        }
    }
}

/// Puts the command into a process group of its own. Then a terminal's Ctrl-C reaches only this program, which
/// decides what to end.
fn apart(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

fn end(child: &mut Child, output: std::io::Result<String>) -> Ended {
    match (child.wait(), output) {
        (Ok(status), Ok(output)) if status.success() => Ended::Well(output),
        (Ok(status), Ok(_)) => Ended::Badly(format!("ended with {status}")),
        (Err(problem), _) | (_, Err(problem)) => Ended::Badly(problem.to_string()),
    }
}

/// Ends the child by its handle. If it has ended by itself meanwhile, that is fine, too.
fn kill(child: &mut Child, ended: Ended) -> Ended {
    let _ = child.kill();
    let _ = child.wait();
    ended
}
