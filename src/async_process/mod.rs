//! Processes that are written as an `async fn`.
//!
//! ```
//! use procession::async_process::{Context, async_process};
//! use procession::{BoxError, Reply, Runtime};
//! use std::time::Duration;
//!
//! enum CounterMessage { Add(u64), Read(Reply<u64>) }
//!
//! async fn counter(context: Context<CounterMessage>) -> Result<u64, BoxError> {
//!     let mut total = 0;
//!     while let Some(message) = context.next().await {          // `None`: asked to stop
//!         match message {
//!             CounterMessage::Add(n) => total += n,
//!             CounterMessage::Read(reply) => context.reply(reply, total),
//!         }
//!     }
//!     Ok(total)
//! }
//!
//! let runtime = Runtime::builder().workers(1).start()?;
//! let counter = runtime.spawn(async_process(counter))?;
//! runtime.send(&counter, CounterMessage::Add(2))?;
//! assert_eq!(runtime.ask(&counter, CounterMessage::Read, Duration::from_secs(10)).wait()?, 2);
//! runtime.cancel(&counter, "closing time")?;
//! assert_eq!(**counter.join()?.output().unwrap(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which kind of process?
//!
//! An async process is the best choice if the code waits in several places, or for futures of other libraries. An
//! [actor](crate::actor) is the best choice for a service whose messages are independent of each other. A
//! [`Process`](crate::Process) is the fastest: a message costs a half to a third. Its state can be looked at and tested
//! as a value.
//!
//! # Steps
//!
//! The code between two waits is one step. If it fails or panics, nothing that it has yielded is done, and the
//! messages that it has taken are dead letters. Everything before the last wait has been done.
//!
//! A wait that is ready at once does not end the step. So one step may take several messages, as many as a step may be
//! given. If one of them fails, the others of its step fail with it. To have each message in a step of its own, set
//! [`SpawnOptions::step_events`](crate::SpawnOptions::step_events) to 1.
//!
//! The code before the first wait is the first step. [`Process::start`](crate::Process::start) does nothing.
//!
//! # Waits
//!
//! The waits of the [`Context`] can be polled together with each other, and with every other future. No executor is
//! needed. A future may use the reactor of an async runtime. If that runtime expects to be entered, see
//! [`RuntimeBuilder::in_context`](crate::config::RuntimeBuilder::in_context).
//!
//! - While the process waits for answers only, it is given no message, as after [`Step::Wait`](crate::Step::Wait).
//!   Cycles of asks are reported in the same way.
//! - A wait that is dropped has taken nothing. A dropped wait for an answer takes its command back.
//! - A process that waits while nothing can wake it fails with
//!   [`WaitedForNothing`](crate::observe::WaitedForNothing): no command is outstanding, it does not receive, and no
//!   other code has its waker.
//! - While other code has its waker, the process has a future outstanding, which listens for wakes. A
//!   [`Driver`](crate::testing::Driver) lists it, and [`Runtime::wait_idle`](crate::Runtime::wait_idle) takes it for a
//!   command at work. Other code has the waker if the process waits for a future of another library, or polls waits of
//!   the context through one that keeps wakers, such as `FuturesUnordered`.
//!
//! # Requests to stop
//!
//! A request to stop ends what the process waits for, once: [`next`](Context::next) returns `None`,
//! [`receive`](Context::receive) the event, and every other wait
//! [`CommandError::Cancelled`](crate::CommandError::Cancelled) with the reason. If the process waits for nothing of
//! its context, or drops such waits before it polls them again, the request ends the next such wait. A new wait that is
//! polled before them ends, too. Later waits are as before, so the process can clean up.
//!
//! Other control signals do not end a wait for an answer. They are kept, in order, for the next `receive`. A request to
//! stop overtakes them. Nothing limits their number, as in a mailbox. So a process that monitors others, traps exits or
//! subscribes to groups should call `receive`.
//!
//! An answer that has come is given before a request to stop. The request then ends the next wait.
//!
//! # Answers
//!
//! Each command that is yielded with [`out`](Context::out) is answered once. An answer that nothing waits for is kept
//! until [`answer`](Context::answer) or `receive` takes it. Nothing limits their number either. So a process that runs
//! for long, and yields commands with `out`, must take their answers. Or it waits for each with
//! [`perform`](Context::perform).
//!
//! # Failures
//!
//! The function is called once for each value of [`AsyncProcess`]. So a process that is to begin anew is made anew:
//! by the closure of a [`ChildSpec`](crate::supervisor::ChildSpec), or by that of
//! [`SpawnOptions::recover_with`](crate::SpawnOptions::recover_with). The locals of the failed function are dropped,
//! and signals that were kept for its next `receive` are lost.
//!
//! A future that holds a value that is not `Send` over a wait does not compile:
//!
//! ```compile_fail,E0277
//! use procession::async_process::{Context, async_process};
//!
//! let process = async_process(async |context: Context<u32>| {
//!     let held = std::rc::Rc::new(1);
//!     context.next().await;
//!     Ok(*held)
//! });
//! ```
//!
//! It compiles if the value is dropped before:
//!
//! ```
//! use procession::async_process::{Context, async_process};
//!
//! let process = async_process(async |context: Context<u32>| {
//!     let one = *std::rc::Rc::new(1);
//!     context.next().await;
//!     Ok(one)
//! });
//! ```

