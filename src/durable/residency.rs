//! Which durable processes are in memory, and where their mail goes.
//!
//! `docs/durable.md` has the protocol. Each process of the store that somebody has sent to, or that is in memory, has
//! a [`Residence`] behind a lock of its own. A message is appended to the tail and goes to the process, or into the
//! residence, under this lock. So each receiver gets its mail in the order of the records.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};

use super::burial::Burial;
use super::coding::Format;
use super::journal::Position;
use super::open_questions::OpenQuestions;
use super::outside::OutsideLinks;
use super::repair::Repair;
use super::rest::Rest;
use super::rows::{FailedEvent, StoredEvent, StoredRequest};
use super::tail::Life;
use crate::outcome::{BoxError, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering, lock};
use crate::process::propagation::with_trace;
use crate::process::reply::{Ask, QuestionKey};
use crate::process::{CancelRequest, DeadLetter, DeadLetterReason, Down, ExitSignal, GroupEvent};
use crate::sched::body::Ready;
use crate::sched::cell::Missed;
use crate::sched::mailbox::{AnyMailbox, Envelope, Mailbox};
use crate::sched::non_local::AnyMessage;
use crate::sched::resident_waker::PollRequests;
use crate::sched::road::Road;
use crate::sched::trace_marks::MessageTrace;

const SHARDS: usize = 64;

/// The residences of a store, by the serial numbers of the processes.
pub(super) struct Residency {
    shards: [Mutex<HashMap<u64, Arc<Mutex<Residence>>>>; SHARDS],
    /// How many residences were made.
    made: AtomicU64,
}

/// One process of a store, as far as memory is concerned.
#[derive(Default)]
pub(super) struct Residence {
    pub(super) place: Place,
    /// No other residence of this run has it. One of a process that sleeps is removed, and made again.
    pub(super) number: u64,
    /// The last record that was appended when the process left memory. A load waits until it is on disk.
    pub(super) left_behind: Option<(Life, Position)>,
    /// Mail that has come since the load began, or while the process leaves.
    pub(super) waiting: Vec<Mail>,
    /// The stored messages that wait and are not in memory, as the last load has counted them.
    pub(super) on_disk: usize,
    /// Orders of operators. A load carries them out before it makes the process resident.
    pub(super) repairs: Vec<Repair>,
    /// Requests that have come meanwhile.
    pub(super) requests: Vec<(u64, Life, StoredRequest)>,
    /// The links to ordinary processes, besides the table of relations.
    pub(super) outside: OutsideLinks,
    /// Its messages that become dead letters.
    pub(super) burial: Burial,
}

/// Where a process is.
#[derive(Default)]
pub(super) enum Place {
    /// On disk only.
    #[default]
    Asleep,
    /// A thread loads it.
    Loading,
    Resident(Arc<Resident>),
    /// It has been in memory, and is about to be out of it.
    Leaving,
    /// As `Leaving`. It stays out of memory unless something has come for it by then: see `sleep`.
    LeavingToSleep,
    /// It has ended, and its end is not known to be on disk. If the end is lost, the process lives. So mail waits, as
    /// in `Leaving`, and nobody outside is told.
    Ending,
    /// It stays on disk: it cannot be read, or its kind is unknown. Its mail is stored.
    Unreadable,
    /// There is no such process, or its end is on disk.
    Nobody,
    /// It was the residence of nobody, or of a process that sleeps, and is in the map no more.
    Removed,
}

/// A message on its way to a process of the store.
pub(super) struct Mail {
    /// The number under which it is stored. `None` if it is not stored.
    pub(super) number: Option<u64>,
    pub(super) life: Life,
    /// The record of the step that has sent it, if a step of the store has and it is not stored.
    pub(super) rests_on: Option<Position>,
    pub(super) from: Option<Pid>,
    pub(super) message: AnyMessage,
    pub(super) stored: Option<StoredBytes>,
    /// The context in which it was sent.
    pub(super) trace: MessageTrace,
}

