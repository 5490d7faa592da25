//! Synchronisation of threads and async code: latches, which are set once, and gates, which can be closed.

pub use crate::cancel::CancelCallback;
pub use crate::gate::{Gate, GateGuard};
pub use crate::latch::{Latch, LatchFuture};
