//! Requests to stop, monitors and names between nodes.

use super::net::{Inner, Job, Net, Order, Outer};
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{NameError, Step, StepOutput};
use crate::sched::non_local::Stop;
use crate::wait::wait;

#[test]
fn a_process_of_another_node_is_asked_to_stop_and_the_answer_comes() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    net.does(&one, move |out| {
        out.cancel(far, "enough");
        out.terminate(far);
    });
    assert!(one.seen().is_empty(), "the other node answers");
    net.carry();
    assert_eq!(one.seen(), ["lived Some(true)", "lived Some(true)"]);
    assert!(matches!(wait(&other.handle).without_output(), Exit::Terminated(Reason::Terminated)));
    net.does(&one, move |out| {
        out.cancel(far, "again");
        out.terminate(far);
    });
    net.carry();
    assert_eq!(one.seen(), ["lived Some(false)", "lived Some(false)"]);
    // One that never was.
    let never = Pid::new(far.node(), far.slot() + 5, 9).unwrap();
    net.does(&one, move |out| _ = out.terminate(never));
    net.carry();
    assert!(one.seen()[0].starts_with("answer no such process"));
    // From outside: it is sent.
    let (runtime, third) = (&net.sides[0].0, net.plain(1));
    assert!(runtime.cancel(net.pid(&third, 0), "from outside").unwrap());
    net.carry();
    assert_eq!(third.seen(), ["cancel from outside"]);
    assert!(runtime.terminate(net.pid(&third, 0)).unwrap());
    net.carry();
    assert!(matches!(wait(&third.handle).without_output(), Exit::Terminated(Reason::Terminated)));
    assert!(net.ends.values().all(|end| end.connection.open_questions() == (0, 0)));
}

#[test]
fn a_break_answers_requests_to_stop_and_without_a_connection_each_fails() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    let ask = move |out: &mut StepOutput| {
        out.cancel(far, "enough");
        out.terminate(far);
    };
    net.does(&one, ask);
    net.cut(0, 1);
    net.rests();
    let answers = one.seen();
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.ends_with("its node is down")), "{answers:?}");
    net.does(&one, ask);
    assert_eq!(one.seen(), answers, "at once");
    // The connection has broken, and the node does not know yet.
    let net = Net::new(2);
    let (one, other) = (net.trapping(0), net.plain(1));
    let far = net.pid(&other, 0);
    *lock(&net.ends[&(0, 1)].wires.is_cut) = true;
    net.does(&one, ask);
    let answers = one.seen();
    assert!(answers.iter().all(|answer| answer.ends_with("its node is down")), "{answers:?}");
    net.monitor(&one, &other);
    net.link(&one, &other);
    net.cut(0, 1);
    net.rests();
    assert_eq!(one.seen().len(), 2, "it is told then");
    net.nothing_is_left("broken");
    let down = net.sides[0].0.terminate(far).unwrap_err();
    assert_eq!(down, crate::process::no_such_process::NoSuchProcessError::NodeDown(far));
    assert!(net.sides[0].0.cancel(far, "x").is_err());
    assert!(other.seen().is_empty());
}

#[test]
fn a_request_to_stop_follows_the_messages_of_its_sender() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    net.does(&one, move |out| {
        out.send(far.typed::<Order>(), Order::Note(1));
        out.cancel(far, "enough");
    });
    // Its sender has one queue, whatever the order of senders.
    net.carry_by(&mut |count| count - 1);
    assert_eq!(other.seen(), ["note 1", "cancel enough"]);
}

