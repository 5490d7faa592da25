//! E. Ending: of a runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::Observer;
use procession::sync::Latch;
use procession::{
    EntryArgs, Event, Events, Exit, InitResult, Process, Reason, Reply, ShutdownError, SpawnError, SpawnOptions, Step,
    StepOutput, StepResult,
};

use crate::helpers::*;

/// Never stops by itself, whatever it is told.
fn stubborn() -> impl Process<Message = u32, Output = ()> {
    script(|events: &mut Events<'_, u32>, _: &mut StepOutput| {
        events.for_each(drop);
        Ok(Step::Idle)
    })
}

/// A step that does not return before it is let go.
fn stuck(blocked: Blocked) -> impl Process<Message = u32, Output = ()> {
    script(move |_: &mut Events<'_, u32>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::Idle)
    })
}

#[test]
fn shutdown_refuses_new_processes_waits_for_the_others_and_reports() {
    let manual = ManualClock::new();
    let runtime = builder().workers(2).clock(manual.clock()).start().unwrap();
    let polite: Vec<_> = (0..100).map(|_| runtime.spawn(sink::<u32>()).unwrap()).collect();
    let rude: Vec<_> = (0..10).map(|_| runtime.spawn(stubborn()).unwrap()).collect();
    let report = std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| runtime.shutdown(Duration::from_secs(10)).unwrap());
        polite.iter().for_each(|process| drop(output(process)));
        assert!(rude.iter().all(|process| !process.is_finished()), "the limit is not over");
        until("the others have ended altogether", || runtime.is_idle());
        advance_until("the limit is over", &manual, Duration::from_secs(1), || shutdown.is_finished());
        wait(shutdown).unwrap()
    });
    // A worker that the machine holds up just when it ends one of them makes that one stuck, for a moment.
    assert_eq!((report.ended, report.terminated + report.stuck.len()), (100, 10), "{report}");
    assert!(!report.is_clean());
    for process in &rude {
        assert!(matches!(join(process), Exit::Terminated(Reason::Shutdown)));
    }
    let refused = runtime.spawn(sink::<u32>()).unwrap_err();
    assert!(matches!(refused.reason(), SpawnError::ShuttingDown));
    assert!(runtime.send(polite[0].address(), 1).is_err());
}

#[test]
fn what_was_sent_before_the_shutdown_is_still_stepped() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        // The request to stop overtakes the messages in the mailbox. So the receiver is done only when it has them
        // all.
        let (mut seen, mut asked) = (0, false);
        let receiver = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(_) => seen += 1,
                    Event::Cancel(_) => asked = true,
                    _ => {}
                }
            }
            Ok(if asked && seen == 10_000 { Step::Done(seen) } else { Step::Idle })
        });
        let receiver = runtime.spawn(receiver).unwrap();
        (0..10_000).for_each(|n| runtime.send(receiver.address(), n).unwrap());
        let report = runtime.shutdown(LIMIT).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(*output(&receiver), 10_000);
        assert_accounted(&runtime);
    }
}

#[test]
fn a_process_may_spawn_no_child_during_a_shutdown_and_is_told_so() {
    let runtime = runtime(1);
    let parent = script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let Event::Cancel(request) = event {
                assert_eq!(request.reason, Reason::Shutdown);
                assert!(request.deadline.is_some());
                let refused = out.spawn(sink::<u32>()).unwrap_err();
                return Ok(Step::Done(matches!(refused.reason(), SpawnError::ShuttingDown)));
            }
        }
        Ok(Step::Idle)
    });
    let parent = runtime.spawn(parent).unwrap();
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    assert!(*output(&parent));
}

#[test]
fn a_process_whose_init_returns_too_late_is_handed_back_closed() {
    struct Late {
        blocked: Blocked,
        closed: Arc<AtomicUsize>,
    }
    impl Process for Late {
        type Message = ();
        type Output = ();

        fn init(&mut self, _: EntryArgs) -> InitResult {
            self.blocked.wait();
            Ok(())
        }

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }

        fn close(&mut self) {
            self.closed.fetch_add(1, Ordering::SeqCst);
        }
    }
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let (blocker, closed) = (Blocker::new(), Arc::new(AtomicUsize::new(0)));
    let late = Late { blocked: blocker.blocked(), closed: closed.clone() };
    std::thread::scope(|scope| {
        let spawner = scope.spawn(|| runtime.spawn(late));
        blocker.wait_begun();
        // It came through the door, and yet is not on the list of processes that are asked to stop.
        let report = runtime.shutdown(Duration::ZERO).unwrap();
        assert_eq!((report.ended, report.terminated), (0, 0), "{report}");
        blocker.release();
        let refused = wait(spawner).unwrap().unwrap_err();
        assert!(matches!(refused.reason(), SpawnError::ShuttingDown), "{refused}");
        assert_eq!(closed.load(Ordering::SeqCst), 1);
        drop(refused.into_inner());
    });
    assert_eq!((closed.load(Ordering::SeqCst), watcher.spawned.len(), watcher.exits.len()), (1, 0, 0));
    assert_eq!((runtime.stats().spawned, runtime.stats().processes), (0, 0));
}

