//! Operators skip messages of parked processes.

use procession::clock::ManualClock;
use procession::durable::{NotRepaired, Query, Request, Traced, Which, WhyDead};

use crate::operating::{Entry, Shop, heal, is_refused, poison};

#[test]
fn a_skipped_message_is_a_dead_letter_that_can_be_sent_again() {
    let (disk, shop) = Shop::new();
    let (ledger, poison) = (shop.begin("a"), poison());
    shop.send(ledger, [Entry::Add(1), Entry::Poison(poison), Entry::Add(2)]);
    shop.give_up(1);
    shop.store.skip(ledger.pid()).unwrap();
    assert!(shop.traced(ledger).contains(&Traced::Skipped));
    assert_eq!(shop.read(ledger), [1, 2]);
    shop.end();

    let shop = Shop::open(&disk, &ManualClock::new());
    let dead = shop.store.dead_letters(None, 10).unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].to, dead[0].why), (ledger.pid(), WhyDead::Skipped));
    assert_eq!(dead[0].message, serde_json::json!({ "Poison": poison }));
    assert_eq!(shop.store.dead_letters(Some(&dead[0]), 10).unwrap(), []);
    heal(poison);
    shop.store.resend(&dead[0]).unwrap();
    assert!(shop.traced(ledger).contains(&Traced::Resent));
    assert_eq!(shop.read(ledger), [1, 2, poison]);
    assert!(is_refused(shop.store.resend(&dead[0]), &NotRepaired::NoDeadLetter));
    assert_eq!(shop.store.dead_letters(None, 10).unwrap(), []);
    shop.end();
}

/// The request is stored, and comes with each attempt.
#[test]
fn a_parked_process_that_was_asked_to_stop_can_be_skipped() {
    let (disk, shop) = Shop::new();
    let ledger = shop.begin("a");
    shop.send(ledger, [Entry::Poison(poison()), Entry::Add(1)]);
    shop.give_up(1);
    assert_eq!(shop.store.operate(&Request::Cancel(Which::All(Query::all().parked()))).unwrap(), 1);
    shop.end();

    let shop = Shop::open(&disk, &ManualClock::new());
    shop.store.retry(ledger.pid()).unwrap();
    shop.give_up(1);
    shop.store.skip(ledger.pid()).unwrap();
    assert_eq!(shop.read(ledger), [1]);
    assert!(shop.traced(ledger).contains(&Traced::Cancelled));
    shop.end();
}
