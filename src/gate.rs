//! A door with a count: entering, leaving, and closing for good.
//!
//! The race that lives here: a thread enters while the door closes. One word holds both the count of those inside and
//! the closed bit, so each of the two sees the other: a thread that entered before the door closed is waited for, a
//! later one is turned away, and there is no third case.
//!
//! | | `enter` (add one) | `leave` (take one) | `close` (set the bit) |
//! |---|---|---|---|
//! | open, n inside | open, n + 1 | open, n - 1 | closed, n (empty at once if n = 0) |
//! | closed, n inside | refused, and as before | closed, n - 1 (empty if that was the last) | as before |

use crate::latch::Latch;
use crate::primitives::{Arc, AtomicUsize, Ordering};

const CLOSED: usize = 1;
const ONE: usize = 2;

/// A door with a count. Clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    word: AtomicUsize,
    empty: Latch<()>,
}

/// Proof of having entered a gate; dropping it leaves.
#[must_use = "dropping this leaves the gate"]
pub struct GateGuard {
    gate: Gate,
}

impl Gate {
    /// An open gate with a count of zero.
    pub fn new() -> Gate {
        Gate { shared: Arc::new(Shared { word: AtomicUsize::new(0), empty: Latch::new() }) }
    }

    /// Goes in, unless the door is closed.
    pub fn enter(&self) -> Option<GateGuard> {
        // A compare-and-swap, not an addition that is taken back: a visitor who is turned away must never be counted,
        // or the last one to leave would not know that it is the last.
        //
        // Ordering: Acquire pairs with the Release of `close`: a thread that is turned away sees what was done before
        // the door closed.
        self.shared
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| (word & CLOSED == 0).then(|| word + ONE))
            .ok()
            .map(|_| GateGuard { gate: self.clone() })
    }

    /// Closes the door; whether this call did it. Those inside stay until they leave.
    pub fn close(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `enter`; Acquire pairs with the Release of those who have left.
        let before = self.shared.word.fetch_or(CLOSED, Ordering::AcqRel);
        if before == 0 {
            self.everybody_has_left();
        }
        before & CLOSED == 0
    }

    /// Whether the door is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.word.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.shared.word.load(Ordering::Acquire) / ONE
    }

    /// Set when the door is closed and the last one has left.
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
        // Ordering: Release hands what was done inside to the thread that finds the gate empty; Acquire collects it
        // from the others, for this may be the last to leave.
        let before = self.gate.shared.word.fetch_sub(ONE, Ordering::AcqRel);
        if before == CLOSED + ONE {
            self.gate.everybody_has_left();
        }
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
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    /// Breaks when `enter` adds first and takes back afterwards, and when `leave` forgets to look at the closed bit.
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
