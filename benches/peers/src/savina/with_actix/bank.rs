//! BankTransaction on actix. The context of an account that has sent an amount waits for the answer. Other messages
//! wait in its mailbox.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::BATCH;
use crate::savina::problems::bank::{ACCOUNTS, OPENING, Transfer, Transfers, check};

struct Account {
    balance: i64,
    accounts: Arc<[Addr<Account>]>,
    teller: Option<Addr<Teller>>,
}

impl Actor for Account {
    type Context = Context<Self>;
}

/// All accounts in order, and the teller.
struct Meet(Arc<[Addr<Account>]>, Addr<Teller>);

impl Message for Meet {
    type Result = ();
}

impl Handler<Meet> for Account {
    type Result = ();

    fn handle(&mut self, Meet(accounts, teller): Meet, _: &mut Context<Self>) {
        (self.accounts, self.teller) = (accounts, Some(teller));
    }
}

/// An account is identified by its place. An address in each message would have to be counted.
struct Pay {
    amount: i64,
    to: usize,
}

impl Message for Pay {
    type Result = ();
}

impl Handler<Pay> for Account {
    type Result = ();

    fn handle(&mut self, Pay { amount, to }: Pay, context: &mut Context<Self>) {
        self.balance -= amount;
        let confirmed = self.accounts[to].send(Receive { amount });
        context.wait(confirmed.into_actor(self).map(|confirmed, account, _| {
            if let (Ok(()), Some(teller)) = (confirmed, &account.teller) {
                teller.do_send(Transferred);
            }
        }));
    }
}

struct Receive {
    amount: i64,
}

impl Message for Receive {
    type Result = ();
}

impl Handler<Receive> for Account {
    type Result = ();

    fn handle(&mut self, Receive { amount }: Receive, _: &mut Context<Self>) {
        self.balance += amount;
    }
}

struct Balance;

impl Message for Balance {
    type Result = i64;
}

impl Handler<Balance> for Account {
    type Result = i64;

    fn handle(&mut self, _: Balance, _: &mut Context<Self>) -> i64 {
        self.balance
    }
}

/// Reports when all transfers are done.
struct Teller {
    accounts: Arc<[Addr<Account>]>,
    to_order: u64,
    to_come: u64,
    over: Sender<()>,
}

impl Actor for Teller {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        for account in self.accounts.iter() {
            account.do_send(Meet(self.accounts.clone(), context.address()));
        }
        let (accounts, mut to_order) = (self.accounts.clone(), self.to_order);
        let work = async move {
            let mut transfers = Transfers::new();
            while to_order > 0 {
                let batch = to_order.min(BATCH);
                for _ in 0..batch {
                    let Transfer { from, to, amount } = transfers.next();
                    accounts[from].do_send(Pay { amount, to });
                }
                to_order -= batch;
                yield_now().await;
            }
        };
        context.spawn(work.into_actor(self));
    }
}

struct Transferred;

impl Message for Transferred {
    type Result = ();
}

impl Handler<Transferred> for Teller {
    type Result = ();

    fn handle(&mut self, _: Transferred, _: &mut Context<Self>) {
        self.to_come -= 1;
        if self.to_come == 0 {
            let _ = self.over.send(());
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, is_over) = channel();
    let began = Instant::now();
    let open = |_| stage.start(Account { balance: OPENING, accounts: Arc::new([]), teller: None });
    let accounts: Arc<[_]> = (0..ACCOUNTS).map(open).collect();
    stage.start(Teller { accounts: accounts.clone(), to_order: setting.n, to_come: setting.n, over });
    report(&is_over)?;
    let measured = Measured::since(began, setting.n);
    let mut balances = Vec::new();
    for account in accounts.iter() {
        balances.push(stage.system.block_on(account.send(Balance))?);
    }
    check(&balances, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
