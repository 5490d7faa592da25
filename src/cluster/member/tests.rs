//! A peer with its threads, and a link that the test has in its hands.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::clock::ManualClock;
use crate::cluster::driver::Parts;
use crate::cluster::events::NodeWatch;
use crate::cluster::link::{LinkError, Upward};
use crate::cluster::peer::{Identity, PROTOCOL, spoken};
use crate::outcome::BoxError;
use crate::wait::{until, wait};

const LIMIT: Duration = Duration::from_secs(60);

/// Tells of each frame, and panics at the first ones.
struct Sender {
    frames: Mutex<mpsc::Sender<usize>>,
    sent: Mutex<usize>,
    panics: usize,
}

impl Link for Sender {
    fn open(&self, _: Arc<dyn Upward>) -> Result<(), LinkError> {
        Err(BoxError::from("it is not opened").into())
    }

    fn send(&self, _: &str, _: &[u8]) {
        let sent = {
            let mut sent = lock(&self.sent);
            *sent += 1;
            *sent
        };
        let _ = lock(&self.frames).send(sent);
        assert!(sent > self.panics, "the link panics");
    }

    fn close(&self) {}
}

/// A peer whose link panics so often.
fn member(panics: usize) -> (Arc<Member>, ManualClock, mpsc::Receiver<usize>) {
    let here = Identity {
        cluster: "test".into(),
        name: "here".into(),
        incarnation: 7,
        protocols: spoken(PROTOCOL),
        voters: Vec::new(),
        detection_time: Duration::from_secs(1),
    };
    let manual = ManualClock::new();
    let clock = manual.clock();
    let (watch, bells) = (Arc::new(NodeWatch::new(clock.clone())), Bells::of_threads(Parker::new()));
    let (nonce, wake) = (Box::new(|| 1), bells.wakes());
    let start = clock.now();
    let parts = Parts { here, name: "there".into(), watch, clock: clock.clone(), start, nonce, wake };
    let driver = PeerDriver::new(Weak::new(), parts);
    let (frames, sent) = mpsc::channel();
    let link = Arc::new(Sender { frames: Mutex::new(frames), sent: Mutex::new(0), panics });
    (Member::new("there".into(), (driver, bells), link, clock), manual, sent)
}

fn exits(member: &Member) {
    let left = member.leave();
    assert!(!left.is_empty());
    let system = Clock::system();
    assert!(left.iter().all(|left| left.wait_until(&system, system.deadline(LIMIT))), "a thread has not exited");
}

#[test]
fn a_link_that_panics_is_tried_again() {
    let (member, clock, sent) = member(1);
    member.seen(1).unwrap();
    assert_eq!(sent.recv_timeout(LIMIT), Ok(1), "it panics");
    until("another frame is sent", || {
        clock.advance(AGAIN);
        sent.try_recv() == Ok(2)
    });
    exits(&member);
}

#[test]
fn a_peer_that_was_never_heard_has_no_in_thread() {
    let (member, _clock, sent) = member(0);
    member.seen(1).unwrap();
    assert_eq!(sent.recv_timeout(LIMIT), Ok(1), "it is dialled");
    assert_eq!(Arc::strong_count(&member), 2, "the out thread has the other one");
    // A frame of the peer is taken by an in thread.
    member.frame(vec![0; 40]);
    until("the frame is taken", || !member.driver.has_arrivals());
    exits(&member);
}

#[test]
fn a_peer_that_was_never_heard_is_dialled_less_and_less_often() {
    let (member, clock, _sent) = member(0);
    let hellos = |seconds: u32| {
        let mut frame = Vec::new();
        let mut count = 0;
        for _ in 0..4 * seconds {
            count += u32::from(member.driver.turn_out(&mut frame) == Outward::Frame);
            clock.advance(AGAIN);
        }
        count
    };
    member.driver.seen();
    assert_eq!(hellos(8), 6, "after 0, 250, 750, 1,750, 3,750 and 7,750 ms");
    assert_eq!(hellos(50), 10, "each 5 s");
    member.driver.seen();
    assert_eq!(hellos(1), 3, "another incarnation is dialled at once");
}

#[test]
fn a_peer_that_comes_and_goes_while_a_thread_is_busy_has_no_more_threads() {
    let (member, _clock, _sent) = member(0);
    member.seen(1).unwrap();
    member.frame(vec![0; 40]);
    until("the frame is taken", || !member.driver.has_arrivals());
    // The in thread stands in its turn.
    let held = lock(&member.inward);
    for _ in 0..100 {
        member.gone(1);
        member.seen(1).unwrap();
        member.frame(vec![0; 40]);
    }
    // The out thread may have exited and begun anew. Its last one waits for the one before for a moment.
    until("there are two threads", || Arc::strong_count(&member) <= 3);
    drop(held);
    member.gone(1);
    until("all is taken", || !member.driver.has_arrivals() && Arc::strong_count(&member) == 1);
    exits(&member);
}

#[test]
fn a_node_that_has_left_keeps_no_frames() {
    let (member, _clock, _sent) = member(0);
    member.driver.seen();
    member.driver.arrived(vec![0; 40]);
    assert!(member.driver.has_arrivals());
    member.driver.leave();
    member.driver.arrived(vec![0; 40]);
    assert!(!member.driver.has_arrivals());
}

#[test]
fn a_heartbeat_wakes_a_node_that_leaves() {
    let (member, clock, _sent) = member(0);
    let Bells::Threads(bells) = member.bells.clone() else { panic!("it has threads") };
    member.announce_leave();
    // The first byte is that of a beat.
    member.frame(vec![0xC6; 45]);
    let clock = clock.clock();
    wait(thread::spawn(move || bells.quiet.park(&clock, Deadline::NEVER))).unwrap();
}

#[test]
fn the_incarnation_that_was_seen_first_is_forgotten_first() {
    let (member, _clock, _sent) = member(0);
    // The last two have the smallest numbers.
    (3..=INCARNATIONS as u64 + 1).chain([1, 2]).for_each(|incarnation| member.seen(incarnation).unwrap());
    (2..=INCARNATIONS as u64 + 1).for_each(|incarnation| member.gone(incarnation));
    assert_eq!(lock(&member.state).seen, [1]);
    exits(&member);
}
