//! Starts threads, among them helper threads.
//!
//! A destructor, a waker, a `close`, the destructor of a thread-local: each is user code and may hang. The end of a
//! runtime, a pool or a task scheduler calls it on a helper thread, and its caller waits for that thread with a
//! limit.

use std::io;

use crate::latch::Latch;
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, Mutex, in_crowd, lock, thread};

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(
    name: String,
    main: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    start_sized(name, None, main)
}

/// Starts a thread with a stack of this size in bytes. The crate starts all its threads here.
///
/// A name that no thread can have is an error and not a panic. Tests of the crate can have threads refused.
pub(crate) fn start_sized<T: Send + 'static>(
    name: String,
    stack_size: Option<usize>,
    main: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
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

/// Whether a thread can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.contains('\0')
}

/// Runs `work` on a thread of its own. The latch is set when `work` has returned or panicked.
///
/// If no thread can be started, `work` runs on the calling thread. Code of the library uses this if it must not block
/// its caller and may call user code that hangs.
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
    use crate::wait::wait;
    use std::cell::Cell;

    thread_local!(static REFUSED: Cell<bool> = const { Cell::new(false) });

    /// Makes the crate behave as if the operating system gave the calling thread no more threads.
    pub(crate) fn refuse(refused: bool) {
        REFUSED.set(refused);
    }

    pub(super) fn are_refused() -> bool {
        REFUSED.get()
    }

    #[test]
    fn without_a_thread_the_work_runs_on_the_calling_thread() {
        refuse(true);
        let (done, set) = (Latch::new(), Latch::new());
        let sets = set.clone();
        on_helper_thread("test-helper", move || sets.set(()).unwrap());
        on_helper_thread("test-helper", || panic!("contained"));
        refuse(false);
        assert!(set.is_set());
        let sets = done.clone();
        on_helper_thread("test-helper", move || {
            sets.set(std::thread::current().name().map(String::from)).unwrap();
        });
        assert_eq!(wait(&done).as_deref(), Some("test-helper"));
    }

    #[test]
    fn a_name_with_a_nul_is_an_error() {
        assert_eq!(start(String::from("a\0b"), || ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
