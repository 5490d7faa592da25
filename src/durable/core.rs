//! The shared state of a store that is open.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::answer_type::AnswerTypes;
use super::burial::Buried;
use super::coding::{Format, Run};
use super::command_type::CommandType;
use super::commit_counts::CommitCounts;
use super::contract::{Durable, Stored};
use super::journal::{
    Change, Damage, EncodedRecord, EntryRow, JournalError, Position, ProcessRow, Reader, Record, RowKey, StoredProcess,
    Tables,
};
use super::keys::Keys;
use super::letter::{Letter, Unsent};
use super::look_flag::LookFlag;
use super::new_child::{ChildType, NewChild};
use super::notice::{Notice, Notified};
use super::numbers::Numbers;
use super::open_commands::OpenCommands;
use super::query::Sink;
use super::replies::Replies;
use super::residency::{Call, Given, Mail, MessageType, Place, Residence, Residency, Resident, bury};
use super::rest::{Earliest, Keeper};
use super::rows::{
    self, DownExit, FailedEvent, FirstEnd, StoredCommand, StoredDead, StoredEvent, StoredExit, StoredHead, StoredMail,
    StoredRequest, WhyNoReply,
};
use super::settings::Settings;
use super::simulated::SimulatedStore;
use super::tail::{Fate, Life, Refused, Tail};
use super::ties::Ties;
use super::wall_clock::WallClock;
use crate::latch::Latch;
use crate::outcome::{BoxError, Failure, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, OnceLock, Weak, lock};
use crate::process::DeadLetterReason;
use crate::process::host::Host;
use crate::process::reply::QuestionKey;
use crate::runtime::{Core, Timed};
use crate::sched::body::Ready;
use crate::sched::non_local::AnyMessage;

/// The pause before a load is tried again.
pub(super) const RELOAD: Duration = Duration::from_millis(100);

/// A step that is about to be stored.
struct LockedStep<'a> {
    resident: &'a Arc<Resident>,
    record: Record,
    mail: Vec<Letter>,
    notices: Vec<Notice>,
    is_over: bool,
}

/// Why a step was not stored.
pub(super) enum StepError {
    Failed(Failure),
    /// Its process is of an earlier life of the tail, or the store is closed.
    Rewound,
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> StepError {
        StepError::Failed(failure)
    }
}

impl From<BoxError> for StepError {
    fn from(error: BoxError) -> StepError {
        StepError::Failed(Failure::from(error))
    }
}

/// A type of durable process.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) version: u32,
    pub(super) format: Format,
    pub(super) load: LoadFn,
    pub(super) show: Show,
    /// Encodes a state that is given as JSON.
    pub(super) encode: fn(&str) -> Result<Vec<u8>, BoxError>,
    pub(super) child: ChildType,
    /// Begins a child that is stored.
    pub(super) begin_child: fn(&Arc<StoreCore>, NewChild, (Life, Position)),
}

/// Shows stored values of a kind as JSON.
#[derive(Clone, Copy)]
pub(super) struct Show {
    pub(super) state: ShowFn,
    pub(super) message: ShowFn,
    pub(super) output: ShowFn,
}

pub(super) type ShowFn = fn(Format, &[u8]) -> Result<Value, BoxError>;

impl Show {
    pub(super) fn of<P: Durable>() -> Show {
        fn show<T: Stored>(format: Format, bytes: &[u8]) -> Result<Value, BoxError> {
            Ok(serde_json::to_value(format.decode::<T>(bytes)?)?)
        }
        Show { state: show::<P>, message: show::<P::Message>, output: show::<P::Output> }
    }
}

/// The body of a process that is loaded or begun.
pub(super) struct Made {
    /// With the number of its messages.
    pub(super) body: (Ready, u32),
    /// Messages that wait elsewhere. They are users' values, and are dropped without a lock.
    pub(super) needless: Vec<AnyMessage>,
}

