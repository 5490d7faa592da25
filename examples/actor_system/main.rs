//! A small bank of actors that crash at random.
//!
//! Try it: `cargo run --release --example actor_system -- --seed 7`
//!
//! Accounts panic and fail, as a seed decides. A supervisor restarts each of them in place: it has the same PID and
//! mailbox, and a new state. A transfer is repeated until it is answered. At the end, the sum of all accounts is the
//! same as before.
//!
//! Ctrl-C ends the example after the current transfer, and the sums are still compared. The exit code is 0 if they
//! agree, 1 if not, 2 for invalid options, and 130 after Ctrl-C.

#[path = "../arguments/mod.rs"]
mod arguments;
mod bank;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::supervisor::SupervisorMessage;
use procession::{BoxError, ProcessRef, Runtime};

use self::bank::{AccountCalls as _, AccountMessage, Move, Store, bank, name};

/// So long that only a broken bank reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// The balance of each account at the beginning.
const EACH: u64 = 1_000;

const USAGE: &str = "\
usage: actor_system [--seed S] [--accounts N] [--transfers N]

  --seed S        decides which actors crash, and when (1)
  --accounts N    2 to 10000 (20)
  --transfers N   from one account to another, one after the other (2000)";

struct Options {
    seed: u64,
    accounts: usize,
    transfers: u64,
}

fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options { seed: 1, accounts: 20, transfers: 2_000 };
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("seed") => options.seed = arguments::number(arguments, "--seed", 0..=u64::MAX)?,
            Long("accounts") => options.accounts = arguments::number(arguments, "--accounts", 2..=10_000)?,
            Long("transfers") => options.transfers = arguments::number(arguments, "--transfers", 0..=u64::MAX)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

/// The result of a run.
struct Outcome {
    before: u64,
    after: u64,
    refused: u64,
    asked_again: u64,
    restarts: u64,
}

/// Has an account move an amount, and repeats this until there is an answer. Counts the repetitions.
fn until_answered(account: &ProcessRef<AccountMessage>, step: Move, asked_again: &mut u64) -> bool {
    loop {
        // A crash is answered with an error at once. It may have happened before or after the money was moved.
        match account.apply(step).timeout(LIMIT).wait() {
            Ok(enough) => return enough,
            Err(_) => *asked_again += 1,
        }
    }
}

fn run(options: &Options, interrupted: &AtomicBool) -> Result<Outcome, BoxError> {
    let runtime = Runtime::builder().seed(options.seed).start()?;
    transfer(&runtime, options, &Store::default(), interrupted)
}

/// Opens the bank, and makes all transfers.
fn transfer(
    runtime: &Runtime,
    options: &Options,
    store: &Store,
    interrupted: &AtomicBool,
) -> Result<Outcome, BoxError> {
    (0..options.accounts).for_each(|number| store.with(number, |stored| stored.balance = EACH));
    let before = store.sum();
    let supervisor = runtime.spawn(bank(options.accounts, store)?)?;
    runtime.ask(&supervisor, SupervisorMessage::started, LIMIT).wait()?;
    let accounts: Vec<_> = (0..options.accounts).map(|number| runtime.process_ref(name(number))).collect();
    let (mut refused, mut asked_again, mut random) = (0, 0, options.seed);
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    // The check is between two transfers, so that none is left half done.
    for transfer in (0..options.transfers).take_while(|_| !interrupted.load(Ordering::Relaxed)) {
        let mut any = || &accounts[below(options.accounts as u64) as usize];
        let (from, to) = (any(), any());
        let amount = below(EACH);
        let enough = until_answered(from, Move { transfer, amount, is_out: true }, &mut asked_again);
        if enough {
            until_answered(to, Move { transfer, amount, is_out: false }, &mut asked_again);
        }
        refused += u64::from(!enough);
    }
    let balances = accounts.iter().map(|account| account.balance().timeout(LIMIT).wait());
    let after = balances.sum::<Result<u64, _>>()?;
    let children = runtime.ask(&supervisor, SupervisorMessage::children, LIMIT).wait()?;
    let restarts = children.iter().map(|child| child.restarts).sum();
    runtime.cancel(&supervisor, "closing time")?;
    supervisor.join()?.into_result()?;
    runtime.shutdown(LIMIT)?;
    Ok(Outcome { before, after, refused, asked_again, restarts })
}

fn main() -> ExitCode {
    // Crashes are expected here.
    std::panic::set_hook(Box::new(|_| ()));
    arguments::main("actor_system", USAGE, parse, |options| {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
        let Outcome { before, after, refused, asked_again, restarts } = run(&options, &interrupted)?;
        println!("{restarts} crashes of accounts, each restarted in place");
        println!("{refused} transfers refused for want of money, {asked_again} questions asked again");
        println!("in all accounts before: {before}, after: {after}");
        let code = if before != after { 1 } else { u8::from(interrupted.load(Ordering::Relaxed)) * 130 };
        Ok::<_, BoxError>(ExitCode::from(code))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procession::simulation::{Simulation, ensure};

    #[test]
    fn no_money_appears_in_any_order() {
        Simulation::new(|world| {
            let options = Options { seed: world.seed(), accounts: 3, transfers: 15 };
            let runtime = world.start(Runtime::builder().seed(options.seed))?;
            let store = Store::default();
            let seen = store.clone();
            // A transfer takes the money from one account first.
            world.invariant("no money appears", move |_| {
                ensure(seen.sum() <= 3 * EACH, || format!("there are {}", seen.sum()))
            });
            let outcome = transfer(&runtime, &options, &store, &AtomicBool::new(false))?;
            ensure(outcome.before == outcome.after, || format!("{} were left", outcome.after))?;
            Ok(())
        })
        .without("no step panics")
        .seeds(0..50)
        .check();
    }

    #[test]
    fn the_sum_is_the_same_whatever_crashes() {
        for seed in 1..3 {
            let outcome = run(&Options { seed, accounts: 8, transfers: 100 }, &AtomicBool::new(false)).unwrap();
            assert_eq!((outcome.before, outcome.after), (8_000, 8_000));
            assert!(outcome.restarts > 0 && outcome.asked_again > 0, "there were crashes");
        }
    }

    #[test]
    fn an_interruption_leaves_no_transfer_half_done() {
        let outcome = run(&Options { seed: 1, accounts: 8, transfers: u64::MAX }, &AtomicBool::new(true)).unwrap();
        assert_eq!((outcome.before, outcome.after, outcome.restarts), (8_000, 8_000, 0));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for arguments in [vec!["--seed"], vec!["--seed", "x"], vec!["--accounts", "1"], vec!["--speed", "9"]] {
            assert!(parse(&mut Parser::from_args(arguments)).is_err());
        }
    }
}
