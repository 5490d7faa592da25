//! Durable processes, as processes of other nodes reach them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::cluster::{Cluster, MemoryNetwork, Wire};
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::observe::DeadLetterReason;
use procession::sync::Latch;
use procession::{Address, CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Deserializer, Serialize};

use crate::knots::{Knot, KnotMessage, look as look_at_knot};
use crate::places::store_in;
use crate::wait::{LIMIT, until};
use crate::worker::{Worker, WorkerMessage, end, kill, look, open, stepped};

procession::remote!(WorkerMessage, "test::Worker", 1);

fn node(name: &str, network: &MemoryNetwork, runtime: &Runtime) -> Cluster {
    Cluster::named(name, Wire::new().message::<WorkerMessage>()).memory(network).start(runtime).unwrap()
}

/// The address of a durable process of the node `b`.
fn find(cluster: &Cluster, name: &str) -> Address<WorkerMessage> {
    cluster.wait_for("b", LIMIT).unwrap();
    cluster.whereis("b", name, LIMIT).wait().unwrap().typed()
}

/// Begins a durable process with this id and name.
fn begin(store: &Store, runtime: &Runtime, id: &str) -> Address<WorkerMessage> {
    let begun = store.begin(id, Worker::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    runtime.register(id, begun.address()).unwrap();
    begun.address()
}

fn is_node_down<T: std::fmt::Debug>(answer: &Result<T, CommandError>) -> bool {
    matches!(answer, Err(CommandError::Node { .. }))
}

#[test]
fn a_durable_process_keeps_its_pid_for_other_nodes_over_its_own_restarts() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let (store, b) = open(&disk);
    begin(&store, &b, "worker");
    let second = node("b", &network, &b);
    let far = find(&cluster, "worker");
    a.send(far, WorkerMessage::Set(5)).unwrap();
    assert_eq!(look(&a, far).0, 5);
    let watched = a.watch(far.pid());
    // It knows a process of the first node, which knows it.
    let near = a.spawn(Worker::default()).unwrap().address();
    a.send(far, WorkerMessage::Introduce(near)).unwrap();
    until("the sender is known", || look(&a, near).1 == [format!("Some({:?})", far.pid())]);
    stepped(&b);
    drop(second);
    kill(&disk, (store, b));
    until("its node is down", || cluster.nodes().is_empty());
    assert!(is_node_down(&a.ask(far, WorkerMessage::Look, LIMIT).wait()));
    let told = watched.wait_timeout(LIMIT).unwrap().exit.to_string();
    assert_eq!(told, "terminated (the connection to its node has broken)");
    // The next run is another node, and the same store.
    let (store, b) = open(&disk);
    let _third = node("b", &network, &b);
    cluster.wait_for("b", LIMIT).unwrap();
    assert_eq!(look(&a, far).0, 5);
    let watched = a.watch(far.pid());
    a.send(far, WorkerMessage::Over).unwrap();
    assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), "done");
    until("it has ended", || !b.is_alive(store.find::<Worker>("worker").map_or(far.pid(), |it| it.pid())));
    assert!(matches!(a.ask(far, WorkerMessage::Look, LIMIT).wait(), Err(CommandError::NoSuchProcess(_))));
    end((store, b));
}

#[test]
fn a_durable_process_that_sleeps_is_woken_and_stopped_by_other_nodes() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().sleep_after(Duration::from_micros(50));
    let (store, b) = store.start(Runtime::builder().workers(1)).unwrap();
    let near = ["first", "second"].map(|id| begin(&store, &b, id));
    let _second = node("b", &network, &b);
    let [first, second] = ["first", "second"].map(|id| find(&cluster, id));
    until("they sleep", || b.processes().is_empty());
    let watched = [first, second].map(|far| a.watch(far.pid()));
    assert_eq!(look(&a, first).0, 0, "the question has woken it");
    assert!(a.cancel(first.pid(), "enough").unwrap());
    until("it is asked to stop", || look(&a, first).1 == ["cancel: enough"]);
    until("they sleep", || b.processes().is_empty());
    assert!(a.terminate(second.pid()).unwrap());
    assert_eq!(watched[1].wait_timeout(LIMIT).unwrap().exit.to_string(), "terminated (terminated)");
    assert!(watched[0].down().is_none());
    assert!(b.is_alive(near[0].pid()) && !b.is_alive(near[1].pid()));
    end((store, b));
}

