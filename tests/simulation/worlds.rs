//! Worlds: how a program runs in one. Statements 11 to 14.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use procession::actor::{Actions, Actor, actor};
use procession::async_process::Context;
use procession::command::{Command, TimerFired};
use procession::names::GroupEvent;
use procession::simulation::{Simulation, ensure};
use procession::spawn::Overflow;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{
    Address, BoxError, CancelToken, CommandError, Event, Events, Process, Reply, Runtime, ShutdownError, SpawnOptions,
    Step, StepOutput, StepResult, Tag, WaitError, async_process,
};

use crate::programs::*;
use crate::wait::Mutex;

#[test]
fn a_program_runs_in_a_world_and_a_wait_drives_it() {
    let runs = Arc::new(AtomicU64::new(0));
    let counts = runs.clone();
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        let adders: Vec<_> = (0..3)
            .map(|_| runtime.spawn(Adder { to: counter.address(), left: 4, tag: None }))
            .collect::<Result<_, _>>()?;
        world.invariant("no more than was added", |state| {
            let total: u64 = state.processes::<Counter>().map(|(_, one)| one.total).sum();
            ensure(total <= 12, || format!("{total}"))
        });
        for adder in &adders {
            adder.join()?;
        }
        let total = runtime.ask(&counter, CounterMessage::Read, SECOND).wait()?;
        assert_eq!(total, 12);
        world.run()?;
        assert!(runtime.shutdown(SECOND)?.is_clean());
        counts.fetch_add(1, SeqCst);
        Ok(())
    })
    .seeds(0..200)
    .check();
    assert!(runs.load(SeqCst) >= 200);
}

/// Takes one message in each step, and rests for a second after it.
struct Slow;

impl Process for Slow {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(0)) => return Ok(Step::Done(())),
            Some(Event::Message(_)) => _ = out.after(SECOND),
            _ => return Ok(Step::Idle),
        }
        Ok(Step::Wait)
    }
}

#[test]
fn a_send_with_a_limit_a_watcher_and_a_sleep_drive_the_world() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let slow = runtime.spawn_with(Slow, SpawnOptions::new().mailbox(1, Overflow::Refuse))?;
        let watcher = runtime.watch(&slow);
        // There is room for the third one when the first is over. Nothing but this wait lets time pass.
        for number in 1..=3 {
            runtime.send_timeout(&slow, number, 10 * SECOND).wait()?;
        }
        assert!((SECOND..3 * SECOND).contains(&world.now()), "{:?}", world.now());
        let refused = runtime.send_timeout(&slow, 4, SECOND / 10).wait();
        assert!(refused.is_err(), "no step is taken meanwhile");

        let before = world.now();
        let token = CancelToken::with_clock(world.clock());
        assert_eq!(token.sleep(10 * SECOND), Ok(()));
        assert!((10 * SECOND..11 * SECOND).contains(&(world.now() - before)), "{:?}", world.now());
        assert_eq!(runtime.stats().messages.stepped, 3, "the process was stepped meanwhile");

        assert_eq!(watcher.wait_timeout(SECOND).err(), Some(WaitError::TimedOut));
        runtime.send(&slow, 0)?;
        assert!(watcher.wait()?.exit.is_done());
        Ok(())
    })
    .seeds(0..100)
    .check();
}

/// Sends two messages with one limit to a process that has no room. So two timers have one moment.
struct Sender {
    to: Address<u64>,
    due: Arc<Mutex<Option<Instant>>>,
}

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        let due = &mut *self.due.lock().map_err(|_| "poisoned")?;
        if due.is_none() {
            *due = Some(out.now() + SECOND / 10_000);
            for number in 0..2 {
                out.send_timeout(self.to, number, SECOND / 10_000);
                // This message waits behind the one with the limit. When that limit is over, it becomes a dead letter.
                out.send(self.to, number);
            }
        }
        Ok(Step::Idle)
    }
}

/// Is always ready until both limits are over. From the moment of the limits on, each step notes how many are over.
struct Onlooker {
    runtime: procession::WeakRuntime,
    due: Arc<Mutex<Option<Instant>>>,
    seen: std::sync::mpsc::Sender<u64>,
}

impl Process for Onlooker {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let over = self.runtime.upgrade().ok_or("it ends")?.stats().messages.dead();
        let due = *self.due.lock().map_err(|_| "poisoned")?;
        if due.is_some_and(|due| out.now() >= due) {
            self.seen.send(over)?;
        } else {
            assert_eq!(over, 0, "a timer is early");
        }
        Ok(if over == 2 { Step::Done(()) } else { Step::Continue })
    }
}

