//! The answers to questions, as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::request::{MOST, Refused};
use super::waiting::{from_now, wait_until};
use crate::pid::Pid;
use crate::process::CommandError;
use crate::runtime::{AskFuture, ProcessInfo, Runtime, Snapshot};
use crate::shutdown::ShutdownNode;

/// How long a process has to describe itself.
pub(super) const DESCRIBED: Duration = Duration::from_secs(1);

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

/// Waits for the description that a process gives of itself. The question does not keep the runtime alive.
pub(super) fn describe(pid: Pid, mut question: AskFuture<String>) -> Result<Value, Refused> {
    match wait_until(&mut question, from_now(DESCRIBED)) {
        Some(Ok(text)) => Ok(json!({ "text": text })),
        Some(Err(error @ (CommandError::NoSuchProcess(_) | CommandError::Ended(_)))) => {
            Err(Refused::new("not_found", error.to_string()))
        }
        Some(Err(error)) => Err(Refused::new("no_answer", error.to_string())),
        None => Err(Refused::new("no_answer", format!("{pid} was not between two steps within {DESCRIBED:?}"))),
    }
}
