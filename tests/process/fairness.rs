//! D. Scheduling: fairness. With workers that only take the newest of their own, none of these tests would end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use procession::sync::Latch;
use procession::{Address, Event, Events, Pid, Process, Step, StepOutput, StepResult};

use crate::helpers::*;

/// Continues until it is told to stop, and counts its steps.
fn spinner(stop: &Arc<AtomicBool>, steps: &Arc<AtomicU64>) -> impl Process<Message = (), Output = ()> {
    let (stop, steps) = (stop.clone(), steps.clone());
    script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        steps.fetch_add(1, Ordering::Relaxed);
        Ok(if stop.load(Ordering::Relaxed) { Step::Done(()) } else { Step::Continue })
    })
}

#[test]
fn one_that_always_continues_does_not_hold_up_a_thousand_others() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (stop, steps) = (Arc::default(), Arc::default());
        let spinners: Vec<_> = (0..workers).map(|_| runtime.spawn(spinner(&stop, &steps)).unwrap()).collect();
        until("they spin", || steps.load(Ordering::Relaxed) > 1_000);
        let others: Vec<_> = (0..1_000)
            .map(|_| {
                let mut left = 10;
                runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                    left -= 1;
                    Ok(if left == 0 { Step::Done(()) } else { Step::Continue })
                }))
            })
            .collect();
        others.into_iter().for_each(|other| drop(output(&other.unwrap())));
        stop.store(true, Ordering::Relaxed);
        spinners.iter().for_each(|spinner| drop(output(spinner)));
    }
}

/// The process to send to.
struct Chat(Pid);

/// Sends back whatever it is sent, without end.
fn chatter(messages: &Arc<AtomicU64>) -> impl Process<Message = Chat, Output = ()> {
    let messages = messages.clone();
    script(move |events: &mut Events<'_, Chat>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Chat(other)) => {
                    messages.fetch_add(1, Ordering::Relaxed);
                    out.send(other, Chat(out.pid()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn two_that_send_to_each_other_without_end_do_not_hold_up_a_third() {
    let runtime = runtime(1);
    let messages = Arc::default();
    let (one, two) = (runtime.spawn(chatter(&messages)).unwrap(), runtime.spawn(chatter(&messages)).unwrap());
    runtime.send(one.address(), Chat(two.pid())).unwrap();
    until("they chat", || messages.load(Ordering::Relaxed) > 1_000);
    for _ in 0..100 {
        output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    }
    assert!(runtime.stats().workers[0].handed_off > 0, "they are handed off to each other");
    for chatter in [one, two] {
        runtime.cancel(chatter.pid(), "enough").unwrap();
        output(&chatter);
    }
}

/// Sends so many messages in each step, and continues until it has sent all; counts what it has sent.
fn producer(
    to: Address<u64>,
    (all, a_step): (u64, u64),
    sent: &Arc<AtomicU64>,
) -> impl Process<Message = (), Output = ()> {
    let (sent, mut left) = (sent.clone(), all);
    script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        (0..a_step).for_each(|n| out.send(to, n));
        sent.fetch_add(a_step, Ordering::Relaxed);
        left -= a_step;
        Ok(if left == 0 { Step::Done(()) } else { Step::Continue })
    })
}

#[test]
fn a_producer_that_always_continues_does_not_run_away_from_its_consumer() {
    const MESSAGES: u64 = 1_000_000;
    let (runtime, produced, first) = (runtime(1), Arc::default(), Arc::new(AtomicU64::new(0)));
    let (made, at_first, mut seen, mut most) = (Arc::<AtomicU64>::clone(&produced), first.clone(), 0, 0);
    let consumer = runtime
        .spawn(script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
            let made = made.load(Ordering::Relaxed);
            let taken = events.filter(|event| matches!(event, Event::Message(_))).count() as u64;
            if taken > 0 && seen == 0 {
                at_first.store(made, Ordering::Relaxed);
            }
            most = most.max(made - seen);
            seen += taken;
            Ok(if seen == MESSAGES { Step::Done(most) } else { Step::Idle })
        }))
        .unwrap();
    runtime.spawn(producer(consumer.address(), (MESSAGES, 1), &produced)).unwrap();
    let (most, first) = (*output(&consumer), first.load(Ordering::Relaxed));
    assert!(first <= 2 && most <= 20, "first after {first} steps, backlog {most}");
}

