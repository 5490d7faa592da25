//! Worlds: how a program runs in one. Statements 11 to 14.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use procession::Runtime;
use procession::simulation::{Simulation, ensure};

use crate::programs::*;

#[test]
fn a_program_runs_in_a_world_and_a_wait_drives_it() {
    let runs = Arc::new(AtomicU64::new(0));
    let counts = runs.clone();
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        let adders: Vec<_> = (0..3)
            .map(|_| runtime.spawn(Adder { to: counter.address(), left: 4, tag: None }))
            .collect::<Result<_, _>>()?;
        world.invariant("no more than was added", |state| {
            let total: u64 = state.processes::<Counter>().map(|(_, one)| one.total).sum();
            ensure(total <= 12, || format!("{total}"))
        });
        for adder in &adders {
            adder.join()?;
        }
        let total = runtime.ask(&counter, CounterMessage::Read, SECOND).wait()?;
        assert_eq!(total, 12);
        world.run()?;
        assert!(runtime.shutdown(SECOND)?.is_clean());
        counts.fetch_add(1, SeqCst);
        Ok(())
    })
    .seeds(0..200)
    .check();
    assert!(runs.load(SeqCst) >= 200);
}
