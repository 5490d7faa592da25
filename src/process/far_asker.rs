//! The other ends of questions between nodes.

use std::any::Any;

use super::command::CommandError;
use crate::pid::Pid;
use crate::primitives::{Arc, Weak};

/// Takes the answers to questions of another node.
pub(crate) trait AnswersElsewhere: Send + Sync {
    /// Takes the answer to the question with this number. `from` is the process that has answered. It runs user code,
    /// and contains it.
    fn answered(&self, number: u64, from: Option<Pid>, answer: Result<Box<dyn Any + Send>, CommandError>);
}

/// An asker on another node.
pub(crate) struct FarAsker {
    pub(crate) desk: Arc<dyn AnswersElsewhere>,
    pub(crate) number: u64,
}

impl FarAsker {
    pub(super) fn answered(&self, from: Option<Pid>, answer: Result<Box<dyn Any + Send>, CommandError>) {
        self.desk.answered(self.number, from, answer);
    }
}

/// Is told that an asker has given up while its reply is on another node.
pub(crate) trait ClosesElsewhere: Send + Sync {
    /// The asker of the question with this number has its answer, or waits no longer. It may be told several times.
    fn closed(&self, number: u64);
}

/// The connection by which a reply was sent to another node, and the number of the question there.
#[derive(Clone)]
pub(crate) struct Exported {
    pub(crate) desk: Weak<dyn ClosesElsewhere>,
    pub(crate) number: u64,
}
