//! B. PIDs and the router.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use procession::names::NoSuchProcessError;
use procession::observe::{DeadLetter, DeadLetterReason, Observer, ProcessState};
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{
    Address, CommandError, Event, Events, Pid, Reply, SendError, SpawnOptions, Step, StepOutput, Upgrade,
};

use crate::helpers::*;

fn over() -> impl procession::Process<Message = u32, Output = ()> {
    script(|_: &mut Events<'_, u32>, _: &mut StepOutput| Ok(Step::Done(())))
}

#[test]
fn pids_are_never_given_twice_though_slots_are() {
    let runtime = builder().workers(2).max_processes(8).start().unwrap();
    let (mut pids, mut slots) = (HashSet::new(), HashSet::new());
    for _ in 0..2_000 {
        let handle = runtime.spawn(over()).unwrap();
        assert!(pids.insert(handle.pid()), "{} again", handle.pid());
        slots.insert(handle.pid().slot());
        output(&handle);
    }
    assert!(slots.len() <= 8, "{slots:?}");
}

#[test]
fn a_pid_that_a_failed_step_has_shown_is_given_to_nobody() {
    let (runtime, shown) = (runtime(1), Log::new());
    for _ in 0..100 {
        let show = shown.clone();
        let liar = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            show.push(out.spawn(over())?.pid());
            if true { Err("never mind".into()) } else { Ok(Step::Done(())) }
        }));
        join(&liar.unwrap());
    }
    let shown: HashSet<Pid> = shown.take().into_iter().collect();
    assert_eq!(shown.len(), 100);
    for _ in 0..500 {
        let handle = runtime.spawn(over()).unwrap();
        assert!(!shown.contains(&handle.pid()));
        output(&handle);
    }
    for pid in shown {
        assert!(runtime.send(pid, 1_u32).is_err());
    }
}

#[test]
fn two_runtimes_do_not_know_each_others_processes() {
    let start = |seed| builder().workers(1).seed(seed).start().unwrap();
    // Each has drawn its own number; with these seeds, always the same ones.
    let (one, two) = (start(1), start(2));
    let (log_one, log_two) = (Log::<u32>::new(), Log::<u32>::new());
    let (a, b) = (one.spawn(recorder(&log_one)).unwrap(), two.spawn(recorder(&log_two)).unwrap());
    assert_ne!(one.node(), two.node());
    assert_ne!(a.pid(), b.pid());
    assert!(one.send(b.address(), 1).is_err());
    assert!(two.send(a.address(), 2).is_err());
    assert_eq!(one.process_state(b.pid()), None);
    assert_eq!(two.cancel(a.pid(), "no"), Err(NoSuchProcessError::Pid(a.pid())));
    one.send(a.address(), 3).unwrap();
    until("it has arrived", || log_one.len() == 1);
    assert_eq!((log_one.take(), log_two.take()), (vec![3], vec![]));
}

#[test]
fn a_message_to_nobody_comes_back_and_from_a_process_it_is_a_dead_letter() {
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let gone = runtime.spawn(over()).unwrap();
    output(&gone);
    let never: Address<String> = Pid::typed(gone.pid().to_string().replace(".1>", ".99>").parse().unwrap());
    let refused = runtime.send(gone.address(), 7).unwrap_err();
    assert_eq!(refused.reason(), &SendError::NoSuchProcess(NoSuchProcessError::Pid(gone.pid())));
    assert!(refused.to_string().contains(&gone.pid().to_string()));
    assert_eq!(refused.into_inner(), 7);
    assert_eq!(runtime.send(never, String::from("hello")).unwrap_err().into_inner(), "hello");
    assert_eq!(runtime.stats().messages.accepted, 0);

    let to = gone.pid();
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, 8_u32);
        out.send(never, String::from("hello"));
        Ok(Step::Done(out.pid()))
    }));
    let from = *output(&process.unwrap());
    let letter = |to| (to, Some(from), DeadLetterReason::NoSuchProcess);
    assert_eq!(watcher.dead.take(), [letter(to), letter(never.pid())]);
    assert_accounted(&runtime);
}

