//! Tapes: the decisions of a run that are not dull.
//!
//! A [`Recorder`] notes them, a [`Replayed`] chooser makes them again. A tape with all of them gives the same run.
//! A tape with some of them gives another one: a decision that does not occur any more is passed over, and all others
//! are dull. So a tape never jams.
//!
//! The order of a run is kept as constraints: "the third turn of this process is before the fifth of that". The item
//! that has to wait is the oldest one at that moment, so it would be next in a dull run. Replayed, it waits until the
//! other one has happened. Meanwhile the process of the other one goes first. While that is not possible, the rest goes
//! on in dull order. So one constraint is enough to delay one process long, or to hurry another one.

use std::collections::BTreeMap;

use super::decision::{Candidate, Choose, Odds, Place};
use super::schedule::fair_from;

/// A decision that is not dull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Deviation {
    /// This item was chosen while another one was the oldest.
    Before { first: Candidate, head: Candidate },
    /// This answer, which is not zero, was given.
    Answer { place: Place, answer: u64 },
}

/// The deviations of a run, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tape {
    pub(crate) deviations: Vec<Deviation>,
}

/// Notes the deviations of another chooser.
#[derive(Debug)]
pub(crate) struct Recorder<C> {
    inner: C,
    tape: Tape,
    /// The items that others went before, each with the number of the first turn of another one.
    passed_over: BTreeMap<Candidate, u32>,
    came_late: bool,
    choices: u32,
}

impl<C: Choose> Recorder<C> {
    pub(crate) fn new(inner: C) -> Recorder<C> {
        Recorder { inner, tape: Tape::default(), passed_over: BTreeMap::new(), came_late: false, choices: 0 }
    }

    /// Whether the item that was chosen last is out of order: it was the oldest one before, and another was chosen.
    pub(crate) fn came_late(&self) -> bool {
        self.came_late
    }

    /// The items that others went before, and that have not come since. Each has the number of the first turn of
    /// another one. The first turn is 1.
    pub(crate) fn never_came(&self) -> impl Iterator<Item = (Candidate, u32)> + '_ {
        self.passed_over.iter().map(|(candidate, choice)| (*candidate, *choice))
    }

    /// A turn comes that nobody has chosen.
    pub(crate) fn count_turn(&mut self) {
        self.choices += 1;
        self.came_late = false;
    }

    pub(crate) fn into_tape(self) -> Tape {
        self.tape
    }
}

impl<C: Choose> Choose for Recorder<C> {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        let place = self.inner.next(candidates);
        let (first, head) = (candidates[place], candidates[0]);
        self.choices += 1;
        if place != 0 {
            self.passed_over.entry(head).or_insert(self.choices);
            self.tape.deviations.push(Deviation::Before { first, head });
        }
        self.came_late = self.passed_over.remove(&first).is_some();
        place
    }

    fn decide(&mut self, place: Place, odds: Odds) -> u64 {
        let answer = self.inner.decide(place, odds);
        if answer != 0 {
            self.tape.deviations.push(Deviation::Answer { place, answer });
        }
        answer
    }
}

/// Makes the decisions of a tape again.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Sorted by the head. Those of one head are in the order of the tape.
    constraints: Vec<Constraint>,
    /// The places in `constraints`, sorted by the item that is first.
    by_first: Vec<u32>,
    /// How many constraints still hold.
    pending: usize,
    /// Sorted by the place. The last answer for a place counts.
    answers: Vec<(Place, u64)>,
    turn: u32,
    /// From here on nothing waits. A schedule makes no deviation of the order from here on either.
    fair_from: u32,
}

#[derive(Debug)]
struct Constraint {
    first: Candidate,
    head: Candidate,
    is_pending: bool,
}

impl Replayed {
    /// Makes a chooser for one run. `turns` is as for the schedule that the tape was recorded of.
    pub(crate) fn new(tape: &Tape, turns: u32) -> Replayed {
        let (mut constraints, mut answers) = (Vec::new(), Vec::new());
        for deviation in &tape.deviations {
            match *deviation {
                Deviation::Before { first, head } => constraints.push(Constraint { first, head, is_pending: true }),
                Deviation::Answer { place, answer } => answers.push((place, answer)),
            }
        }
        // Both sorts are stable.
        constraints.sort_by_key(|one| one.head);
        answers.sort_by_key(|(place, _)| *place);
        let mut by_first: Vec<u32> = (0..constraints.len() as u32).collect();
        by_first.sort_by_key(|one| constraints[*one as usize].first);
        let pending = constraints.len();
        Replayed { constraints, by_first, pending, answers, turn: 0, fair_from: fair_from(turns) }
    }

