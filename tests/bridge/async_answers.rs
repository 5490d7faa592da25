//! The answers that an async process waits for. Statements 22 and 23.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::async_process::Context;
use procession::command::TimerFired;
use procession::testing::{Driver, Status};
use procession::{
    Address, CommandError, Event, Events, Exit, Pid, Reply, Step, StepOutput, Tag, Upgrade, async_process,
};

use crate::async_support::*;
use crate::helpers::*;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers each question with its number, in groups and backwards.
async fn backwards(context: Context<(u32, Reply<u32>)>) -> Result<(), procession::BoxError> {
    let mut waiting = Vec::new();
    while let Some(question) = context.next().await {
        waiting.push(question);
        if waiting.len() == 10 {
            waiting.drain(..).rev().for_each(|(n, reply)| context.reply(reply, n));
        }
    }
    Ok(())
}

#[test]
fn a_thousand_questions_at_once_are_all_answered() {
    let runtime = runtime(2);
    let asked = runtime.spawn(async_process(backwards)).unwrap().address();
    for own_wakers in [true, false] {
        let asker = runtime.spawn(async_process(async move |context: Context<()>| {
            let questions = (0..1_000).map(|n| context.ask(asked, move |reply| (n, reply), LIMIT));
            let mut answers = Vec::new();
            if own_wakers {
                let questions: Vec<Boxed<_>> = questions.map(|question| Box::pin(question) as _).collect();
                for answer in all_with_own_wakers(questions).await {
                    answers.push(answer?);
                }
            } else {
                let questions: Vec<_> = questions.collect();
                for question in questions {
                    answers.push(question.await?);
                }
            }
            answers.sort_unstable();
            Ok(answers)
        }));
        assert!(output(&asker.unwrap()).iter().copied().eq(0..1_000));
    }
    assert_accounted(&runtime);
}

/// Messages and answers with wakers of their own, and a wait of each kind that is polled together with the others.
#[test]
fn waits_of_all_kinds_are_polled_together() {
    let runtime = runtime(2);
    let asked = runtime.spawn(async_process(backwards)).unwrap().address();
    let handle = runtime.spawn(async_process(async move |context: Context<u32>| {
        let me: Address<u32> = context.address();
        let messages = async {
            let mut sum = 0;
            for _ in 0..100 {
                sum += context.next().await.unwrap_or(0);
            }
            sum
        };
        let questions = async {
            let mut sum = 0;
            for n in 0..10 {
                context.send(me, n);
                let ten = (0..10).map(|n| context.ask(asked, move |reply| (n, reply), LIMIT));
                let ten: Vec<Boxed<Result<u32, _>>> = ten.map(|question| Box::pin(question) as _).collect();
                for answer in all_with_own_wakers(ten).await {
                    sum += answer.unwrap_or(0);
                }
            }
            sum
        };
        let sends = async {
            for n in 10..100 {
                context.send(me, n);
                let _ = context.sleep(Duration::ZERO).await;
                yield_once().await;
            }
            0
        };
        let all: Vec<Boxed<_>> = vec![Box::pin(messages), Box::pin(questions), Box::pin(sends)];
        Ok(all_with_own_wakers(all).await.into_iter().sum::<u32>())
    }));
    assert_eq!(*output(&handle.unwrap()), (0..100).sum::<u32>() + 450);
    assert_accounted(&runtime);
}

/// A wait that is dropped takes its command back, and its answer reaches nobody.
#[test]
fn a_wait_that_is_dropped_forgets_its_answer() {
    let mut driver = Driver::new(async_process(async |context: Context<()>| {
        drop(context.sleep(Duration::from_secs(1)));
        drop(context.perform(|out| out.future(std::future::pending::<()>())));
        let performed = race(context.perform(|out| out.after(Duration::from_secs(1))), yield_once()).await;
        assert!(matches!(performed, Either::Second(())));
        let polled = race(context.sleep(Duration::from_secs(2)), yield_once()).await;
        assert!(matches!(polled, Either::Second(())));
        let event = race(context.receive(), context.perform(|out| out.after(Duration::from_secs(3)))).await;
        assert!(matches!(event, Either::Second(Ok(_))), "{event:?}");
        Ok(())
    }));
    driver.run();
    assert_eq!(driver.outstanding().len(), 1, "{:?}", driver.outstanding());
    driver.advance(Duration::from_secs(3)).run();
    assert!(driver.exit().unwrap().is_done());
}

/// The tag is the caller's. So an answer that comes while nobody waits for it is kept.
#[test]
fn the_answer_to_a_tag_is_kept_while_nobody_waits_for_it() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let (first, second) = context.out(|out| (out.after(Duration::from_secs(1)), out.after(Duration::from_secs(1))));
        let mut messages = 0;
        while let Either::First(Some(_)) = race(context.next(), context.answer(first)).await {
            messages += 1;
        }
        context.answer(second).await?;
        Ok(messages)
    }));
    driver.run();
    for n in 0..5 {
        driver.message(n).run();
    }
    driver.advance(Duration::from_secs(1)).run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), 5);
}

/// Yields this many commands, which are answered at once. Returns their tags.
fn answered_at_once(context: &Context<u32>, commands: usize) -> Vec<Tag<TimerFired>> {
    let cancelled = |out: &mut StepOutput| {
        let timer = out.after(Duration::MAX);
        out.cancel_timer(timer);
        timer
    };
    context.out(|out| (0..commands).map(|_| cancelled(out)).collect())
}

