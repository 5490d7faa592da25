//! Bugs of questions: a cycle that the runtime cannot see, a question that is asked again, two questions as one change.

use std::collections::BTreeMap;
use std::time::Duration;

use procession::simulation::{Faults, Simulation, ensure};
use procession::{Address, CommandError, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

use super::{PlantedBug, Version, start};
use crate::programs::SECOND;

/// Statement 34. A shop asks the front desk for a price and waits. The desk hands the question on to pricing. Pricing
/// may ask the shop for its stock at that moment, and wait for it.
pub(super) const ASK_CYCLE: PlantedBug =
    PlantedBug { system: ask_cycle, breaks: "no question runs into its limit", seeds: 500 };

#[test]
fn an_ask_cycle_over_delegated_replies_is_found() {
    ASK_CYCLE.is_found_in_each_batch();
}

#[test]
fn no_ask_cycle_is_found_if_the_shop_listens() {
    ASK_CYCLE.is_not_found_when_corrected();
}

#[derive(Debug)]
enum ShopMessage {
    Stock(Reply<u64>),
}

#[derive(Debug)]
struct PriceQuestion(Reply<u64>);

/// Asks for prices, one after the other.
struct Shop {
    desk: Address<PriceQuestion>,
    version: Version,
    prices: Vec<u64>,
    asked: Option<Tag<u64>>,
    timed_out: u32,
}

impl Process for Shop {
    type Message = ShopMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ShopMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(ShopMessage::Stock(reply)) => out.reply(reply, 7),
                Event::Completed(done) => {
                    match self.asked.and_then(|tag| done.take(tag)) {
                        Some(Ok(price)) => self.prices.push(price),
                        Some(Err(_)) => self.timed_out += 1,
                        None => continue,
                    }
                    self.asked = None;
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.asked.is_none() && self.prices.len() < 3 {
            self.asked = Some(out.ask(self.desk, PriceQuestion, 5 * SECOND));
        }
        let waits = self.asked.is_some() && !self.version.is_corrected();
        Ok(if waits { Step::Wait } else { Step::Idle })
    }
}

/// Hands each question on to pricing.
struct FrontDesk {
    pricing: Address<PricingMessage>,
}

impl Process for FrontDesk {
    type Message = PriceQuestion;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PriceQuestion>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PriceQuestion(reply)) => out.send(self.pricing, PricingMessage::Price(reply.delegate())),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[derive(Debug)]
enum PricingMessage {
    Price(Reply<u64>),
    Open(Address<ShopMessage>),
}

/// Answers with a price, which follows from the stock of the shop. It asks for the stock now and then.
#[derive(Default)]
struct Pricing {
    shop: Option<Address<ShopMessage>>,
    stock: u64,
    refreshes: u32,
    asked: Option<Tag<u64>>,
    timer: Option<Tag<procession::command::TimerFired>>,
    timed_out: u32,
}

impl Process for Pricing {
    type Message = PricingMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PricingMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PricingMessage::Price(reply)) => out.reply(reply, 100 - self.stock),
                Event::Message(PricingMessage::Open(shop)) => {
                    self.shop = Some(shop);
                    self.timer = Some(out.after(Duration::from_micros(200)));
                }
                Event::Completed(done) if done.is(self.timer) => self.timer = None,
                Event::Completed(done) => {
                    match self.asked.and_then(|tag| done.take(tag)) {
                        Some(Ok(stock)) => self.stock = stock,
                        Some(Err(_)) => self.timed_out += 1,
                        None => continue,
                    }
                    self.asked = None;
                    self.refreshes += 1;
                    self.timer = Some(out.after(Duration::from_micros(200)));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        let Some(shop) = self.shop.filter(|_| self.timer.is_none() && self.refreshes < 2) else {
            return Ok(Step::Idle);
        };
        if self.asked.is_none() {
            self.asked = Some(out.ask(shop, ShopMessage::Stock, 5 * SECOND));
        }
        Ok(Step::Wait)
    }
}

fn ask_cycle(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let pricing = runtime.spawn(Pricing::default())?.address();
        let desk = runtime.spawn(FrontDesk { pricing })?.address();
        let shop = Shop { desk, version, prices: Vec::new(), asked: None, timed_out: 0 };
        let shop = runtime.spawn(shop)?;
        runtime.send(pricing, PricingMessage::Open(shop.address()))?;
        world.invariant("no question runs into its limit", |state| {
            let shops: u32 = state.processes::<Shop>().map(|(_, shop)| shop.timed_out).sum();
            let pricings: u32 = state.processes::<Pricing>().map(|(_, pricing)| pricing.timed_out).sum();
            ensure(shops + pricings == 0, || format!("{shops} of the shop, {pricings} of pricing"))
        });
        world.run()
    })
    .show::<ShopMessage>()
    .show::<PriceQuestion>()
    .show::<PricingMessage>()
    .show::<String>()
}

/// Statement 36. An order asks the bank for a charge, with a limit. It asks again after the limit, and the bank carries
/// both out. The corrected bank knows which orders it has charged.
pub(super) const DOUBLE_CHARGE: PlantedBug =
    PlantedBug { system: double_charge, breaks: "each order is charged once", seeds: 500 };

#[test]
fn a_double_charge_is_found() {
    DOUBLE_CHARGE.is_found_in_each_batch();
}

