//! The text of a failure: what does not hold, the turns that led to it, and how to run it again.

use std::fmt::{self, Write};
use std::ops::Range;
use std::time::Duration;

use super::replay_seed::ReplaySeed;
use super::trace::{Failure, Finding, FindingKind, RunNumber, Trace, TraceTurn};

/// How many turns are shown before a marked turn, even if they are in order.
const BEFORE: usize = 1;

/// How many turns are shown after a marked turn, and at the end.
const AFTER: usize = 2;

/// How many turns are shown at the end if no turn is marked.
const LAST: usize = 12;

/// A column is no wider than this. A longer entry moves the rest of its line to the right.
const WIDEST: usize = 40;

/// A text of a cell or a note is no longer than this, in characters. Messages may be large, and each has one line.
const LONGEST: usize = 200;

/// The environment variable that shows all turns, if its value is `full`.
pub(crate) const TRACE_VARIABLE: &str = "PROCESSION_TRACE";

/// The environment variable with the seed of the only run that a simulation makes.
pub(crate) const SEED_VARIABLE: &str = "PROCESSION_SEED";

/// Returns the text of a failure. `is_full` shows all turns, with whole messages.
pub(crate) fn report(failure: &Failure, is_full: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_report(&mut text, failure, is_full);
    text
}

fn write_report(text: &mut String, failure: &Failure, is_full: bool) -> fmt::Result {
    let Failure { name, test, seed, turn, run, schedule, faults, version, .. } = failure;
    let (seed_number, faults) = (seed.seed, counted(*faults, "fault"));
    write!(text, "simulation `{name}` failed at seed {seed_number}, turn {turn} (")?;
    if let Some(RunNumber { run, of, .. }) = run {
        write!(text, "run {} of {}; ", grouped(*run), grouped(*of))?;
    }
    writeln!(text, "{schedule}, {faults}; version {version})")?;
    writeln!(text, "  {}", failure.finding)?;
    let turns = &failure.trace.turns;
    match &failure.shrunk {
        Some(shrunk) => {
            let late = turns.iter().filter(|turn| turn.is_late).count() as u64;
            let injected = turns.iter().filter(|turn| turn.is_injected).count() as u64;
            write!(text, "shrunk to {}", counted(turns.len() as u64, "turn"))?;
            match (late, injected) {
                (0, 0) => text.push_str(" in the order of coming"),
                (0, _) => write!(text, " in the order of coming, and {}", counted(injected, "fault"))?,
                (_, 0) => write!(text, ", of which {} out of order", grouped(late))?,
                _ => write!(text, ", of which {} out of order, and {}", grouped(late), counted(injected, "fault"))?,
            }
            let limit = if shrunk.is_minimal { "" } else { ", the limit: more may be left out" };
            writeln!(text, " ({}, {:.2} s{limit}):", counted(shrunk.runs, "run"), shrunk.took.as_secs_f64())?;
        }
        None => writeln!(text, "not shrunk, {}:", counted(turns.len() as u64, "turn"))?,
    }
    text.push('\n');
    write_trace(text, &failure.trace, is_full)?;
    writeln!(text, "again:   {}", again(test.as_deref(), seed))?;
    if let Some(shrunk) = failure.shrunk.as_ref().filter(|shrunk| shrunk.seed != *seed) {
        writeln!(text, "shrunk:  {}", again(test.as_deref(), &shrunk.seed))?;
    }
    let Some(RunNumber { coverage, .. }) = run else { return Ok(()) };
    let distinct = counted(coverage.distinct(), "distinct interleaving");
    let last_new = grouped(coverage.last_new());
    writeln!(text, "{}: {distinct}, the last new one in run {last_new}", counted(coverage.runs(), "run"))
}

/// The command line that repeats a run of this test. A program without tests is started by its own command line.
pub(crate) fn again(test: Option<&str>, seed: &ReplaySeed) -> String {
    match test {
        Some(test) => format!("{SEED_VARIABLE}={seed} cargo test {test}"),
        None => format!("{SEED_VARIABLE}={seed} in the environment of this program"),
    }
}

/// Returns the table of a trace.
pub(crate) fn table(trace: &Trace, is_full: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_trace(&mut text, trace, is_full);
    text.truncate(text.trim_end().len() + 1);
    text
}

