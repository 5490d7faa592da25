//! Options of a new process: entry methods, a bound of the mailbox, and what a step gets of its child.

pub use crate::process::{EntryError, EntryMethods, Overflow, Spawned};
