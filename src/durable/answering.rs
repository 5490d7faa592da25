//! Answers to stored commands from outside, by their keys.
//!
//! If the process is in memory, its open commands say whether the key waits. If not, the tables do. No step changes
//! them meanwhile: a process that has been in memory since has left behind another position.

use super::coding::Format;
use super::contract::{CommandResult, DurableCommand};
use super::core::{StoreCore, why_refused};
use super::error::StoreError;
use super::journal::{EncodedRecord, JournalError, Position, Record};
use super::open_commands::Refusal;
use super::residency::Place;
use super::rows::{self, COMMANDS, Phase, StoredAnswer, StoredCommand, StoredHead};
use super::store::{Receipt, Store};
use super::tail::{Life, Waiter};
use crate::inside::is_step;
use crate::outcome::{BoxError, Rejected, contain};
use crate::process::CommandKey;

/// An answer from outside, with its record.
struct Given {
    key: CommandKey,
    name: &'static str,
    answer: StoredAnswer,
    record: EncodedRecord,
}

impl Store {
    /// Answers a stored command by its key, in any run. When [`Receipt::wait`] has returned, the answer is on disk. The
    /// process gets it, also if the process sleeps. The call may read from the disk.
    ///
    /// This is for commands whose handler has called [`later`](crate::command::Responder::later). Any other command
    /// that has no answer yet can be answered as well. Then the answer of its handler is dropped.
    ///
    /// # Errors
    ///
    /// The answer comes back with the reason: [`StoreError::NoSuchCommand`] if the key is unknown, or if the process
    /// has taken an answer already, [`StoreError::AlreadyAnswered`] if it has not taken the first one yet, and
    /// [`StoreError::OtherCommand`] if the command has another type.
    pub fn answer<C: DurableCommand>(
        &self,
        key: CommandKey,
        answer: CommandResult<C>,
    ) -> Result<Receipt, Rejected<CommandResult<C>, StoreError>> {
        if is_step() {
            return Err(Rejected::new(answer, StoreError::InsideStep));
        }
        let core = &self.inner.core;
        if !core.has_range_of(key) {
            return Err(Rejected::new(answer, StoreError::NoSuchCommand(key)));
        }
        let (receipt, waiter) = Receipt::new(&self.inner.clock);
        let (encoded, _) = core.run.code(|| contain(|| encode::<C>(&answer)));
        let stored = encoded.unwrap_or_else(|panic| Err(Box::new(panic)));
        let given = stored.and_then(|answer| {
            let (serial, tag) = key.place();
            let stored = StoredCommand::answered(C::NAME, answer.clone());
            let change = rows::command(serial, tag, &stored)?;
            let record = EncodedRecord::new(&Record { changes: vec![change] })?;
            Ok(Given { key, name: C::NAME, answer, record })
        });
        let answered = match given {
            Ok(given) => core.answer(&given, waiter),
            Err(error) => Err(StoreError::NotStored(error.to_string())),
        };
        match answered {
            Ok(()) => Ok(receipt),
            Err(why) => Err(Rejected::new(answer, why)),
        }
    }
}

fn encode<C: DurableCommand>(answer: &CommandResult<C>) -> Result<StoredAnswer, BoxError> {
    Ok(match answer {
        Ok(value) => StoredAnswer::Value(Format::Json.encode(value)?),
        Err(error) => StoredAnswer::Failed(Format::Json.encode(error)?),
    })
}

/// The rows of a command whose process is not in memory.
struct Found {
    life: Life,
    seen: Seen,
    command: Option<StoredCommand>,
}

/// The number of a residence, and the position that its process has left behind. A process that was in memory
/// meanwhile has another one of the two.
type Seen = (u64, Option<(Life, Position)>);

/// The next action after a look at the residence.
enum Look {
    Read(Seen),
    Answered { loads: bool },
    Refused(StoreError),
}

impl StoreCore {
    /// Whether a key may be one of this store.
    fn has_range_of(&self, key: CommandKey) -> bool {
        let (serial, tag) = key.place();
        key.store() == self.id && self.ticket(serial).is_some() && i64::try_from(tag).is_ok()
    }

    /// Answers a stored command with a value, or an error of the command's type, that is given as JSON.
    pub(super) fn answer_with_json(
        &self,
        key: CommandKey,
        (json, is_error): (&str, bool),
        waiter: Waiter,
    ) -> Result<(), StoreError> {
        if !self.has_range_of(key) {
            return Err(StoreError::NoSuchCommand(key));
        }
        let command = self.read_command(key).map_err(StoreError::Journal)?;
        let name = command.ok_or(StoreError::NoSuchCommand(key))?.name;
        let kind = self.commands.values().find(|kind| kind.name == name);
        let kind =
            kind.ok_or_else(|| StoreError::refused(format_args!("the program does not know the command {name:?}")))?;
        let answer = StoredAnswer::of_json(json, is_error);
        let (decoded, _) = self.run.code(|| contain(|| kind.decode_answer(&answer).map(drop)));
        decoded.unwrap_or_else(|panic| Err(Box::new(panic))).map_err(StoreError::refused)?;
        let (serial, tag) = key.place();
        let change = rows::command(serial, tag, &StoredCommand::answered(kind.name, answer.clone()));
        let record = EncodedRecord::new(&Record { changes: vec![change.map_err(StoreError::refused)?] });
        let record = record.map_err(StoreError::refused)?;
        self.answer(&Given { key, name: kind.name, answer, record }, waiter)
    }

