//! The laws of programs of supervisors, names and groups: after each turn, at rest, and at the end.

use std::collections::BTreeSet;

use procession::simulation::{World, WorldState};
use procession::supervisor::{
    AutoShutdown, ChildInfo, ChildState, Restart, Strategy, Supervisor, SupervisorMessage, Tree,
};
use procession::{Handle, Pid, Runtime};

use crate::supervised::{Broadcast, Ending, GROUPS, NAMES, Plan, Program, Records, SECOND, Shared, own_name};

/// The laws of each moment.
pub fn check_turn(state: &WorldState<'_>, records: &Records, children: usize) -> Result<(), String> {
    let is_alive = |pid: &Pid| state.is_alive(pid.typed::<()>());
    if let Some(wrong) = &records.wrong {
        return Err(wrong.clone());
    }
    for (name, pid) in records.named.iter().filter(|(_, pid)| is_alive(pid)) {
        let holder = state.holder(name);
        if holder != Some(*pid) {
            return Err(format!("names: {pid} was given {name:?}, and {holder:?} has it"));
        }
    }
    for name in NAMES.iter().map(|name| name.to_string()).chain((0..children).map(own_name)) {
        if let Some(pid) = state.holder(&name).filter(|pid| !is_alive(pid)) {
            return Err(format!("names: {name:?} is that of {pid}, which has ended"));
        }
    }
    for (number, group) in GROUPS.iter().enumerate() {
        let members = state.members(group);
        if let Some(pid) = members.iter().find(|pid| !is_alive(pid)) {
            return Err(format!("groups: {pid} has ended, and is in {group:?}"));
        }
        let count = |pid| members.iter().filter(|member| **member == pid).count();
        for (pid, joined) in records.members(number).filter(|(pid, _)| is_alive(pid)) {
            let most = records.joins.get(&(number, pid)).copied().unwrap_or(0);
            if count(pid) < joined || count(pid) > most {
                return Err(format!("groups: {pid} is {} times in {group:?}: {joined} to {most}", count(pid)));
            }
        }
    }
    for child in 0..children {
        let alive: Vec<Pid> = records.pids(child).into_iter().filter(is_alive).collect();
        if alive.len() > 1 {
            return Err(format!("supervisors: child {child} is {alive:?}"));
        }
    }
    Ok(())
}

