//! Options of a new process: entry methods, the bound of the mailbox, and the relations to its spawner.

pub use crate::process::{EntryError, EntryMethods, Overflow, Spawned};
