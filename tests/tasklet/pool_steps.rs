//! Pool.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use procession::pool::{Pool, PoolError, QueuePolicy};
use procession::sync::Latch;
use procession::tasklet::{Directive, Loop, LoopHandle, ScheduleError, Tasklet, TaskletContext, TurnOutcome, ready};
use procession::{Exit, Reason};

use crate::support::*;

#[test]
fn pool_steps_run_elsewhere_and_know_their_loop() {
    let mut home = Loop::new(());
    let handle = home.handle();
    let seen = Arc::new(Mutex::new(None));
    let tells = seen.clone();
    let tasklet = elsewhere(move |_: &mut TaskletContext<'_, ()>| {
        let current = LoopHandle::<()>::current().unwrap();
        // It can schedule back.
        current.schedule(ready::done(), Directive::Home).unwrap();
        *tells.lock().unwrap() = Some((me(), current));
        Directive::Done
    });
    let report = home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
    let (thread, current) = seen.lock().unwrap().take().unwrap();
    assert_ne!(thread, me());
    assert!(current == handle);
    assert_eq!(report.finished, 2);
    assert!(LoopHandle::<()>::current().is_none());
}

#[test]
fn home_steps_go_on_while_pool_steps_block() {
    let mut home = Loop::new(0);
    let blocker = Blocker::new();
    home.schedule(blocks_on_pool(blocker.blocked(), Directive::Done), Directive::Home).unwrap();
    // Comes again and again while the other one blocks, and only then lets it go.
    let others = numbered(move |step, count: &mut i32, _| {
        blocker.wait_begun();
        *count += 1;
        if step < 999 {
            return Directive::Home;
        }
        blocker.release();
        Directive::Done
    });
    let report = home.schedule(others, Directive::Home).unwrap().run().unwrap();
    assert_eq!((*home.get(), report.finished), (1_000, 2));
}

#[test]
fn run_waits_for_a_tasklet_that_is_on_the_pool() {
    let mut home = Loop::new(false);
    let (over, blocker) = (Arc::new(AtomicBool::new(false)), Blocker::new());
    let blocked = blocker.blocked();
    let mut first = true;
    let tasklet = ready::from_fns(
        move |back: &mut bool, _: &mut TaskletContext<'_, bool>| {
            if std::mem::take(&mut first) {
                return Directive::Pool;
            }
            *back = true;
            Directive::Done
        },
        move |_: &mut TaskletContext<'_, bool>| {
            blocked.wait();
            Directive::Home
        },
    );
    home.schedule(tasklet, Directive::Home).unwrap();
    let returned = over.clone();
    let other = std::thread::spawn(move || {
        blocker.wait_begun();
        assert!(!returned.load(Ordering::SeqCst));
        blocker.release();
    });
    home.run().unwrap();
    over.store(true, Ordering::SeqCst);
    assert!(*home.get());
    wait(other).unwrap();
}

