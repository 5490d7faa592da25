//! Texts of users that are cut while they are written.

use std::fmt::{self, Write};

use crate::outcome::{Panic, contain};

const CUT: &str = "… (cut)";

const FAILED: &str = "… (it has returned an error)";

/// The text of a value, cut at this many bytes, with a note that it is cut. A panic is contained.
pub(crate) fn cut_text(most: usize, value: &impl fmt::Display) -> Result<String, Panic> {
    let mut text = Text { text: String::new(), most, is_cut: false };
    let written = contain(|| write!(text, "{value}"))?;
    let note = match written {
        _ if text.is_cut => CUT,
        Err(fmt::Error) => FAILED,
        Ok(()) => "",
    };
    let mut text = text.text;
    text.truncate(text.floor_char_boundary(most - note.len()));
    text.push_str(note);
    Ok(text)
}

/// Keeps as much as is allowed. After that it is an error to write, so that an endless text ends.
struct Text {
    text: String,
    most: usize,
    is_cut: bool,
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let kept = more.floor_char_boundary(self.most - self.text.len());
        self.text.push_str(&more[..kept]);
        self.is_cut |= kept < more.len();
        if self.is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}
