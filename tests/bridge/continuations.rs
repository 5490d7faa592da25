//! Continuations: closures that handle the answers to an actor's commands.

use std::sync::Arc;
use std::time::Duration;

use procession::actor::{Actions, Actor, ActorProcess, actor};
use procession::spawn::Overflow;
use procession::testing::{Driver, Status};
use procession::{Address, BoxError, CommandError, Exit, Pid, Reply, SendError, SpawnOptions};

use crate::helpers::*;

type Asked = Reply<u32>;

/// Runs in a step of the actor.
type Act = Box<dyn FnOnce(&mut Asker, &mut Actions<Asker>) -> Result<(), BoxError> + Send>;

/// Does what its messages say.
struct Asker {
    log: Log<String>,
    peer: Address<Asked>,
    recovers: bool,
}

impl Actor for Asker {
    type Message = Act;
    type Output = usize;

    fn receive(&mut self, act: Act, out: &mut Actions<Self>) -> Result<(), BoxError> {
        act(self, out)
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<usize, BoxError> {
        Ok(self.log.len())
    }

    fn recover(&mut self, _: &Exit) -> Option<Asker> {
        self.recovers.then(|| Asker { log: self.log.clone(), peer: self.peer, recovers: true })
    }
}

fn act(act: impl FnOnce(&mut Asker, &mut Actions<Asker>) -> Result<(), BoxError> + Send + 'static) -> Act {
    Box::new(act)
}

fn asker() -> (Log<String>, Driver<ActorProcess<Asker>>) {
    let log = Log::new();
    let peer = "<0.99.1>".parse::<Pid>().unwrap().typed();
    let mut asker = Driver::new(actor(Asker { log: log.clone(), peer, recovers: true }));
    asker.run();
    (log, asker)
}

/// Asks, and writes the answer down.
fn ask(name: &'static str, holds: bool) -> Act {
    act(move |asker, out| {
        let then = move |asker: &mut Asker, answer: Result<u32, CommandError>, _: &mut Actions<Asker>| {
            asker.log.push(format!("{name} {answer:?}"));
            answer.map(drop).map_err(BoxError::from)
        };
        let asked = out.ask(asker.peer, |reply: Asked| reply, Duration::from_secs(1));
        if holds {
            asked.then_holding(out, then)
        } else {
            asked.then(out, then)
        }
        Ok(())
    })
}

fn note(text: &'static str) -> Act {
    act(move |asker, _| {
        asker.log.push(text.into());
        Ok(())
    })
}

#[test]
fn continuations_are_called_once_in_the_order_of_the_answers() {
    let (log, mut asker) = asker();
    asker.message(ask("a", false)).message(ask("b", false)).message(ask("c", false)).message(note("message")).run();
    assert_eq!(log.take(), ["message"], "messages are handled while answers are awaited");
    let [a, b, c] = [(); 3].map(|()| asker.sent::<Asked>().unwrap().1);
    assert!(c.send(3) && a.send(1) && b.send(2));
    assert_eq!(asker.run(), Status::Idle);
    assert_eq!(log.take(), ["c Ok(3)", "a Ok(1)", "b Ok(2)"]);
}

#[test]
fn an_error_in_a_continuation_ends_the_actor() {
    let log = Log::new();
    let peer = "<0.99.1>".parse::<Pid>().unwrap().typed();
    let mut asker = Driver::new(actor(Asker { log: log.clone(), peer, recovers: false }));
    asker.message(ask("a", false)).message(ask("b", false)).run();
    drop(asker.sent::<Asked>().unwrap());
    assert_eq!(asker.run(), Status::Ended);
    assert!(matches!(asker.exit(), Some(Exit::Failed(error)) if error.to_string().contains("without an answer")));
    assert_eq!(log.take(), ["a Err(Dropped)"]);
}

#[test]
fn each_kind_of_command_can_be_continued() {
    let (log, mut asker) = asker();
    asker.message(act(|_, out| {
        out.blocking(|| 5).then(out, |asker, answer, out| {
            asker.log.push(format!("blocking {}", answer?));
            let peer = asker.peer;
            out.after(Duration::from_secs(1)).then(out, move |asker, fired, out| {
                fired?;
                asker.log.push("timer".into());
                out.cancel(peer, "stop").then(out, |asker, lived, out| {
                    asker.log.push(format!("cancel {}", lived?));
                    out.stop();
                    Ok(())
                });
                Ok(())
            });
            Ok(())
        });
        Ok(())
    }));
    asker.run();
    assert!(asker.run_blocking());
    asker.run();
    asker.advance(Duration::from_secs(1));
    assert_eq!(asker.run(), Status::Ended);
    assert_eq!(log.take(), ["blocking 5", "timer", "cancel true"]);
}

#[test]
fn a_second_continuation_of_a_tag_replaces_the_first() {
    let (log, mut asker) = asker();
    let token = Arc::new(());
    let held = token.clone();
    asker.message(act(move |_, out| {
        let timer = out.after(Duration::from_secs(1));
        timer.then_holding(out, move |asker, _, _| {
            asker.log.push(format!("first {held:?}"));
            Ok(())
        });
        timer.then(out, |asker, _, _| {
            asker.log.push("second".into());
            Ok(())
        });
        Ok(())
    }));
    asker.message(note("message"));
    assert_eq!(asker.run(), Status::Idle);
    assert_eq!((log.take(), Arc::strong_count(&token)), (vec!["message".into()], 1), "nothing is held back");
    asker.advance(Duration::from_secs(1));
    asker.run();
    assert_eq!(log.take(), ["second"]);
}

#[test]
fn a_failed_step_drops_the_continuations_that_it_made() {
    for panics in [false, true] {
        let (log, mut asker) = asker();
        let token = Arc::new(());
        for fails in [false, true] {
            let held = token.clone();
            asker.message(act(move |asker, out| {
                let asked = out.ask(asker.peer, |reply: Asked| reply, Duration::MAX);
                asked.then_holding(out, move |asker, _, _| {
                    asker.log.push(format!("never {held:?}"));
                    Ok(())
                });
                match (fails, panics) {
                    (true, true) => panic!("it was told to"),
                    (true, false) => Err("it was told to".into()),
                    (false, _) => {
                        asked.then(out, |_, _, _| Ok(()));
                        Ok(())
                    }
                }
            }));
        }
        quiet_panics();
        asker.message(note("message"));
        asker.run();
        assert_eq!(Arc::strong_count(&token), 1);
        assert_eq!(log.take(), ["message"], "the next one holds nothing back");
        let (_, reply) = asker.sent::<Asked>().unwrap();
        assert!(!reply.send(1), "the answer is late");
        asker.run();
        assert!(asker.sent::<Asked>().is_err() && log.take().is_empty());
    }
}

/// A captured value whose destructor panics.
struct PanicsInDrop(#[allow(dead_code)] Arc<()>);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[test]
fn continuations_are_dropped_with_the_actor_however_it_ends() {
    let runtime = runtime(2);
    for how in ["stops", "fails", "panics", "is terminated", "is shut down"] {
        let token = Arc::new(());
        let sink = runtime.spawn(sink::<Asked>()).unwrap();
        // Keeps the questions open: its worker is held up.
        let (log, peer) = (Log::new(), sink.address());
        let asker = runtime.spawn(actor(Asker { log: log.clone(), peer, recovers: false })).unwrap();
        let held = token.clone();
        let begin = act(move |asker, out| {
            for n in 0..1_000 {
                let held = held.clone();
                let hostile = (n % 100 == 0).then(|| PanicsInDrop(held.clone()));
                out.after(Duration::MAX).then(out, move |_, _, _| {
                    drop((held, hostile));
                    Ok(())
                });
            }
            asker.log.push("begun".into());
            Ok(())
        });
        runtime.send(&asker, begin).unwrap();
        until("they wait", || log.len() == 1);
        assert!(Arc::strong_count(&token) > 1_000);
        match how {
            "stops" => _ = runtime.cancel(&asker, "stop").unwrap(),
            "fails" => runtime.send(&asker, act(|_, _| Err("it was told to".into()))).unwrap(),
            "panics" => runtime.send(&asker, act(|_, _| panic!("it was told to"))).unwrap(),
            "is terminated" => _ = runtime.terminate(&asker).unwrap(),
            _ => _ = runtime.shutdown(LIMIT).unwrap(),
        }
        let exit = join(&asker);
        assert_eq!(exit.is_done(), ["stops", "is shut down"].contains(&how), "{how}: {exit}");
        until("they are dropped", || Arc::strong_count(&token) == 1);
    }
}

#[test]
fn no_message_comes_before_the_answer_and_signals_do() {
    let (log, mut asker) = asker();
    asker.message(ask("held", true)).message(note("one")).message(note("two"));
    assert_eq!(asker.run(), Status::Blocked);
    asker.message(act(|_, out| {
        out.stop();
        Ok(())
    }));
    assert_eq!((asker.run(), log.take()), (Status::Blocked, vec![]));
    let (_, reply) = asker.sent::<Asked>().unwrap();
    reply.send(1);
    assert_eq!(asker.run(), Status::Ended);
    assert_eq!(log.take(), ["held Ok(1)", "one", "two"]);
}

#[test]
fn other_answers_come_while_one_answer_is_awaited() {
    let (log, mut asker) = asker();
    asker
        .message(ask("free", false))
        .message(ask("late", false))
        .message(ask("a", true))
        .message(note("message"))
        .run();
    let [free, late, held] = [(); 3].map(|()| asker.sent::<Asked>().unwrap().1);
    free.send(1);
    assert_eq!(asker.run(), Status::Blocked);
    assert_eq!(log.take(), ["free Ok(1)"]);
    held.send(2);
    assert_eq!(asker.run(), Status::Idle);
    assert_eq!(log.take(), ["a Ok(2)", "message"], "an answer that holds nothing is still awaited");
    late.send(3);
    asker.run();
    assert_eq!(log.take(), ["late Ok(3)"]);
}

#[test]
fn a_request_to_stop_ends_an_actor_that_holds_messages_back() {
    let (log, mut asker) = asker();
    asker.message(ask("held", true)).message(note("message")).run();
    assert_eq!(asker.cancel("stop").run(), Status::Ended);
    assert_eq!(**asker.exit().unwrap().output().unwrap(), 0, "{:?}", log.take());
}

#[test]
fn an_answer_that_is_held_for_may_hold_for_the_next() {
    let (log, mut asker) = asker();
    asker.message(act(|asker, out| {
        let peer = asker.peer;
        let asked = out.ask(peer, |reply: Asked| reply, Duration::MAX);
        asked.then_holding(out, move |asker, first, out| {
            asker.log.push(format!("{}", first?));
            out.ask(peer, |reply: Asked| reply, Duration::MAX).then_holding(out, |asker, second, _| {
                asker.log.push(format!("{}", second?));
                Ok(())
            });
            Ok(())
        });
        Ok(())
    }));
    asker.message(note("message"));
    for n in [1, 2] {
        assert_eq!(asker.run(), Status::Blocked);
        assert_eq!(log.len(), n - 1);
        asker.sent::<Asked>().unwrap().1.send(n as u32);
    }
    asker.run();
    assert_eq!(log.take(), ["1", "2", "message"]);
}

#[test]
fn a_full_mailbox_refuses_while_messages_are_held_back() {
    let (runtime, log) = (runtime(2), Log::new());
    let questions = Log::new();
    let peer = runtime.spawn(recorder::<Asked>(&questions)).unwrap().address();
    let options = SpawnOptions::new().mailbox(2, Overflow::Refuse);
    let asker = runtime.spawn_with(actor(Asker { log: log.clone(), peer, recovers: false }), options).unwrap();
    runtime.send(&asker, ask("held", true)).unwrap();
    until("it has asked", || questions.len() == 1);
    runtime.send(&asker, note("one")).unwrap();
    runtime.send(&asker, note("two")).unwrap();
    let refused = runtime.send(&asker, note("three")).unwrap_err();
    assert!(matches!(refused.into_parts().1, SendError::Full { .. }));
    assert_eq!(log.len(), 0);
    questions.take().into_iter().for_each(|reply| _ = reply.send(1));
    until("all are handled", || log.len() == 3);
    assert_eq!(log.take(), ["held Ok(1)", "one", "two"]);
    assert_accounted(&runtime);
}

/// Asks the other one when it is told to, and holds messages back until the answer.
struct Twin;

enum TwinMessage {
    AskThe(Address<TwinMessage>, Reply<Result<u32, CommandError>>),
    Answer(Reply<u32>),
}

impl Actor for Twin {
    type Message = TwinMessage;
    type Output = ();

    fn receive(&mut self, message: TwinMessage, out: &mut Actions<Self>) -> Result<(), BoxError> {
        match message {
            TwinMessage::AskThe(other, reply) => {
                let asked = out.ask(other, TwinMessage::Answer, LIMIT);
                asked.then_holding(out, move |_, answer, out| {
                    out.reply(reply, answer);
                    Ok(())
                });
            }
            TwinMessage::Answer(reply) => out.reply(reply, 1),
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_cycle_of_held_asks_ends_with_an_error() {
    let runtime = runtime(1);
    let (holder, blocker) = hold_up(&runtime);
    let [one, two] = [(); 2].map(|()| runtime.spawn(actor(Twin)).unwrap());
    let first = runtime.ask(&one, |reply| TwinMessage::AskThe(two.address(), reply), LIMIT);
    let second = runtime.ask(&two, |reply| TwinMessage::AskThe(one.address(), reply), LIMIT);
    blocker.release();
    join(&holder);
    let answers = [first.wait().unwrap(), second.wait().unwrap()];
    let cycles = answers.iter().filter(|answer| matches!(answer, Err(CommandError::Cycle(_)))).count();
    assert_eq!((cycles, answers.iter().filter(|answer| answer.is_ok()).count()), (1, 1), "{answers:?}");
}
