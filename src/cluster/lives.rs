//! The numbers of lives, which are the first parts of PIDs.
//!
//! A *life* is the time in which PIDs with one number are given: that of a node from its start to its end, or that of a
//! store over all its runs. Nodes give the lives of others numbers of their own, because a PID is one word. A life
//! keeps its own number elsewhere if that is free, so a PID is mostly printed alike on all nodes.
//!
//! A number is given when a PID of the life is first shown, and never again. So two PIDs of one node are equal exactly
//! if they name the same process.

use std::collections::{BTreeMap, HashMap};

use super::peer_limits::PeerLimits;
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};

/// The most lives that get numbers because of one peer, over all its incarnations. It is a quarter of all numbers, so
/// that one peer which names lives without end, or is restarted again and again, leaves numbers for others.
const MAX_LIVES_OF_PEER: u32 = (Pid::MAX_NODE + 1) / 4;

/// Names a life everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// A node from its start to its end. The number was drawn at its start.
    Node(u64),
    /// A store.
    Store(u64),
}

/// A PID cannot be shown here, because its life gets no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNumberError {
    #[error(
        "PIDs of {0:?} cannot be shown here: this node has seen {most} others since its start, which is its limit",
        most = Pid::MAX_NODE
    )]
    AllGiven(Life),
    #[error(
        "PIDs of {0:?} cannot be shown here: this node has seen {MAX_LIVES_OF_PEER} others through the node {1:?}, \
         which is the limit for one node"
    )]
    OfPeer(Life, Arc<str>),
}

/// The numbers that one node has given.
pub(crate) struct Lives {
    given: Mutex<Given>,
    limits: Arc<PeerLimits>,
}

struct Given {
    numbers: HashMap<Life, u32>,
    lives: HashMap<u32, Life>,
    /// The free numbers, as the first and the last one of each row of them.
    free: BTreeMap<u32, u32>,
    /// The peers because of which numbers were given, by their names.
    peers: HashMap<Arc<str>, OfPeer>,
    /// Whether it was reported that all numbers are given.
    is_full_reported: bool,
}

/// The numbers that were given because of one peer.
#[derive(Default)]
struct OfPeer {
    given: u32,
    is_limit_reported: bool,
}

impl Lives {
    /// The numbers of a node whose PIDs begin with this one.
    pub(crate) fn new(life: Life, number: u32, limits: Arc<PeerLimits>) -> Lives {
        let free = BTreeMap::from([(0, Pid::MAX_NODE)]);
        let (numbers, lives, peers) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut given = Given { numbers, lives, free, peers, is_full_reported: false };
        given.give(life, number);
        Lives { given: Mutex::new(given), limits }
    }

    /// The number of a life that has one.
    pub(crate) fn known(&self, life: Life) -> Option<u32> {
        lock(&self.given).numbers.get(&life).copied()
    }

    /// The number of a life. If it has none yet, it gets the one that it wishes, or another one.
    pub(crate) fn number(&self, life: Life, wish: u32) -> Result<u32, NoNumberError> {
        let mut given = lock(&self.given);
        if let Some(number) = given.numbers.get(&life) {
            return Ok(*number);
        }
        let number = given.vacant(wish).ok_or(NoNumberError::AllGiven(life))?;
        given.give(life, number);
        Ok(number)
    }

    /// The number of a life that this peer has named. A life that has none yet gets one as with
    /// [`number`](Self::number), unless the peer has reached its limit.
    pub(crate) fn number_through(&self, peer: &Arc<str>, life: Life, wish: u32) -> Result<u32, NoNumberError> {
        let (error, is_first) = {
            let given = &mut *lock(&self.given);
            if let Some(number) = given.numbers.get(&life) {
                return Ok(*number);
            }
            let vacant = given.vacant(wish);
            match (given.peers.get_mut(peer), vacant) {
                (Some(of), _) if of.given >= MAX_LIVES_OF_PEER => {
                    let is_first = !std::mem::replace(&mut of.is_limit_reported, true);
                    (NoNumberError::OfPeer(life, peer.clone()), is_first)
                }
                (_, Some(number)) => {
                    given.give(life, number);
                    given.peers.entry(peer.clone()).or_default().given += 1;
                    return Ok(number);
                }
                (_, None) => {
                    let is_first = !std::mem::replace(&mut given.is_full_reported, true);
                    (NoNumberError::AllGiven(life), is_first)
                }
            }
        };
        self.limits.life_refused(peer, &error.to_string(), is_first);
        Err(error)
    }

    /// The life that has this number.
    pub(crate) fn life(&self, number: u32) -> Option<Life> {
        lock(&self.given).lives.get(&number).copied()
    }
}

