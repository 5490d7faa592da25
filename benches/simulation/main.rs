//! The speed of a simulation: seeds a second for small systems, and the cost of a turn.
//!
//! Times are the processor time of the whole program, as Linux counts it, so that other programs count little. On other
//! systems they are those of the clock. Each measurement checks its result.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};
use procession::simulation::{Schedule, Simulation, ensure};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};

const MINUTE: Duration = Duration::from_secs(60);

const USAGE: &str = "\
The speed of a simulation.

usage: cargo bench --bench simulation -- [--smoke] [--small] [--seeds N] [--ring HOPS]

  --smoke  small counts, to see that everything works
  --small  only the small system, in one thread
  --seeds  that many seeds, for a build without optimisation
  --ring   only the ring of 1,000 processes, with that many hops, for a profile";

/// Passes a token on until it has made all its hops.
struct Passer {
    next: Option<Address<Token>>,
    passed: u64,
}

enum Token {
    Next(Address<Token>),
    Hops(u64),
}

impl Process for Passer {
    type Message = Token;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Token>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Token::Next(next)) => self.next = Some(next),
                Event::Message(Token::Hops(0)) => {}
                Event::Message(Token::Hops(left)) => {
                    self.passed += 1;
                    self.next.into_iter().for_each(|next| out.send(next, Token::Hops(left - 1)));
                }
                Event::Cancel(_) => return Ok(Step::Done(self.passed)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sleeps for a minute, this many times.
struct Sleeper(u32);

impl Process for Sleeper {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        if self.0 == 0 {
            return Ok(Step::Done(()));
        }
        self.0 -= 1;
        out.after(MINUTE);
        Ok(Step::Wait)
    }
}

/// A process that sleeps 1,440 times for a minute.
fn day() -> Simulation {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let exit = runtime.spawn(Sleeper(1_440))?.join()?;
        ensure(exit.is_done() && world.now() >= 1_440 * MINUTE, || format!("{exit} at {:?}", world.now()))?;
        Ok(())
    })
    .max_time(1_500 * MINUTE)
}

/// A bank with one account. Customers pay into it, and ask for its balance.
struct Bank {
    balance: u64,
}

enum BankMessage {
    Pay(u64),
    Balance(Reply<u64>),
}

impl Process for Bank {
    type Message = BankMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, BankMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(BankMessage::Pay(sum)) => self.balance += sum,
                Event::Message(BankMessage::Balance(reply)) => out.reply(reply, self.balance),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Pays, asks with a limit, and waits for a millisecond, this many times.
struct Customer {
    bank: Address<BankMessage>,
    left: u32,
    asked: Option<Tag<u64>>,
}

impl Process for Customer {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Completed(done) = event
                && let Some(balance) = done.take(self.asked)
            {
                balance?;
                self.asked = None;
                out.after(MINUTE / 60_000);
                return Ok(Step::Wait);
            }
        }
        if self.left == 0 {
            return Ok(Step::Done(()));
        }
        self.left -= 1;
        out.send(self.bank, BankMessage::Pay(1));
        self.asked = Some(out.ask(self.bank, BankMessage::Balance, MINUTE));
        Ok(Step::Wait)
    }
}

/// Ten customers of a bank, who each pay ROUNDS times.
fn bank() -> Simulation {
    const ROUNDS: u32 = 7;
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let bank = runtime.spawn(Bank { balance: 0 })?;
        world.invariant("no more is there than was paid", |state| {
            let waiting = state.messages::<BankMessage>();
            let waiting = waiting.filter(|one| matches!(one.message, BankMessage::Pay(_))).count() as u64;
            let there: u64 = state.processes::<Bank>().map(|(_, bank)| bank.balance).sum();
            let left: u64 = state.processes::<Customer>().map(|(_, customer)| u64::from(customer.left)).sum();
            ensure(there + waiting + left <= u64::from(10 * ROUNDS), || format!("{there} + {waiting} + {left}"))
        });
        for _ in 0..10 {
            runtime.spawn(Customer { bank: bank.address(), left: ROUNDS, asked: None })?;
        }
        world.run()
    })
}