    /// Returns the place of the candidate that is next by the constraints.
    fn choose(&self, candidates: &[Candidate]) -> usize {
        if self.pending == 0 {
            return 0;
        }
        for (place, candidate) in candidates.iter().enumerate() {
            match self.awaited_by(candidate) {
                None => return place,
                // An earlier turn of the same process brings it nearer.
                Some(first) => {
                    let is_on_way = |one: &Candidate| one.item == first.item && one.nth <= first.nth;
                    if let Some(place) = candidates.iter().position(is_on_way) {
                        return place;
                    }
                }
            }
        }
        // Each one waits for something that cannot happen now.
        0
    }

    /// Returns the item that has to happen before this one.
    fn awaited_by(&self, head: &Candidate) -> Option<Candidate> {
        let from = self.constraints.partition_point(|one| one.head < *head);
        let of_head = self.constraints[from..].iter().take_while(|one| one.head == *head);
        of_head.filter(|one| one.is_pending).map(|one| one.first).next()
    }

    fn happened(&mut self, item: &Candidate) {
        let from = self.by_first.partition_point(|one| self.constraints[*one as usize].first < *item);
        for place in from..self.by_first.len() {
            let constraint = &mut self.constraints[self.by_first[place] as usize];
            if constraint.first != *item {
                break;
            }
            self.pending -= usize::from(std::mem::take(&mut constraint.is_pending));
        }
    }
}

