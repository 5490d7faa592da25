//! User code that panics or hangs, in all places where the runtime calls it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::command::Command;
use procession::observe::{Observer, ProcessIdentity, ShutdownStage};
use procession::sync::Latch;
use procession::{
    CommandError, EntryArgs, Event, Events, Exit, InitResult, Process, Reason, Reply, Runtime, ShutdownError, Step,
    StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;
use crate::waker::PanickingWaker;

impl Command for Bomb {
    type Output = ();
}

/// The only worker still steps, which it would not do if something had come through.
fn assert_alive(runtime: &Runtime) {
    let process = runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(7)))).unwrap();
    assert_eq!(*output(&process), 7);
}

#[test]
fn outputs_and_errors_whose_destructors_panic_disturb_nobody() {
    let runtime = runtime(1);
    let (go, other) = (Latch::new(), Latch::new());
    let (gate, next) = (go.clone(), other.clone());
    let done = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        wait(&gate);
        Ok(Step::Done(Bomb))
    }));
    // Before it ends, or its output would end with the handle, here.
    drop(done);
    go.set(()).unwrap();
    let failed = runtime.spawn(script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        wait(&next);
        if events.count() == 0 { Err(Box::new(Bomb)) } else { Ok(Step::Done(())) }
    }));
    drop(failed);
    other.set(()).unwrap();
    until("both have ended", || runtime.stats().processes == 0);
    assert_alive(&runtime);
}

#[test]
fn a_drop_of_an_unhandled_command_or_unread_answer_may_panic() {
    let runtime = builder().workers(1).blocking_threads(1).start().unwrap();
    let process = runtime.spawn(script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.count() > 0 {
            return Ok(Step::Done(()));
        }
        out.command(Bomb);
        Ok(Step::Wait)
    }));
    output(&process.unwrap());
    let mut third = None;
    let unread = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let third = third.get_or_insert_with(|| {
            // Two of them: the second must not be dropped while the first one's panic is under way. There is one
            // thread, so the others are answered when the third is run.
            let begun = Latch::new();
            let third = begun.clone();
            out.blocking(|| Bomb);
            out.blocking(|| Bomb);
            out.blocking(move || begun.set(()));
            third
        });
        Ok(if third.is_set() { Step::Done(()) } else { Step::Continue })
    }));
    output(&unread.unwrap());
    assert_alive(&runtime);
}

#[test]
fn wakers_that_panic_disturb_nobody() {
    let runtime = runtime(1);
    let process = runtime.spawn(sink::<()>()).unwrap();
    let waker = Waker::from(Arc::new(PanickingWaker));
    let mut future = pin!(process.clone());
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    runtime.cancel(process.pid(), "over").unwrap();
    output(&process);
    assert_alive(&runtime);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn one_that_upgrades_in_every_step_does_not_hold_up_another() {
    struct Again(Arc<AtomicBool>);
    impl Process for Again {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            if self.0.load(Ordering::Relaxed) {
                return Ok(Step::Done(()));
            }
            Ok(Step::Upgrade(Upgrade::to(Again(self.0.clone()))))
        }
    }
    let (runtime, enough) = (runtime(1), Arc::new(AtomicBool::new(false)));
    let hog = runtime.spawn(Again(enough.clone())).unwrap();
    assert_alive(&runtime);
    enough.store(true, Ordering::Relaxed);
    output(&hog);
}

#[test]
fn a_close_that_does_not_return_does_not_hold_up_the_shutdown() {
    let (runtime, blocker) = (runtime(1), Blocker::new());
    let processes: Vec<_> = (0..4).map(|_| runtime.spawn(BlocksInClose(blocker.blocked())).unwrap()).collect();
    let report = runtime.shutdown(Duration::ZERO).unwrap();
    assert_eq!(report.stuck.len(), 4, "{report}");
    assert_eq!((report.ended, report.terminated), (0, 0));
    blocker.release();
    processes.iter().for_each(|process| assert!(matches!(join(process), Exit::Terminated(Reason::Shutdown))));
}

