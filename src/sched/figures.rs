//! Figures by type of process: each worker writes its own rows, and a snapshot adds them up.
//!
//! `docs/observability.md` has the protocol: who writes which figure, and why the sums are exact.

use super::count::Count;
use super::gaps::Gaps;
use crate::outcome::Exit;
use crate::primitives::{Arc, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering, lock};
use crate::sched::body::{Kind, StepOutput, Stepped, Verdict};

/// The most types that have a row of their own. All others share one.
pub(crate) const MOST_TYPES: usize = 1024;

/// The most names of counts that have a place of their own, for each type. All others share one.
pub(crate) const MOST_NAMES: usize = 256;

/// The name of the row of all other types, and of the count of all other names.
pub(crate) const OTHER: &str = "other";

/// The slots of the directory, a power of two. There may be several descriptions of one type, so there are more slots
/// than types. A quarter stays empty, so that each look-up ends soon.
const KIND_SLOTS: usize = 4 * MOST_TYPES;
const MOST_KINDS: usize = KIND_SLOTS / 4 * 3;

/// The slots for the names of counts of one type, a power of two.
const NAME_SLOTS: usize = 2 * MOST_NAMES;

/// The most times that the sleep of a worker is read again. A worker that changes it that often hardly sleeps.
const MOST_READS: u32 = 16;

/// The buckets for each power of two. So none is wider than a quarter of its lower end.
const PARTS: u64 = 4;
const PARTS_LOG: u32 = PARTS.ilog2();

/// The number of buckets for all durations of 64 bits of nanoseconds.
pub(crate) const BUCKETS: usize = ((u64::BITS - PARTS_LOG + 1) as u64 * PARTS) as usize;

/// The bucket of this many nanoseconds. Below `PARTS` each number has a bucket of its own.
pub(crate) fn bucket_of(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let power = nanos.ilog2();
    let part = nanos >> (power - PARTS_LOG) & (PARTS - 1);
    ((u64::from(power - PARTS_LOG) + 1) * PARTS + part) as usize
}

