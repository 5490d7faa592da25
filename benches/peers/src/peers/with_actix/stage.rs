//! The threads of the actors: an arbiter for each worker, and the system that they belong to.

use actix::{Actor, Addr, Arbiter, ArbiterHandle, Context, System, SystemRunner};

use crate::ours::measure::{Outcome, Setting};

pub(crate) struct Stage {
    /// The system runs on the calling thread, which is outside of all arbiters.
    pub(crate) system: SystemRunner,
    arbiters: Vec<Arbiter>,
}

impl Stage {
    pub(crate) fn new(setting: &Setting) -> Stage {
        let system = System::new();
        Stage { system, arbiters: (0..setting.workers).map(|_| Arbiter::new()).collect() }
    }

    /// Starts an actor on the first thread, beside the others.
    pub(crate) fn start<A: Actor<Context = Context<A>> + Send>(&self, actor: A) -> Addr<A> {
        self.start_on(0, actor)
    }

    /// Starts an actor on the next thread in turn.
    pub(crate) fn start_on<A: Actor<Context = Context<A>> + Send>(&self, turn: usize, actor: A) -> Addr<A> {
        A::start_in_arbiter(&self.arbiters[turn % self.arbiters.len()].handle(), move |_| actor)
    }

    /// All threads, for actors that distribute their children over them.
    pub(crate) fn threads(&self) -> Vec<ArbiterHandle> {
        self.arbiters.iter().map(Arbiter::handle).collect()
    }

    /// Ends all threads, and all actors that still exist.
    pub(crate) fn finish(self) -> Outcome<()> {
        for arbiter in self.arbiters {
            arbiter.stop();
            arbiter.join().map_err(|_| "an arbiter panicked")?;
        }
        Ok(())
    }
}
