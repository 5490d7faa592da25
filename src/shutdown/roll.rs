//! A list whose entries have numbers: found by number, kept in the order in which they came, removed in passing.

/// Numbers are never given twice. An entry that is removed leaves a gap; when there are more gaps than entries they are
/// closed, so a list through which much passes does not grow, and one that was long gives its room back.
#[derive(Debug)]
pub(super) struct Roll<T> {
    next: u64,
    entries: Vec<(u64, Option<T>)>,
    present: usize,
}

/// So many gaps are not worth closing.
const GAPS: usize = 8;

impl<T> Roll<T> {
    pub(super) fn new() -> Roll<T> {
        Roll { next: 0, entries: Vec::new(), present: 0 }
    }

    pub(super) fn push(&mut self, entry: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.push((number, Some(entry)));
        self.present += 1;
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.entries[place].1.as_mut()
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        let removed = self.entries[place].1.take()?;
        self.present -= 1;
        if self.entries.len() > 2 * self.present + GAPS {
            self.entries.retain(|(_, entry)| entry.is_some());
            self.entries.shrink_to(2 * self.present + GAPS);
        }
        Some(removed)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.entries.retain(|(_, entry)| entry.as_ref().is_some_and(&keep));
        self.present = self.entries.len();
        self.entries.shrink_to(2 * self.present + GAPS);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, entry)| entry.as_ref())
    }

    /// With their numbers, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.entries.iter_mut().filter_map(|(number, entry)| Some((*number, entry.as_mut()?)))
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.present = 0;
        std::mem::take(&mut self.entries).into_iter().filter_map(|(_, entry)| entry)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_their_numbers_and_gaps_are_closed() {
        let mut roll = Roll::new();
        let numbers: Vec<u64> = (0..1_000).map(|n| roll.push(n)).collect();
        for (n, number) in numbers.iter().enumerate().filter(|(n, _)| n % 100 != 0) {
            assert_eq!(roll.remove(*number), Some(n));
            assert_eq!(roll.remove(*number), None);
        }
        assert!(roll.entries.len() <= 2 * 10 + GAPS + 1, "{}", roll.entries.len());
        assert_eq!(roll.iter().copied().collect::<Vec<_>>(), (0..1_000).step_by(100).collect::<Vec<_>>());
        *roll.get_mut(numbers[500]).unwrap() = 7;
        assert_eq!(roll.iter_mut().find(|(_, entry)| **entry == 7).unwrap().0, numbers[500]);
        assert!(roll.push(1) > numbers[999]);
        assert!(roll.entries.capacity() <= 4 * roll.present + 2 * GAPS, "{}", roll.entries.capacity());
        assert_eq!((roll.present, roll.take().count(), roll.present), (11, 11, 0));
    }
}