#[test]
fn a_link_to_a_durable_process_of_another_node_is_refused() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let (store, b) = open(&disk);
    let durable = begin(&store, &b, "worker");
    let _second = node("b", &network, &b);
    let far = find(&cluster, "worker");
    let knot = a.spawn(Knot::default()).unwrap().address();
    a.send(knot, KnotMessage::Trap(true)).unwrap();
    a.send(knot, KnotMessage::Link(far.pid())).unwrap();
    until("it is told", || look_at_knot(&a, knot).unwrap() == ["terminated (the connection to its node has broken)"]);
    assert_eq!(look(&a, far).0, 0);
    assert!(b.is_alive(durable.pid()));
    end((store, b));
}

fn dead(runtime: &Runtime, reason: DeadLetterReason) -> u64 {
    runtime.stats().messages.dead_by_reason.get(&reason).copied().unwrap_or(0)
}

/// The node of the sender does not know how full the mailbox is. So the message is sent, and refused where it arrives.
#[test]
fn a_far_message_to_a_full_durable_process_is_a_dead_letter_there() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let a = Runtime::builder().workers(1).start().unwrap();
    let cluster = node("a", &network, &a);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Worker>().mailbox_limit(5);
    let (store, b) = store.start(Runtime::builder().workers(1)).unwrap();
    begin(&store, &b, "worker");
    let second = node("b", &network, &b);
    let far = find(&cluster, "worker");
    a.send(far, WorkerMessage::HangAndWait).unwrap();
    until("it waits", || b.stats().messages.stepped == 1);
    stepped(&b);
    (0..7).for_each(|number| a.send(far, WorkerMessage::Set(number)).unwrap());
    // There is room at the connection, so a limit does not help.
    a.send_timeout(far, WorkerMessage::Set(7), LIMIT).wait().unwrap();
    until("three were refused", || dead(&b, DeadLetterReason::Full) == 3);
    let asked = a.ask(far, WorkerMessage::Look, LIMIT).wait();
    assert!(matches!(asked, Err(CommandError::Full(full)) if full == far.pid()), "{asked:?}");
    assert_eq!(a.stats().messages.dead_by_reason.values().sum::<u64>(), 0, "the sender is not told");
    drop(second);
    end((store, b));
    // In the next run it waits no longer, and takes those that found room.
    let (store, b) = open(&disk);
    let worker = store.find::<Worker>("worker").unwrap();
    until("it has taken them", || look(&b, worker).0 == 4);
    assert!(store.dead_letters(None, 10).unwrap().is_empty(), "none is stored");
    end((store, b));
}

/// Whether the decoder of a test waits, and until when.
static WAITS: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
static GATES: [LazyLock<Latch<()>>; 2] = [LazyLock::new(Latch::new), LazyLock::new(Latch::new)];

/// Its decoder waits, once it is told to. The number is that of the test.
#[derive(Clone, Copy, Serialize)]
struct Slow(u8);

impl<'a> Deserialize<'a> for Slow {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Slow, D::Error> {
        let slow = Slow(u8::deserialize(from)?);
        // The types of a node are probed before.
        let test = usize::from(slow.0);
        if WAITS.get(test).is_some_and(|waits| waits.swap(false, Ordering::SeqCst)) {
            let _ = GATES[test].wait_timeout(LIMIT);
        }
        Ok(slow)
    }
}

#[derive(Serialize, Deserialize)]
enum FloodMessage {
    /// Sends so many texts to another one, in one step.
    Flood(Address<FloodMessage>, u32),
    /// Links itself with another one.
    Link(Address<FloodMessage>),
    /// Sends a text, and ends.
    Last(Address<FloodMessage>),
    Text(String),
    Slow(Slow),
    Taken(Reply<u32>),
    /// Asks for a text of 1 MiB.
    Fetch(Reply<String>),
}

procession::remote!(FloodMessage, "test::Flood", 1);

/// Sends texts, and counts those that it gets.
#[derive(Default, Serialize, Deserialize)]
struct Flooder(u32);

