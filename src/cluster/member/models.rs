//! Models of the threads of a peer. Each runs the threads that ship, with a machine and a driver.

use std::time::Duration;

use super::{Bells, Member};
use crate::clock::ManualClock;
use crate::cluster::driver::{Inward, Outward, Parts, PeerDriver};
use crate::cluster::events::NodeWatch;
use crate::cluster::link::{Link, LinkError, Upward};
use crate::cluster::peer::{Identity, PROTOCOL, Peer, spoken};
use crate::outcome::BoxError;
use crate::pool::Parker;
use crate::primitives::{Arc, AtomicUsize, Ordering, Weak};

/// Counts the frames that it is given.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Link for Counts {
    fn open(&self, _: Arc<dyn Upward>) -> Result<(), LinkError> {
        Err(BoxError::from("it is not opened").into())
    }

    fn send(&self, _: &str, _: &[u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn close(&self) {}
}

fn identity(name: &str, incarnation: u64) -> Identity {
    Identity {
        cluster: "test".into(),
        name: name.into(),
        incarnation,
        protocols: spoken(PROTOCOL),
        voters: Vec::new(),
        detection_time: Duration::from_secs(1),
    }
}

fn member() -> (Arc<Member>, Arc<Counts>) {
    let here = identity("here", 7);
    let clock = ManualClock::new().clock();
    let (watch, bells) = (Arc::new(NodeWatch::new(clock.clone())), Bells::of_threads(Parker::new()));
    let (nonce, wake) = (Box::new(|| 1), bells.wakes());
    let start = clock.now();
    let parts = Parts { here, name: "there".into(), watch, clock: clock.clone(), start, nonce, wake };
    let driver = PeerDriver::new(Weak::new(), parts);
    let counts = Arc::new(Counts::default());
    (Member::new("there".into(), (driver, bells), counts.clone(), clock), counts)
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(check);
}

/// Fails if `over` is read behind the turn, if the end rings no bell, or if a frame does not.
#[test]
fn a_frame_that_came_before_the_end_is_taken() {
    model(|| {
        let (member, counts) = member();
        member.seen(1).unwrap();
        member.frame(vec![0; 40]);
        member.gone(1);
        let left = member.left();
        left.iter().for_each(|left| left.wait());
        assert!(!member.driver.has_arrivals(), "all was taken");
        assert!(counts.0.load(Ordering::Relaxed) <= 1, "at most one hello");
    });
}

/// Fails if a thread does not say that it exits, if it exits though the peer is back, or if it exits at the second end
/// without another turn.
#[test]
fn a_peer_that_comes_back_has_one_decoder_thread_at_a_time() {
    model(|| {
        let (member, _) = member();
        member.seen(1).unwrap();
        member.frame(vec![0; 40]);
        member.gone(1);
        member.seen(2).unwrap();
        member.frame(vec![0; 40]);
        member.gone(2);
        member.left().iter().for_each(|left| left.wait());
        assert!(!member.driver.has_arrivals());
    });
}

/// Fails if the out thread reads `over` behind its turn.
#[test]
fn a_node_that_leaves_says_so_before_its_threads_exit() {
    model(|| {
        let (member, counts) = member();
        pair(&member.driver);
        member.seen(1).unwrap();
        member.frame(vec![0; 40]);
        member.leave().iter().for_each(|left| left.wait());
        assert_eq!(counts.0.load(Ordering::Relaxed), 1, "the frame that says it");
    });
}

/// Connects a driver with a peer, before there are threads.
fn pair(driver: &PeerDriver) {
    let mut peer = Peer::<u64>::new(Duration::ZERO, identity("there", 1), 1);
    let (mut frame, mut effects) = (Vec::new(), Vec::new());
    driver.seen();
    peer.dial(Duration::ZERO, 2);
    while driver.turn_out(&mut frame) == Outward::Frame {
        peer.receive(Duration::ZERO, &frame, &mut effects);
        while peer.next_frame(Duration::ZERO, &mut frame, &mut effects) {
            driver.arrived(frame.clone());
        }
        while driver.turn_in(&mut Inward::default()) {}
    }
    assert!(driver.is_connected_to(1));
}
