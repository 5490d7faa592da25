//! How exits, errors and control signals get into a recording, and out of it again.
//!
//! An error of a user's type is recorded as its text. So a replayed step reads the same text, and cannot downcast it.

use std::borrow::Cow;

use super::codec::{DecodeError, Input, Recordable, put_list, put_pid};
use crate::outcome::{BoxError, Exit, Failure, LinkedExit, Panic, Reason};
use crate::primitives::Arc;
#[cfg(feature = "cluster")]
use crate::process::NodeError;
use crate::process::{
    CancelRequest, CommandError, Cycle, Down, ExitSignal, GroupChange, GroupEvent, LinkedBy, NameError,
    NoSuchProcessError, Pid, Recovered, RecoveredBy, SendError, Subscription,
};
use crate::sched::mailbox::Control;

/// The most exits that are recorded of a chain of linked processes, each of which was ended by the next.
const LONGEST_CHAIN: usize = 16;

/// The name of a type that a replayed error shows. The real name is only in the text of the file.
const RECORDED_TYPE: &str = "a type of the recorded program";

fn unknown() -> DecodeError {
    DecodeError::new("a number stands for nothing that this version knows")
}

fn put_text(text: &str, to: &mut Vec<u8>) {
    put_list(text.as_bytes(), to);
}

pub(super) fn put_exit(exit: &Exit, to: &mut Vec<u8>) {
    put_exit_of_chain(exit, to, LONGEST_CHAIN);
}

fn put_exit_of_chain(exit: &Exit, to: &mut Vec<u8>, chain: usize) {
    match exit {
        Exit::Done(()) => to.push(0),
        Exit::Failed(failure) => {
            to.push(1);
            put_failure(failure, to);
        }
        Exit::Panicked(panic) => {
            to.push(2);
            put_text(panic.message(), to);
        }
        Exit::Terminated(reason) => {
            to.push(3);
            put_reason(reason, to, chain);
        }
    }
}

pub(super) fn take_exit(from: &mut Input<'_>) -> Result<Exit, DecodeError> {
    take_exit_of_chain(from, LONGEST_CHAIN)
}

fn take_exit_of_chain(from: &mut Input<'_>, chain: usize) -> Result<Exit, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => Exit::Done(()),
        1 => Exit::Failed(take_failure(from)?),
        2 => Exit::Panicked(Panic::new(Box::new(from.take::<String>()?))),
        3 => Exit::Terminated(take_reason(from, chain)?),
        _ => return Err(unknown()),
    })
}

fn put_reason(reason: &Reason, to: &mut Vec<u8>, chain: usize) {
    match reason {
        Reason::Cancelled => to.push(0),
        Reason::TimedOut => to.push(1),
        Reason::Terminated => to.push(2),
        Reason::Shutdown => to.push(3),
        Reason::Ended => to.push(4),
        Reason::NoThread => to.push(5),
        Reason::NoSuchProcess => to.push(6),
        Reason::NodeDown => to.push(9),
        Reason::NameLost => to.push(10),
        Reason::Linked(linked) if chain > 0 => {
            to.push(7);
            linked.pid().encode(to);
            put_exit_of_chain(linked.exit(), to, chain - 1);
        }
        Reason::Linked(_) => to.push(2),
        Reason::Other(text) => {
            to.push(8);
            put_text(text, to);
        }
    }
}

fn take_reason(from: &mut Input<'_>, chain: usize) -> Result<Reason, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => Reason::Cancelled,
        1 => Reason::TimedOut,
        2 => Reason::Terminated,
        3 => Reason::Shutdown,
        4 => Reason::Ended,
        5 => Reason::NoThread,
        6 => Reason::NoSuchProcess,
        7 if chain > 0 => {
            let pid = from.take()?;
            Reason::Linked(LinkedExit::new(pid, take_exit_of_chain(from, chain - 1)?))
        }
        8 => Reason::Other(Cow::Owned(from.take()?)),
        9 => Reason::NodeDown,
        10 => Reason::NameLost,
        _ => return Err(unknown()),
    })
}

/// Errors that processes downcast to are recorded as they are.
fn put_failure(failure: &Failure, to: &mut Vec<u8>) {
    match failure.error().downcast_ref::<NameError>() {
        Some(NameError::Taken { name, holder }) => {
            to.push(1);
            name.encode(to);
            holder.encode(to);
        }
        Some(NameError::NoSuchProcess(error)) => {
            to.push(2);
            put_no_such_process(error, to);
        }
        Some(NameError::Empty) => to.push(3),
        Some(NameError::OtherNode(pid)) => {
            to.push(4);
            pid.encode(to);
        }
        None => {
            to.push(0);
            put_text(&failure.to_string(), to);
        }
    }
}

fn take_failure(from: &mut Input<'_>) -> Result<Failure, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => Failure::from(BoxError::from(from.take::<String>()?)),
        1 => Failure::new(NameError::Taken { name: from.take()?, holder: from.take()? }),
        2 => Failure::new(NameError::NoSuchProcess(take_no_such_process(from)?)),
        3 => Failure::new(NameError::Empty),
        4 => Failure::new(NameError::OtherNode(from.take()?)),
        _ => return Err(unknown()),
    })
}

