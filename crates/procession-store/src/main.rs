//! Looks into the store of durable processes, and repairs it.

mod args;
mod show;

use std::io::{self, Write};
use std::process::ExitCode;

use procession::durable::{Query, Request, StoreError, operate};
use serde_json::Value;

use crate::args::{Args, Command, parse};

/// The answer was no: nothing was selected, the store is damaged, or an order was refused.
const REFUSED: u8 = 1;
/// The command line cannot be understood.
const USAGE: u8 = 2;
/// The store cannot be opened or read.
const NO_STORE: u8 = 3;

/// How many processes are asked for at once.
const PAGE: usize = 1_000;

fn main() -> ExitCode {
    let args = match parse(lexopt::Parser::from_env()) {
        Ok(Some(args)) => args,
        Ok(None) => return told(write!(io::stdout(), "{}", args::HELP)),
        Err(error) => {
            eprintln!("procession-store: {error}\nTry `procession-store --help`.");
            return ExitCode::from(USAGE);
        }
    };
    match run(&args, &mut io::stdout().lock()) {
        Ok(code) => code,
        Err(Failed::Store(error)) => {
            eprintln!("procession-store: {error}");
            let code = match error {
                StoreError::NoStore(_) | StoreError::Journal(_) => NO_STORE,
                _ => REFUSED,
            };
            ExitCode::from(code)
        }
        Err(Failed::Output(error)) => told(Err(error)),
    }
}

enum Failed {
    Store(StoreError),
    Output(io::Error),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Output(error)
    }
}

/// A reader that has gone, as `head` does, is no failure.
fn told(written: io::Result<()>) -> ExitCode {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("procession-store: the output cannot be written: {error}");
            ExitCode::from(NO_STORE)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(args: &Args, out: &mut impl Write) -> Result<ExitCode, Failed> {
    let ask = |request: &Request| operate(&args.folder, request);
    let is_json = args.json;
    let answer = match &args.command {
        Command::List(query) => return list(args, query, out),
        Command::Export(query) => return export(args, query, out),
        Command::Dead => return dead(args, out),
        Command::Ask(request) => ask(request)?,
    };
    if is_json {
        writeln!(out, "{answer}")?;
    } else {
        show::answer(out, &answer)?;
    }
    let is_refused = match &answer {
        // No process was changed, or there is damage.
        Value::Number(count) => count.as_u64() == Some(0) && !matches!(args.command, Command::Ask(Request::Count(_))),
        Value::Array(damage) => !damage.is_empty(),
        _ => false,
    };
    Ok(if is_refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

/// Calls `see` with all processes that a query selects, a page at a time.
fn pages(args: &Args, query: &Query, mut see: impl FnMut(&Value) -> Result<(), Failed>) -> Result<(), Failed> {
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut page = query.clone();
    while left > 0 {
        let size = left.min(PAGE);
        let listed = operate(&args.folder, &Request::List(page.limit(size)))?;
        let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
        listed.iter().try_for_each(&mut see)?;
        left -= listed.len().min(left);
        let last = listed.last().and_then(|last| last["pid"].as_str()?.parse().ok());
        match last {
            Some(last) if listed.len() == size => page = query.clone().after(last),
            _ => break,
        }
    }
    Ok(())
}

fn list(args: &Args, query: &Query, out: &mut impl Write) -> Result<ExitCode, Failed> {
    let mut is_first = true;
    pages(args, query, |listed| {
        if args.json {
            writeln!(out, "{listed}")?;
        } else {
            // After the first answer: there may be no store.
            if std::mem::take(&mut is_first) {
                show::head(out)?;
            }
            show::listed(out, listed)?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes all about each process, one a line.
fn export(args: &Args, query: &Query, out: &mut impl Write) -> Result<ExitCode, Failed> {
    pages(args, query, |listed| {
        let Some(pid) = listed["pid"].as_str() else { return Ok(()) };
        match operate(&args.folder, &Request::Show(pid.into())) {
            Ok(shown) => writeln!(out, "{shown}")?,
            // It was removed meanwhile.
            Err(StoreError::NoSuchId(_) | StoreError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn dead(args: &Args, out: &mut impl Write) -> Result<ExitCode, Failed> {
    let (mut left, mut after) = (args.limit.unwrap_or(usize::MAX), None);
    while left > 0 {
        let limit = left.min(PAGE);
        let page = operate(&args.folder, &Request::Dead { after: after.take(), limit })?;
        let page = page.as_array().map(Vec::as_slice).unwrap_or_default();
        for letter in page {
            match args.json {
                true => writeln!(out, "{letter}")?,
                false => show::dead(out, letter)?,
            }
            after = letter["to"].as_str().map(str::to_owned).zip(letter["number"].as_u64());
        }
        left -= page.len().min(left);
        if page.len() < limit {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}