impl Mail {
    /// Whether a record has it.
    pub(super) fn is_stored(&self) -> bool {
        self.number.is_some() && self.stored.is_some()
    }

    /// The stored questions whose replies it has.
    pub(super) fn questions(&self) -> Vec<QuestionKey> {
        self.stored.as_ref().map_or(Vec::new(), |stored| stored.questions.clone())
    }
}

/// A message as it is stored, kept until a step has taken it.
#[derive(Clone)]
pub(super) struct StoredBytes {
    pub(super) format: Format,
    pub(super) bytes: Vec<u8>,
    /// The stored questions whose replies it has.
    pub(super) questions: Vec<QuestionKey>,
}

/// Puts a message with its trace into the mailbox of an ordinary process. Returns the body that this woke.
type Post = fn(&Road, Pid, Option<Pid>, Posted) -> Result<Option<Ready>, Posted>;

/// A message and its trace.
type Posted = (AnyMessage, MessageTrace);

/// Calls that need the type of a message.
pub(super) struct MessageType {
    pub(super) id: TypeId,
    pub(super) name: &'static str,
    /// The kinds of processes that take messages of this type.
    pub(super) kinds: Vec<String>,
    pub(super) format: Format,
    pub(super) encode: fn(Format, &dyn Any) -> Result<Vec<u8>, BoxError>,
    post: Post,
}

impl MessageType {
    pub(super) fn of<M: super::contract::Stored + Send + 'static>(format: Format) -> MessageType {
        MessageType {
            id: TypeId::of::<M>(),
            name: std::any::type_name::<M>(),
            kinds: Vec::new(),
            format,
            encode: |format, message| match message.downcast_ref::<M>() {
                Some(message) => format.encode(message),
                None => Err("it has another type".into()),
            },
            post: post::<M>,
        }
    }
}

/// As [`Post`].
fn post<M: Send + 'static>(
    road: &Road,
    to: Pid,
    from: Option<Pid>,
    (message, mut trace): Posted,
) -> Result<Option<Ready>, Posted> {
    let mut message = match message.downcast::<M>() {
        Ok(message) => Some(*message),
        Err(message) => return Err((message, trace)),
    };
    let posted = road.table.cell(to).ok_or(Missed::NoSuchProcess).and_then(|cell| {
        cell.post(to, |mailbox, _| {
            let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>()?;
            mailbox.messages.push(Envelope { from, message: message.take()? });
            trace.take().into_iter().for_each(|trace| mailbox.mark(trace));
            Some(1)
        })
    });
    match (posted, message) {
        (Ok((ready, _)), None) => {
            road.outside.add(&road.outside.accepted, 1);
            Ok(ready)
        }
        (_, Some(message)) => Err((Box::new(message), trace)),
        (Err(_), None) => Ok(None),
    }
}

/// A durable process that is in memory.
pub(super) struct Resident {
    pub(super) serial: u64,
    /// The PID by which others know it.
    pub(super) pid: Pid,
    /// The PID of its cell in this run.
    pub(super) local: OnceLock<Pid>,
    pub(super) life: Life,
    pub(super) message: TypeId,
    pub(super) message_name: fn() -> &'static str,
    /// The stored messages that the mailbox has, and those that the step in hand has taken, by their numbers.
    pub(super) mail: Mutex<HashMap<u64, Kept>>,
    /// Stored events that no step has taken, by the classes and the numbers of their entries.
    pub(super) events: Mutex<BTreeMap<(u8, u64), StoredEvent>>,
    /// The links that its last step begins and ends.
    pub(super) last_links: Mutex<BTreeMap<u64, bool>>,
    /// The ordinary processes to which it has linked itself in its last step.
    pub(super) last_outside: Mutex<Vec<Pid>>,
    /// The stored questions of this process that no step has taken the answer of.
    pub(super) questions: OpenQuestions,
    /// Ends of watched processes that have stored messages here.
    pub(super) deferred: Mutex<Vec<Down>>,
    /// The events that the step in hand has taken.
    pub(super) taken: Mutex<Taken>,
    /// The stored requests that no step has taken.
    pub(super) requests: Mutex<Vec<OpenRequest>>,
    pub(super) rest: Rest,
    /// The last record that a question in the mailbox rests on.
    told: AtomicU64,
    /// The greatest position that is known to be on disk.
    released: AtomicU64,
    departs: AtomicBool,
    /// Whether it has ended, or leaves. Then no command of it is handed out.
    is_gone: AtomicBool,
    calls: AtomicUsize,
}

