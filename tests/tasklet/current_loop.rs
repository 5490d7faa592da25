//! The current loop of a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use procession::pool::Pool;
use procession::sync::Latch;
use procession::tasklet::{
    Directive, Loop, LoopBuilder, LoopHandle, LoopInUseError, PanicPolicy, ScheduleError, TaskletContext, TurnOutcome,
    on_automatic, ready, reset_automatic,
};

use crate::support::*;

fn pushes(n: u32) -> impl procession::tasklet::Tasklet<Vec<u32>> {
    ready::from_fn(move |seen: &mut Vec<u32>, _| {
        seen.push(n);
        Directive::Done
    })
}

#[test]
fn code_in_any_step_finds_its_loop_without_being_passed_it() {
    // Three calls deep, at home, on the pool and in `with`.
    fn deep() -> LoopHandle<()> {
        LoopHandle::current().unwrap()
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (at_home, on_pool) = (seen.clone(), seen.clone());
    let mut home = Loop::new(());
    let tasklet = ready::from_fns(
        move |(): &mut (), _: &mut TaskletContext<'_, ()>| {
            let mut seen = at_home.lock().unwrap();
            seen.push(deep());
            match seen.len() {
                1 => Directive::Home,
                2 => Directive::Pool,
                _ => Directive::Done,
            }
        },
        move |_: &mut TaskletContext<'_, ()>| {
            on_pool.lock().unwrap().push(deep());
            Directive::Home
        },
    );
    home.with(tasklet).unwrap();
    assert_eq!(home.run().unwrap().pool_steps, 1);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|handle| *handle == home.handle()));
}

#[test]
fn with_takes_the_first_step_now_and_schedules_the_rest() {
    let mut home = Loop::new(Vec::new());
    let handle = home.handle();
    let current = Arc::new(AtomicBool::new(false));
    let sees = current.clone();
    let expected = handle.clone();
    home.schedule(pushes(0), Directive::Home).unwrap();
    let tasklet = numbered(move |step, seen: &mut Vec<u32>, cx| {
        seen.push(10 + step as u32);
        sees.store(LoopHandle::current().as_ref() == Some(&expected) && cx.handle() == expected, Ordering::SeqCst);
        if step == 0 { Directive::Home } else { Directive::Done }
    });
    home.with(tasklet).unwrap();
    assert_eq!(home.get(), &[10], "the step has run, and no other one");
    assert!(current.load(Ordering::SeqCst));
    assert!(LoopHandle::<Vec<u32>>::current().is_none());
    home.run().unwrap();
    assert_eq!(home.get(), &[10, 0, 11]);
    // The other directives.
    home.with(pushes(1)).unwrap();
    assert!(home.tasklets().is_empty());
    home.with(ready::wait()).unwrap();
    assert_eq!(home.tasklets()[0].directive, Directive::Wait);
    let resumed = ready::from_fn(|seen: &mut Vec<u32>, cx| {
        if seen.last() == Some(&7) {
            return Directive::Done;
        }
        seen.push(7);
        cx.suspend().resume(Directive::Home);
        Directive::Wait
    });
    home.with(resumed).unwrap();
    assert_eq!(home.turn(1), TurnOutcome::Ran(1), "also a resumption in that step is not lost");
    home.close(LIMIT).unwrap();
    let (back, why) = home.with(pushes(9)).unwrap_err().into_parts();
    assert!(matches!(why, ScheduleError::Closed));
    drop(back);
    assert!(!home.get().contains(&9));
}

#[test]
fn the_loop_before_is_current_again_after_with_and_after_a_panic() {
    let mut outer = Loop::new(Vec::new());
    let step = ready::from_fn(|seen: &mut Vec<u32>, cx| {
        let mut inner = Loop::new(Vec::new());
        let handle = inner.handle();
        let before = LoopHandle::<Vec<u32>>::current();
        inner.with(pushes(1)).unwrap();
        let after = LoopHandle::<Vec<u32>>::current();
        assert!(before == after && after == Some(cx.handle()) && after != Some(handle));
        let panic = catch_unwind(AssertUnwindSafe(|| inner.with(bomb()).map(|_| ()).is_ok())).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), ON_PURPOSE);
        assert!(LoopHandle::<Vec<u32>>::current() == before);
        // The loop is unharmed, and has counted it.
        assert_eq!(inner.tasklets().len(), 0);
        let report = inner.schedule(pushes(2), Directive::Home).unwrap().run().unwrap();
        assert_eq!((report.panicked, report.finished), (1, 2));
        seen.append(inner.get_mut());
        Directive::Done
    });
    let report = outer.schedule(step, Directive::Home).unwrap().run().unwrap();
    assert_eq!((outer.get().as_slice(), report.panicked), ([1, 2].as_slice(), 0));
    // The policy is for those whom the panic does not reach by itself.
    outer.on_panic(PanicPolicy::Stop);
    assert!(catch_unwind(AssertUnwindSafe(|| outer.with(bomb()).is_ok())).is_err());
    assert_eq!(outer.run().unwrap().panicked, 1);
    assert!(LoopHandle::<Vec<u32>>::current().is_none());
}

