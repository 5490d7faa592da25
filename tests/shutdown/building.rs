//! A: what trees are made of.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::ShutdownNode;
use procession::shutdown::{Key, Kind, ShutdownNodeBuilder};

use crate::support::{LIMIT, ZERO, job, told};
use crate::wait::{Barrier, wait};

#[derive(PartialEq, Eq)]
struct Mark;

impl Key for Mark {
    type Value = u32;
}

/// A state of each kind over these children, and whatever keeps it as it is.
fn every_kind(children: &[ShutdownNode]) -> Vec<(ShutdownNode, Box<dyn Send>)> {
    let children = || children.to_vec();
    fn kept<T: Send + 'static>((state, tail): (ShutdownNode, T)) -> (ShutdownNode, Box<dyn Send>) {
        (state, Box::new(tail))
    }
    vec![
        kept((ShutdownNode::merge(children()), ())),
        kept(ShutdownNode::group(children())),
        kept(ShutdownNode::job(children())),
        kept(ShutdownNode::counted(children())),
        kept(ShutdownNode::readiness(children())),
        kept((ShutdownNode::error("broken", children()), ())),
        kept((ShutdownNode::result(Ok::<(), String>(()), children()), ())),
        kept(ShutdownNode::errors(children())),
        kept((ShutdownNode::value(Mark, 7, children()), ())),
        kept((ShutdownNode::merge(children()).annotate("name"), ())),
        kept((ShutdownNode::empty().depends_on(children()), ())),
    ]
}

#[test]
fn every_kind_answers_every_question() {
    let mut kinds = HashSet::new();
    let states = every_kind(&[]).into_iter().chain([(ShutdownNode::empty(), Box::new(()) as Box<dyn Send>)]);
    for (state, tail) in states {
        kinds.insert(state.report().nodes()[0].kind);
        let kind = state.report().nodes()[0].kind;
        assert!(state.wait_timeout(ZERO).is_ok());
        assert_eq!(state.is_ready(), kind != Kind::Readiness, "{kind}");
        assert_eq!(state.wait_ready_timeout(ZERO).is_ok(), kind != Kind::Readiness, "{kind}");
        let _ = (state.err(), state.failed_timeout(ZERO), state.get(&Mark), state.is_closed(), state.name());
        let above = state.depends_on([ShutdownNode::empty()]);
        assert_eq!(above.shutdown_timeout(ZERO).is_ok(), kind != Kind::Job, "{kind}");
        drop(tail);
        above.shutdown_timeout(LIMIT).unwrap();
        state.shutdown_timeout(LIMIT).unwrap();
    }
    assert_eq!(kinds.len(), 11, "{kinds:?}");
}

#[test]
fn every_kind_takes_any_number_of_children() {
    for many in [0, 1, 5] {
        for place in 0..every_kind(&[]).len() {
            let (children, tails): (Vec<_>, Vec<_>) = (0..many).map(|_| job()).unzip();
            let (state, own) = every_kind(&children).swap_remove(place);
            state.request_shutdown();
            assert!(tails.iter().all(|tail| tail.end().is_cancelled()), "kind {place} tells all {many}");
            assert_eq!(state.is_closed(), many == 0 && state.report().nodes()[0].kind != Kind::Job);
            drop((tails, own));
            assert!(state.is_closed());
        }
    }
}

#[test]
fn a_merge_is_all_its_children() {
    let (counted, counter) = ShutdownNode::counted([]);
    let (unready, ready) = ShutdownNode::readiness([]);
    let (one, one_tail) = job();
    let all = ShutdownNode::merge([
        one,
        counted,
        unready,
        ShutdownNode::error("broken", []),
        ShutdownNode::value(Mark, 3, []),
    ]);
    let guard = counter.add();
    assert!(all.wait_timeout(ZERO).is_err() && !all.is_ready());
    drop(guard);
    ready.ok();
    assert!(all.wait_timeout(ZERO).is_ok() && all.is_ready());
    assert_eq!(all.err().unwrap().to_string(), "broken");
    assert_eq!(all.get(&Mark).as_deref(), Some(&3));
    assert!(all.shutdown_timeout(ZERO).is_err());
    one_tail.done();
    all.shutdown_timeout(LIMIT).unwrap();
}

