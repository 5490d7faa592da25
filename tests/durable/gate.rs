//! A disk that waits when a test tells it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::durable::journal::{
    Batch, Damage, EntryRow, Journal, JournalError, Log, MemoryJournal, NameRow, Opened, Position, ProcessRow, Reader,
    Status, StoredProcess, Tables,
};
use procession::sync::Latch;

use crate::wait::{LIMIT, Mutex, until};

/// A gate at which a journal waits while it is closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<Option<Latch<()>>>>, Arc<AtomicUsize>);

impl Gate {
    pub(crate) fn close(&self) {
        self.1.store(0, Ordering::SeqCst);
        *self.0.lock().unwrap() = Some(Latch::new());
    }

    /// Lets the commit pass that is the first one, the second one, and so on, since the gate was closed.
    pub(crate) fn let_pass(&self, number: usize) {
        self.wait_for(number);
        let before = self.0.lock().unwrap().replace(Latch::new());
        before.unwrap().set(()).unwrap();
    }

    pub(crate) fn open(&self) {
        self.0.lock().unwrap().take().unwrap().set(()).unwrap();
    }

    /// Waits until so many commits have come since the gate was closed.
    pub(crate) fn wait_for(&self, number: usize) {
        until("a commit waits", || self.1.load(Ordering::SeqCst) >= number);
    }

    /// Lets the commit through that waits. The next one waits again.
    pub(crate) fn let_one_pass(&self) {
        let waits = self.0.lock().unwrap().replace(Latch::new());
        waits.unwrap().set(()).unwrap();
    }

    fn pass(&self) {
        let closed = self.0.lock().unwrap().clone();
        let Some(latch) = closed else { return };
        self.1.fetch_add(1, Ordering::SeqCst);
        _ = latch.wait_timeout(LIMIT);
    }

    /// How often somebody has waited here, or waits.
    pub(crate) fn arrivals(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

/// A disk whose commits wait while the gate is closed.
pub(crate) struct GatedJournal(pub(crate) MemoryJournal, pub(crate) Gate);

#[derive(Debug)]
pub(crate) struct GatedLog(Box<dyn Log>, Gate);

impl Journal for GatedJournal {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let opened = self.0.open()?;
        Ok(Opened { log: Box::new(GatedLog(opened.log, self.1.clone())), ..opened })
    }
}

impl Log for GatedLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.1.pass();
        self.0.commit(batch)
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.0.trim(applied)
    }
}

/// A disk whose loads wait while the gate is closed, when they have read.
pub(crate) struct SlowLoads<J = MemoryJournal>(pub(crate) J, pub(crate) Gate);

#[derive(Debug)]
struct SlowTables(Box<dyn Tables>, Gate);

#[derive(Debug)]
struct SlowReader(Box<dyn Reader>, Gate);

impl<J: Journal> Journal for SlowLoads<J> {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let opened = self.0.open()?;
        Ok(Opened { tables: Box::new(SlowTables(opened.tables, self.1.clone())), ..opened })
    }
}

impl Tables for SlowTables {
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError> {
        self.0.apply_some(through)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        Ok(Box::new(SlowReader(self.0.reader()?, self.1.clone())))
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        self.0.check()
    }
}

impl Reader for SlowReader {
    fn load(&mut self, serial: u64) -> Result<StoredProcess, JournalError> {
        let loaded = self.0.load(serial);
        self.1.pass();
        loaded
    }

    fn process(&mut self, serial: u64) -> Result<Option<ProcessRow>, JournalError> {
        self.0.process(serial)
    }

    fn entries(&mut self, serial: u64) -> Result<Vec<(u8, u64, EntryRow)>, JournalError> {
        self.0.entries(serial)
    }

    fn name(&mut self, class: u8, name: &str) -> Result<Option<NameRow>, JournalError> {
        self.0.name(class, name)
    }

    fn with_status(&mut self, status: Option<Status>, after: u64, limit: usize) -> Result<Vec<u64>, JournalError> {
        self.0.with_status(status, after, limit)
    }

    fn entry(&mut self, serial: u64, class: u8, number: u64) -> Result<Option<EntryRow>, JournalError> {
        self.0.entry(serial, class, number)
    }

    fn of_class(
        &mut self,
        class: u8,
        after: (u64, u64),
        limit: usize,
    ) -> Result<Vec<(u64, u64, EntryRow)>, JournalError> {
        self.0.of_class(class, after, limit)
    }

    fn due(&mut self, from: u64, until: u64, limit: usize) -> Result<Vec<(u64, u64, u8, u64)>, JournalError> {
        self.0.due(from, until, limit)
    }
}
