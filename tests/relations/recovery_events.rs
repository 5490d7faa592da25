//! Recoveries: who is told of them, requests to stop, and recovery by spawn options.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::exit::{Failure, RecoveredBy};
use procession::supervisor::{Backoff, ChildSpec, ChildState, Restart, Shutdown, Supervisor};
use procession::sync::Latch;
use procession::testing::{Driver, Status};
use procession::{Event, Events, Exit, Process, SpawnError, SpawnOptions, Step, StepOutput, StepResult, Upgrade};

use crate::helpers::*;
use crate::support::frail::{Frail, Order, frail};
use crate::support::node::{Do, Heard, node_with};
use crate::support::worker::supervise;

const SECOND: Duration = Duration::from_secs(1);

fn trapping() -> SpawnOptions {
    SpawnOptions::new().trap_exits()
}

#[test]
fn a_recovery_is_told_after_what_the_process_had_sent_and_answered() {
    let runtime = runtime(2);
    let frail = frail(&runtime, 2, SpawnOptions::new());
    let (log, pid, to) = (Log::new(), frail.pid(), frail.address());
    let (heard, mut begun, taken) = (log.clone(), false, Latch::new());
    let take = taken.clone();
    let watcher = runtime.spawn(script(move |events: &mut Events<'_, &'static str>, out: &mut StepOutput| {
        if !std::mem::replace(&mut begun, true) {
            out.trap_exits(true);
            out.link(pid);
            out.ask(to, |reply: procession::Reply<()>| Order::Answer(reply), LIMIT);
            return Ok(Step::Continue);
        }
        wait(&take);
        for event in events {
            match event {
                Event::Message("done") => return Ok(Step::Done(())),
                Event::Message(text) => heard.push(text),
                Event::Completed(_) => heard.push("answer"),
                Event::Recovered(recovered) => {
                    assert_eq!((recovered.pid, recovered.by), (pid, RecoveredBy::Process));
                    heard.push("recovered");
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }));
    let watcher = watcher.unwrap();
    let address = watcher.address();
    until("it is linked and asks", || runtime.stats().messages.stepped == 1);
    frail.does(move |out| out.send(address, "before"));
    frail.fails();
    frail.does(move |out| out.send(address, "after"));
    frail.settles();
    taken.set(()).unwrap();
    until("all is told", || log.len() == 4);
    let told = log.take();
    let place = |what: &str| told.iter().position(|one| *one == what).unwrap();
    assert!(place("recovered") > place("before") && place("recovered") > place("answer"), "{told:?}");
    runtime.send(address, "done").unwrap();
    output(&watcher);
}

#[test]
fn after_unlinking_no_recovery_is_told_though_it_was_in_the_mailbox() {
    for relinks in [false, true] {
        let runtime = runtime(2);
        let (frail, log) = (frail(&runtime, 3, SpawnOptions::new()), Log::new());
        let (pid, heard, mut steps, blocker) = (frail.pid(), log.clone(), 0, Blocker::new());
        let blocked = blocker.blocked();
        let watcher = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            steps += 1;
            match steps {
                1 => {
                    out.trap_exits(true);
                    out.link(pid);
                    return Ok(Step::Continue);
                }
                2 => {
                    blocked.wait();
                    // The event is in the mailbox, and is not taken.
                    out.unlink(pid);
                    if relinks {
                        out.link(pid);
                    }
                    return Ok(Step::Continue);
                }
                _ => {}
            }
            for event in events {
                match event {
                    Event::Recovered(_) => heard.push("recovered"),
                    Event::Exit(_) => heard.push("exit"),
                    Event::Message(()) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }));
        let watcher = watcher.unwrap();
        blocker.wait_begun();
        frail.fails();
        blocker.release();
        until("the link is taken back", || runtime.process(watcher.pid()).is_some_and(|info| info.steps >= 3));
        frail.fails();
        runtime.send(watcher.address(), ()).unwrap();
        output(&watcher);
        assert_eq!(log.take(), if relinks { vec!["recovered"] } else { vec![] }, "relinks: {relinks}");
    }
}

/// Three children that recover by themselves. The second has the function in its options. The third is also restarted
/// in place.
fn children_that_recover(heard: &Log<String>) -> [ChildSpec; 3] {
    let (own, given, both) = (heard.clone(), heard.clone(), heard.clone());
    let again = heard.clone();
    let options = move || {
        let again = again.clone();
        SpawnOptions::new().recover_with(move |_| Some(Upgrade::to(Frail::new(1, &again))))
    };
    let specs = [
        ChildSpec::new("own", move || Frail::new(10, &own)),
        ChildSpec::new("given", move || Frail::new(1, &given)).options(options),
        ChildSpec::in_place("both", move || Frail::new(2, &both)),
    ];
    specs.map(|spec| spec.shutdown(Shutdown::AtOnce))
}

#[test]
fn a_recovered_failure_of_a_child_counts_for_its_supervisor() {
    for (place, id) in ["own", "given", "both"].into_iter().enumerate() {
        let (runtime, heard) = (runtime(2), Log::new());
        let spec = children_that_recover(&heard).into_iter().nth(place).unwrap();
        let boss = supervise(&runtime, Supervisor::builder().intensity(3, 1_000 * SECOND).child(spec).build().unwrap());
        let pid = boss.pid(id);
        for times in 1..=3 {
            boss.runtime.send(pid, Order::Fail).unwrap();
            boss.restarted(id, times);
            assert_eq!(boss.pid(id), pid);
        }
        let watch = runtime.watch(pid);
        boss.runtime.send(pid, Order::Fail).unwrap();
        let exit = join(&boss.handle).without_output().to_string();
        let each = [format!("{id} (failed: frail)"), format!("{id} (failed: frail)")].join(", ");
        assert_eq!(exit, format!("failed: too many restarts: {each}, {each}"));
        assert!(watch.wait_timeout(LIMIT).is_ok(), "the child goes with it");
    }
}

/// For a child that waits for its delay the failure is counted, and not that the runtime has put another one in its
/// place.
#[test]
fn in_place_the_child_itself_is_asked_first_whether_it_recovers() {
    let (clock, heard) = (ManualClock::new(), Log::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let [.., both] = children_that_recover(&heard);
    let builder = Supervisor::builder().intensity(100, SECOND).backoff(Backoff::exponential(SECOND, SECOND));
    let boss = supervise(&runtime, builder.child(both).build().unwrap());
    let pid = boss.pid("both");
    boss.runtime.send(pid, Order::Fail).unwrap();
    boss.restarted("both", 1);
    assert_eq!(runtime.stats().timers, 0, "one that has recovered waits for no delay");
    boss.runtime.send(pid, Order::Fail).unwrap();
    until("it waits for its delay", || boss.child("both").unwrap().state == ChildState::Delayed);
    assert_eq!(boss.child("both").unwrap().restarts, 2);
    clock.advance(SECOND);
    boss.restarted("both", 2);
    assert_eq!(boss.pid("both"), pid);
    boss.stop();
}

#[test]
fn a_supervisor_is_told_of_recoveries_of_its_children_and_of_nobody_elses() {
    let spec = |id: &'static str| ChildSpec::new(id, sink::<()>);
    let builder = Supervisor::builder().intensity(1, SECOND).child(spec("a")).child(spec("b"));
    let mut driver = Driver::new(builder.build().unwrap());
    driver.run();
    let [a, b] = [(); 2].map(|()| driver.spawned().unwrap().0);
    let failed = Exit::Failed(Failure::from(procession::BoxError::from("it failed")));
    driver.recovered("<0.99.1>".parse().unwrap(), &failed, RecoveredBy::Process).run();
    driver.recovered(a, &failed, RecoveredBy::Process).run();
    assert!(driver.cancelled().is_empty(), "once is allowed");
    driver.recovered(b, &failed, RecoveredBy::SpawnOption).run();
    driver.ended(b, &Exit::Done(())).run();
    driver.ended(a, &Exit::Done(())).run();
    assert_eq!(driver.status(), Status::Ended);
    let exit = driver.exit().unwrap().without_output().to_string();
    assert_eq!(exit, "failed: too many restarts: a (failed: it failed), b (failed: it failed)");
}

/// How a request to stop reaches a process that fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Never,
    /// The step that fails has taken it.
    InThatStep,
    /// An earlier step has taken it, and there was a planned upgrade since.
    Earlier,
    /// It is in the mailbox, and the step that fails has not taken it.
    Waits,
    /// It comes while the step runs that fails.
    Meanwhile,
}

type Failing = Box<dyn FnMut(&mut Events<'_, ()>) -> StepResult<&'static str> + Send>;

/// A process that fails after it was asked to stop in this way. It blocks in the step in which it is to be asked.
fn asked_and_fails(asked: Asked, blocked: Blocked) -> impl Process<Message = (), Output = &'static str> {
    let (mut begun, mut upgraded) = (false, asked != Asked::Earlier);
    let step: Failing = Box::new(move |events| {
        if matches!(asked, Asked::Waits | Asked::Meanwhile) {
            if !std::mem::replace(&mut begun, true) {
                blocked.wait();
                if asked == Asked::Waits {
                    return Ok(Step::Continue);
                }
            }
            // It takes nothing.
            return Err("it failed".into());
        }
        match events.next() {
            Some(Event::Cancel(_)) if !std::mem::replace(&mut upgraded, true) => {
                let next = script(|events: &mut Events<'_, ()>, _: &mut StepOutput| match events.next() {
                    Some(_) => Err("it failed".into()),
                    None => Ok(Step::Idle),
                });
                Ok(Step::Upgrade(Upgrade::to(next)))
            }
            Some(_) => Err("it failed".into()),
            None => Ok(Step::Idle),
        }
    });
    let mut step = step;
    script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| step(events))
}

