//! A shutdown returns in time with a true report if user code hangs.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::BuildError;
use procession::observe::{Observer, ProcessIdentity, ShutdownStage};
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{
    CommandError, EntryArgs, Event, Events, Exit, InitResult, Process, Reason, Reply, Runtime, ShutdownError,
    ShutdownReport, SpawnError, SpawnOptions, Step, StepOutput, StepResult,
};

use crate::helpers::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Says nothing and keeps nothing; ends when it is asked to. Its property is dropped with it.
fn polite<T: Send + 'static>(owned: T) -> impl Process<Message = (), Output = ()> {
    script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        let _ = &owned;
        Ok(if events.any(|event| matches!(event, Event::Cancel(_))) { Step::Done(()) } else { Step::Idle })
    })
}

/// Yields these pieces of blocking work in its first step, and is done.
fn works(jobs: Vec<Box<dyn FnOnce() + Send>>) -> impl Process<Message = (), Output = ()> {
    let mut jobs = Some(jobs);
    script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        for job in jobs.take().into_iter().flatten() {
            out.blocking(job);
        }
        Ok(Step::Done(()))
    })
}

/// Shuts down on a thread of its own, so that a shutdown that hangs is an error of the test and not its end.
fn shut_down(runtime: &Runtime, limit: Duration) -> Arc<ShutdownReport> {
    let (runtime, report) = (runtime.clone(), Latch::new());
    let set = report.clone();
    std::thread::spawn(move || {
        let report = runtime.shutdown(limit).unwrap();
        drop(runtime);
        let _ = set.set(report);
    });
    wait(&report)
}

/// Lets time pass until it has come to this.
fn moves_until(manual: &ManualClock, mut reached: impl FnMut() -> bool) {
    until("time has passed", || {
        let is_reached = reached();
        manual.advance(Duration::from_secs(u64::from(!is_reached)));
        is_reached
    });
}

/// A question that somebody keeps, with this waker waiting for its answer.
fn ask_keeper(runtime: &Runtime, limit: Duration, waker: &Waker) -> (procession::AskFuture<u8>, Log<Reply<u8>>) {
    let kept = Log::new();
    let keeper = runtime.spawn(recorder::<Reply<u8>>(&kept)).unwrap();
    // On a busy machine a short limit may be over before anybody waits.
    for times in 1.. {
        let mut asking = runtime.ask(keeper.address(), |reply| reply, limit.saturating_mul(times));
        if Pin::new(&mut asking).poll(&mut Context::from_waker(waker)).is_pending() {
            until("the reply is kept", || kept.len() == times as usize);
            return (asking, kept);
        }
    }
    unreachable!("there is always a longer limit")
}

fn assert_shut_down(answer: Result<u8, CommandError>) {
    assert!(matches!(answer, Err(CommandError::Cancelled(Reason::Shutdown))), "{answer:?}");
}

#[test]
fn a_job_that_does_not_return_holds_up_no_shutdown_by_a_manual_clock() {
    for by_drop in [false, true] {
        let manual = ManualClock::new();
        let (runtime, job) = (builder().workers(1).clock(manual.clock()).start().unwrap(), Blocker::new());
        let blocking = job.blocked();
        output(&runtime.spawn(works(vec![Box::new(move || blocking.wait())])).unwrap());
        job.wait_begun();
        if by_drop {
            let dropped = Latch::new();
            let set = dropped.clone();
            std::thread::spawn(move || {
                drop(runtime);
                let _ = set.set(());
            });
            wait(&dropped);
        } else {
            assert_eq!(shut_down(&runtime, Duration::ZERO).jobs_running, 1);
        }
        job.release();
    }
}

