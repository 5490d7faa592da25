//! Limits of commands, and commands that their process cancels.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder, TimerFired};
use procession::testing::{Driver, Outstanding, Status};
use procession::{
    CancelToken, CommandError, Completion, Event, Events, Exit, Handle, Process, Reason, Reply, Runtime, SpawnOptions,
    Step, StepOutput, Tag, Upgrade,
};

use crate::helpers::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Its handler answers when the test says so.
struct Work;

impl Command for Work {
    type Output = u32;
}

/// An answer with its tag.
type Answer = (u64, Result<u32, String>);

/// A runtime whose handler of [`Work`] keeps the responders.
struct Kept {
    runtime: Runtime,
    clock: ManualClock,
    responders: Log<Responder<u32>>,
}

impl Kept {
    fn new() -> Kept {
        let (clock, responders) = (ManualClock::new(), Log::new());
        let keep = responders.clone();
        let handler = move |_: Work, responder| {
            keep.push(responder);
            Ok(())
        };
        let runtime = builder().workers(1).clock(clock.clock()).handler(handler).start().unwrap();
        Kept { runtime, clock, responders }
    }

    /// Waits until the handler was called this often, and takes the responders.
    fn responders(&self, count: usize) -> Vec<Responder<u32>> {
        until("the handler has the commands", || self.responders.len() == count);
        self.responders.take()
    }
}

fn text<T>(answer: Result<T, CommandError>) -> Result<T, String> {
    answer.map_err(|error| error.to_string())
}

