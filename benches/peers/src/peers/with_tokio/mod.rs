//! Raw tokio: a task for each process, an unbounded channel for each mailbox, a oneshot for an answer. This is what a
//! program has that does without a library of actors.
//!
//! Where it differs: there is no PID, so who would send must hold a sender, which is counted; a task ends when its
//! senders are gone, so somebody has to keep them. A message is sent at once and not when the step is over, thus not
//! taken back if the step fails. A task that is busy gives way of itself every 128 messages, by tokio's budget. The
//! leaves of `skynet` get no message, so they have no channel.

mod births;
mod messages;

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