#[test]
fn blocking_work_yielded_with_done_finishes_within_the_limit() {
    let runtime = builder().workers(2).blocking_threads(2).start().unwrap();
    let (saved, first) = (Arc::new(AtomicUsize::new(0)), Blocker::new());
    let processes: Vec<_> = (0..20)
        .map(|_| {
            let (saved, first) = (saved.clone(), first.blocked());
            let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                if !events.any(|event| matches!(event, Event::Cancel(_))) {
                    return Ok(Step::Idle);
                }
                let (saved, first) = (saved.clone(), first.clone());
                out.blocking(move || {
                    first.wait();
                    (0..100).for_each(|_| std::thread::yield_now());
                    saved.fetch_add(1, Ordering::SeqCst);
                });
                Ok(Step::Done(()))
            });
            runtime.spawn(process).unwrap()
        })
        .collect();
    let report = std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| shut_down(&runtime, LIMIT));
        processes.iter().for_each(|process| drop(output(process)));
        first.release();
        wait(shutdown).unwrap()
    });
    assert_eq!(saved.load(Ordering::SeqCst), 20, "{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_job_that_waits_when_the_limit_is_over_is_counted_in_the_report() {
    let (runtime, job) = (builder().workers(1).blocking_threads(1).start().unwrap(), Blocker::new());
    let blocking = job.blocked();
    output(&runtime.spawn(works(vec![Box::new(move || blocking.wait()), Box::new(|| ())])).unwrap());
    job.wait_begun();
    let report = shut_down(&runtime, Duration::ZERO);
    assert_eq!((report.jobs_running, report.jobs_abandoned, report.is_clean()), (1, 1, false), "{report}");
    assert!(report.to_string().ends_with("1 blocking jobs still run; 1 were never begun"), "{report}");
    job.release();
}

#[test]
fn a_waker_that_hangs_on_the_thread_of_the_timers_is_named_by_its_stage() {
    let (runtime, waker) = (runtime(1), Blocker::new());
    let (asking, _kept) = ask_keeper(&runtime, Duration::from_millis(1), &waker.waker());
    waker.wait_begun();
    let report = shut_down(&runtime, Duration::ZERO);
    assert!(matches!(report.hangs, Some(ShutdownStage::Threads)), "{report}");
    waker.release();
    drop(asking);
}

#[test]
fn a_waker_that_hangs_when_its_ask_is_given_up_is_named_by_its_stage() {
    let (runtime, waker) = (runtime(1), Blocker::new());
    let (blocked, _kept) = ask_keeper(&runtime, HOUR, &waker.waker());
    let (mut asking, _kept_too) = ask_keeper(&runtime, 2 * HOUR, Waker::noop());
    let report = shut_down(&runtime, Duration::ZERO);
    assert!(matches!(report.hangs, Some(ShutdownStage::Timers)) && !report.is_clean(), "{report}");
    assert!(report.to_string().ends_with("; hangs in user code: while timers are dropped"), "{report}");
    let again = shut_down(&runtime, LIMIT);
    assert!(Arc::ptr_eq(&report, &again), "there is one report");
    // A shorter limit than that of the waker, which goes on by itself.
    runtime.shutdown_node().wait_closed_timeout(LIMIT / 2).unwrap();
    waker.release();
    let mut answer = None;
    until("the question behind them is answered", || {
        match Pin::new(&mut asking).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => answer = Some(ready),
            Poll::Pending => {}
        }
        answer.is_some()
    });
    assert_shut_down(answer.unwrap());
    drop(blocked);
}

#[test]
fn a_shutdown_without_a_limit_waits_for_no_waker_that_hangs() {
    let (runtime, waker) = (runtime(1), Blocker::new());
    let (blocked, _kept) = ask_keeper(&runtime, HOUR, &waker.waker());
    let report = shut_down(&runtime, Duration::MAX);
    assert!(matches!(report.hangs, Some(ShutdownStage::Timers)), "{report}");
    waker.release();
    drop(blocked);
}

#[test]
fn a_shutdown_of_many_processes_does_not_take_slow_for_hanging() {
    let runtime = runtime(1);
    let processes: Vec<_> = (0..100_000).map(|_| runtime.spawn(polite(())).unwrap()).collect();
    let report = shut_down(&runtime, Duration::ZERO);
    // A machine that is too busy to run a thread for 250 ms makes its exit look like a hang.
    assert!(matches!(report.hangs, None | Some(ShutdownStage::Threads)) && report.stuck.is_empty(), "{report}");
    // Such a thread may still be ending a process.
    let counted = report.ended + report.terminated;
    assert!(counted <= processes.len() && counted + report.ending >= processes.len(), "{report}");
}

#[test]
fn a_handle_dropped_after_a_request_of_the_tree_keeps_the_limit() {
    let runtime = builder().workers(1).shutdown_limit(LIMIT).start().unwrap();
    let block = Blocker::new();
    let blocks = block.blocked();
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        if events.any(|event| matches!(event, Event::Cancel(_))) {
            blocks.wait();
            return Ok(Step::Done(7));
        }
        Ok(Step::Idle)
    }));
    let process = process.unwrap();
    runtime.shutdown_node().request_shutdown();
    drop(runtime);
    block.wait_begun();
    block.release();
    assert_eq!(*output(&process), 7);
}

