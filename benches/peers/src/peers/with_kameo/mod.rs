//! kameo on tokio: an actor for each process, `tell` for a message, `ask` for a question. Mailboxes are unbounded,
//! because the default bound (64) makes senders wait. So `tell(..).try_send()` never fails because of a full mailbox.
//!
//! Differences: each message is boxed, and handled by a boxed future. It holds a reference to its actor, which is
//! several counted pointers. An actor ends when the references to it are gone, so the program must keep them. The
//! features `tracing` and `macros` are off. The first would cost more, and the second is not needed.

mod births;
mod messages;

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
];
