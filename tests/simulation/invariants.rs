//! Invariants and what must hold in the end. Statements 23 to 25.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use procession::simulation::{Simulation, WorldState, ensure};
use procession::{Address, CancelToken, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};

use crate::programs::*;
use crate::script::script;

/// Takes one number in each step, and adds it to a sum. It ends with its last step, if it has one.
struct Slow {
    sum: u64,
    steps: u64,
    last: Option<u64>,
}

impl Process for Slow {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        let event = events.next();
        self.steps += 1;
        if let Some(Event::Message(number)) = &event {
            self.sum += number;
        }
        Ok(match (event, self.last) {
            (_, Some(last)) if self.steps == last => Step::Done(()),
            (Some(_), _) => Step::Continue,
            (None, _) => Step::Idle,
        })
    }
}

#[test]
fn an_invariant_sees_processes_messages_and_time_after_each_turn() {
    let (notes, runs) = std::sync::mpsc::channel();
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let options = procession::SpawnOptions::new().name("counter").group("counters");
        let counter = runtime.spawn_with(Slow { sum: 0, steps: 0, last: None }, options)?;
        // The first step takes nothing. The second one takes one of three messages, and ends the process.
        let short = runtime.spawn(Slow { sum: 0, steps: 0, last: Some(2) })?.address();
        let (asked, clock, start) = (Arc::new(AtomicU64::new(0)), world.clock(), world.clock().now());
        let (counts, mut steps_before, mut time_before) = (asked.clone(), 0, Duration::ZERO);
        world.invariant("all that was sent is somewhere", move |state| {
            counts.fetch_add(1, SeqCst);
            let waiting = |to| {
                let messages = state.messages::<u64>().filter(move |one| one.to == to);
                messages.fold((0, 0), |(count, sum), one| (count + 1, sum + one.message))
            };
            let pid = state.holder("counter").ok_or("nobody has the name")?;
            ensure(state.members("counters") == [pid], || format!("{:?}", state.members("counters")))?;
            ensure(state.members("others").is_empty(), || "a group has members".into())?;
            let counter = state.process::<Slow>(pid).ok_or("it has another type")?;
            let (_, sum) = waiting(pid);
            ensure(sum + counter.sum == 55, || format!("{sum} + {}", counter.sum))?;
            let of_short = state.process::<Slow>(short.pid()).map(|short| short.steps);
            let is_alive = state.is_alive(short);
            ensure(of_short.is_some() == is_alive, || "it is not seen".into())?;
            let (count, dead) = (waiting(short.pid()).0, state.dead_letters());
            let expected = if is_alive { (3, 0) } else { (0, 2) };
            ensure((count, dead) == expected, || format!("{count} waiting and {dead} dead letters of three"))?;
            let (steps, now) = (counter.steps + of_short.unwrap_or(2), state.now());
            ensure(steps <= steps_before + 1, || format!("{steps_before} steps, and then {steps}"))?;
            ensure(steps == steps_before || now > time_before, || format!("{time_before:?}, and then {now:?}"))?;
            ensure(now == clock.now().duration_since(start), || format!("another time: {now:?}"))?;
            (steps_before, time_before) = (steps, now);
            Ok(())
        });
        for number in 1..=10 {
            runtime.send(&counter, number)?;
        }
        for _ in 0..3 {
            runtime.send(short, 1)?;
        }
        world.run()?;
        let (steps, dead) = world.look(|state| {
            let counter = state.process::<Slow>(counter.pid()).map_or(0, |counter| counter.steps);
            (counter + state.process::<Slow>(short.pid()).map_or(2, |short| short.steps), state.dead_letters())
        });
        notes.send((asked.load(SeqCst), steps, dead))?;
        Ok(())
    })
    .seeds(0..100)
    .check();
    for (asked, steps, dead) in runs {
        assert!(steps > 12 && asked >= steps && dead == 2, "asked {asked} times, {steps} steps, {dead} dead letters");
    }
}

/// Alternates between steps that may block and closures that block.
struct Blocker {
    left: u32,
    tag: Option<Tag<()>>,
}

impl Process for Blocker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        self.left -= 1;
        match self.left {
            0 => Ok(Step::Done(())),
            left if left.is_multiple_of(2) => Ok(Step::Blocking),
            _ => {
                self.tag = Some(out.blocking(|| ()));
                Ok(Step::Wait)
            }
        }
    }
}

#[test]
fn an_invariant_sees_a_process_before_and_after_blocking_work() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let blocker = runtime.spawn(Blocker { left: 12, tag: None })?;
        runtime.send(&blocker, ())?;
        let pid = blocker.pid();
        world.invariant("a living process is seen", move |state| {
            let is_seen = state.process::<Blocker>(pid).is_some();
            ensure(is_seen == state.is_alive(pid.typed::<()>()), || "it is not seen".into())
        });
        world.run()
    })
    .seeds(0..20)
    .check();
}

