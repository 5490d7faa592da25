//! Which processes are recorded, and from when to when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::recording::{Codec, Input, Recordable, Recorder, SaveCause, StepEnd};
use procession::{
    Address, EntryArgs, Event, Events, Exit, InitResult, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult,
    Tag, Upgrade,
};

use crate::wait::{Mutex, wait};
use crate::walker::{Op, Saved, Sink, Walker, opened};

#[test]
fn processes_of_other_types_are_not_recorded() {
    let saved = Saved::default();
    let runtime = Runtime::builder().workers(1).recorder(saved.recorder().save_at_end()).start().unwrap();
    let sink = runtime.spawn(Sink).unwrap();
    runtime.send(sink.address(), Op::Add(1)).unwrap();
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(runtime.recording_usage(), (0, 0));
    let walker = runtime.spawn(Walker::new()).unwrap();
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(runtime.recording_usage().0, 1);
    for pid in [sink.pid(), walker.pid()] {
        runtime.cancel(pid, "over").unwrap();
    }
    wait(&sink);
    wait(&walker);
    assert_eq!(saved.take().len(), 1);
}

/// Is upgraded, or recovers, with what it has counted.
struct Phase {
    number: u64,
    count: u64,
}

impl Process for Phase {
    type Message = u64;
    type Output = u64;

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        let count = &mut self.count;
        entry
            .method("main", |(): ()| Ok(()))
            .method("from", |n: u64| {
                *count = n;
                Ok(())
            })
            .finish()
    }

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events.by_ref() {
            match event {
                Event::Message(0) => {
                    let next = Phase { number: self.number + 1, count: 0 };
                    return Ok(Step::Upgrade(Upgrade::entering(next, "from", self.count)));
                }
                Event::Message(1) => return Err("on purpose".into()),
                Event::Message(2) => return Ok(Step::Blocking),
                Event::Message(number) => {
                    self.count += number;
                    out.whereis(&self.count.to_string());
                }
                Event::Cancel(_) => return Ok(Step::Done(self.count)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<u64>> {
        Some(Upgrade::to(Phase { number: self.number + 10, count: 0 }))
    }
}

/// The recordings that were saved, with their causes.
#[derive(Clone, Default)]
struct All(Arc<Mutex<Vec<Vec<u8>>>>);

impl All {
    fn recorder(&self) -> Recorder {
        let all = self.0.clone();
        Recorder::to(move |bytes| all.lock().unwrap().push(bytes)).save_at_end()
    }

    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn each_state_machine_has_a_recording_of_its_own() {
    let all = All::default();
    let recorder = all.recorder().process::<Phase>();
    let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
    let options = SpawnOptions::new().entry("from", 5_u64);
    let phase = runtime.spawn_with(Phase { number: 0, count: 0 }, options).unwrap();
    for number in [7, 2, 8, 0, 9, 1, 10] {
        runtime.send(phase.address(), number).unwrap();
        runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    }
    runtime.cancel(phase.pid(), "over").unwrap();
    assert_eq!(wait(&phase).output().map(|count| **count), Some(10));
    let saved = all.take();
    let causes: Vec<_> = saved.iter().map(|bytes| opened(bytes).cause().unwrap()).collect();
    assert_eq!(causes, [SaveCause::Failed, SaveCause::Ended]);

    // The second machine: it began with what the first one gave it.
    let mut second = opened(&saved[0]).replay(&recorder, || Phase { number: 1, count: 0 }).unwrap();
    assert_eq!(second.run().unwrap().unwrap().end, StepEnd::Failed("on purpose".into()));
    assert_eq!(second.process().unwrap().count, 5 + 7 + 8 + 9);
    let mut third = opened(&saved[1]).replay(&recorder, || Phase { number: 11, count: 0 }).unwrap();
    assert_eq!(third.run().unwrap().unwrap().end, StepEnd::Done);
    assert_eq!(third.process().unwrap().count, 10);
}

#[test]
fn steps_on_the_pool_and_the_input_of_the_entry_are_recorded() {
    let saved = All::default();
    let recorder = saved.recorder().process::<Phase>();
    let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
    let options = SpawnOptions::new().entry("from", 5_u64);
    let phase = runtime.spawn_with(Phase { number: 0, count: 0 }, options).unwrap();
    for number in [7, 2, 8] {
        runtime.send(phase.address(), number).unwrap();
    }
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    runtime.save_recording(&phase).unwrap();
    let mut replay = opened(&saved.take()[0]).replay(&recorder, || Phase { number: 0, count: 0 }).unwrap();
    let mut ends = Vec::new();
    while let Some(step) = replay.step().unwrap() {
        ends.push(step.end);
    }
    assert!(ends.contains(&StepEnd::Blocking), "{ends:?}");
    assert_eq!(replay.process().unwrap().count, 20);
}

/// Runs a child, and is given items by a feed.
struct Parent {
    child: Option<Tag<u64>>,
    sum: u64,
}

impl Process for Parent {
    type Message = u64;
    type Output = u64;

    fn start(&mut self, out: &mut StepOutput) -> InitResult {
        let feed = out.feed::<u64>(8);
        self.child = Some(out.run(Child(out.own_address::<Parent>())));
        out.blocking(move || (1..=5_u64).for_each(|item| assert!(feed.try_put(item).is_ok())));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(number) => self.sum += number,
                Event::Completed(done) => {
                    if let Some(output) = done.take(self.child) {
                        self.sum += output?;
                    }
                }
                _ => {}
            }
        }
        if self.sum == 15 + 100 + 1_000 { Ok(Step::Done(self.sum)) } else { Ok(Step::Idle) }
    }
}

/// Sends a number, and ends with another.
struct Child(Address<u64>);

impl Process for Child {
    type Message = ();
    type Output = u64;

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<u64> {
        out.send(self.0, 100_u64);
        Ok(Step::Done(1_000))
    }
}

#[test]
fn items_of_feeds_and_outputs_of_children_are_replayed() {
    let saved = All::default();
    let recorder = saved.recorder().process::<Parent>();
    let runtime = Runtime::builder().workers(2).recorder(recorder.clone()).start().unwrap();
    let parent = runtime.spawn(Parent { child: None, sum: 0 }).unwrap();
    assert!(wait(&parent).is_done());
    let mut replay = opened(&saved.take()[0]).replay(&recorder, || Parent { child: None, sum: 0 }).unwrap();
    assert_eq!(replay.run().unwrap().unwrap().end, StepEnd::Done);
    assert_eq!(replay.process().unwrap().sum, 1_115);
}

/// Sends itself as many messages as a message says.
struct Repeater;

impl Process for Repeater {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let Event::Message(count) = event else { return Ok(Step::Done(())) };
            let me = out.own_address::<Repeater>();
            (0..count).for_each(|_| out.send(me, 0));
        }
        Ok(Step::Idle)
    }
}

