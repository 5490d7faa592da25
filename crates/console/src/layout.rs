//! Blocks of text and tables, and the rows that they take on a screen of some width.

use ratatui::text::Span;

use crate::text::Text;

/// The narrowest that a column becomes.
const NARROWEST: usize = 6;

/// A part of a view.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Title(String),
    Text(String),
    Table(Table),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) entries: Vec<Entry>,
}

/// A column. A table in which no column has a title has no head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) kind: ColumnKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// On the left, as wide as its longest text.
    Words,
    /// On the right.
    Figures,
    /// On the left. Its texts lose their ends if there is no room.
    LosesEnd,
    /// On the left. Its texts lose their beginnings if there is no room: the end of the path of a type says most.
    LosesBeginning,
}

/// A row of a table. One with a single cell is a note, which may be as wide as the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) cells: Vec<String>,
    pub(crate) target: Option<Target>,
}

/// The view that a row leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Process(Text),
    Type(Text),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Title,
    Head,
    Plain,
}

/// A row of a screen.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: RowKind,
    pub(crate) text: String,
    pub(crate) target: Option<Target>,
}

/// The columns of a screen that a text takes.
pub(crate) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// A text in exactly this width. If there is no room for all of it, `…` stands in place of the rest.
fn fit(text: &str, width: usize, kind: ColumnKind) -> String {
    let taken = width_of(text);
    if taken <= width {
        let padding = " ".repeat(width - taken);
        return if kind == ColumnKind::Figures { padding + text } else { format!("{text}{padding}") };
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    let kept = if kind == ColumnKind::LosesBeginning {
        let kept: Vec<char> = fitting(text.chars().rev(), room).collect();
        format!("…{}", kept.iter().rev().collect::<String>())
    } else {
        format!("{}…", fitting(text.chars(), room).collect::<String>())
    };
    // A wide character may have been left out in the middle of its width.
    let padding = width.saturating_sub(width_of(&kept));
    kept + &" ".repeat(padding)
}

fn fitting(chars: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    let mut taken = 0;
    chars.take_while(move |c| {
        taken += width_of(c.encode_utf8(&mut [0; 4]));
        taken <= room
    })
}

/// The lines of a text in a width.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let (mut lines, mut taken) = (vec![String::new()], 0);
    for c in text.chars() {
        let width = width_of(c.encode_utf8(&mut [0; 4]));
        if taken + width > room && taken > 0 {
            lines.push(String::new());
            taken = 0;
        }
        taken += width;
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
    }
    lines
}

/// The widths of the columns of a table. The widest column that may lose text becomes narrower until there is room.
fn widths(table: &Table, room: usize, gap: usize) -> Vec<usize> {
    let natural = |(place, column): (usize, &Column)| {
        let entries = table.entries.iter().filter(|entry| entry.cells.len() > 1);
        let cells = entries.filter_map(|entry| entry.cells.get(place));
        cells.map(|cell| width_of(cell)).max().unwrap_or(0).max(column.title.len()).min(room)
    };
    let mut widths: Vec<usize> = table.columns.iter().enumerate().map(natural).collect();
    let gaps = gap * widths.len().saturating_sub(1);
    loop {
        let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(room);
        let kinds = table.columns.iter().map(|column| column.kind);
        let shrinking = kinds.zip(&mut widths).filter(|(kind, width)| {
            matches!(kind, ColumnKind::LosesEnd | ColumnKind::LosesBeginning) && **width > NARROWEST
        });
        match shrinking.map(|(_, width)| width).max_by_key(|width| **width) {
            Some(widest) if excess > 0 => *widest -= 1,
            _ => return widths,
        }
    }
}

/// The rows of these blocks in a width. Columns are `gap` apart.
pub(crate) fn rows(blocks: &[Block], room: usize, gap: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for block in blocks {
        match block {
            Block::Title(text) => rows.push(Row { kind: RowKind::Title, text: text.clone(), target: None }),
            Block::Text(text) => rows.extend(wrapped(text, room).into_iter().map(|text| Row {
                kind: RowKind::Plain,
                text,
                target: None,
            })),
            Block::Table(table) => rows_of(table, room, gap, &mut rows),
        }
    }
    rows
}

fn rows_of(table: &Table, room: usize, gap: usize, rows: &mut Vec<Row>) {
    let widths = widths(table, room, gap);
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let columns = table.columns.iter().zip(&widths);
        let cells: Vec<String> =
            columns.zip(cells).map(|((column, width), cell)| fit(cell, *width, column.kind)).collect();
        cells.join(&" ".repeat(gap)).trim_end().to_string()
    };
    if table.columns.iter().any(|column| !column.title.is_empty()) {
        let text = line(&mut table.columns.iter().map(|column| column.title));
        rows.push(Row { kind: RowKind::Head, text, target: None });
    }
    for entry in &table.entries {
        let text = match &entry.cells[..] {
            [note] => note.clone(),
            cells => line(&mut cells.iter().map(String::as_str)),
        };
        rows.push(Row { kind: RowKind::Plain, text, target: entry.target.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(kinds: &[ColumnKind], cells: &[&str]) -> Table {
        let columns = kinds.iter().map(|kind| Column { title: "A", kind: *kind }).collect();
        let cells = cells.iter().map(|cell| (*cell).to_string()).collect();
        Table { columns, entries: vec![Entry { cells, target: None }] }
    }

    fn texts(table: Table, room: usize) -> Vec<String> {
        rows(&[Block::Table(table)], room, 1).into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn columns_lose_text_until_there_is_room() {
        use ColumnKind::{Figures, LosesBeginning, LosesEnd};
        let narrow = table(&[LosesEnd, LosesBeginning, Figures], &["a long name", "shop::orders::Order", "12"]);
        let head = format!("A{}A{}A", " ".repeat(11), " ".repeat(20));
        assert_eq!(texts(narrow.clone(), 40), [head, "a long name shop::orders::Order 12".into()]);
        assert_eq!(texts(narrow, 20)[1], "a long … …::Order 12");
    }

    #[test]
    fn a_note_takes_the_room_of_all_columns_and_a_text_is_wrapped() {
        let mut noted = table(&[ColumnKind::Words, ColumnKind::Figures], &["a", "1"]);
        noted.entries.push(Entry { cells: vec!["a long note".into()], target: None });
        assert_eq!(texts(noted, 40), ["A A", "a 1", "a long note"]);
        assert_eq!(wrapped("abcd大f", 5), ["abcd", "大f"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("大大", 1), ["大", "大"]);
    }

    #[test]
    fn wide_characters_are_cut_by_their_width() {
        assert_eq!(fit("大大大", 5, ColumnKind::LosesEnd), "大大…");
        assert_eq!(fit("大大大", 4, ColumnKind::LosesEnd), "大… ");
        assert_eq!(fit("大大大", 4, ColumnKind::LosesBeginning), "…大 ");
        assert_eq!(fit("abc", 0, ColumnKind::Words), "");
    }
}
