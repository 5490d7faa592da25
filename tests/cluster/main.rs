//! Processes on several nodes: `docs/guarantees/cluster.md`.

mod hostile;
#[path = "../process/other_nodes.rs"]
mod other_nodes;
#[cfg(all(feature = "zenoh", target_os = "linux"))]
mod namespaces;
#[path = "../common/wait.rs"]
mod wait;
