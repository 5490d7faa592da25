//! Faults: what is injected, and what a process sees of it. Statements 19 to 22.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use procession::command::{Command, Responder};
use procession::observe::DeadLetterReason;
use procession::simulation::{FailedRun, Fault, Faults, Simulation, StepFault, World};
use procession::spawn::Overflow;
use procession::{
    BoxError, CommandError, Event, Events, Exit, Pid, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Tag,
};

use crate::programs::*;
use crate::script::script;

struct Charge;

impl Command for Charge {
    type Output = u32;
}

/// A command that no process yields.
struct Discharge;

impl Command for Discharge {
    type Output = ();
}

/// An answer, and how long it has taken.
type Answered = (Result<u32, CommandError>, Duration);

/// Yields something that is answered. Afterwards it waits for a second answer, longer than any answer is late. It
/// returns all answers.
struct Customer {
    begins: fn(&mut StepOutput) -> Tag<u32>,
    began: Option<(Tag<u32>, Instant)>,
    answers: Vec<Answered>,
}

impl Customer {
    fn new(begins: fn(&mut StepOutput) -> Tag<u32>) -> Customer {
        Customer { begins, began: None, answers: Vec::new() }
    }

    /// Charges once, with a limit.
    fn of_charge() -> Customer {
        Customer::new(|out| out.command_timeout(Charge, 10 * SECOND))
    }

    /// Runs a blocking closure.
    fn of_closure() -> Customer {
        Customer::new(|out| out.blocking(|| 3))
    }
}

impl Process for Customer {
    type Message = ();
    type Output = Vec<Answered>;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Self::Output> {
        let begins = self.begins;
        let (tag, began) = *self.began.get_or_insert_with(|| (begins(out), out.now()));
        for event in events {
            let Event::Completed(done) = event else { continue };
            match done.take(tag) {
                Some(answer) => {
                    self.answers.push((answer, out.now().duration_since(began)));
                    out.after(60 * SECOND);
                }
                // The timer.
                None => return Ok(Step::Done(std::mem::take(&mut self.answers))),
            }
        }
        Ok(Step::Wait)
    }
}

/// Returns the only answer of a customer.
fn answered(exit: &Exit<Arc<Vec<Answered>>>) -> Result<&Answered, BoxError> {
    match exit.output().map(|answers| answers.as_slice()) {
        Some([one]) => Ok(one),
        other => Err(format!("not one answer: {other:?}").into()),
    }
}

/// Whether each answer was an output, and how long it has taken.
type Answers = Vec<(bool, Duration)>;

/// Runs a customer under this fault, with both kinds of handlers. Gives `check` the only answer, how often the command
/// was carried out, and how long the answer has taken. Returns the answers of each kind of handler.
fn charged(fault: Fault, check: fn(&Result<u32, CommandError>, u64, Duration) -> bool) -> [Answers; 2] {
    [false, true].map(|is_async| {
        let (notes, answers) = std::sync::mpsc::channel();
        let scenario = move |world: &World| -> Result<(), BoxError> {
            let carried_out = Arc::new(AtomicU64::new(0));
            let counts = carried_out.clone();
            let builder = if is_async {
                Runtime::builder().handler_async(move |Charge| {
                    counts.fetch_add(1, SeqCst);
                    async { Ok(5) }
                })
            } else {
                Runtime::builder().handler(move |Charge, responder| {
                    counts.fetch_add(1, SeqCst);
                    responder.ok(5);
                    Ok(())
                })
            };
            let runtime = world.start(builder)?;
            let exit = runtime.spawn(Customer::of_charge())?.join()?;
            let (answer, at) = answered(&exit)?;
            notes.send((answer.is_ok(), *at))?;
            let is_right = check(answer, carried_out.load(SeqCst), *at);
            if is_right { Ok(()) } else { Err(format!("async {is_async}: {answer:?} after {at:?}").into()) }
        };
        Simulation::new(scenario).faults(Faults::none().command::<Charge>(fault)).seeds(0..20).check();
        answers.into_iter().collect()
    })
}

#[test]
fn a_command_can_fail_without_being_carried_out() {
    charged(Fault::fail(1.0), |answer, count, _| matches!(answer, Err(CommandError::Failed(_))) && count == 0);
}

