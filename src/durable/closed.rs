//! Carries out the requests of an operator in a store that no program has. Orders are records, as those of a store that
//! is open. So the next start finds them done.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::coding::{Format, Run};
use super::core::Found;
use super::error::StoreError;
use super::journal::{
    Batch, Change, Damage, EncodedRecord, Journal, JournalError, Log, Opened, Position, Record, Tables,
};
use super::mail_counts;
use super::numbers::Numbers;
use super::operating::Desk;
use super::query::{Query, Request, Which};
use super::repair::{Action, NotRepaired};
use super::repairing::Times;
use super::rows::{self, Phase, Runs, StoredAnswer, StoredCommand};
use super::settings::{KEEP, LARGEST_STATE};
use super::tail::Life;
use super::viewing::{Kinds, Viewer};
use crate::process::{CommandKey, ParseCommandKeyError};

/// A store that no program has.
pub(super) struct ClosedStore {
    log: Box<dyn Log>,
    tables: Box<dyn Tables>,
    last: Position,
    run: Run,
    /// The random number of the store.
    id: u64,
    /// There are none: the program's types are not here.
    kinds: Kinds,
    /// The time in milliseconds since 1970.
    now: u64,
}

impl ClosedStore {
    pub(super) fn open(journal: &mut dyn Journal, now: u64) -> Result<ClosedStore, StoreError> {
        let Opened { recovered, log, mut tables } = journal.open()?;
        tables.apply(recovered.last)?;
        let runs = tables.reader()?.name(rows::FACTS, rows::RUNS)?;
        let runs: Option<Runs> = runs.and_then(|row| postcard::from_bytes(&row.body).ok());
        let runs = runs.ok_or_else(|| StoreError::refused("no program has started this store yet"))?;
        // PIDs of ordinary processes mean nobody in this run.
        let run = Run { store: runs.node, number: u64::MAX };
        Ok(ClosedStore { log, tables, last: recovered.last, run, id: runs.id, kinds: Kinds::new(), now })
    }

