//! The things that can happen next in a world, in the order in which they became possible.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::decision::{Candidate, Item};
use super::delivery::Pair;
use super::recorder::{ConnectionWork, Subject};
use crate::pid::Pid;
use crate::runtime::simulated::Job;
use crate::sched::body::Ready;

/// The most candidates among which one is chosen. Thousands of ready processes would make each choice slow, and those
/// that are older than most others have their turns soon.
const MOST_CANDIDATES: usize = 256;

/// Something that can happen.
pub(super) enum Entry {
    /// A turn of a process of the runtime with this number.
    Turn(Ready, usize),
    /// The earliest timer of the clock.
    Timer,
    /// A blocking closure of a process.
    Job(Pid, Job),
    /// A blocking step of a process of the runtime with this number.
    BlockingStep(Pid, usize),
    /// The answer of a handler to a command of this process, which comes late.
    Answer(Pid, Job),
    /// The oldest message of a pair that is held.
    Delivery(Pair),
    /// Work of a store: what it is, the number of its runtime, and its code. Boxed, because entries are moved often,
    /// and most of them are turns.
    #[cfg_attr(not(feature = "durable"), allow(dead_code))]
    Store(Box<(&'static str, usize, Job)>),
    /// Work of the connections between nodes.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    Connection(Box<(ConnectionWork, Job)>),
}

impl Entry {
    /// Whether it runs on a thread of the pool, which may wait.
    fn is_job(&self) -> bool {
        matches!(self, Entry::Job(..) | Entry::BlockingStep(..))
    }

    /// The subject of the turn that the entry is.
    pub(super) fn subject(&self) -> Subject {
        match self {
            Entry::Turn(body, _) => Subject::Process(body.head.pid),
            Entry::BlockingStep(pid, _) => Subject::Process(*pid),
            Entry::Timer => Subject::Timer,
            Entry::Job(pid, _) => Subject::Blocking(*pid),
            Entry::Answer(pid, _) => Subject::Answer(*pid),
            Entry::Delivery((_, from, to)) => Subject::Delivery(*from, *to),
            Entry::Store(work) => Subject::Store(work.0),
            Entry::Connection(work) => Subject::Connection(work.0.clone()),
        }
    }
}

/// The entries of a world.
#[derive(Default)]
pub(super) struct Entries {
    entries: VecDeque<Entry>,
    /// The candidate of each entry.
    candidates: VecDeque<Candidate>,
    /// Entries that are held up until a moment, each with a number.
    later: BTreeMap<(Instant, u64), Entry>,
    numbers: u64,
    /// How often each process has had a turn: by runtime and slot, with the generation.
    turns: Vec<Vec<(u32, u32)>>,
    timers: u32,
    jobs: u64,
    /// How many held messages of each pair were delivered by an entry.
    deliveries: BTreeMap<Pair, u32>,
    has_timer: bool,
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The oldest candidates, in order.
    pub(super) fn candidates(&mut self) -> &[Candidate] {
        let most = self.candidates.len().min(MOST_CANDIDATES);
        if self.candidates.as_slices().0.len() < most {
            self.candidates.make_contiguous();
        }
        &self.candidates.as_slices().0[..most]
    }

    /// The oldest candidates that are no jobs, in order, with their places.
    pub(super) fn candidates_without_jobs(&self) -> (Vec<usize>, Vec<Candidate>) {
        let all = self.entries.iter().zip(&self.candidates).enumerate();
        let others = all.filter(|(_, (entry, _))| !entry.is_job());
        others.map(|(place, (_, candidate))| (place, *candidate)).take(MOST_CANDIDATES).unzip()
    }

    /// Whether a job can begin.
    pub(super) fn has_job(&self) -> bool {
        self.entries.iter().any(Entry::is_job)
    }

    /// Whether nothing but jobs can happen.
    pub(super) fn has_only_jobs(&self) -> bool {
        self.entries.iter().all(Entry::is_job)
    }

    fn turns_of(&mut self, pid: Pid, runtime: usize) -> &mut (u32, u32) {
        if self.turns.len() <= runtime {
            self.turns.resize_with(runtime + 1, Vec::new);
        }
        let (turns, slot) = (&mut self.turns[runtime], pid.slot() as usize);
        if turns.len() <= slot {
            turns.resize(slot + 1, (0, 0));
        }
        let entry = &mut turns[slot];
        if entry.0 != pid.generation() {
            *entry = (pid.generation(), 0);
        }
        entry
    }

    pub(super) fn push(&mut self, entry: Entry) {
        let candidate = match &entry {
            Entry::Turn(body, runtime) => {
                let pid = body.head.pid;
                Candidate { item: Item::Turn(pid), nth: self.turns_of(pid, *runtime).1 }
            }
            Entry::BlockingStep(pid, runtime) => {
                Candidate { item: Item::Turn(*pid), nth: self.turns_of(*pid, *runtime).1 }
            }
            Entry::Timer => {
                self.timers += 1;
                self.has_timer = true;
                Candidate { item: Item::Timer(0), nth: self.timers }
            }
            Entry::Job(..) | Entry::Answer(..) | Entry::Store(..) | Entry::Connection(..) => {
                self.jobs += 1;
                Candidate { item: Item::Job(self.jobs), nth: 0 }
            }
            Entry::Delivery(pair) => {
                let nth = self.deliveries.entry(*pair).or_default();
                *nth += 1;
                Candidate { item: Item::Delivery(pair.1, pair.2), nth: *nth }
            }
        };
        self.entries.push_back(entry);
        self.candidates.push_back(candidate);
    }

    /// As [`take`](Self::take), for an entry that is a turn. Returns the body, the number of its runtime, and the
    /// number of the turn. Returns `None` for another entry, and removes nothing.
    ///
    /// Inlined: otherwise, the parts of an entry are stored one by one and then loaded together, which is slow.
    #[inline(always)]
    pub(super) fn take_turn(&mut self, place: usize) -> Option<(Ready, usize, u32)> {
        if !matches!(self.entries.get(place), Some(Entry::Turn(..))) {
            return None;
        }
        let (entry, candidate) = if place == 0 {
            (self.entries.pop_front(), self.candidates.pop_front())
        } else {
            (self.entries.remove(place), self.candidates.remove(place))
        };
        let Some(Entry::Turn(body, runtime)) = entry else { return None };
        self.turns_of(body.head.pid, runtime).1 += 1;
        Some((body, runtime, candidate?.nth))
    }

    /// Takes an entry out. The turn of a process counts from now on.
    pub(super) fn take(&mut self, place: usize) -> Option<(Entry, Candidate)> {
        // The oldest one is mostly the next one, and need not be looked for.
        let (entry, candidate) = match place {
            0 => (self.entries.pop_front()?, self.candidates.pop_front()?),
            place => (self.entries.remove(place)?, self.candidates.remove(place)?),
        };
        match &entry {
            Entry::Turn(body, runtime) => self.turns_of(body.head.pid, *runtime).1 += 1,
            Entry::BlockingStep(pid, runtime) => self.turns_of(*pid, *runtime).1 += 1,
            Entry::Timer => self.has_timer = false,
            Entry::Job(..) | Entry::Answer(..) | Entry::Delivery(_) | Entry::Store(..) | Entry::Connection(..) => {}
        }
        Some((entry, candidate))
    }

    /// The process that has had the most turns: the number of its runtime, its slot and generation, and its turns.
    pub(super) fn busiest(&self) -> Option<(usize, u32, u32, u32)> {
        let of_runtime = |(runtime, turns): (usize, &Vec<(u32, u32)>)| {
            let of_slot = |(slot, of): (usize, &(u32, u32))| (runtime, slot as u32, of.0, of.1);
            turns.iter().enumerate().map(of_slot).max_by_key(|busiest| busiest.3)
        };
        self.turns.iter().enumerate().filter_map(of_runtime).max_by_key(|busiest| busiest.3)
    }

    /// Takes all entries out. The numbers of later ones go on.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        self.candidates.clear();
        self.turns.clear();
        self.has_timer = false;
        let later = std::mem::take(&mut self.later).into_values();
        std::mem::take(&mut self.entries).into_iter().chain(later).collect()
    }

    /// Removes the entry of a pair, whose messages are delivered otherwise.
    pub(super) fn remove_delivery(&mut self, pair: Pair) {
        let place = self.entries.iter().position(|entry| matches!(entry, Entry::Delivery(other) if *other == pair));
        place.into_iter().for_each(|place| _ = (self.entries.remove(place), self.candidates.remove(place)));
    }

    /// Whether the oldest entry is work of a connection, or there is none.
    pub(super) fn begins_with_connection(&self) -> bool {
        self.entries.front().is_none_or(|entry| matches!(entry, Entry::Connection(_)))
    }

    /// Whether all entries, also those that are held up, are work of connections.
    pub(super) fn has_only_connections(&self) -> bool {
        self.entries.iter().chain(self.later.values()).all(|entry| matches!(entry, Entry::Connection(..)))
    }

    /// Whether a timer is among the entries.
    pub(super) fn has_timer(&self) -> bool {
        self.has_timer
    }

    /// Holds an entry up until this moment.
    pub(super) fn push_later(&mut self, at: Instant, entry: Entry) {
        self.numbers += 1;
        self.later.insert((at, self.numbers), entry);
    }

    /// The earliest moment until which an entry is held up.
    pub(super) fn next_later(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether an entry is held up.
    pub(super) fn has_late(&self) -> bool {
        !self.later.is_empty()
    }

    /// Moves the entries whose moment has come behind the others.
    pub(super) fn bring(&mut self, now: Instant) {
        while self.next_later().is_some_and(|at| at <= now) {
            let first = self.later.pop_first();
            first.into_iter().for_each(|(_, entry)| self.push(entry));
        }
    }

    /// Moves the entries that are held up until this moment behind the others.
    #[cfg(feature = "cluster")]
    pub(super) fn bring_those_of(&mut self, moment: Instant) {
        let numbers: Vec<_> = self.later.range((moment, 0)..=(moment, u64::MAX)).map(|(key, _)| *key).collect();
        for key in numbers {
            self.later.remove(&key).into_iter().for_each(|entry| self.push(entry));
        }
    }

    /// The number of entries, also of those that are held up.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.later.len()
    }

    /// Calls `call` with each body that is ready or held up.
    pub(super) fn each_body<'a>(&'a self, mut call: impl FnMut(&'a Ready)) {
        let mut of_entry = |entry: &'a Entry| {
            if let Entry::Turn(body, _) = entry {
                call(body);
            }
        };
        self.entries.iter().for_each(&mut of_entry);
        self.later.values().for_each(of_entry);
    }

    /// Whether there are jobs, also those that are held up.
    pub(super) fn has_jobs(&self) -> bool {
        self.entries.iter().chain(self.later.values()).any(Entry::is_job)
    }

    /// Takes the blocking closures out.
    pub(super) fn take_jobs(&mut self) -> Vec<Job> {
        let mut jobs = Vec::new();
        let (entries, candidates) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.candidates));
        for (entry, candidate) in entries.into_iter().zip(candidates) {
            match entry {
                Entry::Job(_, job) => jobs.push(job),
                entry => {
                    self.entries.push_back(entry);
                    self.candidates.push_back(candidate);
                }
            }
        }
        let later = std::mem::take(&mut self.later);
        for (at, entry) in later {
            match entry {
                Entry::Job(_, job) => jobs.push(job),
                entry => _ = self.later.insert(at, entry),
            }
        }
        jobs
    }
}