#[test]
fn a_command_can_be_lost_before_and_after_it_was_carried_out() {
    charged(Fault::lost_before(1.0), |answer, count, _| matches!(answer, Err(CommandError::Dropped)) && count == 0);
    charged(Fault::lost_after(1.0), |answer, count, _| matches!(answer, Err(CommandError::Dropped)) && count == 1);
}

#[test]
fn an_answer_can_be_late_and_its_limit_may_be_over_first() {
    let most = Duration::from_secs(20);
    let of_each_kind = charged(Fault::late(1.0, most), |answer, count, at| match answer {
        Ok(5) => count == 1 && at <= 11 * SECOND,
        Err(CommandError::TimedOut) => count == 1 && at >= 10 * SECOND,
        _ => false,
    });
    for answers in of_each_kind {
        // Without the fault, each answer takes less than a second.
        let is_late = answers.iter().any(|(is_output, at)| *is_output && *at > SECOND);
        let is_over = answers.iter().any(|(is_output, _)| !is_output);
        assert!(is_late && is_over, "{answers:?}");
    }
}

#[test]
fn an_answer_that_never_comes_ends_with_the_limit() {
    charged(Fault::never(1.0), |answer, count, at| {
        matches!(answer, Err(CommandError::TimedOut)) && count == 1 && at >= 10 * SECOND
    });
}

/// Sends to a counter in each of its steps, and then waits for an event.
struct Teller {
    to: procession::Address<CounterMessage>,
}

impl Process for Teller {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        out.send(self.to, CounterMessage::Add(1));
        Ok(Step::Idle)
    }
}

/// The reports of a system with commands, blocking closures, messages and steps under these faults. Each run fails at
/// its end with a text that says what the system has come to.
fn reported(faults: &Faults) -> Vec<FailedRun> {
    let of_seed = |seed| {
        let simulation = Simulation::new(move |world| {
            let handler = |Charge, responder: Responder<u32>| {
                responder.ok(5);
                Ok(())
            };
            let runtime = world.start(Runtime::builder().handler(handler))?;
            let counter = runtime.spawn(Counter::default())?;
            let teller = runtime.spawn(Teller { to: counter.address() })?;
            let customers = [Customer::of_charge(), Customer::of_closure()].map(|customer| runtime.spawn(customer));
            let _ = runtime.send(&teller, ());
            world.run_for(10 * SECOND)?;
            let total = world.look(|state| state.process::<Counter>(counter.pid()).map(|counter| counter.total));
            world.run()?;
            let mut text = format!("{} sent", total.unwrap_or_default());
            for customer in customers {
                let exit = customer?.join()?;
                let answers = exit.output().map(|all| all.iter().map(|(answer, at)| (answer, *at < SECOND)).collect());
                let answers: Vec<_> = answers.unwrap_or_default();
                text.push_str(&format!(", {answers:?}"));
            }
            Err(text.into())
        });
        let report = simulation.faults(faults.clone()).seeds(seed..seed + 1).run();
        report.failed().cloned().expect("the run fails at its end")
    };
    (0..10).map(of_seed).collect()
}

/// Whether a turn of the trace has the mark of an injected fault.
fn is_marked(failed: &FailedRun) -> bool {
    failed.trace().lines().any(|line| line.trim_start().trim_start_matches('!').starts_with("x "))
}

#[test]
fn nothing_is_injected_that_was_not_asked_for() {
    charged(Fault::fail(0.0), |answer, count, at| matches!(answer, Ok(5)) && count == 1 && at < SECOND);
    let of_others = Faults::none()
        .crash::<Register>(1.0)
        .panic::<Adder>(1.0)
        .stall::<Register>(1.0, SECOND)
        .blocking_late::<Adder>(1.0, SECOND)
        .blocking_panics::<Counter>(1.0)
        .command::<Discharge>(Fault::never(1.0))
        .at::<Counter>(1_000, StepFault::Crash);
    for faults in [Faults::none(), of_others] {
        for failed in reported(&faults) {
            let report = failed.report();
            assert_eq!(failed.what(), "2 sent, [(Ok(5), true)], [(Ok(3), true)]", "{report}");
            assert!(report.contains(", 0 faults; version"), "{report}");
            assert!(!is_marked(&failed) && !failed.trace().contains("injected"), "{report}");
        }
    }
}

