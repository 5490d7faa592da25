//! A gate, which counts its entries until it is closed.
//!
//! A thread may enter the gate while another thread closes it. One atomic word holds both the count of guards and the
//! closed bit. So the entry comes either before the close or after it. An entry before the close is counted, and the
//! gate is empty only when its guard is dropped. An entry after the close is refused.
//!
//! | | `enter` (add one) | `leave` (take one) | `close` (set the bit) |
//! |---|---|---|---|
//! | open, n inside | open, n + 1 | open, n - 1 | closed, n (empty at once if n = 0) |
//! | closed, n inside | refused, and as before | closed, n - 1 (empty if that was the last) | as before |

use crate::latch::Latch;
use crate::primitives::{Arc, AtomicUsize, Ordering};

const CLOSED: usize = 1;
const ONE: usize = 2;

/// A gate that counts entries until it is closed.
///
/// Clones are the same gate. A closed gate stays closed.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    word: AtomicUsize,
    empty: Latch<()>,
}

/// The guard of one entry into a [`Gate`]. Dropping it leaves the gate.
#[must_use = "dropping this leaves the gate"]
pub struct GateGuard {
    gate: Gate,
}

impl Gate {
    /// Makes an open gate with a count of zero.
    pub fn new() -> Gate {
        Gate { shared: Arc::new(Shared { word: AtomicUsize::new(0), empty: Latch::new() }) }
    }

    /// Enters the gate. Returns `None` if the gate is closed.
    pub fn enter(&self) -> Option<GateGuard> {
        // A compare-and-swap, and not an addition that is taken back: a refused entry must never be counted.
        // Otherwise the last guard would not see that it is the last.
        //
        // Ordering: Acquire pairs with the Release of `close`. A refused thread sees the work that was done before
        // the gate closed.
        self.shared
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| (word & CLOSED == 0).then(|| word + ONE))
            .ok()
            .map(|_| GateGuard { gate: self.clone() })
    }

    /// Counts one entry, which has no guard. Only the thread that will close the gate may call this.
    pub(crate) fn count_in(&self) {
        // Ordering: Relaxed. The caller hands the entry to the thread that calls `count_out`.
        self.shared.word.fetch_add(ONE, Ordering::Relaxed);
    }

    /// Takes back one entry. [`count_in`](Self::count_in) or [`enter`](Self::enter) has counted it.
    pub(crate) fn count_out(&self) {
        // Ordering: Release publishes the work done inside to the thread that finds the gate empty. Acquire makes the
        // work of the others visible, because this entry may be the last.
        if self.shared.word.fetch_sub(ONE, Ordering::AcqRel) == CLOSED + ONE {
            self.everybody_has_left();
        }
    }

    /// Closes the gate. Returns whether this call closed it.
    ///
    /// Existing guards still count until they are dropped.
    pub fn close(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `enter`. Acquire pairs with the Release of guards that were
        // dropped.
        let before = self.shared.word.fetch_or(CLOSED, Ordering::AcqRel);
        if before == 0 {
            self.everybody_has_left();
        }
        before & CLOSED == 0
    }

    /// Whether the gate is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.word.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Returns the number of entries that have not left.
    pub fn inside(&self) -> usize {
        self.shared.word.load(Ordering::Acquire) / ONE
    }

    /// Returns the latch that is set when the closed gate has no guard left.
    pub fn empty(&self) -> &Latch<()> {
        &self.shared.empty
    }

    fn everybody_has_left(&self) {
        let _ = self.shared.empty.set(());
    }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("closed", &self.is_closed()).field("inside", &self.inside()).finish()
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.gate.count_out();
    }
}

impl std::fmt::Debug for GateGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GateGuard")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_states_and_arrows_is_what_the_code_does() {
        let gate = Gate::new();
        let first = gate.enter().unwrap();
        let second = gate.enter().unwrap();
        assert_eq!((gate.inside(), gate.is_closed()), (2, false));
        drop(first);
        assert!(gate.close());
        assert!(!gate.close());
        assert!(gate.enter().is_none());
        assert_eq!((gate.inside(), gate.is_closed(), gate.empty().is_set()), (1, true, false));
        drop(second);
        assert!(gate.empty().is_set());

        let unused = Gate::new();
        assert!(unused.close());
        assert!(unused.empty().is_set(), "nobody was inside, so it is empty at once");
    }

    #[test]
    fn entries_without_a_guard_count_like_the_others() {
        let gate = Gate::new();
        gate.count_in();
        gate.count_out();
        assert!(!gate.empty().is_set(), "an open gate may be entered again");
        gate.count_in();
        let guard = gate.enter().unwrap();
        assert_eq!((gate.inside(), gate.close()), (2, true));
        gate.count_out();
        assert!(!gate.empty().is_set());
        drop(guard);
        assert!(gate.empty().is_set());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    /// Fails if `enter` adds first and takes back afterwards, or if `leave` ignores the closed bit.
    #[test]
    fn entering_while_the_gate_closes() {
        loom::model(|| {
            let gate = Gate::new();
            let working = Arc::new(AtomicUsize::new(0));
            let visitors: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, working) = (gate.clone(), working.clone());
                    loom::thread::spawn(move || {
                        if let Some(inside) = gate.enter() {
                            working.fetch_add(1, Ordering::Relaxed);
                            assert!(!gate.empty().is_set(), "the gate is not empty while somebody is inside");
                            working.fetch_sub(1, Ordering::Relaxed);
                            drop(inside);
                        }
                    })
                })
                .collect();
            gate.close();
            gate.empty().wait();
            assert_eq!(working.load(Ordering::Relaxed), 0, "nobody is inside an empty gate");
            assert!(gate.enter().is_none());
            for visitor in visitors {
                visitor.join().unwrap();
            }
            assert_eq!(working.load(Ordering::Relaxed), 0);
            assert_eq!(gate.inside(), 0);
        });
    }
}
