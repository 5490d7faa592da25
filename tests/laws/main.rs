//! Random programs of processes against a plain model of the laws 1 to 6 and 9, of monitors and links, and of
//! recoveries.
//!
//! A program is a set of plans: what a process yields in each of its steps, and how the step ends. The processes carry
//! out their plans on real workers, while somebody outside sends, terminates, and shuts the runtime down at a random
//! moment. Each process writes down what it did; afterwards the model is a few sums and orders over what was written.
//!
//! The seed is printed; `PROCESSION_SEED=...` runs the same programs again (the interleaving is the machine's).

#![allow(unreachable_pub, dead_code)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/log.rs"]
mod log;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/script.rs"]
mod script;
#[path = "../common/sums.rs"]
mod sums;
#[path = "../common/traces.rs"]
mod traces;
mod actor;
mod acts;
#[cfg(feature = "cluster")]
mod between;
mod bounded;
mod bounded_model;
mod broken_runs;
mod cycles;
mod ends;
mod fed;
mod hostile_log;
mod logged;
mod lost_bodies;
mod managed;
mod managed_laws;
mod monitor;
mod observations;
mod otherwise;
#[cfg(feature = "cluster")]
mod outside_watchers;
mod parcels;
mod records;
mod relations;
mod rooms;
mod simulated;
mod simulated_effects;
mod simulated_figures;
mod simulated_hostile;
mod simulated_log;
mod simulated_mailboxes;
#[cfg(feature = "cluster")]
mod simulated_nodes;
#[cfg(feature = "durable")]
mod simulated_stores;
mod simulated_supervisors;
mod simulated_turns;
mod simulated_worlds;
mod supervised;
mod supervised_laws;
mod told;
mod told_records;
mod yielding;
#[path = "../common/seeded.rs"]
mod seeded;
#[path = "../process/helpers.rs"]
mod helpers;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::Responder;
use procession::observe::{MetricsOptions, ProcessState};
use procession::spawn::Overflow;
use procession::{BoxError, Pid, Runtime, SendError};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::actor::Actor;
use crate::acts::{Act, Born, Completes, Do, DoSoon, Ending, Letter, Outcome, Plan, Start, Takes};
use crate::helpers::*;
use crate::monitor::Note;
use crate::observations::Stamp;
use crate::records::{World, WrittenAs};
use crate::seeded::random_programs;
use crate::sums::sums_agree;
use crate::traces::Traces;

#[derive(Clone, Debug)]
struct Program {
    workers: usize,
    step_events: usize,
    plans: Vec<Plan>,
    /// Processes spawned from outside, by plan.
    roots: Vec<usize>,
    /// The acts from outside, in order: send to this process, or terminate it.
    outside: Vec<(usize, bool)>,
    /// Whether the program may come to rest before the runtime is shut down.
    rests: bool,
}

fn handler(command: Do, done: Responder<u32>) -> Result<(), BoxError> {
    match command.outcome {
        Outcome::AtOnce => done.ok(1),
        Outcome::Elsewhere => {
            std::thread::Builder::new().name("procession-elsewhere".into()).spawn(move || done.ok(2))?;
        }
        Outcome::Fails => return Err("by plan".into()),
        Outcome::Panics => panic!("on purpose"),
        Outcome::Drops => {}
    }
    Ok(())
}

fn run(program: &Program, written_as: WrittenAs) -> Result<(), String> {
    let (manual, watcher) = (ManualClock::new(), Watcher::new());
    // Half of the programs have figures by type.
    let has_figures = program.step_events.is_multiple_of(2);
    let builder = match has_figures {
        true => builder().metrics(MetricsOptions::new().time_one_in(1).wait_one_in(1)),
        false => builder(),
    };
    // Every second pair of programs has traces: one yield in three begins one, or is within one.
    let traces = (program.step_events % 4 < 2).then(|| Traces::beginning_one_in(3));
    let builder = match &traces {
        Some(traces) => builder.propagate(traces.clone()),
        None => builder,
    };
    let runtime = builder
        .workers(program.workers)
        .step_events(program.step_events)
        .blocking_threads(2)
        .clock(manual.clock())
        .observer(watcher.clone())
        .handler(handler)
        .handler(|command: DoSoon, done| handler(command.0, done))
        .start()
        .map_err(|error| error.to_string())?;
    let world = Arc::new(World { written_as, plans: program.plans.clone(), ..World::default() });
    spawn_roots(program, &runtime, &world)?;
    for act in &program.outside {
        act_from_outside(*act, &runtime, &world);
    }
    if program.rests {
        rest(&runtime, &manual, &watcher, &world)?;
    }
    let report = runtime.shutdown(Duration::from_secs(3_600)).map_err(|error| error.to_string())?;
    if !report.stuck.is_empty() || runtime.stats().processes != 0 {
        return Err(format!("law 9: {report}"));
    }
    if has_figures {
        sums_agree(&runtime, &runtime.snapshot())?;
    }
    check(&runtime, &watcher, &world)?;
    drop(runtime);
    traces.map_or(Ok(()), |traces| check_traces(&traces))
}

