//! The fate of a child when its parent ends, as the parent has said.

use procession::spawn::ParentEndPolicy;
use procession::{Event, Events, Exit, Process, SpawnOptions, Step, StepOutput, StepResult, Upgrade};

use crate::helpers::*;

/// Is done when it is asked to stop.
struct Child;

impl Process for Child {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let stops = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if stops { Step::Done(()) } else { Step::Idle })
    }
}

/// Runs a child at its first message, and ends or recovers at the second.
struct Parent {
    recovers: bool,
    policy: Option<ParentEndPolicy>,
}

impl Process for Parent {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events.filter(|event| matches!(event, Event::Message(()))) {
            drop(event);
            match self.policy.take() {
                Some(policy) => _ = out.run_with(Child, SpawnOptions::new().parent_end(policy)),
                None if self.recovers => return Err("on purpose".into()),
                None => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Parent { recovers: true, policy: None }))
    }
}

#[test]
fn a_child_is_asked_to_stop_or_left_if_the_parent_has_said_so() {
    for recovers in [false, true] {
        for policy in [ParentEndPolicy::Terminate, ParentEndPolicy::Cancel, ParentEndPolicy::Leave] {
            let watcher = Watcher::new();
            let runtime = builder().workers(2).observer(watcher.clone()).start().unwrap();
            let parent = runtime.spawn(Parent { recovers, policy: Some(policy) }).unwrap();
            runtime.send(parent.address(), ()).unwrap();
            until("the child has started", || runtime.stats().processes == 2 && runtime.is_idle());
            runtime.send(parent.address(), ()).unwrap();
            let left = u64::from(recovers) + u64::from(policy == ParentEndPolicy::Leave);
            until("the parent has ended", || runtime.stats().processes == left && runtime.is_idle());
            let exits = watcher.exits.take().into_iter().filter(|(pid, _)| *pid != parent.pid());
            let exits: Vec<_> = exits.map(|(_, exit)| exit.split(' ').next().unwrap_or_default().to_owned()).collect();
            let expected: &[&str] = match policy {
                ParentEndPolicy::Terminate => &["terminated"],
                ParentEndPolicy::Cancel => &["done"],
                _ => &[],
            };
            assert_eq!(exits, expected, "{policy:?}, recovers: {recovers}");
        }
    }
}