/// Holds up the consumer of some producers, as the operating system may. Returns how much they have sent when another
/// process has had so many turns beside them. Turns are counted, because what they send in a second depends on the
/// machine.
fn sent_to_one_who_is_held_up(producers: u64, (each, a_step): (u64, u64), turns: u64) -> u64 {
    let (runtime, sent) = (runtime(2), Arc::default());
    let (blocker, mut seen) = (Blocker::new(), 0);
    let blocked = blocker.blocked();
    let consumer = script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
        if !blocked.has_begun() {
            blocked.wait();
        }
        seen += events.filter(|event| matches!(event, Event::Message(_))).count() as u64;
        Ok(if seen == producers * each { Step::Done(()) } else { Step::Idle })
    });
    let consumer = runtime.spawn(consumer).unwrap();
    blocker.wait_begun();
    // All others begin together, on the other worker.
    let (holder, together) = hold_up(&runtime);
    for _ in 0..producers {
        runtime.spawn(producer(consumer.address(), (each, a_step), &sent)).unwrap();
    }
    let (mut left, by_then) = (turns, Arc::<AtomicU64>::clone(&sent));
    let counter = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        left -= 1;
        Ok(if left == 0 { Step::Done(by_then.load(Ordering::Relaxed)) } else { Step::Continue })
    }));
    together.release();
    output(&holder);
    let by_then = *output(&counter.unwrap());
    blocker.release();
    output(&consumer);
    assert_eq!(sent.load(Ordering::Relaxed), producers * each);
    by_then
}

#[test]
fn a_producer_whose_consumer_is_held_up_lets_turns_pass() {
    // As many as it has turns, if it let none pass.
    let sent = sent_to_one_who_is_held_up(1, (100_000, 1), 50_000);
    assert!(sent < 20_000, "it has sent {sent}");
}

/// Sets a flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has a producer let turns pass, stops it in the middle of that, and says how many turns another had until it was
/// over, and how many steps the producer.
fn turns_until_a_producer_is_stopped(mut stop: impl FnMut(&mut StepOutput, Pid) + Send + 'static) -> (u64, u64) {
    const BACKLOG: u64 = 400_000;
    let runtime = runtime(1);
    // They all begin together.
    let (holder, blocker) = hold_up(&runtime);
    // It waits for a timer, so that its messages stay where they are.
    let receiver = script(|events: &mut Events<'_, u64>, out: &mut StepOutput| {
        if events.any(|event| matches!(event, Event::Cancel(_))) {
            return Ok(Step::Done(()));
        }
        out.after(Duration::from_secs(3600));
        Ok(Step::Wait)
    });
    let receiver = runtime.spawn(receiver).unwrap();
    let (to, over, steps) = (receiver.address(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (tell, count) = (Dropped(over.clone()), steps.clone());
    let producer = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let _told = &tell;
        if events.any(|event| matches!(event, Event::Cancel(_))) {
            return Ok(Step::Done(()));
        }
        let first = count.fetch_add(1, Ordering::Relaxed) == 0;
        (0..if first { BACKLOG } else { 1 }).for_each(|n| out.send(to, n));
        Ok(Step::Continue)
    });
    let producer = runtime.spawn(producer).unwrap();
    let (pid, mut step) = (producer.pid(), 0);
    let other = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        if step == 100 {
            stop(out, pid);
        }
        step += 1;
        Ok(if over.load(Ordering::Relaxed) { Step::Done(step - 101) } else { Step::Continue })
    });
    let other = runtime.spawn(other).unwrap();
    blocker.release();
    output(&holder);
    let turns = *output(&other);
    join(&producer);
    runtime.cancel(to.pid(), "enough").unwrap();
    output(&receiver);
    (turns, steps.load(Ordering::Relaxed))
}

#[test]
fn a_signal_does_not_wait_for_the_turns_that_a_producer_lets_pass() {
    let (turns, steps) = turns_until_a_producer_is_stopped(|out, pid| {
        out.cancel(pid, "enough");
    });
    assert!(steps < 100, "it let turns pass, and yet had {steps} steps");
    assert!(turns < 10, "the signal was seen after {turns} turns of another");
}

#[test]
fn a_producer_that_is_terminated_does_not_let_its_turns_pass_first() {
    let (turns, steps) = turns_until_a_producer_is_stopped(|out, pid| {
        out.terminate(pid);
    });
    assert!(steps < 100, "it let turns pass, and yet had {steps} steps");
    assert!(turns < 10, "it was ended after {turns} turns of another");
}

