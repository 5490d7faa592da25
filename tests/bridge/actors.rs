//! The callbacks of actors, and their order.

use std::time::Duration;

use procession::actor::{Actions, Actor, actor};
use procession::command::CancelRequest;
use procession::exit::{ExitSignal, RecoveredBy};
use procession::names::{GroupChange, GroupEvent};
use procession::testing::{Driver, Status, question};
use procession::{Address, BoxError, Down, Event, Exit, Pid, Reason, Reply, SpawnOptions, StepOutput, Tag};

use crate::helpers::*;

/// A process that only the tests of a driver know.
fn peer() -> Pid {
    "<0.99.1>".parse().unwrap()
}

/// Writes down its callbacks.
struct Diary {
    log: Log<String>,
    stays: bool,
    peer: Option<Pid>,
    asked: Option<Tag<u64>>,
}

impl Diary {
    fn new(log: &Log<String>) -> Diary {
        Diary { log: log.clone(), stays: false, peer: None, asked: None }
    }
}

impl Actor for Diary {
    type Message = u32;
    type Output = usize;

    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push("start".into());
        if let Some(peer) = self.peer {
            out.trap_exits(true);
            out.monitor(peer);
            out.link(peer);
            out.subscribe("group");
            self.asked = Some(out.ask(peer, |reply: Reply<u64>| reply, Duration::MAX));
        }
        Ok(())
    }

    fn receive(&mut self, message: u32, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("{message} from {:?}", out.sender().is_some()));
        Ok(())
    }

    fn stop(&mut self, request: CancelRequest, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("stop {} {:?}", request.reason, out.sender()));
        if !self.stays {
            out.stop();
        }
        Ok(())
    }

    fn down(&mut self, down: Down, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("down {}", down.exit));
        Ok(())
    }

    fn exit(&mut self, exit: ExitSignal, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("exit {}", exit.exit));
        Ok(())
    }

    fn group(&mut self, event: GroupEvent, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("group {}", event.subscription.group()));
        Ok(())
    }

    fn other(&mut self, event: Event<u32>, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(match event {
            Event::Recovered(recovered) => format!("recovered {}", recovered.exit),
            Event::Completed(done) => format!("answer {:?}", done.take(self.asked).unwrap().unwrap()),
            other => format!("{other:?}"),
        });
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<usize, BoxError> {
        self.log.push("finish".into());
        Ok(self.log.len())
    }
}

#[test]
fn start_comes_first_and_finish_last_and_once() {
    let (runtime, log) = (runtime(2), Log::new());
    let (hold, blocker) = hold_up(&runtime);
    let diary = runtime.spawn(actor(Diary::new(&log))).unwrap();
    runtime.send(&diary, 1).unwrap();
    runtime.send(&diary, 2).unwrap();
    blocker.release();
    join(&hold);
    until("both are stepped", || log.len() == 3);
    runtime.cancel(&diary, "closing time").unwrap();
    assert_eq!(*output(&diary), 5);
    assert_eq!(log.take(), ["start", "1 from false", "2 from false", "stop closing time None", "finish"]);
}

