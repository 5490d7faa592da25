//! Messages between two nodes, in two programs that are connected over TCP on this machine: Procession side by side
//! with Erlang, ractor_cluster and kameo.
//!
//! Each measurement has two new programs. The peers take turns, round after round. Every answer is checked, and losses
//! are counted. Only ratios within one run count.

#![forbid(unsafe_code)]

#[path = "../../../examples/arguments/mod.rs"]
mod arguments;
mod bounds;
mod child;
mod hostile;
#[path = "../../../tests/common/hostile_peer.rs"]
mod hostile_peer;
mod idle;
mod load;
mod peers;
mod rounds;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};

use crate::child::{Interrupted, Keeper};
use crate::load::{Counts, Outcome};
use crate::peers::{Peer, erlang};
use crate::rounds::{IdleRun, Run};

const USAGE: &str = "\
usage: cargo run --release --manifest-path benches/nodes/Cargo.toml -- [OPTION...]

Runs pairs of programs that send messages to each other over TCP on this machine. The peers take turns, in rounds.

  --peer P    this peer, may be repeated; without it all
              (procession, erlang, ractor, kameo; the last two as far as they were built)
  --rounds N  rounds, 1 to 1000; without it 5, or 1 with --smoke
  --idle      also the cost of an idle peer
  --bounds    measures the times and rates that our nodes promise, instead of the peers; takes about 2.5 minutes
  --hostile   measures the cost of a peer that breaks the protocol, instead of the peers; takes about 2 minutes
  --smoke     small counts, to see that everything works
  --json      a line of JSON for each measurement, instead of the table
  --help      this

The measurements: messages one way (64 bytes, from a process to a process), questions one after the other, questions
with 64 in flight, and questions to another process while 64 MiB travel in four messages, one after the other.

The exit code is 1 if an answer was wrong, a program failed, we have lost a message or changed the order, or a figure of
--bounds or --hostile misses its bar. With --smoke, a missed bar does not change the exit code. The exit code is 2 for
invalid options, and 130 after Ctrl-C. Erlang is left out if it is not installed.
";

/// The exit code if something was wrong, and after Ctrl-C, as in shells.
const WRONG: u8 = 1;
const INTERRUPTED: u8 = 130;

/// How long nodes are idle.
const IDLE_TIME: Duration = Duration::from_secs(10);
const IDLE_SMOKE: Duration = Duration::from_millis(200);

/// How long the flood and the busy processors are measured, each.
const BOUNDS_TIME: Duration = Duration::from_secs(60);
const BOUNDS_SMOKE: Duration = Duration::from_secs(1);

/// How long a node is measured beside a peer that breaks the protocol.
const HOSTILE_TIME: Duration = Duration::from_secs(10);
const HOSTILE_SMOKE: Duration = Duration::from_secs(1);

enum Asked {
    Rounds(Options),
    /// The parts of this program that it starts by itself.
    Serve(Peer, u16),
    Measure(Peer, String, Counts),
    Idle(String, String, (u16, u16), Duration),
    Bound(String, String, (u16, u16), Duration),
    Attacked(String, u16, Duration),
}

struct Options {
    peers: Vec<Peer>,
    rounds: u64,
    is_idle: bool,
    is_bounds: bool,
    is_hostile: bool,
    is_smoke: bool,
    is_json: bool,
}

