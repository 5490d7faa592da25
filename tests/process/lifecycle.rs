//! A. The process: its three calls, how it is entered, what it is given and what it can want.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::{ProcessState, WaitedForNothing};
use procession::spawn::EntryError;
use procession::sync::Latch;
use procession::testing::{Driver, Status};
use procession::{
    Address, EntryArgs, Event, Events, ExitError, InitResult, Pid, Process, Reply, SpawnError, SpawnOptions, Step,
    StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;

/// Writes down its calls.
struct Calls {
    log: Log<String>,
    fail: &'static str,
}

impl Process for Calls {
    type Message = u32;
    type Output = ();

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        self.log.push(format!("init {}", entry.name()));
        if self.fail == "init" {
            return Err("no good".into());
        }
        entry
            .method("main", |(): ()| Ok(()))
            .method("resume", |at: u64| {
                self.log.push(format!("at {at}"));
                Ok(())
            })
            .finish()
    }

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        self.log.push(format!("step {}", events.count()));
        Ok(Step::Done(()))
    }

    fn close(&mut self) {
        self.log.push(String::from("close"));
    }
}

fn calls(log: &Log<String>) -> Calls {
    Calls { log: log.clone(), fail: "" }
}

#[test]
fn init_comes_first_then_a_step_without_a_message_then_close() {
    let (runtime, log) = (runtime(1), Log::new());
    output(&runtime.spawn(calls(&log)).unwrap());
    assert_eq!(log.take(), ["init main", "step 0", "close"]);
}

#[test]
fn a_process_is_entered_at_the_chosen_method_with_its_input() {
    let (runtime, log) = (runtime(1), Log::new());
    output(&runtime.spawn_with(calls(&log), SpawnOptions::new().entry("resume", 7_u64)).unwrap());
    assert_eq!(log.take()[..2], ["init resume", "at 7"]);
}

#[test]
fn spawning_with_a_wrong_entry_names_the_given_and_the_expected() {
    let (runtime, log) = (runtime(1), Log::new());
    let spawn = |options| runtime.spawn_with(calls(&log), options).map(drop).unwrap_err().to_string();
    let unknown = spawn(SpawnOptions::new().entry("begin", ()));
    assert!(unknown.contains("no entry method \"begin\"; it offers \"main\" (()), \"resume\" (u64)"), "{unknown}");
    let wrong = spawn(SpawnOptions::new().entry("resume", "seven"));
    assert!(wrong.contains("\"resume\"") && wrong.contains("type u64, and was given &str"), "{wrong}");
}

#[test]
fn a_failed_init_is_returned_by_spawn_and_nothing_of_the_process_remains() {
    let watcher = Watcher::new();
    let (runtime, log) = (builder().workers(1).observer(watcher.clone()).start().unwrap(), Log::new());
    let options = SpawnOptions::new().name("stillborn");
    let refused = runtime.spawn_with(Calls { log: log.clone(), fail: "init" }, options).unwrap_err();
    let SpawnError::Init(failure) = refused.reason() else { panic!("{refused:?}") };
    assert_eq!(failure.to_string(), "no good");
    assert_eq!(refused.into_inner().fail, "init", "the process comes back");
    assert_eq!(log.take(), ["init main", "close"]);
    assert!(runtime.whereis("stillborn").is_none());
    assert!(runtime.processes().is_empty());
    let stats = runtime.stats();
    assert_eq!((stats.spawned, stats.processes, stats.global_queue), (0, 0, 0));
    assert_eq!((watcher.spawned.len(), watcher.exits.len()), (0, 0));
}

#[test]
fn a_child_whose_init_fails_has_a_pid_and_a_failed_exit() {
    let watcher = Watcher::new();
    let (runtime, log) = (builder().workers(1).observer(watcher.clone()).start().unwrap(), Log::new());
    let inner = log.clone();
    let parent = runtime
        .spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let child = out.spawn(Calls { log: inner.clone(), fail: "init" })?;
            // It is there for what comes after the spawn in the same step.
            out.send(child, 1);
            Ok(Step::Done(child.pid()))
        }))
        .unwrap();
    let child: Pid = *output(&parent);
    until("the child has ended", || watcher.exits.len() == 2);
    assert!(watcher.exits.take().contains(&(child, String::from("failed: no good"))));
    assert_eq!(log.take(), ["init main", "close"]);
    assert_accounted(&runtime);
}

