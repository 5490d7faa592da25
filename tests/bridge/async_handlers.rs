//! Handlers that answer with the output of a future, and the limit of those that run at once.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::config::RuntimeBuilder;
use procession::testing::{Driver, Outstanding, Status};
use procession::{
    BoxError, CommandError, Completion, Event, Events, Exit, Handle, Process, Reason, Runtime, SpawnOptions, Step,
    StepOutput, Tag, Upgrade,
};

use crate::helpers::*;
use crate::puppet_future::*;

const LIMIT: Duration = Duration::from_secs(5);

/// How the future of a [`Job`] ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Value,
    Error,
    PanicInHandler,
    PanicInPoll,
    PanicInDrop,
}

/// A command whose future the test moves.
#[derive(Clone)]
struct Job {
    number: u32,
    end: End,
    strings: Strings,
    /// Counts the jobs that exist.
    exists: Arc<()>,
}

impl Command for Job {
    type Output = u32;
}

/// A runtime that performs [`Job`]s.
struct Jobs {
    runtime: Runtime,
    clock: ManualClock,
    begun: Log<u32>,
    exists: Arc<()>,
}

impl Jobs {
    fn new(workers: usize, at_most: Option<usize>) -> Jobs {
        Jobs::with(workers, |builder| match at_most {
            Some(most) => builder.at_most(most),
            None => builder,
        })
    }

