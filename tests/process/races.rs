//! Moments that a second look at the races has found: an answer that belongs elsewhere, a body that is nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::ProcessState;
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{
    EntryArgs, Event, Events, Exit, InitResult, Process, Reason, Reply, Runtime, SpawnError, SpawnOptions, Step,
    StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_reply_from_another_runtime_reaches_its_asker() {
    // The same node, so that the asker's PID means somebody in the other runtime too.
    let (one, two) = (builder().workers(1).node(5).start().unwrap(), builder().workers(1).node(5).start().unwrap());
    let kept = Log::<Reply<u32>>::new();
    let keeper = one.spawn(recorder(&kept)).unwrap();
    let (to, mut tag) = (keeper.address(), None);
    let asker = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let Event::Completed(done) = event {
                return Ok(Step::Done(done.take(tag).unwrap().unwrap()));
            }
        }
        tag = Some(out.ask(to, |reply| reply, HOUR));
        Ok(Step::Wait)
    });
    let asker = one.spawn(asker).unwrap();
    until("the reply is kept", || kept.len() == 1);
    two.spawn(sink::<()>()).unwrap();
    let bystander = script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.count() > 0 {
            return Err("it waits for nothing that comes".into());
        }
        out.after(HOUR);
        Ok(Step::<()>::Wait)
    });
    let bystander = two.spawn(bystander).unwrap();
    assert_eq!(bystander.pid(), asker.pid());
    let mut reply = kept.take().pop();
    let replier = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(reply) = reply.take() {
            out.reply(reply, 42);
        }
        Ok(Step::Done(()))
    });
    output(&two.spawn(replier).unwrap());
    assert_eq!(*output(&asker), 42);
    until("the other runtime is at rest", || two.is_idle());
    assert!(!bystander.is_finished());
}

struct Hold;

impl Command for Hold {
    type Output = u8;
}

#[test]
fn an_answer_behind_untaken_messages_reaches_a_successor() {
    let held = Log::<Responder<u8>>::new();
    let holds = held.clone();
    let handler = move |_: Hold, done: Responder<u8>| {
        holds.push(done);
        Ok(())
    };
    let runtime = builder().workers(1).handler(handler).start().unwrap();
    let (blocker, seen) = (Blocker::new(), Log::new());
    let (blocked, sees, mut steps) = (blocker.blocked(), seen.clone(), 0);
    let process = script(move |_: &mut Events<'_, u32>, out: &mut StepOutput| {
        steps += 1;
        match steps {
            1 => {
                out.command(Hold);
                return Ok(Step::Continue);
            }
            2 => {
                blocked.wait();
                return Ok(Step::Continue);
            }
            _ => {}
        }
        let sees = sees.clone();
        let successor = script(move |events: &mut Events<'_, String>, _: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(text) => sees.push(text),
                    Event::Completed(_) => sees.push(String::from("answer")),
                    _ => return Ok(Step::Done(())),
                }
            }
            Ok(Step::Idle)
        });
        Ok(Step::Upgrade(Upgrade::to(successor)))
    });
    let process = runtime.spawn(process).unwrap();
    blocker.wait_begun();
    (0..3).for_each(|n| runtime.send(process.address(), n).unwrap());
    held.take().pop().unwrap().ok(1);
    blocker.release();
    until("the answer has come", || seen.len() == 1);
    until("it does not spin", || runtime.is_idle());
    runtime.send(process.pid(), String::from("later")).unwrap();
    until("the message has come", || seen.len() == 2);
    assert_eq!(seen.take(), ["answer", "later"]);
    assert_accounted(&runtime);
}

#[test]
fn a_child_is_stepped_by_a_worker_that_sleeps_while_its_parent_goes_on() {
    let runtime = runtime(2);
    let (blocker, born, mut steps) = (Blocker::new(), Latch::new(), 0);
    let (blocked, birth) = (blocker.blocked(), born.clone());
    let parent = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        steps += 1;
        match steps {
            1 => blocked.wait(),
            2 => {
                // Takes one of two, so that it is stepped on at once.
                events.next();
                let birth = birth.clone();
                out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                    let _ = birth.set(());
                    Ok(Step::Done(()))
                }))?;
            }
            _ => {
                wait(&birth);
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    });
    let parent = runtime.spawn(parent).unwrap();
    blocker.wait_begun();
    (0..2).for_each(|_| runtime.send(parent.address(), ()).unwrap());
    let parked = || runtime.stats().workers.iter().map(|worker| worker.parked).sum::<u64>();
    until("the other one sleeps", || parked() >= 1);
    blocker.release();
    output(&parent);
    wait(&born);
}

