//! The workloads: what each is called, what it counts, and how much of it is done.

use super::measure::{Measured, Outcome, Setting};
use super::{births, messages, relations};

/// One of the workloads.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What `n` counts.
    pub(crate) counts: &'static str,
    /// What the time is divided by.
    pub(crate) op: &'static str,
    pub(crate) n: u64,
    /// The count for a run that only shows that it works.
    pub(crate) smoke: u64,
    pub(crate) run: fn(&Setting) -> Outcome<Measured>,
}

pub(crate) const WORKLOADS: [Workload; 14] = [
    Workload {
        name: "pingpong",
        counts: "messages between 2 processes",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: messages::pingpong,
    },
    Workload {
        name: "ring",
        counts: "hops of a token around 1,000 processes",
        op: "hop",
        n: 2_000_000,
        smoke: 20_000,
        run: messages::ring,
    },
    Workload {
        name: "counting",
        counts: "messages from 1 process to another, 100 a step",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: messages::counting,
    },
    Workload {
        name: "fanin",
        counts: "messages from 64 processes to one, 100 a step",
        op: "message",
        n: 6_400_000,
        smoke: 64_000,
        run: messages::fanin,
    },
    Workload {
        name: "spawn",
        counts: "processes that get one message and end, spawned 100 a step",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: births::spawn,
    },
    Workload {
        name: "skynet",
        counts: "leaves of a tree of processes with 10 children each",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: births::skynet,
    },
    Workload {
        name: "idle",
        counts: "processes that had one message and wait, spawned 100 a step",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: births::idle,
    },
    Workload {
        name: "big",
        counts: "pings among 256 processes, each to a random other",
        op: "ping and pong",
        n: 1_024_000,
        smoke: 25_600,
        run: messages::big,
    },
    Workload {
        name: "ask",
        counts: "calls of `Runtime::ask`",
        op: "call",
        n: 200_000,
        smoke: 2_000,
        run: messages::ask,
    },
    Workload {
        name: "monitor",
        counts: "processes that are monitored from birth, and end",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: relations::monitor,
    },
    Workload {
        name: "link_chain",
        counts: "linked processes of which the first fails",
        op: "process",
        n: 10_000,
        smoke: 1_000,
        run: relations::link_chain,
    },
    Workload {
        name: "names",
        counts: "look-ups by 2 threads, of as many names, up to 1,000,000",
        op: "look-up",
        n: 2_000_000,
        smoke: 20_000,
        run: relations::names,
    },
    Workload {
        name: "group_cast",
        counts: "messages to a group of 1,000",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: relations::group_cast,
    },
    Workload {
        name: "restart",
        counts: "failures of a supervised process",
        op: "restart",
        n: 200_000,
        smoke: 2_000,
        run: relations::restart,
    },
];
