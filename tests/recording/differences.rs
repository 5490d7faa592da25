//! A replayed step that differs from the recorded one is an error that says where.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use procession::recording::{Recorder, Recording, ReplayError};
use procession::sync::Latch;
use procession::{Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};

use crate::panics::quiet_panics_on_purpose;
use crate::wait::{Mutex, wait};
use crate::walker::opened;

/// The changes that a program may have undergone since it was recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    ReadsTime,
    ReadsNoTime,
    ReadsAnotherName,
    TakesLess,
    TakesMore,
    PassesOver,
    SendsAnother,
    SendsTwice,
    SendsElsewhere,
    Waits,
    Fails,
    FailsOtherwise,
    Panics,
    AnotherDelay,
    AnotherTimer,
    DrawsMore,
    Spawns,
    Monitors,
    RepliesMore,
}

/// A source of decisions that no recording has.
#[derive(Clone, Copy)]
enum Unstable {
    HashMapOrder,
    RealClock,
    Nothing,
}

/// In each of 20 steps, sends itself a number that an `Unstable` may change. The last step fails.
struct Undecided {
    by: Unstable,
    steps: u64,
}

impl Process for Undecided {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        let numbers = events.filter_map(|event| if let Event::Message(number) = event { Some(number) } else { None });
        let sum: u64 = numbers.sum();
        self.steps += 1;
        if self.steps == 20 {
            return Err("at last".into());
        }
        let me = out.pid();
        match self.by {
            Unstable::HashMapOrder => {
                let all: HashMap<u64, ()> = (0..10).map(|number| (number, ())).collect();
                all.keys().for_each(|number| out.send(me, *number));
            }
            Unstable::RealClock => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                out.send(me, now.as_nanos() as u64);
            }
            Unstable::Nothing => out.send(me, sum + 1),
        }
        Ok(Step::Idle)
    }
}

/// In each step it takes two numbers, reads a few things, and sends the numbers on. The fourth step fails.
struct Changed {
    by: Change,
    steps: u64,
}

impl Process for Changed {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        let (by, step) = (self.by, self.steps);
        let is = |change| by == change && step == 2;
        let me = out.pid();
        if is(Change::ReadsTime) || !is(Change::ReadsNoTime) {
            let _ = out.now();
        }
        if is(Change::ReadsTime) {
            let _ = out.now();
        }
        let _ = out.whereis(if is(Change::ReadsAnotherName) { "another" } else { "somebody" });
        let mut sum = 0;
        let count = match () {
            _ if is(Change::TakesLess) => 0,
            _ if is(Change::TakesMore) => 2,
            _ => 1,
        };
        for _ in 0..count {
            let event = events.select(|n| (n % 2 == 0) != is(Change::PassesOver));
            if let Some(Event::Message(number)) = event {
                sum += number;
            }
        }
        let to = if is(Change::SendsElsewhere) { "<7.7.7>".parse().unwrap() } else { me };
        // Its own messages are odd, so that it passes them over.
        out.send(to, if is(Change::SendsAnother) { 3_u64 } else { sum * 2 + 1 });
        if is(Change::SendsTwice) {
            out.send(to, sum * 2 + 1);
        }
        let delay = if is(Change::AnotherDelay) { 3_601 } else { 3_600 };
        let timer = out.after(Duration::from_secs(delay));
        if is(Change::AnotherTimer) {
            out.after(Duration::from_secs(delay));
        }
        out.cancel_timer(timer);
        let _ = out.random();
        if is(Change::DrawsMore) {
            let drawn = out.random();
            out.send(me, drawn | 1);
        }
        if is(Change::Spawns) {
            let _ = out.spawn(Changed { by: Change::None, steps: 100 });
        }
        if is(Change::Monitors) {
            out.monitor(me);
        }
        if is(Change::RepliesMore) {
            let (reply, _asked) = procession::testing::question::<u64>();
            reply.send(1);
        }
        self.steps += 1;
        assert!(!is(Change::Panics), "on purpose");
        match (self.steps, self.by) {
            (3, Change::Waits) => Ok(Step::Wait),
            (3, Change::Fails) => Err("too early".into()),
            (4, Change::FailsOtherwise) => Err("otherwise".into()),
            (4, _) => Err("at last".into()),
            _ => Ok(Step::Continue),
        }
    }
}

fn recorder() -> Recorder {
    Recorder::new("nowhere").version("changes 1").process::<Changed>()
}

/// A recording of four steps.
fn recorded() -> Vec<u8> {
    let saved = Arc::new(Mutex::new(Vec::new()));
    let saves = saved.clone();
    let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes)).version("changes 1");
    let runtime = Runtime::builder().workers(1).recorder(recorder.process::<Changed>()).start().unwrap();
    let changed = runtime.spawn(Changed { by: Change::None, steps: 0 }).unwrap();
    // It may take steps before the numbers arrive. Then it takes none in them.
    (0..40).for_each(|number| _ = runtime.send(changed.pid(), number * 2));
    assert!(!wait(&changed).is_done());
    saved.lock().unwrap().remove(0)
}