/// A ring of processes, and tokens with hops.
fn ring(processes: usize, tokens: usize, hops: u64, is_checked: bool) -> Simulation {
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let spawn = |_| runtime.spawn(Passer { next: None, passed: 0 }).map(|handle| handle.address());
        let ring: Vec<Address<Token>> = (0..processes).map(spawn).collect::<Result<_, _>>()?;
        for (place, address) in ring.iter().enumerate() {
            runtime.send(*address, Token::Next(ring[(place + 1) % processes]))?;
        }
        for place in 0..tokens {
            runtime.send(ring[place * processes / tokens], Token::Hops(hops))?;
        }
        if is_checked {
            world.invariant("no hop is lost", move |state| {
                let moving = state.messages::<Token>();
                let left: u64 = moving.map(|one| if let Token::Hops(left) = one.message { *left } else { 0 }).sum();
                let passed: u64 = state.processes::<Passer>().map(|(_, one)| one.passed).sum();
                ensure(left + passed == hops * tokens as u64, || format!("{left} + {passed}"))
            });
        }
        world.run()
    })
    .schedule(Schedule::random())
    .max_turns(u32::MAX)
}

fn main() -> ExitCode {
    let read = |arguments: &mut Parser| {
        let (mut smoke, mut small, mut seeds, mut hops) = (cfg!(debug_assertions), false, None, None);
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("smoke") => smoke = true,
                Long("small") => small = true,
                Long("seeds") => seeds = Some(arguments.value()?.parse()?),
                Long("ring") => hops = Some(arguments.value()?.parse()?),
                // Cargo passes this option to every benchmark.
                Long("bench") => {}
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some((smoke, small, seeds, hops)))
    };
    let (smoke, is_small, seeds, only_ring) = match arguments::read("simulation", USAGE, read) {
        Ok(options) => options,
        Err(code) => return code,
    };
    if let Some(hops) = only_ring {
        measure("a turn of a ring of 1,000 processes", 3 * hops, || {
            ring(1_000, 1, hops, false).seeds(0..1).threads(1).check();
        });
        return ExitCode::SUCCESS;
    }
    let seeds = seeds.unwrap_or(if smoke { 50 } else { 20_000 });
    println!("| | runs | each | a second |\n|---|---|---|---|");
    // 5 first steps and 24 hops make 30 turns, because a step may take two messages.
    let small = || ring(5, 3, 7, true).seeds(0..seeds);
    let one = measure("a system of 30 turns with an invariant, one thread", seeds, || small().threads(1).check());
    if is_small {
        return ExitCode::SUCCESS;
    }
    let two = measure("the same, two threads", seeds, || small().threads(2).check());
    println!("| two threads need {:.2} of the time of one |", two / one);
    measure("the same without an invariant", seeds, || ring(5, 3, 7, false).seeds(0..seeds).threads(1).check());
    let of_bank = seeds / 10;
    measure("a medium system with an invariant: ten customers of a bank, about 300 turns", of_bank, || {
        bank().seeds(0..of_bank).threads(1).check();
    });
    let days = if smoke { 1 } else { 100 };
    measure("a day of timers, one each minute", days, || day().seeds(0..days).threads(1).check());
    let hops = if smoke { 10_000 } else { 1_000_000 };
    // The run without deviations, the run, and the run once more.
    measure("a turn of a ring of 1,000 processes", 3 * hops, || {
        ring(1_000, 1, hops, false).seeds(0..1).threads(1).check()
    });
    measure("a turn of a ring of 10,000 processes with 100 tokens", 3 * hops, || {
        ring(10_000, 100, hops / 100, false).seeds(0..1).threads(1).check();
    });
    ExitCode::SUCCESS
}

/// The seconds that all threads of this program have run so far, in hundredths. `None` if the system does not say.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may have spaces. After it come the state, ten numbers, and the two that are wanted.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks as f64 / 100.0)
}

/// Measures `run`, and prints the time of each of `count`. Returns the seconds by the clock.
fn measure(name: &str, count: u64, run: impl FnOnce()) -> f64 {
    let (began, before) = (Instant::now(), processor_seconds());
    run();
    let elapsed = began.elapsed().as_secs_f64();
    let seconds = processor_seconds().zip(before).map_or(elapsed, |(after, before)| after - before);
    let each = seconds / count as f64;
    println!("| {name} | {count} | {:.2} µs | {:.0} |", each * 1e6, 1.0 / each);
    elapsed
}
