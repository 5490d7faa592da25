//! The yields of one step, in order.
//!
//! A step may yield a million messages to a few receivers. So all but the newest orders are packed, a slice at a time:
//! each is two bytes, the number of one of the different orders of its slice. They are unpacked one by one, and each
//! slice is freed when it has been performed.

use crate::pid::Pid;

/// The number of orders that are packed together, and performed in one go.
const SLICE: usize = 16_384;

/// The number of places where different orders of a slice are remembered while it is packed.
const PLACES: usize = 1024;

/// The most orders for which a buffer is kept from one busy time to the next.
const KEPT: usize = 4096;

/// One yield, in its place among the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The next `count` messages of a lane, all of them to one receiver.
    Send { lane: u32, count: u32, to: Pid },
    /// The next of the other yields.
    Next,
}

/// The orders of one step.
#[derive(Default)]
pub(crate) struct Orders {
    /// All orders, or the newest. There are at least two if others are packed.
    newest: Vec<Order>,
    packed: Vec<Packed>,
}

/// A slice of orders.
struct Packed {
    different: Box<[Order]>,
    numbers: Box<[u16]>,
}

impl Orders {
    #[inline]
    pub(crate) fn push(&mut self, order: Order) {
        if self.newest.len() > SLICE {
            self.pack(SLICE);
        }
        self.newest.push(order);
    }

    /// Returns the newest order.
    #[inline]
    pub(crate) fn last_mut(&mut self) -> Option<&mut Order> {
        self.newest.last_mut()
    }

    /// Returns all orders if there are at most two, and otherwise at least two of them.
    #[inline]
    pub(crate) fn newest(&self) -> &[Order] {
        &self.newest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.newest.len() + self.packed.len() * SLICE
    }

    /// All orders.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Order> {
        let packed = self.packed.iter();
        let packed = packed.flat_map(|one| one.numbers.iter().map(|number| one.different[*number as usize]));
        packed.chain(self.newest.iter().copied())
    }

    /// Whether there is more than a slice.
    #[inline]
    pub(crate) fn has_slices(&self) -> bool {
        !self.packed.is_empty()
    }

    /// Takes the orders out, in slices. Each slice is freed when it has been taken.
    pub(crate) fn take_slices(&mut self) -> impl Iterator<Item = impl Iterator<Item = Order> + use<>> + use<> {
        self.pack(self.newest.len());
        let packed = std::mem::take(&mut self.packed).into_iter();
        packed.map(|Packed { different, numbers }| numbers.into_iter().map(move |number| different[number as usize]))
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.newest.clear();
        self.packed.clear();
    }

    /// Whether the buffer is larger than what is kept.
    #[inline]
    pub(crate) fn has_grown(&self) -> bool {
        self.newest.capacity() > KEPT
    }

    /// Packs the first `count` orders.
    #[cold]
    fn pack(&mut self, count: usize) {
        // The last order of each place. Two orders that take turns at one place are kept several times, which costs
        // memory only.
        let (mut last, mut different) = ([u16::MAX; PLACES], Vec::new());
        let number = |order: Order| {
            let place = match order {
                Order::Send { to, .. } => to.slot() as usize % PLACES,
                Order::Next => 0,
            };
            if different.get(last[place] as usize) != Some(&order) {
                last[place] = different.len() as u16;
                different.push(order);
            }
            last[place]
        };
        let numbers = self.newest.drain(..count).map(number).collect();
        self.packed.push(Packed { different: different.into(), numbers });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn order(number: u32) -> Order {
        Order::Send { lane: number % 3, count: 1 + number % 2, to: Pid::new(0, number, 1).unwrap() }
    }

    #[test]
    fn orders_come_back_as_they_were() {
        // Few different ones, and all different ones.
        for (many, different) in
            [(0, 1), (1, 1), (2, 2), (SLICE + 1, 25), (SLICE + 2, 25), (5 * SLICE, 25), (5 * SLICE, usize::MAX)]
        {
            let mut orders = Orders::default();
            let one = |number: usize| if number % 7 == 6 { Order::Next } else { order((number % different) as u32) };
            (0..many).for_each(|number| orders.push(one(number)));
            assert_eq!((orders.len(), orders.is_empty()), (many, many == 0));
            assert_eq!(orders.has_slices(), many > SLICE + 1);
            assert!(orders.newest().len() >= many.min(2));
            assert!(orders.iter().eq((0..many).map(one)));
            assert!(orders.take_slices().flatten().eq((0..many).map(one)));
            assert_eq!(orders.len(), 0);
        }
    }

    #[test]
    fn a_million_orders_to_a_few_receivers_take_two_bytes_each() {
        let mut orders = Orders::default();
        (0..1_000_000).for_each(|number| orders.push(order(number % 25)));
        let bytes = |packed: &Packed| size_of_val(&*packed.numbers) + size_of_val(&*packed.different);
        let packed: usize = orders.packed.iter().map(bytes).sum();
        assert!(packed + orders.newest.capacity() * size_of::<Order>() < 2_700_000, "{packed}");
    }
}