/// The laws of a program that rests.
pub fn check_at_rest(
    world: &World,
    program: &Program,
    (runtime, top): (&Runtime, &Handle<Supervisor>),
    records: &Shared,
    stopped: &BTreeSet<usize>,
) -> Result<(), String> {
    check_groups(world, &records.lock().unwrap())?;
    let ended = if runtime.is_alive(top) { None } else { Some(top.join().map_err(|error| error.to_string())?) };
    if let Some(exit) = ended {
        return check_reason(program, &exit.to_string(), &records.lock().unwrap());
    }
    if program.is_nested {
        let tree = Tree::of(runtime, top.address(), 100 * SECOND).map_err(|error| error.to_string())?;
        // The inner supervisor is restarted if it fails. If it is done, its children are.
        return if tree.children.len() == 1 { Ok(()) } else { Err(format!("supervisors: {tree}")) };
    }
    let infos =
        runtime.ask(top, SupervisorMessage::children, 100 * SECOND).wait().map_err(|error| error.to_string())?;
    let records = records.lock().unwrap();
    let restarts: u64 = infos.iter().map(|info| info.restarts).sum();
    if restarts > program.most as u64 {
        return Err(format!("supervisors: {restarts} restarts, and {} are allowed", program.most));
    }
    let info_of = |child: usize| infos.iter().find(|info| *info.id == *child.to_string());
    for (child, plan) in program.plans.iter().enumerate() {
        let is_alive = |pid: &Pid| runtime.is_alive(*pid);
        let alive = records.pids(child).into_iter().find(is_alive);
        let info = info_of(child);
        let what = || format!("supervisors: child {child} rests as {info:?}, and {alive:?} lives");
        let is_up = info.is_some_and(|info| info.state == ChildState::Up && info.pid == alive && alive.is_some());
        let is_down = alive.is_none() && info.is_none_or(|info| info.state == ChildState::Down && info.pid.is_none());
        let may_be_down = match plan.restart {
            _ if stopped.contains(&child) || !program.requests.is_empty() => true,
            Restart::Permanent => false,
            Restart::Transient => records.done.contains(&child),
            Restart::Temporary => true,
        };
        // The specification of a temporary child is deleted with it, and no other one is.
        let is_listed = plan.restart != Restart::Temporary || is_up;
        let is_wrong = program.requests.is_empty() && info.is_some() != is_listed;
        let may_rest = is_up || is_down && may_be_down;
        if is_wrong || !may_rest || is_up && stopped.contains(&child) {
            return Err(what());
        }
        if let Some(info) = info.filter(|_| is_up && program.requests.is_empty()) {
            check_restarts(program, child, info, &records)?;
        }
    }
    let is_any_done = || {
        let significant = program.plans.iter().enumerate().filter(|(_, plan)| plan.restart != Restart::Permanent);
        significant.filter(|(_, plan)| plan.is_significant).any(|(child, _)| records.done.contains(&child))
    };
    // One that ends while it is stopped with its siblings has not ended by itself.
    let is_alone = program.siblings == Strategy::OneForOne && program.requests.is_empty();
    if program.auto == AutoShutdown::AnySignificant && is_alone && is_any_done() {
        return Err(String::from("supervisors: a significant child is done, and the supervisor lives"));
    }
    let up = infos.iter().filter(|info| info.state == ChildState::Up);
    let starts: Vec<(usize, u64)> =
        up.filter_map(|info| Some((info.id.parse().ok()?, records.start(info.pid?)?))).collect();
    check_siblings(program, &starts, &records)
}

/// Why a supervisor has ended by itself.
fn check_reason(program: &Program, exit: &str, records: &Records) -> Result<(), String> {
    if program.is_nested {
        return Ok(());
    }
    let is_over = |child: usize, plan: &Plan| {
        records.done.contains(&child) || plan.restart == Restart::Temporary && !records.pids(child).is_empty()
    };
    let mut significant =
        program.plans.iter().enumerate().filter(|(_, plan)| plan.is_significant && plan.restart != Restart::Permanent);
    let is_allowed = match exit {
        "done" => {
            program.auto != AutoShutdown::Never
                && (program.chance > 0.0 || significant.any(|(child, plan)| is_over(child, plan)))
        }
        _ if exit.contains("too many restarts") => {
            program.chance > 0.0 || !program.requests.is_empty() || program.most < possible_restarts(records)
        }
        _ => exit.contains("did not start") && program.chance > 0.0,
    };
    if is_allowed { Ok(()) } else { Err(format!("supervisors: it has ended: {exit}")) }
}

fn possible_restarts(records: &Records) -> usize {
    records.failures.len() + records.done.len() + records.at.len() * 8
}

/// How often a child was restarted that has no effect on its siblings, and whose siblings have none on it.
fn check_restarts(program: &Program, child: usize, info: &ChildInfo, records: &Records) -> Result<(), String> {
    if program.siblings != Strategy::OneForOne || program.chance > 0.0 {
        return Ok(());
    }
    let begins = records.begins.iter().filter(|begin| begin.0 == child).count() as u64;
    if info.restarts + 1 != begins {
        return Err(format!("supervisors: child {child} has begun {begins} times: {info:?}"));
    }
    let is_done = program.plans[child].steps.iter().any(|(_, ending)| *ending == Ending::Done);
    let pids = records.pids(child);
    if program.plans[child].is_in_place && !is_done && pids.len() != 1 {
        return Err(format!("supervisors: child {child} is restarted in place, and was {pids:?}"));
    }
    Ok(())
}

