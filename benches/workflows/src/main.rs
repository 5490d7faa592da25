//! The same orders as durable processes of ours and as workflows of durare, side by side, in the files of SQLite.
//!
//! An order has three activities, one after the other. The peers take turns, round after round, each in a new program
//! with a new store. Every output is checked, and no activity may be carried out twice. A plain `fdatasync` stands
//! beside them.

#![forbid(unsafe_code)]

#[path = "../../../examples/arguments/mod.rs"]
mod arguments;
// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../nodes/src/child.rs"]
mod child;
mod load;
mod ours;
mod table;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use lexopt::Arg::{Long, Short};
use lexopt::Parser;

use crate::child::{Interrupted, Keeper};
use crate::load::{Counts, LIMIT, Measured, Outcome};

const USAGE: &str = "\
usage: cargo run --release --manifest-path benches/workflows/Cargo.toml -- [OPTION...]

Carries out the same orders with Procession and with durare, on SQLite. The peers take turns, in rounds.

  --rounds N       rounds, 1 to 1000; without it 5, or 1 with --smoke
  --ours           Procession only: durare is not built
  --directory DIR  where the stores are made and removed (default: the directory for temporary files)
  --smoke          small counts, to see that everything works
  --json           a line of JSON for each run, instead of the table
  --help           this

An order has three activities, one after the other. There are 1,000 orders one after the other, and then 2,000 at once.

The exit code is 1 if an output was wrong, an activity was carried out twice, or a program failed. It is 2 for invalid
options, and 130 after Ctrl-C.
";

/// The exit code after Ctrl-C, as in shells.
const INTERRUPTED: u8 = 130;

/// The bytes of a plain `fdatasync`, about those of a record.
const BYTES: usize = 400;

/// The program that uses durare: its manifest, and where it is built.
const DURARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/durare/Cargo.toml");
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target");

enum Asked {
    Rounds(Options),
    /// The part of this program that it starts by itself.
    Ours(PathBuf, Counts),
}

struct Options {
    rounds: u64,
    is_ours_only: bool,
    directory: PathBuf,
    is_smoke: bool,
    is_json: bool,
}

fn parse(parser: &mut Parser) -> Result<Option<Asked>, lexopt::Error> {
    let (mut rounds, mut directory) = (None, std::env::temp_dir());
    let (mut is_ours_only, mut is_smoke, mut is_json) = (false, false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("rounds") => rounds = Some(arguments::number(parser, "--rounds", 1..=1_000)?),
            Long("ours") => is_ours_only = true,
            Long("directory") => directory = parser.value()?.into(),
            Long("smoke") => is_smoke = true,
            Long("json") => is_json = true,
            Long("run") => {
                let folder = parser.value()?.into();
                let mut count = || arguments::number(parser, "--run", 1..=u64::MAX);
                return Ok(Some(Asked::Ours(folder, Counts { singly: count()?, together: count()? })));
            }
            other => return Err(other.unexpected()),
        }
    }
    let rounds = rounds.unwrap_or(if is_smoke { 1 } else { 5 });
    Ok(Some(Asked::Rounds(Options { rounds, is_ours_only, directory, is_smoke, is_json })))
}

/// A system that carries out orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    Ours,
    /// durare with this `synchronous`.
    Durare(&'static str),
}

impl Peer {
    const ALL: [Peer; 3] = [Peer::Ours, Peer::Durare("full"), Peer::Durare("normal")];

    fn name(self) -> &'static str {
        match self {
            Peer::Ours => "procession",
            Peer::Durare("full") => "durare, FULL",
            Peer::Durare(_) => "durare, NORMAL",
        }
    }

    /// The program of this peer, which prints one line.
    fn command(self, folder: &Path, counts: Counts) -> Outcome<Command> {
        let mut command = match self {
            Peer::Ours => Command::new(std::env::current_exe()?),
            Peer::Durare(_) => Command::new(Path::new(TARGET).join("release/durare-orders")),
        };
        match self {
            Peer::Ours => command.arg("--run").arg(folder).args(counts.arguments()),
            Peer::Durare(synchronous) => command.arg(folder).args(counts.arguments()).arg(synchronous),
        };
        Ok(command)
    }
}