#[test]
fn the_report_counts_the_faults_and_marks_their_turns() {
    let none = Faults::none;
    let cases = [
        (none().at::<Teller>(2, StepFault::Crash), "injected: terminated"),
        (none().at::<Teller>(2, StepFault::Panic), "injected by the simulation"),
        (none().at::<Counter>(1, StepFault::Stall(SECOND)), "injected: stalled, for 1s"),
        (none().command::<Charge>(Fault::fail(1.0)), "injected: the command fails"),
        (none().command::<Charge>(Fault::late(1.0, SECOND)), "injected: the answer is late, by up to 1s"),
        (none().blocking_late::<Customer>(1.0, SECOND), "injected: blocking closure late, by up to 1s"),
        (none().blocking_panics::<Customer>(1.0), "injected: blocking closure panics"),
    ];
    for (faults, text) in cases {
        for failed in reported(&faults) {
            let report = failed.report();
            assert!(report.contains(", 1 fault; version"), "{report}");
            assert!(is_marked(&failed) && failed.trace().contains(text), "{report}");
        }
    }
}

/// A counter is stepped between two yields of a step. The second is a command that is lost.
#[test]
fn a_fault_is_marked_at_its_process_although_another_had_a_turn_since() {
    let simulation = Simulation::new(|world| {
        let was_counted = Arc::new(AtomicU64::new(0));
        let (counts, before) = (was_counted.clone(), Arc::new(AtomicU64::new(0)));
        let seen = before.clone();
        let runtime = world.start(Runtime::builder().handler(move |Charge, responder| {
            seen.store(was_counted.load(SeqCst), SeqCst);
            responder.ok(5);
            Ok(())
        }))?;
        let counter = runtime.spawn(script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
            counts.fetch_add(events.count() as u64, SeqCst);
            Ok(Step::<()>::Idle)
        }))?;
        let to = counter.address();
        runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if events.count() == 0 {
                out.send(to, ());
                out.command(Charge);
            }
            Ok(Step::<()>::Idle)
        }))?;
        world.run()?;
        if before.load(SeqCst) == 0 { Ok(()) } else { Err("the counter was stepped first".into()) }
    });
    let report = simulation.faults(Faults::none().command::<Charge>(Fault::lost_after(1.0))).seeds(0..200).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "the scenario succeeds");
    let trace = failed.trace();
    let marked: Vec<&str> = trace.lines().filter(|line| line.trim_start().starts_with("x ")).collect();
    // The counter's turn, the third, is within the second one.
    assert!(marked.len() == 1 && marked[0].trim_start().starts_with("x 2 "), "{trace}");
}

/// Runs a teller whose third step has this fault. Returns what it has sent, and how it has ended.
fn told(fault: StepFault) -> Simulation {
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        let teller = runtime.spawn(Teller { to: counter.address() })?;
        world.run()?;
        for _ in 0..3 {
            let _ = runtime.send(&teller, ());
            world.run()?;
        }
        let total = runtime.ask(&counter, CounterMessage::Read, SECOND).wait()?;
        let is_alive = world.look(|state| state.is_alive(teller.address()));
        let exit = if is_alive { None } else { Some(teller.join()?) };
        let is_right = match fault {
            StepFault::Crash => total == 2 && matches!(exit, Some(Exit::Terminated(_))),
            StepFault::Panic => total == 2 && matches!(exit, Some(Exit::Panicked(_))),
            StepFault::Stall(time) => total == 4 && is_alive && (time..=time + SECOND).contains(&world.now()),
        };
        if is_right { Ok(()) } else { Err(format!("{total} sent, {exit:?}").into()) }
    })
    .faults(Faults::none().at::<Teller>(3, fault))
    .seeds(0..20)
}

#[test]
fn a_crash_comes_before_the_chosen_step() {
    told(StepFault::Crash).check();
}

#[test]
fn a_step_that_panics_has_no_effects() {
    told(StepFault::Panic).check();
}

#[test]
fn a_stalled_step_comes_later() {
    told(StepFault::Stall(SECOND)).check();
}