#[test]
fn a_stuck_step_is_reported_and_all_other_processes_end() {
    let runtime = runtime(1);
    let blocker = Blocker::new();
    let stuck = runtime.spawn_with(stuck(blocker.blocked()), SpawnOptions::new().name("the culprit")).unwrap();
    blocker.wait_begun();
    // With the only worker stuck, nobody else is ever stepped.
    let others: Vec<_> = (0..10).map(|_| runtime.spawn(stubborn()).unwrap()).collect();
    let report = runtime.shutdown(Duration::ZERO).unwrap();
    others.iter().for_each(|process| assert!(matches!(join(process), Exit::Terminated(_))));
    let culprit = report.stuck.iter().find(|process| process.pid == stuck.pid()).unwrap_or_else(|| panic!("{report}"));
    assert_eq!(culprit.name.as_deref(), Some("the culprit"));
    assert!(culprit.type_name.contains("stuck"), "{}", culprit.type_name);
    let text = report.to_string();
    assert!(text.contains(&stuck.pid().to_string()) && text.contains("\"the culprit\" (running for "), "{text}");
    assert!(runtime.send(stuck.address(), 1).is_err());
    // When the step returns after all, the process is ended.
    blocker.release();
    assert!(matches!(join(&stuck), Exit::Terminated(Reason::Shutdown)));
}

#[test]
fn a_blocking_closure_that_does_not_return_is_counted_in_the_report() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let mut begun_work = false;
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        if std::mem::replace(&mut begun_work, true) {
            return Ok(Step::Done(()));
        }
        let blocked = blocked.clone();
        out.blocking(move || blocked.wait());
        Ok(Step::Wait)
    });
    let process = runtime.spawn(process).unwrap();
    blocker.wait_begun();
    let report = std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| runtime.shutdown(Duration::from_secs(10)).unwrap());
        output(&process);
        // Its blocking work has the rest of the limit.
        advance_until("the limit is over", &manual, Duration::from_secs(1), || shutdown.is_finished());
        wait(shutdown).unwrap()
    });
    // On a busy machine its worker may still be about to strike it off the list.
    assert_eq!((report.ended + report.ending, report.jobs_running), (1, 1), "{report}");
    blocker.release();
}

#[test]
fn shutdown_may_be_called_repeatedly_and_concurrently() {
    let unused = runtime(2);
    assert!(unused.shutdown(Duration::ZERO).unwrap().is_clean());
    assert!(unused.shutdown(LIMIT).unwrap().is_clean());

    let runtime = runtime(2);
    let processes: Vec<_> = (0..100).map(|_| runtime.spawn(sink::<u32>()).unwrap()).collect();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| runtime.shutdown(LIMIT).unwrap())).collect();
        for caller in callers {
            let report = wait(caller).unwrap();
            assert_eq!((report.ended, report.is_clean()), (100, true));
            assert!(processes.iter().all(procession::Handle::is_finished), "complete when it returns");
        }
    });
}

#[test]
fn shutdown_is_refused_inside_a_step_and_inside_a_blocking_closure() {
    let runtime = runtime(1);
    let inner = runtime.clone();
    let process =
        script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(inner.shutdown(LIMIT).unwrap_err())));
    assert_eq!(*output(&runtime.spawn(process).unwrap()), ShutdownError::InsideStep);
    let inner = runtime.clone();
    let mut tag = None;
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let (Event::Completed(done), Some(tag)) = (event, tag) {
                return Ok(Step::Done(done.take(tag).unwrap().unwrap()));
            }
        }
        let inner = inner.clone();
        tag = Some(out.blocking(move || inner.shutdown(LIMIT).unwrap_err()));
        Ok(Step::Wait)
    });
    assert_eq!(*output(&runtime.spawn(process).unwrap()), ShutdownError::Inside);
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

/// How many threads of this process have a name that begins so.
#[cfg(target_os = "linux")]
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end while they are being looked through.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|thread| thread.starts_with(name)).count()
}

#[test]
fn dropping_the_last_handle_terminates_and_closes_the_processes() {
    let runtime = builder().workers(2).thread_name("last-one").start().unwrap();
    let closed = Arc::new(AtomicUsize::new(0));
    let processes: Vec<_> = (0..50).map(|_| runtime.spawn(Closing(closed.clone())).unwrap()).collect();
    let second = runtime.clone();
    drop(runtime);
    assert_eq!(closed.load(Ordering::SeqCst), 0, "there is another handle");
    // A thread gives itself its name when it begins.
    #[cfg(target_os = "linux")]
    until("its threads are there", || threads("last-one") > 0);
    drop(second);
    // Mostly that has happened by now; a busy machine is not waited for for ever.
    until("they are closed", || closed.load(Ordering::SeqCst) == 50);
    #[cfg(target_os = "linux")]
    // A thread that was joined may be in the list for a moment longer.
    until("all its threads are gone", || threads("last-one") == 0);
    for process in processes {
        assert!(matches!(join(&process), Exit::Terminated(Reason::Shutdown)));
    }
}