impl Process for Flooder {
    type Message = FloodMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, FloodMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(FloodMessage::Flood(to, count)) => {
                    (0..count).for_each(|_| out.send(to, FloodMessage::Text("x".repeat(20_000))));
                }
                Event::Message(FloodMessage::Link(to)) => out.link(to),
                Event::Message(FloodMessage::Last(to)) => {
                    out.send(to, FloodMessage::Text(String::new()));
                    return Ok(Step::Done(()));
                }
                Event::Message(FloodMessage::Text(_)) => self.0 += 1,
                Event::Message(FloodMessage::Taken(reply)) => out.reply(reply, self.0),
                Event::Message(FloodMessage::Fetch(reply)) => {
                    self.0 += 1;
                    out.reply(reply, "x".repeat(1 << 20));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Flooder {
    const NAME: &str = "flooder";
}

/// The messages of its stored step are taken. It is not stepped again until there is room, but it can be ended.
#[test]
fn a_durable_process_that_sends_to_a_node_without_room_is_held() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let start = |name: &str, runtime: &Runtime| {
        Cluster::named(name, Wire::new().message::<FloodMessage>()).memory(&network).start(runtime).unwrap()
    };
    let a = Runtime::builder().workers(1).start().unwrap();
    let reader = a.spawn(Flooder::default()).unwrap();
    a.register("reader", &reader).unwrap();
    let _first = start("a", &a);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Flooder>();
    let (store, b) = store.start(Runtime::builder().workers(1)).unwrap();
    let second = start("b", &b);
    second.wait_for("a", LIMIT).unwrap();
    let far: Address<FloodMessage> = second.whereis("a", "reader", LIMIT).wait().unwrap().typed();
    let begin = |id| store.begin(id, Flooder::default()).unwrap().address();
    let [sender, last, terminated, linked, partner] = ["sender", "last", "terminated", "linked", "partner"].map(begin);
    b.send(linked, FloodMessage::Link(partner)).unwrap();
    until("they are linked", || b.stats().messages.stepped == 1 && b.is_idle());
    WAITS[0].store(true, Ordering::SeqCst);
    b.send(far, FloodMessage::Slow(Slow(0))).unwrap();
    until("the other node takes nothing", || !WAITS[0].load(Ordering::SeqCst));
    // 20 MB: up to 4 MiB are on the way, and 8 MiB wait.
    b.send(sender, FloodMessage::Flood(far, 1_000)).unwrap();
    until("it is held", || second.stats().held_processes == 1);
    b.send(sender, FloodMessage::Flood(far, 1)).unwrap();
    // Another one sends in its last step.
    b.send(last, FloodMessage::Last(far)).unwrap();
    until("the other one has ended", || !b.is_alive(last));
    until("all rest", || b.is_idle());
    assert_eq!(b.stats().messages.stepped, 3, "it is not stepped");
    [terminated, linked].iter().for_each(|one| b.send(*one, FloodMessage::Flood(far, 1)).unwrap());
    until("both are held", || second.stats().held_processes == 3);
    assert!(b.terminate(terminated).unwrap());
    assert!(b.terminate(partner).unwrap());
    until("both have ended", || !b.is_alive(terminated) && !b.is_alive(linked));
    GATES[0].set(()).unwrap();
    until("all arrive", || a.ask(&reader, FloodMessage::Taken, LIMIT).wait().unwrap() == 1_004);
    assert_eq!(b.ask(sender, FloodMessage::Taken, LIMIT).wait().unwrap(), 0);
    assert_eq!((dead(&b, DeadLetterReason::NotSent), second.stats().held_processes), (0, 0));
    end((store, b));
}

/// It answers until there is no room for more, and takes the other questions later.
#[test]
fn a_durable_process_whose_answers_have_no_room_is_held() {
    let (network, disk) = (MemoryNetwork::new(), MemoryDisk::new());
    let start = |name: &str, runtime: &Runtime| {
        Cluster::named(name, Wire::new().message::<FloodMessage>()).memory(&network).start(runtime).unwrap()
    };
    let a = Runtime::builder().workers(1).start().unwrap();
    let reader = a.spawn(Flooder::default()).unwrap();
    a.register("reader", &reader).unwrap();
    let first = start("a", &a);
    let store = store_in(MemoryJournal::new(&disk)).kind::<Flooder>();
    let (store, b) = store.start(Runtime::builder().workers(1)).unwrap();
    let library = store.begin("library", Flooder::default()).unwrap().address();
    b.register("library", library).unwrap();
    let second = start("b", &b);
    second.wait_for("a", LIMIT).unwrap();
    let far: Address<FloodMessage> = second.whereis("a", "reader", LIMIT).wait().unwrap().typed();
    let to: Address<FloodMessage> = first.whereis("b", "library", LIMIT).wait().unwrap().typed();
    WAITS[1].store(true, Ordering::SeqCst);
    b.send(far, FloodMessage::Slow(Slow(1))).unwrap();
    until("the other node takes nothing", || !WAITS[1].load(Ordering::SeqCst));
    let fetch = || (0..20).map(|_| a.ask(to, FloodMessage::Fetch, LIMIT)).collect::<Vec<_>>();
    let mut asked = fetch();
    until("it is held", || second.stats().held_processes == 1);
    asked.extend(fetch());
    until("all questions are there", || b.is_idle() && b.stats().messages.accepted >= 40);
    assert!(b.stats().messages.stepped < 40, "it takes no further question");
    GATES[1].set(()).unwrap();
    asked.into_iter().for_each(|asked| assert_eq!(asked.wait().unwrap().len(), 1 << 20));
    assert_eq!(a.ask(to, FloodMessage::Taken, LIMIT).wait().unwrap(), 40);
    assert_eq!(second.stats().held_processes, 0);
    end((store, b));
}
