//! A peer with its driver and its two threads.
//!
//! The *out thread* sends frames, and waits for the link. The *in thread* takes frames, and runs the decoders of users.
//! They run while the link sees the peer. `docs/cluster.md` has the protocol.

use std::collections::BTreeSet;
use std::time::Instant;

use super::driver::{Inward, Outward, PeerDriver, Wakes};
use super::link::Link;
use super::simulated::{Turns, WorldBells};
use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::outcome::{contain, tell_log};
use crate::pool::Parker;
use crate::primitives::{Arc, AtomicBool, Mutex, Ordering, Weak, lock};
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
    /// The connection that is up, between the turns of the in thread.
    inward: Mutex<Inward>,
    state: Mutex<State>,
    /// Whether the node is about to leave.
    is_leaving: AtomicBool,
    /// The number of in threads.
    #[cfg(all(test, loom))]
    inside: crate::primitives::AtomicUsize,
}

/// Calls the two threads when there may be something to do.
#[derive(Clone)]
pub(super) enum Bells {
    Threads(ThreadBells),
    /// The world of a simulation has the turns.
    World(Arc<WorldBells>),
}

/// The places at which the two threads wait.
#[derive(Clone)]
pub(super) struct ThreadBells {
    inward: Parker,
    outward: Parker,
    quiet: Parker,
}

#[derive(Default)]
struct State {
    /// The incarnations that the link sees.
    seen: BTreeSet<u64>,
    running: Option<Running>,
    /// Set when the two threads that ran last have exited: the out thread, and the in thread.
    left: [Option<Latch<()>>; 2],
    has_left: bool,
}

/// Two threads that run.
struct Running {
    over: Arc<AtomicBool>,
}

impl Bells {
    /// Those of threads. `quiet` is rung by the in thread after each of its turns, while the node leaves.
    pub(super) fn of_threads(quiet: Parker) -> Bells {
        Bells::Threads(ThreadBells { inward: Parker::new(), outward: Parker::new(), quiet })
    }

    pub(super) fn wakes(&self) -> Wakes {
        match self {
            Bells::Threads(bells) => {
                let (inward, outward) = (bells.inward.clone(), bells.outward.clone());
                Wakes { inward: Box::new(move || inward.unpark()), outward: Box::new(move || outward.unpark()) }
            }
            Bells::World(bells) => bells.wakes(),
        }
    }
}

impl Member {
    pub(super) fn new(
        name: Arc<str>,
        (driver, bells): (Arc<PeerDriver>, Bells),
        link: Arc<dyn Link>,
        clock: Clock,
    ) -> Arc<Member> {
        let member = Arc::new(Member {
            name,
            driver,
            link,
            clock,
            bells,
            inward: Mutex::default(),
            state: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            #[cfg(all(test, loom))]
            inside: crate::primitives::AtomicUsize::new(0),
        });
        if let Bells::World(bells) = &member.bells {
            let turns: Weak<Member> = Arc::downgrade(&member);
            bells.begin(turns);
        }
        member
    }

