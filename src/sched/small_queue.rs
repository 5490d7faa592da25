//! A first-in, first-out queue that mostly has one item at most.

use std::collections::VecDeque;

/// A first-in, first-out queue. It makes no allocation for a single item, which is the usual content.
#[derive(Default)]
pub(crate) enum SmallQueue<T> {
    #[default]
    Empty,
    One(T),
    Many(VecDeque<T>),
}

/// The largest buffer, in bytes, that a queue at rest keeps.
const KEPT_AT_REST: usize = 256;

impl<T> SmallQueue<T> {
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        match self {
            SmallQueue::Empty => *self = SmallQueue::One(item),
            SmallQueue::Many(many) => many.push_back(item),
            SmallQueue::One(_) => self.push_second(item),
        }
    }

    pub(crate) fn push_second(&mut self, item: T) {
        let mut many = VecDeque::with_capacity(4);
        if let SmallQueue::One(first) = std::mem::take(self) {
            many.push_back(first);
        }
        many.push_back(item);
        *self = SmallQueue::Many(many);
    }

    /// Appends several items at once.
    pub(crate) fn extend(&mut self, items: impl Iterator<Item = T>) {
        if let SmallQueue::Many(many) = self {
            many.extend(items);
            return;
        }
        let mut many = VecDeque::with_capacity(items.size_hint().0 + 1);
        if let SmallQueue::One(first) = std::mem::take(self) {
            many.push_back(first);
        }
        many.extend(items);
        *self = SmallQueue::Many(many);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        match self {
            SmallQueue::Many(many) => many.pop_front(),
            SmallQueue::Empty => None,
            SmallQueue::One(_) => match std::mem::take(self) {
                SmallQueue::One(only) => Some(only),
                _ => None,
            },
        }
    }

    pub(crate) fn front(&self) -> Option<&T> {
        match self {
            SmallQueue::Empty => None,
            SmallQueue::One(only) => Some(only),
            SmallQueue::Many(many) => many.front(),
        }
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        match self {
            SmallQueue::Empty => None,
            SmallQueue::One(only) => Some(only),
            SmallQueue::Many(many) => many.front_mut(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            SmallQueue::Empty => 0,
            SmallQueue::One(_) => 1,
            SmallQueue::Many(many) => many.len(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All items, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many) = match self {
            SmallQueue::Empty => (None, None),
            SmallQueue::One(only) => (Some(only), None),
            SmallQueue::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// All items, the oldest first.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (one, many) = match self {
            SmallQueue::Empty => (None, None),
            SmallQueue::One(only) => (Some(only), None),
            SmallQueue::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Takes all items out, the oldest first.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> {
        let (one, many) = match std::mem::take(self) {
            SmallQueue::Empty => (None, None),
            SmallQueue::One(only) => (Some(only), None),
            SmallQueue::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Moves all of `other` behind the items here.
    pub(crate) fn append(&mut self, other: &mut SmallQueue<T>) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        match std::mem::take(other) {
            SmallQueue::Empty => {}
            SmallQueue::One(only) => self.push(only),
            SmallQueue::Many(mut many) => {
                if let SmallQueue::Many(mine) = self {
                    mine.append(&mut many);
                } else {
                    many.into_iter().for_each(|item| self.push(item));
                }
            }
        }
    }

    /// Frees a large empty buffer, so that a process at rest does not keep the buffer of a burst.
    pub(crate) fn shrink(&mut self) {
        if let SmallQueue::Many(many) = self
            && many.is_empty()
            && many.capacity() * size_of::<T>() > KEPT_AT_REST
        {
            *self = SmallQueue::Empty;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn drain(queue: &mut SmallQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn a_queue_gives_back_what_was_pushed_in_order_whatever_its_form() {
        let mut queue = SmallQueue::Empty;
        for n in 0..3 {
            for item in 0..n {
                queue.push(item);
            }
            assert_eq!(queue.len(), n as usize);
            assert_eq!(queue.front().copied(), (0..n).next());
            assert!(queue.iter().copied().eq(0..n) && queue.iter_mut().map(|item| *item).eq(0..n));
            assert_eq!(drain(&mut queue), (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn all_items_are_taken_in_order_whatever_the_form() {
        for n in 0..4 {
            let mut queue = SmallQueue::default();
            (0..n).for_each(|item| queue.push(item));
            assert!(queue.take_all().eq(0..n) && queue.is_empty());
        }
    }

    #[test]
    fn appending_keeps_the_order_in_every_pair_of_forms() {
        for mine in 0..4 {
            for theirs in 0..4 {
                let (mut a, mut b) = (SmallQueue::Empty, SmallQueue::Empty);
                (0..mine).for_each(|n| a.push(n));
                (mine..mine + theirs).for_each(|n| b.push(n));
                a.append(&mut b);
                assert!(b.is_empty());
                assert_eq!(drain(&mut a), (0..mine + theirs).collect::<Vec<_>>());
            }
        }
    }
}