#[test]
fn others_are_stepped_before_between_and_after_two_timers_of_one_moment() {
    let (seen, all) = std::sync::mpsc::channel();
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let full = runtime.spawn_with(Slow, SpawnOptions::new().mailbox(1, Overflow::Refuse))?;
        runtime.send(&full, 1)?;
        // It waits for its timer, and one message is in its mailbox.
        world.run_for(SECOND / 2)?;
        runtime.send(&full, 2)?;
        let due = Arc::new(Mutex::new(None));
        runtime.spawn(Sender { to: full.address(), due: due.clone() })?;
        let onlooker = Onlooker { runtime: runtime.downgrade(), due, seen: seen.clone() };
        runtime.spawn(onlooker)?.join()?;
        Ok(())
    })
    .seeds(0..100)
    .check();
    let seen: BTreeSet<u64> = all.into_iter().collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2]), "how many of the two limits were over");
}

/// Notes the order in which its timers fire.
struct Alarms {
    delays: Vec<u64>,
    tags: Vec<Tag<TimerFired>>,
    fired: Vec<u64>,
}

impl Process for Alarms {
    type Message = ();
    type Output = Vec<u64>;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Vec<u64>> {
        if self.tags.is_empty() {
            self.tags = self.delays.iter().map(|delay| out.after(Duration::from_secs(*delay))).collect();
        }
        for event in events {
            if let Event::Completed(done) = event {
                let place = self.tags.iter().position(|tag| done.is(*tag)).ok_or("another answer")?;
                self.fired.push(self.delays[place]);
            }
        }
        let is_done = self.fired.len() == self.delays.len();
        Ok(if is_done { Step::Done(std::mem::take(&mut self.fired)) } else { Step::Idle })
    }
}

#[test]
fn timers_fire_in_the_order_of_their_moments_and_never_early() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let hours = [5, 1, 86_400, 3_600, 2, 60];
        let alarms = Alarms { delays: hours.to_vec(), tags: Vec::new(), fired: Vec::new() };
        let alarms = runtime.spawn(alarms)?;
        let exit = alarms.join()?;
        assert_eq!(**exit.output().ok_or("it did not end")?, [1, 2, 5, 60, 3_600, 86_400]);
        assert!(world.now() >= Duration::from_secs(86_400), "{:?}", world.now());
        Ok(())
    })
    .seeds(0..100)
    .max_time(Duration::from_secs(100_000))
    .check();
}

/// Counts the values of this type that live.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(living: &Arc<AtomicU64>) -> Counted {
        living.fetch_add(1, SeqCst);
        Counted(living.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Keeps a handle of its own runtime, and leaves much open: messages, questions, commands, timers and jobs.
struct Keeper {
    counts: Arc<AtomicU64>,
    kept: Vec<(Option<Runtime>, Counted)>,
    _reply: Option<Reply<Counted>>,
}

enum KeeperMessage {
    Keep(Runtime),
    Ask(Reply<Counted>),
    Wait(Counted),
}

impl Process for Keeper {
    type Message = KeeperMessage;
    type Output = Counted;

    fn step(&mut self, events: &mut Events<'_, KeeperMessage>, out: &mut StepOutput) -> StepResult<Counted> {
        let event = events.select(|message| !matches!(message, KeeperMessage::Wait(_)));
        match event {
            Some(Event::Message(KeeperMessage::Keep(runtime))) => {
                self.kept.push((Some(runtime), Counted::new(&self.counts)));
                let me = out.own_address::<Keeper>();
                let (for_job, for_answer) = (Counted::new(&self.counts), Counted::new(&self.counts));
                out.blocking(move || (for_job, for_answer).1);
                out.command(Open(Counted::new(&self.counts)));
                out.after(Duration::from_secs(1_000_000));
                out.send(me, KeeperMessage::Wait(Counted::new(&self.counts)));
                out.ask(me, KeeperMessage::Ask, Duration::MAX);
                // Nobody is there.
                out.send("nobody", KeeperMessage::Wait(Counted::new(&self.counts)));
                Ok(Step::Continue)
            }
            Some(Event::Message(KeeperMessage::Ask(reply))) => {
                self._reply = Some(reply);
                Ok(Step::Idle)
            }
            Some(Event::Cancel(_)) => Ok(Step::Done(Counted::new(&self.counts))),
            _ => Ok(Step::Idle),
        }
    }
}

/// A command that nobody answers.
struct Open(Counted);

impl Command for Open {
    type Output = Counted;
}

#[test]
fn no_object_of_a_world_outlives_it() {
    let (living, made) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counts, total) = (living.clone(), made.clone());
    Simulation::new(move |world| {
        let (of_handler, of_invariant) = (Counted::new(&counts), Counted::new(&counts));
        let open = Arc::new(Mutex::new(Vec::new()));
        let of_builder = open.clone();
        let builder = Runtime::builder().handler(move |command: Open, responder| {
            of_builder.lock().map_err(|_| "poisoned")?.push((command, responder, of_handler.0.clone()));
            Ok(())
        });
        let runtime = world.start(builder)?;
        world.invariant("it is asked", move |_| ensure(of_invariant.0.load(SeqCst) > 0, String::new));
        for number in 0..3 {
            let keeper = Keeper { counts: counts.clone(), kept: Vec::new(), _reply: None };
            let options = SpawnOptions::new().name(format!("keeper-{number}")).group("all");
            let keeper = runtime.spawn_with(keeper, options)?;
            runtime.send(&keeper, KeeperMessage::Keep(runtime.clone()))?;
        }
        let context_counts = counts.clone();
        runtime.spawn(async_process(async move |context: Context<()>| {
            let _counted = Counted::new(&context_counts);
            context.next().await;
            Ok(())
        }))?;
        world.run_for(SECOND)?;
        total.fetch_add(counts.load(SeqCst), SeqCst);
        // A handler that keeps the responders of its runtime keeps the runtime.
        open.lock().map_err(|_| "poisoned")?.clear();
        Ok(())
    })
    .seeds(0..300)
    .threads(1)
    .without("no process waits for what cannot come")
    .check();
    assert_eq!(living.load(SeqCst), 0);
    assert!(made.load(SeqCst) >= 300 * 12, "{} live in 300 worlds", made.load(SeqCst));
}

