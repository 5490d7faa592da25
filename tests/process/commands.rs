//! C. Commands and their completions, blocking closures, timers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder, TimerFired};
use procession::names::NoSuchProcessError;
use procession::observe::WaitedForNothing;
use procession::sync::Latch;
use procession::{BoxError, CommandError, Event, Events, Exit, Process, Reason, Step, StepOutput, Tag};

use crate::helpers::*;

/// Doubles a number; what the handler does is up to the test.
struct Double(u32);

impl Command for Double {
    type Output = u32;
}

type Answer = (u64, Result<u32, String>);

/// Yields these commands in its first step, and is done with all the answers, in the order in which they came.
fn asks(commands: Vec<Double>) -> impl Process<Message = (), Output = Vec<Answer>> {
    let (mut commands, mut tags, mut answers) = (Some(commands), Vec::<Tag<u32>>::new(), Vec::new());
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for command in commands.take().unwrap_or_default() {
            tags.push(out.command(command));
        }
        for event in events {
            if let Event::Completed(done) = event {
                let tag = tags.iter().find(|tag| done.is(**tag)).copied().unwrap();
                let answer = done.take(tag).unwrap().map_err(|error| error.to_string());
                assert!(done.take(tag).is_none(), "an answer is had once");
                answers.push((tag.id(), answer));
            }
        }
        Ok(if answers.len() == tags.len() { Step::Done(std::mem::take(&mut answers)) } else { Step::Wait })
    })
}

fn handled<F>(handler: F) -> procession::Runtime
where
    F: Fn(Double, Responder<u32>) -> Result<(), BoxError> + Send + Sync + 'static,
{
    builder().workers(1).handler::<Double, F>(handler).start().unwrap()
}

#[test]
fn two_commands_of_one_step_complete_independently_each_with_its_own_tag() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let runtime = handled(move |double, done| {
        keep.lock().unwrap().push((double, done));
        Ok(())
    });
    let process = runtime.spawn(asks(vec![Double(1), Double(10), Double(100)])).unwrap();
    until("all are with the handler", || kept.lock().unwrap().len() == 3);
    // The last one first, and all from another thread.
    while let Some((double, done)) = { kept.lock().unwrap().pop() } {
        done.ok(double.0 * 2);
    }
    assert_eq!(*output(&process), [(3, Ok(200)), (2, Ok(20)), (1, Ok(2))]);
}

#[test]
fn a_completion_that_comes_at_once_is_not_lost() {
    let runtime = handled(|double, done| {
        done.ok(double.0 * 2);
        Ok(())
    });
    let process = runtime.spawn(asks(vec![Double(1), Double(2)])).unwrap();
    assert_eq!(*output(&process), [(1, Ok(2)), (2, Ok(4))]);
}

#[test]
fn a_completion_that_comes_during_a_step_is_not_lost() {
    let (sender, receiver) = mpsc::channel::<(u32, Responder<u32>)>();
    let sender = Mutex::new(sender);
    let runtime = handled(move |double, done| Ok(sender.lock().unwrap().send((double.0, done))?));
    std::thread::spawn(move || receiver.into_iter().for_each(|(n, done)| done.ok(n * 2)));
    for round in 0..5_000 {
        let process = runtime.spawn(asks(vec![Double(round), Double(round + 1)])).unwrap();
        let mut answers = (*output(&process)).clone();
        answers.sort();
        assert_eq!(answers, [(1, Ok(round * 2)), (2, Ok(round * 2 + 2))]);
    }
}

