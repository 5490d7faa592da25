//! One look at a program, without a screen: a table for scripts, or a file for later.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::app::{App, Link};
use crate::layout::{RowKind, rows};
use crate::link::{News, Stream};
use crate::moment::{Moment, requests};
use crate::request::{Request, hello};
use crate::table;
use crate::text::Format;

/// The longest wait for an answer. A tree of supervisors that do not answer takes 200 ms for each.
const PATIENCE: Duration = Duration::from_secs(60);

/// The other side of the conversation.
pub(crate) enum Source {
    Live { news: Receiver<News>, writer: Box<dyn Stream>, hello: String },
    Saved(Moment),
}

/// Waits for a connection and the answer to the hello.
pub(crate) fn connect(app: &mut App, news: Receiver<News>) -> Result<Source, String> {
    let begun = Instant::now();
    let mut writer = None;
    loop {
        match next(&news, begun, &app.place)? {
            News::Connected(stream) => writer = Some(stream),
            News::Line(line) => {
                app.line(&line);
                if app.link == Link::Up
                    && let Some(writer) = writer.take()
                {
                    return Ok(Source::Live { news, writer, hello: line });
                }
            }
            News::Gone(reason) => return Err(lost(app, reason)),
            News::Terminal(_) | News::TerminalGone(_) => {}
        }
    }
}

fn next(news: &Receiver<News>, begun: Instant, place: &str) -> Result<News, String> {
    let left = PATIENCE.saturating_sub(begun.elapsed());
    let late = |_| format!("`{place}` has not answered for {} seconds: is it stopped?", PATIENCE.as_secs());
    news.recv_timeout(left).map_err(late)
}

fn lost(app: &mut App, reason: String) -> String {
    app.gone(reason);
    match &app.link {
        Link::Lost { reason, .. } => reason.clone(),
        _ => String::new(),
    }
}

/// Asks, and waits for the answer. Returns the lines of both.
fn ask(app: &mut App, source: &mut Source, request: Request) -> Result<(String, String), String> {
    let asked = app.ask(request);
    let (news, writer) = match source {
        Source::Saved(moment) => {
            let answered = moment.answer(&asked);
            app.line(&answered);
            return Ok((asked, answered));
        }
        Source::Live { news, writer, .. } => (news, writer),
    };
    writeln!(writer, "{asked}").map_err(|error| format!("cannot ask `{}`: {error}", app.place))?;
    let begun = Instant::now();
    loop {
        match next(news, begun, &app.place)? {
            News::Line(line) => {
                app.line(&line);
                if !app.is_waiting() {
                    return Ok((asked, line));
                }
            }
            News::Gone(reason) => return Err(lost(app, reason)),
            News::Connected(_) | News::Terminal(_) | News::TerminalGone(_) => {}
        }
    }
}

/// Writes the view as a table.
pub(crate) fn print(
    app: &mut App,
    source: &mut Source,
    limit: usize,
    out: &mut impl Write,
) -> Result<std::io::Result<()>, String> {
    for mut request in app.wanted() {
        if let Request::Top { limit: asked, .. } = &mut request {
            *asked = limit;
        }
        ask(app, source, request)?;
    }
    if let Some(failure) = app.failure.take() {
        return Err(format!("`{}` does not show this: {failure}", app.place));
    }
    let mut write = || {
        let mut rows = rows(&table::blocks(app, Format::Scripts), usize::MAX, 2);
        if let Some(listed) = app.data.top.as_ref().map(|top| top.processes.len()) {
            // The head, and not more than was asked for.
            rows.truncate(limit.min(listed) + 1);
        }
        for (place, row) in rows.into_iter().enumerate() {
            // An empty line before each part but the first.
            if row.kind == RowKind::Title && place > 0 {
                writeln!(out)?;
            }
            writeln!(out, "{}", row.text)?;
        }
        out.flush()
    };
    Ok(write())
}

/// Writes all views to a new file.
pub(crate) fn save(app: &mut App, source: &mut Source, path: &Path) -> Result<(), String> {
    let mut lines = match source {
        Source::Live { hello: answered, .. } => vec![hello(None), answered.clone()],
        Source::Saved(_) => return Err("a moment that is saved already is not saved again".into()),
    };
    for request in requests() {
        let (asked, answered) = ask(app, source, request)?;
        lines.extend([asked, answered]);
    }
    let write = || {
        let mut options = File::options();
        options.write(true).create_new(true);
        // Names and errors are for the owner of the program.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
        file.sync_all()
    };
    write().map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}
