//! The threads of the workers: their start, their identity and their join. This file also keeps the spare workers that
//! have no thread.

use std::io;

use super::dispatch::Core;
use crate::gate::Gate;
use crate::inside::begin_steps;
use crate::latch::Latch;
use crate::outcome::drop_contained;
use crate::primitives::thread::JoinHandle;
use crate::primitives::{Arc, Mutex, lock, thread};
use crate::sched::worker::Worker;
use crate::threads;

pub(super) struct WorkerThreads {
    stack_size: Option<usize>,
    threads: Mutex<Vec<WorkerThread>>,
    /// Each worker holds a guard of this gate while it runs.
    pub(super) inside: Gate,
    spares: Mutex<Vec<Spare>>,
}

pub(super) struct WorkerThread {
    pub(super) handle: JoinHandle<()>,
    pub(super) left: Latch<()>,
}

/// A worker that waits for a thread.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) worker: Worker<Core>,
}

impl WorkerThreads {
    /// No threads yet. Each thread will have a stack of this many bytes.
    pub(super) fn new(stack_size: Option<usize>) -> WorkerThreads {
        WorkerThreads { stack_size, threads: Mutex::default(), inside: Gate::new(), spares: Mutex::default() }
    }

    /// Starts the thread of a worker, which runs `main`. It fails if the workers were dismissed.
    pub(super) fn start(&self, name: String, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // Held until the thread is in the list. A shutdown first closes the gate. So it finds all threads in the list.
        let mut threads = lock(&self.threads);
        let Some(inside) = self.inside.enter() else { return Err(io::Error::other("the runtime ends")) };
        let left = Latch::new();
        let leaves = left.clone();
        let handle = threads::start_sized(name, self.stack_size, move || {
            begin_steps();
            // A panic that is not contained ends at most one process: see `Worker::run`.
            main();
            let _ = leaves.set(());
            drop(inside);
        })?;
        // Spares start and exit. The threads that have exited are removed.
        #[cfg(not(loom))]
        threads.retain(|thread| !thread.handle.is_finished());
        threads.push(WorkerThread { handle, left });
        Ok(())
    }

    /// Adds a spare worker to the list. It gets a thread when it is needed.
    pub(super) fn add_spare(&self, spare: Spare) {
        lock(&self.spares).push(spare);
    }

    /// Starts a spare worker, if one is in the list. Returns whether one was started. A spare that has just exited may
    /// not be in the list yet. The worker returns to the list when it exits. It keeps `kept` while it runs.
    pub(super) fn start_spare(self: &Arc<WorkerThreads>, kept: impl Send + 'static) -> io::Result<bool> {
        let Some(spare) = lock(&self.spares).pop() else { return Ok(false) };
        let (worker_threads, name) = (self.clone(), spare.name.clone());
        // The spare is returned to the list if the thread does not start.
        let place = Arc::new(Mutex::new(Some(spare)));
        let runs = place.clone();
        let started = self.start(name, move || {
            let Some(mut spare) = lock(&runs).take() else { return };
            spare.worker.run();
            worker_threads.add_spare(spare);
            drop(kept);
        });
        if started.is_err()
            && let Some(spare) = lock(&place).take()
        {
            self.add_spare(spare);
        }
        started.map(|()| true)
    }

    /// Takes the threads, for the caller to join.
    pub(super) fn take(&self) -> Vec<WorkerThread> {
        std::mem::take(&mut *lock(&self.threads))
    }

    /// Whether the calling thread is one of the workers.
    pub(super) fn is_current(&self) -> bool {
        let me = thread::current().id();
        lock(&self.threads).iter().any(|worker| worker.handle.thread().id() == me)
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        std::mem::take(&mut *lock(&self.spares)).into_iter().for_each(drop_contained);
    }
}
