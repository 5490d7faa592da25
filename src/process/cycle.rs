//! Cycles of asks.

use std::fmt;

use crate::pid::Pid;
use crate::primitives::Arc;

/// A cycle of processes that wait for each other. Each process waits for an answer of the next one. The last process
/// waits for an answer of the first. So none of them could ever have answered. In a
/// [`CommandError::Cycle`](super::CommandError::Cycle), the first process is the one that receives the error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cycle {
    pids: Arc<[Pid]>,
}

/// The maximum number of processes that are printed. For a longer cycle, the first ones are printed, and the number of
/// the others.
const PRINTED: usize = 8;

impl Cycle {
    /// Makes a cycle of these processes. It is for tests that answer asks in place of a runtime. A real cycle has at
    /// least one process.
    pub fn new(pids: impl Into<Arc<[Pid]>>) -> Cycle {
        Cycle { pids: pids.into() }
    }

    /// The processes. Each waits for the next one, and the last one waits for the first.
    pub fn pids(&self) -> &[Pid] {
        &self.pids
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, others @ ..] = &*self.pids else { return f.write_str("nobody waits") };
        if others.is_empty() {
            return write!(f, "{first} waits for itself");
        }
        write!(f, "{first} waits for ")?;
        for next in others.iter().take(PRINTED - 1) {
            write!(f, "{next}, which waits for ")?;
        }
        match others.len().saturating_sub(PRINTED - 1) {
            0 => {}
            1 => f.write_str("one more, which waits for ")?,
            more => write!(f, "{more} more in a row, the last of which waits for ")?,
        }
        write!(f, "{first}")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_printed_in_order_and_a_long_one_is_shortened() {
        let cycle = |length: u32| {
            let pids: Vec<Pid> = (1..=length).map(|slot| Pid::new(0, slot, 1).unwrap()).collect();
            Cycle::new(pids).to_string()
        };
        assert_eq!(cycle(1), "<0.1.1> waits for itself");
        assert_eq!(cycle(2), "<0.1.1> waits for <0.2.1>, which waits for <0.1.1>");
        assert_eq!(cycle(3), "<0.1.1> waits for <0.2.1>, which waits for <0.3.1>, which waits for <0.1.1>");
        assert!(cycle(8).ends_with("<0.8.1>, which waits for <0.1.1>"), "{}", cycle(8));
        assert!(cycle(9).ends_with("<0.8.1>, which waits for one more, which waits for <0.1.1>"), "{}", cycle(9));
        let long = cycle(10_000);
        assert!(long.ends_with("which waits for 9992 more in a row, the last of which waits for <0.1.1>"), "{long}");
        assert_eq!(cycle(0), "nobody waits");
    }
}