#[test]
fn a_waiting_job_whose_destructor_hangs_is_named_by_its_stage() {
    let (runtime, job) = (builder().workers(1).blocking_threads(1).start().unwrap(), Blocker::new());
    let (blocking, waiting) = (job.blocked(), BlocksInDrop(job.blocked()));
    output(&runtime.spawn(works(vec![Box::new(move || blocking.wait()), Box::new(move || drop(waiting))])).unwrap());
    job.wait_begun();
    let report = shut_down(&runtime, Duration::ZERO);
    assert_eq!((report.jobs_running, report.jobs_abandoned), (1, 1), "{report}");
    assert!(matches!(report.hangs, Some(ShutdownStage::Jobs)), "{report}");
    job.release();
}

#[test]
fn a_thread_local_whose_destructor_hangs_is_named_by_its_stage() {
    thread_local!(static KEPT: RefCell<Option<BlocksInDrop>> = const { RefCell::new(None) });
    let (runtime, local) = (runtime(1), Blocker::new());
    let (on_worker, on_pool) = (local.blocked(), local.blocked());
    let mut steps = 0;
    let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        steps += 1;
        let local = if steps == 1 { on_worker.clone() } else { on_pool.clone() };
        KEPT.with(|kept| *kept.borrow_mut() = Some(BlocksInDrop(local)));
        Ok(if steps == 1 { Step::Blocking } else { Step::Done(()) })
    });
    output(&runtime.spawn(process).unwrap());
    let report = shut_down(&runtime, Duration::ZERO);
    assert!(matches!(report.hangs, Some(ShutdownStage::Threads)), "{report}");
    local.release();
}

#[test]
fn shutdown_is_refused_on_the_thread_of_the_timers() {
    struct ShutsDown(Runtime, Latch<ShutdownError>);
    impl Wake for ShutsDown {
        fn wake(self: Arc<Self>) {
            let _ = self.1.set(self.0.shutdown(LIMIT).unwrap_err());
        }
    }
    let (runtime, refused) = (runtime(1), Latch::new());
    let waker = Waker::from(Arc::new(ShutsDown(runtime.clone(), refused.clone())));
    let (asking, _kept) = ask_keeper(&runtime, Duration::from_millis(1), &waker);
    drop(waker);
    assert_eq!(wait(&refused), ShutdownError::Inside);
    assert!(shut_down(&runtime, LIMIT).is_clean());
    drop(asking);
}

/// Its `init` blocks.
struct SlowInit(Blocked);

impl Process for SlowInit {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.0.wait();
        Ok(())
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn a_spawn_that_is_held_up_in_its_init_takes_nobody_s_time_to_stop_away() {
    let (runtime, init) = (runtime(1), Blocker::new());
    let processes: Vec<_> = (0..20).map(|_| runtime.spawn(polite(())).unwrap()).collect();
    let (elsewhere, slow) = (runtime.clone(), SlowInit(init.blocked()));
    let spawner =
        std::thread::spawn(move || elsewhere.spawn(slow).map(|_| ()).map_err(|refused| refused.into_parts().1));
    init.wait_begun();
    let report = std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| shut_down(&runtime, 2 * LIMIT));
        processes.iter().for_each(|process| assert!(join(process).is_done()));
        // A shutdown that waited for nobody else would be over after a few of these.
        for _ in 0..20_000 {
            assert!(!shutdown.is_finished(), "it waits for the spawn");
            std::thread::yield_now();
        }
        init.release();
        wait(shutdown).unwrap()
    });
    assert!(matches!(wait(spawner).unwrap(), Err(SpawnError::ShuttingDown)));
    assert_eq!((report.ended, report.spawning, report.is_clean()), (20, 0, true), "{report}");
}

#[test]
fn a_spawn_that_is_still_held_up_at_the_end_is_counted_in_the_report() {
    let (runtime, init) = (runtime(1), Blocker::new());
    let (elsewhere, slow) = (runtime.clone(), SlowInit(init.blocked()));
    let spawner = std::thread::spawn(move || elsewhere.spawn(slow).is_err());
    init.wait_begun();
    let report = shut_down(&runtime, Duration::ZERO);
    assert_eq!((report.spawning, report.is_clean()), (1, false), "{report}");
    assert!(report.to_string().ends_with("1 spawns have not returned"), "{report}");
    init.release();
    assert!(wait(spawner).unwrap());
}

