//! One seed is one run. Statements 1 to 5.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use procession::command::Command;
use procession::simulation::{Simulation, World};
use procession::{Address, Event, Events, Handle, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use rand::TryRng as _;
use rand::rngs::SysRng;

use crate::programs::*;
use crate::wait::Mutex;

/// Sends to three counters in an order of its own.
struct Spreader {
    to: Vec<Address<CounterMessage>>,
    order: fn(usize) -> usize,
}

impl Process for Spreader {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let first = (self.order)(self.to.len());
        for place in 0..self.to.len() {
            out.send(self.to[(first + place) % self.to.len()], CounterMessage::Add(1));
        }
        Ok(Step::Done(()))
    }
}

fn spread(world: &World, order: fn(usize) -> usize) -> Result<(), procession::BoxError> {
    let runtime = world.start(Runtime::builder())?;
    let counter = |_| runtime.spawn(Counter::default()).map(|handle| handle.address());
    let to: Vec<_> = (0..3).map(counter).collect::<Result<_, _>>()?;
    runtime.spawn(Spreader { to, order })?;
    world.run()
}

/// The check fails, and the failure names the turn and the process that decides by itself.
fn is_named(order: fn(usize) -> usize) {
    is_named_in(move |world| spread(world, order));
}

/// As `is_named`, for a scenario of its own.
fn is_named_in(scenario: impl Fn(&World) -> Result<(), procession::BoxError> + Send + Sync + 'static) {
    let report = Simulation::new(scenario).seeds(0..200).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "a seed is one run");
    let named = format!("turn {}, <1.3.1> Spreader: first send ", failed.turn());
    assert!(failed.what().starts_with(&named), "{}", failed.what());
}

#[test]
fn the_order_of_a_hash_map_is_found_and_named() {
    is_named(|count| {
        let map: HashMap<usize, ()> = (0..64).map(|number| (number, ())).collect();
        map.keys().next().map_or(0, |number| number % count)
    });
}

#[test]
fn the_real_clock_is_found_and_named() {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    is_named(|count| {
        let begin = BEGIN.get_or_init(Instant::now);
        begin.elapsed().as_nanos() as usize % count
    });
}

#[test]
fn random_numbers_of_the_system_are_found_and_named() {
    is_named(|count| SysRng.try_next_u64().unwrap() as usize % count);
}

#[test]
fn a_count_that_outlives_the_seed_is_found_and_named() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    is_named(|count| COUNT.fetch_add(1, SeqCst) as usize % count);
}

#[test]
fn an_address_in_memory_is_found_and_named() {
    // The program keeps nothing, and decides by the address that the allocator happens to give.
    let order = |count: usize| {
        let new = std::hint::black_box(Box::new(0_u64));
        std::ptr::from_ref(&*new).addr() / 16 % count
    };
    // The scenario keeps more places of this size from run to run, so not all runs get the same address.
    let kept = Mutex::new(Vec::new());
    is_named_in(move |world| {
        let mut kept = kept.lock().map_err(|_| "poisoned")?;
        let more: Vec<Box<u64>> = (0..=kept.len() as u64).map(Box::new).collect();
        kept.push(more);
        drop(kept);
        spread(world, order)
    });
}

#[test]
fn a_program_that_decides_nothing_itself_passes() {
    Simulation::new(|world| spread(world, |_| 0)).seeds(0..200).check();
}

/// Draws and reads times, and notes both.
struct Reader {
    noted: Arc<procession::sync::Latch<(u64, Duration)>>,
}

impl Process for Reader {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let time = out.system_time().duration_since(std::time::SystemTime::UNIX_EPOCH)?;
        let _ = self.noted.set((out.random(), time));
        Ok(Step::Done(()))
    }
}