impl Given {
    /// Gives a life a free number.
    fn give(&mut self, life: Life, number: u32) {
        self.numbers.insert(life, number);
        self.lives.insert(number, life);
        let row = self.free.range(..=number).next_back().map(|(first, last)| (*first, *last));
        if let Some((first, last)) = row {
            self.free.remove(&first);
            if first < number {
                self.free.insert(first, number - 1);
            }
            if number < last {
                self.free.insert(number + 1, last);
            }
        }
    }

    /// The first free number from the wished one on. After the last number comes the first.
    fn vacant(&self, wish: u32) -> Option<u32> {
        let is_free = self.free.range(..=wish).next_back().is_some_and(|(_, last)| wish <= *last);
        if is_free {
            return Some(wish);
        }
        let next = self.free.range(wish..).next().or_else(|| self.free.first_key_value());
        next.map(|(first, _)| *first)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_its_own_number_if_that_is_free_and_keeps_what_it_has() {
        let lives = Lives::new(Life::Node(1), 7, Arc::default());
        assert_eq!(lives.number(Life::Node(2), 9), Ok(9));
        // A restarted node has the same wish.
        assert_eq!(lives.number(Life::Node(3), 9), Ok(10));
        assert_eq!(lives.number(Life::Store(1), 7), Ok(8));
        assert_eq!(lives.number(Life::Node(2), 500), Ok(9));
        assert_eq!(lives.number(Life::Node(1), 500), Ok(7));
        assert_eq!(lives.life(8), Some(Life::Store(1)));
        assert_eq!(lives.life(11), None);
        // A wish may come from anywhere.
        assert_eq!(lives.number(Life::Node(4), Pid::MAX_NODE), Ok(Pid::MAX_NODE));
        assert_eq!(lives.number(Life::Node(5), Pid::MAX_NODE), Ok(0));
        assert_eq!(lives.number(Life::Node(6), u32::MAX), Ok(1));
    }

    #[test]
    fn when_all_numbers_are_given_new_lives_have_none_and_others_keep_theirs() {
        let lives = Lives::new(Life::Node(0), 7, Arc::default());
        let others = u64::from(Pid::MAX_NODE);
        let mut numbers: Vec<u32> = (1..=others).map(|life| lives.number(Life::Node(life), 7).unwrap()).collect();
        let last = numbers[numbers.len() - 1];
        let error = lives.number(Life::Store(3), 7).unwrap_err();
        assert!(
            error.to_string().starts_with("PIDs of Store(3) cannot be shown here: this node has seen 16383 others")
        );
        assert_eq!((lives.number(Life::Node(others), 0), lives.life(7)), (Ok(last), Some(Life::Node(0))));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len() as u64, numbers.contains(&7)), (others, false));
    }
    #[test]
    fn one_peer_gets_a_quarter_of_the_numbers_and_each_limit_is_reported_once() {
        let (limits, reports) = (Arc::<PeerLimits>::default(), Arc::<Mutex<Vec<(String, String)>>>::default());
        let told = reports.clone();
        limits.report_to(Box::new(move |peer, why| lock(&told).push((peer.into(), why.into()))));
        let lives = Lives::new(Life::Node(0), 7, limits.clone());
        let peers = ["a", "b", "c", "d"].map(Arc::<str>::from);
        let mut next = 0;
        let mut name = |peer: &Arc<str>| {
            next += 1;
            lives.number_through(peer, Life::Node(next), 7)
        };
        assert!((0..MAX_LIVES_OF_PEER).all(|_| name(&peers[0]).is_ok()));
        let refused = [name(&peers[0]), name(&peers[0])].map(Result::unwrap_err);
        let limit = "this node has seen 4096 others through the node \"a\", which is the limit for one node";
        assert!(refused[1].to_string().ends_with(limit), "{}", refused[1]);
        // It may name what is known here.
        assert!(lives.number_through(&peers[0], Life::Node(1), 7).is_ok());
        assert_eq!(*lock(&reports), [("a".into(), refused[0].to_string())]);
        // The others have their own quarters. This node itself has taken one number.
        assert!(peers[1..3].iter().all(|peer| (0..MAX_LIVES_OF_PEER).all(|_| name(peer).is_ok())));
        assert!((1..MAX_LIVES_OF_PEER).all(|_| name(&peers[3]).is_ok()));
        let refused = [name(&peers[3]), name(&"e".into())].map(Result::unwrap_err);
        assert!(refused.iter().all(|refused| matches!(refused, NoNumberError::AllGiven(_))));
        assert_eq!(lock(&reports)[1..], [("d".into(), refused[0].to_string())]);
        assert_eq!(limits.refused(), (4, 0));
    }
}
