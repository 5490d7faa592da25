//! The futures of the library under tokio, with one thread and with several.

use std::time::Duration;

use interop_tests::{BOUND, LIMIT, SumMessage, add, every_kind, read, start};
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{Event, Events, Process, SendError, SpawnOptions, Step, StepOutput, StepResult};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const TASKS: u64 = 8;
const EACH: u64 = 500;

fn both_kinds() -> [Runtime; 2] {
    let one = Builder::new_current_thread().enable_time().build().unwrap();
    [one, Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()]
}

#[test]
fn tasks_of_tokio_send_and_ask() {
    for tokio in both_kinds() {
        let (runtime, sum) = start();
        tokio.block_on(async {
            let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(add(sum.process_ref(), EACH))).collect();
            for task in tasks {
                timeout(LIMIT, task).await.expect("it ends").unwrap();
            }
            assert_eq!(read(&sum.process_ref()).await, TASKS * (0..EACH).sum::<u64>());
            timeout(LIMIT, every_kind(&runtime, &sum)).await.expect("every future is woken");
        });
    }
}

/// A future that a timeout of tokio drops has not sent.
#[test]
fn a_timeout_of_tokio_takes_a_message_back() {
    for tokio in both_kinds() {
        let (runtime, sum) = start();
        // It never has room: its first step waits until the end.
        let (begun, gate) = (Latch::<()>::new(), Latch::<()>::new());
        let full = SpawnOptions::new().mailbox(1, Overflow::Refuse);
        let held = runtime.spawn_with(Held { begun: begun.clone(), gate: gate.clone() }, full).unwrap();
        tokio.block_on(async {
            begun.await;
            while !matches!(held.send(0).map_err(|refused| refused.into_parts().1), Err(SendError::Full { .. })) {}
            let late = timeout(Duration::from_millis(1), held.send_timeout(1, LIMIT)).await;
            assert!(late.is_err());
            // The runtime is still usable from this task.
            for n in 0..BOUND as u64 {
                sum.send_timeout(SumMessage::Add(n), LIMIT).await.unwrap();
            }
        });
        gate.set(()).unwrap();
        assert!(tokio.block_on(held.clone()).output().is_some_and(|sum| **sum == 0), "1 was not sent");
    }
}

/// Waits in its first step. It is done with the sum of what it has got when it is stepped again.
struct Held {
    begun: Latch<()>,
    gate: Latch<()>,
}

impl Process for Held {
    type Message = u64;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<u64> {
        let is_first = self.begun.set(()).is_ok();
        self.gate.wait();
        let got = events.map(|event| if let Event::Message(n) = event { n } else { 0 }).sum();
        Ok(if is_first { Step::Continue } else { Step::Done(got) })
    }
}
