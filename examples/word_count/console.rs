//! The output: progress and errors on standard error, the result on standard output.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::tally::{Progress, Summary};

/// The number of most frequent words that are shown.
const TOP: usize = 10;

/// Standard error: a progress bar, if it is a terminal, and error messages above it.
pub(super) struct Console {
    bar: ProgressBar,
}

impl Console {
    pub(super) fn new() -> Console {
        if !io::stderr().is_terminal() {
            return Console::hidden();
        }
        let bar = ProgressBar::new(0);
        let style = "{bar:20} {bytes} of {total_bytes}, {msg}, {bytes_per_sec}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Console { bar }
    }

    pub(super) fn hidden() -> Console {
        Console { bar: ProgressBar::hidden() }
    }

    /// Whether the progress is displayed.
    pub(super) fn shows_progress(&self) -> bool {
        !self.bar.is_hidden()
    }

    pub(super) fn show(&self, progress: Progress) {
        self.bar.set_length(progress.bytes_found);
        self.bar.set_position(progress.bytes);
        self.bar.set_message(format!("{} of {} files", progress.files, progress.files_found));
    }

    pub(super) fn complain(&self, path: &Path, why: &str) {
        self.say(&format!("{}: {why}", printable(path.as_os_str().as_encoded_bytes())));
    }

    pub(super) fn say(&self, what: &str) {
        // If standard error is closed, the message cannot be reported.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "word_count: {what}")));
    }

    /// Removes the progress bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Writes the most frequent words, and the totals as the last line.
pub(super) fn write_summary(summary: &Summary, to: &mut impl Write) -> io::Result<()> {
    let Summary { files, failed, counts, .. } = summary;
    for (word, count) in counts.table.top(TOP) {
        writeln!(to, "{count:>12}  {}", printable(word))?;
    }
    let forgotten = counts.table.forgotten();
    if forgotten > 0 {
        writeln!(
            to,
            "(too many different words: rare ones were forgotten, so these counts may lack up to {forgotten})"
        )?;
    }
    let (lines, words, bytes) = (counts.lines, counts.words, counts.bytes);
    writeln!(to, "total files={files} lines={lines} words={words} bytes={bytes} failed={failed}")?;
    to.flush()
}

/// Bytes as text that no terminal takes for a command. Invalid UTF-8, control characters, and characters that change
/// the direction of writing are shown by their numbers.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}' => {
                    text.extend(character.escape_unicode());
                }
                control if control.is_control() => text.extend(control.escape_default()),
                other => text.push(other),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Block;
    use super::super::counts::Counts;
    use super::*;

    #[test]
    fn no_byte_of_a_word_is_a_command_to_the_terminal() {
        let cases: [(&[u8], &str); 6] = [
            (b"plain 'quoted' \\", "plain 'quoted' \\"),
            ("caf\u{e9} \u{939}\u{93f}\u{902}".as_bytes(), "caf\u{e9} \u{939}\u{93f}\u{902}"),
            (b"\x1b[2J\x07\x7f", "\\u{1b}[2J\\u{7}\\u{7f}"),
            (b"\xff\xfeab\xc3", "\\xff\\xfeab\\xc3"),
            ("\u{9b}1m\u{85}".as_bytes(), "\\u{9b}1m\\u{85}"),
            ("\u{202e}evil\u{2066}".as_bytes(), "\\u{202e}evil\\u{2066}"),
        ];
        for (bytes, shown) in cases {
            assert_eq!(printable(bytes), shown);
        }
    }

    #[test]
    fn the_last_line_is_the_total_and_above_it_are_the_words() {
        let bytes = b"the cat and\nthe hat".to_vec();
        let counts = Counts::of(&Block { bytes, in_word: false });
        let mut written = Vec::new();
        write_summary(&Summary { files: 3, failed: 1, counts, broken: None }, &mut written).unwrap();
        let expected = "           2  the\n           1  and\n           1  cat\n           1  hat\n\
                        total files=3 lines=1 words=5 bytes=19 failed=1\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
