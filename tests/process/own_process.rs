//! Beyond the statements of the bridge: the address of the process being stepped, and its random numbers.

use std::collections::HashSet;

use procession::testing::Driver;
use procession::{
    Address, BoxError, Event, Events, Exit, Handle, Pid, Process, Runtime, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

#[test]
fn a_step_knows_the_typed_address_of_its_process() {
    /// Sends itself a message in its start and in its step.
    struct Self_(Vec<Address<u32>>);
    impl Process for Self_ {
        type Message = u32;
        type Output = Vec<Address<u32>>;

        fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
            out.send(out.own_address::<Self>(), 1);
            self.0.push(out.own_address::<Self>());
            Ok(())
        }

        fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<Self::Output> {
            self.0.push(events.address());
            while let Some(event) = events.next() {
                match event {
                    Event::Message(1) => out.send(events.address(), 2),
                    _ => return Ok(Step::Done(std::mem::take(&mut self.0))),
                }
            }
            Ok(Step::Idle)
        }
    }
    let runtime = runtime(1);
    let process = runtime.spawn(Self_(Vec::new())).unwrap();
    let seen = output(&process);
    assert!(seen.len() > 2 && seen.iter().all(|address| *address == process.address()), "{seen:?}");
    assert_accounted(&runtime);
    let mut driver = Driver::new(Self_(Vec::new()));
    driver.run();
    let sent = driver.sent::<u32>().unwrap();
    assert_eq!(sent, (driver.pid(), 1));
}

/// The orders to a [`Gambler`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Do {
    Draw(usize),
    /// Draws, and goes on on the pool. There it draws once more.
    OnPool,
    /// Draws once, and fails.
    Fail,
    /// Draws once, and is replaced by another.
    Upgrade,
    /// Yields much, and draws nothing.
    Yield,
    Stop,
}

/// Draws numbers, and writes them down.
struct Gambler {
    drawn: Log<u64>,
    is_on_pool: bool,
    /// Whether it draws in its start.
    starts: bool,
}

impl Gambler {
    fn next(&self) -> Gambler {
        Gambler { drawn: self.drawn.clone(), is_on_pool: false, starts: true }
    }
}

impl Process for Gambler {
    type Message = Do;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        if self.starts {
            self.drawn.push(out.random());
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, Do>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.is_on_pool) {
            self.drawn.push(out.random());
        }
        for event in events {
            let Event::Message(order) = event else { continue };
            let count = match order {
                Do::Draw(count) => count,
                Do::Yield | Do::Stop => 0,
                _ => 1,
            };
            (0..count).for_each(|_| self.drawn.push(out.random()));
            match order {
                Do::Draw(_) => {}
                Do::OnPool => {
                    self.is_on_pool = true;
                    return Ok(Step::Blocking);
                }
                Do::Fail => return Err("bad luck".into()),
                Do::Upgrade => return Ok(Step::Upgrade(Upgrade::to(self.next()))),
                Do::Yield => (0..3).for_each(|n| {
                    out.send("nobody", n);
                    out.after(std::time::Duration::MAX);
                }),
                Do::Stop => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(self.next()))
    }
}

fn with_seed(seed: u64) -> Runtime {
    builder().workers(1).node(3).seed(seed).start().unwrap()
}

fn gambler(runtime: &Runtime) -> (Handle<Gambler>, Log<u64>) {
    let drawn = Log::new();
    (runtime.spawn(Gambler { drawn: drawn.clone(), is_on_pool: false, starts: false }).unwrap(), drawn)
}

/// Sends the orders one by one, each when the one before has been carried out.
fn orders(runtime: &Runtime, to: &Handle<Gambler>, orders: &[Do]) {
    for order in orders {
        runtime.send(to.address(), *order).unwrap();
        until("it is carried out", || runtime.is_idle());
    }
}

/// The first numbers of the stream of a process.
fn stream(seed: u64, pid: Pid, count: usize) -> Vec<u64> {
    let drawn = Log::new();
    let gambler = Gambler { drawn: drawn.clone(), is_on_pool: false, starts: false };
    Driver::builder().pid(pid).seed(seed).build(gambler).message(Do::Draw(count)).run();
    drawn.take()
}

