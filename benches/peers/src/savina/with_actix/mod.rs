//! The Savina suite on actix: an actor for each actor, `do_send` for a message, an arbiter for each worker.
//!
//! Where it differs: an actor stays on the thread it was started on, and nothing is stolen. Where there is work to be
//! shared, the actors of a program take turns on the threads; where there are only messages, all are on the first,
//! since that was faster: waking the other thread costs more than a message. A producer is a future of its actor's
//! that gives way after each batch, since an actor that sends itself a message is called again before any other is. A
//! message is sent at once and not when the step is over.

mod ring;
mod counting;
mod fork_join;
mod big;
mod bank;
mod philosophers;
mod barber;
mod sieve;
mod queens;
mod trapezoid;
mod tree;

use crate::registry::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("ThreadRing", ring::run),
    Program::new("CountingActor", counting::run),
    Program::new("ForkJoinThroughput", fork_join::throughput),
    Program::new("ForkJoinCreate", fork_join::create),
    Program::new("Big", big::run),
    Program::new("BankTransaction", bank::run),
    Program::new("Philosophers", philosophers::run),
    Program::new("SleepingBarber", barber::run),
    Program::new("Sieve", sieve::run),
    Program::new("NQueens", queens::run),
    Program::new("Trapezoidal", trapezoid::run),
    Program::new("UnbalancedCobwebbedTree", tree::run),
];