/// Waits for ten seconds, in a blocking step or in a closure. Meanwhile a process is stepped every second.
struct Napper {
    in_closure: bool,
    steps: u32,
}

impl Process for Napper {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let nap = || _ = CancelToken::new().sleep(10 * SECOND);
        events.for_each(drop);
        self.steps += 1;
        match (self.steps, self.in_closure) {
            (1, false) => return Ok(Step::Blocking),
            (1, true) => _ = out.blocking(nap),
            (2, false) => nap(),
            _ => {}
        }
        Ok(Step::Idle)
    }
}

/// While a step waits, its state cannot be seen. An invariant would find its process missing.
#[test]
fn invariants_are_asked_in_a_wait_of_a_closure_and_not_in_one_of_a_step() {
    for in_closure in [false, true] {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        Simulation::new(move |world| {
            let (runtime, counts) = (world.start(Runtime::builder())?, counted.clone());
            world.invariant("it is seen", move |state| {
                if (SECOND..10 * SECOND).contains(&state.now()) {
                    counts.fetch_add(1, SeqCst);
                }
                ensure(state.processes::<Napper>().count() == 1, || String::from("it is not seen"))
            });
            runtime.spawn(Napper { in_closure, steps: 0 })?;
            runtime.spawn(script(|events: &mut Events<'_, ()>, out: &mut StepOutput| {
                events.for_each(drop);
                out.after(SECOND);
                Ok(Step::<()>::Wait)
            }))?;
            world.run_for(20 * SECOND)
        })
        .seeds(0..20)
        .check();
        // A closure may also begin, and wait, inside of a step of the other process.
        assert_eq!(asked.load(SeqCst) > 0, in_closure);
    }
}

#[test]
fn an_invariant_that_does_not_hold_is_reported_by_its_name() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        world.invariant("at most three", |state| {
            let total: u64 = state.processes::<Counter>().map(|(_, one)| one.total).sum();
            ensure(total <= 3, || format!("it is {total}"))
        });
        for _ in 0..5 {
            runtime.send(&counter, CounterMessage::Add(1))?;
        }
        world.run()
    });
    let report = simulation.seeds(0..10).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "at most three");
    assert!(failed.report().contains("\"at most three\" does not hold: it is"), "{}", failed.report());
}

#[test]
fn a_run_with_invariants_is_the_run_without() {
    let run = |is_checked: bool| {
        let (ended, ends) = std::sync::mpsc::channel();
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let counter = runtime.spawn(Counter::default())?;
            for _ in 0..3 {
                runtime.spawn(Adder { to: counter.address(), left: 3, tag: None })?;
            }
            if is_checked {
                world.invariant("nothing", |state| {
                    let _ = (state.processes::<Counter>().count(), state.messages::<CounterMessage>().count());
                    let _ = (state.members("all"), state.holder("nobody"), state.dead_letters(), state.now());
                    Ok(())
                });
            }
            world.run()?;
            ended.send(world.now())?;
            Ok(())
        });
        let report = simulation.seeds(0..50).threads(1).run();
        assert!(report.failed().is_none());
        (report.hash(), ends.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(run(true), run(false));
}

/// Panics at its first message.
struct Bomb;

impl Process for Bomb {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        assert!(!events.any(|event| matches!(event, Event::Message(()))), "on purpose");
        Ok(Step::Idle)
    }
}

#[test]
fn the_error_of_a_run_says_how_its_check_has_failed() {
    for (has_invariant, expected) in
        [(true, "\"it is quiet\" does not hold: boom"), (false, "\"no step panics\" failed: <")]
    {
        let (says, said) = std::sync::mpsc::channel();
        let report = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let bomb = runtime.spawn(Bomb)?;
            if has_invariant {
                world.invariant("it is quiet", |_| Err(String::from("boom")));
            }
            runtime.send(&bomb, ())?;
            let _ = says.send(world.run().map_err(|error| error.to_string()));
            Ok(())
        })
        .seeds(0..1)
        .run();
        assert!(report.failed().is_some());
        let error = said.try_recv().unwrap().unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_panic_that_was_not_injected_fails_the_run_unless_switched_off() {
    let bomb = || {
        Simulation::new(|world| {
            let runtime = world.start(Runtime::builder())?;
            let bomb = runtime.spawn(Bomb)?;
            runtime.send(&bomb, ())?;
            world.run()
        })
        .seeds(0..1)
    };
    assert_eq!(bomb().run().failed().unwrap().check(), "no step panics");
    assert!(bomb().without("no step panics").run().failed().is_none());
}

/// Ignores requests to stop.
struct Deaf;

