//! Coverage: how many different runs there were.
//!
//! Two runs are the same interleaving if each process took the same events in the same order. The order of independent
//! steps does not count: the order in which two processes are stepped makes no difference unless one of them, or a
//! third one, takes something in another order. So each process folds what it takes into a number, and the sum of these
//! numbers names the *partial order* of the run. The count is exact, but for sums of 64 bits that are equal by chance.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use crate::pid::Pid;
use crate::random::{mix, random_at};

/// An event as coverage sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// A number for the kind of the event.
    pub(crate) kind: u8,
    /// The process that it is from. `None` for an event from outside.
    pub(crate) from: Option<Pid>,
    /// Its number among the events of this kind from this sender to this receiver. For an answer it is the tag.
    pub(crate) number: u64,
}

/// The partial order of one run.
#[derive(Debug, Default)]
pub(crate) struct PartialOrder {
    /// By node and slot: the generation, and the number of the process.
    of_processes: Vec<(u32, Vec<(u32, u64)>)>,
    sum: u64,
}

impl PartialOrder {
    /// Notes that a process took an event.
    pub(crate) fn took(&mut self, process: Pid, event: Taken) {
        let before = number_of(&mut self.of_processes, process);
        let from = event.from.map_or(0, Pid::to_word);
        // The process is part of each of its numbers. So equal numbers of two processes cannot stand for each other.
        let after = mix(*before ^ random_at(process.to_word().wrapping_add(event.kind.into()), from, event.number));
        self.sum = self.sum.wrapping_sub(*before).wrapping_add(after);
        *before = after;
    }

    /// Returns the name of the partial order so far.
    pub(crate) fn name(&self) -> u64 {
        self.sum
    }

    /// Forgets the run, and keeps the memory for the next one.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.of_processes.clear();
        self.sum = 0;
    }
}

/// The number of a process. It begins with zero.
fn number_of(all: &mut Vec<(u32, Vec<(u32, u64)>)>, process: Pid) -> &mut u64 {
    let node = all.iter().position(|(node, _)| *node == process.node()).unwrap_or_else(|| {
        all.push((process.node(), Vec::new()));
        all.len() - 1
    });
    let (slots, slot) = (&mut all[node].1, process.slot() as usize);
    if slots.len() <= slot {
        slots.resize(slot + 1, (0, 0));
    }
    let (generation, number) = &mut slots[slot];
    if *generation != process.generation() {
        // The sum keeps the number of the process that was here before, which takes nothing any more.
        (*generation, *number) = (process.generation(), 0);
    }
    number
}

/// A name is one word, which needs one step of mixing. The order of the set is never read.
#[derive(Debug, Default)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The partial orders of all runs of a check.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    /// Only its size is read, so its order makes no difference.
    names: HashSet<u64, BuildHasherDefault<NameHasher>>,
    runs: u64,
    last_new: u64,
}

impl Coverage {
    /// Counts a run. Returns whether its partial order is a new one.
    pub(crate) fn count(&mut self, name: u64) -> bool {
        self.runs += 1;
        let is_new = self.names.insert(name);
        if is_new {
            self.last_new = self.runs;
        }
        is_new
    }

    /// How many runs were counted.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// How many different partial orders there were.
    pub(crate) fn distinct(&self) -> u64 {
        self.names.len() as u64
    }

