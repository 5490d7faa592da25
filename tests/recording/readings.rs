//! Everything that a step reads is in its recording.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use procession::clock::ManualClock;
use procession::recording::{Recorder, StepEnd};
use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

use crate::wait::{Mutex, wait};
use crate::walker::{Op, Saved, Sink, Walker, opened, replayer};

/// Replays it, and returns what its steps have read.
fn read(bytes: &[u8]) -> Vec<&'static str> {
    let mut replay = opened(bytes).replay(&replayer(), Walker::new).unwrap();
    let mut read = Vec::new();
    while let Some(step) = replay.step().unwrap_or_else(|error| panic!("{error}")) {
        read.extend(step.read);
    }
    read
}

fn in_order(read: &[&str], wanted: &[&str]) {
    let mut all = read.iter();
    assert!(wanted.iter().all(|one| all.any(|other| other == one)), "{read:?} has not {wanted:?}");
}

/// Records a walker that is given these operations, one after the other, on a runtime with a sink.
fn recorded(ops: impl FnOnce(procession::Pid) -> Vec<Op>) -> Vec<u8> {
    let saved = Saved::default();
    let runtime = Runtime::builder().workers(1).recorder(saved.recorder().save_at_end()).start().unwrap();
    let sink = runtime.spawn(Sink).unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    for op in ops(sink.pid()) {
        runtime.send(walker.address(), op).unwrap();
    }
    runtime.send(walker.address(), Op::Done).unwrap();
    wait(&walker);
    saved.one()
}

#[test]
fn times_names_groups_and_shutting_down_are_replayed() {
    let read = read(&recorded(|_| vec![Op::Name(0), Op::Join, Op::Look, Op::Broadcast(7), Op::Member(8)]));
    in_order(
        &read,
        &[
            "a message",
            "the time",
            "the wall-clock time",
            "the holder of a name",
            "the holder of a name",
            "the holder of a name",
            "the members of a group",
            "whether the runtime shuts down",
        ],
    );
    in_order(&read, &["the receivers of a broadcast", "a member of a group"]);
}

#[test]
fn messages_that_are_passed_over_are_replayed() {
    let saved = Saved::default();
    let runtime = Runtime::builder().workers(1).recorder(saved.recorder().save_at_end()).start().unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    // It passes over the sums in two steps, and takes them in the third.
    for op in [Op::Choosy(3), Op::Add(1), Op::Add(2), Op::Spawn, Op::Done] {
        runtime.send(walker.address(), op).unwrap();
        runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    }
    wait(&walker);
    let read = read(&saved.one());
    in_order(
        &read,
        &[
            "a message",
            "a message that it passes over",
            "a message that it passes over",
            "a message that it passes over",
        ],
    );
}

/// Waits for a timer, and takes all that it is given then. Then it spawns.
struct Waiter {
    waits: bool,
    children: Vec<procession::Pid>,
}

impl Process for Waiter {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.waits, true) {
            out.after(Duration::from_millis(1));
            return Ok(Step::Wait);
        }
        let count = events.count();
        for _ in 0..3 {
            self.children.push(out.spawn(Sink)?.pid());
        }
        out.whereis(&format!("{count}"));
        Ok(Step::Done(()))
    }
}

#[test]
fn a_step_that_is_given_no_messages_and_three_pids_is_replayed() {
    let saved = Arc::new(Mutex::new(Vec::new()));
    let saves = saved.clone();
    let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes)).process::<Waiter>().save_at_end();
    let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
    let waiter = runtime.spawn(Waiter { waits: false, children: Vec::new() }).unwrap();
    assert!(wait(&waiter).is_done());
    let replay = opened(&saved.lock().unwrap()[0]).replay(&recorder, || Waiter { waits: false, children: Vec::new() });
    let mut replay = replay.unwrap();
    assert_eq!(replay.run().unwrap().unwrap().end, StepEnd::Done);
    assert_eq!(replay.process().unwrap().children.len(), 3);
}

#[test]
fn answers_and_control_signals_are_replayed() {
    let saved = Saved::default();
    let runtime = Runtime::builder().workers(1).recorder(saved.recorder().save_at_end()).start().unwrap();
    let sink = runtime.spawn(Sink).unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    let ops =
        [Op::Monitor(sink.pid()), Op::Subscribe, Op::Join, Op::AskFor(sink.pid()), Op::Timer, Op::Slow(sink.pid(), 9)];
    for op in ops {
        runtime.send(walker.address(), op).unwrap();
    }
    runtime.cancel(sink.pid(), "over").unwrap();
    wait(&sink);
    runtime.send(walker.address(), Op::Blocking(5)).unwrap();
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    runtime.cancel(walker.pid(), "over, too").unwrap();
    wait(&walker);
    let read = read(&saved.one());
    assert!(read.iter().filter(|one| **one == "a control signal").count() >= 3, "{read:?}");
    assert!(read.iter().filter(|one| **one == "an answer").count() >= 4, "{read:?}");
}