#[test]
fn a_process_asked_to_stop_recovers_only_if_it_says_so() {
    for asked in [Asked::Never, Asked::InThatStep, Asked::Earlier, Asked::Waits, Asked::Meanwhile] {
        for (even_if_stopping, bounded) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = format!("{asked:?}, even if stopping: {even_if_stopping}, bounded: {bounded}");
            let (runtime, heard, blocker) = (runtime(1), Log::new(), Blocker::new());
            let log = heard.clone();
            let options = SpawnOptions::new().recover_with(move |_| {
                let log = log.clone();
                let next = script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| match events.next() {
                    Some(Event::Message(())) => Ok(Step::Done("told")),
                    Some(Event::Cancel(request)) => {
                        log.push(request.reason.to_string());
                        Ok(Step::Idle)
                    }
                    _ => Ok(Step::Idle),
                });
                let next = Upgrade::to(next);
                Some(if even_if_stopping { next.even_if_stopping() } else { next })
            });
            let options = if bounded { options.mailbox(2, procession::spawn::Overflow::Refuse) } else { options };
            let process = runtime.spawn_with(asked_and_fails(asked, blocker.blocked()), options).unwrap();
            if matches!(asked, Asked::Waits | Asked::Meanwhile) {
                blocker.wait_begun();
            }
            if asked != Asked::Never {
                runtime.cancel(process.pid(), "enough").unwrap();
            }
            if matches!(asked, Asked::Never | Asked::Earlier) {
                until("it is upgraded", || runtime.is_idle());
                runtime.send(process.address(), ()).unwrap();
            }
            blocker.release();
            if asked != Asked::Never && !even_if_stopping {
                assert_eq!(join(&process).without_output().to_string(), "failed: it failed", "{case}");
                assert!(heard.take().is_empty(), "{case}");
                continue;
            }
            until("its successor has heard of it", || runtime.is_idle());
            assert_eq!(
                heard.take(),
                if asked == Asked::Never { vec![] } else { vec![String::from("enough")] },
                "{case}"
            );
            runtime.send(process.address(), ()).unwrap();
            assert_eq!(*output(&process), "told", "{case}");
        }
    }
}

