//! The Savina suite on actix: an actor for each actor, `do_send` for a message, an arbiter for each worker.
//!
//! Differences: an actor stays on the thread on which it was started. No thread steals work. If there is work to
//! share, the actors of a program take turns on the threads. If there are only messages, all actors are on the first
//! thread, which was faster: waking the other thread costs more than a message. A producer is a future of its
//! actor's, and yields after each batch. An actor that sends itself a message would be called again before all
//! others. A message is sent at once, and not at the end of the step.

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
