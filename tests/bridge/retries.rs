//! Commands, questions and closures that are attempted again.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder, Retry};
use procession::supervisor::Backoff;
use procession::testing::{Driver, Outstanding, Status};
use procession::{
    CommandError, Event, Events, Process, Reason, Reply, Runtime, SpawnOptions, Step, StepOutput, Tag, Upgrade,
};

use crate::helpers::*;

const PAUSE: Duration = Duration::from_secs(1);

/// Its handler answers when the test says so. It has the number of the attempt.
struct Fetch(u32);

impl Command for Fetch {
    type Output = u32;
}

type Answer = Result<u32, String>;

/// Exact pauses of 1, 2 and 4 seconds.
fn retry() -> Retry {
    Retry::new().first_pause(PAUSE).jitter(0.0).attempts(4)
}

/// A runtime whose handler of [`Fetch`] keeps the responders.
struct Kept {
    runtime: Runtime,
    clock: ManualClock,
    calls: Log<(u32, Responder<u32>)>,
}

impl Kept {
    fn new() -> Kept {
        Kept::with(2)
    }

    fn with(workers: usize) -> Kept {
        let (clock, calls) = (ManualClock::new(), Log::new());
        let keep = calls.clone();
        let handler = move |fetch: Fetch, responder| {
            keep.push((fetch.0, responder));
            Ok(())
        };
        let runtime = builder().workers(workers).clock(clock.clock()).handler(handler).start().unwrap();
        Kept { runtime, clock, calls }
    }

    /// Waits for the next attempt, and returns its number and its responder.
    #[track_caller]
    fn attempt(&self) -> (u32, Responder<u32>) {
        until("there is an attempt", || self.calls.len() == 1);
        self.calls.take().pop().unwrap()
    }

    /// Waits until a pause is being waited for.
    #[track_caller]
    fn wait_for_pause(&self, timers: usize) {
        until("it pauses", || self.runtime.stats().timers == timers && self.runtime.is_idle());
    }

    #[track_caller]
    fn wait_for_end(&self, processes: u64) {
        until("the retry has ended", || self.runtime.stats().processes == processes);
        assert_eq!(self.runtime.stats().timers, 0);
    }
}

