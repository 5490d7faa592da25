//! Many processes of two nodes that send messages of every size to each other, a node that stands still, and workers
//! that call no link.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::tests::{LIMIT, Member};
use super::*;
use crate::cluster::link::CALLS_BY_WORKERS;
use crate::cluster::node::echo::Message;
use crate::counts::counts;
use crate::latch::Latch;
use crate::pid::Address;
use crate::primitives::{AtomicBool, AtomicU64, Ordering};
use crate::process::{Event, Events, Process, SpawnOptions, Step, StepOutput, StepResult, Tag, TimerFired};
use crate::random::{below, random_at};
use crate::wait::{until, wait};

/// The numbers of senders and of receivers.
const PROCESSES: u64 = 8;

/// The largest text.
const LARGEST: u64 = 1 << 20;

/// A text with its sender and its number.
#[derive(Clone, Serialize, Deserialize)]
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
    let counts = [(&there, &b), (&third, &c)].map(|(runtime, node)| {
        let count = Arc::<AtomicU64>::default();
        let counter = runtime.spawn(Counter(count.clone())).unwrap();
        node.join_group("counters", "counter", &counter).unwrap();
        (counter, count)
    });
    until("both members are seen", || a.group_members("counters").len() == 2);
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
    // The first frames may have been on their way, and then it was held once more.
    until("the sender of the other one is held", || a.stats().held_processes == 1);
    // A broadcast goes to the member of the third node alone, now and later.
    let counted = || counts.each_ref().map(|(_, count)| count.load(Ordering::Relaxed));
    // A short one goes to both, until no room is left. That is no wait, because a node that stands still for 30 seconds
    // is down.
    let mut broadcasts = 1;
    while a.broadcast("counters", Text(3, 0, String::new())) == 2 {
        broadcasts += 1;
    }
    until("the member of the third node has each broadcast", || counted()[1] == broadcasts);
    let _ = goes_on.set(());
    until("it goes on", || a.stats().held_processes == 0 && here.is_idle());
    assert_eq!(a.broadcast("counters", Text(3, 1, String::new())), 2);
    until("both have the last broadcast", || counted()[0] >= broadcasts && counted()[1] > broadcasts);
    until("nothing more comes", || there.is_idle() && third.is_idle());
    assert_eq!(counted(), [broadcasts, broadcasts + 1]);
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

/// Calls another node each millisecond, in many ways, until it is told to end.
struct Caller {
    cluster: Cluster,
    to: Address<Message>,
    calls: u64,
    timer: Option<Tag<TimerFired>>,
    ends: Arc<AtomicBool>,
}

impl Process for Caller {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, out: &mut StepOutput) -> StepResult<()> {
        if self.ends.load(Ordering::SeqCst) {
            return Ok(Step::Done(()));
        }
        let fired = |event| matches!(event, Event::Completed(done) if done.take(self.timer).is_some());
        if events.filter_map(|event| fired(event).then_some(())).count() == 0 && self.timer.is_some() {
            return Ok(Step::Idle);
        }
        let (cluster, me, far) = (&self.cluster, out.pid(), self.to.pid());
        out.send(self.to, Message::Note(self.calls));
        out.ask(self.to, Message::Ask, LIMIT);
        let monitor = out.monitor(far);
        out.demonitor(monitor);
        out.link(far);
        out.unlink(far);
        out.future(cluster.whereis("b", "echo", LIMIT));
        cluster.broadcast("counters", Text(0, self.calls, "x".repeat(100)));
        cluster.join_group("callers", "caller", me)?;
        // Another caller may have the name, and there is no majority while the other node is down.
        drop((cluster.claim("caller", me), cluster.claim_unique("caller", me)));
        if self.calls % 2 == 1 {
            cluster.leave_group("callers", me);
            cluster.release("caller", me);
            cluster.release_unique("caller", me);
        }
        self.calls += 1;
        self.timer = Some(out.after(Duration::from_millis(1)));
        Ok(Step::Idle)
    }
}

/// Counts the texts that come.
struct Counter(Arc<AtomicU64>);

impl Process for Counter {
    type Message = Text;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Text>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(_) => _ = self.0.fetch_add(1, Ordering::Relaxed),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The other node goes down, comes back, and leaves.
#[test]
fn no_worker_ever_calls_the_link() {
    let network = MemoryNetwork::new();
    let [a, b] = ["a", "b"].map(|name| {
        let runtime = Runtime::builder().workers(2).start().unwrap();
        let wire = Wire::new().message::<Message>().message::<Text>();
        let cluster = Cluster::named(name, wire).voters(["a", "b"]).memory(&network).start(&runtime).unwrap();
        Member { runtime, cluster, graves: Default::default() }
    });
    a.cluster.wait_for("b", LIMIT).unwrap();
    let (echo, notes) = b.echo();
    b.runtime.register("echo", &echo).unwrap();
    let texts = Arc::<AtomicU64>::default();
    let counter = b.runtime.spawn(Counter(texts.clone())).unwrap();
    b.cluster.join_group("counters", "counter", &counter).unwrap();
    let (to, ends) = (a.far(&b, echo.address()), Arc::<AtomicBool>::default());
    let callers = [(); 4].map(|()| {
        let caller = Caller { cluster: a.cluster.clone(), to, calls: 0, timer: None, ends: ends.clone() };
        a.runtime.spawn_with(caller, SpawnOptions::new().trap_exits()).unwrap()
    });
    let more_come = |what: &str| {
        let before = (lock(&notes).len(), texts.load(Ordering::Relaxed));
        until(what, || lock(&notes).len() > before.0 + 200 && texts.load(Ordering::Relaxed) > before.1);
    };
    more_come("messages and broadcasts have come");
    network.cut("a", "b");
    until("the two are down", || a.cluster.nodes().is_empty() && b.cluster.nodes().is_empty());
    network.heal("a", "b");
    more_come("messages and broadcasts have come after the heal");
    b.runtime.shutdown(LIMIT).unwrap();
    until("it has left", || a.cluster.nodes().is_empty());
    ends.store(true, Ordering::SeqCst);
    for exit in callers.iter().map(wait) {
        assert!(exit.is_done(), "{exit:?}");
    }
    assert!(a.cluster.stats().peers[0].frames_sent > 100, "{:?}", a.cluster.stats());
    a.runtime.shutdown(LIMIT).unwrap();
    assert_eq!(CALLS_BY_WORKERS.load(Ordering::SeqCst), 0);
}
