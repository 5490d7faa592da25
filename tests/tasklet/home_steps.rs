//! Home.

use std::sync::atomic::Ordering;

use procession::sync::Latch;
use procession::tasklet::{Directive, Loop, LoopHandle, TaskletContext, TurnOutcome, ready};

use crate::support::*;

#[test]
fn home_steps_run_on_the_thread_that_is_in_the_loop() {
    let mut home = Loop::new(Vec::new());
    let handle = home.handle();
    let scheduler = std::thread::spawn(move || {
        for _ in 0..20 {
            handle
                .schedule(
                    ready::from_fns(
                        |threads: &mut Vec<ThreadId>, _: &mut TaskletContext<'_, _>| {
                            threads.push(me());
                            if threads.len().is_multiple_of(3) { Directive::Pool } else { Directive::Done }
                        },
                        |_: &mut TaskletContext<'_, _>| Directive::Home,
                    ),
                    Directive::Home,
                )
                .unwrap();
        }
    });
    wait(scheduler).unwrap();
    home.run().unwrap();
    assert!(home.get().len() >= 20);
    assert!(home.get().iter().all(|thread| *thread == me()));
}

#[test]
fn no_tasklet_is_stepped_at_home_before_the_loop_runs() {
    let mut home = Loop::new(0);
    let stepped = counter();
    let counts = stepped.clone();
    let tasklet = ready::from_fn(move |_: &mut i32, _| {
        counts.fetch_add(1, Ordering::SeqCst);
        Directive::Done
    });
    home.schedule(tasklet, Directive::Home).unwrap();
    let handle = home.handle();
    wait(std::thread::spawn(move || handle.schedule(ready::done(), Directive::Home).unwrap())).unwrap();
    assert_eq!((count(&stepped), home.tasklets().len()), (0, 2));
    home.run().unwrap();
    assert_eq!(count(&stepped), 1);
}

#[test]
fn no_two_home_steps_of_a_loop_run_at_once() {
    // The state is not shared by any lock and not even `Sync`; each step finds what the one before has left.
    let inside = counter();
    let mut home = Loop::new(std::cell::Cell::new(0_u32));
    let handle = home.handle();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (handle, inside) = (handle.clone(), inside.clone());
            scope.spawn(move || {
                for _ in 0..50 {
                    let inside = inside.clone();
                    let step = ready::from_fn(move |state: &mut std::cell::Cell<u32>, _| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        state.set(state.get() + 1);
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        Directive::Done
                    });
                    handle.schedule(step, Directive::Home).unwrap();
                }
            });
        }
        while home.get().get() < 200 {
            let report = home.run().unwrap();
            assert_eq!(report.panicked, 0);
        }
    });
    assert_eq!(home.get().get(), 200);
}

#[test]
fn five_tasklets_of_three_steps_take_turns() {
    let mut home = Loop::new(Vec::new());
    for n in 0..5 {
        let tasklet = numbered(move |step, order: &mut Vec<usize>, _| {
            order.push(n);
            if step < 2 { Directive::Home } else { Directive::Done }
        });
        home.schedule(tasklet, Directive::Home).unwrap();
    }
    home.run().unwrap();
    assert_eq!(home.into_inner(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn scheduling_in_a_step_never_runs_another_tasklet_inside_it() {
    let mut home = Loop::new(Vec::new());
    let outer = ready::from_fn(|order: &mut Vec<&str>, cx| {
        order.push("outer begins");
        let inner = || {
            ready::from_fn(|order: &mut Vec<&str>, _| {
                order.push("inner");
                Directive::Done
            })
        };
        cx.schedule(inner(), Directive::Home).unwrap();
        cx.handle().schedule(inner(), Directive::Home).unwrap();
        LoopHandle::<Vec<&str>>::current().unwrap().schedule(inner(), Directive::Home).unwrap();
        order.push("outer ends");
        Directive::Done
    });
    home.schedule(outer, Directive::Home).unwrap().run().unwrap();
    assert_eq!(home.get()[..2], ["outer begins", "outer ends"]);
    assert_eq!(home.get()[2..], ["inner"; 3]);
}

/// Schedules the next one, `left` times.
fn link(left: u32) -> impl procession::tasklet::Tasklet<u32> {
    ready::from_fn(move |count: &mut u32, cx: &mut TaskletContext<'_, u32>| {
        *count += 1;
        if left > 0 {
            let next: Box<dyn procession::tasklet::Tasklet<u32>> = Box::new(link(left - 1));
            cx.schedule(next, Directive::Home).unwrap();
        }
        Directive::Done
    })
}

#[test]
fn a_chain_of_a_hundred_thousand_tasklets_needs_no_deep_stack() {
    let small = std::thread::Builder::new().stack_size(128 * 1024);
    let thread = small.spawn(|| {
        let mut home = Loop::new(0);
        home.schedule(link(99_999), Directive::Home).unwrap().run().unwrap();
        // On an automatic loop as well.
        let mut automatic = Loop::automatic(0);
        automatic.schedule(link(99_999), Directive::Home).unwrap();
        (home.into_inner(), automatic.into_inner())
    });
    assert_eq!(wait(thread.unwrap()).unwrap(), (100_000, 100_000));
}

#[test]
fn a_tasklet_from_another_thread_wakes_the_home_thread() {
    let mut home = Loop::new(0);
    let (handle, asleep) = (home.handle(), Latch::new());
    let holds = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    let begun = asleep.clone();
    home.schedule(
        ready::from_fn(move |_: &mut i32, _| {
            let _ = begun.set(());
            Directive::Done
        }),
        Directive::Home,
    )
    .unwrap();
    let other = std::thread::spawn(move || {
        wait(&asleep);
        // Many times, so that the home thread is found before, in and after falling asleep.
        for n in 0..1_000 {
            let done = handle
                .schedule(
                    ready::from_fn(move |count: &mut i32, _| {
                        *count += 1;
                        Directive::Done
                    }),
                    Directive::Home,
                )
                .unwrap();
            assert!(done.wait_timeout(LIMIT).is_ok(), "the home thread was not woken for {n}");
        }
        holds.cancel("over");
    });
    home.run().unwrap();
    wait(other).unwrap();
    assert_eq!(*home.get(), 1_000);
}

#[test]
fn two_hundred_tasklets_lose_none_of_their_unguarded_changes() {
    let mut home = Loop::new(0_u64);
    for _ in 0..200 {
        let mut is_back = false;
        let mut has_been = false;
        let back = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let out = back.clone();
        let tasklet = ready::from_fns(
            move |sum: &mut u64, _: &mut TaskletContext<'_, u64>| {
                if !has_been {
                    has_been = true;
                    return Directive::Pool;
                }
                is_back |= back.load(Ordering::SeqCst);
                assert!(is_back);
                let before = *sum;
                std::thread::yield_now();
                *sum = before + 1;
                Directive::Done
            },
            move |_: &mut TaskletContext<'_, u64>| {
                out.store(true, Ordering::SeqCst);
                Directive::Home
            },
        );
        home.schedule(tasklet, Directive::Home).unwrap();
    }
    let report = home.run().unwrap();
    assert_eq!((*home.get(), report.finished), (200, 200));
    assert_eq!((report.home_steps, report.pool_steps), (400, 200));
    assert_eq!(home.turn(1), TurnOutcome::Finished);
}
