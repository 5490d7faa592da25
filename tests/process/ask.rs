//! C. Ask and reply.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::spawn::Overflow;
use procession::{Address, CommandError, Event, Events, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, Tag};

use crate::helpers::*;
use crate::waker::WakeCounter;

/// How the oracle treats a question.
enum Question {
    Answer(u32, Reply<u32>),
    Drop(Reply<u32>),
    End(Reply<u32>),
    Fail(Reply<u32>),
    Keep(Reply<u32>),
    Forward(Address<Question>, u32, Reply<u32>),
    /// Answers what it has kept.
    Release(u32),
}

fn oracle() -> impl Process<Message = Question, Output = ()> {
    let mut kept = Vec::new();
    script(move |events: &mut Events<'_, Question>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Question::Answer(n, reply)) => out.reply(reply, n * 2),
                Event::Message(Question::Drop(reply)) => drop(reply),
                Event::Message(Question::End(reply)) => {
                    kept.push(reply);
                    return Ok(Step::Done(()));
                }
                Event::Message(Question::Fail(reply)) => {
                    out.reply(reply, 1);
                    return Err("it failed after all".into());
                }
                Event::Message(Question::Keep(reply)) => kept.push(reply),
                Event::Message(Question::Forward(to, n, reply)) => out.send(to, Question::Answer(n, reply)),
                Event::Message(Question::Release(n)) => kept.drain(..).for_each(|reply| out.reply(reply, n)),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    })
}

type Make = fn(Reply<u32>) -> Question;

/// Asks these questions, one after the other, and is done with the answers as text.
fn asker(questions: Vec<(Address<Question>, Make)>) -> impl Process<Message = (), Output = Vec<String>> {
    let (mut questions, mut answers) = (questions.into_iter(), Vec::new());
    let mut tag: Option<Tag<u32>> = None;
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let Event::Completed(done) = event {
                answers.push(text(done.take(tag.unwrap()).unwrap()));
            }
        }
        match questions.next() {
            Some((to, make)) => tag = Some(out.ask(to, make, LIMIT)),
            None => return Ok(Step::Done(std::mem::take(&mut answers))),
        }
        Ok(Step::Wait)
    })
}

fn text(answer: Result<u32, CommandError>) -> String {
    match answer {
        Ok(n) => n.to_string(),
        Err(CommandError::Ended(_)) => String::from("ended before it replied"),
        Err(CommandError::NoSuchProcess(_)) => String::from("no such process"),
        Err(CommandError::Full(_)) => String::from("full"),
        Err(CommandError::WrongType { .. }) => String::from("wrong type"),
        Err(other) => other.to_string(),
    }
}

/// The questions that every asker asks, each with its answer.
fn questions(runtime: &Runtime) -> Vec<(Address<Question>, Make, &'static str)> {
    let oracle = || runtime.spawn(oracle()).unwrap().address();
    let gone = runtime.spawn(script(|_: &mut Events<'_, Question>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap();
    output(&gone);
    let other = runtime.spawn(sink::<String>()).unwrap();
    vec![
        (oracle(), |reply| Question::Answer(21, reply), "42"),
        (oracle(), Question::Drop, "dropped without an answer"),
        (oracle(), Question::End, "ended before it replied"),
        (oracle(), Question::Fail, "ended before it replied"),
        (gone.address(), Question::Drop, "no such process"),
        (other.pid().typed(), Question::Drop, "wrong type"),
    ]
}

#[test]
fn a_process_that_asks_gets_the_reply_or_an_error() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (asked, expected): (Vec<_>, Vec<_>) =
            questions(&runtime).into_iter().map(|(to, make, answer)| ((to, make), answer)).unzip();
        let answers = output(&runtime.spawn(asker(asked)).unwrap());
        assert_eq!(*answers, expected);
        assert_eq!(runtime.stats().timers, 0, "the limits of answered questions are gone");
        assert_accounted(&runtime);
    }
}

