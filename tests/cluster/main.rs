//! Processes on several nodes: `docs/guarantees/cluster.md`.

mod hostile;
#[cfg(all(feature = "zenoh", target_os = "linux"))]
mod namespaces;
#[cfg(all(feature = "zenoh", target_os = "linux"))]
#[path = "../common/wait.rs"]
mod wait;