#[test]
fn a_command_that_is_not_carried_out_is_answered_with_why() {
    let runtime = handled(|double, done| match double.0 {
        1 => Err("no route".into()),
        2 => panic!("boom"),
        3 => Ok(()),
        4 => {
            std::thread::spawn(move || drop(done));
            Ok(())
        }
        _ => {
            done.fail("refused");
            Ok(())
        }
    });
    let expected = [
        "failed: no route",
        "panicked: boom",
        "dropped without an answer",
        "dropped without an answer",
        "failed: refused",
    ];
    for (n, expected) in expected.into_iter().enumerate() {
        let process = runtime.spawn(asks(vec![Double(n as u32 + 1)])).unwrap();
        assert_eq!(*output(&process), [(1, Err(String::from(expected)))]);
    }
    let unhandled = crate::helpers::runtime(1);
    let answer = output(&unhandled.spawn(asks(vec![Double(1)])).unwrap())[0].1.clone().unwrap_err();
    assert!(answer.starts_with("unknown command") && answer.contains("Double"), "{answer}");
}

#[test]
fn an_answer_to_an_ended_process_is_discarded() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let runtime = builder()
        .workers(1)
        .max_processes(1)
        .handler(move |_: Double, done| {
            keep.lock().unwrap().push(done);
            Ok(())
        })
        .start()
        .unwrap();
    let first = runtime.spawn(asks(vec![Double(1)])).unwrap();
    until("the handler has it", || kept.lock().unwrap().len() == 1);
    runtime.terminate(first.pid()).unwrap();
    join(&first);
    // The same slot, the same number of the tag.
    let second = runtime.spawn(asks(vec![Double(2)])).unwrap();
    assert_eq!(second.pid().slot(), first.pid().slot());
    until("the handler has it", || kept.lock().unwrap().len() == 2);
    let mut kept = kept.lock().unwrap();
    let (to_second, to_first) = (kept.pop().unwrap(), kept.pop().unwrap());
    to_first.ok(1);
    assert_eq!(runtime.stats().discarded_answers, 1);
    to_second.ok(2);
    assert_eq!(*output(&second), [(1, Ok(2))]);
}

#[test]
fn a_handler_is_told_when_the_process_that_waits_has_ended() {
    let told = Latch::new();
    let tell = told.clone();
    let runtime = handled(move |_, done| {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let reason = done.cancel().wait();
            let _ = tell.set(reason);
        });
        Ok(())
    });
    let process = runtime.spawn(asks(vec![Double(1)])).unwrap();
    until("it waits", || runtime.process(process.pid()).is_some_and(|info| info.state.to_string() == "blocked"));
    runtime.terminate(process.pid()).unwrap();
    assert_eq!(wait(&told), Reason::Ended);
}

#[test]
fn a_handler_that_blocks_holds_up_nobody_whom_the_same_step_has_woken() {
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let runtime = builder()
        .workers(2)
        .handler(move |_: Double, done| {
            blocked.wait();
            done.ok(0);
            Ok(())
        })
        .start()
        .unwrap();
    let log = Log::<u32>::new();
    let woken = runtime.spawn(recorder(&log)).unwrap();
    let to = woken.address();
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, 1);
        out.command(Double(1));
        Ok(Step::Done(()))
    }));
    blocker.wait_begun();
    until("the other worker steps it", || log.len() == 1);
    blocker.release();
    output(&process.unwrap());
}

/// Runs these closures as blocking commands, and is done with what they answered.
fn blocking<T, F>(work: Vec<F>) -> impl Process<Message = (), Output = Vec<Result<T, String>>>
where
    T: Send + Sync + 'static,
    F: FnOnce(&procession::CancelToken) -> T + Send + 'static,
{
    let (mut work, mut tags, mut answers) = (Some(work), Vec::<Tag<T>>::new(), Vec::new());
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for work in work.take().unwrap_or_default() {
            tags.push(out.blocking_with(work));
        }
        for event in events {
            if let Event::Completed(done) = event {
                let tag = tags.iter().find(|tag| done.is(**tag)).copied().unwrap();
                answers.push(done.take(tag).unwrap().map_err(|error| error.to_string()));
            }
        }
        Ok(if answers.len() == tags.len() { Step::Done(std::mem::take(&mut answers)) } else { Step::Wait })
    })
}

