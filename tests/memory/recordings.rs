//! Statements 43 and 48 of the simulation: processes that are not recorded, and damaged recordings, need little memory.

use procession::recording::Recorder;
use procession::{Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::mutated::*;
use crate::resident::*;

/// Rests.
struct Resting;

impl Process for Resting {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

/// A type that is recorded. No process has it.
struct Other;

impl Process for Other {
    type Message = u64;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

#[test]
fn a_recorder_of_other_types_costs_a_process_no_memory() {
    alone(|| {
        const PROCESSES: u64 = 100_000;
        let grown = |recorder: Option<Recorder>| {
            let before = resident_kib();
            let builder = Runtime::builder().workers(1);
            let builder = if let Some(recorder) = recorder { builder.recorder(recorder) } else { builder };
            let runtime = builder.start().unwrap();
            (0..PROCESSES).for_each(|number| {
                let process = runtime.spawn(Resting).unwrap();
                runtime.send(&process, number).unwrap();
            });
            runtime.wait_idle().unwrap();
            assert_eq!(runtime.stats().processes, PROCESSES);
            resident_kib().zip(before).map(|(after, before)| (runtime, after - before))
        };
        // All runtimes live to the end, so none gets the memory of an earlier one.
        let _first = grown(None);
        let (plain, recorded) = (grown(None), grown(Some(Recorder::to(drop).process::<Other>())));
        if let Some(((_plain, plain), (_recorded, recorded))) = plain.zip(recorded) {
            println!("{plain} KiB without a recorder, {recorded} KiB with one");
            // Four bytes for each process.
            assert!(plain.abs_diff(recorded) < PROCESSES * 4 / 1024, "{plain} KiB, and {recorded} KiB with a recorder");
        }
    });
}

#[test]
fn mutated_files_need_little_memory() {
    alone(|| {
        read_mutated(200);
        forget_peak();
        let before = resident_kib();
        read_mutated(mutated_count());
        if let Some((before, peak)) = before.zip(peak_kib()) {
            println!("{before} KiB before, {peak} KiB at most");
            assert!(peak < before + 5 * 1024, "{before} KiB before, {peak} KiB at most");
        }
    });
}
