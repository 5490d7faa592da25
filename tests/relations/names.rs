//! Names of processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::names::{Member, NameError, NoSuchProcessError};
use procession::observe::{DeadLetter, DeadLetterReason, Observer};
use procession::sync::Latch;
use procession::{
    CommandError, Event, Events, Monitor, Pid, Reply, Runtime, SendError, SpawnOptions, Step, StepOutput, Tag,
};

use crate::helpers::*;
use crate::support::node::*;

#[test]
fn a_process_has_several_names_and_others_cannot_take_them() {
    let runtime = runtime(1);
    let (one, other) = (node_with(&runtime, SpawnOptions::new().name("first")), node(&runtime));
    runtime.register("second", one.pid()).unwrap();
    runtime.register("second", one.pid()).unwrap();
    let taken = runtime.register("second", other.pid()).unwrap_err();
    assert_eq!(taken, NameError::Taken { name: "second".into(), holder: one.pid() });
    assert_eq!(taken.to_string(), format!("the name \"second\" is taken by {}", one.pid()));
    let info = runtime.process(one.pid()).unwrap();
    assert_eq!((info.name.as_deref(), info.names), (Some("first"), vec!["first".into(), "second".into()]));
    assert_eq!((runtime.whereis("first"), runtime.whereis("second")), (Some(one.pid()), Some(one.pid())));
    assert_eq!(runtime.unregister("first"), Some(one.pid()));
    assert_eq!((runtime.unregister("first"), runtime.whereis("first")), (None, None));
    runtime.register("first", other.pid()).unwrap();
    one.ends(&runtime, Way::Done);
    until("its names are free", || runtime.whereis("second").is_none());
    assert_eq!(runtime.whereis("first"), Some(other.pid()), "the one that it had given back");
}

#[test]
fn names_of_two_runtimes_have_nothing_to_do_with_each_other() {
    let (here, there) = (runtime(1), runtime(1));
    let (one, other) = (node(&here), node(&there));
    here.register("same", one.pid()).unwrap();
    there.register("same", other.pid()).unwrap();
    assert_eq!((here.whereis("same"), there.whereis("same")), (Some(one.pid()), Some(other.pid())));
}

#[test]
fn a_name_for_an_absent_process_and_an_empty_name_are_errors() {
    let runtime = builder().workers(1).node(5).start().unwrap();
    let ended = node(&runtime);
    ended.ends(&runtime, Way::Done);
    for pid in [ended.pid(), "<5.4000000.1>".parse().unwrap(), "<6.0.1>".parse().unwrap()] {
        assert_eq!(runtime.register("late", pid), Err(NameError::NoSuchProcess(NoSuchProcessError::Pid(pid))));
    }
    assert_eq!(runtime.register("", node(&runtime).pid()), Err(NameError::Empty));
    assert_eq!(runtime.whereis("late"), None);
    runtime.register("late", node(&runtime).pid()).unwrap();
}

/// Takes names by yields, and says how that was answered.
#[test]
fn a_process_takes_and_gives_back_names_by_commands() {
    let runtime = runtime(1);
    let holder = node_with(&runtime, SpawnOptions::new().name("taken"));
    let (mut asked, mut told) = (None, Vec::new());
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let me = out.pid();
        let (taken, own, back, nobodys) = *asked.get_or_insert_with(|| {
            (out.register("taken", me), out.register("own", me), out.unregister("own"), out.unregister("own"))
        });
        for event in events {
            let Event::Completed(done) = event else { continue };
            if let Some(answer) = done.take(taken) {
                let error = answer.unwrap_err();
                let error = error.downcast_ref::<NameError>().unwrap().clone();
                told.push(format!("{error}"));
            }
            if let Some(answer) = done.take(own) {
                told.push(format!("{:?}", answer.unwrap()));
            }
            for tag in [back, nobodys] {
                if let Some(answer) = done.take(tag) {
                    told.push(format!("{}", answer.unwrap().is_some()));
                }
            }
        }
        Ok(if told.len() == 4 { Step::Done(told.clone()) } else { Step::Wait })
    }));
    let taken = format!("the name \"taken\" is taken by {}", holder.pid());
    assert_eq!(*output(&process.unwrap()), [taken.as_str(), "()", "true", "false"]);
}

/// The process that gets the down event takes the name at once, again and again.
#[test]
fn names_are_free_before_those_who_monitor_are_told() {
    for spawned_with_it in [false, true] {
        let runtime = runtime(2);
        let mut successes = 0;
        let successor = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events {
                if let Event::Down(down) = event {
                    assert!(down.exit.is_done(), "{}", down.exit);
                    assert_eq!(out.whereis("office"), None, "it is free when its holder's end is told");
                    successes += 1;
                }
            }
            if successes == 200 {
                return Ok(Step::Done(()));
            }
            // It holds the name from its birth, or takes it in its first step.
            let child = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                if !spawned_with_it && !events.any(|event| matches!(event, Event::Completed(_))) {
                    out.register("office", out.pid());
                    return Ok(Step::Wait);
                }
                Ok(Step::Done(()))
            });
            let options = SpawnOptions::new();
            out.spawn_with(child, if spawned_with_it { options.name("office") } else { options }.monitor())?;
            Ok(Step::Idle)
        });
        output(&runtime.spawn(successor).unwrap());
    }
}