/// Siblings are restarted after a failure, in order. `starts` has the children that are up.
fn check_siblings(program: &Program, starts: &[(usize, u64)], records: &Records) -> Result<(), String> {
    if program.siblings == Strategy::OneForOne || !program.requests.is_empty() {
        return Ok(());
    }
    if let Some(pair) = starts.windows(2).find(|pair| pair[0].1 > pair[1].1) {
        return Err(format!("supervisors: {:?} started before {:?}", pair[1], pair[0]));
    }
    for (failed, moment) in &records.failures {
        let plan = &program.plans[*failed];
        if plan.restart == Restart::Temporary || plan.is_in_place {
            continue;
        }
        let with_it = starts.iter().filter(|(child, _)| program.siblings == Strategy::OneForAll || child >= failed);
        for (child, start) in with_it {
            if start < moment {
                return Err(format!("supervisors: {failed} failed, and {child} was not restarted"));
            }
        }
    }
    Ok(())
}

/// Members get what is broadcast, once and in order, and subscribers know the members.
fn check_groups(world: &World, records: &Records) -> Result<(), String> {
    let is_whole = |pid: &Pid| !records.failed.contains(pid) && world.look(|state| state.is_alive(pid.typed::<()>()));
    for ((me, from), numbers) in &records.received {
        if !numbers.is_sorted_by(|one, next| one < next) {
            return Err(format!("groups: {me} got {numbers:?} of {from}"));
        }
    }
    for Broadcast { number, from, to } in &records.broadcasts {
        for pid in to.iter().filter(|pid| is_whole(pid)) {
            if !records.received.get(&(*pid, *from)).is_some_and(|numbers| numbers.contains(number)) {
                return Err(format!("groups: {pid} did not get {number} of {from}"));
            }
        }
    }
    for ((me, group), view) in records.views.iter().filter(|((me, _), _)| is_whole(me)) {
        let (mut view, mut members) = (view.clone(), world.look(|state| state.members(GROUPS[*group])));
        view.sort_unstable();
        members.sort_unstable();
        if view != members {
            return Err(format!("groups: {me} knows {view:?} of {:?}: {members:?}", GROUPS[*group]));
        }
    }
    Ok(())
}

/// The end of the supervisor: its children end in the reverse order, and leave nothing.
pub fn check_end(
    program: &Program,
    (runtime, top): (&Runtime, &Handle<Supervisor>),
    records: &Shared,
) -> Result<(), String> {
    let was_alive = runtime.is_alive(top);
    let living: Vec<(usize, Pid)> = {
        let records = records.lock().unwrap();
        let pids =
            (0..program.plans.len()).flat_map(|child| records.pids(child).into_iter().map(move |pid| (child, pid)));
        pids.filter(|(_, pid)| runtime.is_alive(*pid)).collect()
    };
    let before = records.lock().unwrap().exits.len();
    let _ = runtime.cancel(top, "closing time").map_err(|error| error.to_string());
    let exit = top.join().map_err(|error| error.to_string())?;
    if was_alive && exit.to_string() != "done" {
        return Err(format!("supervisors: it was asked to stop: {exit}"));
    }
    if let Some((child, pid)) = living.iter().find(|(_, pid)| runtime.is_alive(*pid)) {
        return Err(format!("supervisors: child {child} lives on: {pid}"));
    }
    let records = records.lock().unwrap();
    let exits = records.exits[before..].iter().filter(|exit| living.iter().any(|(_, pid)| pid == *exit));
    let expected: Vec<Pid> = living.iter().rev().map(|(_, pid)| *pid).collect();
    if program.chance == 0.0 && !exits.clone().eq(&expected) {
        return Err(format!("supervisors: the ends were {:?}, not {expected:?}", exits.collect::<Vec<_>>()));
    }
    let names = NAMES.iter().map(|name| name.to_string()).chain((0..program.plans.len()).map(own_name));
    match names.into_iter().find(|name| runtime.whereis(name).is_some()) {
        Some(name) => Err(format!("names: {name:?} is left")),
        None if !runtime.groups().is_empty() => Err(format!("groups: {:?} are left", runtime.groups())),
        None => Ok(()),
    }
}