#[test]
fn a_home_thread_is_in_no_loop_after_a_run_whose_steps_panicked() {
    let mut home = Loop::new(());
    home.on_panic(PanicPolicy::Stop);
    assert!(home.schedule(bomb(), Directive::Home).unwrap().run().is_err());
    assert!(LoopHandle::<()>::current().is_none());
}

#[test]
fn an_automatic_loop_has_run_the_tasklet_when_schedule_returns() {
    let mut home = Loop::automatic(Vec::new());
    home.schedule(pushes(1), Directive::Home).unwrap();
    assert_eq!(home.get(), &[1]);
    // All of its steps, and what it has scheduled.
    let spawns = numbered(|step, seen: &mut Vec<u32>, cx| {
        seen.push(2);
        cx.schedule(pushes(3), Directive::Home).unwrap();
        if step == 0 { Directive::Home } else { Directive::Done }
    });
    home.schedule(spawns, Directive::Home).unwrap();
    assert_eq!(home.get(), &[1, 2, 3, 2, 3]);
    home.schedule(pushes(4), Directive::Wait).unwrap();
    assert_eq!(home.get().len(), 5);
    let waiting = home.tasklets()[0].id;
    home.handle().redirect(waiting, Directive::Home).unwrap();
    assert_eq!(home.get().len(), 5, "a handle only queues");
    home.schedule(pushes(5), Directive::Home).unwrap();
    assert_eq!(home.get()[5..], [4, 5]);
}

#[test]
fn a_thread_has_one_automatic_loop_of_a_state_until_it_is_reset() {
    type State = Vec<u32>;
    let ask = || on_automatic(|home: &mut Loop<State>| home.handle()).unwrap();
    assert!(LoopHandle::<State>::current().is_none());
    let first = ask();
    on_automatic(|home: &mut Loop<State>| {
        home.schedule(pushes(1), Directive::Home).unwrap();
        assert_eq!(home.get(), &[1]);
    })
    .unwrap();
    assert!(ask() == first);
    assert_eq!(on_automatic(|home: &mut Loop<State>| home.get().len()), Ok(1));
    assert_eq!(on_automatic(|home: &mut Loop<String>| home.get().len()), Ok(0), "of another state it is another one");
    let other = wait(std::thread::spawn(|| on_automatic(|home: &mut Loop<State>| home.handle()).unwrap())).unwrap();
    assert!(other != first && other.is_closed(), "of another thread it is another one, which ended with the thread");
    assert!(reset_automatic::<State>());
    assert!(first.is_closed());
    assert!(!reset_automatic::<State>());
    assert!(ask() != first);
    assert_eq!(on_automatic(|home: &mut Loop<State>| home.get().len()), Ok(0));
}

#[test]
fn an_automatic_loop_is_not_lent_twice_and_survives_a_panic() {
    quiet_panics();
    let nested = on_automatic(|home: &mut Loop<u64>| {
        let handle = home.handle();
        let nested = ready::from_fn(move |inside: &mut u64, _| {
            assert_eq!(on_automatic(|_: &mut Loop<u64>| ()), Err(LoopInUseError));
            assert!(LoopHandle::current() == Some(handle.clone()), "what a step is to use");
            *inside += 1;
            Directive::Done
        });
        home.schedule(nested, Directive::Home).unwrap();
        *home.get()
    });
    assert_eq!(nested, Ok(1));
    let panic = catch_unwind(|| on_automatic(|_: &mut Loop<u64>| std::panic::panic_any(ON_PURPOSE)));
    assert!(panic.is_err());
    assert_eq!(on_automatic(|home: &mut Loop<u64>| *home.get()), Ok(1));
    // Reset while it is in use: it ends when that is over.
    let handle = on_automatic(|home: &mut Loop<u64>| {
        assert!(reset_automatic::<u64>());
        home.schedule(ready::done(), Directive::Home).unwrap();
        home.handle()
    })
    .unwrap();
    assert!(handle.is_closed());
    assert_eq!(on_automatic(|home: &mut Loop<u64>| *home.get()), Ok(0));
}