enum Bank {
    Deposit(u64),
    Read(Reply<u64>),
}

fn bank() -> impl procession::Process<Message = Bank, Output = u64> {
    let mut total = 0;
    script(move |events: &mut Events<'_, Bank>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Bank::Deposit(amount)) => total += amount,
                Event::Message(Bank::Read(reply)) => out.reply(reply, total),
                Event::Cancel(_) => return Ok(Step::Done(total)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn every_call_takes_a_name_and_a_message_to_nobody_comes_back() {
    let runtime = runtime(1);
    let bank = runtime.spawn_with(bank(), SpawnOptions::new().name("bank")).unwrap();
    runtime.send("bank", Bank::Deposit(5)).unwrap();
    runtime.send_timeout("bank", Bank::Deposit(2), LIMIT).wait().unwrap();
    assert_eq!(runtime.ask("bank", Bank::Read, LIMIT).wait().unwrap(), 7);
    assert!(runtime.is_alive("bank") && runtime.process_state("bank").is_some());
    assert_eq!(runtime.process("bank").unwrap().pid, bank.pid());
    runtime.register("house", "bank").unwrap();
    runtime.join_group("all", "bank").unwrap();
    assert_eq!(runtime.group_members("all"), [bank.pid()]);
    assert!(runtime.leave_group("all", "bank"));
    let watch = runtime.watch("house");
    assert_eq!(runtime.send("bank", 7_u8).unwrap_err().into_inner(), 7, "of another type: the message comes back");
    assert!(runtime.cancel_timeout("bank", "closing", LIMIT).unwrap());
    assert_eq!(*output(&bank), 7);
    assert!(watch.wait_timeout(LIMIT).is_ok());

    let back = runtime.send("bank", String::from("hello")).unwrap_err();
    let no = NoSuchProcessError::Name("bank".into());
    assert_eq!(back.reason(), &SendError::NoSuchProcess(no.clone()));
    assert_eq!(back.to_string(), "no process has the name \"bank\"");
    assert_eq!(back.into_inner(), "hello");
    assert_eq!(runtime.send_timeout("bank", 3_u8, LIMIT).wait().unwrap_err().into_inner(), 3);
    let asked = runtime.ask("bank", Bank::Read, LIMIT).wait();
    assert!(matches!(asked, Err(CommandError::NoSuchProcess(why)) if why == no));
    assert_eq!((runtime.cancel("bank", "x"), runtime.terminate("bank")), (Err(no.clone()), Err(no.clone())));
    assert!(runtime.watch("bank").wait_timeout(LIMIT).unwrap().is_no_such_process());
    assert!(!runtime.is_alive("bank") && runtime.process("bank").is_none() && runtime.process_state("bank").is_none());
    assert_eq!(runtime.register("more", "bank"), Err(NameError::NoSuchProcess(no)));
    assert!(!runtime.leave_group("all", "bank") && runtime.join_group("all", "bank").is_err());
}

#[test]
fn every_call_takes_a_handle_and_each_form_of_a_name() {
    let runtime = runtime(1);
    let log = Log::new();
    let options = || SpawnOptions::new().name("listener");
    let listener = runtime.spawn_with(recorder::<u32>(&log), options()).unwrap();
    let (owned, shared) = (String::from("listener"), std::sync::Arc::<str>::from("listener"));
    runtime.send(&listener, 1).unwrap();
    runtime.send(listener.address(), 2).unwrap();
    runtime.send(listener.pid(), 3_u32).unwrap();
    runtime.send(&owned, 4_u32).unwrap();
    runtime.send(&shared, 5_u32).unwrap();
    runtime.send(shared, 6_u32).unwrap();
    until("all are stepped", || log.len() == 6);
    assert_eq!(log.take(), [1, 2, 3, 4, 5, 6]);
    assert!(runtime.is_alive(&listener) && runtime.cancel(&listener, "enough").unwrap());
}

#[test]
fn the_members_of_a_group_are_addressed_in_turn() {
    let runtime = runtime(1);
    let logs = [(); 3].map(|()| Log::new());
    let members = logs.each_ref().map(|log| runtime.spawn(recorder::<u32>(log)).unwrap());
    let none = runtime.send(Member("group"), 0_u32).unwrap_err();
    assert_eq!(none.to_string(), "the group \"group\" has no members");
    members.iter().for_each(|member| runtime.join_group("group", member).unwrap());
    // Twice in it: its turn is one.
    runtime.join_group("group", &members[0]).unwrap();
    (0..6_u32).for_each(|n| runtime.send(Member("group"), n).unwrap());
    until("all are stepped", || logs.iter().map(Log::len).sum::<usize>() == 6);
    assert_eq!(logs.each_ref().map(Log::take), [[0, 3], [1, 4], [2, 5]]);
    // The one whose turn was last leaves, and the turns go on with the others.
    assert!(runtime.leave_group("group", &members[2]));
    let sends = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        (6..8_u32).for_each(|n| out.send(Member("group"), n));
        Ok(Step::Done(()))
    });
    output(&runtime.spawn(sends).unwrap());
    until("all are stepped", || logs.iter().map(Log::len).sum::<usize>() == 2);
    assert_eq!(logs.each_ref().map(Log::take), [vec![6], vec![7], vec![]]);
}

#[test]
fn every_yield_takes_a_name_and_what_is_for_nobody_is_accounted_for() {
    let letters = Log::new();
    let runtime = Runtime::builder().workers(1).observer(DeadNames(letters.clone())).start().unwrap();
    let log = Log::new();
    let listener = runtime.spawn_with(recorder::<u32>(&log), SpawnOptions::new().name("listener")).unwrap();
    let pid = listener.pid();
    let victim = runtime.spawn_with(sink::<()>(), SpawnOptions::new().name("victim")).unwrap();
    let mut refused = Vec::new();
    let mut asked: Option<[Tag<bool>; 3]> = None;
    let mut others: Option<(Tag<()>, Tag<()>, Monitor)> = None;
    let process = runtime.spawn_with(
        script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if asked.is_none() {
                out.send("listener", 7_u32);
                assert_eq!(out.monitor("victim").pid(), out.whereis("victim").unwrap());
                out.link("victim");
                out.link("listener");
                out.unlink("listener");
                out.register("further", "listener");
                out.join_group("group", "listener");
                out.leave_group("group", "listener");
                out.ask("listener", |_: Reply<()>| 8_u32, Duration::ZERO);
                out.cancel("victim", "stop");
                out.terminate("victim");
                out.cancel_timeout("victim", "stop", Duration::ZERO);
                // The same for a name that nobody has.
                out.send("nobody", 9_u32);
                out.send(Member("nowhere"), "text");
                let limit = Duration::from_secs(1);
                asked = Some([
                    out.terminate("nobody"),
                    out.cancel("nobody", "x"),
                    out.cancel_timeout("nobody", "x", limit),
                ]);
                let question = out.ask("nobody", |reply: Reply<()>| reply, limit);
                others = Some((question, out.register("more", "nobody"), out.monitor("nobody")));
                out.unlink("nobody");
            }
            let (question, register, monitor) = others.unwrap();
            for event in events {
                match event {
                    Event::Completed(done) => {
                        let commands = asked.iter().flatten().filter_map(|tag| done.take(*tag)?.err());
                        let more = [question, register].into_iter().filter_map(|tag| done.take(tag)?.err());
                        refused.extend(commands.chain(more).map(|why| why.to_string()));
                    }
                    Event::Down(down) if down.monitor == monitor => assert!(down.is_no_such_process()),
                    _ => {}
                }
            }
            Ok(if refused.len() == 5 { Step::Done(std::mem::take(&mut refused)) } else { Step::Idle })
        }),
        SpawnOptions::new().trap_exits(),
    );
    let refused = output(&process.unwrap());
    let no = "no process has the name \"nobody\"";
    assert_eq!(*refused, [no, no, no, no, &format!("failed: {no}")]);
    join(&victim);
    until("all is stepped", || log.len() == 2);
    assert_eq!(log.take(), [7, 8]);
    assert_eq!(runtime.whereis("further"), Some(pid));
    assert_eq!(letters.take(), [("nobody".into(), "u32"), ("nowhere".into(), "&str")]);
    assert_accounted(&runtime);
}

