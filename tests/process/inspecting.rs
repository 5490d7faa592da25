//! F. Seeing inside.

use std::error::Error;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::{DeadLetter, DeadLetterReason, Observer, ProcessState};
use procession::{Event, Events, Pid, SpawnOptions, Step, StepOutput};

use crate::helpers::*;

#[test]
fn all_processes_can_be_listed_with_what_they_are_doing() {
    let manual = ManualClock::new();
    let runtime = builder().workers(2).clock(manual.clock()).exact_step_times().start().unwrap();
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let busy = script(move |_: &mut Events<'_, u32>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::Done(()))
    });
    let idle = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().name("idler")).unwrap();
    let waiting = runtime
        .spawn(script(|_: &mut Events<'_, u32>, out: &mut StepOutput| {
            out.after(Duration::from_secs(3_600));
            Ok::<Step<()>, procession::BoxError>(Step::Wait)
        }))
        .unwrap();
    until("both rest", || {
        runtime.process_state(idle.pid()) == Some(ProcessState::Idle)
            && runtime.process_state(waiting.pid()) == Some(ProcessState::Blocked)
    });
    manual.advance(Duration::from_secs(5));
    let busy = runtime.spawn(busy).unwrap();
    blocker.wait_begun();
    (0..3).for_each(|n| runtime.send(busy.address(), n).unwrap());
    (0..2).for_each(|n| runtime.send(waiting.address(), n).unwrap());
    manual.advance(Duration::from_secs(7));

    let mut all = runtime.processes();
    all.sort_by_key(|info| info.pid);
    assert_eq!(all.len(), 3);
    let find = |pid| all.iter().find(|info| info.pid == pid).unwrap();
    let (idler, waiter, worker) = (find(idle.pid()), find(waiting.pid()), find(busy.pid()));
    assert_eq!((idler.name.as_deref(), idler.state, idler.mailbox), (Some("idler"), ProcessState::Idle, 0));
    assert_eq!((waiter.name.as_deref(), waiter.state, waiter.mailbox), (None, ProcessState::Blocked, 2));
    assert_eq!((worker.state, worker.mailbox, worker.steps), (ProcessState::Running, 3, 0));
    assert_eq!((idler.steps, waiter.steps), (1, 1));
    let is_about = |age: Duration, seconds| age.abs_diff(Duration::from_secs(seconds)) < Duration::from_millis(2);
    assert!(is_about(idler.age, 12) && is_about(worker.age, 7), "{:?}, {:?}", idler.age, worker.age);
    assert_eq!((idler.in_step, worker.in_step), (None, Some(Duration::from_secs(7))));
    assert!(worker.type_name.contains("Script"), "{}", worker.type_name);
    assert_eq!(runtime.process(idle.pid()).unwrap().state, ProcessState::Idle);
    blocker.release();
    output(&busy);
    assert!(runtime.process(busy.pid()).is_none());
    assert_eq!(runtime.process_state(busy.pid()), Some(ProcessState::Complete));
    assert_eq!(runtime.process_state("<0.3.9>".parse::<Pid>().unwrap()), None);
}

#[test]
fn a_process_that_waits_for_its_turn_is_ready() {
    let runtime = runtime(1);
    let (_, blocker) = hold_up(&runtime);
    let ready = runtime.spawn(sink::<()>()).unwrap();
    assert_eq!(runtime.process_state(ready.pid()), Some(ProcessState::Ready));
    assert_eq!(runtime.stats().global_queue, 1);
    blocker.release();
}

#[test]
fn the_lengths_of_the_queues_are_those_of_what_waits() {
    let runtime = builder().workers(2).blocking_threads(1).start().unwrap();
    // One worker is held with nothing behind it. The other one is held by one of six children, with the other five
    // behind it.
    let (alone, first) = hold_up(&runtime);
    let second = Blocker::new();
    let mut children: Vec<_> = (0..6).map(|_| holder(second.blocked())).collect();
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        for child in children.drain(..) {
            out.spawn(child)?;
        }
        Ok(Step::Done(()))
    });
    let parent = runtime.spawn(parent).unwrap();
    second.wait_begun();
    (0..3).for_each(|_| drop(runtime.spawn(sink::<()>()).unwrap()));
    let queues = || runtime.stats().workers.iter().map(|worker| worker.queue).collect::<Vec<_>>();
    let mut own = queues();
    own.sort_unstable();
    assert_eq!((own, runtime.stats().global_queue), (vec![0, 5], 3));
    first.release();
    second.release();
    output(&alone);
    output(&parent);
    until("all but the three have ended", || runtime.stats().processes == 3 && runtime.is_idle());
    assert_eq!((queues(), runtime.stats().global_queue), (vec![0, 0], 0));

    // One thread for blocking work, which is held by the first of three.
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let asks = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let answered = events.count();
        if answered == 0 {
            let blocked = blocked.clone();
            out.blocking(move || blocked.wait());
            out.blocking(|| ());
            out.blocking(|| ());
            return Ok(Step::Wait);
        }
        Ok(Step::Done(()))
    });
    let asks = runtime.spawn(asks).unwrap();
    blocker.wait_begun();
    until("all three are given to the pool", || runtime.is_alive(asks.pid()) && runtime.stats().blocking_queue == 2);
    blocker.release();
    output(&asks);
    until("the rest is done", || runtime.stats().blocking_queue == 0);
}

