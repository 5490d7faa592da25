//! kameo on tokio: an actor for each process, `tell` for a message, `ask` for a question, with unbounded mailboxes,
//! since the usual bounded one (64) makes who sends wait; so `tell(..).try_send()` never fails for want of room.
//!
//! Where it differs: each message is boxed, handled by a boxed future, and holds a reference to its actor, which is
//! several counted pointers. An actor ends when the references to it are gone, so somebody has to keep them. The
//! features `tracing` and `macros` are off: the first would cost more, the second is not needed.

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
