//! The screen: the state of the console, drawn into a buffer of cells.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::app::{App, Link, View};
use crate::input::Mode;
use crate::layout::{RowKind, width_of};
use crate::request::Filter;
use crate::text::Format;

/// An answer that takes longer than this is mentioned.
const LATE: Duration = Duration::from_secs(3);

/// The selected row begins with this mark, so that it is seen without colors, too.
const MARK: &str = "> ";

pub(crate) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen { area, buffer };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    pen.both(0, &head(app), &state(app), reversed);
    pen.both(1, &tabs(app), &order(app), Style::new());
    rows(app, &mut pen, bold, reversed);
    if area.height > 3 {
        let style = if app.mode == Mode::Normal { Style::new() } else { bold };
        pen.line(area.height - 1, 0, &foot(app), style);
    }
}

struct Pen<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
}

impl Pen<'_> {
    /// Writes into a line from a column on. Text beyond the area is left out.
    fn line(&mut self, line: u16, column: usize, text: &str, style: Style) {
        let Ok(column) = u16::try_from(column) else { return };
        if line >= self.area.height || column >= self.area.width {
            return;
        }
        let width = usize::from(self.area.width - column);
        self.buffer.set_stringn(self.area.x + column, self.area.y + line, text, width, style);
    }

    /// Writes a text on the left, and one on the right. If there is no room for both, the left one loses its end.
    fn both(&mut self, line: u16, left: &str, right: &str, style: Style) {
        let width = usize::from(self.area.width);
        self.line(line, 0, &" ".repeat(width), style);
        self.line(line, 0, left, style);
        let begin = width.saturating_sub(width_of(right));
        if !right.is_empty() {
            self.line(line, begin.saturating_sub(2), &format!("  {right}"), style);
        }
    }
}

fn head(app: &App) -> String {
    let program = &app.program;
    format!("{}  process {}  procession {}", program.name, program.process_id, program.version)
}

fn state(app: &App) -> String {
    let since = |time: Duration| Format::People.time(app.now.saturating_sub(time).as_secs() as f64);
    match &app.link {
        Link::Connecting => "connecting".into(),
        Link::Saved => format!("saved in {}", app.place),
        Link::Lost { since: lost, .. } => format!("NOT CONNECTED for {}", since(*lost)),
        Link::Up if app.is_waiting() && app.now.saturating_sub(app.asked_at) >= LATE => {
            format!("NO ANSWER for {}", since(app.asked_at))
        }
        Link::Up => "connected".into(),
    }
}

fn tabs(app: &App) -> String {
    let titles = ["Overview", "Processes", "Types", "Tree", "Waits", "Nodes"];
    let tab = |(place, title): (usize, &str)| match View::ALL[place] == app.view {
        true => format!("[{} {title}]", place + 1),
        false => format!(" {} {title} ", place + 1),
    };
    titles.into_iter().enumerate().map(tab).collect()
}

/// The list that is shown: its length, its filter and its order.
fn order(app: &App) -> String {
    match &app.view {
        View::Process(pid) => format!("[{pid}]"),
        View::Processes => {
            let of = app.data.top.as_ref().map_or(String::new(), |top| Format::People.count(top.of));
            let filter =
                if app.filter == Filter::default() { String::new() } else { format!(" {}", app.filter.text()) };
            format!("{of}{filter} by {}", app.sort.word())
        }
        _ => String::new(),
    }
}

fn rows(app: &App, pen: &mut Pen<'_>, bold: Style, reversed: Style) {
    let rows = app.rows();
    // The head of a table that fills the screen stays where it is.
    let pinned = usize::from(rows.first().is_some_and(|row| row.kind == RowKind::Head));
    let height = usize::from(app.height()).saturating_sub(pinned);
    let stops = App::stops(&rows);
    let selected = stops.get(app.selected.min(stops.len().saturating_sub(1))).copied();
    let room = (rows.len() - pinned).saturating_sub(height);
    // The selected row is in the middle, where that is possible.
    let first = selected.map_or(app.selected, |place| (place - pinned).saturating_sub(height / 2)).min(room);
    let shown = rows.iter().enumerate().skip(pinned + first).take(height);
    for (line, (place, row)) in rows.iter().enumerate().take(pinned).chain(shown).enumerate() {
        let is_selected = selected == Some(place);
        let style = match row.kind {
            _ if is_selected => reversed,
            RowKind::Plain => Style::new(),
            RowKind::Head | RowKind::Title => bold,
        };
        let mark = if is_selected { MARK } else { "  " };
        let text = match row.kind {
            RowKind::Title => format!("-- {} --", row.text),
            RowKind::Head | RowKind::Plain => format!("{mark}{}", row.text),
        };
        pen.line(line as u16 + 2, 0, &text, style);
    }
}

fn foot(app: &App) -> String {
    match &app.mode {
        Mode::Filter(text) => return format!("Filter (NAME type:PART state:WORD): {text}_"),
        Mode::Question(request) => {
            let name = app.data.detail.process.as_ref().and_then(|process| process.name.as_ref());
            let name = name.map_or(String::new(), |name| format!(" {name}"));
            let View::Process(pid) = &app.view else { return String::new() };
            return format!("{} {pid}{name}? y: yes, any other key: no", request.word());
        }
        Mode::Normal => {}
    }
    if !app.notice.is_empty() {
        return app.notice.clone();
    }
    if let Link::Lost { reason, .. } = &app.link {
        return format!("Trying again each second: {reason}");
    }
    let keys = match app.view {
        View::Processes => "q quit  enter open  / filter  by: m mailbox, s steps, a age, i in step",
        View::Process(_) => "q quit  esc back  d describe  t trace  c cancel  x terminate",
        View::Types => "q quit  enter list processes  tab next view",
        _ => "q quit  enter open  tab next view  / filter processes",
    };
    keys.into()
}

#[cfg(test)]
mod tests;
