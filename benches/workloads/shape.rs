//! The shape of the workloads: the number of processes, their groups, and the choice of receivers. It is a separate
//! file, so that the programs of other libraries (`benches/peers`) do exactly the same.

use std::collections::HashMap;
use std::time::Duration;

/// The number of processes in the ring.
pub(crate) const RING: u64 = 1_000;
/// The number of processes that send to one.
pub(crate) const PRODUCERS: u64 = 64;
/// How many messages or processes a process sends or spawns in a step, before it yields.
pub(crate) const BATCH: u64 = 100;
/// The number of processes that ping each other.
pub(crate) const FRIENDS: u64 = 256;
/// The number of children of a process in the tree.
pub(crate) const CHILDREN: u64 = 10;

/// The number of processes that ask, and of servers that they ask.
pub(crate) const ASKERS: u64 = 256;
pub(crate) const SERVERS: u64 = 16;
/// The number of keys of all servers together.
pub(crate) const KEYS: u64 = 100_000;
/// The number of processes that get each message of a publisher.
pub(crate) const SUBSCRIBERS: u64 = 1_000;
/// The number of processes through which an item passes, and the bound of the mailbox of each.
pub(crate) const STAGES: u64 = 8;
pub(crate) const STAGE_BOUND: usize = 128;
/// The limit of a feed, or of a channel that takes its place.
pub(crate) const FEED: usize = 64;
/// The number of receivers of a burst.
pub(crate) const RECEIVERS: u64 = 25;
/// The number of timers that a process sets, one after the other.
pub(crate) const TIMERS_EACH: u64 = 10;
/// How many messages each of very many senders sends in a step, before it yields.
pub(crate) const SENDER_BATCH: u64 = 10;

/// The number of nodes of a tree with this many leaves: 11...1, with as many ones as there are levels.
pub(crate) fn nodes(leaves: u64) -> u64 {
    (leaves * CHILDREN - 1) / (CHILDREN - 1)
}

/// The sum of the numbers of the leaves. The first number is 0.
pub(crate) fn sum_of_leaves(leaves: u64) -> u64 {
    leaves * (leaves - 1) / 2
}

/// The place in a circle of `size` that gets the last of `hops`. The first place gets the first hop.
pub(crate) fn last_hop(hops: u64, size: u64) -> usize {
    ((hops - 1) % size) as usize
}

/// The server that has a key.
pub(crate) fn server_of(key: u64) -> usize {
    (key % SERVERS) as usize
}

/// The value that a key has.
pub(crate) fn value_of(key: u64) -> u64 {
    key * 3 + 1
}

/// The entries of a server.
pub(crate) fn entries_of(server: u64) -> HashMap<u64, u64> {
    (server..KEYS).step_by(SERVERS as usize).map(|key| (key, value_of(key))).collect()
}

/// The sum of all answers to an asker that asks so many times.
pub(crate) fn sum_of_answers(asker: u64, asks: u64) -> u64 {
    let mut walk = Walk::new(asker);
    (0..asks).map(|_| value_of(walk.key())).sum()
}

/// A sequence of pseudo-random numbers, the same in every run. It is xorshift, which needs no library.
pub(crate) struct Walk(u64);

impl Walk {
    pub(crate) fn new(one: u64) -> Walk {
        // Any seed but zero works. Neighbours must not get similar sequences.
        Walk((one + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next number below `many`.
    pub(crate) fn next(&mut self, many: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % many
    }
    /// The next key of a server.
    pub(crate) fn key(&mut self) -> u64 {
        self.next(KEYS as usize) as u64
    }

    /// The next duration of a timer that fires: 1 to 10 ms.
    pub(crate) fn delay(&mut self) -> Duration {
        Duration::from_micros(1_000 + self.next(9_000) as u64)
    }
}
