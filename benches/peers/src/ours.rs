//! Our own programs: the very files of `cargo bench --bench workloads`, so that there is one of each. The parts that
//! they share with those of other libraries (the shape, the measuring) is here too.

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
