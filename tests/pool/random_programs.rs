//! Random programs from several threads against a plain model: nothing runs twice, nothing is lost unreported, and
//! never do more jobs run at once than may.
//!
//! Each thread has a script of calls on one pool: submit, cancel, pause, resize, wait, and perhaps end it. Each job
//! writes down that it was run. Afterwards the model is a few sums over the results that the threads got.
//!
//! The seed is printed; `PROCESSION_SEED=...` runs the same programs again (the interleaving is the machine's).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::{JobError, JobHandle, Pool, PoolStatus, QueuePolicy, RunError};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::seeded::random_programs;
use crate::support::*;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Quick,
    Yields,
    Panics,
    /// Runs another one and waits for it.
    Nests,
    /// Submits another one and does not wait.
    Spreads,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Execute(Kind),
    Spawn(Kind),
    Run(Kind),
    Batch(Kind, usize),
    /// One of those that this thread has spawned and not waited for.
    Cancel(usize),
    Pause(usize),
    Resize(usize, usize),
    WaitIdle,
    Drain,
    Stop,
    TakeBack,
}

#[derive(Clone, Debug)]
struct Program {
    max: usize,
    /// No resizing goes beyond this, so no more jobs may ever run at once.
    greatest: usize,
    queue: QueuePolicy,
    idles: bool,
    scripts: Vec<Vec<Act>>,
    drains: bool,
}

const GREATEST: usize = 4;

/// The records of the jobs.
#[derive(Default)]
struct World {
    runs: Mutex<Vec<u32>>,
    now: AtomicUsize,
    most: AtomicUsize,
    /// Jobs that were accepted or refused when jobs submitted them.
    inner_accepted: AtomicUsize,
}

impl World {
    fn job(self: &Arc<World>, pool: &Pool, kind: Kind) -> (usize, impl FnOnce() + Send + 'static + use<>) {
        let id = {
            let mut runs = self.runs.lock().unwrap();
            runs.push(0);
            runs.len() - 1
        };
        // A job that held its pool would keep it from ending with the last handle; here that is never wanted.
        let (world, pool) = (self.clone(), pool.clone());
        (id, move || world.run(id, &pool, kind))
    }

    fn run(self: &Arc<World>, id: usize, pool: &Pool, kind: Kind) {
        self.runs.lock().unwrap()[id] += 1;
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        match kind {
            Kind::Quick | Kind::Panics => {}
            Kind::Yields => (0..5).for_each(|_| std::thread::yield_now()),
            Kind::Nests => {
                let (_, job) = self.job(pool, Kind::Quick);
                // The one that waits is not at work meanwhile.
                self.now.fetch_sub(1, Ordering::SeqCst);
                if !matches!(pool.run(job), Err(RunError::Refused(_))) {
                    add(&self.inner_accepted);
                }
                self.now.fetch_add(1, Ordering::SeqCst);
            }
            Kind::Spreads => {
                let (_, job) = self.job(pool, Kind::Quick);
                if pool.execute(job).is_ok() {
                    add(&self.inner_accepted);
                }
            }
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        if matches!(kind, Kind::Panics) {
            panic!("by plan");
        }
    }

    fn runs(&self, id: usize) -> u32 {
        self.runs.lock().unwrap()[id]
    }
}

/// The results that a thread got.
#[derive(Default)]
struct Told {
    accepted: usize,
    cancelled: usize,
    problems: Vec<String>,
}

impl Told {
    fn expect(&mut self, what: &str, is: bool) {
        if !is {
            self.problems.push(what.to_string());
        }
    }

