//! Texts of a program, made harmless for a terminal, and the forms of numbers and times.

use std::fmt;

use serde::Deserialize;

/// The most characters of a text that are kept. A program sends names, reasons and lines of descriptions.
const LONGEST: usize = 4_096;

/// The most lines of a text that are kept. A description has at most 16 KiB.
const MOST_LINES: usize = 1_000;

/// A text that a program has sent. Characters that a terminal would obey are replaced when it is read, so no view can
/// forget it. A null is an empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<String>")]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        let harmless = |c| if is_obeyed(c) { char::REPLACEMENT_CHARACTER } else { c };
        Text(text.chars().take(LONGEST).map(harmless).collect())
    }
}

impl From<Option<String>> for Text {
    fn from(text: Option<String>) -> Text {
        text.map(Text::from).unwrap_or_default()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::from(text.to_string())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text of several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub(crate) struct Lines(pub(crate) Vec<Text>);

impl From<String> for Lines {
    fn from(text: String) -> Lines {
        Lines(text.lines().take(MOST_LINES).map(|line| Text::from(line.replace('\t', "    "))).collect())
    }
}

/// Control characters, and those that have no width or turn the direction of writing. With them one name looks like
/// another.
fn is_obeyed(c: char) -> bool {
    let has_no_width = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{200b}'..='\u{200f}');
    let turns = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let annotates = matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    c.is_control() || has_no_width || turns || annotates
}

/// How numbers and times are written: for people, or for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `12,345` and `3m20s`.
    People,
    /// `12345` and `200.000`, in seconds.
    Scripts,
}

impl Format {
    pub(crate) fn count(self, count: u64) -> String {
        let digits = count.to_string();
        if self == Format::Scripts {
            return digits;
        }
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }

    pub(crate) fn time(self, seconds: f64) -> String {
        if self == Format::Scripts {
            return format!("{seconds:.9}");
        }
        // A number that is out of range becomes the nearest one.
        let whole = seconds as u64;
        let (minutes, hours, days) = (whole / 60, whole / 3_600, whole / 86_400);
        match whole {
            0 if seconds < 0.5e-9 => "0".into(),
            0 if seconds < 0.000_001 => format!("{:.0}ns", seconds * 1e9),
            0 if seconds < 0.001 => format!("{:.0}us", seconds * 1e6),
            0 if seconds < 0.1 => format!("{:.1}ms", seconds * 1e3),
            0..60 => format!("{seconds:.1}s"),
            60..3_600 => format!("{minutes}m{:02}s", whole % 60),
            3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
            _ => format!("{days}d{:02}h", hours % 24),
        }
    }

    pub(crate) fn rate(self, per_second: f64) -> String {
        match self {
            Format::People if per_second < 100.0 => format!("{per_second:.1}/s"),
            Format::People => format!("{}/s", self.count(per_second as u64)),
            Format::Scripts => format!("{per_second:.1}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_replaced() {
        for hostile in ["\u{1b}[2J", "a\rb", "a\nb", "\u{9b}31m", "\u{7f}", "\u{202e}evil", "a\u{200b}b", "\u{e0041}"] {
            let text = Text::from(hostile);
            assert!(!text.as_str().contains(is_obeyed) && text.as_str().contains('\u{fffd}'), "{hostile:?}");
        }
        assert_eq!(Text::from("größe 大 ok").as_str(), "größe 大 ok");
        assert_eq!(Text::from("大".repeat(LONGEST + 1)).as_str().chars().count(), LONGEST);
        assert_eq!(Lines::from("\n".repeat(MOST_LINES + 1)).0.len(), MOST_LINES);
        let lines = Lines::from("one\ttwo\r\n\u{1b}three".to_string());
        assert_eq!(lines.0, [Text::from("one    two"), Text::from("\u{fffd}three")]);
    }

    #[test]
    fn numbers_and_times_have_a_form_for_people_and_one_for_scripts() {
        let people = |seconds| Format::People.time(seconds);
        assert_eq!([0, 999, 1_000, 1_234_567].map(|n| Format::People.count(n)), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(Format::Scripts.count(1_234_567), "1234567");
        assert_eq!([1e-10, 0.000_000_07, 0.000_001].map(people), ["0", "70ns", "1us"]);
        assert_eq!([0.0, 0.000_012, 0.0042, 0.25, 59.94].map(people), ["0", "12us", "4.2ms", "0.2s", "59.9s"]);
        assert_eq!([60.0, 3_599.9, 7_260.0, 90_000.0].map(people), ["1m00s", "59m59s", "2h01m", "1d01h"]);
        assert_eq!([-1.0, 1e300].map(people), ["0", "213503982334601d07h"]);
        assert_eq!(Format::Scripts.time(0.25), "0.250000000");
    }
}
