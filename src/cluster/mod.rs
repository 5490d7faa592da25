//! Processes on several nodes.
//!
//! This part is being built. What is here so far has no connection to other nodes yet.

mod guarded;
mod peer;
mod shape;
