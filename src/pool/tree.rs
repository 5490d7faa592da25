//! The pool in a shutdown tree: told to end it does what waits, and it is done when its last worker has left.

use std::time::Duration;

use super::owner::Pool;
use super::thread::Shared;
use crate::outcome::drop_contained;
use crate::shutdown::{Role, ShutdownNode};
use crate::sync::{Arc, Mutex, lock};
use crate::threads;

/// How long a pool waits for jobs that run when the limit of a shutdown through its state is over: those that waited have been
/// dropped then.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

impl Pool {
    /// The pool in a [shutdown tree](crate::shutdown), always the same state. What closes before it and after it is said with
    /// [`ShutdownNode::depends_on`].
    ///
    /// Asked to close, it takes no more jobs and does those that wait, as [`close`](Self::close) does; it is closed when the
    /// last thread has left. With [`shutdown_limit`](super::PoolBuilder::shutdown_limit) it waits only so long. A pool that
    /// ends otherwise closes it, too: by [`drain`](Self::drain), by [`stop`](Self::stop), or with its last handle. If jobs were
    /// given up that waited, it has [`JobsAbandoned`](super::JobsAbandoned) as its error.
    ///
    /// It is called as the threads are. As long as jobs keep it from ending, the error of the tree's shutdown says how many.
    ///
    /// ```
    /// use procession::ShutdownNode;
    /// use procession::pool::Pool;
    ///
    /// let pool = Pool::new(2)?;
    /// // It hands in jobs, so it ends before the pool.
    /// let jobs = pool.clone();
    /// let server = ShutdownNode::thread("server", move |job| {
    ///     job.end().wait();
    ///     jobs.execute(|| println!("the last one"))?;
    ///     Ok(())
    /// })?;
    /// let all = pool.shutdown_node().depends_on([server]);
    /// all.shutdown()?;
    /// assert_eq!(pool.stats().finished, 1);
    /// assert!(all.err().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_node(&self) -> ShutdownNode {
        let shared = &self.owner.shared;
        let state = shared.part.state(|| role(shared));
        shared.tell_tree();
        state
    }

    /// What it is at.
    pub(crate) fn who_is_left(&self) -> Option<String> {
        self.owner.shared.who_is_left()
    }
}

fn role(shared: &Arc<Shared>) -> Role<'_> {
    let (looks, knows) = (Arc::downgrade(shared), Arc::downgrade(shared));
    let (ends, stops) = (Arc::downgrade(shared), Arc::downgrade(shared));
    Role {
        name: shared.crew.name(),
        clock: &shared.clock,
        detail: Box::new(move || looks.upgrade()?.who_is_left()),
        inside: Box::new(move || knows.upgrade().is_some_and(|shared| shared.crew.is_current())),
        end: Box::new(move || {
            if let Some(shared) = ends.upgrade() {
                shared.drain();
            }
        }),
        cancel: Some((
            Box::new(move || {
                if let Some(shared) = stops.upgrade() {
                    shared.cut_short();
                }
            }),
            SHUTDOWN_GRACE,
        )),
        on: None,
    }
}

impl Shared {
    fn who_is_left(&self) -> Option<String> {
        let (running, waiting) = {
            let ledger = self.lock();
            (ledger.running + ledger.nested, ledger.waiting())
        };
        (running + waiting > 0).then(|| format!("jobs: {running} running, {waiting} waiting"))
    }

    /// Stops. What waited is dropped elsewhere, for destructors are the user's.
    fn cut_short(&self) {
        let abandoned = self.stop();
        if !abandoned.is_empty() {
            let left = Mutex::new(abandoned);
            threads::work_off(move || {
                let next = lock(&left).pop_front();
                next.map(drop_contained).is_some()
            });
        }
    }
}