    /// Whether the link sees no node of this name, and its threads have exited.
    pub(super) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.seen.is_empty() && state.left.iter().flatten().all(Latch::is_set)
    }

    /// The link sees this incarnation of the peer.
    pub(super) fn seen(self: &Arc<Self>, incarnation: u64) {
        let mut state = lock(&self.state);
        if state.has_left {
            return;
        }
        if state.seen.len() >= INCARNATIONS {
            // The link reports the ends of old ones late. The newest one is likely to live, and so is the one that is
            // connected.
            let old = state.seen.iter().copied().find(|old| !self.driver.is_connected_to(*old));
            old.into_iter().for_each(|old| _ = state.seen.remove(&old));
        }
        state.seen.insert(incarnation);
        self.driver.seen();
        let begun = self.run(&mut state);
        drop(state);
        self.tell(begun);
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
            let begun = self.run(&mut state);
            drop(state);
            self.tell(begun);
        }
    }

    /// Reports that there is no thread. User code may run, so no lock is held.
    fn tell(&self, begun: std::io::Result<()>) {
        if let Err(error) = begun {
            tell_log(|| tracing::error!(peer = &*self.name, %error, "there is no thread for the connection"));
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
        self.end(&mut state);
        drop(state);
        self.left()
    }

    /// The latches that the two threads which ran last set when they exit.
    fn left(&self) -> Vec<Latch<()>> {
        lock(&self.state).left.iter().flatten().cloned().collect()
    }

    /// Starts the two threads, unless they run or the node has left.
    fn run(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let Bells::Threads(bells) = &self.bells else { return Ok(()) };
        if state.running.is_some() || state.has_left {
            return Ok(());
        }
        let over = Arc::new(AtomicBool::new(false));
        let [out_left, in_left] = &mut state.left;
        let started = self.start("to", out_left, (bells, &over), Member::run_out);
        let begun = started.and_then(|()| self.start("from", in_left, (bells, &over), Member::run_in));
        match &begun {
            Ok(()) => state.running = Some(Running { over }),
            Err(_) => {
                over.store(true, Ordering::SeqCst);
                bells.outward.unpark();
            }
        }
        begun
    }

    /// Whether threads run that were not told to exit.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_running(&self) -> bool {
        lock(&self.state).running.is_some()
    }

    /// Starts a thread. `left` is set when it has exited.
    ///
    /// It waits for the one before it. Otherwise two threads would send, or carry out effects, at once. And the new
    /// thread could take the ring that has the old one exit.
    fn start(
        self: &Arc<Self>,
        direction: &str,
        left: &mut Option<Latch<()>>,
        (bells, over): (&ThreadBells, &Arc<AtomicBool>),
        run: fn(&Member, &ThreadBells, &AtomicBool),
    ) -> std::io::Result<()> {
        let (member, bells, over) = (self.clone(), bells.clone(), over.clone());
        let (before, exited) = (left.clone(), Latch::new());
        let exits = exited.clone();
        let main = move || {
            before.into_iter().for_each(|before| before.wait());
            if let Err(panic) = contain(|| run(&member, &bells, &over)) {
                tell_log(|| tracing::error!(peer = &*member.name, %panic, "the thread of a connection panicked"));
                member.driver.closed();
            }
            // A thread that waits for this one may end the program next.
            drop(member);
            let _ = exits.set(());
        };
        threads::start(format!("procession-{direction}-{}", self.name), main)?;
        *left = Some(exited);
        Ok(())
    }

    /// Has the two threads exit when they have nothing more to do.
    fn end(&self, state: &mut State) {
        if let (Some(Running { over }), Bells::Threads(bells)) = (state.running.take(), &self.bells) {
            over.store(true, Ordering::SeqCst);
            bells.inward.unpark();
            bells.outward.unpark();
        }
    }

    fn run_out(&self, bells: &ThreadBells, over: &AtomicBool) {
        let _watch = bells.outward.watch(&self.clock);
        loop {
            // Read before the turn: all that was to be sent before it was set is sent.
            let is_over = over.load(Ordering::SeqCst);
            let due = self.turn_out();
            if is_over {
                return;
            }
            bells.outward.park(&self.clock, Deadline(due));
        }
    }

    fn run_in(&self, bells: &ThreadBells, over: &AtomicBool) {
        #[cfg(all(test, loom))]
        assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0, "two threads decode at once");
        loop {
            let is_over = over.load(Ordering::SeqCst);
            if self.turn_in() {
                if self.is_leaving.load(Ordering::SeqCst) {
                    bells.quiet.unpark();
                }
            } else if is_over {
                break;
            } else {
                bells.inward.park(&self.clock, Deadline::NEVER);
            }
        }
        #[cfg(all(test, loom))]
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns for Member {
    fn turn_in(&self) -> bool {
        // Not locked while user code runs.
        let mut inward = std::mem::take(&mut *lock(&self.inward));
        let turned = contain(|| self.driver.turn_in(&mut inward));
        *lock(&self.inward) = inward;
        turned.unwrap_or_else(|panic| {
            tell_log(|| tracing::error!(peer = &*self.name, %panic, "a connection is closed after a panic"));
            self.driver.closed();
            true
        })
    }

    fn turn_out(&self) -> Option<Instant> {
        let mut frame = Vec::new();
        loop {
            match self.driver.turn_out(&mut frame) {
                Outward::Frame => self.link.send(&self.name, &frame),
                Outward::Until(due) => return due,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models;