#[test]
fn each_process_has_a_stream_of_its_own_from_seed_and_pid() {
    let mut all = HashSet::new();
    for seed in [1, 2] {
        let both = [with_seed(seed), with_seed(seed)].map(|runtime| {
            [(); 3].map(|()| {
                let (process, drawn) = gambler(&runtime);
                orders(&runtime, &process, &[Do::Draw(100)]);
                let drawn = drawn.take();
                assert_eq!(drawn, stream(seed, process.pid(), 100), "a driver gives the same numbers");
                (process.pid(), drawn)
            })
        });
        assert_eq!(both[0], both[1], "the same seed, the same numbers");
        both[0].iter().for_each(|(_, drawn)| all.extend(drawn.iter().copied()));
    }
    assert_eq!(all.len(), 600, "another seed or PID, other numbers");
}

#[test]
fn without_a_seed_each_run_draws_other_numbers() {
    let two = [(); 2].map(|()| {
        let runtime = builder().workers(1).node(3).start().unwrap();
        let (process, drawn) = gambler(&runtime);
        orders(&runtime, &process, &[Do::Draw(1)]);
        drawn.take()[0]
    });
    assert_ne!(two[0], two[1]);
}

/// Whatever happens between two draws, the stream goes on.
#[test]
fn a_stream_goes_on_over_steps_upgrades_failures_and_the_pool() {
    let runtime = with_seed(5);
    let (process, drawn) = gambler(&runtime);
    orders(&runtime, &process, &[Do::Draw(1), Do::Yield, Do::Draw(2), Do::OnPool, Do::Upgrade, Do::Fail, Do::Draw(3)]);
    orders(&runtime, &process, &[Do::OnPool, Do::Fail, Do::Fail, Do::Yield, Do::Draw(1)]);
    // Each replacement draws one number in its start.
    let expected = 1 + 2 + 2 + 2 + 2 + 3 + 2 + 2 + 2 + 1;
    assert_eq!(drawn.take(), stream(5, process.pid(), expected));
}

/// Many processes on one worker, some of which never draw: each has its own stream from the beginning.
#[test]
fn processes_on_one_worker_do_not_mix_their_streams() {
    let runtime = with_seed(6);
    let some: Vec<_> = (0..4).map(|_| gambler(&runtime)).collect();
    let mut counts = [0; 4];
    for round in 1..20 {
        for (n, (process, _)) in some.iter().enumerate() {
            let order = match (round * (n + 3)) % 5 {
                0 => Do::Yield,
                1 => Do::Draw(2),
                2 => Do::Draw(0),
                3 if n == 3 => Do::Yield,
                _ => Do::Draw(1),
            };
            if let Do::Draw(count) = order {
                counts[n] += count;
            }
            orders(&runtime, process, &[order]);
        }
    }
    for ((process, drawn), count) in some.iter().zip(counts) {
        assert_eq!(drawn.take(), stream(6, process.pid(), count));
    }
}

/// The next process in the same slot, on the same worker, has another PID, and so another stream.
#[test]
fn a_process_that_ends_with_a_draw_leaves_nothing_to_the_next() {
    for end in [Do::Stop, Do::Fail] {
        let runtime = with_seed(7);
        let ends = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.random();
            if end == Do::Fail { Err("bad luck".into()) } else { Ok(Step::Done(())) }
        }));
        join(&ends.unwrap());
        let (process, drawn) = gambler(&runtime);
        orders(&runtime, &process, &[Do::Yield, Do::Draw(3)]);
        assert_eq!(drawn.take(), stream(7, process.pid(), 3));
    }
}

#[test]
fn numbers_from_a_range_lie_in_it_and_reach_its_ends() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let mut driver = Driver::new(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let seen: HashSet<u64> = (0..200).map(|_| out.random_range(3..=5)).collect();
        assert_eq!(seen, HashSet::from([3, 4, 5]));
        let seen: HashSet<u64> = (0..200).map(|_| out.random_range(..3)).collect();
        assert_eq!(seen, HashSet::from([0, 1, 2]));
        let seen: HashSet<u64> = (0..200).map(|_| out.random_range(u64::MAX - 1..)).collect();
        assert_eq!(seen, HashSet::from([u64::MAX - 1, u64::MAX]));
        let seen: HashSet<u64> = (0..200).map(|_| out.random_range((Excluded(1), Included(3)))).collect();
        assert_eq!(seen, HashSet::from([2, 3]));
        assert!((0..100).map(|_| out.random_range(..)).any(|n| n > u64::MAX / 2));
        // Empty ones.
        assert_eq!((out.random_range(7..7), out.random_range(..0)), (7, 0));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let reversed = out.random_range(9..=2);
        assert_eq!((reversed, out.random_range((Excluded(u64::MAX), Unbounded))), (9, u64::MAX));
        Ok(Step::Done(()))
    }));
    driver.run();
    assert!(driver.exit().unwrap().is_done());
}
