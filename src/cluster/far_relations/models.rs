//! Halves of relations, and the down of the connection, under the model checker.

use std::any::TypeId;

use super::FarRelations;
use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Mutex, lock};
use crate::process::{Completion, Down, Monitor, SendError};
use crate::relations::{Cells, Relations, Told};
use crate::sched::cell::{Cell, Missed, Missing};
use crate::sched::mailbox::Signal;
use crate::sched::non_local::{AnyMessage, NonLocal, Settled};
use crate::sched::trace_marks::Context;

/// A runtime without processes, and its connection to another node.
struct Here {
    relations: Relations,
    node: Node,
    dooms: AtomicUsize,
}

struct Node {
    far: FarRelations<()>,
    /// The number of frames with a `Watch`.
    watches: Mutex<usize>,
}

impl NonLocal for Node {
    fn post(
        &self,
        _: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        _: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        Err((message, crate::process::no_such_process::NoSuchProcessError::Pid(to).into()))
    }

    fn takes(&self, _: Pid, _: TypeId) -> Result<(), Missed> {
        Err(Missed::NoSuchProcess)
    }

    fn signal(&self, _: Pid, signal: Signal) -> Result<(), (Missing, Signal)> {
        Err((Missing::Never, signal))
    }

    fn complete(&self, _: Pid, completion: Completion) -> Result<(), Completion> {
        Err(completion)
    }

    fn terminate(&self, _: Pid) -> Result<bool, Missing> {
        Err(Missing::Never)
    }

    fn body_lost(&self, _: Pid) {}

    fn is_alive(&self, _: Pid) -> bool {
        true
    }

    fn watch(&self, pid: Pid) -> bool {
        self.far.watch(pid, || *lock(&self.watches) += 1)
    }

    fn unwatch(&self, pid: Pid) {
        self.far.unwatch(pid, || ());
    }

    fn why_missing(&self, _: Pid) -> Reason {
        Reason::NodeDown
    }

    fn whereis(&self, _: &str) -> Option<Pid> {
        None
    }

    fn settle(&self, _: &Clock, _: Deadline) -> Settled {
        Settled::default()
    }
}

impl Cells for Here {
    fn cell(&self, _: Pid) -> Option<&Cell> {
        None
    }

    fn dooms(&self) -> &AtomicUsize {
        &self.dooms
    }

    fn elsewhere(&self, _: Pid) -> Option<&dyn NonLocal> {
        Some(&self.node)
    }
}

fn here() -> Arc<Here> {
    let node = Node { far: FarRelations::new(2, 2), watches: Mutex::new(0) };
    Arc::new(Here { relations: Relations::new(), node, dooms: AtomicUsize::new(0) })
}

fn far() -> Pid {
    Pid::new(9, 1, 1).unwrap()
}

impl Here {
    fn watch(&self, number: u64) -> Latch<Down> {
        let latch = Latch::new();
        tell(self.relations.watch(self, Monitor::new(number, far()), latch.clone()));
        latch
    }

    fn tell_all(&self, exit: &Exit) {
        self.relations.ended(self, far(), exit, tell);
    }
}

fn tell(told: Told) {
    if let Told::Outside(latch, down) = told {
        assert!(latch.set(down).is_ok(), "it is told once");
    }
}

/// Fails if a down looks for halves before it closes the tables, or if halves are written behind the lock.
#[test]
fn a_far_process_is_watched_while_its_node_goes_down() {
    loom::model(|| {
        let here = here();
        let other = here.clone();
        let down = loom::thread::spawn(move || {
            let (far, _) = other.node.far.down();
            far.into_iter().for_each(|_| other.tell_all(&Exit::Terminated(Reason::NodeDown)));
        });
        let latch = here.watch(1);
        down.join().unwrap();
        assert!(matches!(latch.get().unwrap().exit, Exit::Terminated(Reason::NodeDown)));
        assert_eq!(here.relations.len(), 0);
    });
}

/// Fails if the watchers are told before the process leaves the table: then the second watcher sends no frame.
#[test]
fn a_far_process_is_watched_while_its_end_arrives() {
    loom::model(|| {
        let here = here();
        let first = here.watch(1);
        let other = here.clone();
        let ended = loom::thread::spawn(move || {
            other.node.far.ended(far());
            other.tell_all(&Exit::Done(()));
        });
        let second = here.watch(2);
        ended.join().unwrap();
        assert!(first.get().is_some());
        let is_asked = *lock(&here.node.watches) == 2;
        assert!(second.get().is_some() || is_asked, "the answer to the second frame tells it");
    });
}

/// Fails if the last half goes outside of the lock under which the process leaves the table.
#[test]
fn a_far_process_is_watched_while_the_last_watcher_leaves() {
    loom::model(|| {
        let here = here();
        let first = here.watch(1);
        let other = here.clone();
        let leaves = loom::thread::spawn(move || other.relations.unwatch(&*other, Monitor::new(1, far())));
        let second = here.watch(2);
        leaves.join().unwrap();
        assert_eq!((here.node.far.len().0, here.relations.len()), (1, 1));
        here.tell_all(&Exit::Done(()));
        assert!(first.get().is_none() && second.get().is_some());
    });
}

/// Fails if the link is written although the connection is down, or if the down does not find it.
#[test]
fn a_process_begins_with_a_far_link_while_the_other_node_goes_down() {
    loom::model(|| {
        let here = here();
        let other = here.clone();
        let down = loom::thread::spawn(move || {
            let (far, _) = other.node.far.down();
            far.into_iter().for_each(|far| other.relations.ended(&*other, far, &Exit::Done(()), tell));
        });
        let near = Pid::new(7, 2, 1).unwrap();
        let mut is_linked = false;
        here.relations.linked_from_elsewhere(&*here, (far(), near), |_| {
            is_linked = here.node.far.begin_link(near, far(), || true);
            is_linked
        });
        down.join().unwrap();
        assert_eq!(here.relations.len(), 0, "linked: {is_linked}");
    });
}