/// Yields one command in its first step, and is done with its answer. A message cancels the command.
fn yields<F>(first: F) -> impl Process<Message = (), Output = Answer>
where
    F: FnMut(&mut StepOutput) -> Tag<u32> + Send + 'static,
{
    let (mut first, mut tag) = (first, None);
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let tag = *tag.get_or_insert_with(|| first(out));
        for event in events {
            match event {
                Event::Completed(done) => {
                    let answer = done.take(tag).expect("the only answer that it sees");
                    return Ok(Step::Done(answer.map_err(|error| error.to_string())));
                }
                Event::Message(()) => out.cancel_command(tag),
                Event::Cancel(_) => return Err("as it was told".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

fn fetches(retry: Retry) -> impl Process<Message = (), Output = Answer> {
    yields(move |out: &mut StepOutput| out.retry(retry, |out, attempt| out.command(Fetch(attempt))))
}

#[test]
fn a_failed_command_is_attempted_again_after_growing_pauses() {
    let kept = Kept::new();
    let process = kept.runtime.spawn(fetches(retry())).unwrap();
    for (attempt, pause) in [(1, 1), (2, 2), (3, 4)] {
        let (number, responder) = kept.attempt();
        assert_eq!(number, attempt);
        responder.fail("busy");
        kept.wait_for_pause(1);
        kept.clock.advance(PAUSE * pause - Duration::from_nanos(1));
        assert!(kept.runtime.is_idle() && kept.calls.len() == 0);
        kept.clock.advance(Duration::from_nanos(1));
    }
    let (number, responder) = kept.attempt();
    responder.ok(number * 10);
    assert_eq!(*output(&process), Ok(40));
    kept.wait_for_end(0);
}

#[test]
fn the_last_error_is_the_answer_when_no_attempt_succeeds() {
    let kept = Kept::new();
    let process = kept.runtime.spawn(fetches(retry().attempts(2))).unwrap();
    kept.attempt().1.fail("busy");
    kept.wait_for_pause(1);
    kept.clock.advance(PAUSE);
    kept.attempt().1.fail("busy again");
    assert_eq!(*output(&process), Err("failed: busy again".into()));
    kept.wait_for_end(0);
}

#[test]
fn an_error_that_is_final_ends_the_attempts() {
    let kept = Kept::new();
    let is_final = |error: &CommandError| error.to_string().contains("no such page");
    let process = kept.runtime.spawn(fetches(retry().final_if(is_final))).unwrap();
    kept.attempt().1.fail("busy");
    kept.wait_for_pause(1);
    kept.clock.advance(PAUSE);
    kept.attempt().1.fail("no such page");
    assert_eq!(*output(&process), Err("failed: no such page".into()));
    struct Unhandled;
    impl Command for Unhandled {
        type Output = u32;
    }
    let unhandled = yields(|out: &mut StepOutput| out.retry(retry(), |out, _| out.command(Unhandled)));
    let answer = output(&kept.runtime.spawn(unhandled).unwrap()).as_ref().clone().unwrap_err();
    assert!(answer.starts_with("unknown command"), "{answer}");
    kept.wait_for_end(0);
}

#[test]
fn the_total_time_ends_an_attempt_and_no_pause_exceeds_it() {
    let kept = Kept::new();
    let process = kept.runtime.spawn(fetches(retry().total_time(PAUSE * 2))).unwrap();
    kept.attempt().1.fail("busy");
    kept.wait_for_pause(2);
    kept.clock.advance(PAUSE);
    let (_, responder) = kept.attempt();
    kept.clock.advance(PAUSE);
    assert_eq!(*output(&process), Err("timed out".into()));
    assert_eq!(wait(&responder.cancel().clone()), Reason::Ended);
    responder.ok(1);
    kept.wait_for_end(0);
    let process = kept.runtime.spawn(fetches(retry().total_time(PAUSE))).unwrap();
    kept.attempt().1.fail("busy");
    assert_eq!(*output(&process), Err("failed: busy".into()), "the next attempt would be too late");
    kept.wait_for_end(0);
}

#[test]
fn a_cancelled_retry_gives_its_attempt_or_its_pause_up() {
    for pauses in [false, true] {
        let kept = Kept::new();
        let process = kept.runtime.spawn(fetches(retry().total_time(PAUSE * 9))).unwrap();
        let mut attempt = Some(kept.attempt().1);
        if pauses {
            attempt.take().unwrap().fail("busy");
            kept.wait_for_pause(2);
        }
        kept.runtime.send(process.address(), ()).unwrap();
        assert_eq!(*output(&process), Err("cancelled (cancelled)".into()));
        if let Some(attempt) = attempt {
            assert_eq!(wait(&attempt.cancel().clone()), Reason::Ended);
        }
        kept.wait_for_end(0);
    }
}

#[test]
fn a_retry_ends_with_its_process_and_with_a_failed_state_machine() {
    for (is_terminated, recovers) in [(true, false), (false, false), (false, true)] {
        let kept = Kept::new();
        let mut is_first = true;
        let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if std::mem::take(&mut is_first) {
                out.retry(retry(), |out, attempt| out.command(Fetch(attempt)));
            }
            if events.count() > 0 { Err("as it was told".into()) } else { Ok(Step::<Answer>::Idle) }
        });
        let next = || Upgrade::to(yields(|out: &mut StepOutput| out.command(Fetch(100))));
        let options = SpawnOptions::new().recover_with(move |_| recovers.then(next));
        let process = kept.runtime.spawn_with(process, options).unwrap();
        let (_, attempt) = kept.attempt();
        if is_terminated {
            assert!(kept.runtime.terminate(process.pid()).unwrap());
        } else {
            kept.runtime.send(process.address(), ()).unwrap();
        }
        assert_eq!(wait(&attempt.cancel().clone()), Reason::Ended);
        if recovers {
            let (number, next) = kept.attempt();
            assert_eq!(number, 100);
            attempt.ok(1);
            next.ok(2);
            assert_eq!(*output(&process), Ok(2));
        }
        kept.wait_for_end(0);
    }
}

#[test]
fn asks_futures_and_closures_are_attempted_again() {
    let clock = ManualClock::new();
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let quick = Retry::new().first_pause(Duration::ZERO).attempts(3);
    // A server that answers the third question. It drops the others.
    let mut questions = 0;
    let server = script(move |events: &mut Events<'_, Reply<u32>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(reply) if questions == 2 => out.reply(reply, 7),
                Event::Message(_) => questions += 1,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    runtime.spawn_with(server, SpawnOptions::new().name("server")).unwrap();
    let asks = yields(move |out: &mut StepOutput| {
        out.retry(quick, |out, _| out.ask("server", |reply: Reply<u32>| reply, Duration::MAX))
    });
    let asks = runtime.spawn(asks).unwrap();
    advance_until("it is answered", &clock, PAUSE, || asks.is_finished());
    assert_eq!(*output(&asks), Ok(7));
    // Futures. The first two are never ready, and have a limit each.
    let polls = yields(move |out: &mut StepOutput| {
        out.retry(quick, |out, attempt| {
            // The clock may move between the begin of the last attempt and its poll.
            let limit = if attempt < 3 { PAUSE } else { Duration::MAX };
            out.future_timeout(limit, async move { if attempt < 3 { std::future::pending().await } else { attempt } })
        })
    });
    let polls = runtime.spawn(polls).unwrap();
    advance_until("it is answered", &clock, PAUSE, || polls.is_finished());
    assert_eq!(*output(&polls), Ok(3));
    let blocks = yields(move |out: &mut StepOutput| {
        out.retry(quick, |out, attempt| {
            out.blocking(move || {
                assert!(attempt == 3, "on purpose");
                attempt
            })
        })
    });
    let blocks = runtime.spawn(blocks).unwrap();
    advance_until("it is answered", &clock, PAUSE, || blocks.is_finished());
    assert_eq!(*output(&blocks), Ok(3));
}

#[test]
fn a_panic_of_an_attempt_is_the_answer_and_it_yields_nothing() {
    let kept = Kept::new();
    let seen = Log::new();
    let witness = kept.runtime.spawn(recorder::<u32>(&seen)).unwrap().address();
    let process = yields(move |out: &mut StepOutput| {
        out.retry(retry(), move |out, attempt| {
            out.send(witness, attempt);
            assert!(attempt == 1, "on purpose");
            out.command(Fetch(attempt))
        })
    });
    let process = kept.runtime.spawn(process).unwrap();
    kept.attempt().1.fail("busy");
    kept.wait_for_pause(1);
    kept.clock.advance(PAUSE);
    assert_eq!(*output(&process), Err("panicked: on purpose".into()));
    kept.wait_for_end(1);
    assert_eq!(seen.take(), [1]);
}

#[test]
fn a_retry_that_cannot_be_begun_says_why() {
    let runtime = builder().workers(1).max_processes(1).start().unwrap();
    let answer = output(&runtime.spawn(fetches(retry())).unwrap()).as_ref().clone().unwrap_err();
    assert!(answer.contains("limit of 1 process"), "{answer}");
    // A step that fails begins nothing.
    let runtime = Kept::new();
    let fails = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.retry(retry(), |out, _| out.command(Fetch(1)));
        let failed: Result<Step<()>, procession::BoxError> = Err("as it was told".into());
        failed
    });
    join(&runtime.runtime.spawn(fails).unwrap());
    runtime.wait_for_end(0);
    assert_eq!((runtime.calls.len(), runtime.runtime.stats().spawned), (0, 1));
}

#[test]
fn a_runtime_shuts_down_while_a_retry_pauses() {
    let kept = Kept::new();
    let process = script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let Event::Cancel(_) = event {
                return Ok(Step::Done(()));
            }
        }
        out.retry(retry(), |out, attempt| out.command(Fetch(attempt)));
        Ok(Step::Idle)
    });
    let process = kept.runtime.spawn(process).unwrap();
    kept.attempt().1.fail("busy");
    kept.wait_for_pause(1);
    let report = kept.runtime.shutdown(PAUSE).unwrap();
    assert!(report.is_clean(), "{report}");
    output(&process);
}