/// Writes down the dead letters that were sent to a name.
struct DeadNames(Log<(String, &'static str)>);

impl Observer for DeadNames {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        if let (DeadLetterReason::NoSuchName, Some(name)) = (letter.reason, letter.name) {
            self.0.push((name.into(), letter.type_name));
        }
    }
}

/// Eight threads take names for processes that end at random moments, and look them up.
#[test]
fn no_name_has_two_holders_or_is_left_over_in_a_race() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const ROUNDS: u64 = 400;
    for seed in [1_u64, 2, 3] {
        let runtime = runtime(2);
        // How many hold each name, by their own account: from when it is theirs until they give it back or end.
        let held: HashMap<&str, AtomicUsize> = NAMES.iter().map(|name| (*name, AtomicUsize::new(0))).collect();
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (runtime, held) = (runtime.clone(), &held);
                scope.spawn(move || {
                    let mut random = seed * 1_000 + thread;
                    for _ in 0..ROUNDS {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let name = NAMES[(random >> 33) as usize % NAMES.len()];
                        let process = runtime.spawn(sink::<()>()).unwrap();
                        match runtime.register(name, process.pid()) {
                            Ok(()) => {
                                assert_eq!(held[name].fetch_add(1, Ordering::SeqCst), 0, "{name} has one holder");
                                assert_eq!(runtime.whereis(name), Some(process.pid()));
                                held[name].fetch_sub(1, Ordering::SeqCst);
                                if random >> 60 == 0 {
                                    assert_eq!(runtime.unregister(name), Some(process.pid()));
                                }
                            }
                            Err(NameError::Taken { holder, .. }) => assert_ne!(holder, process.pid()),
                            Err(other) => panic!("{other}"),
                        }
                        // Taken while it ends.
                        runtime.terminate(process.pid()).unwrap();
                        let second = NAMES[(random >> 40) as usize % NAMES.len()];
                        let _ = runtime.register(second, process.pid());
                    }
                });
            }
        });
        until("all have ended", || runtime.stats().processes == 0);
        until("all rests", || runtime.is_idle());
        assert!(NAMES.iter().all(|name| runtime.whereis(name).is_none()), "no name is left over");
    }
}

