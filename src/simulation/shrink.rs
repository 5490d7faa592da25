//! Shrinking: the fewest deviations with which a run still fails in the same way.
//!
//! The deviations are taken in four classes, because the ones that explain a failure least go first: faults, the
//! order, drawn values, time. In each class, whole parts are left out, first all, then halves, then ever smaller
//! ones (delta debugging, Zeller and Hildebrandt 2002). Then the times of turns are merged. At last each single
//! deviation is left out once more, until none can be: without any one of those that are left, the run passes, or
//! another check fails.

use std::collections::BTreeSet;
use std::ops::Range;

use super::decision::{LONGEST_TURN, Place};
use super::tape::{Deviation, Tape};

/// How a run of a part of the tape ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The check that failed in the first run failed again.
    Same,
    /// Another check failed.
    Other,
    Passes,
}

/// The result of shrinking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shrunk {
    pub(crate) tape: Tape,
    /// How many runs it took.
    pub(crate) runs: u32,
    /// Whether no deviation can be left out. If not, the limit of runs was reached.
    pub(crate) is_minimal: bool,
}

/// Leaves out deviations as long as the same check fails. `run` runs a tape, at most `most_runs` times.
///
/// The whole tape is not run: the caller has found that it fails.
pub(crate) fn shrink(tape: &Tape, most_runs: u32, run: impl FnMut(&Tape) -> Verdict) -> Shrunk {
    let mut search = Search { all: tape.deviations.clone(), runs: 0, most_runs, failed: BTreeSet::new(), run };
    let all: Vec<usize> = (0..tape.deviations.len()).collect();
    let (kept, is_minimal) = match search.shrink(all) {
        Ok(kept) => (kept, true),
        Err(LimitReached(kept)) => (kept, false),
    };
    Shrunk { tape: search.tape(&kept), runs: search.runs, is_minimal }
}

/// The classes in the order in which they are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Fault,
    Order,
    Value,
    Time,
}

const CLASSES: [Class; 4] = [Class::Fault, Class::Order, Class::Value, Class::Time];

fn class_of(deviation: &Deviation) -> Class {
    match deviation {
        Deviation::Before { .. } => Class::Order,
        Deviation::Answer { place, .. } => match place {
            Place::Fault { .. } => Class::Fault,
            Place::Pause { .. } | Place::Events { .. } | Place::Hold { .. } => Class::Order,
            Place::Value { .. } => Class::Value,
            Place::Time { .. } => Class::Time,
        },
    }
}

/// No more runs are allowed. Has the deviations that are kept.
struct LimitReached(Vec<usize>);

struct Search<F> {
    all: Vec<Deviation>,
    runs: u32,
    most_runs: u32,
    /// The parts of the tape that have been run and are not enough, as the places of their deviations.
    failed: BTreeSet<Vec<usize>>,
    run: F,
}

impl<F: FnMut(&Tape) -> Verdict> Search<F> {
    fn tape(&self, kept: &[usize]) -> Tape {
        Tape { deviations: kept.iter().map(|place| self.all[*place]).collect() }
    }

    fn shrink(&mut self, all: Vec<usize>) -> Result<Vec<usize>, LimitReached> {
        if all.is_empty() {
            return Ok(all);
        }
        // Often the dull run fails already, or the order alone is the cause.
        let mut kept = all;
        if self.without(&mut kept, |_| true)? {
            return Ok(kept);
        }
        for class in CLASSES {
            self.shrink_class(&mut kept, class)?;
        }
        self.merge_times(&mut kept)?;
        self.remove_single(&mut kept)?;
        if self.lower_answers(&mut kept)? {
            self.remove_single(&mut kept)?;
        }
        Ok(kept)
    }

    /// Leaves out ever smaller parts of one class.
    fn shrink_class(&mut self, kept: &mut Vec<usize>, class: Class) -> Result<(), LimitReached> {
        let count =
            |search: &Self, kept: &[usize]| kept.iter().filter(|place| class_of(&search.all[**place]) == class).count();
        let mut size = count(self, kept);
        while size > 0 {
            let mut from = 0;
            while from < count(self, kept) {
                if !self.without_part(kept, class, from..from + size)? {
                    from += size;
                }
            }
            size /= 2;
        }
        Ok(())
    }