/// Nothing limits their number, and each is taken once: by its tag, in any order, or by `receive`, in order.
#[test]
fn answers_that_nobody_waits_for_are_all_kept() {
    const PAUSE: Duration = Duration::from_secs(1);
    let peer: Pid = "<0.99.1>".parse().unwrap();
    let mut driver = Driver::new(async_process(async move |context: Context<u32>| {
        let mut tags = answered_at_once(&context, 3_000);
        context.sleep(PAUSE).await?;
        for tag in tags.drain(1_000..2_000).rev() {
            assert!(matches!(context.answer(tag).await, Err(CommandError::Cancelled(_))));
        }
        context.out(|out| _ = out.monitor(peer));
        tags.extend(answered_at_once(&context, 1_000));
        context.sleep(PAUSE).await?;
        let (mut answers, mut ends) = (Vec::new(), 0);
        while let Either::First(event) = race(context.receive(), yield_once()).await {
            match event {
                Event::Completed(done) => answers.push(done.tag()),
                _ => ends += 1,
            }
        }
        Ok((answers == tags.iter().map(|tag| tag.id()).collect::<Vec<_>>(), ends))
    }));
    driver.run();
    driver.advance(PAUSE).run();
    driver.ended(peer, &Exit::Done(())).advance(PAUSE);
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (true, 1));
}

/// The wait ends with an error although another command is outstanding.
#[test]
fn an_answer_that_was_taken_before_is_not_waited_for() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let _outstanding = context.out(|out| out.after(Duration::from_secs(9)));
        let tags = answered_at_once(&context, 3);
        let is_first = matches!(context.receive().await, Event::Completed(done) if done.is(tags[0]));
        let is_second = matches!(context.answer(tags[1]).await, Err(CommandError::Cancelled(_)));
        assert!(is_first && is_second);
        let taken = [context.answer(tags[0]).await, context.answer(tags[1]).await];
        assert!(taken.iter().all(|taken| matches!(taken, Err(CommandError::Dropped))), "{taken:?}");
        let two = both(context.answer(tags[2]), context.answer(tags[2])).await;
        assert!(matches!(two, (Err(CommandError::Cancelled(_)), Err(CommandError::Dropped))), "{two:?}");
        let timer = context.perform(|out| out.after(Duration::MAX));
        drop(timer);
        Ok(())
    }));
    driver.run();
    assert!(driver.exit().expect("it has ended").is_done());
}

/// The tag of a command that an earlier state machine has yielded.
#[test]
fn an_answer_to_the_state_machine_before_an_upgrade_is_waited_for() {
    let mut driver = Driver::new(script(|_: &mut Events<'_, u32>, out: &mut StepOutput| {
        let tag = out.blocking(|| 7);
        let upgraded = async_process(async move |context: Context<u32>| {
            context.sleep(Duration::from_secs(1)).await?;
            Ok(context.answer(tag).await?)
        });
        Ok(Step::<u32>::Upgrade(Upgrade::to(upgraded)))
    }));
    driver.run();
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.run(), Status::Blocked);
    assert!(driver.answer_blocking(Ok(7_u32)));
    driver.run();
    let exit = driver.exit().expect("it has ended");
    assert!(exit.output().is_some_and(|seven| **seven == 7), "{exit}");
}

/// Counts the polls of the function of an async process.
async fn counting<F: Future>(polls: Arc<AtomicUsize>, future: F) -> F::Output {
    let mut future = Box::pin(future);
    poll_fn(|context| {
        polls.fetch_add(1, Ordering::SeqCst);
        future.as_mut().poll(context)
    })
    .await
}

#[test]
fn nothing_that_arrives_meanwhile_makes_a_waiting_process_run() {
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let mut driver = Driver::new(async_process(async move |context: Context<u32>| {
        counting(counted, async {
            let monitor = context.out(|out| out.monitor(context.pid()));
            context.sleep(Duration::from_secs(1)).await?;
            let down = context.receive().await;
            assert!(matches!(down, Event::Down(down) if down.monitor == monitor));
            let mut got = Vec::new();
            for _ in 0..10 {
                got.extend(context.next().await);
            }
            Ok(got)
        })
        .await
    }));
    driver.run();
    assert_eq!(polls.load(Ordering::SeqCst), 1);
    (0..10).for_each(|n| _ = driver.message(n));
    driver.ended(driver.pid(), &procession::Exit::Done(()));
    assert_eq!(driver.run(), Status::Blocked);
    assert_eq!(polls.load(Ordering::SeqCst), 1, "nothing that it waits for has come");
    driver.advance(Duration::from_secs(1)).run();
    assert_eq!(**driver.exit().unwrap().output().unwrap(), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_cycle_of_asks_between_async_processes_is_told_with_its_path() {
    async fn member(context: Context<Question>) -> Result<Vec<Pid>, procession::BoxError> {
        let Some(Question::Begin(next)) = context.next().await else { return Ok(Vec::new()) };
        match context.ask(next, Question::Ask, Duration::MAX).await {
            Err(CommandError::Cycle(cycle)) => Ok(cycle.pids().to_vec()),
            _ => Ok(Vec::new()),
        }
    }

    enum Question {
        Begin(Address<Question>),
        Ask(#[allow(unused)] Reply<()>),
    }

    let runtime = runtime(2);
    let members: Vec<_> = (0..3).map(|_| runtime.spawn(async_process(member)).unwrap()).collect();
    for (number, member) in members.iter().enumerate() {
        let next = members[(number + 1) % 3].address();
        runtime.send(member, Question::Begin(next)).unwrap();
    }
    let paths: Vec<_> = members.iter().map(|member| output(member).len()).collect();
    assert!(paths.contains(&3), "{paths:?}");
}
