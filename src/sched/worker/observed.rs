//! The steps of a worker for figures by type, for a watchdog, and for traces.
//!
//! Each step has a number. For most steps, the worker only counts. When such a step begins, the worker compares its
//! number with that of the next step that begins with a *look*. When it returns, the worker compares its number with
//! that of the last step about which something was noted.
//!
//! In a look, the worker reads the clock if it is time, and prepares the step for the watchdog and for traces. With a
//! watchdog, or with traces, each step begins with a look.
//!
//! | at the beginning of a step | noted for its return |
//! |---|---|
//! | it is timed | when it began |
//! | its messages have marks | the marks, which are taken out of the mailbox |
//! | there is a watchdog, or the step may have a span | that there is more to do |
//!
//! A step may begin and not return: its process is ended, or its body is lost. The next step has another number, so
//! the notes about the lost step do not count for it.

use super::Own;
use crate::pid::Pid;
use crate::primitives::Ordering;
use crate::process::StepActivity;
use crate::sched::body::{Kind, Ready, StepOutput, Stepped, Verdict};
use crate::sched::figures::{RecentRows, Timing};
use crate::sched::road::Road;
use crate::sched::step_waits::StepWaits;

/// A worker reads the clock at least once in this many steps. So the times that other threads see are recent.
const STEPS_A_LOOK_AT_THE_CLOCK: u32 = 32;

/// The state with which a worker observes its steps.
pub(super) struct Observed {
    /// The type of the current step.
    pub(super) kind: Option<&'static Kind>,
    rows: RecentRows,
    /// The last step whose return is to be handled.
    noted: u32,
    /// The next step at which the clock is read if none before it is timed.
    clock_at: u32,
    /// Decides which steps are timed, if the runtime has figures by type.
    timing: Option<Timing>,
    /// The marks of messages whose waits are measured, during a step.
    waits: StepWaits,
    /// The step to which the marks belong.
    marked: u32,
    /// Whether each step begins with a look.
    looks_always: bool,
}

impl Observed {
    pub(super) fn new(road: &Road, worker: usize) -> Observed {
        let directory = road.directory.as_ref();
        Observed {
            kind: None,
            rows: RecentRows::default(),
            noted: 0,
            clock_at: 1,
            timing: directory.map(|directory| Timing::new(directory.time_one_in, worker, 1)),
            waits: StepWaits::default(),
            marked: 0,
            looks_always: road.exact_times || road.stuck_steps.is_some() || road.propagator.is_some(),
        }
    }
}

impl Own {
    /// As `shows_step_of`, for a step that may be timed, watched or traced, or at which the clock is to be read.
    #[inline(never)]
    pub(super) fn begins_with_a_look(&mut self, pid: Pid, body: &mut Ready) {
        self.road.prepare_span(body);
        if self.is_watched {
            self.pulse_stops();
            self.view.sight.note(StepActivity::Step);
        }
        self.looks_at_the_clock();
        self.shows_step_of(pid);
        if self.is_watched {
            self.beat += 1;
            // Ordering: Release, so that a watchdog that sees this beat sees the process of the step.
            self.view.beat.store(self.beat, Ordering::Release);
        }
    }

    /// Reads the clock if it is time, and decides when the next look is.
    fn looks_at_the_clock(&mut self) {
        let (step, observed) = (self.steps, &mut self.observed);
        let timing = observed.timing.as_mut();
        let timed = timing.filter(|timing| timing.next == step);
        if timed.is_some() || step == observed.clock_at || self.road.exact_times {
            let now = self.road.now_nanos();
            self.now = now / 1_000;
            self.view.since.store(now, Ordering::Relaxed);
            observed.clock_at = step.wrapping_add(STEPS_A_LOOK_AT_THE_CLOCK);
            if let Some(timing) = timed {
                timing.begins(now);
                observed.noted = step;
            }
        }
        let until = |next: u32| next.wrapping_sub(step);
        let next = match &observed.timing {
            _ if observed.looks_always => 1,
            Some(timing) => until(timing.next).min(until(observed.clock_at)),
            None => until(observed.clock_at),
        };
        self.look_at = step.wrapping_add(next);
        if self.is_watched || self.road.propagator.is_some() {
            observed.noted = step;
        }
    }

    /// Takes the marks out of a mailbox that has some. Some may belong to messages that came since the step began.
    #[cold]
    pub(super) fn takes_marks(&mut self, body: &mut Ready) {
        let observed = &mut self.observed;
        if observed.marked != self.steps {
            observed.waits.forget();
        }
        observed.waits.take_marks(&self.road, body);
        if observed.waits.has_marks() {
            (observed.marked, observed.noted) = (self.steps, self.steps);
        }
    }

