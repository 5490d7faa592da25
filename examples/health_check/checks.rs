//! The checks and their results.

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::task::{Status, TaskInfo, TaskOptions, TaskScheduler, TaskSet};
use procession::{BoxError, CancelToken, Exit};

/// How often the database is asked before it counts as down, and the pause after each time.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// The time between two searches for the backup.
const LOOK: Duration = Duration::from_millis(100);

/// The work of a check. It returns the text of a check that has passed.
pub(crate) type Job = Box<dyn FnOnce(&CancelToken) -> Result<String, BoxError> + Send>;

/// One check of the system.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// Whether a failure of this check makes the other checks pointless.
    pub(crate) critical: bool,
    pub(crate) job: Job,
}

impl Check {
    /// All five checks.
    pub(crate) fn all(service: SocketAddr, folder: &Path) -> Vec<Check> {
        let (file, backup) = (folder.join("probe"), folder.join("backup"));
        let check = |name, critical, job: Job| Check { name, critical, job };
        vec![
            check("disk", false, Box::new(move |_| disk(&file))),
            check("web", false, Box::new(move |cancel| web(service, cancel))),
            check("database", true, Box::new(move |cancel| database(service, cancel))),
            check("mirror", false, Box::new(move |cancel| ask(service, "mirror", cancel))),
            check("backup", false, Box::new(move |cancel| wait_for(backup, cancel))),
        ]
    }
}

/// Checks that a written file can be read again.
fn disk(file: &Path) -> Result<String, BoxError> {
    fs::write(file, "probe")?;
    let read = fs::read(file)?;
    fs::remove_file(file)?;
    if read == b"probe" { Ok(String::from("written and read")) } else { Err("it reads something else".into()) }
}

fn web(service: SocketAddr, cancel: &CancelToken) -> Result<String, BoxError> {
    match ask(service, "web", cancel)?.as_str() {
        "ok" => Ok(String::from("answers")),
        answer => Err(answer.into()),
    }
}

/// Asks the database several times, because it may be about to start.
fn database(service: SocketAddr, cancel: &CancelToken) -> Result<String, BoxError> {
    let mut answer = String::new();
    for _ in 0..TRIES {
        answer = ask(service, "database", cancel)?;
        if answer == "ok" {
            return Ok(String::from("answers"));
        }
        cancel.sleep(PAUSE)?;
    }
    Err(answer.into())
}

/// Sends a line and reads one. The read blocks. A stop request shuts the socket down, which ends the read.
fn ask(service: SocketAddr, question: &str, cancel: &CancelToken) -> Result<String, BoxError> {
    let stream = TcpStream::connect(service)?;
    let shuts = stream.try_clone()?;
    let _shut = cancel.on_cancel(move |_| {
        // An error means that the socket is already closed, which serves the same purpose.
        let _ = shuts.shutdown(Shutdown::Both);
    });
    writeln!(&stream, "{question}")?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    cancel.check()?;
    Ok(answer.trim_end().to_string())
}

/// Waits for a file that another program is to write.
fn wait_for(file: PathBuf, cancel: &CancelToken) -> Result<String, BoxError> {
    while !file.exists() {
        cancel.sleep(LOOK)?;
    }
    Ok(String::from("is there"))
}

/// The result of one check. It is printed as one line.
pub(crate) struct Finding {
    pub(crate) info: TaskInfo,
    pub(crate) exit: Exit<String, BoxError>,
}

/// The results of all checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) cancelled: usize,
    pub(crate) timed_out: usize,
    pub(crate) stopped: usize,
}

/// Runs all checks at once, each within the limit. If a critical one does not pass, the others are cancelled.
pub(crate) fn run(
    tasks: &TaskScheduler,
    checks: Vec<Check>,
    limit: Duration,
    mut tell: impl FnMut(&Finding),
) -> Result<Summary, BoxError> {
    let all = CancelToken::new();
    let (mut summary, mut pending, mut critical) = (Summary::default(), TaskSet::new(), Vec::new());
    for check in checks {
        let options = TaskOptions::new().name(check.name).timeout(limit).under(&all);
        match tasks.submit_with(options, check.job) {
            Ok(task) => {
                if check.critical {
                    critical.push(task.id());
                }
                pending.push(task);
            }
            // Ctrl-C was pressed before this task was submitted.
            Err(_) if tasks.is_stopped() => summary.stopped += 1,
            Err(refused) => return Err(refused.to_string().into()),
        }
    }
    while let Some((info, exit)) = pending.wait_next()? {
        if critical.contains(&info.id) && !exit.is_done() {
            all.cancel(format!("the {} check did not pass", info.name.as_deref().unwrap_or("critical")));
        }
        let finding = Finding { info, exit };
        summary.count(&finding);
        tell(&finding);
    }
    Ok(summary)
}

impl Summary {
    fn count(&mut self, finding: &Finding) {
        let place = match finding.info.status {
            Status::Completed if finding.exit.is_done() => &mut self.passed,
            Status::Cancelled => &mut self.cancelled,
            Status::TimedOut => &mut self.timed_out,
            Status::Stopped => &mut self.stopped,
            _ => &mut self.failed,
        };
        *place += 1;
    }

    /// Whether all checks have passed.
    pub(crate) fn is_well(&self) -> bool {
        *self == Summary { passed: self.passed, ..Summary::default() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.info.name.as_deref().unwrap_or("?");
        match &self.exit {
            Exit::Done(text) => write!(f, "{name:<10} passed     {text}"),
            Exit::Failed(error) => write!(f, "{name:<10} FAILED     {error}"),
            Exit::Panicked(panic) => write!(f, "{name:<10} FAILED     {panic}"),
            Exit::Terminated(reason) => write!(f, "{name:<10} {:<10} {reason}", self.info.status),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { passed, failed, cancelled, timed_out, stopped } = self;
        write!(f, "{passed} passed, {failed} failed, {cancelled} cancelled, {timed_out} timed out")?;
        if *stopped > 0 { write!(f, ", {stopped} stopped") } else { Ok(()) }
    }
}
