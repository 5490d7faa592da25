//! The store: opens a journal, starts a runtime with it, and begins durable processes.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;

use super::answer_type::AnswerTypes;
use super::begin_options::BeginOptions;
use super::coding::Run;
use super::command_type::CommandType;
use super::commit_counts::CommitCounts;
use super::contract::{Durable, DurableCommand};
#[cfg(all(unix, feature = "sqlite"))]
use super::control::Control;
use super::core::{EndOrFate, Ends, Kind, StoreCore};
use super::ends::not_told;
use super::error::StoreError;
use super::journal::{Batch, EncodedRecord, Journal, JournalError, Log, Opened, Reader, Record};
use super::keys::Keys;
use super::look_flag::LookFlag;
use super::numbers::Numbers;
use super::open_commands::OpenCommands;
use super::operator::Operator;
use super::query::Sink;
use super::replies::Replies;
use super::residency::{MessageType, Residency};
use super::rest::{Earliest, Keeper, MemoryLimits};
use super::rows::{self, Runs, StoredExit};
use super::settings::{KEEP, Settings};
use super::simulated::{SimulatedStore, SimulatedWriter, StoreHost};
use super::tail::{Fate, Tail};
use super::wall_clock::WallClock;
use super::writer::write;
use crate::clock::Clock;
use crate::config::RuntimeBuilder;
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Rejected, tell_log};
use crate::pid::{Address, Pid};
use crate::primitives::{Arc, AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, Weak, lock, thread};
use crate::process::SendError;
use crate::runtime::{BuildError, Runtime};
use crate::threads;

#[cfg(all(test, not(loom)))]
mod table_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// A run has so many bits for the numbers of its monitors.
const RUN_BITS: u32 = 40;

/// The pause between two attempts to open the journal anew.
const PAUSE: Duration = Duration::from_millis(100);

/// A store before it is started. The program names its kinds of durable processes here.
pub struct StoreBuilder {
    journal: Box<dyn Journal>,
    pub(super) kinds: HashMap<&'static str, Kind>,
    messages: HashMap<TypeId, MessageType>,
    commands: HashMap<TypeId, CommandType>,
    pub(super) answers: AnswerTypes,
    pub(super) same_name: Option<&'static str>,
    keep: Duration,
    pub(super) memory: MemoryLimits,
    pub(super) settings: Settings,
    pub(super) sink: Option<Sink>,
}

/// A store of durable processes, with its runtime. Clones are handles to the same store.
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<Open>,
}

pub(super) struct Open {
    pub(super) core: Arc<StoreCore>,
    pub(super) clock: Clock,
    /// Set when the store is to close.
    closing: Latch<()>,
    writer: Mutex<Option<RunningWriter>>,
    /// For operators, if the store is in a folder.
    #[cfg(all(unix, feature = "sqlite"))]
    control: Mutex<Option<Control>>,
}

enum RunningWriter {
    Thread(thread::JoinHandle<Result<(), JournalError>>),
    Simulated(Arc<SimulatedWriter>),
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(self.close());
    }
}

impl Open {
    /// Refuses further records, and waits until all are on disk.
    fn close(&self) -> Result<(), JournalError> {
        #[cfg(all(unix, feature = "sqlite"))]
        drop(lock(&self.control).take());
        self.core.tail.close();
        let _ = self.closing.set(());
        let Some(writer) = lock(&self.writer).take() else { return Ok(()) };
        let result = match writer {
            RunningWriter::Thread(thread) => thread.join().unwrap_or(Err(JournalError::Broken)),
            RunningWriter::Simulated(writer) => writer.join(&self.clock),
        };
        drop(lock(&self.core.tables).take());
        self.core.tell_no_ends();
        self.core.replies.give_up_all();
        result
    }
}

impl Store {
    /// Returns a builder for the store in this folder. Name the kinds of processes, and then
    /// [`start`](StoreBuilder::start) it. The start creates the folder if it does not exist.
    #[cfg(feature = "sqlite")]
    pub fn open(folder: impl AsRef<std::path::Path>) -> StoreBuilder {
        Store::with_journal(super::journal::SqliteJournal::new(folder))
    }

    /// Returns a builder for a store on this journal.
    pub fn with_journal(journal: impl Journal + 'static) -> StoreBuilder {
        StoreBuilder {
            journal: Box::new(journal),
            kinds: HashMap::new(),
            messages: HashMap::new(),
            commands: HashMap::new(),
            answers: AnswerTypes::new(),
            same_name: None,
            keep: KEEP,
            memory: MemoryLimits::default(),
            settings: Settings::default(),
            sink: None,
        }
    }
}

