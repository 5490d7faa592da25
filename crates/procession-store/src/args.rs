//! The command line.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use lexopt::Parser;
use lexopt::prelude::{Long, Short, Value, ValueExt};
use procession::Pid;
use procession::durable::journal::Status;
use procession::durable::{Query, Request, Which};

pub(crate) const HELP: &str = "\
Looks into the store of durable processes, and repairs it.

Usage: procession-store FOLDER COMMAND [OPTIONS]

If a program has the store, the program carries the command out, and goes on
meanwhile. If no program has it, the command opens the store itself. The next
start of the program finds what was done.

Commands that look:
  list              Lists processes, a line each.
  count             Prints the number of processes.
  show PROCESS      Prints all about one process: its state, the messages that
                    wait, timers, commands, dead letters, and its last steps.
  dead              Lists dead letters: messages that no step will take.
  export            Prints all about each process as JSON, one a line.
  mail              Counts the messages over the life of the store.
  check             Reads everything, and prints what is damaged.

Commands that change something:
  retry PROCESS     Has a parked process try again.
  skip PROCESS      Has a parked process go on without the message or the answer
                    that its step cannot take. A message becomes a dead letter.
  replace PROCESS STATE
                    Gives a parked process another state, as JSON, and has it try
                    again. `-` reads the state from the standard input.
  cancel PROCESS    Asks a process to stop. The process decides.
  terminate PROCESS Ends a process. Its messages become dead letters.
  resend PROCESS NUMBER
                    Sends a dead letter to its receiver again.
  answer KEY JSON [--failed]
                    Answers a stored command. `show` has the keys. With `--failed`
                    the answer is an error of the command's type.
  backup TO         Copies the store into a new folder.

PROCESS is a PID, as `<7.0.1>` or `7.0.1`, or an id. In its place, `list`,
`count`, `export`, `retry`, `skip`, `cancel` and `terminate` take conditions:

  --kind NAME       Only processes of this kind.
  --status STATUS   Only those that are sleeping (they wait for an event, or for
                    the end of a pause), ready (they are to be stepped), parked
                    or ended.
  --error TEXT      Only those that are parked with an error with this text.
  --id TEXT         Only those whose ids begin with this text.
  --parent PID      Only the children of this process.
  --older AGE       Only those that were begun so long ago, as `90s`, `5min`, `2h`
                    or `3d`.
  --all             All processes. `retry`, `skip`, `cancel` and `terminate` need
                    this if there is no other condition.

Options:
  --limit N         Selects at most so many processes or dead letters. `count`
                    counts all.
  --json            Prints JSON. A list has a line for each process.
  --help            Prints this.
  --version         Prints the version.

Exit codes: 0 if all is well; 1 if nothing was changed, something is damaged, or
the store refuses; 2 if the command line is wrong; 3 if a file cannot be read or
written. If a running program has the store open, that program carries out the
command. If it cannot, the code is 1, even if it cannot read or write its files.

An example:
  procession-store shop.store list --status parked
  procession-store shop.store show order-4711
  procession-store shop.store retry --kind order --error \"the bank is closed\"
";

/// The command line, read.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) folder: PathBuf,
    pub(crate) command: Command,
    pub(crate) limit: Option<usize>,
    pub(crate) json: bool,
}

#[derive(Debug)]
pub(crate) enum Command {
    /// In pages.
    List(Query),
    Export(Query),
    Dead,
    /// One request.
    Ask(Request),
}

/// The conditions of a query, if there are any.
#[derive(Default)]
struct Conditions {
    query: Query,
    is_given: bool,
}

