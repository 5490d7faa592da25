//! The partners of the orders: a warehouse, a bank and a carrier, with their books.
//!
//! Orders reach each of them by commands, and each answers in its own way. The warehouse answers a release at once,
//! the carrier answers from another thread, and all others answer by a timer. They fail, but reproducibly: only the
//! seed, the order and the attempt decide the fate of a call.

use std::fs::File;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use procession::BoxError;
use procession::clock::Clock;
use procession::command::{Command, Responder};
use procession::config::RuntimeBuilder;
use procession::pool::{Pool, PoolStats};
use procession::timer::Timers;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
#[cfg(feature = "sqlite")]
use serde::{Deserialize, Serialize};

/// The unit of time: every call takes a whole number of ticks.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The duration of most calls, and of slow ones.
const QUICK_TICKS: RangeInclusive<u32> = 1..=9;
const SLOW_TICKS: RangeInclusive<u32> = 50..=400;
/// The number of slow calls in a hundred.
const SLOW: u32 = 8;

/// The parts of every call: the order, the amount, and the number of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Ticket {
    pub(crate) order: usize,
    pub(crate) cents: u64,
    pub(crate) attempt: u32,
}

/// Reserves the goods.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Reserve(pub(crate) Ticket);
/// Takes the money.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Charge(pub(crate) Ticket);
/// Hands the goods to the carrier. This cannot be undone.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Ship(pub(crate) Ticket);
/// Refunds the money.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Refund(pub(crate) Ticket);
/// Releases the reserved goods.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Release(pub(crate) Ticket);

/// The amount that the bank took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Payment(pub(crate) u64);

/// The carrier's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Parcel(pub(crate) u64);

impl Command for Reserve {
    type Output = ();
}

impl Command for Charge {
    type Output = Payment;
}

impl Command for Ship {
    type Output = Parcel;
}

impl Command for Refund {
    type Output = ();
}

impl Command for Release {
    type Output = ();
}

/// The reason why a call was answered with an error. In either case the deed was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) enum Problem {
    #[error("busy, try again")]
    Busy,
    #[error("refused: {0}")]
    Refused(String),
}

/// A command that is retried when it fails. Doing it twice must be the same as doing it once.
pub(crate) trait Deed: Command {
    const ODDS: Odds;

    fn new(ticket: Ticket) -> Self;

    fn ticket(&self) -> Ticket;

    /// Whether the deed was done before.
    fn is_done(account: &Account) -> bool;

    fn carry_out(&self, account: &mut Account) -> Self::Output;
}

/// How often in a hundred calls each failure happens.
pub(crate) struct Odds {
    /// Separates this deed's random numbers from those of the others.
    number: u64,
    busy: u32,
    /// The answer is lost. The deed may or may not have been done.
    lost: u32,
    refused: u32,
    refusal: &'static str,
}

impl Deed for Reserve {
    const ODDS: Odds = Odds { number: 1, busy: 15, lost: 2, refused: 4, refusal: "out of stock" };

    fn new(ticket: Ticket) -> Reserve {
        Reserve(ticket)
    }

    fn ticket(&self) -> Ticket {
        self.0
    }

    fn is_done(account: &Account) -> bool {
        account.reserved
    }

    fn carry_out(&self, account: &mut Account) {
        account.reserved = true;
    }
}

impl Deed for Charge {
    const ODDS: Odds = Odds { number: 2, busy: 20, lost: 3, refused: 3, refusal: "card declined" };

    fn new(ticket: Ticket) -> Charge {
        Charge(ticket)
    }

    fn ticket(&self) -> Ticket {
        self.0
    }

    fn is_done(account: &Account) -> bool {
        account.paid > 0
    }

    fn carry_out(&self, account: &mut Account) -> Payment {
        if account.paid == 0 {
            account.paid = self.0.cents;
            account.charges += 1;
        }
        Payment(account.paid)
    }
}

impl Deed for Ship {
    const ODDS: Odds = Odds { number: 3, busy: 30, lost: 2, refused: 2, refusal: "no such address" };

    fn new(ticket: Ticket) -> Ship {
        Ship(ticket)
    }

    fn ticket(&self) -> Ticket {
        self.0
    }

    fn is_done(account: &Account) -> bool {
        account.shipped
    }

    fn carry_out(&self, account: &mut Account) -> Parcel {
        account.shipped = true;
        account.reserved = false;
        Parcel(self.0.order as u64)
    }
}

impl Deed for Refund {
    const ODDS: Odds = Odds { number: 4, busy: 35, lost: 5, refused: 0, refusal: "" };

    fn new(ticket: Ticket) -> Refund {
        Refund(ticket)
    }

    fn ticket(&self) -> Ticket {
        self.0
    }

    fn is_done(account: &Account) -> bool {
        account.paid == 0
    }

    fn carry_out(&self, account: &mut Account) {
        account.paid = 0;
    }
}

