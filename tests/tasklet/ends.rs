//! Done and errors.

use std::sync::atomic::{AtomicBool, Ordering};

use procession::Exit;
use procession::sync::Latch;
use procession::tasklet::{
    Directive, Interruption, Loop, PanicPolicy, Resume, Tasklet, TaskletContext, TurnOutcome, ready,
};

use crate::support::*;

#[test]
fn the_destructor_of_a_tasklet_has_run_before_run_returns() {
    // At home, on the pool, cancelled while it waits, and panicked; many times, for the threads to fall in all orders.
    for round in 0..200 {
        let drops = counter();
        let mut home = Loop::new(());
        let token = Dropped(drops.clone());
        let at_home = ready::from_fn(move |(): &mut (), _| {
            let _ = &token;
            Directive::Done
        });
        let token = Dropped(drops.clone());
        let on_pool = ready::from_fns(
            |(): &mut (), _: &mut TaskletContext<'_, ()>| Directive::Pool,
            move |_: &mut TaskletContext<'_, ()>| {
                let _ = &token;
                Directive::Done
            },
        );
        let token = Dropped(drops.clone());
        let waits = ready::from_fn(move |(): &mut (), _| {
            let _ = &token;
            Directive::Wait
        });
        let waits = home.handle().schedule(waits, Directive::Home).unwrap();
        home.schedule(at_home, Directive::Home).unwrap().schedule(on_pool, Directive::Home).unwrap();
        let canceller = std::thread::spawn(move || {
            while !waits.cancel("enough") {
                assert!(!waits.is_finished());
            }
        });
        let report = home.run().unwrap();
        assert_eq!((count(&drops), report.ended()), (3, 3), "in round {round}");
        wait(canceller).unwrap();
    }
}

#[test]
fn a_panic_in_a_home_step_finishes_that_tasklet_only() {
    quiet_panics();
    let mut home = Loop::new(0);
    let drops = counter();
    let token = Dropped(drops.clone());
    let bomb = ready::from_fn(move |_: &mut u32, _| {
        let _ = &token;
        panic!("on purpose")
    });
    let ended = home.handle().schedule(ready::named(bomb, "the bomb"), Directive::Home).unwrap();
    for _ in 0..3 {
        let counts = ready::from_fn(|count: &mut u32, _| {
            *count += 1;
            Directive::Done
        });
        home.schedule(counts, Directive::Home).unwrap();
    }
    let report = home.run().unwrap();
    assert_eq!((*home.get(), report.finished, report.panicked, count(&drops)), (3, 3, 1, 1));
    assert_eq!((report.panics[0].name.as_ref(), report.panics[0].directive), ("the bomb", Directive::Home));
    assert!(!report.is_clean() && report.to_string().contains("the bomb"), "{report}");
    assert!(matches!(ended.exit(), Some(Exit::Panicked(panic)) if panic.message() == "on purpose"));
}

#[test]
fn a_panic_never_reaches_the_code_that_called_schedule() {
    // From outside, from a step, from another thread, on an automatic loop; at home and on the pool.
    let mut home = Loop::new(());
    home.schedule(bomb(), Directive::Home).unwrap();
    let schedules = ready::from_fn(|(): &mut (), cx| {
        cx.schedule(bomb(), Directive::Home).unwrap();
        cx.schedule(bomb(), Directive::Pool).unwrap();
        Directive::Done
    });
    home.schedule(schedules, Directive::Home).unwrap();
    let handle = home.handle();
    wait(std::thread::spawn(move || handle.schedule(bomb(), Directive::Home).unwrap())).unwrap();
    let report = home.run().unwrap();
    assert_eq!((report.panicked, report.finished), (4, 1));

    let mut automatic = Loop::automatic(());
    automatic.schedule(bomb(), Directive::Home).unwrap().schedule(ready::done(), Directive::Home).unwrap();
    let report = automatic.take_report();
    assert_eq!((report.panicked, report.finished), (1, 1));
}

#[test]
fn a_panic_stops_the_run_by_policy_and_the_next_run_goes_on() {
    for elsewhere in [false, true] {
        let mut home = Loop::new(0);
        home.on_panic(PanicPolicy::Stop);
        let first = if elsewhere { Directive::Pool } else { Directive::Home };
        let schedules = ready::from_fn(move |_: &mut u32, cx| {
            cx.schedule(ready::named(bomb(), "the bomb"), first).unwrap();
            let rest = numbered(|step, steps: &mut u32, _| {
                *steps += 1;
                if step < 2 { Directive::Home } else { Directive::Done }
            });
            // It waits until the bomb has gone off.
            cx.schedule(rest, Directive::Wait).unwrap();
            Directive::Done
        });
        let cut = home.schedule(schedules, Directive::Home).unwrap().run().unwrap_err();
        let Interruption::Panicked(panic) = cut.why() else { panic!("{cut}") };
        assert_eq!((panic.name.as_ref(), panic.panic.message()), ("the bomb", ON_PURPOSE));
        assert_eq!(panic.directive, first);
        assert_eq!((cut.left(), cut.tasklets()[0].directive), (1, Directive::Wait));
        assert_eq!((cut.report().panicked, cut.report().finished), (1, 1));
        let rest = cut.tasklets()[0].id;
        assert!(home.handle().redirect(rest, Directive::Home).unwrap());
        assert_eq!(home.run().unwrap().finished, 1);
        assert_eq!(*home.get(), 3);
    }
}