#[test]
fn a_test_drives_the_attempts_of_a_retry() {
    let mut driver = Driver::new(fetches(retry()));
    assert_eq!(driver.run(), Status::Idle);
    assert!(driver.spawned().is_none());
    assert!(matches!(driver.outstanding()[..], [Outstanding::Command { .. }, Outstanding::Retry { tag: 1 }]));
    let (tag, fetch) = driver.command::<Fetch>().unwrap();
    assert_eq!(fetch.0, 1);
    driver.answer(tag, Err(CommandError::failed("busy"))).run();
    assert!(matches!(driver.outstanding()[..], [Outstanding::Retry { tag: 1 }]));
    driver.advance(PAUSE);
    let (tag, fetch) = driver.command::<Fetch>().unwrap();
    assert_eq!((fetch.0, driver.steps()), (2, 1));
    driver.answer(tag, Ok(7));
    assert_eq!(driver.run(), Status::Ended);
    assert!(matches!(driver.exit().unwrap().into_result(), Ok(answer) if *answer == Ok(7)));
    assert!(driver.outstanding().is_empty());
    // A retry that is cancelled, one whose process ends, and one that the test answers in its place.
    let mut driver = Driver::new(fetches(retry()));
    driver.run();
    driver.message(()).run();
    assert!(driver.command::<Fetch>().is_none() && driver.status() == Status::Ended);
    let mut driver = Driver::new(fetches(retry()));
    driver.run();
    driver.terminate();
    assert!(driver.command::<Fetch>().is_none());
}