#[test]
fn random_numbers_and_the_time_follow_from_the_seed() {
    let read = |seed: u64| {
        let found = Arc::new(procession::sync::Latch::new());
        let notes = found.clone();
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let noted = Arc::new(procession::sync::Latch::new());
            runtime.spawn(Reader { noted: noted.clone() })?;
            world.run()?;
            if world.seed() == seed {
                let _ = notes.set(noted.get().ok_or("nothing was read")?);
            }
            Ok(())
        });
        simulation.seeds(seed..seed + 1).check();
        found.get().unwrap()
    };
    let all: Vec<_> = (1..5).map(read).collect();
    let again: Vec<_> = (1..5).map(read).collect();
    assert_eq!(all, again);
    assert_eq!(all.iter().map(|(number, _)| number).collect::<HashSet<_>>().len(), 4, "each seed has its numbers");
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let lowest = |threads| {
        let simulation = Simulation::new(|world| {
            let drawn = world.random(0..40);
            if drawn == 7 { Err(format!("drawn by seed {}", world.seed()).into()) } else { Ok(()) }
        });
        let report = simulation.threads(threads).run();
        report.failed().map(|failed| (failed.seed(), failed.what().to_owned()))
    };
    let alone = lowest(1);
    assert!(alone.is_some());
    assert_eq!(alone, lowest(2));
    assert_eq!(alone, lowest(5));
}

/// How the runs of each seed have ended: at what time, and with what total.
fn ends(seeds: u64, threads: usize) -> BTreeMap<u64, BTreeSet<(Duration, u64, usize)>> {
    let (notes, ends) = channel();
    let simulation = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        for _ in 0..3 {
            runtime.spawn(Adder { to: counter.address(), left: 3, tag: None })?;
        }
        let looks = Arc::new(AtomicU64::new(0));
        let look = looks.clone();
        world.invariant("nothing", move |state| {
            let waiting = state.messages::<CounterMessage>().count() as u64;
            // Folds the course of the run.
            look.store(look.load(SeqCst).wrapping_mul(31).wrapping_add(waiting), SeqCst);
            Ok(())
        });
        world.run()?;
        let end = (world.now(), looks.load(SeqCst), world.look(|state| state.processes::<Counter>().count()));
        notes.send((world.seed(), end))?;
        Ok(())
    });
    simulation.threads(threads).seeds(1..1 + seeds).check();
    let mut all = BTreeMap::<u64, BTreeSet<_>>::new();
    for (seed, end) in ends {
        all.entry(seed).or_default().insert(end);
    }
    all
}

#[test]
fn a_run_is_the_same_beside_other_simulations_and_at_other_addresses() {
    let alone = ends(20, 1);
    assert!((1..=20).all(|seed| alone[&seed].len() == 1), "two runs of a seed differ: {alone:?}");
    assert!(alone.values().collect::<BTreeSet<_>>().len() > 15, "the seeds differ");
    // Later allocations get other addresses, because these are kept.
    let kept: Vec<Vec<u8>> = (0..1_000).map(|size| vec![0; size]).collect();
    let beside = std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| ends(20, 2))).collect();
        let beside = ends(20, 2);
        assert!(others.into_iter().all(|other| other.join().is_ok_and(|ends| ends == beside)));
        beside
    });
    assert_eq!(beside, alone);
    drop(kept);
}

struct Ship;

impl Command for Ship {
    type Output = ();
}

struct Order(Option<Tag<()>>);

impl Process for Order {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.0.is_none() {
            self.0 = Some(out.command(Ship));
        }
        let is_answered = events.any(|event| matches!(event, Event::Completed(_)));
        Ok(if is_answered { Step::Done(()) } else { Step::Wait })
    }
}