/// A stored message that no step has taken.
pub(super) struct Kept {
    pub(super) from: Option<Pid>,
    pub(super) stored: StoredBytes,
    /// The context in which it was sent, for a step that is repeated.
    pub(super) trace: MessageTrace,
}

/// A stored request that no step has taken.
pub(super) struct OpenRequest {
    pub(super) number: u64,
    /// `None` if the process is to end.
    pub(super) request: Option<CancelRequest>,
    /// Whether the process was given it. A deadline is given when it is due.
    pub(super) is_given: bool,
}

/// The events that a step has taken.
#[derive(Default)]
pub(super) struct Taken {
    /// The numbers of stored messages, in the order in which they were taken.
    pub(super) mail: Vec<u64>,
    /// The tags of answers.
    pub(super) answers: Vec<u64>,
    pub(super) cancels: Vec<CancelRequest>,
    /// Ends of watched processes.
    pub(super) downs: Vec<Down>,
    /// Ends of linked processes.
    pub(super) exits: Vec<ExitSignal>,
    /// Changes of groups.
    pub(super) groups: Vec<GroupEvent>,
    /// The questions whose stored replies the step has dropped, and the stored questions that it has answered at once.
    pub(super) dropped: Vec<Arc<Ask>>,
    /// Whether the step gets one message or answer only, because the last one has failed.
    pub(super) only_one: bool,
}

impl Taken {
    /// The event, if there is only one that can be left out. Requests to stop come with each attempt, and stay.
    pub(super) fn one(&self) -> Option<FailedEvent> {
        match (&*self.mail, &*self.answers) {
            ([number], []) => Some(FailedEvent::Mail(*number)),
            ([], [tag]) => Some(FailedEvent::Answer(*tag)),
            _ => None,
        }
    }
}

/// Calls to a resident from other threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// The pause after a failed step is over.
    Retry = 1,
    /// A record that it rests on is lost, or nothing is stored any more. It leaves.
    Leave = 2,
    /// It is to be ended.
    Terminate = 4,
    /// Something was released.
    Released = 8,
    /// There is room in the tail.
    Room = 16,
    /// It leaves, and is loaded again: an operator has ordered a change.
    Repair = 32,
    /// It leaves, if it has nothing to do: see `sleep`.
    Sleep = 1024,
    /// A linked process has ended, or a watched one had ended before.
    Ends = 64,
    /// A link to an ordinary process has changed, or that process has ended.
    Outside = 256,
    /// All that its next step rests on is on disk.
    OnDisk = 128,
}

/// The calls at which a process that is held for a node without room looks at once. The end of a process does not wait
/// for a node, and neither do its rewind and its leave.
const PASS_HOLD: usize = Call::Leave as usize
    | Call::Terminate as usize
    | Call::Repair as usize
    | Call::Sleep as usize
    | Call::Ends as usize
    | Call::Outside as usize;

