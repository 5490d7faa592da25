//! Schedules: by which rule the next item of a run is chosen.
//!
//! No rule finds all bugs soon. A bug that needs one long delay is found by [`Schedule::pct`], a bug that needs many
//! short ones by [`Schedule::random`]. So the default is [`Schedule::mixed`].
//!
//! Each of them could keep a process from being stepped for ever: priorities do so if the process with the highest one
//! never rests. So each is *fair* from a stated turn of a run on. From then on the oldest candidate is next.

use std::collections::BTreeMap;
use std::fmt;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::decision::{Candidate, Choose, Item, Odds, Place};
use crate::pid::Pid;
use crate::random::{below, mix, random_at};

/// The number of turns that a run is taken to have before its program has run once.
const FIRST_GUESS: u32 = 100;

/// The least number of turns of a run before its schedule is fair.
const LEAST_FREE_TURNS: u32 = 1_000;

/// How many times the expected number of turns a run has before its schedule is fair. Delays and faults make a run
/// longer than the run that the expectation was taken from.
const FREE_FACTOR: u32 = 4;

/// The rule by which a simulation chooses what is next.
///
/// ```text
/// random       each candidate is equally likely
/// pct(depth)   the process with the highest priority, and `depth - 1` changes of priorities
/// pos          the event with the highest priority, and new priorities for the events that it races with
/// round_robin  the processes take turns
/// mixed        the seed decides among these
/// ```
///
/// Each is fair after the first 1,000 turns of a run, or after four times the turns of a run without any deviation if
/// these are more. From then on the item that has waited longest is next. So no process waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Schedule {
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Rule {
    Random,
    /// The depth, which is at least 1.
    Pct(u32),
    Pos,
    RoundRobin,
    #[default]
    Mixed,
}

impl Schedule {
    /// Each candidate is equally likely to be next.
    pub fn random() -> Schedule {
        Schedule { rule: Rule::Random }
    }

    /// Probabilistic concurrency testing: the process with the highest priority is next.
    ///
    /// The priorities are drawn once for each process. At `depth - 1` turns of the run, the process that would be
    /// next gets a lower priority than all others have. A bug that `depth` constraints on the order of turns make
    /// happen is found by a seed with a probability of at least 1 / (n · k^(depth − 1)), for n processes and k turns.
    /// A depth of zero is taken as one.
    ///
    /// The rule is from Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with Probabilistic
    /// Guarantees of Finding Bugs", 2010.
    pub fn pct(depth: u32) -> Schedule {
        Schedule { rule: Rule::Pct(depth.max(1)) }
    }

    /// Partial-order sampling: the event with the highest priority is next.
    ///
    /// Each event has a priority of its own, which is drawn when it becomes possible. When an event happens, new
    /// priorities are drawn for those that race with it. So different orders of events that do not depend on each
    /// other are not tried again and again.
    ///
    /// The rule is from Yuan, Yang and Gu, "Partial Order Aware Concurrency Sampling", 2018.
    pub fn pos() -> Schedule {
        Schedule { rule: Rule::Pos }
    }

    /// The processes take turns, in an order that the seed draws.
    pub fn round_robin() -> Schedule {
        Schedule { rule: Rule::RoundRobin }
    }

    /// The seed of each run decides among the other schedules. This is the default.
    ///
    /// Of 16 seeds, about five have `random`, four `pct(2)`, four `pos`, two `pct(3)` and one `round_robin`.
    pub fn mixed() -> Schedule {
        Schedule { rule: Rule::Mixed }
    }

    /// Returns the schedule of the run with this seed: itself, unless it is mixed.
    pub(crate) fn of_seed(self, seed: u64) -> Schedule {
        if self.rule != Rule::Mixed {
            return self;
        }
        match mix(seed.wrapping_add(MIXED)) % 16 {
            0..5 => Schedule::random(),
            5..9 => Schedule::pct(2),
            9..13 => Schedule::pos(),
            13..15 => Schedule::pct(3),
            _ => Schedule::round_robin(),
        }
    }

