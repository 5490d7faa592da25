//! Children that a step of a durable process runs, and that are durable themselves.

use std::any::{Any, TypeId};
use std::time::Duration;

use super::coding::{Format, Run};
use super::residency::Residence;
use super::rows::{Order, StoredHead};
use crate::outcome::{BoxError, Failure, drop_contained};
use crate::primitives::{Arc, Mutex};
use crate::process::{CommandError, ParentEndPolicy};
use crate::sched::body::{Ready, StepOutput, Yield};

/// Why a child cannot be stored with options.
const OPTIONS: &str = "a durable child takes no options but `parent_end`";
/// Why a child cannot be stored with a limit.
const LIMIT: &str = "a durable child has no limit: set a timer, and cancel the command";

/// A child whose type the store knows.
pub(super) struct NewChild {
    /// The tag of the command that it answers.
    pub(super) tag: u64,
    /// Its order when its parent ends.
    pub(super) at_end: Order,
    /// The body that it would have as an ordinary process. It has not begun.
    pub(super) ready: Ready,
    pub(super) stored: Option<StoredNewChild>,
}

/// A child that begins, as the record has it.
pub(super) struct StoredNewChild {
    pub(super) serial: u64,
    pub(super) head: StoredHead,
    pub(super) state: Vec<u8>,
    /// Its residence, which was made before the record was appended.
    pub(super) residence: Arc<Mutex<Residence>>,
}

/// Writes the state in a machine, with at most so many bytes.
type EncodeFn = fn((Run, usize), &dyn Any) -> Result<(Format, Vec<u8>), Failure>;
/// Reads an output.
type DecodeFn = fn(Format, &[u8]) -> Result<Box<dyn Any + Send>, BoxError>;

/// Calls that need the type of a child.
#[derive(Clone, Copy)]
pub(super) struct ChildType {
    pub(super) process: TypeId,
    /// The type of its machine as an ordinary process.
    pub(super) machine: TypeId,
    pub(super) has_entry: fn(&dyn Any) -> bool,
    pub(super) encode: EncodeFn,
    pub(super) decode_output: DecodeFn,
}

impl NewChild {
    /// The child with this body, which answers this command.
    pub(super) fn new(tag: u64, ready: Ready) -> NewChild {
        let policy = ready.head.rare.as_ref().and_then(|rare| Some(rare.bond?.run?.1));
        let at_end = match policy.unwrap_or_default() {
            ParentEndPolicy::Terminate => Order::Terminate,
            ParentEndPolicy::Cancel => Order::Cancel,
            ParentEndPolicy::Leave => Order::Leave,
        };
        NewChild { tag, at_end, ready, stored: None }
    }

    /// Why the child cannot be begun, if it cannot.
    pub(super) fn refusal(&self, kind: ChildType, limit: Duration) -> Option<&'static str> {
        let rare = self.ready.head.rare.as_ref();
        let has_options = rare.is_some_and(|rare| {
            let given = rare.given.as_ref().is_some_and(|given| !given.groups.is_empty() || given.recover.is_some());
            given || rare.name.is_some() || rare.traps || rare.is_prepared
        });
        if has_options || (kind.has_entry)(&self.ready.machine as &dyn Any) {
            return Some(OPTIONS);
        }
        (limit < Duration::MAX).then_some(LIMIT)
    }

    /// The yield that answers the command with an error in the place of the child.
    pub(super) fn refused(self, out: &StepOutput, why: CommandError) -> Yield {
        // The PID was shown to no process. It is not given again all the same, as that of any process that is dropped.
        out.link.give_back_after(self.ready.head.pid);
        drop_contained(self.ready);
        Yield::Refused { tag: self.tag, why: Box::new(why) }
    }
}
