//! Calls that cause other calls, without a deep stack.
//!
//! A call may cause another one, which runs inside the first. The calls of a thread nest to a given depth. Deeper calls
//! wait in a list of the thread, and run when the innermost call has returned.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::primitives::LocalKey;

/// The calls of one kind that one thread makes.
pub(crate) struct Nesting {
    /// How many calls run inside of each other.
    depth: usize,
    /// Calls that came at the greatest depth. The innermost call makes them before it returns.
    waiting: VecDeque<Box<dyn FnOnce()>>,
}

impl Nesting {
    pub(crate) fn none() -> RefCell<Nesting> {
        RefCell::new(Nesting { depth: 0, waiting: VecDeque::new() })
    }
}

/// Makes the call now. If `deepest` calls nest on this thread, it leaves the call to the innermost of them.
pub(crate) fn in_turn(nesting: &'static LocalKey<RefCell<Nesting>>, deepest: usize, call: impl FnOnce() + 'static) {
    let mut call = Some(call);
    let depth = nesting.try_with(|nesting| {
        let mut nesting = nesting.borrow_mut();
        if nesting.depth < deepest {
            nesting.depth += 1;
        } else if let Some(call) = call.take() {
            nesting.waiting.push_back(Box::new(call));
        }
        nesting.depth
    });
    let Some(call) = call else { return };
    call();
    // An ending thread has lost its list.
    let Ok(depth) = depth else { return };
    let next = || nesting.try_with(|nesting| nesting.borrow_mut().waiting.pop_front()).ok().flatten();
    while depth == deepest
        && let Some(call) = next()
    {
        call();
    }
    let _ = nesting.try_with(|nesting| {
        let mut nesting = nesting.borrow_mut();
        nesting.depth -= 1;
        nesting.waiting.shrink_to(deepest);
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    thread_local! {
        static CALLS: RefCell<Nesting> = Nesting::none();
        static DONE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn calls_beyond_the_depth_run_in_order_and_the_list_frees_its_memory() {
        let done = || DONE.with_borrow(Vec::len);
        let call = |number| in_turn(&CALLS, 2, move || DONE.with_borrow_mut(|done| done.push(number)));
        in_turn(&CALLS, 2, move || {
            in_turn(&CALLS, 2, move || {
                (0..10_000).for_each(call);
                assert_eq!(done(), 0, "two calls nest already");
            });
            assert_eq!(done(), 10_000, "the inner call has made them");
            call(10_000);
            assert_eq!(done(), 10_001, "one call nests");
        });
        assert!(DONE.with_borrow(|done| done.is_sorted()));
        CALLS.with_borrow(|calls| assert!(calls.depth == 0 && calls.waiting.capacity() <= 4));
    }
}