#[test]
fn a_stalled_process_fills_its_mailbox_and_its_askers_time_out() {
    for overflow in [Overflow::DropNewest, Overflow::DropOldest, Overflow::Refuse] {
        Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let counter = runtime.spawn_with(Counter::default(), SpawnOptions::new().mailbox(2, overflow))?;
            let asked = runtime.ask(&counter, CounterMessage::Read, SECOND).wait();
            let sent = (1..=5).map(|number| runtime.send(&counter, CounterMessage::Add(number)).is_err());
            let refused = sent.filter(|is_refused| *is_refused).count() as u64;
            world.run()?;
            let dropped = |reason| runtime.stats().messages.dead_by_reason.get(&reason).copied().unwrap_or_default();
            let (newest, oldest) = (dropped(DeadLetterReason::DroppedNewest), dropped(DeadLetterReason::DroppedOldest));
            let at = world.now();
            let total = runtime.ask(&counter, CounterMessage::Read, SECOND).wait()?;
            // The question takes one of the two places until the stalled step comes, unless it is the oldest one.
            let expected = match overflow {
                Overflow::DropOldest => (0, 0, 4, 4 + 5),
                Overflow::DropNewest => (0, 4, 0, 1),
                _ => (4, 0, 0, 1),
            };
            let is_stalled = matches!(asked, Err(CommandError::TimedOut)) && at >= 10 * SECOND;
            let found = (refused, newest, oldest, total);
            let is_right = is_stalled && found == expected;
            if is_right { Ok(()) } else { Err(format!("{overflow:?}: {asked:?}, {found:?} at {at:?}").into()) }
        })
        .faults(Faults::none().at::<Counter>(1, StepFault::Stall(10 * SECOND)))
        .seeds(0..100)
        .check();
    }
}

/// Asks a counter with a limit of a second, and sets a timer of two seconds. Returns when it is told of them.
struct Neighbour {
    counter: procession::Address<CounterMessage>,
    began: Option<(Tag<u64>, Instant)>,
    limit: Option<Duration>,
}

impl Process for Neighbour {
    type Message = ();
    type Output = (Duration, Duration);

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Self::Output> {
        let (asked, began) = *self.began.get_or_insert_with(|| {
            out.after(2 * SECOND);
            (out.ask(self.counter, CounterMessage::Read, SECOND), out.now())
        });
        for event in events {
            let Event::Completed(done) = event else { continue };
            let at = out.now().duration_since(began);
            match (done.take(asked), self.limit) {
                (Some(Err(CommandError::TimedOut)), None) => self.limit = Some(at),
                (None, Some(limit)) => return Ok(Step::Done((limit, at))),
                (answer, limit) => return Err(format!("{answer:?} at {at:?}, and {limit:?} before").into()),
            }
        }
        Ok(Step::Wait)
    }
}

#[test]
fn the_timers_and_limits_of_other_processes_pass_in_a_stall() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        let exit = runtime.spawn(Neighbour { counter: counter.address(), began: None, limit: None })?.join()?;
        let (limit, timer) = **exit.output().ok_or_else(|| format!("{exit:?}"))?;
        let is_right = (SECOND..SECOND + SECOND / 10).contains(&limit)
            && (2 * SECOND..2 * SECOND + SECOND / 10).contains(&timer)
            && world.now() < 3 * SECOND;
        world.run()?;
        let is_stalled = world.now() >= 10 * SECOND;
        if is_right && is_stalled { Ok(()) } else { Err(format!("{limit:?}, {timer:?}, {:?}", world.now()).into()) }
    })
    .faults(Faults::none().at::<Counter>(1, StepFault::Stall(10 * SECOND)))
    .seeds(0..100)
    .check();
}

#[test]
fn faults_have_a_limit_and_an_end() {
    let crashed = |faults: Faults| {
        let most = Arc::new(AtomicU64::new(0));
        let notes = most.clone();
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let mut counters = Vec::new();
            for _ in 0..2 {
                (0..10).try_for_each(|_| runtime.spawn(Counter::default()).map(|counter| counters.push(counter)))?;
                world.run_for(SECOND)?;
            }
            let living = |address| world.look(|state| state.is_alive(address));
            let dead = counters.iter().filter(|counter| !living(counter.address())).count();
            notes.fetch_max(dead as u64, SeqCst);
            Ok(())
        });
        simulation.faults(faults).seeds(0..20).check();
        most.load(SeqCst)
    };
    assert_eq!(crashed(Faults::none().crash::<Counter>(1.0)), 20);
    assert_eq!(crashed(Faults::none().crash::<Counter>(1.0).at_most(3)), 3);
    assert_eq!(crashed(Faults::none().crash::<Counter>(1.0).until(Duration::ZERO)), 0);
    assert_eq!(crashed(Faults::none().crash::<Counter>(1.0).until(SECOND / 2)), 10, "the first ten");
}