#[test]
fn a_process_whose_end_is_held_up_is_counted_in_the_report() {
    struct Slow(Blocked);
    impl Observer for Slow {
        fn exited(&self, _: &ProcessIdentity, _: &Exit) {
            self.0.wait();
        }
    }
    for in_hook in [false, true] {
        let (manual, end) = (ManualClock::new(), Blocker::new());
        let options = builder().workers(1).clock(manual.clock());
        let runtime = if in_hook { options.observer(Slow(end.blocked())) } else { options }.start().unwrap();
        if in_hook {
            runtime.spawn(polite(())).unwrap();
        } else {
            runtime.spawn(polite(BlocksInDrop(end.blocked()))).unwrap();
        }
        let report = std::thread::scope(|scope| {
            let shutdown = scope.spawn(|| shut_down(&runtime, Duration::from_secs(10)));
            end.wait_begun();
            moves_until(&manual, || shutdown.is_finished());
            wait(shutdown).unwrap()
        });
        assert_eq!((report.ended + report.terminated, report.ending, report.is_clean()), (0, 1, false), "{report}");
        assert!(report.to_string().contains("1 half-way through their end"), "{report}");
        end.release();
    }
}

#[test]
fn a_shutdown_waits_for_and_counts_a_process_already_ending() {
    let manual = ManualClock::new();
    let (runtime, end) = (builder().workers(1).clock(manual.clock()).start().unwrap(), Blocker::new());
    let process = runtime.spawn(polite(BlocksInDrop(end.blocked()))).unwrap();
    runtime.cancel(process.pid(), "over").unwrap();
    end.wait_begun();
    let report = std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| shut_down(&runtime, Duration::from_secs(10)));
        moves_until(&manual, || shutdown.is_finished());
        wait(shutdown).unwrap()
    });
    assert_eq!((report.ended, report.ending, report.is_clean()), (0, 1, false), "{report}");
    end.release();
    assert!(join(&process).is_done());
}

#[test]
fn processes_behind_a_hanging_close_exit_and_are_closed_later() {
    let (runtime, blocker, closed) = (runtime(2), Blocker::new(), Arc::new(AtomicUsize::new(0)));
    let hanging: Vec<_> = (0..5).map(|_| runtime.spawn(BlocksInClose(blocker.blocked())).unwrap()).collect();
    let others: Vec<_> = (0..100).map(|_| runtime.spawn(Closing(closed.clone())).unwrap()).collect();
    let report = shut_down(&runtime, Duration::ZERO);
    let Some(ShutdownStage::Process(process)) = &report.hangs else { panic!("{report}") };
    assert!(hanging.iter().any(|hangs| hangs.pid() == process.pid), "{report}");
    assert!(process.type_name.contains("BlocksInClose"), "{report}");
    assert!(report.to_string().contains("BlocksInClose is ended"), "{report}");
    assert!(report.stuck.len() >= 5, "{report}");
    // Two hang on the workers, and one on the thread of the end.
    let ended = || hanging.iter().filter(|process| process.is_finished()).count();
    until("two of them, and the others, are not reached", || ended() == 2);
    others.iter().for_each(|process| assert!(matches!(join(process), Exit::Terminated(Reason::Shutdown))));
    blocker.release();
    hanging.iter().for_each(|process| assert!(matches!(join(process), Exit::Terminated(Reason::Shutdown))));
    until("all are closed", || closed.load(Ordering::SeqCst) == 100);
}

#[test]
fn a_question_without_a_limit_is_answered_at_shutdown() {
    let runtime = runtime(1);
    let (mut asking, _kept) = ask_keeper(&runtime, Duration::MAX, Waker::noop());
    runtime.shutdown(LIMIT).unwrap();
    // The shutdown waits only so long for who gives the questions up.
    let mut answer = Poll::Pending;
    until("it is answered", || {
        answer = Pin::new(&mut asking).poll(&mut Context::from_waker(Waker::noop()));
        answer.is_ready()
    });
    let Poll::Ready(answer) = answer else { panic!("it is answered") };
    assert_shut_down(answer);
    // One that is given up leaves nothing behind, and nor does one that is answered.
    let runtime = self::runtime(1);
    let (asking, kept) = ask_keeper(&runtime, Duration::MAX, Waker::noop());
    drop(asking);
    assert!(!kept.take().pop().unwrap().send(1));
    let (asking, kept) = ask_keeper(&runtime, Duration::MAX, Waker::noop());
    assert!(kept.take().pop().unwrap().send(1));
    let asking = pin!(asking);
    assert!(matches!(asking.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(1))));
    runtime.shutdown(LIMIT).unwrap();
}