#[test]
fn a_name_is_held_until_its_holder_has_ended() {
    let runtime = runtime(2);
    let blocker = Blocker::new();
    let holder = runtime.spawn_with(BlocksInClose(blocker.blocked()), SpawnOptions::new().name("first")).unwrap();
    let (pid, other) = (holder.pid(), node(&runtime));
    runtime.register("second", pid).unwrap();
    runtime.terminate(pid).unwrap();
    blocker.wait_begun();
    // It is not stepped any more, and has not ended: nobody else may have its names.
    for name in ["first", "second"] {
        assert_eq!(runtime.whereis(name), Some(pid));
        let taken = NameError::Taken { name: name.into(), holder: pid };
        assert_eq!(runtime.register(name, other.pid()), Err(taken));
    }
    blocker.release();
    join(&holder);
    for name in ["first", "second"] {
        runtime.register(name, other.pid()).unwrap();
    }
}

#[test]
fn an_upgrade_leaves_the_names_of_the_process_as_they_are() {
    let runtime = runtime(2);
    let (upgraded, other) = (Latch::new(), node(&runtime));
    let go = upgraded.clone();
    let process = script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        let go = go.clone();
        Ok(match events.next() {
            None => Step::Idle,
            Some(_) => Step::Upgrade(procession::Upgrade::to(script(
                move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
                    let _ = go.set(());
                    Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
                },
            ))),
        })
    });
    let process = runtime.spawn_with(process, SpawnOptions::new().name("born")).unwrap();
    runtime.register("kept", process.pid()).unwrap();
    // It gives the name that it was born with to another.
    assert_eq!(runtime.unregister("born"), Some(process.pid()));
    runtime.register("born", other.pid()).unwrap();
    runtime.send(process.address(), ()).unwrap();
    wait(&upgraded);
    assert_eq!((runtime.whereis("born"), runtime.whereis("kept")), (Some(other.pid()), Some(process.pid())));
    runtime.send(process.address(), ()).unwrap();
    output(&process);
}

#[test]
fn a_name_that_is_taken_in_the_last_step_is_free_afterwards() {
    let runtime = runtime(2);
    for _ in 0..200 {
        let process = runtime.spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.register("last", out.pid());
            Ok(Step::Done(()))
        }));
        join(&process.unwrap());
        assert_eq!(runtime.whereis("last"), None);
    }
}

#[test]
fn a_driven_process_finds_names_and_groups() {
    use procession::testing::Driver;
    let (pid, gate): (Pid, Latch<()>) = ("<0.77.1>".parse().unwrap(), Latch::new());
    let set = gate.clone();
    let mut driver = Driver::new(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send("peer", 1_u32);
        assert_eq!(out.broadcast("peers", 2_u32), 2);
        assert_eq!(out.broadcast("nobody", 3_u32), 0);
        out.subscribe("peers");
        let _ = set.set(());
        Ok(Step::<()>::Idle)
    }));
    let other: Pid = "<0.5.1>".parse().unwrap();
    driver.name("peer", pid).join_group("peers", pid).join_group("peers", pid).join_group("peers", other);
    driver.run();
    assert!(gate.is_set());
    let sent: Vec<_> = std::iter::from_fn(|| driver.sent::<u32>().ok()).collect();
    assert_eq!(sent, [(pid, 1), (other, 2), (pid, 2)]);
    assert_eq!(driver.subscriptions()[0].group(), "peers");
}