#[test]
fn nothing_reaches_a_process_before_its_init_has_returned() {
    struct Slow(Blocked);
    impl Process for Slow {
        type Message = u32;
        type Output = usize;

        fn init(&mut self, _: EntryArgs) -> InitResult {
            self.0.wait();
            Ok(())
        }

        fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<usize> {
            Ok(Step::Done(events.count()))
        }
    }
    let runtime = runtime(1);
    let blocker = Blocker::new();
    let slow = Slow(blocker.blocked());
    std::thread::scope(|scope| {
        let spawner = scope.spawn(|| runtime.spawn_with(slow, SpawnOptions::new().name("slow")).unwrap());
        blocker.wait_begun();
        let pid = runtime.whereis("slow").unwrap();
        assert_eq!(runtime.send(pid, 1_u32).unwrap_err().into_inner(), 1);
        assert_eq!(runtime.process_state(pid), None);
        blocker.release();
        assert_eq!(*output(&wait(spawner).unwrap()), 0);
    });
}

#[test]
fn a_step_gets_bounded_events_and_untaken_ones_stay_in_front() {
    let runtime = builder().workers(1).step_events(3).start().unwrap();
    let (log, go) = (Log::new(), Latch::new());
    let (seen, gate) = (log.clone(), go.clone());
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            wait(&gate);
            let step: Vec<u32> =
                events.filter_map(|event| if let Event::Message(n) = event { Some(n) } else { None }).take(2).collect();
            let done = step.contains(&8);
            seen.push(step);
            Ok(if done { Step::Done(()) } else { Step::Idle })
        }))
        .unwrap();
    (1..=8).for_each(|n| runtime.send(process.address(), n).unwrap());
    go.set(()).unwrap();
    output(&process);
    let steps: Vec<Vec<u32>> = log.take().into_iter().filter(|step| !step.is_empty()).collect();
    assert_eq!(steps, [[1, 2], [3, 4], [5, 6], [7, 8]], "what was left was offered again, without another event");
}

#[test]
fn completions_count_for_the_bound_of_a_step() {
    let runtime = builder().workers(1).step_events(3).start().unwrap();
    let nobody = runtime.spawn(sink::<Reply<()>>()).unwrap();
    runtime.terminate(nobody.address().pid()).unwrap();
    join(&nobody);
    let (log, to) = (Log::new(), nobody.address());
    let seen = log.clone();
    let (mut to_ask, mut left) = (0..7, 7);
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for _ in to_ask.by_ref() {
                // Nobody answers, so all completions arrive at once.
                let _ = out.ask(to, |reply: Reply<()>| reply, LIMIT);
            }
            let count = events.count();
            seen.push(count);
            left -= count;
            Ok(if left == 0 { Step::Done(()) } else { Step::Idle })
        }))
        .unwrap();
    output(&process);
    assert_eq!(log.take(), [0, 3, 3, 1]);
}

#[test]
fn a_step_never_gets_more_events_than_the_bound() {
    let runtime = builder().workers(1).step_events(3).start().unwrap();
    let (log, go) = (Log::new(), Latch::new());
    let (seen, gate) = (log.clone(), go.clone());
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            wait(&gate);
            seen.push(events.count());
            Ok(if seen.len() == 5 { Step::Done(()) } else { Step::Idle })
        }))
        .unwrap();
    (1..=10).for_each(|n| runtime.send(process.address(), n).unwrap());
    go.set(()).unwrap();
    output(&process);
    assert_eq!(log.take(), [0, 3, 3, 3, 1]);
}

#[test]
fn passed_over_messages_come_again_with_the_next_event() {
    let mut seen = Vec::new();
    let mut wanted = 0;
    let mut picky = Driver::new(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        while let Some(event) = events.select(|n| *n == wanted) {
            if let Event::Message(n) = event {
                seen.push(n);
                wanted += 1;
            }
        }
        Ok(if wanted == 4 { Step::Done(std::mem::take(&mut seen)) } else { Step::Idle })
    }));
    picky.message(3).message(1).message(2);
    assert_eq!(picky.run(), Status::Idle, "what was passed over wakes nobody");
    let steps = picky.steps();
    assert_eq!(picky.run(), Status::Idle);
    assert_eq!(picky.steps(), steps);
    picky.message(0);
    // One pass finds 0, the next ones 1, 2 and 3: each pass over a message needs another step.
    while picky.run() != Status::Ended {
        picky.cancel("look again");
    }
    assert_eq!(**picky.exit().unwrap().output().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_process_that_continues_is_stepped_again_without_an_event() {
    let runtime = runtime(1);
    let mut left = 1_000;
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        left -= 1;
        Ok(if left == 0 { Step::Done(()) } else { Step::Continue })
    }));
    output(&process.unwrap());
    assert_eq!(runtime.stats().workers[0].steps, 1_000);
}