#[test]
fn each_event_has_its_callback_and_its_step() {
    let (log, peer) = (Log::new(), peer());
    let mut diary = Driver::new(actor(Diary { peer: Some(peer), ..Diary::new(&log) }));
    diary.run();
    let (_, reply) = diary.sent::<Reply<u64>>().unwrap();
    let failed = Exit::Terminated(Reason::Cancelled);
    diary.recovered(peer, &failed, RecoveredBy::Process);
    diary.group_changed("group", &GroupChange::Joined(peer));
    reply.send(9);
    diary.message_from(peer, 3);
    diary.ended(peer, &failed);
    let before = diary.steps();
    assert_eq!(diary.run(), Status::Idle);
    assert_eq!(diary.cancel("stop").run(), Status::Ended);
    let mut seen = log.take();
    assert_eq!(seen.len(), diary.steps() - before + 2, "a step each, but `start` before and `finish` with `stop`");
    seen[1..].sort();
    let expected = [
        "start",
        "3 from true",
        "answer 9",
        "down terminated (cancelled)",
        "exit terminated (cancelled)",
        "finish",
        "group group",
        "recovered terminated (cancelled)",
        "stop stop None",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_request_to_stop_can_be_handled_in_another_way() {
    let (runtime, log) = (runtime(1), Log::new());
    let diary = runtime.spawn(actor(Diary { stays: true, ..Diary::new(&log) })).unwrap();
    runtime.cancel(&diary, "please").unwrap();
    runtime.send(&diary, 1).unwrap();
    until("it goes on", || log.len() == 3);
    let mut seen = log.to_vec();
    seen.sort();
    assert_eq!(seen, ["1 from false", "start", "stop please None"]);
    assert!(!diary.is_finished());
    runtime.terminate(&diary).unwrap();
    assert!(matches!(join(&diary), Exit::Terminated(_)));
    assert_eq!(log.len(), 3, "a terminated actor does not finish");
}

#[test]
fn a_shutdown_ends_idle_actors_without_force() {
    let runtime = runtime(2);
    let logs: Vec<_> = (0..100).map(|_| Log::new()).collect();
    let all: Vec<_> = logs.iter().map(|log| runtime.spawn(actor(Diary::new(log))).unwrap()).collect();
    let report = runtime.shutdown(LIMIT).unwrap();
    assert!(report.is_clean(), "{report}");
    all.iter().for_each(|one| assert_eq!(*output(one), 3));
}

/// Sends on what it receives, many messages a step.
struct Relay<const STEP: usize> {
    to: Address<u32>,
}

impl<const STEP: usize> Actor for Relay<STEP> {
    type Message = u32;
    type Output = ();

    const MESSAGES_A_STEP: usize = STEP;

    fn receive(&mut self, message: u32, out: &mut Actions<Self>) -> Result<(), BoxError> {
        if message == 99 {
            out.stop();
        }
        out.send(self.to, message);
        Ok(())
    }

    fn finish(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        out.send(self.to, 1_000);
        Ok(())
    }
}

fn steps_of<const STEP: usize>() -> usize {
    let to = peer();
    let mut relay = Driver::new(actor(Relay::<STEP> { to: to.typed() }));
    relay.run();
    (0..120).for_each(|n| _ = relay.message(n));
    let before = relay.steps();
    assert_eq!(relay.run(), Status::Ended);
    let sent: Vec<u32> = std::iter::from_fn(|| relay.sent().ok().map(|(_, n)| n)).collect();
    assert_eq!(sent, (0..100).chain([1_000]).collect::<Vec<_>>(), "none after `stop`, and the last words");
    relay.steps() - before
}

#[test]
fn a_step_handles_as_many_messages_as_the_actor_says() {
    assert_eq!((steps_of::<1>(), steps_of::<0>(), steps_of::<10>(), steps_of::<64>()), (100, 100, 10, 2));
}

#[test]
fn an_actor_has_its_own_type_in_reports() {
    let (runtime, log) = (runtime(1), Log::new());
    let diary = runtime.spawn_with(actor(Diary::new(&log)), SpawnOptions::new().name("diary")).unwrap();
    let info = runtime.process(&diary).unwrap();
    assert!(info.type_name.ends_with("actors::Diary"), "{}", info.type_name);
}

/// Answers with its own address.
struct Who;

impl Actor for Who {
    type Message = Reply<Address<Reply<Pid>>>;
    type Output = ();

    fn receive(&mut self, reply: Self::Message, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let own: Address<Self::Message> = out.address();
        let plain: &mut StepOutput = out;
        assert_eq!(plain.pid(), own.pid());
        plain.reply(reply, own.pid().typed());
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn actions_have_the_own_address_and_all_yields() {
    let mut who = Driver::new(actor(Who));
    let (reply, asked) = question();
    who.message(reply).run();
    assert_eq!(asked.answer().unwrap().unwrap().pid(), who.pid());
}

/// Handles several events in a step, and logs whether they have a sender.
struct Batch(Log<bool>);

impl Actor for Batch {
    type Message = u32;
    type Output = ();

    const MESSAGES_A_STEP: usize = 8;

    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        out.after(Duration::from_secs(1));
        Ok(())
    }

    fn receive(&mut self, _: u32, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.0.push(out.sender().is_some());
        Ok(())
    }

    fn other(&mut self, _: Event<u32>, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.0.push(out.sender().is_some());
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn an_answer_does_not_have_the_sender_of_the_message_before_it() {
    let log = Log::new();
    let mut batch = Driver::new(actor(Batch(log.clone())));
    batch.run();
    let steps = batch.steps();
    batch.message_from(peer(), 1).advance(Duration::from_secs(1)).run();
    assert_eq!((log.take(), batch.steps() - steps), (vec![true, false], 1));
}
