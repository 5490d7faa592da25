//! The problems of the Savina suite, without actors: parameters, random data, the work for a message, and the
//! expected answer. The programs for every library use this module, so that all of them do the same work.
//!
//! The parameters are the defaults of the suite (Imam and Sarkar, "Savina: an actor benchmark suite", AGERE 2014).
//! They were compared with the configuration that its authors publish with it (github.com/shamsimam/savina). Some of
//! the suite's programs do not say how much work they do, have no result, or end when all actors are idle. Each
//! program here has an answer that does not depend on speed. Where that needed a decision, the file of the problem
//! states it.

pub(crate) mod bank;
pub(crate) mod barber;
pub(crate) mod big;
pub(crate) mod philosophers;
pub(crate) mod queens;
pub(crate) mod sieve;
pub(crate) mod trapezoid;
pub(crate) mod tree;
pub(crate) mod work;

use std::fmt::Debug;

/// One of the programs of the suite.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The unit that `n` counts.
    pub(crate) counts: &'static str,
    /// The operation. The time is divided by the number of operations.
    pub(crate) op: &'static str,
    pub(crate) n: u64,
    /// The count for a short run, which only checks that the program works.
    pub(crate) smoke: u64,
}

pub(crate) const PROGRAMS: [Program; 12] = [
    Program { name: "ThreadRing", counts: "hops of a token around 100 actors", op: "hop", n: 100_000, smoke: 2_000 },
    Program {
        name: "CountingActor",
        counts: "messages to a counter, which is then asked for the count",
        op: "message",
        n: 1_000_000,
        smoke: 10_000,
    },
    Program {
        name: "ForkJoinThroughput",
        counts: "messages to each of 60 actors",
        op: "message",
        n: 10_000,
        smoke: 100,
    },
    Program {
        name: "ForkJoinCreate",
        counts: "actors that get one message and end",
        op: "actor",
        n: 40_000,
        smoke: 1_000,
    },
    Program {
        name: "Big",
        counts: "pings of each of 120 actors, each to a random one",
        op: "ping and pong",
        n: 20_000,
        smoke: 100,
    },
    Program {
        name: "BankTransaction",
        counts: "transfers between two of 1,000 accounts",
        op: "transfer",
        n: 50_000,
        smoke: 2_000,
    },
    Program { name: "Philosophers", counts: "meals of each of 20 philosophers", op: "meal", n: 10_000, smoke: 100 },
    Program {
        name: "SleepingBarber",
        counts: "haircuts, with 1,000 seats to wait on",
        op: "haircut",
        n: 5_000,
        smoke: 500,
    },
    Program {
        name: "Sieve",
        counts: "the number up to which primes are searched, 1,000 of them kept by an actor",
        op: "number",
        n: 100_000,
        smoke: 10_000,
    },
    Program { name: "NQueens", counts: "queens, placed by 20 actors", op: "solution", n: 12, smoke: 8 },
    Program {
        name: "Trapezoidal",
        counts: "pieces of an area, added up by 100 actors",
        op: "piece",
        n: 10_000_000,
        smoke: 100_000,
    },
    Program {
        name: "UnbalancedCobwebbedTree",
        counts: "actors that the tree may have at most",
        op: "actor",
        n: 200_000,
        smoke: 5_000,
    },
];

/// How many messages or actors an actor sends or creates before it yields. In the suite, a producer sends all
/// messages at once. Then mainly its consumers' mailboxes would be measured.
pub(crate) const BATCH: u64 = 100;

/// The number of actors of ThreadRing.
pub(crate) const RING: u64 = 100;

/// The number of actors of ForkJoinThroughput.
pub(crate) const THROUGHPUT_ACTORS: u64 = 60;

/// The check of an answer. The error says what is wrong.
pub(crate) type Verdict = Result<(), String>;

/// Checks that a value is as expected.
pub(crate) fn same<T: PartialEq + Debug>(what: &str, is: T, must_be: T) -> Verdict {
    if is == must_be { Ok(()) } else { Err(format!("{what}: {is:?}, and it must be {must_be:?}")) }
}

/// As `same`, for lists. The error gives the first difference.
pub(crate) fn same_each<T: PartialEq + Debug>(what: &str, are: &[T], must_be: &[T]) -> Verdict {
    same(&format!("{what}: how many there are"), are.len(), must_be.len())?;
    match are.iter().zip(must_be).position(|(is, must_be)| is != must_be) {
        Some(place) => same(&format!("{what}, number {place}"), &are[place], &must_be[place]),
        None => Ok(()),
    }
}