/// The least number of nanoseconds that is in this bucket.
pub(crate) fn bucket_start(bucket: usize) -> u64 {
    let (group, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if group == 0 { part } else { (PARTS + part) << (group - 1) }
}

/// The places of types and names, the same for all threads of a runtime.
pub(crate) struct Directory {
    kinds: Box<[OnceLock<(&'static Kind, usize)>]>,
    entered: Mutex<Entered>,
    /// The names of counts, by type.
    names: Box<[OnceLock<Box<NameTable>>]>,
    /// The largest sleep and work of each worker that was shown, in nanoseconds.
    shown: Box<[(AtomicU64, AtomicU64)]>,
    /// One step in this many is timed, on average.
    pub(crate) time_one_in: u32,
    /// One message in this many is measured, on average. None if it is zero.
    pub(crate) wait_one_in: u32,
    /// The number of samplers that were made.
    // Not beside what all workers read.
    samplers: Box<AtomicUsize>,
}

#[derive(Default)]
struct Entered {
    kinds: usize,
    types: Vec<&'static str>,
}

impl Directory {
    pub(crate) fn new(workers: usize, (time_one_in, wait_one_in): (u32, u32)) -> Directory {
        Directory {
            kinds: empty(KIND_SLOTS),
            entered: Mutex::default(),
            names: empty(MOST_TYPES + 1),
            shown: std::iter::repeat_with(Default::default).take(workers).collect(),
            time_one_in,
            wait_one_in,
            samplers: Box::default(),
        }
    }

    /// A number for a sampler of waits, if waits are measured.
    pub(crate) fn next_sampler(&self) -> Option<usize> {
        (self.wait_one_in > 0).then(|| self.samplers.fetch_add(1, Ordering::Relaxed))
    }

    /// The place of a type. It takes a lock only for a description that is new.
    #[inline]
    pub(crate) fn place(&self, kind: &'static Kind) -> usize {
        let mut slot = slot_of(kind);
        while let Some((known, place)) = self.kinds[slot % KIND_SLOTS].get() {
            if std::ptr::eq(*known, kind) {
                return *place;
            }
            slot += 1;
        }
        self.enter(kind)
    }

    #[cold]
    fn enter(&self, kind: &'static Kind) -> usize {
        // User code returns the name, so it is called without the lock.
        let name = (kind.process)();
        let entered = &mut *lock(&self.entered);
        let place = entered.types.iter().position(|known| *known == name).unwrap_or_else(|| {
            // There is one row with that name.
            if entered.types.len() == MOST_TYPES || name == OTHER {
                return MOST_TYPES;
            }
            entered.types.push(name);
            entered.types.len() - 1
        });
        // If there are too many descriptions, each look-up of the last ones comes here.
        if entered.kinds < MOST_KINDS {
            let mut slot = slot_of(kind);
            // Another thread may have entered it meanwhile. Then it is there twice, with the same place.
            while self.kinds[slot % KIND_SLOTS].set((kind, place)).is_err() {
                slot += 1;
            }
            entered.kinds += 1;
        }
        place
    }

    /// The names of the types that have a place, in the order of the places. The place behind the last one is that of
    /// all others.
    pub(crate) fn types(&self) -> Vec<&'static str> {
        lock(&self.entered).types.clone()
    }

    /// The names of the counts of the type at this place, with their places.
    pub(crate) fn names(&self, place: usize) -> Vec<(&'static str, usize)> {
        let Some(table) = self.names[place].get() else { return Vec::new() };
        let names = table.slots.iter().enumerate().filter_map(|(slot, name)| Some((*name.get()?, slot)));
        names.chain([(OTHER, NAME_SLOTS)]).collect()
    }

    /// Returns the sleep and the work of a worker, in nanoseconds, at the moment `now`. They are never less than what
    /// was shown before.
    pub(crate) fn times(&self, worker: usize, figures: &Figures, mut clock: impl FnMut() -> u64) -> (u64, u64) {
        // If the worker has fallen asleep or woken meanwhile, the two do not belong together.
        let (mut word, mut now) = (figures.asleep.load(Ordering::Acquire), clock());
        for _ in 0..MOST_READS {
            let again = figures.asleep.load(Ordering::Acquire);
            if again == word {
                break;
            }
            (word, now) = (again, clock());
        }
        let word = word as i64;
        let so_far = word >> 1;
        let asleep = if word & 1 == 1 { so_far + now as i64 } else { so_far }.max(0) as u64;
        let busy = now.saturating_sub(asleep);
        let Some((shown_asleep, shown_busy)) = self.shown.get(worker) else { return (asleep, busy) };
        let most = |shown: &AtomicU64, value| shown.fetch_max(value, Ordering::Relaxed).max(value);
        (most(shown_asleep, asleep), most(shown_busy, busy))
    }
}

fn empty<T>(slots: usize) -> Box<[OnceLock<T>]> {
    std::iter::repeat_with(OnceLock::new).take(slots).collect()
}

/// The slot at which the look-up of a description begins.
fn slot_of(kind: &'static Kind) -> usize {
    // Descriptions lie beside each other. The upper bits of the product depend on all bits of the address.
    let address = std::ptr::from_ref(kind).addr() as u64;
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// The places of the names of counts of one type.
struct NameTable {
    slots: Box<[OnceLock<&'static str>]>,
    entered: AtomicUsize,
    entering: Mutex<()>,
}

impl NameTable {
    fn new() -> NameTable {
        NameTable { slots: empty(NAME_SLOTS), entered: AtomicUsize::new(0), entering: Mutex::default() }
    }

    fn place(&self, name: &'static str) -> usize {
        if name == OTHER {
            return NAME_SLOTS;
        }
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut slot = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash) as usize;
        loop {
            match self.slots[slot % NAME_SLOTS].get() {
                Some(known) if *known == name => return slot % NAME_SLOTS,
                Some(_) => slot += 1,
                None if self.entered.load(Ordering::Relaxed) == MOST_NAMES => return NAME_SLOTS,
                // Half of the slots stay empty, so this ends. If another thread was first, the next look sees it.
                None => self.enter(slot % NAME_SLOTS, name),
            }
        }
    }

    #[cold]
    fn enter(&self, slot: usize, name: &'static str) {
        let _entering = lock(&self.entering);
        let entered = self.entered.load(Ordering::Relaxed);
        if entered < MOST_NAMES && self.slots[slot].set(name).is_ok() {
            self.entered.store(entered + 1, Ordering::Relaxed);
        }
    }
}

/// The figures that one worker writes, or all other threads together.
pub(crate) struct Figures {
    directory: Arc<Directory>,
    shared: bool,
    rows: Box<[OnceLock<Arc<Row>>]>,
    /// The time that the worker has slept, in one word. `docs/observability.md` has its meaning.
    asleep: AtomicU64,
    /// The number of messages of the threads that share these figures, if waits are measured. Not beside the rest,
    /// which these threads read.
    offered: Box<AtomicU64>,
}

/// The word of a worker that has slept for no time, and sleeps since the start of the runtime.
const ASLEEP_SINCE_START: u64 = 1;

/// The figures of one type. The alignment keeps it apart from what other threads write.
#[repr(align(128))]
pub(crate) struct Row {
    pub(crate) spawned: Count,
    pub(crate) done: Count,
    pub(crate) failed: Count,
    pub(crate) panicked: Count,
    pub(crate) terminated: Count,
    pub(crate) recovered: Count,
    /// Processes of other types that have become of this type.
    pub(crate) became: Count,
    /// Processes that have left for another type.
    pub(crate) left: Count,
    pub(crate) steps: Count,
    pub(crate) messages: Count,
    pub(crate) dead: Count,
    /// The sum of the timed steps, in nanoseconds.
    pub(crate) time: Count,
    pub(crate) times: [Count; BUCKETS],
    /// The sum of the measured waits of messages, in nanoseconds.
    pub(crate) wait: Count,
    pub(crate) waits: [Count; BUCKETS],
    /// The counts that steps yield, by the place of their name.
    pub(crate) counted: OnceLock<Box<[Count]>>,
}

impl Default for Row {
    fn default() -> Row {
        let zero = Count::default;
        Row {
            spawned: zero(),
            done: zero(),
            failed: zero(),
            panicked: zero(),
            terminated: zero(),
            recovered: zero(),
            became: zero(),
            left: zero(),
            steps: zero(),
            messages: zero(),
            dead: zero(),
            time: zero(),
            times: std::array::from_fn(|_| zero()),
            wait: zero(),
            waits: std::array::from_fn(|_| zero()),
            counted: OnceLock::new(),
        }
    }
}

/// The number of types whose rows a worker finds without the directory. It is a power of two.
const RECENT: usize = 8;

/// The rows of types that a worker has stepped recently. The address of its description gives each type two places.
#[derive(Default)]
pub(super) struct RecentRows([Option<(&'static Kind, Arc<Row>)>; RECENT]);

impl RecentRows {
    /// The row of a type, if it is here.
    #[inline(always)]
    pub(super) fn get(&self, kind: &'static Kind) -> Option<&Row> {
        let place = RecentRows::at(kind);
        match (&self.0[place], &self.0[place ^ 1]) {
            (Some((known, row)), _) | (_, Some((known, row))) if std::ptr::eq(*known, kind) => Some(row),
            _ => None,
        }
    }

    /// Puts the row of a type into its first place. The row in that place moves to the second.
    #[cold]
    pub(super) fn add(&mut self, figures: &Figures, kind: &'static Kind) -> &Row {
        let row = figures.row_at(figures.directory.place(kind)).clone();
        let place = RecentRows::at(kind);
        self.0.swap(place, place ^ 1);
        &self.0[place].insert((kind, row)).1
    }

    /// The first place of a type, by its address: descriptions of types that are used together are often neighbours.
    #[inline(always)]
    fn at(kind: &'static Kind) -> usize {
        std::ptr::from_ref(kind).addr() / align_of::<Kind>() % RECENT
    }
}

impl Figures {
    /// `shared` says that several threads write them.
    pub(crate) fn new(directory: Arc<Directory>, shared: bool) -> Figures {
        let asleep = AtomicU64::new(ASLEEP_SINCE_START);
        Figures { directory, shared, rows: empty(MOST_TYPES + 1), asleep, offered: Box::default() }
    }

    fn row_at(&self, place: usize) -> &Arc<Row> {
        self.rows[place].get_or_init(Arc::default)
    }

    #[inline]
    fn row(&self, kind: &'static Kind) -> &Row {
        self.row_at(self.directory.place(kind))
    }

    /// The row of the type at this place, if there is one.
    pub(crate) fn look(&self, place: usize) -> Option<&Row> {
        self.rows[place].get().map(|row| &**row)
    }

    pub(crate) fn spawned(&self, kind: &'static Kind) {
        self.row(kind).spawned.add(1, self.shared);
    }

    pub(crate) fn ended(&self, kind: Option<&'static Kind>, exit: &Exit) {
        let row = self.row_at(kind.map_or(MOST_TYPES, |kind| self.directory.place(kind)));
        let count = match exit {
            Exit::Done(()) => &row.done,
            Exit::Failed(_) => &row.failed,
            Exit::Panicked(_) => &row.panicked,
            Exit::Terminated(_) => &row.terminated,
        };
        count.add(1, self.shared);
    }

    pub(crate) fn recovered(&self, kind: &'static Kind) {
        self.row(kind).recovered.add(1, self.shared);
    }

    /// Counts the replacement of a state machine, if its type is another one.
    pub(crate) fn replaced(&self, before: &'static Kind, now: &'static Kind) {
        let (before, now) = (self.directory.place(before), self.directory.place(now));
        if before != now {
            self.row_at(before).left.add(1, self.shared);
            self.row_at(now).became.add(1, self.shared);
        }
    }

    /// Counts a step that has returned, with its own counts if it was successful. `row` is that of its type, if the
    /// caller has it at hand.
    pub(crate) fn stepped(&self, row: Option<&Row>, kind: &'static Kind, out: &mut StepOutput, stepped: Stepped) {
        let row = row.unwrap_or_else(|| self.row(kind));
        row.steps.add(1, self.shared);
        row.messages.add(u64::from(stepped.messages()), self.shared);
        if stepped.verdict != Verdict::Broken {
            if !out.counted.is_empty() {
                self.count_all(kind, &mut out.counted);
            }
            out.sample_waits();
        } else {
            // The counts of a failed step are dropped here, so that the end of a process has no check for them.
            out.counted.clear();
        }
    }

    /// Counts a `start` that has yielded.
    pub(crate) fn started(&self, kind: &'static Kind, out: &mut StepOutput) {
        self.count_all(kind, &mut out.counted);
        out.sample_waits();
    }

    /// Adds all these counts of the user's.
    #[cold]
    fn count_all(&self, kind: &'static Kind, counted: &mut Vec<(&'static str, u64)>) {
        counted.drain(..).for_each(|(name, by)| self.count(kind, name, by));
    }

    /// Adds the time of a step, in nanoseconds. `row` is that of its type, if the caller has it at hand.
    pub(crate) fn timed(&self, row: Option<&Row>, kind: &'static Kind, time: u64) {
        let row = row.unwrap_or_else(|| self.row(kind));
        row.time.add(time, self.shared);
        row.times[bucket_of(time)].add(1, self.shared);
    }

    /// Adds the wait of a message, in nanoseconds. `row` is that of the type, if the caller has it at hand.
    pub(crate) fn waited(&self, row: Option<&Row>, kind: &'static Kind, wait: u64) {
        let row = row.unwrap_or_else(|| self.row(kind));
        row.wait.add(wait, self.shared);
        row.waits[bucket_of(wait)].add(1, self.shared);
    }

    /// Decides whether the next message of the threads that share these figures is measured.
    pub(crate) fn is_next_measured(&self) -> bool {
        let one_in = self.directory.wait_one_in;
        one_in > 0 && (scramble(self.offered.fetch_add(1, Ordering::Relaxed)) * u64::from(one_in)) >> 32 == 0
    }

    pub(crate) fn dead(&self, kind: &'static Kind, by: u64) {
        self.row(kind).dead.add(by, self.shared);
    }

    /// Adds to a count of the user's.
    pub(crate) fn count(&self, kind: &'static Kind, name: &'static str, by: u64) {
        let place = self.directory.place(kind);
        let names = self.directory.names[place].get_or_init(|| Box::new(NameTable::new()));
        let zeros = || std::iter::repeat_with(Count::default).take(NAME_SLOTS + 1).collect();
        self.row_at(place).counted.get_or_init(zeros)[names.place(name)].add(by, self.shared);
    }

    /// The worker goes to sleep at this moment, in nanoseconds since the start of the runtime.
    pub(crate) fn falls_asleep(&self, now: u64) {
        let slept = self.asleep.load(Ordering::Relaxed) as i64 >> 1;
        self.asleep.store(((slept - now as i64) << 1 | 1) as u64, Ordering::Release);
    }

    /// The worker wakes at this moment.
    pub(crate) fn wakes(&self, now: u64) {
        let before = self.asleep.load(Ordering::Relaxed) as i64 >> 1;
        self.asleep.store(((before + now as i64) << 1) as u64, Ordering::Release);
    }
}

/// A number below 2^32 that looks random: consecutive numbers are scattered evenly.
fn scramble(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ (number >> 31)) >> 32
}

/// Decides which steps a worker times. It knows them by number.
pub(super) struct Timing {
    /// The next step that is timed.
    pub(super) next: u32,
    gaps: Gaps,
    /// The last step that was timed, and when it began.
    last: (u32, u64),
}

impl Timing {
    /// The first step that is timed is that of this number.
    pub(super) fn new(average: u32, worker: usize, first: u32) -> Timing {
        Timing { next: first, gaps: Gaps::new(average, worker), last: (first.wrapping_sub(1), 0) }
    }

    /// The next step that is timed begins now.
    pub(super) fn begins(&mut self, now: u64) {
        self.last = (self.next, now);
        self.next = self.next.wrapping_add(self.gaps.next());
    }

    /// When this step began, if it is timed.
    pub(super) fn began(&self, step: u32) -> Option<u64> {
        let (timed, began) = self.last;
        (timed == step).then_some(began)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::any::Any;
    use std::sync::Mutex;

    use super::*;
    use crate::sched::mailbox::Mailbox;

    /// Keeps a value until the end of the tests, where a leak sanitizer finds it.
    fn kept<T: Send + Sync>(value: T) -> &'static T {
        static KEPT: Mutex<Vec<&(dyn Any + Send + Sync)>> = Mutex::new(Vec::new());
        let value: &'static T = Box::leak(Box::new(value));
        KEPT.lock().unwrap().push(value);
        value
    }

    /// A description with this name.
    fn kind(process: fn() -> &'static str) -> &'static Kind {
        kept(description(process))
    }

    fn description(process: fn() -> &'static str) -> Kind {
        Kind { process, message_name: || "", new_mailbox: || Box::new(Mailbox::<()>::new()) }
    }

    std::thread_local! {
        static NAME: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
    }

    #[test]
    fn each_duration_is_in_the_bucket_that_begins_below_it() {
        for power in 0..64 {
            for nanos in [1_u64 << power, (1 << power) + 1, (1 << power) - 1, (1 << power) / 3 * 5] {
                let bucket = bucket_of(nanos);
                assert!(bucket_start(bucket) <= nanos, "{nanos}");
                assert!(bucket + 1 == BUCKETS || nanos < bucket_start(bucket + 1), "{nanos}");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        for bucket in 4..BUCKETS - 1 {
            let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
            assert!(end - start <= start / 4, "bucket {bucket} is from {start} to {end}");
        }
    }

    #[test]
    fn types_beyond_the_limit_share_one_row() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        let kinds: Vec<_> = (0..MOST_TYPES + 100).map(|_| kind(|| NAME.get())).collect();
        for (n, kind) in kinds.iter().enumerate() {
            NAME.set(kept(format!("type {n}")));
            figures.spawned(kind);
            figures.spawned(kind);
        }
        assert_eq!(directory.types().len(), MOST_TYPES);
        let spawned = |place| figures.look(place).unwrap().spawned.get();
        assert!((0..MOST_TYPES).all(|place| spawned(place) == 2));
        assert_eq!(spawned(MOST_TYPES), 200);
    }

    #[test]
    fn very_many_descriptions_of_one_type_have_one_row() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        for _ in 0..KIND_SLOTS + 10 {
            figures.spawned(kind(|| "one"));
        }
        assert_eq!(directory.types(), ["one"]);
        assert_eq!(figures.look(0).unwrap().spawned.get(), KIND_SLOTS as u64 + 10);
    }

    #[test]
    fn a_worker_finds_the_rows_of_types_that_take_turns_at_one_place() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        let kinds: Vec<_> = (0..10 * RECENT).map(|_| kind(|| NAME.get())).collect();
        for (n, kind) in kinds.iter().enumerate() {
            NAME.set(kept(format!("type {n}")));
            assert_eq!(directory.place(kind), n);
        }
        let mut recent = RecentRows::default();
        for _ in 0..3 {
            for (n, kind) in kinds.iter().enumerate() {
                if recent.get(kind).is_none() {
                    recent.add(&figures, kind);
                }
                recent.get(kind).unwrap().steps.add_alone(1);
                assert!(std::ptr::eq(recent.get(kind).unwrap(), figures.look(n).unwrap()));
            }
        }
        assert!((0..kinds.len()).all(|place| figures.look(place).unwrap().steps.get() == 3));
    }

    #[test]
    fn names_beyond_the_limit_share_one_count() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        let kind = kind(|| "one");
        for _ in 0..2 {
            for n in 0..MOST_NAMES + 50 {
                figures.count(kind, kept(format!("name {n}")), 3);
            }
        }
        let counted = figures.look(0).unwrap().counted.get().unwrap();
        let names = directory.names(0);
        assert_eq!(names.len(), MOST_NAMES + 1);
        for (name, place) in names {
            assert_eq!(counted[place].get(), if name == OTHER { 300 } else { 6 }, "{name}");
        }
    }

    #[test]
    fn a_type_and_a_count_that_are_called_other_are_among_all_others() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        figures.count(kind(|| OTHER), OTHER, 5);
        assert!(directory.types().is_empty());
        assert_eq!(directory.names(MOST_TYPES), [(OTHER, NAME_SLOTS)]);
        assert_eq!(figures.look(MOST_TYPES).unwrap().counted.get().unwrap()[NAME_SLOTS].get(), 5);
    }

    #[test]
    fn counts_of_several_threads_are_exact() {
        let figures = Arc::new(Figures::new(Arc::new(Directory::new(0, (16, 128))), true));
        let kind = kind(|| "one");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let figures = figures.clone();
                std::thread::spawn(move || {
                    (0..100_000).for_each(|_| {
                        figures.recovered(kind);
                        figures.timed(None, kind, 7);
                        figures.waited(None, kind, 3);
                    })
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| crate::wait::wait(thread).unwrap());
        let row = figures.look(0).unwrap();
        assert_eq!((row.recovered.get(), row.time.get(), row.wait.get()), (400_000, 2_800_000, 1_200_000));
    }

    #[test]
    fn two_types_with_the_same_place_are_both_at_hand() {
        let figures = Figures::new(Arc::new(Directory::new(0, (16, 128))), false);
        let mut rows = RecentRows::default();
        // Neighbours in memory: after so many the places begin again.
        let kinds: &'static [Kind; RECENT + 1] = kept(std::array::from_fn(|_| description(|| "one")));
        let [first, .., second] = kinds;
        assert_eq!(RecentRows::at(first), RecentRows::at(second));
        for kind in [first, second, first, second] {
            if rows.get(kind).is_none() {
                rows.add(&figures, kind);
            }
        }
        let rows = [first, second].map(|kind| rows.get(kind).map(std::ptr::from_ref));
        assert_eq!(rows, [figures.look(0).map(std::ptr::from_ref); 2]);
    }

    #[test]
    fn with_an_average_of_one_each_step_is_timed() {
        let mut all = Timing::new(1, 0, u32::MAX - 50);
        for now in 0..100 {
            let step = all.next;
            assert_eq!((step, all.began(step)), ((u32::MAX - 50).wrapping_add(now), None));
            all.begins(u64::from(now));
            assert_eq!(all.began(step), Some(u64::from(now)));
        }
    }

    #[test]
    fn one_message_in_so_many_from_outside_is_measured_at_random() {
        for one_in in [0_u32, 1, 2, 128] {
            let figures = Figures::new(Arc::new(Directory::new(0, (16, one_in))), true);
            let measured: Vec<u32> = (0..200_000).filter(|_| figures.is_next_measured()).collect();
            let wanted = 200_000_usize.checked_div(one_in as usize).unwrap_or(0);
            let off = measured.len().abs_diff(wanted);
            assert!(if one_in > 1 { off < wanted / 5 } else { off == 0 }, "{} of 1 in {one_in}", measured.len());
            let mut gaps: Vec<u32> = measured.windows(2).map(|two| two[1] - two[0]).collect();
            gaps.sort_unstable();
            gaps.dedup();
            assert!(one_in < 128 || gaps.len() > 100, "{gaps:?}");
        }
    }

    #[test]
    fn sleep_and_work_add_up_and_never_go_back() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        let at = |now| directory.times(0, &figures, || now);
        assert_eq!(at(10), (10, 0), "a worker without a thread sleeps");
        figures.wakes(10);
        assert_eq!(at(15), (10, 5));
        figures.falls_asleep(20);
        assert_eq!(at(50), (40, 10));
        figures.wakes(60);
        // A reader that was delayed before it read the clock.
        assert_eq!(at(59), (50, 10));
        assert_eq!(at(58), (50, 10));
        assert_eq!(at(100), (50, 50));
    }

    #[test]
    fn a_worker_that_wakes_while_its_times_are_read_has_not_slept_longer() {
        let directory = Arc::new(Directory::new(1, (16, 128)));
        let figures = Figures::new(directory.clone(), false);
        let mut has_woken = false;
        let read = directory.times(0, &figures, || {
            if !std::mem::replace(&mut has_woken, true) {
                figures.wakes(11);
            }
            1_000
        });
        assert_eq!(read, (11, 989));
        assert_eq!(directory.times(0, &figures, || 1_100), (11, 1_089));
    }
}
