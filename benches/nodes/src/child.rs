//! The programs that this one starts. All of them have ended when it ends, also after Ctrl-C.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::Outcome;

/// Ctrl-C was pressed.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

enum News {
    Interrupt,
    /// A line of the program with this number. `None` is its end.
    Line(u64, Option<String>),
}

/// Starts programs, and hears them and Ctrl-C.
pub(crate) struct Keeper {
    news: Receiver<News>,
    teller: Sender<News>,
    programs: u64,
    /// Lines of programs that arrived while the line of another one was awaited.
    unread: HashMap<u64, VecDeque<Option<String>>>,
}

/// A program, which ends when this is dropped.
pub(crate) struct Program {
    child: Child,
    number: u64,
}

impl Program {
    /// Its number in the system.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends its input.
    pub(crate) fn end_input(&mut self) {
        self.child.stdin = None;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // If it has ended by itself, that is fine, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Keeper {
    /// Takes over Ctrl-C, which from now on is an error of the calls.
    pub(crate) fn new() -> Outcome<Keeper> {
        let (teller, news) = channel();
        let interrupted = teller.clone();
        // If the receiver is gone, the program is about to end.
        ctrlc::set_handler(move || drop(interrupted.send(News::Interrupt)))?;
        Ok(Keeper { news, teller, programs: 0, unread: HashMap::new() })
    }

    /// Starts a program. Its input ends when this program does.
    pub(crate) fn start(&mut self, mut command: Command) -> Outcome<Program> {
        apart(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut child = command.spawn().map_err(|problem| format!("{:?}: {problem}", command.get_program()))?;
        self.programs += 1;
        let (number, teller, stdout) = (self.programs, self.teller.clone(), child.stdout.take());
        thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                let _ = teller.send(News::Line(number, Some(line)));
            }
            let _ = teller.send(News::Line(number, None));
        });
        Ok(Program { child, number })
    }

    /// The next line of a program.
    pub(crate) fn line(&mut self, program: &Program, limit: Duration) -> Outcome<String> {
        self.line_timeout(program, limit)?.ok_or_else(|| format!("it said nothing in {limit:?}").into())
    }

    /// The next line of a program, or `None` if none comes within this time.
    pub(crate) fn line_timeout(&mut self, program: &Program, limit: Duration) -> Outcome<Option<String>> {
        let begun = Instant::now();
        let said = loop {
            if let Some(said) = self.unread.get_mut(&program.number).and_then(VecDeque::pop_front) {
                break said;
            }
            match self.news.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(News::Line(number, line)) => self.unread.entry(number).or_default().push_back(line),
                Ok(News::Interrupt) => return Err(Interrupted.into()),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err("it cannot be heard any more".into()),
            }
        };
        said.map(Some).ok_or_else(|| "it has ended without a result".into())
    }
}

/// Puts the command into a process group of its own. Then a terminal's Ctrl-C reaches only this program, which
/// decides when the others end.
fn apart(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}
