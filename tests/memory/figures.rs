//! The memory of figures by type.

use procession::observe::MetricsOptions;
use procession::{Address, Event, Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::futures::allocations;
use crate::helpers::*;
use crate::resident::*;

/// Counts what it gets, and is done at the end.
struct Counts;

impl Process for Counts {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        const NAMES: [&str; 4] = ["one", "two", "three", "four"];
        for event in events {
            match event {
                Event::Message(n) if n < 100 => out.count(NAMES[n as usize % NAMES.len()], 1),
                Event::Message(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Idles for ever.
struct Rests;

impl Process for Rests {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn a_snapshot_of_very_many_processes_needs_little_memory() {
    alone(|| {
        let runtime = builder().workers(2).metrics(MetricsOptions::new()).start().unwrap();
        let processes = match std::env::var_os("PROCESSION_FULL") {
            Some(_) => 1_000_000,
            None if resident_kib().is_some() => 100_000,
            None => 10_000,
        };
        (0..processes).for_each(|_| drop(runtime.spawn(Rests).unwrap()));
        until("all have had their first steps", || runtime.is_idle());
        forget_peak();
        let before = resident_kib();
        let snapshot = runtime.snapshot();
        assert_eq!(snapshot.types.iter().map(|one| one.living).sum::<u64>(), processes);
        if let Some((before, peak)) = before.zip(peak_kib()) {
            assert!(peak < before + 1024, "{before} KiB before, {peak} KiB at most during the snapshot");
        }
    });
}

#[test]
fn figures_of_many_steps_and_named_processes_take_no_more_memory() {
    alone(|| {
        fn round(runtime: &Runtime, round: usize) {
            let spawn = |n: usize| {
                let options = SpawnOptions::new().name(format!("{round} {n}"));
                runtime.spawn_with(Counts, options).unwrap()
            };
            let processes: Vec<_> = (0..100).map(spawn).collect();
            for process in &processes {
                (1..=100).for_each(|n| runtime.send(process.address(), n).unwrap());
            }
            processes.iter().for_each(|process| drop(join(process)));
            drop(runtime.snapshot().to_openmetrics());
        }
        let metrics = MetricsOptions::new().time_one_in(1).wait_one_in(1);
        let runtime = builder().workers(2).metrics(metrics).start().unwrap();
        (0..50).for_each(|n| round(&runtime, n));
        let before = resident_kib();
        (50..550).for_each(|n| round(&runtime, n));
        assert_grown_by_at_most(1024, before);
        until("all steps are counted", || runtime.snapshot().types[0].messages == 550 * 100 * 100);
        assert_eq!(runtime.snapshot().types[0].counted.len(), 4);
    });
}

/// A message of a type of its own. The last one of a round is answered.
struct Ball<const N: usize> {
    back: Option<Address<Back>>,
    _load: [u64; N],
}

impl<const N: usize> Ball<N> {
    fn new(back: Option<Address<Back>>) -> Ball<N> {
        Ball { back, _load: [0; N] }
    }
}

struct Back;

/// Answers balls. Each number is a type of process.
struct Catcher<const N: usize>;

impl<const N: usize> Process for Catcher<N> {
    type Message = Ball<N>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ball<N>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Ball { back: Some(back), .. }) = event {
                out.send(back, Back);
            }
        }
        Ok(Step::Idle)
    }
}

/// Plays one round after the other: it sends a ball to two processes, and a stream of them to a third one. Its output
/// is the number of allocations of all rounds after the first ones.
struct Player {
    catchers: (Address<Ball<1>>, Address<Ball<2>>, Address<Ball<3>>),
    missing: u32,
    round: u64,
    before: u64,
}

const STREAM: u64 = 16;
const FIRST_ROUNDS: u64 = 4_000;
const ROUNDS: u64 = 20_000;

/// The most allocations of other threads meanwhile.
const OF_OTHERS: u64 = 100;

impl Process for Player {
    type Message = Back;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Back>, out: &mut StepOutput) -> StepResult<u64> {
        self.missing -= events.filter(|event| matches!(event, Event::Message(_))).count() as u32;
        if self.missing > 0 {
            return Ok(Step::Idle);
        }
        self.round += 1;
        if self.round == FIRST_ROUNDS {
            self.before = allocations();
        } else if self.round == FIRST_ROUNDS + ROUNDS {
            return Ok(Step::Done(allocations() - self.before));
        }
        let back = Some(out.pid().typed());
        let (one, two, three) = self.catchers;
        out.send(one, Ball::new(back));
        out.send(two, Ball::new(back));
        (1..=STREAM).for_each(|n| out.send(three, Ball::new(back.filter(|_| n == STREAM))));
        out.count("rounds", 1);
        self.missing = 3;
        Ok(Step::Idle)
    }
}

/// Plays, and returns the number of allocations, and the number of messages whose waits were measured.
fn play(metrics: Option<MetricsOptions>) -> (u64, u64) {
    let builder = builder().workers(1);
    let runtime = metrics.into_iter().fold(builder, |builder, metrics| builder.metrics(metrics)).start().unwrap();
    let (one, two, three) = (Catcher::<1>, Catcher::<2>, Catcher::<3>);
    let (one, two, three) = (runtime.spawn(one).unwrap(), runtime.spawn(two).unwrap(), runtime.spawn(three).unwrap());
    let catchers = (one.address(), two.address(), three.address());
    let player = runtime.spawn(Player { catchers, missing: 0, round: 0, before: 0 }).unwrap();
    let allocations = **crate::wait::wait(&player).output().unwrap();
    let measured = runtime.snapshot().types.iter().map(|one| one.wait_times.count).sum();
    (allocations, measured)
}

#[test]
fn figures_of_a_step_allocate_for_measured_messages_only() {
    alone(|| {
        let (without, _) = play(None);
        let (unmeasured, _) = play(Some(MetricsOptions::new().time_one_in(1).wait_one_in(0)));
        let (with, measured) = play(Some(MetricsOptions::new()));
        let (most, most_measured) = play(Some(MetricsOptions::new().wait_one_in(1)));
        assert!(unmeasured.abs_diff(without) <= OF_OTHERS, "{unmeasured} allocations, {without} without figures");
        // For the signals of a mailbox, or a list of its marks.
        for (with, measured) in [(with, measured), (most, most_measured)] {
            let bound = without + measured + OF_OTHERS;
            assert!(with <= bound, "{with} allocations for {measured} measured messages, {without} without figures");
        }
    });
}
