//! Many senders, and a node that takes nothing for a while.

use std::future::Future as _;

use super::*;
use crate::primitives::AtomicBool;
use crate::primitives::Ordering::Relaxed;
use crate::runtime::SendFuture;
use crate::wait::wait;

#[derive(Serialize, Deserialize)]
pub(super) struct Text(usize, u64, String);

crate::remote!(Text, "test::Text", 1);

/// Sends texts until it is told to stop.
struct Sender {
    to: Address<Text>,
    me: usize,
    size: usize,
    sent: Arc<Vec<AtomicU64>>,
    is_stopped: Arc<AtomicBool>,
}

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.is_stopped.load(Relaxed) {
            return Ok(Step::Done(()));
        }
        let number = self.sent[self.me].fetch_add(1, Relaxed);
        out.send(self.to, Text(self.me, number, "x".repeat(self.size)));
        Ok(Step::Continue)
    }
}

const SENDERS: usize = 1_000;
const SIZE: usize = 1_000;

/// Notes how many texts have come from each sender, which are in order.
struct Reader(Arc<Mutex<Vec<u64>>>);

impl Process for Reader {
    type Message = Text;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Text>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Text(from, number, _)) = event {
                let taken = &mut lock(&self.0)[from];
                assert_eq!(number, *taken, "in order, and each once");
                *taken += 1;
            }
        }
        Ok(Step::Idle)
    }
}

/// A reader at the other node, which stands still, and senders to it.
struct Senders {
    world: World,
    far: Address<Text>,
    taken: Arc<Mutex<Vec<u64>>>,
    sent: Arc<Vec<AtomicU64>>,
    is_stopped: Arc<AtomicBool>,
}

impl Senders {
    fn new(count: usize) -> Senders {
        let mut world = world();
        let taken = Arc::new(Mutex::new(vec![0; count]));
        let reader = world.ends[1].side.runtime.spawn(Reader(taken.clone())).unwrap();
        let far = world.far(reader.address());
        let sent = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
        world.ends[1].is_stopped = true;
        Senders { world, far, taken, sent, is_stopped: Arc::default() }
    }

    fn spawn(&self, me: usize, size: usize) {
        let (to, sent, is_stopped) = (self.far, self.sent.clone(), self.is_stopped.clone());
        self.world.ends[0].side.runtime.spawn(Sender { to, me, size, sent, is_stopped }).unwrap();
    }

    fn counts(&self) -> Vec<u64> {
        self.sent.iter().map(|sent| sent.load(Relaxed)).collect()
    }

    /// Stops the senders. The reader has taken everything.
    fn stop(&mut self) {
        self.is_stopped.store(true, Relaxed);
        self.world.run();
        assert_eq!(*lock(&self.taken), self.counts());
        assert!(self.world.ends[0].side.graves().is_empty());
    }
}

#[test]
fn a_thousand_senders_to_a_node_that_stands_still_cost_little_and_go_on() {
    let mut all = Senders::new(SENDERS);
    (0..SENDERS).for_each(|me| all.spawn(me, SIZE));
    // It comes to rest, because all senders are held.
    all.world.run();
    let before = all.counts();
    let bytes = before.iter().sum::<u64>() as usize * SIZE;
    assert!((8 << 20..(16 << 20) + SENDERS * SIZE).contains(&bytes), "{bytes} bytes wait");
    for _ in 0..10 {
        all.world.run();
    }
    assert_eq!(all.counts(), before, "they rest");
    all.world.ends[1].is_stopped = false;
    let begins = all.world.clock.clock().now();
    until("all have gone on", || {
        all.world.turn(&mut || true);
        all.counts().iter().zip(&before).all(|(now, before)| now > before)
    });
    assert_eq!(all.world.clock.clock().now(), begins, "at once, by the clock");
    all.stop();
}

