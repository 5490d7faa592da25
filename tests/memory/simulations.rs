//! Statement 14 of the simulation: seeds leave nothing behind.

use procession::simulation::{Simulation, World, ensure};
use procession::{BoxError, Event, Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::programs::*;
use crate::resident::*;

/// Keeps a handle of its own runtime.
#[derive(Default)]
struct Keeper(Option<Runtime>);

impl Process for Keeper {
    type Message = Runtime;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Runtime>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(runtime) = event {
                self.0 = Some(runtime);
                out.blocking(|| ());
            }
        }
        Ok(Step::Idle)
    }
}

fn scenario(world: &World) -> Result<(), BoxError> {
    let runtime = world.start(Runtime::builder())?;
    let counter = runtime.spawn_with(Counter::default(), SpawnOptions::new().name("counter").group("all"))?;
    runtime.spawn(Adder { to: counter.address(), left: 2, tag: None })?;
    let keeper = runtime.spawn(Keeper::default())?;
    runtime.send(&keeper, runtime.clone())?;
    world.invariant("the counter has its name", |state| state.holder("counter").map(drop).ok_or("none".into()));
    drop(runtime);
    world.run()
}

/// The number of entries of a folder of this program.
fn entries(folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{folder}")).expect("Linux has it").count()
}

/// The threads, the open files, and the child processes of this program.
fn held() -> (usize, usize, String) {
    let children = std::fs::read_dir("/proc/self/task").expect("Linux has it").filter_map(|task| {
        // A thread of the test harness may end meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    });
    (entries("task"), entries("fd"), children.collect())
}

#[test]
fn seeds_leave_no_memory_thread_file_or_process_behind() {
    alone(|| {
        let full = 100_000;
        let seeds = if is_full() { full } else { 3_000 };
        println!("{seeds} of {full} seeds; PROCESSION_FULL=1 runs all");
        // A check notes the interleavings that it has seen. So there are many checks of some seeds each.
        let round = |from| Simulation::new(scenario).name("memory").seeds(from..from + 500).threads(1).check();
        let (before_all, files) = (held(), std::fs::read_dir(".").expect("it is readable").count());
        let threads = entries("task");
        let counts = move |world: &World| {
            scenario(world)?;
            let now = entries("task");
            ensure(now <= threads, || format!("{now} threads, {threads} before")).map_err(BoxError::from)
        };
        Simulation::new(counts).name("threads").seeds(0..20).threads(1).check();
        (0..2).for_each(|number| round(number * 500));
        let before = resident_kib();
        (2..2 + seeds / 500).for_each(|number| round(number * 500));
        assert_grown_by_at_most(5 * 1024, before);
        // A thread that has ended is listed for a moment.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while held() != before_all && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(held(), before_all, "threads, open files, and child processes");
        assert_eq!(std::fs::read_dir(".").expect("it is readable").count(), files, "files where the program runs");
    });
}
