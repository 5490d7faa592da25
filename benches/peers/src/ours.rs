//! Procession's programs: the same files as in `cargo bench --bench workloads`, so that each exists only once. The
//! modules that they share with the programs of other libraries (the shape, the measuring) are here, too.

#[path = "../../workloads/births.rs"]
mod births;
#[path = "../../workloads/jobs.rs"]
mod jobs;
#[path = "../../workloads/list.rs"]
pub(crate) mod list;
#[path = "../../workloads/measure.rs"]
pub(crate) mod measure;
#[path = "../../workloads/messages.rs"]
mod messages;
#[path = "../../workloads/runtime.rs"]
pub(crate) mod runtime;
#[path = "../../workloads/shape.rs"]
pub(crate) mod shape;
#[path = "../../workloads/tasks.rs"]
mod tasks;
