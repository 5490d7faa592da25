//! Processes that are held, because a node to which they have sent has no room. `docs/cluster.md` has the protocol.
//!
//! | the process | is to be held | its step is over | there is room | a control signal | it is terminated |
//! |---|---|---|---|---|---|
//! | **runs** | is marked | rests | — | — | — |
//! | **is marked** | — | is held; if a control signal has come, the mark goes | the mark goes | — | ends |
//! | **is held** | — | — | its step is over now | the same | ends |
//!
//! A call that ends a durable process, or has it leave, is like a control signal (`Cell::poll_even_if_held`).
//!
//! For all others, the body of a process that is held is out: what arrives goes into the inbox. The decision whether
//! the process rests is made when it is held no longer. So it is the one that would have been made at first, if the
//! step had taken that long.

#[cfg(feature = "cluster")]
use super::NEVER_HELD;
use super::{AnyMailbox, BodyState, Bounds, Cell, HELD, Inner, Settled};
use crate::primitives::enter;
#[cfg(feature = "cluster")]
use crate::process::Pid;
use crate::sched::body::{Ready, Stepped};

/// A process that is held.
pub(super) struct Held {
    body: Ready,
    /// Its step.
    stepped: Stepped,
    /// The place of its inbox.
    out: BodyState,
}

impl Held {
    /// The inbox, with its bounds if it has any. It is made if there is none.
    #[cold]
    pub(super) fn open(
        &mut self,
        new: fn() -> Box<dyn AnyMailbox>,
    ) -> Option<(&mut dyn AnyMailbox, Option<&mut Bounds>)> {
        match &mut self.out {
            BodyState::Out(inbox) => Some((&mut **inbox.get_or_insert_with(new), None)),
            BodyState::OutBounded(bounded) => Some(bounded.open()),
            _ => None,
        }
    }

    pub(super) fn out(&self) -> &BodyState {
        &self.out
    }

    pub(super) fn body(&self) -> &Ready {
        &self.body
    }
}

impl Cell {
    /// Whether the process may be held. One that is in its last step, or is to be ended, ends instead.
    #[cfg(feature = "cluster")]
    pub(crate) fn may_be_held(&self, pid: Pid) -> bool {
        let inner = enter(&self.inner);
        inner.is_live(pid) && inner.stamp & NEVER_HELD == 0
    }

    /// Has the process held when its step is over.
    #[cfg(feature = "cluster")]
    pub(crate) fn hold_after_step(&self, pid: Pid) {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_none() {
            inner.stamp |= HELD;
        }
    }

    /// Holds the process no longer. A returned body was held.
    #[cfg(feature = "cluster")]
    pub(crate) fn let_go(&self, pid: Pid) -> Option<Ready> {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() {
            return None;
        }
        inner.stamp &= !HELD;
        inner.take_held()
    }

    /// As `settle`, for a process that was held after this step. The step was counted before.
    pub(crate) fn settle_held(&self, body: Ready, stepped: Stepped) -> Settled {
        Cell::settle_otherwise(enter(&self.inner), body, stepped)
    }
}

impl Inner {
    /// Holds a process whose step is over. Returns its body if it has a control signal to take.
    #[cold]
    pub(super) fn hold_body(&mut self, mut body: Ready, stepped: Stepped) -> Option<Ready> {
        self.stamp &= !HELD;
        // A call that has come while the body was out was noted before its caller had the lock of the cell.
        let is_left = body.machine.passes_hold() || stepped.signals && body.machine.mailbox().has_control();
        if is_left || self.body.inbox().is_some_and(|(inbox, _)| inbox.has_control()) {
            return Some(body);
        }
        let out = std::mem::replace(&mut self.body, BodyState::Vacant);
        self.body = BodyState::Held(Box::new(Held { body, stepped, out }));
        None
    }

    /// Takes the body out, if the process is held. Its next turn settles its step.
    #[inline]
    pub(super) fn take_held(&mut self) -> Option<Ready> {
        if matches!(self.body, BodyState::Held(_)) { self.take_out_held() } else { None }
    }

    #[cold]
    fn take_out_held(&mut self) -> Option<Ready> {
        let BodyState::Held(held) = std::mem::replace(&mut self.body, BodyState::Vacant) else { return None };
        let Held { mut body, stepped, out } = *held;
        self.body = out;
        body.head.prepared().held_after = Some(stepped);
        Some(body)
    }

    /// Takes the body out, if the process rests or is held.
    #[inline]
    pub(super) fn wake_even_if_held(&mut self) -> Option<Ready> {
        self.wake().or_else(|| self.take_held())
    }
}

impl BodyState {
    /// The state that a process which is held has for all others.
    #[inline(always)]
    pub(super) fn unheld(&mut self) -> &mut BodyState {
        match self {
            BodyState::Held(held) => &mut held.out,
            other => other,
        }
    }
}