/// Fails with the first event, and gives that event to its successor.
struct GivesBack {
    taken: Vec<Event<()>>,
    heard: Log<String>,
}

impl Process for GivesBack {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.taken.extend(events.next());
        if self.taken.is_empty() { Ok(Step::Idle) } else { Err("it failed".into()) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let heard = self.heard.clone();
        let next = script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
            for event in events {
                if let Event::Cancel(request) = event {
                    heard.push(request.reason.to_string());
                }
            }
            Ok(Step::Idle)
        });
        Some(Upgrade::to(next).even_if_stopping().giving_back(std::mem::take(&mut self.taken)))
    }
}

#[test]
fn a_recovery_gives_nothing_back_and_the_request_comes_once() {
    let (runtime, heard) = (runtime(1), Log::new());
    let process = runtime.spawn(GivesBack { taken: Vec::new(), heard: heard.clone() }).unwrap();
    runtime.cancel(process.pid(), "enough").unwrap();
    until("its successor has heard of it", || runtime.is_idle());
    assert_eq!(heard.take(), ["enough"]);
}

#[test]
fn a_child_that_was_asked_to_stop_and_fails_is_not_restarted_in_place() {
    let (runtime, made) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let count = made.clone();
    let spec = ChildSpec::in_place("clumsy", move || {
        count.fetch_add(1, Ordering::SeqCst);
        script(|events: &mut Events<'_, ()>, _: &mut StepOutput| match events.next() {
            Some(Event::Cancel(_)) => Err("it fell".into()),
            _ => Ok(Step::<()>::Idle),
        })
    });
    let boss = supervise(&runtime, Supervisor::builder().child(spec).build().unwrap());
    let pid = boss.pid("clumsy");
    let watch = runtime.watch(pid);
    runtime.cancel(pid, "enough").unwrap();
    assert_eq!(watch.wait_timeout(LIMIT).unwrap().exit.to_string(), "failed: it fell");
    boss.restarted("clumsy", 1);
    assert_ne!(boss.pid("clumsy"), pid, "it is permanent, so there is another");
    boss.stop();
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

