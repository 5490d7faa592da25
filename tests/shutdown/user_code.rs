//! Code of the user's that does what it should not, and trees of awkward shapes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::ShutdownNode;
use procession::shutdown::{JobGuard, Key};
use procession::sync::CancelCallback;

use crate::support::{LIMIT, ZERO, job, named};
use crate::wait::wait;

/// Says done in the callback that tells it to end, and drops its own tail there.
fn ends_at_once(tail: JobGuard) -> CancelCallback {
    let end = tail.end().clone();
    end.on_cancel(move |_| drop(tail))
}

#[test]
fn a_long_chain_of_jobs_that_end_in_their_callbacks_needs_no_deep_stack() {
    let small = std::thread::Builder::new().stack_size(512 * 1024);
    let chain = small.spawn(|| {
        let mut callbacks = Vec::new();
        let (mut state, tail) = job();
        callbacks.push(ends_at_once(tail));
        for _ in 0..50_000 {
            let (above, tail) = ShutdownNode::job([state]);
            callbacks.push(ends_at_once(tail));
            state = above;
        }
        state.shutdown_timeout(LIMIT).unwrap();
        assert!(state.is_closed());
    });
    wait(chain.unwrap()).unwrap();
}

#[test]
fn no_lock_is_held_while_code_of_the_users_runs() {
    let (child, tail) = named("child");
    let (group_state, group) = ShutdownNode::group([]);
    let (top, top_tail) = ShutdownNode::job([child, group_state]);
    let looks = Arc::new(AtomicUsize::new(0));
    let look = || {
        let (top, looks, group) = (top.clone(), looks.clone(), group.clone());
        move || {
            let all = ShutdownNode::merge([top.clone()]);
            let _ = (all.report(), all.err(), all.is_ready(), all.wait_timeout(ZERO), all.get(&Loud), all.is_closed());
            let _ = group.add(ShutdownNode::empty());
            top.request_shutdown();
            looks.fetch_add(1, Ordering::SeqCst);
        }
    };
    let (on_end, on_error, on_shutdown) = (look(), look(), look());
    let _end = tail.end().on_cancel(move |_| on_end());
    let _error = top.on_error(move |_| on_error());
    let _asked = top.on_shutdown(on_shutdown);
    struct Looks<F: Fn()>(F);
    impl<F: Fn()> Drop for Looks<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    impl<F: Fn()> std::fmt::Debug for Looks<F> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Looks")
        }
    }
    impl<F: Fn()> std::fmt::Display for Looks<F> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Looks")
        }
    }
    impl<F: Fn() + Send + Sync> std::error::Error for Looks<F> {}
    tail.fail("first");
    let refused = Looks(look());
    let error: procession::BoxError = Box::new(refused);
    assert!(!tail.fail(error), "the second error is dropped, and looks");
    assert_eq!(looks.load(Ordering::SeqCst), 4, "the error, the shutdown that it asks for, the end, the dropped one");
    assert!(tail.end().is_cancelled());
    drop((tail, top_tail));
    top.shutdown_timeout(LIMIT).unwrap();
}

#[derive(PartialEq, Eq)]
struct Loud;

impl Key for Loud {
    type Value = Bomb;
}

#[derive(Debug)]
struct Bomb(Arc<AtomicUsize>);

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("in a destructor"));
    }
}

#[test]
fn panics_of_destructors_and_callbacks_are_contained() {
    let drops = Arc::new(AtomicUsize::new(0));
    let bomb = || Bomb(drops.clone());
    let (child, tail) = ShutdownNode::job([ShutdownNode::value(Loud, bomb(), []), ShutdownNode::error(bomb(), [])]);
    tail.fail(bomb());
    assert!(!tail.fail(bomb()));
    let held = bomb();
    child.on_shutdown(move || drop(held)).keep();
    let (open, open_tail) = job();
    open.on_error(|_| std::panic::resume_unwind(Box::new("in a callback"))).keep();
    open_tail.fail(bomb());
    // Several of one node, dropped one after the other: a panic of one must not meet that of the next.
    for _ in 0..3 {
        let never = bomb();
        open.on_shutdown(move || drop(never)).keep();
    }
    let on_end = tail.end().on_cancel(|_| std::panic::resume_unwind(Box::new("in a callback")));
    let (top, top_tail) = ShutdownNode::job([child]);
    top.request_shutdown();
    assert!(tail.end().is_cancelled());
    tail.done();
    assert!(top_tail.end().is_cancelled());
    top_tail.done();
    top.shutdown_timeout(ZERO).unwrap();
    drop((top, tail, top_tail, on_end, open, open_tail));
    assert_eq!(drops.load(Ordering::SeqCst), 9);
}

#[test]
fn a_tree_that_nobody_holds_any_more_goes_on_as_long_as_its_jobs_do() {
    let (state, tail) = job();
    let (above, above_tail) = ShutdownNode::job([state]);
    drop(above);
    assert!(!tail.end().is_cancelled());
    drop(above_tail);
    tail.done();
}

#[test]
fn a_tail_may_be_dropped_by_a_destructor_of_the_tree() {
    struct Holds(#[allow(dead_code)] Option<JobGuard>);
    #[derive(PartialEq, Eq)]
    struct Place;
    impl Key for Place {
        type Value = Holds;
    }
    let (other, tail) = job();
    let tree = ShutdownNode::merge([ShutdownNode::value(Place, Holds(Some(tail)), [])]);
    assert!(!other.is_closed());
    drop(tree);
    assert!(other.is_closed());
}

#[test]
fn tails_may_be_dropped_while_a_thread_ends() {
    thread_local!(static KEPT: std::cell::RefCell<Vec<JobGuard>> = const { std::cell::RefCell::new(Vec::new()) });
    let (state, tail) = job();
    let (above, above_tail) = ShutdownNode::job([state.clone()]);
    above.request_shutdown();
    wait(std::thread::spawn(move || KEPT.with(|kept| kept.borrow_mut().push(tail)))).unwrap();
    assert!(state.wait_closed_timeout(LIMIT).is_ok());
    assert!(above_tail.end().is_cancelled());
}
