//! Tests that drive the workflow as a function: events in, commands out, and a manual clock.

use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use lexopt::Parser;
use procession::exit::Failure;
use procession::testing::{Driver, Outstanding, Status};
use procession::{BoxError, CommandError, Exit};

use crate::Options;
use crate::gateway::{Account, Charge, Deed, Parcel, Payment, Problem, Refund, Release, Reserve, Ship, Ticket};
use crate::order::{CALL_LIMIT, DEADLINE, FIRST_PAUSE, Open, Order, Outcome, Receipt, TRIES, UNDO_TRIES};
use crate::report::Report;

const CENTS: u64 = 500;
const PAID: Payment = Payment(CENTS);

/// An order, and a gateway that answers as the test says.
struct Bench {
    order: Driver<Order>,
}

impl Bench {
    fn new() -> Bench {
        let mut order = Driver::new(Order::new(7, CENTS));
        order.run();
        Bench { order }
    }

    /// An order that has been reserved, and whose charge is pending.
    fn charging() -> Bench {
        let mut bench = Bench::new();
        bench.hears::<Reserve>(1, Ok(()));
        bench
    }

    /// An order that has been charged, and whose shipment is pending.
    fn shipping() -> Bench {
        let mut bench = Bench::charging();
        bench.hears::<Charge>(1, Ok(PAID));
        bench
    }

    /// An order that the carrier refused, and whose refund is pending.
    fn refunding() -> Bench {
        let mut bench = Bench::shipping();
        bench.hears::<Ship>(1, refused());
        bench
    }

    /// Answers the one pending call, which must be this attempt of this deed.
    #[track_caller]
    fn hears<D: Deed>(&mut self, attempt: u32, answer: Result<D::Output, CommandError>) {
        assert_eq!(self.out(), [type_name::<D>()]);
        let (tag, deed) = self.order.command::<D>().expect("it is out");
        assert_eq!(deed.ticket(), Ticket { order: 7, cents: CENTS, attempt });
        self.order.answer(tag, answer);
        self.order.run();
    }

    /// The pending calls.
    fn out(&self) -> Vec<&'static str> {
        let outstanding = self.order.outstanding().into_iter();
        outstanding
            .filter_map(|one| match one {
                Outstanding::Command { name, .. } => Some(name),
                _ => None,
            })
            .collect()
    }

    #[track_caller]
    fn pauses_for(&mut self, pause: Duration) {
        self.passes(pause - Duration::from_millis(1));
        assert!(self.out().is_empty(), "{:?} came too early", self.out());
        assert_eq!(self.order.status(), Status::Blocked);
        self.passes(Duration::from_millis(1));
        assert_eq!(self.out().len(), 1, "nothing is tried again after {pause:?}");
    }

    fn passes(&mut self, time: Duration) {
        self.order.advance(time);
        self.order.run();
    }

    fn cancel(&mut self) {
        self.order.cancel("no longer wanted");
        self.order.run();
    }

    #[track_caller]
    fn receipt(&self) -> Arc<Receipt> {
        assert!(self.out().is_empty(), "it ended without waiting for {:?}", self.out());
        match self.order.exit() {
            Some(Exit::Done(receipt)) => receipt,
            other => panic!("not done: {other:?}"),
        }
    }

    #[track_caller]
    fn ended_as(&self, outcome: Outcome) {
        let receipt = self.receipt();
        assert_eq!((receipt.outcome, &receipt.open[..]), (outcome, &[][..]));
        assert_eq!(receipt.paid, if outcome == Outcome::Shipped { CENTS } else { 0 });
    }
}

fn failed<T>(problem: Problem) -> Result<T, CommandError> {
    Err(CommandError::Failed(Failure::from(BoxError::from(problem))))
}

fn busy<T>() -> Result<T, CommandError> {
    failed(Problem::Busy)
}

fn refused<T>() -> Result<T, CommandError> {
    failed(Problem::Refused("no".into()))
}

fn lost<T>() -> Result<T, CommandError> {
    Err(CommandError::Dropped)
}

fn pause(attempt: u32) -> Duration {
    FIRST_PAUSE * 2_u32.pow(attempt - 1)
}

#[test]
fn when_all_goes_well_it_is_reserved_charged_and_shipped() {
    let mut bench = Bench::new();
    bench.passes(Duration::from_secs(1));
    bench.hears::<Reserve>(1, Ok(()));
    bench.hears::<Charge>(1, Ok(PAID));
    bench.passes(Duration::from_secs(2));
    bench.hears::<Ship>(1, Ok(Parcel(7)));
    bench.ended_as(Outcome::Shipped);
    assert_eq!(bench.receipt().took, Duration::from_secs(3));
}

#[test]
fn where_nothing_was_reserved_nothing_is_undone() {
    let mut bench = Bench::new();
    bench.hears::<Reserve>(1, refused());
    bench.ended_as(Outcome::Refused);
}