#[test]
fn the_watchers_of_a_far_process_are_told_its_real_exit() {
    let exits: Vec<(Job, &str)> = vec![
        (Box::new(|_| Ok(Step::Done(()))), "down done"),
        (Box::new(|_| Err(Outer(Inner).into())), "down failed: the order failed"),
        (Box::new(|_| panic!("on purpose: it is watched")), "down panicked: on purpose: it is watched"),
    ];
    for (job, told) in exits {
        let net = Net::new(2);
        let (one, other) = (net.plain(0), net.plain(1));
        net.monitor(&one, &other);
        let watcher = net.sides[0].0.watch(net.pid(&other, 0));
        net.carry();
        // Its messages come first.
        let back = net.pid(&one, 1);
        net.does(&other, move |out| out.send(back.typed::<Order>(), Order::Note(7)));
        net.tell(&other, job);
        // The order of one sender, whatever that of the senders is.
        net.carry_by(&mut |count| count - 1);
        assert_eq!(one.seen(), ["note 7", told]);
        let down = wait(watcher);
        if let Exit::Failed(failure) = &down.exit {
            let cause = std::error::Error::source(failure.error()).unwrap();
            assert_eq!(cause.to_string(), "no stock");
        }
        // It has ended before.
        net.monitor(&one, &other);
        net.carry();
        assert_eq!(one.seen(), ["down terminated (no such process)"]);
        net.nothing_is_left(told);
    }
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    net.monitor(&one, &other);
    net.sides[1].0.terminate(other.handle.pid()).unwrap();
    net.carry();
    // The watch came when it had ended.
    assert_eq!(one.seen(), ["down terminated (no such process)"]);
}

#[test]
fn ten_thousand_monitors_of_one_process_are_one_frame_and_one_entry() {
    const COUNT: usize = 10_000;
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    let monitors = Arc::<Mutex<Vec<_>>>::default();
    let made = monitors.clone();
    net.does(&one, move |out| lock(&made).extend((0..COUNT).map(|_| out.monitor(far))));
    assert_eq!(net.on_the_way(0, 1), 1);
    net.carry();
    assert_eq!((net.tables(0, 1), net.tables(1, 0)), ((1, 0, 0), (0, 1, 0)));
    assert_eq!(net.sides[1].0.core().relations.len(), 1);
    // All but one are taken back, and the last one, too.
    let mut monitors = std::mem::take(&mut *lock(&monitors));
    let last = monitors.pop().unwrap();
    net.does(&one, move |out| monitors.into_iter().for_each(|monitor| out.demonitor(monitor)));
    assert_eq!(net.on_the_way(0, 1), 0);
    net.does(&one, move |out| out.demonitor(last));
    assert_eq!(net.on_the_way(0, 1), 1);
    net.carry();
    net.nothing_is_left("demonitored");
    net.does(&one, move |out| (0..COUNT).for_each(|_| _ = out.monitor(far)));
    net.carry();
    net.done(&other);
    assert_eq!(net.on_the_way(1, 0), 1);
    net.carry();
    let seen = one.seen();
    assert_eq!((seen.len(), seen.iter().all(|event| event == "down done")), (COUNT, true));
    net.nothing_is_left("ended");
}

#[test]
fn a_watch_ends_with_the_watcher_and_with_the_drop_of_one_outside() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    net.monitor(&one, &other);
    let outside = net.sides[0].0.watch(net.pid(&other, 0));
    net.carry();
    net.done(&one);
    net.carry();
    assert_eq!(net.tables(1, 0), (0, 1, 0));
    drop(outside);
    net.carry();
    net.nothing_is_left("nobody watches");
}

#[test]
fn after_a_demonitor_nothing_comes_and_a_later_monitor_is_told_once() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    let monitor = Arc::<Mutex<Option<_>>>::default();
    let made = monitor.clone();
    net.does(&one, move |out| *lock(&made) = Some(out.monitor(far)));
    net.carry();
    net.done(&other);
    // It is on its way.
    assert_eq!(net.on_the_way(1, 0), 1);
    let monitor = lock(&monitor).take().unwrap();
    net.does(&one, move |out| out.demonitor(monitor));
    net.carry();
    assert!(one.seen().is_empty());
    net.nothing_is_left("demonitored");

    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    net.does(&one, move |out| {
        let monitor = out.monitor(far);
        out.demonitor(monitor);
        out.monitor(far);
    });
    net.done(&other);
    net.carry();
    assert_eq!(one.seen(), ["down terminated (no such process)"]);
    // As before, but the first end meets the second watch.
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    let monitor = Arc::<Mutex<Option<_>>>::default();
    let made = monitor.clone();
    net.does(&one, move |out| *lock(&made) = Some(out.monitor(far)));
    net.carry();
    net.done(&other);
    let monitor = lock(&monitor).take().unwrap();
    net.does(&one, move |out| {
        out.demonitor(monitor);
        out.monitor(far);
    });
    net.carry();
    assert_eq!(one.seen(), ["down done"]);
    net.nothing_is_left("told");
}

