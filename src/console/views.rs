//! The answers to questions, as JSON.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::request::{MOST, Refused};
use super::waiting::{from_now, wait_until};
use crate::pid::Pid;
use crate::process::{CommandError, Process as _};
use crate::runtime::{ProcessInfo, Runtime, Snapshot};
use crate::shutdown::ShutdownNode;
use crate::supervisor::{ChildInfo, ChildState, Strategy, Supervisor, SupervisorMessage};

/// How long a supervisor has for its answer, by the system's clock: a program might not move a manual one.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a process has to describe itself.
const DESCRIBED: Duration = Duration::from_secs(1);

/// The processes with long mailboxes of an overview.
const MAILBOXES: usize = 10;

pub(super) fn as_json<T: serde::Serialize>(value: &T) -> Result<Value, Refused> {
    serde_json::to_value(value).map_err(|error| Refused::new("no_answer", format!("it cannot be written: {error}")))
}

pub(super) fn process(info: &ProcessInfo) -> Value {
    let ProcessInfo { pid, name, type_name, state, steps, restarts, mailbox, age, in_step, .. } = info;
    let mut process = json!({
        "pid": pid.to_string(),
        "type": type_name,
        "state": state.to_string(),
        "mailbox": mailbox,
        "steps": steps,
        "restarts": restarts,
        "age": age.as_secs_f64(),
    });
    if let Some(name) = name {
        process["name"] = json!(**name);
    }
    if let Some(in_step) = in_step {
        process["in_step"] = json!(in_step.as_secs_f64());
    }
    process
}

pub(super) fn overview(runtime: &Runtime, snapshot: &Snapshot) -> Result<Value, Refused> {
    let node: ShutdownNode = runtime.shutdown_node();
    let shutdown = match (node.is_closed(), node.is_shutting_down()) {
        (true, _) => "closed",
        (false, true) => "closing",
        (false, false) => "running",
    };
    let mailboxes = &snapshot.mailboxes[..snapshot.mailboxes.len().min(MAILBOXES)];
    Ok(json!({
        "uptime": snapshot.uptime.as_secs_f64(),
        "stats": as_json(&snapshot.stats)?,
        "mailboxes": as_json(&mailboxes)?,
        "stuck": snapshot.stuck.len(),
        "shutdown": shutdown,
    }))
}

pub(super) fn waits(runtime: &Runtime) -> Value {
    let (of, waits) = runtime.core().waits(MOST);
    let wait = |(asker, asked): &(Pid, Pid)| json!({ "asker": asker.to_string(), "asked": asked.to_string() });
    json!({ "of": of, "waits": waits.iter().map(wait).collect::<Vec<_>>() })
}

/// A description that a process gives of itself.
pub(super) fn describe(runtime: &Runtime, pid: Pid) -> Result<Value, Refused> {
    match wait_until(runtime.describe(pid, Duration::MAX), from_now(DESCRIBED)) {
        Some(Ok(text)) => Ok(json!({ "text": text })),
        Some(Err(error @ (CommandError::NoSuchProcess(_) | CommandError::Ended(_)))) => {
            Err(Refused::new("not_found", error.to_string()))
        }
        Some(Err(error)) => Err(Refused::new("no_answer", error.to_string())),
        None => Err(Refused::new("no_answer", format!("{pid} was not between two steps within {DESCRIBED:?}"))),
    }
}

/// The answers of supervisors.
type Supervisors = HashMap<Pid, Option<(Strategy, Vec<ChildInfo>)>>;

/// Supervisors with the processes below them.
pub(super) fn tree(runtime: &Runtime) -> Value {
    let pids = runtime.core().of_type(Supervisor::type_name(), MOST);
    // All are asked at once, so that several that do not answer take the time of one.
    let deadline = from_now(PATIENCE);
    let ask =
        |pid: &Pid| (*pid, runtime.ask(pid.typed::<SupervisorMessage>(), SupervisorMessage::overview, Duration::MAX));
    let asked: Vec<_> = pids.iter().map(ask).collect();
    let supervisors: Supervisors =
        asked.into_iter().map(|(pid, answer)| (pid, wait_until(answer, deadline).and_then(Result::ok))).collect();
    let below: HashSet<Pid> =
        supervisors.values().flatten().flat_map(|(_, all)| all).filter_map(|one| one.pid).collect();
    let mut growing = Growing { runtime, supervisors, seen: HashSet::new(), left_out: 0 };
    let top = pids.iter().filter(|pid| !below.contains(pid));
    let supervisors: Vec<Value> = top.filter_map(|pid| growing.supervisor(*pid)).collect();
    let mut tree = json!({ "supervisors": supervisors });
    if growing.left_out > 0 {
        tree["left_out"] = json!(growing.left_out);
    }
    tree
}

/// A tree that is being made.
struct Growing<'a> {
    runtime: &'a Runtime,
    supervisors: Supervisors,
    /// The processes that are in it. Supervisors have answered at different moments, so a process may be below two.
    seen: HashSet<Pid>,
    /// The processes for which there is no room.
    left_out: usize,
}

impl Growing<'_> {
    fn take(&mut self, pid: Pid) -> Option<Value> {
        if self.seen.len() >= MOST {
            self.left_out += 1;
            return None;
        }
        let info = self.runtime.process(pid)?;
        self.seen.insert(pid).then(|| process(&info))
    }

    fn supervisor(&mut self, pid: Pid) -> Option<Value> {
        let mut shown = self.take(pid)?;
        self.below(pid, &mut shown);
        Some(shown)
    }

    /// Adds the children of a supervisor.
    fn below(&mut self, pid: Pid, to: &mut Value) {
        match self.supervisors.remove(&pid) {
            Some(Some((strategy, children))) => {
                to["strategy"] = json!(match strategy {
                    Strategy::OneForOne => "one_for_one",
                    Strategy::OneForAll => "one_for_all",
                    Strategy::RestForOne => "rest_for_one",
                });
                let children: Vec<Value> = children.iter().filter_map(|child| self.child(child)).collect();
                to["children"] = json!(children);
            }
            Some(None) => to["no_answer"] = json!(true),
            None => {}
        }
    }

    fn child(&mut self, child: &ChildInfo) -> Option<Value> {
        let mut shown = json!({
            "id": *child.id,
            "restarts": child.restarts,
            "state": match child.state {
                ChildState::Queued => "waiting",
                ChildState::Delayed => "delayed",
                ChildState::Starting => "starting",
                ChildState::Up => "running",
                ChildState::ToStop | ChildState::Stopping => "stopping",
                ChildState::Down => "stopped",
            },
        });
        if let Some(pid) = child.pid {
            let left_out = self.left_out;
            match self.take(pid) {
                Some(process) => shown["process"] = process,
                None if self.left_out > left_out => return None,
                // It has ended since.
                None => {}
            }
            self.below(pid, &mut shown);
        }
        Some(shown)
    }
}
