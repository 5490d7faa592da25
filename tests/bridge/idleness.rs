//! Waits for an idle runtime.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::{BoxError, Event, Events, Process, Reply, Step, StepOutput, WaitError};

use crate::helpers::*;

struct Fetch;

impl Command for Fetch {
    type Output = u32;
}

/// Does something in its first step, and counts the answers.
fn yields(mut first: impl FnMut(&mut StepOutput) + Send + 'static) -> impl Process<Message = (), Output = usize> {
    let (mut has_begun, mut answers) = (false, 0);
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if !std::mem::replace(&mut has_begun, true) {
            first(out);
        }
        for event in events {
            match event {
                Event::Completed(_) => answers += 1,
                Event::Cancel(_) => return Ok(Step::Done(answers)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn a_wait_for_idleness_ends_after_the_last_step() {
    let runtime = runtime(2);
    runtime.wait_idle_timeout(LIMIT).unwrap();
    let relays: Vec<_> = (0..50).map(|_| runtime.spawn(sink::<u32>()).unwrap()).collect();
    for round in 1..=20 {
        relays.iter().for_each(|relay| relay.send(round).unwrap());
        runtime.wait_idle_timeout(LIMIT).unwrap();
        assert!(runtime.is_idle());
        assert_eq!(runtime.stats().messages.stepped, u64::from(50 * round));
    }
    let (holder, blocker) = hold_up(&runtime);
    let why = runtime.wait_idle_timeout(Duration::ZERO).unwrap_err();
    assert_eq!((why.reason, why.running.len(), why.waiting.len(), why.blocking), (WaitError::TimedOut, 1, 0, 0));
    assert_eq!(why.running[0].pid, holder.pid());
    let text = why.to_string();
    assert!(text.contains("1 process ready or running") && text.contains(&holder.pid().to_string()), "{text}");
    blocker.release();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    output(&holder);
}

#[test]
fn a_wait_for_idleness_waits_for_handlers_and_blocking_work() {
    let (kept, responders) = channel();
    let handler = move |_: Fetch, responder: Responder<u32>| -> Result<(), BoxError> { Ok(kept.send(responder)?) };
    let runtime = builder().workers(1).handler(handler).start().unwrap();
    let asks = runtime.spawn(yields(|out| (0..3).for_each(|_| _ = out.command(Fetch)))).unwrap();
    let responders: Vec<_> = (0..3).map(|_| wait(&responders).unwrap()).collect();
    until("the process rests", || runtime.is_idle());
    let why = runtime.wait_idle_timeout(Duration::ZERO).unwrap_err();
    assert_eq!((why.running.len(), why.blocking), (0, 0));
    assert_eq!(why.waiting.iter().map(|(info, n)| (info.pid, *n)).collect::<Vec<_>>(), [(asks.pid(), 3)]);
    assert!(why.to_string().contains(&format!("3 commands not answered (3 of {}", asks.pid())), "{why}");
    let (waits, begun) = (runtime.clone(), procession::sync::Latch::new());
    let begins = begun.clone();
    let waiter = thread::spawn(move || {
        begins.set(()).unwrap();
        waits.wait_idle().map(|()| waits.stats().messages.accepted)
    });
    wait(&begun);
    for responder in responders {
        assert!(!waiter.is_finished());
        responder.ok(1);
    }
    wait(waiter).unwrap().unwrap();
    assert!(runtime.cancel(&asks, "over").unwrap());
    assert_eq!(*output(&asks), 3);
    // Blocking work.
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    runtime
        .spawn(yields(move |out| {
            let blocked = blocked.clone();
            out.blocking(move || blocked.wait());
        }))
        .unwrap();
    blocker.wait_begun();
    let why = runtime.wait_idle_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(why.blocking, 1, "{why}");
    blocker.release();
    runtime.wait_idle_timeout(LIMIT).unwrap();
}

/// Timers and questions that nobody answers do not count. A timer that is due does.
#[test]
fn a_wait_for_idleness_does_not_wait_for_timers_and_questions() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let mut kept = Vec::new();
    let keeper = script(move |events: &mut Events<'_, Reply<()>>, _: &mut StepOutput| {
        kept.extend(events.filter_map(|event| if let Event::Message(reply) = event { Some(reply) } else { None }));
        Ok(Step::<()>::Idle)
    });
    let keeper = runtime.spawn(keeper).unwrap();
    let to = keeper.address();
    let hour = Duration::from_secs(3_600);
    let process = runtime
        .spawn(yields(move |out| {
            (1..=10).for_each(|n| _ = out.after(n * hour));
            out.after(Duration::MAX);
            (0..5).for_each(|_| _ = out.ask(to, |reply| reply, Duration::MAX));
        }))
        .unwrap();
    runtime.wait_idle().unwrap();
    for n in 1..=10 {
        manual.advance(hour);
        runtime.wait_idle().unwrap();
        assert_eq!(runtime.stats().timers, 10 - n, "what was due has fired");
    }
    assert!(runtime.terminate(&keeper).unwrap());
    runtime.wait_idle().unwrap();
    assert!(runtime.cancel(&process, "over").unwrap());
    assert_eq!(*output(&process), 15);
    // The limit is by this clock.
    let (holder, blocker) = hold_up(&runtime);
    let waits = runtime.clone();
    let waiter = thread::spawn(move || waits.wait_idle_timeout(hour));
    advance_until("the limit is over", &manual, hour, || waiter.is_finished());
    assert_eq!(wait(waiter).unwrap().unwrap_err().reason, WaitError::TimedOut);
    blocker.release();
    output(&holder);
}

#[test]
fn who_would_wait_for_itself_is_refused() {
    let runtime = runtime(1);
    // A handle that a job drops last would end the runtime there, after the test.
    let weak = runtime.downgrade();
    let in_a_step = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        let inner = weak.upgrade().unwrap();
        Ok(Step::Done((inner.wait_idle().unwrap_err().reason, inner.wait_idle_timeout(Duration::ZERO).is_ok())))
    });
    let told = output(&runtime.spawn(in_a_step).unwrap());
    assert_eq!(*told, (WaitError::InsideStep, false));
    let (weak, reasons) = (runtime.downgrade(), Log::new());
    let tells = reasons.clone();
    runtime
        .spawn(yields(move |out| {
            let (weak, tells) = (weak.clone(), tells.clone());
            out.blocking(move || tells.push(weak.upgrade().unwrap().wait_idle().unwrap_err().reason));
        }))
        .unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    assert_eq!(reasons.take(), [WaitError::Inside]);
}

#[test]
fn a_runtime_that_was_shut_down_is_idle() {
    let runtime = runtime(2);
    let (holder, blocker) = hold_up(&runtime);
    let waits = runtime.clone();
    let waiter = thread::spawn(move || waits.wait_idle_timeout(LIMIT));
    blocker.release();
    output(&holder);
    runtime.shutdown(LIMIT).unwrap();
    wait(waiter).unwrap().unwrap();
    assert!(runtime.is_idle());
    runtime.wait_idle_timeout(LIMIT).unwrap();
}