    /// Returns the chooser of the run with this seed. `turns` is the number of turns that the run is expected to
    /// have. It must not depend on other seeds, or a seed would not be the same run again. Zero stands for a guess.
    pub(crate) fn chooser(self, seed: u64, turns: u32) -> Chooser {
        let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed);
        let order = match self.of_seed(seed).rule {
            Rule::Random | Rule::Mixed => Order::Random,
            Rule::Pct(depth) => {
                let turns = u64::from(if turns == 0 { FIRST_GUESS } else { turns });
                let mut draw_turn = || below(turns, || draws.random()) as u32;
                Order::Pct(Pct { seed, changes: (1..depth).map(|_| draw_turn()).collect(), lowered: Vec::new() })
            }
            Rule::Pos => Order::Pos(Pos { seed, redraws: BTreeMap::new() }),
            Rule::RoundRobin => Order::RoundRobin(RoundRobin { seed, last: None }),
        };
        Chooser { order, draws, turn: 0, fair_from: fair_from(turns) }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Rule::Random => f.write_str("random"),
            Rule::Pct(depth) => write!(f, "pct({depth})"),
            Rule::Pos => f.write_str("pos"),
            Rule::RoundRobin => f.write_str("round_robin"),
            Rule::Mixed => f.write_str("mixed"),
        }
    }
}

/// Returns the turn from which a run is fair, if it is expected to have this number of turns.
pub(crate) fn fair_from(turns: u32) -> u32 {
    turns.saturating_mul(FREE_FACTOR).max(LEAST_FREE_TURNS)
}

/// The constants that keep numbers for different uses apart, if they are drawn by the same seed.
const MIXED: u64 = 0x6d69_7865_6400_0000;
const PRIORITIES: u64 = 0x7072_696f_7269_7479;

/// Makes the decisions of one run by a seed.
#[derive(Debug)]
pub(crate) struct Chooser {
    order: Order,
    draws: Xoshiro256PlusPlus,
    turn: u32,
    fair_from: u32,
}

#[derive(Debug)]
enum Order {
    Random,
    Pct(Pct),
    Pos(Pos),
    RoundRobin(RoundRobin),
}

impl Choose for Chooser {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        let turn = self.turn;
        if turn >= self.fair_from {
            return 0;
        }
        self.turn += 1;
        match &mut self.order {
            Order::Random => below(candidates.len() as u64, || self.draws.random()) as usize,
            Order::Pct(pct) => pct.next(turn, candidates),
            Order::Pos(pos) => pos.next(candidates),
            Order::RoundRobin(round_robin) => round_robin.next(candidates),
        }
    }

    fn decide(&mut self, _: Place, odds: Odds) -> u64 {
        match odds {
            Odds::Chance(probability) => u64::from(self.draws.random::<f64>() < probability),
            Odds::Below(count) => below(count, || self.draws.random()),
            Odds::Several(probability) if self.draws.random::<f64>() < probability => {
                u64::from(self.draws.random::<u64>().trailing_zeros()) + 1
            }
            Odds::Several(_) => 0,
        }
    }
}

/// Probabilistic concurrency testing. A timer, a job and a pair with held messages count as processes.
#[derive(Debug)]
struct Pct {
    seed: u64,
    /// The turns at which priorities change. The number of a change is the priority that it gives.
    changes: Vec<u32>,
    lowered: Vec<(Item, u64)>,
}

impl Pct {
    fn next(&mut self, turn: u32, candidates: &[Candidate]) -> usize {
        let mut best = self.highest(candidates);
        for number in 0..self.changes.len() {
            if self.changes[number] == turn {
                let item = candidates[best].item;
                self.lowered.retain(|(lowered, _)| *lowered != item);
                self.lowered.push((item, number as u64));
                best = self.highest(candidates);
            }
        }
        best
    }

    fn highest(&self, candidates: &[Candidate]) -> usize {
        first_highest(candidates, |candidate| {
            let lowered = self.lowered.iter().find(|(item, _)| *item == candidate.item);
            // The highest bit keeps a drawn priority above those that changes give.
            lowered.map_or_else(|| number_of(self.seed, candidate.item, 0) | 1 << 63, |(_, priority)| *priority)
        })
    }
}

/// Partial-order sampling.
#[derive(Debug)]
struct Pos {
    seed: u64,
    /// How often the events at a process have got new priorities because they race with one that happened.
    redraws: BTreeMap<Pid, u32>,
}

impl Pos {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        let best = first_highest(candidates, |candidate| {
            // A turn takes what has been delivered. So it races with the deliveries to its process, and these with
            // each other. Two turns of different processes are not known to race.
            let at = match candidate.item {
                Item::Turn(of) | Item::Delivery(_, of) => self.redraws.get(&of).copied().unwrap_or_default(),
                Item::Timer(_) | Item::Job(_) => 0,
            };
            number_of(self.seed, candidate.item, u64::from(candidate.nth) << 32 | u64::from(at))
        });
        match candidates[best].item {
            Item::Delivery(_, to) => *self.redraws.entry(to).or_default() += 1,
            Item::Turn(of) => {
                if let Some(redraws) = self.redraws.get_mut(&of) {
                    *redraws += 1;
                }
            }
            Item::Timer(_) | Item::Job(_) => {}
        }
        best
    }
}

