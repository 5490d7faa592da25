//! Many processes of two nodes that send messages of every size to each other's, and a node that stands still.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::tests::LIMIT;
use super::*;
use crate::counts::counts;
use crate::latch::Latch;
use crate::pid::Address;
use crate::primitives::{AtomicU64, Ordering};
use crate::process::{Event, Events, Process, Step, StepOutput, StepResult};
use crate::random::{below, random_at};
use crate::wait::{until, wait};

/// The numbers of senders and of receivers.
const PROCESSES: u64 = 8;

/// The largest text.
const LARGEST: u64 = 1 << 20;

/// A text with its sender and its number.
#[derive(Serialize, Deserialize)]
struct Text(u64, u64, String);

crate::remote!(Text, "test::Sized", 1);

/// The length of a text. Half of the lengths are below 16, a quarter below 32, and so on. The first of a sender is the
/// largest.
fn length(from: u64, number: u64) -> usize {
    let mut position = number << 8;
    let mut draw = || {
        position += 1;
        random_at(11, from, position)
    };
    let bound = (16 << draw().trailing_zeros()).min(LARGEST);
    if number == 0 { LARGEST as usize } else { below(bound + 1, draw) as usize }
}

/// Sends as many texts to all receivers, in turn.
struct Sender {
    me: u64,
    to: Vec<Address<Text>>,
    sent: u64,
    count: u64,
}

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.sent == self.count {
            return Ok(Step::Done(()));
        }
        let number = self.sent;
        self.to.iter().for_each(|to| out.send(*to, Text(self.me, number, "x".repeat(length(self.me, number)))));
        self.sent += 1;
        Ok(Step::Continue)
    }
}

/// Checks the texts of each sender, and counts them.
#[derive(Default)]
struct Receiver {
    next: BTreeMap<u64, u64>,
    taken: Arc<AtomicU64>,
}

impl Process for Receiver {
    type Message = Text;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Text>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Text(from, number, text)) = event {
                let next = self.next.entry(from).or_default();
                if (number, text.len()) != (*next, length(from, number)) {
                    return Err(format!("{number} of {from} with {} bytes, instead of {next}", text.len()).into());
                }
                *next += 1;
                self.taken.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(Step::Idle)
    }
}

/// A message whose decoder waits for the test.
#[derive(Serialize)]
struct Stands;

crate::remote!(Stands, "test::Stands", 1);

/// Set when the decoder has begun, and when it is to go on.
static DECODER: Mutex<Option<(Latch<()>, Latch<()>)>> = Mutex::new(None);

impl<'a> Deserialize<'a> for Stands {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Stands, D::Error> {
        <()>::deserialize(from)?;
        let decoder = lock(&DECODER).take();
        if let Some((begun, goes_on)) = decoder {
            let _ = begun.set(());
            wait(&goes_on);
        }
        Ok(Stands)
    }
}

#[test]
fn a_node_that_stands_still_holds_up_no_other() {
    let network = MemoryNetwork::new();
    let start = |name: &str| {
        let wire = Wire::new().message::<Text>().message::<Stands>();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let node = Cluster::named(name, wire).memory(&network).start(&runtime).unwrap();
        (runtime, node)
    };
    let ((here, a), (there, b), (third, c)) = (start("a"), start("b"), start("c"));
    ["b", "c"].iter().for_each(|other| a.wait_for(other, LIMIT).unwrap());
    let (ended, taken) = (there.spawn(Receiver::default()).unwrap(), Arc::<AtomicU64>::default());
    there.terminate(ended.pid()).unwrap();
    let receiver = third.spawn(Receiver { taken: taken.clone(), ..Receiver::default() }).unwrap();
    let far = |pid: Pid, node: &Cluster| {
        let number = a.number_of(node.here().incarnation());
        Pid::new(number, pid.slot(), pid.generation()).unwrap()
    };
    let (still, begun, goes_on) = (far(ended.pid(), &b), Latch::new(), Latch::new());
    *lock(&DECODER) = Some((begun.clone(), goes_on.clone()));
    here.send(still.typed(), Stands).unwrap();
    wait(&begun);
    while here.send(still.typed(), Text(0, 0, "x".repeat(30_000))).is_ok() {}
    here.spawn(Sender { me: 1, to: vec![still.typed()], sent: 0, count: 100_000 }).unwrap();
    until("its sender is held", || a.stats().held_processes == 1);
    here.spawn(Sender { me: 2, to: vec![far(receiver.pid(), &c).typed()], sent: 0, count: 100 }).unwrap();
    until("all have come to the third node", || taken.load(Ordering::Relaxed) == 100);
    assert_eq!(a.stats().held_processes, 1, "the other one has taken nothing");
    let _ = goes_on.set(());
    until("it goes on", || a.stats().held_processes == 0 && here.is_idle());
}

#[test]
fn messages_of_every_size_between_many_pairs_arrive_once_and_in_order() {
    // The full count is that of the contract.
    let count = counts(20_000, 1_000_000);
    let (network, taken) = (MemoryNetwork::new(), Arc::<AtomicU64>::default());
    let start = |name: &str| {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let node = Cluster::named(name, Wire::new().message::<Text>()).memory(&network).start(&runtime).unwrap();
        (runtime, node)
    };
    let ((here, a), (there, b)) = (start("a"), start("b"));
    a.wait_for("b", LIMIT).unwrap();
    let number = a.number_of(b.here().incarnation());
    let receivers: Vec<_> = (0..PROCESSES)
        .map(|_| there.spawn(Receiver { taken: taken.clone(), ..Receiver::default() }).unwrap())
        .collect();
    let far = |pid: Pid| Pid::new(number, pid.slot(), pid.generation()).unwrap().typed();
    let to: Vec<Address<Text>> = receivers.iter().map(|receiver| far(receiver.pid())).collect();
    let each = count / PROCESSES / PROCESSES;
    for me in 0..PROCESSES {
        here.spawn(Sender { me, to: to.clone(), sent: 0, count: each }).unwrap();
    }
    let all = each * PROCESSES * PROCESSES;
    // The limit is for an eighth of them. A receiver that has found a fault has ended.
    for part in 1..=8 {
        until("more have come", || {
            assert!(receivers.iter().all(|receiver| receiver.exit().is_none()), "{receivers:?}");
            taken.load(Ordering::Relaxed) >= all * part / 8
        });
    }
    until("nothing more comes", || here.is_idle() && there.is_idle());
    assert_eq!(taken.load(Ordering::Relaxed), all);
    for runtime in [&here, &there] {
        assert_eq!(runtime.stats().messages.dead_by_reason.values().sum::<u64>(), 0);
    }
}
