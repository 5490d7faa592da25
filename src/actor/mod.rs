//! Actors: states that handle one message in each step.
//!
//! A [`Process`](crate::Process) is stepped with all its events, and says what happens next. An [`Actor`] is simpler:
//! it has a callback for each kind of event, and ends when it is asked to stop. [`actor`](actor()) makes a process of
//! it. So an actor has a PID, names, links and supervisors, like any process.
//!
//! A process is the better choice for a workflow, whose steps match on a state and an event. An actor is the better
//! choice for a service, whose messages are independent of each other.

mod actions;
mod contract;
mod process;
mod reach;

pub use self::actions::Actions;
pub use self::contract::Actor;
pub use self::process::{ActorProcess, actor};
pub use self::reach::{CALL_LIMIT, Reach, Reached};