impl StoreBuilder {
    /// Names a kind of durable process. The store loads only processes of kinds that are named. Others stay as they
    /// are.
    #[must_use]
    pub fn kind<P: Durable>(mut self) -> StoreBuilder {
        self.memory.note_kind(P::SLEEP_AFTER);
        let new = || MessageType::of::<P::Message>(P::FORMAT);
        self.messages.entry(TypeId::of::<P::Message>()).or_insert_with(new).kinds.push(P::NAME.into());
        if self.kinds.insert(P::NAME, Kind::of::<P>()).is_some() {
            self.same_name = Some(P::NAME);
        }
        self
    }

    /// Names a type of command that is stored.
    #[must_use]
    pub fn command<C: DurableCommand>(mut self) -> StoreBuilder {
        if self.commands.values().any(|other| other.name == C::NAME) {
            self.same_name = Some(C::NAME);
        }
        self.commands.insert(TypeId::of::<C>(), CommandType::of::<C>());
        self
    }

    /// Sets how long the store keeps ended processes with their ids and outputs, dead letters, and the keys of
    /// [`send_once`](Store::send_once). Then it removes them. The default is 7 days.
    #[must_use]
    pub fn keep(self, keep: Duration) -> StoreBuilder {
        StoreBuilder { keep, ..self }
    }

    /// Starts the store and its runtime. Processes of the store that have something to do are loaded, and go on.
    ///
    /// The runtime gets a node that no recent run of the store has had. So a PID of an ordinary process of such a run
    /// means no process of this one.
    ///
    /// # Errors
    ///
    /// The journal cannot be opened, two kinds have the same name, or the runtime cannot be started.
    pub fn start(self, builder: RuntimeBuilder) -> Result<(Store, Runtime), StoreError> {
        self.start_by(builder, RuntimeBuilder::start, None)
    }

    /// Starts the store, and a runtime by this call. In a simulation, `host` is the world.
    pub(crate) fn start_by(
        self,
        builder: RuntimeBuilder,
        start: impl FnOnce(RuntimeBuilder) -> Result<Runtime, BuildError>,
        host: Option<Arc<dyn StoreHost>>,
    ) -> Result<(Store, Runtime), StoreError> {
        let StoreBuilder { mut journal, kinds, messages, commands, answers, same_name, keep, memory, settings, sink } =
            self;
        if let Some(name) = same_name {
            return Err(StoreError::SameName(name));
        }
        let simulation = host.map(|host| Arc::new(SimulatedStore::new(host, &*journal)));
        let opened = journal.open()?;
        #[cfg(all(unix, feature = "sqlite"))]
        let folder = journal.folder().map(std::path::Path::to_owned);
        let Opened { recovered, mut log, mut tables } = opened;
        // From now on the tables have everything.
        let applied = tables.apply(recovered.last)?;
        let mut reader = tables.reader()?;
        let runs = fact::<Runs>(&mut *reader, rows::RUNS)?;
        let numbers = fact::<u64>(&mut *reader, rows::NUMBERS)?.unwrap_or(1);
        let runs = match runs {
            Some(runs) => Runs { last: runs.last + 1, ..runs },
            None => {
                let random = |position| match &simulation {
                    Some(simulation) => Ok(simulation.host.draw(position)),
                    None => SysRng.try_next_u64().map_err(|error| StoreError::NotStored(error.to_string())),
                };
                Runs { id: random(0)?, node: (random(1)? % u64::from(Pid::MAX_NODE + 1)) as u32, last: 1 }
            }
        };
        let change = rows::fact(rows::RUNS, &runs).map_err(|error| StoreError::NotStored(error.to_string()))?;
        let record = EncodedRecord::new(&Record { changes: vec![change] });
        let record = record.map_err(|error| StoreError::NotStored(error.to_string()))?;
        // On disk before anything of this run is. Otherwise the next run might have the same number, or another node.
        let mut batch = Batch::new(recovered.last.next());
        batch.push(&record);
        log.commit(&batch)?;
        let tail = Arc::new(Tail::new(batch.last()));
        let core = Arc::new_cyclic(|me| StoreCore {
            id: runs.id,
            run: Run { store: runs.node, number: runs.last },
            keep: u64::try_from(keep.as_millis()).unwrap_or(u64::MAX),
            settings,
            sink,
            sweeps: LookFlag::new(),
            swept: Mutex::default(),
            tail: tail.clone(),
            kinds,
            messages,
            commands,
            answers,
            open_commands: OpenCommands::default(),
            replies: Replies::default(),
            residency: Residency::default(),
            keeper: Keeper::new(memory),
            next_timer: Earliest::default(),
            numbers: Mutex::new(Numbers::from(numbers)),
            ids: Mutex::default(),
            keys: Keys::default(),
            ends: Mutex::new(Ends::default()),
            tables: Mutex::new(Some((tables, reader))),
            applied: AtomicU64::new(applied.0),
            progress: Mutex::default(),
            unapplied: AtomicU64::new(0),
            commits: CommitCounts::default(),
            wall: WallClock::default(),
            is_apply_due: AtomicBool::new(false),
            core: OnceLock::new(),
            simulation: simulation.clone(),
            me: me.clone(),
        });
        // The nodes of runs follow each other, and leave out that of the store.
        let nodes = Pid::MAX_NODE + 1;
        let behind = 1 + (runs.last % u64::from(Pid::MAX_NODE)) as u32;
        let runtime = start(builder.node((runs.node + behind) % nodes))?;
        let runtime_core = runtime.core().clone();
        drop(core.core.set(Arc::downgrade(&runtime_core)));
        drop(runtime_core.road.non_local.set(core.clone()));
        // No monitor of an earlier run has the number of one of this run.
        runtime_core.monitors.fetch_max(runs.last << RUN_BITS, Ordering::Relaxed);
        let settled = match lock(&core.tables).as_mut() {
            Some((_, reader)) => core.settle_names(&runtime_core, &mut **reader),
            None => Ok(()),
        };
        let clock = runtime_core.road.clock.clone();
        let closing = Latch::new();
        let begun = settled.and_then(|()| log.trim(applied).map(drop)).map_err(StoreError::from);
        let begun = begun.and_then(|()| match &simulation {
            Some(simulation) => Ok(RunningWriter::Simulated(begin_simulated(&core, simulation, (journal, log)))),
            None => begin_writer(core.clone(), (journal, log), closing.clone()).map(RunningWriter::Thread),
        });
        let writer = match begun {
            Ok(writer) => writer,
            Err(error) => {
                // Otherwise the last thread of the runtime would let the journal go.
                drop(lock(&core.tables).take());
                return Err(error);
            }
        };
        let open = Open {
            core,
            clock,
            closing,
            writer: Mutex::new(Some(writer)),
            #[cfg(all(unix, feature = "sqlite"))]
            control: Mutex::default(),
        };
        let store = Store { inner: Arc::new(open) };
        store.inner.core.load_ready()?;
        #[cfg(all(unix, feature = "sqlite"))]
        if let Some(folder) = folder {
            store.serve_operators(&folder);
        }
        Ok((store, runtime))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("core", &self.inner.core).finish_non_exhaustive()
    }
}

