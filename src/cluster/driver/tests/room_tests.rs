//! Many senders, and a node that takes nothing for a while.

use super::*;
use crate::primitives::AtomicBool;
use crate::primitives::Ordering::Relaxed;

#[derive(Serialize, Deserialize)]
pub(super) struct Text(usize, u64, String);

crate::remote!(Text, "test::Text", 1);

/// Sends texts of 1 kB until it is told to stop.
struct Sender {
    to: Address<Text>,
    me: usize,
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
        out.send(self.to, Text(self.me, number, "x".repeat(SIZE)));
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

#[test]
fn a_thousand_senders_to_a_node_that_stands_still_cost_little_and_go_on() {
    let mut world = world();
    let taken = Arc::new(Mutex::new(vec![0; SENDERS]));
    let reader = world.ends[1].side.runtime.spawn(Reader(taken.clone())).unwrap();
    let far = world.far(reader.address());
    let sent: Arc<Vec<AtomicU64>> = Arc::new((0..SENDERS).map(|_| AtomicU64::new(0)).collect());
    let is_stopped = Arc::new(AtomicBool::new(false));
    world.ends[1].is_stopped = true;
    for me in 0..SENDERS {
        let (sent, is_stopped) = (sent.clone(), is_stopped.clone());
        world.ends[0].side.runtime.spawn(Sender { to: far, me, sent, is_stopped }).unwrap();
    }
    let counts = |sent: &[AtomicU64]| sent.iter().map(|sent| sent.load(Relaxed)).collect::<Vec<u64>>();
    let total = |sent: &[AtomicU64]| counts(sent).iter().sum::<u64>() as usize;
    // It comes to rest, because all senders are held.
    world.run();
    let before = counts(&sent);
    let bytes = total(&sent) * SIZE;
    assert!((8 << 20..(16 << 20) + SENDERS * SIZE).contains(&bytes), "{bytes} bytes wait");
    for _ in 0..10 {
        world.run();
    }
    assert_eq!(counts(&sent), before, "they rest");
    world.ends[1].is_stopped = false;
    let begins = world.clock.clock().now();
    until("all have gone on", || {
        world.turn(&mut || true);
        counts(&sent).iter().zip(&before).all(|(now, before)| now > before)
    });
    assert_eq!(world.clock.clock().now(), begins, "at once, by the clock");
    is_stopped.store(true, Relaxed);
    world.run();
    assert_eq!(*lock(&taken), counts(&sent));
    assert!(world.ends[0].side.graves().is_empty());
}
