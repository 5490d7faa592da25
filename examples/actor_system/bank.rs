//! A small bank: accounts as actors, and a store that outlives them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use procession::BoxError;
use procession::prelude::*;
use procession::supervisor::{ChildSpec, SpecError, Supervisor};

/// The balance of each account, and the moves that it has seen. The store stands for a database. Its contents survive
/// when an actor crashes. A move that is repeated has no second effect.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Mutex<HashMap<usize, Stored>>>);

#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) balance: u64,
    seen: HashSet<(u64, bool)>,
}

impl Store {
    pub(crate) fn with<R>(&self, account: usize, act: impl FnOnce(&mut Stored) -> R) -> R {
        act(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(account).or_default())
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|stored| stored.balance).sum()
    }
}

/// Moves an amount out of an account, or into it, for this transfer.
#[derive(Clone, Copy)]
pub(crate) struct Move {
    pub(crate) transfer: u64,
    pub(crate) amount: u64,
    pub(crate) is_out: bool,
}

/// One account. It crashes at random.
pub(crate) struct Account {
    number: usize,
    store: Store,
}

/// Crashes once in a while, as the seed of the runtime says.
fn crash(when: &str, out: &mut Actions<Account>) -> Result<(), BoxError> {
    match out.random_range(0..40) {
        0 => panic!("the roof fell in {when}"),
        1 => Err(format!("the lights went out {when}").into()),
        _ => Ok(()),
    }
}

#[actor]
impl Account {
    /// Moves an amount, once, however often it is requested. Returns whether the balance was sufficient.
    #[fails]
    pub(crate) fn apply(&mut self, step: Move, out: &mut Actions<Self>) -> Result<bool, BoxError> {
        crash("before it was written down", out)?;
        let enough = self.store.with(self.number, |stored| {
            let enough = !step.is_out || stored.balance >= step.amount;
            if enough && stored.seen.insert((step.transfer, step.is_out)) {
                stored.balance = if step.is_out { stored.balance - step.amount } else { stored.balance + step.amount };
            }
            enough || stored.seen.contains(&(step.transfer, step.is_out))
        });
        crash("after it was written down", out)?;
        Ok(enough)
    }

    pub(crate) fn balance(&self) -> u64 {
        self.store.with(self.number, |stored| stored.balance)
    }
}

/// The accounts under one supervisor, which restarts each of them in place.
pub(crate) fn bank(accounts: usize, store: &Store) -> Result<Supervisor, SpecError> {
    let builder = Supervisor::builder().intensity(usize::MAX, Duration::from_secs(1));
    let child = |number: usize| {
        let (store, name) = (store.clone(), name(number));
        let account = ChildSpec::in_place(&*name, move || actor(Account { number, store: store.clone() }));
        account.options(move || SpawnOptions::new().name(&*name))
    };
    (0..accounts).fold(builder, |builder, number| builder.child(child(number))).build()
}

/// The name of an account's process.
pub(crate) fn name(account: usize) -> String {
    format!("account-{account}")
}
