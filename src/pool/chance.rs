//! Random programs against the ledger's invariant, and its sums.

#![cfg(all(test, not(loom)))]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::ledger::Ledger;
use super::seat::Seat;
use super::words::{Before, Claim, Hands, Limits, Next, Placed, PoolStatus, Refusal};
use crate::clock::{Clock, Deadline};

const SECOND: Duration = Duration::from_secs(1);

/// What a random program does to a ledger.
#[derive(Clone, Copy, Debug)]
enum Act {
    Submit,
    /// Some worker with nothing in hand asks.
    Next(usize),
    JobEnded(usize),
    /// The same, and the worker runs code of the user's before it looks for the next job.
    GoesAway(usize),
    IsBack(usize),
    Withdraw(u64),
    Pause,
    Resume(usize),
    Resize(usize, usize),
    Later,
    StartFails(bool),
    Drain,
    Stop,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => Just(Act::Submit),
        16 => any::<usize>().prop_map(Act::Next),
        10 => any::<usize>().prop_map(Act::JobEnded),
        2 => any::<usize>().prop_map(Act::GoesAway),
        3 => any::<usize>().prop_map(Act::IsBack),
        2 => (0..60_u64).prop_map(Act::Withdraw),
        1 => Just(Act::Pause),
        2 => any::<usize>().prop_map(Act::Resume),
        2 => (0..3_usize, 1..4_usize).prop_map(|(min, more)| Act::Resize(min, min + more)),
        3 => Just(Act::Later),
        1 => any::<bool>().prop_map(Act::StartFails),
        1 => Just(Act::Drain),
        1 => Just(Act::Stop),
    ]
}

/// The workers as the ledger must believe them to be.
#[derive(Default)]
struct Model {
    free: Vec<Seat>,
    // With the number of the job that it is started with, as long as that can fail.
    busy: Vec<(Seat, Option<u64>)>,
    away: Vec<Seat>,
    pauses: VecDeque<u64>,
    given_back: u64,
    start_failed: bool,
    // Workers that were called and have not looked since.
    called: Vec<Seat>,
    // Workers that rest with a limit.
    watches: Vec<Seat>,
}

fn follow(model: &mut Model, hands: &Hands) {
    // Who is called is free in any case; who is started comes to be.
    (0..hands.start).for_each(|_| model.free.push(Seat::new()));
    model.called.extend(hands.wake.iter().cloned());
}

/// A worker with nothing in hand asks what to do, and does that.
fn look(
    ledger: &mut Ledger<u32>,
    model: &mut Model,
    seat: Seat,
    before: Before,
    now: Instant,
) -> Result<(), TestCaseError> {
    for list in [&mut model.called, &mut model.watches] {
        list.retain(|other| !other.is(&seat));
    }
    match ledger.next(&seat, before, || now) {
        Next::Run(_, hands) => {
            follow(model, &hands);
            model.busy.push((seat, None));
        }
        Next::Linger => {
            prop_assert!(before == Before::Job, "once");
            // It comes back from that before anything else here.
            look(ledger, model, seat, Before::Lingering, now)?;
        }
        Next::Rest(deadline, watcher) => {
            model.called.extend(watcher);
            if deadline != Deadline::NEVER {
                model.watches.push(seat.clone());
            }
            model.free.push(seat);
        }
        Next::Leave(hands) => {
            follow(model, &hands);
            let hands = ledger.left();
            follow(model, &hands);
        }
    }
    Ok(())
}

/// The invariant on top of the ledger, and the sums.
fn check(ledger: &Ledger<u32>, model: &Model) -> Result<(), TestCaseError> {
    let awake = model.free.iter().filter(|seat| !seat.rests()).count();
    prop_assert_eq!(ledger.workers, model.free.len() + model.busy.len() + model.away.len());
    prop_assert_eq!(ledger.running, model.busy.len());
    let open = ledger.pauses.open(ledger.waiting());
    let nobody_more = ledger.resting().is_empty() && (model.start_failed || ledger.workers >= ledger.limits.max);
    prop_assert!(open == 0 || awake > 0 || nobody_more, "{open} may begin, and nobody is awake");
    let sum = ledger.finished
        + (ledger.running + ledger.nested + ledger.waiting()) as u64
        + ledger.abandoned
        + ledger.withdrawn;
    prop_assert_eq!(ledger.submitted, sum);
    prop_assert_eq!(ledger.abandoned, model.given_back);
    prop_assert!(ledger.status == PoolStatus::Running || ledger.pauses.is_empty());
    Ok(())
}

