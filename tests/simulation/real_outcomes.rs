//! Small programs on real workers and in a simulation. Each outcome that threads show is one that seeds find.
//! Statement 10.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use procession::simulation::{Delivery, Simulation};
use procession::{BoxError, Event, Events, Handle, Process, Runtime, Step, StepOutput, Tag};

use crate::programs::is_full;
use crate::script::script;
use crate::wait::Mutex;

/// Runs in a runtime, and says what has come out.
type Program = fn(&Runtime) -> Result<String, BoxError>;

/// A process that is done when it has this many messages, with all of them in order.
fn collector(count: usize) -> impl Process<Message = char, Output = String> {
    let mut taken = String::new();
    script(move |events: &mut Events<'_, char>, _: &mut StepOutput| {
        for event in events.by_ref() {
            if let Event::Message(letter) = event {
                taken.push(letter);
            }
        }
        if taken.len() < count { Ok(Step::Idle) } else { Ok(Step::Done(std::mem::take(&mut taken))) }
    })
}

/// Sends these letters, one in each step.
fn sender(to: procession::Address<char>, letters: &'static str) -> impl Process<Message = (), Output = ()> {
    let mut left = letters.chars();
    script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| match left.next() {
        Some(letter) => {
            out.send(to, letter);
            Ok(Step::Continue)
        }
        None => Ok(Step::Done(())),
    })
}

/// Waits for a process, and returns its output. In a world the wait drives the world.
fn output<P: Process<Output: Clone>>(process: &Handle<P>) -> Result<P::Output, BoxError> {
    let exit = process.join_timeout(Duration::from_secs(120))?;
    Ok((*exit.into_result()?).clone())
}

/// Two processes send two messages each to a third one.
fn two_senders(runtime: &Runtime) -> Result<String, BoxError> {
    let collector = runtime.spawn(collector(4))?;
    let senders =
        [runtime.spawn(sender(collector.address(), "ab"))?, runtime.spawn(sender(collector.address(), "xy"))?];
    senders.iter().try_for_each(output)?;
    output(&collector)
}

/// A step sends to three processes, and two of them pass the message on to the third. The yields of that step are
/// performed one after the other, and a second worker is at work between them.
fn between_two_yields(runtime: &Runtime) -> Result<String, BoxError> {
    let collector = runtime.spawn(collector(3))?;
    let to = collector.address();
    let relay = move || {
        script(move |events: &mut Events<'_, char>, out: &mut StepOutput| {
            for event in events.by_ref() {
                if let Event::Message(letter) = event {
                    out.send(to, letter);
                    return Ok(Step::Done(()));
                }
            }
            Ok(Step::Idle)
        })
    };
    let relays = [runtime.spawn(relay())?, runtime.spawn(relay())?];
    let (one, two) = (relays[0].address(), relays[1].address());
    runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(one, '1');
        out.send(two, '2');
        out.send(to, '3');
        Ok(Step::Done(()))
    }))?;
    output(&collector)
}

/// Three processes want one name, and each frees it by its end.
fn one_name(runtime: &Runtime) -> Result<String, BoxError> {
    let contender = || {
        let mut registered: Option<Tag<()>> = None;
        script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events.by_ref() {
                if let (Event::Completed(done), Some(tag)) = (event, registered) {
                    return Ok(Step::Done(done.take(tag).is_some_and(|registered| registered.is_ok())));
                }
            }
            registered = Some(out.register("leader", out.pid()));
            Ok(Step::Wait)
        })
    };
    let contenders = [runtime.spawn(contender())?, runtime.spawn(contender())?, runtime.spawn(contender())?];
    contenders.iter().map(|one| Ok(if output(one)? { '+' } else { '-' })).collect()
}

/// A process is monitored and sent a message while it ends.
fn an_end(runtime: &Runtime) -> Result<String, BoxError> {
    let mut taken = String::new();
    let ends = runtime.spawn(script(move |events: &mut Events<'_, char>, _: &mut StepOutput| {
        for event in events.by_ref() {
            if let Event::Message(letter) = event {
                taken.push(letter);
                if letter == 'e' {
                    return Ok(Step::Done(std::mem::take(&mut taken)));
                }
            }
        }
        Ok(Step::Idle)
    }))?;
    let other = ends.address();
    let mut is_monitored = false;
    let monitors = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events.by_ref() {
            if let Event::Down(down) = event {
                return Ok(Step::Done(down.exit.to_string()));
            }
        }
        if !std::mem::replace(&mut is_monitored, true) {
            out.send(other, 'm');
            out.monitor(other.pid());
        }
        Ok(Step::Idle)
    }))?;
    runtime.spawn(sender(other, "ae"))?;
    Ok(format!("{} after {}", output(&monitors)?, output(&ends)?))
}