/// The number of turns that the table of a trace shows.
pub(crate) fn shown_turns(trace: &Trace) -> usize {
    trace.turns.len() - folded(&trace.turns).iter().map(ExactSizeIterator::len).sum::<usize>()
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { check, kind, detail } = self;
        write!(f, "\"{check}\" ")?;
        match kind {
            FindingKind::DoesNotHold => f.write_str("does not hold")?,
            FindingKind::DidNotHold { within, held } => {
                write!(f, "did not hold within {}", time(*within))?;
                match held {
                    Some(held) => write!(f, ", it held last at {}", time(*held))?,
                    None => f.write_str(", it never held")?,
                }
            }
            FindingKind::Failed => f.write_str("failed")?,
        }
        match detail.trim_end() {
            "" => Ok(()),
            // Further lines of a detail are indented as its first one.
            detail => write!(f, ": {}", detail.replace('\n', "\n    ")),
        }
    }
}

/// The columns of the table.
const COLUMNS: [&str; 5] = ["turn", "time", "process", "took", "yielded"];

/// The space between two columns.
const GAPS: [usize; 5] = [2, 3, 3, 3, 0];

/// A line of the table: cells, or a note that begins in the column of the process.
enum Row {
    Cells([String; 5]),
    Note(String),
}

fn write_trace(text: &mut String, trace: &Trace, is_full: bool) -> fmt::Result {
    let (folds, longest) = if is_full { (Vec::new(), usize::MAX) } else { (folded(&trace.turns), LONGEST) };
    let mut rows = vec![Row::Cells(COLUMNS.map(String::from))];
    let (mut place, mut folds) = (0, folds.into_iter().peekable());
    let marks = trace.turns.iter().map(|turn| mark_of(turn).len()).max().unwrap_or_default().max(1);
    let numbers = trace.turns.last().map_or(0, |turn| turn.number.to_string().len());
    while place < trace.turns.len() {
        if let Some(fold) = folds.next_if(|fold| fold.start == place) {
            rows.push(fold_row(&trace.turns[fold.clone()]));
            place = fold.end;
        } else {
            let turn = &trace.turns[place];
            let number = format!("{:>marks$} {:>numbers$}", mark_of(turn), turn.number);
            rows.extend(rows_of(turn, number, longest));
            rows.extend(turn.notes.iter().map(|note| Row::Note(one_line(note, longest))));
            place += 1;
        }
    }
    write_rows(text, &rows)
}

/// Writes the rows. Each column is as wide as its widest cell, up to a limit.
fn write_rows(text: &mut String, rows: &[Row]) -> fmt::Result {
    let mut widths = [0; 5];
    for row in rows {
        let Row::Cells(cells) = row else { continue };
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count().min(WIDEST));
        }
    }
    for row in rows {
        let mut line = String::from("  ");
        match row {
            Row::Cells(cells) => {
                for ((cell, width), gap) in cells.iter().zip(widths).zip(GAPS) {
                    write!(line, "{cell:<width$}{:gap$}", "")?;
                }
            }
            Row::Note(note) => {
                let indent = widths[0] + GAPS[0] + widths[1] + GAPS[1];
                write!(line, "{:indent$}{note}", "")?;
            }
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    text.push('\n');
    Ok(())
}

fn fold_row(turns: &[TraceTurn]) -> Row {
    let (first, last) = (turns.first().map_or(0, |turn| turn.number), turns.last().map_or(0, |turn| turn.number));
    let shows = format!("({TRACE_VARIABLE}=full shows them)");
    Row::Cells([format!("{first}-{last}"), String::new(), String::new(), "in the order of coming".into(), shows])
}

/// Returns the rows of a turn. It has several if it took or yielded several things.
fn rows_of(turn: &TraceTurn, number: String, longest: usize) -> impl Iterator<Item = Row> {
    let mut first = Some([number, time(turn.time), turn.who.clone()]);
    let lines = turn.took.len().max(turn.yielded.len()).max(1);
    let cell = move |cells: &[String], line: usize| {
        let none = if line == 0 { "-" } else { "" };
        cells.get(line).map_or_else(|| none.into(), |cell| one_line(cell, longest))
    };
    (0..lines).map(move |line| {
        let [number, time, process] = first.take().unwrap_or_default();
        let (took, yielded) = (cell(&turn.took, line), cell(&turn.yielded, line));
        Row::Cells([number, time, process, took, yielded])
    })
}

fn mark_of(turn: &TraceTurn) -> &'static str {
    match (turn.is_late, turn.is_injected) {
        (false, false) => "",
        (true, false) => "!",
        (false, true) => "x",
        (true, true) => "!x",
    }
}

