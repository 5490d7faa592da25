//! The races of a loop under the model checker. The tests use the real slots, lock and home thread, but no pool.

use super::context::{Body, Common, Tasklet, TaskletContext};
use super::current::LoopBuilder;
use super::directive::{Directive, TaskletId};
use super::event_loop::{run_for_models, step_for_models, turn_for_models};
use super::report::Report;
use super::resume::Resume;
use super::shared::{Control, Shared};
use super::slots::Presence;
use crate::outcome::{Exit, Reason};
use crate::primitives::{Arc, Condvar, Mutex, lock, thread, wait};

type Log = Vec<&'static str>;

/// A tasklet whose home steps call a closure.
struct Turns<F>(F);

impl<F: FnMut(&mut Log, &mut TaskletContext<'_, Log>) -> Directive + Send + 'static> Tasklet<Log> for Turns<F> {
    fn home(&mut self, log: &mut Log, cx: &mut TaskletContext<'_, Log>) -> Directive {
        (self.0)(log, cx)
    }

    fn pool(&mut self, _: &mut TaskletContext<'_, Log>) -> Directive {
        Directive::Home
    }
}

fn turns<F: FnMut(&mut Log, &mut TaskletContext<'_, Log>) -> Directive + Send + 'static>(turns: F) -> Body<Log> {
    Box::new(Turns(turns))
}

fn new_loop() -> Arc<Common<Log>> {
    Shared::new(LoopBuilder::new())
}

fn schedule(shared: &Arc<Common<Log>>, body: Body<Log>) -> TaskletId {
    shared.schedule("a".into(), None, body, Directive::Home).ok().unwrap()
}

/// Suspends, gives its resumption to another thread, waits, and ends at its second step.
fn waits(shared: &Arc<Common<Log>>, left: usize) -> Arc<Mutex<Vec<Resume>>> {
    let resumes = Arc::new(Mutex::new(Vec::new()));
    let leaves = resumes.clone();
    let mut steps = 0;
    schedule(
        shared,
        turns(move |log, cx| {
            steps += 1;
            if steps == 2 {
                log.push("woken");
                return Directive::Done;
            }
            lock(&leaves).extend((0..left).map(|_| cx.suspend()));
            Directive::Wait
        }),
    );
    resumes
}

fn take(resumes: &Mutex<Vec<Resume>>) -> Option<Resume> {
    lock(resumes).pop()
}

/// Fails if a resumption before the return of `Wait` is not noted, or if `settle` does not check for it.
#[test]
fn a_resumption_races_with_the_return_of_wait() {
    loom::model(|| {
        let shared = new_loop();
        let resumes = waits(&shared, 1);
        let mut log = Log::new();
        // The first step runs here, so that there is a resumption. It is settled while another thread resumes.
        step_for_models(&shared, &mut log, |settle| {
            let resume = take(&resumes).unwrap();
            let other = thread::spawn(move || resume.resume(Directive::Home));
            settle();
            other.join().unwrap();
        });
        let report = run_for_models(&shared, &mut log);
        assert_eq!(log, ["woken"]);
        assert_eq!((report.home_steps, report.finished), (2, 1));
    });
}

/// Fails if a resumption does not advance the epoch.
#[test]
fn two_resumptions_of_one_wait_wake_it_once() {
    loom::model(|| {
        let shared = new_loop();
        let resumes = waits(&shared, 2);
        let mut log = Log::new();
        step_for_models(&shared, &mut log, |settle| {
            let others = [take(&resumes).unwrap(), take(&resumes).unwrap()]
                .map(|resume| thread::spawn(move || resume.resume(Directive::Home)));
            settle();
            for other in others {
                other.join().unwrap();
            }
        });
        let report = run_for_models(&shared, &mut log);
        assert_eq!(log, ["woken"], "it is woken, and once");
        assert_eq!((report.home_steps, report.finished), (2, 1));
    });
}

/// Fails if `settle` does not see that no resumption is left, or if the drop does not see that the tasklet waits.
#[test]
fn a_resumption_is_dropped_while_wait_is_returned() {
    loom::model(|| {
        let shared = new_loop();
        let resumes = waits(&shared, 1);
        let mut log = Log::new();
        step_for_models(&shared, &mut log, |settle| {
            let resume = take(&resumes).unwrap();
            let other = thread::spawn(move || drop(resume));
            settle();
            other.join().unwrap();
        });
        let report = run_for_models(&shared, &mut log);
        assert!(log.is_empty());
        assert_eq!((report.home_steps, report.abandoned), (1, 1));
    });
}

/// Fails if the home thread checks for ready tasklets and falls asleep under two locks instead of one.
#[test]
fn the_home_thread_falls_asleep_while_a_tasklet_arrives() {
    loom::model(|| {
        let shared = new_loop();
        let holds = shared.schedule("holds".into(), None, turns(|_, _| Directive::Done), Directive::Wait).ok().unwrap();
        let other = thread::spawn({
            let shared = shared.clone();
            move || {
                schedule(
                    &shared,
                    turns(move |log, cx| {
                        log.push("arrived");
                        assert!(cx.handle().cancel(holds, Reason::Cancelled));
                        Directive::Done
                    }),
                );
            }
        });
        let mut log = Log::new();
        let report = run_for_models(&shared, &mut log);
        assert_eq!(log, ["arrived"]);
        assert_eq!((report.finished, report.cancelled), (1, 1));
        other.join().unwrap();
    });
}

/// Fails if the thread that retires the last tasklet does not wake the home thread, or wakes it before the body is
/// dropped.
#[test]
fn home_falls_asleep_while_the_last_tasklet_ends_elsewhere() {
    struct Told(Arc<Mutex<bool>>);
    impl Drop for Told {
        fn drop(&mut self) {
            *lock(&self.0) = true;
        }
    }
    loom::model(|| {
        let shared = new_loop();
        let dropped = Arc::new(Mutex::new(false));
        let told = Told(dropped.clone());
        let body = turns(move |_, _| {
            let _ = &told;
            Directive::Done
        });
        let id = shared.schedule("elsewhere".into(), None, body, Directive::Wait).ok().unwrap();
        let other = thread::spawn({
            let shared = shared.clone();
            move || assert!(shared.clone().cancel(id, Reason::Cancelled))
        });
        let mut log = Log::new();
        let report = run_for_models(&shared, &mut log);
        assert!(*lock(&dropped), "the destructor has run before `run` returns");
        assert_eq!(report.cancelled, 1);
        other.join().unwrap();
    });
}

/// A main loop turns only when the hook notifies it. Fails if a turn leaves after its last look, in a critical section
/// of its own, and does not look again whether a tasklet is left.
#[test]
fn the_last_tasklet_ends_elsewhere_while_a_turn_returns() {
    loom::model(|| {
        let shared = new_loop();
        let told = Arc::new((Mutex::new(false), Condvar::new()));
        let tells = told.clone();
        let hook = move || {
            *lock(&tells.0) = true;
            tells.1.notify_one();
        };
        lock(&shared.slots).set_hook(Some(std::sync::Arc::new(hook)));
        let body = turns(|_, _| Directive::Done);
        let id = shared.schedule("elsewhere".into(), None, body, Directive::Wait).ok().unwrap();
        let other = thread::spawn({
            let shared = shared.clone();
            move || assert!(shared.clone().cancel(id, Reason::Cancelled))
        });
        let mut log = Log::new();
        while !turn_for_models(&shared, &mut log) {
            let mut is_told = lock(&told.0);
            while !std::mem::take(&mut *is_told) {
                is_told = wait(&told.1, is_told);
            }
        }
        other.join().unwrap();
    });
}

/// A pool step returns `Home` while the home thread falls asleep, and the tasklet is cancelled meanwhile. Exactly one
/// of the ends happens.
#[test]
fn a_pool_step_returns_while_home_falls_asleep_and_it_is_cancelled() {
    loom::model(|| {
        let shared = new_loop();
        let id = {
            let mut slots = lock(&shared.slots);
            slots.enter(Presence::Inside);
            let body = turns(|log, _| {
                log.push("back");
                Directive::Done
            });
            // The same as `schedule` does, but a thread of the model runs the step.
            let (id, effects) = slots.insert(("b".into(), None), body, Directive::Pool).ok().unwrap();
            assert_eq!(effects.start, Some(id));
            id
        };
        let pool = thread::spawn({
            let shared = shared.clone();
            move || shared.step_elsewhere(id)
        });
        let canceller = thread::spawn({
            let shared = shared.clone();
            move || shared.cancel(id, Reason::Cancelled)
        });
        let mut log = Log::new();
        let report = run_for_models(&shared, &mut log);
        pool.join().unwrap();
        let cancelled = canceller.join().unwrap();
        assert_eq!(report.ended(), 1);
        assert!(report.finished == u64::from(log == ["back"]), "{report:?} {log:?}");
        assert!(cancelled || report.cancelled == 0);
    });
}

/// A resumption and a redirection both wake a step. It is woken once.
#[test]
fn a_redirection_races_with_a_resumption() {
    loom::model(|| {
        let shared = new_loop();
        let resumes = waits(&shared, 1);
        let mut log = Log::new();
        step_for_models(&shared, &mut log, |settle| settle());
        let resume = take(&resumes).unwrap();
        let id = resume.id();
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.clone().redirect(id, Directive::Done).unwrap()
        });
        resume.resume(Directive::Home);
        let redirected = other.join().unwrap();
        let report = run_for_models(&shared, &mut log);
        assert!(redirected);
        assert_eq!(
            (report.finished, report.home_steps),
            (1, 1),
            "Done came last, or first; either way it takes no second step"
        );
        assert!(log.is_empty());
    });
}

/// The end that a handle reports is the one that the report counts.
#[test]
fn a_tasklet_is_cancelled_while_it_is_resumed() {
    loom::model(|| {
        let shared = new_loop();
        let ended = crate::latch::Latch::new();
        let body = turns(|log, _| {
            log.push("stepped");
            Directive::Done
        });
        let id = shared.schedule("c".into(), Some(ended.clone()), body, Directive::Wait).ok().unwrap();
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.clone().cancel(id, Reason::Cancelled)
        });
        let _ = shared.clone().redirect(id, Directive::Home);
        let mut log = Log::new();
        let report = run_for_models(&shared, &mut log);
        let _ = other.join().unwrap();
        match ended.get().unwrap() {
            Exit::Done(()) => assert_eq!((report.finished, log.len()), (1, 1)),
            _ => assert_eq!((report.cancelled, log.len()), (1, 0)),
        }
        assert!(lock(&shared.slots).tasklets().is_empty());
        let _: Report = report;
    });
}
