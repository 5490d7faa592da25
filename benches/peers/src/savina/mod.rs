//! The Savina suite, side by side: our own programs, which are the very files of `cargo bench --bench savina`, and
//! the same programs on raw tokio and on actix. The problems, apart from the actors, are the same files for all.

pub(crate) mod ours;
pub(crate) mod with_tokio;
pub(crate) mod with_actix;

#[path = "../../../savina/problems/mod.rs"]
pub(crate) mod problems;
