//! Compares the table of phases and arrows on top of `node.rs` with the code, and tests internals.

use std::time::Duration;

use super::ShutdownNode;
use super::cascade;
use super::error::AddError;
use super::node::{Life, Moves, Node, Own};
use super::wait;
use crate::clock::{Clock, Deadline};
use crate::outcome::{BoxError, Failure};
use crate::primitives::{Arc, Mutex, OnceLock, Weak, lock, thread};
use crate::threads;
use crate::wait::wait;

/// Returns the first cells of a table's rows.
fn rows<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let table = page.split(&format!("//! | {head} |")).nth(1).unwrap_or_default();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with("//! |"));
    lines.map(|line| line.split('`').nth(1).unwrap_or_default()).collect()
}

#[test]
fn the_tables_name_the_phases_and_the_arrows_that_there_are() {
    let page = include_str!("node.rs");
    let phases = [Life::Open, Life::Closing, Life::Told, Life::Done].map(|life| format!("{life:?}"));
    assert_eq!(rows(page, "phase"), phases);
    let arrows = rows(page, "arrow");
    assert_eq!(arrows, ["ask", "strike", "end_own", "give_up", "release"]);
    let code = page;
    let makes = code.matches("/// Arrow: ").count();
    assert_eq!(makes, arrows.len(), "each of them is marked as an arrow");
    assert!(arrows.iter().all(|arrow| code.contains(&format!(" fn {arrow}("))));
}

/// Returns the phase of a node, and the state of its own work.
fn look(node: &Arc<Node>) -> (Life, Own) {
    let inner = node.lock();
    (inner.life, inner.own)
}

fn act(node: &Arc<Node>, arrow: &str) {
    cascade::after(|moves: &mut Moves| match arrow {
        "ask" => node.ask(&Arc::default(), moves),
        "end_own" => node.end_own(moves),
        "cancel" => node.cancel(moves),
        "give_up" => drop(node.give_up(moves).then_some(())),
        other => panic!("there is no arrow {other}"),
    });
}

#[test]
fn each_arrow_leads_from_each_phase_where_the_table_says() {
    use Life::{Closing, Done, Open, Told};
    use Own::{Cancelled, Ended, GivenUp, Held, Nothing, Works};
    // A node with an open child (`true`) or with none, the arrows, and the state to which each of them leads.
    type Row = (Own, bool, &'static [(&'static str, Life, Own)]);
    let table: &[Row] = &[
        (Works, false, &[("end_own", Done, Ended), ("ask", Done, Ended), ("end_own", Done, Ended)]),
        (Works, false, &[("ask", Told, Works), ("ask", Told, Works), ("end_own", Done, Ended)]),
        (Works, false, &[("give_up", Open, Works), ("cancel", Open, Works), ("ask", Told, Works)]),
        (Works, false, &[("ask", Told, Works), ("cancel", Told, Cancelled), ("end_own", Done, Ended)]),
        (Works, false, &[("ask", Told, Works), ("give_up", Done, GivenUp), ("end_own", Done, Ended)]),
        (Works, true, &[("end_own", Open, Ended), ("ask", Closing, Ended), ("give_up", Closing, Ended)]),
        (Works, true, &[("ask", Closing, Works), ("give_up", Closing, Works), ("end_own", Closing, Ended)]),
        (Held, false, &[("end_own", Done, Ended), ("ask", Done, Ended)]),
        (Held, false, &[("ask", Done, Held), ("end_own", Done, Ended)]),
        (Held, true, &[("end_own", Open, Ended), ("ask", Closing, Ended)]),
        (Nothing, false, &[("ask", Done, Nothing), ("end_own", Done, Nothing), ("give_up", Done, Nothing)]),
        (Nothing, true, &[("end_own", Open, Nothing), ("ask", Closing, Nothing), ("ask", Closing, Nothing)]),
    ];
    for (own, has_child, arrows) in table {
        let (child, child_tail) = ShutdownNode::job([]);
        let children = has_child.then_some(child);
        // In the library the guards are dropped at once. Here they must not be, because the test makes the arrows
        // itself.
        let (state, _keep): (ShutdownNode, Box<dyn std::any::Any>) = match own {
            Works => {
                let (state, tail) = ShutdownNode::job(children);
                (state, Box::new(tail))
            }
            Held => {
                let (state, tail) = ShutdownNode::counted(children);
                (state, Box::new(tail))
            }
            _ => (ShutdownNode::merge(children), Box::new(())),
        };
        for (arrow, life, own_then) in *arrows {
            act(&state.node, arrow);
            assert_eq!(
                look(&state.node),
                (*life, *own_then),
                "{own:?}, child {has_child}, after {arrow} of {arrows:?}"
            );
        }
        // The last arrow: the child is done.
        let before = look(&state.node);
        drop(child_tail);
        let then = match before {
            (Open, Ended | Nothing) | (Closing, Ended | Nothing | Held) => Done,
            (Closing, Works) => Told,
            (life, _) => life,
        };
        assert_eq!(look(&state.node).0, then, "{own:?}, child {has_child}, the child is done");
    }
}

