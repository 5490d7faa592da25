//! Random programs that check the ledger's invariant and its sums.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Before, Claim, Ledger, Next, Placed, Wanted};
use crate::clock::{Clock, Deadline};
use crate::pool::limits::{Limits, PoolError, QueuePolicy};
use crate::pool::parker::Parker;
use crate::pool::stats::PoolStatus;

const SECOND: Duration = Duration::from_secs(1);

/// An action of a random program on a ledger.
#[derive(Clone, Copy, Debug)]
enum Act {
    Submit,
    /// An idle worker asks for its next action.
    Next(usize),
    JobEnded(usize),
    /// A busy worker's job ends. The worker runs user code before it asks for its next action.
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

/// The workers in the states in which the ledger must have them.
#[derive(Default)]
struct Model {
    free: Vec<Parker>,
    // Each with the number of the job that it is started with, until the start can no longer fail.
    busy: Vec<(Parker, Option<u64>)>,
    away: Vec<Parker>,
    pauses: VecDeque<u64>,
    given_back: u64,
    start_failed: bool,
    // Workers that were woken and have not checked the queue since.
    called: Vec<Parker>,
    // Parked workers with a deadline.
    watches: Vec<Parker>,
}

fn follow(model: &mut Model, wanted: &Wanted) {
    // A woken worker is free in any case. A started worker is added.
    (0..wanted.start).for_each(|_| model.free.push(Parker::new()));
    model.called.extend(wanted.wake.iter().cloned());
}

/// An idle worker asks for its next action and does it.
fn look(
    ledger: &mut Ledger<u32>,
    model: &mut Model,
    parker: Parker,
    before: Before,
    now: Instant,
) -> Result<(), TestCaseError> {
    for list in [&mut model.called, &mut model.watches] {
        list.retain(|other| !other.is(&parker));
    }
    match ledger.next(&parker, before, || now) {
        Next::Run(_, wanted) => {
            follow(model, &wanted);
            model.busy.push((parker, None));
        }
        Next::Spin => {
            prop_assert!(before == Before::Job, "once");
            // The worker returns from user code before anything else happens here.
            look(ledger, model, parker, Before::Spinning, now)?;
        }
        Next::Park(deadline, watcher) => {
            model.called.extend(watcher);
            if deadline != Deadline::NEVER {
                model.watches.push(parker.clone());
            }
            model.free.push(parker);
        }
        Next::Exit(wanted) => {
            follow(model, &wanted);
            let wanted = ledger.left();
            follow(model, &wanted);
        }
    }
    Ok(())
}

/// Checks the ledger's invariant and the sums.
fn check(ledger: &Ledger<u32>, model: &Model) -> Result<(), TestCaseError> {
    let awake = model.free.iter().filter(|parker| !parker.is_parked()).count();
    prop_assert_eq!(ledger.counts.workers, model.free.len() + model.busy.len() + model.away.len());
    prop_assert_eq!(ledger.counts.running, model.busy.len());
    let open = ledger.open(usize::MAX);
    let nobody_more = ledger.parked().is_empty() && (model.start_failed || ledger.counts.workers >= ledger.limits.max);
    prop_assert!(open == 0 || awake > 0 || nobody_more, "{open} may begin, and nobody is awake");
    let sum = ledger.counts.finished
        + (ledger.counts.running + ledger.counts.nested + ledger.waiting()) as u64
        + ledger.counts.abandoned
        + ledger.counts.withdrawn;
    prop_assert_eq!(ledger.counts.submitted, sum);
    prop_assert_eq!(ledger.counts.abandoned, model.given_back);
    prop_assert!(ledger.status == PoolStatus::Running || ledger.pauses.is_empty());
    Ok(())
}

/// Every worker that is awake or was woken checks the queue, until none is left. Then all jobs that may begin have
/// begun.
fn come_to_rest(ledger: &mut Ledger<u32>, model: &mut Model, now: Instant) -> Result<(), TestCaseError> {
    let is_called = |model: &Model, parker: &Parker| model.called.iter().any(|other| other.is(parker));
    while let Some(place) = model.free.iter().position(|parker| !parker.is_parked() || is_called(model, parker)) {
        let parker = model.free.swap_remove(place);
        look(ledger, model, parker, Before::Park, now)?;
        check(ledger, model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_that_may_begin_always_has_a_worker_that_will_run_it(
        acts in prop::collection::vec(act(), 1..120),
        bound in prop::option::of(0..4_usize),
        idles in any::<bool>(),
    ) {
        let idle_period = idles.then_some(SECOND);
        let queue = bound.map_or(QueuePolicy::Unbounded, QueuePolicy::Reject);
        let mut now = Clock::system().now();
        let mut ledger = Ledger::new(Limits { queue, idle_period, min: 1, max: 3 }, now);
        let mut model = Model::default();
        let mut highest = 3;
        for act in acts {
            match act {
                Act::Submit => match ledger.submit(1, Claim::New) {
                    Ok((number, Placed::Start(Some(_)))) => model.busy.push((Parker::new(), Some(number))),
                    Ok((_, Placed::Start(None))) => model.free.push(Parker::new()),
                    Ok((_, Placed::Wake(parker))) => prop_assert!(model.free.iter().any(|other| other.is(&parker))),
                    Ok((_, Placed::Queued { .. })) => {}
                    Err((_, refusal)) => {
                        prop_assert!(!matches!(refusal, PoolError::Full) || bound.is_some());
                    }
                },
                Act::Next(which) if !model.free.is_empty() => {
                    let parker = model.free.swap_remove(which % model.free.len());
                    let before = if which % 2 == 0 && !parker.is_parked() { Before::Job } else { Before::Park };
                    look(&mut ledger, &mut model, parker, before, now)?;
                }
                Act::JobEnded(which) if !model.busy.is_empty() => {
                    ledger.job_ended(which % 7 == 0, false);
                    let (parker, _) = model.busy.swap_remove(which % model.busy.len());
                    model.free.push(parker);
                }
                Act::GoesAway(which) if !model.busy.is_empty() => {
                    ledger.job_ended(false, false);
                    let (parker, _) = model.busy.swap_remove(which % model.busy.len());
                    let wanted = ledger.goes_away();
                    follow(&mut model, &wanted);
                    model.away.push(parker);
                }
                Act::IsBack(which) if !model.away.is_empty() => {
                    ledger.is_back();
                    let parker = model.away.swap_remove(which % model.away.len());
                    model.free.push(parker);
                }
                Act::Withdraw(number) => drop(ledger.withdraw(number)),
                Act::Pause => model.pauses.extend(ledger.pause()),
                Act::Resume(which) if !model.pauses.is_empty() => {
                    let id = model.pauses.remove(which % model.pauses.len()).unwrap();
                    let wanted = ledger.resume(id);
                    follow(&mut model, &wanted);
                }
                Act::Resize(min, max) => {
                    highest = highest.max(max);
                    let wanted = ledger.resize(min, max);
                    follow(&mut model, &wanted);
                }
                Act::Later => now += SECOND,
                Act::StartFails(with_job) => {
                    let job = if with_job {
                        let Some(place) = model.busy.iter().position(|(_, number)| number.is_some()) else { continue };
                        model.busy.swap_remove(place).1
                    } else {
                        let is_awake = |parker: &Parker| !parker.is_parked() && !parker.is_coming();
                        let Some(place) = model.free.iter().position(is_awake) else { continue };
                        model.free.swap_remove(place);
                        None
                    };
                    let _ = ledger.start_failed(job.map(|number| (number, 1)));
                    if ledger.counts.workers == 0 {
                        model.given_back += ledger.give_up().len() as u64;
                    }
                    model.called.extend(ledger.parked_wanted());
                    model.start_failed = true;
                }
                Act::Drain => {
                    let wanted = ledger.drain();
                    follow(&mut model, &wanted);
                }
                Act::Stop => model.given_back += ledger.stop().len() as u64,
                Act::Next(_) | Act::JobEnded(_) | Act::GoesAway(_) | Act::IsBack(_) | Act::Resume(_) => {}
            }
            check(&ledger, &model)?;
            prop_assert!(ledger.counts.workers <= highest);
        }
        while let Some(parker) = model.away.pop() {
            ledger.is_back();
            model.free.push(parker);
        }
        // A busy worker takes care of the deadline when it parks.
        loop {
            come_to_rest(&mut ledger, &mut model, now)?;
            let Some((parker, _)) = model.busy.pop() else { break };
            ledger.job_ended(false, false);
            model.free.push(parker);
        }
        // While more workers are parked than may stay, the bottom has a deadline. This goes on until the minimum is
        // left.
        let mut periods = 0;
        loop {
            let surplus = ledger.counts.workers > ledger.limits.min && ledger.pauses.is_empty();
            let surplus = surplus && ledger.status == PoolStatus::Running;
            let Some(bottom) = ledger.parked().first().filter(|_| surplus && idles).cloned() else { break };
            prop_assert!(model.watches.iter().any(|parker| parker.is(&bottom)), "the bottom watches the time");
            (now, periods) = (now + SECOND, periods + 1);
            prop_assert!(periods < 20, "it does not shrink");
            model.called.push(bottom);
            come_to_rest(&mut ledger, &mut model, now)?;
        }
    }
}
