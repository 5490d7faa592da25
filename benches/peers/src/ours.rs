//! Procession's programs: the same files as in `cargo bench --bench workloads`, so that each exists only once. The
//! modules that they share with the programs of other libraries (the shape, the measuring) are here, too.

#[path = "../../workloads/actors.rs"]
pub(crate) mod actors;
#[path = "../../workloads/births.rs"]
mod births;
#[path = "../../workloads/bridge.rs"]
pub(crate) mod bridge;
#[path = "../../workloads/chat.rs"]
mod chat;
#[path = "../../workloads/chat_shape.rs"]
pub(crate) mod chat_shape;
#[path = "../../workloads/hub.rs"]
mod hub;
#[path = "../../workloads/jobs.rs"]
mod jobs;
#[path = "../../workloads/list.rs"]
pub(crate) mod list;
#[path = "../../workloads/measure.rs"]
pub(crate) mod measure;
#[path = "../../workloads/messages.rs"]
mod messages;
#[path = "../../workloads/pipeline.rs"]
mod pipeline;
#[path = "../../workloads/pubsub.rs"]
mod pubsub;
#[path = "../../workloads/runtime.rs"]
pub(crate) mod runtime;
#[path = "../../workloads/shape.rs"]
pub(crate) mod shape;
#[path = "../../workloads/tasks.rs"]
mod tasks;
#[path = "../../workloads/timers.rs"]
mod timers;
