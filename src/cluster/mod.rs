//! Processes on several nodes.
//!
//! This part is being built. It has the types that travel, and their encoding. It does not connect to other nodes yet.

// The connections that use it are not here yet.
#![allow(dead_code)]

mod codec;
mod failures;
mod guarded;
mod lives;
mod output;
mod peer;
mod questions;
mod remote;
pub(crate) mod scope;
mod shape;
mod wire;

pub use self::remote::Remote;
pub use self::wire::{Wire, WireError};