#[test]
fn an_absent_child_is_skipped_at_any_place() {
    for absent in 0..3 {
        let mut jobs: Vec<_> = (0..3).map(|_| Some(job())).collect();
        jobs[absent] = None;
        let tails: Vec<_> = jobs.iter_mut().filter_map(|job| job.as_mut().map(|job| &job.1)).collect();
        let tails: Vec<_> = tails.into_iter().map(|tail| tail.job()).collect();
        let (states, owners): (Vec<_>, Vec<_>) = jobs.into_iter().map(Option::unzip).unzip();
        let all = ShutdownNode::merge(states.into_iter().flatten());
        all.request_shutdown();
        assert!(tails.iter().all(|tail| tail.end().is_cancelled()));
        assert!(!all.is_closed());
        drop(owners);
        assert!(all.is_closed());
    }
    // Whatever takes children.
    type Make = fn(Vec<Option<ShutdownNode>>) -> ShutdownNode;
    let makes: [Make; 8] = [
        |all| ShutdownNode::merge(all.into_iter().flatten()),
        |all| ShutdownNode::counted(all.into_iter().flatten()).0,
        |all| ShutdownNode::readiness(all.into_iter().flatten()).0,
        |all| ShutdownNode::error("broken", all.into_iter().flatten()),
        |all| ShutdownNode::errors(all.into_iter().flatten()).0,
        |all| ShutdownNode::value(Mark, 3, all.into_iter().flatten()),
        |all| ShutdownNode::empty().depends_on(all.into_iter().flatten()),
        |all| ShutdownNode::builder().children(all.into_iter().flatten()).group().0,
    ];
    for make in makes {
        for absent in 0..3 {
            let ((one, one_tail), (two, two_tail)) = (job(), job());
            let mut all = vec![Some(one), Some(two)];
            all.insert(absent, None);
            let state = make(all);
            let nodes = state.report().nodes().len();
            assert_eq!(nodes - usize::from(state.report().nodes()[0].kind == Kind::Dependency), 3);
            state.request_shutdown();
            assert!(one_tail.end().is_cancelled() && two_tail.end().is_cancelled());
            one_tail.done();
            assert!(!state.is_closed());
            two_tail.done();
            assert!(state.is_closed());
        }
    }
    // One that may be absent is a list of its own.
    let (alone, tail) = ShutdownNode::job(None);
    alone.request_shutdown();
    assert!(tail.end().is_cancelled());
}

#[test]
fn a_merge_of_nothing_is_closed_calm_and_without_error_or_value() {
    for nothing in [ShutdownNode::merge([]), ShutdownNode::merge([None, None].into_iter().flatten())] {
        assert!(nothing.shutdown_timeout(ZERO).is_ok() && nothing.wait_timeout(ZERO).is_ok() && nothing.is_ready());
        assert!(nothing.err().is_none() && nothing.get(&Mark).is_none());
    }
}

#[test]
fn a_dependency_leaves_those_it_is_made_of_as_they_are() {
    let ((parent, parent_tail), (child, child_tail)) = (job(), job());
    let both = parent.depends_on([child.clone()]);
    child.request_shutdown();
    assert_eq!(told([&child_tail, &parent_tail]), [true, false]);
    parent.request_shutdown();
    assert_eq!(told([&child_tail, &parent_tail]), [true, true], "alone it does not wait for the child");
    drop((parent_tail, child_tail));
    both.shutdown_timeout(LIMIT).unwrap();

    let names = ShutdownNode::merge([ShutdownNode::empty(), ShutdownNode::empty()]).annotate("nothing");
    let (child, tail) = job();
    let kept = names.depends_on([child]);
    assert!(kept.report().find("nothing").is_some(), "{}", kept.report());
    drop(tail);
}

