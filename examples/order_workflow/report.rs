//! The table of outcomes, and the audit, which compares the books with the orders.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession::Exit;

use crate::gateway::Account;
use crate::order::{Open, Outcome, Receipt};

/// The most lines of each list that is printed.
const MOST_LINES: usize = 8;

/// The outcomes of all orders.
#[derive(Debug, Default)]
pub(crate) struct Report {
    orders: usize,
    rows: BTreeMap<Outcome, Row>,
    attention: Vec<String>,
    wrong: Vec<String>,
    /// Cents that the bank holds.
    till: u64,
}

#[derive(Debug, Default)]
struct Row {
    orders: usize,
    calls: u64,
    cents: u64,
    took: Duration,
    longest: Duration,
}

impl Report {
    /// Makes a report from the exits of the orders and the books, both in the order of the orders' numbers.
    pub(crate) fn new(exits: impl Iterator<Item = Exit<Arc<Receipt>>>, books: &[Account]) -> Report {
        let mut report = Report {
            orders: books.len(),
            till: books.iter().map(|account| account.paid).sum(),
            rows: Outcome::ALL.into_iter().map(|outcome| (outcome, Row::default())).collect(),
            ..Report::default()
        };
        for (id, (exit, account)) in exits.zip(books).enumerate() {
            match exit {
                Exit::Done(receipt) => report.add(id, &receipt, account),
                broken => report.wrong.push(format!("order {id}: {broken}")),
            }
        }
        let counted: usize = report.rows.values().map(|row| row.orders).sum();
        if counted != report.orders {
            report.wrong.push(format!("{} orders began, and {counted} are in the table", report.orders));
        }
        report
    }

    fn add(&mut self, id: usize, receipt: &Receipt, account: &Account) {
        let row = self.rows.entry(receipt.outcome).or_default();
        row.orders += 1;
        row.calls += u64::from(account.calls);
        row.cents += account.paid;
        row.took += receipt.took;
        row.longest = row.longest.max(receipt.took);
        if receipt.outcome == Outcome::NeedsAttention {
            let open: Vec<String> = receipt.open.iter().map(Open::to_string).collect();
            self.attention.push(format!("order {id}: {}", open.join(", ")));
        }
        if let Some(what) = contradiction(receipt, account) {
            self.wrong.push(format!("order {id}: {what}; it says {receipt:?}, the books say {account:?}"));
        }
    }

    /// Whether the sums are right and the books agree.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// The time of the slowest order.
    pub(crate) fn took(&self) -> Duration {
        self.rows.values().map(|row| row.longest).max().unwrap_or_default()
    }
}

/// The contradiction between an order and the books, if there is one.
fn contradiction(receipt: &Receipt, account: &Account) -> Option<&'static str> {
    // If it is unknown whether the order was shipped, nothing was undone.
    let may_be_shipped = receipt.open.contains(&Open::Shipping);
    let may_be_left = |what| may_be_shipped || receipt.open.contains(&what);
    if account.charges > 1 {
        return Some("charged more than once");
    }
    match receipt.outcome {
        Outcome::Shipped if !account.shipped => Some("not shipped"),
        Outcome::Shipped if account.paid == 0 || account.paid != receipt.paid => Some("shipped and not paid for"),
        Outcome::Shipped if account.reserved => Some("shipped and still reserved"),
        Outcome::Shipped => None,
        _ if account.shipped && !may_be_shipped => Some("shipped after all"),
        _ if account.paid > 0 && !may_be_left(Open::Refund) => Some("charged, not shipped, and not refunded"),
        _ if account.reserved && !may_be_left(Open::Release) => Some("still reserved"),
        Outcome::NeedsAttention if receipt.open.is_empty() => Some("needs attention for nothing"),
        _ => None,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>8} {:>10} {:>10} {:>10} {:>14}",
            "outcome", "orders", "calls", "mean", "longest", "paid"
        )?;
        let mut all = Row::default();
        for (outcome, row) in &self.rows {
            write_row(f, &outcome.to_string(), row)?;
            all.orders += row.orders;
            all.calls += row.calls;
            all.cents += row.cents;
            all.took += row.took;
            all.longest = all.longest.max(row.longest);
        }
        write_row(f, "all", &all)?;
        if self.is_right() {
            writeln!(
                f,
                "\nThe books agree: {} in the till, of orders that were shipped or need attention.",
                money(self.till)
            )?;
        }
        write_list(f, "These need attention:", &self.attention)?;
        write_list(f, "THIS IS WRONG:", &self.wrong)
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, row: &Row) -> fmt::Result {
    let mean = row.took.as_secs_f64() / row.orders.max(1) as f64;
    let longest = row.longest.as_secs_f64();
    let paid = money(row.cents);
    writeln!(f, "{name:<16} {:>8} {:>10} {mean:>8.2} s {longest:>8.2} s {paid:>14}", row.orders, row.calls)
}

fn write_list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}")?;
    for line in lines.iter().take(MOST_LINES) {
        writeln!(f, "  {line}")?;
    }
    match lines.len().saturating_sub(MOST_LINES) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
