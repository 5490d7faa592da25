//! Two nodes with their drivers, on one manual clock. The test is the link between them.

mod account_tests;
mod answer_tests;
mod beat_tests;
mod event_tests;
mod recipient_tests;
mod relation_tests;
mod room_tests;
mod version_tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::*;
use crate::clock::ManualClock;
use crate::cluster::node::echo::{Echo, Message, Notes};
use crate::cluster::node::tests::{Side, side_with};
use crate::cluster::peer::{Class, PROTOCOL, spoken};
use crate::cluster::wire::Wire;
use crate::counts::counts;
use crate::pid::{Address, Pid};
use crate::primitives::AtomicU64;
use crate::process::{
    CommandError, DeadLetterReason, Event, Events, NodeError, Process, Reply, SendError, SpawnOptions, Step,
    StepOutput, StepResult,
};
use crate::runtime::{AskFuture, Handle};
use crate::wait::until;

const MILLIS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(3_600);

#[derive(Serialize, Deserialize)]
struct Large(u64, Vec<u8>);

crate::remote!(Large, "test::Large", 1);

/// A node, and its end of the link.
struct End {
    side: Side,
    driver: Arc<PeerDriver>,
    inward: Inward,
    /// The frames that were sent and have not arrived.
    on_the_way: VecDeque<Vec<u8>>,
    /// How often the thread that sends frames was woken, and how often when it had its last turn.
    woken_out: Arc<AtomicU64>,
    seen_out: u64,
    /// Until when that thread sleeps.
    sleeps_until: Option<Instant>,
    /// It does not run: neither its threads nor its frames move.
    is_stopped: bool,
}

/// Decides whether the next frame arrives.
type Weather<'w> = &'w mut dyn FnMut() -> bool;

struct World {
    ends: [End; 2],
    clock: ManualClock,
    /// The frames that were sent, each with the place of its sender.
    sent: Vec<(usize, Vec<u8>)>,
}

fn wire() -> Wire {
    Wire::new().message::<Message>().message::<Large>().message::<room_tests::Text>()
}

fn end(name: &str, life: u64, clock: &ManualClock, protocols: RangeInclusive<u16>, wire: Wire) -> End {
    let side = side_with(life, wire, clock.clone());
    let identity = Identity {
        cluster: "test".into(),
        name: name.into(),
        incarnation: life,
        protocols,
        voters: Vec::new(),
        detection_time: Duration::from_millis(1_500),
    };
    let nonces = AtomicU64::new(life << 32);
    let nonce = move || nonces.fetch_add(1, crate::primitives::Ordering::Relaxed) + 1;
    let woken_out = Arc::new(AtomicU64::new(0));
    let count = woken_out.clone();
    let outward = Box::new(move || _ = count.fetch_add(1, crate::primitives::Ordering::Relaxed));
    let wake = Wakes { inward: Box::new(|| ()), outward };
    let watch = side.node.node_watch().clone();
    let (name, nonce) = ("the other".into(), Box::new(nonce));
    let start = clock.clock().now();
    let parts = Parts { here: identity, name, watch, clock: clock.clock(), start, nonce, wake };
    let driver = PeerDriver::new(Arc::downgrade(&side.node), parts);
    driver.seen();
    let (inward, on_the_way) = (Inward::default(), VecDeque::new());
    let sleeps_until = Some(clock.clock().now());
    End { side, driver, inward, on_the_way, woken_out, seen_out: 0, sleeps_until, is_stopped: false }
}

/// Two nodes that are connected.
fn world() -> World {
    let mut world = apart([spoken(PROTOCOL), spoken(PROTOCOL)]);
    world.connect();
    world
}

/// Two nodes that speak these versions of the protocol, and are not connected yet.
fn apart(versions: [RangeInclusive<u16>; 2]) -> World {
    apart_with(versions, wire)
}

fn apart_with([one, other]: [RangeInclusive<u16>; 2], wire: fn() -> Wire) -> World {
    let clock = ManualClock::new();
    let ends = [end("one", 1, &clock, one, wire()), end("other", 2, &clock, other, wire())];
    World { ends, clock, sent: Vec::new() }
}

impl End {
    /// Whether the thread that sends frames has a turn: it was woken, or it is time.
    fn is_awake(&self, now: Instant) -> bool {
        let woken = self.woken_out.load(crate::primitives::Ordering::Relaxed);
        woken != self.seen_out || self.sleeps_until.is_some_and(|until| until <= now)
    }

