//! Feeds: queues of a process, with a limit at which those who put items wait.

pub use crate::process::{Feed, PutFuture};