#[test]
fn a_process_that_waits_is_woken_by_its_answer_and_not_by_messages() {
    let runtime = runtime(1);
    let go = Latch::new();
    let (gate, log) = (go.clone(), Log::new());
    let seen = log.clone();
    let mut tag: Option<Tag<()>> = None;
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            let mut step = Vec::new();
            let mut answered = false;
            for event in events {
                match event {
                    Event::Message(n) => step.push(n.to_string()),
                    Event::Completed(done) => {
                        assert!(done.is(tag.unwrap()));
                        answered = true;
                        step.push(String::from("answer"));
                    }
                    _ => {}
                }
            }
            let over = step.iter().any(|entry| entry == "3");
            seen.push(step);
            if tag.is_none() {
                let gate = gate.clone();
                tag = Some(out.blocking(move || {
                    wait(&gate);
                }));
                return Ok(Step::Wait);
            }
            Ok(if over {
                Step::Done(())
            } else if answered {
                Step::Idle
            } else {
                Step::Wait
            })
        }))
        .unwrap();
    until("it waits", || runtime.process(process.pid()).is_some_and(|info| info.state.to_string() == "blocked"));
    (1..=3).for_each(|n| runtime.send(process.address(), n).unwrap());
    assert_eq!(runtime.process(process.pid()).unwrap().mailbox, 3);
    assert_eq!(runtime.process(process.pid()).unwrap().steps, 1, "messages queue up, and wake nobody");
    go.set(()).unwrap();
    output(&process);
    assert_eq!(log.take(), [vec![], vec!["answer".into()], vec!["1".into(), "2".into(), String::from("3")]]);
}

#[test]
fn a_process_that_waits_is_woken_by_a_cancel_request() {
    let runtime = runtime(1);
    let process = runtime
        .spawn(script(|events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                if let Event::Cancel(request) = event {
                    return Ok(Step::Done(request.reason.to_string()));
                }
            }
            out.after(Duration::MAX);
            Ok(Step::Wait)
        }))
        .unwrap();
    runtime.send(process.address(), 1).unwrap();
    assert!(runtime.cancel(process.pid(), "closing time").unwrap());
    assert_eq!(*output(&process), "closing time");
}

#[test]
fn waiting_for_nothing_is_an_error_and_not_a_hang() {
    let runtime = runtime(1);
    let process =
        runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| StepResult::<()>::Ok(Step::Wait))).unwrap();
    let ExitError::Failed(failure) = join(&process).into_result().unwrap_err() else { panic!("it failed") };
    assert!(failure.error().is::<WaitedForNothing>(), "{failure}");
}

#[test]
fn messages_that_come_at_any_time_before_a_wait_are_there_after_it() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let gates = [Latch::new(), Latch::new()];
    let (held, log, seen, mut steps) = (gates.clone(), Log::new(), Log::new(), 0);
    let (begun, taken) = (seen.clone(), log.clone());
    let process = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        steps += 1;
        begun.push(());
        match steps {
            // Events that come while it is held up are left to later steps.
            1 | 2 => wait(&held[steps - 1]),
            3 => {}
            _ => {
                events.for_each(|event| {
                    if let Event::Message(n) = event {
                        taken.push(n)
                    }
                });
                return Ok(if taken.len() == 20 { Step::Done(()) } else { Step::Idle });
            }
        }
        if steps == 2 {
            out.after(Duration::from_secs(1));
            return Ok(Step::Wait);
        }
        Ok(Step::Continue)
    });
    let process = runtime.spawn(process).unwrap();
    for (round, gate) in gates.iter().enumerate() {
        until("it is held up", || seen.len() == round + 1);
        (0..10).for_each(|n| runtime.send(process.address(), round as u32 * 10 + n).unwrap());
        gate.set(()).unwrap();
    }
    until("it waits", || runtime.process_state(process.pid()) == Some(ProcessState::Blocked));
    assert_eq!(runtime.process(process.pid()).unwrap().mailbox, 20);
    manual.advance(Duration::from_secs(1));
    output(&process);
    assert_eq!(log.take(), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_blocking_step_runs_on_the_pool_and_may_block() {
    let runtime = runtime(1);
    let go = Latch::new();
    let gate = go.clone();
    let mut threads = Vec::new();
    let process = runtime
        .spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            threads.push(std::thread::current().name().unwrap_or_default().to_string());
            match threads.len() {
                1 => Ok(Step::Blocking),
                2 => {
                    wait(&gate);
                    Ok(Step::Continue)
                }
                _ => Ok(Step::Done(std::mem::take(&mut threads))),
            }
        }))
        .unwrap();
    // The only worker is free meanwhile.
    output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    go.set(()).unwrap();
    let threads = output(&process);
    assert!(
        threads[0].contains("worker") && threads[1].contains("blocking") && threads[2].contains("worker"),
        "{threads:?}"
    );
}

