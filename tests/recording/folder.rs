//! A folder of recordings is a test of changed code.

use procession::recording::{Recorder, Recording, ReplayError};
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::wait::wait;

/// Counts, by so much a message.
struct Counter<const BY: u64>(u64);

impl<const BY: u64> Process for Counter<BY> {
    type Message = u64;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(0) => return Err(format!("at {}", self.0).into()),
                Event::Message(number) => self.0 += number * BY,
                _ => {}
            }
        }
        out.whereis(&format!("counter-{}", self.0));
        Ok(Step::Idle)
    }
}

#[test]
fn a_folder_of_recordings_is_a_test() {
    let folder = std::env::temp_dir().join(format!("procession-folder-{}", std::process::id()));
    let recorder = Recorder::new(&folder).version("counters 1").process::<Counter<1>>();
    let runtime = Runtime::builder().workers(2).recorder(recorder.clone()).start().unwrap();
    for count in 1..=10_u64 {
        let counter = runtime.spawn(Counter::<1>(0)).unwrap();
        (1..=count).chain([0]).for_each(|number| runtime.send(counter.address(), number).unwrap());
        wait(&counter);
    }

    // The test that a user writes.
    let mut replayed = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let recording = Recording::open(file.unwrap().path()).unwrap();
        recording.replay(&recorder, || Counter::<1>(0)).unwrap().run().unwrap();
        replayed += 1;
    }
    assert_eq!(replayed, 10);

    // The same test, when the code has changed.
    let (old, new) = (std::any::type_name::<Counter<1>>(), std::any::type_name::<Counter<2>>());
    let changed = recorder.process::<Counter<2>>().renamed(old, new);
    for file in std::fs::read_dir(&folder).unwrap() {
        let recording = Recording::open(file.unwrap().path()).unwrap();
        let error = recording.replay(&changed, || Counter::<2>(0)).unwrap().run().unwrap_err();
        assert!(matches!(error, ReplayError::Differs { .. }), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
