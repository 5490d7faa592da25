//! Durable processes: their steps, their mail, and what a restart finds.

use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store, StoreError};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::LIMIT;

/// An account: it pays to others, and is closed with its balance.
#[derive(Serialize, Deserialize)]
struct Account {
    balance: i64,
    #[serde(skip)]
    resumed: u32,
}

#[derive(Serialize, Deserialize)]
enum AccountMessage {
    Add(i64),
    Pay(i64, Address<AccountMessage>),
    Balance(Reply<(i64, u32)>),
    Fail,
    Close,
}

impl Account {
    fn new(balance: i64) -> Account {
        Account { balance, resumed: 0 }
    }
}

impl Process for Account {
    type Message = AccountMessage;
    type Output = i64;

    fn step(&mut self, events: &mut Events<'_, AccountMessage>, out: &mut StepOutput) -> StepResult<i64> {
        for event in events {
            match event {
                Event::Message(AccountMessage::Add(amount)) => self.balance += amount,
                Event::Message(AccountMessage::Pay(amount, to)) => {
                    self.balance -= amount;
                    out.send(to, AccountMessage::Add(amount));
                }
                Event::Message(AccountMessage::Balance(reply)) => out.reply(reply, (self.balance, self.resumed)),
                Event::Message(AccountMessage::Fail) => return Err("on purpose".into()),
                Event::Message(AccountMessage::Close) => return Ok(Step::Done(self.balance)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Account {
    const NAME: &str = "account";

    fn resumed(&mut self) {
        self.resumed += 1;
    }
}

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2);
    store_in(MemoryJournal::new(disk)).kind::<Account>().start(builder).unwrap()
}

fn balance(runtime: &Runtime, of: Address<AccountMessage>) -> (i64, u32) {
    runtime.ask(of, AccountMessage::Balance, LIMIT).wait().unwrap()
}

fn end(store: &Store, runtime: &Runtime) {
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn a_process_goes_on_in_the_next_run_under_its_id_and_pid() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let begun = store.begin("a", Account::new(100)).unwrap();
    assert!(!begun.was_there());
    begun.wait(LIMIT).unwrap();
    store.send(begun.address(), AccountMessage::Add(11)).unwrap().wait(LIMIT).unwrap();
    assert_eq!(balance(&runtime, begun.address()), (111, 0));
    end(&store, &runtime);
    drop((store, runtime));

    let (store, runtime) = open(&disk);
    let again = store.begin("a", Account::new(7)).unwrap();
    assert!(again.was_there());
    assert_eq!(again.pid(), begun.pid());
    assert_eq!(balance(&runtime, again.address()), (111, 1));
    end(&store, &runtime);
}

#[test]
fn money_between_accounts_is_the_same_after_a_restart() {
    let disk = MemoryDisk::new();
    let mut pids = Vec::new();
    for run in 0..3 {
        let (store, runtime) = open(&disk);
        let accounts: Vec<_> =
            (0..10).map(|n| store.begin(&format!("{n}"), Account::new(1_000)).unwrap().address()).collect();
        assert!(run == 0 || accounts == pids, "the PIDs are those of the first run");
        for n in 0..1_000 {
            let (from, to) = (accounts[n % 10], accounts[(n * 7 + 3) % 10]);
            runtime.send(from, AccountMessage::Pay(5, to)).unwrap();
        }
        runtime.wait_idle_timeout(LIMIT).unwrap();
        let total: i64 = accounts.iter().map(|account| balance(&runtime, *account).0).sum();
        assert_eq!(total, 10_000);
        pids = accounts;
        end(&store, &runtime);
    }
}

#[test]
fn an_output_can_be_had_by_id_in_a_later_run() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let account = store.begin("a", Account::new(5)).unwrap().address();
    let result = store.result::<Account>("a").unwrap();
    runtime.send(account, AccountMessage::Close).unwrap();
    assert_eq!(result.wait(LIMIT).unwrap(), 5);
    assert_eq!(store.result::<Account>("a").unwrap().wait(LIMIT).unwrap(), 5);
    assert!(runtime.send(account, AccountMessage::Add(1)).is_err(), "it has ended");
    end(&store, &runtime);
    drop((store, runtime));

    let (store, runtime) = open(&disk);
    assert_eq!(store.result::<Account>("a").unwrap().wait(LIMIT).unwrap(), 5);
    assert!(matches!(store.result::<Account>("b"), Err(StoreError::NoSuchId(_))));
    end(&store, &runtime);
}