#[test]
fn an_answer_from_a_thread_outside_is_named() {
    let simulation = Simulation::new(|world| {
        let builder = Runtime::builder().handler(|Ship, responder| {
            let carrier = std::thread::Builder::new().name("carrier-1".into()).spawn(move || responder.ok(()))?;
            carrier.join().map_err(|_| "the carrier panicked")?;
            Ok(())
        });
        let runtime = world.start(builder)?;
        runtime.spawn(Order(None))?;
        world.run()
    });
    let report = simulation.seeds(0..1).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "no thread outside of the simulation");
    assert!(failed.what().contains("Ship") && failed.what().contains("carrier-1"), "{}", failed.what());
}

#[test]
fn a_send_from_a_thread_outside_is_named() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        world.run()?;
        let sends = runtime.clone();
        let send = move || sends.send(&counter, CounterMessage::Add(1)).is_ok();
        let thread = std::thread::Builder::new().name("intruder".into()).spawn(send)?;
        let _ = thread.join();
        world.run()
    });
    let report = simulation.seeds(0..1).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "no thread outside of the simulation");
    assert!(failed.what().contains("intruder"), "{}", failed.what());
}

/// Something that another thread can do. It returns what it has used, which is dropped later.
type Act = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// The ways in which another thread can reach a process.
#[derive(Clone, Copy)]
enum Way {
    Feed,
    Waker,
    Reply,
}

/// Gives away a feed, the waker of a future, or a question that it was asked.
struct Giver {
    way: Way,
    gives: Sender<Act>,
    has_begun: bool,
}

enum Given {
    Item,
    Question(Reply<u64>),
}

impl Process for Giver {
    type Message = Given;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Given>, out: &mut StepOutput) -> StepResult<()> {
        let gives = self.gives.clone();
        let give = move |act: Act| _ = gives.send(act);
        match (self.way, std::mem::replace(&mut self.has_begun, true)) {
            (Way::Feed, false) => {
                let feed = out.feed(1);
                give(Box::new(move || Box::new((feed.try_put(Given::Item).is_ok(), feed))));
            }
            (Way::Waker, false) => {
                out.future(std::future::poll_fn(move |context| {
                    let waker = context.waker().clone();
                    give(Box::new(move || Box::new((waker.wake_by_ref(), waker))));
                    Poll::<()>::Pending
                }));
            }
            _ => events.for_each(|event| {
                if let Event::Message(Given::Question(reply)) = event {
                    give(Box::new(move || Box::new(reply.send(1))));
                }
            }),
        }
        Ok(Step::Idle)
    }
}

/// Asks a giver.
struct Asker(Address<Given>);

impl Process for Asker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if events.next().is_none() {
            out.ask(self.0, Given::Question, Duration::MAX);
        }
        Ok(Step::Idle)
    }
}

/// A thread reaches a resting process in this way. Returns the finding.
fn reached(way: Way) -> String {
    let simulation = Simulation::new(move |world| {
        let (gives, given) = channel();
        let runtime = world.start(Runtime::builder())?;
        let giver = runtime.spawn(Giver { way, gives, has_begun: false })?;
        if let Way::Reply = way {
            runtime.spawn(Asker(giver.address()))?;
        }
        world.run()?;
        let thread = std::thread::Builder::new().name("intruder".into()).spawn(given.try_recv()?)?;
        let used = thread.join().map_err(|_| "the intruder panicked")?;
        let result = world.run();
        drop(used);
        result
    });
    let report = simulation.seeds(0..1).run();
    let failed = report.failed().unwrap();
    format!("{}: {}", failed.check(), failed.what())
}

const REACHED: &str = "no thread outside of the simulation: \
                       the thread \"intruder\", which is outside of the simulation, woke a process";

#[test]
fn a_thread_outside_that_puts_into_a_feed_is_named() {
    assert_eq!(reached(Way::Feed), REACHED);
}

#[test]
fn a_thread_outside_that_wakes_a_future_is_named() {
    assert_eq!(reached(Way::Waker), REACHED);
}

#[test]
fn a_thread_outside_that_replies_is_named() {
    assert_eq!(reached(Way::Reply), REACHED);
}

