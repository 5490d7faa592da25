//! The inquiries: other nodes are asked whether a node that is down here is up there.
//!
//! `docs/cluster.md`, "A node that is up elsewhere", has the protocol.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::NodeIdentity;
use crate::cluster::peer::DETECTION_TIME;

/// How long a node is down here before others are asked, and how long an answer is waited for.
///
/// By then, a node that has died is down at the others, too. Its last frame is late by at most the detection time: if
/// it were later, they would have found the node silent before. After that frame they wait for the detection time once
/// more. The last 500 ms are for the delay of their ticks.
const INQUIRY_DELAY: Duration = DETECTION_TIME.saturating_mul(2).saturating_add(Duration::from_millis(500));

/// The inquiries that are to be made, and those that wait for an answer.
///
/// There is at most one for each node that is up and each name of another one.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    /// By the incarnation of the node that is asked, and the number of the inquiry.
    open: BTreeMap<(u64, u64), Inquiry>,
    last: u64,
}

#[derive(Debug)]
struct Inquiry {
    /// The node that is down here.
    about: NodeIdentity,
    /// The node that is asked.
    asked: NodeIdentity,
    /// When it is to be made. After that, when it is forgotten.
    at: Instant,
    is_asked: bool,
}

impl Inquiries {
    /// A node is down here, and has not left. These are up.
    pub(super) fn lost<'n>(&mut self, now: Instant, lost: &NodeIdentity, up: impl Iterator<Item = &'n NodeIdentity>) {
        for asked in up {
            self.last += 1;
            let (about, asked, at) = (lost.clone(), asked.clone(), now + INQUIRY_DELAY);
            self.open.insert((asked.incarnation(), self.last), Inquiry { about, asked, at, is_asked: false });
        }
    }

    /// A node is up here, or is down. Inquiries about it, or at it, mean nothing any more.
    pub(super) fn forget(&mut self, node: &NodeIdentity) {
        self.open.retain(|_, Inquiry { about, asked, .. }| about.name() != node.name() && asked.name() != node.name());
    }

    pub(super) fn forget_all(&mut self) {
        self.open.clear();
    }

    /// Returns what this node is to be asked now: the numbers of the inquiries, and the incarnations that they are
    /// about.
    pub(super) fn due(&mut self, now: Instant, asked: u64) -> Vec<(u64, u64)> {
        let (mut due, mut over) = (Vec::new(), Vec::new());
        for (key, inquiry) in self.open.range_mut((asked, 0)..=(asked, u64::MAX)) {
            if inquiry.at > now {
                continue;
            }
            if inquiry.is_asked {
                over.push(*key);
            } else {
                (inquiry.is_asked, inquiry.at) = (true, now + INQUIRY_DELAY);
                due.push((key.1, inquiry.about.incarnation()));
            }
        }
        over.iter().for_each(|key| _ = self.open.remove(key));
        due
    }

    /// The node has answered that the other one is up there. Returns the two, unless nobody waits for this answer.
    pub(super) fn answered(&mut self, asked: u64, number: u64) -> Option<(NodeIdentity, NodeIdentity)> {
        let is_asked = self.open.get(&(asked, number)).is_some_and(|inquiry| inquiry.is_asked);
        let inquiry = is_asked.then(|| self.open.remove(&(asked, number))).flatten();
        inquiry.map(|inquiry| (inquiry.about, inquiry.asked))
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::Clock;

    /// An inquiry at `b` about `a`, which is lost at this moment.
    fn one() -> (Inquiries, Instant, [NodeIdentity; 2]) {
        let (mut inquiries, now) = (Inquiries::default(), Clock::system().now());
        let nodes = [("a", 1), ("b", 2)].map(|(name, incarnation)| NodeIdentity::new(name, incarnation));
        inquiries.lost(now, &nodes[0], [&nodes[1]].into_iter());
        (inquiries, now, nodes)
    }

    #[test]
    fn an_inquiry_is_made_once_and_one_answer_to_it_counts() {
        let (mut inquiries, now, [a, b]) = one();
        assert_eq!(inquiries.due(now + INQUIRY_DELAY - Duration::from_nanos(1), 2), []);
        assert_eq!(inquiries.answered(2, 1), None, "it was not asked");
        assert_eq!(inquiries.due(now + INQUIRY_DELAY, 3), [], "another node");
        assert_eq!(inquiries.due(now + INQUIRY_DELAY, 2), [(1, 1)]);
        assert_eq!(inquiries.due(now + INQUIRY_DELAY, 2), []);
        assert_eq!((inquiries.answered(3, 1), inquiries.answered(2, 2)), (None, None), "another node or inquiry");
        assert_eq!(inquiries.answered(2, 1), Some((a, b)));
        assert_eq!((inquiries.answered(2, 1), inquiries.len()), (None, 0));
    }

    #[test]
    fn an_inquiry_without_an_answer_is_forgotten() {
        let (mut inquiries, now, _) = one();
        assert_eq!(inquiries.due(now + INQUIRY_DELAY, 2).len(), 1);
        assert_eq!((inquiries.due(now + 2 * INQUIRY_DELAY, 2), inquiries.len()), (vec![], 0));
    }

    /// Its next connection is another one, and it has not seen the node since.
    #[test]
    fn a_node_that_goes_down_is_not_asked_afterwards() {
        for at in [0, 1] {
            let (mut inquiries, now, nodes) = one();
            inquiries.forget(&nodes[at]);
            assert_eq!((inquiries.due(now + INQUIRY_DELAY, 2), inquiries.len()), (vec![], 0));
        }
    }
}
