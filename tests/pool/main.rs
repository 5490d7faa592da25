//! The worker pool against its contract (`docs/guarantees/worker-pool.md`), through the public interface.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/seeded.rs"]
mod seeded;
mod support;

mod batches;
mod bounded_queue;
mod building;
mod containment;
mod counts;
mod hanging_code;
mod hooks;
mod job_handle;
mod pacer;
mod pausing;
mod random_programs;
mod resizing;
mod run_and_wait;
mod shutdown_node;
mod stopping;
mod submitting;
mod workers;