#[test]
fn a_blocking_closure_runs_on_the_pool_and_its_panic_is_an_error() {
    let runtime = runtime(1);
    let name = |_: &procession::CancelToken| std::thread::current().name().unwrap_or_default().to_string();
    let names = output(&runtime.spawn(blocking(vec![name])).unwrap());
    assert!(names[0].as_ref().unwrap().starts_with("procession-blocking"), "{names:?}");
    let boom = |_: &procession::CancelToken| -> u32 { panic!("boom") };
    assert_eq!(*output(&runtime.spawn(blocking(vec![boom])).unwrap()), [Err(String::from("panicked: boom"))]);
}

#[test]
fn the_end_of_a_process_cancels_its_blocking_closures() {
    let runtime = builder().workers(1).blocking_threads(1).start().unwrap();
    let (begun, told, ran) = (Latch::new(), Latch::new(), Arc::new(AtomicUsize::new(0)));
    let work = |n: usize| {
        let (begun, told, ran) = (begun.clone(), told.clone(), ran.clone());
        move |cancel: &procession::CancelToken| {
            ran.fetch_add(1, Ordering::Relaxed);
            if n == 0 {
                let _ = begun.set(());
                let _ = told.set(cancel.wait());
            }
        }
    };
    let process = runtime.spawn(blocking(vec![work(0), work(1)])).unwrap();
    wait(&begun);
    runtime.terminate(process.pid()).unwrap();
    assert_eq!(wait(&told), Reason::Ended);
    until("both are answered, for nobody", || runtime.stats().discarded_answers == 2);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn blocking_work_never_holds_up_a_worker() {
    let runtime = builder().workers(1).blocking_threads(4).start().unwrap();
    let (go, count) = (Latch::new(), Arc::new(AtomicUsize::new(0)));
    let work = || {
        let (go, count) = (go.clone(), count.clone());
        move |_: &procession::CancelToken| {
            count.fetch_add(1, Ordering::Relaxed);
            wait(&go);
        }
    };
    let process = runtime.spawn(blocking((0..20).map(|_| work()).collect())).unwrap();
    until("as many run as may", || count.load(Ordering::Relaxed) == 4);
    for _ in 0..100 {
        output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    }
    assert_eq!(count.load(Ordering::Relaxed), 4, "and no more");
    go.set(()).unwrap();
    assert_eq!(output(&process).len(), 20);
}

#[test]
fn timers_complete_in_the_order_of_their_times_and_not_early() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let log = Log::new();
    let seen = log.clone();
    let mut tags: Vec<(u64, Tag<TimerFired>)> = Vec::new();
    let mut begun = None;
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let start = *begun.get_or_insert(out.now());
        for seconds in [3_u64, 1, 2].into_iter().filter(|_| tags.len() < 3).collect::<Vec<_>>() {
            tags.push((seconds, out.after(Duration::from_secs(seconds))));
        }
        for event in events {
            if let Event::Completed(done) = event {
                let (seconds, tag) = tags.iter().find(|(_, tag)| done.is(*tag)).unwrap();
                done.take(*tag).unwrap().unwrap();
                assert!(out.now() - start >= Duration::from_secs(*seconds));
                seen.push(*seconds);
            }
        }
        Ok(if seen.len() == 3 { Step::Done(()) } else { Step::Wait })
    }));
    let process = process.unwrap();
    until("the timers are set", || runtime.stats().timers == 3);
    manual.advance(Duration::from_millis(999));
    assert_eq!(runtime.stats().timers, 3);
    manual.advance(Duration::from_millis(1));
    until("the first has come", || log.len() == 1);
    manual.advance(Duration::from_secs(5));
    output(&process);
    assert_eq!(log.take(), [1, 2, 3]);
}