/// Makes a body with this PID, without the messages of these numbers.
pub(super) type MakeBody = Box<dyn FnOnce(Pid, &HashSet<u64>) -> Made + Send>;
type LoadFn = fn(&Arc<StoreCore>, &Found) -> Result<(Arc<Resident>, MakeBody), Unreadable>;

/// Why a process cannot be loaded.
pub(super) struct Unreadable {
    pub(super) error: BoxError,
    /// The message that cannot be read, if it is one.
    pub(super) event: Option<FailedEvent>,
}

impl<E: Into<BoxError>> From<E> for Unreadable {
    fn from(error: E) -> Unreadable {
        Unreadable { error: error.into(), event: None }
    }
}

/// A process as it was read.
pub(super) struct Found {
    pub(super) serial: u64,
    pub(super) life: Life,
    pub(super) row: ProcessRow,
    pub(super) head: StoredHead,
    pub(super) mail: Vec<(u64, StoredMail)>,
    /// The tags of its timers, and the times at which they are due.
    pub(super) timers: Vec<(u64, u64)>,
    /// The tags of its commands, and the commands.
    pub(super) commands: Vec<(u64, StoredCommand)>,
    /// The end of a linked ordinary process that ends this one, if it traps no exits.
    pub(super) outside: Option<FirstEnd>,
    /// The tags of its stored questions, and the times at which their limits are over.
    pub(super) questions: Vec<(u64, Option<u64>)>,
    /// The replies to stored questions that its state has.
    pub(super) kept: Vec<QuestionKey>,
    pub(super) dead: Vec<(u64, StoredDead)>,
    /// The stored contexts of its commands, by their tags.
    pub(super) traces: Vec<(u64, Vec<u8>)>,
    pub(super) ties: Ties,
    /// Stored events, by their classes and numbers.
    pub(super) events: Vec<((u8, u64), StoredEvent)>,
    /// The numbers of the requests to it, the times from which they are due, and the requests.
    pub(super) requests: Vec<(u64, u64, StoredRequest)>,
    /// The classes and numbers of all of its entries.
    pub(super) entries: Vec<(u8, u64)>,
}

impl Found {
    /// A process as the journal has it. `None` if there is none.
    pub(super) fn of(serial: u64, life: Life, stored: StoredProcess) -> Result<Option<Found>, JournalError> {
        let StoredProcess { row, entries } = stored;
        let Some(row) = row else { return Ok(None) };
        let Ok(head) = postcard::from_bytes::<StoredHead>(&row.head) else {
            let damage = Damage::Row(RowKey::Of { serial, entry: None });
            return Err(JournalError::Damaged(damage));
        };
        Ok(Some(Found::with_head(serial, life, (row, head), entries)))
    }

    /// A process with this row and these entries.
    pub(super) fn with_head(
        serial: u64,
        life: Life,
        (row, head): (ProcessRow, StoredHead),
        entries: Vec<(u8, u64, EntryRow)>,
    ) -> Found {
        let keys = entries.iter().map(|(class, number, _)| (*class, *number)).collect();
        let mut found = Found {
            serial,
            life,
            row,
            head,
            mail: Vec::new(),
            timers: Vec::new(),
            commands: Vec::new(),
            outside: None,
            questions: Vec::new(),
            kept: Vec::new(),
            dead: Vec::new(),
            traces: Vec::new(),
            ties: Ties::default(),
            events: Vec::new(),
            requests: Vec::new(),
            entries: keys,
        };
        for (class, number, row) in entries {
            let body = &row.body;
            match class {
                rows::MAIL => found.mail.extend(rows::read_mail(body).map(|stored| (number, stored))),
                rows::TIMERS => found.timers.extend(row.due.map(|due| (number, due))),
                rows::COMMANDS => found.commands.extend(postcard::from_bytes(body).ok().map(|stored| (number, stored))),
                rows::QUESTIONS => found.questions.push((number, row.due)),
                rows::KEPT_REPLIES => found.kept.extend(postcard::from_bytes::<QuestionKey>(body)),
                rows::DEAD => found.dead.extend(postcard::from_bytes(body).ok().map(|stored| (number, stored))),
                rows::ANSWERS | rows::ORDERS | rows::WATCHERS | rows::DOWNS | rows::LINKS | rows::EXITS => {
                    found.events.extend(postcard::from_bytes(body).ok().map(|stored| ((class, number), stored)));
                }
                rows::REQUESTS => {
                    let due = row.due.unwrap_or_default();
                    found.requests.extend(postcard::from_bytes(body).ok().map(|stored| (number, due, stored)));
                }
                rows::TRACES => found.traces.push((number, row.body)),
                class => found.ties.add(class, number, body),
            }
        }
        found
    }
}

