//! A list whose entries have numbers.

use std::collections::VecDeque;

/// Keeps entries in the order of their insertion. An entry is found and removed by its number.
///
/// A number is never given twice. Removing an entry leaves a gap, unless it is the first. The gaps are closed if there
/// are more gaps than entries. So a list does not grow when many entries pass through it, and a long list frees its
/// memory again.
#[derive(Debug)]
pub(crate) struct NumberedList<T> {
    next: u64,
    entries: VecDeque<(u64, Option<T>)>,
    present: usize,
}

/// The number of gaps that are always left open, because closing so few does not pay.
const GAPS: usize = 8;

impl<T> NumberedList<T> {
    pub(crate) const fn new() -> NumberedList<T> {
        NumberedList { next: 0, entries: VecDeque::new(), present: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// The number that the next entry will get.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Adds an entry at the end. Its number is greater than all earlier numbers.
    pub(crate) fn push(&mut self, entry: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.push_back((number, Some(entry)));
        self.present += 1;
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        let (first, _) = self.entries.front()?;
        // Without closed gaps, this is its place. With some, it is further in front.
        let most = usize::try_from(number.checked_sub(*first)?).ok()?;
        match self.entries.get(most) {
            Some((other, _)) if *other == number => Some(most),
            _ => self.entries.binary_search_by_key(&number, |(number, _)| *number).ok(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.present
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.entries[self.place(number)?].1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.entries[place].1.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        let removed = self.entries[place].1.take()?;
        self.present -= 1;
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.present + GAPS {
            self.retain(|_| true);
        } else if self.entries.capacity() > 4 * self.entries.len() + 4 * GAPS {
            self.entries.shrink_to(2 * self.entries.len() + GAPS);
        }
        Some(removed)
    }

    /// Removes the first entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        // There is no gap in front.
        let (first, _) = self.entries.front()?;
        self.remove(*first)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.entries.retain(|(_, entry)| entry.as_ref().is_some_and(&keep));
        self.present = self.entries.len();
        self.entries.shrink_to(2 * self.present + GAPS);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, entry)| entry.as_ref())
    }

    /// The entries with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().filter_map(|(number, entry)| Some((*number, entry.as_ref()?)))
    }

    /// Takes all entries out. Their numbers are not given again.
    pub(crate) fn take(&mut self) -> NumberedList<T> {
        std::mem::replace(self, NumberedList { next: self.next, entries: VecDeque::new(), present: 0 })
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().filter_map(|(_, entry)| entry)
    }
}

impl<T> Default for NumberedList<T> {
    fn default() -> NumberedList<T> {
        NumberedList::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_their_numbers_and_gaps_are_closed() {
        let mut list = NumberedList::new();
        let numbers: Vec<u64> = (0..1_000).map(|n| list.push(n)).collect();
        for (n, number) in numbers.iter().enumerate().filter(|(n, _)| n % 100 != 0) {
            assert_eq!((list.remove(*number), list.remove(*number)), (Some(n), None));
            assert!(list.get_mut(*number).is_none());
        }
        assert!(list.entries.len() <= 2 * 10 + GAPS + 1, "{}", list.entries.len());
        *list.get_mut(numbers[500]).unwrap() = 7;
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), [0, 100, 200, 300, 400, 7, 600, 700, 800, 900]);
        assert!(list.push(1) > numbers[999]);
        assert!(list.entries.capacity() <= 4 * list.present + 2 * GAPS, "{}", list.entries.capacity());
        assert_eq!((list.take().into_iter().count(), list.is_empty()), (11, true));
        assert!(list.push(2) > numbers[999] + 1, "a number is not given again");
    }

    #[test]
    fn a_list_through_which_many_entries_pass_does_not_grow() {
        let mut list = NumberedList::new();
        list.push(0);
        for number in 1..10_000 {
            list.push(number);
            assert_eq!((list.len(), list.get(number - 1), list.get(number)), (2, Some(&(number - 1)), Some(&number)));
            assert_eq!((list.get(number + 1), number.checked_sub(2).and_then(|gone| list.get(gone))), (None, None));
            // The one before: there is always one after the gap.
            assert_eq!(list.remove(number - 1), Some(number - 1));
        }
        assert!(list.entries.capacity() <= 4 * GAPS, "{}", list.entries.capacity());
    }

    #[test]
    fn a_list_is_emptied_from_the_front_and_gives_its_memory_back_meanwhile() {
        let mut list = NumberedList::new();
        (0..100_000).for_each(|number| assert_eq!(list.push(number), number));
        for number in 0..100_000 {
            assert_eq!(if number % 2 == 0 { list.pop() } else { list.remove(number) }, Some(number));
            assert_eq!(list.entries.len(), list.len(), "no gap is left in front");
            assert!(list.entries.capacity() <= 4 * list.len() + 4 * GAPS || number < 70_000);
        }
        assert_eq!(list.pop(), None);
    }

    #[test]
    fn a_list_that_was_long_gives_its_memory_back() {
        let mut list = NumberedList::new();
        (0..100_000).for_each(|number| assert_eq!(list.push(number), number));
        (0..100_000).filter(|number| *number != 50_000).for_each(|number| assert!(list.remove(number).is_some()));
        assert!(list.entries.capacity() <= 4 * GAPS, "{}", list.entries.capacity());
        assert_eq!(list.into_iter().collect::<Vec<_>>(), [50_000]);
    }
}