#[test]
fn scheduling_for_the_pool_without_a_run_hands_the_tasklet_back() {
    struct Mine(&'static str);
    impl Tasklet<()> for Mine {
        fn home(&mut self, (): &mut (), _: &mut TaskletContext<'_, ()>) -> Directive {
            Directive::Done
        }
    }
    let mut home = Loop::new(());
    let (tasklet, why) = home.schedule(Mine("one"), Directive::Pool).unwrap_err().into_parts();
    assert!(matches!(why, ScheduleError::NotRunning), "{why}");
    assert_eq!(
        (tasklet.0, why.to_string().as_str()),
        ("one", "no thread runs the loop: schedule with `Directive::Home`, or run the loop first")
    );
    let (tasklet, why) = home.handle().schedule(Mine("two"), Directive::Pool).unwrap_err().into_parts();
    assert!(matches!(why, ScheduleError::NotRunning));
    assert_eq!(tasklet.0, "two");
    // The loop is unharmed.
    assert!(home.tasklets().is_empty());
    assert_eq!(home.run().unwrap().ended(), 0);
    assert_eq!(home.schedule(tasklet, Directive::Home).unwrap().run().unwrap().finished, 1);
}

#[test]
fn a_step_that_wants_the_pool_without_a_run_hands_its_tasklet_back() {
    struct Out(Arc<AtomicUsize>);
    impl Tasklet<u32> for Out {
        fn home(&mut self, steps: &mut u32, cx: &mut TaskletContext<'_, u32>) -> Directive {
            *steps += 1;
            // Neither can it schedule another one there.
            let refused = cx.schedule(ready::done(), Directive::Pool).unwrap_err();
            assert!(matches!(refused.reason(), ScheduleError::NotRunning));
            Directive::Pool
        }
    }
    let marker = counter();
    let mut home = Loop::new(0);
    let (tasklet, why) = home.with(Out(marker.clone())).unwrap_err().into_parts();
    assert!(matches!(why, ScheduleError::NotRunning));
    assert!(Arc::ptr_eq(&tasklet.0, &marker));
    assert_eq!((*home.get(), home.tasklets().len()), (1, 0));
    assert_eq!(home.run().unwrap().ended(), 0, "the loop is unharmed");

    let mut automatic = Loop::automatic(0);
    let (tasklet, why) = automatic.schedule(tasklet, Directive::Home).unwrap_err().into_parts();
    assert!(matches!(why, ScheduleError::NotRunning));
    assert!(Arc::ptr_eq(&tasklet.0, &marker));
    let (tasklet, _) = automatic.schedule(tasklet, Directive::Pool).unwrap_err().into_parts();
    assert_eq!((*automatic.get(), automatic.tasklets().len()), (1, 0));
    assert_eq!(automatic.run().unwrap().ended(), 0);
    drop(tasklet);
    assert_eq!(Arc::strong_count(&marker), 1);
}

#[test]
fn a_tasklet_that_is_handed_back_leaves_no_timer_behind() {
    let manual = procession::clock::ManualClock::new();
    let mut home = Loop::<()>::builder().clock(manual.clock()).build(());
    let mut resumes = Vec::new();
    let asks = ready::from_fn(move |(): &mut (), cx| {
        resumes.push(cx.suspend_for(std::time::Duration::from_secs(60), Directive::Home));
        Directive::Pool
    });
    let (back, why) = home.with(asks).unwrap_err().into_parts();
    assert!(matches!(why, ScheduleError::NotRunning));
    assert_eq!(manual.next_due(), None);
    drop(back);
    assert_eq!(home.run().unwrap().ended(), 0);
}

#[test]
fn a_tasklet_that_wants_the_pool_is_held_until_the_loop_runs() {
    // An automatic loop, and the one that asks is not the one that was scheduled: nobody is there to have it back.
    let mut home = Loop::automatic(0);
    let mut first = true;
    let mut inner = Some(ready::from_fns(
        move |sum: &mut u32, _: &mut TaskletContext<'_, u32>| {
            *sum += 1;
            if std::mem::take(&mut first) { Directive::Pool } else { Directive::Done }
        },
        |_: &mut TaskletContext<'_, u32>| Directive::Home,
    ));
    let outer = ready::from_fn(move |_: &mut u32, cx| {
        cx.schedule(inner.take().unwrap(), Directive::Home).unwrap();
        Directive::Done
    });
    home.schedule(outer, Directive::Home).unwrap();
    let held = home.tasklets();
    assert_eq!((held.len(), held[0].directive, held[0].running), (1, Directive::Pool, false));
    let report = home.run().unwrap();
    assert_eq!((*home.get(), report.pool_steps), (2, 1));
}

#[test]
fn a_panic_in_a_pool_step_finishes_that_tasklet_only() {
    let mut home = Loop::new(());
    let handle = home.handle();
    let ended = handle.schedule(ready::named(bomb_on_pool(), "the bomb"), Directive::Home).unwrap();
    let report = home.run().unwrap();
    assert_eq!((report.panicked, report.finished), (1, 0));
    assert_eq!((report.panics[0].name.as_ref(), report.panics[0].directive), ("the bomb", Directive::Pool));
    assert_eq!(report.panics[0].panic.message(), ON_PURPOSE);
    assert!(matches!(ended.exit(), Some(Exit::Panicked(panic)) if panic.message() == ON_PURPOSE));
}

fn bomb_on_pool() -> impl Tasklet<()> {
    quiet_panics();
    elsewhere(|_: &mut TaskletContext<'_, ()>| panic!("on purpose"))
}

#[test]
fn one_tasklet_is_never_in_two_steps_at_once() {
    let mut home = Loop::new(());
    let inside = counter();
    let steps = counter();
    let blocker = Blocker::new();
    let step = {
        let (inside, steps, blocked) = (inside.clone(), steps.clone(), blocker.blocked());
        move || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "it is in another step");
            let number = steps.fetch_add(1, Ordering::SeqCst);
            if number == 0 {
                blocked.wait();
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            number
        }
    };
    let again = step.clone();
    let tasklet = ready::from_fns(
        move |(): &mut (), _: &mut TaskletContext<'_, ()>| {
            step();
            Directive::Done
        },
        move |cx: &mut TaskletContext<'_, ()>| {
            let number = again();
            let resumes = [cx.suspend(), cx.suspend(), cx.suspend()];
            if number == 0 {
                // Three at once, while this step runs.
                for (resume, to) in resumes.into_iter().zip([Directive::Pool, Directive::Home, Directive::Pool]) {
                    wait(std::thread::spawn(move || resume.resume(to))).unwrap();
                }
            }
            Directive::Wait
        },
    );
    let handle = home.handle();
    let starts = Mutex::new(Some(tasklet));
    home.schedule(
        ready::from_fn(move |(): &mut (), cx| {
            cx.schedule(starts.lock().unwrap().take().unwrap(), Directive::Pool).unwrap();
            Directive::Done
        }),
        Directive::Home,
    )
    .unwrap();
    let other = std::thread::spawn(move || {
        blocker.wait_begun();
        let id = handle.tasklets().iter().find(|it| it.running && it.directive == Directive::Pool).unwrap().id;
        for directive in [Directive::Home, Directive::Pool, Directive::Home] {
            assert!(handle.redirect(id, directive).unwrap());
        }
        blocker.release();
    });
    let report = home.run().unwrap();
    wait(other).unwrap();
    assert_eq!(report.panicked, 0);
    assert!(count(&steps) >= 2);
}

