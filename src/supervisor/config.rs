//! What a supervisor was told when it was built.

use std::any::Any;
use std::sync::Arc;

use super::spec::{AutoShutdown, ChildSpec, Strategy};
use super::window::{Backoff, Window};
use crate::Exit;

pub(super) struct Config {
    pub(super) strategy: Strategy,
    pub(super) auto: AutoShutdown,
    pub(super) window: Window<(Arc<str>, Exit)>,
    pub(super) backoff: Option<Backoff>,
    pub(super) limit: Option<usize>,
    pub(super) kind: Option<Kind>,
}

/// How children of one kind are made.
pub(super) struct Kind {
    pub(super) input: &'static str,
    pub(super) make: Box<MakeOfKind>,
}

/// A specification from an input, with a number for its id; nothing if the input is of another type.
type MakeOfKind = dyn Fn(Box<dyn Any + Send>, u64) -> Option<ChildSpec> + Send;
