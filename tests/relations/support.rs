//! Processes that the tests of relations drive, and what they note.

pub mod frail;
pub mod node;
pub mod stuck;
pub mod worker;