impl Deed for Release {
    const ODDS: Odds = Odds { number: 5, busy: 30, lost: 0, refused: 0, refusal: "" };

    fn new(ticket: Ticket) -> Release {
        Release(ticket)
    }

    fn ticket(&self) -> Ticket {
        self.0
    }

    fn is_done(account: &Account) -> bool {
        !account.reserved
    }

    fn carry_out(&self, account: &mut Account) {
        account.reserved = false;
    }
}

/// The entries of the books for one order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Whether the goods are reserved.
    pub(crate) reserved: bool,
    /// Cents that were taken and not refunded.
    pub(crate) paid: u64,
    /// How often money was taken.
    pub(crate) charges: u32,
    /// Whether the goods were shipped.
    pub(crate) shipped: bool,
    /// The number of calls.
    pub(crate) calls: u32,
}

impl Account {
    /// The entries as a line of a file.
    pub(crate) fn line(&self, order: usize) -> String {
        let Account { reserved, paid, charges, shipped, calls } = self;
        format!("{order} {reserved} {paid} {charges} {shipped} {calls}\n")
    }
}

/// The fate of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    latency: Duration,
    turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Well,
    Busy,
    Refused,
    /// The answer is lost, before or after the deed was done.
    Lost {
        done: bool,
    },
}

impl Fate {
    /// Each decision has its own generator, so the order of the calls does not matter.
    fn of<D: Deed>(seed: u64, ticket: Ticket) -> Fate {
        let Odds { number, busy, lost, refused, .. } = D::ODDS;
        let mut luck = generator(seed, [number, ticket.order as u64, u64::from(ticket.attempt)]);
        let ticks = if luck.random_range(0..100) < SLOW { SLOW_TICKS } else { QUICK_TICKS };
        let latency = TICK * luck.random_range(ticks);
        let turn = match luck.random_range(0..100) {
            roll if roll < busy => Turn::Busy,
            roll if roll < busy + lost => Turn::Lost { done: luck.random() },
            roll if roll < busy + lost + refused => Turn::Refused,
            _ => Turn::Well,
        };
        Fate { latency, turn }
    }
}

