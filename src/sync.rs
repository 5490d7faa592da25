//! Synchronisation of threads and async code. A latch is set once. A gate can be closed.

pub use crate::cancel::CancelCallback;
pub use crate::gate::{Gate, GateGuard};
pub use crate::latch::{Latch, LatchFuture};
