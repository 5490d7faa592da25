//! The comparisons: the groups of workloads with Procession's target ratios, and the peers with their programs. A
//! further group or program is added only here.

use crate::jobs;
use crate::ours::actors::ACTORS;
use crate::ours::bridge::BRIDGE;
use crate::ours::list::{GENERAL, JOBS, WORKLOADS};
use crate::ours::measure::{Measured, Outcome, Setting, Workload};
use crate::peers::{with_actix, with_kameo, with_ractor, with_tokio, with_xtra};
use crate::savina;

/// A workload as one peer does it.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) workload: &'static str,
    pub(crate) run: fn(&Setting) -> Outcome<Measured>,
}

impl Program {
    pub(crate) const fn new(workload: &'static str, run: fn(&Setting) -> Outcome<Measured>) -> Program {
        Program { workload, run }
    }
}

/// The peer that all others are compared with.
pub(crate) const US: &str = "procession";

/// How the programs of a peer are run.
pub(crate) enum Programs {
    /// In this program, each run in its own process.
    Here(Vec<Program>),
    /// By the script in `others/`, which compiles and runs the programs that are not written in Rust.
    Script,
}

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) programs: Programs,
    /// Notes for a reader of the table. Each says how the peer's program differs in a workload, or why it has none.
    pub(crate) notes: &'static [(&'static str, &'static str)],
}

impl Peer {
    pub(crate) fn is_script(&self) -> bool {
        matches!(self.programs, Programs::Script)
    }

    /// Whether the peer has a program for a workload. The script has those of the first group.
    pub(crate) fn has(&self, workload: &str) -> bool {
        match &self.programs {
            Programs::Here(programs) => programs.iter().any(|program| program.workload == workload),
            Programs::Script => WORKLOADS.iter().any(|one| one.name == workload),
        }
    }
}

const NOTHING: &[(&str, &str)] = &[];
const BOUNDED: &str = "the channel is bounded, and who finds it full waits";

/// All peers, beginning with Procession.
pub(crate) fn peers() -> Vec<Peer> {
    let here = |name, lists: &[&[Program]]| Peer { name, programs: Programs::Here(lists.concat()), notes: NOTHING };
    let script = |name, notes| Peer { name, programs: Programs::Script, notes };
    let ours = WORKLOADS.iter().chain(&JOBS).chain(&GENERAL).chain(&ACTORS).chain(&BRIDGE);
    let ours: Vec<_> = ours.map(|one| Program::new(one.name, one.run)).collect();
    vec![
        here(US, &[&ours, &savina::ours::programs()]),
        here("tokio", &[with_tokio::PROGRAMS, savina::with_tokio::PROGRAMS, jobs::with_tokio::PROGRAMS]),
        here("actix", &[with_actix::PROGRAMS, savina::with_actix::PROGRAMS]),
        here("ractor", &[with_ractor::PROGRAMS]),
        here("kameo", &[with_kameo::PROGRAMS]),
        here("xtra", &[with_xtra::PROGRAMS]),
        here("rayon", &[jobs::with_rayon::PROGRAMS]),
        here("threadpool", &[jobs::with_threadpool::PROGRAMS]),
        here("blocking", &[jobs::with_blocking::PROGRAMS]),
        script("erlang", &[("ask", "a process asks, as no thread is outside of the schedulers: nothing is woken")]),
        script("go", &[("counting", BOUNDED), ("fanin", BOUNDED)]),
        script("caf", NOTHING),
    ]
}

/// The figure of a run that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Figure {
    /// The time of an operation, in nanoseconds.
    Time,
    /// The memory of a waiting actor, in bytes.
    Bytes,
}

/// A target for the ratio of Procession's median to another one.
#[derive(Clone, Copy)]
pub(crate) struct Bar {
    pub(crate) against: Against,
    pub(crate) limit: Limit,
}

/// The figures that a bar is about. Of several peers, the fastest counts.
#[derive(Clone, Copy)]
pub(crate) enum Against {
    All,
    Rust,
    One(&'static str),
    /// Procession itself, in another workload.
    Ourselves(&'static str),
}

#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    Below(f64),
}

/// A workload, as a row of the table.
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    /// The unit of its count.
    pub(crate) counts: &'static str,
    pub(crate) op: &'static str,
    pub(crate) figure: Figure,
    /// The count, and the count for a short run, which only checks that the program works.
    pub(crate) n: u64,
    pub(crate) smoke: u64,
    pub(crate) bars: Vec<Bar>,
    /// The most memory that Procession's run may need at its peak, in MB.
    pub(crate) peak_limit: Option<f64>,
}

