//! Small worlds about the order of effects in a turn, and about supervisors: each is about a line that the random
//! programs do not need.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use procession::feed::Feed;
use procession::observe::{DeadLetter, Observer};
use procession::simulation::{Simulation, World, ensure};
use procession::supervisor::{Backoff, ChildSpec, Supervisor, SupervisorMessage};
use procession::{
    Address, BoxError, EntryArgs, Event, Events, Exit, InitResult, Pid, Process, SpawnOptions, Step, StepOutput,
    StepResult, Tag, Upgrade, WeakRuntime,
};

use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);

fn worlds(
    name: &str,
    seeds: u64,
    scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static,
) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..seeds)
}

/// Compares the counts of the runtime with the number of dead letters, at each of them.
#[derive(Default)]
struct Accountant {
    runtime: OnceLock<WeakRuntime>,
    dead: AtomicU64,
    early: AtomicBool,
}

/// The observer of a world. The scenario keeps the other handle.
struct Accounts(Arc<Accountant>);

impl Observer for Accounts {
    fn dead_letter(&self, _: &DeadLetter<'_>) {
        let dead = self.0.dead.fetch_add(1, Ordering::SeqCst) + 1;
        let accepted =
            self.0.runtime.get().and_then(WeakRuntime::upgrade).map(|runtime| runtime.stats().messages.accepted);
        self.0.early.fetch_or(accepted.is_some_and(|accepted| accepted < dead), Ordering::SeqCst);
    }
}

#[test]
fn no_letter_is_dead_before_it_is_accepted() {
    worlds("dead letters", 100, |world| {
        let accountant = Arc::<Accountant>::default();
        let runtime = world.start(builder().observer(Accounts(accountant.clone())))?;
        _ = accountant.runtime.set(runtime.downgrade());
        let ended: Vec<Address<u64>> =
            (0..2).map(|_| runtime.spawn(sink::<u64>()).map(|sink| sink.address())).collect::<Result<_, _>>()?;
        for sink in &ended {
            runtime.terminate(*sink)?;
        }
        world.run()?;
        // Steps that send one message, and steps that send more.
        for most in 1..4 {
            let ended = ended.clone();
            runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                ended.iter().cycle().take(most).for_each(|to| out.send(*to, 1));
                Ok(Step::Done(()))
            }))?;
            world.run()?;
        }
        ensure(accountant.dead.load(Ordering::SeqCst) == 6, || "letters are missing".into())?;
        ensure(!accountant.early.load(Ordering::SeqCst), || "a letter was dead before it was accepted".into())?;
        Ok(())
    })
    .check();
}

#[test]
fn all_messages_of_a_very_large_step_arrive() {
    const MESSAGES: usize = 40_000;
    worlds("large steps", 2, |world| {
        let runtime = world.start(builder())?;
        let sinks = [runtime.spawn(sink::<u64>())?, runtime.spawn(sink::<u64>())?];
        let to: Vec<Address<u64>> = sinks.iter().map(|sink| sink.address()).collect();
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            (0..MESSAGES).for_each(|n| out.send(to[n % 2], n as u64));
            Ok(Step::Done(()))
        }))?;
        world.run()?;
        for sink in sinks {
            runtime.cancel(&sink, "enough")?;
            let exit = sink.join()?;
            ensure(exit.output().is_some_and(|seen| **seen == MESSAGES / 2), || format!("{exit}"))?;
        }
        Ok(())
    })
    .max_turns(100_000)
    .check();
}

/// Sends messages, and is replaced in the same step. Others may be stepped between messages to different processes.
struct Replaced {
    to: Option<[Address<()>; 2]>,
    closed: Arc<AtomicBool>,
}

impl Process for Replaced {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let Some(to) = self.to.take() else { return Ok(Step::Idle) };
        to.into_iter().cycle().take(4).for_each(|to| out.send(to, ()));
        Ok(Step::Upgrade(Upgrade::to(Replaced { to: None, closed: Arc::default() })))
    }

    fn close(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_replaced_state_machine_is_closed_before_its_messages_arrive() {
    worlds("closed before", 300, |world| {
        let runtime = world.start(builder())?;
        let (closed, early) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (is_closed, is_early) = (closed.clone(), early.clone());
        let receiver = runtime.spawn(script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
            let has_come = events.any(|event| matches!(event, Event::Message(())));
            is_early.fetch_or(has_come && !is_closed.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(Step::<()>::Idle)
        }))?;
        let other = runtime.spawn(sink::<()>())?;
        runtime.spawn(Replaced { to: Some([receiver.address(), other.address()]), closed })?;
        world.run()?;
        ensure(!early.load(Ordering::SeqCst), || "a message came before `close` was called".into())?;
        Ok(())
    })
    .check();
}

