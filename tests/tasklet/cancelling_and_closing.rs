//! Cancelling, closing, reports, and loops inside of other main loops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::sync::Latch;
use procession::tasklet::{
    Directive, Interruption, Loop, LoopHandle, MAX_NAMED, PanicPolicy, ScheduleError, Tasklet, TaskletContext,
    TaskletHandle, TurnOutcome, ready,
};
use procession::{Exit, Reason};

use crate::support::*;

/// On the pool until its token is cancelled; tells when it has begun.
fn until_cancelled(begun: Latch<()>) -> impl Tasklet<()> {
    elsewhere(move |cx: &mut TaskletContext<'_, ()>| {
        let _ = begun.set(());
        wait(cx.cancelled());
        Directive::Home
    })
}

#[test]
fn a_cancelled_tasklet_is_dropped_at_once_or_when_its_step_returns() {
    let drops = counter();
    let mut home = Loop::new(());
    let handle = home.handle();
    for directive in [Directive::Home, Directive::Wait] {
        let token = Dropped(drops.clone());
        let tasklet = ready::from_fn(move |(): &mut (), _| {
            let _ = &token;
            Directive::Done
        });
        let before = count(&drops);
        let tasklet = handle.schedule(tasklet, directive).unwrap();
        assert!(tasklet.cancel("enough"));
        assert_eq!(count(&drops), before + 1);
        assert!(!tasklet.cancel("again"));
        assert!(matches!(tasklet.exit(), Some(Exit::Terminated(why)) if why == Reason::from("enough")));
    }
    let begun = Latch::new();
    let on_pool = handle.schedule(until_cancelled(begun.clone()), Directive::Home).unwrap();
    let canceller = std::thread::spawn({
        let on_pool = on_pool.clone();
        move || {
            wait(&begun);
            (on_pool.cancel("stop"), on_pool.cancel("again"))
        }
    });
    let report = home.run().unwrap();
    assert_eq!(wait(canceller).unwrap(), (true, false));
    assert_eq!((report.cancelled, report.finished, report.home_steps), (3, 0, 1));
    assert!(matches!(wait(&on_pool), Exit::Terminated(why) if why == Reason::from("stop")));
}

#[test]
fn a_tasklet_can_cancel_itself_unless_it_returns_done() {
    let mut home = Loop::new(());
    let handle = home.handle();
    let ends = |says: Directive| {
        ready::from_fn(move |(): &mut (), cx| {
            assert!(cx.handle().cancel(cx.id(), "by itself"));
            assert!(cx.cancelled().is_cancelled(), "also one that is asked for afterwards");
            says
        })
    };
    let goes_on = handle.schedule(ends(Directive::Home), Directive::Home).unwrap();
    let done = handle.schedule(ends(Directive::Done), Directive::Home).unwrap();
    let report = home.run().unwrap();
    assert_eq!((report.home_steps, report.cancelled, report.finished), (2, 1, 1));
    assert!(matches!(goes_on.exit(), Some(Exit::Terminated(_))));
    assert!(matches!(done.exit(), Some(Exit::Done(()))));
}

#[test]
fn a_cancelled_tasklet_in_the_pools_queue_is_never_stepped() {
    let pool = procession::pool::Pool::builder().max(1).build().unwrap();
    let blocker = hold(&pool);
    let mut home = Loop::on((), &pool);
    let (drops, steps) = (counter(), counter());
    let (token, counts) = (Dropped(drops.clone()), steps.clone());
    let tasklet = elsewhere(move |_: &mut TaskletContext<'_, ()>| {
        let _ = &token;
        counts.fetch_add(1, Ordering::SeqCst);
        Directive::Done
    });
    let tasklet = home.handle().schedule(tasklet, Directive::Home).unwrap();
    assert_eq!(home.turn(1), TurnOutcome::Ran(1));
    assert!(tasklet.cancel("too late"));
    assert_eq!(count(&drops), 1, "at once, although the pool is busy");
    assert_eq!(home.run().unwrap().cancelled, 1);
    blocker.release();
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!(count(&steps), 0);
}

