//! Looks at a process. One that does not move while it is looked at is for a simulation.

use std::any::Any;

use super::{BORN_SHIFT, BORN_UNIT, BodyState, Cell, Inner, Look, Rest, WAITS};
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

    /// Returns the state of the process that lives here, if there is one.
    pub(crate) fn look(&self) -> Option<Look> {
        let inner = enter(&self.inner);
        let rest = match inner.body {
            BodyState::Vacant => return None,
            BodyState::Out(_) | BodyState::OutBounded(_) => Rest::Out,
            BodyState::Held(_) => Rest::Waiting,
            BodyState::Resting(_) if inner.stamp & WAITS != 0 => Rest::Waiting,
            BodyState::Resting(_) => Rest::Idle,
        };
        Some(Look {
            generation: inner.generation,
            kind: inner.kind?,
            rest,
            steps: inner.steps,
            incarnation: inner.incarnation(),
            queued: inner.queued,
            born: inner.stamp >> BORN_SHIFT << BORN_UNIT,
        })
    }
}

impl CellView<'_> {
    pub(crate) fn generation(&self) -> u32 {
        self.0.generation
    }

    /// The body, if the process is at rest or is held.
    pub(crate) fn body(&self) -> Option<&Ready> {
        match &self.0.body {
            BodyState::Resting(body) => Some(body),
            BodyState::Held(held) => Some(held.body()),
            _ => None,
        }
    }

    /// The number of messages that no step has taken.
    pub(crate) fn queued(&self) -> u32 {
        self.0.queued
    }

    /// Whether the process waits for an answer only.
    pub(crate) fn waits(&self) -> bool {
        self.0.stamp & WAITS != 0
    }

    /// Shows each message that waits here and not in the body.
    pub(crate) fn show_inbox<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        let body = match &self.0.body {
            BodyState::Held(held) => held.out(),
            body => body,
        };
        match body {
            BodyState::Out(Some(inbox)) => inbox.show_messages(show),
            BodyState::OutBounded(bounded) => bounded.mailbox.show_messages(show),
            BodyState::Resting(body) => {
                let bounded = body.head.rare.as_ref().and_then(|rare| rare.bounded.as_ref());
                bounded.into_iter().for_each(|bounded| bounded.mailbox.show_messages(show));
            }
            BodyState::Out(None) | BodyState::Vacant | BodyState::Held(_) => {}
        }
    }
}
