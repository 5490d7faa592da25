//! Threads: how they are started, how their end is waited for, and who runs code of the user's that may never return.
//!
//! A destructor, a waker, a `close`, the destructor of a thread-local: each is the user's and may block for ever. Who ends
//! something has them run by [`work_off`] or [`join_all`], on threads of their own, and waits for the latch as long as it
//! wants to; who need not wait gives what is to be dropped to a [`Reaper`].

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::latch::Latch;
use crate::outcome::{contain, drop_contained, tell_log};
use crate::sync::{Arc, Condvar, Mutex, in_crowd, lock, thread, wait_for};

/// How long nothing may be finished before one more thread goes on with the rest.
const PATIENCE: Duration = Duration::from_millis(10);

/// The most threads for one heap of work: when so many are stuck, the rest is left.
const MOST: usize = 64;

/// Starts a thread.
pub(crate) fn start(name: String, main: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    start_sized(name, None, main)
}

/// Starts a thread with a stack of so many bytes. The only door to new ones: a name that no thread can have is an error and
/// not a panic, and tests of the crate can have threads refused.
pub(crate) fn start_sized(
    name: String,
    stack_size: Option<usize>,
    main: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    if are_refused() {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    if !is_name(&name) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no thread can be called {name:?}")));
    }
    let main = in_crowd(&name, main);
    let builder = thread::Builder::new().name(name);
    match stack_size {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    }
    .spawn(main)
}

/// Whether a thread can be called so.
pub(crate) fn is_name(name: &str) -> bool {
    !name.contains('\0')
}

/// Joins threads that have done all of ours, on a thread of its own: the destructors of their thread-locals are the user's.
/// Set when all have ended.
pub(crate) fn join_all(threads: Vec<thread::JoinHandle<()>>) -> Latch<()> {
    let over = Latch::new();
    let set = over.clone();
    let joiner = move || {
        for thread in threads {
            // All user code is contained, so none of them has panicked.
            let _ = thread.join();
        }
        let _ = set.set(());
    };
    if let Err(error) = start(String::from("procession-joiner"), joiner) {
        tell_log(|| tracing::warn!(%error, "no thread to wait for others; they end by themselves"));
        let _ = over.set(());
    }
    over
}

/// Does `step` until it says that nothing is left. A call that does not return costs its thread, and another one goes on
/// with the rest. Set when all is done.
pub(crate) fn work_off(step: impl Fn() -> bool + Send + Sync + 'static) -> Latch<()> {
    let crew = Arc::new(Crew { state: Mutex::default(), changed: Condvar::new(), over: Latch::new(), step });
    let (over, leads) = (crew.over.clone(), crew.clone());
    if let Err(error) = start(String::from("procession-reaper"), move || leads.lead()) {
        tell_log(|| tracing::error!(%error, "no thread for what may take long: it is done here"));
        lock(&crew.state).working += 1;
        crew.work();
    }
    over
}

/// Drops what is the user's on threads of its own, for those who must not be held up by a destructor. As long as there is
/// nothing to drop it has no thread.
#[derive(Default)]
pub(crate) struct Reaper {
    heap: Arc<Mutex<Heap>>,
}

#[derive(Default)]
struct Heap {
    left: VecDeque<Box<dyn Send>>,
    // Whether somebody works it off, and so will find what comes: it is taken back in the step that finds nothing left.
    is_worked_off: bool,
}

impl Reaper {
    /// Has it dropped, contained, in the order of coming. Does not wait for that.
    pub(crate) fn take(&self, thing: impl Send + 'static) {
        let is_first = {
            let mut heap = lock(&self.heap);
            heap.left.push_back(Box::new(thing));
            !std::mem::replace(&mut heap.is_worked_off, true)
        };
        if is_first {
            let heap = self.heap.clone();
            work_off(move || {
                let next = {
                    let mut heap = lock(&heap);
                    let next = heap.left.pop_front();
                    heap.is_worked_off &= next.is_some();
                    next
                };
                next.map(drop_contained).is_some()
            });
        }
    }
}

/// Runs `work` on a thread of its own. The latch is set when `work` has returned or panicked. If no thread can be started,
/// `work` runs on the calling thread.
///
/// The only door for code of the library that must not hold up its caller because it may call user code that hangs.
pub(crate) fn on_helper_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Latch<()> {
    let over = Latch::new();
    let set = over.clone();
    // Shared, so that it is still there if no thread could be started.
    let work = Arc::new(Mutex::new(Some(work)));
    let run = move || {
        let work = lock(&work).take();
        if let Some(Err(panic)) = work.map(contain) {
            tell_log(|| tracing::error!(%panic, "a panic came through"));
        }
        let _ = set.set(());
    };
    if let Err(error) = start(String::from(name), run.clone()) {
        tell_log(|| tracing::error!(%error, "no helper thread: the work runs on the calling thread"));
        run();
    }
    over
}

/// Who does a heap of work: one thread leads, and runs no code of the user's; the others work.
struct Crew<F> {
    state: Mutex<State>,
    // Notified when a worker has found nothing more to do.
    changed: Condvar,
    over: Latch<()>,
    step: F,
}