/// The tables, with a reader of them.
pub(super) type OpenTables = (Box<dyn Tables>, Box<dyn Reader>);

/// An id that was begun, until the tables have it.
pub(super) struct Id {
    pub(super) serial: u64,
    pub(super) kind: String,
    pub(super) life: Life,
    pub(super) position: Position,
}

/// The ends of processes, and the waiters for them.
#[derive(Default)]
pub(super) struct Ends {
    /// Ends that the tables do not have yet.
    pub(super) recent: HashMap<u64, (Position, End)>,
    /// The latches of the waiters, each with the number of its waiters.
    pub(super) waiting: HashMap<u64, (Latch<EndOrFate>, usize)>,
}

/// The end of a process, and the format of its output. The program may have another format by now.
pub(super) type End = (StoredExit, Format);

/// The end of a process. If there will be none, the fate of the process: it was lost, or the store was closed.
pub(super) type EndOrFate = Result<End, Fate>;

pub(crate) struct StoreCore {
    /// A random number, which all runs have.
    pub(super) id: u64,
    pub(super) run: Run,
    /// The retention of ended processes, dead letters and keys of messages, in milliseconds.
    pub(super) keep: u64,
    pub(super) settings: Settings,
    pub(super) sink: Option<Sink>,
    /// Whether a timer is set that removes old entries: see `retention`.
    pub(super) sweeps: LookFlag,
    /// The last record that removed an old entry.
    pub(super) swept: Mutex<Option<(Life, Position)>>,
    pub(super) tail: Arc<Tail>,
    pub(super) kinds: HashMap<&'static str, Kind>,
    pub(super) messages: HashMap<TypeId, MessageType>,
    pub(super) commands: HashMap<TypeId, CommandType>,
    pub(super) answers: AnswerTypes,
    pub(super) open_commands: OpenCommands,
    pub(super) replies: Replies,
    pub(super) residency: Residency,
    pub(super) keeper: Keeper,
    /// Set for the next timer of a process that is asleep: see `waking`.
    pub(super) next_timer: Earliest,
    pub(super) numbers: Mutex<Numbers>,
    pub(super) ids: Mutex<HashMap<String, Id>>,
    pub(super) keys: Keys,
    pub(super) ends: Mutex<Ends>,
    /// The tables, with a reader of them. A load has the lock, so that it sees one state.
    pub(super) tables: Mutex<Option<OpenTables>>,
    /// The position that the tables have.
    pub(super) applied: AtomicU64,
    /// Set when the tables have more, or have failed, if the writer waits for that.
    pub(super) progress: Mutex<Option<Latch<()>>>,
    /// The bytes of the records that the tables do not have.
    pub(super) unapplied: AtomicU64,
    /// Whether a thread of the pool is to bring the tables up to the log.
    pub(super) is_apply_due: AtomicBool,
    pub(super) commits: CommitCounts,
    pub(super) wall: WallClock,
    pub(super) core: OnceLock<Weak<Core>>,
    /// The simulated world that the store is in, if it is in one.
    pub(super) simulation: Option<Arc<SimulatedStore>>,
    pub(super) me: Weak<StoreCore>,
}

