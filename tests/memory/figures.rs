//! The memory of figures by type.

use procession::observe::MetricsOptions;
use procession::{Event, Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};

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
