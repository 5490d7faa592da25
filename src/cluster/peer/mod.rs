//! The connection to one other node, as a plain machine: frames and ticks go in, frames and effects come out.
//!
//! `docs/cluster.md` has the protocol. [`Peer`] is the machine.

mod frame;
mod refusal;
mod hello;
mod lanes;
mod unacknowledged;
mod assembly;
mod effect;
mod connection;
mod machine;
#[cfg(all(test, not(loom)))]
mod simulated_link;
#[cfg(all(test, not(loom)))]
mod torture_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod fault_tests;
#[cfg(all(test, not(loom)))]
mod lanes_tests;
#[cfg(all(test, not(loom)))]
pub(in crate::cluster) mod hostile_tests;

pub use effect::DownReason;
pub(crate) use effect::{Effect, Payload};
#[cfg(feature = "zenoh")]
pub(crate) use frame::LONGEST_FRAME;
pub(crate) use frame::{ITEM_LIMIT, is_beat};
pub(crate) use hello::{DETECTION_TIME, Identity, MOST_VOTERS, PROTOCOL, spoken};
pub(crate) use lanes::{Bound, Class, Item, NotOffered, Room};
pub(crate) use machine::Peer;
pub(crate) use refusal::{Difference, Refusal};