#[test]
fn counters_that_hand_work_to_each_other_are_not_taken_for_idle() {
    let ((one, one_counter), (two, two_counter)) = (ShutdownNode::counted([]), ShutdownNode::counted([]));
    let all = ShutdownNode::merge([one.clone(), two.clone()]);
    let look = |node: &ShutdownNode| wait::look(&node.node, &Clock::system(), Deadline::NEVER).unwrap();
    // Two looks are the same only if no counter was raised between them.
    let idle = look(&all);
    assert!(look(&all) == idle);
    drop(one_counter.add());
    let raised = look(&all);
    assert!(raised != idle && raised == look(&all));
    // The work moves from the counter that was visited last to the one that was visited first.
    drop(two_counter.add());
    assert!(look(&all) != raised);
    // Another counter at the same place, raised equally often, must not be taken for the first one.
    assert!(look(&one) != look(&two));
    // A counter that was added after the first look, and removed before the second, may have had the work in the
    // meantime.
    let (group, takes_in) = ShutdownNode::group([]);
    let all = ShutdownNode::merge([two, group]);
    let before = look(&all);
    let (passing, passing_counter) = ShutdownNode::counted([]);
    let passes = |node: ShutdownNode| takes_in.add(ShutdownNode::merge([node])).unwrap();
    passes(passing);
    drop(passing_counter);
    let after_passing = look(&all);
    assert!(takes_in.is_empty() && after_passing != before);
    let (job, job_guard) = ShutdownNode::job([]);
    passes(job);
    drop(job_guard);
    assert!(look(&all) == after_passing, "a node that counts nothing may pass");
}

#[test]
fn a_look_at_counters_sees_that_one_was_raised_since_and_where_it_looked() {
    let ((one, counter), (two, _two)) = (ShutdownNode::counted([]), ShutdownNode::counted([]));
    let all = ShutdownNode::merge([one, two]);
    let look = || {
        let look = wait::look(&all.node, &Clock::system(), Deadline::NEVER).unwrap();
        look.iter().map(|seen| seen.raised).collect::<Vec<_>>()
    };
    assert_eq!(look(), [0, 0]);
    drop(counter.add());
    assert_eq!(look(), [1, 0]);
    let guard = counter.add();
    let over = Clock::system().deadline(Duration::ZERO);
    assert!(wait::look(&all.node, &Clock::system(), over).is_none());
    let lowers = thread::spawn(move || drop(guard));
    assert_eq!(look(), [2, 0]);
    wait(lowers).unwrap();
}

#[test]
fn a_state_that_many_depend_on_for_a_while_does_not_grow() {
    let (store, _tail) = ShutdownNode::job([]);
    let (_group_state, group) = ShutdownNode::group([]);
    for _ in 0..1_000 {
        let (request, tail) = ShutdownNode::job([store.clone()]);
        drop(request.depends_on([store.clone()]));
        // It is added, removed, and refused.
        group.add(ShutdownNode::merge([request.clone()])).unwrap();
        tail.done();
        let ((one, one_group), (two, _)) = (ShutdownNode::group([store.clone()]), ShutdownNode::group([]));
        one_group.add(two).unwrap();
        assert_eq!(*one_group.add(one).unwrap_err().reason(), AddError::Cycle);
    }
    assert_eq!(group.len(), 1_000, "they wait for the store");
    assert_eq!(store.node.lock().links(), 1_000);
    drop((group, _group_state));
    assert_eq!(store.node.lock().links(), 0);
}

#[test]
fn limits_for_which_there_is_no_thread_leave_the_job_waited_for() {
    let (state, tail) = ShutdownNode::builder().give_up_after(Duration::ZERO).job();
    threads::refuse(true);
    state.request_shutdown();
    threads::refuse(false);
    assert!(tail.end().is_cancelled() && !state.is_closed());
    tail.done();
    assert!(state.is_closed());
}

