//! Names that the step in progress gives and takes. That is done when the step has succeeded, but the step finds them before.

use std::collections::HashMap;

use super::pid::Pid;
use crate::sync::Arc;

/// What the yields of a step will change, name by name, as far as it can be said before they are performed.
#[derive(Default)]
pub(super) struct PendingNames(HashMap<Arc<str>, Pending>);

#[derive(Default)]
struct Pending {
    /// The name is taken from the process that has it now.
    freed: bool,
    /// The process that is given the name, unless another one has it.
    given: Option<Pid>,
}

impl PendingNames {
    /// The name is to be given to a process.
    pub(super) fn give(&mut self, name: &Arc<str>, pid: Pid) {
        if !name.is_empty() {
            self.0.entry(name.clone()).or_default().given.get_or_insert(pid);
        }
    }

    /// The name is to be taken from the process that has it by then.
    pub(super) fn free(&mut self, name: &Arc<str>) {
        self.0.insert(name.clone(), Pending { freed: true, given: None });
    }

    /// The process that will have the name, if `now` is the one that has it now.
    pub(super) fn holder(&self, name: &str, now: impl FnOnce() -> Option<Pid>) -> Option<Pid> {
        match self.0.get(name) {
            None => now(),
            Some(Pending { freed: true, given }) => *given,
            Some(Pending { freed: false, given }) => now().or(*given),
        }
    }
}