/// Each span has ended, and nothing is left of any context.
fn check_traces(traces: &Traces) -> Result<(), String> {
    let spans = traces.spans();
    if let Some(open) = spans.iter().find(|span| span.parent.is_some() && span.end.is_empty()) {
        return Err(format!("the span of a step has not ended: {open:?}"));
    }
    match traces.contexts() {
        0 => Ok(()),
        left => Err(format!("{left} contexts of traces are left")),
    }
}

fn spawn_roots(program: &Program, runtime: &Runtime, world: &Arc<World>) -> Result<(), String> {
    for plan in &program.roots {
        let plan = plan % program.plans.len();
        let (process, options) = (Actor::new(world, plan), program.plans[plan].options());
        let pid = match world.written_as {
            WrittenAs::Machine => runtime.spawn_with(process, options).map(|handle| handle.pid()).ok(),
            WrittenAs::AsyncProcess => {
                let (process, options) = process.into_async(options);
                runtime.spawn_with(process, options).map(|handle| handle.pid()).ok()
            }
            WrittenAs::Actor => runtime.spawn_with(process.into_actor(), options).map(|handle| handle.pid()).ok(),
        };
        let pid = pid.ok_or("a spawn was refused")?;
        world.note_bound(pid, plan);
        world.known.lock().unwrap().push(pid);
    }
    Ok(())
}

/// Sends to a process, or terminates it.
fn act_from_outside((which, terminates): (usize, bool), runtime: &Runtime, world: &World) {
    let Some(to) = world.choose(which) else { return };
    if terminates {
        let was_alive = runtime.is_alive(to);
        let terminated = runtime.terminate(to);
        if let Err(error) = &terminated {
            world.violated(format!("processes: {to} has begun, and {error}"));
        }
        let has_lived = matches!(terminated, Ok(true));
        world.note(|| Note::Terminated { of: to, was_alive, has_lived });
        return;
    }
    let number = world.number();
    // It may be stepped before the send returns.
    world.note(|| Note::Sent(to, number));
    let letter = |stamp| Letter { to, from: None, number, effective: true, reply: None, stamp };
    let send = |stamp| match number.is_multiple_of(4) {
        true => send_converted(runtime, world, letter(stamp)),
        false => runtime.send(to, letter(stamp)).map_err(|rejected| rejected.into_parts().1),
    };
    let sent = match world.observations() {
        Some(seen) => seen.in_trace(number, || send(seen.stamp())),
        None => send(Stamp::default()),
    };
    match sent {
        Ok(()) => world.sent.lock().unwrap().entry((to, None)).or_default().push(number),
        Err(why) => {
            let is_full = matches!(why, SendError::Full { .. });
            world.note(|| Note::Refused { number, is_full });
        }
    }
}

/// Sends a letter that is converted on its way. The conversion of some terminates the receiver.
fn send_converted(runtime: &Runtime, world: &World, letter: Letter) -> Result<(), SendError> {
    struct Parcel(Letter);
    let (to, terminates, weak) = (letter.to, letter.number.is_multiple_of(32), runtime.downgrade());
    let terminated = Arc::<Mutex<Option<bool>>>::default();
    let told = terminated.clone();
    let target = to.typed::<Letter>().map(move |Parcel(letter)| {
        let runtime = weak.upgrade().filter(|_| terminates);
        *told.lock().unwrap() = runtime.and_then(|runtime| runtime.terminate(letter.to).ok());
        letter
    });
    let sent = runtime.send(&target, Parcel(letter)).map_err(|rejected| rejected.into_parts().1);
    if let Some(has_lived) = *terminated.lock().unwrap() {
        // A letter that is refused is not converted. So there was somebody.
        world.note(|| Note::Terminated { of: to, was_alive: true, has_lived });
    }
    sent
}

