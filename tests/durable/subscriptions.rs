//! Subscriptions of durable processes to groups.

use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::names::{GroupChange, Subscription};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, until};
use crate::worker::{end, kill, stepped};

const GROUP: &str = "guests";

/// Knows how many members a group has.
#[derive(Default, Serialize, Deserialize)]
struct Host {
    subscription: Option<Subscription>,
    guests: usize,
    /// How often it has got the members.
    snapshots: u32,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Subscribe,
    Unsubscribe,
    Look(Reply<(usize, u32)>),
}

impl Process for Host {
    type Message = Ask;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ask>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Ask::Subscribe) => self.subscription = Some(out.subscribe(GROUP)),
                Event::Message(Ask::Unsubscribe) => {
                    self.subscription.take().into_iter().for_each(|one| out.unsubscribe(one));
                }
                Event::Message(Ask::Look(reply)) => out.reply(reply, (self.guests, self.snapshots)),
                Event::Group(event) => {
                    assert_eq!(Some(&event.subscription), self.subscription.as_ref());
                    match &event.change {
                        GroupChange::Members(members) => {
                            (self.guests, self.snapshots) = (members.len(), self.snapshots + 1)
                        }
                        GroupChange::Joined(_) => self.guests += 1,
                        GroupChange::Left(_) => self.guests -= 1,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Host {
    const NAME: &str = "host";
}

/// An ordinary process that waits for its end.
struct Guest;

impl Process for Guest {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_over = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_over { Step::Done(()) } else { Step::Idle })
    }
}

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    store_in(MemoryJournal::new(disk)).kind::<Host>().start(Runtime::builder().workers(2)).unwrap()
}

fn begin(store: &Store) -> Address<Ask> {
    let begun = store.begin("a", Host::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    begun.address()
}

fn tell((store, runtime): (&Store, &Runtime), host: Address<Ask>, ask: Ask) {
    store.send(host, ask).unwrap().wait(LIMIT).unwrap();
    stepped(runtime);
}

fn come(runtime: &Runtime) {
    let guest = runtime.spawn(Guest).unwrap();
    runtime.join_group(GROUP, guest.pid()).unwrap();
}

fn look(runtime: &Runtime, host: Address<Ask>) -> (usize, u32) {
    runtime.ask(host, Ask::Look, LIMIT).wait().unwrap_or_default()
}

#[test]
fn a_subscription_begins_again_with_the_members_in_each_run() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store);
    come(&runtime);
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (1, 1));
    come(&runtime);
    until("it is told", || look(&runtime, host) == (2, 1));
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    // Nothing else wakes it.
    until("it is in memory", || store.stats().in_memory == 1);
    come(&runtime);
    until("the guests of the earlier run have left", || look(&runtime, host) == (1, 2));
    end((store, runtime));
}

#[test]
fn a_subscription_that_has_ended_does_not_come_back() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store);
    tell((&store, &runtime), host, Ask::Subscribe);
    tell((&store, &runtime), host, Ask::Unsubscribe);
    let before = look(&runtime, host);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    come(&runtime);
    stepped(&runtime);
    assert_eq!(store.stats().in_memory, 0, "nothing wakes it");
    assert_eq!(look(&runtime, host), before);
    end((store, runtime));
}

#[test]
fn a_subscription_of_a_process_that_is_loaded_again_holds() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let host = begin(&store);
    tell((&store, &runtime), host, Ask::Subscribe);
    until("it has the members", || look(&runtime, host) == (0, 1));
    runtime.wait_idle_timeout(LIMIT).unwrap();
    disk.fail_at(disk.calls(), Fault::Error);
    until("the files are opened anew", || {
        drop(store.begin("another", Host::default()));
        store.stats().rewinds == 1
    });
    until("it has the members again", || look(&runtime, host).1 == 2);
    come(&runtime);
    until("it is told once", || look(&runtime, host) == (1, 2));
    tell((&store, &runtime), host, Ask::Unsubscribe);
    end((store, runtime));
}