#[test]
fn closing_drops_resting_tasklets_and_waits_for_steps() {
    let mut home = Loop::new(());
    let handle = home.handle();
    let begun = Latch::new();
    let tasklets = [
        handle.schedule(until_cancelled(begun.clone()), Directive::Home).unwrap(),
        handle.schedule(ready::wait(), Directive::Wait).unwrap(),
    ];
    let closer = handle.clone();
    let other = std::thread::spawn(move || {
        wait(&begun);
        closer.close(LIMIT)
    });
    let ran = home.run();
    let closed = wait(other).unwrap();
    // The one or the other has the report of the cancelled ones.
    let cancelled = ran.map_or(0, |report| report.cancelled) + closed.unwrap().cancelled;
    assert_eq!(cancelled, 2);
    assert!(tasklets.iter().all(|it| matches!(it.exit(), Some(Exit::Terminated(Reason::Shutdown)))));
    assert!(matches!(handle.schedule(ready::done(), Directive::Home).unwrap_err().reason(), ScheduleError::Closed));
    assert!(home.run().is_ok());
}

#[test]
fn closing_names_the_tasklets_that_are_stuck() {
    let manual = ManualClock::new();
    let mut home = Loop::<()>::builder().clock(manual.clock()).build(());
    let blocker = Blocker::new();
    let stubborn = blocks_on_pool(blocker.blocked(), Directive::Home);
    let stubborn = home.handle().schedule(ready::named(stubborn, "stubborn"), Directive::Home).unwrap();
    assert_eq!(home.turn(1), TurnOutcome::Ran(1));
    blocker.wait_begun();
    let closer = std::thread::spawn({
        let handle = home.handle();
        move || handle.close(Duration::from_secs(5))
    });
    advance_until("the limit is over", &manual, Duration::from_secs(1), || closer.is_finished());
    let cut = wait(closer).unwrap().unwrap_err();
    assert_eq!(*cut.why(), Interruption::TimedOut);
    assert_eq!((cut.left(), cut.tasklets()[0].name.as_ref(), cut.tasklets()[0].running), (1, "stubborn", true));
    blocker.release();
    assert!(matches!(wait(&stubborn), Exit::Terminated(Reason::Shutdown)));
    assert!(home.close(LIMIT).is_ok());
}

#[test]
fn closing_from_a_step_of_the_loop_does_not_wait_for_itself() {
    for first in [Directive::Home, Directive::Pool] {
        let closed = counter();
        let (at_home, on_pool) = (closed.clone(), closed.clone());
        let closes = move |handle: LoopHandle<()>, closed: &AtomicUsize| {
            let cut = handle.close(Duration::MAX).unwrap_err();
            assert!(cut.tasklets()[0].running);
            closed.fetch_add(1, Ordering::SeqCst);
        };
        let tasklet = ready::from_fns(
            move |(): &mut (), cx: &mut TaskletContext<'_, ()>| {
                if first == Directive::Home {
                    closes(cx.handle(), &at_home);
                }
                first
            },
            move |cx: &mut TaskletContext<'_, ()>| {
                closes(cx.handle(), &on_pool);
                Directive::Home
            },
        );
        let mut home = Loop::new(());
        let report = home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
        assert_eq!((report.cancelled, count(&closed)), (1, 1));
    }
}

