//! Beyond the statements of the bridge: `Process::start`, the beginning that can yield.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::testing::{Driver, SentError, Status};
use procession::{
    Address, BoxError, CancelToken, EntryArgs, Event, Events, Exit, InitResult, Pid, Process, Reason, Reply,
    SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;

type Start = Box<dyn FnMut(&mut StepOutput) -> Result<(), BoxError> + Send>;
type Steps = Box<dyn FnMut(&mut Events<'_, u32>, &mut StepOutput) -> StepResult<()> + Send>;

/// Writes down its calls, and does in them what a test says.
struct Starter {
    name: &'static str,
    log: Log<String>,
    start: Start,
    step: Steps,
    recover: Option<Box<Starter>>,
}

fn starter(name: &'static str, log: &Log<String>) -> Starter {
    let ends_when_asked = |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        let asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if asked { Step::Done(()) } else { Step::Idle })
    };
    Starter { name, log: log.clone(), start: Box::new(|_| Ok(())), step: Box::new(ends_when_asked), recover: None }
}

impl Starter {
    fn starts(mut self, start: impl FnMut(&mut StepOutput) -> Result<(), BoxError> + Send + 'static) -> Starter {
        self.start = Box::new(start);
        self
    }

    fn steps(
        mut self,
        step: impl FnMut(&mut Events<'_, u32>, &mut StepOutput) -> StepResult<()> + Send + 'static,
    ) -> Starter {
        self.step = Box::new(step);
        self
    }

    fn recovers(mut self, next: Starter) -> Starter {
        self.recover = Some(Box::new(next));
        self
    }

    fn note(&self, call: &str) {
        self.log.push(format!("{call} {}", self.name));
    }
}

impl Process for Starter {
    type Message = u32;
    type Output = ();

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        self.note("init");
        entry.method("main", |(): ()| Ok(())).finish()
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.note("start");
        (self.start)(out)
    }

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        self.note("step");
        (self.step)(events, out)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recover.take().map(|next| Upgrade::to(*next))
    }

    fn close(&mut self) {
        self.note("close");
    }
}

const ONE_LIFE: [&str; 4] = ["init a", "start a", "step a", "close a"];

fn is_done(_: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
    Ok(Step::Done(()))
}

#[test]
fn start_is_called_once_between_init_and_the_first_step() {
    let (runtime, log) = (runtime(1), Log::new());
    output(&runtime.spawn(starter("a", &log).steps(is_done)).unwrap());
    assert_eq!(log.take(), ONE_LIFE, "spawned from outside");

    let mut child = Some(starter("a", &log).steps(is_done));
    output(
        &runtime
            .spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                out.spawn(child.take().unwrap())?;
                Ok(Step::Done(()))
            }))
            .unwrap(),
    );
    until("the child has ended", || runtime.stats().processes == 0);
    assert_eq!(log.take(), ONE_LIFE, "spawned by a step");

    let mut driver = Driver::new(starter("a", &log).steps(is_done));
    assert_eq!((driver.step(), driver.steps()), (Status::Ended, 1), "it is not counted as a step");
    assert_eq!(log.take(), ONE_LIFE, "driven");

    let stays = runtime.spawn(starter("a", &log)).unwrap();
    (0..3).for_each(|n| {
        runtime.send(stays.address(), n).unwrap();
        until("it has been stepped", || runtime.is_idle());
    });
    runtime.cancel(stays.pid(), "enough").unwrap();
    output(&stays);
    assert_eq!(log.take().iter().filter(|call| *call == "start a").count(), 1);
    assert_accounted(&runtime);
}

/// The first step finds what `start` has done, and the answers to its commands.
#[test]
fn the_yields_of_start_are_done_before_the_first_step() {
    let (runtime, log, seen) = (runtime(1), Log::new(), Log::new());
    let received = Log::new();
    let sink = runtime.spawn(recorder::<u8>(&received)).unwrap();
    let nobody: Pid = "<0.1.1>".parse().unwrap();
    let (to, notes) = (sink.address(), seen.clone());
    let process = starter("a", &log)
        .starts(move |out| {
            out.send(to, 7);
            let child = out.spawn_with(sink_of_u8(), SpawnOptions::new().name("child"))?;
            out.send(child.address, 8);
            // This is answered at once.
            out.terminate(nobody);
            Ok(())
        })
        .steps(move |events, out| {
            let answers = events.filter(|event| matches!(event, Event::Completed(_))).count();
            notes.push((answers, out.whereis("child").is_some()));
            Ok(Step::Idle)
        });
    let process = runtime.spawn(process).unwrap();
    until("all is at rest", || runtime.is_idle());
    assert_eq!(seen.take(), [(1, true)], "one step, which is given the answer");
    assert_eq!(received.take(), [7]);
    runtime.terminate(process.pid()).unwrap();
}