fn put_no_such_process(error: &NoSuchProcessError, to: &mut Vec<u8>) {
    match error {
        NoSuchProcessError::Pid(pid) => {
            to.push(0);
            pid.encode(to);
        }
        NoSuchProcessError::Name(name) => {
            to.push(1);
            name.encode(to);
        }
        NoSuchProcessError::Group(name) => {
            to.push(2);
            name.encode(to);
        }
        NoSuchProcessError::RuntimeEnded => to.push(3),
        NoSuchProcessError::NotNow(pid) => {
            to.push(4);
            pid.encode(to);
        }
        NoSuchProcessError::NodeDown(pid) => {
            to.push(5);
            pid.encode(to);
        }
        NoSuchProcessError::SharedName(name) => {
            to.push(6);
            name.encode(to);
        }
    }
}

fn take_no_such_process(from: &mut Input<'_>) -> Result<NoSuchProcessError, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => NoSuchProcessError::Pid(from.take()?),
        1 => NoSuchProcessError::Name(from.take()?),
        2 => NoSuchProcessError::Group(from.take()?),
        3 => NoSuchProcessError::RuntimeEnded,
        4 => NoSuchProcessError::NotNow(from.take()?),
        5 => NoSuchProcessError::NodeDown(from.take()?),
        6 => NoSuchProcessError::SharedName(from.take()?),
        _ => return Err(unknown()),
    })
}

pub(super) fn put_send_error(error: &SendError, to: &mut Vec<u8>) {
    match error {
        SendError::NoSuchProcess(error) => {
            to.push(0);
            put_no_such_process(error, to);
        }
        SendError::WrongType { pid, .. } => {
            to.push(1);
            pid.encode(to);
        }
        SendError::Full { pid, limit } => {
            to.push(2);
            (*pid, *limit).encode(to);
        }
        SendError::InsideStep { pid } => {
            to.push(3);
            pid.encode(to);
        }
        SendError::NotStored { pid, why } => {
            to.push(4);
            pid.encode(to);
            put_text(why, to);
        }
        #[cfg(feature = "cluster")]
        SendError::Node { pid, why } => {
            to.push(5);
            pid.encode(to);
            put_node_error(why, to);
        }
    }
}

#[cfg(feature = "cluster")]
fn put_node_error(error: &NodeError, to: &mut Vec<u8>) {
    match error {
        NodeError::NodeDown => to.push(0),
        NodeError::NotRemote { .. } => to.push(1),
        NodeError::NotTaken { version, why, .. } => {
            to.push(2);
            version.encode(to);
            put_text(why, to);
        }
        NodeError::TooLarge { size, limit } => {
            to.push(3);
            (*size, *limit).encode(to);
        }
        NodeError::NotEncoded { why } => {
            to.push(4);
            put_text(why, to);
        }
        NodeError::NotDecoded { why } => {
            to.push(5);
            put_text(why, to);
        }
        NodeError::Busy => to.push(6),
        NodeError::NotRemoteProcess { .. } => to.push(7),
        NodeError::DurableSpawner => to.push(8),
    }
}

#[cfg(feature = "cluster")]
fn take_node_error(from: &mut Input<'_>) -> Result<NodeError, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => NodeError::NodeDown,
        1 => NodeError::NotRemote { type_name: RECORDED_TYPE },
        2 => {
            let (type_name, name) = (RECORDED_TYPE, RECORDED_TYPE);
            NodeError::NotTaken { type_name, name, version: from.take()?, why: from.take()? }
        }
        3 => NodeError::TooLarge { size: from.take()?, limit: from.take()? },
        4 => NodeError::NotEncoded { why: from.take()? },
        5 => NodeError::NotDecoded { why: from.take()? },
        6 => NodeError::Busy,
        7 => NodeError::NotRemoteProcess { type_name: RECORDED_TYPE },
        8 => NodeError::DurableSpawner,
        _ => return Err(unknown()),
    })
}

pub(super) fn take_send_error(from: &mut Input<'_>) -> Result<SendError, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => SendError::NoSuchProcess(take_no_such_process(from)?),
        1 => SendError::WrongType { pid: from.take()?, takes: RECORDED_TYPE, sent: RECORDED_TYPE },
        2 => SendError::Full { pid: from.take()?, limit: from.take()? },
        3 => SendError::InsideStep { pid: from.take()? },
        4 => SendError::NotStored { pid: from.take()?, why: from.take()? },
        #[cfg(feature = "cluster")]
        5 => SendError::Node { pid: from.take()?, why: take_node_error(from)? },
        _ => return Err(unknown()),
    })
}