/// Workloads that share a section of the table and a panel of the chart.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Row>,
}

pub(crate) fn groups() -> Vec<Group> {
    let row = |one: &Workload| {
        let figure = if one.name == "idle" { Figure::Bytes } else { Figure::Time };
        let (bars, peak_limit) = expected(one.name);
        Row { workload: one.name, counts: one.counts, op: one.op, figure, n: one.n, smoke: one.smoke, bars, peak_limit }
    };
    let usual = Group { name: "workloads", title: "The usual workloads", rows: WORKLOADS.iter().map(row).collect() };
    let jobs = Group { name: "jobs", title: "Jobs and tasks", rows: JOBS.iter().map(row).collect() };
    let rows = GENERAL.iter().map(row).collect();
    let general = Group { name: "general", title: "Programs that were not tuned", rows };
    let rows = savina::problems::PROGRAMS.iter().map(|one| Row {
        workload: one.name,
        counts: one.counts,
        op: one.op,
        figure: Figure::Time,
        n: one.n,
        smoke: one.smoke,
        bars: vec![Bar { against: Against::One("tokio"), limit: Limit::AtMost(0.7) }],
        peak_limit: None,
    });
    let savina = Group { name: "savina", title: "The Savina suite", rows: rows.collect() };
    // The peers have one kind of actor. So their rows here are those of `pingpong`, once more.
    let rows = ACTORS.iter().take(1).chain(&BRIDGE).map(row).collect();
    let bridge = Group { name: "bridge", title: "Actors and async code", rows };
    vec![usual, savina, jobs, general, bridge]
}

/// Procession's bars, and the limit of memory in MB.
fn expected(workload: &str) -> (Vec<Bar>, Option<f64>) {
    let at_most = |against, ratio| Bar { against, limit: Limit::AtMost(ratio) };
    let of_tokio = |ratio| at_most(Against::One("tokio"), ratio);
    match workload {
        "pingpong" => (vec![at_most(Against::All, 0.45)], None),
        "ring" => (vec![at_most(Against::All, 0.35)], None),
        "counting" => {
            let below_go = Bar { against: Against::One("go"), limit: Limit::Below(1.0) };
            (vec![at_most(Against::Rust, 0.25), below_go], Some(100.0))
        }
        "fanin" => (vec![at_most(Against::Rust, 0.15)], Some(100.0)),
        "spawn" => (vec![at_most(Against::Rust, 0.12), at_most(Against::One("go"), 0.4)], None),
        "skynet" => (vec![at_most(Against::All, 0.12)], Some(50.0)),
        "big" => (vec![at_most(Against::One("tokio"), 0.8)], None),
        // Only the programs in Rust ask from a thread outside the runtime.
        "ask" => (vec![at_most(Against::Rust, 0.2)], None),
        "idle" => (vec![at_most(Against::All, 0.3)], None),
        "pool_execute_1" | "pool_execute_2" | "pool_execute_16" | "pool_execute_64" | "pool_execute_1024" => {
            let below = |peer| Bar { against: Against::One(peer), limit: Limit::Below(1.0) };
            (vec![below("tokio"), below("blocking"), at_most(Against::One("rayon"), 1.5)], None)
        }
        "task_submit" | "task_timeout" => (vec![at_most(Against::All, 1.0)], None),
        "hub" | "hub_limit" | "pubsub" | "timers_cancelled" | "timers_fired" | "mixed" => (vec![of_tokio(0.7)], None),
        "pubsub_group" => (vec![of_tokio(1.0)], None),
        "pipeline" => (vec![of_tokio(0.25)], None),
        "burst" => (vec![of_tokio(0.7)], Some(15.0)),
        "actor_pingpong" => (vec![at_most(Against::Ourselves("pingpong"), 1.1)], None),
        "async_pingpong" => (vec![at_most(Against::Ourselves("pingpong"), 2.6)], None),
        "senders_10000" => (vec![at_most(Against::Ourselves("senders_100"), 3.0)], None),
        _ => (Vec::new(), None),
    }
}