#[test]
fn a_thread_that_asks_gets_the_reply_or_an_error() {
    let runtime = runtime(1);
    for (to, make, expected) in questions(&runtime) {
        assert_eq!(text(runtime.ask(to, make, LIMIT).wait()), expected);
    }
}

#[test]
fn a_future_that_asks_gets_the_reply_or_an_error() {
    let runtime = runtime(1);
    for (to, make, expected) in questions(&runtime) {
        assert_eq!(text(block_on(runtime.ask(to, make, LIMIT))), expected);
    }
    assert_eq!(runtime.stats().timers, 0);
}

#[test]
fn an_unanswered_ask_times_out_and_its_late_reply_is_counted() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let keeper = runtime.spawn(oracle()).unwrap();
    let to = keeper.address();
    let process = runtime
        .spawn(script({
            let mut tag: Option<Tag<u32>> = None;
            move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                for event in events {
                    if let Event::Completed(done) = event {
                        return Ok(Step::Done(text(done.take(tag.unwrap()).unwrap())));
                    }
                }
                tag = Some(out.ask(to, Question::Keep, Duration::from_secs(5)));
                Ok(Step::Wait)
            }
        }))
        .unwrap();
    let future = runtime.ask(to, Question::Keep, Duration::from_secs(5));
    until("both are asked", || runtime.stats().timers == 1 && runtime.stats().messages.stepped == 2);
    manual.advance(Duration::from_millis(4_999));
    assert!(!process.is_finished());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| text(runtime.ask(to, Question::Keep, Duration::from_secs(5)).wait()));
        advance_until("the limit is over", &manual, Duration::from_secs(1), || thread.is_finished());
        assert_eq!(wait(thread).unwrap(), "timed out");
    });
    assert_eq!(*output(&process), "timed out");
    assert_eq!(text(block_on(future)), "timed out");
    runtime.send(to, Question::Release(1)).unwrap();
    until("they are counted", || runtime.stats().late_replies == 3);
}

#[test]
fn a_refused_question_is_answered_at_once_wherever_its_reply_is() {
    let runtime = runtime(1);
    let dead = runtime.spawn(sink::<()>()).unwrap();
    runtime.terminate(dead.pid()).unwrap();
    join(&dead);
    let (kept, replies) = std::sync::mpsc::channel();
    let (keeps, to, mut tag) = (kept.clone(), dead.address(), None);
    let asker = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(Event::Completed(done)) = events.next() {
            return Ok(Step::Done(done.take(tag.unwrap()).unwrap().map_err(|why| why.to_string())));
        }
        let keeps = keeps.clone();
        tag = Some(out.ask(to, move |reply: Reply<u32>| keeps.send(reply).unwrap(), Duration::MAX));
        Ok(Step::Wait)
    });
    let inside = output(&runtime.spawn(asker).unwrap());
    let outside = block_on(runtime.ask(to, |reply: Reply<u32>| kept.send(reply).unwrap(), Duration::MAX));
    assert_eq!(*inside, Err(outside.unwrap_err().to_string()));
    assert_eq!(replies.try_iter().count(), 2, "the replies are kept");
}

#[test]
fn a_late_reply_whose_destructor_panics_disturbs_nobody() {
    let runtime = runtime(1);
    let (kept, replies) = std::sync::mpsc::channel();
    let keeper = runtime
        .spawn(script(move |events: &mut Events<'_, Reply<Bomb>>, _: &mut StepOutput| {
            for event in events {
                if let Event::Message(reply) = event {
                    kept.send(reply).unwrap();
                }
            }
            Ok::<Step<()>, _>(Step::Idle)
        }))
        .unwrap();
    drop(runtime.ask(keeper.address(), |reply| reply, LIMIT));
    assert!(!wait(&replies).unwrap().send(Bomb), "nobody waits for it");
    assert_eq!(runtime.stats().late_replies, 1);
}

