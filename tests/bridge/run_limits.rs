//! Children whose command is cancelled, or whose limit is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::async_process::{Context, async_process};
use procession::clock::ManualClock;
use procession::testing::{Driver, Outstanding, Status};
use procession::{
    Event, Events, Exit, Process, Reason, Runtime, SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Ends with its number when it is told to, or when it is asked to stop.
struct Child {
    number: u32,
    stops: Log<Reason>,
    alive: Arc<AtomicUsize>,
}

impl Process for Child {
    type Message = ();
    type Output = u32;

    fn start(&mut self, _: &mut StepOutput) -> Result<(), procession::BoxError> {
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u32> {
        for event in events {
            match event {
                Event::Message(()) => return Ok(Step::Done(self.number)),
                Event::Cancel(request) => {
                    self.stops.push(request.reason.clone());
                    return Ok(Step::Done(self.number));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The state that all children of a test share.
#[derive(Clone, Default)]
struct Children {
    stops: Log<Reason>,
    alive: Arc<AtomicUsize>,
}

impl Children {
    fn child(&self, number: u32) -> Child {
        Child { number, stops: self.stops.clone(), alive: self.alive.clone() }
    }

    fn named(&self, number: u32) -> SpawnOptions {
        SpawnOptions::new().name(format!("child {number}"))
    }
}

type Answer = Result<u32, String>;

/// An order of the test to a parent.
enum Message {
    Cancel(usize),
    Fail,
}

/// Runs children in its first step. It ends with all answers, by tag, when it is asked to stop.
fn runs<F>(first: F) -> impl Process<Message = Message, Output = Vec<(u64, Answer)>> + use<F>
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
                Event::Completed(done) => {
                    let answer = tags.iter().find_map(|tag| done.take(*tag)).expect("the answer to a command");
                    answers.push((done.tag(), answer.map_err(|error| error.to_string())));
                }
                Event::Message(Message::Cancel(place)) => out.cancel_command(tags[place]),
                Event::Message(Message::Fail) => return Err("as it was told".into()),
                Event::Cancel(_) => return Ok(Step::Done(std::mem::take(&mut answers))),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// Asks a parent to stop when nothing is ready, and returns its answers.
#[track_caller]
fn answers<P>(runtime: &Runtime, parent: &procession::Handle<P>) -> Vec<(u64, Answer)>
where
    P: Process<Output = Vec<(u64, Answer)>>,
{
    until("nothing is ready", || runtime.is_idle());
    runtime.cancel(parent.pid(), "enough").unwrap();
    output(parent).to_vec()
}

fn cancelled() -> Answer {
    Err("cancelled (cancelled)".into())
}

#[test]
fn a_run_that_is_cancelled_is_answered_and_its_child_terminated() {
    let (runtime, children) = (runtime(2), Children::default());
    let runs_three = children.clone();
    let parent = runtime
        .spawn(runs(move |out| {
            let tags = [1, 2, 3].map(|n| out.run_with(runs_three.child(n), runs_three.named(n)));
            // Before it has begun.
            out.cancel_command(tags[0]);
            tags.to_vec()
        }))
        .unwrap();
    until("the children have begun", || runtime.is_idle() && runtime.whereis("child 3").is_some());
    assert!(runtime.whereis("child 1").is_none() && runtime.whereis("child 2").is_some());
    let watcher = runtime.watch(runtime.whereis("child 2").unwrap());
    runtime.send(parent.address(), Message::Cancel(1)).unwrap();
    assert!(matches!(wait(watcher).exit, Exit::Terminated(Reason::Terminated)));
    // An answered command is not cancelled any more.
    runtime.send("child 3", ()).unwrap();
    until("the third is answered", || runtime.is_idle() && runtime.whereis("child 3").is_none());
    runtime.send(parent.address(), Message::Cancel(2)).unwrap();
    runtime.send(parent.address(), Message::Cancel(1)).unwrap();
    assert_eq!(answers(&runtime, &parent), [(1, cancelled()), (2, cancelled()), (3, Ok(3))]);
    assert_eq!(runtime.stats().discarded_answers, 0, "they had no output");
    assert_eq!(children.stops.len(), 0);
    assert_accounted(&runtime);
}

#[test]
fn a_cancelled_child_that_traps_exits_is_asked_to_stop() {
    let (clock, children) = (ManualClock::new(), Children::default());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let runs_one = children.clone();
    let parent =
        runtime.spawn(runs(move |out| vec![out.run_with(runs_one.child(1), runs_one.named(1).trap_exits())])).unwrap();
    until("the child has begun", || runtime.is_idle() && runtime.whereis("child 1").is_some());
    let watcher = runtime.watch(runtime.whereis("child 1").unwrap());
    runtime.send(parent.address(), Message::Cancel(0)).unwrap();
    assert!(matches!(wait(watcher).exit, Exit::Done(())));
    assert_eq!(children.stops.take(), [Reason::Cancelled]);
    assert_eq!(answers(&runtime, &parent), [(1, cancelled())]);
    assert_eq!(runtime.stats().discarded_answers, 1, "the output came too late");
}

#[test]
fn a_run_whose_limit_is_over_is_answered_and_its_child_terminated() {
    let (clock, children) = (ManualClock::new(), Children::default());
    let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
    let runs_two = children.clone();
    let parent = runtime
        .spawn(runs(move |out| vec![out.run_timeout(runs_two.child(1), LIMIT), out.run(runs_two.child(2))]))
        .unwrap();
    until("the children have begun", || runtime.is_idle() && runtime.stats().spawned == 3);
    assert_eq!(runtime.stats().timers, 1);
    clock.advance(LIMIT - Duration::from_nanos(1));
    assert!(runtime.is_idle() && runtime.stats().processes == 3);
    clock.advance(Duration::from_nanos(1));
    until("the child has ended", || runtime.stats().processes == 2);
    // The other one ends with its parent.
    assert_eq!(answers(&runtime, &parent), [(1, Err("timed out".into()))]);
    until("both are gone", || runtime.stats().processes == 0);
}

#[test]
fn a_child_that_ends_in_time_leaves_no_timer() {
    let (clock, children) = (ManualClock::new(), Children::default());
    let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
    let runs_one = children.clone();
    let options = SpawnOptions::new().recover_with(|_| Some(Upgrade::to(runs(|_| vec![]))));
    let first = runs(move |out| {
        let ends_at_once = script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(7)));
        vec![out.run_timeout(ends_at_once, LIMIT), out.run_timeout(runs_one.child(1), LIMIT)]
    });
    let parent = runtime.spawn_with(first, options).unwrap();
    until("the first is answered", || runtime.is_idle() && runtime.stats().spawned == 3);
    assert_eq!((runtime.stats().timers, runtime.stats().processes), (1, 2));
    runtime.send(parent.address(), Message::Fail).unwrap();
    until("the second ends with the failed state machine", || runtime.is_idle() && runtime.stats().processes == 1);
    assert_eq!(runtime.stats().timers, 0);
    clock.advance(2 * LIMIT);
    assert_eq!(answers(&runtime, &parent), []);
}

/// The limit may be over before the child is in the table, while it begins, or when it is done.
#[test]
fn a_limit_that_is_over_at_once_leaves_no_child() {
    const RUNS: u32 = 500;
    let (runtime, children) = (runtime(2), Children::default());
    let runs_many = children.clone();
    let parent = runtime
        .spawn(runs(move |out| {
            let limit = |n: u32| if n.is_multiple_of(2) { Duration::ZERO } else { Duration::from_micros(n.into()) };
            (0..RUNS).map(|n| out.run_timeout(runs_many.child(n), limit(n))).collect()
        }))
        .unwrap();
    until("all children have ended", || {
        runtime.stats().spawned == 1 + u64::from(RUNS) && runtime.stats().processes == 1
    });
    let answers = answers(&runtime, &parent);
    assert_eq!(answers.len(), RUNS as usize);
    assert!(answers.iter().all(|(_, answer)| *answer == Err("timed out".into())));
    until("no timer is left", || runtime.stats().timers == 0);
}

#[test]
fn a_test_drives_the_limit_and_the_cancel_of_a_run() {
    let children = Children::default();
    let runs_three = children.clone();
    let mut driver = Driver::new(runs(move |out| {
        let tags: Vec<_> = (1..=3).map(|n| out.run_timeout(runs_three.child(n), LIMIT)).collect();
        out.cancel_command(tags[0]);
        tags
    }));
    driver.run();
    let [Outstanding::Child { tag: 2, .. }, Outstanding::Child { tag: 3, .. }] = driver.outstanding()[..] else {
        panic!("{:?}", driver.outstanding())
    };
    let (second, child) = driver.child::<Child>().unwrap();
    assert_eq!(child.number, 2, "the first one was cancelled");
    driver.answer(second, Ok(2)).advance(LIMIT).run();
    assert!(driver.outstanding().is_empty() && driver.child::<Child>().is_none());
    driver.answer(second, Ok(9)).cancel("enough");
    assert_eq!(driver.run(), Status::Ended);
    let Some(Exit::Done(answers)) = driver.exit() else { panic!("it is done") };
    assert_eq!(*answers, [(1, cancelled()), (2, Ok(2)), (3, Err("timed out".into()))]);
}

/// The type of a child may have no name, as that of a closure has none.
#[test]
fn a_test_answers_children_without_naming_their_types() {
    let mut driver = Driver::new(async_process(async |context: Context<()>| {
        let child = |n: u32| async_process(async move |_: Context<()>| Ok(n));
        let (first, second) = context.out(|out| (out.run(child(1)), out.run(child(2))));
        Ok((context.answer(first).await?, context.answer(second).await?))
    }));
    driver.run();
    assert_eq!(driver.outstanding().len(), 2);
    assert!(driver.answer_child(Ok(7_u32)) && driver.answer_child(Ok(8_u32)));
    assert!(!driver.answer_child(Ok(9_u32)) && driver.spawned().is_none());
    driver.run();
    assert_eq!(**driver.exit().expect("it has ended").output().unwrap(), (7, 8));
}
