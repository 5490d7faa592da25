//! Processes on several nodes.
//!
//! This part is being built. It has the types that travel, their encoding, and the connection of two nodes. It has no
//! threads and no link to other programs yet.

// The connections that use it are not here yet.
#![allow(dead_code)]

mod codec;
mod connection;
mod driver;
mod failures;
mod frame;
mod guarded;
mod lives;
mod node;
mod output;
mod peer;
mod questions;
mod remote;
pub(crate) mod scope;
mod shape;
mod wire;

pub use self::remote::Remote;
pub use self::wire::{Wire, WireError};
pub use crate::process::NodeError;
