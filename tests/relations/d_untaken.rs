//! D. Supervisors: what becomes of events that a step was given and has not taken, when it fails and the process recovers.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::{Event, Events, Latch, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Upgrade};

use crate::helpers::*;
use crate::node::{Way, node};

const BEAT: Duration = Duration::from_millis(100);

/// A successor that writes down what it is told.
fn recovering(told: &Log<&'static str>) -> SpawnOptions {
    let told = told.clone();
    SpawnOptions::new().trap_exits().recover_with(move |_| Some(Upgrade::to(listener(&told))))
}

fn listener(told: &Log<&'static str>) -> impl Process<Message = (), Output = ()> {
    let told = told.clone();
    script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        for event in events {
            told.push(match event {
                Event::Exit(_) => "an exit",
                Event::Completed(_) => "an answer",
                _ => "something else",
            });
        }
        Ok(Step::Idle)
    })
}

#[test]
fn what_a_failing_step_was_given_and_has_not_taken_is_not_told_the_next() {
    for given in ["an answer", "a down event", "an exit", "a group"] {
        let (clock, told) = (ManualClock::new(), Log::new());
        let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
        let other = node(&runtime);
        let (of, mut begun) = (other.pid(), false);
        let fails = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
            if std::mem::replace(&mut begun, true) {
                return Err("it takes nothing".into());
            }
            match given {
                "an answer" => drop(out.after(BEAT)),
                "a down event" => drop(out.monitor(of)),
                "an exit" => out.link(of),
                _ => drop(out.subscribe("group")),
            }
            Ok(Step::Idle)
        });
        let process = runtime.spawn_with(fails, recovering(&told)).unwrap();
        until("it has begun", || runtime.process(process.pid()).is_some_and(|info| info.steps > 0));
        until("it has begun, and what it wants is done", || runtime.is_at_rest());
        clock.advance(BEAT);
        other.ends(&runtime, Way::Done);
        until("it has failed", || runtime.process(process.pid()).is_some_and(|info| info.steps >= 3));
        until("its successor has made a step", || runtime.is_at_rest());
        assert_eq!(told.take(), [""; 0], "{given}");
        assert_eq!(runtime.stats().discarded_answers, u64::from(given == "an answer"), "{given}");
    }
}

/// The exit of one that has linked itself to the process waits behind two answers. The step that fails takes one of them, and
/// the other one is never told.
#[test]
fn an_exit_that_waits_behind_an_answer_to_the_failed_one_is_told_the_next() {
    let (runtime, told, mut replies, has_ended) = (runtime(2), Log::new(), Vec::new(), Latch::new());
    let answers = script(move |events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
        while let Some(Event::Message(reply)) = events.next() {
            out.link(events.sender().unwrap());
            replies.push(reply);
        }
        if replies.len() < 2 {
            return Ok(Step::<()>::Idle);
        }
        replies.drain(..).for_each(|reply| out.reply(reply, ()));
        Ok(Step::Done(()))
    });
    let answers = runtime.spawn(answers).unwrap();
    let (asked, mut steps, all_is_there) = (answers.address(), 0, has_ended.clone());
    let fails = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
        steps += 1;
        match steps {
            1 => {
                for _ in 0..2 {
                    out.ask(asked, |reply| reply, LIMIT);
                }
            }
            // It is held up until all has come, and takes nothing.
            2 => wait(&all_is_there),
            _ => {
                assert!(matches!(events.next(), Some(Event::Completed(_))));
                return Err("it takes one answer".into());
            }
        }
        Ok(Step::Continue)
    });
    let _process = runtime.spawn_with(fails, recovering(&told)).unwrap();
    join(&answers);
    has_ended.set(()).unwrap();
    until("its successor is told", || told.len() > 0 && runtime.is_at_rest());
    assert_eq!(told.take(), ["an exit"]);
    assert_eq!(runtime.stats().discarded_answers, 1);
}
