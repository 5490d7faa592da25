//! Tests of ends of linked and watched processes that are found more than once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable::core::StoreCore;
use crate::durable::journal::{MemoryDisk, MemoryJournal};
use crate::durable::rows::DownExit;
use crate::durable::{Durable, Store};
use crate::latch::Latch;
use crate::pid::Pid;
use crate::primitives::{Arc, OnceLock};
use crate::process::{Address, Event, Events, Process, Reply, Step, StepOutput, StepResult};
use crate::runtime::Runtime;
use crate::wait::wait;

/// Counts the ends that it is told of.
#[derive(Default, Serialize, Deserialize)]
struct Counter {
    downs: u32,
    exits: u32,
    /// The number of its monitor.
    monitor: u64,
}

#[derive(Serialize, Deserialize)]
enum CounterMessage {
    /// Watches this process, and links itself to it. It traps exits.
    Tie(Pid),
    /// Ends both ties.
    Untie(Pid),
    /// Its step takes until the test lets it go on.
    Hold(Reply<()>),
    /// The ends of watched and of linked processes, and the number of the monitor.
    Count(Reply<(u32, u32, u64)>),
}

/// Whether a step that is held has begun, and whether it may go on.
fn hold() -> &'static (Latch<()>, Latch<()>) {
    static HOLD: OnceLock<(Latch<()>, Latch<()>)> = OnceLock::new();
    HOLD.get_or_init(|| (Latch::new(), Latch::new()))
}

impl Process for Counter {
    type Message = CounterMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, CounterMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(CounterMessage::Tie(other)) => {
                    out.trap_exits(true);
                    out.link(other);
                    self.monitor = out.monitor(other).id();
                }
                Event::Message(CounterMessage::Untie(other)) => {
                    out.unlink(other);
                    out.demonitor(crate::process::Monitor::new(self.monitor, other));
                }
                Event::Message(CounterMessage::Hold(reply)) => {
                    out.reply(reply, ());
                    let _ = hold().0.set(());
                    wait(&hold().1);
                }
                Event::Message(CounterMessage::Count(reply)) => {
                    out.reply(reply, (self.downs, self.exits, self.monitor));
                }
                Event::Down(_) => self.downs += 1,
                Event::Exit(_) => self.exits += 1,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Counter {
    const NAME: &str = "counter";
}

/// A store with a process that is tied to another one.
struct Tied {
    store: Store,
    runtime: Runtime,
    one: Address<CounterMessage>,
    other: Address<CounterMessage>,
    monitor: u64,
}

impl Tied {
    fn new() -> Tied {
        let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Counter>();
        let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
        let [one, other] = ["one", "other"].map(|id| store.begin(id, Counter::default()).unwrap().address());
        runtime.send(one, CounterMessage::Tie(other.pid())).unwrap();
        let (.., monitor) = runtime.ask(one, CounterMessage::Count, Duration::MAX).wait().unwrap();
        runtime.wait_idle().unwrap();
        Tied { store, runtime, one, other, monitor }
    }

    /// Tells the one that the other has ended, as a load of the other does.
    fn find_end(&self) {
        let core: &Arc<StoreCore> = &self.store.inner.core;
        let [one, other] = [self.one, self.other].map(|of| core.number_of(of.pid()).unwrap());
        let end = || (other, DownExit::NoSuchProcess);
        let runtime = core.core().unwrap();
        core.tell_watchers(&runtime, vec![(self.monitor, one)], end());
        core.tell_linked(&runtime, vec![one], end());
    }

    /// The ends of watched and of linked processes that the one was told.
    fn count(&self) -> (u32, u32) {
        self.runtime.wait_idle().unwrap();
        let (downs, exits, _) = self.runtime.ask(self.one, CounterMessage::Count, Duration::MAX).wait().unwrap();
        (downs, exits)
    }

    fn end(self) {
        drop(self.runtime.shutdown(Duration::MAX).unwrap());
        self.store.close().unwrap();
    }
}

#[test]
fn an_end_that_is_found_twice_is_told_once() {
    let tied = Tied::new();
    let held = tied.runtime.ask(tied.one, CounterMessage::Hold, Duration::MAX);
    wait(&hold().0);
    tied.find_end();
    tied.find_end();
    let _ = hold().1.set(());
    held.wait().unwrap();
    assert_eq!(tied.count(), (1, 1), "it was found twice before a step took it");
    tied.find_end();
    assert_eq!(tied.count(), (1, 1), "it was found again after a step took it");
    tied.end();
}

#[test]
fn an_end_that_is_found_is_told_to_a_process_at_rest() {
    let tied = Tied::new();
    tied.find_end();
    // The step that counts comes after all others.
    assert_eq!(tied.count(), (1, 1));
    tied.end();
}

#[test]
fn an_end_that_is_found_after_the_ties_were_ended_is_not_told() {
    let tied = Tied::new();
    tied.runtime.send(tied.one, CounterMessage::Untie(tied.other.pid())).unwrap();
    assert_eq!(tied.count(), (0, 0));
    tied.find_end();
    assert_eq!(tied.count(), (0, 0));
    tied.end();
}