fn sink_of_u8() -> impl Process<Message = u8, Output = usize> {
    sink()
}

/// If it leaves them, they are offered to the second step, as always after a first step.
#[test]
fn answers_to_start_that_the_first_step_leaves_are_offered_again() {
    let (runtime, log, seen) = (runtime(1), Log::new(), Log::new());
    let (mut steps, notes) = (0, seen.clone());
    let process = starter("a", &log)
        .starts(|out| {
            out.register("", "<0.1.1>".parse::<Pid>()?);
            Ok(())
        })
        .steps(move |events, _| {
            steps += 1;
            if steps > 1 {
                notes.push(events.count());
            }
            Ok(Step::Idle)
        });
    runtime.spawn(process).unwrap();
    until("it is offered", || seen.len() == 1);
    assert_eq!(seen.take(), [1]);
}

/// A failing start of each kind: nothing that it yielded is done, and the process is never stepped.
#[test]
fn a_failing_start_yields_nothing_and_ends_the_process() {
    for panics in [false, true] {
        let watcher = Watcher::new();
        let (runtime, log) = (builder().workers(1).observer(watcher.clone()).start().unwrap(), Log::new());
        let received = Log::new();
        let sink = runtime.spawn(recorder::<u8>(&received)).unwrap();
        let (_holder, blocker) = hold_up(&runtime);
        let to = sink.address();
        let process = runtime
            .spawn(starter("a", &log).starts(move |out| {
                out.send(to, 7);
                out.spawn(sink_of_u8())?;
                out.register("a", out.pid());
                out.after(Duration::ZERO);
                assert!(!panics, "on purpose");
                Err("it does not start".into())
            }))
            .unwrap();
        runtime.send(process.address(), 1).unwrap();
        let spawned = runtime.stats().spawned;
        blocker.release();
        let exit = join(&process).without_output().to_string();
        assert_eq!(exit, if panics { "panicked: on purpose" } else { "failed: it does not start" });
        assert_eq!(log.take(), ["init a", "start a", "close a"]);
        until("all is at rest", || runtime.is_idle());
        let stats = runtime.stats();
        assert_eq!((received.len(), stats.spawned, stats.timers), (0, spawned, 0));
        assert!(runtime.whereis("a").is_none());
        assert_eq!(stats.messages.dead_by_reason[&DeadLetterReason::Ended], 1, "no step has taken the message");
        assert_accounted(&runtime);
    }
}

#[test]
fn a_state_machine_that_replaces_another_is_started_too() {
    let (runtime, log) = (runtime(1), Log::new());
    let third = starter("c", &log).steps(is_done);
    let mut third = Some(third);
    let second = starter("b", &log).steps(move |_, _| Ok(Step::Upgrade(Upgrade::to(third.take().unwrap()))));
    let first = starter("a", &log).steps(|_, _| Err("it fails".into())).recovers(second);
    output(&runtime.spawn(first).unwrap());
    let calls = ["a", "b", "c"].map(|name| ["init", "start", "step", "close"].map(|call| format!("{call} {name}")));
    assert_eq!(log.take(), calls.concat());
}

#[test]
fn a_process_recovers_from_a_failing_start_with_nothing_of_it() {
    let (runtime, log) = (runtime(1), Log::new());
    let answered = Arc::new(AtomicUsize::new(0));
    let count = answered.clone();
    let second = starter("b", &log)
        .starts(|out| {
            out.after(Duration::ZERO);
            Ok(())
        })
        .steps(move |events, _| {
            let answers = events.filter(|event| matches!(event, Event::Completed(_))).count();
            let all = count.fetch_add(answers, Ordering::SeqCst) + answers;
            Ok(if all > 0 { Step::Done(()) } else { Step::Wait })
        });
    let first = starter("a", &log)
        .starts(|out| {
            (0..5).for_each(|_| _ = out.after(Duration::ZERO));
            Err("it does not start".into())
        })
        .recovers(second);
    output(&runtime.spawn(first).unwrap());
    assert_eq!(answered.load(Ordering::SeqCst), 1, "only the command of the second is answered");
    assert_eq!(log.take()[..5], ["init a", "start a", "close a", "init b", "start b"]);
    assert_accounted(&runtime);
}

#[test]
fn a_request_to_stop_that_is_there_does_not_prevent_the_start() {
    let (runtime, log) = (runtime(1), Log::new());
    let (_holder, blocker) = hold_up(&runtime);
    let process = runtime.spawn(starter("a", &log)).unwrap();
    runtime.cancel(process.pid(), "at once").unwrap();
    blocker.release();
    output(&process);
    assert_eq!(log.to_vec()[..3], ["init a", "start a", "step a"]);

    let mut driver = Driver::new(starter("b", &log));
    driver.cancel("at once");
    assert_eq!(driver.run(), Status::Ended);
}