#[test]
fn the_counts_say_what_has_happened() {
    let runtime = runtime(2);
    let over = |fails: u8| {
        script(move |_: &mut Events<'_, u32>, out: &mut StepOutput| {
            out.send("<0.9.9>".parse::<Pid>()?, 1_u32);
            match fails {
                0 => Ok(Step::Done(())),
                1 => Err("no".into()),
                _ => panic!("no"),
            }
        })
    };
    let ended: Vec<_> = [0, 0, 0, 1, 1, 2].into_iter().map(|fails| runtime.spawn(over(fails)).unwrap()).collect();
    ended.iter().for_each(|process| drop(join(process)));
    let kept = runtime.spawn(sink::<u32>()).unwrap();
    (0..4).for_each(|n| runtime.send(kept.address(), n).unwrap());
    until("all is stepped, and the last step over", || {
        let messages = runtime.stats().messages;
        (messages.stepped, messages.queued) == (4, 0)
    });
    let stats = runtime.stats();
    assert_eq!((stats.processes, stats.spawned, stats.ended.total()), (1, 7, 6));
    assert_eq!((stats.ended.done, stats.ended.failed, stats.ended.panicked, stats.ended.terminated), (3, 2, 1, 0));
    let messages = &stats.messages;
    assert_eq!((messages.accepted, messages.stepped, messages.dead(), messages.queued), (7, 4, 3, 0));
    assert_eq!(messages.dead_by_reason[&DeadLetterReason::NoSuchProcess], 3);
    assert_eq!(stats.workers.len(), 2);
    assert!(stats.workers.iter().map(|worker| worker.steps).sum::<u64>() >= 8);
}

#[test]
fn a_hook_sees_spawns_exits_and_dead_letters_and_its_panics_are_contained() {
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let (process, other) = (runtime.spawn(sink::<u32>()).unwrap(), "<0.9.9>".parse().unwrap());
    let child = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(other, "lost");
        Ok(Step::Done(()))
    }));
    let child = child.unwrap();
    output(&child);
    runtime.terminate(process.pid()).unwrap();
    join(&process);
    assert_eq!(watcher.spawned.take(), [process.pid(), child.pid()]);
    let exits = [(child.pid(), "done".into()), (process.pid(), String::from("terminated (terminated)"))];
    assert_eq!(watcher.exits.take(), exits);
    assert_eq!(watcher.dead.take(), [(other, Some(child.pid()), DeadLetterReason::NoSuchProcess)]);

    struct Grumpy(Log<&'static str>);
    impl Observer for Grumpy {
        fn spawned(&self, _: &procession::observe::ProcessIdentity) {
            panic!("no visitors")
        }

        fn exited(&self, _: &procession::observe::ProcessIdentity, _: &procession::Exit) {
            panic!("no leaving")
        }

        fn dead_letter(&self, letter: &DeadLetter<'_>) {
            self.0.push(letter.message::<&str>().unwrap());
            panic!("no mail")
        }
    }
    let log = Log::new();
    let runtime = builder().workers(1).thread_name("procession-grumpy").observer(Grumpy(log.clone())).start().unwrap();
    let process = std::thread::Builder::new().name("procession-test".into()).spawn(move || {
        let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.send(other, "lost");
            Ok(Step::Done(()))
        }));
        output(&process.unwrap());
    });
    wait(process.unwrap()).unwrap();
    assert_eq!(log.take(), ["lost"]);
}

#[test]
fn errors_can_be_shared_and_have_their_sources() {
    fn shareable<E: Error + Send + Sync + 'static>() {}
    shareable::<procession::config::BuildError>();
    shareable::<procession::SpawnError>();
    shareable::<procession::SendError>();
    shareable::<procession::CommandError>();
    shareable::<procession::spawn::EntryError>();
    shareable::<procession::ExitError>();
    shareable::<procession::ShutdownError>();
    shareable::<procession::names::NoSuchProcessError>();
    shareable::<procession::names::ParsePidError>();
    shareable::<procession::observe::WaitedForNothing>();
    shareable::<procession::pool::PoolError>();
    shareable::<procession::Rejected<std::cell::Cell<u8>, procession::SendError>>();
    let runtime = runtime(1);
    let process =
        runtime.spawn(script(
            |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                if true { Err(std::io::Error::other("disk").into()) } else { Ok(Step::Done(())) }
            },
        ));
    let error = join(&process.unwrap()).into_result().unwrap_err();
    let source = error.source().unwrap();
    assert_eq!((error.to_string(), source.to_string()), ("it failed: disk".into(), String::from("disk")));
}

#[test]
fn an_event_can_be_debugged() {
    let runtime = runtime(1);
    let log = Log::new();
    let seen = log.clone();
    let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        for event in events {
            let last = matches!(event, Event::Cancel(_));
            seen.push(format!("{event:?}"));
            if last {
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    });
    let process = runtime.spawn(process).unwrap();
    runtime.send(process.address(), 7).unwrap();
    until("it is stepped", || log.len() == 1);
    runtime.cancel(process.pid(), "enough").unwrap();
    output(&process);
    assert_eq!(log.take(), ["Message(7)", "Cancel(CancelRequest { reason: Other(\"enough\"), deadline: None })"]);
}
