//! Procession is a message-driven process runtime.
//!
//! A [`Process`] is a small state machine. The runtime *steps* it when it has events. The process *yields* actions,
//! and the runtime performs them. Processes are reached by their [`Pid`], cost a few hundred bytes, and run by the
//! million on a few worker threads. Use them to build actor systems, to write workflows as state machines, and to
//! send messages between processes by PID.
//!
//! ```
//! use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
//! use std::time::Duration;
//!
//! struct Counter { total: u64 }
//!
//! enum CounterMessage { Add(u64), Read(Reply<u64>) }
//!
//! impl Process for Counter {
//!     type Message = CounterMessage;
//!     type Output = u64;
//!
//!     fn step(&mut self, events: &mut Events<CounterMessage>, out: &mut StepOutput) -> StepResult<u64> {
//!         for event in events {
//!             match event {
//!                 Event::Message(CounterMessage::Add(n)) => self.total += n,
//!                 Event::Message(CounterMessage::Read(reply)) => out.reply(reply, self.total),
//!                 Event::Cancel(_) => return Ok(Step::Done(self.total)),
//!                 _ => {}
//!             }
//!         }
//!         Ok(Step::Idle)
//!     }
//! }
//!
//! let runtime = Runtime::builder().workers(2).start()?;
//! let counter = runtime.spawn(Counter { total: 0 })?;
//! runtime.send(counter.address(), CounterMessage::Add(1))?;
//! let total = runtime.ask(counter.address(), CounterMessage::Read, Duration::from_secs(10)).wait()?;
//! assert_eq!(total, 1);
//!
//! let report = runtime.shutdown(Duration::from_secs(20))?;
//! assert!(report.is_clean());
//! assert_eq!(**counter.join()?.output().unwrap(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The laws
//!
//! A program can rely on these laws. Each law has tests that fail if it is broken. The repository's
//! `docs/guarantees/` has the statements in full, with the name of the test that shows each of them.
//!
//! 1. **One at a time.** A process is stepped by at most one thread at any moment. Every step sees all that the step
//!    before it wrote.
//! 2. **No lost wake-up.** A process with an event that it waits for is stepped in finite time, without any further
//!    call.
//! 3. **In order, at most once, accounted for.** Messages from one sender to one receiver are stepped in the order in
//!    which they were sent. A message whose send succeeded is stepped exactly once, or is reported as a dead letter
//!    with its reason. At all times accepted = stepped + dead letters + still queued.
//! 4. **A failed step has no effects.** Yields are data, performed in order after the step has returned `Ok`. If the
//!    step returned an error or panicked, none of them is performed, and the messages that it had taken are dead
//!    letters.
//! 5. **A PID means one process, for ever.** It is never given to another process of the same runtime. A message to
//!    an ended process never reaches its successor in the same slot.
//! 6. **Every question gets exactly one answer.** Each yielded command and each ask is answered once: with a value,
//!    or with an error that says why. No question is left without an answer.
//! 7. **Fair.** No ready process waits for ever while others run.
//! 8. **The control lane is never delayed.** Control signals overtake messages and are never refused by a bound.
//! 9. **Ending is orderly and finite.** Every process that was initialised is closed exactly once, however it ended.
//!    Shutdown takes a limit, and its report names the processes that had to be forced and those that are stuck.
//! 10. **Contained.** A panic in user code ends the process that it happened in and nothing else. No call panics for
//!     "stopped", "full" or "not found". A refusal is a value, and hands back the refused argument.
//! 11. **Nothing grows without bound by itself.** Slots, timers, names, records and buffers are released when their
//!     owners have ended.
//! 12. **Idle costs nothing.** With no work, no thread of the runtime runs. An idle process costs memory only.
//!
//! **User code that hangs.** A panic in user code is contained everywhere. For user code that never returns, this
//! holds:
//!
//! - The end of a runtime, a pool and a scheduler of tasks runs on one thread of its own. The caller of `shutdown` or
//!   `stop` with a limit waits for it until the limit and a grace of 250 ms are over. If user code hangs there, the
//!   report names the stage and, where it is known, the process, job or task. Work that comes after it in that stage
//!   may not be done. Processes that are not reached have the exit `Terminated`, and their `join` returns.
//! - A last handle that is dropped ends with a limit of zero and waits for the grace. In a step or a job it does not
//!   wait.
//! - Calls without a limit do not wait for destructors.
//! - A loop and a shutdown tree have no thread. User code runs on the thread that makes the change, and code that
//!   hangs there blocks that thread.
//! - User code that hangs on a worker is a matter of the watchdog.
//!
//! # The rungs
//!
//! - A **job** is a closure that runs once on a thread that may block: [`pool`], an elastic pool of threads with
//!   handles, batches, pauses, pacing and bounds.
//! - A **task** is a job with a handle and a status: [`task`]. It can be cancelled, can time out, and is stopped with
//!   all others. It has one outcome, decided once.
//! - A **tasklet** is work in several turns, at home with a state or in the pool: [`tasklet`].
//! - A **process** is turns with an address: it has a PID, a mailbox and commands, and runs on the workers. Its
//!   blocking command is a job.
//! - A **supervisor** is a process whose events are the exits of other processes: [`supervisor`].
//!
//! Beside the rungs is the **shutdown tree**: [`shutdown`]. Code that starts background work returns a
//! [`ShutdownNode`]. The program that puts the nodes together calls [`ShutdownNode::depends_on`] to say in which
//! order they end. A [`Runtime`], a pool, a scheduler of tasks and a loop have a node each: `shutdown_node()`.
//!
//! All rungs share these items:
//!
//! - [`Exit`] and [`Reason`] say how something ended, and why.
//! - [`CancelToken`] is a request to stop.
//! - [`sync::Latch`] is a value that is set once.
//! - [`sync::Gate`] counts the guards inside, and closes.
//! - [`clock`] and [`timer`] have the time, with a manual clock for tests.
//! - [`Rejected`] is an error that hands back the refused value.
//!
//! # Where things are
//!
//! The crate root and the [`prelude`] have the items that nearly every program uses. The modules have the rest:
//!
//! - [`command`] has commands of a user's own.
//! - [`names`] has names and groups.
//! - [`spawn`] has options of new processes.
//! - [`exit`] says how processes end.
//! - [`observe`] has observers and statistics.
//! - [`config`] has the configuration of a runtime.
//! - [`sync`] has latches and gates.
//!
//! # Testing
//!
//! A process never holds a handle to the runtime. So it can be driven as a plain function from events to yields:
//! [`testing`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

