//! ractor on tokio: an actor for each process, `cast` for a message, `call` for a question.
//!
//! Where it differs: mailboxes are unbounded, and signals, stops, supervision events and messages each have a channel
//! of their own. Each message is boxed. An actor ends when it is stopped and not when nobody holds it. Actors are
//! spawned without a link to a supervisor, and without the feature that carries tracing spans in messages: both would
//! cost more.

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
