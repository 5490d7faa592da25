//! The threads of a pool: how they are started, so that they can be joined, and known from others.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::sync::{Arc, Mutex, ThreadId, lock, thread};
use crate::threads;

/// So many threads that have left a pool that goes on are remembered, should it end soon: the last.
#[cfg(not(loom))]
const KEPT: usize = 8;

pub(super) struct Crew {
    name: String,
    stack_size: Option<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    living: HashMap<u64, thread::JoinHandle<()>>,
    // Entered by each thread itself before its first job, so that a job never finds its own thread unknown.
    ids: HashSet<ThreadId>,
    // Those that have done all of ours, and may still run destructors of thread-locals: to be joined when the pool ends.
    left: Vec<thread::JoinHandle<()>>,
    // The pool ends: none of those who have left is forgotten any more.
    #[cfg(not(loom))]
    ends: bool,
    joining: Vec<Joining>,
}

/// Some of those who have left, while they are joined.
#[derive(Clone)]
struct Joining {
    who: Arc<[ThreadId]>,
    joined: Latch<()>,
}

impl Crew {
    pub(super) fn new(name: String, stack_size: Option<usize>) -> Crew {
        Crew { name, stack_size, state: Mutex::default() }
    }

    /// What the threads are called, before their numbers.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the calling thread is one of these.
    pub(super) fn is_current(&self) -> bool {
        lock(&self.state).ids.contains(&thread::current().id())
    }

    pub(super) fn spawn(&self, main: impl FnOnce(u64) + Send + 'static) -> io::Result<()> {
        // Held until the handle is here, which the thread waits for before it does anything: else one that is quick could
        // leave a pool that ends, and nobody would have what it is joined by.
        let mut state = lock(&self.state);
        state.next += 1;
        let id = state.next;
        let handle = threads::start_sized(format!("{}-{id}", self.name), self.stack_size, move || main(id))?;
        state.living.insert(id, handle);
        Ok(())
    }

    pub(super) fn has_started(&self) {
        lock(&self.state).ids.insert(thread::current().id());
    }

    pub(super) fn is_leaving(&self, id: u64) {
        let mut state = lock(&self.state);
        state.ids.remove(&thread::current().id());
        if let Some(handle) = state.living.remove(&id) {
            state.keep_to_join(handle);
        }
    }

    /// The pool ends: from now on all who leave are kept, to be joined. Before anybody learns that it does, so that whoever
    /// leaves for that finds this done.
    pub(super) fn ends(&self) {
        #[cfg(not(loom))]
        {
            lock(&self.state).ends = true;
        }
    }

    /// Those who have left and are to be joined.
    pub(super) fn take_left(&self) -> Vec<thread::JoinHandle<()>> {
        std::mem::take(&mut lock(&self.state).left)
    }

    /// Waits until those who have left have ended, or until the deadline. Whoever else waits for them, all of them wait; but not
    /// one of them, in a destructor of a thread-local: others wait for it.
    pub(super) fn join(&self, clock: &Clock, deadline: Deadline) {
        let (left, joining) = {
            let mut state = lock(&self.state);
            if state.has_left(thread::current().id()) {
                return;
            }
            let left = std::mem::take(&mut state.left);
            // In the same moment, or somebody else who waits would see neither the threads nor who joins them.
            let who = left.iter().map(|handle| handle.thread().id()).collect();
            let joined = (!left.is_empty()).then(|| Joining { who, joined: Latch::new() });
            state.joining.extend(joined.clone());
            (joined.map(|Joining { joined, .. }| (left, joined)), state.joining.clone())
        };
        if let Some((left, joined)) = left {
            threads::join_all(left).on_set(move |()| {
                let _ = joined.set(());
            });
        }
        for Joining { joined, .. } in joining {
            joined.wait_until(clock, deadline);
        }
        lock(&self.state).joining.retain(|joining| !joining.joined.is_set());
    }
}

impl State {
    fn has_left(&self, who: ThreadId) -> bool {
        let is_joined = self.joining.iter().any(|joining| joining.who.contains(&who));
        is_joined || self.left.iter().any(|handle| handle.thread().id() == who)
    }

    /// Of a pool that goes on nobody joins a thread, for that could take long. So only the last few are kept, and those that
    /// are not done: of the others nothing may be left but a destructor of a thread-local.
    fn keep_to_join(&mut self, handle: thread::JoinHandle<()>) {
        self.left.push(handle);
        #[cfg(not(loom))]
        if !self.ends {
            let mut later = self.left.len();
            self.left.retain(|handle| {
                later -= 1;
                later < KEPT || !handle.is_finished()
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::super::{Pool, QueuePolicy};
    use crate::latch::Latch;
    use crate::sync::lock;
    use crate::threads;
    use crate::wait::wait;

    /// A wait that is longer than this is a hang. It is a bound for broken code only.
    const LIMIT: Duration = Duration::from_secs(120);

    /// Hands in jobs that all have a worker at the same time, and lets them go.
    fn occupy(pool: &Pool, workers: usize) {
        let ((begun, begins), go) = (mpsc::channel(), Latch::new());
        for _ in 0..workers {
            let (begun, go) = (begun.clone(), go.clone());
            let job = move || {
                begun.send(()).unwrap();
                go.wait();
            };
            pool.execute(job).unwrap();
        }
        (0..workers).for_each(|_| begins.recv_timeout(LIMIT).unwrap());
        go.set(()).unwrap();
    }

    #[test]
    fn a_pool_recovers_from_want_of_threads_and_keeps_nothing_when_it_has_ended() {
        let pool = Pool::builder().max(4).queue(QueuePolicy::Block(100)).idle_period(None).build().unwrap();
        let (begun, go) = (Latch::new(), Latch::new());
        let (begins, waits) = (begun.clone(), go.clone());
        pool.execute(move || {
            begins.set(()).unwrap();
            waits.wait();
        })
        .unwrap();
        wait(&begun);
        threads::refuse(true);
        let accepted = (0..10).filter(|_| pool.execute(|| ()).is_ok()).count();
        let handle = pool.spawn(|| 7);
        threads::refuse(false);
        assert_eq!((accepted, pool.stats().workers, pool.stats().waiting), (10, 1, 11));
        go.set(()).unwrap();
        assert_eq!(wait(handle.unwrap()).unwrap(), 7);
        occupy(&pool, 4);
        assert_eq!(pool.stats().workers, 4);
        // Waiters of several kinds.
        assert!(pool.wait_idle(Some(LIMIT)).is_ok());
        drop(pool.pause().unwrap());
        occupy(&pool, 4);
        pool.drain(Some(LIMIT)).unwrap();
        let stats = pool.stats();
        assert_eq!((stats.submitted, stats.finished, stats.workers), (20, 20, 0));
        let shared = &pool.owner.shared;
        let state = lock(&shared.crew.state);
        assert!(state.living.is_empty() && state.ids.is_empty() && state.left.is_empty() && state.joining.is_empty());
        let ledger = shared.lock();
        assert!(ledger.standing.is_empty() && ledger.watching.is_empty() && ledger.resting().is_empty());
        assert!(lock(&shared.tokens).is_empty() && lock(&shared.dropping).is_empty());
    }
}