/// Tries to wait in a step.
struct Waiter {
    runtime: procession::WeakRuntime,
    other: procession::Handle<Counter>,
}

impl Process for Waiter {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let runtime = self.runtime.upgrade().ok_or("it ends")?;
        let refused = self.other.join().err();
        let asked = runtime.ask(&self.other, CounterMessage::Read, SECOND).wait().err();
        let ended = runtime.shutdown(SECOND).err();
        let is_refused = matches!(refused, Some(WaitError::InsideStep))
            && matches!(asked, Some(CommandError::InsideStep))
            && matches!(ended, Some(ShutdownError::InsideStep));
        if is_refused { Ok(Step::Done(())) } else { Err(format!("{refused:?}, {asked:?}, {ended:?}").into()) }
    }
}

#[test]
fn a_step_that_waits_is_refused_as_elsewhere() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let other = runtime.spawn(Counter::default())?;
        let waiter = runtime.spawn(Waiter { runtime: runtime.downgrade(), other })?;
        let exit = waiter.join()?;
        if exit.output().is_some() { Ok(()) } else { Err(format!("{exit}").into()) }
    })
    .seeds(0..20)
    .check();
}

/// Fails at its first message.
struct Fragile;

impl Process for Fragile {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(())) => Err("fragile".into()),
            Some(Event::Cancel(_)) => Ok(Step::Done(())),
            _ => Ok(Step::Idle),
        }
    }
}

/// An actor that counts what it is sent, and how often the members of a group change.
#[derive(Default)]
struct Clerk {
    total: u64,
    changes: u64,
}

impl Actor for Clerk {
    type Message = CounterMessage;
    type Output = (u64, u64);

    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        out.subscribe("all");
        Ok(())
    }

    fn receive(&mut self, message: CounterMessage, out: &mut Actions<Self>) -> Result<(), BoxError> {
        match message {
            CounterMessage::Add(number) => self.total += number,
            CounterMessage::Read(reply) => out.reply(reply, self.total),
        }
        Ok(())
    }

    fn group(&mut self, _: GroupEvent, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.changes += 1;
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(u64, u64), BoxError> {
        Ok((self.total, self.changes))
    }
}

#[test]
fn supervisors_names_groups_actors_and_async_processes_run_in_a_world() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let clerk = runtime.spawn(actor(Clerk::default()))?;
        let (first, second) =
            (runtime.send(&clerk, CounterMessage::Add(3)), runtime.send(&clerk, CounterMessage::Add(4)));
        first.and(second)?;
        assert_eq!(runtime.ask(&clerk, CounterMessage::Read, SECOND).wait()?, 7);
        let options = || SpawnOptions::new().name("fragile").group("all");
        let child = ChildSpec::new("fragile", || Fragile).options(options);
        runtime.spawn(Supervisor::builder().child(child).build()?)?;
        let sleeper = runtime.spawn(async_process(async |context: Context<u32>| {
            context.sleep(SECOND).await?;
            Ok(context.next().await)
        }))?;
        runtime.send(&sleeper, 7)?;
        let exit = sleeper.join()?;
        assert_eq!(exit.output().map(|output| **output), Some(Some(7)));
        let first = world.look(|state| state.holder("fragile")).ok_or("nobody has the name")?;
        runtime.send("fragile", ())?;
        world.run()?;
        let second = world.look(|state| state.holder("fragile")).ok_or("nobody has the name")?;
        assert_ne!(first, second, "it was started again");
        assert_eq!(world.look(|state| state.members("all")), [second]);
        runtime.wait_idle()?;
        runtime.cancel(&clerk, "closing time")?;
        // It was told of the members at first, of a join, of a leave, and of another join.
        assert_eq!(clerk.join()?.output().map(|output| **output), Some((7, 4)));
        assert!(runtime.shutdown(SECOND)?.is_clean());
        Ok(())
    })
    .seeds(0..100)
    .check();
}