#[test]
fn a_reply_to_an_asker_that_has_ended_is_late() {
    let runtime = runtime(1);
    let (kept, replies) = std::sync::mpsc::channel();
    let keeper = script(move |events: &mut Events<'_, Reply<u32>>, _: &mut StepOutput| {
        for event in events {
            if let Event::Message(reply) = event {
                kept.send(reply).unwrap();
            }
        }
        Ok::<Step<()>, _>(Step::Idle)
    });
    let to = runtime.spawn(keeper).unwrap().address();
    let asker = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.ask(to, |reply| reply, LIMIT);
        Ok(Step::<()>::Wait)
    });
    let asker = runtime.spawn(asker).unwrap();
    let reply = wait(&replies).unwrap();
    assert!(runtime.terminate(&asker).unwrap());
    join(&asker);
    assert!(!reply.send(1), "nobody waits for it");
    assert_eq!((runtime.stats().late_replies, runtime.stats().timers), (1, 0));
}

#[test]
fn a_reply_may_be_kept_forwarded_or_taken_to_another_thread() {
    let runtime = runtime(2);
    let (first, second) = (runtime.spawn(oracle()).unwrap().address(), runtime.spawn(oracle()).unwrap().address());
    assert_eq!(runtime.ask(first, |reply| Question::Forward(second, 4, reply), LIMIT).wait().unwrap(), 8);
    let kept = runtime.ask(first, Question::Keep, LIMIT);
    runtime.send(first, Question::Release(5)).unwrap();
    assert_eq!(block_on(kept).unwrap(), 5);
    let threaded = runtime
        .spawn(script(|events: &mut Events<'_, Reply<u32>>, _: &mut StepOutput| {
            for event in events {
                if let Event::Message(reply) = event {
                    std::thread::spawn(move || assert!(reply.send(6)));
                }
            }
            Ok::<Step<()>, procession::BoxError>(Step::Idle)
        }))
        .unwrap();
    assert_eq!(runtime.ask(threaded.address(), |reply| reply, LIMIT).wait().unwrap(), 6);
}

#[test]
fn a_question_to_a_full_mailbox_is_answered_at_once() {
    for overflow in [Overflow::Refuse, Overflow::DropNewest] {
        let runtime = runtime(2);
        let (full, blocker) = full(&runtime, overflow);
        runtime.send(full, Question::Release(0)).unwrap();
        let asked = runtime.spawn(asker(vec![(full, Question::Drop), (full, Question::Keep)])).unwrap();
        assert_eq!(*output(&asked), ["full", "full"], "{overflow:?}");
        assert_eq!(text(runtime.ask(full, Question::Drop, LIMIT).wait()), "full", "{overflow:?}");
        assert_eq!(text(block_on(runtime.ask(full, Question::Drop, LIMIT))), "full", "{overflow:?}");
        assert_eq!(runtime.stats().timers, 0);
        assert_accounted(&runtime);
        blocker.release();
    }
}

#[test]
fn a_question_pushed_out_of_a_full_mailbox_is_answered_at_once() {
    let runtime = runtime(2);
    let (full, blocker) = full(&runtime, Overflow::DropOldest);
    let pushed_out = runtime.spawn(asker(vec![(full, Question::Keep)])).unwrap();
    until("it is asked", || runtime.process(full.pid()).unwrap().mailbox == 1);
    let stays = runtime.spawn(asker(vec![(full, Question::Keep)])).unwrap();
    assert_eq!(*output(&pushed_out), ["dropped without an answer"]);
    assert!(!stays.is_finished());
    blocker.release();
    assert_eq!(*output(&stays), ["ended before it replied"]);
}

/// A process held up in a step until the blocker releases it, with room for one message; then it is done.
fn full(runtime: &Runtime, overflow: Overflow) -> (Address<Question>, Blocker) {
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let held = script(move |_: &mut Events<'_, Question>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::Done(()))
    });
    let held = runtime.spawn_with(held, SpawnOptions::new().mailbox(1, overflow)).unwrap();
    blocker.wait_begun();
    (held.address(), blocker)
}