#[test]
fn a_thread_that_the_system_refuses_gives_the_work_back() {
    threads::refuse(true);
    let refused = ShutdownNode::thread("worker", |_| Ok(()));
    threads::refuse(false);
    assert_eq!(refused.unwrap_err().reason().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn an_error_on_its_way_up_survives_the_removal_of_its_node() {
    let (job, tail) = ShutdownNode::job([]);
    let (above, group) = ShutdownNode::group([]);
    group.add(ShutdownNode::merge([job.clone()])).unwrap();
    // One thread sets an error and is delayed. Another one reports the end in the meantime.
    let mut held_up = Moves::default();
    assert!(job.node.set_error(Failure::from(BoxError::from("late")), &mut held_up).is_ok());
    tail.done();
    assert!(group.is_empty());
    assert_eq!(above.err().unwrap().to_string(), "late");
    cascade::run(held_up);
    assert_eq!(above.err().unwrap().to_string(), "late");
}

#[test]
fn what_ends_while_it_is_being_given_up_leaves_its_group_all_the_same() {
    let (job, tail) = ShutdownNode::job([]);
    let (above, group) = ShutdownNode::group([]);
    group.add(job.clone()).unwrap();
    job.request_shutdown();
    // The thread whose limit is over is delayed before the group is notified.
    let mut held_up = Moves::default();
    assert!(job.node.give_up(&mut held_up));
    tail.done();
    cascade::run(held_up);
    assert_eq!(above.report().nodes().len(), 1);
}

#[test]
fn a_shutdown_succeeds_as_soon_as_the_last_given_up_job_has_ended() {
    let (job, _guard) = ShutdownNode::job([]);
    let above = ShutdownNode::merge([job.clone()]);
    act(&above.node, "ask");
    act(&job.node, "give_up");
    assert!(above.shutdown_timeout(Duration::ZERO).unwrap_err().open()[0].was_given_up());
    // The thread that reports the end is delayed before the node above is notified.
    let mut held_up = Moves::default();
    job.node.end_own(&mut held_up);
    above.shutdown_timeout(Duration::ZERO).unwrap();
    cascade::run(held_up);
    above.shutdown_timeout(Duration::ZERO).unwrap();
}

#[test]
fn a_shutdown_fails_if_a_job_is_given_up_between_two_looks_of_its_report() {
    // The report visits the job while its children are open. Then it calls the description, which ends them and gives
    // the job up. Then it visits the children.
    let ((before, before_guard), (last, last_guard)) = (ShutdownNode::job([]), ShutdownNode::job([]));
    let (guards, job) = (Mutex::new(vec![before_guard, last_guard]), Arc::new(OnceLock::<Weak<Node>>::new()));
    let given_up = job.clone();
    let mut describes = ShutdownNode::builder().detail(move || {
        lock(&guards).drain(..).for_each(drop);
        act(&given_up.get()?.upgrade()?, "give_up");
        None
    });
    describes.after = Some(before);
    let (node, _guard) = ShutdownNode::job([describes.merge(), last]);
    assert!(job.set(Arc::downgrade(&node.node)).is_ok());
    let above = ShutdownNode::merge([node.clone()]);
    let error = above.shutdown_timeout(Duration::ZERO).unwrap_err();
    assert!(error.open().is_empty() && above.is_closed());
    assert!(above.shutdown().unwrap_err().open()[0].was_given_up());
}

#[test]
fn a_node_that_comes_to_where_another_one_was_is_looked_at_all_the_same() {
    let ((one, leaving), (two, coming)) = (ShutdownNode::group([]), ShutdownNode::group([]));
    let (passes, tail) = ShutdownNode::job([]);
    leaving.add(passes.annotate("leaves")).unwrap();
    let all = ShutdownNode::merge([one, two.clone()]);
    let (mut tail, mut tails, mut seen) = (Some(tail), Vec::new(), 0);
    super::walk::walk::<()>(&all.node, |place| {
        seen += 1;
        if Arc::ptr_eq(place.node, &two.node) {
            // The visited nodes end, and others are made in their place.
            drop(tail.take());
            for _ in 0..16 {
                let (comes, tail) = ShutdownNode::job([]);
                coming.add(comes.annotate("comes")).unwrap();
                tails.push(tail);
            }
        }
        std::ops::ControlFlow::Continue(place.node.lock().below())
    });
    assert_eq!(seen, 5 + 2 * coming.len());
}

#[test]
fn a_wait_for_counters_ends_at_its_limit_despite_new_counters() {
    let (group, takes_in) = ShutdownNode::group([]);
    let looks = std::cell::Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        takes_in.add(ShutdownNode::counted([]).0).unwrap();
        wait::look(&group.node, &Clock::system(), Deadline::NEVER)
    };
    assert!(!wait::zeros(look, || looks.get() >= 10));
    assert_eq!(looks.get(), 10);
    let (calm, _counter) = ShutdownNode::counted([]);
    let all = ShutdownNode::merge([calm, group]);
    let look = || wait::look(&all.node, &Clock::system(), Deadline::NEVER);
    assert!(wait::zeros(look, || true), "two looks there are in any case");
}

#[test]
#[cfg(not(procession_sanitize_thread))]
fn a_wait_for_readiness_does_not_follow_a_growing_group() {
    use crate::crowd::Crowd;
    let crowd = Crowd::new();
    let (state, group) = ShutdownNode::group([]);
    let add = || {
        let (member, tail) = ShutdownNode::readiness([]);
        group.add(member).unwrap();
        tail
    };
    let first: Vec<_> = (0..10).map(|_| add()).collect();
    let waits = state.clone();
    let waiter = threads::start(String::from("waiter"), move || waits.wait_ready().unwrap()).unwrap();
    let mut later = Vec::new();
    for tail in first {
        // It waits for this one.
        crowd.until_idle();
        later.push(add());
        tail.ok();
    }
    crate::wait::wait(waiter).unwrap();
    assert!(!state.is_ready(), "it has not waited for those that came later");
    later.iter().for_each(|tail| tail.ok());
    assert!(state.is_ready());
}