/// Injects a fault into the second of three processes, which ends with it.
fn second_of_three(faults: Faults, ends: fn(&Exit<Arc<u64>>) -> bool) {
    let report = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counters: Vec<_> = (0..3).map(|_| runtime.spawn(Counter::default())).collect::<Result<_, _>>()?;
        assert_eq!(counters[1].pid(), second());
        world.run()?;
        let is_alive = |at: usize| world.look(|state| state.is_alive(counters[at].address()));
        assert_eq!([is_alive(0), is_alive(1), is_alive(2)], [true, false, true]);
        assert!(ends(&counters[1].join()?));
        Ok(())
    })
    .faults(faults)
    .seeds(0..20)
    .run();
    assert!(report.failed().is_none(), "{:?}", report.failed().map(FailedRun::report));
    assert_eq!(report.faults(), 20, "one in each run");
}

#[test]
fn a_crash_can_be_that_of_one_process() {
    second_of_three(Faults::none().crash_process(second(), 1.0), |exit| matches!(exit, Exit::Terminated(_)));
}

#[test]
fn a_panic_can_be_that_of_one_process() {
    second_of_three(Faults::none().panic_process(second(), 1.0), |exit| matches!(exit, Exit::Panicked(_)));
}

/// The second process of a world.
fn second() -> Pid {
    "<1.1.1>".parse().unwrap()
}

#[test]
fn a_blocking_closure_can_be_late_and_can_panic() {
    let run = |faults: Faults, is_right: fn(&Result<u32, CommandError>, Duration) -> bool| -> Vec<Duration> {
        let (notes, times) = std::sync::mpsc::channel();
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let exit = runtime.spawn(Customer::of_closure())?.join()?;
            let (answer, at) = answered(&exit)?;
            notes.send(*at)?;
            if is_right(answer, *at) { Ok(()) } else { Err(format!("{answer:?} after {at:?}").into()) }
        });
        simulation.faults(faults).seeds(0..20).check();
        times.into_iter().collect()
    };
    run(Faults::none(), |answer, at| matches!(answer, Ok(3)) && at < SECOND);
    run(Faults::none().blocking_panics::<Customer>(1.0), |answer, _| matches!(answer, Err(CommandError::Panicked(_))));
    let times = run(Faults::none().blocking_late::<Customer>(1.0, 9 * SECOND), |answer, at| {
        matches!(answer, Ok(3)) && at < 10 * SECOND
    });
    assert!(times.iter().any(|at| *at > SECOND), "no closure is late: {times:?}");
}

#[test]
fn blocking_closures_come_back_in_any_order() {
    struct Blocker(Vec<Tag<u32>>, Vec<u32>);
    impl Process for Blocker {
        type Message = ();
        type Output = Vec<u32>;

        fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Vec<u32>> {
            if self.0.is_empty() {
                self.0 = (0..3).map(|number| out.blocking(move || number)).collect();
            }
            for event in events {
                if let Event::Completed(done) = event {
                    let place = self.0.iter().position(|tag| done.is(*tag)).ok_or("another answer")?;
                    self.1.push(place as u32);
                }
            }
            Ok(if self.1.len() == 3 { Step::Done(std::mem::take(&mut self.1)) } else { Step::Wait })
        }
    }
    for faults in [Faults::none(), Faults::none().blocking_late::<Blocker>(0.5, SECOND)] {
        let (notes, orders) = std::sync::mpsc::channel();
        Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let exit = runtime.spawn(Blocker(Vec::new(), Vec::new()))?.join()?;
            notes.send(exit.output().ok_or("no answers")?.to_vec())?;
            Ok(())
        })
        .faults(faults)
        .seeds(0..300)
        .check();
        assert_eq!(orders.into_iter().collect::<std::collections::BTreeSet<_>>().len(), 6, "each order is found");
    }
}
