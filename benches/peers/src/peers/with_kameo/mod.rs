//! kameo on tokio: an actor for each process, `tell` for a message, `ask` for a question. Mailboxes are unbounded,
//! because the default bound (64) makes senders wait. So `tell(..).try_send()` never fails because of a full mailbox.
//!
//! Differences: each message is boxed, and handled by a boxed future. It holds a reference to its actor, which is
//! several counted pointers. An actor ends when the references to it are gone, so the program must keep them. The
//! features `tracing` and `macros` are off. The first would cost more, and the second is not needed.
//!
//! In `future_ready` a future runs in a task of its own, and its answer comes back to the actor with `pipe_with`
//! (`pipe` took a tenth longer). In `feed` the bound of the mailbox is the limit, and a task sends with
//! `tell(..).send()`. `attach_stream` took two fifths longer, because it also looks at each item whether the actor has
//! ended.

mod births;
mod messages;
mod bridge;

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
