//! Signals of the operating system ask for a shutdown. With the feature `signals`.

use crate::latch::Latch;
use crate::sync::{Arc, AtomicUsize, Ordering};

use super::handle::State;
use super::wait;
use crate::threads;

/// The handler of the process's signals (Ctrl-C, and on Unix `SIGTERM` and `SIGHUP`). It stays for as long as the process
/// lives, whether this is dropped or not.
#[derive(Clone, Debug)]
pub struct Signals {
    shared: Arc<Heard>,
}

#[derive(Debug)]
struct Heard {
    count: AtomicUsize,
    again: Latch<()>,
}

/// The signals of this process have a handler already, and there can be one only; or it was started with one of them
/// ignored, which is left so.
#[derive(Debug, thiserror::Error)]
#[error("signals of the process cannot be handled, for they have a handler or are ignored (as under nohup): {0}")]
pub struct SignalError(#[source] ctrlc::Error);

impl Signals {
    /// How many signals have come.
    pub fn count(&self) -> usize {
        // Ordering: Relaxed: a number to look at; nothing is read because of it.
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Has `callback` called when a second signal comes: whoever presses Ctrl-C twice does not want to wait. It comes also
    /// when a callback of the shutdown hangs.
    pub fn on_second(&self, callback: impl FnOnce() + Send + 'static) -> wait::Subscription {
        wait::Subscription::new(self.shared.again.clone(), None, callback)
    }
}

impl State {
    /// From now on Ctrl-C (and on Unix `SIGTERM` and `SIGHUP`) asks this state to shut down, in place of ending the
    /// process.
    ///
    /// ```no_run
    /// use procession::State;
    ///
    /// let all = State::thread("server", |job| {
    ///     job.end().wait();
    ///     Ok(())
    /// })?;
    /// let signals = all.shutdown_on_signals()?;
    /// signals.on_second(|| std::process::exit(130)).keep();
    /// all.wait_closed(None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The process handles its signals already, with this or otherwise; or it was started with one of them ignored.
    pub fn shutdown_on_signals(&self) -> Result<Signals, SignalError> {
        let shared = Arc::new(Heard { count: AtomicUsize::new(0), again: Latch::new() });
        let (heard, state) = (shared.clone(), self.clone());
        let handler = move || {
            if heard.count.fetch_add(1, Ordering::Relaxed) == 0 {
                // By a thread of its own, for callbacks of the shutdown are called by it, and the second signal must be heard
                // also if one of them hangs: that is what it is for.
                let asks = state.clone();
                if threads::start(String::from("procession-signals"), move || asks.request_shutdown()).is_err() {
                    state.request_shutdown();
                }
            } else {
                let _ = heard.again.set(());
            }
        };
        ctrlc::try_set_handler(handler).map_err(SignalError)?;
        Ok(Signals { shared })
    }
}
