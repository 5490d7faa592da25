//! Messages that a step leaves, and messages that it passes over, on a runtime.

use procession::config::DEFAULT_STEP_EVENTS;
use procession::spawn::Overflow;
use procession::{Address, Event, Events, SpawnOptions, Step, StepOutput};

use crate::helpers::*;

fn with_and_without_a_bound() -> [SpawnOptions; 2] {
    [SpawnOptions::new(), SpawnOptions::new().mailbox(1_000, Overflow::Refuse)]
}

#[test]
fn a_step_gets_128_events_if_the_builder_says_nothing() {
    assert_eq!(DEFAULT_STEP_EVENTS, 128);
    for options in with_and_without_a_bound() {
        let runtime = runtime(1);
        let (given, blocker) = (Log::new(), Blocker::new());
        let (log, blocked) = (given.clone(), blocker.blocked());
        let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            blocked.wait();
            log.push(events.count());
            Ok(if log.len() == 4 { Step::Done(()) } else { Step::Idle })
        });
        let process = runtime.spawn_with(process, options).unwrap();
        blocker.wait_begun();
        (0..300).for_each(|n| runtime.send(process.address(), n).unwrap());
        blocker.release();
        output(&process);
        assert_eq!(given.take(), [0, 128, 128, 44]);
    }
}

#[test]
fn what_a_step_leaves_stays_in_front_of_what_comes_while_it_runs() {
    const ALL: u32 = 200;
    for options in with_and_without_a_bound() {
        let runtime = builder().workers(1).step_events(3).start().unwrap();
        let (mut sent, mut taken) = (0, Vec::new());
        // It takes one message in a step, and in each step two more are sent.
        let process = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            if let Some(Event::Message(n)) = events.next() {
                taken.push(n);
            }
            let me: Address<u32> = out.pid().typed();
            for _ in 0..2 {
                if sent < ALL {
                    out.send(me, sent);
                    sent += 1;
                }
            }
            Ok(if taken.len() == ALL as usize { Step::Done(std::mem::take(&mut taken)) } else { Step::Idle })
        });
        let process = runtime.spawn_with(process, options).unwrap();
        assert_eq!(*output(&process), (0..ALL).collect::<Vec<_>>());
    }
}

#[test]
fn passed_over_messages_are_offered_in_order_at_the_next_event() {
    for options in with_and_without_a_bound() {
        // Messages that are passed over do not count against the bound of a step.
        let runtime = builder().workers(1).step_events(1).start().unwrap();
        let (offered, taken) = (Log::<Vec<u32>>::new(), Log::new());
        let (log, takes) = (offered.clone(), taken.clone());
        let mut wanted = 0;
        let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let mut seen = Vec::new();
            while let Some(event) = events.select(|n| {
                seen.push(*n);
                *n == wanted
            }) {
                match event {
                    Event::Message(n) => takes.push(n),
                    _ => return Ok(Step::Done(())),
                }
                wanted += 1;
            }
            log.push(seen);
            Ok(Step::Idle)
        });
        let process = runtime.spawn_with(process, options).unwrap();
        let at_rest = || until("the runtime is at rest", || runtime.is_idle());
        at_rest();
        assert_eq!(offered.take(), [Vec::<u32>::new()], "the first step");
        for n in [3, 5, 1, 2] {
            runtime.send(process.address(), n).unwrap();
            at_rest();
        }
        let passed = [vec![3], vec![3, 5], vec![3, 5, 1], vec![3, 5, 1, 2]];
        assert_eq!(
            offered.take(),
            passed,
            "one step for each message, and all is offered in the order in which it came"
        );
        assert_eq!(runtime.process(process.pid()).unwrap().mailbox, 4);
        runtime.send(process.address(), 0).unwrap();
        at_rest();
        assert_eq!(offered.take(), [vec![3, 5, 1, 2, 0]]);
        // Messages passed over before the wanted one are not offered again in the same step: something new must come.
        runtime.send(process.address(), 9).unwrap();
        at_rest();
        assert_eq!(offered.take(), [vec![3, 5, 1, 2, 9]]);
        runtime.send(process.address(), 10).unwrap();
        at_rest();
        assert_eq!(offered.take(), [vec![3, 5, 9, 10]]);
        assert_eq!(taken.take(), [0, 1, 2, 3]);
        assert_eq!(runtime.process(process.pid()).unwrap().mailbox, 3);
        assert_accounted(&runtime);
    }
}

