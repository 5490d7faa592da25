//! Statement 16: the futures of the library under an executor that is nothing but a thread and its parking.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{CancelToken, CommandError, Event, Events, Process, Reason, Reply, SpawnOptions, Step, StepOutput};

use crate::helpers::*;

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// Written by hand. If a wake is lost, it parks for the limit, and fails.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unparks(thread::current())).into();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let began = std::time::Instant::now();
        thread::park_timeout(LIMIT);
        assert!(began.elapsed() < LIMIT, "no wake came");
    }
}

enum Number {
    /// Answered at once.
    Double(u32, Reply<u32>),
    /// Kept until the process is asked to stop.
    Keep(u32, Reply<u32>),
}

fn numbers() -> impl Process<Message = Number, Output = ()> {
    let mut kept = Vec::new();
    script(move |events: &mut Events<'_, Number>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Number::Double(n, reply)) => out.reply(reply, 2 * n),
                Event::Message(Number::Keep(n, reply)) => kept.push((n, reply)),
                _ => {
                    kept.drain(..).for_each(|(n, reply)| out.reply(reply, n));
                    return Ok(Step::Done(()));
                }
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn every_future_runs_under_an_executor_written_by_hand() {
    let runtime = runtime(1);
    let numbers = runtime.spawn_with(numbers(), SpawnOptions::new().mailbox(4, Overflow::Refuse)).unwrap();
    let (latch, cancel, watch) = (Latch::new(), CancelToken::new(), runtime.watch(&numbers));
    let (sets, cancels, ends) = (latch.clone(), cancel.clone(), numbers.process_ref());
    let body = async {
        let two = numbers.ask(|reply| Number::Double(1, reply), LIMIT).await.unwrap();
        let kept = numbers.ask(|reply| Number::Keep(7, reply), LIMIT);
        for n in 0..20 {
            let (sink, _) = procession::testing::question::<u32>();
            numbers.send_timeout(Number::Double(n, sink), LIMIT).await.unwrap();
        }
        let setter = thread::spawn(move || sets.set(5).unwrap());
        let five = latch.await;
        let canceller = thread::spawn(move || cancels.cancel(Reason::Cancelled));
        let reason = cancel.cancelled().await;
        let ender = thread::spawn(move || ends.cancel("over").unwrap());
        let exit = numbers.clone().await;
        wait(setter).unwrap();
        wait(canceller).unwrap();
        assert!(wait(ender).unwrap());
        (two, kept.await.unwrap(), five, reason, exit.is_done(), watch.await.exit.is_done())
    };
    assert_eq!(block_on(body), (2, 7, 5, Reason::Cancelled, true, true));
}

/// A thread has many questions open, and waits for them in any order, in both ways.
#[test]
fn a_thread_waits_for_a_thousand_questions_in_any_order() {
    const MANY: u32 = 1_000;
    let runtime = runtime(2);
    let numbers = runtime.spawn(numbers()).unwrap();
    let mut asks: Vec<_> = (0..MANY).map(|n| (n, numbers.ask(|reply| Number::Double(n, reply), LIMIT))).collect();
    while !asks.is_empty() {
        // From both ends and from the middle, in turn.
        let place = [0, asks.len() - 1, asks.len() / 2][asks.len() % 3];
        let (n, ask) = asks.remove(place);
        let answer = if asks.len() % 2 == 0 { ask.wait() } else { block_on(ask) };
        assert_eq!(answer.unwrap(), 2 * n);
    }
    let kept: Vec<_> = (0..MANY).map(|n| numbers.ask(|reply| Number::Keep(n, reply), LIMIT)).collect();
    until("all are asked", || runtime.stats().messages.stepped == u64::from(2 * MANY));
    assert!(runtime.cancel(&numbers, "over").unwrap());
    for (n, ask) in (0..MANY).zip(kept).rev() {
        assert_eq!(ask.wait().unwrap(), n);
    }
    assert_eq!(runtime.stats().timers, 0);
}

#[test]
fn the_limit_of_a_question_runs_from_the_call() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let numbers = runtime.spawn(numbers()).unwrap();
    let limit = Duration::from_secs(10);
    let asks = [(); 2].map(|()| numbers.ask(|reply| Number::Keep(1, reply), limit));
    until("both are asked", || runtime.stats().messages.stepped == 2);
    manual.advance(limit);
    let [awaited, waited] = asks;
    assert!(matches!(block_on(awaited), Err(CommandError::TimedOut)));
    assert!(matches!(waited.wait(), Err(CommandError::TimedOut)));
}