/// Law 2, and law 6 for the living: as time passes, every process comes to rest with nothing left to do.
fn rest(runtime: &Runtime, manual: &ManualClock, watcher: &Watcher, world: &World) -> Result<(), String> {
    let began = std::time::Instant::now();
    let mut before = 0;
    loop {
        manual.advance(Duration::from_secs(1));
        let processes = runtime.processes();
        let busy = processes.iter().find(|info| info.state != ProcessState::Idle);
        let stats = runtime.stats();
        let steps = stats.steps_elsewhere + stats.workers.iter().map(|worker| worker.steps).sum::<u64>();
        let still = std::mem::replace(&mut before, steps) == steps;
        if busy.is_none() && still && stats.timers == 0 && runtime.is_idle() {
            let alive: HashSet<Pid> = processes.iter().map(|info| info.pid).collect();
            let answered: HashSet<_> = world.answered.lock().unwrap().iter().copied().collect();
            let asked = world.asked.lock().unwrap();
            let open = asked.iter().any(|question| alive.contains(&question.0) && !answered.contains(question));
            if !open {
                if let Some(left) = processes.iter().find(|info| info.mailbox > 0) {
                    return Err(format!("law 2: {left:?} rests"));
                }
                let ended = watcher.exits.to_vec().into_iter().collect();
                return world.relations.check_at_rest(&alive, &ended);
            }
        }
        if began.elapsed() > LIMIT {
            return Err(format!("law 2 or 6: no rest; {busy:?}"));
        }
        std::thread::yield_now();
    }
}

fn check(runtime: &Runtime, watcher: &Watcher, world: &World) -> Result<(), String> {
    if let Some(violation) = world.violations.lock().unwrap().first() {
        return Err(violation.clone());
    }
    let messages = runtime.stats().messages;
    if messages.accepted != messages.stepped + messages.dead() + messages.queued {
        return Err(format!("law 3: {messages:?}"));
    }
    let (sent, received) = (world.sent.lock().unwrap(), world.received.lock().unwrap());
    let mut missing: HashMap<Pid, usize> = HashMap::new();
    for (pair, numbers) in sent.iter() {
        let got = received.get(pair).map_or(&[][..], Vec::as_slice);
        // In order and at most once: what was received is a part of what was sent, in the same order.
        let mut rest = numbers.iter();
        if !got.iter().all(|number| rest.any(|sent| sent == number)) {
            return Err(format!("law 3: {pair:?} sent {numbers:?}, received {got:?}"));
        }
        *missing.entry(pair.0).or_default() += numbers.len() - got.len();
    }
    if let Some(pair) = received.keys().find(|pair| !sent.contains_key(pair)) {
        return Err(format!("law 3: {pair:?} received what nobody sent"));
    }
    let mut dead: HashMap<Pid, usize> = HashMap::new();
    let letters = watcher.dead.take();
    letters.iter().for_each(|(to, _, _)| *dead.entry(*to).or_default() += 1);
    // A letter that found no room may have come back to a process that has ended meanwhile.
    let rooms = world.rooms.lock().unwrap();
    for (pid, missing) in missing {
        let dead = dead.remove(&pid).unwrap_or(0);
        let unknown = rooms.values().filter(|to| **to == pid).count();
        if !(dead..=dead + unknown).contains(&missing) {
            return Err(format!(
                "law 3: {missing} letters to {pid} are missing, {dead} were reported dead: {letters:?}"
            ));
        }
    }
    let answered = world.answered.lock().unwrap();
    let once: HashSet<_> = answered.iter().collect();
    if once.len() != answered.len() {
        return Err("law 6: a command was answered twice".into());
    }
    if let Some(stray) = answered.iter().find(|question| {
        !world.asked.lock().unwrap().contains(*question) && !world.abandoned.lock().unwrap().contains(*question)
    }) {
        return Err(format!("law 4 or 6: {stray:?} was answered, and not asked by a step that succeeded"));
    }
    let (spawned, ended) = (watcher.spawned.take(), watcher.exits.take());
    let ended: HashMap<Pid, String> = ended.into_iter().collect();
    if let Some((pid, exit)) = world.ran.lock().unwrap().iter().find(|(pid, exit)| ended.get(pid) != Some(exit)) {
        return Err(format!("runs: {pid} ended: {:?}, and its parent was told {exit}", ended.get(pid)));
    }
    world.relations.check(&spawned.into_iter().collect(), &ended)?;
    let (inits, closes) = (world.inits.load(Ordering::SeqCst), world.closes.load(Ordering::SeqCst));
    if inits != closes {
        return Err(format!("law 9: {inits} were initialised, {closes} closed"));
    }
    Ok(())
}

