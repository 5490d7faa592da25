//! A typed actor layer on top of processes, used for a small bank whose accounts crash at random.
//!
//! Try it: `cargo run --release --example actor_system -- --seed 7`
//!
//! Ctrl-C ends the example after the current transfer, and the sums are still compared. The exit code is 0 if they
//! agree, 1 if not, 2 for invalid options, and 130 after Ctrl-C.
//!
//! `actors.rs` is the layer: `Actor`, `Handler<M>`, and a name with `tell` and `ask`. `bank.rs` uses it: accounts
//! that panic and fail by seed, each restarted in place by a supervisor. A transfer is repeated until it is answered.
//! At the end, the sum of all accounts is the same as before.

mod actors;
#[path = "../arguments/mod.rs"]
mod arguments;
mod bank;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::supervisor::{SupervisorMessage, Tree};
use procession::{BoxError, Runtime};

use self::bank::{Balance, Crash, Luck, Move, Store, account, bank};

const LIMIT: Duration = Duration::from_secs(60);
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

/// Moves money from one account to another. Returns whether the balance was sufficient, and how often the request was
/// repeated.
fn transfer(runtime: &Runtime, number: u64, from: usize, to: usize, amount: u64) -> (bool, u64) {
    let mut again = 0;
    let mut until_answered = |number_of_account: usize, out: bool| {
        loop {
            let step = Move { transfer: number, amount, out };
            // A crash is answered with an error at once. It may have happened before or after the money was moved.
            match account(number_of_account).ask(runtime, step, LIMIT) {
                Ok(enough) => return enough,
                Err(_) => again += 1,
            }
        }
    };
    let enough = until_answered(from, true) && until_answered(to, false);
    (enough, again)
}

fn run(options: &Options, interrupted: &AtomicBool) -> Result<Outcome, BoxError> {
    let runtime = Runtime::start()?;
    let (store, luck) = (Store::default(), Luck::new(options.seed));
    (0..options.accounts).for_each(|number| store.open(number, EACH));
    let before = store.sum();
    let supervisor = runtime.spawn(bank(options.accounts, &store, &luck)?)?;
    runtime.ask(supervisor.address(), SupervisorMessage::started, LIMIT).wait()?;
    let (mut refused, mut asked_again) = (0, 0);
    let bar = if io::stderr().is_terminal() { ProgressBar::new(options.transfers) } else { ProgressBar::hidden() };
    for number in 0..options.transfers {
        // The check is between two transfers, so that none is left half done.
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        bar.set_position(number);
        let accounts = options.accounts as u64;
        let (from, to) = (luck.below(accounts) as usize, luck.below(accounts) as usize);
        if luck.below(50) == 0 {
            account(from).tell(&runtime, Crash)?;
        }
        let (enough, again) = transfer(&runtime, number, from, to, luck.below(EACH));
        refused += u64::from(!enough);
        asked_again += again;
    }
    bar.finish_and_clear();
    let mut after = 0;
    for number in 0..options.accounts {
        after += account(number).ask(&runtime, Balance, LIMIT)?;
    }
    let tree = Tree::of(&runtime, supervisor.address(), LIMIT)?;
    let restarts = tree.children.iter().map(|(info, _)| info.restarts).sum();
    runtime.cancel(supervisor.pid(), "closing time")?;
    supervisor.join()?.into_result()?;
    runtime.shutdown(LIMIT)?;
    Ok(Outcome { before, after, refused, asked_again, restarts })
}

fn main() -> ExitCode {
    let options = match arguments::read("actor_system", USAGE, parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    // Crashes are expected here.
    std::panic::set_hook(Box::new(|_| ()));
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let outcome = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .map_err(BoxError::from)
        .and_then(|()| run(&options, &interrupted));
    match outcome {
        Ok(Outcome { before, after, refused, asked_again, restarts }) => {
            println!("{restarts} crashes of accounts, each restarted in place");
            println!("{refused} transfers refused for want of money, {asked_again} questions asked again");
            println!("in all accounts before: {before}, after: {after}");
            let code = if before != after { 1 } else { u8::from(interrupted.load(Ordering::Relaxed)) * 130 };
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("actor_system: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_same_whatever_crashes() {
        for seed in 1..3 {
            let outcome = run(&Options { seed, accounts: 8, transfers: 100 }, &AtomicBool::new(false)).unwrap();
            assert_eq!((outcome.before, outcome.after), (8_000, 8_000));
            assert!(outcome.restarts > 0 && outcome.asked_again > 0, "there were crashes");
        }
    }

    #[test]
    fn who_is_interrupted_leaves_no_transfer_half_done() {
        let outcome = run(&Options { seed: 1, accounts: 8, transfers: u64::MAX }, &AtomicBool::new(true)).unwrap();
        assert_eq!((outcome.before, outcome.after, outcome.restarts), (8_000, 8_000, 0));
    }

    #[test]
    fn wrong_arguments_are_told() {
        for arguments in [vec!["--seed"], vec!["--seed", "x"], vec!["--accounts", "1"], vec!["--speed", "9"]] {
            assert!(parse(&mut Parser::from_args(arguments)).is_err());
        }
    }
}