impl std::fmt::Debug for StoreCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreCore").field("run", &self.run).field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl StoreCore {
    /// The PID of a process, or the one by which a mailbox knows a stored message.
    pub(super) fn ticket(&self, number: u64) -> Option<Pid> {
        self.run.ticket(number)
    }

    /// The number of such a PID.
    pub(super) fn number_of(&self, pid: Pid) -> Option<u64> {
        self.run.number_of(pid)
    }

    pub(super) fn core(&self) -> Option<Arc<Core>> {
        self.core.get()?.upgrade()
    }

    /// The wall-clock time of this run in milliseconds since 1970.
    pub(super) fn wall_millis(&self) -> u64 {
        self.core().map_or(0, |core| self.wall.millis(core.road.clock.now(), || core.system_time()))
    }

    /// A number that no process and no message has had.
    pub(super) fn number(&self) -> Result<u64, Refused> {
        lock(&self.numbers).draw(|end| {
            let change = rows::fact(rows::NUMBERS, &end).map_err(|_| Refused::Closed)?;
            let record = EncodedRecord::new(&Record { changes: vec![change] }).map_err(|_| Refused::Closed)?;
            self.tail.append(self.tail.life(), &record, None).map(drop)
        })
    }

    fn waiter_of(&self, resident: &Arc<Resident>, position: Position) -> impl FnOnce(Fate) + Send + use<> {
        let (resident, core) = (resident.clone(), self.core.get().cloned());
        move |fate| {
            let Some(core) = core.and_then(|core| core.upgrade()) else { return };
            match fate {
                Fate::Released => {
                    resident.note_released(position);
                    resident.call(&core.road, Call::Released);
                }
                Fate::Lost | Fate::Unknown => resident.call(&core.road, Call::Leave),
            }
        }
    }

    /// Has the process take a turn when this record is on disk.
    pub(super) fn when_released(&self, resident: &Arc<Resident>, position: Position) {
        self.tail.when_released(resident.life, position, self.waiter_of(resident, position));
    }

    /// Has the process try its step again after a pause.
    pub(super) fn retry_later(&self, resident: &Arc<Resident>, pause: Duration) {
        let Some(core) = self.core() else { return };
        let (resident, weak) = (resident.clone(), Arc::downgrade(&core));
        let retry = move || {
            if let Some(core) = weak.upgrade() {
                resident.call(&core.road, Call::Retry);
            }
        };
        // Without timers the runtime is shutting down.
        drop(core.timers.after(0, pause, Timed::Run(Box::new(retry))).map(|key| key.map(drop)));
    }

    /// Stores a step, and gives its messages and notices to their receivers.
    pub(super) fn append_step(
        &self,
        resident: &Arc<Resident>,
        mut record: Record,
        (mail, mut notices): (Vec<Letter>, Vec<Notice>),
        over: Option<DownExit>,
    ) -> Result<Position, StepError> {
        let Some(core) = self.core() else { return Err(StepError::Rewound) };
        let from = resident.pid;
        for letter in &mail {
            record.changes.extend(self.mail_of(from, letter)?);
        }
        let is_over = over.is_some();
        // The processes that are told if a message is refused.
        let mut askers: Vec<u64> = mail.iter().flat_map(Letter::questions).map(|key| key.asker).collect();
        let related = || if is_over { (resident.watchers(), resident.linked()) } else { Default::default() };
        let (mut watchers, mut linked) = related();
        loop {
            let mut serials: Vec<u64> = mail.iter().filter_map(|letter| self.number_of(letter.to)).collect();
            serials.extend(&askers);
            serials.extend(notices.iter().map(|notice| notice.to));
            serials.extend((is_over || !notices.is_empty()).then_some(resident.serial));
            serials.extend(watchers.iter().map(|(_, by)| *by));
            serials.extend(&linked);
            serials.sort_unstable();
            serials.dedup();
            let residences: Vec<_> = serials.iter().map(|serial| self.residency.of(*serial)).collect();
            // In the order of the serial numbers. So no two threads wait for each other.
            let locked: Vec<MutexGuard<'_, Residence>> = residences.iter().map(|one| lock(one)).collect();
            if locked.iter().any(|residence| matches!(residence.place, Place::Removed)) {
                // There is another one since.
                continue;
            }
            if is_over {
                let now = related();
                if (&now.0, &now.1) != (&watchers, &linked) {
                    // Another process watches this one since, or is linked to it.
                    (watchers, linked) = now;
                    continue;
                }
                let left = self.left_questions(resident, &record);
                if left.iter().any(|key| serials.binary_search(&key.asker).is_err()) {
                    askers.extend(left.iter().map(|key| key.asker));
                    continue;
                }
                let over = WhyNoReply::Ended(resident.serial);
                notices.extend(left.into_iter().map(|key| self.no_reply(key, over)));
            }
            notices.extend(over.iter().flat_map(|exit| self.downs(&watchers, from, exit)));
            notices.extend(over.iter().flat_map(|exit| Notice::exits(&linked, resident.serial, exit)));
            let step = LockedStep { resident, record, mail, notices, is_over };
            return self.append_locked(&core, step, (serials, locked));
        }
    }

    /// Stores a step. The residences of all processes that it concerns are locked.
    fn append_locked(
        &self,
        core: &Arc<Core>,
        step: LockedStep<'_>,
        (serials, mut locked): (Vec<u64>, Vec<MutexGuard<'_, Residence>>),
    ) -> Result<Position, StepError> {
        let LockedStep { resident, mut record, mut mail, notices, is_over } = step;
        let from = resident.pid;
        let (mut notices, mut needless): (Vec<_>, Vec<_>) = notices.into_iter().partition(|one| one.is_due(resident));
        let surplus = self.bury_surplus(&mut record, &mut mail, (&serials, &locked));
        notices.extend(surplus.refused);
        let late = notices.extract_if(.., |notice| !notice.is_open(resident.life, (&serials, &locked)));
        needless.extend(late);
        let closed = self.close_record(resident, &mut record, (&notices, is_over));
        let appended = closed
            .map_err(StepError::from)
            .and_then(|record| self.tail.append(resident.life, &record, None).map_err(|_| StepError::Rewound));
        let position = match appended {
            Ok(position) => position,
            Err(error) => {
                // Messages and answers are users' values. No destructor of them runs under the locks.
                drop(locked);
                return Err(error);
            }
        };
        let mut given = Vec::new();
        for (index, Letter { unsent, to, stored, message, type_name, trace }) in mail.into_iter().enumerate() {
            let place = self.number_of(to).and_then(|serial| serials.binary_search(&serial).ok());
            let number = stored.as_ref().map(|(number, _)| *number);
            let mail = Mail {
                number,
                life: resident.life,
                rests_on: (number.is_none() || !self.settings.ahead).then_some(position),
                from: Some(from),
                message,
                stored: stored.map(|(_, stored)| stored),
                trace,
            };
            let kind = self.messages.get(&(*mail.message).type_id());
            let to_give = match (place, kind) {
                _ if surplus.places.contains(&index) => Given::Dead(mail, DeadLetterReason::Full),
                (Some(place), Some(kind)) => locked[place].take(&core.road, kind, mail, |number| self.ticket(number)),
                _ => Given::Dead(mail, DeadLetterReason::WrongType),
            };
            given.push((to, type_name, unsent.and_then(Unsent::sent), to_give));
        }
        let told = self.notify_all(core, &mut notices, (&serials, &mut locked), (resident.life, position));
        if is_over && let Ok(own) = serials.binary_search(&resident.serial) {
            // If the record is lost, the process has not ended.
            locked[own].place = Place::Ending;
            // Its record has taken all that the last load has counted.
            locked[own].on_disk = 0;
            locked[own].left_behind = Some((resident.life, position));
        }
        drop(locked);
        self.count_late(needless.iter().filter(|notice| notice.is_reply()).count() as u64);
        drop(needless);
        told.into_iter()
            .for_each(|(to, key, notified)| self.notified(core, resident.life, (resident.serial, to), key, notified));
        for (to, type_name, ask, given) in given {
            let refused = ask.filter(|_| matches!(given, Given::Dead(..)));
            if let (Some(ask), Given::Dead(mail, reason)) = (&refused, &given) {
                ask.refuse(self.why_not_asked(to, (type_name, &*mail.message), *reason));
            }
            self.finish(core, to, type_name, given);
            // The drop of the message has answered the question, unless the reply is not in the message.
            refused.inspect(|ask| ask.abandon());
        }
        Ok(position)
    }

    /// Gives notices to their receivers, whose residences are locked. A record at this position has them.
    pub(super) fn notify_all(
        &self,
        core: &Arc<Core>,
        notices: &mut [Notice],
        (serials, locked): (&[u64], &mut [MutexGuard<'_, Residence>]),
        (life, position): (Life, Position),
    ) -> Vec<(u64, (u8, u64), Notified)> {
        let told = notices.iter_mut().filter_map(|notice| {
            let place = serials.binary_search(&notice.to).ok()?;
            if let Place::Resident(to) = &locked[place].place {
                self.note_told(to, position);
            }
            let (residence, record) = (&mut *locked[place], (life, position));
            let notified = match notice.as_request() {
                Some(request) => self.give_new(core, residence, (notice.key.1, request), record),
                None => residence.notify(&core.road, notice, record),
            };
            Some((notice.to, notice.key, notified))
        });
        told.collect()
    }

    /// Finishes the delivery of a message. No lock of a residence is held.
    pub(super) fn finish(&self, core: &Arc<Core>, to: Pid, type_name: &'static str, given: Given) {
        match given {
            Given::Kept => {}
            Given::Woke(ready) => core.road.inject(ready),
            Given::Loads => self.number_of(to).into_iter().for_each(|serial| self.start_load(core, serial)),
            Given::Stored(mail) => drop_contained(mail.message),
            Given::Dead(mail, reason) => {
                let serial = self.number_of(to).unwrap_or_default();
                let (changes, begun) = (self.dead_letter(serial, &mail, reason), usize::from(mail.is_stored()));
                let buried = Buried { life: mail.life, changes, begun };
                let questions = mail.questions();
                let why = match reason {
                    DeadLetterReason::WrongType => WhyNoReply::WrongType(serial),
                    _ => WhyNoReply::Ended(serial),
                };
                self.give_up(core, serial, buried, (&questions, why));
                bury(&core.road, type_name, to, mail, reason);
            }
        }
    }

    /// Removes rows of messages that no step will take. If that is refused, they stay until the next start, and come
    /// here again.
    pub(super) fn remove(&self, changes: Vec<Change>) {
        self.remove_in(self.tail.life(), changes);
    }

    /// As `remove`, unless the journal was opened anew since this life.
    pub(super) fn remove_in(&self, life: Life, changes: Vec<Change>) {
        if !changes.is_empty()
            && let Ok(record) = EncodedRecord::new(&Record { changes })
        {
            let _ = self.tail.append(life, &record, None);
            self.keep_for_now();
        }
    }

    /// Has a thread of the pool load a process. Its residence is `Loading` already.
    pub(super) fn start_load(&self, core: &Arc<Core>, serial: u64) {
        let Some(me) = self.me.upgrade() else { return };
        // If the pool takes no job any more, the runtime is shutting down, and the process stays on disk.
        if !self.in_pool(core, move || me.load(serial)) {
            self.stays_asleep(serial);
        }
    }
}

pub(super) fn why_refused(why: Refused) -> &'static str {
    match why {
        Refused::Rewound => "the store opens its files again after an error",
        Refused::Closed => "the store is closed",
    }
}
