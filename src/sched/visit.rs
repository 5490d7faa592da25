//! Requests to processes that are no messages.

use crate::primitives::{Arc, Weak};
use crate::process::Ask;
use crate::process::process_trace::TraceSink;

/// A request to a process that is no message. It is handed to the owner of the body.
pub(crate) enum Visit {
    /// Wants a description. An asker that waits no longer has dropped its question.
    Describe(Weak<Ask>),
    /// Wants the events of the process.
    Trace(Arc<TraceSink>),
    /// Wants no events any more.
    Untrace,
}