#[test]
fn a_failed_charge_is_tried_again_after_one_second_and_after_two() {
    let mut bench = Bench::charging();
    bench.hears::<Charge>(1, busy());
    bench.pauses_for(Duration::from_secs(1));
    bench.hears::<Charge>(2, busy());
    bench.pauses_for(Duration::from_secs(2));
    bench.hears::<Charge>(3, Ok(PAID));
    bench.hears::<Ship>(1, Ok(Parcel(7)));
    bench.ended_as(Outcome::Shipped);
}

#[test]
fn what_fails_too_often_is_given_up_and_what_came_before_is_undone() {
    let mut bench = Bench::charging();
    for attempt in 1..TRIES {
        bench.hears::<Charge>(attempt, busy());
        bench.pauses_for(pause(attempt));
    }
    bench.hears::<Charge>(TRIES, busy());
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::GivenUp);
}

#[test]
fn an_order_that_cannot_be_shipped_is_refunded_and_then_released() {
    let mut bench = Bench::shipping();
    bench.hears::<Ship>(1, refused());
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Refused);
}

#[test]
fn the_deadline_breaks_off_a_pause() {
    let mut bench = Bench::charging();
    bench.passes(DEADLINE - Duration::from_millis(500));
    bench.hears::<Charge>(1, busy());
    bench.passes(Duration::from_millis(499));
    assert!(bench.out().is_empty());
    bench.passes(Duration::from_millis(1));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::TooLate);
    assert_eq!(bench.receipt().took, DEADLINE);
}

#[test]
fn an_answer_that_comes_after_the_deadline_still_counts() {
    // The charge is undone.
    let mut bench = Bench::charging();
    bench.passes(DEADLINE);
    assert_eq!(bench.order.status(), Status::Blocked, "the charge may have been carried out");
    bench.passes(Duration::from_secs(5));
    bench.hears::<Charge>(1, Ok(PAID));
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::TooLate);

    // A refused call is not tried again.
    let mut bench = Bench::charging();
    bench.passes(DEADLINE);
    bench.hears::<Charge>(1, busy());
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::TooLate);

    // A shipped order stays shipped.
    let mut bench = Bench::shipping();
    bench.passes(DEADLINE);
    bench.hears::<Ship>(1, Ok(Parcel(7)));
    bench.ended_as(Outcome::Shipped);
}

#[test]
fn a_call_without_an_answer_is_taken_for_lost() {
    let mut bench = Bench::charging();
    bench.passes(CALL_LIMIT);
    // The deadline was over before, and the charge may have been carried out.
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::TooLate);
    assert_eq!(bench.receipt().took, CALL_LIMIT);
}

#[test]
fn the_deadline_does_not_disturb_what_is_being_undone() {
    let mut bench = Bench::refunding();
    bench.passes(DEADLINE);
    bench.hears::<Refund>(1, busy());
    bench.pauses_for(pause(1));
    bench.hears::<Refund>(2, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Refused);
}

#[test]
fn undoing_is_tried_again_until_it_succeeds() {
    let mut bench = Bench::refunding();
    bench.hears::<Refund>(1, busy());
    bench.pauses_for(pause(1));
    bench.hears::<Refund>(2, lost());
    bench.pauses_for(pause(2));
    bench.hears::<Refund>(3, Ok(()));
    bench.hears::<Release>(1, busy());
    bench.pauses_for(pause(1));
    bench.hears::<Release>(2, Ok(()));
    bench.ended_as(Outcome::Refused);
}

#[test]
fn a_failed_undo_needs_attention_and_the_others_go_on() {
    let mut bench = Bench::refunding();
    for attempt in 1..UNDO_TRIES {
        bench.hears::<Refund>(attempt, busy());
        bench.pauses_for(pause(attempt));
    }
    bench.hears::<Refund>(UNDO_TRIES, busy());
    bench.hears::<Release>(1, Ok(()));
    let receipt = bench.receipt();
    assert_eq!((receipt.outcome, &receipt.open[..]), (Outcome::NeedsAttention, &[Open::Refund][..]));
    assert_eq!(receipt.paid, CENTS);
}

#[test]
fn what_may_have_been_done_is_undone() {
    let mut bench = Bench::new();
    bench.hears::<Reserve>(1, lost());
    bench.cancel();
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);

    let mut bench = Bench::charging();
    bench.hears::<Charge>(1, lost());
    bench.pauses_for(pause(1));
    bench.hears::<Charge>(2, busy());
    bench.cancel();
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);
}

#[test]
fn what_may_have_been_shipped_is_left_as_it_is() {
    let mut bench = Bench::shipping();
    bench.hears::<Ship>(1, lost());
    bench.cancel();
    let receipt = bench.receipt();
    assert_eq!((receipt.outcome, &receipt.open[..]), (Outcome::NeedsAttention, &[Open::Shipping][..]));
}

