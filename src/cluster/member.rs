//! A peer with its driver and its two threads.
//!
//! The *out thread* sends frames, and waits for the link. The *in thread* takes frames, and runs the decoders of users.
//! They run while the link sees the peer. `docs/cluster.md` has the protocol.

use std::collections::BTreeSet;

use super::driver::{Inward, Outward, PeerDriver, Wakes};
use super::link::Link;
use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::outcome::{contain, tell_log};
use crate::pool::Parker;
use crate::primitives::{Arc, AtomicBool, Mutex, Ordering, lock};
use crate::threads;

/// The most incarnations of one name that are known at once.
const INCARNATIONS: usize = 16;

/// A peer, which is known by its name.
pub(super) struct Member {
    name: Arc<str>,
    pub(super) driver: Arc<PeerDriver>,
    link: Arc<dyn Link>,
    clock: Clock,
    bells: Bells,
    /// The state of the in thread, when none runs.
    inward: Mutex<Inward>,
    state: Mutex<State>,
    /// Whether the node is about to leave.
    is_leaving: AtomicBool,
}

/// The places at which the two threads wait. Each is rung when there may be something to do.
#[derive(Clone)]
pub(super) struct Bells {
    inward: Parker,
    outward: Parker,
    /// Rung by the in thread after each of its turns, while the node leaves.
    quiet: Parker,
}

#[derive(Default)]
struct State {
    /// The incarnations that the link sees.
    seen: BTreeSet<u64>,
    running: Option<Running>,
    /// Set when the in thread that ran last has exited.
    before: Option<Latch<()>>,
    has_left: bool,
}

/// Two threads that run.
struct Running {
    over: Arc<AtomicBool>,
    /// Set when each of them has exited: the out thread, and the in thread.
    left: [Latch<()>; 2],
}

impl Bells {
    pub(super) fn new(quiet: Parker) -> Bells {
        Bells { inward: Parker::new(), outward: Parker::new(), quiet }
    }

    pub(super) fn wakes(&self) -> Wakes {
        let (inward, outward) = (self.inward.clone(), self.outward.clone());
        Wakes { inward: Box::new(move || inward.unpark()), outward: Box::new(move || outward.unpark()) }
    }
}

impl Member {
    pub(super) fn new(
        name: Arc<str>,
        (driver, bells): (Arc<PeerDriver>, Bells),
        link: Arc<dyn Link>,
        clock: Clock,
    ) -> Arc<Member> {
        let (inward, state) = (Mutex::default(), Mutex::default());
        Arc::new(Member { name, driver, link, clock, bells, inward, state, is_leaving: AtomicBool::new(false) })
    }

    /// Whether the link sees a node of this name.
    pub(super) fn is_seen(&self) -> bool {
        !lock(&self.state).seen.is_empty()
    }

    /// The link sees this incarnation of the peer.
    pub(super) fn seen(self: &Arc<Self>, incarnation: u64) {
        let mut state = lock(&self.state);
        if state.has_left {
            return;
        }
        if state.seen.len() < INCARNATIONS {
            state.seen.insert(incarnation);
        }
        self.driver.seen();
        self.run(&mut state);
    }

    /// The link does not see this incarnation any more.
    pub(super) fn gone(&self, incarnation: u64) {
        let mut state = lock(&self.state);
        state.seen.remove(&incarnation);
        if state.seen.is_empty() {
            self.driver.gone();
            self.end(&mut state);
        } else if self.driver.is_connected_to(incarnation) {
            self.driver.closed();
        }
    }

    /// Takes a frame of the peer.
    pub(super) fn frame(self: &Arc<Self>, frame: Vec<u8>) {
        self.driver.arrived(frame);
        let mut state = lock(&self.state);
        if state.running.is_none() && !state.seen.is_empty() {
            // There was no thread for it before. The peer says hello again and again, so each of its frames is a try.
            self.run(&mut state);
        }
    }

    /// The node is about to leave, and waits until the peer has everything.
    pub(super) fn announce_leave(&self) {
        self.is_leaving.store(true, Ordering::SeqCst);
    }

    /// Leaves the cluster. Returns the latches that the two threads set when they exit.
    pub(super) fn leave(&self) -> Vec<Latch<()>> {
        let mut state = lock(&self.state);
        state.has_left = true;
        self.driver.leave();
        let left = state.running.as_ref().map(|running| running.left.to_vec());
        self.end(&mut state);
        left.unwrap_or_default()
    }

    /// Starts the two threads, unless they run.
    fn run(self: &Arc<Self>, state: &mut State) {
        if state.running.is_some() {
            return;
        }
        let over = Arc::new(AtomicBool::new(false));
        let left = [Latch::new(), Latch::new()];
        let (out_over, in_over, before) = (over.clone(), over.clone(), state.before.clone());
        let begun = self.start("to", &left[0], move |member| member.run_out(&out_over)).and_then(|()| {
            self.start("from", &left[1], move |member| {
                // Two threads never carry out effects at once.
                before.into_iter().for_each(|before| before.wait());
                member.run_in(&in_over);
            })
        });
        match begun {
            Ok(()) => {
                state.before = Some(left[1].clone());
                state.running = Some(Running { over, left });
            }
            Err(error) => {
                over.store(true, Ordering::SeqCst);
                self.bells.outward.unpark();
                tell_log(|| tracing::error!(peer = &*self.name, %error, "there is no thread for the connection"));
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        direction: &str,
        left: &Latch<()>,
        run: impl FnOnce(&Member) + Send + 'static,
    ) -> std::io::Result<()> {
        let (member, left) = (self.clone(), left.clone());
        let main = move || {
            run(&member);
            // A thread that waits for this one may end the program next.
            drop(member);
            let _ = left.set(());
        };
        threads::start(format!("procession-{direction}-{}", self.name), main).map(drop)
    }

    /// Has the two threads exit when they have nothing more to do.
    fn end(&self, state: &mut State) {
        if let Some(Running { over, .. }) = state.running.take() {
            over.store(true, Ordering::SeqCst);
            self.bells.inward.unpark();
            self.bells.outward.unpark();
        }
    }

    fn run_out(&self, over: &AtomicBool) {
        let _watch = self.bells.outward.watch(&self.clock);
        let mut frame = Vec::new();
        loop {
            // Read before the turn: all that was to be sent before it was set is sent.
            let is_over = over.load(Ordering::SeqCst);
            match self.driver.turn_out(&mut frame) {
                Outward::Frame => self.link.send(&self.name, &frame),
                Outward::Until(_) if is_over => return,
                Outward::Until(due) => self.bells.outward.park(&self.clock, Deadline(due)),
            }
        }
    }

    fn run_in(&self, over: &AtomicBool) {
        // Not locked while user code runs.
        let mut inward = std::mem::take(&mut *lock(&self.inward));
        loop {
            let is_over = over.load(Ordering::SeqCst);
            match contain(|| self.driver.turn_in(&mut inward)) {
                Ok(true) => {
                    if self.is_leaving.load(Ordering::SeqCst) {
                        self.bells.quiet.unpark();
                    }
                }
                Ok(false) if is_over => break,
                Ok(false) => self.bells.inward.park(&self.clock, Deadline::NEVER),
                Err(panic) => {
                    tell_log(|| tracing::error!(peer = &*self.name, %panic, "a connection is closed after a panic"));
                    self.driver.closed();
                }
            }
        }
        *lock(&self.inward) = inward;
    }
}
