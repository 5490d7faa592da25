//! Procession is a message-driven process runtime.
//!
//! A [`Process`] is a small state machine. When it has events, the runtime *steps* it: the runtime calls
//! [`Process::step`]. The step *yields* actions, for example messages and timers. The runtime performs them when the
//! step has returned.
//!
//! Each process has an identifier, its [`Pid`]. A process costs a few hundred bytes. Millions of processes run on a
//! few worker threads. Use processes to build actor systems, and to write workflows as state machines.
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
//! A program can rely on these laws. Each law has tests that fail if it is broken. The folder `docs/guarantees/` of
//! the repository states the promises in full, and names the tests that show each of them.
//!
//! 1. **One at a time.** A process is stepped by at most one thread at any moment. Every step sees everything that the
//!    step before it has written.
//! 2. **No lost wake-up.** A process with an event that it waits for is stepped in finite time, without any further
//!    call.
//! 3. **In order, at most once, accounted for.** Messages from one sender to one receiver are stepped in the order in
//!    which they were sent. If a send succeeds, the message is stepped exactly once, or is reported as a dead letter
//!    with its reason. Whenever no step runs and no message is being sent, accepted = stepped + dead letters + still
//!    queued.
//! 4. **A failed step has no effects.** Yields are data. The runtime performs them in order, after the step has
//!    returned `Ok`. If the step returns an error or panics, none of its yields is performed. The messages that it had
//!    taken are dead letters.
//! 5. **A PID names one process, for ever.** It is never given to another process of the same runtime. A message to an
//!    ended process never reaches a later process.
//! 6. **Every question gets exactly one answer.** Each yielded command and each ask is answered once: with a value, or
//!    with an error that says why there is none.
//! 7. **Fair.** No ready process waits for ever while others run.
//! 8. **Control signals come first.** A control signal is, for example, a request to stop, or the end of a monitored
//!    process. Control signals overtake messages. A full mailbox never refuses them.
//! 9. **Ending is orderly and finite.** Every process that was initialised is closed exactly once, however it ended.
//!    There is one exception: see *User code that hangs* below. A shutdown takes a limit. Its report has the number of
//!    processes that were terminated, and names the processes that are stuck.
//! 10. **Panics are contained.** A panic in user code ends at most the process in which it happens, and processes that
//!     are linked to it. No call panics because something is stopped, full or not found. A call that refuses a value
//!     hands the value back in its error.
//! 11. **Nothing grows without bound by itself.** Slots, timers, names, records and buffers are released when their
//!     owners have ended.
//! 12. **Idle costs nothing.** Without work, all threads of the runtime sleep. An idle process costs only memory.
//!
//! **User code that hangs.** The library contains a panic of user code. It cannot stop user code that never returns.
//! For such code, this holds:
//!
//! - A runtime, a pool and a scheduler of tasks shut down on a helper thread. The caller of `shutdown` or `stop` waits
//!   for that thread until the limit is over, and then for a grace of 250 ms. For a runtime, the grace begins anew
//!   with each progress, because many processes take time to end. If user code hangs on the helper thread, the report
//!   names the stage. It also names the process or task, if that is known. The rest of that stage may not be done. So
//!   some processes may not be closed. They have the exit `Terminated`, and their `join` returns.
//! - The drop of the last handle shuts down with a limit of zero. The drop waits for the grace. In a step or a job it
//!   does not wait.
//! - A call without a limit waits for processes and jobs until they have ended. It waits for wakers and destructors
//!   only until the grace is over.
//! - A [`tasklet::Loop`] and a shutdown tree have no helper thread. The calling thread runs the user code. If the code
//!   hangs, it blocks that thread.
//! - A [`Watchdog`](config::Watchdog) reports user code that hangs on a worker.
//!
//! # The guide
//!
#![cfg_attr(doc, doc = "The [guide] has a page for each part, with whole programs.")]
//!
//! # The parts
//!
//! - A **job** is a closure that runs once, on a thread of a pool. It may block. The module [`pool`] has pools of
//!   threads, with handles, batches, pauses, pacing and bounds.
//! - A **task** is a job with a status. It can be cancelled, and it can time out. One call stops all tasks of a
//!   scheduler. Each task has one outcome, which never changes. See [`task`].
//! - A **tasklet** is work in several steps. Each step runs on the thread that owns a state, or on a pool. See
//!   [`tasklet`].
//! - A **process** is a state machine with a PID and a mailbox. Worker threads step it. Its blocking closures are
//!   jobs. See [`Process`].
//! - An **actor** is a process with a callback for each kind of event. See [`actor`].
//! - A **supervisor** is a process that restarts other processes when they fail. See [`supervisor`].
//!
//! The **shutdown tree** ends all of these in order. See [`shutdown`]. Code that starts background work returns a
//! [`ShutdownNode`]. The program calls [`ShutdownNode::depends_on`] to declare the order in which the nodes end. A
//! [`Runtime`], a pool, a scheduler of tasks and a loop each return their node with `shutdown_node()`.
//!
//! All parts share these items:
//!
//! - [`Exit`] and [`Reason`] say how something ended, and why.
//! - [`CancelToken`] is a request to stop.
//! - [`sync::Latch`] is a value that is set once.
//! - [`sync::Gate`] counts the guards that are held. When it is closed, it gives no more guards.
//! - [`clock`] and [`timer`] have clocks and timers. Tests use a manual clock.
//! - [`Rejected`] is an error that hands the refused value back.
//!
//! # Where things are
//!
//! The crate root and the [`prelude`] have the items that nearly every program uses. The modules have the rest:
//!
//! - [`command`] has the items for commands that the user defines.
//! - [`names`] has names and groups.
//! - [`spawn`] has the items for options of new processes.
//! - [`exit`] has the causes of exits, and the events that report them.
//! - [`feed`] has queues with backpressure, by which async code gives messages to a process.
//! - [`observe`] has observers, statistics and figures. With the feature `console`, a program answers questions about
//!   itself on a socket.
//! - [`config`] has the configuration of a runtime.
//! - [`sync`] has latches and gates.
//!
//! # Testing
//!
//! A process never holds a handle to the runtime. So a test can give it events and check its yields without a runtime.
//! See [`testing`].
//!
//! A whole program can be tested, too: a simulation runs it under many seeds, with its order, its time and its faults
//! chosen, and shrinks a run that fails. See the module `simulation`.
//! The steps of a process in production can be recorded, and stepped again. See [`recording`].

