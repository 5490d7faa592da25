//! A typed actor layer on top of processes, used for a small bank whose accounts crash at random.
//!
//! Try it: `cargo run --release --example actor_system -- --seed 7`
//!
//! `actors.rs` is the layer: `Actor`, `Handler<M>`, and a name with `tell` and `ask`. `bank.rs` uses it: accounts that panic
//! and fail by seed, each restarted in place by a supervisor. Whoever transfers asks again until it is answered; the
//! sum of all accounts is the same at the end.

mod actors;
mod bank;

use std::process::ExitCode;
use std::time::Duration;

use procession::supervisor::{SupervisorMessage, Tree};
use procession::{BoxError, Runtime};

use self::bank::{Balance, Crash, Luck, Move, Store, account, bank};

const LIMIT: Duration = Duration::from_secs(10);
const EACH: u64 = 1_000;

struct Options {
    seed: u64,
    accounts: usize,
    transfers: u64,
}

fn options(arguments: impl Iterator<Item = String>) -> Result<Options, BoxError> {
    let mut options = Options { seed: 1, accounts: 20, transfers: 2_000 };
    let mut arguments = arguments.peekable();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a number"))?;
        let number: u64 = value.parse().map_err(|_| format!("{name} needs a number, and was given {value:?}"))?;
        match &*name {
            "--seed" => options.seed = number,
            "--accounts" if (2..=10_000).contains(&number) => options.accounts = number as usize,
            "--accounts" => return Err(format!("there may be 2 to 10,000 accounts, not {number}").into()),
            "--transfers" => options.transfers = number,
            _ => return Err(format!("{name:?} is not --seed, --accounts or --transfers").into()),
        }
    }
    Ok(options)
}

/// What came of it.
struct Outcome {
    before: u64,
    after: u64,
    refused: u64,
    asked_again: u64,
    restarts: u64,
}

/// Moves money from one account to another; whether there was enough, and how often it had to be asked again.
fn transfer(runtime: &Runtime, number: u64, from: usize, to: usize, amount: u64) -> (bool, u64) {
    let mut again = 0;
    let mut until_answered = |number_of_account: usize, out: bool| {
        loop {
            let step = Move { transfer: number, amount, out };
            // A crash answers with an error at once. It may have come before or after the money was moved.
            match account(number_of_account).ask(runtime, step, LIMIT) {
                Ok(enough) => return enough,
                Err(_) => again += 1,
            }
        }
    };
    let enough = until_answered(from, true) && until_answered(to, false);
    (enough, again)
}

fn run(options: &Options) -> Result<Outcome, BoxError> {
    let runtime = Runtime::start()?;
    let (store, luck) = (Store::default(), Luck::new(options.seed));
    (0..options.accounts).for_each(|number| store.open(number, EACH));
    let before = store.sum();
    let supervisor = runtime.spawn(bank(options.accounts, &store, &luck)?)?;
    runtime.ask(supervisor.address(), SupervisorMessage::started, LIMIT)?;
    let (mut refused, mut asked_again) = (0, 0);
    for number in 0..options.transfers {
        let accounts = options.accounts as u64;
        let (from, to) = (luck.below(accounts) as usize, luck.below(accounts) as usize);
        if luck.below(50) == 0 {
            account(from).tell(&runtime, Crash)?;
        }
        let (enough, again) = transfer(&runtime, number, from, to, luck.below(EACH));
        refused += u64::from(!enough);
        asked_again += again;
    }
    let mut after = 0;
    for number in 0..options.accounts {
        after += account(number).ask(&runtime, Balance, LIMIT)?;
    }
    let tree = Tree::of(&runtime, supervisor.address(), LIMIT)?;
    let restarts = tree.children.iter().map(|(info, _)| info.restarts).sum();
    runtime.cancel(supervisor.pid(), "closing time")?;
    supervisor.join().into_result()?;
    runtime.shutdown(LIMIT)?;
    Ok(Outcome { before, after, refused, asked_again, restarts })
}

fn main() -> ExitCode {
    // Crashes are expected here.
    std::panic::set_hook(Box::new(|_| ()));
    let outcome = options(std::env::args().skip(1)).and_then(|options| run(&options));
    match outcome {
        Ok(Outcome { before, after, refused, asked_again, restarts }) => {
            println!("{restarts} crashes of accounts, each restarted in place");
            println!("{refused} transfers refused for want of money, {asked_again} questions asked again");
            println!("in all accounts before: {before}, after: {after}");
            ExitCode::from(u8::from(before != after))
        }
        Err(error) => {
            eprintln!("actor_system: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_same_whatever_crashes() {
        for seed in 1..3 {
            let outcome = run(&Options { seed, accounts: 8, transfers: 100 }).unwrap();
            assert_eq!((outcome.before, outcome.after), (8_000, 8_000));
            assert!(outcome.restarts > 0 && outcome.asked_again > 0, "there were crashes");
        }
    }

    #[test]
    fn wrong_arguments_are_told() {
        for arguments in [vec!["--seed"], vec!["--seed", "x"], vec!["--accounts", "1"], vec!["--speed", "9"]] {
            assert!(options(arguments.into_iter().map(String::from)).is_err());
        }
    }
}
