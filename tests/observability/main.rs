//! Figures of a running program, through the public interface. `docs/guarantees/observability.md` says which test shows
//! which statement.

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
#[path = "../common/sums.rs"]
mod common_sums;
#[path = "../common/traces.rs"]
mod traces;
#[allow(dead_code)]
#[path = "../process/helpers.rs"]
mod helpers;
mod node;
mod parser;

mod sums;
mod times;
mod waits;
mod counting;
mod snapshots;
mod openmetrics;
mod parts;
mod dashboard;
mod describing;
mod tracing_one;
mod propagating;
#[cfg(feature = "durable")]
mod coded;
#[cfg(feature = "metrics")]
mod publishing;
