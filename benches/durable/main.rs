//! Durable processes: records a second by the size of a batch, beside a plain `fdatasync`, and steps a second.
//!
//! Each record has one process with a state of 200 bytes, at random among 10,000 processes. The bytes of a plain
//! `fdatasync` are those of the same batch, appended to a file. So the quotient is the cost of the journal, and not
//! that of the disk.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;
mod at_random;
mod processes;
mod recovery;
mod timers;
mod watched;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use at_random::AtRandom;
use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};
use processes::BesideBackups;
use procession::durable::journal::{
    Batch, Change, EncodedRecord, Journal, Opened, Position, ProcessRow, Record, SqliteJournal, Status,
};
use recovery::{Recovery, Size};

const USAGE: &str = "\
How many records a second the journal of durable processes commits and applies.

usage: cargo bench --features sqlite --bench durable -- [--smoke] [--only PART] [--directory DIR]

  --only PART      one part: journal, processes, backups, random, timers, recovery
  --smoke          small counts, to see that everything works
  --directory DIR  where the store is made and removed (default: the directory for temporary files)";

struct Options {
    smoke: bool,
    /// The only part to measure.
    only: Option<String>,
    directory: PathBuf,
    /// A part of the measurement of a recovery, in a program of its own.
    part: Option<(Part, Size)>,
}

#[derive(Clone, Copy)]
enum Part {
    Fill,
    Recover,
}

fn record(position: u64) -> Record {
    let row = ProcessRow {
        status: Status::Sleeping,
        kind: "order".into(),
        version: 1,
        state: vec![position as u8; 200],
        head: vec![0; 20],
    };
    let serial = position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Record { changes: vec![Change::Process { serial: serial % 10_000, row: Some(row) }] }
}

fn batch(last: Position, count: u64) -> Batch {
    let mut batch = Batch::new(last.next());
    for position in last.0 + 1..=last.0 + count {
        let record = EncodedRecord::new(&record(position)).expect("it is small");
        batch.push(&record).expect("there is room");
    }
    batch
}

/// Commits batches for a while. Returns the median time of a commit, and the records a second.
fn commits(opened: &mut Opened, last: &mut Position, count: u64, limit: Duration) -> (Duration, f64) {
    let begin = Instant::now();
    let (mut times, mut records) = (Vec::new(), 0);
    while begin.elapsed() < limit || times.is_empty() {
        let batch = batch(*last, count);
        let begin = Instant::now();
        opened.log.commit(&batch).expect("it is committed");
        times.push(begin.elapsed());
        *last = batch.last();
        records += count;
    }
    times.sort_unstable();
    (times[times.len() / 2], records as f64 / begin.elapsed().as_secs_f64())
}

