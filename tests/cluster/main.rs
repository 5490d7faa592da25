//! Processes on several nodes: `docs/guarantees/cluster.md`.

mod hostile;
