//! Models of the race of the tree: the last child is done while its parent is told to end.

use super::ShutdownNode;
use super::cascade;
use super::error::NotReadyError;
use super::guards::JobGuard;
use super::node::Life;
use crate::cancel::CancelCallback;
use crate::primitives::{Arc, AtomicUsize, Ordering};

/// Counts how often a job was told to end, and how often that was too early.
struct Watched {
    told: Arc<AtomicUsize>,
    early: Arc<AtomicUsize>,
    _callback: CancelCallback,
}

impl Watched {
    fn new(tail: &JobGuard, below: Vec<ShutdownNode>) -> Watched {
        let (told, early) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counts, sees) = (told.clone(), early.clone());
        let callback = tail.end().on_cancel(move |_| {
            if below.iter().any(|state| state.node.lock().life != Life::Done) {
                sees.fetch_add(1, Ordering::Relaxed);
            }
            counts.fetch_add(1, Ordering::Relaxed);
        });
        Watched { told, early, _callback: callback }
    }

    fn told(&self) -> usize {
        assert_eq!(self.early.load(Ordering::Relaxed), 0, "a parent is told when its children are done");
        self.told.load(Ordering::Relaxed)
    }
}

/// Fails if `strike` does not go on, or if `ask` does not look at the open edges, in the critical section that
/// changes them.
#[test]
fn the_last_child_is_done_while_its_parent_is_asked() {
    loom::model(|| {
        let (child, child_tail) = ShutdownNode::job([]);
        let (parent, parent_tail) = ShutdownNode::job([child.clone()]);
        let told = Watched::new(&parent_tail, vec![child]);
        let other = loom::thread::spawn(move || drop(child_tail));
        parent.request_shutdown();
        other.join().unwrap();
        assert_eq!(told.told(), 1);
        assert!(!parent.is_closed());
        drop(parent_tail);
        assert!(parent.is_closed());
    });
}

/// The last child has two parents, and both have the same parent. Each is told once. The later of the two parents
/// tells the top, once.
#[test]
fn the_last_child_is_done_while_a_diamond_is_asked() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (leaf, leaf_tail) = ShutdownNode::job([]);
        let (left, left_tail) = ShutdownNode::job([leaf.clone()]);
        let (right, right_tail) = ShutdownNode::job([leaf.clone()]);
        let (top, top_tail) = ShutdownNode::job([left.clone(), right.clone()]);
        let told = [
            Watched::new(&left_tail, vec![leaf.clone()]),
            Watched::new(&right_tail, vec![leaf]),
            Watched::new(&top_tail, vec![left, right]),
        ];
        let other = loom::thread::spawn(move || drop(leaf_tail));
        top.request_shutdown();
        other.join().unwrap();
        assert_eq!([told[0].told(), told[1].told(), told[2].told()], [1, 1, 0]);
        let other = loom::thread::spawn(move || drop(left_tail));
        drop(right_tail);
        other.join().unwrap();
        assert_eq!([told[0].told(), told[1].told(), told[2].told()], [1, 1, 1]);
        drop(top_tail);
        assert!(top.is_closed());
    });
}

/// Fails if the future parent learns in one critical section that the child is not done, and is entered in another.
#[test]
fn a_child_is_done_while_a_parent_is_made_for_it() {
    loom::model(|| {
        let (child, child_tail) = ShutdownNode::job([]);
        let other = loom::thread::spawn(move || drop(child_tail));
        let parent = ShutdownNode::merge([child]);
        other.join().unwrap();
        assert!(parent.is_closed());
    });
}

/// Fails if the thread that adds does not look, after its check, whether the group was asked in the meantime.
#[test]
fn a_state_is_taken_in_while_its_group_is_asked() {
    loom::model(|| {
        let (state, group) = ShutdownNode::group([]);
        let (child, tail) = ShutdownNode::job([]);
        let told = Watched::new(&tail, Vec::new());
        let other = loom::thread::spawn(move || group.add(child).is_ok());
        state.request_shutdown();
        let taken = other.join().unwrap();
        assert_eq!(told.told(), usize::from(taken), "who is taken in is told");
        assert_eq!(state.is_closed(), !taken, "and is waited for");
        drop(tail);
        assert!(state.is_closed());
    });
}

/// Fails if the edge is not marked as one that leaves before the child has its link: the strike may come in between.
#[test]
fn a_node_is_done_while_it_is_taken_in() {
    loom::model(|| {
        let (state, group) = ShutdownNode::group([]);
        let (child, tail) = ShutdownNode::job([]);
        let other = loom::thread::spawn(move || drop(tail));
        group.add(child).unwrap();
        other.join().unwrap();
        assert_eq!(state.report().nodes().len(), 1, "a node that is done leaves");
    });
}

/// Fails if a strike by force that comes second counts, or if the node is not struck again when it has ended.
#[test]
fn a_job_ends_while_it_is_given_up() {
    loom::model(|| {
        let (job, tail) = ShutdownNode::job([]);
        let above = ShutdownNode::merge([job.clone()]);
        above.request_shutdown();
        let other = loom::thread::spawn(move || drop(tail));
        cascade::after(|moves| job.node.give_up(moves));
        other.join().unwrap();
        assert!(above.is_closed() && above.node.lock().settled);
    });
}

/// Fails if an error is marked upward from a node that is just getting a parent, and the parent misses it.
#[test]
fn an_error_is_set_while_a_parent_is_made() {
    loom::model(|| {
        let (child, tail) = ShutdownNode::errors([]);
        let other = loom::thread::spawn(move || tail.set("broken"));
        let parent = ShutdownNode::merge([child]);
        other.join().unwrap();
        assert!(parent.err().is_some());
    });
}

/// Fails if readiness is checked before the end: the node may become ready in between, and then be closed.
#[test]
fn a_node_that_says_it_is_ready_and_ends_was_ready_for_waiters() {
    loom::model(|| {
        let (state, tail) = ShutdownNode::readiness([]);
        let other = loom::thread::spawn(move || {
            tail.ok();
            drop(tail);
        });
        let ready = state.wait_ready();
        assert!(ready.is_ok(), "{ready:?}");
        other.join().unwrap();
    });
}

/// Fails if the request to close is checked before the end.
#[test]
fn who_waits_for_what_is_shut_down_is_told_so_and_not_that_it_has_gone() {
    loom::model(|| {
        let (state, _tail) = ShutdownNode::readiness([]);
        let asked = state.clone();
        let other = loom::thread::spawn(move || asked.request_shutdown());
        let ready = state.wait_ready();
        assert!(matches!(ready, Err(NotReadyError::ShutDown)), "{ready:?}");
        other.join().unwrap();
    });
}

/// Fails if the error of a node that leaves a group late is searched while the group may still get another error.
#[test]
fn what_was_given_up_fails_while_it_ends_after_all() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (state, group) = ShutdownNode::group([]);
        let (job, tail) = ShutdownNode::job([]);
        group.add(job.clone()).unwrap();
        drop(group);
        state.request_shutdown();
        cascade::after(|moves| job.node.give_up(moves));
        assert!(state.is_closed());
        let fails = tail.job();
        let other = loom::thread::spawn(move || fails.fail("late"));
        tail.done();
        other.join().unwrap();
        let failed = state.node.lock().failed;
        assert_eq!(state.err().is_some(), failed, "who was told of an error finds it");
    });
}