#[test]
fn a_retry_that_is_cancelled_at_once_makes_no_attempt() {
    // A second worker could begin the attempt before the first one has performed the next yield of the step.
    let kept = Kept::with(1);
    let process = yields(|out| {
        let tag = out.retry(retry(), |out, attempt| out.command(Fetch(attempt)));
        out.cancel_command(tag);
        tag
    });
    let answer = output(&kept.runtime.spawn(process).unwrap());
    assert_eq!(*answer, Err(CommandError::Cancelled(Reason::Cancelled).to_string()));
    kept.wait_for_end(0);
    assert_eq!(kept.calls.len(), 0);
}

#[test]
fn a_retry_cancelled_when_its_pause_is_over_makes_no_attempt() {
    let kept = Kept::with(1);
    let process = kept.runtime.spawn(fetches(retry())).unwrap();
    kept.attempt().1.fail("busy");
    kept.wait_for_pause(1);
    let (holder, blocker) = hold_up(&kept.runtime);
    // The process is first in the queue, and cancels. The process that makes the attempts is second.
    kept.runtime.send(process.address(), ()).unwrap();
    kept.clock.advance(PAUSE);
    until("the pause is over", || kept.runtime.stats().timers == 0);
    blocker.release();
    output(&holder);
    assert_eq!(*output(&process), Err("cancelled (cancelled)".into()));
    kept.wait_for_end(0);
    assert_eq!(kept.calls.len(), 0);
}

#[test]
fn an_error_of_a_future_is_attempted_again() {
    let clock = ManualClock::new();
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let fails_twice = |attempts: u32| {
        yields(move |out: &mut StepOutput| {
            out.retry(Retry::new().first_pause(Duration::ZERO).attempts(attempts), |out, attempt| {
                let work = async move { if attempt < 3 { Err("busy") } else { Ok(attempt) } };
                out.try_future(work)
            })
        })
    };
    for (attempts, answer) in [(3, Ok(3)), (2, Err("failed: busy".into()))] {
        let process = runtime.spawn(fails_twice(attempts)).unwrap();
        advance_until("it is answered", &clock, PAUSE, || process.is_finished());
        assert_eq!(*output(&process), answer);
    }
    // The first two attempts have a limit, and are never ready. The last one has none: the clock may move between its
    // begin and its poll.
    let polls = yields(|out: &mut StepOutput| {
        out.retry(Retry::new().attempts(3), |out, attempt| {
            let limit = if attempt < 3 { PAUSE } else { Duration::MAX };
            out.try_future_timeout(limit, async move {
                if attempt < 3 { std::future::pending::<Result<u32, String>>().await } else { Ok(attempt) }
            })
        })
    });
    let polls = runtime.spawn(polls).unwrap();
    advance_until("it is answered", &clock, PAUSE, || polls.is_finished());
    assert_eq!(*output(&polls), Ok(3));
}

/// The length of the first pause, in milliseconds, of a driven process with this seed.
fn first_pause(seed: u64) -> u32 {
    let retry = Retry::new().first_pause(PAUSE).jitter(1.0).attempts(2);
    let mut driver = Driver::builder().seed(seed).build(fetches(retry));
    driver.run();
    let (tag, _) = driver.command::<Fetch>().expect("the first attempt");
    driver.answer(tag, Err(CommandError::Dropped)).run();
    let mut waited = 0;
    while driver.command::<Fetch>().is_none() {
        assert!(waited < 2_000, "there is no second attempt");
        waited += 1;
        driver.advance(Duration::from_millis(1)).run();
    }
    waited
}

#[test]
fn the_jitter_of_a_pause_is_drawn_from_the_seed() {
    assert_eq!(first_pause(1), first_pause(1));
    assert!((2..20).any(|seed| first_pause(seed).abs_diff(first_pause(1)) > 100));
}

#[test]
fn the_delays_of_restarts_are_public() {
    let backoff = Backoff::exponential(PAUSE, PAUSE * 5);
    let delays: Vec<_> = (1..=4).map(|failures| backoff.delay(failures)).collect();
    assert_eq!(delays, [1, 2, 4, 5].map(Duration::from_secs));
}
