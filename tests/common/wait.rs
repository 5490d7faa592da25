//! Waits that end: each has a limit, and a wait that reaches it panics and names the line that waits.
//!
//! All suites and the unit tests of `src` include this file.

#![allow(dead_code)]

use std::future::Future;
use std::io::Write as _;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::observe::ExitWatcher;
use procession::pool::{JobError, JobHandle};
use procession::sync::Latch;
use procession::task::TaskHandle;
use procession::tasklet::{TaskletFuture, TaskletHandle};
use procession::{CancelToken, Down, Exit, Handle, Process, Reason};

// The thread sanitizer must see the locks of the tests as well; `src/primitives/watched.rs` says why.
#[cfg(not(procession_sanitize_thread))]
pub(crate) use std::sync::Mutex;
#[cfg(procession_sanitize_thread)]
#[path = "../../src/primitives/watched.rs"]
mod watched;
#[cfg(procession_sanitize_thread)]
pub(crate) use watched::Mutex;

/// The limit of each wait, by the system's clock. Only broken code reaches it: no test waits until it is over. Under a
/// sanitizer, on a busy machine, sound code may take minutes.
pub(crate) const LIMIT: Duration = Duration::from_secs(if cfg!(procession_mutants) {
    30
} else if cfg!(any(procession_sanitize_thread, procession_sanitize_address)) {
    600
} else {
    120
});

/// Waits for a latch, a handle, a barrier, a channel, a thread or a program, and returns what it gives.
#[track_caller]
pub(crate) fn wait<W: Waitable>(what: W) -> W::Output {
    match what.awaited_by(Instant::now() + LIMIT) {
        Some(output) => output,
        None => fail(std::any::type_name::<W>()),
    }
}

/// Polls a future on this thread until it is ready.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    match poll_until(future, Instant::now() + LIMIT) {
        Some(output) => output,
        None => fail(std::any::type_name::<F>()),
    }
}

/// Waits for a condition by looking again and again.
#[track_caller]
pub(crate) fn until(what: &str, mut is_reached: impl FnMut() -> bool) {
    if look_until(Instant::now() + LIMIT, || is_reached().then_some(())).is_none() {
        fail(what);
    }
}

/// Moves a clock by so much, again and again, until a condition holds.
#[track_caller]
pub(crate) fn advance_until(what: &str, clock: &ManualClock, by: Duration, mut is_reached: impl FnMut() -> bool) {
    until(what, || {
        clock.advance(by);
        is_reached()
    });
}

/// Ends the test. It is told at once where, for the panic alone may be seen by nobody: a scope that it leaves waits
/// for its threads, and so does a runtime. If they hang, the program is aborted.
#[track_caller]
fn fail(what: &str) -> ! {
    let text = format!("waited longer than {LIMIT:?}: {what}");
    // The thread of a test is called as the test is.
    if thread::current().name().is_some_and(|name| name.contains("::")) {
        let _ = writeln!(std::io::stderr(), "{}: {text}", std::panic::Location::caller());
        thread::spawn(|| {
            thread::park_timeout(LIMIT);
            std::process::abort();
        });
    }
    panic!("{text}");
}

/// Something that [`wait`] can wait for.
pub(crate) trait Waitable {
    type Output;

    /// Nothing if it has not happened by then.
    fn awaited_by(self, end: Instant) -> Option<Self::Output>;
}

impl<'a, W> Waitable for &'a Arc<W>
where
    &'a W: Waitable,
{
    type Output = <&'a W as Waitable>::Output;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        self.as_ref().awaited_by(end)
    }
}

impl<T: Clone> Waitable for &Latch<T> {
    type Output = T;

    fn awaited_by(self, end: Instant) -> Option<T> {
        poll_until(self.clone().into_future(), end)
    }
}

impl Waitable for &CancelToken {
    type Output = Reason;

    fn awaited_by(self, end: Instant) -> Option<Reason> {
        poll_until(self.cancelled(), end)
    }
}

impl<P: Process> Waitable for &Handle<P> {
    type Output = Exit<Arc<P::Output>>;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        poll_until(self.clone(), end)
    }
}

impl Waitable for ExitWatcher {
    type Output = Down;

    fn awaited_by(self, end: Instant) -> Option<Down> {
        poll_until(self, end)
    }
}

impl<T> Waitable for JobHandle<T> {
    type Output = Result<T, JobError>;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        poll_until(self, end)
    }
}

impl<T, E> Waitable for TaskHandle<T, E> {
    type Output = Exit<T, E>;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        poll_until(self, end)
    }
}

impl Waitable for &TaskletHandle {
    type Output = Exit;

    fn awaited_by(self, end: Instant) -> Option<Exit> {
        poll_until(self.clone().into_future(), end)
    }
}

impl<U> Waitable for TaskletFuture<U> {
    type Output = Exit<U>;

    fn awaited_by(self, end: Instant) -> Option<Exit<U>> {
        poll_until(self, end)
    }
}

impl<T> Waitable for &Receiver<T> {
    type Output = Result<T, RecvError>;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        match self.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(value) => Some(Ok(value)),
            Err(RecvTimeoutError::Disconnected) => Some(Err(RecvError)),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }
}

impl<T> Waitable for JoinHandle<T> {
    type Output = thread::Result<T>;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        look_until(end, || self.is_finished().then_some(())).map(|()| self.join())
    }
}

impl<T> Waitable for ScopedJoinHandle<'_, T> {
    type Output = thread::Result<T>;

    fn awaited_by(self, end: Instant) -> Option<Self::Output> {
        look_until(end, || self.is_finished().then_some(())).map(|()| self.join())
    }
}

impl Waitable for &mut Child {
    type Output = ExitStatus;

    fn awaited_by(self, end: Instant) -> Option<ExitStatus> {
        look_until(end, || self.try_wait().expect("a program can be waited for"))
    }
}

/// A barrier for so many threads. The standard one has no wait with a limit.
pub(crate) struct Barrier {
    size: usize,
    round: Mutex<Round>,
}

#[derive(Default)]
struct Round {
    arrived: usize,
    full: Latch<()>,
}

impl Barrier {
    pub(crate) fn new(size: usize) -> Barrier {
        Barrier { size, round: Mutex::new(Round::default()) }
    }
}

impl Waitable for &Barrier {
    /// Whether this thread has completed the round.
    type Output = bool;

    fn awaited_by(self, end: Instant) -> Option<bool> {
        let mut round = self.round.lock().unwrap();
        round.arrived += 1;
        let full = round.full.clone();
        if round.arrived == self.size {
            *round = Round::default();
            drop(round);
            full.set(()).expect("one thread completes a round");
            return Some(true);
        }
        drop(round);
        (&full).awaited_by(end).map(|()| false)
    }
}

fn look_until<T>(end: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::yield_now();
    }
}

fn poll_until<F: Future>(future: F, end: Instant) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}
