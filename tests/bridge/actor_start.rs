//! The `start` of actors, and the first step after it.

use std::time::Duration;

use procession::actor::{Actions, Actor, actor};
use procession::command::CancelRequest;
use procession::testing::{Driver, Status};
use procession::{Address, BoxError, CommandError, Pid, Reply};

use crate::helpers::*;

type Asked = Reply<u32>;

/// Asks in its `start`, and takes no message before the answer.
struct Opener {
    log: Log<String>,
    peer: Address<Asked>,
    stops: bool,
}

impl Actor for Opener {
    type Message = u32;
    type Output = usize;

    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push("start".into());
        let asked = out.ask(self.peer, |reply: Asked| reply, Duration::MAX);
        asked.then_holding(out, |opener, answer: Result<u32, CommandError>, _| {
            let answer = answer.map_or_else(|_| "refused".into(), |n| format!("open {n}"));
            opener.log.push(answer);
            Ok(())
        });
        if self.stops {
            out.stop();
        }
        Ok(())
    }

    fn receive(&mut self, message: u32, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("{message}"));
        Ok(())
    }

    fn stop(&mut self, request: CancelRequest, _: &mut Actions<Self>) -> Result<(), BoxError> {
        self.log.push(format!("stop {}", request.reason));
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<usize, BoxError> {
        self.log.push("finish".into());
        Ok(self.log.len())
    }
}

fn opener(log: &Log<String>) -> Opener {
    Opener { log: log.clone(), peer: "<0.99.1>".parse::<Pid>().unwrap().typed(), stops: false }
}

#[test]
fn messages_wait_for_an_answer_that_start_holds_for() {
    let log = Log::new();
    let mut held = Driver::new(actor(opener(&log)));
    assert_eq!(held.message(1).message(2).run(), Status::Blocked);
    assert_eq!(log.take(), ["start"]);
    assert_eq!(held.cancel("please").message(3).run(), Status::Blocked);
    assert_eq!(log.take(), ["stop please"], "signals are handled meanwhile");
    held.sent::<Asked>().unwrap().1.send(7);
    assert_eq!(held.run(), Status::Idle);
    assert_eq!(log.take(), ["open 7", "1", "2", "3"]);
}

#[test]
fn a_question_of_start_may_be_refused_at_once() {
    let (runtime, log) = (runtime(1), Log::new());
    let (hold, blocker) = hold_up(&runtime);
    let held = runtime.spawn(actor(opener(&log))).unwrap();
    (1..=300).for_each(|n| runtime.send(&held, n).unwrap());
    runtime.cancel(&held, "please").unwrap();
    blocker.release();
    join(&hold);
    until("all are handled", || log.len() == 303);
    let mut seen = log.take();
    assert_eq!(seen.remove(0), "start");
    let (answer, stop) =
        (seen.iter().position(|one| one == "refused"), seen.iter().position(|one| one == "stop please"));
    assert!(answer.is_some_and(|place| place < 2) && stop.is_some_and(|place| place < 2), "{seen:?}");
    let messages: Vec<String> = (1..=300).map(|n| n.to_string()).collect();
    assert_eq!(seen[2..], messages);
    runtime.terminate(&held).unwrap();
    join(&held);
    assert_accounted(&runtime);
}

#[test]
fn start_may_end_the_actor_before_any_message() {
    let (runtime, log) = (runtime(1), Log::new());
    let (hold, blocker) = hold_up(&runtime);
    let short = runtime.spawn(actor(Opener { stops: true, ..opener(&log) })).unwrap();
    runtime.send(&short, 1).unwrap();
    blocker.release();
    join(&hold);
    assert_eq!(*output(&short), 2);
    assert_eq!(log.take(), ["start", "finish"]);
    assert_accounted(&runtime);
}
