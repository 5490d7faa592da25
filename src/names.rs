//! Names and groups of processes, and the targets of calls.

pub use crate::process::{
    Accepts, AddressError, GroupChange, GroupEvent, Member, NameError, NoSuchProcessError, ParsePidError, Subscription,
    Target,
};
