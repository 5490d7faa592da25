//! The shape of the workloads: how many take part, how they are grouped, and who is chosen. It stands apart so that the
//! programs of other libraries (`benches/peers`) do exactly the same.

/// Processes in the ring.
pub(crate) const RING: u64 = 1_000;
/// Processes that send to one.
pub(crate) const PRODUCERS: u64 = 64;
/// How much a process sends or spawns in a step, before it lets others run.
pub(crate) const BATCH: u64 = 100;
/// Processes that ping each other.
pub(crate) const FRIENDS: u64 = 256;
/// Children of a process in the tree.
pub(crate) const CHILDREN: u64 = 10;

/// All nodes of a tree with so many leaves: 11...1, with as many ones as there are levels.
pub(crate) fn nodes(leaves: u64) -> u64 {
    (leaves * CHILDREN - 1) / (CHILDREN - 1)
}

/// The sum of the numbers of so many leaves, the first of which is 0.
pub(crate) fn sum_of_leaves(leaves: u64) -> u64 {
    leaves * (leaves - 1) / 2
}

/// Which of a circle of `size` gets the last of `hops`; the first gets the first.
pub(crate) fn last_hop(hops: u64, size: u64) -> usize {
    ((hops - 1) % size) as usize
}

/// A row of numbers that look random, the same in every run: xorshift, as it needs nothing of any library.
pub(crate) struct Walk(u64);

impl Walk {
    pub(crate) fn new(one: u64) -> Walk {
        // Any number will do for a seed, but zero; neighbours should not walk in step.
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
