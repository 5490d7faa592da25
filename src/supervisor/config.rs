//! The configuration of a supervisor.

use std::any::Any;

use super::backoff::Backoff;
use super::intensity::RestartWindow;
use super::spec::{AutoShutdown, ChildSpec, Strategy};

pub(super) struct Config {
    pub(super) strategy: Strategy,
    pub(super) auto: AutoShutdown,
    pub(super) intensity: RestartWindow,
    pub(super) backoff: Option<Backoff>,
    pub(super) limit: Option<usize>,
    pub(super) kind: Option<Kind>,
}

/// How to make the children of a dynamic supervisor.
pub(super) struct Kind {
    pub(super) input: &'static str,
    pub(super) make: Box<MakeOfKind>,
}

/// Makes a specification from an input and a number for the id. Returns `None` if the input has another type.
type MakeOfKind = dyn Fn(Box<dyn Any + Send>, u64) -> Option<ChildSpec> + Send;
