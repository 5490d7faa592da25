//! Idle parts cost nothing: each thread of an idle runtime, pool, scheduler or loop waits without a limit.

use std::sync::mpsc;
use std::time::Duration;

use crate::clock::ManualClock;
use crate::crowd::Crowd;
use crate::latch::Latch;
use crate::outcome::Exit;
use crate::pool::Pool;
use crate::process::{Event, Events, Process, Reply, Step, StepOutput, StepResult};
use crate::runtime::{Runtime, RuntimeBuilder, Watchdog};
use crate::task::{TaskOptions, TaskScheduler};
use crate::tasklet::{Directive, Loop, ready};
use crate::threads;
use crate::wait::wait;

const SECOND: Duration = Duration::from_secs(1);

/// The limit of a wait. A longer wait is a hang, so only broken code reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// Answers when a timer has fired, blocking work has been done, and a child has been started.
#[derive(Default)]
struct Busy {
    reply: Option<Reply<()>>,
    left: usize,
}

struct Child;

impl Process for Child {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

impl Process for Busy {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<Reply<()>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => {
                    self.reply = Some(reply);
                    self.left = 2;
                    out.after(Duration::from_millis(1));
                    out.blocking(|| ());
                    out.spawn(Child).unwrap();
                }
                Event::Completed(_) => self.left -= 1,
                _ => return Ok(Step::Done(())),
            }
        }
        if self.left == 0
            && let Some(reply) = self.reply.take()
        {
            out.reply(reply, ());
        }
        Ok(Step::Idle)
    }
}

/// Lets a runtime work. Then shows that all of its idle threads wait without a limit.
fn comes_to_rest(builder: RuntimeBuilder) {
    let crowd = Crowd::new();
    let runtime = builder.workers(2).blocking_idle(None).start().unwrap();
    crowd.until_idle();
    let (_idle, busy) = (runtime.spawn(Busy::default()).unwrap(), runtime.spawn(Busy::default()).unwrap());
    for _ in 0..3 {
        runtime.ask(busy.address(), |reply| reply, LIMIT).wait().unwrap();
        let before = crowd.wakes();
        crowd.until_idle();
        runtime.ask(busy.address(), |reply| reply, LIMIT).wait().unwrap();
        crowd.until_idle();
        assert!(crowd.wakes() > before, "they are woken by work, and by nothing else");
    }
    runtime.shutdown(LIMIT).unwrap();
    drop(runtime);
    crowd.until_gone();
}

#[test]
fn each_thread_of_an_idle_runtime_waits_without_a_limit() {
    comes_to_rest(Runtime::builder());
}

#[test]
fn each_thread_of_an_idle_runtime_with_a_watchdog_waits_without_a_limit() {
    comes_to_rest(Runtime::builder().watchdog(Watchdog::after(Duration::from_millis(4)).spare_workers(1)));
}

/// A job that is waited for takes two hand-overs. No thread polls for its end.
#[test]
fn the_caller_of_run_and_its_worker_wait_without_a_limit() {
    let crowd = Crowd::new();
    let pool = Pool::builder().max(1).idle_period(None).build().unwrap();
    let (go, runs) = (Latch::new(), pool.clone());
    let waits = go.clone();
    let caller = threads::start(String::from("caller"), move || runs.run(move || waits.wait()).unwrap()).unwrap();
    crowd.until_idle();
    assert_eq!(crowd.seen().len(), 2);
    go.set(()).unwrap();
    wait(caller).unwrap();
    crowd.until_idle();
    let runs = pool.clone();
    let caller = threads::start(String::from("caller"), move || assert_eq!(runs.run(|| 7).unwrap(), 7)).unwrap();
    wait(caller).unwrap();
    crowd.until_idle();
}

/// Occupies all workers of a pool with a job at the same time.
fn occupy(pool: &Pool, workers: usize) {
    let (begun, begins) = mpsc::channel();
    let go = Latch::new();
    for _ in 0..workers {
        let (begun, go) = (begun.clone(), go.clone());
        pool.execute(move || {
            begun.send(()).unwrap();
            go.wait();
        })
        .unwrap();
    }
    (0..workers).for_each(|_| begins.recv_timeout(LIMIT).unwrap());
    go.set(()).unwrap();
}