#[test]
fn closing_at_the_end_of_a_tasklet_does_not_wait_for_that_end() {
    /// Closes its loop when it is dropped.
    struct Closes(LoopHandle<()>, Directive, Arc<AtomicUsize>);
    impl Tasklet<()> for Closes {
        fn home(&mut self, (): &mut (), _: &mut TaskletContext<'_, ()>) -> Directive {
            self.1
        }
        fn pool(&mut self, _: &mut TaskletContext<'_, ()>) -> Directive {
            Directive::Done
        }
    }
    impl Drop for Closes {
        fn drop(&mut self) {
            assert!(LoopHandle::<()>::current().as_ref() == Some(&self.0));
            self.0.close(Duration::MAX).unwrap();
            self.2.fetch_add(1, Ordering::SeqCst);
        }
    }
    let closed = counter();
    for ends_at in [Directive::Done, Directive::Pool] {
        let mut home = Loop::new(());
        home.schedule(Closes(home.handle(), ends_at, closed.clone()), Directive::Home).unwrap().run().unwrap();
    }
    assert_eq!(count(&closed), 2, "at home and on the pool");
    let mut home = Loop::new(());
    home.schedule(Closes(home.handle(), Directive::Wait, closed.clone()), Directive::Home).unwrap();
    let _ = home.run_until_idle();
    home.close(LIMIT).unwrap();
    assert_eq!(count(&closed), 3, "on the thread that closes");

    // A callback of its token, and a handler that is told of its panic on the pool.
    let (mut home, count_token) = (Loop::new(()), closed.clone());
    let handle = home.handle();
    let mut kept = Vec::new();
    let waits = ready::from_fn(move |(): &mut (), cx| {
        let (handle, closed) = (handle.clone(), count_token.clone());
        kept.push(cx.cancelled().on_cancel(move |_| {
            handle.close(Duration::MAX).unwrap();
            closed.fetch_add(1, Ordering::SeqCst);
        }));
        Directive::Wait
    });
    let waits = home.handle().schedule(waits, Directive::Home).unwrap();
    let _ = home.run_until_idle();
    waits.cancel("not wanted any more");
    assert_eq!(count(&closed), 4);
    let (mut home, count_panic) = (Loop::new(()), closed.clone());
    let handle = home.handle();
    home.on_panic(PanicPolicy::call(move |_| {
        handle.close(Duration::MAX).unwrap();
        count_panic.fetch_add(1, Ordering::SeqCst);
    }));
    let goes = ready::from_fns(
        |(): &mut (), _| Directive::Pool,
        |_: &mut TaskletContext<'_, ()>| std::panic::panic_any(ON_PURPOSE),
    );
    quiet_panics();
    home.schedule(goes, Directive::Home).unwrap().run().unwrap();
    assert_eq!(count(&closed), 5);
}

#[test]
fn a_tasklets_token_is_cancelled_before_the_tasklet_is_dropped() {
    let mut home = Loop::new(());
    let told = Arc::new(Mutex::new(Vec::new()));
    let (tells, drops) = (told.clone(), told.clone());
    struct Tells(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped");
        }
    }
    let (mut kept, last) = (Vec::new(), Tells(drops));
    let waits = ready::from_fn(move |(): &mut (), cx| {
        let _ = &last;
        let tells = tells.clone();
        kept.push(cx.cancelled().on_cancel(move |_| tells.lock().unwrap().push("told")));
        Directive::Wait
    });
    let waits = home.handle().schedule(waits, Directive::Home).unwrap();
    let _ = home.run_until_idle();
    waits.cancel("enough");
    assert_eq!(*told.lock().unwrap(), ["told", "dropped"]);
}

#[test]
fn a_foreign_main_loop_is_woken_exactly_when_there_is_work() {
    let (sender, wakes) = mpsc::channel();
    let mut home = Loop::new(Vec::new());
    let handle = home.handle();
    let calls = counter();
    let counts = calls.clone();
    home.on_wake(move || {
        counts.fetch_add(1, Ordering::SeqCst);
        let _ = sender.send(());
    });
    // With a hook, the pool may be asked for at any time.
    let mut phases = vec!["first"];
    let out_and_back = ready::from_fns(
        move |seen: &mut Vec<&str>, _: &mut TaskletContext<'_, Vec<&str>>| {
            seen.push(phases.pop().unwrap());
            Directive::Done
        },
        |_: &mut TaskletContext<'_, Vec<&str>>| Directive::Home,
    );
    handle.schedule(out_and_back, Directive::Pool).unwrap();
    wait(&wakes).unwrap();
    assert_eq!(home.turn(10), TurnOutcome::Ran(1));
    assert_eq!(home.turn(10), TurnOutcome::Finished);
    // Many at once are one call; work that is left after a turn is one more.
    let before = count(&calls);
    for _ in 0..10 {
        handle.schedule(ready::done(), Directive::Home).unwrap();
    }
    assert_eq!(count(&calls), before + 1);
    assert_eq!(home.turn(4), TurnOutcome::Ran(4));
    assert_eq!(count(&calls), before + 2, "six are left");
    assert_eq!(home.turn(100), TurnOutcome::Ran(6));
    assert_eq!(count(&calls), before + 3, "those were the last");
    assert_eq!(home.turn(100), TurnOutcome::Finished);
    assert_eq!(home.turn(100), TurnOutcome::Finished);
    assert_eq!(count(&calls), before + 3);
    // A main loop that turns only when it is told comes to everything, whatever thread it came from.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let handle = handle.clone();
            scope.spawn(move || {
                for n in 0..100 {
                    let tasklet = ready::from_fns(
                        |seen: &mut Vec<&str>, _: &mut TaskletContext<'_, Vec<&str>>| {
                            seen.push("home");
                            Directive::Done
                        },
                        |_: &mut TaskletContext<'_, Vec<&str>>| Directive::Home,
                    );
                    let first = if n % 2 == 0 { Directive::Home } else { Directive::Pool };
                    handle.schedule(tasklet, first).unwrap();
                }
            });
        }
        while wakes.try_recv().is_ok() {}
        let mut seen = 0;
        while seen < 400 {
            while home.turn(7) == TurnOutcome::Ran(7) {}
            seen = home.get().iter().filter(|it| **it == "home").count();
            if seen < 400 {
                wakes.recv_timeout(LIMIT).expect("somebody would have to tell");
            }
        }
    });
    // The end of the last one is told, too.
    let waits = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    while wakes.try_recv().is_ok() {}
    assert_eq!(home.turn(1), TurnOutcome::Idle);
    waits.cancel("over");
    wakes.recv_timeout(LIMIT).unwrap();
    assert_eq!(home.turn(1), TurnOutcome::Finished);
}