/// Yields commands in its first step. It is done with all answers, by tag, when it is asked to stop.
fn yields<T, F>(first: F) -> impl Process<Message = (), Output = Vec<(u64, Result<T, String>)>>
where
    T: Clone + Send + Sync + 'static,
    F: FnOnce(&mut StepOutput) -> Vec<Tag<T>> + Send + 'static,
{
    let (mut first, mut tags, mut answers) = (Some(first), Vec::new(), Vec::new());
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(first) = first.take() {
            tags = first(out);
        }
        for event in events {
            match event {
                Event::Completed(done) => answers.push((done.tag(), text(taken(&done, &tags)))),
                Event::Cancel(_) => return Ok(Step::Done(std::mem::take(&mut answers))),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

fn taken<T: 'static>(done: &Completion, tags: &[Tag<T>]) -> Result<T, CommandError> {
    tags.iter().find_map(|tag| done.take(*tag)).expect("the answer to a command")
}

/// Waits for an idle runtime, asks the process to stop, and returns the answers that it got.
#[track_caller]
fn answers<P: Process>(runtime: &Runtime, process: &Handle<P>) -> Arc<P::Output>
where
    P::Output: std::fmt::Debug,
{
    until("nothing is ready", || runtime.is_idle());
    runtime.cancel(process.pid(), "enough").unwrap();
    output(process)
}

#[test]
fn a_command_whose_limit_is_over_is_answered_at_once() {
    let kept = Kept::new();
    let process = kept
        .runtime
        .spawn(yields(|out: &mut StepOutput| vec![out.command_timeout(Work, LIMIT), out.command(Work)]))
        .unwrap();
    let mut responders = kept.responders(2);
    let (other, late) = (responders.pop().unwrap(), responders.pop().unwrap());
    let token = late.cancel().clone();
    kept.clock.advance(LIMIT - Duration::from_nanos(1));
    assert!(!token.is_cancelled());
    kept.clock.advance(Duration::from_nanos(1));
    assert_eq!(wait(&token), Reason::TimedOut);
    assert!(!other.cancel().is_cancelled(), "the other command has no limit");
    // A token that is looked at only now is cancelled, too.
    assert_eq!(late.cancel().check(), Err(Reason::TimedOut));
    assert_eq!(kept.runtime.stats().discarded_answers, 0);
    late.ok(2);
    assert_eq!(kept.runtime.stats().discarded_answers, 1);
    other.ok(4);
    assert_eq!(*answers(&kept.runtime, &process), [(1, Err("timed out".into())), (2, Ok(4))]);
    assert_eq!(kept.runtime.stats().discarded_answers, 1);
}

#[test]
fn a_command_that_is_answered_in_time_leaves_no_timer() {
    let kept = Kept::new();
    let commands = |out: &mut StepOutput| (0..3).map(|_| out.command_timeout(Work, LIMIT)).collect();
    let process = kept.runtime.spawn(yields(commands)).unwrap();
    let mut responders = kept.responders(3);
    assert_eq!(kept.runtime.stats().timers, 3);
    responders.remove(0).ok(1);
    drop(responders.remove(0));
    assert_eq!(kept.runtime.stats().timers, 1, "of the one that is open");
    let expected = [(1, Ok(1)), (2, Err("dropped without an answer".into()))];
    assert_eq!(*answers(&kept.runtime, &process), expected);
    assert_eq!(kept.runtime.stats().timers, 0, "they go with their process");
    assert_eq!(responders[0].cancel().check(), Err(Reason::Ended));
}

#[test]
fn a_cancelled_command_is_answered_at_once() {
    let kept = Kept::new();
    let process = kept
        .runtime
        .spawn(yields(|out: &mut StepOutput| {
            let tags = vec![out.command(Work), out.command_timeout(Work, LIMIT), out.command(Work)];
            out.cancel_command(tags[0]);
            out.cancel_command(tags[1]);
            out.cancel_command(tags[0]);
            tags
        }))
        .unwrap();
    let responders = kept.responders(3);
    until("two are cancelled", || responders[1].cancel().is_cancelled());
    let reasons: Vec<_> = responders.iter().map(|responder| responder.cancel().reason()).collect();
    assert_eq!(reasons, [Some(Reason::Cancelled), Some(Reason::Cancelled), None]);
    assert_eq!(kept.runtime.stats().timers, 0, "the limit of the second is gone");
    responders.into_iter().for_each(|responder| responder.ok(7));
    let cancelled = || Err("cancelled (cancelled)".into());
    assert_eq!(*answers(&kept.runtime, &process), [(1, cancelled()), (2, cancelled()), (3, Ok(7))]);
    assert_eq!(kept.runtime.stats().discarded_answers, 2);
}

#[test]
fn a_cancelled_closure_sees_it_and_one_not_begun_is_not_run() {
    let blocker = Blocker::new();
    let (seen, ran, answered) = (Log::new(), Log::new(), Log::new());
    let runtime = builder().workers(1).blocking_threads(1).start().unwrap();
    let (blocked, sees, runs, answer) = (blocker.blocked(), seen.clone(), ran.clone(), answered.clone());
    let mut tags = Vec::<Tag<()>>::new();
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if tags.is_empty() {
                let (blocked, sees, runs) = (blocked.clone(), sees.clone(), runs.clone());
                tags.push(out.blocking_with(move |cancel: &CancelToken| {
                    let cancel = cancel.clone();
                    blocked.wait();
                    sees.push(cancel.reason());
                }));
                tags.push(out.blocking(move || runs.push(())));
                return Ok(Step::Idle);
            }
            for event in events {
                match event {
                    Event::Message(()) => tags.iter().for_each(|tag| out.cancel_command(*tag)),
                    Event::Completed(done) => {
                        assert!(matches!(taken(&done, &tags), Err(CommandError::Cancelled(Reason::Cancelled))));
                        answer.push(());
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    blocker.wait_begun();
    runtime.send(process.address(), ()).unwrap();
    until("both are answered", || answered.len() == 2);
    blocker.release();
    until("the result is discarded", || runtime.stats().discarded_answers == 1);
    until("the pool is empty", || runtime.stats().blocking_queue == 0 && runtime.is_idle());
    runtime.cancel(process.pid(), "enough").unwrap();
    output(&process);
    assert_eq!((seen.take(), ran.len()), (vec![Some(Reason::Cancelled)], 0));
}

#[test]
fn an_ask_and_a_timer_can_be_cancelled_as_well() {
    let clock = ManualClock::new();
    let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
    let replies = Log::new();
    let keeper = runtime.spawn(recorder::<Reply<u32>>(&replies)).unwrap();
    let to = keeper.address();
    let asks = runtime
        .spawn(yields(move |out: &mut StepOutput| {
            let tag = out.ask(to, |reply| reply, LIMIT);
            out.cancel_command(tag);
            vec![tag]
        }))
        .unwrap();
    let waits = runtime
        .spawn(yields(|out: &mut StepOutput| {
            let tag: Tag<TimerFired> = out.after(LIMIT);
            out.cancel_command(tag);
            vec![tag]
        }))
        .unwrap();
    let cancelled = Err(String::from("cancelled (cancelled)"));
    assert_eq!(*answers(&runtime, &asks), [(1, cancelled.clone())]);
    assert_eq!((*answers(&runtime, &waits))[0].1.clone().map(|_| 0), cancelled);
    assert_eq!(runtime.stats().timers, 0);
    assert!(!replies.take().pop().unwrap().send(1), "the reply is late");
    assert_eq!(runtime.stats().late_replies, 1);
}

#[test]
fn a_successor_gets_nothing_of_a_limit_that_was_set_before() {
    let kept = Kept::new();
    let mut is_first = true;
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if std::mem::take(&mut is_first) {
            out.command_timeout(Work, LIMIT);
        }
        if events.any(|event| matches!(event, Event::Message(()))) {
            return Err("as it was told".into());
        }
        Ok(Step::<Vec<Answer>>::Idle)
    });
    let options = SpawnOptions::new().recover_with(|_| Some(Upgrade::to(yields::<u32, _>(|_| vec![]))));
    let process = kept.runtime.spawn_with(process, options).unwrap();
    let responder = kept.responders(1).pop().unwrap();
    kept.runtime.send(process.address(), ()).unwrap();
    assert_eq!(wait(&responder.cancel().clone()), Reason::Ended);
    assert_eq!(kept.runtime.stats().timers, 0);
    kept.clock.advance(LIMIT);
    responder.ok(1);
    assert_eq!(*answers(&kept.runtime, &process), []);
    assert_eq!(kept.runtime.stats().discarded_answers, 1);
}

#[test]
fn a_test_drives_limits_with_its_clock() {
    let mut driver = Driver::new(yields(|out: &mut StepOutput| {
        let tags: Vec<_> = (0..3).map(|_| out.command_timeout(Work, LIMIT)).collect();
        out.cancel_command(tags[2]);
        tags
    }));
    driver.run();
    let outstanding = |driver: &Driver<_>| driver.outstanding().len();
    assert_eq!(outstanding(&driver), 2);
    let (first, _) = driver.command::<Work>().unwrap();
    assert!(matches!(driver.outstanding()[..], [Outstanding::Command { tag: 2, .. }]));
    driver.advance(LIMIT - Duration::from_nanos(1)).answer(first, Ok(7)).run();
    driver.advance(Duration::from_nanos(1)).run();
    assert_eq!(outstanding(&driver), 0);
    assert!(driver.command::<Work>().is_none());
    driver.answer(first, Ok(8)).cancel("enough");
    assert_eq!(driver.run(), Status::Ended);
    let Some(Exit::Done(answers)) = driver.exit() else { panic!("it is done") };
    let expected = [(3, Err("cancelled (cancelled)".into())), (1, Ok(7)), (2, Err("timed out".into()))];
    assert_eq!(*answers, expected);
}
