//! A small bank: accounts as actors, and a store that outlives them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use procession::supervisor::{ChildSpec, SpecError, Supervisor};
use procession::{BoxError, SpawnOptions, StepOutput};

use crate::actors::{Actor, ActorName, Handler, Running};

/// The balance of each account, and the transfers that it has seen. The store stands for a database. Its contents
/// survive when an actor crashes. A transfer that is repeated has no second effect.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Mutex<HashMap<usize, Stored>>>);

#[derive(Clone, Default)]
struct Stored {
    balance: u64,
    seen: HashSet<(u64, bool)>,
}

impl Store {
    fn with<R>(&self, account: usize, act: impl FnOnce(&mut Stored) -> R) -> R {
        act(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(account).or_default())
    }

    pub(crate) fn open(&self, account: usize, balance: u64) {
        self.with(account, |stored| stored.balance = balance);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|stored| stored.balance).sum()
    }
}

/// Decides by a seed when an actor crashes.
#[derive(Clone)]
pub(crate) struct Luck(Arc<Mutex<u64>>);

impl Luck {
    pub(crate) fn new(seed: u64) -> Luck {
        Luck(Arc::new(Mutex::new(seed)))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % limit
    }

    fn crash(&self, when: &str) -> Result<(), BoxError> {
        match self.below(40) {
            0 => panic!("the roof fell in {when}"),
            1 => Err(format!("the lights went out {when}").into()),
            _ => Ok(()),
        }
    }
}

/// One account.
pub(crate) struct Account {
    number: usize,
    store: Store,
    luck: Luck,
}

impl Actor for Account {}

/// Moves an amount out of the account or into it, for this transfer. The move happens once, however often it is
/// requested.
pub(crate) struct Move {
    pub(crate) transfer: u64,
    pub(crate) amount: u64,
    pub(crate) out: bool,
}

impl Handler<Move> for Account {
    /// Whether the balance was sufficient.
    type Reply = bool;

    fn handle(&mut self, step: Move, _: &mut StepOutput) -> Result<bool, BoxError> {
        self.luck.crash("before it was written down")?;
        let enough = self.store.with(self.number, |stored| {
            if stored.seen.contains(&(step.transfer, step.out)) {
                return true;
            }
            if step.out && stored.balance < step.amount {
                return false;
            }
            stored.balance = if step.out { stored.balance - step.amount } else { stored.balance + step.amount };
            stored.seen.insert((step.transfer, step.out))
        });
        self.luck.crash("after it was written down")?;
        Ok(enough)
    }
}

/// Asks for the balance.
pub(crate) struct Balance;

impl Handler<Balance> for Account {
    type Reply = u64;

    fn handle(&mut self, _: Balance, _: &mut StepOutput) -> Result<u64, BoxError> {
        Ok(self.store.with(self.number, |stored| stored.balance))
    }
}

/// Makes the account crash for certain, without an answer.
pub(crate) struct Crash;

impl Handler<Crash> for Account {
    type Reply = ();

    fn handle(&mut self, _: Crash, _: &mut StepOutput) -> Result<(), BoxError> {
        Err("it was told to".into())
    }
}

pub(crate) fn account(number: usize) -> ActorName<Account> {
    ActorName::new(format!("account-{number}"))
}

/// The accounts under one supervisor, which restarts each in place.
pub(crate) fn bank(accounts: usize, store: &Store, luck: &Luck) -> Result<Supervisor, SpecError> {
    let builder = Supervisor::builder().intensity(usize::MAX, std::time::Duration::from_secs(1));
    (0..accounts)
        .fold(builder, |builder, number| {
            let (store, luck, name) = (store.clone(), luck.clone(), account(number).as_str().to_owned());
            let make = move || Running::new(Account { number, store: store.clone(), luck: luck.clone() });
            let named = name.clone();
            builder.child(ChildSpec::in_place(name, make).options(move || SpawnOptions::new().name(named.as_str())))
        })
        .build()
}
