//! The records of a run as a trace that a reader is shown.

use super::faults::What;
use super::recorder::TurnRecord;
use super::trace::{Trace, TraceTurn};
use crate::pid::Pid;
use crate::process::StepActivity;
use crate::sched::body::Verdict;

/// Makes the trace of these turns. A turn of a timer or a job is not shown: its effect is.
pub(super) fn trace_of(records: Vec<TurnRecord>) -> Trace {
    let turns = records.into_iter().filter_map(|record| {
        let (process, name) = record.process?;
        let mut yielded = record.yields;
        yielded.extend(record.failed);
        match record.verdict {
            Some(Verdict::Done) => yielded.push(String::from("done")),
            Some(Verdict::Upgrade) => yielded.push(String::from("upgrade")),
            _ => {}
        }
        let mut notes = record.notes;
        notes.extend(
            record
                .injected
                .iter()
                .filter(|fault| fault.of != process || !is_panic(fault.what))
                .map(|fault| format!("injected: {}", describe(fault.what))),
        );
        Some(TraceTurn {
            number: u64::from(record.number),
            time: record.at,
            process,
            name: short(name).to_owned(),
            took: record.took.iter().filter_map(describe_event).collect(),
            yielded,
            is_late: record.is_out_of_order,
            is_injected: !record.injected.is_empty(),
            notes,
        })
    });
    Trace { turns: turns.collect() }
}

fn is_panic(what: What) -> bool {
    what == What::Panic
}

/// The name of a type without the modules.
fn short(name: &str) -> &str {
    let end = name.find('<').unwrap_or(name.len());
    name[..end].rfind("::").map_or(name, |place| &name[place + 2..])
}

fn describe(what: What) -> String {
    match what {
        What::Crash => String::from("terminated"),
        What::Panic => String::from("panicked"),
        What::Stall(most) => format!("stalled, for up to {most:?}"),
        What::StallFor(time) => format!("stalled, for {time:?}"),
        What::Command(fault) => format!("command: {fault:?}"),
        What::BlockingLate(most) => format!("blocking closure late, by up to {most:?}"),
        What::BlockingPanics => String::from("blocking closure panics"),
    }
}

fn describe_event(activity: &StepActivity) -> Option<String> {
    let from =
        |from: &Option<Pid>| from.map_or(String::from("message from outside"), |pid| format!("message of {pid}"));
    Some(match activity {
        StepActivity::Message { from: sender } => from(sender),
        StepActivity::Completed { tag } => format!("answer {tag}"),
        StepActivity::Cancel => String::from("cancel"),
        StepActivity::Down { pid } => format!("down of {pid}"),
        StepActivity::Exit { pid } => format!("exit of {pid}"),
        StepActivity::Recovered { pid } => format!("recovery of {pid}"),
        StepActivity::Group => String::from("change of a group"),
        StepActivity::Poll { tag } => format!("poll of future {tag}"),
        StepActivity::Init | StepActivity::Start | StepActivity::Step | StepActivity::AfterStep => return None,
    })
}