/// Takes an item of its full feed, and lets a future put the next one.
#[derive(Default)]
struct Refills {
    feed: Option<Feed<u64>>,
    put: Option<Tag<bool>>,
}

impl Process for Refills {
    type Message = u64;
    type Output = bool;

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<bool> {
        for event in events {
            match event {
                Event::Message(1) => {
                    let feed = self.feed.take();
                    self.put = Some(out.future(async move { feed.is_some_and(|feed| feed.try_put(2).is_ok()) }));
                }
                Event::Completed(done) => {
                    if let Some(is_put) = done.take(self.put) {
                        return Ok(Step::Done(is_put?));
                    }
                }
                _ => {}
            }
        }
        if self.put.is_none() && self.feed.as_ref().is_none_or(|feed| feed.try_put(1).is_err()) {
            self.feed.get_or_insert_with(|| out.feed(1));
            return Ok(Step::Continue);
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_future_finds_the_room_that_its_step_has_made() {
    worlds("room in a feed", 100, |world| {
        let runtime = world.start(builder())?;
        let exit = runtime.spawn(Refills::default())?.join()?;
        ensure(exit.output().is_some_and(|is_put| **is_put), || format!("{exit}"))?;
        Ok(())
    })
    .check();
}

#[test]
fn a_future_with_a_limit_ends_with_its_process() {
    worlds("limits of futures", 100, |world| {
        let runtime = world.start(builder())?;
        let mut steps = 0;
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            steps += 1;
            if steps > 1 {
                return Ok(Step::Done(()));
            }
            out.future_timeout(3_600 * SECOND, pending::<()>());
            Ok(Step::Continue)
        }))?;
        world.run()?;
        ensure(world.now() < SECOND, || format!("its timer fired at {:?}", world.now()))?;
        Ok(())
    })
    .check();
}

/// Fails at each message. Writes down when it starts and when it fails.
struct Fragile {
    starts: bool,
    moments: Arc<Mutex<Vec<Instant>>>,
}