/// Every worker that is awake or was called looks, until none is left. All that may begin has begun then.
fn come_to_rest(ledger: &mut Ledger<u32>, model: &mut Model, now: Instant) -> Result<(), TestCaseError> {
    let is_called = |model: &Model, seat: &Seat| model.called.iter().any(|other| other.is(seat));
    while let Some(place) = model.free.iter().position(|seat| !seat.rests() || is_called(model, seat)) {
        let seat = model.free.swap_remove(place);
        look(ledger, model, seat, Before::Rest, now)?;
        check(ledger, model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_what_may_begin_has_somebody_who_comes(
        acts in prop::collection::vec(act(), 1..120),
        bound in prop::option::of(0..4_usize),
        idles in any::<bool>(),
    ) {
        let idle_period = idles.then_some(SECOND);
        let mut now = Clock::system().now();
        let mut ledger = Ledger::new(Limits { bound, idle_period, min: 1, max: 3, blocks: false }, now);
        let mut model = Model::default();
        let mut highest = 3;
        for act in acts {
            match act {
                Act::Submit => match ledger.submit(1, |job| job, Claim::Comes) {
                    Ok((number, Placed::StartWith(_))) => model.busy.push((Seat::new(), Some(number))),
                    Ok((_, Placed::Start)) => model.free.push(Seat::new()),
                    Ok((_, Placed::Wake(seat))) => prop_assert!(model.free.iter().any(|other| other.is(&seat))),
                    Ok((_, Placed::Queued { .. })) => {}
                    Err((_, refusal)) => {
                        prop_assert!(refusal != Refusal::Full || bound.is_some());
                    }
                },
                Act::Next(which) if !model.free.is_empty() => {
                    let seat = model.free.swap_remove(which % model.free.len());
                    let before = if which % 2 == 0 && !seat.rests() { Before::Job } else { Before::Rest };
                    look(&mut ledger, &mut model, seat, before, now)?;
                }
                Act::JobEnded(which) if !model.busy.is_empty() => {
                    ledger.job_ended(which % 7 == 0, false);
                    let (seat, _) = model.busy.swap_remove(which % model.busy.len());
                    model.free.push(seat);
                }
                Act::GoesAway(which) if !model.busy.is_empty() => {
                    ledger.job_ended(false, false);
                    let (seat, _) = model.busy.swap_remove(which % model.busy.len());
                    let hands = ledger.goes_away();
                    follow(&mut model, &hands);
                    model.away.push(seat);
                }
                Act::IsBack(which) if !model.away.is_empty() => {
                    ledger.is_back();
                    let seat = model.away.swap_remove(which % model.away.len());
                    model.free.push(seat);
                }
                Act::Withdraw(number) => drop(ledger.withdraw(number)),
                Act::Pause => model.pauses.extend(ledger.pause()),
                Act::Resume(which) if !model.pauses.is_empty() => {
                    let id = model.pauses.remove(which % model.pauses.len()).unwrap();
                    let hands = ledger.resume(id);
                    follow(&mut model, &hands);
                }
                Act::Resize(min, max) => {
                    highest = highest.max(max);
                    let hands = ledger.resize(min, max);
                    follow(&mut model, &hands);
                }
                Act::Later => now += SECOND,
                Act::StartFails(with_job) => {
                    let job = if with_job {
                        let Some(place) = model.busy.iter().position(|(_, number)| number.is_some()) else { continue };
                        model.busy.swap_remove(place).1
                    } else {
                        let Some(place) = model.free.iter().position(|seat| !seat.rests() && !seat.comes()) else { continue };
                        model.free.swap_remove(place);
                        None
                    };
                    let alone = ledger.start_failed(job.is_some());
                    if let Some(number) = job.filter(|_| !alone) {
                        let _ = ledger.wait_in_line(number, 1, |job| job);
                    }
                    if alone {
                        model.given_back += ledger.give_up().len() as u64;
                    }
                    model.called.extend(ledger.sleepers());
                    model.start_failed = true;
                }
                Act::Drain => {
                    let hands = ledger.drain();
                    follow(&mut model, &hands);
                }
                Act::Stop => model.given_back += ledger.stop().len() as u64,
                Act::Next(_) | Act::JobEnded(_) | Act::GoesAway(_) | Act::IsBack(_) | Act::Resume(_) => {}
            }
            check(&ledger, &model)?;
            prop_assert!(ledger.workers <= highest);
        }
        while let Some(seat) = model.away.pop() {
            ledger.is_back();
            model.free.push(seat);
        }
        // A worker that is at a job sees to the watch when it rests.
        loop {
            come_to_rest(&mut ledger, &mut model, now)?;
            let Some((seat, _)) = model.busy.pop() else { break };
            ledger.job_ended(false, false);
            model.free.push(seat);
        }
        // While more rest than may stay, the bottom watches the time; and so it goes on until the minimum is left.
        let mut periods = 0;
        loop {
            let surplus = ledger.workers > ledger.limits.min && ledger.pauses.is_empty();
            let surplus = surplus && ledger.status == PoolStatus::Running;
            let Some(bottom) = ledger.resting().first().filter(|_| surplus && idles).cloned() else { break };
            prop_assert!(model.watches.iter().any(|seat| seat.is(&bottom)), "the bottom watches the time");
            (now, periods) = (now + SECOND, periods + 1);
            prop_assert!(periods < 20, "it does not shrink");
            model.called.push(bottom);
            come_to_rest(&mut ledger, &mut model, now)?;
        }
    }
}
