//! Builds the trace that a reader is shown from the records of a run.

use std::collections::VecDeque;

use super::faults::{CommandFault, What};
use super::recorder::{ConnectionWork, Injected, Subject, TurnRecord};
use super::trace::{Trace, TraceTurn};
use super::trace_formatter::short;
use crate::process::StepActivity;
use crate::sched::body::Verdict;

/// Makes the trace of these turns.
pub(super) fn trace_of(records: Vec<TurnRecord>) -> Trace {
    Trace { turns: records.into_iter().map(turn_of).collect() }
}

/// The process, with its type and its name, or what else the turn is.
pub(super) fn who(record: &TurnRecord) -> String {
    match &record.subject {
        Subject::Process(pid) => {
            let name = record.name.as_ref().map_or(String::new(), |name| format!(" {name:?}"));
            format!("{pid} {}{name}", short(record.type_name))
        }
        Subject::Timer => String::from("timer"),
        Subject::Blocking(pid) => format!("blocking closure of {pid}"),
        Subject::Answer(pid) => format!("late answer to {pid}"),
        Subject::Delivery(from, to) => format!("held message {from} -> {to}"),
        Subject::Store(work) => (*work).to_string(),
        Subject::Connection(ConnectionWork::Sends(node, peer)) => format!("node {node:?} to {peer:?}"),
        Subject::Connection(ConnectionWork::Takes(node, peer)) => format!("node {node:?} from {peer:?}"),
        Subject::Connection(ConnectionWork::Arrives(from, to)) => format!("frame {from:?} -> {to:?}"),
        Subject::Connection(ConnectionWork::Crash(node)) => format!("crash of the node {node:?}"),
    }
}

fn turn_of(mut record: TurnRecord) -> TraceTurn {
    let who = who(&record);
    let took = match record.subject {
        Subject::Process(_) => {
            let took: Vec<String> =
                record.took.iter().filter_map(|activity| describe_event(activity, &mut record.messages)).collect();
            if record.is_first && record.verdict.is_some() && took.is_empty() {
                vec![String::from("(first step)")]
            } else {
                took
            }
        }
        Subject::Timer => vec![String::from("is due")],
        Subject::Blocking(_) | Subject::Store(_) => vec![String::from("runs")],
        Subject::Answer(_) | Subject::Delivery(..) => vec![String::from("comes")],
        Subject::Connection(ConnectionWork::Sends(..)) => vec![String::from("sends")],
        Subject::Connection(ConnectionWork::Takes(..)) => vec![String::from("takes a frame")],
        Subject::Connection(ConnectionWork::Arrives(..)) => vec![String::from("arrives")],
        Subject::Connection(ConnectionWork::Crash(_)) => vec![String::from("is known")],
    };
    let mut yielded = record.yields;
    yielded.extend(record.failed);
    match record.verdict {
        Some(Verdict::Done) => yielded.push(String::from("done")),
        Some(Verdict::Upgrade) => yielded.push(String::from("upgrade")),
        _ => {}
    }
    let is_noted = |fault: &&Injected| !record.subject.is_process(fault.of) || fault.what != What::Panic;
    let faults = record.injected.iter().filter(is_noted).map(|fault| format!("injected: {}", describe(fault.what)));
    let notes = faults.chain(record.notes).collect();
    TraceTurn {
        number: u64::from(record.number),
        time: record.at,
        who,
        took,
        yielded,
        is_late: record.is_out_of_order,
        is_injected: !record.injected.is_empty(),
        notes,
    }
}

fn describe(what: What) -> String {
    match what {
        What::Crash => String::from("terminated"),
        What::Panic => String::from("panicked"),
        What::Stall(most) => format!("stalled, for up to {most:?}"),
        What::StallFor(time) => format!("stalled, for {time:?}"),
        What::Command(CommandFault::Fail) => String::from("the command fails"),
        What::Command(CommandFault::LostBefore) => String::from("the command is lost"),
        What::Command(CommandFault::LostAfter) => String::from("the answer is lost"),
        What::Command(CommandFault::Never) => String::from("the answer never comes"),
        What::Command(CommandFault::Late(most)) => format!("the answer is late, by up to {most:?}"),
        What::BlockingLate(most) => format!("blocking closure late, by up to {most:?}"),
        What::BlockingPanics => String::from("blocking closure panics"),
        What::Kill => String::from("the program is killed"),
        #[cfg(feature = "durable")]
        What::Disk(fault) => format!("the disk fails: {fault:?}"),
        #[cfg(feature = "cluster")]
        What::LoseFrame => String::from("a frame is lost"),
        #[cfg(feature = "cluster")]
        What::RepeatFrame => String::from("a frame comes twice"),
        #[cfg(feature = "cluster")]
        What::DelayFrame(_) => String::from("a frame is late"),
        #[cfg(feature = "cluster")]
        What::Cut(_) => String::from("one node is cut from another"),
        #[cfg(feature = "cluster")]
        What::Pause(most) => format!("the sender of a frame is paused, for up to {most:?}"),
    }
}

/// The event in words. `messages` are the messages that the step has taken.
fn describe_event(activity: &StepActivity, messages: &mut VecDeque<String>) -> Option<String> {
    Some(match activity {
        StepActivity::Message { from } => {
            let message = messages.pop_front().unwrap_or_else(|| String::from("message"));
            from.map_or_else(|| format!("{message} from outside"), |pid| format!("{message} of {pid}"))
        }
        StepActivity::Completed { tag } => format!("answer {tag}"),
        StepActivity::Cancel => String::from("cancel"),
        StepActivity::Down { pid } => format!("down of {pid}"),
        StepActivity::Exit { pid } => format!("exit of {pid}"),
        StepActivity::Recovered { pid } => format!("recovery of {pid}"),
        StepActivity::Group => String::from("change of a group"),
        StepActivity::Poll { tag } => format!("poll of future {tag}"),
        StepActivity::Describe => String::from("description"),
        StepActivity::Init | StepActivity::Start | StepActivity::Step | StepActivity::AfterStep => return None,
    })
}
