//! D. Scheduling: in what order a worker looks for work, and that nothing it has in hand is kept from the others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::{DeadLetter, Observer, ProcessIdentity, WaitedForNothing};
use procession::sync::Latch;
use procession::{Address, Event, Events, Exit, Handle, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult};

use crate::helpers::*;

/// Is done with what a counter says when its turn comes.
fn witness(counter: &Arc<AtomicU64>) -> impl Process<Message = (), Output = u64> {
    let counter = counter.clone();
    script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(counter.load(Ordering::SeqCst))))
}

/// Sends what it is sent to the other, without end or until the count is reached.
fn player(count: &Arc<AtomicU64>, most: u64) -> impl Process<Message = Pid, Output = ()> {
    let count = count.clone();
    script(move |events: &mut Events<'_, Pid>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(other) if count.fetch_add(1, Ordering::SeqCst) < most => {
                    out.send(other, out.pid());
                }
                Event::Message(_) => {}
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn after_sixteen_hand_offs_in_a_row_it_is_the_turn_of_another() {
    let (runtime, count) = (runtime(1), Arc::default());
    let players = [runtime.spawn(player(&count, 10_000)).unwrap(), runtime.spawn(player(&count, 10_000)).unwrap()];
    until("they rest", || runtime.is_idle());
    let (holder, blocker) = hold_up(&runtime);
    let [one, two] = [players[0].pid(), players[1].pid()];
    let opener = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(one, two);
        Ok(Step::Done(()))
    }));
    let witness = runtime.spawn(witness(&count)).unwrap();
    blocker.release();
    assert_eq!(*output(&witness), 16, "each message is a hand-off");
    output(&opener.unwrap());
    output(&holder);
    until("the game is over", || count.load(Ordering::SeqCst) > 10_000);
}

#[test]
fn the_global_queue_is_searched_though_newer_work_keeps_coming() {
    const GENERATIONS: u64 = 100_000;
    const TURNS: u64 = 10;

    /// Each has one child, so that the own deque is never empty.
    struct Heir {
        generation: Arc<AtomicU64>,
        enough: Latch<()>,
    }
    impl Process for Heir {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            if !self.enough.is_set() && self.generation.fetch_add(1, Ordering::SeqCst) < GENERATIONS {
                out.spawn(Heir { generation: self.generation.clone(), enough: self.enough.clone() })?;
            }
            Ok(Step::Done(()))
        }
    }
    let (runtime, generation, enough) = (runtime(1), Arc::<AtomicU64>::default(), Latch::new());
    let (holder, blocker) = hold_up(&runtime);
    let founder = runtime.spawn(Heir { generation: generation.clone(), enough: enough.clone() }).unwrap();
    // Each of its turns comes from the global queue, behind which it goes again.
    let mut turns = 0;
    let patient = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        turns += 1;
        if turns < TURNS {
            return Ok(Step::Continue);
        }
        let _ = enough.set(());
        Ok(Step::Done(generation.load(Ordering::SeqCst)))
    }));
    blocker.release();
    let generations = *output(&patient.unwrap());
    assert!((TURNS..=TURNS * 100).contains(&generations), "{TURNS} turns took {generations} generations");
    output(&founder);
    output(&holder);
}

#[test]
fn a_flooded_process_lets_others_step_before_its_flood_ends() {
    const FLOOD: u64 = 2_000;
    // While the clock stands still, only the number of steps in a row counts; if each step takes long, that does.
    for (takes, expected) in [(Duration::ZERO, 16 + 256), (Duration::from_millis(1), 17)] {
        let manual = ManualClock::new();
        let options = builder().workers(1).step_events(1).clock(manual.clock()).exact_step_times();
        let (runtime, counter) = (options.start().unwrap(), Arc::<AtomicU64>::default());
        let count = counter.clone();
        let flooded = runtime.spawn(script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
            manual.advance(takes);
            if events.count() == 0 {
                return Ok(Step::Idle);
            }
            Ok(if count.fetch_add(1, Ordering::SeqCst) + 1 == FLOOD { Step::Done(()) } else { Step::Idle })
        }));
        let flooded = flooded.unwrap();
        until("it rests", || runtime.is_idle());
        let (holder, blocker) = hold_up(&runtime);
        (0..FLOOD).for_each(|_| runtime.send(flooded.address(), ()).unwrap());
        let witness = runtime.spawn(witness(&counter)).unwrap();
        blocker.release();
        assert_eq!(*output(&witness), expected, "sixteen steps in a row, and more because so many wait");
        output(&flooded);
        output(&holder);
    }
}

#[test]
fn a_process_that_sends_to_itself_without_end_makes_room_for_others() {
    const END: u64 = 100_000;
    let (runtime, counter) = (runtime(1), Arc::<AtomicU64>::default());
    let (holder, blocker) = hold_up(&runtime);
    let steps = counter.clone();
    let busy = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let over = events.any(|event| matches!(event, Event::Cancel(_)));
        out.send(out.pid().typed(), ());
        Ok(if over || steps.fetch_add(1, Ordering::SeqCst) == END { Step::Done(()) } else { Step::Idle })
    }));
    let witness = runtime.spawn(witness(&counter)).unwrap();
    blocker.release();
    assert_eq!(*output(&witness), 16, "steps in a row");
    let busy = busy.unwrap();
    runtime.cancel(busy.pid(), "over").unwrap();
    output(&busy);
    output(&holder);
}

