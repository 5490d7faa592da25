//! Where actors play: an arbiter for each worker, and the system they belong to.

use actix::{Actor, Addr, Arbiter, ArbiterHandle, Context, System, SystemRunner};

use crate::ours::measure::{Outcome, Setting};

pub(crate) struct Stage {
    /// Runs on the thread that calls, so that thread is outside of all arbiters.
    pub(crate) system: SystemRunner,
    arbiters: Vec<Arbiter>,
}

impl Stage {
    pub(crate) fn new(setting: &Setting) -> Stage {
        let system = System::new();
        Stage { system, arbiters: (0..setting.workers).map(|_| Arbiter::new()).collect() }
    }

    /// Starts an actor on the first thread, where it has the others beside it.
    pub(crate) fn start<A: Actor<Context = Context<A>> + Send>(&self, actor: A) -> Addr<A> {
        self.start_on(0, actor)
    }

    /// Starts an actor on the thread whose turn it is.
    pub(crate) fn start_on<A: Actor<Context = Context<A>> + Send>(&self, turn: usize, actor: A) -> Addr<A> {
        A::start_in_arbiter(&self.arbiters[turn % self.arbiters.len()].handle(), move |_| actor)
    }

    /// All threads, for those who spread their children over them.
    pub(crate) fn threads(&self) -> Vec<ArbiterHandle> {
        self.arbiters.iter().map(Arbiter::handle).collect()
    }

    /// Ends all threads, and with them what still lives.
    pub(crate) fn finish(self) -> Outcome<()> {
        for arbiter in self.arbiters {
            arbiter.stop();
            arbiter.join().map_err(|_| "an arbiter panicked")?;
        }
        Ok(())
    }
}