    /// A turn of that thread. Returns whether it has written a frame.
    fn turns_out(&mut self, frame: &mut Vec<u8>) -> bool {
        let woken = self.woken_out.load(crate::primitives::Ordering::Relaxed);
        match self.driver.turn_out(frame) {
            // The thread calls `turn_out` again at once.
            Outward::Frame => true,
            Outward::Until(until) => {
                (self.seen_out, self.sleeps_until) = (woken, until);
                false
            }
        }
    }
}

impl World {
    fn connect(&mut self) {
        for _ in 0..1_000 {
            self.run();
            if self.ends.iter().all(|end| end.inward.up.is_some()) {
                return;
            }
            self.clock.advance(10 * MILLIS);
        }
        panic!("the two have not connected within 10 s");
    }

    fn run(&mut self) {
        self.run_in(&mut || true);
    }

    /// Moves frames and messages until nothing moves. The weather says which frames arrive.
    fn run_in(&mut self, weather: Weather<'_>) {
        until("nothing moves", || {
            // Before the turns, so that they carry all that the processes have done.
            let is_idle = self.ends.iter().all(|end| end.side.runtime.is_idle());
            let mut has_moved = false;
            while self.turn(weather) {
                has_moved = true;
            }
            !has_moved && is_idle
        });
    }

    /// One turn of everything. Returns whether something has moved.
    fn turn(&mut self, weather: Weather<'_>) -> bool {
        let mut has_moved = false;
        for at in 0..2 {
            let end = &mut self.ends[at];
            if end.is_stopped {
                continue;
            }
            let mut frame = Vec::new();
            while end.is_awake(self.clock.clock().now()) && end.turns_out(&mut frame) {
                has_moved = true;
                self.sent.push((at, frame.clone()));
                if weather() {
                    end.on_the_way.push_back(frame.clone());
                }
            }
            let frames = std::mem::take(&mut end.on_the_way);
            let other = &mut self.ends[1 - at];
            frames.into_iter().for_each(|frame| other.driver.arrived(frame));
            while !other.is_stopped && other.driver.turn_in(&mut other.inward) {
                has_moved = true;
            }
            let end = &mut self.ends[at];
            while end.driver.turn_in(&mut end.inward) {
                has_moved = true;
            }
        }
        has_moved
    }

    /// Lets time pass in short steps.
    fn pass(&mut self, time: Duration, weather: Weather<'_>) {
        let mut passed = Duration::ZERO;
        while passed < time {
            self.clock.advance(10 * MILLIS);
            passed += 10 * MILLIS;
            self.run_in(weather);
        }
    }

    /// The address at the first node of a process of the other one.
    fn far<M>(&self, address: Address<M>) -> Address<M> {
        let number = self.ends[0].inward.up.as_ref().unwrap().connection.there().node;
        let pid = address.pid();
        Pid::new(number, pid.slot(), pid.generation()).unwrap().typed()
    }

    fn echo(&self) -> (Handle<Echo>, Address<Message>, Notes) {
        let ((echo, address), notes) = self.ends[1].side.echo(vec![]);
        (echo, self.far(address), notes)
    }

    fn is_up(&self) -> [bool; 2] {
        [0, 1].map(|at: usize| self.ends[at].inward.up.is_some())
    }
}

fn is_down(answer: &Result<u64, CommandError>) -> bool {
    matches!(answer, Err(CommandError::Node { why: NodeError::NodeDown, .. }))
}

#[test]
fn two_nodes_find_each_other_and_carry_messages_and_answers() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    let answers = world.ends[0].side.begins(move |out| {
        (0..1_000).for_each(|number| out.send(far, Message::Note(number)));
        out.ask(far, Message::Ask, LIMIT);
    });
    let asked = world.ends[0].side.runtime.ask(far, Message::Ask, LIMIT);
    world.run();
    assert_eq!(asked.wait().unwrap(), 7);
    assert_eq!((lock(&notes).len(), &lock(&answers)[..]), (1_000, &[1][..]));
    assert!(lock(&notes).is_sorted());
    // An idle connection stays up.
    world.pass(Duration::from_secs(10), &mut || true);
    assert_eq!(world.is_up(), [true; 2]);
    assert!(world.ends.iter().all(|end| end.side.graves().is_empty()));
}