/// Counts what it is told, and rests.
fn told(runtime: &Runtime, count: &Arc<AtomicUsize>) -> Handle<impl Process<Message = ()>> {
    let count = count.clone();
    let told = runtime.spawn(script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(()) => count.fetch_add(1, Ordering::SeqCst),
                _ => return Ok(Step::Done(())),
            };
        }
        Ok(Step::Idle)
    }));
    until("it rests", || runtime.is_idle());
    told.unwrap()
}

#[test]
fn a_close_that_takes_long_holds_up_nobody_whom_the_last_step_has_woken() {
    struct Closer {
        to: Address<()>,
        long: Blocked,
    }
    impl Process for Closer {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            out.send(self.to, ());
            // With nothing to wait for, which is its end when the message has been sent.
            Ok(Step::Wait)
        }

        fn close(&mut self) {
            self.long.wait();
        }
    }
    let (runtime, count, long) = (runtime(2), Arc::default(), Blocker::new());
    let told = told(&runtime, &count);
    let closer = runtime.spawn(Closer { to: told.address(), long: long.blocked() }).unwrap();
    long.wait_begun();
    until("who was woken is stepped", || count.load(Ordering::SeqCst) == 1);
    assert!(!closer.is_finished());
    long.release();
    let error = join(&closer).into_result().unwrap_err();
    assert!(error.to_string().contains(&WaitedForNothing.to_string()), "{error}");
}

/// Where code of the user's takes long.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    DeadLetter,
    Spawned,
    Exited,
}

/// A hook that takes long.
struct Slow {
    at: At,
    long: Blocked,
}

impl Slow {
    fn told(&self, at: At) {
        if self.at == at && !self.long.has_begun() {
            self.long.wait();
        }
    }
}

impl Observer for Slow {
    fn spawned(&self, process: &ProcessIdentity) {
        if process.type_name.contains("Closing") {
            self.told(At::Spawned);
        }
    }

    fn exited(&self, _: &ProcessIdentity, _: &Exit) {
        self.told(At::Exited);
    }

    fn dead_letter(&self, _: &DeadLetter<'_>) {
        self.told(At::DeadLetter);
    }
}

/// In one step, has another woken and then something done that takes long in a hook.
fn wakes_nobody_who_waits_for(at: At) {
    let (count, long) = (Arc::default(), Blocker::new());
    let hook = Slow { at, long: long.blocked() };
    let runtime = builder().workers(2).observer(hook).start().unwrap();
    let told = told(&runtime, &count);
    let to = told.address();
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, ());
        match at {
            At::DeadLetter => out.send("<0.9.9>".parse::<Pid>()?, ()),
            At::Spawned => drop(out.spawn(Closing(Arc::default()))?),
            At::Exited => {}
        }
        Ok(Step::Done(()))
    }));
    long.wait_begun();
    until("who was woken is stepped", || count.load(Ordering::SeqCst) == 1);
    long.release();
    output(&process.unwrap());
}

#[test]
fn a_slow_observer_of_dead_letters_delays_no_woken_process() {
    wakes_nobody_who_waits_for(At::DeadLetter);
}

#[test]
fn a_slow_observer_of_spawns_delays_no_woken_process() {
    wakes_nobody_who_waits_for(At::Spawned);
}

#[test]
fn a_slow_observer_of_exits_delays_no_woken_process() {
    wakes_nobody_who_waits_for(At::Exited);
}

#[test]
fn a_waker_that_takes_long_holds_up_nobody_whom_the_step_has_woken() {
    for at_the_end in [false, true] {
        let (runtime, count, long, gate) = (runtime(2), Arc::default(), Blocker::new(), Latch::new());
        let told = told(&runtime, &count);
        let (to, opens) = (told.address(), gate.clone());
        let process = runtime.spawn(script(move |events: &mut Events<'_, Option<Reply<()>>>, out: &mut StepOutput| {
            for event in events {
                let Event::Message(reply) = event else { return Ok(Step::Done(())) };
                wait(&opens);
                out.send(to, ());
                match reply {
                    Some(reply) => out.reply(reply, ()),
                    None => return Ok(Step::Done(())),
                }
            }
            Ok(Step::Idle)
        }));
        let process = process.unwrap();
        let mut waits: Pin<Box<dyn Future<Output = bool>>> = if at_the_end {
            runtime.send(process.address(), None).unwrap();
            let end = process.clone();
            Box::pin(async move { end.await.is_done() })
        } else {
            let asking = runtime.ask(process.address(), Some, Duration::MAX);
            Box::pin(async move { asking.await.is_ok() })
        };
        assert!(waits.as_mut().poll(&mut Context::from_waker(&long.waker())).is_pending());
        gate.set(()).unwrap();
        long.wait_begun();
        until("who was woken is stepped", || count.load(Ordering::SeqCst) == 1);
        long.release();
        runtime.cancel(process.pid(), "over").unwrap();
        output(&process);
    }
}

#[test]
fn a_woken_worker_that_finds_work_wakes_the_next_worker() {
    for workers in [3, 8] {
        let runtime = runtime(workers);
        until("all workers sleep", || runtime.is_idle());
        // The worker that adds them wakes only one.
        output(&runtime.spawn(meeting(workers)).unwrap());
        until("all have ended", || runtime.stats().processes == 0);
        assert_eq!(runtime.stats().ended.done, workers as u64 + 1);
    }
}
