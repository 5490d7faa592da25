//! How many events a step is given, and when messages reach other processes. Statement 18.

use std::collections::BTreeSet;
use std::sync::Arc;

use procession::simulation::{Delivery, Simulation, World, ensure};
use procession::{Address, BoxError, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, Tag};

use crate::programs::*;
use crate::script::script;
use crate::wait::Mutex;

/// The messages of a [`listener`].
enum Told {
    Letter(char),
    /// It asks this process.
    Ask(Address<Reply<char>>),
}

/// Writes down the letters that it is sent, the answers that it gets and the ends that it is told of (as `!`).
fn listener(monitors: Option<Pid>) -> impl Process<Message = Told, Output = String> {
    let (mut seen, mut asked, mut monitored): (_, Option<Tag<char>>, _) = (String::new(), None, monitors);
    script(move |events: &mut Events<'_, Told>, out: &mut StepOutput| {
        monitored.take().into_iter().for_each(|pid| _ = out.monitor(pid));
        for event in events.by_ref() {
            match event {
                Event::Message(Told::Letter(letter)) => seen.push(letter),
                Event::Message(Told::Ask(whom)) => asked = Some(out.ask(whom, |reply| reply, SECOND)),
                Event::Completed(done) => {
                    seen.extend(asked.and_then(|tag| done.take(tag)).and_then(Result::ok));
                }
                Event::Down(_) => seen.push('!'),
                Event::Cancel(_) => return Ok(Step::Done(std::mem::take(&mut seen))),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// Runs the scenario with many seeds, and returns all that listeners have seen.
fn outcomes(
    delivery: Delivery,
    scenario: impl Fn(&World, &Runtime) -> Result<String, BoxError> + Send + Sync + 'static,
) -> BTreeSet<String> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = outcomes.clone();
    let simulation = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let outcome = scenario(world, &runtime)?;
        seen.lock().unwrap().insert(outcome);
        Ok(())
    });
    let report = simulation.seeds(0..1_000).delivery(delivery).run();
    assert!(report.failed().is_none(), "{}", report.failed().unwrap().report());
    std::mem::take(&mut *outcomes.lock().unwrap())
}

fn ended<P: Process<Output = String>>(
    world: &World,
    runtime: &Runtime,
    listener: &procession::Handle<P>,
) -> Result<String, BoxError> {
    world.run()?;
    runtime.cancel(listener.pid(), "over")?;
    Ok((*listener.join_timeout(SECOND)?.into_result()?).clone())
}

#[test]
fn a_step_is_given_any_number_of_events_up_to_the_limit() {
    let counts = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = counts.clone();
    let simulation = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder().step_events(4))?;
        let seen = seen.clone();
        let receiver = runtime.spawn(script(move |events: &mut Events<'_, char>, _: &mut StepOutput| {
            seen.lock().unwrap().extend(Some(events.count()).filter(|count| *count > 0));
            Ok(Step::<()>::Idle)
        }))?;
        "abcdefgh".chars().try_for_each(|letter| runtime.send(&receiver, letter))?;
        world.run()
    });
    assert!(simulation.seeds(0..200).run().failed().is_none());
    assert_eq!(*counts.lock().unwrap(), BTreeSet::from([1, 2, 3, 4]));
}

/// One step sends `a` to the listener, then `b` to it by way of another process, then `c`.
fn by_two_ways(world: &World, runtime: &Runtime) -> Result<String, BoxError> {
    let listener = runtime.spawn(listener(None))?;
    let to = listener.address();
    let relay = runtime.spawn(script(move |events: &mut Events<'_, char>, out: &mut StepOutput| {
        for event in events.by_ref() {
            if let Event::Message(letter) = event {
                out.send(to, Told::Letter(letter));
            }
        }
        Ok(Step::<()>::Idle)
    }))?;
    let way = relay.address();
    runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, Told::Letter('a'));
        out.send(way, 'b');
        out.send(to, Told::Letter('c'));
        Ok(Step::Done(()))
    }))?;
    ended(world, runtime, &listener)
}

#[test]
fn messages_of_different_pairs_overtake_each_other_only_if_asked_for() {
    let set = |outcomes: &[&str]| outcomes.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(outcomes(Delivery::Immediate, by_two_ways), set(&["abc", "acb"]));
}

#[test]
fn messages_of_one_pair_never_overtake_each_other() {
    // `a` and `c` have the same sender and receiver. `b` comes by another way.
    let set: BTreeSet<_> = ["abc", "acb", "bac"].into_iter().map(str::to_owned).collect();
    assert_eq!(outcomes(Delivery::PerPair, by_two_ways), set);
}

#[test]
fn the_shutdown_of_one_runtime_does_not_end_the_delays_of_another() {
    let set: BTreeSet<_> = ["abc", "acb", "bac"].into_iter().map(str::to_owned).collect();
    let found = outcomes(Delivery::PerPair, |world, runtime| {
        let other = world.start(Runtime::builder())?;
        runtime.shutdown(SECOND)?;
        by_two_ways(world, &other)
    });
    assert_eq!(found, set);
    // The runtimes of a program that was killed are shut down, too.
    let found = outcomes(Delivery::PerPair, |world, _| {
        world.program(|kills| {
            let runtime = world.start(Runtime::builder())?;
            if kills == 0 {
                world.kill();
            }
            by_two_ways(world, &runtime)
        })
    });
    assert_eq!(found, set);
}