/// Replies itself, and remembers whether the asker still waited.
struct Replier {
    in_time: Vec<bool>,
}

impl Process for Replier {
    type Message = Reply<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<u64>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => {
                    let in_time = reply.send(7);
                    self.in_time.push(in_time);
                    out.whereis(if in_time { "in time" } else { "late" });
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn the_results_of_replies_are_replayed() {
    let saved = Arc::new(Mutex::new(Vec::new()));
    let saves = saved.clone();
    let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes)).process::<Replier>().save_at_end();
    let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
    let replier = runtime.spawn(Replier { in_time: Vec::new() }).unwrap();
    assert_eq!(runtime.ask(replier.address(), |reply| reply, Duration::from_secs(60)).wait().unwrap(), 7);
    // The asker gives up at once, mostly before the reply.
    drop(runtime.ask(replier.address(), |reply| reply, Duration::ZERO));
    assert_eq!(runtime.ask(replier.address(), |reply| reply, Duration::from_secs(60)).wait().unwrap(), 7);
    runtime.cancel(replier.pid(), "over").unwrap();
    wait(&replier);
    let bytes = saved.lock().unwrap().remove(0);
    let mut replay = opened(&bytes).replay(&recorder, || Replier { in_time: Vec::new() }).unwrap();
    assert_eq!(replay.run().unwrap().unwrap().end, StepEnd::Done);
    let in_time = &replay.process().unwrap().in_time;
    assert_eq!((in_time.first(), in_time.last(), in_time.len()), (Some(&true), Some(&true), 3));
}

/// Replays the recording of a [`Replier`], if it has one, before each reply that it sends itself.
struct Auditor {
    recording: Option<Vec<u8>>,
    recorder: Recorder,
    in_time: Vec<bool>,
}

impl Process for Auditor {
    type Message = Reply<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<u64>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => {
                    if let Some(bytes) = &self.recording {
                        let replayed = opened(bytes).replay(&self.recorder, || Replier { in_time: Vec::new() });
                        assert_eq!(replayed?.run()?.ok_or("there is no step")?.end, StepEnd::Done);
                    }
                    self.in_time.push(reply.send(8));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_step_that_replays_a_recording_goes_on_with_its_own_replies() {
    let saved = Arc::new(Mutex::new(Vec::new()));
    let saves = saved.clone();
    let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes))
        .process::<Replier>()
        .process::<Auditor>()
        .save_at_end();
    let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
    let limit = Duration::from_secs(60);
    let replier = runtime.spawn(Replier { in_time: Vec::new() }).unwrap();
    assert_eq!(runtime.ask(replier.address(), |reply| reply, limit).wait().unwrap(), 7);
    runtime.cancel(replier.pid(), "over").unwrap();
    wait(&replier);
    let recording = saved.lock().unwrap().remove(0);
    let auditor = |recording| Auditor { recording, recorder: recorder.clone(), in_time: Vec::new() };
    let process = runtime.spawn(auditor(Some(recording.clone()))).unwrap();
    for _ in 0..2 {
        assert_eq!(runtime.ask(process.address(), |reply| reply, limit).wait().unwrap(), 8);
    }
    runtime.cancel(process.pid(), "over").unwrap();
    wait(&process);
    let bytes = saved.lock().unwrap().remove(0);
    // Also if the replayed steps replay nothing themselves.
    for recording in [Some(recording), None] {
        let mut replay = opened(&bytes).replay(&recorder, || auditor(recording)).unwrap();
        assert_eq!(replay.run().unwrap().unwrap().end, StepEnd::Done);
        assert_eq!(replay.process().unwrap().in_time, [true, true]);
    }
}

/// Sends back the wall-clock time.
struct Wall;

impl Process for Wall {
    type Message = Reply<SystemTime>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<SystemTime>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(reply) = event {
                let time = out.system_time();
                out.reply(reply, time);
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn the_wall_clock_time_is_that_of_the_system_or_of_a_manual_clock() {
    let limit = Duration::from_secs(60);
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let wall = runtime.spawn(Wall).unwrap();
    let before = SystemTime::now();
    let time = runtime.ask(wall.address(), |reply| reply, limit).wait().unwrap();
    assert!(before <= time && time <= SystemTime::now());

    let clock = ManualClock::new();
    let runtime = Runtime::builder().workers(1).clock(clock.clock()).start().unwrap();
    let wall = runtime.spawn(Wall).unwrap();
    let first = runtime.ask(wall.address(), |reply| reply, limit).wait().unwrap();
    assert_eq!(runtime.ask(wall.address(), |reply| reply, limit).wait().unwrap(), first);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(runtime.ask(wall.address(), |reply| reply, limit).wait().unwrap(), first + Duration::from_secs(3_600));
}