#[test]
fn a_thread_that_waits_for_a_reply_hears_of_the_end_of_the_runtime() {
    for limit in [HOUR, Duration::MAX] {
        let (runtime, kept) = (runtime(1), Log::new());
        let keeper = runtime.spawn(recorder::<Reply<u8>>(&kept)).unwrap();
        let (elsewhere, to, answer) = (runtime.clone(), keeper.address(), Latch::new());
        let set = answer.clone();
        std::thread::spawn(move || drop(set.set(elsewhere.ask(to, |reply| reply, limit).wait())));
        until("the reply is kept", || kept.len() == 1);
        runtime.shutdown(LIMIT).unwrap();
        assert_shut_down(wait(&answer));
    }
}

#[test]
fn a_name_of_threads_that_no_thread_can_have_is_refused_at_the_start() {
    let refused = builder().workers(1).thread_name("a\0b").start().unwrap_err();
    assert!(matches!(&refused, BuildError::ThreadName { given } if given == "a\0b"), "{refused}");
    assert_eq!(refused.to_string(), r#"no thread can be called "a\0b""#);
    let refused = procession::pool::Pool::builder().name("a\0b").build().unwrap_err();
    assert_eq!(refused.to_string(), r#"no thread can be called "a\0b""#);
    let timers = procession::timer::Timers::new(procession::clock::Clock::system(), "a\0b");
    assert!(timers.after(HOUR, Box::new(|| ())).is_err());
}

#[test]
fn a_stack_that_no_thread_can_have_is_refused_at_the_start() {
    let refused = builder().workers(1).stack_size(usize::MAX).start().unwrap_err();
    assert!(matches!(refused, BuildError::StackSize { given: usize::MAX }), "{refused}");
    assert_eq!(refused.to_string(), format!("no thread can have a stack of {} bytes", usize::MAX));
}

#[test]
fn a_question_refused_by_a_full_mailbox_gets_the_error_full() {
    let runtime = runtime(1);
    for overflow in [Overflow::Refuse, Overflow::DropNewest] {
        let (holder, asked) = (Blocker::new(), AtomicBool::new(false));
        let busy = holder.blocked();
        let process = script(move |events: &mut Events<'_, Reply<u8>>, _: &mut StepOutput| {
            busy.wait();
            events.for_each(|event| {
                if let Event::Message(reply) = event {
                    reply.send(1);
                }
            });
            Ok(Step::<()>::Idle)
        });
        let process = runtime.spawn_with(process, SpawnOptions::new().mailbox(1, overflow)).unwrap();
        holder.wait_begun();
        let first = runtime.ask(process.address(), |reply| reply, LIMIT);
        let refused = runtime
            .ask(
                process.address(),
                |reply| {
                    asked.store(true, Ordering::SeqCst);
                    reply
                },
                LIMIT,
            )
            .wait();
        assert!(matches!(refused, Err(CommandError::Full(pid)) if pid == process.pid()), "{overflow:?}: {refused:?}");
        assert!(asked.load(Ordering::SeqCst));
        holder.release();
        drop(first);
    }
}

#[test]
fn work_yielded_with_done_is_asked_to_stop_after_the_limit() {
    let runtime = runtime(1);
    let (begun, told) = (Latch::new(), Latch::new());
    let (begins, tell) = (begun.clone(), told.clone());
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let (begins, tell) = (begins.clone(), tell.clone());
        out.blocking_with(move |cancel| {
            let _ = begins.set(());
            let _ = tell.set(cancel.wait());
        });
        Ok(Step::Done(()))
    });
    output(&runtime.spawn(process).unwrap());
    // One that has not begun when it is asked to stop is not run at all.
    wait(&begun);
    shut_down(&runtime, Duration::ZERO);
    assert_eq!(wait(&told), Reason::Shutdown);
}