    fn with(workers: usize, options: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Jobs {
        let (clock, begun) = (ManualClock::new(), Log::new());
        let begins = begun.clone();
        let handler = move |job: Job| {
            begins.push(job.number);
            assert!(job.end != End::PanicInHandler, "as it was told");
            let future = match job.end {
                End::PanicInDrop => job.strings.future_with(|| panic!("on purpose")),
                _ => job.strings.future(),
            };
            async move {
                let value = future.await;
                match job.end {
                    End::Error => Err("as it was told".into()),
                    End::PanicInPoll => panic!("as it was told"),
                    _ => Ok(value + job.number),
                }
            }
        };
        let builder = builder().workers(workers).clock(clock.clock()).handler_async(handler);
        Jobs { runtime: options(builder).start().unwrap(), clock, begun, exists: Arc::new(()) }
    }

    fn job(&self, number: u32, end: End) -> Job {
        Job { number, end, strings: Strings::default(), exists: self.exists.clone() }
    }

    /// Spawns a process that yields these jobs, and ends with the texts of their answers when it is asked to.
    fn spawn(&self, jobs: &[Job]) -> Handle<impl Process<Message = Message, Output = Vec<(u64, Answer)>> + use<>> {
        let jobs = jobs.to_vec();
        self.runtime.spawn(yields(move |out| jobs.iter().map(|job| out.command(job.clone())).collect())).unwrap()
    }

    fn wait_begun(&self, expected: &[u32]) {
        until("the next job begins", || self.begun.len() >= expected.len());
        assert_eq!(self.begun.to_vec(), expected);
    }

    /// The answers of a process that is asked to stop.
    #[track_caller]
    fn answers<P: Process<Output = Vec<(u64, Answer)>>>(&self, process: &Handle<P>) -> Vec<(u64, Answer)> {
        until("nothing is ready", || self.runtime.is_idle());
        self.runtime.cancel(process.pid(), "enough").unwrap();
        output(process).to_vec()
    }
}

type Answer = Result<u32, String>;

/// An order of the test to a process.
enum Message {
    Fail,
    Cancel(usize),
}

/// Yields commands in its first step. It ends with all answers, by tag, when it is asked to stop.
fn yields<F>(first: F) -> impl Process<Message = Message, Output = Vec<(u64, Answer)>> + use<F>
where
    F: FnOnce(&mut StepOutput) -> Vec<Tag<u32>> + Send + 'static,
{
    let (mut first, mut tags, mut answers) = (Some(first), Vec::new(), Vec::new());
    script(move |events: &mut Events<'_, Message>, out: &mut StepOutput| {
        if let Some(first) = first.take() {
            tags = first(out);
        }
        for event in events {
            match event {
                Event::Completed(done) => answers.push((done.tag(), text(taken(&done, &tags)))),
                Event::Message(Message::Fail) => return Err("as it was told".into()),
                Event::Message(Message::Cancel(place)) => out.cancel_command(tags[place]),
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

fn text(answer: Result<u32, CommandError>) -> Answer {
    answer.map_err(|error| error.to_string())
}

fn err(text: &str) -> Answer {
    Err(text.into())
}

thread_local! {
    static ENTERED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn the_output_the_error_or_the_panic_is_the_answer() {
    let jobs = Jobs::new(1, None);
    let ends = [End::Value, End::Error, End::PanicInHandler, End::PanicInPoll, End::PanicInDrop];
    let all: Vec<Job> = ends.iter().zip(10..).map(|(end, number)| jobs.job(number, *end)).collect();
    let process = jobs.spawn(&all);
    jobs.wait_begun(&[10, 11, 12, 13, 14]);
    all.iter().rev().for_each(|job| job.strings.finish());
    let mut answers = jobs.answers(&process);
    answers.sort();
    let (failed, panicked) = (err("failed: as it was told"), err("panicked: as it was told"));
    assert_eq!(
        answers,
        [(1, Ok(17)), (2, failed), (3, panicked.clone()), (4, panicked), (5, err("panicked: on purpose"))]
    );
    let drops: Vec<usize> = all.iter().map(|job| job.strings.drops()).collect();
    assert_eq!(drops, [1, 1, 0, 1, 1]);
}

/// An error keeps its type, and both the handler and its future run in the context of polls.
#[test]
fn an_async_handler_runs_in_the_context_of_polls() {
    struct Ask;
    impl Command for Ask {
        type Output = u32;
    }
    let context = |run: &mut dyn FnMut()| {
        ENTERED.set(true);
        run();
        ENTERED.set(false);
    };
    let handler = |_: Ask| {
        let in_handler = ENTERED.get();
        async move {
            assert!(in_handler && ENTERED.get());
            Err(std::io::Error::other("disk"))?
        }
    };
    let runtime = builder().workers(1).in_context(context).handler_async(handler).start().unwrap();
    let (process, _) = awaiting_one(|out| out.command(Ask));
    assert_eq!(*output(&runtime.spawn(process).unwrap()), 2, "the answer comes after the step");
    let log = Log::new();
    let take = {
        let log = log.clone();
        move |tags: &[Tag<u32>], done: Completion| {
            log.push(done.take(tags[0]).unwrap().unwrap_err());
            true
        }
    };
    output(&runtime.spawn(awaiting(|out: &mut StepOutput| vec![out.command(Ask)], take)).unwrap());
    assert_eq!(log.take()[0].downcast_ref::<std::io::Error>().unwrap().to_string(), "disk");
}

#[test]
fn so_many_run_at_once_and_the_rest_begin_in_order() {
    let jobs = Jobs::new(2, Some(2));
    let all: Vec<Job> = (0..9).map(|number| jobs.job(number, End::Value)).collect();
    // In this order: each process has yielded before the next one is spawned.
    let mut processes = Vec::new();
    for (place, three) in all.chunks(3).enumerate() {
        processes.push(jobs.spawn(three));
        until("the process rests", || jobs.runtime.is_idle() && jobs.runtime.stats().spawned == place as u64 + 1);
    }
    let mut expected = vec![0, 1];
    jobs.wait_begun(&expected);
    for (next, finished) in (2..).zip([1, 0, 2, 4, 3, 5, 6]) {
        all[finished].strings.finish();
        expected.push(next);
        jobs.wait_begun(&expected);
    }
    all[8].strings.finish();
    all[7].strings.finish();
    let answers: Vec<_> = processes.iter().map(|process| jobs.answers(process)).collect();
    let mut sorted = answers.concat();
    sorted.sort_by_key(|(_, answer)| answer.clone().unwrap());
    assert_eq!(sorted, (0..9).map(|n| (u64::from(n % 3) + 1, Ok(n + 7))).collect::<Vec<_>>());
}

/// At most three futures are between their first poll and their drop, with several workers and many processes.
#[test]
fn no_more_than_the_limit_run_on_many_workers() {
    const PROCESSES: usize = 40;
    const EACH: u64 = 25;
    struct Busy;
    impl Command for Busy {
        type Output = u32;
    }
    struct Inside(Arc<AtomicUsize>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (enters, notes) = (inside.clone(), most.clone());
    let handler = move |_: Busy| {
        let now = enters.fetch_add(1, Ordering::SeqCst) + 1;
        notes.fetch_max(now, Ordering::SeqCst);
        let inside = Inside(enters.clone());
        async move {
            for _ in 0..3 {
                let mut is_woken = false;
                std::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::replace(&mut is_woken, true) {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
            }
            drop(inside);
            Ok(1)
        }
    };
    let runtime = builder().workers(4).handler_async(handler).at_most(3).start().unwrap();
    let spawn = |_| {
        let mut left = EACH;
        let take = move |_: &[Tag<u32>], _: Completion| {
            left -= 1;
            left == 0
        };
        runtime.spawn(awaiting(|out: &mut StepOutput| (0..EACH).map(|_| out.command(Busy)).collect(), take)).unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(spawn).collect();
    processes.iter().for_each(|process| drop(output(process)));
    assert_eq!((most.load(Ordering::SeqCst), inside.load(Ordering::SeqCst)), (3, 0));
}

/// With one permit, each of these futures ends in another way, and the next one begins.
#[test]
fn the_next_one_begins_however_a_future_ends() {
    let jobs = Jobs::new(1, Some(1));
    let mut expected = vec![0, 1, 2, 3, 4];
    let finished: Vec<Job> = [End::Value, End::Error, End::PanicInHandler, End::PanicInPoll, End::PanicInDrop]
        .into_iter()
        .zip(0..)
        .map(|(end, number)| jobs.job(number, end))
        .collect();
    finished.iter().for_each(|job| job.strings.finish());
    let answered = jobs.spawn(&finished);
    assert_eq!(jobs.answers(&answered).len(), 5);
    jobs.wait_begun(&expected);
    let mut next = |jobs: &Jobs, number: u32| {
        expected.push(number);
        jobs.wait_begun(&expected);
    };

    // A cancelled command.
    let (cancelled, limited, ended) = (jobs.job(5, End::Value), jobs.job(6, End::Value), jobs.job(7, End::Value));
    let (failed, killed, last) = (jobs.job(8, End::PanicInDrop), jobs.job(9, End::Value), jobs.job(10, End::Value));
    let first = jobs.spawn(std::slice::from_ref(&cancelled));
    next(&jobs, 5);
    // One whose limit will be over. The limit runs while it waits.
    let limits = limited.clone();
    let limited = jobs.runtime.spawn(yields(move |out| vec![out.command_timeout(limits, 2 * LIMIT)])).unwrap();
    until("it waits", || jobs.runtime.is_idle());
    jobs.clock.advance(LIMIT);
    jobs.runtime.send(first.address(), Message::Cancel(0)).unwrap();
    next(&jobs, 6);
    let ended = jobs.spawn(&[ended]);
    until("it waits", || jobs.runtime.is_idle());
    jobs.clock.advance(LIMIT);
    next(&jobs, 7);
    // A process that is done.
    let recovers = failed.clone();
    let options = SpawnOptions::new().recover_with(|_| Some(Upgrade::to(yields(|_| vec![]))));
    let failed = jobs.runtime.spawn_with(yields(move |out| vec![out.command(recovers)]), options).unwrap();
    until("it waits", || jobs.runtime.is_idle());
    assert_eq!(jobs.answers(&ended), []);
    next(&jobs, 8);
    // A state machine that fails and is replaced. The destructor of its future panics.
    let killed = jobs.spawn(&[killed]);
    until("it waits", || jobs.runtime.is_idle());
    jobs.runtime.send(failed.address(), Message::Fail).unwrap();
    next(&jobs, 9);
    // A process that is terminated.
    last.strings.finish();
    let last = jobs.spawn(&[last]);
    until("it waits", || jobs.runtime.is_idle());
    jobs.runtime.terminate(killed.pid()).unwrap();
    next(&jobs, 10);
    assert_eq!(jobs.answers(&last), [(1, Ok(17))]);
    assert_eq!(jobs.answers(&first), [(1, err("cancelled (cancelled)"))]);
    assert_eq!(jobs.answers(&limited), [(1, err("timed out"))]);
    assert_eq!(jobs.answers(&failed), []);
    drop((finished, cancelled));
    until("all but two that this test has are dropped", || Arc::strong_count(&jobs.exists) == 3);
}

/// Those that wait leave the queue when they are cancelled, when their limit is over and when their process ends.
#[test]
fn one_that_waits_and_is_dropped_leaves_the_queue() {
    let jobs = Jobs::new(1, Some(1));
    let first = jobs.job(0, End::Value);
    let runs = jobs.spawn(std::slice::from_ref(&first));
    jobs.wait_begun(&[0]);
    let (cancels, limits) = (jobs.job(1, End::Value), jobs.job(2, End::Value));
    let waits = yields(move |out| vec![out.command(cancels), out.command_timeout(limits, LIMIT)]);
    let waits = jobs.runtime.spawn(waits).unwrap();
    let ends = jobs.spawn(&[jobs.job(3, End::Value)]);
    let fails = jobs.job(4, End::Value);
    let options = SpawnOptions::new().recover_with(|_| Some(Upgrade::to(yields(|_| vec![]))));
    let fails = jobs.runtime.spawn_with(yields(move |out| vec![out.command(fails)]), options).unwrap();
    until("they wait", || jobs.runtime.is_idle());
    jobs.runtime.send(waits.address(), Message::Cancel(0)).unwrap();
    jobs.runtime.send(fails.address(), Message::Fail).unwrap();
    jobs.clock.advance(LIMIT);
    assert_eq!(jobs.answers(&ends), []);
    let expected = [(1, err("cancelled (cancelled)")), (2, err("timed out"))];
    assert_eq!(jobs.answers(&waits), expected);
    until("the commands that waited are gone", || Arc::strong_count(&jobs.exists) == 2);
    let last = jobs.job(5, End::Value);
    last.strings.finish();
    let last = jobs.spawn(&[last]);
    first.strings.finish();
    jobs.wait_begun(&[0, 5]);
    assert_eq!(jobs.answers(&last), [(1, Ok(12))]);
    assert_eq!(jobs.answers(&runs), [(1, Ok(7))]);
    assert_eq!(jobs.answers(&fails), []);
}

#[test]
fn a_hundred_thousand_that_wait_leave_with_their_processes() {
    const PROCESSES: usize = 100;
    const EACH: usize = 1_000;
    let jobs = Jobs::new(2, Some(1));
    let first = jobs.job(0, End::Value);
    let runs = jobs.spawn(std::slice::from_ref(&first));
    jobs.wait_begun(&[0]);
    let spawn = |_| {
        let waits = jobs.job(1, End::Value);
        let yields = yields(move |out| (0..EACH).map(|_| out.command(waits.clone())).collect());
        jobs.runtime.spawn(yields).unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(spawn).collect();
    until("all wait", || Arc::strong_count(&jobs.exists) == PROCESSES * EACH + 2);
    for process in &processes {
        jobs.runtime.terminate(process.pid()).unwrap();
    }
    processes.iter().for_each(|process| drop(join(process)));
    assert_eq!(Arc::strong_count(&jobs.exists), 2, "no command is left");
    let last = jobs.job(2, End::Value);
    last.strings.finish();
    let last = jobs.spawn(&[last]);
    first.strings.finish();
    jobs.wait_begun(&[0, 2]);
    assert_eq!(jobs.answers(&last), [(1, Ok(9))]);
    assert_eq!(jobs.answers(&runs), [(1, Ok(7))]);
}

#[test]
fn a_wait_for_idleness_waits_for_async_handlers() {
    let jobs = Jobs::new(1, Some(1));
    let two = [jobs.job(0, End::Value), jobs.job(1, End::Value)];
    let process = jobs.spawn(&two);
    jobs.wait_begun(&[0]);
    until("the process rests", || jobs.runtime.is_idle());
    let why = jobs.runtime.wait_idle_timeout(Duration::ZERO).unwrap_err();
    let waiting: Vec<_> = why.waiting.iter().map(|(info, count)| (info.pid, *count)).collect();
    assert_eq!(waiting, [(process.pid(), 2)], "the one that waits is at work, too");
    two.iter().for_each(|job| job.strings.finish());
    jobs.runtime.wait_idle().unwrap();
    assert_eq!(jobs.answers(&process), [(1, Ok(7)), (2, Ok(8))]);
}

#[test]
fn an_async_command_of_the_last_step_is_not_performed() {
    let jobs = Jobs::new(1, Some(1));
    let (last, next) = (jobs.job(0, End::Value), jobs.job(1, End::Value));
    let done = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.command(last.clone());
        Ok(Step::Done(()))
    });
    output(&jobs.runtime.spawn(done).unwrap());
    next.strings.finish();
    let process = jobs.spawn(&[next]);
    assert_eq!(jobs.answers(&process), [(1, Ok(8))]);
    jobs.wait_begun(&[1]);
}

#[test]
fn wrong_limits_of_async_handlers_are_refused() {
    struct Twice;
    impl Command for Twice {
        type Output = ();
    }
    let refused = |builder: RuntimeBuilder| builder.start().map(drop).unwrap_err().to_string();
    let future = |_: Twice| async { Ok(()) };
    let zero = refused(builder().handler_async(future).at_most(0));
    assert!(zero.starts_with("`at_most` is 0; allowed is 1 to "), "{zero}");
    let nothing = refused(builder().at_most(4));
    assert!(nothing.starts_with("`at_most` limits the handler that was registered last"), "{nothing}");
    let call = |_: Twice, done: Responder<()>| -> Result<(), BoxError> {
        done.ok(());
        Ok(())
    };
    let twice = refused(builder().handler(call).handler_async(future));
    assert!(twice.starts_with("two handlers were registered"), "{twice}");
}

/// Without a runtime there are no handlers, so the test answers, as for every other command.
#[test]
fn a_test_answers_the_command_of_an_async_handler() {
    let job = Job { number: 3, end: End::Value, strings: Strings::default(), exists: Arc::new(()) };
    let mut driver = Driver::new(yields(move |out| vec![out.command_timeout(job.clone(), LIMIT), out.command(job)]));
    driver.run();
    let (tag, taken) = driver.command::<Job>().unwrap();
    assert_eq!((taken.number, taken.strings.polls()), (3, 0));
    driver.answer(tag, Ok(5)).run();
    assert!(matches!(driver.outstanding()[..], [Outstanding::Command { tag: 2, .. }]));
    driver.cancel(Reason::Cancelled);
    assert_eq!(driver.run(), Status::Ended);
    let Some(Exit::Done(answers)) = driver.exit() else { panic!("it is done") };
    assert_eq!(*answers, [(1, Ok(5))]);
}
