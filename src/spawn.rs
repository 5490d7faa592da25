//! Options of a new process, and the description that a step gets of its child.

pub use crate::process::{EntryError, EntryMethods, Overflow, Spawned};