#[test]
fn a_pool_can_be_given_and_shared_between_loops() {
    let pool = Pool::builder().max(1).name("procession-shared").build().unwrap();
    let threads = Arc::new(Mutex::new(Vec::new()));
    let tells = || {
        let threads = threads.clone();
        elsewhere(move |_: &mut TaskletContext<'_, ()>| {
            threads.lock().unwrap().push(std::thread::current().name().unwrap().to_owned());
            Directive::Done
        })
    };
    let (mut one, mut two) = (Loop::on((), &pool), Loop::on((), &pool));
    one.schedule(tells(), Directive::Home).unwrap().run().unwrap();
    two.schedule(tells(), Directive::Home).unwrap().run().unwrap();
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 2);
    assert!(threads.iter().all(|name| name.starts_with("procession-shared")), "{:?}", *threads);
    drop((one, two));
    pool.execute(|| ()).unwrap();
    pool.drain_timeout(LIMIT).unwrap();
}

#[test]
fn the_default_pool_grows_on_demand() {
    // Each of them waits for all the others: it takes as many threads as there are tasklets.
    const MANY: usize = 20;
    let mut home = Loop::new(());
    let (here, all) = (counter(), Latch::new());
    for _ in 0..MANY {
        let (here, all) = (here.clone(), all.clone());
        let waits = elsewhere(move |_: &mut TaskletContext<'_, ()>| {
            if here.fetch_add(1, Ordering::SeqCst) + 1 == MANY {
                let _ = all.set(());
            }
            wait(&all);
            Directive::Done
        });
        home.schedule(waits, Directive::Home).unwrap();
    }
    assert_eq!(home.run().unwrap().finished, MANY as u64);
}

#[test]
fn threads_of_a_loops_own_pool_end_with_the_loop() {
    struct Told(Latch<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.set(());
        }
    }
    thread_local!(static TOLD: std::cell::RefCell<Option<Told>> = const { std::cell::RefCell::new(None) });
    let gone = Latch::new();
    let told = gone.clone();
    let mut home = Loop::new(());
    let step = elsewhere(move |_: &mut TaskletContext<'_, ()>| {
        TOLD.with(|place| *place.borrow_mut() = Some(Told(told.clone())));
        Directive::Done
    });
    home.schedule(step, Directive::Home).unwrap().run().unwrap();
    drop(home);
    wait(&gone);
}

#[test]
fn a_pool_that_refuses_gives_the_tasklet_back_or_ends_it() {
    let pool = Pool::builder().max(1).build().unwrap();
    pool.stop_timeout(LIMIT).unwrap();
    let mut home = Loop::on((), &pool);
    let refused = Arc::new(AtomicBool::new(false));
    let tells = refused.clone();
    let asks = ready::from_fn(move |(): &mut (), cx| {
        let why = cx.schedule(ready::done(), Directive::Pool).unwrap_err().into_parts().1;
        tells.store(matches!(why, ScheduleError::Pool(_)), Ordering::SeqCst);
        Directive::Pool
    });
    let ended = home.handle().schedule(asks, Directive::Home).unwrap();
    let report = home.run().unwrap();
    assert!(refused.load(Ordering::SeqCst));
    assert_eq!((report.refused, report.ended()), (1, 1));
    assert!(matches!(ended.exit(), Some(Exit::Terminated(Reason::Shutdown))));
}

#[test]
fn a_tasklet_that_finds_the_pool_full_has_that_as_its_reason() {
    let pool = Pool::builder().max(1).queue(QueuePolicy::Reject(0)).build().unwrap();
    let blocker = hold(&pool);
    let mut home = Loop::on((), &pool);
    let asks = elsewhere(|_: &mut TaskletContext<'_, ()>| Directive::Done);
    let ended = home.handle().schedule(asks, Directive::Home).unwrap();
    let report = home.run().unwrap();
    blocker.release();
    assert_eq!((report.refused, report.ended()), (1, 1));
    let Some(Exit::Terminated(reason)) = ended.exit() else { panic!("{:?}", ended.exit()) };
    assert_eq!(reason.to_string(), PoolError::Full.to_string());
}

#[test]
fn a_pool_that_is_stopped_ends_the_tasklets_that_wait_for_it() {
    let pool = Pool::builder().max(1).build().unwrap();
    let blocker = hold(&pool);
    let mut home = Loop::on((), &pool);
    home.schedule(elsewhere(|_: &mut TaskletContext<'_, ()>| Directive::Done), Directive::Home).unwrap();
    assert_eq!(home.turn(1), TurnOutcome::Ran(1));
    assert_eq!(home.tasklets()[0].directive, Directive::Pool);
    let _ = pool.stop_timeout(std::time::Duration::ZERO);
    assert_eq!(home.run().unwrap().refused, 1);
    blocker.release();
}