#[test]
fn a_panic_that_leaves_the_loop_empty_stops_it_all_the_same() {
    let mut home = Loop::new(());
    home.on_panic(PanicPolicy::Stop);
    let cut = home.schedule(bomb(), Directive::Home).unwrap().run().unwrap_err();
    assert_eq!((cut.left(), cut.report().panicked), (0, 1));
    assert!(cut.to_string().contains(ON_PURPOSE), "{cut}");
    assert_eq!(home.run().unwrap().ended(), 0);
    home.schedule(bomb(), Directive::Home).unwrap();
    assert!(matches!(home.turn(1), TurnOutcome::Stopped(panic) if panic.panic.message() == ON_PURPOSE));
}

#[test]
fn a_panic_handler_whose_destructor_panics_does_not_disturb_the_end() {
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            panic!("{ON_PURPOSE}");
        }
    }
    let mut home = Loop::new(());
    let held = Held;
    home.on_panic(PanicPolicy::call(move |_| {
        let _ = &held;
    }));
    home.schedule(bomb(), Directive::Home).unwrap();
    let node = home.shutdown_node();
    assert_eq!(home.run().unwrap().panicked, 1);
    drop(home);
    assert!(node.is_closed() && node.err().is_none());
}

#[test]
fn a_panic_handler_runs_on_the_steps_thread_and_may_panic() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let mut home = Loop::<()>::builder()
        .on_panic(PanicPolicy::call(move |panic| {
            tells.lock().unwrap().push((panic.directive, me(), panic.panic.message().to_owned()));
            panic!("on purpose, in the handler");
        }))
        .build(());
    let both = ready::from_fn(|(): &mut (), cx| {
        cx.schedule(bomb(), Directive::Home).unwrap();
        cx.schedule(bomb(), Directive::Pool).unwrap();
        Directive::Done
    });
    let report = home.schedule(both, Directive::Home).unwrap().run().unwrap();
    assert_eq!((report.panicked, report.finished), (2, 1));
    let mut told = told.lock().unwrap().clone();
    told.sort_by_key(|(directive, ..)| *directive);
    assert_eq!((told[0].0, told[0].1, told[0].2.as_str()), (Directive::Home, me(), ON_PURPOSE));
    assert_eq!((told[1].0, told[1].2.as_str()), (Directive::Pool, ON_PURPOSE));
    assert_ne!(told[1].1, me());
}

#[test]
fn a_handler_may_use_the_loop() {
    let mut home = Loop::new(());
    let (handle, seen) = (home.handle(), Arc::new(AtomicBool::new(false)));
    let sees = seen.clone();
    home.on_panic(PanicPolicy::call(move |_| {
        assert!(handle.tasklets().is_empty());
        handle.schedule(ready::done(), Directive::Home).unwrap();
        sees.store(true, Ordering::SeqCst);
    }));
    let report = home.schedule(bomb(), Directive::Home).unwrap().run().unwrap();
    assert!(seen.load(Ordering::SeqCst));
    assert_eq!((report.panicked, report.finished), (1, 1));
    home.on_panic(PanicPolicy::Finish);
}

#[test]
fn destructors_that_panic_disturb_nobody() {
    struct Bomb(Latch<()>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            let _ = self.0.set(());
            panic!("on purpose");
        }
    }
    quiet_panics();
    let mut home = Loop::new(());
    let handle = home.handle();
    let dropped: Vec<_> = (0..4).map(|_| Latch::new()).collect();
    let holds = |n: usize, says: Directive| {
        let bomb = Bomb(dropped[n].clone());
        ready::from_fns(
            move |(): &mut (), _: &mut TaskletContext<'_, ()>| {
                let _ = &bomb;
                says
            },
            |_: &mut TaskletContext<'_, ()>| Directive::Done,
        )
    };
    let ends = [Directive::Done, Directive::Pool, Directive::Wait];
    let tasklets: Vec<_> =
        ends.iter().enumerate().map(|(n, says)| handle.schedule(holds(n, *says), Directive::Home).unwrap()).collect();
    let report = home.run_for(std::time::Duration::ZERO);
    assert!(report.is_err());
    assert!(tasklets[2].cancel("over"));
    let report = home.run().unwrap();
    assert_eq!((report.finished, report.cancelled), (2, 1));
    handle.schedule(holds(3, Directive::Done), Directive::Wait).unwrap();
    drop(home);
    assert!(dropped.iter().all(|latch| latch.is_set()));
}

#[test]
fn a_chain_of_resumptions_ends_on_a_small_stack() {
    struct Link {
        last: Arc<Mutex<Option<Resume>>>,
        next: Option<Resume>,
    }
    impl Tasklet<()> for Link {
        fn home(&mut self, (): &mut (), cx: &mut TaskletContext<'_, ()>) -> Directive {
            let mine = cx.suspend();
            self.next = self.last.lock().unwrap().replace(mine);
            Directive::Wait
        }
    }
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let chain = small.spawn(|| {
        for cancels in [false, true] {
            let (mut home, last) = (Loop::new(()), Arc::new(Mutex::new(None)));
            for _ in 0..20_000 {
                home.schedule(Link { last: last.clone(), next: None }, Directive::Home).unwrap();
            }
            assert_eq!(home.run_until_idle(), TurnOutcome::Ran(20_000));
            let first = last.lock().unwrap().take().unwrap();
            if cancels {
                assert!(home.handle().cancel(first.id(), "the first"))
            } else {
                drop(first)
            }
            assert_eq!(home.turn(1), TurnOutcome::Finished, "all have ended when the first has");
            assert_eq!(home.take_report().ended(), 20_000);
        }
    });
    wait(chain.unwrap()).unwrap();
}
