//! The bridge to code outside of processes against its contract, through the public interface.
//! `docs/guarantees/bridge.md` says which test shows which statement.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/script.rs"]
mod script;
#[allow(dead_code)]
#[path = "../process/helpers.rs"]
mod helpers;
mod senders;

mod backpressure;
mod backpressure_ends;
mod command_limits;
mod retries;
