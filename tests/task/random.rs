//! Random programs for several threads at once against a plain model.
//!
//! A program is, for each thread, a row of things to do: submit, cancel, remove, drop a handle, let a closure go,
//! move the clock, stop. All threads write down what they were told and what was called. Afterwards the model is a
//! few sums over that: each task has exactly one end, somebody wanted that end, and nothing of it is left.
//!
//! The seed is printed; `PROCESSION_SEED=...` runs the same programs again (the interleaving is the machine's).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::Pool;
use procession::sync::Latch;
use procession::task::{RemoveError, Retention, Status, TaskHandle, TaskId, TaskOptions, TaskScheduler};
use procession::{CancelToken, Exit, Reason};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::seeded::random_programs;
use crate::support::*;

/// The behaviour of a closure that is called.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Returns,
    Fails,
    Panics,
    Obeys,
    Holds,
}

#[derive(Clone, Debug)]
struct Wish {
    plan: Plan,
    timeout: Option<u64>,
    start_timeout: Option<u64>,
    delay: Option<u64>,
    keep: Retention,
}

#[derive(Clone, Debug)]
enum Deed {
    Submit(Wish),
    Cancel(usize),
    CancelById(usize),
    Remove(usize),
    DropHandle(usize),
    LetGo(usize),
    Look(usize),
    Advance(u64),
    Stop,
}

#[derive(Clone, Debug)]
struct Program {
    threads: Vec<Vec<Deed>>,
    workers: usize,
}

/// One task, as it is known from outside.
struct Subject {
    id: TaskId,
    wish: Wish,
    number: usize,
    handle: Mutex<Option<TaskHandle<(usize, Token), String>>>,
    calls: Arc<AtomicUsize>,
    go: Latch<()>,
    /// Cancellations that were told that they decided.
    decided: AtomicUsize,
    removed: AtomicUsize,
    /// How far it has been seen to be.
    stage: Mutex<usize>,
}

/// Everything of the user's that must be gone in the end has one.
type Token = Arc<()>;

struct World {
    manual: ManualClock,
    tasks: TaskScheduler,
    subjects: Mutex<Vec<Arc<Subject>>>,
    refused: AtomicUsize,
    token: Token,
}

impl World {
    fn choose(&self, which: usize) -> Option<Arc<Subject>> {
        let subjects = self.subjects.lock().unwrap();
        (!subjects.is_empty()).then(|| subjects[which % subjects.len()].clone())
    }

    fn submit(&self, wish: &Wish, number: usize) -> Result<(), String> {
        let (calls, go) = (Arc::new(AtomicUsize::new(0)), Latch::new());
        let (count, gate, token, plan) = (calls.clone(), go.clone(), self.token.clone(), wish.plan);
        let body = move |cancel: &CancelToken| {
            count.fetch_add(1, Ordering::SeqCst);
            match plan {
                Plan::Returns => Ok((number, token)),
                Plan::Fails => Err(String::from("by plan")),
                Plan::Panics => panic!("by plan"),
                Plan::Obeys => Err(cancel.wait().to_string()),
                Plan::Holds => {
                    wait(&gate);
                    Ok((number, token))
                }
            }
        };
        let mut options = TaskOptions::new().retention(wish.keep);
        if let Some(limit) = wish.timeout {
            options = options.timeout(Duration::from_secs(limit));
        }
        if let Some(limit) = wish.start_timeout {
            options = options.start_timeout(Duration::from_secs(limit));
        }
        if let Some(delay) = wish.delay {
            options = options.after(Duration::from_secs(delay));
        }
        match self.tasks.submit_with(options, body) {
            Ok(task) => {
                let id = task.id();
                if self.tasks.status(id).is_err() {
                    return Err(format!("{task:?} is not known"));
                }
                self.subjects.lock().unwrap().push(Arc::new(Subject {
                    id,
                    wish: wish.clone(),
                    number,
                    handle: Mutex::new(Some(task)),
                    calls,
                    go,
                    decided: AtomicUsize::new(0),
                    removed: AtomicUsize::new(0),
                    stage: Mutex::new(0),
                }));
            }
            Err(refused) => {
                if !self.tasks.is_stopped() {
                    return Err(format!("refused by a scheduler that is not stopped: {refused}"));
                }
                self.refused.fetch_add(1, Ordering::SeqCst);
                drop(refused.into_inner());
                if calls.load(Ordering::SeqCst) > 0 {
                    return Err("what was refused was called".into());
                }
            }
        }
        Ok(())
    }

