//! The futures of the library under smol.

use interop_tests::{add, every_kind, read, start};

const TASKS: u64 = 8;
const EACH: u64 = 500;

#[test]
fn tasks_of_smol_send_and_ask() {
    let (runtime, sum) = start();
    smol::block_on(async {
        let tasks: Vec<_> = (0..TASKS).map(|_| smol::spawn(add(sum.process_ref(), EACH))).collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(read(&sum.process_ref()).await, TASKS * (0..EACH).sum::<u64>());
        every_kind(&runtime, &sum).await;
    });
}