impl Process for Fragile {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        if self.starts { Ok(()) } else { Err("it does not start".into()) }
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.moments.lock().unwrap().push(out.now());
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) => {
                    self.moments.lock().unwrap().push(out.now());
                    return Err("fragile".into());
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_child_that_was_added_is_restarted_after_its_delay_and_counted() {
    worlds("added children", 100, |world| {
        let runtime = world.start(builder())?;
        let supervisor = Supervisor::builder().backoff(Backoff::exponential(SECOND, SECOND)).build()?;
        let supervisor = runtime.spawn(supervisor)?;
        let moments = Arc::<Mutex<Vec<Instant>>>::default();
        let written = moments.clone();
        let spec = ChildSpec::new("child", move || Fragile { starts: true, moments: written.clone() });
        let limit = 100 * SECOND;
        let child = runtime.ask(&supervisor, SupervisorMessage::add(spec), limit).wait()??;
        for restarts in 1..3 {
            let child = runtime.ask(&supervisor, SupervisorMessage::children, limit).wait()?[0].pid.unwrap_or(child);
            runtime.send(child, ())?;
            world.run()?;
            let counted = runtime.ask(&supervisor, SupervisorMessage::children, limit).wait()?[0].restarts;
            ensure(counted == restarts, || format!("{counted} restarts, not {restarts}"))?;
        }
        let moments = moments.lock().unwrap();
        ensure(moments.len() == 5, || format!("{moments:?}"))?;
        for delay in [moments[2] - moments[1], moments[4] - moments[3]] {
            ensure(delay >= SECOND && delay < SECOND + SECOND / 2, || format!("a delay of {delay:?}"))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_supervisor_fails_with_a_first_child_that_does_not_start() {
    worlds("children that do not start", 100, |world| {
        let runtime = world.start(builder())?;
        let spec = ChildSpec::new("child", || Fragile { starts: false, moments: Arc::default() });
        let exit = runtime.spawn(Supervisor::builder().child(spec).build()?)?.join()?;
        ensure(exit.to_string().contains("it does not start"), || format!("{exit}"))?;
        Ok(())
    })
    .check();
}

/// Fails at its first message, and recovers if it may.
struct Recovers;

impl Process for Recovers {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        if events.any(|event| matches!(event, Event::Message(()))) { Err("fragile".into()) } else { Ok(Step::Idle) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Recovers))
    }
}

#[test]
fn a_process_that_was_asked_to_stop_does_not_recover() {
    worlds("stops before a failure", 100, |world| {
        let runtime = world.start(builder())?;
        for is_asked in [false, true] {
            let process = runtime.spawn(Recovers)?;
            if is_asked {
                runtime.cancel(&process, "enough")?;
            }
            if world.random(0..2) == 0 {
                world.run()?;
            }
            runtime.send(&process, ())?;
            world.run()?;
            ensure(runtime.is_alive(process.pid()) != is_asked, || format!("asked to stop: {is_asked}"))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_process_leaves_the_group_of_its_options_by_itself() {
    worlds("groups of the options", 100, |world| {
        let runtime = world.start(builder())?;
        let leaves = script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if events.any(|event| matches!(event, Event::Message(()))) {
                let me: Pid = out.pid();
                out.leave_group("all", me);
            }
            Ok(Step::<()>::Idle)
        });
        let process = runtime.spawn_with(leaves, SpawnOptions::new().group("all"))?;
        let members = || world.look(|state| state.members("all"));
        world.run()?;
        ensure(members() == [process.pid()], || format!("{:?}", members()))?;
        runtime.send(&process, ())?;
        world.run()?;
        ensure(members().is_empty(), || format!("{:?}", members()))?;
        Ok(())
    })
    .check();
}

/// Sends a message when it is told to whom, fails in its next step, recovers, and fails for good.
enum Fails {
    Waits,
    Next,
    ForGood,
}

impl Process for Fails {
    type Message = Address<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Address<()>>, out: &mut StepOutput) -> StepResult<()> {
        if !matches!(self, Fails::Waits) {
            return Err("on purpose".into());
        }
        let Some(Event::Message(to)) = events.next() else { return Ok(Step::Idle) };
        out.send(to, ());
        *self = Fails::Next;
        Ok(Step::Continue)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        matches!(self, Fails::Next).then(|| Upgrade::to(Fails::ForGood))
    }
}

/// Writes down the events that it takes.
struct Listener {
    link: Option<Pid>,
    taken: Arc<Mutex<Vec<&'static str>>>,
}

impl Process for Listener {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(pid) = self.link.take() {
            out.link(pid);
        }
        for event in events {
            self.taken.lock().unwrap().push(match event {
                Event::Message(()) => "message",
                Event::Recovered(_) => "recovered",
                Event::Exit(_) => "exit",
                _ => "other",
            });
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_message_a_recovery_and_an_end_of_one_process_come_in_order() {
    worlds("a recovery and an end", 300, |world| {
        let runtime = world.start(builder())?;
        let taken = Arc::<Mutex<Vec<&'static str>>>::default();
        let fails = runtime.spawn(Fails::Waits)?;
        let listener = Listener { link: Some(fails.pid()), taken: taken.clone() };
        let listener = runtime.spawn_with(listener, SpawnOptions::new().trap_exits())?;
        world.run()?;
        // Woken by this one, it finds all that comes from the other in its inbox, in one step.
        runtime.send(&listener, ())?;
        runtime.send(&fails, listener.address())?;
        world.run()?;
        let taken = taken.lock().unwrap();
        ensure(*taken == ["message", "message", "recovered", "exit"], || format!("{taken:?}"))?;
        Ok(())
    })
    .check();
}

/// A message whose destructor panics.
struct Hostile;

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_letter_whose_destructor_panics_hides_no_other_letter() {
    worlds("hostile letters", 100, |world| {
        let watcher = Watcher::new();
        let runtime = world.start(builder().observer(watcher.clone()))?;
        let idle = runtime.spawn(script(|_: &mut Events<'_, Hostile>, _: &mut StepOutput| Ok(Step::<()>::Idle)))?;
        for _ in 0..3 {
            runtime.send(&idle, Hostile).map_err(|_| "it is refused")?;
        }
        world.run()?;
        runtime.terminate(&idle)?;
        world.run()?;
        let (dead, exits) = (watcher.dead.len(), watcher.exits.to_vec());
        let is_terminated = exits.len() == 1 && exits[0].1.contains("terminated");
        ensure(dead == 3 && is_terminated, || format!("{dead} are dead, {exits:?}"))?;
        Ok(())
    })
    .check();
}