#[test]
fn cancelling_a_timer_answers_cancelled_unless_it_has_fired() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let log = Log::new();
    let seen = log.clone();
    let (mut soon, mut late, mut never) = (None, None, None);
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let soon = *soon.get_or_insert_with(|| out.after(Duration::from_secs(1)));
        let late = *late.get_or_insert_with(|| out.after(Duration::from_secs(100)));
        let never = *never.get_or_insert_with(|| out.after(Duration::MAX));
        for event in events {
            match event {
                Event::Completed(done) => {
                    let tag = [soon, late, never].into_iter().find(|tag| done.is(*tag)).unwrap();
                    seen.push((tag.id(), done.take(tag).unwrap().map(|_| ()).map_err(|error| error.to_string())));
                    if tag == soon {
                        // The first has fired already: nothing more comes of it.
                        [soon, late, never, late].into_iter().for_each(|tag| out.cancel_timer(tag));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }));
    let process = process.unwrap();
    until("the timers are set", || runtime.stats().timers == 2);
    manual.advance(Duration::from_secs(1));
    until("all are answered", || log.len() == 3);
    assert_eq!(runtime.stats().timers, 0);
    runtime.cancel(process.pid(), "enough").unwrap();
    output(&process);
    let cancelled = || Err(String::from("cancelled (cancelled)"));
    assert_eq!(log.take(), [(1, Ok(())), (2, cancelled()), (3, cancelled())]);
}

#[test]
fn a_worker_that_is_stuck_holds_up_no_timer_that_was_set_there() {
    let runtime = runtime(2);
    let (_one, first) = hold_up(&runtime);
    // It is stepped by the other worker.
    let mut timer = None;
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let timer = *timer.get_or_insert_with(|| out.after(Duration::from_millis(20)));
        let fired = events.any(|event| matches!(event, Event::Completed(done) if done.is(timer)));
        Ok(if fired { Step::Done(()) } else { Step::Idle })
    }));
    let process = process.unwrap();
    until("the timer is set", || runtime.stats().timers == 1 || process.is_finished());
    let (_other, second) = hold_up(&runtime);
    first.release();
    output(&process);
    second.release();
}

/// The events of a process that sets and cancels a timer in its first step, while a message comes.
#[test]
fn an_answer_at_once_comes_after_what_came_during_the_step() {
    let (runtime, blocker) = (runtime(1), Blocker::new());
    let (blocked, log, mut is_first) = (blocker.blocked(), Log::new(), true);
    let seen = log.clone();
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if std::mem::take(&mut is_first) {
            let timer = out.after(Duration::from_secs(3_600));
            out.cancel_timer(timer);
            blocked.wait();
        }
        for event in events {
            match event {
                Event::Message(()) => seen.push("message"),
                Event::Completed(_) => seen.push("answer"),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    }));
    let process = process.unwrap();
    blocker.wait_begun();
    runtime.send(process.address(), ()).unwrap();
    blocker.release();
    until("both are there", || log.len() == 2);
    assert_eq!(log.take(), ["message", "answer"]);
}

#[test]
fn an_answer_at_once_wakes_a_process_whose_step_took_nothing() {
    let runtime = runtime(1);
    let (mut steps, mut timer) = (0, None);
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        steps += 1;
        match steps {
            1 => timer = Some(out.after(Duration::from_secs(3_600))),
            // The message is not taken.
            2 => out.cancel_timer(timer.unwrap()),
            _ => {
                let events: Vec<_> = events.collect();
                assert!(matches!(events[..], [Event::Message(()), Event::Completed(_)]), "{events:?}");
                return Ok(Step::Done(steps));
            }
        }
        Ok(Step::Idle)
    }));
    let process = process.unwrap();
    until("the timer is set", || runtime.stats().timers == 1);
    runtime.send(process.address(), ()).unwrap();
    assert_eq!(*output(&process), 3);
}

