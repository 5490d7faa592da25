//! Messages that are given up while they are offered to another node.

use serde::{Deserialize, Serialize};

use super::net::Net;
use super::room_tests::LONG;
use crate::cluster::peer::Bound;
use crate::primitives::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::runtime::SendFuture;
use crate::sched::non_local::WaitingOutside as _;
use crate::sched::waiting_send::{LimitedSend as _, Told, WaitingSend};

/// Gives a send up while it is encoded.
#[derive(Debug, PartialEq, Deserialize)]
struct GivesUp(u64);

static GIVEN_UP: Mutex<Option<Arc<WaitingSend<GivesUp>>>> = Mutex::new(None);
static DOWN: Mutex<Option<Arc<WaitingSend<GivesUp>>>> = Mutex::new(None);
static TOLD_EARLY: Mutex<Option<(Option<Told>, Option<GivesUp>)>> = Mutex::new(None);

impl Serialize for GivesUp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        lock(&GIVEN_UP).take().into_iter().for_each(|send| send.give_up(Told::TimedOut));
        if let Some(send) = lock(&DOWN).take() {
            send.node_down();
            // A panic would be contained here.
            *lock(&TOLD_EARLY) = Some((send.told().get(), send.take_back()));
        }
        to.serialize_newtype_struct("GivesUp", &self.0)
    }
}

crate::remote!(GivesUp, "test::GivesUp", 1);

#[test]
fn a_limit_that_is_over_while_its_message_is_offered_is_not_forgotten() {
    let net = Net::with(2, |wire| wire.message::<GivesUp>());
    let (far, node) = (net.pid(&net.plain(1), 0), &net.sides[0].1);
    let send = || Arc::new(WaitingSend::new(far, GivesUp(1), None));
    for (is_full, told, back) in [(true, Told::TimedOut, Some(GivesUp(1))), (false, Told::Sent, None)] {
        net.fill(0, 1, is_full);
        let send = send();
        *lock(&GIVEN_UP) = Some(send.clone());
        assert!(!send.offer(&**node), "it waits no longer");
        assert_eq!((send.told().get(), send.take_back()), (Some(told), back));
    }
    net.fill(0, 1, true);
    let send = send();
    assert!(send.offer(&**node), "there is no room");
    // The down comes while it is offered.
    *lock(&DOWN) = Some(send.clone());
    assert!(!send.offer(&**node));
    assert_eq!(*lock(&TOLD_EARLY), Some((None, None)), "it is not said while it is offered");
    assert_eq!((send.told().get(), send.take_back()), (Some(Told::NodeDown), Some(GivesUp(1))));
}

/// Drops its own future while it is encoded.
#[derive(Deserialize)]
struct DropsFuture;

static FUTURE: Mutex<Option<SendFuture<DropsFuture>>> = Mutex::new(None);

impl Serialize for DropsFuture {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let future = lock(&FUTURE).take();
        drop(future);
        to.serialize_unit_struct("DropsFuture")
    }
}

crate::remote!(DropsFuture, "test::DropsFuture", 1);

#[test]
fn a_message_that_is_given_up_while_it_is_offered_holds_up_no_other() {
    let net = Net::with(2, |wire| wire.message::<DropsFuture>());
    let reader = net.plain(1);
    net.fill(0, 1, true);
    let far = net.pid(&reader, 0).typed::<DropsFuture>();
    let future = net.sides[0].0.send_timeout(far, DropsFuture, LONG);
    *lock(&FUTURE) = Some(future);
    let second = net.send_outside(net.far(&reader, 0), 2, LONG);
    // Both are offered. By then, others have taken the room.
    net.sides[0].1.has_room(&net.ends[&(0, 1)].connection, Bound::Small);
    assert!(lock(&FUTURE).is_none());
    assert_eq!(net.waiting(0), (1, 0), "the first one is forgotten");
    net.fill(0, 1, false);
    second.wait().unwrap();
}

/// Counts how often it is encoded.
#[derive(Deserialize)]
struct Counted;

static ENCODED: AtomicU64 = AtomicU64::new(0);

impl Serialize for Counted {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        to.serialize_unit_struct("Counted")
    }
}

crate::remote!(Counted, "test::Counted", 1);

#[test]
fn no_message_is_encoded_in_vain_when_those_before_it_give_up() {
    let net = Net::with(2, |wire| wire.message::<Counted>());
    let far = net.pid(&net.plain(1), 0).typed::<Counted>();
    net.fill(0, 1, true);
    let send = || net.sides[0].0.send_timeout(far, Counted, LONG);
    let (first, second, third, last) = (send(), send(), send(), send());
    let before = ENCODED.load(Ordering::Relaxed);
    // One limit is over, and then the others.
    drop(first);
    drop(second);
    drop(third);
    assert_eq!((ENCODED.load(Ordering::Relaxed), net.waiting(0)), (before, (1, 0)));
    net.fill(0, 1, false);
    last.wait().unwrap();
}
