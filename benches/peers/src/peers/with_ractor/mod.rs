//! ractor on tokio: an actor for each process, `cast` for a message, `call` for a question.
//!
//! Differences: mailboxes are unbounded. Signals, stops, supervision events and messages each have their own channel.
//! Each message is boxed. An actor ends when it is stopped, and not when its references are gone. Actors are spawned
//! without a link to a supervisor. The feature that carries tracing spans in messages is off. Both would cost more.

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