/// Reads a fact about the whole store.
fn fact<T: serde::de::DeserializeOwned>(reader: &mut dyn Reader, name: &str) -> Result<Option<T>, StoreError> {
    let Some(row) = reader.name(rows::FACTS, name)? else { return Ok(None) };
    let value = postcard::from_bytes(&row.body);
    value.map(Some).map_err(|error| StoreError::NotStored(format!("the store's {name} cannot be read: {error}")))
}

fn begin_writer(
    core: Arc<StoreCore>,
    (mut journal, log): (Box<dyn Journal>, Box<dyn Log>),
    closing: Latch<()>,
) -> Result<thread::JoinHandle<Result<(), JournalError>>, StoreError> {
    let write = move || {
        let pause = || _ = closing.wait_timeout(PAUSE);
        let result =
            write(&core.tail, &mut *journal, core.trims(log), |opened| core.reopened(opened, |log| log), pause);
        if let Err(error) = &result {
            tell_log(|| tracing::error!(%error, "the store is closed after an error"));
            core.tell_no_ends();
        }
        result
    };
    threads::start("procession-store".into(), write)
        .map_err(|error| StoreError::NotStored(format!("there is no thread for the writer: {error}")))
}

/// Begins a writer that has the turns of a simulated world.
fn begin_simulated(
    core: &Arc<StoreCore>,
    simulation: &Arc<SimulatedStore>,
    (journal, log): (Box<dyn Journal>, Box<dyn Log>),
) -> Arc<SimulatedWriter> {
    let of_world = (core.tail.clone(), simulation.clone(), PAUSE);
    let log = core.trims(simulation.log(log));
    let (core, simulation) = (core.clone(), simulation.clone());
    let reopened = move |opened| core.reopened(opened, |log| simulation.log(log));
    SimulatedWriter::begin(of_world, (journal, log), reopened)
}

/// Waits until a message or an answer is on disk.
#[derive(Clone, Debug)]
pub struct Receipt {
    fate: Latch<Fate>,
    clock: Clock,
    pub(super) was_there: bool,
}