    fn over(&mut self, world: &World, id: usize, outcome: &Result<(), JobError>) {
        let runs = match outcome {
            Ok(()) | Err(JobError::Panicked(_)) => 1,
            Err(_) => 0,
        };
        self.expect("a handle says what came of its job", world.runs(id) == runs);
    }
}

fn follow(script: &[Act], pool: &Pool, world: &Arc<World>) -> Told {
    let mut told = Told::default();
    let mut open: Vec<(usize, JobHandle<()>)> = Vec::new();
    for act in script {
        match *act {
            Act::Execute(kind) => {
                let (id, job) = world.job(pool, kind);
                match pool.execute(job) {
                    Ok(()) => told.accepted += 1,
                    Err(_) => told.expect("a refused job is not run", world.runs(id) == 0),
                }
            }
            Act::Spawn(kind) => {
                let (id, job) = world.job(pool, kind);
                if let Ok(handle) = pool.spawn_timeout(job, Duration::ZERO) {
                    told.accepted += 1;
                    open.push((id, handle));
                }
            }
            Act::Run(kind) => {
                let (id, job) = world.job(pool, kind);
                match pool.run(job) {
                    Ok(()) => told.over(world, id, &Ok(())),
                    Err(RunError::Job(error)) => told.over(world, id, &Err(error)),
                    Err(RunError::Refused(_)) => {
                        told.expect("a refused job is not run", world.runs(id) == 0);
                        continue;
                    }
                }
                told.accepted += 1;
            }
            Act::Batch(kind, jobs) => {
                let (ids, jobs): (Vec<usize>, Vec<_>) = (0..jobs).map(|_| world.job(pool, kind)).unzip();
                for (id, result) in ids.into_iter().zip(pool.run_all(jobs)) {
                    match result {
                        Ok(()) => told.over(world, id, &Ok(())),
                        Err(RunError::Job(error)) => told.over(world, id, &Err(error)),
                        Err(RunError::Refused(_)) => continue,
                    }
                    told.accepted += 1;
                }
            }
            Act::Cancel(which) if !open.is_empty() => {
                let (id, handle) = open.swap_remove(which % open.len());
                if handle.cancel() {
                    told.cancelled += 1;
                    told.expect("a cancelled job is not run", world.runs(id) == 0);
                    told.expect("and says so", matches!(wait(handle), Err(JobError::Cancelled)));
                } else {
                    told.over(world, id, &wait(handle));
                }
            }
            Act::Pause(jobs) => {
                if let Ok(pause) = pool.pause() {
                    for _ in 0..jobs {
                        let (_, job) = world.job(pool, Kind::Quick);
                        told.accepted += usize::from(pool.execute_timeout(job, Duration::ZERO).is_ok());
                    }
                    let stats = pool.stats();
                    told.expect("nothing runs in a pause that holds", !pause.is_held() || stats.running == 0);
                }
            }
            Act::Resize(min, max) => pool.resize(min, max).unwrap(),
            Act::WaitIdle => drop(std::hint::black_box(pool.wait_idle_timeout(Duration::from_micros(50)))),
            Act::Drain => pool.close(),
            Act::Stop => {
                let _ = pool.stop_timeout(Duration::ZERO);
            }
            Act::TakeBack => drop(pool.abandon()),
            Act::Cancel(_) => {}
        }
    }
    for (id, handle) in open {
        told.over(world, id, &wait(handle));
    }
    told
}

fn run(program: &Program) -> Result<(), String> {
    let idle = program.idles.then_some(Duration::from_nanos(1));
    let pool =
        builder(program.max).queue(program.queue).idle_period(idle).build().map_err(|error| error.to_string())?;
    let world = Arc::new(World::default());
    let told: Vec<Told> = std::thread::scope(|scope| {
        let threads: Vec<_> = program
            .scripts
            .iter()
            .map(|script| {
                let (pool, world) = (&pool, &world);
                let builder = std::thread::Builder::new().name(String::from("pool-script"));
                builder.spawn_scoped(scope, move || follow(script, pool, world)).unwrap()
            })
            .collect();
        threads.into_iter().map(|thread| wait(thread).unwrap()).collect()
    });
    let ended = if program.drains { pool.drain_timeout(LIMIT) } else { pool.stop_timeout(LIMIT) };
    let abandoned = ended.map_err(|still| format!("it does not end: {still}"))?.abandoned;
    if let Some(problem) = told.iter().find_map(|told| told.problems.first()) {
        return Err(problem.clone());
    }
    let stats = pool.stats();
    if (stats.workers, stats.unfinished(), pool.status()) != (0, 0, PoolStatus::Stopped) {
        return Err(format!("something is left: {stats:?}"));
    }
    let runs = world.runs.lock().unwrap();
    if runs.iter().any(|runs| *runs > 1) {
        return Err("a job was run twice".into());
    }
    let ran = runs.iter().filter(|runs| **runs == 1).count();
    let accepted = told.iter().map(|told| told.accepted).sum::<usize>() + world.inner_accepted.load(Ordering::SeqCst);
    let cancelled = told.iter().map(|told| told.cancelled).sum::<usize>();
    let expected = (accepted as u64, ran as u64, cancelled as u64, stats.submitted - ran as u64 - cancelled as u64);
    if (stats.submitted, stats.finished, stats.withdrawn, abandoned) != expected {
        return Err(format!("accepted, run, cancelled, left: {expected:?}, and the pool says {stats:?}"));
    }
    let most = world.most.load(Ordering::SeqCst);
    if most > program.greatest {
        return Err(format!("{most} ran at once, and at most {} may", program.greatest));
    }
    drop(runs);
    drop(pool);
    if Arc::strong_count(&world) != 1 {
        return Err("a closure was not dropped".into());
    }
    Ok(())
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Quick),
        2 => Just(Kind::Yields),
        1 => Just(Kind::Panics),
        1 => Just(Kind::Nests),
        1 => Just(Kind::Spreads),
    ]
}

fn act(greatest: usize) -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => kind().prop_map(Act::Execute),
        8 => kind().prop_map(Act::Spawn),
        3 => kind().prop_map(Act::Run),
        2 => (kind(), 0..6_usize).prop_map(|(kind, jobs)| Act::Batch(kind, jobs)),
        5 => any::<usize>().prop_map(Act::Cancel),
        2 => (0..4_usize).prop_map(Act::Pause),
        2 => (0..3_usize, 1..=greatest).prop_map(|(min, max)| Act::Resize(min.min(max), max)),
        1 => Just(Act::WaitIdle),
    ]
}

fn script(greatest: usize) -> impl Strategy<Value = Vec<Act>> {
    let end = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Act::Drain)),
        1 => Just(Some(Act::Stop)),
        1 => Just(Some(Act::TakeBack)),
    ];
    (prop::collection::vec(act(greatest), 0..40), end, any::<prop::sample::Index>()).prop_map(
        |(mut acts, end, place)| {
            if let Some(end) = end {
                let place = place.index(acts.len() + 1);
                acts.insert(place, end);
            }
            acts
        },
    )
}

fn program() -> impl Strategy<Value = Program> {
    let queue = prop_oneof![
        3 => Just(QueuePolicy::Unbounded),
        1 => (0..5_usize).prop_map(QueuePolicy::Block),
        1 => (0..5_usize).prop_map(QueuePolicy::Reject),
    ];
    let size = (1..=GREATEST)
        .prop_flat_map(|greatest| (Just(greatest), 1..=greatest, prop::collection::vec(script(greatest), 1..=4)));
    (size, queue, any::<bool>(), any::<bool>()).prop_map(|((greatest, max, scripts), queue, idles, drains)| Program {
        max,
        greatest,
        queue,
        idles,
        scripts,
        drains,
    })
}

#[test]
fn random_programs_run_nothing_twice_and_lose_nothing_unreported() {
    random_programs(400, Config::default(), program(), run);
}