#[test]
fn an_upgrade_keeps_pid_name_and_mailbox_and_closes_the_old_one_once() {
    /// The second version: counts what the first one left.
    struct Second {
        closed: Arc<AtomicUsize>,
        from: u32,
    }
    impl Process for Second {
        type Message = u32;
        type Output = u32;

        fn init(&mut self, entry: EntryArgs) -> InitResult {
            entry
                .method("take over", |from: u32| {
                    self.from = from;
                    Ok(())
                })
                .finish()
        }

        fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<u32> {
            assert_eq!(self.closed.load(Ordering::Relaxed), 1, "the old one is closed before the new one is stepped");
            for event in events {
                match event {
                    Event::Message(n) => self.from += n,
                    Event::Cancel(_) => return Ok(Step::Done(self.from)),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }
    }
    struct First {
        closed: Arc<AtomicUsize>,
        go: Latch<()>,
    }
    impl Process for First {
        type Message = u32;
        type Output = u32;

        fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<u32> {
            wait(&self.go);
            let second = Second { closed: self.closed.clone(), from: 0 };
            Ok(Step::Upgrade(Upgrade::entering(second, "take over", 1_000_u32)))
        }

        fn close(&mut self) {
            self.closed.fetch_add(1, Ordering::Relaxed);
        }
    }
    let runtime = runtime(1);
    let (closed, go) = (Arc::new(AtomicUsize::new(0)), Latch::new());
    let first = First { closed: closed.clone(), go: go.clone() };
    let process = runtime.spawn_with(first, SpawnOptions::new().name("service")).unwrap();
    (1..=10).for_each(|n| runtime.send(process.address(), n).unwrap());
    go.set(()).unwrap();
    until("it is upgraded", || runtime.process(process.pid()).is_some_and(|info| info.type_name.contains("Second")));
    assert_eq!(runtime.whereis("service"), Some(process.pid()));
    runtime.send(process.address(), 45).unwrap();
    until("all is stepped", || runtime.stats().messages.stepped == 11);
    runtime.cancel(process.pid(), "done").unwrap();
    assert_eq!(*output(&process), 1_100);
    assert_eq!(closed.load(Ordering::Relaxed), 1);
    assert_accounted(&runtime);
}

#[test]
fn an_upgrade_makes_untaken_messages_dead_and_may_fail_in_init() {
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let go = Latch::new();
    let gate = go.clone();
    let other = runtime
        .spawn(script(move |_: &mut Events<'_, u32>, _: &mut StepOutput| {
            wait(&gate);
            Ok(Step::Upgrade(Upgrade::to(sink::<String>())))
        }))
        .unwrap();
    (0..5).for_each(|n| runtime.send(other.address(), n).unwrap());
    go.set(()).unwrap();
    until("the messages are dead", || watcher.dead.len() == 5);
    let typed: Address<String> = other.pid().typed();
    runtime.send(typed, String::from("welcome")).unwrap();
    let refused = runtime.send(other.address(), 6).unwrap_err();
    assert!(refused.to_string().contains("String") && refused.to_string().contains("u32"), "{refused}");
    // The request would overtake the message.
    until("it is welcome", || runtime.process(other.pid()).unwrap().mailbox == 0);
    runtime.cancel(other.pid(), "enough").unwrap();
    assert_eq!(*output(&other), 1);

    let stubborn = runtime
        .spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| {
            Ok(Step::Upgrade(Upgrade::entering(sink::<u8>(), "nowhere", ())))
        }))
        .unwrap();
    let ExitError::Failed(failure) = join(&stubborn).into_result().unwrap_err() else { panic!("it failed") };
    assert!(
        matches!(failure.error().downcast_ref(), Some(EntryError::UnknownMethod { asked, .. }) if asked == "nowhere")
    );
    assert_accounted(&runtime);
}

#[test]
fn a_process_can_be_driven_without_a_runtime() {
    let mut adder = Driver::new(script(|events: &mut Events<'_, (u32, Pid)>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message((n, to)) => out.send(to, n * 2),
                Event::Cancel(request) => return Ok(Step::Done(request.reason.to_string())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }));
    let friend: Pid = "<1.5.1>".parse().unwrap();
    assert_eq!(adder.message((21, friend)).run(), Status::Idle);
    assert_eq!(adder.sent::<u32>(), Ok((friend, 42)));
    assert_eq!(adder.cancel("enough").run(), Status::Ended);
    assert_eq!(**adder.exit().unwrap().output().unwrap(), "enough");
}