#[test]
fn a_process_that_is_terminated_before_its_start_never_starts() {
    let (runtime, log) = (runtime(1), Log::new());
    let (_holder, blocker) = hold_up(&runtime);
    let process = runtime.spawn(starter("a", &log)).unwrap();
    assert!(runtime.terminate(process.pid()).unwrap());
    blocker.release();
    assert!(matches!(join(&process), Exit::Terminated(Reason::Terminated)));
    assert_eq!(log.take(), ["init a", "close a"], "what was initialised is closed");
    // And one that is terminated in its `init`, on a worker.
    struct Ends(Log<String>, Blocked);
    impl Process for Ends {
        type Message = ();
        type Output = ();

        fn init(&mut self, entry: EntryArgs) -> InitResult {
            self.1.wait();
            entry.method("main", |(): ()| Ok(())).finish()
        }

        fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
            self.0.push(String::from("start"));
            Ok(())
        }

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Done(()))
        }

        fn close(&mut self) {
            self.0.push(String::from("close"));
        }
    }
    let blocker = Blocker::new();
    let mut child = Some(Ends(log.clone(), blocker.blocked()));
    let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        Ok(Step::Done(out.spawn(child.take().unwrap())?.pid()))
    }));
    let child = *output(&parent.unwrap());
    blocker.wait_begun();
    assert!(runtime.terminate(child).unwrap());
    blocker.release();
    until("the child has ended", || runtime.stats().processes == 0);
    assert_eq!(log.take(), ["close"]);
}

/// Like a step: it runs to its end, its yields are done, and no step follows.
#[test]
fn a_process_that_is_terminated_in_its_start_is_not_stepped() {
    for yields in [false, true] {
        let (runtime, log, received) = (runtime(1), Log::new(), Log::new());
        let sink = runtime.spawn(recorder::<u8>(&received)).unwrap();
        let (blocker, to) = (Blocker::new(), sink.address());
        let blocked = blocker.blocked();
        let process = runtime.spawn(starter("a", &log).starts(move |out| {
            blocked.wait();
            if yields {
                out.send(to, 7);
            }
            Ok(())
        }));
        let process = process.unwrap();
        blocker.wait_begun();
        assert!(runtime.terminate(process.pid()).unwrap());
        blocker.release();
        assert!(matches!(join(&process), Exit::Terminated(Reason::Terminated)));
        assert_eq!(log.take(), ["init a", "start a", "close a"]);
        until("all is at rest", || runtime.is_idle());
        assert_eq!(received.len(), usize::from(yields));
    }
}

/// Only a step can ask for the pool.
#[test]
fn start_runs_on_a_worker_though_the_step_before_ran_on_the_pool() {
    let (runtime, log, threads) = (runtime(1), Log::new(), Log::new());
    let name = || thread::current().name().unwrap_or_default().to_owned();
    let (mut steps, in_start, in_step) = (0, threads.clone(), threads.clone());
    let second = starter("b", &log)
        .starts(move |_| {
            in_start.push(name());
            Ok(())
        })
        .steps(is_done);
    let mut second = Some(second);
    let first = starter("a", &log).steps(move |_, _| {
        steps += 1;
        if steps == 1 {
            return Ok(Step::Blocking);
        }
        in_step.push(name());
        Ok(Step::Upgrade(Upgrade::to(second.take().unwrap())))
    });
    output(&runtime.spawn(first).unwrap());
    let threads = threads.take();
    assert!(threads[0].contains("blocking") && threads[1].contains("worker"), "{threads:?}");
}

/// The first step waits until another worker has stepped what `start` has woken.
#[test]
fn what_start_wakes_does_not_wait_for_the_first_step() {
    let (runtime, log) = (runtime(2), Log::new());
    let came = CancelToken::new();
    let (tell, comes) = (came.clone(), came.clone());
    let other = runtime.spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        if events.count() > 0 {
            tell.cancel("it has come");
        }
        Ok::<Step<()>, _>(Step::Idle)
    }));
    let other = other.unwrap().address();
    until("it is at rest", || runtime.is_idle());
    let process = starter("a", &log)
        .starts(move |out| {
            out.send(other, 1);
            Ok(())
        })
        .steps(move |_, _| {
            wait(&comes);
            Ok(Step::Done(()))
        });
    output(&runtime.spawn(process).unwrap());
}

