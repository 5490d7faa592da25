//! The load: what each peer does, how much of it, and what it measures.

use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The text of a message. With its number of 8 bytes, a message has 64 bytes.
pub(crate) const TEXT: usize = 56;

/// After so many messages the sender asks how many have arrived.
pub(crate) const BATCH: u64 = 1_000;

/// So many of these questions may be open. So a sender is at most 16,000 messages ahead of the receiver.
pub(crate) const OPEN: usize = 16;

/// The questions that are open at once in the third measurement.
pub(crate) const IN_FLIGHT: usize = 64;

/// The text of a large message: 16 MiB, less a little for its head.
pub(crate) const LARGE: usize = (16 << 20) - (64 << 10);

/// So many large messages have 64 MiB. They travel one after the other.
pub(crate) const LARGE_MESSAGES: u64 = 4;

/// The names of the two processes of the node that is asked.
pub(crate) const RECEIVER: &str = "receiver";
pub(crate) const ECHO: &str = "echo";

/// After this time a question counts as lost.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Messages one way.
    pub(crate) messages: u64,
    /// Questions one after the other.
    pub(crate) asks: u64,
    /// Questions with 64 in flight.
    pub(crate) pipelined: u64,
    /// How often 64 MiB travel.
    pub(crate) large: u64,
}

impl Counts {
    pub(crate) const FULL: Counts = Counts { messages: 500_000, asks: 5_000, pipelined: 100_000, large: 4 };
    pub(crate) const SMOKE: Counts = Counts { messages: 5_000, asks: 100, pipelined: 500, large: 1 };

    /// For a peer that is much slower in all of this.
    pub(crate) fn slower(self) -> Counts {
        Counts { messages: self.messages / 20, asks: self.asks / 5, pipelined: self.pipelined / 5, large: 0 }
    }

    /// As arguments of a program, in the order of the fields.
    pub(crate) fn arguments(self) -> [String; 4] {
        [self.messages, self.asks, self.pipelined, self.large].map(|count| count.to_string())
    }
}

/// The messages that the receiver has seen.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Arrived {
    pub(crate) messages: u64,
    /// Those that did not have the number after that of the one before. A loss counts once, too.
    pub(crate) out_of_order: u64,
    /// The number that the next one has.
    next: u64,
}

impl Arrived {
    /// The sums that a receiver has told.
    #[cfg(feature = "ractor")]
    pub(crate) fn told(messages: u64, out_of_order: u64) -> Arrived {
        Arrived { messages, out_of_order, next: messages }
    }

    pub(crate) fn message(&mut self, number: u64, text: &str) {
        self.messages += 1;
        if number != self.next || text.len() != TEXT {
            self.out_of_order += 1;
        }
        self.next = number + 1;
    }
}

/// The measurement of one pair of programs. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The messages that were sent one way, those that have arrived, and those out of order.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) out_of_order: u64,
    /// From the first message until the sender knows that the last one has arrived.
    pub(crate) one_way: u64,
    /// A question after the other: the median, and the 99th of 100.
    pub(crate) ask_p50: u64,
    pub(crate) ask_p99: u64,
    /// The questions with 64 in flight, and the time for all of them.
    pub(crate) pipelined: u64,
    pub(crate) in_flight: u64,
    /// A question after the other while 64 MiB travel. Not there, if the peer does not do this.
    pub(crate) beside_p50: Option<u64>,
    pub(crate) beside_p99: Option<u64>,
    /// The longest time without a frame of the other node meanwhile. Ours only.
    pub(crate) beside_silence: Option<u64>,
    /// The time for 64 MiB, the mean.
    pub(crate) large: Option<u64>,
}

impl Measured {
    pub(crate) fn one_way(&mut self, sent: u64, arrived: Arrived, time: Duration) {
        (self.sent, self.arrived, self.out_of_order) = (sent, arrived.messages, arrived.out_of_order);
        self.one_way = nanos(time);
    }

    pub(crate) fn asked(&mut self, times: Vec<Duration>) {
        (self.ask_p50, self.ask_p99) = percentiles(times);
    }

    pub(crate) fn in_flight(&mut self, questions: u64, time: Duration) {
        (self.pipelined, self.in_flight) = (questions, nanos(time));
    }

    /// The questions beside large messages, and the time in which these have travelled `often` times.
    pub(crate) fn beside(&mut self, times: Vec<Duration>, time: Duration, often: u64) {
        let (p50, p99) = percentiles(times);
        (self.beside_p50, self.beside_p99) = (Some(p50), Some(p99));
        self.large = Some(nanos(time) / often.max(1));
    }

    /// Messages a second.
    pub(crate) fn messages_a_second(&self) -> f64 {
        rate(self.arrived, self.one_way)
    }

    /// Questions a second, with 64 in flight.
    pub(crate) fn asks_a_second(&self) -> f64 {
        rate(self.pipelined, self.in_flight)
    }
}

fn rate(count: u64, nanos: u64) -> f64 {
    count as f64 * 1e9 / nanos.max(1) as f64
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The median, and the time that 99 of 100 do not exceed.
fn percentiles(mut times: Vec<Duration>) -> (u64, u64) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    (nanos(at(50)), nanos(at(99)))
}

/// The text of a message.
pub(crate) fn text() -> String {
    "m".repeat(TEXT)
}

/// The text of a large message.
pub(crate) fn large_text() -> String {
    "l".repeat(LARGE)
}

/// Checks the answer to a question, which is the number that was asked, and one more.
pub(crate) fn check_answer(asked: u64, answer: u64) -> Outcome<()> {
    if answer == asked + 1 { Ok(()) } else { Err(format!("asked {asked}, and the answer was {answer}").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_counts_what_is_out_of_order() {
        let arrived = |numbers: &[u64]| {
            let mut arrived = Arrived::default();
            numbers.iter().for_each(|number| arrived.message(*number, &text()));
            (arrived.messages, arrived.out_of_order)
        };
        assert_eq!(arrived(&[0, 1, 2, 3]), (4, 0));
        assert_eq!(arrived(&[0, 2, 3]), (3, 1));
        assert_eq!(arrived(&[0, 2, 1, 3]), (4, 3));
        assert_eq!(arrived(&[0, 0, 1]), (3, 1));
    }

    #[test]
    fn percentiles_are_those_of_sorted_times() {
        let times = (1..=1_000).rev().map(Duration::from_nanos).collect();
        assert_eq!(percentiles(times), (501, 991));
        assert_eq!(percentiles(Vec::new()), (0, 0));
    }
}
