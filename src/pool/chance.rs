//! Random programs against the ledger's invariant, and its sums.

#![cfg(all(test, not(loom)))]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::ledger::Ledger;
use super::seat::Seat;
use super::words::{Before, Claim, Hands, Limits, Next, Placed, PoolStatus, Refusal};
use crate::clock::Clock;

const SECOND: Duration = Duration::from_secs(1);

/// What a random program does to a ledger.
#[derive(Clone, Copy, Debug)]
enum Act {
    Submit,
    /// Some worker with nothing in hand asks.
    Next(usize),
    JobEnded(usize),
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
        2 => (0..60_u64).prop_map(Act::Withdraw),
        1 => Just(Act::Pause),
        2 => any::<usize>().prop_map(Act::Resume),
        1 => (0..3_usize, 1..4_usize).prop_map(|(min, more)| Act::Resize(min, min + more)),
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
    pauses: VecDeque<u64>,
    given_back: u64,
    start_failed: bool,
}

fn follow(model: &mut Model, hands: &Hands) {
    // Who is called is free in any case; who is started comes to be.
    (0..hands.start).for_each(|_| model.free.push(Seat::new()));
}

/// A worker with nothing in hand asks what to do, and does that.
fn look(
    ledger: &mut Ledger<u32>,
    model: &mut Model,
    seat: Seat,
    before: Before,
    now: Instant,
) -> Result<(), TestCaseError> {
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
        Next::Rest(..) => model.free.push(seat),
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
    prop_assert_eq!(ledger.workers, model.free.len() + model.busy.len());
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
                    let _ = ledger.sleepers();
                    model.start_failed = true;
                }
                Act::Drain => {
                    let hands = ledger.drain();
                    follow(&mut model, &hands);
                }
                Act::Stop => model.given_back += ledger.stop().len() as u64,
                Act::Next(_) | Act::JobEnded(_) | Act::Resume(_) => {}
            }
            check(&ledger, &model)?;
            prop_assert!(ledger.workers <= highest);
        }
        // Who is awake looks, and so does who comes for that, until nobody is awake: all that may begin has begun, then.
        while let Some(place) = model.free.iter().position(|seat| !seat.rests()) {
            let seat = model.free.swap_remove(place);
            look(&mut ledger, &mut model, seat, Before::Rest, now)?;
            check(&ledger, &model)?;
        }
    }
}
