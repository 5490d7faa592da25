//! Random programs of walkers on two real workers. Each recording is replayed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use procession::observe::WaitedForNothing;
use procession::recording::{Recorder, Recording, SaveCause, StepEnd};
use procession::simulation::Simulation;
use procession::spawn::Overflow;
use procession::{Exit, Handle, Pid, Runtime, SpawnOptions};

use crate::panics::quiet_panics;
use crate::wait::{LIMIT, Mutex, wait};
use crate::walker::{Op, Saved, Sink, Walker, replayer};

/// The bytes of a ring that has snapshots. Most programs need more. No step does, because a step that is too large
/// leaves nothing before it.
const RING: usize = 2_000;

/// Among so many recordings, some begin with a snapshot, and some have a panic.
const ENOUGH: usize = 4_000;

/// A generator of random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn op(&mut self, pids: &[Pid], depth: u32) -> Op {
        let pid = *self.one_of(pids);
        match self.below(100) {
            0..15 => Op::Add(self.next()),
            15..40 if depth < 3 => Op::Forward(pid, Box::new(self.op(pids, depth + 1))),
            15..46 => Op::AskFor(pid),
            46..52 => Op::Answer(self.below(2) == 0),
            52..54 => Op::Spawn,
            54..60 => Op::Look,
            60..64 => Op::Timer,
            64..67 => Op::Blocking(self.next()),
            67..70 => Op::Monitor(pid),
            70..71 => Op::Link(pid),
            71..72 => Op::Trap,
            72..75 => Op::Name(self.next() % 2),
            75..77 => Op::Join,
            77..79 => Op::Subscribe,
            79..82 => Op::Broadcast(self.next()),
            82..84 => Op::Member(self.next()),
            84..88 => Op::Slow(pid, self.next()),
            88..92 => Op::Choosy(self.next() % 3),
            92..95 => Op::Wait,
            95..97 => Op::Continue,
            97 => Op::Done,
            98 => Op::Fail,
            _ => Op::Panic,
        }
    }
}

/// A recorder, which has snapshots in one of two programs.
fn recorder(random: &mut Random, saved: &Saved) -> Recorder {
    let recorder = if random.below(2) == 0 { saved.recorder() } else { saved.with_snapshots().ring(RING) };
    recorder.save_at_end()
}

/// Begins a program.
fn begin(random: &mut Random, runtime: &Runtime) -> Vec<Handle<Walker>> {
    let sink = runtime.spawn(Sink).unwrap();
    let walkers: Vec<Handle<Walker>> = (0..8)
        .map(|number| {
            let options = SpawnOptions::new().entry("with", sink.pid());
            let options = if number % 3 == 0 { options.mailbox(6, Overflow::Refuse) } else { options };
            runtime.spawn_with(Walker::new(), options).unwrap()
        })
        .collect();
    let pids: Vec<Pid> = walkers.iter().map(Handle::pid).collect();
    for _ in 0..120 {
        let to = *random.one_of(&pids);
        // The walker may have ended, or its mailbox may be full.
        let _ = runtime.send(to, random.op(&pids, 0));
    }
    walkers
}

/// Asks the walkers of a program to end.
fn cancel(runtime: &Runtime, walkers: &[Handle<Walker>]) {
    for walker in walkers {
        let _ = runtime.cancel(walker.pid(), "the program is over");
    }
}

/// Runs a program. Returns the recordings of its walkers, and how the first ones have ended.
fn run(random: &mut Random, saved: &Saved) -> (Vec<Vec<u8>>, Vec<(Pid, Exit)>) {
    let recorder = recorder(random, saved);
    let runtime = Runtime::builder().workers(2).seed(random.next()).recorder(recorder).start().unwrap();
    let walkers = begin(random, &runtime);
    // It panics, unless it has ended before.
    let _ = runtime.send(walkers[0].pid(), Op::Panic);
    runtime.wait_idle_timeout(LIMIT).unwrap();
    cancel(&runtime, &walkers);
    let exits = walkers.iter().map(|walker| (walker.pid(), wait(walker).without_output())).collect();
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    assert_eq!(runtime.recording_usage(), (0, 0), "no recording outlives its process");
    (saved.take(), exits)
}

/// How many recordings, steps and panics were replayed.
#[derive(Debug, Default)]
struct Replayed {
    /// The recordings that have a step.
    recordings: usize,
    /// Those of them that begin with a snapshot.
    snapshots: usize,
    steps: usize,
    /// The exits of processes whose last step has panicked, in the program and in the replay.
    panics: usize,
}

