//! The command line.

use std::path::PathBuf;

use lexopt::prelude::{Long, Short, Value, ValueExt};

use crate::app::View;
use crate::request::{Filter, MOST, Sort};

pub(crate) const HELP: &str = "\
Shows the processes of a running program that serves a console.

Usage: procession-console [PROGRAM] [OPTIONS]
       procession-console open FILE [OPTIONS]

PROGRAM is the name that the program has given to its console, the path of its
socket, or HOST:PORT of this machine with `--token-file`. Without it, there must
be only one program: if there are more, they are listed. `open` shows a moment
that `--save` has written.

Options:
  --once [VIEW]      Prints a view as a table, and ends: overview (if none is
                     given), processes, types, tree, waits or nodes. Times are in
                     seconds.
  --save FILE        Writes all views to a new file, and ends.
  --sort KEY         Which processes come first: those with the largest mailbox,
                     steps, age or in_step (the time in their step).
  --filter TEXT      Only processes that match: `PART` of the name, `type:PART`,
                     `state:WORD`, or several of them. Capitals matter. A part may
                     have spaces.
  --limit N          With `--once processes`: at most so many, 1,000 at most
                     (otherwise 20).
  --token-file FILE  The file in which the program has written its token.
  --help             Prints this.
  --version          Prints the version.

Keys: 1 to 6 and tab for the views, arrows, enter for one process, esc for back,
/ for a filter (Ctrl-U empties it), m, s, a and i for the order, q or Ctrl-C to
end. In one process: d for its description, t for a trace, c to cancel it, x to
terminate it.

Exit codes: 0 if all is well; 1 if the program cannot be asked, or does not
answer; 2 if the command line is wrong.

An example:
  procession-console shop --once processes --sort steps --limit 5
";

/// How many processes `--once` prints, unless the command line says so.
const LISTED: usize = 20;

/// The command line, read.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) program: Option<String>,
    /// The file with a moment, in place of a program.
    pub(crate) open: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) once: Option<View>,
    pub(crate) save: Option<PathBuf>,
    pub(crate) sort: Sort,
    pub(crate) filter: Filter,
    pub(crate) limit: usize,
}

#[derive(Debug)]
pub(crate) enum Command {
    Help,
    Version,
    Run(Box<Args>),
}

fn view(word: &str) -> Option<View> {
    View::ALL.into_iter().find(|view| view.word() == word)
}

pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut args = Args {
        program: None,
        open: None,
        token_file: None,
        once: None,
        save: None,
        sort: Sort::default(),
        filter: Filter::default(),
        limit: LISTED,
    };
    let mut opens = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("version") => return Ok(Command::Version),
            Long("once") => {
                // The view may stand behind a space, too, if the next word is one.
                let mut raw = parser.try_raw_args();
                let is_view = |word: &std::ffi::OsStr| word.to_str().and_then(view).is_some();
                let is_next = raw.as_mut().is_some_and(|raw| raw.peek().is_some_and(is_view));
                let given = if is_next { raw.and_then(|mut raw| raw.next()) } else { parser.optional_value() };
                let word = given.map_or(Ok("overview".into()), |given| given.string())?;
                args.once = Some(view(&word).ok_or_else(|| format!("`{word}` is no view"))?);
            }
            Long("save") => args.save = Some(parser.value()?.into()),
            Long("token-file") => args.token_file = Some(parser.value()?.into()),
            Long("sort") => {
                let word = parser.value()?.string()?;
                let unknown = || format!("`{word}` is no order: mailbox, steps, age and in_step are");
                args.sort = Sort::from_word(&word).ok_or_else(unknown)?;
            }
            Long("filter") => args.filter = Filter::read(&parser.value()?.string()?),
            Long("limit") => {
                args.limit = parser.value()?.parse()?;
                if !(1..=MOST).contains(&args.limit) {
                    return Err(format!("`--limit {}`: it must be from 1 to {MOST}", args.limit).into());
                }
            }
            Value(word) if opens && args.open.is_none() => args.open = Some(word.into()),
            Value(word) if !opens && args.program.is_none() && word == "open" => opens = true,
            Value(word) if !opens && args.program.is_none() => args.program = Some(word.string()?),
            argument => return Err(argument.unexpected()),
        }
    }
    match () {
        () if opens && args.open.is_none() => Err("`open` needs the file of a moment".into()),
        () if opens && args.save.is_some() => {
            Err("`--save` needs a program: a saved moment is in a file already".into())
        }
        () if opens && args.token_file.is_some() => Err("`--token-file` needs a program: `open` reads a file".into()),
        () if args.once.is_some() && args.save.is_some() => Err("`--once` and `--save` do not go together".into()),
        () => Ok(Command::Run(Box::new(args))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Args, String> {
        let parser = lexopt::Parser::from_args(words.split_whitespace());
        match parse(parser) {
            Ok(Command::Run(args)) => Ok(*args),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_view_may_stand_behind_once() {
        let once = |words| read(words).map(|args| (args.program, args.once));
        assert_eq!(once("--once types shop"), Ok((Some("shop".into()), Some(View::Types))));
        assert_eq!(once("--once=tree shop"), Ok((Some("shop".into()), Some(View::Tree))));
        assert_eq!(once("--once shop"), Ok((Some("shop".into()), Some(View::Overview))));
        assert_eq!(once("shop"), Ok((Some("shop".into()), None)));
        assert_eq!(once("--once=shop"), Err("`shop` is no view".into()));
    }

    #[test]
    fn wrong_command_lines_are_refused_with_the_reason() {
        for (words, reason) in [
            ("open", "needs the file"),
            ("open a b", "unexpected argument"),
            ("open a --save b", "needs a program"),
            ("a b", "unexpected argument"),
            ("--once --save a", "do not go together"),
            ("--limit 0", "from 1 to 1000"),
            ("--sort size", "`size` is no order"),
            ("--colour", "invalid option"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(reason), "{words}: {error}");
        }
    }
}