#[derive(Debug)]
struct RoundRobin {
    seed: u64,
    last: Option<u64>,
}

impl RoundRobin {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        let numbers = || candidates.iter().map(|candidate| number_of(self.seed, candidate.item, 0)).enumerate();
        let after_last = numbers().filter(|(_, number)| self.last.is_none_or(|last| *number > last));
        let next = after_last.min_by_key(|(_, number)| *number).or_else(|| numbers().min_by_key(|(_, number)| *number));
        let (place, number) = next.unwrap_or_default();
        self.last = Some(number);
        place
    }
}

/// Returns the place of the first candidate that no other exceeds.
fn first_highest(candidates: &[Candidate], priority: impl Fn(&Candidate) -> u64) -> usize {
    let mut best = (0, priority(&candidates[0]));
    for (place, candidate) in candidates.iter().enumerate().skip(1) {
        let one = priority(candidate);
        if one > best.1 {
            best = (place, one);
        }
    }
    best.0
}

/// Returns the random number of an item. It is the same for the same seed, item and position.
fn number_of(seed: u64, item: Item, position: u64) -> u64 {
    let (kind, one, two) = match item {
        Item::Turn(of) => (0, of.to_word(), 0),
        Item::Timer(number) => (1, number, 0),
        Item::Job(number) => (2, number, 0),
        Item::Delivery(from, to) => (3, from.to_word(), to.to_word()),
    };
    let seed = seed.wrapping_add(PRIORITIES).wrapping_add(kind);
    random_at(seed, if two == 0 { one } else { random_at(seed, one, two) }, position)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::small_world::{SmallWorld, pid};
    use super::*;
    use std::collections::BTreeSet;

    /// Each of five processes has eight turns.
    fn run_five(schedule: Schedule, seed: u64) -> Vec<(u32, u32)> {
        let mut world = SmallWorld::new(5);
        world.run(&mut schedule.chooser(seed, 40), 40, |turn| turn.nth < 7);
        world.turns()
    }

    /// Whether these turns happen in this order.
    fn is_in_order(turns: &[(u32, u32)], wanted: &[(u32, u32)]) -> bool {
        let mut wanted = wanted.iter().peekable();
        for turn in turns {
            wanted.next_if_eq(&turn);
        }
        wanted.peek().is_none()
    }

    fn found(schedule: Schedule, seeds: u64, wanted: &[(u32, u32)]) -> usize {
        (0..seeds).filter(|seed| is_in_order(&run_five(schedule, *seed), wanted)).count()
    }

    #[test]
    fn pct_finds_a_bug_of_depth_two_as_often_as_promised() {
        let count = found(Schedule::pct(2), 100_000, &[(0, 3), (1, 0), (0, 4)]);
        assert!(count >= 100_000 / (5 * 40), "{count}");
        // One priority each cannot preempt a process between two of its turns.
        assert_eq!(found(Schedule::pct(1), 10_000, &[(0, 3), (1, 0), (0, 4)]), 0);
    }

    #[test]
    fn pct_finds_a_bug_of_depth_three_as_often_as_promised() {
        let bug = [(0, 3), (1, 4), (0, 4), (1, 5)];
        let count = found(Schedule::pct(3), 100_000, &bug);
        assert!(count >= 100_000 / (5 * 40 * 40), "{count}");
        assert_eq!(found(Schedule::pct(2), 10_000, &bug), 0);
    }

    #[test]
    fn the_same_seed_chooses_the_same_and_others_differ() {
        for schedule in all() {
            let runs: Vec<_> = (0..50).map(|seed| run_five(schedule, seed)).collect();
            assert!((0..50).all(|seed| run_five(schedule, seed) == runs[seed as usize]), "{schedule}");
            let distinct: BTreeSet<_> = runs.iter().collect();
            assert!(distinct.len() > 30, "{schedule}: {}", distinct.len());
        }
    }

    #[test]
    fn mixed_is_each_of_the_others_for_some_seeds() {
        let mut counts = BTreeMap::new();
        for seed in 0..1_600 {
            *counts.entry(Schedule::mixed().of_seed(seed).to_string()).or_insert(0_u32) += 1;
        }
        let expected = [("pct(2)", 400_u32), ("pct(3)", 200), ("pos", 400), ("random", 500), ("round_robin", 100)];
        assert!(counts.keys().map(String::as_str).eq(expected.map(|(name, _)| name)), "{counts:?}");
        assert!(expected.iter().all(|(name, about)| counts[*name].abs_diff(*about) < about / 2), "{counts:?}");
        assert_eq!(Schedule::default(), Schedule::mixed());
        assert_eq!(Schedule::pct(0), Schedule::pct(1));
    }

    fn all() -> [Schedule; 5] {
        [Schedule::random(), Schedule::pct(3), Schedule::pos(), Schedule::round_robin(), Schedule::mixed()]
    }

    /// The processes 0 to 2 never rest: one continues, two chat. The others have ten turns each.
    #[test]
    fn nobody_starves_once_a_schedule_is_fair() {
        for schedule in all() {
            for seed in 0..200 {
                let mut world = SmallWorld::new(6);
                let turns = fair_from(10) + 6 * 10;
                world.run(&mut schedule.chooser(seed, 10), turns, |turn| match turn.me {
                    0 => true,
                    me @ 1..=2 => {
                        turn.sends.push((3 - me, 0));
                        false
                    }
                    _ => turn.nth < 9,
                });
                let done = (3..6).filter(|me| world.turns().contains(&(*me, 9))).count();
                assert_eq!(done, 3, "{schedule} {seed}");
            }
        }
    }

    #[test]
    fn priorities_alone_do_starve() {
        let starved = (0..200).filter(|seed| {
            let mut world = SmallWorld::new(2);
            world.run(&mut Schedule::pct(1).chooser(*seed, 10), fair_from(10), |turn| turn.me == 0);
            world.turns().iter().all(|(me, _)| *me == 0)
        });
        assert!(starved.count() > 50);
    }

    #[test]
    fn round_robin_gives_each_process_a_turn_before_any_has_two() {
        for seed in 0..100 {
            let turns = run_five(Schedule::round_robin(), seed);
            let rounds: Vec<BTreeSet<u32>> =
                turns.chunks(5).map(|round| round.iter().map(|(me, _)| *me).collect()).collect();
            assert!(rounds.iter().all(|round| round.len() == 5), "{turns:?}");
        }
    }

    /// Of the orders of n independent first turns, each is as likely as any other.
    #[test]
    fn partial_order_sampling_samples_orders_evenly() {
        let mut counts = BTreeMap::new();
        for seed in 0..24_000 {
            let mut world = SmallWorld::new(4);
            world.run(&mut Schedule::pos().chooser(seed, 4), 4, |_| false);
            *counts.entry(world.turns()).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| count.abs_diff(1_000) < 200), "{counts:?}");
    }

    /// Of a message that is held back and two turns of its receiver, the message is last in a third of the orders if
    /// priorities are drawn anew after the first turn. If it kept its low priority, it would be last more often.
    #[test]
    fn what_races_with_an_event_gets_a_new_priority() {
        let held = Candidate { item: Item::Delivery(pid(1), pid(0)), nth: 0 };
        let turn = |nth| Candidate { item: Item::Turn(pid(0)), nth };
        let (mut first, mut last) = (0, 0);
        for seed in 0..40_000 {
            let mut pos = Pos { seed, redraws: BTreeMap::from([(pid(0), 0)]) };
            if pos.next(&[turn(0), held]) == 0 {
                first += 1;
                last += u32::from(pos.next(&[turn(1), held]) == 0);
            }
        }
        assert!(u32::abs_diff(first, 20_000) < 600, "{first}");
        // Half of those. With the old priority it would be two thirds.
        assert!(last.abs_diff(first / 2) < 600, "{last} of {first}");
    }

    #[test]
    fn chances_are_as_given() {
        let mut chooser = Schedule::random().chooser(1, 0);
        let mut count = |odds| (0..10_000).map(|nth| chooser.decide(Place::Value { nth }, odds)).sum::<u64>();
        assert_eq!(count(Odds::Chance(0.0)), 0);
        assert_eq!(count(Odds::Chance(1.0)), 10_000);
        assert!(count(Odds::Chance(0.25)).abs_diff(2_500) < 300);
        assert_eq!(count(Odds::Below(1)), 0);
        assert!(count(Odds::Below(11)).abs_diff(50_000) < 1_500);
        assert_eq!(count(Odds::Several(0.0)), 0);
        // Two in the mean.
        assert!(count(Odds::Several(0.5)).abs_diff(10_000) < 600);
        let answers: Vec<u64> =
            (0..10_000).map(|nth| chooser.decide(Place::Value { nth }, Odds::Several(1.0))).collect();
        let share = |wanted| answers.iter().filter(|answer| **answer == wanted).count();
        assert!(share(1).abs_diff(5_000) < 300 && share(2).abs_diff(2_500) < 300 && share(6) > 50, "{}", share(6));
    }
}