    /// Leaves out the deviations of a class whose numbers among those of the class are in this range.
    fn without_part(&mut self, kept: &mut Vec<usize>, class: Class, part: Range<usize>) -> Result<bool, LimitReached> {
        let of_class = kept.iter().filter(|place| class_of(&self.all[**place]) == class);
        let left_out: Vec<usize> = of_class.skip(part.start).take(part.len()).copied().collect();
        self.without(kept, |place| left_out.binary_search(&place).is_ok())
    }

    /// Moves the time of a turn to an earlier turn. So a few long turns tell a failure that needs a moment.
    fn merge_times(&mut self, kept: &mut Vec<usize>) -> Result<(), LimitReached> {
        let time = |search: &Self, place: usize| match search.all[place] {
            Deviation::Answer { place: of @ Place::Time { .. }, answer } => Some((of, answer)),
            _ => None,
        };
        let times: Vec<usize> = kept.iter().copied().filter(|place| time(self, *place).is_some()).collect();
        let mut to = 0;
        for from in 1..times.len() {
            let (place, next) = (times[to], times[from]);
            let (Some((of, answer)), Some((_, more))) = (time(self, place), time(self, next)) else { continue };
            let part: Vec<usize> = kept.iter().copied().filter(|one| *one != next).collect();
            let sum = (answer + more).min(LONGEST_TURN - 1);
            self.all[place] = Deviation::Answer { place: of, answer: sum };
            match self.fails(&part) {
                Ok(true) => {
                    *kept = part;
                    self.failed.clear();
                }
                Ok(false) => {
                    self.all[place] = Deviation::Answer { place: of, answer };
                    to = from;
                }
                Err(_) => {
                    self.all[place] = Deviation::Answer { place: of, answer };
                    return Err(LimitReached(kept.clone()));
                }
            }
        }
        Ok(())
    }

    /// Leaves out each single deviation until a whole round has removed none.
    fn remove_single(&mut self, kept: &mut Vec<usize>) -> Result<(), LimitReached> {
        let (mut next, mut needed) = (0, 0);
        while needed < kept.len() {
            // From the end: a late deviation is seldom what others depend on.
            let place = kept[kept.len() - 1 - next % kept.len()];
            if self.without(kept, |one| one == place)? {
                needed = 0;
            } else {
                needed += 1;
                next += 1;
            }
        }
        Ok(())
    }

    /// Lowers the answers that are still there. Returns whether one was lowered.
    fn lower_answers(&mut self, kept: &mut [usize]) -> Result<bool, LimitReached> {
        let mut has_lowered = false;
        for number in 0..kept.len() {
            let place = kept[number];
            let Deviation::Answer { place: of, answer: most } = self.all[place] else { continue };
            // The least one that is not dull, or by halves between one that is too low and one that is not.
            let (mut too_low, mut enough, mut next) = (0, most, 1);
            while next < enough {
                self.all[place] = Deviation::Answer { place: of, answer: next };
                let fails = self.fails(kept);
                self.all[place] = Deviation::Answer { place: of, answer: enough };
                if fails? {
                    self.all[place] = Deviation::Answer { place: of, answer: next };
                    enough = next;
                    has_lowered = true;
                    // They were run with the old answer.
                    self.failed.clear();
                } else {
                    too_low = next;
                }
                next = too_low + (enough - too_low).div_ceil(2);
            }
        }
        Ok(has_lowered)
    }

    /// Leaves out these deviations if the same check still fails. Returns whether it does.
    fn without(&mut self, kept: &mut Vec<usize>, is_left_out: impl Fn(usize) -> bool) -> Result<bool, LimitReached> {
        let part: Vec<usize> = kept.iter().copied().filter(|place| !is_left_out(*place)).collect();
        if part.len() == kept.len() || self.failed.contains(&part) {
            return Ok(false);
        }
        let fails = self.fails(&part).map_err(|_| LimitReached(kept.clone()))?;
        if fails {
            *kept = part;
        } else {
            self.failed.insert(part);
        }
        Ok(fails)
    }