/// 45 MiB of large messages wait, more than those of a size that is not known may.
#[test]
fn senders_of_small_messages_do_not_wait_until_large_ones_are_sent() {
    let mut all = Senders::new(3);
    for me in [1, 2] {
        all.spawn(me, 15 << 20);
        all.world.run();
    }
    assert_eq!(all.counts(), [0, 2, 1]);
    all.spawn(0, SIZE);
    all.world.run();
    let before = all.counts();
    assert_eq!(before[1..], [2, 1]);
    all.world.ends[1].is_stopped = false;
    until("it has gone on", || {
        all.world.turn(&mut || true);
        all.counts()[0] > before[0]
    });
    assert_eq!(lock(&all.taken)[1..], [0, 0], "no large message has arrived before");
    all.stop();
}

/// The thread that takes frames may be in a decoder when there is room again.
#[test]
fn processes_go_on_though_others_fill_the_room_before_they_are_told() {
    let mut all = Senders::new(2);
    all.spawn(0, SIZE);
    all.world.run();
    let before = all.counts();
    all.world.ends[1].is_stopped = false;
    let World { ends: [here, there], .. } = &mut all.world;
    let will_tell = |here: &End| {
        let effects = &lock(&here.driver.machine).effects;
        effects.iter().flat_map(|(effects, _)| effects).any(|effect| matches!(effect, Effect::Room(_)))
    };
    let mut frame = Vec::new();
    until("there is room again", || {
        here.on_the_way.drain(..).for_each(|frame| there.driver.arrived(frame));
        while there.driver.turn_in(&mut there.inward) {}
        while there.turns_out(&mut frame) {
            here.driver.arrived(frame.clone());
            here.driver.turn_in(&mut here.inward);
        }
        while !will_tell(here) && here.turns_out(&mut frame) {
            here.on_the_way.push_back(frame.clone());
        }
        will_tell(here)
    });
    let text = || Text(1, all.sent[1].load(Relaxed), "x".repeat(SIZE));
    while here.side.runtime.send(all.far, text()).is_ok() {
        all.sent[1].fetch_add(1, Relaxed);
    }
    here.driver.turn_in(&mut here.inward);
    until("its step is over", || here.side.runtime.is_idle());
    assert!(all.counts()[0] > before[0]);
    all.stop();
}

/// Sends one text, and ends.
struct LastWord(Address<Text>);

impl Process for LastWord {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        out.send(self.0, Text(0, 0, "x".repeat(SIZE)));
        Ok(Step::Done(()))
    }
}

#[test]
fn processes_that_have_ended_are_not_counted_among_those_that_wait() {
    let mut all = Senders::new(1);
    all.spawn(0, SIZE);
    all.world.run();
    let (node, runtime) = (all.world.ends[0].side.node.clone(), all.world.ends[0].side.runtime.clone());
    assert_eq!(node.waiting_counts(), (0, 1));
    for _ in 0..1_000 {
        wait(&runtime.spawn(LastWord(all.far)).unwrap());
        assert_eq!(node.waiting_counts(), (0, 1));
    }
    assert!(node.listed_processes() < 10, "{} are listed", node.listed_processes());
}

/// Whether a future is ready.
fn is_ready(future: &mut SendFuture<Text>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_ready()
}

/// A large message waits, and gives up: its future is dropped, or its limit is over and nobody polls it.
#[test]
fn a_message_from_outside_that_gives_up_holds_up_no_other() {
    for is_dropped in [true, false] {
        let mut all = Senders::new(1);
        let (runtime, far) = (all.world.ends[0].side.runtime.clone(), all.far);
        let large = || Text(0, 0, "x".repeat(1 << 20));
        while runtime.send(far, large()).is_ok() {}
        let mut gives_up = runtime.send_timeout(far, large(), Duration::from_secs(1));
        assert!(!is_ready(&mut gives_up));
        let mut small = runtime.send_timeout(far, Text(0, 0, "small".into()), LIMIT);
        assert!(!is_ready(&mut small), "it waits behind the large one");
        if is_dropped {
            drop(gives_up);
        } else {
            all.world.clock.advance(Duration::from_secs(1));
        }
        until("the small one is sent", || is_ready(&mut small));
        assert!(runtime.send(far, Text(0, 0, "another".into())).is_ok(), "there is room for it");
        assert_eq!(all.world.ends[0].side.node.waiting_counts(), (0, 0));
        all.world.run();
    }
}
