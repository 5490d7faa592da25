//! Random waits of an async process, against a plain list of the messages that are left.

use std::sync::Arc;
use std::time::Duration;

use procession::async_process::Context;
use procession::feed::Feed;
use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::{BoxError, Event, SpawnOptions, async_process};

use crate::async_support::*;
use crate::helpers::*;

/// A message is of one of so many kinds.
const KINDS: u64 = 3;

/// The waits whose kinds are drawn. After them, the process waits for all kinds at once.
const WAITS: usize = 40;

#[derive(Default)]
struct Record {
    /// The numbers of the messages and items that were accepted and not taken.
    left: Vec<u64>,
    numbers: u64,
    /// The kinds that waits are pending for.
    pending: Vec<u64>,
    feed: Option<Feed<Letter>>,
}

type Shared = Arc<Mutex<Record>>;

/// A message. It is no longer left when it is dropped.
struct Letter {
    number: u64,
    record: Shared,
}

impl Letter {
    fn new(record: &Shared) -> Letter {
        let mut inner = record.lock().unwrap();
        inner.numbers += 1;
        let number = inner.numbers;
        inner.left.push(number);
        Letter { number, record: record.clone() }
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.record.lock().unwrap().left.retain(|number| *number != self.number);
    }
}

/// Kinds that a wait is pending for, until this is dropped.
struct Pending<'a>(&'a Shared, u64);

impl Pending<'_> {
    fn of(record: &Shared, kind: u64) -> Pending<'_> {
        record.lock().unwrap().pending.push(kind);
        Pending(record, kind)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock().unwrap();
        let place = inner.pending.iter().position(|kind| *kind == self.1).unwrap();
        inner.pending.remove(place);
    }
}

/// Takes a message of this kind. The last kind is any.
async fn take(context: &Context<Letter>, record: &Shared, kind: u64) -> Result<(), BoxError> {
    let _pending = Pending::of(record, kind);
    if kind < KINDS {
        context.select(|letter| letter.number % KINDS == kind).await?;
    } else if kind == KINDS {
        context.next().await.ok_or("it was asked to stop")?;
    } else {
        while !matches!(context.receive().await, Event::Message(_)) {}
    }
    Ok(())
}

async fn waits(context: Context<Letter>, record: Shared) -> Result<(), BoxError> {
    record.lock().unwrap().feed = Some(context.out(|out| out.feed(3)));
    let random = |below: u64| context.out(|out| out.random_range(0..below));
    for _ in 0..WAITS {
        let (one, other) = (random(KINDS + 2), random(KINDS + 2));
        let limit = Duration::from_millis(random(3));
        match random(4) {
            0 => take(&context, &record, one).await?,
            1 => {
                let (first, second) = both(take(&context, &record, one), take(&context, &record, other)).await;
                first?;
                second?;
            }
            2 => _ = race(take(&context, &record, one), context.sleep(limit)).await,
            _ => {
                let (first, second) = both(take(&context, &record, one), context.sleep(limit)).await;
                first?;
                second?;
            }
        }
    }
    loop {
        let others = both(take(&context, &record, 1), take(&context, &record, 2));
        race(take(&context, &record, 0), others).await;
    }
}

fn scenario(world: &World) -> Result<(), BoxError> {
    let runtime = world.start(builder().step_events(world.random(1..5) as usize))?;
    let record = Shared::default();
    let own = record.clone();
    let options = match world.random(0..3) {
        0 => SpawnOptions::new().mailbox(world.random(3..9) as usize, Overflow::DropOldest),
        _ => SpawnOptions::new(),
    };
    let process = async_process(async move |context: Context<Letter>| waits(context, own).await);
    let process = runtime.spawn_with(process, options)?;
    for _ in 0..world.random(1..40) {
        for _ in 0..world.random(0..4) {
            let feed = record.lock().unwrap().feed.clone();
            match feed.filter(|_| world.random(0..2) == 0) {
                // A letter that is refused is dropped.
                Some(feed) => drop(feed.try_put(Letter::new(&record))),
                None => drop(runtime.send(&process, Letter::new(&record))),
            }
        }
        if world.random(0..2) == 0 {
            world.run_for(Duration::from_micros(world.random(0..3_000)))?;
            continue;
        }
        world.run()?;
        let inner = record.lock().unwrap();
        let is_for = |kind: u64| inner.left.iter().find(|number| kind >= KINDS || **number % KINDS == kind);
        let missed = inner.pending.iter().find_map(|kind| Some((*kind, is_for(*kind)?)));
        ensure(missed.is_none(), || {
            format!("{missed:?} was left, with {:?} pending for {:?}", inner.left, inner.pending)
        })?;
    }
    runtime.terminate(&process)?;
    world.run()?;
    record.lock().unwrap().feed = None;
    let (messages, left) = (runtime.stats().messages, record.lock().unwrap().left.len());
    ensure(messages.queued == 0 && left == 0, || format!("{left} are left, {messages:?}"))?;
    Ok(())
}

#[test]
fn no_random_wait_is_pending_while_its_message_is_left() {
    let seeds = if std::env::var_os("PROCESSION_FULL").is_some() { 20_000 } else { 500 };
    println!("{seeds} seeds. `PROCESSION_FULL=1` runs 20,000.");
    Simulation::new(scenario).name("random waits").seeds(0..seeds).max_turns(20_000).check();
}
