//! Durable and ordinary processes that link themselves to others, for the tests of links.

use std::time::Duration;

use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store, StoreError};
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::LIMIT;
use crate::worker::stepped;

/// Links itself to others, and notes what it gets.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Knot {
    notes: Vec<String>,
    /// Those that it links to and ends, one after the other.
    in_a_row: Vec<Pid>,
    /// How often it links itself again to one whose end it is told, in the same step.
    relinks: u32,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum KnotMessage {
    Trap(bool),
    Link(Pid),
    Unlink(Pid),
    /// Links itself to these, one after the other, and ends each.
    InARow(Vec<Pid>),
    /// Links itself again to the next processes whose ends it is told: so many times.
    Relink(u32),
    Look(Reply<Vec<String>>),
    Over,
    /// Its step fails.
    Fail,
    /// Links and removes links, and is done in the same step.
    Last(Vec<KnotMessage>),
}

impl Knot {
    fn next(&mut self, out: &mut StepOutput) {
        if let Some(next) = self.in_a_row.pop() {
            out.link(next);
            out.terminate(next);
        }
    }
}

impl Process for Knot {
    type Message = KnotMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, KnotMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(KnotMessage::Trap(trap)) => out.trap_exits(trap),
                Event::Message(KnotMessage::Link(pid)) => out.link(pid),
                Event::Message(KnotMessage::Unlink(pid)) => out.unlink(pid),
                Event::Message(KnotMessage::InARow(others)) => {
                    self.in_a_row = others;
                    out.trap_exits(true);
                    self.next(out);
                }
                Event::Message(KnotMessage::Relink(times)) => self.relinks = times,
                Event::Message(KnotMessage::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Message(KnotMessage::Over) => return Ok(Step::Done(())),
                Event::Message(KnotMessage::Fail) => return Err("broken".into()),
                Event::Message(KnotMessage::Last(all)) => {
                    for one in all {
                        match one {
                            KnotMessage::Link(pid) => out.link(pid),
                            KnotMessage::Unlink(pid) => out.unlink(pid),
                            _ => {}
                        }
                    }
                    return Ok(Step::Done(()));
                }
                Event::Exit(exit) => {
                    self.notes.push(exit.exit.to_string());
                    self.next(out);
                    if let Some(left) = self.relinks.checked_sub(1) {
                        self.relinks = left;
                        out.link(exit.pid);
                    }
                }
                Event::Completed(_) => {}
                // An ordinary one ends with its runtime.
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Knot {
    const NAME: &str = "knot";
}

pub(crate) type Knots<const N: usize> = [Address<KnotMessage>; N];

pub(crate) fn start(journal: impl Journal + 'static) -> (Store, Runtime) {
    store_in(journal).kind::<Knot>().start(Runtime::builder().workers(2)).unwrap()
}

pub(crate) fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    start(MemoryJournal::new(disk))
}

pub(crate) fn begin<const N: usize>(store: &Store) -> Knots<N> {
    std::array::from_fn(|n| {
        let begun = store.begin(&n.to_string(), Knot::default()).unwrap();
        begun.wait(LIMIT).unwrap();
        begun.address()
    })
}

pub(crate) fn tell(store: &Store, to: Address<KnotMessage>, message: KnotMessage) {
    store.send(to, message).unwrap().wait(LIMIT).unwrap();
}

pub(crate) fn look(runtime: &Runtime, of: Address<KnotMessage>) -> Option<Vec<String>> {
    runtime.ask(of, KnotMessage::Look, LIMIT).wait().ok()
}

pub(crate) fn is_terminated(store: &Store, id: &str) -> bool {
    matches!(store.result::<Knot>(id).unwrap().wait(Duration::ZERO), Err(StoreError::Terminated))
}

/// A store whose processes leave memory at once when they rest.
pub(crate) fn open_sleepy(disk: &MemoryDisk) -> (Store, Runtime) {
    let store = store_in(MemoryJournal::new(disk)).kind::<Knot>().sleep_after(Duration::from_micros(50));
    store.start(Runtime::builder().workers(2)).unwrap()
}

/// An ordinary process.
pub(crate) fn spawn(runtime: &Runtime) -> Address<KnotMessage> {
    runtime.spawn(Knot::default()).unwrap().address()
}

/// Sends a message to an ordinary process. Its step is over when this returns.
pub(crate) fn say(runtime: &Runtime, to: Address<KnotMessage>, message: KnotMessage) {
    runtime.send(to, message).unwrap();
    assert!(look(runtime, to).is_some());
}

/// A link from the durable process or from the other one. It is performed and stored when this returns.
pub(crate) fn link(
    (store, runtime): (&Store, &Runtime),
    durable: Address<KnotMessage>,
    other: Address<KnotMessage>,
    by_it: bool,
) {
    if by_it {
        tell(store, durable, KnotMessage::Link(other.pid()));
    } else {
        say(runtime, other, KnotMessage::Link(durable.pid()));
    }
    // Its answer waits until the entry is on disk.
    tell(store, durable, KnotMessage::Trap(false));
    assert!(look(runtime, durable).is_some());
    stepped(runtime);
}