impl Resident {
    pub(super) fn new(
        (serial, pid): (u64, Pid),
        life: Life,
        (message, message_name): (TypeId, fn() -> &'static str),
    ) -> Arc<Resident> {
        Arc::new(Resident {
            serial,
            pid,
            local: OnceLock::new(),
            life,
            message,
            message_name,
            mail: Mutex::default(),
            events: Mutex::default(),
            last_links: Mutex::default(),
            last_outside: Mutex::default(),
            questions: OpenQuestions::default(),
            deferred: Mutex::default(),
            taken: Mutex::default(),
            requests: Mutex::default(),
            rest: Rest::default(),
            told: AtomicU64::new(0),
            released: AtomicU64::new(0),
            departs: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
        })
    }

    /// Notes a call, without a turn for it.
    pub(super) fn note(&self, call: Call) {
        // Ordering: Release, with the Acquire of the load of `calls`. The request to poll orders the two anyway.
        self.calls.fetch_or(call as usize, Ordering::Release);
    }

    /// Makes the process look at this call, in a turn of its own if it is at rest.
    pub(super) fn call(&self, road: &Road, call: Call) {
        self.note(call);
        if let Some(local) = self.local.get() {
            if call as usize & PASS_HOLD != 0 { road.poll_even_if_held(*local) } else { road.request_poll(*local) }
        }
    }

    pub(super) fn is_called(&self, call: Call) -> bool {
        self.calls.load(Ordering::Acquire) & call as usize != 0
    }

    /// Whether a call has come for which the process is not held.
    pub(super) fn passes_hold(&self) -> bool {
        self.calls.load(Ordering::Acquire) & PASS_HOLD != 0
    }

    /// Whether a call needs a step.
    pub(super) fn has_calls(&self) -> bool {
        self.calls.load(Ordering::Acquire) & !(Call::Released as usize) != 0
    }

    pub(super) fn take_call(&self, call: Call) -> bool {
        self.calls.fetch_and(!(call as usize), Ordering::AcqRel) & call as usize != 0
    }

    /// Notes a record on which something rests that the process is told.
    pub(super) fn note_told(&self, position: Position) {
        self.told.fetch_max(position.0, Ordering::AcqRel);
    }

    /// The last record that anything rests on that the process was told.
    pub(super) fn told(&self) -> Position {
        Position(self.told.load(Ordering::Acquire))
    }

    /// Whether it leaves memory when its yields are released. Then no attempt of a command begins.
    pub(super) fn departs(&self) -> bool {
        // Ordering: Relaxed: only threads that have the body ask and set it.
        self.departs.load(Ordering::Relaxed)
    }

    pub(super) fn set_departs(&self) {
        self.departs.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_gone(&self) -> bool {
        // Ordering: Relaxed: only threads that have the body ask and set it.
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(super) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_released(&self, position: Position) {
        self.released.fetch_max(position.0, Ordering::AcqRel);
    }

    pub(super) fn has_released(&self, position: Position) -> bool {
        position.0 <= self.released.load(Ordering::Acquire)
    }
}

impl Default for Residency {
    fn default() -> Residency {
        Residency { shards: std::array::from_fn(|_| Mutex::default()), made: AtomicU64::new(0) }
    }
}

impl Residency {
    /// The residence of a process. It may be removed before it is locked: see [`enter`](Self::enter).
    pub(super) fn of(&self, serial: u64) -> Arc<Mutex<Residence>> {
        let mut shard = lock(&self.shards[serial as usize % SHARDS]);
        let new = || {
            // Ordering: Relaxed: it only differs from all others.
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            Arc::new(Mutex::new(Residence { number, ..Residence::default() }))
        };
        shard.entry(serial).or_insert_with(new).clone()
    }

    /// Calls `run` with the locked residence of a process.
    pub(super) fn enter<R>(&self, serial: u64, run: impl FnOnce(&mut Residence) -> R) -> R {
        self.enter_this(serial, |_, residence| run(residence))
    }

    /// As [`enter`](Self::enter), also with the residence as [`of`](Self::of) returns it.
    pub(super) fn enter_this<R>(
        &self,
        serial: u64,
        run: impl FnOnce(&Arc<Mutex<Residence>>, &mut Residence) -> R,
    ) -> R {
        loop {
            let this = self.of(serial);
            let mut residence = lock(&this);
            if !matches!(residence.place, Place::Removed) {
                return run(&this, &mut residence);
            }
        }
    }

    /// Removes the residence of a process that does not exist, as the tables have shown. A residence that a sender has
    /// just made stays.
    pub(super) fn forget(&self, serial: u64) {
        self.forget_if(serial, |residence| residence.is_needless_nobody() && residence.burial.is_over());
    }

    /// Removes the residence of a process of which nothing is known in memory.
    pub(super) fn forget_unknown(&self, serial: u64) {
        self.forget_if(serial, |residence| {
            matches!(residence.place, Place::Asleep)
                && residence.is_empty()
                && residence.outside.is_empty()
                && residence.left_behind.is_none()
                && residence.burial.is_over()
        });
    }

    pub(super) fn forget_if(&self, serial: u64, is_needless: impl FnOnce(&mut Residence) -> bool) {
        let mut shard = lock(&self.shards[serial as usize % SHARDS]);
        let Some(residence) = shard.get(&serial).cloned() else { return };
        let mut residence = lock(&residence);
        if is_needless(&mut residence) {
            residence.place = Place::Removed;
            shard.remove(&serial);
        }
    }

    /// All residences, in the order of the serial numbers.
    pub(super) fn all(&self) -> Vec<(u64, Arc<Mutex<Residence>>)> {
        let all = |shard: &Mutex<HashMap<u64, Arc<Mutex<Residence>>>>| {
            lock(shard).iter().map(|(serial, residence)| (*serial, residence.clone())).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.shards.iter().flat_map(all).collect();
        all.sort_unstable_by_key(|(serial, _)| *serial);
        all
    }

    /// Whether a process is in memory, or is being loaded.
    pub(super) fn is_in_memory(&self, serial: u64) -> bool {
        let residence = lock(&self.shards[serial as usize % SHARDS]).get(&serial).cloned();
        let is_asleep = |place: &Place| matches!(place, Place::Asleep | Place::Removed);
        residence.is_some_and(|residence| !is_asleep(&lock(&residence).place))
    }

    /// Whether messages of a process are about to become dead letters.
    pub(super) fn buries(&self, serial: u64) -> bool {
        let residence = lock(&self.shards[serial as usize % SHARDS]).get(&serial).cloned();
        residence.is_some_and(|residence| {
            let residence = lock(&residence);
            matches!(residence.place, Place::Loading | Place::Ending) || !residence.burial.is_over()
        })
    }

    /// Whether the process is known not to exist, or to have an end that is on disk.
    pub(super) fn has_ended_by(&self, serial: u64, released: impl FnOnce() -> Position) -> bool {
        let residence = lock(&self.shards[serial as usize % SHARDS]).get(&serial).cloned();
        residence.is_some_and(|residence| lock(&residence).has_ended_by(released))
    }

    /// The process in memory, if it is there.
    pub(super) fn resident(&self, serial: u64) -> Option<Arc<Resident>> {
        let residence = lock(&self.shards[serial as usize % SHARDS]).get(&serial).cloned()?;
        match &lock(&residence).place {
            Place::Resident(resident) => Some(resident.clone()),
            _ => None,
        }
    }
}

impl Residence {
    /// Whether there is no such process, or its end is on disk.
    pub(super) fn has_ended_by(&self, released: impl FnOnce() -> Position) -> bool {
        match self.place {
            Place::Nobody => true,
            Place::Ending => self.left_behind.is_none_or(|(_, end)| end <= released()),
            _ => false,
        }
    }

    /// Whether nothing is lost with it if it is that of nobody.
    pub(super) fn is_needless_nobody(&self) -> bool {
        matches!(self.place, Place::Nobody) && self.waiting.is_empty() && self.outside.is_empty()
    }

    /// The record for which a load of this life waits, because it changes rows of the process.
    pub(super) fn awaited(&self, life: Life) -> Option<Position> {
        let records = [self.left_behind, self.burial.last()].into_iter().flatten();
        records.filter(|(of, _)| *of == life).map(|(_, position)| position).max()
    }

    /// Whether a load that has read so far is to read again.
    pub(super) fn is_behind(&self, (life, through): (Life, Position)) -> bool {
        self.burial.is_open() || self.awaited(life).is_some_and(|position| position > through)
    }

    /// Gives a message to the process, or keeps it until the process is loaded.
    pub(super) fn take(
        &mut self,
        road: &Road,
        kind: &MessageType,
        mail: Mail,
        ticket: impl Fn(u64) -> Option<Pid>,
    ) -> Given {
        match &self.place {
            Place::Resident(resident) if resident.message != kind.id => {
                self.burial.begin(usize::from(mail.is_stored()));
                Given::Dead(mail, DeadLetterReason::WrongType)
            }
            Place::Resident(resident) => match resident.take(road, kind, mail, ticket) {
                Ok(None) => Given::Kept,
                Ok(Some(ready)) => Given::Woke(ready),
                // It is about to leave.
                Err(mail) => {
                    self.place = Place::Leaving;
                    self.waiting.push(*mail);
                    Given::Kept
                }
            },
            Place::Asleep => {
                self.place = Place::Loading;
                self.waiting.push(mail);
                Given::Loads
            }
            Place::Loading | Place::Leaving | Place::LeavingToSleep | Place::Ending => {
                self.waiting.push(mail);
                Given::Kept
            }
            Place::Unreadable => {
                self.on_disk += usize::from(mail.number.is_some());
                Given::Stored(mail)
            }
            Place::Nobody | Place::Removed => {
                self.burial.begin(usize::from(mail.is_stored()));
                Given::Dead(mail, DeadLetterReason::Ended)
            }
        }
    }
}

/// The work that is left for a message when the lock of the residence is free.
pub(super) enum Given {
    Kept,
    /// It woke the process.
    Woke(Ready),
    /// A load is to begin.
    Loads,
    /// It is on disk, and is not needed in memory.
    Stored(Mail),
    /// No step will take it.
    Dead(Mail, DeadLetterReason),
}

impl Resident {
    /// Puts a message into the mailbox. Returns the body that this woke. The message comes back if there is no mailbox
    /// any more.
    fn take(
        &self,
        road: &Road,
        kind: &MessageType,
        mut mail: Mail,
        ticket: impl Fn(u64) -> Option<Pid>,
    ) -> Result<Option<Ready>, Box<Mail>> {
        let Some(local) = self.local.get() else { return Err(Box::new(mail)) };
        if let Some(position) = mail.rests_on {
            // First, because the step may take it at once.
            self.note_told(position);
        }
        let mut from = mail.from;
        if let (Some(number), Some(stored)) = (mail.number, &mail.stored) {
            // First, because the step may take it at once.
            let (stored, trace) = (stored.clone(), mail.trace.clone());
            lock(&self.mail).insert(number, Kept { from, stored, trace });
            from = ticket(number);
        }
        match (kind.post)(road, *local, from, (mail.message, mail.trace)) {
            Ok(ready) => Ok(ready),
            Err((message, trace)) => {
                (mail.message, mail.trace) = (message, trace);
                Err(Box::new(mail))
            }
        }
    }
}

/// Reports a message that no step will take.
pub(super) fn bury(road: &Road, type_name: &'static str, to: Pid, mail: Mail, reason: DeadLetterReason) {
    let shown = Some(&*mail.message as &dyn Any);
    let letter = DeadLetter { from: mail.from, type_name, message: shown, ..DeadLetter::new(to, reason) };
    road.outside.add(&road.outside.accepted, 1);
    with_trace(mail.trace.get().map(|trace| &**trace), &letter, |letter| road.dead_letter(&road.outside, letter));
    drop_contained(mail.message);
}