#[test]
fn many_producers_do_not_run_away_from_one_consumer() {
    // All, if they let no turns pass: after two hundred.
    let sent = sent_to_one_who_is_held_up(64, (20_000, 100), 1_000);
    assert!(sent < 64 * 20_000 / 5, "they have sent {sent}");
}

#[test]
fn old_work_in_a_deque_is_reached_while_newer_work_keeps_coming() {
    const GENERATIONS: u64 = 1_000_000;
    let runtime = runtime(1);
    let reached = Latch::new();

    /// Each has one child, spawned on top of whatever is in the deque.
    struct Heir(u64, Latch<u64>);
    impl Process for Heir {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            GENERATION.store(self.0, Ordering::Relaxed);
            if !self.1.is_set() && self.0 < GENERATIONS {
                out.spawn(Heir(self.0 + 1, self.1.clone()))?;
            }
            Ok(Step::Done(()))
        }
    }
    static GENERATION: AtomicU64 = AtomicU64::new(0);

    let set = reached.clone();
    let founder = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let set = set.clone();
        // At the bottom: everything that follows is newer.
        out.spawn(script({
            let set = set.clone();
            move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                let _ = set.set(GENERATION.load(Ordering::Relaxed));
                Ok(Step::Done(()))
            }
        }))?;
        out.spawn(Heir(1, set))?;
        Ok(Step::Done(()))
    });
    output(&runtime.spawn(founder).unwrap());
    let generation = wait(&reached);
    assert!(generation < 1_000, "only after {generation} newer ones");
}

#[test]
fn work_behind_a_worker_that_is_stuck_in_a_step_is_stolen_by_the_others() {
    let runtime = runtime(2);
    let (count, done) = (Arc::new(AtomicUsize::new(0)), Latch::new());
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        // All on this worker's own deque. The last is stepped first, and is stuck until all others are through.
        for n in 0..10 {
            let (count, done) = (count.clone(), done.clone());
            out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                if n == 9 {
                    wait(&done);
                } else if count.fetch_add(1, Ordering::Relaxed) + 1 == 9 {
                    let _ = done.set(());
                }
                Ok(Step::Done(()))
            }))?;
        }
        Ok(Step::Done(()))
    });
    output(&runtime.spawn(parent).unwrap());
    until("all have ended", || runtime.stats().processes == 0);
    assert!(runtime.stats().workers.iter().any(|worker| worker.stolen > 0));
}

/// The work that the other worker always has of its own.
#[derive(Clone, Copy, Debug)]
enum Busy {
    /// One process that continues.
    Spins,
    /// Two processes that send to each other.
    Chats,
    /// More processes that continue than a worker takes at once.
    Flood,
}

#[test]
fn a_busy_worker_steals_work_from_behind_a_stuck_worker() {
    for busy in [Busy::Spins, Busy::Chats, Busy::Flood] {
        let runtime = runtime(2);
        let (stop, steps, messages) = (Arc::default(), Arc::default(), Arc::default());
        let spinners = match busy {
            Busy::Spins => 1,
            Busy::Chats => 0,
            Busy::Flood => 64,
        };
        let spinners: Vec<_> = (0..spinners).map(|_| runtime.spawn(spinner(&stop, &steps)).unwrap()).collect();
        let chatters = [runtime.spawn(chatter(&messages)).unwrap(), runtime.spawn(chatter(&messages)).unwrap()];
        if let Busy::Chats = busy {
            runtime.send(chatters[0].address(), Chat(chatters[1].pid())).unwrap();
        }
        until("they are busy", || steps.load(Ordering::Relaxed) + messages.load(Ordering::Relaxed) > 1_000);
        let stepped = Latch::new();
        let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let (set, waits) = (stepped.clone(), stepped.clone());
            out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                let _ = set.set(());
                Ok(Step::Done(()))
            }))?;
            // It is on top of the deque, so it is stepped first, and is stuck until the one below it was stepped.
            let above = out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                wait(&waits);
                Ok(Step::Done(()))
            }))?;
            Ok(Step::Done(above))
        });
        let above = *output(&runtime.spawn(parent).unwrap());
        until("both are stepped", || !runtime.is_alive(above.pid()));
        assert_eq!(runtime.stats().ended.panicked, 0, "{busy:?}: the one below was not stepped in time");
        stop.store(true, Ordering::Relaxed);
        spinners.iter().for_each(|spinner| drop(output(spinner)));
        for chatter in chatters {
            runtime.cancel(chatter.pid(), "enough").unwrap();
            output(&chatter);
        }
    }
}
