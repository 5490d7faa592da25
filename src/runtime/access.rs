//! The access to processes from outside: every call that names a process by a target.

use std::time::Duration;

use super::dispatch::Core;
use super::inspect::{ProcessInfo, ProcessState, state};
use crate::outcome::{Reason, Rejected};
use crate::primitives::{Arc, Ordering, Weak};
use crate::process::recipient::Route;
use crate::process::{Accepts, NoSuchProcessError, Pid, SendError, Target};
use crate::sched::body::CountedHost;
use crate::sched::cell::Missing;

/// The core of a runtime, for references to processes. Only the handles of the runtime own it.
pub(super) struct Access {
    pub(super) core: Arc<Core>,
    /// The core, for questions from outside.
    pub(super) host: CountedHost,
}

/// An access that keeps no runtime alive.
#[derive(Clone)]
pub(crate) struct WeakAccess(Weak<Access>);

impl WeakAccess {
    pub(super) fn of(access: &Arc<Access>) -> WeakAccess {
        WeakAccess(Arc::downgrade(access))
    }

    /// The access.
    ///
    /// # Errors
    /// The runtime has ended.
    pub(super) fn get(&self) -> Result<Arc<Access>, NoSuchProcessError> {
        let access = self.0.upgrade().filter(|access| !access.core.road.stopped.load(Ordering::SeqCst));
        access.ok_or(NoSuchProcessError::RuntimeEnded)
    }

    pub(super) fn send<M: Send + 'static>(
        &self,
        to: &impl Accepts<M>,
        message: M,
    ) -> Result<(), Rejected<M, SendError>> {
        match self.get() {
            Ok(access) => access.core.send(to, message),
            Err(ended) => Err(Rejected::new(message, ended.into())),
        }
    }
}

impl Core {
    /// Sends a message from outside.
    pub(super) fn send<M: Send + 'static>(
        &self,
        to: &impl Accepts<M>,
        message: M,
    ) -> Result<(), Rejected<M, SendError>> {
        match self.resolve(to) {
            Ok(pid) => self.send_by(pid, message, to.recipient().map(|recipient| &**recipient.route())),
            Err(why) => Err(Rejected::new(message, why.into())),
        }
    }

    /// Sends a message from outside, converted if there is a conversion.
    #[inline]
    pub(super) fn send_by<M: Send + 'static>(
        &self,
        to: Pid,
        message: M,
        route: Option<&dyn Route<M>>,
    ) -> Result<(), Rejected<M, SendError>> {
        match route {
            None => self.road.send(to, message),
            Some(route) => self.road.send_converted(to, message, route, |_| ()),
        }
    }

    /// Sends a cancel request to the process at a target.
    pub(crate) fn cancel_at(
        &self,
        target: &impl Target,
        reason: Reason,
        limit: Option<Duration>,
    ) -> Result<bool, NoSuchProcessError> {
        let pid = self.resolve(target)?;
        self.cancel(&mut self.executor(), pid, reason, limit)
    }

    pub(super) fn terminate_at(&self, target: &impl Target) -> Result<bool, NoSuchProcessError> {
        let pid = self.resolve(target)?;
        self.terminate(&mut self.executor(), pid, false)
    }

    pub(super) fn is_alive_at(&self, target: &impl Target) -> bool {
        self.resolve(target).is_ok_and(|pid| self.road.is_alive(pid))
    }

    pub(super) fn info_at(&self, target: &impl Target) -> Option<ProcessInfo> {
        let pid = self.resolve(target).ok()?;
        Some(self.info(pid, self.look(pid)?, self.names.of(pid), &self.running()))
    }

    pub(super) fn state_at(&self, target: &impl Target) -> Option<ProcessState> {
        let pid = self.resolve(target).ok()?;
        self.state_of(pid)
    }

    fn state_of(&self, pid: Pid) -> Option<ProcessState> {
        let cell = self.road.table.cell(pid)?;
        loop {
            if let Some(look) = self.look(pid) {
                return Some(state(look.rest, self.running().contains_key(&pid.to_word())));
            }
            match cell.check(pid) {
                Err(Missing::Never) => return None,
                // The process was spawned between the two looks.
                _ if cell.is_live(pid) => {}
                _ => return Some(ProcessState::Complete),
            }
        }
    }
}