#[test]
fn a_future_that_is_dropped_gives_its_question_up() {
    let runtime = runtime(1);
    let keeper = runtime.spawn(oracle()).unwrap();
    drop(runtime.ask(keeper.address(), Question::Keep, LIMIT));
    assert_eq!(runtime.stats().timers, 0);
    runtime.send(keeper.address(), Question::Release(1)).unwrap();
    until("the reply is late", || runtime.stats().late_replies == 1);
}

#[test]
fn two_processes_that_ask_each_other_stop_no_worker() {
    let runtime = runtime(1);
    let log = Log::new();
    let mutual = |log: &Log<String>| {
        let log = log.clone();
        let mut tag: Option<Tag<u32>> = None;
        script(move |events: &mut Events<'_, Address<Reply<u32>>>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(other) => {
                        tag = Some(out.ask(other, |reply| reply, Duration::from_millis(20)));
                        return Ok(Step::Wait);
                    }
                    Event::Completed(done) => {
                        log.push(text(done.take(tag.unwrap()).unwrap()));
                        return Ok(Step::Done(()));
                    }
                    _ => {}
                }
            }
            Ok(Step::Idle)
        })
    };
    let (one, two) = (runtime.spawn(mutual(&log)).unwrap(), runtime.spawn(mutual(&log)).unwrap());
    runtime.send(one.address(), two.pid().typed()).unwrap();
    runtime.send(two.address(), one.pid().typed()).unwrap();
    // Unrelated work goes on, whatever becomes of the two.
    for _ in 0..100 {
        output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    }
    output(&one);
    output(&two);
    assert_eq!(log.len(), 2);
}

#[test]
fn asking_by_blocking_is_refused_inside_a_step() {
    let runtime = runtime(1);
    let oracle = runtime.spawn(oracle()).unwrap().address();
    let inner = runtime.clone();
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        Ok(Step::Done(inner.ask(oracle, |reply| Question::Answer(1, reply), LIMIT).wait().unwrap_err().to_string()))
    }));
    let error = output(&process.unwrap());
    assert!(error.contains("StepOutput::ask"), "{error}");
}

#[test]
fn a_reply_that_is_there_already_is_given_in_a_step() {
    let runtime = runtime(1);
    let oracle = runtime.spawn(oracle()).unwrap().address();
    let asked = Log::new();
    let mut asking = Some(runtime.ask(oracle, |reply| Question::Answer(1, reply), LIMIT));
    until("the reply is there", || format!("{:?}", asking.as_ref().unwrap()).contains("true"));
    let answers = asked.clone();
    let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        answers.push(asking.take().unwrap().wait().unwrap());
        Ok(Step::Done(()))
    }));
    output(&process.unwrap());
    assert_eq!(asked.to_vec(), [2]);
}

#[test]
fn a_future_that_is_polled_after_its_reply_is_an_error() {
    let runtime = runtime(1);
    let oracle = runtime.spawn(oracle()).unwrap().address();
    let mut asking = pin!(runtime.ask(oracle, |reply| Question::Answer(1, reply), LIMIT));
    let mut poll = || asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let mut answer = Poll::Pending;
    until("the reply is there", || {
        answer = poll();
        answer.is_ready()
    });
    assert!(matches!(answer, Poll::Ready(Ok(2))));
    assert!(matches!(poll(), Poll::Ready(Err(CommandError::Dropped))));
}

#[test]
fn a_dropped_future_does_not_wake_its_task() {
    let runtime = runtime(1);
    let oracle = runtime.spawn(oracle()).unwrap().address();
    let alarm = Arc::new(WakeCounter::default());
    let waker = Waker::from(alarm.clone());
    let mut asking = Box::pin(runtime.ask(oracle, Question::Keep, LIMIT));
    assert!(asking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(asking);
    drop(waker);
    assert_eq!((alarm.times(), Arc::strong_count(&alarm)), (0, 1));
}
