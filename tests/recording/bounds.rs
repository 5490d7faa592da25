//! A recording has bounds. With snapshots it can always be replayed.

use std::time::Duration;

use procession::recording::ReplayError;
use procession::{Handle, Runtime, SpawnOptions};

use crate::wait::wait;
use crate::walker::{Op, Saved, Sink, Walker, opened, replayer};

/// Takes so many steps.
fn steps(runtime: &Runtime, walker: &Handle<Walker>, count: u64) {
    for number in 0..count {
        runtime.send(walker.address(), Op::Add(number)).unwrap();
        if number % 3 == 0 {
            runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
        }
    }
}

#[test]
fn a_recording_that_is_not_whole_is_refused_by_its_first_step() {
    let saved = Saved::default();
    let runtime = Runtime::builder().workers(1).recorder(saved.recorder().ring(500)).start().unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    steps(&runtime, &walker, 100);
    assert!(runtime.recording_usage().1 <= 500, "{:?}", runtime.recording_usage());
    runtime.save_recording(&walker).unwrap();
    let recording = opened(&saved.one());
    let first = recording.first_step().unwrap().unwrap();
    assert!(first > 10, "{first}");
    let error = recording.replay(&replayer(), Walker::new).unwrap_err();
    assert_eq!(error, ReplayError::NotWhole { first });
    assert!(error.to_string().contains(&format!("whole from step {first} on only")), "{error}");
}

#[test]
fn with_snapshots_a_recording_can_always_be_replayed() {
    let saved = Saved::default();
    let runtime = Runtime::builder().workers(1).recorder(saved.with_snapshots().ring(700)).start().unwrap();
    let sink = runtime.spawn(Sink).unwrap();
    let options = SpawnOptions::new().entry("with", sink.pid());
    let walker = runtime.spawn_with(Walker::new(), options).unwrap();
    let mut from_snapshots = 0;
    for _ in 0..30 {
        steps(&runtime, &walker, 10);
        runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
        assert!(runtime.recording_usage().1 <= 700);
        runtime.save_recording(&walker).unwrap();
        let recording = opened(&saved.one());
        let memory = if recording.begins_with_snapshot() {
            from_snapshots += 1;
            let mut replay = recording.replay_snapshot::<Walker>(&replayer()).unwrap();
            replay.run().unwrap();
            replay.process().unwrap().memory
        } else {
            let mut replay = recording.replay(&replayer(), Walker::new).unwrap();
            replay.run().unwrap();
            replay.process().unwrap().memory
        };
        assert_ne!(memory, 0);
    }
    assert!(from_snapshots >= 25, "{from_snapshots}");
    // The position of the random numbers is that of the snapshot.
    runtime.send(walker.address(), Op::Look).unwrap();
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    runtime.save_recording(&walker).unwrap();
    let recording = opened(&saved.one());
    recording.replay_snapshot::<Walker>(&replayer()).unwrap().run().unwrap();
    // Asked for the wrong way round.
    runtime.save_recording(&walker).unwrap();
    let refused = opened(&saved.one()).replay(&replayer(), Walker::new);
    assert!(matches!(refused, Err(ReplayError::OtherBeginning { .. })));
}

#[test]
fn all_recordings_together_stay_below_their_total() {
    let saved = Saved::default();
    let recorder = saved.recorder().ring(4_000).total(10_000).save_at_end();
    let runtime = Runtime::builder().workers(2).recorder(recorder).start().unwrap();
    let walkers: Vec<Handle<Walker>> = (0..20).map(|_| runtime.spawn(Walker::new()).unwrap()).collect();
    for round in 0..50 {
        for walker in &walkers {
            runtime.send(walker.address(), Op::Add(round)).unwrap();
        }
        runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
        let (count, bytes) = runtime.recording_usage();
        assert!(count == 20 && bytes <= 10_000, "{count} {bytes}");
    }
    for walker in &walkers {
        runtime.send(walker.address(), Op::Done).unwrap();
        wait(walker);
    }
    assert_eq!(saved.take().len(), 20);
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(runtime.recording_usage(), (0, 0));
}