#[test]
fn a_cut_is_a_down_on_both_sides_and_a_heal_an_up() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    let asked = world.ends[0].side.runtime.ask(far, Message::Keep, LIMIT);
    world.run();
    // The question is acknowledged, so it is not reported.
    world.pass(20 * MILLIS, &mut || true);
    world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap();
    // Nothing arrives any more, in either direction.
    world.pass(Duration::from_millis(1_300), &mut || false);
    assert_eq!(world.is_up(), [true; 2]);
    world.pass(Duration::from_millis(450), &mut || false);
    assert_eq!(world.is_up(), [false; 2], "1.75 s after the last frame");
    assert!(is_down(&asked.wait()));
    assert_eq!(world.ends[0].side.graves(), [(far.pid(), DeadLetterReason::NodeDown)]);
    let refused = world.ends[0].side.runtime.send(far, Message::Note(2)).unwrap_err();
    assert!(matches!(refused.reason(), SendError::Node { why: NodeError::NodeDown, .. }));
    world.pass(Duration::from_secs(2), &mut || true);
    assert_eq!(world.is_up(), [true; 2], "2 s after the heal");
    world.ends[0].side.runtime.send(far, Message::Note(3)).unwrap();
    world.run();
    assert_eq!(*lock(&notes), [3]);
}

#[test]
fn the_thread_that_sends_is_not_woken_for_each_acknowledgement() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    world.pass(Duration::from_millis(100), &mut || true);
    let count = world.ends[1].woken_out.clone();
    let woken = |world: &mut World, notes: u64| {
        let before = count.load(crate::primitives::Ordering::Relaxed);
        for number in 0..notes {
            world.ends[0].side.runtime.send(far, Message::Note(number)).unwrap();
            world.run();
        }
        count.load(crate::primitives::Ordering::Relaxed) - before
    };
    // It sleeps until its next heartbeat, and is to acknowledge within 10 ms.
    assert_eq!(woken(&mut world, 1), 1);
    assert_eq!(woken(&mut world, 6), 0);
    // The eighth batch is acknowledged at once.
    assert_eq!(woken(&mut world, 1), 1);
    world.pass(Duration::from_millis(20), &mut || true);
    assert!(world.ends.iter().all(|end| end.driver.is_drained()));
    assert_eq!(lock(&notes).len(), 8);
}

#[test]
fn a_window_that_was_full_goes_on_with_the_next_acknowledgement() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    let began = world.clock.clock().now();
    // More than a window. The clock does not move, so nothing is sent because it is time.
    for number in 0..100_000 {
        world.ends[0].side.runtime.send(far, Message::Note(number)).unwrap();
    }
    world.run();
    assert_eq!(lock(&notes).len(), 100_000);
    assert_eq!(world.clock.clock().now(), began);
}

#[test]
fn a_lost_frame_is_seen_by_the_next_heartbeat() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    let asked = world.ends[0].side.runtime.ask(far, Message::Ask, LIMIT);
    let mut frames = 0;
    world.run_in(&mut || {
        frames += 1;
        frames > 1
    });
    // It was the last frame, so nothing follows that shows the gap.
    assert_eq!(world.is_up(), [true; 2]);
    world.pass(Duration::from_millis(260), &mut || true);
    assert!(is_down(&asked.wait()));
    world.connect();
    world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap();
    world.run();
    assert_eq!(*lock(&notes), [1]);
}

/// Notes the numbers of large messages.
struct Sink(Notes);