    fn desk(&self) -> Result<Desk<'_>, StoreError> {
        let viewer = Viewer { run: self.run, id: self.id, kinds: &self.kinds };
        Ok(Desk { reader: self.tables.reader()?, viewer })
    }

    /// Carries out a request. The answer is as the request says.
    pub(super) fn carry_out(&mut self, request: &Request) -> Result<Value, StoreError> {
        Ok(match request {
            Request::Retry(which) => self.give(which, &Action::Retry)?.into(),
            Request::Skip(which) => self.give(which, &Action::Skip)?.into(),
            Request::Terminate(which) => self.give(which, &Action::Terminate)?.into(),
            Request::Cancel(which) => self.give(which, &Action::Cancel)?.into(),
            Request::Replace { process, state } => {
                let serial = self.desk()?.find(process)?;
                self.replace(serial, state)?;
                1.into()
            }
            Request::Resend { process, number } => {
                let serial = self.desk()?.find(process)?;
                self.order(serial, &Action::Resend(*number))?;
                1.into()
            }
            Request::Answer { key, json, is_error } => {
                self.answer(key, (json, *is_error))?;
                1.into()
            }
            Request::Check => {
                let mut reader = self.tables.reader()?;
                mail_counts::check(&mut *self.tables, &mut *reader)?.iter().map(Damage::to_string).collect()
            }
            Request::Mail => {
                let mut reader = self.tables.reader()?;
                let counts = mail_counts::count_mail(&mut *self.tables, &mut *reader)?;
                serde_json::to_value(counts.map_err(JournalError::Damaged)?).map_err(StoreError::refused)?
            }
            Request::Backup(to) => {
                self.tables.copy()?(to)?;
                Value::Null
            }
            reads => self.desk()?.answer(reads)?,
        })
    }

    fn give(&mut self, which: &Which, order: &Action) -> Result<u64, StoreError> {
        match which {
            Which::One(process) => {
                let serial = self.desk()?.find(process)?;
                self.order(serial, order).map(|()| 1)
            }
            Which::All(query) => self.order_all(query, order),
        }
    }

    fn order_all(&mut self, query: &Query, order: &Action) -> Result<u64, StoreError> {
        let mut serials = Vec::new();
        self.desk()?.select(query, usize::MAX, |_, serial, _| {
            serials.push(serial);
            Ok(())
        })?;
        let mut count = 0;
        for serial in serials {
            match self.order(serial, order) {
                Ok(()) => count += 1,
                Err(StoreError::NotRepaired(_) | StoreError::Journal(JournalError::Damaged(_))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn replace(&mut self, serial: u64, state: &str) -> Result<(), StoreError> {
        let found = self.found(serial)?;
        if found.head.format != Format::Json {
            let why = "the states of this kind are not JSON: replace it while its program runs";
            return Err(NotRepaired::State(why.into()).into());
        }
        // The program may have another limit.
        if state.len() > LARGEST_STATE {
            return Err(NotRepaired::State(rows::too_large(state.len(), LARGEST_STATE)).into());
        }
        // Whether it is a state of its kind is found at the next start.
        let json: Result<IgnoredAny, _> = serde_json::from_str(state);
        json.map_err(|error| NotRepaired::State(error.to_string()))?;
        self.order(serial, &Action::Replace { state: state.as_bytes().to_vec(), of: None })
    }

    fn found(&self, serial: u64) -> Result<Found, StoreError> {
        let found = Found::of(serial, Life::FIRST, self.tables.reader()?.load(serial)?)?;
        Ok(found.filter(|found| found.head.exit.is_none()).ok_or(NotRepaired::NoSuchProcess)?)
    }

    fn order(&mut self, serial: u64, order: &Action) -> Result<(), StoreError> {
        let found = match self.found(serial) {
            // It can end, and nothing else.
            Err(StoreError::Journal(JournalError::Damaged(_))) if matches!(order, Action::Terminate) => {
                let found = Found::salvaged(serial, (Life::FIRST, self.now), &mut *self.tables.reader()?)?;
                found.ok_or(NotRepaired::NoSuchProcess)?
            }
            found => found?,
        };
        let times = Times { now: self.now, keep: KEEP.as_millis() as u64 };
        let row = self.tables.reader()?.name(rows::FACTS, rows::NUMBERS)?;
        let next = row.map_or(Ok(1_u64), |row| postcard::from_bytes(&row.body));
        let number = Numbers::usable(next.map_err(StoreError::refused)?);
        let mut changes = order.apply(&found, times, number)?.changes;
        if changes.iter().any(|change| matches!(change, Change::Entry { number: used, .. } if *used == number)) {
            changes.push(rows::fact(rows::NUMBERS, &(number + 1)).map_err(StoreError::refused)?);
        }
        self.commit(changes)
    }

    /// Whether it is an answer of the command's type is found at the next start.
    fn answer(&mut self, key: &str, (json, is_error): (&str, bool)) -> Result<(), StoreError> {
        let key: CommandKey = key.parse().map_err(|error: ParseCommandKeyError| StoreError::refused(error))?;
        if key.store() != self.id {
            return Err(StoreError::NoSuchCommand(key));
        }
        let (serial, tag) = key.place();
        let found = self.found(serial).map_err(|error| match error {
            StoreError::NotRepaired(_) => StoreError::NoSuchCommand(key),
            error => error,
        })?;
        let command = found.commands.iter().find(|(other, _)| *other == tag);
        let (_, command) = command.ok_or(StoreError::NoSuchCommand(key))?;
        if matches!(command.phase, Phase::Answered(_)) {
            return Err(StoreError::AlreadyAnswered(key));
        }
        let json_error: Result<IgnoredAny, _> = serde_json::from_str(json);
        json_error.map_err(StoreError::refused)?;
        let answered = StoredCommand::answered(&command.name, StoredAnswer::of_json(json, is_error));
        self.commit(vec![rows::command(serial, tag, &answered).map_err(StoreError::refused)?])
    }

    fn commit(&mut self, changes: Vec<Change>) -> Result<(), StoreError> {
        let record = EncodedRecord::new(&Record { changes }).map_err(StoreError::refused)?;
        let mut batch = Batch::new(self.last.next());
        batch.push(&record);
        self.log.commit(&batch)?;
        self.last = batch.last();
        self.tables.apply(self.last)?;
        Ok(())
    }
}
