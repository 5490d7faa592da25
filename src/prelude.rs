//! The names that nearly every program uses.
//!
//! ```
//! use procession::prelude::*;
//! ```

pub use crate::actor::{Actions, Actor, actor};
pub use crate::async_process::{Context, async_process};
pub use crate::outcome::{BoxError, Exit, Reason};
pub use crate::process::{
    Address, Event, Events, Monitor, Pid, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Tag,
};
pub use crate::runtime::{Handle, Runtime};