/// Otherwise it would be ended too early because it waits for nothing, or wait for ever.
#[test]
fn an_answer_at_once_is_waited_for_and_counts_once() {
    let runtime = runtime(1);
    let (log, mut is_first) = (Log::new(), true);
    let seen = log.clone();
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if std::mem::take(&mut is_first) {
            let timer = out.after(Duration::from_secs(3_600));
            out.cancel_timer(timer);
        }
        seen.push(events.count());
        Ok::<Step<()>, BoxError>(Step::Wait)
    }));
    let exit = join(&process.unwrap());
    assert!(
        matches!(&exit, Exit::Failed(failure) if failure.error().downcast_ref::<WaitedForNothing>().is_some()),
        "{exit:?}"
    );
    assert_eq!(log.take(), [0, 1]);
}

#[test]
fn a_process_end_removes_a_million_pending_timers_at_once() {
    let runtime = runtime(1);
    const TIMERS: usize = 1_000_000;
    let process = runtime.spawn(script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.count() == 0 {
            for n in 0..TIMERS as u64 {
                out.after(Duration::from_secs(3_600 + n % 977));
            }
        }
        Ok::<Step<()>, BoxError>(Step::Idle)
    }));
    let process = process.unwrap();
    until("the timers are set", || runtime.stats().timers == TIMERS);
    runtime.terminate(process.pid()).unwrap();
    join(&process);
    assert_eq!(runtime.stats().timers, 0);
}

#[test]
fn cancelling_and_terminating_another_process_are_answered() {
    let runtime = runtime(1);
    let victims: Vec<_> = (0..2).map(|_| runtime.spawn(sink::<()>()).unwrap()).collect();
    let gone = runtime.spawn(sink::<()>()).unwrap();
    runtime.terminate(gone.pid()).unwrap();
    join(&gone);
    let pids = [victims[0].pid(), victims[1].pid(), gone.pid(), "<0.99.99>".parse().unwrap()];
    let (mut tags, mut answers) = (Vec::new(), Vec::new());
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if tags.is_empty() {
            tags = vec![
                out.cancel_timeout(pids[0], "please", Duration::from_secs(1)),
                out.terminate(pids[1]),
                out.cancel(pids[2], "too late"),
                out.terminate(pids[2]),
                out.cancel(pids[3], "nobody"),
                out.terminate(pids[3]),
            ];
        }
        for event in events {
            if let Event::Completed(done) = event {
                let tag = tags.iter().find(|tag| done.is(**tag)).copied().unwrap();
                answers.push(match done.take(tag).unwrap() {
                    Ok(was_there) => was_there.to_string(),
                    Err(CommandError::NoSuchProcess(NoSuchProcessError::Pid(pid))) => pid.to_string(),
                    Err(other) => panic!("{other}"),
                });
            }
        }
        Ok(if answers.len() == 6 { Step::Done(std::mem::take(&mut answers)) } else { Step::Wait })
    }));
    let answers = output(&process.unwrap());
    assert_eq!(*answers, ["true", "true", "false", "false", "<0.99.99>", "<0.99.99>"]);
    assert!(join(&victims[0]).is_done());
    assert_eq!(join(&victims[1]).to_string(), "terminated (terminated)");
}

#[test]
fn handlers_of_one_command_run_on_all_workers_at_the_same_time() {
    const WORKERS: usize = 4;
    let (all, inside) = (Latch::new(), AtomicUsize::new(0));
    let handle = move |double: Double, done: Responder<u32>| {
        if inside.fetch_add(1, Ordering::SeqCst) + 1 == WORKERS {
            let _ = all.set(());
        }
        // Each of them waits for all the others: a look-up that waited for one of them would wait for ever.
        wait(&all);
        done.ok(double.0 * 2);
        Ok(())
    };
    let runtime = builder().workers(WORKERS).handler(handle).start().unwrap();
    let processes = [1, 2, 3, 4].map(|n| runtime.spawn(asks(vec![Double(n)])).unwrap());
    for (n, process) in (1..).zip(&processes) {
        assert_eq!(*output(process), [(1, Ok(n * 2))]);
    }
}
