//! The examples as their users have them: programs with arguments, output and an exit code.

#[path = "../common/example.rs"]
mod example;
#[path = "../common/wait.rs"]
mod wait;

mod chat;
#[cfg(feature = "zenoh")]
mod cluster;
mod health_check;
mod job_queue;
mod order_workflow;
mod ordered_shutdown;
mod pool;
mod tasklet;
mod word_count;
