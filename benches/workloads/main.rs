//! The costs of usual operations: a message, a hop, a process from start to end, a request, a job, a task.
//!
//! Each workload is a small program such as a user would write. It checks its result: a wrong count is a failure, not
//! a fast run. If several runs are requested, each has its own process, so that its peak of memory is its own.
//!
//! The workloads are no ranking, and measure no single function. The figures hold for this machine at this moment.
//! Compare only figures that were taken side by side, several of each.

mod list;
mod messages;
mod births;
mod relations;
mod stuck;
mod traced;
mod lookups;
mod hub;
mod pubsub;
mod pipeline;
mod timers;
mod actors;
mod bridge;
mod chat;
mod chat_shape;
mod jobs;
mod tasks;
mod shape;
mod runtime;
mod measure;
mod table;
mod command;

use std::process::ExitCode;

use self::actors::ACTORS;
use self::bridge::BRIDGE;
use self::command::Suite;
use self::list::{GENERAL, JOBS, WORKLOADS};
use self::lookups::LOOKUPS;
use self::measure::Workload;
use self::relations::RELATIONS;
use self::traced::TRACED;

fn main() -> ExitCode {
    command::run(&Suite {
        name: "workloads",
        about: "Runs workloads, all of them where none is named, and prints what each took: in all, and for one \
                operation.",
        workloads: [&WORKLOADS[..], &GENERAL, &JOBS, &RELATIONS, &TRACED, &LOOKUPS, &ACTORS, &BRIDGE].concat(),
        refuses,
    })
}

fn refuses(workload: &Workload, n: u64) -> Option<String> {
    let is_refused = workload.name == "skynet" && !(n >= 10 && 10_u64.pow(n.ilog10()) == n);
    is_refused.then(|| format!("--n is {n}; for skynet allowed are powers of 10, from 10 upwards"))
}
