//! Shutdown on signals of the operating system. With the feature `signals`.

use std::fmt;
use std::io;

use super::node::ShutdownNode;
use super::wait;
use crate::latch::Latch;
use crate::primitives::{Arc, AtomicUsize, Ordering};
use crate::threads;

/// A signal that asks a program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// `SIGINT`, or Ctrl-C.
    Interrupt,
    /// `SIGTERM`, on Unix.
    Terminate,
    /// `SIGHUP`, on Unix: the terminal was closed.
    HangUp,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
            Signal::HangUp => "SIGHUP",
        })
    }
}

/// The signals that ask for a shutdown, and their count.
///
/// The handler of the signals stays until the program ends, even if this value is dropped.
#[derive(Clone, Debug)]
pub struct Signals {
    shared: Arc<Heard>,
}

#[derive(Debug)]
struct Heard {
    handled: Vec<Signal>,
    ignored: Vec<Signal>,
    count: AtomicUsize,
    again: Latch<()>,
}

/// Why signals cannot ask for a shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The program was started with all of these signals ignored.
    #[error("no signal can ask for the shutdown: the program was started with all of them ignored")]
    AllIgnored,
    /// The program already has a handler, and the operating system (not Unix) allows only one.
    #[error("Ctrl-C cannot ask for the shutdown: the program has another handler for it")]
    HasHandler,
    /// The operating system refused the handler, or the thread that waits for the signals.
    #[error("the signals of the program cannot be handled: {0}")]
    System(#[source] io::Error),
}

impl Signals {
    /// Returns the signals that ask for the shutdown.
    pub fn handled(&self) -> &[Signal] {
        &self.shared.handled
    }

    /// Returns the signals that stay ignored, because the program was started with them ignored.
    pub fn ignored(&self) -> &[Signal] {
        &self.shared.ignored
    }

    /// Returns the number of signals that have come.
    pub fn count(&self) -> usize {
        // Ordering: Relaxed: the number is only reported, and no other data depends on it.
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Calls `callback` when a second signal comes. A user who presses Ctrl-C twice does not want to wait.
    ///
    /// The callback is called even if a callback of the shutdown hangs.
    pub fn on_second(&self, callback: impl FnOnce() + Send + 'static) -> wait::Subscription {
        wait::Subscription::new(self.shared.again.clone(), None, callback)
    }
}

impl ShutdownNode {
    /// Makes Ctrl-C shut down this node instead of ending the program.
    ///
    /// On Unix, `SIGTERM` and `SIGHUP` shut it down, too.
    ///
    /// On Unix, a signal stays ignored if the program was started with it ignored. `nohup` ignores `SIGHUP`, and
    /// shells ignore `SIGINT` for programs that they run in the background. [`Signals::ignored`] returns these signals,
    /// and [`Signals::handled`] the others. (The library reads `/proc/self/status`, which systems such as Linux have.
    /// Elsewhere it handles all three.)
    ///
    /// On Unix, several nodes can be shut down, each by a call of its own. Handlers that were there before are called
    /// as well.
    ///
    /// ```no_run
    /// use procession::ShutdownNode;
    ///
    /// let all = ShutdownNode::thread("server", |job| {
    ///     job.end().wait();
    ///     Ok(())
    /// })?;
    /// let signals = all.shutdown_on_signals()?;
    /// println!("ends at {:?}, and not at {:?}", signals.handled(), signals.ignored());
    /// signals.on_second(|| std::process::exit(130)).keep();
    /// all.wait_closed()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All of these signals are ignored. Or the program has another handler, and the system allows only one. Or the
    /// operating system refuses the handler or a thread.
    pub fn shutdown_on_signals(&self) -> Result<Signals, SignalError> {
        let (ignored, handled): (Vec<_>, Vec<_>) = SIGNALS.iter().partition(|signal| is_ignored(**signal));
        if handled.is_empty() {
            return Err(SignalError::AllIgnored);
        }
        let (count, again) = (AtomicUsize::new(0), Latch::new());
        let shared = Arc::new(Heard { handled, ignored, count, again });
        let (heard, state) = (shared.clone(), self.clone());
        let comes = move || {
            if heard.count.fetch_add(1, Ordering::Relaxed) == 0 {
                // Callbacks of the shutdown run on a helper thread. So this thread receives the second signal even if
                // one of them hangs.
                let asks = state.clone();
                threads::on_helper_thread("procession-signals", move || asks.request_shutdown());
            } else {
                let _ = heard.again.set(());
            }
        };
        listen(&shared.handled, comes)?;
        Ok(Signals { shared })
    }
}

#[cfg(unix)]
const SIGNALS: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

#[cfg(not(unix))]
const SIGNALS: [Signal; 1] = [Signal::Interrupt];

#[cfg(unix)]
fn number(signal: Signal) -> i32 {
    match signal {
        Signal::Interrupt => signal_hook::consts::SIGINT,
        Signal::Terminate => signal_hook::consts::SIGTERM,
        Signal::HangUp => signal_hook::consts::SIGHUP,
    }
}

/// Whether the program was started with this signal ignored, if that can be found out. No safe call reports it.
#[cfg(unix)]
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & 1 << (number(signal) - 1) != 0
}

#[cfg(not(unix))]
fn is_ignored(_: Signal) -> bool {
    false
}

/// Calls `comes` for each signal that comes, on a thread of its own.
#[cfg(unix)]
fn listen(signals: &[Signal], comes: impl Fn() + Send + 'static) -> Result<(), SignalError> {
    // The thread starts first: a handler without a listening thread would disable the signal's own effect for good.
    let (hand_over, handed_over) = std::sync::mpsc::sync_channel::<signal_hook::iterator::Signals>(1);
    let listens = move || {
        if let Ok(mut coming) = handed_over.recv() {
            coming.forever().for_each(|_| comes());
        }
    };
    threads::start(String::from("procession-signals"), listens).map_err(SignalError::System)?;
    let numbers = signals.iter().map(|signal| number(*signal));
    let coming = signal_hook::iterator::Signals::new(numbers).map_err(SignalError::System)?;
    // The thread waits for it.
    let _ = hand_over.send(coming);
    Ok(())
}

#[cfg(not(unix))]
fn listen(_: &[Signal], comes: impl Fn() + Send + 'static) -> Result<(), SignalError> {
    ctrlc::try_set_handler(comes).map_err(|error| match error {
        ctrlc::Error::System(error) => SignalError::System(error),
        _ => SignalError::HasHandler,
    })
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    /// Whether the program handles this signal.
    fn is_handled(signal: Signal) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (number(signal) - 1) != 0
    }

    // The only test of this program that handles signals.
    #[test]
    fn without_a_thread_to_listen_the_signals_keep_their_own_effect() {
        let (state, tail) = ShutdownNode::job([]);
        threads::refuse(true);
        let refused = state.shutdown_on_signals();
        threads::refuse(false);
        if SIGNALS.iter().all(|signal| is_ignored(*signal)) {
            return assert!(matches!(refused, Err(SignalError::AllIgnored)));
        }
        assert!(matches!(refused, Err(SignalError::System(_))), "{refused:?}");
        assert!(SIGNALS.iter().all(|signal| !is_handled(*signal)), "nobody would hear of them");
        let signals = state.shutdown_on_signals().unwrap();
        assert!(signals.handled().iter().all(|signal| is_handled(*signal)));
        tail.done();
    }
}
