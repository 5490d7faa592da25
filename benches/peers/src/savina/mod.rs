//! The Savina suite, side by side. Procession's programs are the same files as in `cargo bench --bench savina`. The
//! same programs exist on raw tokio and on actix. The problems, without the actors, are the same files for all.

pub(crate) mod ours;
pub(crate) mod with_tokio;
pub(crate) mod with_actix;

#[path = "../../../savina/problems/mod.rs"]
pub(crate) mod problems;
