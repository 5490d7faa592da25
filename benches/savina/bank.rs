//! BankTransaction: a teller has amounts transferred from one account to another. An account that has sent an amount
//! asks the other to confirm it, and waits for the answer. Other messages wait in its mailbox.

use std::time::{Duration, Instant};

use procession::{Address, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

use super::measure::{Measured, Outcome, Setting};
use super::problems::BATCH;
use super::problems::bank::{ACCOUNTS, OPENING, Transfer, Transfers, check};
use super::runtime::{done, finish};

/// The limit of a confirmation. It is without limit, as in the programs for other libraries. Then no timer is set.
const LIMIT: Duration = Duration::MAX;

enum AccountMessage {
    Send { amount: i64, to: Address<AccountMessage>, teller: Address<Transferred> },
    Receive { amount: i64, confirm: Reply<()> },
}

struct Account {
    balance: i64,
    /// The open request to the other account, and the actor that gets its confirmation.
    sent: Option<(Tag<()>, Address<Transferred>)>,
}

impl Process for Account {
    type Message = AccountMessage;
    type Output = i64;

    fn step(&mut self, events: &mut Events<AccountMessage>, out: &mut StepOutput) -> StepResult<i64> {
        for event in events {
            match event {
                Event::Message(AccountMessage::Send { amount, to, teller }) => {
                    self.balance -= amount;
                    let tag = out.ask(to, |confirm| AccountMessage::Receive { amount, confirm }, LIMIT);
                    self.sent = Some((tag, teller));
                    return Ok(Step::Wait);
                }
                Event::Message(AccountMessage::Receive { amount, confirm }) => {
                    self.balance += amount;
                    out.reply(confirm, ());
                }
                Event::Completed(done) => {
                    if let Some((tag, teller)) = self.sent.take()
                        && let Some(answer) = done.take(tag)
                    {
                        answer?;
                        out.send(teller, Transferred);
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.balance)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct Transferred;

/// Ends when all transfers are done.
struct Teller {
    accounts: Vec<Address<AccountMessage>>,
    transfers: Transfers,
    to_order: u64,
    to_come: u64,
}

impl Process for Teller {
    type Message = Transferred;
    type Output = ();

    fn step(&mut self, events: &mut Events<Transferred>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Transferred) => self.to_come -= 1,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        let batch = self.to_order.min(BATCH);
        for _ in 0..batch {
            let Transfer { from, to, amount } = self.transfers.next();
            let (to, teller) = (self.accounts[to], out.pid().typed());
            out.send(self.accounts[from], AccountMessage::Send { amount, to, teller });
        }
        self.to_order -= batch;
        Ok(match (self.to_order, self.to_come) {
            (0, 0) => Step::Done(()),
            (0, _) => Step::Idle,
            _ => Step::Continue,
        })
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let mut accounts = Vec::new();
    for _ in 0..ACCOUNTS {
        accounts.push(runtime.spawn(Account { balance: OPENING, sent: None })?);
    }
    let teller = runtime.spawn(Teller {
        accounts: accounts.iter().map(|account| account.address()).collect(),
        transfers: Transfers::new(),
        to_order: setting.n,
        to_come: setting.n,
    })?;
    done(&teller)?;
    let measured = Measured::since(began, setting.n);
    finish(&runtime)?;
    let balances = accounts.iter().map(done).collect::<Outcome<Vec<_>>>()?;
    check(&balances, setting.n)?;
    Ok(measured)
}
