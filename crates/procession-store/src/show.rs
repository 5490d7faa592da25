//! Prints answers for people.

use std::io::{Result, Write};
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// The first line of a list.
pub(crate) fn head(out: &mut impl Write) -> Result<()> {
    writeln!(out, "{:<20} {:<24} {:<16} {:<9} {:>8}  ERROR", "PID", "ID", "KIND", "STATUS", "AGE")
}

/// A line of a list.
pub(crate) fn listed(out: &mut impl Write, listed: &Value) -> Result<()> {
    let text = |name: &str| one_line(listed[name].as_str().unwrap_or_default());
    let status = text("status");
    let (age, error) = (age(&listed["begun"]), text("error"));
    writeln!(out, "{:<20} {:<24} {:<16} {status:<9} {age:>8}  {error}", text("pid"), text("id"), text("kind"))
}

/// A line for a dead letter.
pub(crate) fn dead(out: &mut impl Write, letter: &Value) -> Result<()> {
    let text = |name: &str| letter[name].as_str().unwrap_or("").to_owned();
    let (to, number, age) = (text("to"), &letter["number"], age(&letter["since"]));
    writeln!(out, "{to:<20} {number:<10} {:<11} {age:>8}  {}", text("why"), letter["message"])
}

/// All other answers.
pub(crate) fn answer(out: &mut impl Write, answer: &Value) -> Result<()> {
    match answer {
        Value::Null => writeln!(out, "done"),
        Value::Array(lines) if lines.is_empty() => writeln!(out, "all is well"),
        Value::Array(lines) => lines.iter().try_for_each(|line| match line {
            Value::String(line) => writeln!(out, "{line}"),
            line => writeln!(out, "{line}"),
        }),
        Value::Object(_) => writeln!(out, "{answer:#}"),
        answer => writeln!(out, "{answer}"),
    }
}

/// A text as it fits into a line.
fn one_line(text: &str) -> String {
    let shown = |one: char| if one.is_control() { one.escape_default().to_string() } else { one.to_string() };
    text.chars().map(shown).collect()
}

/// How long ago a time was, in milliseconds since 1970.
fn age(since: &Value) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = Duration::from_millis(since.as_u64().unwrap_or_default());
    let seconds = now.saturating_sub(since).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