    /// Puts the marks of a step that does not take place back into the mailbox.
    pub(super) fn puts_marks_back(&mut self, body: &mut Ready) {
        if self.observed.marked == self.steps {
            self.observed.waits.put_back(body);
        }
    }

    /// Handles the return of a step for the figures, and all that was noted about it.
    #[inline(never)]
    pub(super) fn returned_observed(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) {
        // The calls that are not inlined are tail calls, so the usual case saves no registers.
        if !self.counts_by_type(out, stepped) {
            return self.returned_otherwise(body, out, stepped);
        }
        if self.observed.noted == self.steps {
            self.returned_noted(body, out, stepped);
        }
    }

    /// Counts a step with nothing unusual, and its messages. Otherwise returns `false` and counts nothing.
    #[inline]
    fn counts_by_type(&mut self, out: &mut StepOutput, stepped: Stepped) -> bool {
        let Some(row) = self.observed.kind.and_then(|kind| self.observed.rows.get(kind)) else { return false };
        let is_usual = stepped.verdict != Verdict::Broken && out.counted.is_empty() && out.passes_waits();
        if is_usual {
            row.steps.add_alone(1);
            row.messages.add_alone(u64::from(stepped.taken));
        }
        is_usual
    }

    /// As `returned_observed`, for a step with something unusual, or without figures.
    #[inline(never)]
    fn returned_otherwise(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) {
        if let (Some(figures), Some(kind)) = (&self.view.counters.figures, self.observed.kind) {
            let rows = &mut self.observed.rows;
            let row = match rows.get(kind) {
                Some(row) => row,
                None => rows.add(figures, kind),
            };
            figures.stepped(Some(row), kind, out, stepped);
        }
        if self.observed.noted == self.steps {
            self.returned_noted(body, out, stepped);
        }
    }

    /// Handles what was noted about a step that has returned.
    #[inline(never)]
    fn returned_noted(&mut self, body: &mut Ready, out: &mut StepOutput, stepped: Stepped) {
        self.road.finish_span(body, out);
        if self.is_watched {
            self.view.sight.note(StepActivity::AfterStep);
        }
        let (step, observed) = (self.steps, &mut self.observed);
        let (Some(figures), Some(timing)) = (&self.view.counters.figures, &observed.timing) else { return };
        let row = observed.kind.and_then(|kind| observed.rows.get(kind));
        if let (Some(began), Some(kind)) = (timing.began(step), observed.kind) {
            figures.timed(row, kind, self.road.now_nanos().saturating_sub(began));
        }
        if observed.marked == step {
            observed.waits.returned((figures, row), body, stepped);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::outcome::Exit;
    use crate::primitives::locks;
    use crate::process::{Address, Event, Events, Process, Step, StepOutput, StepResult, Upgrade};
    use crate::runtime::{MetricsOptions, Runtime, RuntimeBuilder};
    use crate::sched::count::Count;
    use crate::sched::search::Searcher as _;
    use crate::sched::worker::Worker;

    /// Each of its steps takes a microsecond.
    struct Microseconds<F>(F);

    impl<F: FnMut() -> Step<()> + Send + 'static> Process for Microseconds<F> {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok((self.0)())
        }
    }

    #[test]
    fn looks_and_times_go_on_when_the_step_numbers_wrap() {
        for time_one_in in [1_u32, 64] {
            let manual = ManualClock::new();
            let metrics = MetricsOptions::new().time_one_in(time_one_in as usize);
            let (runtime, mut workers) = Runtime::builder().workers(1).clock(manual.clock()).metrics(metrics).by_hand();
            let worker = &mut workers[0];
            let first = u32::MAX - 40;
            (worker.own.steps, worker.own.look_at, worker.own.observed.clock_at) = (first - 1, first, first);
            worker.own.observed.timing = Some(Timing::new(time_one_in, 0, first));
            let (view, mut steps) = (worker.own.view.clone(), 0_u64);
            let process = Microseconds(move || {
                let seen = view.since.load(Ordering::Relaxed);
                assert!(steps * 1_000 - seen < u64::from(STEPS_A_LOOK_AT_THE_CLOCK) * 1_000, "step {steps}: {seen}");
                manual.advance(Duration::from_micros(1));
                steps += 1;
                if steps == 400 { Step::Done(()) } else { Step::Continue }
            });
            let handle = runtime.spawn(process).unwrap();
            while let Some(ready) = worker.at_hand() {
                worker.take_up(ready);
            }
            assert!(handle.is_finished());
            let mut timing = Timing::new(time_one_in, 0, first);
            let timed = (0..400).filter(|step| {
                let is_timed = timing.next == first.wrapping_add(*step);
                is_timed.then(|| timing.begins(0));
                is_timed
            });
            let timed = timed.count() as u64;
            let row = worker.own.view.counters.figures.as_ref().and_then(|figures| figures.look(0)).unwrap();
            assert!(timed > 3);
            assert_eq!((row.steps.get(), row.time.get()), (400, timed * 1_000));
            assert_eq!(row.times.iter().map(Count::get).sum::<u64>(), timed);
            assert_eq!(row.waits.iter().map(Count::get).sum::<u64>(), 0);
        }
    }