impl Process for Deaf {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

#[test]
fn an_unclean_shutdown_fails_the_run_unless_switched_off() {
    let ends = |is_forced: bool| {
        Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            if is_forced {
                runtime.spawn(Deaf)?.pid()
            } else {
                runtime.spawn(Counter::default())?.pid()
            };
            world.run()?;
            let report = runtime.shutdown(SECOND)?;
            ensure(report.is_clean() != is_forced, || format!("{report}"))?;
            Ok(())
        })
        .seeds(0..20)
    };
    let report = ends(true).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "every shutdown is clean");
    assert!(failed.what().contains("1"), "{}", failed.what());
    assert!(ends(true).without("every shutdown is clean").run().failed().is_none());
    // The world itself ends what is left by force, and that is no failure.
    assert!(ends(false).run().failed().is_none());
}

/// Keeps a question, and never answers it.
#[derive(Default)]
struct Silent(Vec<Reply<u64>>);

impl Process for Silent {
    type Message = CounterMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, CounterMessage>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(CounterMessage::Read(reply)) = event {
                self.0.push(reply);
            }
        }
        Ok(Step::Idle)
    }
}

/// Waits for an answer that never comes.
struct Asker(Address<CounterMessage>);

impl Process for Asker {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        out.ask(self.0, CounterMessage::Read, Duration::MAX);
        Ok(Step::Wait)
    }
}

#[test]
fn a_process_that_waits_in_vain_fails_the_run_unless_switched_off() {
    let waits = || {
        Simulation::new(|world| {
            let runtime = world.start(Runtime::builder())?;
            let silent = runtime.spawn(Silent::default())?;
            runtime.spawn(Asker(silent.address()))?;
            world.run()
        })
        .seeds(0..20)
    };
    let check = "no process waits for what cannot come";
    assert_eq!(waits().run().failed().unwrap().check(), check);
    assert!(waits().without(check).run().failed().is_none());
}

/// Asks an invariant that reaches for the runtime. Returns the check that fails, and the finding.
fn failure_of_meddling(
    meddle: impl Fn(&Runtime, Address<CounterMessage>, &WorldState<'_>) + Clone + Send + Sync + 'static,
) -> String {
    let report = meddling(meddle).run();
    let failed = report.failed().unwrap();
    format!("{}: {}", failed.check(), failed.what())
}

/// Has an invariant that reaches for the runtime.
fn meddling(
    meddle: impl Fn(&Runtime, Address<CounterMessage>, &WorldState<'_>) + Clone + Send + Sync + 'static,
) -> Simulation {
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?.address();
        let (meddle, weak) = (meddle.clone(), runtime.downgrade());
        world.invariant("meddling", move |state| {
            weak.upgrade().into_iter().for_each(|runtime| meddle(&runtime, counter, state));
            Ok(())
        });
        runtime.send(counter, CounterMessage::Add(1))?;
        world.run()
    })
    .seeds(0..1)
}

#[test]
fn an_invariant_may_change_the_world_if_that_check_is_switched_off() {
    let spawns = |runtime: &Runtime, _, state: &WorldState<'_>| {
        if state.now() < Duration::from_micros(500) {
            _ = runtime.spawn(Counter::default());
        }
    };
    assert_eq!(meddling(spawns).run().failed().unwrap().check(), "invariants change nothing");
    assert!(meddling(spawns).without("invariants change nothing").run().failed().is_none());
}

#[test]
fn an_invariant_that_reaches_a_process_by_the_runtime_does_not_hang() {
    let refused = "meddling: it panicked: a look at a simulated world must not reach its processes";
    let send = failure_of_meddling(|runtime, counter, state| {
        assert_eq!(state.processes::<Counter>().count(), 1);
        _ = runtime.send(counter, CounterMessage::Add(1));
    });
    assert!(send.starts_with(refused), "{send}");
    let ask = failure_of_meddling(|runtime, counter, state| {
        assert_eq!(state.processes::<Counter>().count(), 1);
        _ = runtime.ask(counter, CounterMessage::Read, SECOND).wait();
    });
    assert!(ask.starts_with(refused), "{ask}");
}

#[test]
fn an_invariant_that_sends_spawns_or_waits_fails_the_run() {
    let refused = "invariants change nothing: an invariant ";
    let send = failure_of_meddling(|runtime, counter, _| _ = runtime.send(counter, CounterMessage::Add(1)));
    assert!(send.starts_with(refused), "{send}");
    let spawn = failure_of_meddling(|runtime, _, _| _ = runtime.spawn(Counter::default()));
    assert!(spawn.starts_with(refused), "{spawn}");
    let ask = failure_of_meddling(|runtime, counter, _| {
        _ = runtime.ask(counter, CounterMessage::Read, SECOND).wait();
    });
    assert!(ask.starts_with(refused), "{ask}");
}