// The model checker does not build the simulation, which alone uses some functions.
#![cfg_attr(loom, allow(dead_code))]
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
mod nesting;
mod random;
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
pub mod recording;
mod runtime;
#[cfg(feature = "durable")]
pub mod durable;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(any(feature = "durable", feature = "cluster"))]
mod coded;
pub mod command;
pub mod config;
pub mod exit;
pub mod feed;
pub mod names;
pub mod observe;
pub mod spawn;
pub mod sync;
pub mod supervisor;
#[cfg(feature = "console")]
pub mod console;
pub mod router;
pub mod actor;
pub mod async_process;
pub mod prelude;
#[cfg(not(loom))]
pub mod simulation;
pub mod testing;
#[cfg(doc)]
pub mod guide;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod idle_tests;

// The shared helpers of the tests name this crate as the integration tests do.
#[cfg(all(test, not(loom)))]
extern crate self as procession;
#[cfg(all(test, not(loom)))]
#[path = "../tests/common/wait.rs"]
mod wait;
#[cfg(all(test, not(loom), feature = "cluster"))]
#[path = "../tests/common/traces.rs"]
mod traces;
#[cfg(all(test, not(loom), feature = "cluster"))]
#[path = "../tests/common/counts.rs"]
mod counts;

pub use self::async_process::async_process;
pub use self::cancel::CancelToken;
pub use self::inside::WaitError;
pub use self::outcome::{BoxError, Exit, ExitError, Reason, Rejected};
pub use self::process::{
    Address, CommandError, Completion, Down, EntryArgs, Event, Events, InitResult, Monitor, Pid, Process, Recipient,
    Reply, SendError, SpawnError, SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};
pub use self::runtime::{
    AskFuture, Handle, ProcessRef, Runtime, SendFuture, ShutdownError, ShutdownReport, WeakRuntime,
};
pub use self::shutdown::ShutdownNode;

/// Compiles and runs the examples of the README.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../README.md")]
struct Readme;
