//! `Process::describe` and `Runtime::describe`.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use procession::actor::{Actions, Actor, actor};
use procession::observe::Stats;
use procession::spawn::Overflow;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{
    Address, BoxError, CommandError, Event, Events, Exit, Pid, Process, Runtime, SpawnOptions, Step, StepOutput,
    StepResult, Upgrade,
};

use crate::helpers::*;

/// The most bytes of a description.
const MOST: usize = 16 * 1024;

const CUT: &str = "… (cut)";

/// The instructions of a [`Clerk`], as messages.
enum Job {
    Note(u32),
    /// Is in its step until it is released.
    Hold(Blocked),
    /// The same in a step on the pool.
    HoldOnPool(Blocked),
    /// Waits for an answer that does not come.
    Ask,
    Become(fn(&[u32], &mut fmt::Formatter<'_>) -> fmt::Result),
    /// The same, and then the step fails, or the process replaces itself.
    HoldAndFail(Blocked),
    HoldAndUpgrade(Blocked),
    Finish,
}

/// Notes numbers, and describes itself by them.
struct Clerk {
    notes: Vec<u32>,
    describes: fn(&[u32], &mut fmt::Formatter<'_>) -> fmt::Result,
    blocking: Option<Blocked>,
}

fn clerk() -> Clerk {
    Clerk { notes: Vec::new(), describes: |notes, f| write!(f, "{notes:?}"), blocking: None }
}

fn successor() -> Upgrade<()> {
    Upgrade::to(Clerk { notes: vec![1_000], ..clerk() })
}

impl Process for Clerk {
    type Message = Job;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Job>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(blocked) = self.blocking.take() {
            blocked.wait();
        }
        // One message a step, so that there is a gap behind each.
        match events.next() {
            Some(Event::Message(Job::Note(note))) => self.notes.push(note),
            Some(Event::Message(Job::Hold(blocked))) => blocked.wait(),
            Some(Event::Message(Job::HoldOnPool(blocked))) => {
                self.blocking = Some(blocked);
                return Ok(Step::Blocking);
            }
            Some(Event::Message(Job::Ask)) => {
                out.after(Duration::from_secs(1_000_000));
                return Ok(Step::Wait);
            }
            Some(Event::Message(Job::Become(describes))) => self.describes = describes,
            Some(Event::Message(Job::HoldAndFail(blocked))) => {
                blocked.wait();
                return Err("it fails".into());
            }
            Some(Event::Message(Job::HoldAndUpgrade(blocked))) => {
                blocked.wait();
                return Ok(Step::Upgrade(successor()));
            }
            Some(Event::Message(Job::Finish) | Event::Cancel(_)) => return Ok(Step::Done(())),
            _ => {}
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(successor())
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.describes)(&self.notes, f)
    }
}

fn started() -> (Runtime, Address<Job>) {
    let runtime = runtime(1);
    let address = runtime.spawn(clerk()).unwrap().address();
    until("its first step is over", || runtime.is_idle());
    (runtime, address)
}

/// Has it in a step until the blocker releases it.
fn hold_clerk(runtime: &Runtime, clerk: Address<Job>, job: fn(Blocked) -> Job) -> Blocker {
    let blocker = Blocker::new();
    runtime.send(clerk, job(blocker.blocked())).unwrap();
    blocker.wait_begun();
    blocker
}

fn describe(runtime: &Runtime, clerk: Address<Job>) -> Result<String, CommandError> {
    runtime.describe(clerk, LIMIT).wait()
}

#[test]
fn a_process_at_rest_is_described_and_not_stepped() {
    let (runtime, clerk) = started();
    (1..=3).for_each(|note| runtime.send(clerk, Job::Note(note)).unwrap());
    until("it has taken them", || runtime.is_idle());
    let before = runtime.stats();
    assert_eq!(describe(&runtime, clerk).unwrap(), "[1, 2, 3]");
    until("it is at rest", || runtime.is_idle());
    let Stats { spawned, messages, workers, late_replies, .. } = runtime.stats();
    assert_eq!((spawned, messages, late_replies), (before.spawned, before.messages, 0));
    assert_eq!(workers[0].steps, before.workers[0].steps);
    // It goes on as before.
    runtime.send(clerk, Job::Note(4)).unwrap();
    until("it has taken it", || runtime.is_idle());
    assert_eq!(describe(&runtime, clerk).unwrap(), "[1, 2, 3, 4]");
}

#[test]
fn a_process_in_a_step_is_described_behind_it_and_before_the_next() {
    let (runtime, clerk) = started();
    for job in [Job::Hold, Job::HoldOnPool] {
        let held = hold_clerk(&runtime, clerk, job);
        runtime.send(clerk, Job::Note(5)).unwrap();
        let (first, second) = (runtime.describe(clerk, LIMIT), runtime.describe(clerk, LIMIT));
        let before = describe_now(&runtime, clerk);
        held.release();
        let after = first.wait().unwrap();
        assert_eq!(before.unwrap_err().to_string(), CommandError::TimedOut.to_string());
        assert_eq!(second.wait().unwrap(), after, "one description is for all");
        until("it has taken all", || runtime.is_idle());
        assert_eq!(describe(&runtime, clerk).unwrap().matches('5').count(), after.matches('5').count() + 1);
    }
}

/// Without time to wait.
fn describe_now(runtime: &Runtime, clerk: Address<Job>) -> Result<String, CommandError> {
    runtime.describe(clerk, Duration::ZERO).wait()
}

#[test]
fn a_process_that_waits_for_an_answer_is_described_and_goes_on_waiting() {
    let (runtime, clerk) = started();
    runtime.send(clerk, Job::Ask).unwrap();
    until("it waits", || runtime.is_idle());
    runtime.send(clerk, Job::Note(1)).unwrap();
    assert_eq!(describe(&runtime, clerk).unwrap(), "[]");
    until("it is at rest", || runtime.is_idle());
    assert_eq!(describe(&runtime, clerk).unwrap(), "[]");
    assert_eq!(runtime.stats().messages.queued, 1);
}

#[test]
fn a_description_takes_no_room_under_a_bound_and_changes_no_order() {
    let runtime = runtime(1);
    let options = SpawnOptions::new().mailbox(2, Overflow::Refuse);
    let clerk = runtime.spawn_with(clerk(), options).unwrap().address();
    let held = hold_clerk(&runtime, clerk, Job::Hold);
    let asked: Vec<_> = (0..10).map(|_| runtime.describe(clerk, LIMIT)).collect();
    (1..=2).for_each(|note| runtime.send(clerk, Job::Note(note)).unwrap());
    assert!(runtime.send(clerk, Job::Note(3)).is_err(), "there is room for two");
    held.release();
    assert!(asked.into_iter().all(|asked| asked.wait().unwrap() == "[]"), "it was asked before the notes were taken");
    until("it has taken all", || runtime.is_idle());
    assert_eq!(describe(&runtime, clerk).unwrap(), "[1, 2]");
}

#[test]
fn a_stuck_process_is_not_described_and_the_question_leaves_nothing() {
    let (runtime, clerk) = started();
    let held = hold_clerk(&runtime, clerk, Job::Hold);
    let limit = Duration::from_millis(1);
    assert!(matches!(runtime.describe(clerk, limit).wait(), Err(CommandError::TimedOut)));
    drop(runtime.describe(clerk, LIMIT));
    runtime.send(clerk, Job::Become(|_, _| panic!("nobody asks"))).unwrap();
    held.release();
    until("it is at rest", || runtime.is_idle());
    assert_eq!((runtime.stats().late_replies, runtime.stats().timers), (0, 0));
}

#[test]
fn a_panic_in_a_description_is_told_and_the_process_goes_on() {
    let (runtime, clerk) = started();
    runtime.send(clerk, Job::Become(|_, _| panic!("no words"))).unwrap();
    let panicked = describe(&runtime, clerk);
    assert!(matches!(&panicked, Err(CommandError::Panicked(panic)) if panic.message() == "no words"), "{panicked:?}");
    runtime.send(clerk, Job::Note(1)).unwrap();
    runtime.send(clerk, Job::Become(|notes, f| write!(f, "{notes:?} again"))).unwrap();
    until("it has taken both", || runtime.is_idle());
    assert_eq!(describe(&runtime, clerk).unwrap(), "[1] again");
    assert_eq!(runtime.stats().ended.total(), 0);
}

#[test]
fn a_long_description_is_cut_and_says_so() {
    let (runtime, clerk) = started();
    let described = |describes| {
        runtime.send(clerk, Job::Become(describes)).unwrap();
        until("it has taken it", || runtime.is_idle());
        describe(&runtime, clerk).unwrap()
    };
    assert_eq!(described(|_, f| f.write_str(&"x".repeat(MOST))), "x".repeat(MOST));
    let cut = described(|_, f| f.write_str(&"x".repeat(MOST + 1)));
    assert!(cut.len() == MOST && cut.ends_with(CUT) && cut.starts_with("xxx"), "{}", cut.len());
    // Of letters with several bytes none is cut in the middle.
    let cut = described(|_, f| write!(f, "x{}", "ö".repeat(MOST)));
    assert!((MOST - 1..=MOST).contains(&cut.len()) && cut.ends_with(CUT), "{}", cut.len());
    let endless = described(|_, f| {
        loop {
            f.write_str("on and on, ")?;
        }
    });
    assert!(endless.len() <= MOST && endless.ends_with(CUT));
    assert_eq!(described(|_, _| Err(fmt::Error)), "… (it has returned an error)");
    let stubborn = described(|_, f| {
        (0..MOST).for_each(|_| _ = f.write_str("xy"));
        Ok(())
    });
    assert!(stubborn.len() == MOST && stubborn.ends_with(CUT));
}

#[test]
fn one_that_asks_a_process_that_ends_is_told() {
    for job in [Job::Hold, Job::HoldOnPool] {
        let (runtime, clerk) = started();
        let held = hold_clerk(&runtime, clerk, job);
        let asked = runtime.describe(clerk, LIMIT);
        assert!(runtime.terminate(clerk).unwrap());
        let too_late = runtime.describe(clerk, LIMIT);
        held.release();
        let asked = asked.wait();
        let told = |error| matches!(error, CommandError::Ended(_) | CommandError::NoSuchProcess(_));
        assert!(asked.is_err_and(told));
        assert!(matches!(too_late.wait(), Err(CommandError::NoSuchProcess(_))));
        until("it has ended", || runtime.stats().processes == 0);
        assert!(matches!(describe(&runtime, clerk), Err(CommandError::NoSuchProcess(_))));
    }
}

#[test]
fn wakers_of_those_that_ask_do_not_hold_up_the_end_of_a_process() {
    let runtime = runtime(2);
    let clerk = runtime.spawn(clerk()).unwrap();
    let watched = clerk.pid();
    let watcher = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.any(|event| matches!(event, Event::Down(_))) {
            return Ok(Step::Done(()));
        }
        out.monitor(watched);
        Ok(Step::Idle)
    });
    let watcher = runtime.spawn(watcher).unwrap();
    until("it watches", || runtime.is_idle());
    let held = hold_clerk(&runtime, clerk.address(), Job::Hold);
    let waker = Blocker::new();
    let mut asked = Box::pin(runtime.describe(watched, LIMIT));
    assert!(asked.as_mut().poll(&mut Context::from_waker(&waker.waker())).is_pending());
    assert!(runtime.terminate(watched).unwrap());
    held.release();
    waker.wait_begun();
    // The waker is still at work, on the worker that has ended the process.
    assert!(matches!(wait(&watcher), Exit::Done(_)));
    assert!(clerk.is_finished());
    waker.release();
    assert!(block_on(asked).is_err());
}