#[test]
fn an_automatic_loop_stays_automatic_after_a_run() {
    let mut home = Loop::automatic(Vec::new());
    home.schedule(pushes(1), Directive::Wait).unwrap();
    let waiting = home.tasklets()[0].id;
    home.handle().redirect(waiting, Directive::Home).unwrap();
    home.run().unwrap();
    assert_eq!(home.get(), &[1]);
    home.schedule(pushes(2), Directive::Home).unwrap();
    assert_eq!(home.get(), &[1, 2], "it turns by itself as before");
    assert_eq!(home.run_until_idle(), TurnOutcome::Finished);
    home.schedule(pushes(3), Directive::Home).unwrap();
    assert_eq!(home.get().len(), 3);
}

#[test]
fn an_automatic_loop_goes_on_after_a_panic_under_any_policy() {
    let mut home = Loop::automatic(Vec::new());
    home.on_panic(PanicPolicy::Stop);
    home.schedule(bomb(), Directive::Home).unwrap().schedule(pushes(1), Directive::Home).unwrap();
    assert_eq!(home.get(), &[1]);
    assert!(home.run().is_err(), "the next run has it");
    assert!(home.run().is_ok());
}

#[test]
fn an_automatic_loop_ends_with_its_thread() {
    let drops = counter();
    let state = Arc::new(());
    thread_local!(static STATE: std::cell::RefCell<Option<Arc<()>>> = const { std::cell::RefCell::new(None) });
    #[derive(Clone)]
    struct Held(#[allow(dead_code)] Option<Arc<()>>);
    impl Default for Held {
        fn default() -> Held {
            Held(STATE.with(|state| state.borrow().clone()))
        }
    }
    let (inside, token) = (state.clone(), Dropped(drops.clone()));
    let thread = std::thread::spawn(move || {
        STATE.with(|state| *state.borrow_mut() = Some(inside));
        on_automatic(move |home: &mut Loop<Held>| {
            let waits = ready::from_fn(move |_: &mut Held, _| {
                let _ = &token;
                Directive::Wait
            });
            home.schedule(waits, Directive::Home).unwrap();
        })
        .unwrap();
        LoopBuilder::new().pool(&Pool::builder().build().unwrap()).set_for_thread();
    });
    wait(thread).unwrap();
    assert_eq!((Arc::strong_count(&state), count(&drops)), (1, 1));
}

#[test]
fn a_threads_loop_options_are_inherited_by_pool_steps() {
    let threads = |name: &str| Pool::builder().max(2).name(name).build().unwrap();
    // The name of the pool that a loop made here uses.
    fn name_of_pool() -> String {
        let mut home = Loop::new(String::new());
        let names = ready::begin()
            .then_blocking(|()| std::thread::current().name().unwrap_or_default().to_owned())
            .then(|state: &mut String, name| *state = name);
        home.schedule(names, Directive::Home).unwrap().run().unwrap();
        home.into_inner()
    }
    let thread = std::thread::spawn(move || {
        assert!(name_of_pool().starts_with("procession-tasklet"));
        let pool = threads("procession-mine");
        assert!(LoopBuilder::new().pool(&pool).on_panic(PanicPolicy::Stop).set_for_thread().is_none());
        assert!(name_of_pool().starts_with("procession-mine"));
        // An automatic loop as well, and what a pool step makes, also of a loop that was made otherwise.
        on_automatic(|home: &mut Loop<()>| {
            home.schedule(bomb(), Directive::Home).unwrap();
            assert!(home.run().is_err(), "the policy is the thread's");
        })
        .unwrap();
        let other = threads("procession-other");
        let mut home = LoopBuilder::new().pool(&other).build(String::new());
        let inherits = ready::begin()
            .then_blocking(|()| (std::thread::current().name().unwrap_or_default().to_owned(), name_of_pool()))
            .then(|state: &mut String, (here, made)| {
                assert!(here.starts_with("procession-other"));
                *state = made;
            });
        home.schedule(inherits, Directive::Home).unwrap().run().unwrap();
        assert!(home.get().starts_with("procession-mine"), "{:?}", home.get());
        // The pool's thread has it for the step only.
        let (sent, done) = (Arc::new(Mutex::new(String::new())), Latch::new());
        let (place, set) = (sent.clone(), done.clone());
        other
            .execute(move || {
                *place.lock().unwrap() = name_of_pool();
                let _ = set.set(());
            })
            .unwrap();
        wait(&done);
        assert!(sent.lock().unwrap().starts_with("procession-tasklet"));
        assert!(LoopBuilder::reset_for_thread().is_some());
        assert!(name_of_pool().starts_with("procession-tasklet"));
    });
    wait(thread).unwrap();
}
