//! The traces of the commands of durable processes. They are stored, so that an answer is within its trace after a
//! sleep or a restart, too.
//!
//! | when | what happens to the entry of class `TRACES` with the tag of the command |
//! |---|---|
//! | a step yields a command within a trace | its record has the entry: the context, as the propagator has written it |
//! | the process is loaded | the context is read and noted, as that of a command that the process has just yielded |
//! | a step has taken the answer, or the process has ended | its record removes the entry |
//! | the step fails | nothing: the thread has the context of the event, and it is noted again |
//!
//! Commands of all types have such entries: timers, stored commands, stored questions, children, and commands that a
//! restart interrupts. The entry is apart from the row of the command, because that row is written anew with each
//! attempt, and with an answer from outside.
//!
//! A program that does not know this class leaves the entries alone, and removes them with the process. If such a
//! program has stored that an answer was taken, the entry stays. Then its context is not read, because no command has
//! the tag.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::contract::Durable;
use super::core::{Found, Made, StoreCore};
use super::journal::{Change, EntryRow};
use super::machine::DurableMachine;
use super::residency::Taken;
use super::rows::{self, TRACES};
use crate::process::propagation::{decode, encode};
use crate::sched::body::StepOutput;
use crate::sched::trace_marks::{Context, MessageTrace};

/// The contexts of commands, by their tags.
pub(super) type CommandTraces = Vec<(u64, MessageTrace)>;

impl<P: Durable> DurableMachine<P> {
    /// The entries of the traces in which a step yields commands, and of those whose answers it has taken.
    pub(super) fn changed_traces(&self, taken: &Taken, out: &mut StepOutput, is_over: bool) -> Vec<Change> {
        let serial = self.resident.serial;
        let over = self.traces.iter().filter(|tag| is_over || taken.answers.contains(tag));
        let mut changes: Vec<Change> = over.map(|tag| rows::answered(serial, TRACES, *tag)).collect();
        if let Some(yields) = out.outbox.traces().filter(|_| !is_over) {
            for (tag, context) in &yields.commands {
                let body = context.as_deref().and_then(encode);
                let row = body.map(|body| EntryRow { due: None, body });
                changes.extend(row.map(|row| Change::Entry { serial, class: TRACES, number: *tag, row: Some(row) }));
            }
        }
        changes
    }

    /// The tags whose traces are stored when these changes are.
    pub(super) fn traces_after(&self, changes: &[Change]) -> BTreeSet<u64> {
        let mut traces = self.traces.clone();
        for change in changes {
            if let Change::Entry { class: TRACES, number, row, .. } = change {
                match row {
                    Some(_) => traces.insert(*number),
                    None => traces.remove(number),
                };
            }
        }
        traces
    }
}

/// The contexts of the commands that a step has yielded, by their tags.
pub(super) fn contexts_of(out: &mut StepOutput) -> HashMap<u64, Context> {
    let yields = out.outbox.traces().map_or(&[][..], |yields| &yields.commands);
    yields.iter().filter_map(|(tag, context)| Some((*tag, context.clone()?))).collect()
}

impl Found {
    /// The tags whose traces are stored.
    pub(super) fn traced(&self) -> BTreeSet<u64> {
        self.traces.iter().map(|(tag, _)| *tag).collect()
    }

    /// The stored traces of commands whose answers no step has taken.
    fn open_traces(&self) -> Vec<&(u64, Vec<u8>)> {
        if self.traces.is_empty() {
            return Vec::new();
        }
        let entries = self.entries.iter().filter(|(class, _)| rows::is_answered(*class)).map(|(_, tag)| tag);
        let open: HashSet<&u64> = self.head.open.iter().chain(entries).collect();
        self.traces.iter().filter(|(tag, _)| open.contains(tag)).collect()
    }
}

impl StoreCore {
    /// Reads a context that was stored, if the runtime has a propagator that knows it.
    pub(super) fn read_trace(&self, bytes: &[u8]) -> Option<Context> {
        let propagator = self.core()?.road.propagator.clone()?;
        decode(&*propagator, bytes)
    }

    /// The contexts of the commands of a process that was read.
    pub(super) fn traces_of(&self, found: &Found) -> CommandTraces {
        let read = |bytes: &[u8]| Some(MessageTrace::new(Some(self.read_trace(bytes)?)));
        found.open_traces().into_iter().filter_map(|(tag, bytes)| Some((*tag, read(bytes)?))).collect()
    }
}

/// Notes the contexts of the commands of a process that was loaded.
pub(super) fn with_traces(mut made: Made, traces: CommandTraces) -> Made {
    let signals = made.body.0.machine.mailbox().signals();
    for (tag, mut trace) in traces {
        let marks = signals.get_or_insert_default().traces.get_or_insert_default();
        marks.note_command(tag, trace.take());
    }
    made
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::durable::coding::Format;
    use crate::durable::rows::{CHILDREN, COMMANDS, MAIL, NAMES, QUESTIONS, StoredHead, TIMERS};
    use crate::durable::tail::Life;

    /// A program that does not know the class has stored that some answers were taken, and has left the entries alone.
    #[test]
    fn the_trace_of_a_command_that_has_its_answer_is_not_read() {
        let row = |body: &[u8]| EntryRow { due: None, body: body.to_vec() };
        let mut head = StoredHead::new(Format::Json, None, 0);
        head.open.push(1);
        let classes = [TIMERS, COMMANDS, QUESTIONS, CHILDREN, rows::ANSWERS, MAIL, NAMES];
        let mut entries: Vec<_> = classes.into_iter().zip(2..).map(|(class, tag)| (class, tag, row(&[]))).collect();
        entries.extend((1..=9).map(|tag| (TRACES, tag, row(&[tag as u8]))));
        let process = head.row("clerk", 1, Vec::new()).unwrap();
        let found = Found::with_head(7, Life::FIRST, (process, head), entries);
        let open: Vec<_> = (1..=6).map(|tag| (tag, vec![tag as u8])).collect();
        assert_eq!(found.open_traces().into_iter().cloned().collect::<Vec<_>>(), open);
        assert_eq!(found.traced(), (1..=9).collect(), "all are removed with the process");
        let nothing = Found { traces: Vec::new(), ..found };
        assert!(nothing.open_traces().is_empty());
    }
}