#[test]
fn what_a_step_has_not_come_to_stays_behind_what_it_has_passed_over() {
    for options in with_and_without_a_bound() {
        let (runtime, offered) = (runtime(1), Log::<Vec<u32>>::new());
        let (log, mut wanted) = (offered.clone(), 0);
        // It takes one message in a step, and does not look at what is behind that.
        let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let mut seen = Vec::new();
            let event = events.select(|n| {
                seen.push(*n);
                *n == wanted
            });
            wanted += u32::from(event.is_some());
            log.push(seen);
            Ok(Step::<()>::Idle)
        });
        let process = runtime.spawn_with(process, options).unwrap();
        let at_rest = || until("the runtime is at rest", || runtime.is_idle());
        at_rest();
        for n in [5, 1, 6, 2, 7, 0] {
            runtime.send(process.address(), n).unwrap();
            at_rest();
        }
        offered.take();
        for n in [8, 9] {
            runtime.send(process.address(), n).unwrap();
            at_rest();
        }
        // Each step that takes one is followed by another, which comes to what that one has left.
        let all = [vec![5, 1], vec![5, 6, 2], vec![5, 6, 7, 8], vec![5, 6, 7, 8, 9]];
        assert_eq!(offered.take(), all);
    }
}

#[test]
fn what_was_passed_over_and_not_come_to_causes_another_step() {
    for (options, sent) in with_and_without_a_bound().into_iter().zip([4, 4]).chain([
        // The bound pushes out the oldest two.
        (SpawnOptions::new().mailbox(3, Overflow::DropOldest), 5),
    ]) {
        let (runtime, taken) = (runtime(1), Log::<Option<u32>>::new());
        let log = taken.clone();
        // It passes over all messages until there is a 0. From then on it takes one in a step.
        let mut is_open = false;
        let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let opens = !is_open;
            let event = events.select(|n| is_open || *n == 0);
            is_open |= event.is_some();
            log.push(event.map(|event| match event {
                Event::Message(n) => n,
                other => panic!("{other:?}"),
            }));
            Ok(if opens && is_open { Step::<()>::Continue } else { Step::Idle })
        });
        let process = runtime.spawn_with(process, options).unwrap();
        let at_rest = || until("the runtime is at rest", || runtime.is_idle());
        at_rest();
        for n in (0..sent).rev() {
            taken.take();
            runtime.send(process.address(), n).unwrap();
            at_rest();
        }
        let left: &[_] = if sent == 4 { &[Some(0), Some(3), Some(2), Some(1)] } else { &[Some(0), Some(2), Some(1)] };
        assert_eq!(taken.take(), left);
        assert_eq!(runtime.process(process.pid()).unwrap().mailbox, 0);
        assert_accounted(&runtime);
    }
}

#[test]
fn what_was_passed_over_does_not_repeat_a_step_that_looks_at_nothing() {
    for options in with_and_without_a_bound() {
        let (runtime, steps) = (runtime(1), Log::<bool>::new());
        let log = steps.clone();
        // It waits for an answer, and then looks at nothing any more.
        let mut answered = false;
        let process = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            log.push(answered);
            if answered {
                return Ok(Step::<()>::Idle);
            }
            let event = events.select(|n| *n == 0);
            if matches!(event, Some(Event::Message(_))) {
                out.future(async {});
                return Ok(Step::Wait);
            }
            answered = matches!(event, Some(Event::Completed(_)));
            Ok(Step::Idle)
        });
        let process = runtime.spawn_with(process, options).unwrap();
        let at_rest = || until("the runtime is at rest", || runtime.is_idle());
        at_rest();
        for n in [2, 1] {
            runtime.send(process.address(), n).unwrap();
            at_rest();
        }
        steps.take();
        runtime.send(process.address(), 0).unwrap();
        at_rest();
        // The step after the answer is not offered the messages. So another follows, which takes none of them, and it
        // is the last one.
        assert_eq!(steps.take(), [false, false, true]);
        assert_eq!(runtime.process(process.pid()).unwrap().mailbox, 2);
    }
}