#[test]
fn two_destructors_that_panic_at_the_same_end_do_not_end_the_program() {
    let runtime = runtime(1);
    let holder = runtime.spawn_with(sink::<()>(), SpawnOptions::new().name("taken")).unwrap();
    let parent = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let (one, two) = (Bomb, Bomb);
        // The state and the error of its only step.
        out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            let _ = &one;
            Err::<Step<()>, _>(Box::new(Bomb))
        }))?;
        // The state and the input of its entry, which it never takes.
        let child = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            let _ = &two;
            Ok(Step::Done(()))
        });
        out.spawn_with(child, SpawnOptions::new().name("taken").entry("main", Bomb))?;
        Ok(Step::Done(()))
    });
    output(&runtime.spawn(parent).unwrap());
    until("all but one have ended", || runtime.stats().processes == 1);
    drop(holder);
}

#[test]
fn a_process_that_is_terminated_in_its_init_is_never_stepped() {
    struct Slow(Blocked, Arc<AtomicBool>);
    impl Process for Slow {
        type Message = ();
        type Output = ();

        fn init(&mut self, _: EntryArgs) -> InitResult {
            self.0.wait();
            Ok(())
        }

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            self.1.store(true, Ordering::SeqCst);
            Ok(Step::Idle)
        }
    }
    let runtime = runtime(2);
    let (blocker, stepped) = (Blocker::new(), Arc::new(AtomicBool::new(false)));
    let (blocked, step) = (blocker.blocked(), stepped.clone());
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let child = out.spawn(Slow(blocked.clone(), step.clone()))?;
        Ok(Step::Done(child.pid()))
    });
    let child = *output(&runtime.spawn(parent).unwrap());
    blocker.wait_begun();
    assert!(runtime.terminate(child).unwrap());
    blocker.release();
    until("it has ended", || runtime.process_state(child) == Some(ProcessState::Complete));
    assert!(!stepped.load(Ordering::SeqCst));
}

#[test]
fn a_process_that_is_terminated_in_its_last_step_has_that_as_its_exit() {
    let runtime = runtime(1);
    let (held, blocker) = hold_up(&runtime);
    assert!(runtime.terminate(held.pid()).unwrap());
    blocker.release();
    assert!(matches!(join(&held), Exit::Terminated(Reason::Terminated)));
}

#[test]
fn the_time_limits_of_questions_end_with_the_process_that_asked() {
    let runtime = runtime(1);
    let kept = Log::<Reply<u8>>::new();
    let to = runtime.spawn(recorder(&kept)).unwrap().address();
    for round in 1..=100 {
        let asker = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.ask(to, |reply| reply, HOUR);
            Ok(Step::<()>::Wait)
        });
        let asker = runtime.spawn(asker).unwrap();
        until("it is asked", || kept.len() == round);
        runtime.terminate(asker.pid()).unwrap();
        join(&asker);
        assert_eq!(runtime.stats().timers, 0);
    }
    drop(kept.take());
}

#[test]
fn an_init_that_fails_to_spawn_another_has_that_as_its_own_failure() {
    struct Parent(Runtime);
    impl Process for Parent {
        type Message = ();
        type Output = ();

        fn init(&mut self, _: EntryArgs) -> InitResult {
            let none = SpawnOptions::new().mailbox(0, Overflow::Refuse);
            self.0.spawn_with(sink::<()>(), none).map_err(|refused| refused.into_parts().1)?;
            Ok(())
        }

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }
    let runtime = runtime(1);
    let refused = runtime.spawn(Parent(runtime.clone())).err().unwrap();
    assert!(matches!(refused.reason(), SpawnError::Init(_)), "{refused}");
}

#[test]
fn an_upgrade_can_give_taken_control_signals_to_the_successor() {
    let runtime = runtime(1);
    let (log, go) = (Log::new(), Latch::new());
    let (told, gate) = (log.clone(), go.clone());
    let mut taken = Vec::new();
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            wait(&gate);
            taken.extend(events);
            if taken.len() < 4 {
                return Ok(Step::Idle);
            }
            let told = told.clone();
            let next = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
                events.for_each(|event| match event {
                    Event::Cancel(request) => told.push(format!("asked to stop: {}", request.reason)),
                    Event::Message(number) => told.push(number.to_string()),
                    _ => {}
                });
                Ok(if told.len() == 0 { Step::Idle } else { Step::Done(()) })
            });
            Ok(Step::Upgrade(Upgrade::to(next).giving_back(std::mem::take(&mut taken))))
        }))
        .unwrap();
    (1..=2).for_each(|number| runtime.send(process.address(), number).unwrap());
    for reason in ["one", "two"] {
        assert!(runtime.cancel(process.pid(), reason).unwrap());
    }
    go.set(()).unwrap();
    output(&process);
    assert_eq!(log.take(), ["asked to stop: one", "asked to stop: two"]);
}