/// Reads the command line. `None` if it asks for help.
pub(crate) fn parse(mut parser: Parser) -> Result<Option<Args>, lexopt::Error> {
    let (mut words, mut conditions, mut limit, mut json) = (Vec::new(), Conditions::default(), None, false);
    let mut is_error = false;
    while let Some(argument) = parser.next()? {
        let query = std::mem::take(&mut conditions.query);
        conditions.query = match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("version") => {
                println!("procession-store {}", env!("CARGO_PKG_VERSION"));
                std::process::exit(0);
            }
            Long("json") => {
                json = true;
                query
            }
            Long("failed") => {
                is_error = true;
                query
            }
            Long("limit") => {
                limit = Some(parser.value()?.parse()?);
                query
            }
            Value(word) => {
                words.push(word);
                query
            }
            condition => {
                conditions.is_given = true;
                match condition {
                    Long("kind") => query.kind(parser.value()?.string()?),
                    Long("error") => query.error(parser.value()?.string()?),
                    Long("parent") => query.parent(pid(&parser.value()?.string()?)?),
                    Long("older") => query.begun_before(time_ago(&parser.value()?.string()?)?),
                    Long("id") => query.id_prefix(parser.value()?.string()?),
                    Long("status") => query.status(status(&parser.value()?.string()?)?),
                    Long("all") => query,
                    other => return Err(other.unexpected()),
                }
            }
        };
    }
    let mut words = words.into_iter();
    let folder = PathBuf::from(words.next().ok_or("name the folder of a store")?);
    let name = words.next().ok_or("name a command")?.string()?;
    let mut next = |what: &str| -> Result<String, lexopt::Error> {
        words.next().ok_or_else(|| lexopt::Error::from(format!("`{name}` needs {what}")))?.string()
    };
    let Conditions { query, is_given } = conditions;
    let mut takes_conditions = true;
    let which = |next: &mut dyn FnMut(&str) -> Result<String, lexopt::Error>| match is_given {
        true => Ok(Which::All(limit.map_or(query.clone(), |limit| query.clone().limit(limit)))),
        false => next("a process, or conditions").map(Which::One),
    };
    let command = match &*name {
        "list" => Command::List(query),
        "export" => Command::Export(query),
        "count" => Command::Ask(Request::Count(query)),
        "retry" => Command::Ask(Request::Retry(which(&mut next)?)),
        "skip" => Command::Ask(Request::Skip(which(&mut next)?)),
        "cancel" => Command::Ask(Request::Cancel(which(&mut next)?)),
        "terminate" => Command::Ask(Request::Terminate(which(&mut next)?)),
        other => {
            takes_conditions = false;
            match other {
                "dead" => Command::Dead,
                "mail" => Command::Ask(Request::Mail),
                "check" => Command::Ask(Request::Check),
                "show" => Command::Ask(Request::Show(next("a process")?)),
                "replace" => {
                    let (process, state) = (next("a process")?, next("a state")?);
                    let state =
                        if state == "-" { std::io::read_to_string(std::io::stdin()).map_err(text)? } else { state };
                    Command::Ask(Request::Replace { process, state })
                }
                "resend" => {
                    let (process, number) = (next("a process")?, next("the number of a dead letter")?);
                    let number = number.parse().map_err(|_| format!("{number:?} is no number"))?;
                    Command::Ask(Request::Resend { process, number })
                }
                "answer" => {
                    let (key, json) = (next("the key of a command")?, next("an answer")?);
                    Command::Ask(Request::Answer { key, json, is_error })
                }
                "backup" => {
                    let to = PathBuf::from(next("a new folder")?);
                    // The program that has the store may be in another directory.
                    Command::Ask(Request::Backup(std::path::absolute(to).map_err(text)?))
                }
                other => return Err(format!("there is no command {other:?}").into()),
            }
        }
    };
    if is_error && name != "answer" {
        return Err(format!("`{name}` does not take `--failed`").into());
    }
    if is_given && !takes_conditions {
        return Err(format!("`{name}` takes no conditions").into());
    }
    if let Some(more) = words.next() {
        return Err(format!("{more:?} is one word too many").into());
    }
    Ok(Some(Args { folder, command, limit, json }))
}

fn status(text: &str) -> Result<Status, lexopt::Error> {
    Ok(match text {
        "sleeping" => Status::Sleeping,
        "ready" => Status::Ready,
        "parked" => Status::Parked,
        "ended" => Status::Ended,
        other => return Err(format!("there is no status {other:?}: sleeping, ready, parked, ended").into()),
    })
}

/// A PID may be without its brackets.
fn pid(text: &str) -> Result<Pid, lexopt::Error> {
    let pid = text.parse().or_else(|_| format!("<{text}>").parse());
    pid.map_err(|_| format!("{text:?} is no PID").into())
}

/// The time that lies so far back.
fn time_ago(text: &str) -> Result<SystemTime, lexopt::Error> {
    let (number, unit) = text.split_at(text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    let age = number.parse::<u64>().ok().filter(|_| seconds > 0).and_then(|number| number.checked_mul(seconds));
    let time = age.and_then(|age| SystemTime::now().checked_sub(Duration::from_secs(age)));
    time.ok_or_else(|| format!("{text:?} is no age, as `90s`, `5min`, `2h` or `3d`").into())
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
