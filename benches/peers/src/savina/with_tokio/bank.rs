//! BankTransaction on raw tokio. An account that has sent an amount awaits the answer in place. Other messages wait
//! in its channel.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::tokio_runtime;
use crate::savina::problems::BATCH;
use crate::savina::problems::bank::{ACCOUNTS, OPENING, Transfer, Transfers, check as check_balances};

/// An account is identified by its place. A channel sender in each message would have to be counted.
enum AccountMessage {
    Send { amount: i64, to: usize },
    Receive { amount: i64, confirm: oneshot::Sender<()> },
    Stop,
}

type Accounts = Arc<[UnboundedSender<AccountMessage>]>;

struct Transferred;

/// Returns its balance when it is stopped.
async fn keep_account(
    mut inbox: UnboundedReceiver<AccountMessage>,
    accounts: Accounts,
    teller: UnboundedSender<Transferred>,
) -> i64 {
    let mut balance = OPENING;
    while let Some(message) = inbox.recv().await {
        match message {
            AccountMessage::Send { amount, to } => {
                balance -= amount;
                let (confirm, confirmed) = oneshot::channel();
                let _ = accounts[to].send(AccountMessage::Receive { amount, confirm });
                if confirmed.await.is_ok() {
                    let _ = teller.send(Transferred);
                }
            }
            AccountMessage::Receive { amount, confirm } => {
                balance += amount;
                let _ = confirm.send(());
            }
            AccountMessage::Stop => break,
        }
    }
    balance
}

/// Orders the transfers, and waits for them. Returns how many were done.
async fn order(accounts: Accounts, mut inbox: UnboundedReceiver<Transferred>, of: u64) -> u64 {
    let (mut transfers, mut to_order, mut done) = (Transfers::new(), of, 0);
    while to_order > 0 {
        let batch = to_order.min(BATCH);
        for _ in 0..batch {
            let Transfer { from, to, amount } = transfers.next();
            let _ = accounts[from].send(AccountMessage::Send { amount, to });
        }
        to_order -= batch;
        yield_now().await;
        while inbox.try_recv().is_ok() {
            done += 1;
        }
    }
    while done < of && inbox.recv().await.is_some() {
        done += 1;
    }
    done
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..ACCOUNTS).map(|_| unbounded_channel()).unzip();
    let accounts: Accounts = senders.into();
    let (teller, transferred) = unbounded_channel();
    let mut kept = Vec::new();
    for inbox in inboxes {
        kept.push(runtime.spawn(keep_account(inbox, accounts.clone(), teller.clone())));
    }
    drop(teller);
    let done = runtime.block_on(runtime.spawn(order(accounts.clone(), transferred, setting.n)))?;
    let measured = Measured::since(began, setting.n);
    check("transfers", done, setting.n)?;
    for account in accounts.iter() {
        account.send(AccountMessage::Stop)?;
    }
    let mut balances = Vec::new();
    for account in kept {
        balances.push(runtime.block_on(account)?);
    }
    check_balances(&balances, setting.n)?;
    Ok(measured)
}
