//! Answers to a node that takes nothing for a while.

use super::*;
use crate::primitives::Ordering::Relaxed;

/// Asks for a text of this length.
#[derive(Serialize, Deserialize)]
struct Fetch(usize, Reply<String>);

crate::remote!(Fetch, "test::Fetch", 1);

/// Answers at once. Counts its questions.
struct Library(Arc<AtomicU64>);

impl Process for Library {
    type Message = Fetch;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Fetch>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Fetch(length, reply)) = event {
                self.0.fetch_add(1, Relaxed);
                out.reply(reply, "x".repeat(length));
            }
        }
        Ok(Step::Idle)
    }
}

const MIB: usize = 1 << 20;

/// Two nodes that are connected.
fn readers() -> World {
    let mut world = apart_with([spoken(PROTOCOL), spoken(PROTOCOL)], || Wire::new().message::<Fetch>());
    world.connect();
    world
}

impl World {
    fn library(&self, options: SpawnOptions) -> (Address<Fetch>, Arc<AtomicU64>) {
        let asked = Arc::new(AtomicU64::new(0));
        let library = self.ends[1].side.runtime.spawn_with(Library(asked.clone()), options).unwrap();
        (self.far(library.address()), asked)
    }

    /// Sends questions, delivers them, and holds back the frames with the answers.
    fn fetches(&mut self, far: Address<Fetch>, count: usize, length: usize) -> Vec<AskFuture<String>> {
        let ask = |_| self.ends[0].side.runtime.ask(far, |reply| Fetch(length, reply), LIMIT);
        let asks = (0..count).map(ask).collect();
        let mut frame = Vec::new();
        while self.ends[0].turns_out(&mut frame) {
            self.ends[1].driver.arrived(frame.clone());
        }
        until("the other node rests", || {
            let end = &mut self.ends[1];
            let is_idle = end.side.runtime.is_idle();
            let mut has_moved = false;
            while end.driver.turn_in(&mut end.inward) {
                has_moved = true;
            }
            is_idle && !has_moved
        });
        asks
    }
}

/// The number of answers that have come, and of questions that got the error `Busy`.
fn counted(asks: Vec<AskFuture<String>>) -> (usize, usize) {
    let answers: Vec<_> = asks.into_iter().map(AskFuture::wait).collect();
    let is_busy =
        |answer: &&Result<String, CommandError>| matches!(answer, Err(CommandError::Node { why: NodeError::Busy, .. }));
    let (good, busy) = (answers.iter().filter(|answer| answer.is_ok()).count(), answers.iter().filter(is_busy).count());
    assert_eq!(good + busy, answers.len());
    (good, busy)
}

#[test]
fn many_large_answers_at_once_all_arrive() {
    let mut world = readers();
    let (far, _) = world.library(SpawnOptions::new());
    let asks = world.fetches(far, 60, MIB);
    world.run();
    assert_eq!(counted(asks), (60, 0));
    assert_eq!(world.is_up(), [true; 2]);
}

#[test]
fn a_process_whose_answers_have_no_room_is_held() {
    let mut world = readers();
    let (far, asked) = world.library(SpawnOptions::new());
    let first = world.fetches(far, 12, MIB);
    let (before, second) = (asked.load(Relaxed), world.fetches(far, 12, MIB));
    assert_eq!((before, asked.load(Relaxed)), (12, 12), "it takes no further question");
    assert_eq!(world.ends[1].side.node.waiting_counts(), (0, 1));
    world.run();
    assert_eq!((counted(first), counted(second)), ((12, 0), (12, 0)));
    assert_eq!(world.ends[1].side.node.waiting_counts(), (0, 0));
}

/// 64 MiB of answers wait. The askers of all further ones get errors, and the connection stays.
#[test]
fn an_answer_beyond_all_bounds_is_an_error_of_its_asker() {
    let mut world = readers();
    let (far, asked) = world.library(SpawnOptions::new().never_held());
    let asks = world.fetches(far, 100, MIB);
    assert_eq!(asked.load(Relaxed), 100);
    world.run();
    let (good, busy) = counted(asks);
    assert!((64..=70).contains(&good) && good + busy == 100, "{good} answers and {busy} errors");
    assert_eq!(world.is_up(), [true; 2]);
    let again = world.fetches(far, 1, 10);
    world.run();
    assert_eq!(counted(again), (1, 0));
}