impl Process for Sink {
    type Message = Large;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Large>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Large(number, bytes)) = event {
                assert!(bytes.iter().all(|byte| *byte == number as u8));
                lock(&self.0).push(number);
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn large_messages_arrive_whole_and_in_order_with_small_ones() {
    let mut world = world();
    let notes = Notes::default();
    let sink = world.ends[1].side.runtime.spawn(Sink(notes.clone())).unwrap();
    let far = world.far(sink.address());
    // The last one has 16 MiB when it is encoded. Messages behind it would find no room.
    let sizes = [0, 1, 40_000, 3, 1 << 20, 10, 2, (16 << 20) - 5];
    world.ends[0].side.begins(move |out| {
        for (number, size) in (0..).zip(sizes) {
            out.send(far, Large(number, vec![number as u8; size]));
        }
    });
    world.run();
    assert_eq!(*lock(&notes), (0..8).collect::<Vec<u64>>());
    assert!(world.ends[0].side.graves().is_empty());
}

#[test]
fn a_node_that_stands_still_bounds_what_waits_for_it_and_goes_on() {
    let mut world = world();
    let notes = Notes::default();
    let sink = world.ends[1].side.runtime.spawn(Sink(notes.clone())).unwrap();
    let far = world.far(sink.address());
    world.ends[1].is_stopped = true;
    let send =
        |world: &World, number: u64| world.ends[0].side.runtime.send(far, Large(number, vec![number as u8; 10_000]));
    let mut accepted = 0;
    let refused = loop {
        match send(&world, accepted) {
            Ok(()) => accepted += 1,
            Err(refused) => break refused,
        }
        world.run();
    };
    assert!(matches!(refused.reason(), SendError::Node { why: NodeError::Busy, .. }), "{refused}");
    let bytes = accepted * 10_000;
    // 4 MiB are sent and not confirmed, and 8 MiB wait.
    assert!((8 << 20..14 << 20).contains(&bytes), "{bytes} bytes were taken");
    let back: Large = refused.into_inner();
    assert_eq!(back.0, accepted);
    world.ends[1].is_stopped = false;
    world.run();
    send(&world, accepted).unwrap();
    world.run();
    assert_eq!(*lock(&notes), (0..=accepted).collect::<Vec<u64>>());
}

#[test]
fn a_node_that_takes_nothing_costs_little_memory_and_is_dropped() {
    let mut world = world();
    world.ends[1].is_stopped = true;
    let notice = || Item { bytes: vec![0; 100_000], sender: 1, letter: None, class: Class::Notice };
    let up = lock(&world.ends[0].driver.machine).peer.up().unwrap();
    let mut taken = 0;
    let refused = loop {
        match world.ends[0].driver.offer(up, notice()) {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
        assert!(taken < 1_000, "100 MB were taken");
    };
    assert_eq!(refused, Refused::Down);
    assert!((320..420).contains(&taken), "{taken} notices of 100 kB were taken");
    world.run();
    assert_eq!(world.is_up(), [false, true], "the other one stands still");
    world.ends[1].is_stopped = false;
    world.pass(Duration::from_secs(3), &mut || true);
    world.connect();
    let (_echo, far, _) = world.echo();
    let asked = world.ends[0].side.runtime.ask(far, Message::Ask, LIMIT);
    world.run();
    assert_eq!(asked.wait().unwrap(), 7);
}

#[test]
fn a_connection_that_is_over_sends_nothing_in_the_next_one() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    // A thread that is about to send has the connection, while it breaks and the peer is up again.
    let connection = world.ends[0].inward.up.as_ref().unwrap().connection.clone();
    world.pass(Duration::from_secs(2), &mut || false);
    assert_eq!(world.is_up(), [false; 2]);
    world.connect();
    let (back, why) = connection.post((None, far.pid()), (Box::new(Message::Note(1)), None), false).unwrap_err();
    assert!(back.is::<Message>() && why == NodeError::NodeDown, "{why}");
    world.run();
    assert!(lock(&notes).is_empty());
}

#[test]
fn a_durable_process_is_not_linked_to_one_of_another_node() {
    use crate::sched::non_local::NonLocal as _;

    let world = world();
    let (_echo, far, _) = world.echo();
    let node = &world.ends[0].side.node;
    let ordinary = Pid::new(node.number(), 9, 9).unwrap();
    let durable = Pid::new(node.number() + 1, 9, 9).unwrap();
    assert_eq!((node.link(ordinary, far.pid()), node.link(durable, far.pid())), (true, false));
}

#[test]
fn frames_that_nobody_takes_are_bounded_and_end_the_connection() {
    let mut world = world();
    let End { driver, inward, .. } = &mut world.ends[0];
    let frame = vec![0; 64 << 10];
    (0..1_000).for_each(|_| driver.arrived(frame.clone()));
    let mut taken = 0;
    while driver.turn_in(inward) {
        taken += 1;
    }
    assert!((256..260).contains(&taken), "{taken} frames of 64 KiB were kept");
    assert!(inward.up.is_none());
    // There is room for the next connection.
    world.connect();
    // Frames without content are not free either.
    let End { driver, inward, .. } = &mut world.ends[0];
    (0..300_000).for_each(|_| driver.arrived(Vec::new()));
    let taken = std::iter::repeat_with(|| driver.turn_in(inward)).take_while(|has_turned| *has_turned).count();
    assert!((262_144..262_148).contains(&taken), "{taken} empty frames were kept");
}

#[test]
fn frames_of_a_peer_that_the_link_does_not_see_are_dropped() {
    let mut world = world();
    let End { driver, inward, .. } = &mut world.ends[0];
    driver.arrived(vec![0; 40]);
    driver.gone();
    driver.arrived(vec![0; 40]);
    assert!(driver.turn_in(inward) && inward.up.is_some(), "the frame that came before is taken first");
    assert!(driver.turn_in(inward) && inward.up.is_none());
    assert!(!driver.turn_in(inward), "the frame that came afterwards is not there");
    assert_eq!(driver.turn_out(&mut Vec::new()), Outward::Until(None), "nobody dials");
}

#[test]
fn a_node_that_leaves_is_down_at_once_and_for_good() {
    let mut world = world();
    let (_echo, far, _) = world.echo();
    let asked = world.ends[0].side.runtime.ask(far, Message::Keep, LIMIT);
    world.run();
    world.ends[1].driver.leave();
    world.run();
    assert!(is_down(&asked.wait()));
    world.pass(Duration::from_secs(3), &mut || true);
    assert_eq!(world.is_up(), [false; 2]);
}

#[test]
fn a_node_that_is_started_again_is_another_one() {
    let mut world = world();
    let (_echo, far, _) = world.echo();
    let clock = world.clock.clone();
    world.ends[1] = end("other", 3, &clock, spoken(PROTOCOL), wire());
    // A process with the same slot and generation.
    let (_other, address, notes) = {
        let ((echo, address), notes) = world.ends[1].side.echo(vec![]);
        (echo, address, notes)
    };
    world.pass(Duration::from_secs(4), &mut || true);
    assert_eq!(world.is_up(), [true; 2]);
    assert_eq!((address.pid().slot(), address.pid().generation()), (far.pid().slot(), far.pid().generation()));
    let refused = world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap_err();
    assert!(matches!(refused.reason(), SendError::Node { why: NodeError::NodeDown, .. }));
    world.ends[0].side.runtime.send(world.far(address), Message::Note(2)).unwrap();
    world.run();
    assert_eq!(*lock(&notes), [2]);
}

/// A link that loses frames now and then. Each message is stepped or dead, in order, and each question is answered.
#[test]
fn in_bad_weather_all_messages_are_accounted_for_and_all_asks_answered() {
    let seeds = counts(30, 1_000);
    for seed in 0..seeds {
        bad_weather(seed);
    }
}

fn bad_weather(seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut world = world();
    let ((_echo, far, notes), (_asked, other, _)) = (world.echo(), world.echo());
    let (mut sent, mut asked) = (Vec::new(), Vec::<AskFuture<u64>>::new());
    for number in 0..500_u64 {
        if world.ends[0].side.runtime.send(far, Message::Note(number)).is_ok() {
            sent.push(number);
        }
        if random.random_range(0..4) == 0 {
            let question = [Message::Ask as fn(Reply<u64>) -> Message, Message::Drop][random.random_range(0..2)];
            asked.push(world.ends[0].side.runtime.ask(other, question, LIMIT));
        }
        let mut weather = || random.random_range(0..100) != 0;
        let time = MILLIS * [0, 0, 10, 30, 300][number as usize % 5];
        if time.is_zero() {
            world.run_in(&mut weather);
        } else {
            world.pass(time, &mut weather);
        }
    }
    world.pass(Duration::from_secs(5), &mut || true);
    assert_eq!(world.is_up(), [true; 2], "seed {seed}");
    let stepped = lock(&notes).clone();
    assert!(stepped.is_sorted_by(|one, next| one < next), "seed {seed}: order, and at most once: {stepped:?}");
    let count = asked.len();
    let mut answers: BTreeMap<bool, usize> = BTreeMap::new();
    for answer in asked {
        let answer = answer.timeout(Duration::ZERO).wait();
        let is_known = matches!(&answer, Ok(7) | Err(CommandError::Dropped)) || is_down(&answer);
        assert!(is_known, "seed {seed}: {answer:?}");
        *answers.entry(answer.is_ok()).or_default() += 1;
    }
    assert_eq!(answers.values().sum::<usize>(), count);
    // Those of questions are not counted. A message in doubt may be both.
    let dead = world.ends[0].side.graves().iter().filter(|(to, _)| *to == far.pid()).count();
    let lost = sent.len() - stepped.len();
    assert!((lost..=sent.len()).contains(&dead), "seed {seed}: {lost} of {} not stepped, {dead} dead", sent.len());
    for end in &world.ends {
        let connection = &end.inward.up.as_ref().unwrap().connection;
        assert_eq!(connection.open_questions(), (0, 0), "seed {seed}");
    }
}