#[test]
fn no_double_charge_is_found_if_the_bank_knows_orders() {
    DOUBLE_CHARGE.is_not_found_when_corrected();
}

#[derive(Debug)]
struct Charge {
    order: u64,
    amount: u64,
    reply: Reply<()>,
}

struct Bank {
    version: Version,
    charges: BTreeMap<u64, Vec<u64>>,
}

impl Process for Bank {
    type Message = Charge;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Charge>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Charge { order, amount, reply }) => {
                    let charges = self.charges.entry(order).or_default();
                    if charges.is_empty() || !self.version.is_corrected() {
                        charges.push(amount);
                    }
                    out.reply(reply, ());
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct Order {
    id: u64,
    bank: Address<Charge>,
    asked: Option<Tag<()>>,
    tries: u32,
}

impl Process for Order {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) => match self.asked.and_then(|tag| done.take(tag)) {
                    Some(Ok(())) => return Ok(Step::Done(())),
                    Some(Err(CommandError::TimedOut)) if self.tries < 5 => self.asked = None,
                    Some(Err(error)) => return Err(error.into()),
                    None => {}
                },
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.asked.is_none() {
            self.tries += 1;
            let order = self.id;
            self.asked = Some(out.ask(self.bank, |reply| Charge { order, amount: 500, reply }, SECOND));
        }
        Ok(Step::Wait)
    }
}

fn double_charge(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let bank = runtime.spawn(Bank { version, charges: BTreeMap::new() })?.address();
        for id in 0..3 {
            runtime.spawn(Order { id, bank, asked: None, tries: 0 })?;
        }
        world.invariant("each order is charged once", |state| {
            let mut banks = state.processes::<Bank>().flat_map(|(_, bank)| &bank.charges);
            let twice = banks.find(|(_, charges)| charges.len() > 1);
            ensure(twice.is_none(), || format!("{twice:?}"))
        });
        world.run()
    })
    .show::<Charge>()
    .show::<String>()
    .faults(Faults::none().stall::<Bank>(0.1, 3 * SECOND).at_most(2))
}

/// Statement 38. Two tellers each read the balance and write it back, by two questions. The corrected tellers send the
/// difference.
pub(super) const LOST_UPDATE: PlantedBug =
    PlantedBug { system: lost_update, breaks: "the balance is what was paid in", seeds: 500 };

#[test]
fn a_lost_update_is_found() {
    LOST_UPDATE.is_found_in_each_batch();
}

#[test]
fn no_lost_update_is_found_if_differences_are_sent() {
    LOST_UPDATE.is_not_found_when_corrected();
}

#[derive(Debug)]
enum AccountMessage {
    Balance(Reply<u64>),
    SetBalance(u64, Reply<()>),
    Deposit(u64, Reply<()>),
}

#[derive(Default)]
struct Account {
    balance: u64,
}

impl Process for Account {
    type Message = AccountMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, AccountMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(AccountMessage::Balance(reply)) => out.reply(reply, self.balance),
                Event::Message(AccountMessage::SetBalance(balance, reply)) => {
                    self.balance = balance;
                    out.reply(reply, ());
                }
                Event::Message(AccountMessage::Deposit(amount, reply)) => {
                    self.balance += amount;
                    out.reply(reply, ());
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

enum TellerState {
    Begins,
    Reads(Tag<u64>),
    Writes(Tag<()>),
}

/// Counts the money for some steps, and pays 10 in.
struct Teller {
    account: Address<AccountMessage>,
    version: Version,
    /// The steps until the money is counted.
    counts: u32,
    state: TellerState,
}

impl Process for Teller {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let done = events.find_map(|event| match event {
            Event::Completed(done) => Some(done),
            _ => None,
        });
        if self.counts > 0 {
            self.counts -= 1;
            return Ok(Step::Continue);
        }
        self.state = match (&self.state, done) {
            (TellerState::Begins, _) if self.version.is_corrected() => {
                TellerState::Writes(out.ask(self.account, |reply| AccountMessage::Deposit(10, reply), SECOND))
            }
            (TellerState::Begins, _) => TellerState::Reads(out.ask(self.account, AccountMessage::Balance, SECOND)),
            (TellerState::Reads(tag), Some(done)) => {
                let Some(balance) = done.take(*tag) else { return Ok(Step::Wait) };
                let balance = balance? + 10;
                TellerState::Writes(out.ask(self.account, |reply| AccountMessage::SetBalance(balance, reply), SECOND))
            }
            (TellerState::Writes(tag), Some(done)) => {
                done.take(*tag).transpose()?;
                return Ok(Step::Done(()));
            }
            (_, None) => return Ok(Step::Wait),
        };
        Ok(Step::Wait)
    }
}

fn lost_update(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let account = runtime.spawn(Account::default())?.address();
        let teller = |counts| runtime.spawn(Teller { account, version, counts, state: TellerState::Begins });
        // If all have their turns in order, the second one begins when the first one is done.
        let tellers = [teller(0)?, teller(6)?];
        world.invariant("the balance is what was paid in", move |state| {
            let paid_in = 10 * tellers.iter().filter(|teller| teller.is_finished()).count() as u64;
            let balance: u64 = state.processes::<Account>().map(|(_, account)| account.balance).sum();
            ensure(balance >= paid_in, || format!("{balance} of {paid_in}"))
        });
        world.run()
    })
    .show::<AccountMessage>()
    .show::<String>()
}