/// As `by_two_ways`, but the process goes on: nothing makes its messages due.
fn by_a_process_that_stays(world: &World, runtime: &Runtime) -> Result<String, BoxError> {
    let listener = runtime.spawn(listener(None))?;
    let to = listener.address();
    let relay = runtime.spawn(script(move |events: &mut Events<'_, char>, out: &mut StepOutput| {
        for event in events.by_ref() {
            if let Event::Message(letter) = event {
                out.send(to, Told::Letter(letter));
            }
        }
        Ok(Step::<()>::Idle)
    }))?;
    let way = relay.address();
    let mut left = vec!['3', '2', '1'];
    runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        match left.pop() {
            Some('2') => out.send(way, '2'),
            Some(letter) => out.send(to, Told::Letter(letter)),
            None => return Ok(Step::<()>::Idle),
        }
        Ok(Step::Continue)
    }))?;
    ended(world, runtime, &listener)
}

#[test]
fn a_message_may_come_later_than_those_of_later_steps_to_others() {
    assert!(!outcomes(Delivery::Immediate, by_a_process_that_stays).contains("213"));
    let found = outcomes(Delivery::PerPair, by_a_process_that_stays);
    let expected: BTreeSet<_> = ["123", "132", "213"].into_iter().map(str::to_owned).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_end_of_a_sender_does_not_overtake_its_messages() {
    let found = outcomes(Delivery::PerPair, |world, runtime| {
        let sender = runtime.spawn(script(|events: &mut Events<'_, Address<Told>>, out: &mut StepOutput| {
            for event in events.by_ref() {
                if let Event::Message(to) = event {
                    out.send(to, Told::Letter('a'));
                    return Ok(Step::Continue);
                }
            }
            if out.random().is_multiple_of(2) { Ok(Step::Done(())) } else { Ok(Step::Idle) }
        }))?;
        let listener = runtime.spawn(listener(Some(sender.pid())))?;
        world.run()?;
        if runtime.send(&sender, listener.address()).is_err() {
            return Ok(String::from("ended before"));
        }
        world.run()?;
        let _ = runtime.terminate(sender.pid());
        ended(world, runtime, &listener)
    });
    assert_eq!(found, BTreeSet::from([String::from("a!"), String::from("ended before")]));
}

/// Is asked by the listener, sends it `a`, and answers with `b` in the next step.
fn answers(is_direct: bool) -> BTreeSet<String> {
    outcomes(Delivery::PerPair, move |world, runtime| {
        let mut open: Option<Reply<char>> = None;
        let service = runtime.spawn(script(move |events: &mut Events<'_, Reply<char>>, out: &mut StepOutput| {
            if let Some(reply) = open.take() {
                if is_direct {
                    reply.send('b');
                } else {
                    out.reply(reply, 'b');
                }
                return Ok(Step::<()>::Idle);
            }
            while let Some(event) = events.next() {
                let sender = events.sender();
                if let Event::Message(reply) = event {
                    sender.into_iter().for_each(|to| out.send(to.typed(), Told::Letter('a')));
                    open = Some(reply);
                    return Ok(Step::Continue);
                }
            }
            Ok(Step::Idle)
        }))?;
        let listener = runtime.spawn(listener(None))?;
        runtime.send(&listener, Told::Ask(service.address()))?;
        ended(world, runtime, &listener)
    })
}

#[test]
fn an_answer_does_not_overtake_earlier_messages_of_its_sender() {
    assert_eq!(answers(false), BTreeSet::from([String::from("ab")]));
    assert_eq!(answers(true), BTreeSet::from([String::from("ab")]));
}

#[test]
fn held_messages_are_seen_by_invariants_and_counted_on_delivery() {
    let most = Arc::new(Mutex::new(0));
    let seen = most.clone();
    let simulation = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        let to = counter.address();
        let mut left = 10;
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            left -= 1;
            out.send(to, CounterMessage::Add(1));
            if left > 0 { Ok(Step::Continue) } else { Ok(Step::<()>::Idle) }
        }))?;
        let pid = counter.pid();
        let (waiting, expects) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let (waits, total) = (waiting.clone(), expects.clone());
        world.invariant("nothing is lost", move |state| {
            let (count, counter) = (state.messages::<CounterMessage>().count() as u64, state.process::<Counter>(pid));
            let sum = count + counter.map_or(0, |counter| counter.total);
            let before = std::mem::replace(&mut *total.lock().unwrap(), sum);
            *waits.lock().unwrap() = count;
            ensure(sum >= before && sum <= before + 1, || format!("{sum} after {before}"))
        });
        while *expects.lock().unwrap() < 10 {
            world.run_for(std::time::Duration::from_micros(20))?;
            let messages = runtime.stats().messages;
            let (queued, waiting) = (messages.queued, *waiting.lock().unwrap());
            ensure(messages.accepted == messages.stepped + messages.dead() + queued, || format!("{messages:?}"))?;
            let most = &mut *seen.lock().unwrap();
            *most = u64::max(*most, waiting - queued);
        }
        world.run()
    });
    let report = simulation.seeds(0..200).delivery(Delivery::PerPair).run();
    assert!(report.failed().is_none(), "{}", report.failed().unwrap().report());
    // Some were held at a moment at which they were counted.
    assert!(*most.lock().unwrap() > 0);
}
