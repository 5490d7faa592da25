//! The shutdown tree against its contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/shutdown-tree.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/waker.rs"]
mod waker;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/script.rs"]
mod script;
mod support;

mod building;
mod one_node;
mod order;
mod names;
mod errors;
mod counters;
mod readiness;
mod values;
mod empty;
mod groups;
mod jobs;
mod limits;
mod reports;
mod user_code;
mod large_trees;
mod random_limits;
mod random_trees;
mod library_parts;
mod runtime_node;
mod process_nodes;
