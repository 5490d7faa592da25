//! Items for the options of a new process, and the result of a spawn.

pub use crate::process::{EntryError, EntryMethods, Overflow, ParentEndPolicy, Spawned};