fn act() -> impl Strategy<Value = Act> {
    let outcome = prop_oneof![
        Just(Outcome::AtOnce),
        Just(Outcome::Elsewhere),
        Just(Outcome::Fails),
        Just(Outcome::Panics),
        Just(Outcome::Drops)
    ];
    let born = prop_oneof![2 => Just(Born::Alone), 1 => Just(Born::Monitored), 1 => Just(Born::Linked)];
    // Very few, because each has very many yields.
    let rare = Just(Act::Burst);
    let completes = prop_oneof![1 => Just(Completes::AtOnce), 1 => Just(Completes::Woken), 2 => Just(Completes::Never)];
    let common = prop_oneof![
        8 => any::<usize>().prop_map(Act::Send),
        3 => (any::<usize>(), born).prop_map(|(plan, born)| Act::Spawn(plan, born)),
        3 => any::<usize>().prop_map(Act::Ask),
        1 => (0..4_u8).prop_map(Act::Timer),
        1 => any::<bool>().prop_map(|panics| Act::Blocking { panics }),
        3 => outcome.clone().prop_map(Act::Command),
        1 => outcome.prop_map(Act::CommandTimeout),
        1 => any::<usize>().prop_map(Act::Cancel),
        1 => any::<usize>().prop_map(Act::Terminate),
        3 => any::<usize>().prop_map(Act::Monitor),
        1 => any::<usize>().prop_map(Act::Demonitor),
        2 => any::<usize>().prop_map(Act::Link),
        1 => any::<usize>().prop_map(Act::Unlink),
        2 => completes.prop_map(Act::Future),
        1 => any::<usize>().prop_map(Act::Run),
        1 => any::<usize>().prop_map(Act::CancelCommand),
        2 => (any::<usize>(), 0..4_u8).prop_map(|(which, seconds)| Act::SendTimeout(which, seconds)),
        1 => Just(Act::Parcels),
    ];
    prop_oneof![800 => common, 1 => rare]
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        4 => Just(Ending::Continue),
        8 => Just(Ending::Idle),
        4 => Just(Ending::Wait),
        1 => Just(Ending::Blocking),
        1 => Just(Ending::Done),
        2 => Just(Ending::Fail),
        1 => Just(Ending::Panic),
        1 => Just(Ending::Upgrade),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let takes = prop_oneof![6 => Just(Takes::All), 3 => (1..4_usize).prop_map(Takes::Few), 1 => Just(Takes::Nothing)];
    let step = (takes, prop::collection::vec(act(), 0..6), ending());
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::DropOldest), Just(Overflow::DropNewest)];
    let bound = prop::option::weighted(0.4, (1..6_usize, overflow));
    let start = prop_oneof![8 => Just(Start::Silent), 1 => Just(Start::Counts), 1 => Just(Start::Fails)];
    let plan = (prop::collection::vec(step, 1..8), bound, prop::bool::weighted(0.7), 0..2_usize, start)
        .prop_map(|(steps, bound, traps, recovers, start)| Plan { steps, bound, traps, recovers, start });
    (
        1..=3_usize,
        1..=9_usize,
        prop::collection::vec(plan, 1..6),
        prop::collection::vec(any::<usize>(), 1..6),
        prop::collection::vec((any::<usize>(), prop::bool::weighted(0.1)), 0..60),
        any::<bool>(),
    )
        .prop_map(|(workers, step_events, plans, roots, outside, rests)| Program {
            workers,
            step_events,
            plans,
            roots,
            outside,
            rests,
        })
}

#[test]
fn random_programs_keep_the_laws() {
    random_programs(400, Config::default(), program(), |program| run(program, WrittenAs::Machine));
}

#[test]
fn random_programs_of_async_processes_keep_the_laws() {
    random_programs(150, Config::default(), program(), |program| run(program, WrittenAs::AsyncProcess));
}

#[test]
fn random_programs_of_actors_keep_the_laws() {
    random_programs(150, Config::default(), program(), |program| run(program, WrittenAs::Actor));
}
