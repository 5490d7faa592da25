//! Items for the options of a new process, and the value that a step gets for its child.

pub use crate::process::{EntryError, EntryMethods, Overflow, Spawned};
