//! The scheduler: how a message travels from a sender to a step, and how the yields of the step are performed.
//!
//! In the order of the journey: [`router`] finds the receiver's [`cell`] in the [`table`] and puts the message into
//! its mailbox. If that wakes the receiver, its body goes into a [`queue`]. A [`worker`] finds it there, or
//! [`sleep`]s until another thread wakes it. A [`turn`] steps the process, has its yields performed, and puts the
//! body to rest.

mod marks;
mod gaps;
pub(crate) mod wait_sampler;
pub(crate) mod resident_waker;
pub(crate) mod handed;
#[cfg(feature = "cluster")]
pub(crate) mod lease;
mod small_queue;
pub(crate) mod trace_marks;
pub(crate) mod wait_marks;
pub(crate) mod signals;
pub(crate) mod mailbox;
pub(crate) mod room_queue;
pub(crate) mod feeds;
pub(crate) mod bounded_mailbox;
pub(crate) mod doorway;
pub(crate) mod orders;
pub(crate) mod outbox;
pub(crate) mod waiting_send;
mod routed_send;
pub(crate) mod open_asks;
pub(crate) mod open_work;
pub(crate) mod timer_records;
pub(crate) mod residents;
pub(crate) mod body;
mod sampling;
pub(crate) mod machine;
mod traced;
mod visit;
pub(crate) mod cell;
pub(crate) mod table;
pub(crate) mod count;
pub(crate) mod figures;
pub(crate) mod counters;
pub(crate) mod queue;
pub(crate) mod sleep;
mod search;
pub(crate) mod stuck_steps;
pub(crate) mod non_local;
pub(crate) mod road;
mod step_traces;
pub(crate) mod step_waits;
mod elsewhere;
pub(crate) mod router;
#[cfg(feature = "cluster")]
mod fence;
mod describing;
pub(crate) mod backpressure;
mod ask_cycles;
pub(crate) mod engine;
pub(crate) mod polling;
pub(crate) mod ending;
mod beginning;
mod replacing;
pub(crate) mod turn;
pub(crate) mod worker;
mod find_work;

#[cfg(all(test, loom))]
mod models;
