//! Beyond the statements of the bridge: a limit of events for the steps of one process.

use std::time::Duration;

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::{
    Event, Events, Exit, Handle, Process, Runtime, SpawnError, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

/// Writes down how many events each step is given. Fails at the message `FAIL`, and is replaced at `UPGRADE`.
struct Counting(Log<usize>);

const FAIL: u32 = 1_000;
const UPGRADE: u32 = 1_001;
const TIMERS: u32 = 1_002;

impl Process for Counting {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        let all: Vec<_> = events.collect();
        if !all.is_empty() {
            self.0.push(all.len());
        }
        for event in all {
            match event {
                Event::Message(FAIL) => return Err("on purpose".into()),
                Event::Message(UPGRADE) => return Ok(Step::Upgrade(Upgrade::to(Counting(self.0.clone())))),
                Event::Message(TIMERS) => (0..10).for_each(|_| _ = out.after(Duration::ZERO)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Counting(self.0.clone())))
    }
}

fn counting(runtime: &Runtime, options: SpawnOptions) -> (Handle<Counting>, Log<usize>) {
    let counts = Log::new();
    (runtime.spawn_with(Counting(counts.clone()), options).unwrap(), counts)
}

/// Sends the messages while no step runs, and returns the events of each step.
fn send_at_once(runtime: &Runtime, to: &Handle<Counting>, counts: &Log<usize>, messages: &[u32]) -> Vec<usize> {
    until("it is at rest", || runtime.is_idle());
    let (_holder, blocker) = hold_up(runtime);
    messages.iter().for_each(|message| runtime.send(to.address(), *message).unwrap());
    blocker.release();
    until("all is stepped", || runtime.is_idle());
    counts.take()
}

#[test]
fn a_step_is_given_no_more_events_than_its_process_allows() {
    for bounded in [false, true] {
        for most in [1, 3, 200] {
            let runtime = runtime(1);
            let options = SpawnOptions::new().step_events(most);
            let options = if bounded { options.mailbox(20, Overflow::Refuse) } else { options };
            let (process, counts) = counting(&runtime, options);
            for round in 0..3 {
                let given = send_at_once(&runtime, &process, &counts, &[0; 10]);
                assert!(given.iter().all(|count| *count <= most), "{bounded}, {most}, {round}: {given:?}");
                assert_eq!(given.iter().sum::<usize>(), 10);
                assert!(most == 1 || given.len() < 10, "{given:?}");
            }
            // Answers are counted, too.
            let mut given = send_at_once(&runtime, &process, &counts, &[TIMERS]);
            // A timer that fires is no longer counted, and its answer may not have arrived.
            until("all is answered", || {
                given.extend(counts.take());
                given.iter().sum::<usize>() >= 11 && runtime.is_idle()
            });
            assert_eq!((given.iter().all(|count| *count <= most), given.iter().sum::<usize>()), (true, 11));
            assert_accounted(&runtime);
        }
    }
}

#[test]
fn the_smaller_limit_holds_that_of_the_runtime_or_of_the_process() {
    let runtime = builder().workers(1).step_events(2).start().unwrap();
    for (options, most) in [(Some(5), 2), (Some(1), 1), (None, 2)] {
        let all = SpawnOptions::new();
        let (process, counts) = counting(&runtime, options.map_or(SpawnOptions::new(), |most| all.step_events(most)));
        let given = send_at_once(&runtime, &process, &counts, &[0; 10]);
        assert_eq!(given.iter().max(), Some(&most), "{given:?}");
    }
}

#[test]
fn the_limit_stays_when_the_state_machine_is_replaced() {
    for bounded in [false, true] {
        let runtime = runtime(1);
        let options = SpawnOptions::new().step_events(1);
        let options = if bounded { options.mailbox(20, Overflow::Refuse) } else { options };
        let (process, counts) = counting(&runtime, options);
        let given = send_at_once(&runtime, &process, &counts, &[0, FAIL, 0, 0, UPGRADE, 0, 0, FAIL, 0]);
        assert_eq!(given, [1; 9]);
        let messages = runtime.stats().messages;
        assert_eq!((messages.stepped, messages.dead()), (7, 2), "a step that fails loses its own message only");
        assert_eq!(messages.dead_by_reason[&DeadLetterReason::StepFailed], 2);
        assert_accounted(&runtime);
    }
}

#[test]
fn a_limit_of_no_events_is_refused_with_the_process() {
    let runtime = runtime(1);
    let refused = runtime.spawn_with(Counting(Log::new()), SpawnOptions::new().step_events(0)).unwrap_err();
    assert!(matches!(refused.reason(), SpawnError::ZeroStepEvents), "{refused:?}");
    let spawned = runtime.spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let refused = out.spawn_with(Counting(Log::new()), SpawnOptions::new().step_events(0));
        Ok(Step::Done(refused.map(drop).unwrap_err().to_string()))
    }));
    assert!(output(&spawned.unwrap()).contains("at least one"));
}