fn parse(parser: &mut Parser) -> Result<Option<Asked>, lexopt::Error> {
    let (mut peers, mut rounds) = (Vec::new(), None);
    let (mut is_idle, mut is_bounds, mut is_hostile, mut is_smoke, mut is_json) = (false, false, false, false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("peer") => peers.push(peer(&parser.value()?.string()?)?),
            Long("rounds") => rounds = Some(arguments::number(parser, "--rounds", 1..=1_000)?),
            // The idle nodes that this program starts have further values.
            Long("idle") => match parser.optional_value() {
                Some(kind) => return own_node(parser, kind.string()?, Asked::Idle).map(Some),
                None => is_idle = true,
            },
            Long("bounds") => match parser.optional_value() {
                Some(role) => return own_node(parser, role.string()?, Asked::Bound).map(Some),
                None => is_bounds = true,
            },
            Long("hostile") => match parser.optional_value() {
                Some(fault) => {
                    let (fault, port) = (fault.string()?, parser.value()?.parse()?);
                    return Ok(Some(Asked::Attacked(fault, port, Duration::from_millis(parser.value()?.parse()?))));
                }
                None => is_hostile = true,
            },
            Long("smoke") => is_smoke = true,
            Long("json") => is_json = true,
            Long("serve") => {
                return Ok(Some(Asked::Serve(peer(&parser.value()?.string()?)?, parser.value()?.parse()?)));
            }
            Long("measure") => {
                let (peer, address) = (peer(&parser.value()?.string()?)?, parser.value()?.string()?);
                let mut count = || parser.value()?.parse();
                let counts = Counts { messages: count()?, asks: count()?, pipelined: count()?, large: count()? };
                return Ok(Some(Asked::Measure(peer, address, counts)));
            }
            other => return Err(other.unexpected()),
        }
    }
    if peers.is_empty() {
        peers = peers::all();
    }
    let rounds = rounds.unwrap_or(if is_smoke { 1 } else { 5 });
    Ok(Some(Asked::Rounds(Options { peers, rounds, is_idle, is_bounds, is_hostile, is_smoke, is_json })))
}

/// A node that this program starts by itself: its kind, its name, its ports and a time.
type OwnNode = fn(String, String, (u16, u16), Duration) -> Asked;

fn own_node(parser: &mut Parser, kind: String, node: OwnNode) -> Result<Asked, lexopt::Error> {
    let name = parser.value()?.string()?;
    let ports = (parser.value()?.parse()?, parser.value()?.parse()?);
    Ok(node(kind, name, ports, Duration::from_millis(parser.value()?.parse()?)))
}

fn peer(name: &str) -> Result<Peer, String> {
    let all = peers::all();
    let names: Vec<_> = all.iter().map(|peer| peer.name).collect();
    let found = all.iter().find(|peer| peer.name == name).copied();
    found.ok_or_else(|| format!("unknown peer {name:?}; allowed are {}", names.join(", ")))
}