/// The text of a message may have several lines, as `{:#?}` has them. A longer text than this is cut off.
fn one_line(text: &str, longest: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(longest) {
        line.truncate(end);
        line.push_str("...");
    }
    line
}

/// Returns the turns that are not shown: those in order, with nothing to say, that are not near a marked turn.
fn folded(turns: &[TraceTurn]) -> Vec<Range<usize>> {
    let is_near_marked = |place: usize| {
        let near = place.saturating_sub(AFTER)..(place + BEFORE + 1).min(turns.len());
        turns[near].iter().any(TraceTurn::is_marked)
    };
    let last = if turns.iter().any(TraceTurn::is_marked) { AFTER } else { LAST };
    let is_shown =
        |place: usize| place + last >= turns.len() || !turns[place].notes.is_empty() || is_near_marked(place);
    let mut folds: Vec<Range<usize>> = Vec::new();
    for place in (0..turns.len()).filter(|place| !is_shown(*place)) {
        match folds.last_mut() {
            Some(fold) if fold.end == place => fold.end += 1,
            _ => folds.push(place..place + 1),
        }
    }
    // One turn takes as many lines as what would be said about it.
    folds.retain(|fold| fold.len() > 1);
    folds
}

/// Returns a count with its noun, in the singular or the plural.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Returns a number with a comma between each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a virtual time: in milliseconds below a second, and otherwise in seconds.
fn time(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.2} ms", time.as_nanos() as f64 / 1e6)
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::coverage::Coverage;
    use super::super::decision::{Candidate, Item, Place};
    use super::super::tape::{Deviation, Tape};
    use super::super::trace::ShrunkRun;
    use super::*;
    use crate::pid::Pid;

    fn pid(slot: u32, generation: u32) -> Pid {
        Pid::new(1, slot, generation).unwrap()
    }

    fn turn(number: u64, process: (u32, u32), name: &str, took: &[&str], yielded: &[&str]) -> TraceTurn {
        TraceTurn {
            number,
            time: Duration::from_micros(220 + 10 * number),
            who: format!("{} {name}", pid(process.0, process.1)),
            took: took.iter().map(|one| one.to_string()).collect(),
            yielded: yielded.iter().map(|one| one.to_string()).collect(),
            is_late: false,
            is_injected: false,
            notes: Vec::new(),
        }
    }

    fn bank() -> Failure {
        let mut turns: Vec<_> =
            (1..9).map(|number| turn(number, (5, 1), "Teller", &["Balance of <1.1.1>"], &["-"])).collect();
        turns.push(turn(9, (5, 1), "Teller", &["(first step)"], &["send <1.1.1> Transfer(10, <1.2.1>)"]));
        turns.push(TraceTurn {
            is_late: true,
            ..turn(10, (1, 1), "Account \"a\"", &["Transfer of <1.5.1>"], &["send <1.2.1> Deposit(10)"])
        });
        turns.push(TraceTurn {
            is_injected: true,
            notes: vec!["dead letter: Deposit(10) to <1.2.1>, its step failed".into()],
            ..turn(11, (2, 1), "Account \"b\"", &["Deposit(10) of <1.1.1>"], &["panicked (injected)"])
        });
        let supervisor = ["exit of <1.2.1>: panicked"];
        turns.push(turn(12, (0, 1), "Supervisor", &supervisor, &["spawn <1.2.2> Account \"b\""]));
        turns.push(turn(13, (2, 2), "Account \"b\"", &["(first step)"], &[]));

        let turn_of = |process, nth| Candidate { item: Item::Turn(process), nth };
        let deviations = vec![
            Deviation::Before { first: turn_of(pid(5, 1), 1), head: turn_of(pid(1, 1), 1) },
            Deviation::Answer { place: Place::Fault { rule: 0, of: pid(2, 1), nth: 1 }, answer: 1 },
        ];
        let mut coverage = Coverage::default();
        let brought_new = (0..212).filter(|run| coverage.count(if *run == 211 { 300 } else { run % 207 })).count();
        assert_eq!(brought_new, 208);
        let finding = Finding {
            check: "money is conserved".into(),
            kind: FindingKind::DoesNotHold,
            detail: "290 + 0 of 300".into(),
        };
        let tape = Some(Tape { deviations });
        Failure {
            name: "transfers_keep_the_sum".into(),
            test: Some("transfers_keep_the_sum".into()),
            seed: ReplaySeed { seed: 4711, tape: None },
            turn: 38,
            run: Some(RunNumber { run: 212, of: 10_000, coverage }),
            schedule: "pct(3)".into(),
            faults: 3,
            version: "0.1.0".into(),
            finding,
            shrunk: Some(ShrunkRun {
                seed: ReplaySeed { seed: 4711, tape },
                runs: 143,
                took: Duration::from_millis(20),
                is_minimal: true,
            }),
            trace: Trace { turns },
        }
    }

    #[test]
    fn the_text_of_a_failure_stays_the_same() {
        let expected = r#"
simulation `transfers_keep_the_sum` failed at seed 4711, turn 38 (run 212 of 10,000; pct(3), 3 faults; version 0.1.0)
  "money is conserved" does not hold: 290 + 0 of 300
shrunk to 13 turns, of which 1 out of order, and 1 fault (143 runs, 0.02 s):

  turn  time      process               took                        yielded
  1-8                                   in the order of coming      (PROCESSION_TRACE=full shows them)
     9  0.31 ms   <1.5.1> Teller        (first step)                send <1.1.1> Transfer(10, <1.2.1>)
  ! 10  0.32 ms   <1.1.1> Account "a"   Transfer of <1.5.1>         send <1.2.1> Deposit(10)
  x 11  0.33 ms   <1.2.1> Account "b"   Deposit(10) of <1.1.1>      panicked (injected)
                  dead letter: Deposit(10) to <1.2.1>, its step failed
    12  0.34 ms   <1.0.1> Supervisor    exit of <1.2.1>: panicked   spawn <1.2.2> Account "b"
    13  0.35 ms   <1.2.2> Account "b"   (first step)                -

again:   PROCESSION_SEED=4711 cargo test transfers_keep_the_sum
shrunk:  PROCESSION_SEED=4711:16511110100201045t cargo test transfers_keep_the_sum
212 runs: 208 distinct interleavings, the last new one in run 212
"#;
        assert_eq!(report(&bank(), false), expected.trim_start());
    }

    #[test]
    fn all_turns_are_shown_if_asked_for() {
        let text = report(&bank(), true);
        assert!(!text.contains("in the order of coming ") && !text.contains(TRACE_VARIABLE), "{text}");
        for number in 1..14 {
            let is_of = |line: &&str| line.trim_start_matches(['!', 'x', ' ']).starts_with(&format!("{number}  0."));
            assert_eq!(text.lines().filter(is_of).count(), 1, "{number} in\n{text}");
        }
    }

    /// The line of a text that begins so.
    fn line<'a>(text: &'a str, begin: &str) -> &'a str {
        text.lines().find(|line| line.trim_start().starts_with(begin)).unwrap_or_else(|| panic!("{begin} in\n{text}"))
    }

    #[test]
    fn each_kind_of_finding_is_a_sentence() {
        let said = |kind, detail: &str| {
            let mut failure = bank();
            failure.finding = Finding { check: "a".into(), kind, detail: detail.into() };
            line(&report(&failure, false), "\"a\"").trim().to_string()
        };
        let within = Duration::from_secs(10);
        let never = FindingKind::DidNotHold { within, held: None };
        let once = FindingKind::DidNotHold { within, held: Some(Duration::from_millis(1_500)) };
        assert_eq!(said(FindingKind::DoesNotHold, ""), "\"a\" does not hold");
        assert_eq!(said(FindingKind::Failed, "b"), "\"a\" failed: b");
        assert_eq!(said(never, "b"), "\"a\" did not hold within 10.00 s, it never held: b");
        assert_eq!(said(once, ""), "\"a\" did not hold within 10.00 s, it held last at 1.50 s");
    }

    #[test]
    fn it_is_said_how_far_a_run_was_shrunk() {
        let said = |change: &dyn Fn(&mut Failure)| {
            let mut failure = bank();
            change(&mut failure);
            let text = report(&failure, false);
            text.lines().find(|line| line.contains("shrunk") && line.ends_with(':')).unwrap().to_string()
        };
        let in_order = |failure: &mut Failure| failure.trace.turns[9].is_late = false;
        let no_fault = |failure: &mut Failure| failure.trace.turns[10].is_injected = false;
        assert_eq!(said(&in_order), "shrunk to 13 turns in the order of coming, and 1 fault (143 runs, 0.02 s):");
        assert_eq!(said(&no_fault), "shrunk to 13 turns, of which 1 out of order (143 runs, 0.02 s):");
        let both = |failure: &mut Failure| (in_order(failure), no_fault(failure)).0;
        assert_eq!(said(&both), "shrunk to 13 turns in the order of coming (143 runs, 0.02 s):");
        let limit = |failure: &mut Failure| failure.shrunk.as_mut().unwrap().is_minimal = false;
        assert!(said(&limit).ends_with("(143 runs, 0.02 s, the limit: more may be left out):"));
        assert_eq!(said(&|failure| failure.shrunk = None), "not shrunk, 13 turns:");
    }

    /// A run of a tape that is minimal already has one line to run it again.
    #[test]
    fn a_shrunk_run_that_fails_again_is_not_named_twice() {
        let mut failure = bank();
        failure.seed = failure.shrunk.as_ref().unwrap().seed.clone();
        let text = report(&failure, false);
        assert!(text.contains("failed at seed 4711, "));
        assert_eq!(text.matches("PROCESSION_SEED=").count(), 1);
        assert!(line(&text, "again:").contains("=4711:1"));
    }

    #[test]
    fn a_turn_has_a_line_for_each_thing_it_took_or_yielded() {
        let mut failure = bank();
        let long = "send <1.1.1> Long(".to_string() + &"1, ".repeat(40) + ")";
        failure.trace.turns = vec![
            turn(1, (1, 1), "One", &["A of <1.2.1>", "B {\n    b: 1,\n}", "C"], &["send <1.2.1> D"]),
            TraceTurn {
                is_late: true,
                is_injected: true,
                time: Duration::from_secs(3_600),
                ..turn(2, (1, 1), "One", &[&long], &["E"])
            },
        ];
        let text = report(&failure, false);
        let table: Vec<&str> = text.lines().skip_while(|line| !line.contains("process")).take(5).collect();
        let expected = [
            "  turn  time        process       took                                       yielded",
            "     1  0.23 ms     <1.1.1> One   A of <1.2.1>                               send <1.2.1> D",
            "                                  B { b: 1, }",
            "                                  C",
        ];
        assert_eq!(table[..4], expected, "{text}");
        assert!(table[4].starts_with("  !x 2  3600.00 s   <1.1.1> One   send <1.1.1> Long(1, 1, "), "{text}");
        assert!(table[4].ends_with("1, )   E"), "{text}");
    }

    #[test]
    fn turns_in_order_are_folded_only_if_there_are_several() {
        let plain = || turn(1, (1, 1), "One", &["A"], &[]);
        let marked = || TraceTurn { is_late: true, ..plain() };
        let noted = || TraceTurn { notes: vec!["a".into()], ..plain() };
        let turns = |kinds: &str| -> Vec<TraceTurn> {
            let of = |kind| match kind {
                '!' => marked(),
                'n' => noted(),
                _ => plain(),
            };
            kinds.chars().map(of).collect()
        };
        for (kinds, expected) in [
            ("", None),
            ("............", None),
            (".............", None),
            ("..............", Some(0..2)),
            ("..!", None),
            ("...!", Some(0..2)),
            ("!....!", None),
            ("!.....!", Some(3..5)),
            ("!......!", Some(3..6)),
            ("...n...........", Some(0..3)),
            ("!........", Some(3..7)),
        ] {
            assert_eq!(folded(&turns(kinds)), Vec::from_iter(expected), "{kinds}");
        }
    }

    #[test]
    fn numbers_and_times_are_easy_to_read() {
        let numbers = [0, 12, 999, 1_000, 123_456, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "12", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!([counted(0, "run"), counted(1, "run"), counted(2_000, "run")], ["0 runs", "1 run", "2,000 runs"]);
        let times = [0, 999_999, 1_000_000, 90_000_000].map(|micros| time(Duration::from_micros(micros)));
        assert_eq!(times, ["0.00 ms", "1000.00 ms", "1.00 s", "90.00 s"]);
    }
}
