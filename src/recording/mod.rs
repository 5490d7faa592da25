//! Recordings of processes, and their replay.
//!
//! A process that is recorded writes down all that its steps read. If it fails, the newest steps are saved to a file.
//! The file is replayed on one thread: the same state machine is stepped again, with what it has read, under a debugger
//! or in a test. A folder of recordings shows whether changed code still does the same.
//!
//! ```
//! use procession::recording::{Recorder, Recording};
//! use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};
//!
//! /// Adds numbers up, and fails when the sum is too large.
//! struct Sum { total: u64 }
//!
//! impl Process for Sum {
//!     type Message = u64;
//!     type Output = u64;
//!
//!     fn step(&mut self, events: &mut Events<u64>, _: &mut StepOutput) -> StepResult<u64> {
//!         for event in events {
//!             if let Event::Message(number) = event {
//!                 self.total = self.total.checked_add(number).ok_or("the sum is too large")?;
//!             }
//!         }
//!         Ok(Step::Idle)
//!     }
//! }
//!
//! fn recorder(folder: &std::path::Path) -> Recorder {
//!     Recorder::new(folder).version("sums 1").process::<Sum>()
//! }
//!
//! # let folder = std::env::temp_dir().join(format!("procession-recordings-{}", std::process::id()));
//! let runtime = Runtime::builder().workers(1).recorder(recorder(&folder)).start()?;
//! let sum = runtime.spawn(Sum { total: 0 })?;
//! runtime.send(sum.address(), u64::MAX)?;
//! runtime.send(sum.address(), 1)?;
//! assert!(!sum.join()?.is_done());
//!
//! for file in std::fs::read_dir(&folder)? {
//!     let mut replay = Recording::open(file?.path())?.replay(&recorder(&folder), || Sum { total: 0 })?;
//!     while let Some(step) = replay.step()? {
//!         println!("{step}: {}", replay.process().map_or(0, |sum| sum.total));
//!     }
//! }
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Recorded
//!
//! - The events, in the order in which they were taken, with their senders. Messages that a
//!   [`select`](crate::Events::select) was shown and passed over. That there was no further event.
//! - The answers to commands, of types with a codec: see [`Recorder::answer`].
//! - The readings of [`StepOutput`](crate::StepOutput): time, wall-clock time, names, groups, and whether the runtime
//!   shuts down. The seed and the position of the random numbers. The PIDs and the numbers of monitors that it was
//!   given. The results of [`Reply::send`](crate::Reply::send).
//! - The end of each step, and a digest of its yields.
//!
//! A step must read nothing else: not the real clock, not the order of a `HashMap`, not a file. Otherwise its replay
//! may differ, and says so. State that is shared with other threads is not recorded, either.
//!
//! A recording is that of one state machine. If it is replaced, by an upgrade or a recovery, the recording ends, and
//! that of its successor begins. Processes of async functions are not recorded: their events are taken by futures.
//!
//! # Bounds
//!
//! Each process keeps its newest steps in a ring of bytes in memory: see [`Recorder::ring`] and [`Recorder::total`].
//! Nothing is written to a disk until a recording is saved. Then the thread that saves writes it: the worker of a step
//! that has failed, the watchdog's thread, or the caller. With a [`Snapshot`] a ring always begins with a state of the
//! process, and can be replayed from there. Without one, a recording can be replayed only if it has all steps.
//!
//! # The file
//!
//! `src/recording/file.rs` has the format. Each frame has a check sum, so every changed byte is found. A file that was
//! cut off gives its whole steps. A reader skips frames of a kind that it does not know, and refuses another
//! [format](FORMAT), another version of the program, and another type, unless it [was renamed](Recorder::renamed).

// How it works. A process that is recorded has another machine (`machine.rs`) than the others, which have no branch for
// it. Its tap lies in the box of passed-over messages and sees each event before the step does; a host between the step
// and the runtime sees each question (`tap.rs`). Both append items (`item.rs`) to the step in hand, and the ring takes
// the step when it has returned (`log.rs`, `ring.rs`).
//
// A replay (`replay.rs`) has no mailbox and no runtime. A second kind of tap says which event comes next, and a second
// kind of host answers (`script.rs`). So the order of events needs no second implementation: it is that of the file.
// The yields are compared and dropped.

mod silent_host;
mod codec;
mod errors;
mod value;
mod item;
mod digest;
mod words;
mod ring;
mod log;
mod file;
mod recordings;
mod tap;
mod machine;
mod recorder;
mod script;
mod replay;

pub use self::codec::{Codec, DecodeError, Input, Recordable, Snapshot};
pub use self::file::{FORMAT, OpenError, Recording, SaveCause};
pub use self::item::StepEnd;
pub use self::recorder::{DEFAULT_MOST_FILES, DEFAULT_RING, DEFAULT_TOTAL, Recorder};
pub use self::recordings::{SaveError, SaveReport};
pub use self::replay::{Replay, ReplayError, ReplayedStep};

pub(crate) use self::recorder::RuntimeRecorder;