#[test]
fn a_process_that_is_terminated_while_its_step_fails_does_not_recover() {
    let runtime = runtime(2);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let frail = frail(&runtime, 2, SpawnOptions::new());
    let linked = node_with(&runtime, trapping());
    linked.does(&runtime, [Do::Link(frail.pid())]);
    frail.does(move |_| {
        blocked.wait();
        panic!("held");
    });
    blocker.wait_begun();
    runtime.terminate(frail.pid()).unwrap();
    blocker.release();
    assert_eq!(join(&frail.handle).without_output().to_string(), "panicked: held");
    assert_eq!(linked.hears(1), [Heard::Exit(frail.pid(), "panicked: held".into())]);
}

/// Fails, and panics in `recover`.
struct Helpless;

impl Process for Helpless {
    type Message = Order;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, Order>, _: &mut StepOutput) -> StepResult<()> {
        Err("helpless".into())
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        panic!("in `recover`")
    }
}

#[test]
fn a_panic_in_recover_counts_as_no_successor() {
    quiet_panics();
    let (runtime, heard) = (runtime(1), Log::new());
    let alone = runtime.spawn(Helpless).unwrap();
    assert_eq!(join(&alone).without_output().to_string(), "failed: helpless", "the failure, and not the panic");
    let log = heard.clone();
    let options = SpawnOptions::new().recover_with(move |_| Some(Upgrade::to(Frail::new(1, &log))));
    let helped = runtime.spawn_with(Helpless, options).unwrap();
    assert!(runtime.ask(helped.pid(), Order::Answer, LIMIT).wait().is_ok(), "the function of the options is asked");
    assert!(!helped.is_finished());
}

#[test]
fn recover_with_is_used_after_recover_and_survives_upgrades() {
    let (runtime, heard, asked) = (runtime(1), Log::new(), Log::new());
    let (log, ask) = (heard.clone(), asked.clone());
    let mut left = 2;
    let options = SpawnOptions::new().recover_with(move |exit| {
        ask.push(exit.to_string());
        left -= 1;
        assert!(left >= 0, "it panics, and that is as if it gave nothing");
        Some(Upgrade::to(Frail::new(1, &log)))
    });
    let process = runtime.spawn_with(Frail::new(2, &heard), options).unwrap();
    let fail = || runtime.send(process.address(), Order::Fail).unwrap();
    let settle = || runtime.ask(process.address(), Order::Answer, LIMIT).wait().unwrap();
    fail();
    settle();
    assert_eq!(asked.len(), 0, "its own `recover` is asked first");
    fail();
    settle();
    assert_eq!(asked.len(), 1);
    runtime.send(process.address(), Order::Upgrade(Frail::new(1, &heard))).unwrap();
    settle();
    fail();
    settle();
    assert_eq!(asked.take(), ["failed: frail", "failed: frail"]);
    fail();
    assert_eq!(join(&process).without_output().to_string(), "failed: frail");
    assert_eq!(asked.take(), ["failed: frail"]);
}

#[test]
fn recover_with_of_another_output_is_refused_at_the_spawn() {
    let runtime = runtime(1);
    let wrong = || SpawnOptions::new().recover_with(|_| Some(Upgrade::to(sink::<()>())));
    let check = |error: &SpawnError| {
        let SpawnError::WrongRecovery { output, given } = error else { panic!("{error}") };
        assert_eq!((*output, *given), ("()", "usize"));
        let text = "`recover_with` returns processes with the output usize, and the output of this process is ()";
        assert_eq!(error.to_string(), text);
    };
    let refused = runtime.spawn_with(recorder::<()>(&Log::new()), wrong()).unwrap_err();
    check(refused.reason());
    assert_eq!(runtime.stats().processes, 0);
    let spawner = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let log = Log::<()>::new();
        let child = || recorder(&log);
        check(out.spawn_with(child(), wrong()).unwrap_err().reason());
        check(out.spawn_with(child(), wrong().monitor()).unwrap_err().reason());
        check(out.spawn_with(child(), wrong().link()).unwrap_err().reason());
        check(out.spawn_with(child(), wrong().link().report_started()).unwrap_err().reason());
        Ok(Step::Done(()))
    }));
    output(&spawner.unwrap());
}

