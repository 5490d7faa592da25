//! The cost of a timer beside many others.

use std::path::Path;
use std::time::{Duration, Instant};

use procession::command::TimerFired;
use procession::durable::{Durable, Format, Store};
use procession::sync::Latch;
use procession::{BoxError, Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(600);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The processes that set timers, and how many each sets.
const SETTERS: u64 = 1_000;
const EACH: u64 = 10;
/// The pause between two checks whether all have left memory.
const PAUSE: Duration = Duration::from_millis(100);

/// It waits for a month, and leaves memory.
#[derive(Serialize, Deserialize)]
struct Waiter {
    timer: Option<Tag<TimerFired>>,
}

impl Process for Waiter {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.timer = Some(out.after(MONTH));
        Ok(())
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

impl Durable for Waiter {
    const NAME: &str = "waiter";
    const FORMAT: Format = Format::Postcard;
    const SLEEP_AFTER: Option<Duration> = Some(PAUSE);
}

/// It sets as many timers as a message says, one in each step.
#[derive(Serialize, Deserialize)]
struct Setter;

impl Process for Setter {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let Event::Message(left) = event else { continue };
            out.after(MONTH);
            if left > 1 {
                let me = out.pid().typed::<u64>();
                out.send(me, left - 1);
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Setter {
    const NAME: &str = "setter";
    const FORMAT: Format = Format::Postcard;
}

/// Processes set timers while the timers of others that sleep are pending. Returns the time for each timer, until
/// everything is on disk: one for each round.
pub(crate) fn timers(directory: &Path, pending: u64, rounds: usize) -> Vec<Duration> {
    let store = Store::open(directory).kind::<Waiter>().kind::<Setter>();
    let (store, runtime) = store.start(Runtime::builder()).expect("a store can be started");
    // Not all at once, so that the earlier ones fall asleep meanwhile.
    for n in 0..pending {
        let begun = store.begin(&format!("waiter {n}"), Waiter { timer: None }).expect("it begins");
        if n % 10_000 == 9_999 || n + 1 == pending {
            begun.wait(LIMIT).expect("it is on disk");
        }
    }
    let begin = Instant::now();
    while !runtime.processes().is_empty() {
        assert!(begin.elapsed() < LIMIT, "they do not fall asleep");
        let _ = Latch::<()>::new().wait_timeout(PAUSE);
    }
    let times = (0..rounds).map(|round| {
        let begin_one = |n| store.begin(&format!("setter {round} {n}"), Setter).expect("it begins");
        let setters: Vec<_> = (0..SETTERS).map(begin_one).collect();
        setters.last().into_iter().for_each(|setter| setter.wait(LIMIT).expect("it is on disk"));
        runtime.wait_idle().expect("it comes to rest");
        let begin = Instant::now();
        for setter in &setters {
            runtime.send(setter.address(), EACH).expect("it lives");
        }
        runtime.wait_idle().expect("it comes to rest");
        let last = store.begin(&format!("last {round}"), Setter).expect("it begins");
        last.wait(LIMIT).expect("all before is on disk");
        begin.elapsed() / (SETTERS * EACH) as u32
    });
    let times = times.collect();
    runtime.shutdown(LIMIT).expect("it can be shut down");
    store.close().expect("everything is on disk");
    times
}
