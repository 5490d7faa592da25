//! Stores whose steps wait for the disk: `StoreBuilder::ahead(false)`.

use std::sync::atomic::{AtomicUsize, Ordering};

use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::wait::LIMIT;
use crate::worker::end;

static PASSES: AtomicUsize = AtomicUsize::new(0);

/// Passes a token on to the other player.
#[derive(Default, Serialize, Deserialize)]
struct Player {
    other: Option<Address<PlayerMessage>>,
    seen: u32,
}

#[derive(Serialize, Deserialize)]
enum PlayerMessage {
    Meet(Address<PlayerMessage>),
    Pass(u32),
}

impl Process for Player {
    type Message = PlayerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PlayerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PlayerMessage::Meet(other)) => self.other = Some(other),
                Event::Message(PlayerMessage::Pass(left)) => {
                    self.seen += 1;
                    PASSES.fetch_add(1, Ordering::SeqCst);
                    if let Some(other) = self.other.filter(|_| left > 0) {
                        out.send(other, PlayerMessage::Pass(left - 1));
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Player {
    const NAME: &str = "player";
}

#[test]
fn no_step_rests_on_a_record_that_is_not_on_disk_if_all_wait() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let store = Store::with_journal(GatedJournal(MemoryJournal::new(&disk), gate.clone())).kind::<Player>();
    let (store, runtime) = store.ahead(false).start(Runtime::builder().workers(2)).unwrap();
    let [one, two] = ["one", "two"].map(|id| store.begin(id, Player::default()).unwrap().address());
    store.send(one, PlayerMessage::Meet(two)).unwrap();
    store.send(two, PlayerMessage::Meet(one)).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    // Everything is on disk.
    store.send(two, PlayerMessage::Meet(one)).unwrap().wait(LIMIT).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();

    gate.close();
    store.send(one, PlayerMessage::Pass(3)).unwrap();
    for commit in 0..4 {
        gate.wait_for(commit + 1);
        assert_eq!(PASSES.load(Ordering::SeqCst), commit, "the message that it takes is not on disk");
        gate.let_one_pass();
    }
    gate.wait_for(5);
    assert_eq!(PASSES.load(Ordering::SeqCst), 4);
    gate.open();
    end((store, runtime));
}
