//! The Savina suite, side by side: our own programs, which are the very files of `cargo bench --bench savina`, and the same
//! programs on raw tokio. The problems, apart from the actors, are the same files for all.

pub(crate) mod ours;
pub(crate) mod with_tokio;

// Its names and counts are for the list of all workloads.
#[path = "../../../savina/problems/mod.rs"]
pub(crate) mod problems;
