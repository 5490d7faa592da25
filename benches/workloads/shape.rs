//! The shape of the workloads: the number of processes, their groups, and the choice of receivers. It is a separate
//! file, so that the programs of other libraries (`benches/peers`) do exactly the same.

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
}