#[test]
fn a_message_never_reaches_the_successor_in_the_slot() {
    // One slot for the processes under test, and a sender that never stops. Each message carries the PID it is meant
    // for.
    let runtime = Arc::new(builder().workers(2).max_processes(2).start().unwrap());
    let (current, stop) = (Arc::new(Mutex::new(None::<Pid>)), Arc::new(AtomicBool::new(false)));
    let sent = Arc::new(AtomicUsize::new(0));
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let (runtime, current, stop, sent) = (runtime.clone(), current.clone(), stop.clone(), sent.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let pid = *current.lock().unwrap();
                    if let Some(pid) = pid
                        && runtime.send(pid, pid).is_ok()
                    {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut steps = 0;
        let mut seen = 0_usize;
        let process = script(move |events: &mut Events<'_, Pid>, out: &mut StepOutput| {
            for event in events {
                if let Event::Message(meant_for) = event {
                    assert_eq!(meant_for, out.pid());
                    seen += 1;
                }
            }
            steps += 1;
            Ok(if steps == 3 { Step::Done(seen) } else { Step::Continue })
        });
        let handle = runtime.spawn(process).unwrap();
        *current.lock().unwrap() = Some(handle.pid());
        taken += *output(&handle);
    }
    stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| wait(sender).unwrap());
    let messages = runtime.stats().messages;
    assert_eq!(messages.accepted as usize, sent.load(Ordering::Relaxed));
    assert_eq!(messages.stepped as usize, taken);
    assert_accounted(&runtime);
}

#[test]
fn a_message_of_the_wrong_type_names_both_types_and_harms_nobody() {
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let log = Log::<u32>::new();
    let receiver = runtime.spawn(recorder(&log)).unwrap();
    let refused = runtime.send(receiver.pid(), String::from("text")).unwrap_err();
    let expected = SendError::WrongType { pid: receiver.pid(), takes: "u32", sent: "alloc::string::String" };
    assert_eq!(refused.reason(), &expected);
    assert_eq!(refused.into_inner(), "text");
    let to = receiver.pid();
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, "text");
        out.send(to, 1_u32);
        Ok(Step::Done(out.pid()))
    }));
    let from = *output(&process.unwrap());
    until("the right one has arrived", || log.len() == 1);
    assert_eq!(watcher.dead.take(), [(to, Some(from), DeadLetterReason::WrongType)]);
    assert_eq!(log.take(), [1]);
    assert_accounted(&runtime);
}

#[test]
fn calls_of_a_wrong_type_name_both_types_and_change_nothing() {
    for options in [SpawnOptions::new(), SpawnOptions::new().mailbox(2, Overflow::Refuse)] {
        let (runtime, log) = (runtime(1), Log::<u32>::new());
        // One message waits while the others are refused.
        let (holder, blocker) = hold_up(&runtime);
        let receiver = runtime.spawn_with(recorder(&log), options.name("typed")).unwrap();
        let pid = receiver.pid();
        runtime.send(pid, 1_u32).unwrap();
        let expected = SendError::WrongType { pid, takes: "u32", sent: "i64" };
        let refused = [
            runtime.send(pid, 7_i64),
            runtime.send(pid.typed(), 7_i64),
            runtime.send_timeout(pid.typed(), 7_i64, LIMIT).wait(),
            runtime.send("typed", 7_i64),
            runtime.send_timeout("typed", 7_i64, LIMIT).wait(),
        ];
        for refused in refused {
            let refused = refused.unwrap_err();
            assert_eq!(refused.reason(), &expected);
            let text = refused.to_string();
            assert!(text.contains("u32") && text.contains("i64"), "{text}");
            assert_eq!(refused.into_inner(), 7);
        }
        let asked = std::any::type_name::<Reply<()>>();
        let question = |reply: Reply<()>| reply;
        let errors = [
            runtime.ask(pid.typed(), question, LIMIT).wait().unwrap_err(),
            runtime.ask("typed", question, LIMIT).wait().unwrap_err(),
            block_on(runtime.ask(pid.typed(), question, LIMIT)).unwrap_err(),
        ];
        for error in errors {
            let CommandError::WrongType { pid: told, takes, sent } = error else { panic!("{error}") };
            assert_eq!((told, &*takes, &*sent), (pid, "u32", asked));
        }
        assert_eq!(runtime.process(pid).unwrap().mailbox, 1);
        assert_eq!((runtime.stats().messages.accepted, runtime.stats().messages.dead()), (1, 0));
        blocker.release();
        output(&holder);
        runtime.send_timeout(receiver.address(), 2, LIMIT).wait().unwrap();
        until("the right ones are stepped", || log.len() == 2);
        assert_eq!(log.take(), [1, 2]);
        assert_accounted(&runtime);
    }
}