impl Choose for Replayed {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        if self.pending == 0 || self.turn >= self.fair_from {
            return 0;
        }
        self.turn += 1;
        let place = self.choose(candidates);
        self.happened(&candidates[place]);
        place
    }

    fn decide(&mut self, place: Place, odds: Odds) -> u64 {
        let after = self.answers.partition_point(|(one, _)| *one <= place);
        let found = after.checked_sub(1).map(|at| self.answers[at]).filter(|(one, _)| *one == place);
        let Some((_, answer)) = found else { return 0 };
        // In a changed run, the place may have fewer answers than it had.
        match odds {
            Odds::Chance(_) => answer.min(1),
            Odds::Below(count) => answer.min(count.saturating_sub(1)),
            Odds::Several(_) => answer,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::decision::Item;
    use super::super::schedule::Schedule;
    use super::super::small_world::{SmallWorld, pid};
    use super::*;

    fn turn(me: u32, nth: u32) -> Candidate {
        Candidate { item: Item::Turn(pid(me)), nth }
    }

    fn before(first: Candidate, head: Candidate) -> Deviation {
        Deviation::Before { first, head }
    }

    /// Eight processes that send what they draw to those that they draw.
    fn run(choose: &mut dyn Choose) -> Vec<(u32, u32)> {
        let mut world = SmallWorld::new(8);
        world.run(choose, 3_000, |turn| {
            let (of, nth) = (pid(turn.me), turn.nth);
            let to = turn.choose.decide(Place::Events { of, nth }, Odds::Below(8)) as u32;
            let sends = turn.choose.decide(Place::Fault { rule: 0, of, nth }, Odds::Chance(0.9));
            (0..sends).for_each(|number| turn.sends.push((to, number)));
            turn.nth % 4 == 0 && turn.nth < 200
        });
        world.turns()
    }

    fn recorded(schedule: Schedule, seed: u64) -> (Vec<(u32, u32)>, Tape) {
        let mut recorder = Recorder::new(schedule.chooser(seed, 100));
        let turns = run(&mut recorder);
        (turns, recorder.into_tape())
    }

    #[test]
    fn a_whole_tape_gives_the_same_run() {
        let schedules = [Schedule::random(), Schedule::pct(3), Schedule::pos(), Schedule::round_robin()];
        let mut longest = 0;
        for schedule in schedules {
            for seed in 0..25 {
                let (turns, tape) = recorded(schedule, seed);
                assert_eq!(run(&mut Replayed::new(&tape, 100)), turns, "{schedule} {seed}");
                longest = longest.max(turns.len());
            }
        }
        // Some runs are longer than their schedule is free.
        assert!(longest > fair_from(100) as usize, "{longest}");
    }

    #[test]
    fn an_empty_tape_gives_the_dull_run() {
        let turns = run(&mut Replayed::new(&Tape::default(), 100));
        assert!(turns[..8].iter().map(|(me, nth)| (*me, *nth)).eq((0..8).map(|me| (me, 0))));
        let mut recorder = Recorder::new(Replayed::new(&Tape::default(), 100));
        assert_eq!(run(&mut recorder), turns);
        assert_eq!(recorder.into_tape(), Tape::default());
    }

    /// Half a tape is a tape for a run that never was.
    #[test]
    fn no_part_of_a_tape_jams() {
        for seed in 0..50 {
            let (_, tape) = recorded(Schedule::random(), seed);
            for keep in 0..4 {
                let deviations = tape.deviations.iter().enumerate().filter(|(place, _)| place % 4 != keep);
                let part = Tape { deviations: deviations.map(|(_, one)| *one).collect() };
                let turns = run(&mut Replayed::new(&part, 100));
                assert!(turns.len() >= 8);
            }
        }
    }

    /// Two processes that each wait for the other, and one that waits for a turn that never comes.
    #[test]
    fn constraints_that_cannot_be_met_do_not_jam() {
        let deviations =
            vec![before(turn(1, 0), turn(0, 0)), before(turn(0, 1), turn(1, 1)), before(turn(1, 2), turn(0, 1))];
        let mut world = SmallWorld::new(3);
        world.run(&mut Replayed::new(&Tape { deviations }, 10), 100, |turn| turn.nth < 2);
        assert_eq!(world.turns().len(), 9);

        let tape = Tape { deviations: vec![before(turn(2, 7), turn(0, 0))] };
        let mut world = SmallWorld::new(3);
        world.run(&mut Replayed::new(&tape, 10), 100, |turn| turn.nth < 1);
        // It comes when nothing else is possible.
        assert_eq!(world.turns(), [(2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1)]);

        // While another one never rests, it comes when the run is fair.
        let mut world = SmallWorld::new(2);
        world.run(&mut Replayed::new(&tape, 10), fair_from(10) + 2, |turn| turn.me == 1);
        assert_eq!(world.turns()[fair_from(10) as usize], (0, 0));
    }

    #[test]
    fn one_constraint_delays_a_process_as_long_as_it_takes() {
        let tape = Tape { deviations: vec![before(turn(2, 3), turn(0, 1))] };
        let mut recorder = Recorder::new(Replayed::new(&tape, 10));
        let mut world = SmallWorld::new(3);
        let mut late = Vec::new();
        for _ in 0..12 {
            world.run(&mut recorder, 1, |turn| turn.nth < 3);
            late.extend(world.turns().last().copied().filter(|_| recorder.came_late()));
        }
        let turns: Vec<_> = world.turns().into_iter().filter(|(me, _)| *me != 1).collect();
        assert_eq!(turns, [(0, 0), (2, 0), (2, 1), (2, 2), (2, 3), (0, 1), (0, 2), (0, 3)]);
        // Only the turn that had to wait is out of order.
        assert_eq!(late, [(0, 1)]);
    }

    #[test]
    fn several_constraints_of_one_turn_hold_in_their_order() {
        let tape = Tape { deviations: vec![before(turn(2, 0), turn(0, 0)), before(turn(1, 0), turn(0, 0))] };
        let mut world = SmallWorld::new(3);
        world.run(&mut Replayed::new(&tape, 10), 10, |_| false);
        assert_eq!(world.turns(), [(2, 0), (1, 0), (0, 0)]);
    }

    #[test]
    fn an_answer_is_one_that_its_place_has() {
        let place = |nth| Place::Value { nth };
        let answer = |nth, answer| Deviation::Answer { place: place(nth), answer };
        let tape = Tape { deviations: vec![answer(5, 9), answer(2, 4)] };
        let mut replayed = Replayed::new(&tape, 10);
        assert_eq!(replayed.decide(place(5), Odds::Below(10)), 9);
        assert_eq!(replayed.decide(place(5), Odds::Below(3)), 2);
        assert_eq!(replayed.decide(place(2), Odds::Chance(0.0)), 1);
        assert_eq!(replayed.decide(place(2), Odds::Several(0.0)), 4);
        assert_eq!(replayed.decide(place(3), Odds::Below(10)), 0);
        assert_eq!(replayed.decide(Place::Time { turn: 5 }, Odds::Below(10)), 0);
    }
}