#[test]
fn a_break_tells_each_relation_once_and_without_a_connection_at_once() {
    let mut net = Net::new(2);
    let (traps, linked, other) = (net.trapping(0), net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    let relate = move |out: &mut StepOutput| {
        out.monitor(far);
        out.monitor(far);
        out.link(far);
    };
    net.does(&traps, relate);
    net.link(&linked, &other);
    let outside = net.sides[0].0.watch(far);
    net.carry();
    // A message that has arrived before the break is told before it.
    let back = net.pid(&traps, 1);
    net.does(&other, move |out| out.send(back.typed::<Order>(), Order::Note(1)));
    net.step(1, 0, &mut |_| 0);
    net.cut(0, 1);
    net.rests();
    let broken = "terminated (the connection to its node has broken)";
    let events = ["down", "down", "exit"].map(|event| format!("{event} {broken}"));
    let told = traps.seen();
    assert_eq!((told.len(), &told[0][..]), (4, "note 1"));
    assert_eq!(told[1..], events);
    let Exit::Terminated(Reason::Linked(first)) = wait(&linked.handle).without_output() else { panic!("it is linked") };
    assert_eq!((first.pid(), first.exit().to_string()), (far, broken.into()));
    assert!(matches!(wait(outside).exit, Exit::Terminated(Reason::NodeDown)));
    // The other end of the links does not trap exits.
    assert!(matches!(wait(&other.handle).without_output(), Exit::Terminated(Reason::Linked(_))));
    net.does(&traps, relate);
    let mut told = traps.seen();
    told.sort();
    assert_eq!(told, events, "at once");
    assert!(matches!(wait(net.sides[0].0.watch(far)).exit, Exit::Terminated(Reason::NodeDown)));
    net.connect(0, 1);
    net.carry();
    assert!(traps.seen().is_empty());
    net.nothing_is_left("broken");
}

#[test]
fn a_far_process_has_no_local_name_and_joins_no_local_group() {
    let net = Net::new(2);
    let (_, other) = (net.plain(0), net.plain(1));
    let (runtime, far) = (&net.sides[0].0, net.pid(&other, 0));
    assert_eq!(runtime.register("name", far), Err(NameError::OtherNode(far)));
    let refused = runtime.join_group("group", far).unwrap_err();
    assert!(refused.to_string().ends_with("on its own node"), "{refused}");
    assert_eq!((runtime.whereis("name"), runtime.group_members("group").len()), (None, 0));
    net.nothing_is_left("names");
}

#[test]
fn a_relation_of_or_with_a_third_node_ends_the_connection() {
    let net = Net::new(3);
    let third = net.plain(2);
    let (near, far) = (net.plain(0), net.plain(1));
    let connection = &net.ends[&(0, 1)].connection;
    let wrong = net.pid(&third, 0);
    let receive = || {
        let item = lock(&net.ends[&(0, 1)].wires.items).pop().unwrap();
        net.ends[&(1, 0)].connection.receive(&item.bytes).is_err()
    };
    connection.watch(wrong);
    assert!(receive());
    connection.link(near.handle.pid(), wrong);
    assert!(receive());
    connection.link(wrong, net.pid(&far, 0));
    assert!(receive());
    connection.exit(wrong, net.pid(&far, 0), &Exit::Done(()));
    assert!(receive());
    connection.stop(wrong, Stop::Terminate, None);
    assert!(receive());
}
