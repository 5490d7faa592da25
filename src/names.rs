//! Names and groups of processes, and what can be addressed.

pub use crate::process::{
    Accepts, GroupChange, GroupEvent, Member, NameError, NoSuchProcessError, ParsePidError, Subscription, Target,
};