#[test]
fn a_process_whose_spawn_is_held_up_until_the_workers_have_left_is_closed() {
    struct Slow(Blocked);
    impl Observer for Slow {
        fn spawned(&self, _: &ProcessIdentity) {
            self.0.wait();
        }
    }
    let (blocker, closed) = (Blocker::new(), Arc::new(AtomicUsize::new(0)));
    let runtime = builder().workers(1).observer(Slow(blocker.blocked())).start().unwrap();
    let (elsewhere, count) = (runtime.clone(), closed.clone());
    let spawner = std::thread::spawn(move || elsewhere.spawn(Closing(count)).unwrap());
    blocker.wait_begun();
    let report = runtime.shutdown(Duration::ZERO).unwrap();
    assert_eq!(report.stuck.len(), 1, "{report}");
    blocker.release();
    let process = wait(spawner).unwrap();
    assert!(matches!(join(&process), Exit::Terminated(Reason::Shutdown)));
    assert_eq!(closed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_question_whose_reply_is_kept_is_answered_at_shutdown() {
    let runtime = runtime(1);
    let kept = Log::new();
    let keeper = runtime.spawn(recorder::<Reply<u8>>(&kept)).unwrap();
    let mut asking = pin!(runtime.ask(keeper.address(), |reply| reply, Duration::from_secs(3600)));
    until("the reply is kept", || kept.len() == 1);
    runtime.shutdown(LIMIT).unwrap();
    // The shutdown waits only so long for who gives the questions up.
    let mut answer = Poll::Pending;
    until("it is answered", || {
        answer = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        answer.is_ready()
    });
    assert!(matches!(answer, Poll::Ready(Err(CommandError::Cancelled(Reason::Shutdown)))), "{answer:?}");
}

#[test]
fn a_process_that_waits_for_a_thread_of_the_pool_can_be_terminated() {
    let runtime = builder().workers(1).blocking_threads(1).start().unwrap();
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let occupier = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.count() > 0 {
            return Ok(Step::Done(()));
        }
        let blocked = blocked.clone();
        out.blocking(move || blocked.wait());
        Ok(Step::Wait)
    }));
    let occupier = occupier.unwrap();
    blocker.wait_begun();
    let victim = runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::<()>::Blocking))).unwrap();
    until("it waits for the pool", || runtime.process(victim.pid()).is_some_and(|victim| victim.steps == 1));
    assert!(runtime.terminate(victim.pid()).unwrap());
    assert!(matches!(join(&victim), Exit::Terminated(Reason::Terminated)));
    blocker.release();
    output(&occupier);
}

#[test]
fn blocking_steps_may_follow_each_other_and_alternate_with_others() {
    // With one thread, the next turn of the pool is there before the one that asked for it is over.
    for threads in [1, 4] {
        let runtime = builder().workers(2).blocking_threads(threads).start().unwrap();
        let processes: Vec<_> = (0..20)
            .map(|_| {
                let mut steps = 0;
                runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                    steps += 1;
                    Ok(match steps {
                        1_000 => Step::Done(steps),
                        _ if steps % 5 == 0 => Step::Continue,
                        _ => Step::Blocking,
                    })
                }))
            })
            .collect();
        processes.into_iter().for_each(|process| assert_eq!(*output(&process.unwrap()), 1_000));
    }
}

#[test]
fn the_limit_is_exact_after_a_step_that_failed_with_children() {
    let runtime = builder().workers(1).max_processes(4).start().unwrap();
    let process = runtime.spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        for _ in 0..3 {
            out.spawn(sink::<()>())?;
        }
        Err::<Step<()>, _>("with children".into())
    }));
    assert!(matches!(join(&process.unwrap()), Exit::Failed(_)));
    let processes: Vec<_> = (0..4).map(|_| runtime.spawn(sink::<()>()).unwrap()).collect();
    assert!(runtime.spawn(sink::<()>()).is_err());
    drop(processes);
}