/// A generator for one decision, named by three numbers.
pub(crate) fn generator(seed: u64, which: [u64; 3]) -> Xoshiro256PlusPlus {
    let seed = which.into_iter().fold(seed, |seed, number| Xoshiro256PlusPlus::seed_from_u64(seed ^ number).next_u64());
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// The warehouse, the bank and the carrier.
pub(crate) struct Gateway {
    seed: u64,
    timers: Timers,
    /// The threads of the carrier. In a simulation there are none.
    carriers: Option<Pool>,
    books: Mutex<Vec<Account>>,
    /// The books outlive the program if they are in a file.
    pub(crate) file: OnceLock<File>,
}

impl Gateway {
    pub(crate) fn new(seed: u64, orders: usize, clock: Clock) -> Result<Arc<Gateway>, BoxError> {
        let carriers = Pool::builder().max(2).name("carrier").build()?;
        Ok(Gateway::with_carriers(seed, orders, clock, Some(carriers)))
    }

    /// A gateway whose carrier answers by a timer, because a simulation does not decide about other threads.
    #[cfg(test)]
    pub(crate) fn without_carriers(seed: u64, orders: usize, clock: Clock) -> Arc<Gateway> {
        Gateway::with_carriers(seed, orders, clock, None)
    }

    fn with_carriers(seed: u64, orders: usize, clock: Clock, carriers: Option<Pool>) -> Arc<Gateway> {
        let timers = Timers::new(clock, "gateway-timers");
        Arc::new(Gateway {
            seed,
            timers,
            carriers,
            books: Mutex::new(vec![Account::default(); orders]),
            file: OnceLock::new(),
        })
    }

    /// Registers the handlers of the commands.
    pub(crate) fn serve(self: &Arc<Gateway>, runtime: RuntimeBuilder) -> RuntimeBuilder {
        runtime
            .handler(by_timer::<Reserve>(self))
            .handler(by_timer::<Charge>(self))
            .handler(by_thread::<Ship>(self))
            .handler(by_timer::<Refund>(self))
            .handler(at_once::<Release>(self))
    }

    /// Whether no carrier holds a call for which no timer is set yet.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_quiet = |stats: PoolStats| stats.waiting + stats.running == 0;
        self.carriers.as_ref().is_none_or(|carriers| is_quiet(carriers.stats()))
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Vec<Account>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a call after its duration.
    fn answer_later<D: Deed>(self: &Arc<Gateway>, deed: D, completion: Responder<D::Output>) -> Result<(), BoxError> {
        let gateway = self.clone();
        let latency = Fate::of::<D>(self.seed, deed.ticket()).latency;
        let answer = Box::new(move || gateway.answer(&deed, completion));
        self.timers.after(latency, answer).map(drop).map_err(|_| BoxError::from("the gateway is closed"))
    }

    fn answer<D: Deed>(&self, deed: &D, completion: Responder<D::Output>) {
        match self.decide(deed) {
            Some(outcome) => completion.complete(outcome),
            // There is no answer: the asker gets the error that the responder was dropped.
            None => drop(completion),
        }
    }

    fn decide<D: Deed>(&self, deed: &D) -> Option<Result<D::Output, Problem>> {
        let ticket = deed.ticket();
        let fate = Fate::of::<D>(self.seed, ticket);
        let mut books = self.books();
        let mut account = books[ticket.order].clone();
        account.calls += 1;
        let answer = match fate.turn {
            Turn::Busy => Some(Err(Problem::Busy)),
            Turn::Lost { done } => {
                if done {
                    deed.carry_out(&mut account);
                }
                None
            }
            // A deed that was done cannot be refused. So an answer was lost.
            Turn::Refused if !D::is_done(&account) => Some(Err(Problem::Refused(D::ODDS.refusal.into()))),
            Turn::Refused | Turn::Well => Some(Ok(deed.carry_out(&mut account))),
        };
        if let Some(mut file) = self.file.get() {
            // A short line in one write: a kill does not tear it. If it is not written, nothing was done.
            file.write_all(account.line(ticket.order).as_bytes()).ok()?;
        }
        books[ticket.order] = account;
        answer
    }
}

/// Answers after the call's duration, on the thread that runs the timers.
fn by_timer<D: Deed>(gateway: &Arc<Gateway>) -> impl Fn(D, Responder<D::Output>) -> Result<(), BoxError> + use<D> {
    let gateway = gateway.clone();
    move |deed, completion| gateway.answer_later(deed, completion)
}

/// Hands deed and responder to another thread, which sets a timer.
fn by_thread<D: Deed>(gateway: &Arc<Gateway>) -> impl Fn(D, Responder<D::Output>) -> Result<(), BoxError> + use<D> {
    let gateway = gateway.clone();
    move |deed, completion| {
        let Some(carriers) = &gateway.carriers else { return gateway.answer_later(deed, completion) };
        let carrier = gateway.clone();
        carriers.execute(move || {
            // If the gateway is closed, the responder is dropped, which answers with an error.
            let _ = carrier.answer_later(deed, completion);
        })?;
        Ok(())
    }
}

/// Answers before the handler returns.
fn at_once<D: Deed>(gateway: &Arc<Gateway>) -> impl Fn(D, Responder<D::Output>) -> Result<(), BoxError> + use<D> {
    let gateway = gateway.clone();
    move |deed, completion| {
        gateway.answer(&deed, completion);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats a call until the answer is not "busy".
    fn insist<D: Deed>(gateway: &Gateway, order: usize) -> Result<D::Output, Problem> {
        let tickets = (1..).map(|attempt| Ticket { order, cents: 500, attempt });
        let mut answers = tickets.filter_map(|ticket| gateway.decide(&D::new(ticket)));
        answers.find(|answer| !matches!(answer, Err(Problem::Busy))).expect("nobody is busy for ever")
    }

    #[test]
    fn however_often_it_is_done_it_is_done_once() {
        let orders = 1_000;
        let gateway = Gateway::new(3, orders, Clock::system()).unwrap();
        let mut charged = 0;
        for order in 0..orders {
            let Ok(payment) = insist::<Charge>(&gateway, order) else {
                assert_eq!(gateway.books()[order].charges, 0, "what was done cannot be refused");
                continue;
            };
            charged += 1;
            assert_eq!(insist::<Charge>(&gateway, order), Ok(payment));
            let account = gateway.books()[order].clone();
            assert_eq!((account.charges, account.paid), (1, 500));
            assert_eq!(insist::<Refund>(&gateway, order), Ok(()));
            assert_eq!(insist::<Refund>(&gateway, order), Ok(()));
            assert_eq!(gateway.books()[order].paid, 0);
        }
        assert!((900..orders).contains(&charged));
    }

    #[test]
    fn a_call_goes_as_the_seed_the_deed_the_order_and_the_attempt_say() {
        let ticket = |order, attempt| Ticket { order, cents: 500, attempt };
        let fates = |seed, first: usize, attempt| {
            let many = (first..first + 50).map(|order| Fate::of::<Ship>(seed, ticket(order, attempt)));
            many.collect::<Vec<_>>()
        };
        assert_eq!(fates(1, 0, 1), fates(1, 0, 1));
        assert_ne!(fates(1, 0, 1), fates(2, 0, 1));
        assert_ne!(fates(1, 0, 1), fates(1, 50, 1));
        assert_ne!(fates(1, 0, 1), fates(1, 0, 2));
        let reserve = (0..50).map(|order| Fate::of::<Reserve>(1, ticket(order, 1))).collect::<Vec<_>>();
        assert_ne!(fates(1, 0, 1), reserve);
    }
}