/// A child that is restarted in place shows its own type at all times.
#[test]
fn a_child_that_is_restarted_in_place_shows_its_own_type() {
    let (clock, watcher) = (ManualClock::new(), TypeNames::default());
    let runtime = builder().workers(2).clock(clock.clock()).observer(watcher.clone()).start().unwrap();
    let heard = Log::new();
    let spec = ChildSpec::in_place("frail", move || Frail::new(1, &heard)).restart(Restart::Transient);
    let builder = Supervisor::builder().backoff(Backoff::exponential(SECOND, SECOND));
    let boss = supervise(&runtime, builder.child(spec).build().unwrap());
    let (pid, name) = (boss.pid("frail"), std::any::type_name::<Frail>());
    assert_eq!(runtime.process(pid).unwrap().type_name, name);
    runtime.send(pid, Order::Fail).unwrap();
    until("it waits for its delay", || boss.child("frail").unwrap().state == ChildState::Delayed);
    assert_eq!(runtime.process(pid).unwrap().type_name, name, "also while it waits");
    clock.advance(SECOND);
    boss.restarted("frail", 1);
    assert_eq!(runtime.process(pid).unwrap().type_name, name);
    runtime.send(pid, Order::Done).unwrap();
    until("it has ended", || boss.child("frail").unwrap().state == ChildState::Down);
    boss.stop();
    assert_eq!(watcher.0.take().iter().filter(|(one, _)| *one == pid).cloned().collect::<Vec<_>>(), [(pid, name); 2]);
}

/// Writes down under which type each process begins and ends.
#[derive(Clone, Default)]
struct TypeNames(Log<(procession::Pid, &'static str)>);

impl procession::observe::Observer for TypeNames {
    fn spawned(&self, process: &procession::observe::ProcessIdentity) {
        self.0.push((process.pid, process.type_name));
    }

    fn exited(&self, process: &procession::observe::ProcessIdentity, _: &Exit) {
        self.0.push((process.pid, process.type_name));
    }
}

#[test]
fn a_driven_process_keeps_and_gives_back_as_in_a_runtime() {
    let (heard, kept) = (Log::new(), Log::new());
    let mut driver = Driver::new(Frail::new(3, &heard));
    let peer: procession::Pid = "<0.77.1>".parse().unwrap();
    let (keep, me) = (kept.clone(), driver.pid());
    driver.join_group("given", me);
    driver.message(Order::Do(Box::new(move |out| {
        out.monitor(peer);
        out.link(peer);
        out.trap_exits(true);
        out.subscribe("group");
        ["given", "given", "own", "own"].into_iter().for_each(|group| _ = out.join_group(group, me));
        out.leave_group("given", me);
        out.join_group("given", peer);
        out.after(SECOND);
        out.blocking(|| ());
        out.ask(peer.typed(), move |reply: procession::Reply<()>| keep.push(reply), SECOND);
    })));
    driver.run();
    assert_eq!(heard.take().len(), 6, "what it wanted of groups is done");
    assert_eq!((driver.monitors().len(), driver.links().len(), driver.outstanding().len()), (1, 1, 3));
    driver.message(Order::Fail).run();
    assert_eq!(driver.status(), Status::Idle);
    assert_eq!((driver.monitors().len(), driver.links().len(), driver.outstanding().len()), (0, 0, 0));
    assert!(!driver.traps_exits() && driver.subscriptions().is_empty());
    assert!(!kept.take().remove(0).send(()), "nobody waits for it");
    driver.advance(10 * SECOND).run();
    assert!(heard.take().is_empty());
    driver.message(Order::Do(Box::new(move |out| {
        out.after(SECOND);
        assert_eq!((out.group_members("given"), out.group_members("own")), (vec![me, peer], vec![]));
    })));
    assert_eq!(driver.run(), Status::Idle);
    driver.advance(SECOND).run();
    assert_eq!(heard.take(), ["2: completed"]);
    // Asked to stop, it does not recover.
    driver.cancel("enough").run();
    driver.message(Order::Fail);
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(driver.exit().unwrap().without_output().to_string(), "failed: frail");
}