    fn carry_out(&self, deed: &Deed, number: usize) -> Result<(), String> {
        match deed {
            Deed::Submit(wish) => self.submit(wish, number)?,
            Deed::Cancel(which) => {
                if let Some(subject) = self.choose(*which)
                    && let Some(task) = &*subject.handle.lock().unwrap()
                    && task.cancel()
                {
                    subject.decided.fetch_add(1, Ordering::SeqCst);
                }
            }
            Deed::CancelById(which) => {
                if let Some(subject) = self.choose(*which)
                    && self.tasks.cancel(subject.id) == Ok(true)
                {
                    subject.decided.fetch_add(1, Ordering::SeqCst);
                }
            }
            Deed::Remove(which) => {
                if let Some(subject) = self.choose(*which) {
                    // Asked before, for it may end in between.
                    let was_over = *subject.stage.lock().unwrap() == 2;
                    match self.tasks.remove(subject.id) {
                        Ok(()) => {
                            if subject.removed.fetch_add(1, Ordering::SeqCst) > 0 {
                                return Err(format!("{:?} was removed twice", subject.id));
                            }
                        }
                        Err(RemoveError::NotFinished(_)) if was_over => {
                            return Err(format!("{:?} is over, and was not removed", subject.id));
                        }
                        Err(_) => {}
                    }
                }
            }
            Deed::DropHandle(which) => {
                if let Some(subject) = self.choose(*which) {
                    let handle = subject.handle.lock().unwrap().take();
                    drop(handle);
                }
            }
            Deed::LetGo(which) => {
                if let Some(subject) = self.choose(*which) {
                    let _ = subject.go.set(());
                }
            }
            Deed::Look(which) => {
                if let Some(subject) = self.choose(*which) {
                    let mut stage = subject.stage.lock().unwrap();
                    let now = match self.tasks.status(subject.id) {
                        Ok(Status::Scheduled) => 0,
                        Ok(Status::Running) => 1,
                        _ => 2,
                    };
                    let before = std::mem::replace(&mut *stage, now);
                    if now < before {
                        return Err(format!("{:?} has gone back from {before} to {now}", subject.id));
                    }
                }
                self.tasks.list();
            }
            Deed::Advance(seconds) => self.manual.advance(Duration::from_secs(*seconds)),
            Deed::Stop => {
                self.tasks.stop();
                let stats = self.tasks.stats();
                if (stats.scheduled, stats.running) != (0, 0) {
                    return Err(format!("stopped with {stats:?}"));
                }
            }
        }
        Ok(())
    }
}

fn run(program: &Program) -> Result<(), String> {
    quiet_panics();
    let manual = ManualClock::new();
    let pool = Pool::builder().max(program.workers).name("procession-test").clock(manual.clock()).build();
    let pool = pool.map_err(|error| error.to_string())?;
    let world = World {
        tasks: TaskScheduler::on(&pool),
        manual,
        subjects: Mutex::default(),
        refused: AtomicUsize::new(0),
        token: Arc::new(()),
    };
    let world = &world;
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let rows: Vec<_> = program.threads.iter().enumerate().collect();
        let threads: Vec<_> = rows
            .into_iter()
            .map(|(thread, deeds)| {
                scope.spawn(move || {
                    let numbered = deeds.iter().enumerate();
                    numbered.into_iter().try_for_each(|(n, deed)| world.carry_out(deed, thread * 1_000 + n))
                })
            })
            .collect();
        threads.into_iter().map(|thread| wait(thread).unwrap_or_else(|_| Err("a call has panicked".into()))).collect()
    });
    let subjects = std::mem::take(&mut *world.subjects.lock().unwrap());
    for subject in &subjects {
        let _ = subject.go.set(());
    }
    let joined = world.tasks.stop_and_join(HOUR).map_err(|left| left.to_string());
    results.into_iter().collect::<Result<(), _>>()?;
    joined?;
    pool.drain().map_err(|still| still.to_string())?;
    check(world, &subjects, &pool)
}

