//! Bad input.

use std::time::Duration;

use procession::tasklet::{Directive, Loop, ScheduleError, Tasklet, TaskletHandle, TurnOutcome, ready};

use crate::support::*;

#[test]
fn equal_tasklets_are_two() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Equal;
    impl Tasklet<u32> for Equal {
        fn home(&mut self, steps: &mut u32, _: &mut procession::tasklet::TaskletContext<'_, u32>) -> Directive {
            *steps += 1;
            Directive::Done
        }
    }
    let mut home = Loop::new(0);
    let (one, two) = (Equal, Equal);
    assert!(one == two);
    let handle = home.handle();
    let tasklets = [handle.schedule(one, Directive::Home).unwrap(), handle.schedule(two, Directive::Home).unwrap()];
    assert_ne!(tasklets[0].id(), tasklets[1].id());
    let report = home.run().unwrap();
    assert_eq!((*home.get(), report.finished), (2, 2));
}

#[test]
fn every_directive_and_every_tasklet_is_something() {
    // There is no null of either: all four directives are handled, and a tasklet is moved in whole.
    for directive in [Directive::Home, Directive::Pool, Directive::Wait, Directive::Done] {
        let mut home = Loop::new(());
        let drops = counter();
        let token = Dropped(drops.clone());
        let tasklet = ready::from_fn(move |(): &mut (), _| {
            let _ = &token;
            Directive::Done
        });
        match home.schedule(tasklet, directive) {
            Ok(_) => {}
            Err(refused) => assert!(matches!(refused.reason(), ScheduleError::NotRunning)),
        }
        home.close(LIMIT).unwrap();
        assert_eq!(count(&drops), 1, "{directive:?}");
    }
}

#[test]
fn the_id_of_one_loop_is_nobody_to_another() {
    let (mut one, mut two) = (Loop::new(()), Loop::new(()));
    let waits = |home: &Loop<()>| -> TaskletHandle { home.handle().schedule(ready::wait(), Directive::Wait).unwrap() };
    let (first, second) = (waits(&one), waits(&two));
    assert_ne!(first.id(), second.id());
    assert!(!two.handle().cancel(first.id(), "a mistake"));
    assert!(!one.handle().redirect(second.id(), Directive::Done).unwrap());
    assert_eq!((one.turn(1), two.turn(1)), (TurnOutcome::Idle, TurnOutcome::Idle));
}

#[test]
fn zero_and_greatest_limits_are_accepted() {
    let mut home = Loop::new(());
    assert!(home.run_for(Duration::ZERO).is_ok());
    assert!(home.run_for(Duration::MAX).is_ok());
    assert_eq!(home.turn(0), TurnOutcome::Finished);
    let waits = home.handle().schedule(ready::wait(), Directive::Home).unwrap();
    assert_eq!(home.turn(0), TurnOutcome::Ran(0), "there is more to do");
    assert!(waits.wait_timeout(Duration::ZERO).is_err());
    assert_eq!(home.turn(1), TurnOutcome::Ran(1));
    assert_eq!(home.turn(0), TurnOutcome::Idle);
    assert!(home.close(Duration::ZERO).is_ok());
    assert!(waits.wait_timeout(Duration::MAX).is_ok());
    assert!(home.close(Duration::MAX).is_ok());
}

#[test]
fn use_after_close_is_refused_and_hands_back() {
    let mut home = Loop::new(());
    let handle = home.handle();
    home.close(LIMIT).unwrap();
    for directive in [Directive::Home, Directive::Pool, Directive::Wait, Directive::Done] {
        let (_back, why) = handle.schedule(ready::done(), directive).unwrap_err().into_parts();
        assert!(matches!(why, ScheduleError::Closed), "{directive:?}: {why}");
    }
    let phases = ready::call_blocking(|| 1).then(|(): &mut (), n| n);
    assert!(handle.call(phases).is_err());
    assert!(home.run().is_ok());
}
