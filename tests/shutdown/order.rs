//! C: the order in which a tree closes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use procession::ShutdownNode;
use procession::shutdown::JobGuard;
use procession::sync::Latch;

use crate::support::{LIMIT, Mutex, ZERO, job, told};
use crate::wait::{Barrier, wait};

#[test]
fn children_close_first_and_at_each_stage_only_the_next_is_told() {
    let (one, one_tail) = job();
    let (two, two_tail) = ShutdownNode::job([one]);
    let (three, three_tail) = ShutdownNode::job([two]);
    let stages = || told([&one_tail, &two_tail, &three_tail]);
    assert_eq!(stages(), [false, false, false]);
    three.request_shutdown();
    assert_eq!(stages(), [true, false, false]);
    one_tail.done();
    assert_eq!(stages(), [true, true, false]);
    two_tail.done();
    assert_eq!(stages(), [true, true, true]);
    assert!(!three.is_closed());
    three_tail.done();
    assert!(three.is_closed());
}

#[test]
fn children_are_told_at_the_same_time_and_close_side_by_side() {
    // Each goes on only when all have been told, and they end in an order that is not that of the list.
    let order = Arc::new(Mutex::new(Vec::new()));
    let all_told = Arc::new(Barrier::new(3));
    let turns: Vec<Latch<()>> = (0..4).map(|_| Latch::new()).collect();
    turns[0].set(()).unwrap();
    let children = [2_usize, 0, 1].map(|turn| {
        let (order, all_told, turns) = (order.clone(), all_told.clone(), turns.clone());
        ShutdownNode::thread(format!("child-{turn}"), move |job| {
            wait(job.end());
            wait(&all_told);
            wait(&turns[turn]);
            order.lock().unwrap().push(turn);
            turns[turn + 1].set(()).unwrap();
            Ok(())
        })
        .unwrap()
    });
    ShutdownNode::merge(children).shutdown_timeout(LIMIT).unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn who_depends_on_several_is_told_when_all_are_done() {
    let ((a, a_tail), (b, b_tail), (c, c_tail)) = (job(), job(), job());
    let all = c.depends_on([a, b]);
    all.request_shutdown();
    assert_eq!(told([&a_tail, &b_tail, &c_tail]), [true, true, false]);
    b_tail.done();
    assert_eq!(told([&c_tail]), [false]);
    a_tail.done();
    assert_eq!(told([&c_tail]), [true]);
}

#[test]
fn chained_dependencies_close_from_the_last_to_the_first() {
    let ((a, a_tail), (b, b_tail), (c, c_tail)) = (job(), job(), job());
    let all = c.depends_on([a]).depends_on([b]);
    all.request_shutdown();
    assert_eq!(told([&b_tail, &a_tail, &c_tail]), [true, false, false]);
    b_tail.done();
    assert_eq!(told([&b_tail, &a_tail, &c_tail]), [true, true, false]);
    a_tail.done();
    assert_eq!(told([&b_tail, &a_tail, &c_tail]), [true, true, true]);
    c_tail.done();
    all.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn children_close_in_the_same_order_however_they_were_given() {
    let with = |children: Vec<ShutdownNode>, depends: bool| -> (ShutdownNode, JobGuard) {
        if depends {
            let (state, tail) = job();
            (state.depends_on(children), tail)
        } else {
            ShutdownNode::job(children)
        }
    };
    for depends in [false, true] {
        let ((a, a_tail), (b, b_tail)) = (job(), job());
        let (all, tail) = with(vec![a, b], depends);
        let mut stages = Vec::new();
        let mut look = || stages.push(told([&a_tail, &b_tail, &tail]));
        all.request_shutdown();
        look();
        a_tail.done();
        look();
        b_tail.done();
        look();
        assert_eq!(stages, [[true, true, false], [true, true, false], [true, true, true]], "depends: {depends}");
    }
}

#[test]
fn a_dependency_is_done_when_its_parent_is() {
    let ((parent, parent_tail), (child, child_tail)) = (job(), job());
    let all = parent.depends_on([child]);
    let (above, above_tail) = ShutdownNode::job([all.clone()]);
    above.request_shutdown();
    child_tail.done();
    assert!(!all.is_closed() && !above_tail.end().is_cancelled());
    parent_tail.done();
    assert!(all.is_closed() && above_tail.end().is_cancelled());
}

#[test]
fn a_hanging_child_delays_its_parent_and_not_the_reverse() {
    let ((parent, parent_tail), (child, child_tail)) = (job(), job());
    let all = parent.depends_on([child.clone()]);
    assert!(all.shutdown_timeout(ZERO).is_err());
    assert_eq!(told([&child_tail, &parent_tail]), [true, false]);
    assert!(!parent.is_shutting_down());
    child_tail.done();
    assert!(all.shutdown_timeout(ZERO).is_err());
    assert!(child.is_closed() && !all.is_closed() && parent_tail.end().is_cancelled());
}

#[test]
fn an_early_done_does_not_excuse_the_children() {
    let (child, child_tail) = job();
    let (early, early_tail) = ShutdownNode::job([child.clone()]);
    early_tail.done();
    assert!(!early.is_closed(), "what is below it still runs");
    let (above, above_tail) = ShutdownNode::job([early.clone()]);
    assert!(ShutdownNode::merge([above.clone()]).shutdown_timeout(ZERO).is_err());
    assert_eq!(told([&child_tail, &above_tail]), [true, false]);
    child_tail.done();
    assert!(early.is_closed() && above_tail.end().is_cancelled());

    let (child, child_tail) = job();
    let (early, early_tail) = ShutdownNode::job([child]);
    early_tail.done();
    assert!(early.shutdown_timeout(ZERO).is_err(), "nor when it is shut down itself");
    child_tail.done();
    early.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn what_depends_on_itself_closes() {
    let (own, tail) = job();
    let all = own.depends_on([own.clone()]);
    let more = all.depends_on([own.clone(), all.clone()]);
    more.request_shutdown();
    assert!(tail.end().is_cancelled());
    tail.done();
    more.shutdown_timeout(LIMIT).unwrap();
    assert!(all.is_closed());
}

#[test]
fn no_item_is_lost_between_a_producer_and_its_consumer() {
    let (sender, receiver) = mpsc::channel::<u64>();
    let (sent, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (sends, takes, going) = (sent.clone(), taken.clone(), Latch::new());
    let has_begun = going.clone();
    let producer = ShutdownNode::thread("producer", move |job| {
        let mut next = 0;
        while !job.end().is_cancelled() {
            if next == 100_000 {
                // Enough, should it take long until it is told.
                wait(job.end());
                break;
            }
            next += 1;
            sender.send(next)?;
            sends.fetch_add(next, Ordering::SeqCst);
            if next == 100 {
                going.set(()).unwrap();
            }
        }
        // The last item, after it was told.
        sender.send(1_000_000)?;
        sends.fetch_add(1_000_000, Ordering::SeqCst);
        Ok(())
    })
    .unwrap();
    let consumer = ShutdownNode::thread("consumer", move |job| {
        // Told only when the producer is done: what is there then is all.
        wait(job.end());
        for item in receiver.try_iter() {
            takes.fetch_add(item, Ordering::SeqCst);
        }
        Ok(())
    })
    .unwrap();
    let all = consumer.depends_on([producer]);
    wait(&has_begun);
    all.shutdown_timeout(LIMIT).unwrap();
    assert!(all.err().is_none());
    assert_eq!(taken.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
    assert!(taken.load(Ordering::SeqCst) > 1_005_000);
}