#[test]
fn one_that_asks_while_the_runtime_ends_is_told() {
    let (runtime, clerk) = started();
    let never: Pid = "<900.0.1>".parse().unwrap();
    for nobody in [runtime.describe("nobody", LIMIT), runtime.describe(never, LIMIT)] {
        assert!(matches!(nobody.wait(), Err(CommandError::NoSuchProcess(_))));
    }
    let held = hold_clerk(&runtime, clerk, Job::Hold);
    let asked = runtime.describe(clerk, LIMIT);
    let ends = std::thread::spawn(move || drop(runtime));
    held.release();
    match asked.wait() {
        Ok(text) => assert_eq!(text, "[]", "it came before the request to stop"),
        Err(CommandError::Ended(_) | CommandError::Cancelled(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
    wait(ends).unwrap();
}

#[test]
fn one_that_asks_a_process_whose_step_is_its_last_is_told() {
    let runtime = runtime(1);
    let (blocker, last) = (Blocker::new(), Blocker::new());
    let (begun, blocked) = (blocker.blocked(), last.blocked());
    let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        begun.wait();
        blocked.wait();
        Ok(Step::Done(()))
    });
    let process = runtime.spawn(process).unwrap();
    blocker.wait_begun();
    let asked = runtime.describe(&process, LIMIT);
    blocker.release();
    last.release();
    let asked = asked.wait();
    assert!(matches!(asked, Err(CommandError::Ended(pid)) if pid == process.pid()), "{asked:?}");
}

#[test]
fn a_process_that_is_replaced_is_described_by_its_successor() {
    for job in [Job::HoldAndFail, Job::HoldAndUpgrade] {
        let (runtime, clerk) = started();
        let held = hold_clerk(&runtime, clerk, job);
        let asked = runtime.describe(clerk, LIMIT);
        held.release();
        assert_eq!(asked.wait().unwrap(), "[1000]");
    }
}

#[test]
fn questions_of_many_threads_to_many_processes_are_all_answered() {
    let runtime = runtime(2);
    let finish = AtomicBool::new(false);
    let clerks: Vec<_> = (0..20).map(|_| runtime.spawn(clerk()).unwrap().address()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (round, clerk) in (0..100).flat_map(|round| clerks.iter().map(move |clerk| (round, *clerk))) {
                    finish.fetch_or(round == 60, Ordering::SeqCst);
                    let _ = runtime.send(clerk, if round >= 60 { Job::Finish } else { Job::Note(round) });
                    match describe(&runtime, clerk) {
                        Ok(text) => assert!(text.starts_with('[')),
                        Err(CommandError::Ended(_) | CommandError::NoSuchProcess(_)) => {
                            assert!(finish.load(Ordering::SeqCst));
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    until("all have ended", || runtime.stats().processes == 0);
}

/// Describes itself with a word.
struct Teller;

impl Actor for Teller {
    type Message = ();
    type Output = ();

    fn receive(&mut self, _: (), _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a teller")
    }
}

#[test]
fn each_kind_of_process_has_a_description() {
    let runtime = runtime(1);
    let described = |pid: Pid| {
        until("it is at rest", || runtime.is_idle());
        runtime.describe(pid, LIMIT).wait().unwrap()
    };
    assert_eq!(described(runtime.spawn(actor(Teller)).unwrap().pid()), "a teller");
    assert_eq!(described(runtime.spawn(sink::<()>()).unwrap().pid()), "This process gives no description.");
    let receives = procession::async_process(async |context: procession::async_process::Context<()>| {
        context.receive().await;
        Ok(())
    });
    assert_eq!(described(runtime.spawn(receives).unwrap().pid()), "It waits for an event.");
    let child = ChildSpec::new("till", || actor(Teller));
    let supervisor = runtime.spawn(Supervisor::builder().child(child).build().unwrap()).unwrap();
    let text = described(supervisor.pid());
    assert!(text.starts_with("OneForOne, 1 children\ntill Up <"), "{text}");
}