#[test]
fn a_process_may_have_the_last_handle_of_its_runtime() {
    let runtime = runtime(1);
    let (held, go) = (runtime.clone(), Latch::new());
    let gate = go.clone();
    let mut holder = Some(held);
    let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        wait(&gate);
        drop(holder.take());
        StepResult::<()>::Ok(Step::Idle)
    });
    let process = runtime.spawn(process).unwrap();
    drop(runtime);
    go.set(()).unwrap();
    assert!(matches!(join(&process), Exit::Terminated(Reason::Shutdown)));
}

/// Counts its `init`s and `close`s. It holds a token that must be dropped in the end; so do its messages and its
/// work.
struct Counted {
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    token: Arc<()>,
}

impl Counted {
    fn another(&self) -> Counted {
        Counted { opened: self.opened.clone(), closed: self.closed.clone(), token: self.token.clone() }
    }
}

impl Process for Counted {
    type Message = (u32, Arc<()>);
    type Output = Arc<()>;

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, Self::Message>, out: &mut StepOutput) -> StepResult<Arc<()>> {
        for event in events {
            match event {
                Event::Message((n, _)) if n % 5 == 0 => {
                    if let Ok(child) = out.spawn(self.another()) {
                        out.send(child, (1, self.token.clone()));
                    }
                }
                Event::Message((n, _)) if n % 7 == 0 => return Ok(Step::Done(self.token.clone())),
                Event::Message((n, _)) if n % 11 == 0 => return Err("eleven".into()),
                Event::Message((n, _)) if n % 3 == 0 => {
                    let token = self.token.clone();
                    out.blocking(move || token);
                }
                Event::Message((n, _)) if n % 2 == 0 => {
                    out.after(Duration::from_secs(3_600));
                    let token = self.token.clone();
                    out.ask(out.pid().typed(), |_: Reply<()>| (1, token), Duration::from_secs(3_600));
                }
                Event::Cancel(_) => return Ok(Step::Done(self.token.clone())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// Threads of this program that are called so.
#[cfg(target_os = "linux")]
fn threads_called(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|called| called.starts_with(name)).count()
}

#[cfg(not(target_os = "linux"))]
fn threads_called(_: &str) -> usize {
    0
}

#[test]
fn a_hundred_rounds_of_start_spawn_send_and_shut_down_at_a_random_moment() {
    struct Keeps(#[expect(dead_code)] Arc<()>);
    impl Observer for Keeps {}
    let token = Arc::new(());
    let mut seed = 0x9e37_79b9_u64;
    for round in 0..100 {
        let builder = builder().workers(1 + round % 2).thread_name("hundred").observer(Keeps(token.clone()));
        let runtime = builder.start().unwrap();
        assert!(Arc::strong_count(&token) > 1);
        let (opened, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = (seed >> 33) % 400;
        let spawned = Arc::new(AtomicUsize::new(0));
        let threads = [0, 1, 2, 3].map(|thread| {
            let counted = Counted { opened: opened.clone(), closed: closed.clone(), token: token.clone() };
            let (runtime, spawned) = (runtime.clone(), spawned.clone());
            std::thread::spawn(move || {
                for n in 0..100 {
                    let Ok(handle) = runtime.spawn(counted.another()) else { break };
                    spawned.fetch_add(1, Ordering::SeqCst);
                    for k in 0..5 {
                        let _ = runtime.send(handle.address(), (thread + n * 5 + k, counted.token.clone()));
                    }
                }
            })
        });
        until("the moment has come", || spawned.load(Ordering::SeqCst) as u64 >= moment);
        let at_once = round % 3 == 0;
        let report = runtime.shutdown(if at_once { Duration::ZERO } else { LIMIT }).unwrap();
        // With no time at all, a busy machine may not come to all of them in time.
        assert!(at_once || report.stuck.is_empty(), "{report}");
        threads.into_iter().for_each(|thread| wait(thread).unwrap());
        until("all have ended", || runtime.stats().processes == 0);
        assert_eq!(opened.load(Ordering::SeqCst), closed.load(Ordering::SeqCst), "round {round}");
        assert_accounted(&runtime);
        drop(runtime);
        until("processes, messages, work, outputs and the runtime are dropped", || Arc::strong_count(&token) == 1);
        until("its threads have ended", || threads_called("hundred") == 0);
    }
}
