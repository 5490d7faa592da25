//! Processes as `async fn`: that they are processes in everything, and what their steps are. Statements 19 and 20.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::async_process::Context;
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::testing::{Driver, Status};
use procession::{
    Address, BoxError, CommandError, Event, Events, Exit, Process, Reply, Runtime, SpawnOptions, Step, StepOutput,
    StepResult, Upgrade, async_process,
};

use crate::async_support::*;
use crate::helpers::*;

enum CounterMessage {
    Add(u64),
    Read(Reply<u64>),
    Fail,
}

async fn counter(context: Context<CounterMessage>) -> Result<u64, BoxError> {
    let mut total = 0;
    while let Some(message) = context.next().await {
        match message {
            CounterMessage::Add(n) => total += n,
            CounterMessage::Read(reply) => context.reply(reply, total),
            CounterMessage::Fail => return Err("on purpose".into()),
        }
    }
    Ok(total)
}

fn read(runtime: &Runtime, counter: Address<CounterMessage>) -> Result<u64, CommandError> {
    runtime.ask(counter, CounterMessage::Read, LIMIT).wait()
}

#[test]
fn an_async_process_is_sent_messages_asked_and_stopped() {
    let runtime = runtime(2);
    let handle = runtime.spawn(async_process(counter)).unwrap();
    (1..=100).for_each(|n| runtime.send(&handle, CounterMessage::Add(n)).unwrap());
    assert_eq!(read(&runtime, handle.address()).unwrap(), 5050);
    runtime.cancel(&handle, "enough").unwrap();
    assert_eq!(*output(&handle), 5050);
    assert_accounted(&runtime);
}

#[test]
fn an_async_process_asks_sleeps_and_blocks() {
    let runtime = runtime(2);
    let counter = runtime.spawn(async_process(counter)).unwrap().address();
    runtime.send(counter, CounterMessage::Add(40)).unwrap();
    let asker = runtime.spawn(async_process(async move |context: Context<()>| {
        let total = context.ask(counter, CounterMessage::Read, LIMIT).await?;
        context.sleep(Duration::from_millis(1)).await?;
        let one = context.blocking(|| 1).await?;
        let tag = context.out(|out| out.future(async { 1 }));
        Ok(total + one + context.answer(tag).await?)
    }));
    assert_eq!(*output(&asker.unwrap()), 42);
}

#[test]
fn an_async_process_has_a_name_a_type_monitors_and_links() {
    let watcher = Watcher::new();
    let runtime = builder().workers(2).observer(watcher.clone()).start().unwrap();
    let options = SpawnOptions::new().name("counter");
    let handle = runtime.spawn_with(async_process(counter), options).unwrap();
    assert_eq!(runtime.whereis("counter"), Some(handle.pid()));
    let info = runtime.processes().into_iter().find(|info| info.pid == handle.pid()).unwrap();
    assert!(info.type_name.ends_with("async_processes::counter"), "{}", info.type_name);
    let of = handle.pid();
    let ends = async move |context: Context<()>| {
        context.out(|out| {
            out.trap_exits(true);
            out.monitor(of);
            out.link(of);
        });
        let mut told = Vec::new();
        while told.len() < 2 {
            match context.receive().await {
                Event::Down(down) => told.push(format!("down {}", down.exit)),
                Event::Exit(exit) => told.push(format!("exit {}", exit.exit)),
                other => told.push(format!("{other:?}")),
            }
        }
        told.sort();
        Ok(told)
    };
    let observer = runtime.spawn(async_process(ends)).unwrap();
    until("it monitors", || {
        runtime.processes().iter().all(|info| info.state == procession::observe::ProcessState::Idle)
    });
    runtime.send("counter", CounterMessage::Fail).unwrap();
    let told = output(&observer);
    assert!(told[0].starts_with("down failed") && told[1].starts_with("exit failed"), "{told:?}");
}

#[test]
fn an_async_process_has_a_bounded_mailbox() {
    let runtime = runtime(1);
    let (_held, blocker) = hold_up(&runtime);
    let options = SpawnOptions::new().mailbox(2, Overflow::Refuse);
    let handle = runtime.spawn_with(async_process(counter), options).unwrap();
    let sent = (0..5).filter(|_| runtime.send(&handle, CounterMessage::Add(1)).is_ok()).count();
    assert_eq!(sent, 2);
    blocker.release();
    assert_eq!(read(&runtime, handle.address()).unwrap_or(2), 2);
}

#[test]
fn a_supervisor_restarts_an_async_process_anew_and_in_place() {
    let runtime = runtime(2);
    let named = |name| move || SpawnOptions::new().name(name);
    let supervisor = Supervisor::builder()
        .child(ChildSpec::new("anew", || async_process(counter)).options(named("anew")))
        .child(ChildSpec::in_place("in place", || async_process(counter)).options(named("in place")));
    let _supervisor = runtime.spawn(supervisor.build().unwrap()).unwrap();
    until("both have begun", || runtime.whereis("anew").is_some() && runtime.whereis("in place").is_some());
    let pids = ["anew", "in place"].map(|name| runtime.whereis(name).unwrap());
    for name in ["anew", "in place"] {
        runtime.send(name, CounterMessage::Add(7)).unwrap();
        runtime.send(name, CounterMessage::Fail).unwrap();
    }
    let fresh = |name| runtime.ask(name, CounterMessage::Read, LIMIT).wait().is_ok_and(|total| total == 0);
    until("both have begun again", || fresh("anew") && fresh("in place"));
    assert_ne!(runtime.whereis("anew").unwrap(), pids[0]);
    assert_eq!(runtime.whereis("in place").unwrap(), pids[1]);
}

