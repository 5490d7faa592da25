//! The workloads: their names, their units, and their counts.

use super::measure::{Run, Workload};
use super::{births, chat, hub, jobs, messages, pipeline, pubsub, tasks, timers};

/// The workloads of processes.
pub(crate) const WORKLOADS: [Workload; 9] = [
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
];

const fn pool_execute(name: &'static str, counts: &'static str, run: Run) -> Workload {
    Workload { name, counts, op: "job", n: 2_000_000, smoke: 20_000, run }
}

/// The workloads of jobs and tasks.
pub(crate) const JOBS: [Workload; 8] = [
    pool_execute("pool_execute_1", "empty jobs for a pool of 1 thread", jobs::pool_execute::<1>),
    pool_execute("pool_execute_2", "empty jobs for a pool of 2 threads", jobs::pool_execute::<2>),
    pool_execute("pool_execute_16", "empty jobs for a pool of 16 threads", jobs::pool_execute::<16>),
    pool_execute("pool_execute_64", "empty jobs for a pool of 64 threads", jobs::pool_execute::<64>),
    pool_execute("pool_execute_1024", "empty jobs for a pool of 1024 threads", jobs::pool_execute::<1024>),
    Workload {
        name: "pool_run",
        counts: "jobs that are waited for, one after the other",
        op: "job",
        n: 200_000,
        smoke: 2_000,
        run: jobs::pool_run,
    },
    Workload {
        name: "task_submit",
        counts: "empty tasks on a pool, whose handles are kept and waited for",
        op: "task",
        n: 500_000,
        smoke: 5_000,
        run: tasks::task_submit,
    },
    Workload {
        name: "task_timeout",
        counts: "the same, each with a timeout",
        op: "task",
        n: 500_000,
        smoke: 5_000,
        run: tasks::task_timeout,
    },
];

/// Workloads that are usual programs, with nothing done to make them fast.
pub(crate) const GENERAL: [Workload; 11] = [
    Workload {
        name: "hub",
        counts: "questions of 256 processes to 16 servers, each of which has a map",
        op: "question",
        n: 512_000,
        smoke: 5_120,
        run: hub::hub,
    },
    Workload {
        name: "hub_limit",
        counts: "the same, each with a time limit",
        op: "question",
        n: 512_000,
        smoke: 5_120,
        run: hub::hub_limit,
    },
    Workload {
        name: "pubsub",
        counts: "messages from 1 process to a list of 1,000 others",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pubsub::pubsub,
    },
    Workload {
        name: "pubsub_group",
        counts: "the same, to a group of 1,000 others",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pubsub::pubsub_group,
    },
    Workload {
        name: "pipeline",
        counts: "items through 8 processes, whose mailboxes have a bound of 128",
        op: "item",
        n: 1_000_000,
        smoke: 10_000,
        run: pipeline::pipeline,
    },
    Workload {
        name: "burst",
        counts: "messages from 1 process to 25 others, all in one step",
        op: "message",
        n: 1_000_000,
        smoke: 10_000,
        run: messages::burst,
    },
    Workload {
        name: "timers_cancelled",
        counts: "timers of many processes, 10 each, each cancelled in the next step",
        op: "timer",
        n: 1_000_000,
        smoke: 10_000,
        run: timers::cancelled,
    },
    Workload {
        name: "timers_fired",
        counts: "timers of 1 to 10 ms of many processes, which each sleep 10 times",
        op: "timer",
        n: 1_000_000,
        smoke: 10_000,
        run: timers::fired,
    },
    Workload {
        name: "senders_100",
        counts: "messages from 100 processes to one, 10 a step",
        op: "message",
        n: 1_000_000,
        smoke: 100_000,
        run: messages::senders::<100>,
    },
    Workload {
        name: "senders_10000",
        counts: "messages from 10,000 processes to one, 10 a step",
        op: "message",
        n: 1_000_000,
        smoke: 100_000,
        run: messages::senders::<10_000>,
    },
    Workload {
        name: "mixed",
        counts: "actions of the 1,000 users of a chat with 100 rooms",
        op: "action",
        n: 500_000,
        smoke: 10_000,
        run: chat::mixed,
    },
];