#[test]
fn a_process_that_waits_for_what_cannot_come_is_named() {
    // The responders are kept here, and answer nothing.
    let (keeps, kept) = channel();
    let simulation = Simulation::new(move |world| {
        let keeps = keeps.clone();
        let builder = Runtime::builder().handler(move |Ship, responder| Ok(keeps.send(responder)?));
        let runtime = world.start(builder)?;
        runtime.spawn(Order(None))?;
        world.run()
    });
    let report = simulation.seeds(0..1).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "no process waits for what cannot come");
    assert!(failed.what().contains("Ship"), "{}", failed.what());
    drop(kept);
}

#[test]
fn a_command_whose_future_is_never_ready_is_named_until_its_process_ends() {
    let waits = |is_terminated: bool| {
        let simulation = Simulation::new(move |world| {
            let builder = Runtime::builder().handler_async(|Ship| std::future::pending());
            let runtime = world.start(builder)?;
            let order = runtime.spawn(Order(None))?;
            if is_terminated {
                world.run()?;
                runtime.terminate(order.pid())?;
            }
            runtime.wait_idle()?;
            Ok(())
        });
        simulation.seeds(0..1).run()
    };
    let report = waits(false);
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "every wait ends");
    assert!(failed.what().ends_with("; open: command simulation::seeds::Ship of <1.0.1>"), "{}", failed.what());
    assert!(waits(true).failed().is_none());
}

/// Never rests.
struct Restless;

impl Process for Restless {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Continue)
    }
}

/// Sets a timer in each step.
struct Periodic;

impl Process for Periodic {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        out.after(Duration::from_secs(1));
        Ok(Step::Idle)
    }
}

#[test]
fn a_run_that_does_not_end_fails() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        runtime.spawn(Restless)?;
        world.run()
    });
    let report = simulation.seeds(0..1).max_turns(500).run();
    let failed = report.failed().unwrap();
    assert_eq!((failed.check(), failed.turn()), ("the run ends", 501));
    assert!(failed.what().contains("Restless"), "{}", failed.what());
}

/// Waits in a blocking closure for the end of another process.
struct Waits(Option<Handle<Restless>>);

impl Process for Waits {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(other) = self.0.take() {
            let _ = out.blocking(move || while other.join().is_err() {});
        }
        Ok(Step::Continue)
    }
}

#[test]
fn a_closure_that_waits_for_a_process_without_an_end_ends_with_the_run() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let other = runtime.spawn(Restless)?;
        runtime.spawn(Waits(Some(other)))?;
        world.run()
    });
    let report = simulation.seeds(0..1).max_turns(500).run();
    assert_eq!(report.failed().unwrap().check(), "the run ends");
}

#[test]
fn a_run_whose_timers_never_end_fails() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        runtime.spawn(Counter::default())?;
        runtime.spawn(Periodic)?;
        world.run()
    });
    let report = simulation.seeds(0..1).max_time(Duration::from_secs(10)).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "the run ends");
    assert!(failed.what().contains("Periodic"), "{}", failed.what());
}

#[test]
fn a_scenario_that_waits_again_and_again_while_nothing_happens_fails() {
    for is_join in [false, true] {
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let counter = runtime.spawn(Counter::default())?;
            loop {
                if is_join {
                    let _ = counter.join_timeout(Duration::from_secs(1));
                } else {
                    world.run_for(Duration::from_secs(1))?;
                }
            }
        });
        let report = simulation.seeds(0..1).max_time(Duration::from_secs(100)).run();
        let failed = report.failed().unwrap();
        assert_eq!(failed.check(), "the run ends");
        assert!(failed.what().contains("within 100s of virtual time"), "{}", failed.what());
    }
}

#[test]
fn a_wait_that_nothing_ends_fails_the_run() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        counter.join()?;
        Ok(())
    });
    let report = simulation.seeds(0..1).run();
    assert_eq!(report.failed().unwrap().check(), "every wait ends");
}