fn replayed(bytes: &[u8], by: Change) -> Result<(), ReplayError> {
    let mut replay = opened(bytes).replay(&recorder(), || Changed { by, steps: 0 }).unwrap();
    let result = replay.run();
    if let Err(error) = &result {
        assert_eq!(replay.step().as_ref().unwrap_err(), error, "nothing follows a difference");
    }
    result.map(drop)
}

#[test]
fn each_change_of_the_code_is_found_at_its_step() {
    quiet_panics_on_purpose();
    let bytes = recorded();
    assert_eq!(replayed(&bytes, Change::None), Ok(()));
    let all = [
        (Change::ReadsTime, 3, "the time"),
        (Change::ReadsNoTime, 3, "it reads the time"),
        (Change::ReadsAnotherName, 3, "another"),
        (Change::TakesLess, 3, "nothing more"),
        (Change::TakesMore, 3, "it asks for a further event"),
        (Change::SendsAnother, 3, "digest"),
        (Change::SendsTwice, 3, "digest"),
        (Change::SendsElsewhere, 3, "digest"),
        (Change::Waits, 3, "wait"),
        (Change::Fails, 3, "failed: too early"),
        (Change::FailsOtherwise, 4, "failed: otherwise"),
        (Change::Panics, 3, "panicked: on purpose"),
        (Change::AnotherDelay, 3, "digest"),
        (Change::AnotherTimer, 3, "digest"),
        (Change::DrawsMore, 3, "digest"),
        (Change::Spawns, 3, "the PID of a further process"),
        (Change::Monitors, 3, "a number for a monitor"),
        (Change::RepliesMore, 3, "it sends 1"),
    ];
    for (change, at, text) in all {
        let error = replayed(&bytes, change).unwrap_err();
        let ReplayError::Differs { step, .. } = &error else { panic!("{error}") };
        assert_eq!(*step, at, "{error}");
        assert!(error.to_string().contains(text), "{error} has no {text:?}");
    }
}

/// The code is the same on both sides.
#[test]
fn code_that_decides_by_what_was_not_recorded_is_found() {
    for by in [Unstable::HashMapOrder, Unstable::RealClock, Unstable::Nothing] {
        let saved = Arc::new(Mutex::new(Vec::new()));
        let saves = saved.clone();
        let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes)).process::<Undecided>();
        let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
        let process = runtime.spawn(Undecided { by, steps: 0 }).unwrap();
        assert!(!wait(&process).is_done());
        let bytes = saved.lock().unwrap().remove(0);
        let mut replay = opened(&bytes).replay(&recorder, || Undecided { by, steps: 0 }).unwrap();
        match (by, replay.run().map(drop)) {
            (Unstable::Nothing, result) => assert_eq!(result, Ok(())),
            (_, Err(error @ ReplayError::Differs { step: 1, .. })) => {
                let text = error.to_string();
                assert!(text.contains("the digest") && text.contains("a `HashMap`, the real clock"), "{text}");
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_predicate_that_wants_other_messages_is_found() {
    // The mailbox is full before the first step, because the worker is busy.
    let bytes = with_messages();
    assert_eq!(replayed(&bytes, Change::None), Ok(()));
    let error = replayed(&bytes, Change::PassesOver).unwrap_err().to_string();
    assert!(error.starts_with("step 3 differs: in the recording it "), "{error}");
    assert!(error.contains("message"), "{error}");
}

/// As `recorded`, with a mailbox that has all messages before the first step.
fn with_messages() -> Vec<u8> {
    struct Parent;
    impl Process for Parent {
        type Message = ();
        type Output = Pid;

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Pid> {
            let child = out.spawn(Changed { by: Change::None, steps: 0 })?;
            (0..40).for_each(|number| out.send(child, number * 2));
            Ok(Step::Done(child.pid()))
        }
    }
    let saved = Arc::new(Mutex::new(Vec::new()));
    let saves = saved.clone();
    let is_saved = Latch::new();
    let sets = is_saved.clone();
    let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes)).version("changes 1");
    let recorder = recorder.process::<Changed>().on_save(move |_| _ = sets.set(()));
    let runtime = Runtime::builder().workers(1).recorder(recorder).start().unwrap();
    assert!(wait(&runtime.spawn(Parent).unwrap()).is_done());
    wait(&is_saved);
    saved.lock().unwrap().remove(0)
}

#[test]
fn a_recording_of_another_beginning_is_refused() {
    let bytes = recorded();
    let other = Recorder::new("nowhere").version("changes 1");
    let refused = opened(&bytes).replay(&other, || Changed { by: Change::None, steps: 0 });
    assert!(matches!(refused, Err(ReplayError::NotRegistered { .. })));
    let recording: Recording = opened(&bytes);
    assert_eq!(recording.first_step().unwrap(), Some(0));
    assert_eq!(recording.steps(), 5);
}
