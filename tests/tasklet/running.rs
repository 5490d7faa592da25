//! The loop.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::sync::Latch;
use procession::tasklet::{
    Directive, Interruption, Loop, LoopHandle, PanicPolicy, Tasklet, TaskletContext, TurnOutcome, ready,
};
use procession::{CancelToken, Exit, Reason};

use crate::support::*;

#[test]
fn a_new_loop_does_nothing_and_an_empty_run_returns_at_once() {
    let mut home = Loop::new(Rc::new(5));
    let report = home.run().unwrap();
    assert_eq!((report.home_steps, report.ended()), (0, 0));
    assert!(report.is_clean());
    let stepped = Rc::new(std::cell::Cell::new(false));
    let mut lazy = Loop::new(stepped.clone());
    let step = ready::from_fn(|stepped: &mut Rc<std::cell::Cell<bool>>, _| {
        stepped.set(true);
        Directive::Done
    });
    lazy.schedule(step, Directive::Home).unwrap();
    assert!(!stepped.get());
    lazy.run().unwrap();
    assert!(stepped.get());
}

#[test]
fn the_loop_is_current_on_the_home_thread_until_run_returns() {
    let mut home = Loop::new(None);
    let handle = home.handle();
    assert!(LoopHandle::<Option<LoopHandle<()>>>::current().is_none());
    let asks = ready::from_fn(|seen: &mut Option<(ThreadId, bool)>, cx| {
        *seen = Some((me(), LoopHandle::current() == Some(cx.handle())));
        Directive::Done
    });
    home.schedule(asks, Directive::Home).unwrap().run().unwrap();
    assert_eq!(*home.get(), Some((me(), true)));
    assert!(LoopHandle::<Option<(ThreadId, bool)>>::current().is_none());
    drop(handle);
}

#[test]
fn run_returns_when_no_tasklet_is_left() {
    let mut home = Loop::new(());
    let blocker = Blocker::new();
    let on_pool = blocks_on_pool(blocker.blocked(), Directive::Done);
    let handle = home.handle();
    let waits = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    handle.schedule(ready::done(), Directive::Home).unwrap();
    handle.schedule(on_pool, Directive::Home).unwrap();
    let returned = Arc::new(AtomicBool::new(false));
    let seen = returned.clone();
    let other = std::thread::spawn(move || {
        let held = |what: &[(Directive, bool)]| {
            until("the loop holds these", || {
                handle.tasklets().iter().map(|it| (it.directive, it.running)).collect::<Vec<_>>() == what
            });
            assert!(!seen.load(Ordering::SeqCst));
        };
        blocker.wait_begun();
        held(&[(Directive::Wait, false), (Directive::Pool, true)]);
        blocker.release();
        held(&[(Directive::Wait, false)]);
        waits.redirect(Directive::Done).unwrap();
    });
    home.run().unwrap();
    returned.store(true, Ordering::SeqCst);
    wait(other).unwrap();
}

#[test]
fn a_loop_can_be_run_again_and_its_calls_be_chained() {
    fn push(n: u32) -> impl Tasklet<Vec<u32>> {
        ready::from_fn(move |seen: &mut Vec<u32>, _| {
            seen.push(n);
            Directive::Done
        })
    }
    fn chained(home: &mut Loop<Vec<u32>>) -> Result<u64, Box<dyn std::error::Error>> {
        let report =
            home.schedule(push(3), Directive::Home)?.schedule(push(4), Directive::Home)?.with(push(5))?.run()?;
        Ok(report.finished)
    }
    let mut home = Loop::new(Vec::new());
    home.schedule(push(1), Directive::Home).unwrap().schedule(push(2), Directive::Home).unwrap();
    assert_eq!(home.run().unwrap().finished, 2);
    assert_eq!(chained(&mut home).unwrap(), 3);
    assert_eq!(home.get(), &[1, 2, 5, 3, 4], "`with` takes its step at once");
}

#[cfg(target_os = "linux")]
#[test]
fn a_blocked_run_uses_no_processor_time() {
    // Ticks of the thread that is in `run`, and how often it was put aside by itself: once for each sleep.
    fn used(task: u64) -> (u64, u64) {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{task}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let status = std::fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        let switches = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap(), switches)
    }
    let mut home = Loop::new(());
    let handle = home.handle();
    let holds = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    let task = Latch::new();
    let set = task.clone();
    let tells = ready::from_fn(move |(): &mut (), _| {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let _ = set.set(link.file_name().unwrap().to_string_lossy().parse::<u64>().unwrap());
        Directive::Done
    });
    home.schedule(tells, Directive::Home).unwrap();
    let other = std::thread::spawn(move || {
        let task = wait(&task);
        let state = |task: u64| {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{task}/stat")).unwrap();
            stat.rsplit(')').next().unwrap().split_whitespace().next().unwrap().to_owned()
        };
        until("the home thread sleeps", || state(task) == "S");
        // Other threads work meanwhile. Each look gives the home thread a chance to run if it wanted to. At the first
        // looks it may still have been on its way to sleep.
        let rests = |_: &u32| {
            let before = used(task);
            for _ in 0..20_000 {
                std::thread::yield_now();
            }
            used(task) == before
        };
        let rests = (0..20).find(rests).is_some();
        holds.cancel("over");
        rests
    });
    home.run().unwrap();
    assert!(wait(other).unwrap(), "it never sleeps for a while");
}