#[test]
fn the_hook_tells_an_end_that_no_turn_has_reported() {
    quiet_panics();
    let (sender, wakes) = mpsc::channel();
    let mut home = Loop::new(());
    let handle = home.handle();
    home.on_wake(move || {
        let _ = sender.send(());
    });
    let ends_all = |waits: TaskletHandle| {
        ready::from_fn(move |(): &mut (), _| {
            waits.cancel("over");
            Directive::Done
        })
    };
    let waits = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    assert_eq!(home.turn(1), TurnOutcome::Idle);
    assert!(wakes.try_recv().is_err());
    home.with(ends_all(waits)).unwrap();
    wakes.try_recv().expect("no tasklet is left");
    assert_eq!(home.turn(1), TurnOutcome::Finished);
    // The same in a turn that is stopped by a panic.
    home.on_panic(PanicPolicy::Stop);
    let panics = ready::from_fn(|(): &mut (), _| std::panic::panic_any(ON_PURPOSE));
    handle.schedule(panics, Directive::Home).unwrap();
    wakes.try_recv().expect("a step is ready");
    assert!(matches!(home.turn(1), TurnOutcome::Stopped(_)));
    wakes.try_recv().expect("no tasklet is left");
    assert_eq!(home.turn(1), TurnOutcome::Finished);
    // A run reports the end itself.
    handle.schedule(ready::done(), Directive::Home).unwrap();
    wakes.try_recv().expect("a step is ready");
    home.run().unwrap();
    assert!(wakes.try_recv().is_err());
}

#[test]
fn a_hook_may_use_the_loop_and_may_panic() {
    quiet_panics();
    let mut home = Loop::new(());
    let handle = home.handle();
    let (uses, calls) = (handle.clone(), Arc::new(AtomicUsize::new(0)));
    let counts = calls.clone();
    home.on_wake(move || {
        counts.fetch_add(1, Ordering::SeqCst);
        assert!(uses.tasklets().len() < 2);
        std::panic::panic_any(ON_PURPOSE);
    });
    handle.schedule(ready::done(), Directive::Home).unwrap();
    assert_eq!(count(&calls), 1);
    assert_eq!(home.turn(5), TurnOutcome::Ran(1));
}

#[test]
fn held_tasklets_start_when_a_hook_is_set() {
    let mut home = Loop::new(());
    let holds = home.handle().schedule(ready::wait(), Directive::Wait).unwrap();
    assert!(holds.redirect(Directive::Pool).unwrap());
    let stepped = Latch::new();
    let set = stepped.clone();
    home.on_wake(move || {
        let _ = set.set(());
    });
    // On the pool it says that it waits.
    until("it waits", || home.tasklets()[0].directive == Directive::Wait);
    assert_eq!(home.take_report().pool_steps, 1);
    holds.cancel("over");
    wait(&stepped);
}