/// Three messages of three steps come in one to three steps of the receiver.
fn events_of_a_step(runtime: &Runtime) -> Result<String, BoxError> {
    let (mut steps, mut count) = (String::new(), 0);
    let receiver = runtime.spawn(script(move |events: &mut Events<'_, char>, _: &mut StepOutput| {
        let mut taken = 0;
        for event in events.by_ref() {
            taken += u32::from(matches!(event, Event::Message(_)));
        }
        if taken > 0 {
            steps += &format!("{taken} ");
        }
        count += taken;
        if count < 3 { Ok(Step::Idle) } else { Ok(Step::Done(std::mem::take(&mut steps))) }
    }))?;
    runtime.spawn(sender(receiver.address(), "abc"))?;
    output(&receiver)
}

/// How often each outcome came.
type Outcomes = BTreeMap<String, u32>;

fn on_real_workers(program: Program, runs: u32) -> Outcomes {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    let mut outcomes = Outcomes::new();
    for _ in 0..runs {
        *outcomes.entry(program(&runtime).unwrap()).or_default() += 1;
    }
    outcomes
}

fn in_a_simulation(program: Program, seeds: u64, delivery: Delivery) -> Outcomes {
    let outcomes = Arc::new(Mutex::new(Outcomes::new()));
    let seen = outcomes.clone();
    let scenario = move |world: &procession::simulation::World| {
        let runtime = world.start(Runtime::builder())?;
        let outcome = program(&runtime)?;
        *seen.lock().unwrap().entry(outcome).or_default() += 1;
        Ok(())
    };
    let report = Simulation::new(scenario).seeds(0..seeds).delivery(delivery).run();
    assert!(report.failed().is_none(), "{}", report.failed().unwrap().report());
    std::mem::take(&mut *outcomes.lock().unwrap())
}

/// Each outcome of real workers is found. Of the outcomes, at least so many are.
fn is_found(name: &str, program: Program, at_least: usize) {
    let (runs, seeds) = if is_full() { (10_000, 100_000) } else { (300, 3_000) };
    let (real, simulated) = (on_real_workers(program, runs), in_a_simulation(program, seeds, Delivery::Immediate));
    println!("{name}: {runs} runs (of 10000) {real:?}; {seeds} seeds (of 100000) {simulated:?}");
    let missed: Vec<_> = real.keys().filter(|outcome| !simulated.contains_key(*outcome)).collect();
    assert!(missed.is_empty(), "{name}: not found: {missed:?}");
    assert!(simulated.len() >= at_least, "{name}: {simulated:?}");
}

#[test]
fn orders_of_two_senders_that_threads_show_are_found() {
    is_found("two senders", two_senders, 6);
}

#[test]
fn what_a_second_worker_does_between_two_yields_is_found() {
    is_found("between two yields", between_two_yields, 5);
    let simulated = in_a_simulation(between_two_yields, 3_000, Delivery::Immediate);
    // The third yield comes before, between and after what the first two have caused.
    for outcome in ["312", "132", "123"] {
        assert!(simulated.contains_key(outcome), "{outcome}: {simulated:?}");
    }
}

#[test]
fn contests_for_a_name_that_threads_show_are_found() {
    is_found("one name", one_name, 4);
}

#[test]
fn ends_of_a_monitored_process_that_threads_show_are_found() {
    is_found("an end", an_end, 6);
    let simulated = in_a_simulation(an_end, 3_000, Delivery::Immediate);
    // The process ends between two yields of the step that monitors it. The others need two and three turns for that.
    for outcome in ["terminated (no such process) after ame", "terminated (no such process) after mae"] {
        assert!(simulated.contains_key(outcome), "{outcome}: {simulated:?}");
    }
}

#[test]
fn counts_of_events_of_a_step_that_threads_show_are_found() {
    is_found("events of a step", events_of_a_step, 4);
}
