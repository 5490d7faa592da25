//! Messages that a step passes over, and messages that wait behind `Step::Wait`, in later runs.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::worker::kill;

const HOUR: Duration = Duration::from_secs(3_600);

/// Takes even numbers only, until it is told to take all.
#[derive(Default, Serialize, Deserialize)]
struct Chooser {
    takes_all: bool,
    numbers: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
enum ChooserMessage {
    Number(u64),
    TakeAll,
    /// Takes nothing for an hour.
    Pause,
    Look(Reply<Vec<u64>>),
}

impl Process for Chooser {
    type Message = ChooserMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ChooserMessage>, out: &mut StepOutput) -> StepResult<()> {
        let takes_all = self.takes_all;
        let wants = |message: &ChooserMessage| takes_all || !matches!(message, ChooserMessage::Number(n) if n % 2 == 1);
        while let Some(event) = events.select(wants) {
            match event {
                Event::Message(ChooserMessage::Number(number)) => self.numbers.push(number),
                Event::Message(ChooserMessage::TakeAll) => {
                    self.takes_all = true;
                    return Ok(Step::Continue);
                }
                Event::Message(ChooserMessage::Pause) => {
                    out.after(HOUR);
                    return Ok(Step::Wait);
                }
                Event::Message(ChooserMessage::Look(reply)) => out.reply(reply, self.numbers.clone()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Chooser {
    const NAME: &str = "chooser";
}

#[test]
fn messages_that_were_passed_over_keep_their_places_across_kills() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let run = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Chooser>();
        let opened = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
        let chooser = opened.0.begin("a", Chooser::default()).unwrap().address();
        (opened, chooser)
    };
    let tell = |store: &Store, to: Address<ChooserMessage>, messages: Vec<ChooserMessage>| {
        for message in messages {
            store.send(to, message).unwrap().wait(Duration::MAX).unwrap();
        }
    };
    let numbers = |numbers: std::ops::RangeInclusive<u64>| numbers.map(ChooserMessage::Number).collect();
    let look = |runtime: &Runtime, of| runtime.ask(of, ChooserMessage::Look, Duration::MAX).wait().unwrap();

    let ((store, runtime), chooser) = run();
    tell(&store, chooser, numbers(1..=6));
    assert_eq!(look(&runtime, chooser), [2, 4, 6]);
    kill(&disk, (store, runtime));

    let ((store, runtime), chooser) = run();
    tell(&store, chooser, numbers(7..=8));
    assert_eq!(look(&runtime, chooser), [2, 4, 6, 8]);
    kill(&disk, (store, runtime));

    let ((store, runtime), chooser) = run();
    tell(&store, chooser, vec![ChooserMessage::TakeAll]);
    assert_eq!(look(&runtime, chooser), [2, 4, 6, 8, 1, 3, 5, 7]);
    tell(&store, chooser, vec![ChooserMessage::Pause]);
    tell(&store, chooser, numbers(9..=12));
    kill(&disk, (store, runtime));

    let ((store, runtime), chooser) = run();
    tell(&store, chooser, numbers(13..=13));
    runtime.wait_idle().unwrap();
    clock.advance(HOUR);
    assert_eq!(look(&runtime, chooser), [2, 4, 6, 8, 1, 3, 5, 7, 9, 10, 11, 12, 13]);
    kill(&disk, (store, runtime));
}
