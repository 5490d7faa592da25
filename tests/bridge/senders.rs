//! Senders and receivers for tests of messages that wait for room.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::ProcessState;
use procession::spawn::Overflow;
use procession::{
    Address, Event, Events, Handle, Pid, Process, Rejected, Runtime, SendError, SpawnOptions, Step, StepOutput, Tag,
};

use crate::helpers::*;

pub const PATIENCE: Duration = Duration::from_secs(5);

/// A receiver fails when it is told this.
pub const FAILS: u32 = u32::MAX;

/// The tag of a send with a limit.
pub type Sent<M> = Tag<Result<(), Rejected<M, SendError>>>;

/// The result of a send: the message that came back, and why.
pub type Told = Result<(), (u32, SendError)>;

pub fn bound(limit: usize) -> SpawnOptions {
    SpawnOptions::new().mailbox(limit, Overflow::Refuse)
}

/// A runtime with one worker and a manual clock, and an observer of dead letters.
pub fn observed() -> (Runtime, ManualClock, Watcher) {
    let (clock, watcher) = (ManualClock::new(), Watcher::new());
    let runtime = builder().workers(2).clock(clock.clock()).observer(watcher.clone()).start().unwrap();
    (runtime, clock, watcher)
}

/// A receiver that is held up in its first step, which was given no events. Then it writes its messages down. It fails
/// when it is told [`FAILS`], and is done when it is asked to stop.
pub fn held(
    runtime: &Runtime,
    options: SpawnOptions,
    log: &Log<u32>,
) -> (Handle<impl Process<Message = u32>>, Blocker) {
    let blocker = Blocker::new();
    let receiver = runtime.spawn_with(receiver(log, Some(blocker.blocked())), options).unwrap();
    blocker.wait_begun();
    (receiver, blocker)
}

pub fn receiver(log: &Log<u32>, mut blocked: Option<Blocked>) -> impl Process<Message = u32, Output = ()> + use<> {
    let log = log.clone();
    script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        if let Some(blocked) = blocked.take() {
            blocked.wait();
            return Ok(Step::Idle);
        }
        for event in events {
            match event {
                Event::Message(FAILS) => return Err("as it was told".into()),
                Event::Message(n) => log.push(n),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// A yield of a sender.
pub enum Order {
    /// Send a message with a limit.
    Timeout(u32, Duration),
    /// Send a message without a limit.
    Plain(u32),
    /// Cancel the first send with a limit.
    Cancel,
    /// Fail.
    Fail,
}

/// Yields the orders of a message in one step. Writes the results of its sends down.
pub fn sender(to: Address<u32>, told: &Log<Told>) -> impl Process<Message = Vec<Order>, Output = ()> + use<> {
    let (mut sent, told) = (Vec::<Sent<u32>>::new(), told.clone());
    script(move |events: &mut Events<'_, Vec<Order>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(orders) => {
                    for order in orders {
                        match order {
                            Order::Timeout(n, limit) => sent.push(out.send_timeout(to, n, limit)),
                            Order::Plain(n) => out.send(to, n),
                            Order::Cancel => out.cancel_command(sent[0]),
                            Order::Fail => return Err("as it was told".into()),
                        }
                    }
                }
                Event::Completed(done) => {
                    let result = sent.iter().find_map(|tag| done.take(*tag)).unwrap().unwrap();
                    told.push(result.map_err(Rejected::into_parts));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

pub fn spawn_sender(runtime: &Runtime, to: Address<u32>, told: &Log<Told>) -> Address<Vec<Order>> {
    runtime.spawn(sender(to, told)).unwrap().address()
}

/// Gives orders to a sender, and waits until it has followed them.
pub fn tell(runtime: &Runtime, sender: Address<Vec<Order>>, orders: Vec<Order>) {
    let steps = |pid: Pid| runtime.process(pid).unwrap().steps;
    until("it rests", || steps(sender.pid()) > 0 && runtime.process(sender.pid()).unwrap().in_step.is_none());
    let before = runtime.stats().messages.stepped;
    runtime.send(sender, orders).unwrap();
    until("it has yielded", || runtime.stats().messages.stepped > before);
    until("its yields are performed", || {
        runtime.process(sender.pid()).is_none_or(|info| info.state == ProcessState::Idle)
    });
}

pub fn full(to: Pid, limit: usize) -> SendError {
    SendError::Full { pid: to, limit }
}
