//! The command line of an example or a benchmark: its usage, its problems, and numbers within bounds.

// Each program uses a part of this.
#![allow(dead_code)]

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use lexopt::{Arg, Error, Parser};

/// The exit code for invalid arguments.
const MISUSED: u8 = 2;

/// The exit code for a usage that could not be printed.
const FAILED: u8 = 1;

/// The `main` of `program`: reads the command line with `parse`, as [`read`] does, and runs the program. It prints the
/// error of a program that fails.
pub(crate) fn main<T, E: Display>(
    program: &str,
    usage: &str,
    parse: impl FnOnce(&mut Parser) -> Result<Option<T>, Error>,
    run: impl FnOnce(T) -> Result<ExitCode, E>,
) -> ExitCode {
    let result = match read(program, usage, parse) {
        Ok(options) => run(options),
        Err(code) => return code,
    };
    result.unwrap_or_else(|error| {
        eprintln!("{program}: {error}");
        ExitCode::FAILURE
    })
}

/// Reads the command line of `program` with `parse`, which returns `None` if `--help` is asked for.
///
/// # Errors
///
/// Otherwise it returns the exit code of a program that must not go on. The usage is printed, or the problem and the
/// usage.
pub(crate) fn read<T>(
    program: &str,
    usage: &str,
    parse: impl FnOnce(&mut Parser) -> Result<Option<T>, Error>,
) -> Result<T, ExitCode> {
    match parse(&mut Parser::from_env()) {
        Ok(Some(options)) => Ok(options),
        Ok(None) => Err(print(usage)),
        Err(problem) => {
            eprintln!("{program}: {problem}\n\n{}", usage.trim_end());
            Err(ExitCode::from(MISUSED))
        }
    }
}

/// Numbers of options, and the paths beside them.
pub(crate) type Numbers<const N: usize> = ([u64; N], Vec<PathBuf>);

/// Reads options that have a number as their value. Each is given with its default and its bounds. Returns the numbers,
/// in the order of the options, and the paths beside them. Returns `None` if `--help` is asked for.
///
/// # Errors
///
/// An option is unknown, or its value is missing, is no number, or is out of bounds.
pub(crate) fn numbers<const N: usize>(
    parser: &mut Parser,
    options: [(&str, u64, RangeInclusive<u64>); N],
) -> Result<Option<Numbers<N>>, Error> {
    let (mut values, mut paths) = (options.each_ref().map(|(_, default, _)| *default), Vec::new());
    while let Some(argument) = parser.next()? {
        let name = match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            Arg::Value(path) => {
                paths.push(path.into());
                continue;
            }
            Arg::Long(name) => format!("--{name}"),
            other => return Err(other.unexpected()),
        };
        let option = options.iter().zip(&mut values).find(|((option, ..), _)| *option == name);
        let Some(((.., allowed), value)) = option else { return Err(Error::UnexpectedOption(name)) };
        *value = number(parser, &name, allowed.clone())?;
    }
    Ok(Some((values, paths)))
}

/// The value of `option`, which must be a number in `allowed`.
///
/// # Errors
///
/// The value is missing, is no number, or is out of bounds.
pub(crate) fn number<T>(parser: &mut Parser, option: &str, allowed: RangeInclusive<T>) -> Result<T, Error>
where
    T: FromStr + PartialOrd + Display,
{
    let bounds = format!("a number from {} to {}", allowed.start(), allowed.end());
    let value = parser.value().map_err(|_| format!("{option} needs {bounds}"))?;
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("{option} takes {bounds}, and was given {value:?}").into())
}

/// Prints the usage. If the reader has closed its end of a pipe, that is no failure.
fn print(usage: &str) -> ExitCode {
    use std::io::Write as _;

    match writeln!(std::io::stdout(), "{}", usage.trim_end()) {
        Err(problem) if problem.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("cannot print the usage: {problem}");
            ExitCode::from(FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
