//! The turns of a peer in a simulated world, in the place of its two threads.

use std::time::{Duration, Instant};

use super::driver::Wakes;
use super::link::Link;
use crate::clock::Clock;
use crate::primitives::{Arc, AtomicBool, Mutex, OnceLock, Ordering, Weak, lock};
use crate::runtime::simulated::Job;

/// The world of a node.
pub(crate) trait NodeHost: Send + Sync {
    /// The next random number that is not zero.
    fn draw(&self) -> u64;

    /// Does this later, after this delay at the earliest. It is a turn of a connection.
    fn work(&self, turn: ConnectionTurn, delay: Duration, job: Job);

    /// The link of the node with these names, its cluster's and its own, and this incarnation.
    fn connect(&self, names: (&str, &str), incarnation: u64) -> Arc<dyn Link>;
}

/// A turn of a connection, which a thread would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionTurn {
    pub(crate) node: Arc<str>,
    pub(crate) peer: Arc<str>,
    /// Whether it sends frames. Otherwise it takes one.
    pub(crate) sends: bool,
}

/// The two threads of a connection, without threads.
pub(super) trait Turns: Send + Sync {
    /// Takes a frame that has arrived. Returns whether there may be more to do.
    fn turn_in(&self) -> bool;

    /// Sends the frames that there are. Returns when to come again.
    fn turn_out(&self) -> Option<Instant>;
}

/// Has the world give a connection its turns.
pub(super) struct WorldBells {
    host: Arc<dyn NodeHost>,
    /// The names of the node and the peer.
    names: (Arc<str>, Arc<str>),
    clock: Clock,
    turns: OnceLock<Weak<dyn Turns>>,
    /// Whether a turn is about to come.
    in_due: AtomicBool,
    out_due: AtomicBool,
    /// The moment of the next turn that is set, besides.
    out_later: Mutex<Option<Instant>>,
    me: Weak<WorldBells>,
}

impl WorldBells {
    pub(super) fn new(host: Arc<dyn NodeHost>, names: (Arc<str>, Arc<str>), clock: Clock) -> Arc<WorldBells> {
        Arc::new_cyclic(|me| WorldBells {
            host,
            names,
            clock,
            turns: OnceLock::new(),
            in_due: AtomicBool::new(false),
            out_due: AtomicBool::new(false),
            out_later: Mutex::new(None),
            me: me.clone(),
        })
    }

    /// Sets whose turns they are.
    pub(super) fn begin(&self, turns: Weak<dyn Turns>) {
        let _ = self.turns.set(turns);
    }

    pub(super) fn wakes(self: &Arc<Self>) -> Wakes {
        let (inward, outward) = (self.clone(), self.clone());
        Wakes { inward: Box::new(move || inward.ring_in()), outward: Box::new(move || outward.ring_out()) }
    }

    fn work(&self, sends: bool, delay: Duration, turn: impl FnOnce(&WorldBells, Arc<dyn Turns>) + Send + 'static) {
        let me = self.me.clone();
        let job = move || {
            if let Some(bells) = me.upgrade()
                && let Some(turns) = bells.turns.get().and_then(Weak::upgrade)
            {
                turn(&bells, turns);
            }
        };
        let (node, peer) = self.names.clone();
        self.host.work(ConnectionTurn { node, peer, sends }, delay, Box::new(job));
    }

    fn ring_in(&self) {
        // Ordering: Relaxed: a world has one thread.
        if !self.in_due.swap(true, Ordering::Relaxed) {
            self.work(false, Duration::ZERO, |bells, turns| {
                bells.in_due.store(false, Ordering::Relaxed);
                if turns.turn_in() {
                    bells.ring_in();
                }
            });
        }
    }

    fn ring_out(&self) {
        if !self.out_due.swap(true, Ordering::Relaxed) {
            self.work(true, Duration::ZERO, |bells, turns| {
                bells.out_due.store(false, Ordering::Relaxed);
                bells.ring_out_at(turns.turn_out());
            });
        }
    }

    fn ring_out_at(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        {
            let mut later = lock(&self.out_later);
            if later.is_some_and(|later| later <= at) {
                return;
            }
            *later = Some(at);
        }
        let delay = at.saturating_duration_since(self.clock.now());
        self.work(true, delay, move |bells, turns| {
            let is_last = lock(&bells.out_later).take_if(|later| *later <= at).is_some();
            // Otherwise an earlier one has come in between.
            if is_last {
                bells.ring_out_at(turns.turn_out());
            }
        });
    }
}
