//! Holds messages of steps, and delivers them. `delivery` says when.

use super::decision::{Choose as _, Odds, Place};
use super::delivery::{Delivery, Pair};
use super::entries::Entry;
use super::executor::WorldExecutor;
use super::shared::Shared;
use crate::inside::as_step;
use crate::outcome::contain;
use crate::pid::Pid;
use crate::sched::outbox::Outbox;
use crate::sched::road::Executor as _;

/// The probability that a message is held.
const HOLD: f64 = 0.2;

impl Shared {
    /// Decides whether these messages are held, and takes them if they are.
    pub(super) fn hold(&self, outbox: &mut Outbox, (lane, count): (u32, u32), pair: Pair) -> bool {
        let (_, from, to) = pair;
        if self.delivery == Delivery::Immediate || from == to {
            return false;
        }
        let state = &mut *self.state();
        let nth = state.held.sent.entry(pair).or_default();
        *nth += 1;
        let place = Place::Hold { from, to, nth: *nth };
        let waits = state.held.pairs.contains_key(&pair);
        let is_held = waits
            || !state.is_ending
                && !state.helped.contains(&pair.0)
                && state.failure.is_none()
                && state.chooser.decide(place, Odds::Chance(HOLD)) == 1;
        if !is_held {
            return false;
        }
        state.fold.add(&[7, from.to_word(), to.to_word(), u64::from(count)]);
        if state.recorder.is_recording() {
            state.recorder.note(Some(from), format!("held: {count} to {to}"));
        }
        let lanes = state.held.pairs.entry(pair).or_default();
        lanes.extend((0..count).map(|_| outbox.lane(lane).split_off_first()));
        if !waits {
            state.entries.push(Entry::Delivery(pair));
        }
        true
    }

    /// Delivers the oldest held message of a pair.
    pub(super) fn deliver_next(&self, pair: Pair) {
        let next = self.state().held.pop(pair);
        let Some(mut lane) = next else { return };
        let (runtime, from, to) = pair;
        let core = self.state().cores[runtime].clone();
        let mut executor = WorldExecutor::new(self, runtime, &core, (from, 0));
        executor.count(|counters| &counters.accepted, 1);
        // Dead letters are shown to code of the user.
        let _ = as_step(true, || contain(|| core.road.deliver(&mut executor, &mut *lane, 1, (from, to), |_| ())));
    }

    /// Delivers the next message of this entry. If others wait behind it, they can be next.
    pub(super) fn deliver_entry(&self, pair: Pair) {
        self.state().fold.add(&[8, pair.1.to_word(), pair.2.to_word()]);
        self.deliver_next(pair);
        let state = &mut *self.state();
        if state.held.pairs.contains_key(&pair) {
            state.entries.push(Entry::Delivery(pair));
        }
    }

    /// Delivers all held messages that are `wanted`, pair by pair.
    pub(super) fn deliver_held(&self, wanted: impl Fn(&Pair) -> bool) {
        if self.delivery == Delivery::Immediate {
            return;
        }
        loop {
            let pair = {
                let state = &mut *self.state();
                let pair = state.held.pairs.keys().copied().find(&wanted);
                pair.into_iter().for_each(|pair| state.entries.remove_delivery(pair));
                pair
            };
            let Some(pair) = pair else { return };
            while self.state().held.pairs.contains_key(&pair) {
                self.deliver_next(pair);
            }
        }
    }

    /// Delivers what the process in hand has sent to this one, before it answers it directly.
    pub(super) fn deliver_before_answer(&self, runtime: usize, to: Pid) {
        let from = self.state().in_hand.last().filter(|(_, number, _)| *number == runtime).map(|(pid, ..)| *pid);
        from.into_iter().for_each(|from| self.deliver_held(|pair| *pair == (runtime, from, to)));
    }
}
