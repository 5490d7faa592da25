//! xtra on tokio: an actor for each process, a detached `send` for a message, with unbounded mailboxes. A question of
//! `ask` is a message that brings tokio's oneshot for the answer.
//!
//! Where it differs: a mailbox has priorities and may be shared by several actors, behind one lock; each message is
//! boxed, handled by a boxed future, and has room for an answer, also when nobody waits for one. An awaited `send`
//! would be the usual way to ask, but what brings its answer is guarded by a spin lock, and on a busy machine a call
//! took milliseconds. For the same reason its other figures suffer more than others' when something else wants the
//! processors. An actor ends when its addresses are gone, so somebody has to keep them.

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