impl Receipt {
    pub(super) fn new(clock: &Clock) -> (Receipt, super::tail::Waiter) {
        let fate = Latch::new();
        let receipt = Receipt { fate: fate.clone(), clock: clock.clone(), was_there: false };
        (receipt, Box::new(move |told| _ = fate.set(told)))
    }

    /// Whether an earlier call has sent the message: see [`Store::send_once`].
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// Waits until the message or the answer is on disk. The limit is by the clock of the runtime.
    ///
    /// # Errors
    ///
    /// [`StoreError::Lost`] if it never will be, [`StoreError::Unknown`] if the store was closed, and
    /// [`StoreError::Wait`] if the limit is over, or in a step.
    pub fn wait(&self, limit: Duration) -> Result<(), StoreError> {
        match self.fate.join(&self.clock, limit)? {
            Fate::Released => Ok(()),
            Fate::Lost => Err(StoreError::Lost),
            Fate::Unknown => Err(StoreError::Unknown),
        }
    }
}

/// A process that a call of [`Store::begin`] has begun, or has found.
pub struct Begun<M> {
    address: Address<M>,
    was_there: bool,
    /// `None` if it was on disk.
    receipt: Option<Receipt>,
}

impl<M> fmt::Debug for Begun<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").field("pid", &self.pid()).field("was_there", &self.was_there()).finish()
    }
}

impl<M> Begun<M> {
    /// The address of the process. It is the same in every run.
    pub fn address(&self) -> Address<M> {
        self.address
    }

    /// The PID of the process.
    pub fn pid(&self) -> Pid {
        self.address.pid()
    }

    /// Whether a process had the id already.
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// Waits until the process is on disk, also if another call has begun it.
    ///
    /// # Errors
    ///
    /// As [`Receipt::wait`].
    pub fn wait(&self, limit: Duration) -> Result<(), StoreError> {
        self.receipt.as_ref().map_or(Ok(()), |receipt| receipt.wait(limit))
    }
}

impl Store {
    /// Without a socket the store goes on. Its operators have to stop its program, then.
    #[cfg(all(unix, feature = "sqlite"))]
    fn serve_operators(&self, folder: &std::path::Path) {
        match Control::serve(folder, self.operator()) {
            Ok(control) => *lock(&self.inner.control) = Some(control),
            Err(error) => tell_log(|| tracing::warn!(%error, "there is no socket for the operators of a store")),
        }
    }

    pub(super) fn operator(&self) -> Operator {
        Operator { core: self.inner.core.clone(), clock: self.inner.clock.clone() }
    }

    /// Begins a durable process with an id of your choice, or finds the process that has it already. The call may read
    /// from the disk. It does not wait until the process is on disk: see [`Begun::wait`].
    ///
    /// # Errors
    ///
    /// The process comes back with the reason.
    pub fn begin<P: Durable>(&self, id: &str, process: P) -> Result<Begun<P::Message>, Rejected<P, StoreError>> {
        self.begin_with(id, process, &BeginOptions::default())
    }