fn check(world: &World, subjects: &[Arc<Subject>], pool: &Pool) -> Result<(), String> {
    let stats = world.tasks.stats();
    let (mut decided, mut limited) = (0, 0);
    for subject in subjects {
        let say = |what: &str| Err(format!("task {} {what}: {:?}; {stats:?}", subject.number, subject.wish));
        let (calls, wins) = (subject.calls.load(Ordering::SeqCst), subject.decided.load(Ordering::SeqCst));
        decided += wins;
        limited += u64::from(subject.wish.timeout.is_some() || subject.wish.start_timeout.is_some());
        if calls > 1 || wins > 1 {
            return say(&format!("was called {calls} times, and cancelled {wins} times"));
        }
        let Some(task) = subject.handle.lock().unwrap().take() else { continue };
        let info = task.info();
        if info.started.is_some() != (calls == 1) {
            return say("was begun and not called, or the other way round");
        }
        let plan = subject.wish.plan;
        let is_right = match (info.status, wait(task)) {
            (Status::Completed, Exit::Done((number, _))) => {
                number == subject.number && matches!(plan, Plan::Returns | Plan::Holds)
            }
            (Status::Completed, Exit::Failed(error)) => error == "by plan" && matches!(plan, Plan::Fails),
            (Status::Completed, Exit::Panicked(_)) => matches!(plan, Plan::Panics),
            (Status::Cancelled, Exit::Terminated(Reason::Cancelled)) => wins == 1,
            (Status::TimedOut, Exit::Terminated(Reason::TimedOut)) => {
                subject.wish.timeout.is_some() || subject.wish.start_timeout.is_some()
            }
            (Status::Stopped, Exit::Terminated(Reason::Shutdown)) => wins == 0,
            _ => false,
        };
        if !is_right {
            return say(&format!("has another end than it should: {}", info.status));
        }
    }
    let ends = stats.completed + stats.cancelled + stats.timed_out + stats.stopped;
    if stats.submitted != subjects.len() as u64 || ends != stats.submitted || stats.cancelled != decided as u64 {
        return Err(format!("{} accepted, {decided} cancelled: {stats:?}", subjects.len()));
    }
    if stats.timed_out > limited || (stats.scheduled, stats.running, stats.abandoned) != (0, 0, 0) {
        return Err(format!("{limited} had a limit: {stats:?}"));
    }
    for info in world.tasks.list() {
        world.tasks.remove(info.id).map_err(|error| error.to_string())?;
    }
    let left = world.tasks.stats();
    let alive = Arc::strong_count(&world.token) - 1;
    if (left.records, left.timers, alive) != (0, 0, 0) {
        return Err(format!("{alive} of the user's are left: {left:?}"));
    }
    let jobs = pool.stats();
    if jobs.submitted != jobs.finished + jobs.withdrawn + jobs.abandoned || jobs.panicked > 0 {
        return Err(format!("{jobs:?}"));
    }
    Ok(())
}

fn wish() -> impl Strategy<Value = Wish> {
    let plan = prop_oneof![
        3 => Just(Plan::Returns),
        1 => Just(Plan::Fails),
        1 => Just(Plan::Panics),
        2 => Just(Plan::Obeys),
        2 => Just(Plan::Holds),
    ];
    let limit = || prop_oneof![3 => Just(None), 2 => (0..5_u64).prop_map(Some), 1 => Just(Some(u64::MAX))];
    let keep = prop_oneof![
        4 => Just(Retention::WithHandle),
        1 => Just(Retention::UntilRemoved),
        1 => (0..5_u64).prop_map(|seconds| Retention::For(Duration::from_secs(seconds))),
        1 => (0..3_usize).prop_map(Retention::Newest),
    ];
    (plan, limit(), limit(), limit(), keep).prop_map(|(plan, timeout, start_timeout, delay, keep)| Wish {
        plan,
        timeout,
        start_timeout,
        delay,
        keep,
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    let which = || any::<usize>();
    prop_oneof![
        60 => wish().prop_map(Deed::Submit),
        12 => which().prop_map(Deed::Cancel),
        12 => which().prop_map(Deed::CancelById),
        8 => which().prop_map(Deed::Remove),
        12 => which().prop_map(Deed::DropHandle),
        20 => which().prop_map(Deed::LetGo),
        8 => which().prop_map(Deed::Look),
        10 => (0..3_u64).prop_map(Deed::Advance),
        1 => Just(Deed::Stop),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let threads = prop::collection::vec(prop::collection::vec(deed(), 1..40), 1..4);
    (threads, 1..4_usize).prop_map(|(threads, workers)| Program { threads, workers })
}

#[test]
fn random_programs_have_one_end_for_each_task_and_leave_nothing() {
    random_programs(400, Config::default(), program(), run);
}
