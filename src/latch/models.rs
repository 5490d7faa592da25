//! The races of the latch, as the model checker runs them.

use super::Latch;

/// Fails if `decided` is read in one critical section and written in another.
#[test]
fn several_want_to_decide_and_one_does() {
    loom::model(|| {
        let latch: Latch<usize> = Latch::new();
        let deciders: Vec<_> = (1..=2)
            .map(|n| {
                let latch = latch.clone();
                loom::thread::spawn(move || latch.set(n).is_ok())
            })
            .collect();
        let seen = latch.wait();
        let decided: Vec<bool> = deciders.into_iter().map(|decider| decider.join().unwrap()).collect();
        assert_eq!(decided, [seen == 1, seen == 2], "one decided, and the waiter saw its value");
        assert_eq!(latch.get(), Some(seen));
    });
}