/// Builds the program that uses durare.
fn build_durare() -> Outcome<()> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Where the program is does not depend on the caller's environment.
    build.args(["build", "--release", "--target-dir", TARGET, "--manifest-path", DURARE]);
    let status = build.status()?;
    if status.success() { Ok(()) } else { Err("durare cannot be built; --ours leaves it out".into()) }
}

/// The folder of the stores, which is removed at the end, also after Ctrl-C.
struct Folder(PathBuf);

impl Folder {
    fn new(directory: &Path) -> Outcome<Folder> {
        let path = directory.join(format!("procession-workflows-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(problem) = fs::remove_dir_all(&self.0) {
            eprintln!("workflows: {} is left behind: {problem}", self.0.display());
        }
    }
}

/// The median time of a plain `fdatasync`, in nanoseconds.
fn fdatasync(folder: &Path, count: u64) -> Outcome<u64> {
    let mut file = File::create(folder.join("plain"))?;
    let mut sync = || -> Outcome<u64> {
        let begin = Instant::now();
        file.write_all(&[7; BYTES])?;
        file.sync_data()?;
        Ok(begin.elapsed().as_nanos() as u64)
    };
    let mut times = (0..count).map(|_| sync()).collect::<Outcome<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// The figures of one round.
struct Round {
    fdatasync: u64,
    runs: Vec<(Peer, Measured)>,
}

fn round(keeper: &mut Keeper, peers: &[Peer], number: u64, folder: &Path, counts: Counts) -> Outcome<Round> {
    let fdatasync = fdatasync(folder, counts.singly)?;
    let mut order = peers.to_vec();
    // In each round another one goes first.
    order.rotate_left((number % peers.len() as u64) as usize);
    let mut runs = Vec::new();
    for peer in order {
        let store = folder.join("store");
        let program = keeper.start(peer.command(&store, counts)?)?;
        let line = keeper.line(&program, LIMIT * 10)?;
        // It has closed its files, or is ended now.
        drop(program);
        fs::remove_dir_all(&store)?;
        runs.push((peer, serde_json::from_str(&line)?));
    }
    Ok(Round { fdatasync, runs })
}

fn all(options: &Options) -> Outcome<()> {
    if !options.is_ours_only {
        build_durare()?;
    }
    let peers = if options.is_ours_only { &Peer::ALL[..1] } else { &Peer::ALL[..] };
    let counts =
        if options.is_smoke { Counts { singly: 20, together: 50 } } else { Counts { singly: 1_000, together: 2_000 } };
    let mut keeper = Keeper::new()?;
    let folder = Folder::new(&options.directory)?;
    let before = load_average();
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let round = round(&mut keeper, peers, number, &folder.0, counts)?;
        if options.is_json {
            for (peer, measured) in &round.runs {
                let name = peer.name();
                let fdatasync = round.fdatasync;
                let line =
                    serde_json::json!({ "peer": name, "round": number, "fdatasync": fdatasync, "run": measured });
                println!("{line}");
            }
        }
        rounds.push(round);
    }
    if !options.is_json {
        println!("Load before: {before}; after: {}. {} round(s).\n", load_average(), options.rounds);
        if options.is_smoke || cfg!(debug_assertions) {
            println!("These are not the usual counts, or not an optimised build: the figures mean nothing.\n");
        }
        println!("{}", table::report(peers, &rounds));
    }
    Ok(())
}

/// The load averages of the last 1, 5 and 15 minutes. Linux only.
fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<_> = text.split(' ').take(3).collect();
    if three.len() == 3 { three.join(", ") } else { String::from("unknown") }
}

fn run(asked: Asked) -> Outcome<ExitCode> {
    let result = match asked {
        Asked::Rounds(options) => all(&options),
        Asked::Ours(folder, counts) => {
            load::end_with_the_other();
            ours::measure(&folder, counts).and_then(|measured| {
                println!("{}", serde_json::to_string(&measured)?);
                Ok(())
            })
        }
    };
    match result {
        Err(problem) if problem.is::<Interrupted>() => Ok(ExitCode::from(INTERRUPTED)),
        result => result.map(|()| ExitCode::SUCCESS),
    }
}

fn main() -> ExitCode {
    arguments::main("workflows", USAGE, parse, run)
}
