//! The distribution of durations.

use std::time::Duration;

use crate::sched::count::Count;
use crate::sched::figures::{BUCKETS, bucket_of, bucket_start};

/// A distribution of durations.
///
/// Each power of two of nanoseconds has four buckets. So no bucket is wider than a quarter of its lower end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The buckets that are not empty, shortest first.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Bucket {
    /// The shortest duration of the bucket.
    pub from: Duration,
    /// The longest duration of the bucket. All are whole nanoseconds.
    pub to: Duration,
    /// The number of durations in the bucket.
    pub count: u64,
}

impl Bucket {
    /// The middle of the bucket.
    pub fn middle(&self) -> Duration {
        (self.from + self.to) / 2
    }
}

impl Histogram {
    /// The duration below which this part of all durations is: 0.5 for the median, for example. `None` if there are
    /// none.
    ///
    /// It is the middle of a bucket. So it differs from the true value by at most an eighth of it.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let rank = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let found = self.buckets.iter().find(|bucket| {
            below += bucket.count;
            below >= rank
        });
        found.or(self.buckets.last()).map(Bucket::middle)
    }

    /// Adds the counts of one writer, by bucket, and the sum in nanoseconds.
    pub(super) fn add_up<'a>(writers: impl Iterator<Item = (&'a [Count; BUCKETS], u64)>) -> Histogram {
        let (mut counts, mut nanos) = ([0; BUCKETS], 0);
        for (of_writer, sum) in writers {
            counts.iter_mut().zip(of_writer).for_each(|(count, more)| *count += more.get());
            nanos += sum;
        }
        let buckets = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| Bucket {
            from: Duration::from_nanos(bucket_start(bucket)),
            to: Duration::from_nanos(if bucket + 1 == BUCKETS { u64::MAX } else { bucket_start(bucket + 1) - 1 }),
            count: *count,
        });
        Histogram { count: counts.iter().sum(), sum: Duration::from_nanos(nanos), buckets: buckets.collect() }
    }

    /// The number of durations that are at most this long, if a bucket ends there.
    pub(super) fn at_most(&self, limit: Duration) -> u64 {
        self.buckets.iter().take_while(|bucket| bucket.to <= limit).map(|bucket| bucket.count).sum()
    }
}

impl FromIterator<Duration> for Histogram {
    fn from_iter<T: IntoIterator<Item = Duration>>(durations: T) -> Histogram {
        let (counts, mut sum) = (std::array::from_fn::<Count, BUCKETS, _>(|_| Count::default()), 0_u64);
        for duration in durations {
            let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            counts[bucket_of(nanos)].add_alone(1);
            sum = sum.saturating_add(nanos);
        }
        Histogram::add_up([(&counts, sum)].into_iter())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt as _, SeedableRng as _};

    #[test]
    fn quantiles_of_a_million_durations_are_within_15_percent() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(21);
        // From 100 ns to 100 ms, each power of ten as often as the others.
        let mut nanos: Vec<u64> = (0..1_000_000).map(|_| 10_f64.powf(random.random_range(2.0..8.0)) as u64).collect();
        let histogram: Histogram = nanos.iter().copied().map(Duration::from_nanos).collect();
        assert_eq!(histogram.count, 1_000_000);
        assert_eq!(histogram.sum, Duration::from_nanos(nanos.iter().sum()));
        nanos.sort_unstable();
        for (part, place) in [(0.5, 500_000), (0.9, 900_000), (0.99, 990_000)] {
            let (is, shown) = (nanos[place - 1] as f64, histogram.quantile(part).unwrap().as_nanos() as f64);
            assert!((shown / is - 1.0).abs() < 0.15, "p{part}: {shown} instead of {is}");
        }
    }

    #[test]
    fn quantiles_of_few_durations_are_those_durations() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let two: Histogram = [Duration::from_nanos(2), Duration::from_nanos(3)].into_iter().collect();
        assert_eq!(two.quantile(0.0), Some(Duration::from_nanos(2)));
        assert_eq!(two.quantile(1.0), Some(Duration::from_nanos(3)));
        assert_eq!(two.quantile(f64::NAN), Some(Duration::from_nanos(2)));
    }
}
