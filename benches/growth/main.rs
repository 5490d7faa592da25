//! How cost grows. It is measured over the number of processes, of workers, of senders to one mailbox, and over the
//! size of a message.
//!
//! Each point of a curve is a program in its own process, so that its memory is its own. The program checks its
//! result. A point is measured several times. The points of a curve take turns, so that a slow minute affects all of
//! them.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;
#[path = "../workloads/births.rs"]
#[allow(dead_code)]
mod births;
mod curves;
#[path = "../workloads/measure.rs"]
#[allow(dead_code)]
mod measure;
#[path = "../workloads/messages.rs"]
#[allow(dead_code)]
mod messages;
#[path = "../workloads/runtime.rs"]
mod runtime;
#[path = "../workloads/shape.rs"]
#[allow(dead_code)]
mod shape;

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use self::curves::{CURVES, Curve};
use self::measure::Outcome;

/// The exit code if a point was not measured, or if its result was wrong.
const WRONG: u8 = 1;

const USAGE: &str = "\
How cost grows, as one table for each curve.

usage: cargo bench --bench growth -- [CURVE...] [--runs N] [--smoke]

  CURVE    processes, workers, senders, sizes; all if none is given
  --runs   how often each point is taken (5); the median stands in the table, with the least and the most
  --smoke  the smallest points only, once: shows that it works
";

/// The options of a command line.
struct Options {
    curves: Vec<&'static Curve>,
    runs: usize,
    smoke: bool,
    /// One point, to be measured in this process: `CURVE X`.
    point: Option<(&'static Curve, u64)>,
}

fn main() -> ExitCode {
    let options = match arguments::read("growth", USAGE, parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let result = match options.point {
        Some((curve, x)) => here(curve, x),
        None => options.curves.iter().try_for_each(|curve| draw(curve, &options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("growth: {problem}");
            ExitCode::from(WRONG)
        }
    }
}

fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options { curves: Vec::new(), runs: 5, smoke: false, point: None };
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("smoke") => options.smoke = true,
            // Cargo passes this option to every benchmark.
            Long("bench") => {}
            Long("runs") => options.runs = arguments::number(arguments, "--runs", 1..=1_000)?,
            Long("point") => {
                let curve = curve(arguments.value()?)?;
                options.point = Some((curve, arguments::number(arguments, "--point", 1..=u64::MAX)?));
            }
            Value(name) => options.curves.push(curve(name)?),
            other => return Err(other.unexpected()),
        }
    }
    if options.curves.is_empty() {
        options.curves = CURVES.iter().collect();
    }
    Ok(Some(options))
}

/// The curve with that name.
fn curve(name: OsString) -> Result<&'static Curve, String> {
    CURVES.iter().find(|curve| name == curve.name).ok_or_else(|| {
        let names: Vec<&str> = CURVES.iter().map(|curve| curve.name).collect();
        format!("unknown curve {name:?}; allowed are {}", names.join(", "))
    })
}

/// Measures one point, and prints its figures.
fn here(curve: &Curve, x: u64) -> Outcome<()> {
    let figures: Vec<String> = (curve.take)(x)?.iter().map(f64::to_string).collect();
    println!("{}", figures.join(" "));
    Ok(())
}

/// Measures all points of a curve, and prints them as a table.
fn draw(curve: &Curve, options: &Options) -> Outcome<()> {
    let points = if options.smoke { &curve.points[..2] } else { curve.points };
    let runs = if options.smoke { 1 } else { options.runs };
    // By point, then by run, then by figure.
    let mut taken: Vec<Vec<Vec<f64>>> = vec![Vec::new(); points.len()];
    for _ in 0..runs {
        for (x, taken) in points.iter().zip(&mut taken) {
            taken.push(elsewhere(curve, *x)?);
        }
    }
    println!("\n{}\n", curve.about);
    println!("| {} | {} |", curve.name, curve.figures.join(" | "));
    println!("|---|{}", "---|".repeat(curve.figures.len()));
    for (x, runs) in points.iter().zip(taken) {
        let cells = (0..curve.figures.len()).map(|figure| spread(runs.iter().map(|run| run[figure])));
        println!("| {x} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

/// The median, with the least and the most.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values[..] {
        [only] => format!("{only:.0}"),
        [least, .., most] => format!("{:.0} ({least:.0}–{most:.0})", values[values.len() / 2]),
        [] => String::from("-"),
    }
}

/// Measures one point in its own process.
fn elsewhere(curve: &Curve, x: u64) -> Outcome<Vec<f64>> {
    let output = Command::new(std::env::current_exe()?).args(["--point", curve.name, &x.to_string()]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} {x}: its process ended with {}: {}", curve.name, output.status, said.trim()).into());
    }
    let figures: Result<Vec<f64>, _> = String::from_utf8(output.stdout)?.split_whitespace().map(str::parse).collect();
    let figures = figures?;
    if figures.len() != curve.figures.len() {
        return Err(format!(
            "{} {x}: {} figures, and there must be {}",
            curve.name,
            figures.len(),
            curve.figures.len()
        )
        .into());
    }
    Ok(figures)
}
