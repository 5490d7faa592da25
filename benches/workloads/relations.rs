//! Workloads of relations: monitors and links, names, groups and restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use procession::supervisor::{ChildSpec, Restart, Supervisor};
use procession::{Event, Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, Tally, Workload, check};
use super::runtime::{done, finish};
use super::shape::BATCH;
use super::stuck;

/// The workloads of relations.
pub(crate) const RELATIONS: [Workload; 7] = [
    Workload {
        name: "monitor",
        counts: "processes that are monitored from birth, and end",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: monitor,
    },
    Workload {
        name: "link_chain",
        counts: "linked processes of which the first fails",
        op: "process",
        n: 10_000,
        smoke: 1_000,
        run: link_chain,
    },
    Workload {
        name: "names",
        counts: "look-ups by 2 threads, of as many names, up to 1,000,000",
        op: "look-up",
        n: 2_000_000,
        smoke: 20_000,
        run: names,
    },
    Workload {
        name: "group_cast",
        counts: "messages to a group of 1,000",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: group_cast,
    },
    Workload {
        name: "restart",
        counts: "failures of a supervised process",
        op: "restart",
        n: 200_000,
        smoke: 2_000,
        run: restart,
    },
    Workload {
        name: "pingpong_watched",
        counts: "messages between 2 processes, with a watchdog",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: stuck::pingpong_watched,
    },
    Workload {
        name: "pingpong_beside_stuck",
        counts: "messages between 2 processes, while all workers are stuck in other steps",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: stuck::pingpong_beside_stuck,
    },
];

/// The processes that report.
static BEGUN: Tally = Tally::new();
static REPORTS: Tally = Tally::new();

/// Ends in its first step.
struct Mayfly;

impl Process for Mayfly {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

/// Spawns processes that it monitors, and gets a `Down` for each.
struct Watcher {
    left: u64,
    told: u64,
    of: u64,
}

impl Process for Watcher {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<u64> {
        self.told += events.filter(|event| matches!(event, Event::Down(_))).count() as u64;
        if self.told == self.of {
            return Ok(Step::Done(self.told));
        }
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            out.spawn_with(Mayfly, SpawnOptions::new().monitor())?;
        }
        self.left -= batch;
        Ok(if self.left > 0 { Step::Continue } else { Step::Idle })
    }
}

pub(crate) fn monitor(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let told = done(&runtime.spawn(Watcher { left: setting.n, told: 0, of: setting.n })?)?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    check("ends that were told", told, setting.n)?;
    Ok(measured)
}

/// One process of a chain. It is linked to the one before it. The first fails on request.
struct Link {
    before: Option<Pid>,
    begun: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        REPORTS.strike();
    }
}

impl Process for Link {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.before.into_iter().for_each(|before| out.link(before));
            BEGUN.strike();
        }
        let told = events.any(|event| matches!(event, Event::Cancel(_)));
        if told { Err("the chain breaks".into()) } else { Ok(Step::Idle) }
    }
}

pub(crate) fn link_chain(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    BEGUN.expect(setting.n);
    let first = runtime.spawn(Link { before: None, begun: false })?;
    let mut last = first.pid();
    for _ in 1..setting.n {
        last = runtime.spawn(Link { before: Some(last), begun: false })?.pid();
    }
    BEGUN.wait()?;
    let while_linking = Duration::from_secs(10);
    let waited = Instant::now();
    while !runtime.is_idle() && waited.elapsed() < while_linking {
        std::thread::yield_now();
    }
    REPORTS.expect(setting.n);
    let began = Instant::now();
    runtime.cancel(first.pid(), "break")?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    Ok(measured)
}

/// The most names among which look-ups are made.
const NAMES: u64 = 1_000_000;

/// The number of threads that look names up.
const THREADS: u64 = 2;

pub(crate) fn names(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let count = (setting.n / THREADS).clamp(1, NAMES);
    let holder = runtime.spawn(Link { before: None, begun: true })?;
    let names: Vec<Arc<str>> = (0..count).map(|n| Arc::from(format!("name-{n}"))).collect();
    for name in &names {
        runtime.register(name.clone(), holder.pid())?;
    }
    let began = Instant::now();
    let found: u64 = std::thread::scope(|scope| {
        let looks: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (runtime, names, pid) = (&runtime, &names, holder.pid());
                let looks = setting.share(thread, THREADS);
                // The stride is large, so that no look-up benefits from the cache lines of the one before.
                let place = move |n: u64| ((n * 7_919 + thread * 104_729) % count) as usize;
                let look = move |n: &u64| runtime.whereis(&names[place(*n)]) == Some(pid);
                scope.spawn(move || (0..looks).filter(look).count() as u64)
            })
            .collect();
        looks.into_iter().map(|look| look.join().unwrap_or(0)).sum()
    });
    let measured = Measured::since(began, setting.n);
    check("names that were found", found, setting.n)?;
    REPORTS.expect(1);
    runtime.terminate(holder.pid())?;
    REPORTS.wait()?;
    finish(&runtime)?;
    Ok(measured)
}

/// The number of members of the group.
const MEMBERS: u64 = 1_000;

/// Counts its messages.
struct Member {
    to_come: u64,
}

impl Process for Member {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<u64>, _: &mut StepOutput) -> StepResult<()> {
        self.to_come -= events.filter(|event| matches!(event, Event::Message(_))).count() as u64;
        if self.to_come > 0 {
            return Ok(Step::Idle);
        }
        REPORTS.strike();
        Ok(Step::Done(()))
    }
}

/// Repeatedly sends to the whole group.
struct Caster {
    rounds: u64,
}

impl Process for Caster {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        out.broadcast("all", self.rounds);
        self.rounds -= 1;
        Ok(if self.rounds == 0 { Step::Done(()) } else { Step::Continue })
    }
}

pub(crate) fn group_cast(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let rounds = setting.n / MEMBERS;
    REPORTS.expect(MEMBERS);
    for _ in 0..MEMBERS {
        let member = runtime.spawn(Member { to_come: rounds })?;
        runtime.join_group("all", member.pid())?;
    }
    let began = Instant::now();
    done(&runtime.spawn(Caster { rounds })?)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, rounds * MEMBERS);
    finish(&runtime)?;
    Ok(measured)
}

/// The number of failures that are left.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Fails in its first step, while failures are left.
struct Failing;

impl Process for Failing {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        // Ordering: Relaxed. One process runs at a time, and each sees the writes of the one before.
        if FAILURES.load(Ordering::Relaxed) == 0 {
            REPORTS.strike();
            return Ok(Step::Done(()));
        }
        FAILURES.fetch_sub(1, Ordering::Relaxed);
        Err("again".into())
    }
}

pub(crate) fn restart(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    FAILURES.store(setting.n, Ordering::Relaxed);
    REPORTS.expect(1);
    let child = ChildSpec::new("failing", || Failing).restart(Restart::Transient);
    let supervisor = Supervisor::builder().intensity(usize::MAX, Duration::from_millis(1)).child(child).build()?;
    let began = Instant::now();
    let supervisor = runtime.spawn(supervisor)?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    runtime.cancel(supervisor.pid(), "enough")?;
    done(&supervisor)?;
    finish(&runtime)?;
    Ok(measured)
}