    /// As [`begin`](Self::begin), with options. They have no effect if a process has the id already.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn begin_with<P: Durable>(
        &self,
        id: &str,
        process: P,
        options: &BeginOptions,
    ) -> Result<Begun<P::Message>, Rejected<P, StoreError>> {
        if is_step() {
            return Err(Rejected::new(process, StoreError::InsideStep));
        }
        let core = &self.inner.core;
        if !core.kinds.contains_key(P::NAME) {
            return Err(Rejected::new(process, StoreError::UnknownKind(P::NAME)));
        }
        // The user's code, such as that of the process and of observers, runs without the lock of the ids.
        let (encoded, process) = match core.encode_new(process) {
            Ok(encoded) => encoded,
            Err((process, why)) => return Err(Rejected::new(process, StoreError::NotStored(why))),
        };
        let mut ids = lock(&core.ids);
        match core.find(&ids, id) {
            Ok(None) => {}
            Ok(Some((serial, holder))) if holder == P::NAME => match core.ticket(serial) {
                Some(pid) => {
                    let receipt = ids.get(id).map(|id| {
                        let (receipt, waiter) = Receipt::new(&self.inner.clock);
                        core.tail.when_settled(id.life, id.position, waiter);
                        receipt
                    });
                    return Ok(Begun { address: pid.typed(), was_there: true, receipt });
                }
                None => return Err(Rejected::new(process, StoreError::NoSuchId(id.into()))),
            },
            Ok(Some((_, holder))) => {
                return Err(Rejected::new(process, StoreError::OtherKind { id: id.into(), holder }));
            }
            Err(error) => return Err(Rejected::new(process, error.into())),
        }
        let (receipt, waiter) = Receipt::new(&self.inner.clock);
        let begun = core.begin(&mut ids, (id, options), (encoded, process), waiter);
        drop(ids);
        let begun = begun.map(|(pid, installed)| {
            core.began(installed);
            pid
        });
        match begun {
            Ok(pid) => Ok(Begun { address: pid.typed(), was_there: false, receipt: Some(receipt) }),
            Err((process, why)) => Err(Rejected::new(process, StoreError::NotStored(why))),
        }
    }

    /// Returns the address of the process that has an id.
    ///
    /// # Errors
    ///
    /// No process has it, or it belongs to a process of another kind.
    pub fn find<P: Durable>(&self, id: &str) -> Result<Address<P::Message>, StoreError> {
        if is_step() {
            return Err(StoreError::InsideStep);
        }
        let core = &self.inner.core;
        let found = core.find(&lock(&core.ids), id)?;
        let (serial, holder) = found.ok_or_else(|| StoreError::NoSuchId(id.into()))?;
        if holder != P::NAME {
            return Err(StoreError::OtherKind { id: id.into(), holder });
        }
        core.ticket(serial).map(Pid::typed).ok_or_else(|| StoreError::NoSuchId(id.into()))
    }

    /// Sends a message to a durable process. When [`Receipt::wait`] has returned, the message is on disk.
    /// [`Runtime::send`] does the same without a receipt.
    ///
    /// # Errors
    ///
    /// The message comes back with the reason.
    pub fn send<M: Send + 'static>(&self, to: Address<M>, message: M) -> Result<Receipt, Rejected<M, SendError>> {
        if let Err(why) = self.inner.core.check_receiver(to.pid()) {
            return Err(Rejected::new(message, why));
        }
        let (receipt, waiter) = Receipt::new(&self.inner.clock);
        match self.inner.core.send_from_outside(to.pid(), Box::new(message), waiter) {
            Ok(()) => Ok(receipt),
            Err((message, why)) => match message.downcast() {
                Ok(message) => Err(Rejected::new(*message, why)),
                // The store hands the message back that it was given.
                Err(_) => unreachable!("a store has handed another message back"),
            },
        }
    }

    /// Returns a handle that waits for the output of the process with this id. The process may have ended in an earlier
    /// run.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn result<P: Durable>(&self, id: &str) -> Result<ResultOf<P>, StoreError> {
        let address = self.find::<P>(id)?;
        let serial = self.inner.core.number_of(address.pid()).unwrap_or_default();
        let end = self.inner.core.end_of(serial)?;
        let store = Arc::downgrade(&self.inner.core);
        Ok(ResultOf { end, serial, store, clock: self.inner.clock.clone(), run: self.inner.core.run, of: PhantomData })
    }

    /// Closes the store, and waits until everything is on disk. Shut the runtime down first, so that all durable
    /// processes have left memory. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The error that has closed the store, if one has.
    pub fn close(&self) -> Result<(), JournalError> {
        self.inner.close()
    }
}

/// Waits for the output of a durable process. Made by [`Store::result`].
pub struct ResultOf<P> {
    end: Latch<EndOrFate>,
    serial: u64,
    store: Weak<StoreCore>,
    clock: Clock,
    run: Run,
    of: PhantomData<fn(P)>,
}

impl<P: Durable> ResultOf<P> {
    /// Waits until the process has ended and its end is on disk. Returns its output. The limit is by the clock of the
    /// runtime.
    ///
    /// # Errors
    ///
    /// The process was terminated, its output cannot be read, or the limit is over. [`StoreError::Lost`] if the
    /// beginning of the process is lost, and [`StoreError::Unknown`] if the store was closed before.
    pub fn wait(&self, limit: Duration) -> Result<P::Output, StoreError> {
        match self.end.join(&self.clock, limit)?.map_err(not_told)? {
            (StoredExit::Done(output), format) => {
                let (output, _) = self.run.code(|| format.decode(&output));
                output.map_err(|error| StoreError::Output(error.to_string()))
            }
            (StoredExit::Terminated | StoredExit::Linked(_), _) => Err(StoreError::Terminated),
        }
    }
}

impl<P> Drop for ResultOf<P> {
    fn drop(&mut self) {
        // When the process has ended, the store has forgotten its waiters already.
        if let Some(store) = self.store.upgrade().filter(|_| !self.end.is_set()) {
            store.waits_no_longer(self.serial);
        }
    }
}

impl<P> fmt::Debug for ResultOf<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultOf").field("is_known", &self.end.is_set()).finish()
    }
}
