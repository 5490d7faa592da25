//! The bridge to async code, and simpler ways to write a process, against their contract. `docs/guarantees/bridge.md`
//! says which test shows which statement.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub, dead_code)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/script.rs"]
mod script;
#[path = "../process/helpers.rs"]
mod helpers;
mod senders;

mod async_handlers;
mod backpressure;
mod backpressure_ends;
mod command_limits;
mod retries;
mod run_limits;
mod executors;
mod idleness;
mod process_refs;
mod recipients;
mod sending;
mod puppet_future;

mod futures;
mod future_wakes;
mod future_ends;
mod future_context;
mod driven_futures;
mod feeds;
mod feed_waits;
mod actor_failures;
#[cfg(feature = "macros")]
mod actor_macro;
mod actor_start;
mod actors;
mod continuations;
mod async_support;
mod async_processes;
mod async_events;
mod async_answers;
mod async_random;
mod async_stops;
mod async_wakers;
