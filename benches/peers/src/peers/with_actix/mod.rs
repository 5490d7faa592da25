//! actix: an actor for each process, `do_send` for a message, `send` for a question. Each worker has an arbiter,
//! which is a thread with its own queue.
//!
//! Differences: an actor stays on the thread on which it was started. No thread steals work, so the placement of an
//! actor decides its cost. Here each workload has the placement that was fastest with two threads. All actors are on
//! one thread, where messages also need no wake-up. Only `skynet` distributes the root's children over both. Two
//! other placements were slower by a third or more: actors on both threads in turn in `counting` and `big`, and
//! children on both threads in turn in `spawn` and `idle`. In `fanin` the figures of both placements overlapped. On
//! the whole, those of one thread were lower. `do_send` ignores the bound of the mailbox (16), so mailboxes are
//! unbounded. An actor handles all its waiting messages before another gets its turn. An actor ends when its
//! addresses are gone, so the program must keep them.
//!
//! In `future_ready` the futures are spawned into the actor's context, which polls them itself. In `feed` a task on the
//! actor's thread puts the items into a bounded channel, whose receiver is the stream of the actor. With the task on
//! the other thread, an item took four times as long or more.

mod births;
mod messages;
mod bridge;
pub(crate) mod stage;

use crate::registry::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("pingpong", messages::pingpong),
    Program::new("actor_pingpong", messages::pingpong),
    Program::new("async_pingpong", messages::pingpong),
    Program::new("ring", messages::ring),
    Program::new("counting", messages::counting),
    Program::new("fanin", messages::fanin),
    Program::new("spawn", births::spawn),
    Program::new("skynet", births::skynet),
    Program::new("idle", births::idle),
    Program::new("big", messages::big),
    Program::new("ask", messages::ask),
    Program::new("async_counting", messages::counting),
    Program::new("future_ready", bridge::future_ready),
    Program::new("feed", bridge::feed),
];
