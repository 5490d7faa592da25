//! Relations over the connection of two drivers, in good and bad weather.

use super::*;
use crate::counts::counts;
use crate::outcome::{Exit, Reason};
use crate::process::SpawnOptions;
use crate::wait::wait;

/// The events that a process has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    downs: usize,
    exits: usize,
    answers: usize,
}

/// Relates itself to another process, and counts its events.
struct Related {
    to: Option<Pid>,
    told: Arc<Mutex<Told>>,
}

impl Process for Related {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(to) = self.to.take() {
            out.monitor(to);
            out.link(to);
            out.cancel(to, "it does not matter");
        }
        for event in events {
            let mut told = lock(&self.told);
            match event {
                Event::Down(_) => told.downs += 1,
                Event::Exit(_) => told.exits += 1,
                Event::Completed(_) => told.answers += 1,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A process, and its events.
type Spawned = (Handle<Related>, Arc<Mutex<Told>>);

impl World {
    fn related(&self, at: usize, to: Option<Pid>) -> Spawned {
        let told = Arc::<Mutex<Told>>::default();
        let related = Related { to, told: told.clone() };
        let handle = self.ends[at].side.runtime.spawn_with(related, SpawnOptions::new().trap_exits());
        (handle.unwrap(), told)
    }

    fn ends_it(&self, at: usize, handle: &Handle<Related>) {
        let _ = self.ends[at].side.runtime.terminate(handle.pid());
    }
}

#[test]
fn signals_are_never_refused_for_want_of_room() {
    let mut world = world();
    let notes = Notes::default();
    let sink = world.ends[1].side.runtime.spawn(Sink(notes.clone())).unwrap();
    let far = world.far(sink.address());
    let (target, _) = world.related(1, None);
    let far_target = world.far(target.address()).pid();
    world.ends[1].is_stopped = true;
    let send = |world: &World| world.ends[0].side.runtime.send(far, Large(1, vec![1; 10_000]));
    while send(&world).is_ok() {
        world.run();
    }
    // The messages are refused, and the signals are not.
    let (_related, told) = world.related(0, Some(far_target));
    world.run();
    assert_eq!(world.ends[0].side.runtime.terminate(far_target), Ok(true));
    assert!(send(&world).is_err());
    world.ends[1].is_stopped = false;
    world.run();
    assert!(matches!(wait(&target).without_output(), Exit::Terminated(Reason::Terminated)));
    assert_eq!(*lock(&told), Told { downs: 1, exits: 1, answers: 1 });
}

/// Fails if the next connection restores a monitor or a link that the break has ended.
#[test]
fn relations_that_a_break_has_ended_are_not_restored_by_a_heal() {
    let mut world = world();
    let pairs = [0; 2].map(|_| {
        let target = world.related(1, None);
        let far = world.far(target.0.address()).pid();
        (far, target, world.related(0, Some(far)))
    });
    world.run();
    world.pass(Duration::from_secs(2), &mut || false);
    assert_eq!(world.is_up(), [false; 2]);
    let [(far, (target, _), (_related, told)), (_, (_target, target_told), (related, _))] = pairs;
    let is_told = |told: &Mutex<Told>| assert_eq!(*lock(told), Told { downs: 1, exits: 1, answers: 1 });
    let is_told_of_link = |told: &Mutex<Told>| assert_eq!(*lock(told), Told { downs: 0, exits: 1, answers: 0 });
    is_told(&told);
    is_told_of_link(&target_told);
    world.pass(Duration::from_secs(2), &mut || true);
    assert_eq!(world.is_up(), [true; 2]);
    // A new relation is told of the end.
    let (_again, again) = world.related(0, Some(far));
    world.run();
    world.ends_it(1, &target);
    world.ends_it(0, &related);
    world.pass(Duration::from_secs(1), &mut || true);
    assert!(target.is_finished() && related.is_finished());
    is_told(&again);
    is_told(&told);
    is_told_of_link(&target_told);
    for end in &world.ends {
        assert_eq!(end.inward.up.as_ref().unwrap().connection.relations(), (0, 0, 0));
    }
}

/// A link that loses frames now and then. Each relation is told once, and in the end nothing is left.
#[test]
fn in_bad_weather_each_relation_is_told_once_and_nothing_is_left() {
    let seeds = counts(6, 1_000);
    for seed in 0..seeds {
        relate_in_bad_weather(seed);
    }
}

fn relate_in_bad_weather(seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut world = world();
    let numbers = [0, 1].map(|at: usize| world.ends[at].inward.up.as_ref().unwrap().connection.there().node);
    let mut targets: Vec<Vec<_>> = (0..2).map(|at| (0..4).map(|_| world.related(at, None).0).collect()).collect();
    let mut related: [Vec<Spawned>; 2] = Default::default();
    for round in 0..100_usize {
        let at = random.random_range(0..2_usize);
        let which = random.random_range(0..4);
        match random.random_range(0..6) {
            0 => {
                world.ends_it(at, &targets[at][which]);
                targets[at][which] = world.related(at, None).0;
            }
            1 if !related[at].is_empty() => {
                let ended = random.random_range(0..related[at].len());
                world.ends_it(at, &related[at].swap_remove(ended).0);
            }
            _ => {
                let pid = targets[1 - at][which].pid();
                let far = Pid::new(numbers[at], pid.slot(), pid.generation());
                related[at].push(world.related(at, far));
            }
        }
        let mut weather = || random.random_range(0..100) != 0;
        match MILLIS * [0, 0, 10, 30, 300][round % 5] {
            Duration::ZERO => world.run_in(&mut weather),
            time => world.pass(time, &mut weather),
        }
    }
    world.pass(Duration::from_secs(5), &mut || true);
    assert_eq!(world.is_up(), [true; 2], "seed {seed}");
    (0..2).for_each(|at| targets[at].iter().for_each(|target| world.ends_it(at, target)));
    world.pass(Duration::from_secs(1), &mut || true);
    for (_, told) in related.iter().flatten() {
        assert_eq!(*lock(told), Told { downs: 1, exits: 1, answers: 1 }, "seed {seed}");
    }
    (0..2).for_each(|at| related[at].iter().for_each(|(handle, _)| world.ends_it(at, handle)));
    world.pass(Duration::from_secs(1), &mut || true);
    for end in &world.ends {
        let connection = &end.inward.up.as_ref().unwrap().connection;
        assert_eq!((connection.relations(), connection.open_questions()), ((0, 0, 0), (0, 0)), "seed {seed}");
        assert_eq!(end.side.runtime.core().relations.len(), 0, "seed {seed}");
    }
}