    fn answer(&self, given: &Given, waiter: Waiter) -> Result<(), StoreError> {
        let (serial, _) = given.key.place();
        let Some(core) = self.core() else { return Err(StoreError::NotStored("the runtime has ended".into())) };
        let (mut waiter, mut found) = (Some(waiter), None);
        loop {
            match self.look(given, found.take(), &mut waiter) {
                Look::Read(seen) => {
                    let life = self.tail.life();
                    let command = self.read_command(given.key).map_err(StoreError::Journal)?;
                    found = Some(Found { life, seen, command });
                }
                Look::Answered { loads } => {
                    if loads {
                        self.start_load(&core, serial);
                    }
                    return Ok(());
                }
                Look::Refused(why) => {
                    // The first look may have made it.
                    self.residency.forget_unknown(serial);
                    return Err(why);
                }
            }
        }
    }

    /// Appends the answer under the lock of the residence, or says what is missing.
    fn look(&self, given: &Given, found: Option<Found>, waiter: &mut Option<Waiter>) -> Look {
        let Given { key, name, answer, record } = given;
        let (serial, _) = key.place();
        let refuse = |refusal| {
            Look::Refused(match refusal {
                Refusal::Unknown => StoreError::NoSuchCommand(*key),
                Refusal::OtherType(holder) => StoreError::OtherCommand { key: *key, holder: holder.into() },
                Refusal::Answered => StoreError::AlreadyAnswered(*key),
                Refusal::Append(why) => StoreError::NotStored(why_refused(why).into()),
            })
        };
        self.residency.enter(serial, |residence| {
            let mut life = self.tail.life();
            let is_in_memory = match &residence.place {
                Place::Nobody | Place::Removed => return refuse(Refusal::Unknown),
                Place::Ending if residence.has_ended_by(|| self.tail.released()) => return refuse(Refusal::Unknown),
                Place::Resident(resident) => {
                    // One of an earlier life is about to leave. Its record is refused.
                    life = resident.life;
                    true
                }
                Place::Leaving | Place::LeavingToSleep => true,
                // The command is open on disk. Its answer would come after the end.
                Place::Ending => {
                    return Look::Refused(StoreError::NotStored("its process is about to end".into()));
                }
                Place::Asleep | Place::Loading | Place::Unreadable => false,
            };
            if !is_in_memory {
                let Some(found) =
                    found.filter(|found| found.life == life && found.seen == (residence.number, residence.left_behind))
                else {
                    return Look::Read((residence.number, residence.left_behind));
                };
                let Some(command) = found.command else { return refuse(Refusal::Unknown) };
                if command.name != *name {
                    let holder = command.name;
                    return Look::Refused(StoreError::OtherCommand { key: *key, holder });
                }
                if matches!(command.phase, Phase::Answered(_)) {
                    return refuse(Refusal::Answered);
                }
            }
            let append = || {
                let position = self.tail.append(life, record, waiter.take())?;
                if let Place::Resident(resident) = &residence.place {
                    self.note_told(resident, position);
                }
                Ok(position)
            };
            match self.open_commands.answer(key.place(), (name, answer.clone()), is_in_memory, append) {
                Ok(_) => {
                    let loads = matches!(residence.place, Place::Asleep);
                    if loads {
                        residence.place = Place::Loading;
                    } else if matches!(residence.place, Place::LeavingToSleep) {
                        residence.place = Place::Leaving;
                    }
                    Look::Answered { loads }
                }
                Err(Refusal::Unknown) if life != self.tail.life() => Look::Refused(StoreError::Lost),
                Err(refusal) => refuse(refusal),
            }
        })
    }

    /// Reads a command whose process is not in memory. `None` if the process has ended.
    fn read_command(&self, key: CommandKey) -> Result<Option<StoredCommand>, JournalError> {
        let (serial, tag) = key.place();
        // Records of this run may be only in the log.
        let through = self.tail.released();
        let stored = self.with_tables(|tables, reader| {
            self.catch_up_to(tables, through)?;
            reader.load(serial)
        })?;
        let head = stored.row.and_then(|row| postcard::from_bytes::<StoredHead>(&row.head).ok());
        let is_alive = head.is_some_and(|head| head.exit.is_none());
        let mut rows = stored.entries.into_iter().filter(|(class, number, _)| (*class, *number) == (COMMANDS, tag));
        let command = rows.next().and_then(|(_, _, row)| postcard::from_bytes(&row.body).ok());
        Ok(command.filter(|_| is_alive))
    }
}