/// Writes down what a dead letter is, and what its receiver takes.
#[derive(Clone)]
struct Types(Log<(DeadLetterReason, &'static str, Option<&'static str>)>);

impl Observer for Types {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.0.push((letter.reason, letter.type_name, letter.takes));
        assert!(format!("{letter:?}").contains(&format!("takes: {:?}", letter.takes)));
    }
}

#[test]
fn a_dead_letter_of_a_wrong_type_names_both_types() {
    let dead = Log::new();
    let runtime = builder().workers(1).observer(Types(dead.clone())).start().unwrap();
    let (bounded, go) = (SpawnOptions::new().mailbox(5, Overflow::Refuse), Latch::new());
    let gate = go.clone();
    // It is replaced by one that takes something else, when messages wait for it.
    let changes = script(move |_: &mut Events<'_, u32>, _: &mut StepOutput| {
        wait(&gate);
        Ok(Step::Upgrade(Upgrade::to(sink::<i8>())))
    });
    let changes = runtime.spawn(changes).unwrap();
    (0..2_u32).for_each(|n| runtime.send(changes.address(), n).unwrap());
    go.set(()).unwrap();
    until("they are dead", || dead.len() == 2);
    assert_eq!(dead.take(), [(DeadLetterReason::WrongType, "u32", Some("i8")); 2]);
    let (free, full) = (runtime.spawn(sink::<u32>()).unwrap(), runtime.spawn_with(sink::<u64>(), bounded).unwrap());
    let to = [free.pid(), full.pid(), changes.pid(), "<0.77.7>".parse().unwrap()];
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        to.into_iter().for_each(|to| out.send(to, true));
        out.ask(to[0].typed(), |reply: Reply<()>| Some(reply), LIMIT);
        Ok(Step::Done(()))
    }));
    output(&process.unwrap());
    let asked = std::any::type_name::<Option<Reply<()>>>();
    let expected = [
        (DeadLetterReason::WrongType, "bool", Some("u32")),
        (DeadLetterReason::WrongType, "bool", Some("u64")),
        (DeadLetterReason::WrongType, "bool", Some("i8")),
        (DeadLetterReason::NoSuchProcess, "bool", None),
        (DeadLetterReason::WrongType, asked, Some("u32")),
    ];
    assert_eq!(dead.take(), expected);
    assert_accounted(&runtime);
}

#[test]
fn each_of_a_hundred_thousand_processes_is_found_by_its_pid() {
    let runtime = runtime(2);
    let (count, done) = (Arc::new(AtomicUsize::new(0)), Latch::new());
    const PROCESSES: usize = 100_000;
    let handles: Vec<_> = (0..PROCESSES)
        .map(|n| {
            let (count, done) = (count.clone(), done.clone());
            let process = script(move |events: &mut Events<'_, usize>, _: &mut StepOutput| {
                for event in events {
                    match event {
                        Event::Message(told) => assert_eq!(told, n),
                        _ => return Ok(Step::Done(())),
                    }
                    if count.fetch_add(1, Ordering::Relaxed) + 1 == PROCESSES {
                        let _ = done.set(());
                    }
                }
                Ok(Step::Idle)
            });
            runtime.spawn(process).unwrap()
        })
        .collect();
    for (n, handle) in handles.iter().enumerate().rev() {
        runtime.send(handle.address(), n).unwrap();
    }
    wait(&done);
    assert_eq!(runtime.stats().messages.dead(), 0);
    until("its step is over", || runtime.process_state(handles[77].pid()) == Some(ProcessState::Idle));
}