// The modules are in the order in which they build on each other: a file imports only from files above it.
mod primitives;
pub mod clock;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod crowd;
mod numbered_list;
mod pid;
mod outcome;
mod inside;
mod latch;
mod threads;
mod gate;
mod cancel;
pub mod timer;
pub mod shutdown;
pub mod pool;
pub mod task;
pub mod tasklet;
mod process;
mod name_table;
mod sched;
mod relations;
mod groups;
mod runtime;
pub mod command;
pub mod config;
pub mod exit;
pub mod names;
pub mod observe;
pub mod spawn;
pub mod sync;
pub mod prelude;
pub mod supervisor;
pub mod testing;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod idle_tests;

// The shared helpers of the tests name this crate as the integration tests do.
#[cfg(all(test, not(loom)))]
extern crate self as procession;
#[cfg(all(test, not(loom)))]
#[path = "../tests/common/wait.rs"]
mod wait;

pub use self::cancel::CancelToken;
pub use self::inside::WaitError;
pub use self::outcome::{BoxError, Exit, ExitError, Reason, Rejected};
pub use self::process::{
    Address, CommandError, Completion, Down, EntryArgs, Event, Events, InitResult, Monitor, Pid, Process, Reply,
    SendError, SpawnError, SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};
pub use self::runtime::{AskFuture, Handle, Runtime, ShutdownError, ShutdownReport};
pub use self::shutdown::ShutdownNode;

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the examples of the guide to the pool.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/worker-pool.md")]
struct GuideToThePool;

/// Compiles and runs the examples of the guide to tasks.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/tasks.md")]
struct GuideToTasks;

/// Compiles and runs the examples of the guide to shutdown.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/shutdown.md")]
struct GuideToShutdown;

/// Compiles and runs the examples of the guide to tasklets.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/tasklets.md")]
struct GuideToTasklets;
