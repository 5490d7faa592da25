//! The sums of the figures of a runtime in which no step runs and no message is being sent.

use std::collections::BTreeMap;
use std::fmt::Debug;

use procession::Runtime;
use procession::observe::{ExitCounts, Snapshot, TypeFigures};

fn same<T: PartialEq + Debug>(what: &str, one: T, other: T) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("the figures of {what} differ: {one:?} and {other:?}")) }
}

/// Compares the sums. The runtime has figures by type, times each step, and measures
/// each wait.
pub(crate) fn sums_agree(runtime: &Runtime, snapshot: &Snapshot) -> Result<(), String> {
    let Snapshot { stats, types, .. } = snapshot;
    let messages = &stats.messages;
    let sum = |of: fn(&TypeFigures) -> u64| types.iter().map(of).sum::<u64>();
    // In total.
    same("spawns", stats.spawned, stats.processes + stats.ended.total())?;
    same("messages", messages.accepted, messages.stepped + messages.dead() + messages.queued)?;
    // By type.
    for one in types {
        same(&one.type_name, one.spawned + one.became, one.living + one.ended.total() + one.left)?;
    }
    same("changes of the type", sum(|one| one.became), sum(|one| one.left))?;
    same("living processes by type", sum(|one| one.living), stats.processes)?;
    same("spawns by type", sum(|one| one.spawned), stats.spawned)?;
    let mut ended = ExitCounts::default();
    (ended.done, ended.failed) = (sum(|one| one.ended.done), sum(|one| one.ended.failed));
    (ended.panicked, ended.terminated) = (sum(|one| one.ended.panicked), sum(|one| one.ended.terminated));
    same("ends by type", ended, stats.ended)?;
    same("messages by type", sum(|one| one.messages), messages.stepped)?;
    same("waiting messages by type", sum(|one| one.waiting), messages.queued)?;
    same("dead letters by type", sum(|one| one.dead) + snapshot.dead_without_type, messages.dead())?;
    // By worker.
    let workers = &stats.workers;
    let steps = workers.iter().map(|worker| worker.steps).sum::<u64>();
    same("steps by type", steps + stats.steps_elsewhere, sum(|one| one.steps))?;
    same("timed steps", steps, sum(|one| one.step_times.count))?;
    let waited = sum(|one| one.wait_times.count);
    if waited > messages.accepted {
        return Err(format!("{waited} waits were measured of {} messages", messages.accepted));
    }
    let stepped = workers.iter().map(|worker| worker.messages).sum::<u64>() + stats.messages_elsewhere;
    same("messages by worker", stepped, messages.stepped)?;
    // The processes themselves.
    let (mut living, mut waiting) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
    for process in runtime.processes() {
        *living.entry(process.type_name).or_default() += 1;
        *waiting.entry(process.type_name).or_default() += process.mailbox as u64;
    }
    for one in types {
        let of = |counts: &BTreeMap<&str, u64>| counts.get(&one.type_name[..]).copied().unwrap_or_default();
        same(&one.type_name, (one.living, one.waiting), (of(&living), of(&waiting)))?;
    }
    Ok(())
}