/// With and without a bound.
#[test]
fn messages_come_after_start_also_those_of_the_parent() {
    for bounded in [false, true] {
        let (runtime, log, seen) = (runtime(1), Log::new(), Log::new());
        let notes = seen.clone();
        let mut child = Some(starter("a", &log).steps(move |events, _| {
            for event in events {
                if let Event::Message(n) = event {
                    notes.push(n);
                }
            }
            Ok(if notes.len() < 3 { Step::Idle } else { Step::Done(()) })
        }));
        let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let options = SpawnOptions::new();
            let options = if bounded { options.mailbox(3, Overflow::Refuse) } else { options };
            let child = out.spawn_with(child.take().unwrap(), options)?;
            (0..3).for_each(|n| out.send(child.address, n));
            Ok(Step::Done(()))
        });
        output(&runtime.spawn(parent).unwrap());
        until("the child has ended", || runtime.stats().processes == 0);
        assert_eq!((seen.take(), log.take()), (vec![0, 1, 2], ONE_LIFE.map(String::from).to_vec()));
    }
}

/// Asks in its start, and takes no message before the answer.
struct Asks {
    clerk: Address<Reply<u32>>,
    asked: Option<Tag<u32>>,
    seen: Vec<u32>,
}

impl Process for Asks {
    type Message = u32;
    type Output = Vec<u32>;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.asked = Some(out.ask(self.clerk, |reply| reply, Duration::MAX));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<Vec<u32>> {
        if self.seen.is_empty() {
            // The first step may be given messages, and leaves them.
            let answer = events.select(|_| false);
            let Some(Event::Completed(done)) = answer else { return Ok(Step::Wait) };
            self.seen.extend(done.take(self.asked).unwrap());
        }
        self.seen.extend(events.filter_map(|event| match event {
            Event::Message(n) => Some(n),
            _ => None,
        }));
        Ok(if self.seen.len() < 3 { Step::Idle } else { Step::Done(std::mem::take(&mut self.seen)) })
    }
}

#[test]
fn a_process_can_wait_for_the_answer_to_its_start() {
    let runtime = runtime(1);
    let (_holder, blocker) = hold_up(&runtime);
    let mut kept = None;
    let clerk = runtime.spawn(script(move |events: &mut Events<'_, Reply<u32>>, out: &mut StepOutput| {
        if let Some(reply) = kept.take() {
            out.reply(reply, 100);
        }
        for event in events {
            if let Event::Message(reply) = event {
                kept = Some(reply);
                out.after(Duration::from_millis(1));
            }
        }
        Ok::<Step<()>, _>(Step::Idle)
    }));
    let asks = runtime.spawn(Asks { clerk: clerk.unwrap().address(), asked: None, seen: Vec::new() }).unwrap();
    (1..=2).for_each(|n| runtime.send(asks.address(), n).unwrap());
    blocker.release();
    assert_eq!(*output(&asks), [100, 1, 2]);
    assert_accounted(&runtime);
}

/// It is polled when its step has returned, and its answer comes like any other.
#[test]
fn a_future_of_start_is_polled_and_one_of_a_failing_start_is_not() {
    for fails in [false, true] {
        let (runtime, log, polled) = (runtime(1), Log::new(), Log::new());
        let notes = polled.clone();
        let process = starter("a", &log)
            .starts(move |out| {
                let notes = notes.clone();
                out.future(async move { notes.push(()) });
                if fails { Err("it does not start".into()) } else { Ok(()) }
            })
            .steps(|events, _| {
                let answered = events.any(|event| matches!(event, Event::Completed(_)));
                Ok(if answered { Step::Done(()) } else { Step::Wait })
            });
        let exit = join(&runtime.spawn(process).unwrap());
        assert_eq!((exit.is_done(), polled.len()), (!fails, usize::from(!fails)));
        until("all is at rest", || runtime.is_idle());
    }
}

#[test]
fn a_driver_shows_what_start_has_yielded() {
    let log = Log::new();
    let to: Address<u8> = "<0.7.1>".parse::<Pid>().unwrap().typed();
    let mut driver = Driver::new(starter("a", &log).starts(move |out| {
        out.send(to, 7);
        out.after(Duration::from_secs(1));
        Ok(())
    }));
    assert_eq!(driver.run(), Status::Idle);
    assert_eq!((driver.sent::<u8>().unwrap(), driver.outstanding().len()), ((to.pid(), 7), 1));
    let mut driver = Driver::new(starter("a", &log).starts(move |out| {
        out.send(to, 7);
        Err("it does not start".into())
    }));
    assert_eq!((driver.run(), driver.steps()), (Status::Ended, 0));
    assert_eq!(driver.sent::<u8>(), Err(SentError::Nothing));
    assert_eq!(driver.exit().unwrap().without_output().to_string(), "failed: it does not start");
}
