//! The stored commands of a durable process: those that its steps yield, and those with which it is loaded.

use std::collections::HashMap;
use std::mem::replace;
use std::time::Duration;

use super::command_future::{CommandFuture, OpenCommand, plan};
use super::command_traces::contexts_of;
use super::command_type::CommandType;
use super::contract::Durable;
use super::core::{Found, StepError, StoreCore};
use super::held::{Held, Sorted};
use super::journal::Change;
use super::machine::DurableMachine;
use super::residency::{Resident, Taken};
use super::rows::{self, Phase, StoredAnswer, StoredCommand};
use crate::outcome::{BoxError, Failure, contain, drop_contained};
use crate::primitives::Arc;
use crate::process::future_output::TracedFuture;
use crate::process::handler::BoxedCommand;
use crate::process::{Answer, AnyHandler, CommandError};
use crate::sched::body::{LimitedCommand, StepOutput, Yield};
use crate::sched::trace_marks::MessageTrace;

/// A command that a step yields: its place among the held yields, and its row.
pub(super) struct NewCommand {
    place: usize,
    tag: u64,
    kind: CommandType,
    stored: StoredCommand,
}

impl<P: Durable> DurableMachine<P> {
    /// The commands of a step that are to be stored.
    pub(super) fn new_commands(&self, new: &Sorted) -> Result<Vec<NewCommand>, StepError> {
        let mut commands = Vec::new();
        for place in &new.commands {
            let (tag, command, limit) = match new.held.yields.get(*place) {
                Some(Yield::Command { tag, command }) => (*tag, command, Duration::MAX),
                Some(Yield::CommandTimeout(limited)) => (limited.tag, &limited.command, limited.limit),
                _ => continue,
            };
            let Some(kind) = self.store.commands.get(&command.kind()) else { continue };
            let (encoded, _) = self.store.run.code(|| contain(|| (kind.encode)(&*command.command)));
            let since = self.store.wall_millis();
            let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            let deadline = since.saturating_add(millis).min(i64::MAX as u64);
            // A handler with a limit may call it much later. The attempt is stored by then.
            let waits = self.store.core().is_some_and(|core| match core.handlers.get(&command.kind()) {
                Some(AnyHandler::Async(handler)) => handler.is_limited(),
                _ => false,
            });
            if new.cancelled.contains(&tag) {
                let stored = StoredCommand::answered(kind.name, StoredAnswer::Cancelled);
                commands.push(NewCommand { place: *place, tag, kind: *kind, stored });
                continue;
            }
            let stored = StoredCommand {
                name: kind.name.into(),
                command: encoded.map_err(Failure::new)??,
                since,
                deadline: (limit < Duration::MAX).then_some(deadline),
                attempt: u32::from(!waits),
                phase: if waits { Phase::Waits } else { Phase::Out },
            };
            commands.push(NewCommand { place: *place, tag, kind: *kind, stored });
        }
        Ok(commands)
    }

    /// Adds the rows of new commands.
    pub(super) fn with_commands(
        &self,
        mut changes: Vec<Change>,
        commands: Vec<NewCommand>,
    ) -> Result<(Vec<Change>, Vec<NewCommand>), StepError> {
        for NewCommand { tag, stored, .. } in &commands {
            changes.push(rows::command(self.resident.serial, *tag, stored)?);
        }
        Ok((changes, commands))
    }

    /// Adds the rows of stored commands that the step cancels. So they are not handed out again, if the program ends
    /// before the step that takes this answer. Returns their tags.
    pub(super) fn with_cancelled(&self, changes: &mut Vec<Change>, cancelled: &[u64]) -> Vec<u64> {
        let serial = self.resident.serial;
        let mut stored = Vec::new();
        for tag in cancelled {
            let Some(name) = self.store.open_commands.cancel(serial, *tag) else { continue };
            let row = StoredCommand::answered(name, StoredAnswer::Cancelled);
            changes.extend(rows::command(serial, *tag, &row));
            stored.push(*tag);
        }
        stored
    }

