//! Where actors play: an arbiter for each worker, and the system they belong to.

use actix::{Actor, Addr, Arbiter, ArbiterHandle, Context, System, SystemRunner};

use crate::ours::measure::{Outcome, Setting};

pub(super) struct Stage {
    /// Runs on the thread that calls, so that thread is outside of all arbiters.
    pub(super) system: SystemRunner,
    arbiters: Vec<Arbiter>,
}

impl Stage {
    pub(super) fn new(setting: &Setting) -> Stage {
        let system = System::new();
        Stage { system, arbiters: (0..setting.workers).map(|_| Arbiter::new()).collect() }
    }

    /// Starts an actor on the first thread, where it has the others beside it.
    pub(super) fn start<A: Actor<Context = Context<A>> + Send>(&self, actor: A) -> Addr<A> {
        A::start_in_arbiter(&self.arbiters[0].handle(), move |_| actor)
    }

    /// All threads, for those who spread their children over them.
    pub(super) fn threads(&self) -> Vec<ArbiterHandle> {
        self.arbiters.iter().map(Arbiter::handle).collect()
    }

    /// Ends all threads, and with them what still lives.
    pub(super) fn finish(self) -> Outcome<()> {
        for arbiter in self.arbiters {
            arbiter.stop();
            arbiter.join().map_err(|_| "an arbiter panicked")?;
        }
        Ok(())
    }
}
