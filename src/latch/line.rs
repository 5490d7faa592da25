//! Those who wait for a latch, by number.

/// In the order of their numbers, so that one of a hundred thousand is found at once. Who is taken out from between others
/// leaves a gap; gaps are closed before the list would grow. The last entry is never a gap. A list that was long gives its room
/// back.
pub(super) struct Line<E> {
    entries: Vec<(u64, Option<E>)>,
}

/// Room for so many entries is not given back.
const ROOM: usize = 16;

impl<E> Line<E> {
    pub(super) const fn new() -> Line<E> {
        Line { entries: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number is greater than all before.
    pub(super) fn push(&mut self, number: u64, entry: E) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.retain(|(_, entry)| entry.is_some());
            self.give_room_back();
            if self.entries.len() > self.entries.capacity() / 2 {
                // Not by one: room for as many as were kept, before it is looked for gaps again.
                self.entries.reserve(self.entries.capacity());
            }
        }
        self.entries.push((number, Some(entry)));
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut E> {
        let place = self.place(number)?;
        self.entries[place].1.as_mut()
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<E> {
        let place = self.place(number)?;
        let removed = self.entries[place].1.take();
        while self.entries.last().is_some_and(|(_, entry)| entry.is_none()) {
            self.entries.pop();
        }
        self.give_room_back();
        removed
    }

    fn give_room_back(&mut self) {
        if self.entries.capacity() > ROOM && self.entries.len() <= self.entries.capacity() / 4 {
            self.entries.shrink_to(ROOM.max(2 * self.entries.len()));
        }
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = E> {
        self.entries.into_iter().filter_map(|(_, entry)| entry)
    }
}

impl<E> Default for Line<E> {
    fn default() -> Line<E> {
        Line::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_from_between_others_is_gone_and_the_others_are_found() {
        let mut line = Line::new();
        (0..100).for_each(|number| line.push(number, number));
        for number in (0..100).filter(|number| number % 10 != 0) {
            assert_eq!((line.remove(number), line.remove(number)), (Some(number), None));
            assert!(line.get_mut(number).is_none());
        }
        *line.get_mut(50).unwrap() = 7;
        assert_eq!(line.into_iter().collect::<Vec<_>>(), [0, 10, 20, 30, 40, 7, 60, 70, 80, 90]);
    }

    #[test]
    fn a_line_through_which_many_pass_does_not_grow() {
        let mut line = Line::new();
        line.push(0, 0);
        for number in 1..10_000 {
            line.push(number, number);
            // The one before: there is always one behind the gap.
            assert_eq!(line.remove(number - 1), Some(number - 1));
        }
        assert!(line.entries.capacity() <= 8, "{}", line.entries.capacity());
        assert!(!line.is_empty() && line.remove(9_999).is_some() && line.is_empty());
    }

    #[test]
    fn a_line_that_was_long_keeps_no_room_for_that() {
        let full = |length: u64| {
            let mut line = Line::new();
            (0..length).for_each(|number| line.push(number, number));
            line
        };
        let mut line = full(100_000);
        assert!(line.entries.capacity() >= 100_000);
        (1..100_000).for_each(|number| assert!(line.remove(number).is_some()));
        assert_eq!((line.entries.capacity(), line.remove(0)), (ROOM, Some(0)), "the first is left for long");
        // The last is left for long: the gaps before it are closed when there is no more room for others.
        let mut line = full(100_000);
        (0..99_999).for_each(|number| assert!(line.remove(number).is_some()));
        for number in 100_000..300_000 {
            line.push(number, number);
            assert_eq!(line.remove(number - 1), Some(number - 1));
        }
        assert!(line.entries.capacity() <= 2 * ROOM, "{}", line.entries.capacity());
    }
}