fn run(asked: Asked) -> Outcome<ExitCode> {
    match asked {
        Asked::Rounds(options) if options.is_bounds => {
            let time = if options.is_smoke { BOUNDS_SMOKE } else { BOUNDS_TIME };
            return bounded(&options, |keeper| bounds::all(keeper, time));
        }
        Asked::Rounds(options) if options.is_hostile => {
            let time = if options.is_smoke { HOSTILE_SMOKE } else { HOSTILE_TIME };
            return bounded(&options, |keeper| hostile::all(keeper, time));
        }
        Asked::Rounds(options) => return all(options),
        Asked::Serve(peer, port) => peer.serve(port)?,
        Asked::Measure(peer, address, counts) => {
            println!("{}", serde_json::to_string(&peer.measure(&address, counts)?)?);
        }
        Asked::Idle(kind, name, ports, time) => {
            println!("{}", serde_json::to_string(&idle::run(&kind, &name, ports, time)?)?);
            // The other node is measured as long.
            peers::until_the_end("")?;
        }
        Asked::Bound(role, name, ports, time) => bounds::node(&role, &name, ports, time)?,
        Asked::Attacked(fault, port, time) => {
            println!("{}", serde_json::to_string(&hostile::node(&fault, port, time)?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures what our nodes promise, and prints the report. The exit code is that of a wrong answer if a figure misses
/// its bar.
fn bounded(options: &Options, measure: impl FnOnce(&mut Keeper) -> Outcome<Vec<bounds::Bound>>) -> Outcome<ExitCode> {
    let before = load();
    let measured = match measure(&mut Keeper::new()?) {
        Ok(measured) => measured,
        Err(problem) if problem.is::<Interrupted>() => return Ok(ExitCode::from(INTERRUPTED)),
        Err(problem) => return Err(problem),
    };
    if options.is_json {
        measured.iter().try_for_each(|bound| Outcome::Ok(println!("{}", serde_json::to_string(bound)?)))?;
    } else {
        println!("Load before: {before}; after: {}.\n\n| statement | what | measured | bar | |", load());
        println!("|---|---|---|---|---|");
        measured.iter().for_each(|bound| println!("{}", bound.row()));
    }
    let missed: Vec<_> = measured.iter().filter(|bound| !bound.is_met).collect();
    missed.iter().for_each(|bound| eprintln!("nodes: missed: {}", bound.row()));
    // With the small counts of `--smoke`, a short load of another program would decide.
    Ok(ExitCode::from(if missed.is_empty() || options.is_smoke { 0 } else { WRONG }))
}

/// Runs all rounds, and prints the report.
fn all(options: Options) -> Outcome<ExitCode> {
    let Options { mut peers, rounds, is_idle, is_smoke, is_json, .. } = options;
    let mut keeper = Keeper::new()?;
    if peers.iter().any(Peer::is_erlang) {
        match erlang::prepare() {
            Ok(version) => eprintln!("nodes: erlang is {version}"),
            Err(problem) => {
                eprintln!("nodes: erlang is left out: {problem}");
                peers.retain(|peer| !peer.is_erlang());
            }
        }
    }
    let counts = if is_smoke { Counts::SMOKE } else { Counts::FULL };
    let before = load();
    let (mut runs, mut idles, mut is_wrong) = (Vec::new(), Vec::new(), false);
    for round in 0..rounds {
        for peer in rounds::order(&peers, round) {
            match rounds::pair(&mut keeper, &peer, counts) {
                Ok(measured) => {
                    let lost = measured.sent - measured.arrived.min(measured.sent);
                    if lost + measured.out_of_order > 0 {
                        is_wrong |= peer.name == peers::OURS;
                        let wrong = measured.out_of_order;
                        eprintln!("nodes: {}: {lost} of {} are lost, {wrong} out of order", peer.name, measured.sent);
                    }
                    let run = Run { peer: peer.name.to_string(), round, measured };
                    if is_json {
                        println!("{}", serde_json::to_string(&run)?);
                    }
                    runs.push(run);
                }
                Err(problem) if problem.is::<Interrupted>() => return Ok(ExitCode::from(INTERRUPTED)),
                Err(problem) => {
                    eprintln!("nodes: {}: {problem}", peer.name);
                    is_wrong = true;
                }
            }
        }
        if is_idle {
            match rounds::idle(&mut keeper, round, if is_smoke { IDLE_SMOKE } else { IDLE_TIME }) {
                Ok(run) => idles.push(run),
                Err(problem) if problem.is::<Interrupted>() => return Ok(ExitCode::from(INTERRUPTED)),
                Err(problem) => {
                    eprintln!("nodes: idle: {problem}");
                    is_wrong = true;
                }
            }
        }
    }
    if is_json {
        idles.iter().try_for_each(|idle: &IdleRun| Outcome::Ok(println!("{}", serde_json::to_string(idle)?)))?;
    } else {
        println!("Load before: {before}; after: {}. {rounds} round(s).\n\n{}", load(), table::report(&peers, &runs));
        if is_idle {
            println!("{}", table::idle(&idles));
        }
    }
    Ok(ExitCode::from(if is_wrong { WRONG } else { 0 }))
}

/// The load averages of the last 1, 5 and 15 minutes. Linux only.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<_> = text.split(' ').take(3).collect();
    if three.len() == 3 { three.join(", ") } else { String::from("unknown") }
}

fn main() -> ExitCode {
    arguments::main("nodes", USAGE, parse, run)
}