#[test]
fn a_cancelled_run_names_what_is_left_and_can_be_continued() {
    let mut home = Loop::new(0);
    let stop = CancelToken::new();
    let stops = stop.clone();
    let counts = numbered(move |step, count: &mut u32, _| {
        *count += 1;
        if step == 2 {
            stops.cancel("enough for now");
        }
        if step < 9 { Directive::Home } else { Directive::Done }
    });
    home.schedule(ready::named(counts, "counts"), Directive::Home).unwrap();
    let waits = home.handle().schedule(ready::named(ready::wait(), "waits"), Directive::Wait).unwrap();
    let cut = home.run_until(&stop).unwrap_err();
    assert_eq!(*cut.why(), Interruption::Cancelled(Reason::from("enough for now")));
    assert_eq!((*home.get(), cut.left(), cut.report().home_steps), (3, 2, 3));
    let left: Vec<_> = cut.tasklets().iter().map(|it| (it.name.as_ref(), it.directive)).collect();
    assert_eq!(left, [("counts", Directive::Home), ("waits", Directive::Wait)]);
    assert!(cut.to_string().contains("2 tasklets are left"), "{cut}");
    // Nothing runs with a token that is cancelled already, but an empty loop is an empty loop.
    assert!(home.run_until(&stop).is_err());
    assert_eq!(*home.get(), 3);
    waits.cancel("over");
    assert_eq!(home.run().unwrap().finished, 1);
    assert_eq!(*home.get(), 10);
    assert!(home.run_until(&stop).is_ok());
}

#[test]
fn a_token_wakes_a_home_thread_that_sleeps() {
    let mut home = Loop::new(());
    home.schedule(ready::wait(), Directive::Wait).unwrap();
    for _ in 0..200 {
        let stop = CancelToken::new();
        let cancels = stop.clone();
        let other = std::thread::spawn(move || cancels.cancel(Reason::Cancelled));
        assert!(home.run_until(&stop).is_err());
        wait(other).unwrap();
    }
}

#[test]
fn a_run_with_a_limit_ends_by_the_clock_of_the_loop() {
    let manual = ManualClock::new();
    let mut home = Loop::<u32>::builder().clock(manual.clock()).build(0);
    home.schedule(ready::wait(), Directive::Wait).unwrap();
    let handle = home.handle();
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let clock = manual.clone();
    let mover = std::thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            clock.advance(Duration::from_secs(1));
            std::thread::yield_now();
        }
    });
    let began = manual.now();
    let cut = home.run_for(Duration::from_secs(10)).unwrap_err();
    over.store(true, Ordering::SeqCst);
    wait(mover).unwrap();
    assert_eq!(*cut.why(), Interruption::TimedOut);
    assert!(manual.now() - began >= Duration::from_secs(10));
    // Between steps: this one never ends by itself.
    let moves = manual.clone();
    let counts = ready::from_fn(move |count: &mut u32, _| {
        *count += 1;
        moves.advance(Duration::from_secs(1));
        Directive::Home
    });
    let endless = handle.schedule(counts, Directive::Home).unwrap();
    assert!(home.run_for(Duration::from_secs(10)).is_err());
    assert_eq!(*home.get(), 10);
    // No time at all is no step.
    assert!(home.run_for(Duration::ZERO).is_err());
    assert_eq!(*home.get(), 10);
    endless.cancel("over");
    handle.cancel(home.tasklets()[0].id, "over");
    assert!(home.run_for(Duration::MAX).is_ok());
}

#[test]
fn a_tasklet_that_returns_after_a_run_goes_on_with_the_next() {
    let mut home = Loop::new(Vec::new());
    let (blocker, stop) = (Blocker::new(), CancelToken::new());
    let blocked = blocker.blocked();
    let mut first = true;
    let mut turns = 0;
    let tasklet = ready::from_fns(
        move |seen: &mut Vec<&str>, _: &mut TaskletContext<'_, Vec<&str>>| {
            seen.push("home");
            if std::mem::take(&mut first) { Directive::Pool } else { Directive::Done }
        },
        move |_: &mut TaskletContext<'_, Vec<&str>>| {
            blocked.wait();
            turns += 1;
            // The second time with nobody in the loop.
            if turns < 3 { Directive::Pool } else { Directive::Home }
        },
    );
    let ended = home.handle().schedule(tasklet, Directive::Home).unwrap();
    let (stops, begun) = (stop.clone(), blocker.begun());
    let other = std::thread::spawn(move || {
        wait(&begun);
        stops.cancel("later");
    });
    let cut = home.run_until(&stop).unwrap_err();
    wait(other).unwrap();
    assert_eq!((cut.left(), cut.tasklets()[0].running), (1, true));
    blocker.release();
    until("its step is over", || !home.tasklets()[0].running);
    assert!(!ended.is_finished());
    assert_eq!(cut.report().pool_steps + home.run().unwrap().pool_steps, 3);
    assert_eq!(home.get(), &["home", "home"]);
}

