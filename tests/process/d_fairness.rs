//! D. Scheduling: fairness. Each of these would not come to its end with workers that only take the newest of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use procession::{Event, Events, Latch, Pid, Process, Step, StepOutput, StepResult};

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

/// Who to send to.
struct Chat(Pid);

/// Sends back whatever it is sent, without end.
fn chatter(messages: &Arc<AtomicU64>) -> impl Process<Message = Chat, Output = ()> {
    let messages = messages.clone();
    script(move |events: &mut Events<'_, Chat>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Chat(other)) => {
                    messages.fetch_add(1, Ordering::Relaxed);
                    out.send_to(other, Chat(out.pid()));
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

#[test]
fn a_producer_that_always_continues_does_not_run_away_from_its_consumer() {
    const MESSAGES: u64 = 1_000_000;
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (produced, first) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (made, at_first, mut seen, mut most) = (produced.clone(), first.clone(), 0, 0);
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
        let to = consumer.address();
        let producer = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let n = produced.fetch_add(1, Ordering::Relaxed) + 1;
            out.send(to, n);
            Ok(if n == MESSAGES { Step::Done(()) } else { Step::Continue })
        });
        runtime.spawn(producer).unwrap();
        let most = *output(&consumer);
        let first = first.load(Ordering::Relaxed);
        if workers == 1 {
            assert!(first <= 2 && most <= 20, "first after {first} steps, backlog {most}");
        } else {
            // The operating system may hold up the thread of the consumer; the producer then lets turns pass.
            assert!(first < MESSAGES / 20, "the consumer's first step came after {first} of the producer's");
            assert!(most < MESSAGES / 5, "the backlog was {most}");
        }
    }
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
    let turns = *output(&runtime.spawn(other).unwrap());
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
    const PRODUCERS: usize = 64;
    const EACH: usize = 20_000;
    let runtime = runtime(2);
    let (mut seen, mut most) = (0, 0);
    let sent = Arc::new(AtomicUsize::new(0));
    let made = sent.clone();
    let consumer = runtime
        .spawn(script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
            most = most.max(made.load(Ordering::Relaxed) - seen);
            seen += events.filter(|event| matches!(event, Event::Message(_))).count();
            Ok(if seen == PRODUCERS * EACH { Step::Done(most) } else { Step::Idle })
        }))
        .unwrap();
    let to = consumer.address();
    for _ in 0..PRODUCERS {
        let (mut left, sent) = (EACH, sent.clone());
        runtime
            .spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                (0..100).for_each(|n| out.send(to, n));
                sent.fetch_add(100, Ordering::Relaxed);
                left -= 100;
                Ok(if left == 0 { Step::Done(()) } else { Step::Continue })
            }))
            .unwrap();
    }
    let most = *output(&consumer);
    assert!(most < PRODUCERS * EACH / 5, "the backlog was {most} of {}", PRODUCERS * EACH);
}

#[test]
fn old_work_at_the_bottom_of_a_deque_is_reached_while_newer_work_keeps_coming_on_top() {
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
                    done.wait();
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