pub(super) fn put_command_error(error: &CommandError, to: &mut Vec<u8>) {
    match error {
        CommandError::Failed(failure) => {
            to.push(0);
            put_failure(failure, to);
        }
        CommandError::Panicked(panic) => {
            to.push(1);
            put_text(panic.message(), to);
        }
        CommandError::Dropped => to.push(2),
        CommandError::TimedOut => to.push(3),
        CommandError::Cancelled(reason) => {
            to.push(4);
            put_reason(reason, to, LONGEST_CHAIN);
        }
        CommandError::Unknown { .. } => to.push(5),
        CommandError::NoSuchProcess(error) => {
            to.push(6);
            put_no_such_process(error, to);
        }
        CommandError::Ended(pid) => {
            to.push(7);
            pid.encode(to);
        }
        CommandError::ChildExit { pid, exit } => {
            to.push(8);
            pid.encode(to);
            put_exit(exit, to);
        }
        CommandError::Full(pid) => {
            to.push(9);
            pid.encode(to);
        }
        CommandError::WrongType { pid, .. } => {
            to.push(10);
            pid.encode(to);
        }
        CommandError::Cycle(cycle) => {
            to.push(11);
            cycle.pids().to_vec().encode(to);
        }
        CommandError::InsideStep => to.push(12),
        CommandError::Interrupted => to.push(13),
        CommandError::NotStored { pid, why } => {
            to.push(14);
            pid.encode(to);
            put_text(why, to);
        }
        #[cfg(feature = "cluster")]
        CommandError::Node { pid, why } => {
            to.push(15);
            pid.encode(to);
            put_node_error(why, to);
        }
    }
}

pub(super) fn take_command_error(from: &mut Input<'_>) -> Result<CommandError, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => CommandError::Failed(take_failure(from)?),
        1 => CommandError::Panicked(Panic::new(Box::new(from.take::<String>()?))),
        2 => CommandError::Dropped,
        3 => CommandError::TimedOut,
        4 => CommandError::Cancelled(take_reason(from, LONGEST_CHAIN)?),
        5 => CommandError::Unknown { name: RECORDED_TYPE },
        6 => CommandError::NoSuchProcess(take_no_such_process(from)?),
        7 => CommandError::Ended(from.take()?),
        8 => CommandError::ChildExit { pid: from.take()?, exit: take_exit(from)? },
        9 => CommandError::Full(from.take()?),
        10 => CommandError::WrongType { pid: from.take()?, takes: RECORDED_TYPE.into(), sent: RECORDED_TYPE.into() },
        11 => CommandError::Cycle(Cycle::new(from.take::<Vec<Pid>>()?)),
        12 => CommandError::InsideStep,
        13 => CommandError::Interrupted,
        14 => CommandError::NotStored { pid: from.take()?, why: from.take()? },
        #[cfg(feature = "cluster")]
        15 => CommandError::Node { pid: from.take()?, why: take_node_error(from)? },
        _ => return Err(unknown()),
    })
}

pub(super) fn put_control(control: &Control, to: &mut Vec<u8>) {
    match control {
        Control::Cancel(request) => {
            to.push(0);
            put_reason(&request.reason, to, LONGEST_CHAIN);
            request.deadline.encode(to);
        }
        Control::Down(down) => {
            to.push(1);
            (down.monitor, down.pid).encode(to);
            put_exit(&down.exit, to);
        }
        Control::Exit(signal, _) => {
            to.push(2);
            signal.pid.encode(to);
            put_exit(&signal.exit, to);
        }
        Control::Recovered(recovered) => {
            to.push(3);
            recovered.pid.encode(to);
            put_exit(&recovered.exit, to);
            (recovered.by == RecoveredBy::Process).encode(to);
        }
        Control::Group(event) => {
            to.push(4);
            event.subscription.id().encode(to);
            put_text(event.subscription.group(), to);
            match &event.change {
                GroupChange::Members(members) => {
                    to.push(0);
                    members.encode(to);
                }
                GroupChange::Joined(pid) => {
                    to.push(1);
                    put_pid(Some(*pid), to);
                }
                GroupChange::Left(pid) => {
                    to.push(2);
                    put_pid(Some(*pid), to);
                }
            }
        }
    }
}

pub(super) fn take_control(from: &mut Input<'_>) -> Result<Control, DecodeError> {
    Ok(match from.take::<u8>()? {
        0 => Control::Cancel(CancelRequest { reason: take_reason(from, LONGEST_CHAIN)?, deadline: from.take()? }),
        1 => Control::Down(Down { monitor: from.take()?, pid: from.take()?, exit: take_exit(from)? }),
        2 => Control::Exit(ExitSignal { pid: from.take()?, exit: take_exit(from)? }, LinkedBy::ME),
        3 => {
            let (pid, exit) = (from.take()?, take_exit(from)?);
            let by = if from.take()? { RecoveredBy::Process } else { RecoveredBy::SpawnOption };
            Control::Recovered(Recovered { pid, exit, by })
        }
        4 => {
            let (id, group) = from.take::<(u64, Arc<str>)>()?;
            let change = match from.take::<u8>()? {
                0 => GroupChange::Members(from.take()?),
                1 => GroupChange::Joined(from.take()?),
                2 => GroupChange::Left(from.take()?),
                _ => return Err(unknown()),
            };
            Control::Group(GroupEvent { subscription: Subscription::new(id, group), change })
        }
        _ => return Err(unknown()),
    })
}