#[test]
fn blocking_work_that_is_yielded_with_done_is_done() {
    let (runtime, ran) = (runtime(1), Arc::new(AtomicUsize::new(0)));
    for _ in 0..100 {
        let ran = ran.clone();
        let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let ran = ran.clone();
            out.blocking(move || ran.fetch_add(1, Ordering::SeqCst));
            Ok(Step::Done(()))
        });
        runtime.spawn(process).unwrap();
    }
    until("all have run", || ran.load(Ordering::SeqCst) == 100);
}

#[test]
fn a_shutdown_from_inside_an_init_is_refused() {
    struct Rude(Runtime, Latch<bool>);
    impl Process for Rude {
        type Message = ();
        type Output = ();

        fn init(&mut self, _: EntryArgs) -> InitResult {
            let _ = self.1.set(matches!(self.0.shutdown(LIMIT), Err(ShutdownError::Inside)));
            Ok(())
        }

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            let over = events.any(|event| matches!(event, Event::Cancel(_)));
            Ok(if over { Step::Done(()) } else { Step::Idle })
        }
    }
    let (runtime, refused) = (runtime(1), Latch::new());
    let process = runtime.spawn(Rude(runtime.clone(), refused.clone())).unwrap();
    assert!(wait(&refused));
    runtime.cancel(process.pid(), "over").unwrap();
    output(&process);
    runtime.shutdown(LIMIT).unwrap();
}

/// Larger than the stack of a worker.
struct Large {
    room: [u8; 4 << 20],
    ended: Arc<AtomicUsize>,
}

impl Drop for Large {
    fn drop(&mut self) {
        self.ended.fetch_add(usize::from(self.room[self.room.len() - 1]), Ordering::SeqCst);
    }
}

impl Process for Large {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn a_process_that_is_larger_than_a_stack_ends_where_it_lies() {
    let ended = Arc::new(AtomicUsize::new(0));
    let counts = ended.clone();
    // The spawner has it on the stack.
    let spawner = std::thread::Builder::new().stack_size(256 << 20).spawn(move || {
        let runtime = runtime(1);
        let large = runtime.spawn(Large { room: [1; 4 << 20], ended: counts }).map_err(|_| "refused").unwrap();
        runtime.send(large.address(), ()).unwrap();
        assert!(join(&large).is_done());
    });
    wait(spawner.unwrap()).unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn a_hanging_cancel_callback_is_named_by_its_shutdown_stage() {
    let runtime = builder().workers(1).start().unwrap();
    let (begun, told, gate) = (Latch::new(), Latch::new(), Latch::<()>::new());
    let (begins, tell, opens, ends) = (begun.clone(), told.clone(), gate.clone(), runtime.clone());
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let (begins, tell, opens, ends) = (begins.clone(), tell.clone(), opens.clone(), ends.clone());
        out.blocking_with(move |cancel| {
            let (gate, waits, answered) = (opens.clone(), ends, tell.clone());
            let _blocks = cancel.on_cancel(move |_| {
                wait(&gate);
            });
            let below = cancel.child();
            let _waits = below.on_cancel(move |_| {
                let _ = tell.set(waits.shutdown(LIMIT).unwrap_err());
            });
            let _ = begins.set(());
            wait(&opens);
            // Until both were called, or they would be taken back.
            wait(&answered);
        });
        Ok(Step::Done(()))
    });
    output(&runtime.spawn(process).unwrap());
    wait(&begun);
    let over = Latch::new();
    let set = over.clone();
    std::thread::spawn(move || {
        let _ = set.set(runtime.shutdown(Duration::ZERO).unwrap());
    });
    let report = wait(&over);
    assert_eq!(report.jobs_running, 1);
    assert!(matches!(report.hangs, Some(ShutdownStage::Jobs)), "{report}");
    gate.set(()).unwrap();
    assert_eq!(wait(&told), ShutdownError::Inside, "it would wait for its own thread");
}