#[test]
fn each_worker_of_an_idle_pool_waits_without_a_limit() {
    let crowd = Crowd::new();
    let pool = Pool::builder().max(3).idle_period(None).build().unwrap();
    assert!(crowd.seen().is_empty(), "there is no worker before there is a job");
    for _ in 0..3 {
        occupy(&pool, 3);
        crowd.until_idle();
        assert_eq!(crowd.seen().len(), 3);
    }
    pool.drain_timeout(LIMIT).unwrap();
    crowd.until_gone();
}

#[test]
fn one_worker_of_an_idle_pool_watches_the_time_until_the_minimum_is_left() {
    let (crowd, clock) = (Crowd::new(), ManualClock::new());
    let pool = Pool::builder().min(1).max(4).idle_period(Some(SECOND)).clock(clock.clock()).build().unwrap();
    // More than once, and with fewer busy workers in between: the pool must not stop shrinking.
    for busy in [4, 1, 2, 4, 3] {
        occupy(&pool, busy);
        let mut left = {
            let with_limit = crowd.until_all_wait();
            let there = crowd.seen().len();
            assert_eq!(with_limit, usize::from(there > 1));
            there
        };
        assert!(left >= busy);
        // The first period only marks the pool as idle.
        let mut is_marked = false;
        while left > 1 && (busy != 2 || left > 3) {
            clock.advance(SECOND);
            let with_limit = crowd.until_all_wait();
            left -= usize::from(is_marked);
            is_marked = true;
            assert_eq!((crowd.seen().len(), with_limit), (left, usize::from(left > 1)));
        }
    }
    crowd.until_idle();
    let before = crowd.wakes();
    pool.resize(0, 4).unwrap();
    assert_eq!(crowd.until_all_wait(), 1, "now the last one watches");
    assert!(crowd.wakes() > before);
    clock.advance(SECOND);
    crowd.until_all_wait();
    clock.advance(SECOND);
    crowd.until_gone();
    occupy(&pool, 1);
}

#[test]
fn an_idle_scheduler_of_tasks_has_threads_that_wait_without_a_limit() {
    let crowd = Crowd::new();
    let pool = Pool::builder().max(2).idle_period(None).build().unwrap();
    let tasks = TaskScheduler::on(&pool);
    let timed = TaskOptions::new().timeout(Duration::from_millis(1));
    let slow = tasks.submit_with(timed, |cancel| cancel.sleep(LIMIT)).unwrap();
    assert!(matches!(wait(slow), Exit::Terminated(_)));
    let later = TaskOptions::new().after(Duration::from_millis(1)).timeout(Duration::MAX);
    assert!(wait(tasks.submit_with(later, |_| Ok::<_, String>(())).unwrap()).is_done());
    crowd.until_idle();
    tasks.stop_and_join(LIMIT).unwrap();
    pool.drain_timeout(LIMIT).unwrap();
    drop(tasks);
    crowd.until_gone();
}

#[test]
fn a_loop_with_nothing_but_waiting_tasklets_waits_without_a_limit() {
    let crowd = Crowd::new();
    let pool = Pool::builder().max(2).idle_period(None).build().unwrap();
    let (sends, handle) = mpsc::channel();
    let on = pool.clone();
    let home = threads::start(String::from("home"), move || {
        let mut home = Loop::on((), &on);
        home.schedule(ready::wait(), Directive::Wait).unwrap();
        let mut steps = 0;
        let step = ready::from_fns(
            move |(), cx| {
                steps += 1;
                match steps {
                    1 => Directive::Pool,
                    // Woken by a timer.
                    2 => {
                        cx.suspend().resume_after(Duration::from_millis(1), Directive::Home);
                        Directive::Wait
                    }
                    _ => Directive::Done,
                }
            },
            |_| Directive::Home,
        );
        home.schedule(step, Directive::Home).unwrap();
        sends.send(home.handle()).unwrap();
        home.run().unwrap();
    })
    .unwrap();
    let handle = handle.recv_timeout(LIMIT).unwrap();
    crowd.until_idle();
    assert_eq!(handle.tasklets().len(), 1);
    assert!(handle.cancel(handle.tasklets()[0].id, "the end"));
    wait(home).unwrap();
    pool.drain_timeout(LIMIT).unwrap();
    drop(handle);
    crowd.until_gone();
}
