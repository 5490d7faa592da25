//! Shows the processes of a running program on a terminal.

mod app;
mod args;
mod input;
mod layout;
mod link;
mod model;
mod moment;
mod once;
mod request;
mod screen;
mod table;
mod text;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

use crate::app::App;
use crate::args::{Args, Command};
use crate::moment::Moment;
use crate::once::Source;

/// The program cannot be asked, or does not answer.
const FAILED: u8 = 1;
/// The command line cannot be understood.
const USAGE: u8 = 2;

/// News that wait for the main thread. A line may have megabytes, so there are few.
const MOST_NEWS: usize = 4;

/// The size of a screen before it is known. It is not used for tables without a screen.
const SIZE: (u16, u16) = (80, 24);

fn main() -> ExitCode {
    let command = match args::parse(lexopt::Parser::from_env()) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("procession-console: {error}\nTry `procession-console --help`.");
            return ExitCode::from(USAGE);
        }
    };
    let out = &mut io::stdout().lock();
    let done = match command {
        Command::Help => Ok(write!(out, "{}", args::HELP)),
        Command::Version => Ok(writeln!(out, "procession-console {}", env!("CARGO_PKG_VERSION"))),
        Command::Run(args) => run(*args, out),
    };
    let error = match done {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        // A reader that has gone, as `head` does, is no failure.
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Ok(Err(error)) => format!("the output cannot be written: {error}"),
        Err(error) => error,
    };
    eprintln!("procession-console: {error}");
    ExitCode::from(FAILED)
}

fn run(args: Args, out: &mut impl Write) -> Result<io::Result<()>, String> {
    let (sender, news) = sync_channel(MOST_NEWS);
    let (mut app, mut source, place, news) = match &args.open {
        Some(path) => {
            let moment = Moment::open(path)?;
            let mut app = App::new(path.display().to_string(), SIZE);
            screen::saved(&mut app, &moment);
            (app, Source::Saved(moment), None, Some(news))
        }
        None => {
            let place = link::place(args.program.as_deref(), args.token_file)?;
            link::start(&place, &sender).map_err(|error| format!("cannot start a thread: {error}"))?;
            let mut app = App::new(place.text(), SIZE);
            let source = once::connect(&mut app, news)?;
            (app, source, Some(place), None)
        }
    };
    app.choose(args.sort, args.filter);
    if let Some(view) = args.once {
        app.show(view);
        return once::print(&mut app, &mut source, args.limit, out);
    }
    match args.save {
        Some(path) => once::save(&mut app, &mut source, &path).map(Ok),
        None => screen::run(app, source, place, sender, news).map(Ok),
    }
}