/// The median time of an `fdatasync` after as many bytes as the batch has.
fn plain(directory: &Path, bytes: usize, limit: Duration) -> Duration {
    let path = directory.join("plain");
    let mut file = File::create(&path).expect("a file can be made");
    let content = vec![7; bytes];
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < limit || times.is_empty() {
        let begin = Instant::now();
        file.write_all(&content).and_then(|()| file.sync_data()).expect("it is written");
        times.push(begin.elapsed());
    }
    fs::remove_file(path).expect("it is there");
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let options = match arguments::read("durable", USAGE, parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match options.part {
        Some((Part::Fill, size)) => recovery::fill(&options.directory, size),
        Some((Part::Recover, size)) => return recovery::recover(&options.directory, size),
        None => {}
    }
    let directory = options.directory.join(format!("procession-bench-{}", std::process::id()));
    let limit = Duration::from_millis(if options.smoke { 1 } else { 1_500 });
    for (part, run) in PARTS {
        if options.only.as_ref().is_none_or(|only| only == part) {
            run(&directory, options.smoke, limit);
        }
    }
    ExitCode::SUCCESS
}

/// A part of the measurement. It gets a directory that is not there, whether the counts are small, and a time.
type Run = fn(&Path, bool, Duration);

const PARTS: [(&str, Run); 6] = [
    ("journal", run_journal),
    ("processes", run_processes),
    ("backups", run_backups),
    ("random", run_at_random),
    ("timers", run_timers),
    ("recovery", run_recovery),
];

fn run_journal(directory: &Path, _: bool, limit: Duration) {
    let mut journal = SqliteJournal::new(directory);
    let mut opened = journal.open().expect("a store can be made");
    let mut last = Position::START;
    for count in [1, 10, 100, 1_000, 4_000] {
        let (median, rate) = commits(&mut opened, &mut last, count, limit);
        let plain = plain(directory, batch(last, count).size(), limit);
        println!(
            "{{\"workload\":\"commit\",\"records\":{count},\"records_per_second\":{rate:.0},\"median_us\":{},\
             \"fdatasync_us\":{},\"ratio\":{:.2}}}",
            median.as_micros(),
            plain.as_micros(),
            median.as_secs_f64() / plain.as_secs_f64()
        );
        let begin = Instant::now();
        let before = opened.recovered.applied;
        opened.recovered.applied = opened.tables.apply(last).expect("it is applied");
        while opened.log.trim(last).expect("it is trimmed") {}
        let rate = (last.0 - before.0) as f64 / begin.elapsed().as_secs_f64();
        println!("{{\"workload\":\"apply and trim\",\"records_per_second\":{rate:.0}}}");
    }
    drop((opened, journal));
    fs::remove_dir_all(directory).expect("it is there");
}

fn run_processes(directory: &Path, smoke: bool, limit: Duration) {
    let (hops, processes, each) = if smoke { (2_000, 100, 5) } else { (1_000_000, 10_000, 100) };
    let print = |workload: &str, rate: f64| println!("{{\"workload\":\"{workload}\",\"steps_per_second\":{rate:.0}}}");
    let begin = |run: &dyn Fn(&Path) -> f64| {
        let rate = run(directory);
        fs::remove_dir_all(directory).expect("it is there");
        rate
    };
    print("ring", begin(&|directory| processes::ring(directory, hops)));
    let steps = |failing| begin(&|directory| processes::steps::<false>(directory, (processes, failing), each));
    print("steps, postcard", steps(0));
    print("steps, JSON", begin(&|directory| processes::steps::<true>(directory, (processes, 0), each)));
    // In turn, so that both have the same disk.
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..if smoke { 1 } else { 5 } {
        alone.push(steps(0));
        beside.push(steps(processes / 10));
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (alone, beside) = (median(&mut alone), median(&mut beside));
    println!(
        "{{\"workload\":\"steps beside processes that fail\",\"failing\":{},\"steps_per_second\":{beside:.0},\
         \"alone\":{alone:.0},\"ratio\":{:.2}}}",
        processes / 10,
        beside / alone
    );
    let median = processes::begins(directory, limit);
    let plain = plain(directory, 400, limit);
    fs::remove_dir_all(directory).expect("it is there");
    println!(
        "{{\"workload\":\"begin and wait\",\"median_us\":{},\"fdatasync_us\":{},\"ratio\":{:.2}}}",
        median.as_micros(),
        plain.as_micros(),
        median.as_secs_f64() / plain.as_secs_f64()
    );
}

fn run_backups(directory: &Path, smoke: bool, limit: Duration) {
    let processes = if smoke { 100 } else { 100_000 };
    let BesideBackups { alone, beside, backups, took } = processes::backups(directory, processes, limit * 4);
    fs::remove_dir_all(directory).expect("it is there");
    println!(
        "{{\"workload\":\"commits beside backups\",\"processes\":{processes},\"p99_alone_us\":{},\"p99_beside_us\":{},\
         \"ratio\":{:.2},\"backups\":{backups},\"backup_ms\":{}}}",
        alone.as_micros(),
        beside.as_micros(),
        beside.as_secs_f64() / alone.as_secs_f64(),
        took.as_millis() / backups as u128
    );
}

fn run_recovery(directory: &Path, smoke: bool, _: Duration) {
    let size = if smoke { [1_000, 100, 100, 1 << 18] } else { [1_000_000, 10_000, 50_000, 63 << 20] };
    let size = Size::new(size);
    let Recovery { opened_ms, stepped_ms, memory_mb, bytes_a_sleeper } = recovery::recovery(directory, size);
    fs::remove_dir_all(directory).expect("it is there");
    println!(
        "{{\"workload\":\"recovery\",\"sleepers\":{},\"ready\":{},\"log_mb\":{},\"opened_ms\":{opened_ms},\
         \"stepped_ms\":{stepped_ms},\"memory_mb\":{memory_mb},\"bytes_a_sleeper\":{bytes_a_sleeper}}}",
        size.sleepers,
        size.ready,
        size.log / 1_000_000
    );
}

/// All processes in memory, and then a third of them.
fn run_at_random(directory: &Path, smoke: bool, _: Duration) {
    let (processes, steps) = if smoke { (300, 2_000) } else { (300_000, 1_000_000) };
    for (resident, steps) in [(processes, steps), (processes / 3, steps / 4)] {
        let AtRandom { steps_a_second, longest } = at_random::at_random(directory, processes, resident as usize, steps);
        fs::remove_dir_all(directory).expect("it is there");
        println!(
            "{{\"workload\":\"steps at random\",\"processes\":{processes},\"resident\":{resident},\
             \"steps_per_second\":{steps_a_second:.0},\"longest_commit_ms\":{},\"longest_pause_ms\":{}}}",
            longest.commit.as_millis(),
            longest.pause.as_millis()
        );
    }
}

/// A few pending timers, and many.
fn run_timers(directory: &Path, smoke: bool, _: Duration) {
    let rounds = if smoke { 1 } else { 5 };
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let measure = |pending, rounds| {
        let times = timers::timers(directory, pending, rounds);
        fs::remove_dir_all(directory).expect("it is there");
        times
    };
    let many = if smoke { 1_000 } else { 1_000_000 };
    // A store for each round, so that the timers of the earlier rounds are not pending.
    let beside_few = median((0..rounds).flat_map(|_| measure(10, 1)).collect());
    let beside_many = median(measure(many, rounds));
    println!(
        "{{\"workload\":\"timers\",\"pending\":{many},\"beside_10_ns\":{},\"beside_many_ns\":{},\"ratio\":{:.2}}}",
        beside_few.as_nanos(),
        beside_many.as_nanos(),
        beside_many.as_secs_f64() / beside_few.as_secs_f64()
    );
}

/// The options. `None` if help was requested.
fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let (smoke, directory) = (cfg!(debug_assertions), std::env::temp_dir());
    let mut options = Options { smoke, only: None, directory, part: None };
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("smoke") => options.smoke = true,
            Long("only") => {
                let only = arguments.value()?.string()?;
                if !PARTS.iter().any(|(part, _)| *part == only) {
                    return Err(format!("there is no part {only:?}").into());
                }
                options.only = Some(only);
            }
            Long("directory") => options.directory = arguments.value()?.into(),
            // These are for children of this program.
            Long(part @ ("fill" | "recover")) => {
                let part = if part == "fill" { Part::Fill } else { Part::Recover };
                let mut size = [0; 4];
                for number in &mut size {
                    *number = arguments::number(arguments, "--fill and --recover", 1..=u64::MAX)?;
                }
                options.part = Some((part, Size::new(size)));
            }
            // Cargo passes this option to every benchmark.
            Long("bench") => {}
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}