    /// The step that has cancelled these commands has failed.
    pub(super) fn reopen_commands(&self, cancelled: &[u64]) {
        cancelled.iter().for_each(|tag| self.store.open_commands.reopen(self.resident.serial, *tag));
    }

    /// The record of a step was appended: its commands begin when they are released, and the answers that it has taken
    /// are forgotten.
    pub(super) fn begin_commands(
        &mut self,
        taken: &Taken,
        (held, out): (&mut Held, &mut StepOutput),
        commands: Vec<NewCommand>,
    ) {
        if !taken.answers.is_empty() {
            self.store.open_commands.forget(self.resident.serial, taken.answers.iter().copied());
        }
        if commands.is_empty() {
            return;
        }
        let mut contexts = contexts_of(out);
        for NewCommand { place, tag, kind, stored } in commands {
            let Some(one) = held.yields.get_mut(place) else { continue };
            let command = match replace(one, Yield::Performed) {
                Yield::Command { command, .. } => command,
                Yield::CommandTimeout(limited) => {
                    let LimitedCommand { command, .. } = *limited;
                    command
                }
                other => {
                    *one = other;
                    continue;
                }
            };
            let is_new = matches!(stored.phase, Phase::Out);
            let retry = plan(&kind, Some(&command));
            let trace = MessageTrace::new(contexts.remove(&tag));
            let open = OpenCommand { tag, kind, command: Some(command), stored, retry, trace, is_new };
            *one = at_work(&self.store, &self.resident, open);
        }
    }

    /// The answer that a failed step has taken.
    pub(super) fn answer_of(&self, tag: u64) -> Answer {
        let (kind, stored) =
            self.store.open_commands.answer_of(self.resident.serial, tag).ok_or(CommandError::Interrupted)?;
        let (decoded, _) = self.store.run.code(|| contain(|| kind.decode_answer(&stored)));
        decoded.unwrap_or_else(|panic| Err(Box::new(panic))).unwrap_or_else(|error| Err(CommandError::failed(error)))
    }
}

/// The yield that has a command handed out.
pub(super) fn at_work(store: &Arc<StoreCore>, resident: &Arc<Resident>, mut open: OpenCommand) -> Yield {
    let (tag, context) = (open.tag, open.trace.take());
    let mut future = CommandFuture::new(store.clone(), resident.clone(), open).boxed();
    if let Some(context) = context {
        future = Box::pin(TracedFuture { future, context });
    }
    Yield::Future { tag, future, limit: Duration::MAX }
}

impl StoreCore {
    /// Decodes the commands of a process that was read.
    pub(super) fn commands_of(&self, found: &Found) -> Result<Vec<OpenCommand>, BoxError> {
        let mut traces: HashMap<u64, MessageTrace> = match found.commands.is_empty() {
            true => HashMap::new(),
            false => self.traces_of(found).into_iter().collect(),
        };
        let decode = |(tag, stored): &(u64, StoredCommand)| {
            let kind = self.commands.values().find(|kind| kind.name == stored.name);
            let kind = *kind.ok_or_else(|| format!("the program does not know the command {:?}", stored.name))?;
            let read = || match &stored.phase {
                Phase::Answered(answer) => {
                    drop_contained(kind.decode_answer(answer)?);
                    Ok(None)
                }
                _ => (kind.decode)(&stored.command).map(Some),
            };
            let (decoded, _) = self.run.code(|| contain(read));
            let command: Option<BoxedCommand> = decoded.unwrap_or_else(|panic| Err(Box::new(panic)))?;
            let retry = plan(&kind, command.as_ref());
            let trace = traces.remove(tag).unwrap_or_default();
            Ok(OpenCommand { tag: *tag, kind, command, stored: stored.clone(), retry, trace, is_new: false })
        };
        found.commands.iter().map(decode).collect()
    }
}
