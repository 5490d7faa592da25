//! xtra on tokio: an actor for each process, a detached `send` for a message, with unbounded mailboxes. A question of
//! `ask` is a message with tokio's oneshot for the answer.
//!
//! Differences: a mailbox has priorities, and several actors may share it, behind one lock. Each message is boxed,
//! handled by a boxed future, and has room for an answer, even if no caller waits for one. An awaited `send` would be
//! the usual way to ask. But a spin lock guards its answer, and on a busy machine a call took milliseconds. For the
//! same reason, other programs on the machine affect its other figures more than those of the other peers. An actor
//! ends when its addresses are gone, so the program must keep them.

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