    /// Returns each ball that has an address.
    struct Catcher;

    impl Process for Catcher {
        type Message = Option<Address<Order>>;
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, Self::Message>, out: &mut StepOutput) -> StepResult<()> {
            for event in events {
                if let Event::Message(Some(back)) = event {
                    out.send(back, Order::Back);
                }
            }
            Ok(Step::Idle)
        }
    }

    enum Order {
        Play,
        Back,
        Fail,
        SendToNobody,
    }

    /// Plays a round at each order: it sends a ball and a stream, spawns a process and counts.
    #[derive(Clone, Copy)]
    struct Player {
        catchers: [Address<Option<Address<Order>>>; 2],
        nobody: Address<u64>,
    }

    impl Process for Player {
        type Message = Order;
        type Output = ();

        fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
            Some(Upgrade::to(*self))
        }

        fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
            let [one, other] = self.catchers;
            match events.next() {
                Some(Event::Message(Order::Play)) => {
                    out.send(one, Some(out.pid().typed()));
                    (0..16).for_each(|_| out.send(other, None));
                    out.spawn(Microseconds(|| Step::Done(())))?;
                    out.count("rounds", 1);
                }
                Some(Event::Message(Order::Fail)) => return Err("as it is told".into()),
                Some(Event::Message(Order::SendToNobody)) => out.send(self.nobody, 7),
                _ => {}
            }
            Ok(Step::Idle)
        }
    }

    const ROUNDS: u64 = 500;

    /// Plays rounds, and returns the locks that were taken in them, and the readings of the clock: all of them, and
    /// those under a lock. The first rounds do not count. In each, a process is spawned from outside, too.
    fn play(order: fn() -> Order, metrics: Option<MetricsOptions>) -> (u64, u64, u64) {
        let builder = Runtime::builder().workers(1).seed(1);
        let (runtime, mut workers) = metrics.into_iter().fold(builder, RuntimeBuilder::metrics).by_hand();
        let works = |worker: &mut Worker<_>| {
            while let Some(ready) = worker.at_hand() {
                worker.take_up(ready);
            }
        };
        let catchers = [(); 2].map(|()| runtime.spawn(Catcher).unwrap().address());
        let nobody = runtime.spawn(Microseconds(|| Step::Done(()))).unwrap().pid().typed();
        let player = runtime.spawn(Player { catchers, nobody }).unwrap();
        let round = |worker: &mut Worker<_>| {
            runtime.send(player.address(), order()).unwrap();
            runtime.spawn(Microseconds(|| Step::Done(()))).unwrap();
            works(worker);
        };
        (0..ROUNDS).for_each(|_| round(&mut workers[0]));
        let (taken, (read, under)) = (locks::taken(), locks::clock_readings());
        (0..ROUNDS).for_each(|_| round(&mut workers[0]));
        let (taken, now) = (locks::taken() - taken, locks::clock_readings());
        assert!(runtime.is_alive(&player));
        (taken, now.0 - read, now.1 - under)
    }

    #[test]
    fn figures_take_no_lock_and_steps_are_timed_without_one() {
        let all = || MetricsOptions::new().time_one_in(1);
        // The steps, deliveries and dead letters of one round.
        let orders: [(fn() -> Order, _); 3] =
            [(|| Order::Play, (6, 4, 0)), (|| Order::Fail, (2, 1, 1)), (|| Order::SendToNobody, (2, 1, 1))];
        for (order, (steps, deliveries, dead)) in orders {
            let (without, ..) = play(order, None);
            assert!(without > ROUNDS, "the locks of mailboxes are counted");
            // The type of the receiver of a dead letter is in its cell.
            let with = without + dead * ROUNDS;
            let timed = play(order, Some(all().wait_one_in(0)));
            assert_eq!((timed.0, timed.2), (with, 0), "{timed:?}");
            assert!(timed.1 >= 2 * steps * ROUNDS, "{timed:?}");
            assert_eq!(play(order, Some(MetricsOptions::new())).0, with);
            // The sender reads the clock under the lock of the mailbox, once for each delivery.
            let most = play(order, Some(all().wait_one_in(1)));
            assert_eq!((most.0, most.2), (with, deliveries * ROUNDS), "{most:?}");
        }
    }
}