    /// Which run brought the last new partial order. The first run is 1, and 0 stands for none.
    pub(crate) fn last_new(&self) -> u64 {
        self.last_new
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::decision::Choose;
    use super::super::schedule::Schedule;
    use super::super::small_world::{SmallTurn, SmallWorld, pid};
    use super::*;
    use std::collections::{BTreeSet, HashMap};

    /// The messages that processes took: the process, and the sender with a number.
    type History = Vec<(u32, Option<(u32, u64)>)>;

    /// Runs a program and returns the name of its partial order, and what each process took.
    fn run(
        processes: u32,
        choose: &mut dyn Choose,
        mut step: impl FnMut(&mut SmallTurn<'_>) -> bool,
    ) -> (u64, History) {
        let (mut world, mut order, mut taken) = (SmallWorld::new(processes), PartialOrder::default(), Vec::new());
        let mut numbers = HashMap::new();
        world.run(choose, 1_000, |turn| {
            let number = turn.message.map_or(0, |(from, _)| {
                let number = numbers.entry((from, turn.me)).or_insert(0);
                *number += 1;
                *number
            });
            let from = turn.message.map(|(from, _)| pid(from));
            order.took(pid(turn.me), Taken { kind: u8::from(from.is_some()), from, number });
            taken.push((turn.me, turn.message));
            step(turn)
        });
        // The sort is stable: it keeps the order at each process.
        taken.sort_by_key(|(me, _)| *me);
        (order.name(), taken)
    }

    #[test]
    fn the_orders_of_senders_to_one_receiver_are_counted() {
        for (senders, seeds) in [(2, 100), (3, 300), (4, 1_000), (5, 5_000), (6, 30_000)] {
            let mut coverage = Coverage::default();
            for seed in 0..seeds {
                let mut chooser = Schedule::random().chooser(seed, 20);
                let (name, _) = run(senders + 1, &mut chooser, |turn| {
                    if turn.me > 0 {
                        turn.sends.push((0, 0));
                    }
                    false
                });
                coverage.count(name);
            }
            assert_eq!(coverage.distinct(), (1..=u64::from(senders)).product::<u64>(), "{senders} senders");
            assert_eq!(coverage.runs(), seeds);
        }
    }

    #[test]
    fn independent_pairs_have_one_interleaving() {
        let (mut coverage, mut histories) = (Coverage::default(), BTreeSet::new());
        for seed in 0..1_000 {
            let mut chooser = Schedule::random().chooser(seed, 20);
            let mut world_order = Vec::new();
            let (name, _) = run(8, &mut chooser, |turn| {
                world_order.push(turn.me);
                if turn.me % 2 == 0 && turn.nth < 3 {
                    turn.sends.push((turn.me + 1, 0));
                }
                turn.me % 2 == 0 && turn.nth < 3
            });
            histories.insert(world_order);
            coverage.count(name);
        }
        assert_eq!(coverage.distinct(), 1);
        assert!(histories.len() > 900, "{}", histories.len());
        assert_eq!(coverage.last_new(), 1);
    }

    /// Names are equal for those runs, and only for those, in which each process took the same.
    #[test]
    fn two_runs_have_one_name_if_all_took_the_same() {
        let (mut names, mut lists, mut pairs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..3_000 {
            let mut chooser = Schedule::random().chooser(seed, 20);
            let (name, taken) = run(4, &mut chooser, |turn| {
                if turn.nth < 3 {
                    let to = turn.message.map_or((turn.me + 1) % 4, |(from, number)| (from + number as u32) % 4);
                    turn.sends.push((to, u64::from(turn.nth)));
                }
                turn.me == 0 && turn.nth == 0
            });
            names.insert(name);
            lists.insert(taken.clone());
            pairs.insert((name, taken));
        }
        assert!(names.len() > 50, "{}", names.len());
        // The senders of a process's messages determine their contents.
        assert_eq!((names.len(), lists.len()), (pairs.len(), pairs.len()));
    }

    #[test]
    fn the_name_depends_on_who_took_what_from_whom() {
        let event = |kind, from: u32, number| Taken { kind, from: Some(pid(from)), number };
        let outside = Taken { kind: 0, from: None, number: 1 };
        let lists: [&[(u32, Taken)]; 8] = [
            &[],
            &[(0, event(0, 2, 1))],
            &[(1, event(0, 2, 1))],
            &[(0, event(0, 3, 1))],
            &[(0, event(1, 2, 1))],
            &[(0, event(0, 2, 2))],
            &[(0, outside)],
            &[(0, event(0, 2, 1)), (0, event(0, 2, 1))],
        ];
        let mut order = PartialOrder::default();
        let mut coverage = Coverage::default();
        for list in lists {
            order.clear();
            list.iter().for_each(|(process, event)| order.took(pid(*process), *event));
            assert!(coverage.count(order.name()));
        }
        assert!(!coverage.count(order.name()));
        assert_eq!((coverage.distinct(), coverage.runs(), coverage.last_new()), (8, 9, 8));
    }
}