impl Replayed {
    /// Replays the recordings of a program. The last step of each recording must have come to this exit of the process.
    fn replay_all(&mut self, recordings: &[Vec<u8>], exits: Vec<(Pid, Exit)>) {
        let ends: Vec<_> = recordings.iter().map(|bytes| self.replay(bytes)).collect();
        for (pid, exit) in exits {
            let (_, last) = ends.iter().find(|(of, _)| *of == pid).expect("each walker has a recording");
            let expected = match exit {
                Exit::Done(()) => StepEnd::Done,
                // No step has failed: the process waited for an answer that cannot come.
                Exit::Failed(failure) if failure.error().is::<WaitedForNothing>() => StepEnd::Wait,
                Exit::Failed(failure) => StepEnd::Failed(failure.to_string()),
                Exit::Panicked(panic) => {
                    self.panics += 1;
                    StepEnd::Panicked(panic.message().to_owned())
                }
                Exit::Terminated(_) => continue,
            };
            assert_eq!(*last, Some(expected), "{pid}");
        }
    }

    /// Replays a recording. Returns its process, and the end of the last step.
    fn replay(&mut self, bytes: &[u8]) -> (Pid, Option<StepEnd>) {
        let recording = Recording::from_bytes(bytes.to_vec()).unwrap();
        assert_eq!((recording.cut(), recording.skipped()), (None, 0));
        let (pid, text, count) = (recording.pid(), recording.to_string(), recording.steps());
        if count == 0 && recording.cause() == Some(SaveCause::Ended) {
            // A link has ended it before its first step.
            return (pid, None);
        }
        let is_snapshot = recording.begins_with_snapshot();
        let replay = if is_snapshot {
            recording.replay_snapshot::<Walker>(&replayer())
        } else {
            recording.replay(&replayer(), Walker::new)
        };
        let mut replay = replay.unwrap_or_else(|error| panic!("{text}: {error}"));
        let (mut steps, mut last) = (0, None);
        while let Some(step) = replay.step().unwrap_or_else(|error| panic!("{text}: {error}")) {
            (steps, last) = (steps + 1, Some(step.end));
        }
        assert_eq!(steps, count, "{text}");
        self.recordings += 1;
        self.snapshots += usize::from(is_snapshot);
        self.steps += steps;
        (pid, last)
    }

    /// Whether recordings of both kinds were replayed, with several steps, and a panic was met again.
    fn has_all(&self) -> bool {
        let Replayed { recordings, snapshots, steps, panics } = *self;
        snapshots > 0 && snapshots < recordings && steps > recordings && panics > 0
    }
}

/// Plain `cargo test` replays 400 processes, and `PROCESSION_RECORDINGS=10000` as many as are promised.
#[test]
fn recordings_of_random_programs_are_replayed() {
    quiet_panics();
    let count = std::env::var("PROCESSION_RECORDINGS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let seed = std::env::var("PROCESSION_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    println!("PROCESSION_SEED={seed} PROCESSION_RECORDINGS={count}");
    let (mut random, saved, mut replayed) = (Random(seed), Saved::default(), Replayed::default());
    // Few programs are so long that their recordings begin with a snapshot.
    let most = count.max(ENOUGH);
    while replayed.recordings < count || (!replayed.has_all() && replayed.recordings < most) {
        let (recordings, exits) = run(&mut random, &saved);
        replayed.replay_all(&recordings, exits);
    }
    assert!(replayed.has_all(), "{replayed:?}");
}

/// A seed, the recordings of its run, and how its first walkers have ended.
type SimulatedRun = (u64, Saved, Vec<(Pid, Exit)>);

#[test]
fn recordings_of_simulated_programs_are_replayed() {
    quiet_panics();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let all = runs.clone();
    let report = Simulation::new(move |world| {
        let (mut random, saved) = (Random(world.seed()), Saved::default());
        let recorder = recorder(&mut random, &saved);
        let runtime = world.start(Runtime::builder().recorder(recorder))?;
        let walkers = begin(&mut random, &runtime);
        // It panics, unless it has ended before.
        let _ = runtime.send(walkers[0].pid(), Op::Panic);
        world.run()?;
        cancel(&runtime, &walkers);
        world.run()?;
        let exit = |walker: Handle<Walker>| Some((walker.pid(), walker.join_timeout(Duration::ZERO).ok()?));
        let exits = walkers.into_iter().filter_map(exit).map(|(pid, exit)| (pid, exit.without_output())).collect();
        all.lock().unwrap().push((world.seed(), saved, exits));
        Ok(())
    })
    // Walkers panic on purpose, and wait for whom they please.
    .without("no step panics")
    .without("no process waits for what cannot come")
    .seeds(0..40)
    .run();
    assert!(report.failed().is_none(), "{}", report.failed().unwrap().report());
    let mut replayed = Replayed::default();
    let runs: Vec<SimulatedRun> = std::mem::take(&mut *runs.lock().unwrap());
    for (seed, saved, exits) in runs {
        println!("seed {seed}");
        replayed.replay_all(&saved.take(), exits);
    }
    assert!(replayed.has_all() && replayed.recordings >= 40 * 8, "{replayed:?}");
}