#[test]
fn a_failed_async_process_recovers_with_its_option_and_keeps_its_mailbox() {
    let runtime = runtime(1);
    let (_held, blocker) = hold_up(&runtime);
    let options = SpawnOptions::new().recover_with(|_| Some(Upgrade::to(async_process(counter)))).step_events(2);
    let handle = runtime.spawn_with(async_process(counter), options).unwrap();
    for message in [CounterMessage::Add(1), CounterMessage::Fail, CounterMessage::Add(5), CounterMessage::Add(6)] {
        runtime.send(&handle, message).unwrap();
    }
    blocker.release();
    assert_eq!(read(&runtime, handle.address()).unwrap(), 11);
    assert_eq!(runtime.stats().messages.dead_by_reason[&DeadLetterReason::StepFailed], 2);
}

#[test]
fn a_state_machine_is_upgraded_to_an_async_process() {
    struct Old;

    impl Process for Old {
        type Message = CounterMessage;
        type Output = u64;

        fn step(&mut self, _: &mut Events<CounterMessage>, _: &mut StepOutput) -> StepResult<u64> {
            Ok(Step::Upgrade(Upgrade::to(async_process(counter))))
        }
    }

    let runtime = runtime(1);
    let handle = runtime.spawn(Old).unwrap();
    runtime.send(&handle, CounterMessage::Add(3)).unwrap();
    assert_eq!(read(&runtime, handle.address()).unwrap(), 3);
}

#[test]
fn a_driver_steps_an_async_process() {
    let mut driver = Driver::new(async_process(async |context: Context<u32>| {
        let mut sum = 0;
        for _ in 0..3 {
            sum += context.next().await.ok_or("stopped")?;
        }
        context.sleep(Duration::from_secs(5)).await?;
        Ok(sum)
    }));
    assert_eq!(driver.run(), Status::Idle);
    (1..=3).for_each(|n| _ = driver.message(n));
    assert_eq!((driver.run(), driver.outstanding().len()), (Status::Blocked, 1));
    driver.advance(Duration::from_secs(5));
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), 6);
}

/// Between two waits is one step: of what a failed one has yielded nothing is done, and all before it is.
#[test]
fn what_lies_between_two_waits_is_done_together_or_not_at_all() {
    type End = fn() -> Result<(), BoxError>;
    let ends: [End; 2] = [|| Err("on purpose".into()), || panic!("on purpose")];
    for end in ends {
        let runtime = runtime(1);
        let seen = Log::new();
        let receiver = runtime.spawn(recorder::<u32>(&seen)).unwrap();
        let to = receiver.address();
        let handle = runtime.spawn(async_process(async move |context: Context<()>| {
            context.send(to, 1);
            context.sleep(Duration::ZERO).await?;
            context.send(to, 2);
            context.next().await;
            context.send(to, 3);
            context.next().await;
            context.send(to, 4);
            end()?;
            Ok(())
        }));
        let handle = handle.unwrap();
        until("it waits for a message", || seen.len() == 2);
        runtime.send(&handle, ()).unwrap();
        until("it waits for another", || seen.len() == 3);
        runtime.send(&handle, ()).unwrap();
        assert!(matches!(join(&handle), Exit::Failed(_) | Exit::Panicked(_)));
        runtime.cancel(&receiver, "enough").unwrap();
        join(&receiver);
        assert_eq!(seen.take(), [1, 2, 3]);
        assert_eq!(runtime.stats().messages.dead_by_reason[&DeadLetterReason::StepFailed], 1);
        assert_accounted(&runtime);
    }
}

#[test]
fn between_two_waits_are_at_most_the_messages_of_one_step() {
    for limit in [1, 4] {
        let runtime = runtime(1);
        let (_held, blocker) = hold_up(&runtime);
        let done = Arc::new(AtomicUsize::new(0));
        let counted = done.clone();
        let failing = async move |context: Context<u32>| {
            while let Some(n) = context.next().await {
                let done = counted.clone();
                context.out(|out| out.future(async move { done.fetch_add(1, Ordering::SeqCst) }));
                if n == 9 {
                    return Err("on purpose".into());
                }
            }
            Ok(())
        };
        let options = SpawnOptions::new().step_events(limit);
        let handle = runtime.spawn_with(async_process(failing), options).unwrap();
        (1..=20).for_each(|n| runtime.send(&handle, n).unwrap());
        blocker.release();
        join(&handle);
        // With four in a step, the ninth message is the first of its step.
        assert_eq!(done.load(Ordering::SeqCst), 8);
        assert_eq!(runtime.stats().messages.dead_by_reason[&DeadLetterReason::StepFailed], 1);
        assert_accounted(&runtime);
    }
}

#[test]
fn a_process_that_wakes_itself_is_stepped_again_behind_others() {
    let runtime = runtime(1);
    let other = runtime.spawn(async_process(counter)).unwrap();
    let handle = runtime.spawn(async_process(async |context: Context<()>| {
        let mut yields = 0;
        while let Either::First(()) = race(yield_once(), context.next()).await {
            yields += 1;
        }
        Ok(yields)
    }));
    let handle = handle.unwrap();
    assert_eq!(read(&runtime, other.address()).unwrap(), 0, "another process on the same worker is stepped");
    runtime.send(&handle, ()).unwrap();
    assert!(matches!(join(&handle), Exit::Done(_)));
}