// # The protocol
//
// **The places.** The future is in the state machine, so only the thread that has the body polls it. The process and
// its contexts share the *state*. For a poll, the step moves its events and its output into the state, and moves them
// back after it. The state has the number of the polling thread. So a context finds them only in a poll, on that
// thread.
// No user code runs under the lock of the state: it is collected (`Later`) and runs after it.
//
// **A step** (`process.rs`):
//
// 1. *Arrive.* Control signals are taken out of the events. A request to stop ends the waits. Other signals are kept
//    for `receive`. After a `Wait`, the answers are taken, too, and each is given to its wait.
// 2. The future is polled if something has woken it: a wait of the context, the wake flag, or the first step.
// 3. If it is woken again by now, the step says `Continue`.
// 4. *Leave.* If nobody receives, the signals and the answers that are left are taken as in 1. Otherwise the waits
//    that receive have taken all that they may take.
// 5. The step says `Idle` if somebody receives, and `Wait` if not.
//
// **Wakers.** There are two kinds of wakers:
//
// | the wait | its waker | is woken by |
// |---|---|---|
// | of the context, polled with the waker of the process | none is cloned; the state notes `is_woken` | 1 and 4 |
// | of the context, polled with another waker | that one, in the state | 1 and 4, which call it. It sets the flag |
// | of others | a clone of the waker of the process: an owner of the *wake flag* | any thread |
//
// For the first two, the event itself makes the scheduler step the process, because the step has said what it waits
// for. For the third, the process yields a command as soon as other code is an owner of the wake flag: a future that
// is ready when the wake flag is set (the *listener*). Its answer makes the step. So the race of a wake with a process
// that comes to rest is the one of `sched/resident_waker.rs`.
//
// **The wake flag** has a mark, *set*, and a lock around the waker of the listener.
//
// - *A thread that wakes*: sets the mark, and takes the waker of the listener out. Then it wakes the listener, without
//   the lock. After that it drops its own waker, if it has woken by value.
// - *The listener*, when it is polled: is ready if *set* is set. Otherwise it puts its waker there.
// - *The step*: (2) clears *set*, and polls the future if the mark was there. (3) Looks at *set*. (5a) Counts the
//   owners of the wake flag. (5b) Looks at *set* again. If it is set, the step says `Continue`. (5c) If there are
//   other owners, and there is no listener, yields one. If there are none, and nobody receives, takes the listener
//   back.
//
// **Why no wake is lost.** Let a thread set *set* after (2), so that the poll may not have seen what it wakes for.
//
// - If *set* is set before (5b), the process is stepped again, and polls.
// - Otherwise the thread was an owner at (5a), or it has become one by a clone of another owner. For if it had dropped
//   its waker before, it would have set *set* before, and the count orders the two: the decrement is a release, and
//   a fence follows the count. So there is a listener, or (5c) yields one. Its first poll comes after the step, so it
//   sees *set*. If it was polled before, its waker is there, and the thread wakes it. In both cases its answer makes
//   a step, and (2) sees *set*, because only (2) clears it.
// - A listener is taken back only if there are no other owners, so no wake begins. Its answer makes one more step,
//   which finds nothing outstanding: the process fails with `WaitedForNothing`.

mod wake_flag;
mod state;
mod context;
mod waits;
mod calls;
mod process;
#[cfg(all(test, loom))]
mod models;

pub use self::context::Context;
pub use self::process::{AsyncProcess, async_process};
pub use self::waits::{AnswerFuture, NextFuture, ReceiveFuture, SelectFuture};
