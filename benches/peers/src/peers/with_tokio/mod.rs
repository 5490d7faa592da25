//! Raw tokio: a task for each process, an unbounded channel for each mailbox, a oneshot for an answer. A program
//! without a library of actors is written like this.
//!
//! Differences: there is no PID, so a task must hold a sender to send, and senders are counted. A task ends when its
//! senders are gone, so the program must keep them. A message is sent at once, and not at the end of the step. So it
//! is not taken back if the step fails. By tokio's budget, a busy task yields every 128 messages. The leaves of
//! `skynet` get no message, so they have no channel.

mod births;
mod messages;
mod hub;
mod pubsub;
mod pipeline;
mod timers;
mod chat;
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
    Program::new("hub", hub::hub),
    Program::new("hub_limit", hub::hub_limit),
    Program::new("pubsub", pubsub::pubsub),
    Program::new("pubsub_group", pubsub::pubsub_group),
    Program::new("pipeline", pipeline::pipeline),
    Program::new("burst", messages::burst),
    Program::new("timers_cancelled", timers::cancelled),
    Program::new("timers_fired", timers::fired),
    Program::new("senders_100", messages::senders::<100>),
    Program::new("senders_10000", messages::senders::<10_000>),
    Program::new("mixed", chat::mixed),
    Program::new("async_counting", messages::counting),
    Program::new("future_ready", bridge::future_ready),
    Program::new("feed", bridge::feed),
];
