//! actix: an actor for each process, `do_send` for a message, `send` for a question; an arbiter, which is a thread
//! with a queue of its own, for each worker.
//!
//! Where it differs: an actor stays on the thread it was started on, and nothing is stolen, so where it is placed
//! decides what it costs. Here each workload has the placement that was fastest with two threads: all actors on one
//! of them, where they are also handed their messages without a wake-up; only `skynet` spreads the root's children
//! over both. Tried and slower by a third or more: actors on both threads in turn in `counting` and `big`, and
//! children started on both threads in turn in `spawn` and `idle`. In `fanin` the figures of both ways overlapped; on
//! the whole those of one thread were the lower ones. `do_send` passes by the bound of the mailbox (16), so mailboxes
//! are unbounded. An actor handles all messages that it finds before another gets its turn. An actor ends when its
//! addresses are gone, so somebody has to keep them.

mod births;
mod messages;
pub(crate) mod stage;

use crate::registry::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("pingpong", messages::pingpong),
    Program::new("ring", messages::ring),
    Program::new("counting", messages::counting),
    Program::new("fanin", messages::fanin),
    Program::new("spawn", births::spawn),
    Program::new("skynet", births::skynet),
    Program::new("idle", births::idle),
    Program::new("big", messages::big),
    Program::new("ask", messages::ask),
];
