//! Watchers from outside, in random programs of two nodes. One runtime has a store with processes that outlive it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use procession::config::RuntimeBuilder;
use procession::observe::ExitWatcher;
use procession::simulation::World;
use procession::{BoxError, Pid, Runtime};

use crate::helpers::Mutex;

/// The exit that a watcher is told if the process has ended before, or has never been.
const NOBODY: &str = "terminated (no such process)";

/// The exit that a watcher is told if the connection to the node of the process has ended.
const NODE_DOWN: &str = "terminated (the connection to its node has broken)";

/// The exit that a watcher is told if its runtime has ended, and the process has not.
const SHUTDOWN: &str = "terminated (shutdown)";

struct Watched {
    watcher: ExitWatcher,
    /// Whether the process lives in the runtime that watches it.
    is_here: bool,
}

/// All watchers of a program.
#[derive(Default)]
pub struct Watchers(Mutex<Vec<Watched>>);

impl Watchers {
    pub fn watch(&self, runtime: &Runtime, pid: Pid, is_here: bool) {
        self.0.lock().unwrap().push(Watched { watcher: runtime.watch(pid), is_here });
    }

    /// At rest, a watcher was told if its process has ended, and only then.
    pub fn check_at_rest(&self, is_alive: impl Fn(Pid) -> bool) -> Result<(), String> {
        let watched = self.0.lock().unwrap();
        let is_wrong = |one: &&Watched| one.watcher.down().is_some() == is_alive(one.watcher.pid());
        watched.iter().find(is_wrong).map_or(Ok(()), |one| {
            Err(format!("watchers: of {}, which may live, one was told {:?}", one.watcher.pid(), one.watcher.down()))
        })
    }

    /// The runtimes have ended. Each watcher was told of the end of its process, or of its runtime.
    pub fn check_at_end(&self, ended: &HashMap<Pid, String>) -> Result<(), String> {
        for Watched { watcher, is_here } in &*self.0.lock().unwrap() {
            let (pid, told) = (watcher.pid(), watcher.down().map(|down| down.exit.to_string()));
            let Some(told) = told else { return Err(format!("watchers: one of {pid} was told nothing")) };
            let is_right = match ended.get(&pid) {
                Some(exit) => told == *exit || told == NOBODY || !is_here && told == NODE_DOWN,
                // It is in a store. The observer is not told of its PID there.
                None => told == SHUTDOWN || told == "done" || told == "terminated (terminated)" || told == NOBODY,
            };
            if !is_right {
                return Err(format!("watchers: one of {pid} was told {told}: {:?}", ended.get(&pid)));
            }
        }
        Ok(())
    }
}

/// The processes in the store of a runtime, which keeps them when the runtime ends. Without the feature there are none.
#[derive(Clone, Default)]
pub struct Kept {
    pub pids: Vec<Pid>,
    /// The store, which is open as long as it is here.
    _store: Option<Arc<dyn Any + Send + Sync>>,
}

#[cfg(feature = "durable")]
mod stored {
    use std::time::Duration;

    use procession::durable::journal::{MemoryDisk, MemoryJournal};
    use procession::durable::{Durable, Store};
    use procession::{Event, Events, Process, Step, StepOutput, StepResult};
    use serde::{Deserialize, Serialize};

    use super::*;

    /// It ends with its first message.
    #[derive(Serialize, Deserialize)]
    struct Keepsake;

    impl Process for Keepsake {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            let ends = |event| matches!(event, Event::Message(()) | Event::Cancel(_));
            Ok(if events.any(ends) { Step::Done(()) } else { Step::Idle })
        }
    }

    impl Durable for Keepsake {
        const NAME: &str = "keepsake";
    }

    /// Starts a runtime with a store of so many processes.
    pub fn start(world: &World, builder: RuntimeBuilder, count: usize) -> Result<(Runtime, Kept), BoxError> {
        let journal = MemoryJournal::new(&MemoryDisk::with_seed(world.seed()));
        let store = Store::with_journal(journal).kind::<Keepsake>();
        let (store, runtime) = world.start_store(store, builder)?;
        let begin = |number: usize| -> Result<Pid, BoxError> {
            let begun = store.begin(&number.to_string(), Keepsake).map_err(|refused| refused.into_parts().1)?;
            begun.wait(Duration::from_secs(60))?;
            Ok(begun.address().pid())
        };
        let pids = (0..count).map(begin).collect::<Result<_, _>>()?;
        Ok((runtime, Kept { pids, _store: Some(Arc::new(store)) }))
    }
}

#[cfg(feature = "durable")]
pub use stored::start;

/// Starts a runtime.
#[cfg(not(feature = "durable"))]
pub fn start(world: &World, builder: RuntimeBuilder, _: usize) -> Result<(Runtime, Kept), BoxError> {
    Ok((world.start(builder)?, Kept::default()))
}