    fn fails(&mut self, part: &[usize]) -> Result<bool, LimitReached> {
        if self.runs == self.most_runs {
            return Err(LimitReached(part.to_vec()));
        }
        self.runs += 1;
        let tape = self.tape(part);
        Ok((self.run)(&tape) == Verdict::Same)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::decision::{Candidate, Choose, Item, Odds};
    use super::super::schedule::Schedule;
    use super::super::small_world::{SmallWorld, pid};
    use super::super::tape::{Recorder, Replayed};
    use super::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    fn answer(place: Place, answer: u64) -> Deviation {
        Deviation::Answer { place, answer }
    }

    /// Forty deviations of each class, in no order of the classes.
    fn mixed_tape() -> Tape {
        let one = |nth: u32| {
            let of = pid(nth);
            let turn = |nth| Candidate { item: Item::Turn(of), nth };
            [
                answer(Place::Time { turn: nth }, 7),
                answer(Place::Fault { rule: 0, of, nth }, 1),
                Deviation::Before { first: turn(1), head: turn(0) },
                answer(Place::Value { nth }, 9),
            ]
        };
        Tape { deviations: (0..40).flat_map(one).collect() }
    }

    fn same_if(fails: bool) -> Verdict {
        if fails { Verdict::Same } else { Verdict::Passes }
    }

    /// Fails unless the tape is minimal: without any one of its deviations, the same check does not fail.
    fn assert_minimal(tape: &Tape, mut run: impl FnMut(&Tape) -> Verdict) {
        assert_eq!(run(tape), Verdict::Same);
        for place in 0..tape.deviations.len() {
            let mut part = tape.clone();
            part.deviations.remove(place);
            assert_ne!(run(&part), Verdict::Same, "{:?} is not needed", tape.deviations[place]);
        }
    }

    #[test]
    fn exactly_what_is_needed_is_kept() {
        let all = mixed_tape();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for count in 0..6 {
            for _ in 0..20 {
                let needed: BTreeSet<_> =
                    (0..count).map(|_| all.deviations[random.random_range(0..all.deviations.len())]).collect();
                // All answers can be lowered to one.
                let has = |tape: &Tape, one: &Deviation| match one {
                    Deviation::Before { .. } => tape.deviations.contains(one),
                    Deviation::Answer { place, .. } => {
                        let is_it = |one: &Deviation| matches!(one, Deviation::Answer { place: of, .. } if of == place);
                        tape.deviations.iter().any(is_it)
                    }
                };
                let run = |tape: &Tape| same_if(needed.iter().all(|one| has(tape, one)));
                let shrunk = shrink(&all, 2_000, run);
                assert!(shrunk.is_minimal);
                assert_eq!(shrunk.tape.deviations.len(), needed.len());
                assert_minimal(&shrunk.tape, run);
                assert!(shrunk.runs < 200, "{} runs for {needed:?}", shrunk.runs);
            }
        }
    }

    /// A failure that depends on no part in particular: any two of three groups, if there is an even number of one.
    #[test]
    fn the_result_is_minimal_if_parts_depend_on_each_other() {
        let all = mixed_tape();
        for salt in 0..50_u64 {
            let run = |tape: &Tape| {
                let group = |number: u64| {
                    let is_of = |one: &&Deviation| {
                        let place = all.deviations.iter().position(|other| other == *one);
                        place.is_some_and(|place| (place as u64 * 7 + salt) % 11 == number)
                    };
                    tape.deviations.iter().filter(is_of).count()
                };
                let (one, two, three) = (group(0), group(1), group(2));
                let fails = one > 1 && two > 0 || two > 2 && three % 2 == 1 || three > 3 && three % 2 == 0 && one > 0;
                if fails {
                    Verdict::Same
                } else if one > 3 {
                    Verdict::Other
                } else {
                    Verdict::Passes
                }
            };
            if run(&all) == Verdict::Same {
                let shrunk = shrink(&all, 5_000, run);
                assert!(shrunk.is_minimal);
                assert_minimal(&shrunk.tape, run);
            }
        }
    }

    /// Of two causes, the one that explains more is kept: time is left out last, and faults first.
    #[test]
    fn the_classes_are_left_out_in_their_order() {
        let all = mixed_tape();
        for (first, second) in [(1, 2), (1, 3), (1, 0), (2, 3), (2, 0), (3, 0)] {
            let (first, second) = (all.deviations[first], all.deviations[second]);
            let class = |tape: &Tape, class| tape.deviations.iter().any(|one| class_of(one) == class);
            let run = |tape: &Tape| same_if(class(tape, class_of(&first)) || class(tape, class_of(&second)));
            let shrunk = shrink(&all, 2_000, run).tape;
            assert_eq!(shrunk.deviations.len(), 1);
            assert!(class_of(&shrunk.deviations[0]) == class_of(&second), "{first:?} {second:?}");
        }
    }

    #[test]
    fn a_failure_of_another_check_does_not_count() {
        let all = mixed_tape();
        let wanted = all.deviations[5];
        let run = |tape: &Tape| {
            if tape.deviations.contains(&wanted) { Verdict::Same } else { Verdict::Other }
        };
        assert_eq!(shrink(&all, 2_000, run).tape.deviations, [wanted]);
    }

    #[test]
    fn answers_are_as_low_as_they_can_be() {
        let tape =
            Tape { deviations: vec![answer(Place::Value { nth: 0 }, 1_000_000), answer(Place::Time { turn: 1 }, 3)] };
        let drawn = |tape: &Tape| {
            let mut replayed = Replayed::new(tape, 10);
            replayed.decide(Place::Value { nth: 0 }, Odds::Below(u64::MAX))
        };
        for least in [1, 2, 3, 999, 1_000, 999_999, 1_000_000] {
            let shrunk = shrink(&tape, 2_000, |tape| same_if(drawn(tape) >= least));
            assert_eq!(shrunk.tape.deviations, [answer(Place::Value { nth: 0 }, least)]);
            assert!(shrunk.runs < 40, "{}", shrunk.runs);
        }
    }

    #[test]
    fn no_more_runs_are_made_than_are_allowed() {
        let all = mixed_tape();
        let needed = [all.deviations[3], all.deviations[50], all.deviations[101]];
        let fails = |tape: &Tape| needed.iter().all(|one| tape.deviations.contains(one));
        let whole = shrink(&all, 2_000, |tape| same_if(fails(tape)));
        for most in 0..whole.runs {
            let mut runs = 0;
            let shrunk = shrink(&all, most, |tape| {
                runs += 1;
                same_if(fails(tape))
            });
            assert_eq!((runs, shrunk.runs, shrunk.is_minimal), (most, most, false));
            assert!(fails(&shrunk.tape));
        }
        assert_eq!(shrink(&all, whole.runs, |tape| same_if(fails(tape))), whole);
        assert_eq!(shrink(&Tape::default(), 0, |_| Verdict::Passes).runs, 0);
    }

    /// Two clients read a count and write it back. The second one begins later. Four others chat.
    fn update_twice(choose: &mut dyn Choose) -> (bool, usize) {
        let mut world = SmallWorld::new(7);
        let mut count = 0;
        const READ: u64 = 1_000;
        const WRITE: u64 = 2_000;
        world.run(choose, 400, |turn| {
            match (turn.me, turn.message) {
                (0, Some((client, READ))) => turn.sends.push((client, count)),
                (0, Some((_, written))) => count = written - WRITE,
                (1 | 2, Some((0, read))) => turn.sends.push((0, WRITE + read + 1)),
                (1, _) if turn.nth == 0 => turn.sends.push((0, READ)),
                (2, _) if turn.nth == 6 => turn.sends.push((0, READ)),
                (me @ 3.., _) if turn.nth < 8 => turn.sends.push(((me - 2) % 4 + 3, 0)),
                _ => {}
            }
            turn.me == 2 && turn.nth < 6
        });
        (count < 2, world.turns().len())
    }

    #[test]
    fn a_lost_update_is_nearly_always_told_by_one_deviation() {
        let run = |tape: &Tape| same_if(update_twice(&mut Replayed::new(tape, 60)).0);
        assert_eq!(run(&Tape::default()), Verdict::Passes);
        let mut found = [0; 4];
        for schedule in [Schedule::random(), Schedule::pct(2), Schedule::pct(3), Schedule::pos()] {
            for seed in 0..300 {
                let mut recorder = Recorder::new(schedule.chooser(seed, 60));
                if update_twice(&mut recorder).0 {
                    let tape = recorder.into_tape();
                    assert_eq!(run(&tape), Verdict::Same);
                    let shrunk = shrink(&tape, 2_000, run);
                    assert!(shrunk.is_minimal);
                    assert_minimal(&shrunk.tape, run);
                    found[shrunk.tape.deviations.len()] += 1;
                    assert!(shrunk.runs <= 200, "{}", shrunk.runs);
                }
            }
        }
        // One is enough. Of several that are minimal together, each is needed with the others.
        assert_eq!(found[0], 0);
        assert!(found[1] > 200 && found[1] > 20 * (found[2] + found[3]), "{found:?}");
    }
}