#[derive(Default)]
struct State {
    working: usize,
    finished: u64,
    nothing_left: bool,
}

impl<F: Fn() -> bool + Send + Sync + 'static> Crew<F> {
    fn lead(self: Arc<Crew<F>>) {
        loop {
            lock(&self.state).working += 1;
            let works = self.clone();
            if let Err(error) = start(String::from("procession-reaper"), move || works.work()) {
                tell_log(|| tracing::error!(%error, "no other thread for what may take long"));
                return self.work();
            }
            let mut state = lock(&self.state);
            loop {
                let before = state.finished;
                if !state.nothing_left {
                    state = wait_for(&self.changed, state, PATIENCE);
                }
                if state.nothing_left {
                    return;
                }
                if state.finished == before {
                    break;
                }
            }
            if state.working == MOST {
                drop(state);
                tell_log(|| {
                    tracing::error!(threads = MOST, "all of them are stuck in code of the user's, and the rest is left")
                });
                return;
            }
        }
    }

    fn work(&self) {
        loop {
            // What it does is contained. Should a panic come through all the same, that piece is the price.
            let more = contain(&self.step).unwrap_or_else(|panic| {
                tell_log(|| tracing::error!(%panic, "a panic came through"));
                true
            });
            let mut state = lock(&self.state);
            if more {
                state.finished += 1;
                continue;
            }
            state.nothing_left = true;
            state.working -= 1;
            let is_last = state.working == 0;
            drop(state);
            self.changed.notify_all();
            if is_last {
                let _ = self.over.set(());
            }
            return;
        }
    }
}

#[cfg(any(not(test), loom))]
fn are_refused() -> bool {
    false
}

#[cfg(all(test, not(loom)))]
use self::tests::are_refused;
#[cfg(all(test, not(loom)))]
pub(crate) use self::tests::refuse;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait::{until, wait};
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    thread_local!(static REFUSED: Cell<bool> = const { Cell::new(false) });

    /// As if the operating system gave the calling thread no more threads.
    pub(crate) fn refuse(refused: bool) {
        REFUSED.set(refused);
    }

    pub(super) fn are_refused() -> bool {
        REFUSED.get()
    }

    #[test]
    fn what_is_stuck_holds_up_nothing_behind_it_and_over_is_when_all_is_done() {
        let (next, done, go, all) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), Latch::new(), Latch::new());
        let (count, gate, told) = (done.clone(), go.clone(), all.clone());
        let over = work_off(move || {
            match next.fetch_add(1, Ordering::SeqCst) {
                0..3 => wait(&gate),
                3..1_000 => {}
                _ => return false,
            }
            if count.fetch_add(1, Ordering::SeqCst) == 996 {
                let _ = told.set(());
            }
            true
        });
        wait(&all);
        assert!(!over.is_set());
        go.set(()).unwrap();
        wait(&over);
        assert_eq!(done.load(Ordering::SeqCst), 1_000);
    }

    #[test]
    fn with_no_thread_to_be_had_the_work_is_done_all_the_same() {
        let left = AtomicUsize::new(10);
        refuse(true);
        let over =
            work_off(move || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok());
        let joined = join_all(Vec::new());
        let (done, set) = (Latch::new(), Latch::new());
        let sets = set.clone();
        on_helper_thread("test-elsewhere", move || sets.set(()).unwrap());
        on_helper_thread("test-elsewhere", || panic!("contained"));
        refuse(false);
        assert!(over.is_set() && joined.is_set() && set.is_set());
        let sets = done.clone();
        on_helper_thread("test-elsewhere", move || {
            sets.set(std::thread::current().name().map(String::from)).unwrap();
        });
        assert_eq!(wait(&done).as_deref(), Some("test-elsewhere"));
    }

    #[test]
    fn what_is_to_be_dropped_is_dropped_once_also_behind_a_destructor_that_does_not_return() {
        struct Thing(Latch<()>, Arc<AtomicUsize>);
        impl Drop for Thing {
            fn drop(&mut self) {
                wait(&self.0);
                if self.1.fetch_add(1, Ordering::SeqCst).is_multiple_of(3) {
                    panic!("in a destructor");
                }
            }
        }
        let (reaper, go, dropped) = (Reaper::default(), Latch::new(), Arc::new(AtomicUsize::new(0)));
        let open = Latch::new();
        open.set(()).unwrap();
        let until_dropped = |count| until("so many are dropped", || dropped.load(Ordering::SeqCst) >= count);
        reaper.take(Thing(go.clone(), dropped.clone()));
        for round in 1..=20 {
            (0..10).for_each(|_| reaper.take(Thing(open.clone(), dropped.clone())));
            until_dropped(round * 10);
        }
        go.set(()).unwrap();
        until_dropped(201);
        refuse(true);
        reaper.take(Thing(open.clone(), dropped.clone()));
        refuse(false);
        until_dropped(202);
    }

    #[test]
    fn a_name_with_a_nul_is_an_error() {
        assert_eq!(start(String::from("a\0b"), || ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
