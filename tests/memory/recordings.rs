//! Statements 43 and 48 of the simulation: processes that are not recorded, and damaged recordings, need little memory.

use procession::recording::{Recorder, Recording};
use procession::{Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::futures::live_bytes;
use crate::helpers::hold_up;
use crate::mutated::*;
use crate::resident::*;
use crate::wait::wait;

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
            let before = live_bytes();
            let builder = Runtime::builder().workers(1);
            let builder = if let Some(recorder) = recorder { builder.recorder(recorder) } else { builder };
            let runtime = builder.start().unwrap();
            // The only worker is held up, so both runtimes have all messages waiting at one time.
            let (holder, blocker) = hold_up(&runtime);
            (0..PROCESSES).for_each(|number| {
                let process = runtime.spawn(Resting).unwrap();
                runtime.send(&process, number).unwrap();
            });
            drop(blocker);
            wait(&holder);
            runtime.wait_idle().unwrap();
            assert_eq!(runtime.stats().processes, PROCESSES);
            (live_bytes() - before, runtime)
        };
        // Both runtimes live to the end.
        let ((plain, _plain), (recorded, _recorded)) =
            (grown(None), grown(Some(Recorder::to(drop).process::<Other>())));
        println!("{plain} bytes without a recorder, {recorded} bytes with one");
        // Less than a byte for each process.
        assert!(plain.abs_diff(recorded) < PROCESSES, "{plain} bytes, and {recorded} bytes with a recorder");
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

#[test]
fn a_file_of_many_small_frames_needs_little_memory() {
    alone(|| {
        const FRAMES: usize = 300_000;
        let about = bodies(&recorded()).swap_remove(0);
        let steps = std::iter::repeat_n((2, Vec::new()), FRAMES);
        let bytes = sealed(&std::iter::once(about).chain(steps).collect::<Vec<_>>());
        let (length, before) = (bytes.len(), live_bytes());
        let recording = Recording::from_bytes(bytes).unwrap();
        assert_eq!(recording.steps(), FRAMES);
        let more = live_bytes().saturating_sub(before);
        assert!(more < 10_000, "{more} bytes beside a file of {length}");
    });
}