#[test]
fn cancelled_before_it_has_begun_it_does_nothing() {
    let mut order = Driver::new(Order::new(7, CENTS));
    order.cancel("no longer wanted");
    assert_eq!(order.run(), Status::Ended);
    Bench { order }.ended_as(Outcome::Cancelled);
}

#[test]
fn a_cancel_during_a_call_waits_for_the_answer_and_then_undoes() {
    let mut bench = Bench::new();
    bench.cancel();
    bench.hears::<Reserve>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);

    let mut bench = Bench::new();
    bench.cancel();
    bench.hears::<Reserve>(1, busy());
    bench.ended_as(Outcome::Cancelled);

    let mut bench = Bench::charging();
    bench.cancel();
    bench.hears::<Charge>(1, Ok(PAID));
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);

    let mut bench = Bench::shipping();
    bench.cancel();
    bench.hears::<Ship>(1, Ok(Parcel(7)));
    bench.ended_as(Outcome::Shipped);

    let mut bench = Bench::shipping();
    bench.cancel();
    bench.hears::<Ship>(1, refused());
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);
}

#[test]
fn cancelled_in_a_pause_it_undoes_at_once_what_was_done() {
    let mut bench = Bench::new();
    bench.hears::<Reserve>(1, busy());
    bench.cancel();
    bench.ended_as(Outcome::Cancelled);

    let mut bench = Bench::charging();
    bench.hears::<Charge>(1, busy());
    bench.cancel();
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);

    let mut bench = Bench::shipping();
    bench.hears::<Ship>(1, busy());
    bench.cancel();
    bench.hears::<Refund>(1, Ok(()));
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Cancelled);
}

#[test]
fn a_cancel_during_the_undoing_keeps_the_first_reason() {
    let mut bench = Bench::refunding();
    bench.cancel();
    bench.hears::<Refund>(1, busy());
    bench.cancel();
    bench.pauses_for(pause(1));
    bench.hears::<Refund>(2, Ok(()));
    bench.cancel();
    bench.hears::<Release>(1, Ok(()));
    bench.ended_as(Outcome::Refused);
}

#[test]
fn the_report_sees_what_the_books_say_otherwise() {
    let receipt = |outcome, paid, open: &[Open]| Receipt { outcome, paid, took: Duration::ZERO, open: open.to_vec() };
    let is_right = |receipt: &Receipt, account: &Account| {
        Report::new([Exit::Done(Arc::new(receipt.clone()))].into_iter(), std::slice::from_ref(account)).is_right()
    };
    let nothing = Account::default();
    let reserved = Account { reserved: true, ..nothing.clone() };
    let charged = Account { paid: CENTS, charges: 1, ..nothing.clone() };
    let shipped = Account { shipped: true, ..charged.clone() };

    let good = receipt(Outcome::Shipped, CENTS, &[]);
    assert!(is_right(&good, &shipped));
    for account in
        [&nothing, &charged, &Account { paid: 0, ..shipped.clone() }, &Account { charges: 2, ..shipped.clone() }]
    {
        assert!(!is_right(&good, account), "shipped, and {account:?}");
    }
    for outcome in [Outcome::Refused, Outcome::GivenUp, Outcome::TooLate, Outcome::Cancelled] {
        let receipt = receipt(outcome, 0, &[]);
        assert!(is_right(&receipt, &nothing));
        for account in [&reserved, &charged, &shipped] {
            assert!(!is_right(&receipt, account), "{outcome}, and {account:?}");
        }
    }
    let no_refund = receipt(Outcome::NeedsAttention, CENTS, &[Open::Refund]);
    assert!(is_right(&no_refund, &charged) && is_right(&no_refund, &nothing));
    assert!(!is_right(&no_refund, &reserved) && !is_right(&no_refund, &shipped));
    let in_doubt = receipt(Outcome::NeedsAttention, CENTS, &[Open::Shipping]);
    assert!(is_right(&in_doubt, &shipped) && is_right(&in_doubt, &charged));

    let missing = Report::new(std::iter::empty(), &[nothing]);
    assert!(!missing.is_right(), "an order that is in no row");
}

#[test]
fn options_are_numbers_in_range() {
    let parse = |line: &str| Options::parse(&mut Parser::from_args(line.split_whitespace()));
    assert_eq!(parse("").unwrap(), Some(Options { orders: 10_000, seed: 1, workers: None, store: None }));
    assert_eq!(parse("--seed 5 --help").unwrap(), None);
    let all = "--orders 5 --seed 0 --workers 2";
    assert_eq!(parse(all).unwrap(), Some(Options { orders: 5, seed: 0, workers: Some(2), store: None }));
    for bad in
        ["--orders", "--orders 0", "--orders -1", "--workers 0", "--workers 1025", "--seed x", "--color red", "5"]
    {
        assert!(parse(bad).is_err(), "{bad:?} was taken");
    }
}