#[test]
fn the_age_of_a_directive_goes_on_over_home_steps() {
    let manual = ManualClock::new();
    let mut home = Loop::<()>::builder().clock(manual.clock()).build(());
    let (ages, moves) = (Arc::new(Mutex::new(Vec::new())), manual.clone());
    let log = ages.clone();
    let steps = numbered(move |step, (): &mut (), cx| {
        log.lock().unwrap().push(cx.handle().tasklets()[0].since.as_secs());
        moves.advance(Duration::from_secs(1));
        if step < 2 { Directive::Home } else { Directive::Done }
    });
    home.schedule(steps, Directive::Home).unwrap().run().unwrap();
    assert_eq!(*ages.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn tasklets_are_listed_with_name_directive_and_age() {
    let manual = ManualClock::new();
    let mut home = Loop::<()>::builder().clock(manual.clock()).build(());
    let handle = home.handle();
    let listed = Arc::new(Mutex::new(Vec::new()));
    let (lists, blocker) = (listed.clone(), Blocker::new());
    let on_pool = blocks_on_pool(blocker.blocked(), Directive::Done);
    let moves = manual.clone();
    let asks = ready::from_fn(move |(): &mut (), cx| {
        blocker.wait_begun();
        moves.advance(Duration::from_secs(3));
        lists.lock().unwrap().extend(cx.handle().tasklets());
        cx.handle().cancel(cx.handle().tasklets()[2].id, "over");
        blocker.release();
        Directive::Done
    });
    home.schedule(ready::named(on_pool, "on the pool"), Directive::Home).unwrap();
    home.schedule(ready::named(asks, "asks"), Directive::Home).unwrap();
    home.schedule(ready::named(ready::wait(), "waits"), Directive::Wait).unwrap();
    manual.advance(Duration::from_secs(2));
    assert_eq!(handle.stuck(Duration::from_secs(2)).len(), 3);
    assert!(handle.stuck(Duration::from_millis(2_001)).is_empty());
    home.run().unwrap();
    let listed: Vec<_> = listed
        .lock()
        .unwrap()
        .iter()
        .map(|it| (it.name.clone().into_owned(), it.directive, it.running, it.since.as_secs()))
        .collect();
    let expected = [
        ("on the pool", Directive::Pool, true, 3),
        ("asks", Directive::Home, true, 5),
        ("waits", Directive::Wait, false, 5),
    ];
    assert_eq!(listed, expected.map(|(name, directive, running, since)| (name.to_owned(), directive, running, since)));
    assert!(handle.tasklets().is_empty());
}

#[test]
fn a_tasklet_is_called_by_its_type_unless_it_says_otherwise() {
    let home = Loop::new(());
    let handle = home.handle();
    let plain = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    let named = handle.schedule(ready::named(ready::wait(), String::from("mine")), Directive::Wait).unwrap();
    assert_eq!((plain.name(), named.name()), ("wait", "mine"));
    let second = &handle.tasklets()[1];
    assert_eq!(second.to_string(), format!("mine (#2): Wait for {:?}", second.since));
}

#[test]
fn a_report_counts_all_and_names_the_first() {
    let mut home = Loop::new(());
    let many = MAX_NAMED as u64 + 20;
    for _ in 0..many {
        home.schedule(bomb(), Directive::Home).unwrap();
        let forgets = ready::from_fn(|(): &mut (), cx| {
            drop(cx.suspend());
            Directive::Wait
        });
        home.schedule(forgets, Directive::Home).unwrap();
    }
    let report = home.run().unwrap();
    assert_eq!((report.panicked, report.abandoned, report.home_steps), (many, many, 2 * many));
    assert_eq!((report.panics.len(), report.abandoned_waits.len()), (MAX_NAMED, MAX_NAMED));
    assert_eq!(home.take_report().ended(), 0, "what was told is not told again");
    for _ in 0..many {
        home.schedule(ready::wait(), Directive::Wait).unwrap();
    }
    let cut = home.run_for(Duration::ZERO).unwrap_err();
    assert_eq!((cut.left() as u64, cut.tasklets().len()), (many, MAX_NAMED));
}

#[test]
fn home_steps_get_their_turn_beside_one_that_always_repeats() {
    let mut home = Loop::new(0);
    let handle = home.handle();
    let endless = handle.schedule(ready::from_fn(|_: &mut u32, _| Directive::Home), Directive::Home).unwrap();
    let other = std::thread::spawn(move || {
        for _ in 0..100 {
            let counts = ready::from_fn(|count: &mut u32, _| {
                *count += 1;
                Directive::Done
            });
            assert!(handle.schedule(counts, Directive::Home).unwrap().wait_timeout(LIMIT).is_ok());
        }
        endless.cancel("over");
    });
    home.run().unwrap();
    wait(other).unwrap();
    assert_eq!(*home.get(), 100);
}
