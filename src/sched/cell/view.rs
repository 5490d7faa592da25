//! A look at a process that does not move while it is looked at, for a simulation.

use std::any::Any;

use super::{BodyState, Cell, Inner};
use crate::primitives::{BriefGuard, enter};
use crate::process::Pid;
use crate::sched::body::Ready;

/// The contents of a cell, locked. While it exists, nothing reaches the process.
pub(crate) struct CellView<'a>(BriefGuard<'a, Inner>);

impl Cell {
    /// Locks the cell for a look. `None` if no process lives here.
    pub(crate) fn view(&self) -> Option<CellView<'_>> {
        let inner = enter(&self.inner);
        (!matches!(inner.body, BodyState::Vacant)).then(|| CellView(inner))
    }
}

impl CellView<'_> {
    pub(crate) fn generation(&self) -> u32 {
        self.0.generation
    }

    /// The body, if the process is at rest.
    pub(crate) fn body(&self) -> Option<&Ready> {
        match &self.0.body {
            BodyState::Resting(body) => Some(body),
            _ => None,
        }
    }

    /// The number of messages that no step has taken.
    pub(crate) fn queued(&self) -> u32 {
        self.0.queued
    }

    /// Whether the process waits for an answer only.
    pub(crate) fn waits(&self) -> bool {
        self.0.stamp & super::WAITS != 0
    }

    /// Shows each message that waits here and not in the body.
    pub(crate) fn show_inbox<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        match &self.0.body {
            BodyState::Out(Some(inbox)) => inbox.show_messages(show),
            BodyState::OutBounded(bounded) => bounded.mailbox.show_messages(show),
            BodyState::Resting(body) => {
                let bounded = body.head.rare.as_ref().and_then(|rare| rare.bounded.as_ref());
                bounded.into_iter().for_each(|bounded| bounded.mailbox.show_messages(show));
            }
            BodyState::Out(None) | BodyState::Vacant => {}
        }
    }
}
