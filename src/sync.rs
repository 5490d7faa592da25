//! What threads and async code wait for: a value that is set once, and a door that closes.

pub use crate::cancel::CancelCallback;
pub use crate::gate::{Gate, GateGuard};
pub use crate::latch::{Latch, LatchFuture};
