//! The items that were sent and are not acknowledged: their tokens, by batch.

use std::collections::VecDeque;

/// The most bytes that are sent and not acknowledged. It is what 40 MB/s need at a delay of 100 ms.
const WINDOW: usize = 4 << 20;

/// The bytes that an item counts in the window beside its payload. It bounds the number of tokens.
const OVERHEAD: usize = 32;

#[derive(Debug, Default)]
struct SentBatch {
    sequence: u64,
    items: usize,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Unacknowledged<T> {
    tokens: VecDeque<T>,
    batches: VecDeque<SentBatch>,
    /// The batch that is being filled. Its sequence is that of the last batch that was sent.
    current: SentBatch,
    bytes: usize,
}

impl<T> Default for Unacknowledged<T> {
    fn default() -> Unacknowledged<T> {
        let (tokens, batches) = (VecDeque::new(), VecDeque::new());
        Unacknowledged { tokens, batches, current: SentBatch::default(), bytes: 0 }
    }
}

impl<T> Unacknowledged<T> {
    /// The sequence of the last batch.
    pub(super) fn last_sequence(&self) -> u64 {
        self.current.sequence
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes < WINDOW
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Notes the last part of an item in the batch that is being filled.
    pub(super) fn item(&mut self, token: T, bytes: usize) {
        self.tokens.push_back(token);
        self.current.items += 1;
        self.current.bytes += bytes + OVERHEAD;
    }

    /// Notes bytes that are no whole item.
    pub(super) fn bytes(&mut self, bytes: usize) {
        self.current.bytes += bytes;
    }

    /// Ends the batch that was filled, and returns its sequence.
    pub(super) fn end_batch(&mut self) -> u64 {
        let sequence = self.current.sequence + 1;
        let SentBatch { items, bytes, .. } = std::mem::take(&mut self.current);
        self.current.sequence = sequence;
        self.bytes += bytes;
        self.batches.push_back(SentBatch { sequence, items, bytes });
        sequence
    }

    /// Notes that the peer has this batch and all before it. Returns whether that is news, or nothing if such a batch
    /// was never sent.
    pub(super) fn acknowledge(&mut self, sequence: u64) -> Option<bool> {
        let mut is_news = false;
        while let Some(batch) = self.batches.front().filter(|batch| batch.sequence <= sequence) {
            self.tokens.drain(..batch.items.min(self.tokens.len()));
            self.bytes -= batch.bytes;
            self.batches.pop_front();
            is_news = true;
        }
        (sequence <= self.current.sequence).then_some(is_news)
    }

    /// Gives back the memory of queues that were long.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            self.tokens.shrink_to(64);
            self.batches.shrink_to(64);
        }
    }

    pub(super) fn into_tokens(self) -> impl Iterator<Item = T> {
        self.tokens.into_iter()
    }
}