#[test]
fn no_loop_within_a_loop_is_confused_with_it() {
    // A step runs another loop: that is another one, and afterwards the first one is current again.
    let mut outer = Loop::new(Vec::new());
    let step = ready::from_fn(|seen: &mut Vec<bool>, cx| {
        let mut inner = Loop::new(Vec::new());
        let asks = ready::from_fn(|seen: &mut Vec<bool>, cx: &mut TaskletContext<'_, Vec<bool>>| {
            seen.push(LoopHandle::current() == Some(cx.handle()));
            Directive::Done
        });
        inner.schedule(asks, Directive::Home).unwrap().run().unwrap();
        seen.append(inner.get_mut());
        seen.push(LoopHandle::current() == Some(cx.handle()));
        Directive::Done
    });
    outer.schedule(step, Directive::Home).unwrap().run().unwrap();
    assert_eq!(outer.get(), &[true, true]);
}

#[test]
fn a_loop_with_a_send_state_can_move_to_another_thread() {
    let mut home = Loop::new(Vec::new());
    let tells = || {
        ready::from_fn(|seen: &mut Vec<ThreadId>, _| {
            seen.push(me());
            Directive::Done
        })
    };
    home.schedule(tells(), Directive::Home).unwrap().run().unwrap();
    let seen = std::thread::spawn(move || {
        home.schedule(tells(), Directive::Home).unwrap().run().unwrap();
        assert_eq!(home.turn(1), TurnOutcome::Finished);
        (me(), home.into_inner())
    });
    let (there, seen) = wait(seen).unwrap();
    assert_eq!(seen, [me(), there]);
}

#[test]
fn a_dropped_loop_ends_its_tasklets_and_says_so() {
    let drops = counter();
    let mut home = Loop::new(());
    let handle = home.handle();
    let blocker = Blocker::new();
    let (blocked, token) = (blocker.blocked(), Dropped(drops.clone()));
    let on_pool = elsewhere(move |_: &mut TaskletContext<'_, ()>| {
        let _ = &token;
        blocked.wait();
        Directive::Home
    });
    let on_pool = handle.schedule(on_pool, Directive::Home).unwrap();
    let resting: Vec<_> = [Directive::Home, Directive::Wait]
        .into_iter()
        .map(|directive| {
            let token = Dropped(drops.clone());
            let tasklet = ready::from_fn(move |(): &mut (), _| {
                let _ = &token;
                Directive::Done
            });
            handle.schedule(tasklet, directive).unwrap()
        })
        .collect();
    assert_eq!(home.turn(1), TurnOutcome::Ran(1));
    blocker.wait_begun();
    drop(home);
    assert_eq!(count(&drops), 2);
    for tasklet in resting {
        assert!(matches!(tasklet.exit(), Some(Exit::Terminated(Reason::Shutdown))));
    }
    assert!(!on_pool.is_finished());
    blocker.release();
    assert!(matches!(wait(&on_pool), Exit::Terminated(Reason::Shutdown)));
    assert_eq!(count(&drops), 3);
    assert!(handle.is_closed());
    assert!(handle.schedule(ready::done(), Directive::Home).is_err());
}

#[test]
fn the_hook_of_an_automatic_loop_is_called_once_until_the_next_turn() {
    let calls = counter();
    let called = calls.clone();
    let mut home = Loop::automatic(());
    home.on_wake(move || {
        called.fetch_add(1, Ordering::SeqCst);
    });
    for turns in 1..=3 {
        for _ in 0..10 {
            home.schedule(ready::done(), Directive::Home).unwrap();
        }
        assert_eq!(count(&calls), turns);
        assert_eq!(home.turn(1), TurnOutcome::Finished);
    }
}

#[test]
fn a_dropped_loop_drops_a_hook_that_holds_the_loop() {
    let drops = counter();
    let mut home = Loop::new(());
    let (hook, handler) = ((home.handle(), Dropped(drops.clone())), (home.handle(), Dropped(drops.clone())));
    home.on_wake(move || {
        let _ = &hook;
    });
    home.on_panic(PanicPolicy::call(move |_| {
        let _ = &handler;
    }));
    let token = (home.handle(), Dropped(drops.clone()));
    let waits = ready::from_fn(move |(): &mut (), _| {
        let _ = &token;
        Directive::Done
    });
    home.schedule(waits, Directive::Wait).unwrap();
    drop(home);
    assert_eq!(count(&drops), 3);
}