/// A codec that counts the numbers that it encodes, and adds this to them.
fn counting(add: u64, count: &Arc<AtomicUsize>) -> Codec<u64> {
    let count = count.clone();
    let put = move |number: &u64, to: &mut Vec<u8>| {
        count.fetch_add(1, Ordering::Relaxed);
        (number + add).encode(to);
    };
    Codec::new(put, move |bytes| Ok(Input::new(bytes).take::<u64>()? - add))
}

#[test]
fn each_message_that_is_sent_has_the_codec_that_was_registered_last() {
    let (saved, taken, sent) = (Saved::default(), Arc::default(), Arc::default());
    let recorder = || {
        let recorder = saved.recorder().save_at_end().process_with::<Repeater>(counting(0, &taken));
        recorder.answer(counting(7, &sent))
    };
    let runtime = Runtime::builder().workers(1).recorder(recorder()).start().unwrap();
    let repeater = runtime.spawn(Repeater).unwrap();
    let mut counts = (0, 0);
    for count in [1, 2, 1, 3] {
        runtime.send(repeater.address(), count).unwrap();
        runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
        counts = (counts.0 + 1 + count as usize, counts.1 + count as usize);
        assert_eq!((taken.load(Ordering::Relaxed), sent.load(Ordering::Relaxed)), counts);
    }
    runtime.cancel(repeater.pid(), "over").unwrap();
    wait(&repeater);
    let recording = opened(&saved.take()[0]);
    recording.replay(&recorder(), || Repeater).unwrap().run().unwrap();
}