#[test]
fn in_a_diamond_each_closes_once_and_in_order() {
    let (leaf, leaf_tail) = job();
    let (left, left_tail) = ShutdownNode::job([leaf.clone()]);
    let (right, right_tail) = ShutdownNode::job([leaf]);
    let (top, top_tail) = ShutdownNode::job([left, right]);
    let count = Arc::new(AtomicUsize::new(0));
    let _counts = [&leaf_tail, &left_tail, &right_tail, &top_tail].map(|tail| {
        let count = count.clone();
        tail.end().on_cancel(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
    });
    top.request_shutdown();
    assert_eq!(told([&leaf_tail, &left_tail, &right_tail, &top_tail]), [true, false, false, false]);
    leaf_tail.done();
    assert_eq!(told([&leaf_tail, &left_tail, &right_tail, &top_tail]), [true, true, true, false]);
    left_tail.done();
    assert!(!top_tail.end().is_cancelled());
    right_tail.done();
    assert!(top_tail.end().is_cancelled() && !top.is_closed());
    top_tail.done();
    assert!(top.is_closed());
    assert_eq!(count.load(Ordering::SeqCst), 4, "each was told once");
    assert_eq!(top.report().nodes().len(), 4, "and is reported once");
}

#[test]
fn a_state_that_is_given_twice_closes_once() {
    let (twice, tail) = job();
    let all = ShutdownNode::merge([twice.clone(), twice.clone()]);
    all.request_shutdown();
    assert!(tail.end().is_cancelled() && !all.is_closed());
    tail.done();
    all.shutdown_timeout(LIMIT).unwrap();
}

#[test]
fn everything_may_be_done_from_many_threads_at_once() {
    for _ in 0..50 {
        let (counted, counter) = ShutdownNode::counted([]);
        let (unready, ready) = ShutdownNode::readiness([counted]);
        let (errors, error_tail) = ShutdownNode::errors([unready]);
        let (group_state, group) = ShutdownNode::group([errors]);
        let (top, tail) = ShutdownNode::job([group_state]);
        let together = Barrier::new(6);
        std::thread::scope(|scope| {
            // Joined by hand: the sanitizer does not see how a scope waits for its threads.
            let mut threads = Vec::new();
            threads.push(scope.spawn(|| {
                wait(&together);
                for _ in 0..20 {
                    let _ = group.add(ShutdownNode::thread("short", |_| Ok(())).unwrap());
                    drop(counter.add());
                }
            }));
            threads.push(scope.spawn(|| {
                wait(&together);
                error_tail.set("one");
                ready.ok();
            }));
            threads.push(scope.spawn(|| {
                wait(&together);
                let _ = (top.report(), top.err(), top.is_ready(), top.get(&Mark), top.wait_timeout(LIMIT));
            }));
            threads.push(scope.spawn(|| {
                wait(&together);
                top.shutdown_timeout(LIMIT).unwrap();
            }));
            threads.push(scope.spawn(|| {
                wait(&together);
                let above = ShutdownNode::merge([top.clone()]);
                above.shutdown_timeout(LIMIT).unwrap();
            }));
            wait(&together);
            wait(tail.end());
            tail.done();
            threads.into_iter().for_each(|thread| wait(thread).unwrap());
        });
        assert!(top.is_closed());
        assert_eq!(top.err().unwrap().to_string(), "one");
    }
}

#[test]
fn a_type_of_the_users_can_carry_a_state() {
    struct Server {
        node: ShutdownNode,
    }
    impl Server {
        fn shutdown_node(&self) -> ShutdownNode {
            self.node.clone()
        }
    }
    let ((database, database_tail), (server, server_tail)) = (job(), job());
    let (database, server) = (Server { node: database }, Server { node: server });
    let all = server.shutdown_node().depends_on([database.shutdown_node()]);
    all.request_shutdown();
    assert_eq!(told([&database_tail, &server_tail]), [true, false]);
}

/// Threads of this process, where the system says so.
fn threads() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok())
}

#[test]
fn building_and_shutting_down_a_tree_starts_no_thread() {
    // In a process of its own, for the other tests start threads.
    if std::env::var_os("PROCESSION_COUNT_THREADS").is_none() {
        let name = "building::building_and_shutting_down_a_tree_starts_no_thread";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args([name, "--exact", "--test-threads=1"]).env("PROCESSION_COUNT_THREADS", "1");
        let output = alone.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let before = threads();
    let (states, tails): (Vec<_>, Vec<_>) = (0..100).map(|_| job()).unzip();
    let names = states.into_iter().map(|state| ShutdownNode::readiness([state.annotate("one")]));
    let (states, ready): (Vec<_>, Vec<_>) = names.unzip();
    let all = ShutdownNode::merge(states);
    assert_eq!(threads(), before, "a tree costs no threads");
    assert!(all.wait_ready_timeout(ZERO).is_err() && all.shutdown_timeout(ZERO).is_err());
    assert_eq!(threads(), before, "nor does waiting for it");
    drop((tails, ready));
    all.shutdown_timeout(LIMIT).unwrap();
    assert_eq!(threads(), before);
}

#[test]
fn options_can_be_shown_and_stand_for_a_merge() {
    let builder: ShutdownNodeBuilder = ShutdownNode::builder().name("all").children([ShutdownNode::empty()]);
    assert!(format!("{builder:?}").contains("all"));
    let all = builder.merge();
    assert_eq!((all.name(), all.report().nodes().len()), (Some("all"), 2));
    assert!(format!("{all:?}").contains("Merge"));
}
