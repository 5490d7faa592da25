//! The replay of a recording: the same process is stepped again, on one thread, with what it has read.

use std::any::type_name;
use std::fmt;

use super::codec::{Input, Snapshot};
use super::digest::{Buffers, digest_of};
use super::file::{OpenError, Recording};
use super::item::{End, RecordedStep, StepEnd};
use super::machine::{ProcessCodec, end_of, end_of_start, failed, take_entry};
use super::recorder::Recorder;
use super::script::{Differs, ReplayHost, ReplaySource, ReplayedReplies, Script};
use super::value::Values;
use crate::clock::Clock;
use crate::outcome::drop_contained;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::Process;
use crate::process::event::Tap;
use crate::random::Draws;
use crate::sched::body::{Body, Head, Machine as _, StepOutput};
use crate::sched::machine::Typed;

/// Why a recording is not replayed, or no further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The recording is of another version of the program.
    #[error("the recording is of version {recorded:?}, and this is version {present:?}: see `Recorder::renamed`")]
    OtherVersion {
        /// The version of the recorded program.
        recorded: String,
        /// The version of the recorder.
        present: String,
    },
    /// The recording is of a process of another type, or the process takes messages of another type.
    #[error("the recording is of type {recorded}, and was to be replayed as {present}: see `Recorder::renamed`")]
    OtherType {
        /// The recorded type.
        recorded: String,
        /// The type that was given.
        present: String,
    },
    /// The recorder does not record processes of this type.
    #[error("the recorder has no codec for {process}: see `Recorder::process`")]
    NotRegistered {
        /// The type of the process.
        process: &'static str,
    },
    /// The recording has no steps.
    #[error("the recording has no whole step")]
    Empty,
    /// The oldest steps were dropped, and there is no snapshot.
    #[error("the recording is whole from step {first} on only, and has no snapshot: a larger ring keeps more steps")]
    NotWhole {
        /// The number of the first step that is left.
        first: u64,
    },
    /// The recording begins with a snapshot, and was to be replayed from the start, or the other way round.
    #[error("the recording begins with {found}, and was to be replayed from {asked}")]
    OtherBeginning {
        /// The beginning of the recording.
        found: &'static str,
        /// The beginning that the caller asked for.
        asked: &'static str,
    },
    /// Something in the recording cannot be decoded.
    #[error("step {step} cannot be replayed: {why}")]
    Malformed {
        /// The step.
        step: u64,
        /// The part that cannot be decoded, and why.
        why: String,
    },
    /// The step reads or does something else than the recorded one.
    #[error("step {step} differs: in the recording {recorded}, and now {came}")]
    Differs {
        /// The first step that differs.
        step: u64,
        /// The recorded part of the difference.
        recorded: String,
        /// The part that has come instead.
        came: String,
    },
}

impl ReplayError {
    fn malformed(step: u64, why: impl fmt::Display) -> ReplayError {
        ReplayError::Malformed { step, why: why.to_string() }
    }

    fn of_file(error: &OpenError) -> ReplayError {
        ReplayError::malformed(0, error)
    }
}

/// A step that has come to the same as the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayedStep {
    /// The number of the step. The start of the process is step 0.
    pub number: u64,
    /// The things that it has read, in a few words each.
    pub read: Vec<&'static str>,
    /// The end of the step. If the recorded step was stuck, this is its end now.
    pub end: StepEnd,
    /// Whether the recorded step had not returned when the recording was saved. Then nothing was compared at its end.
    pub was_unfinished: bool,
}

impl fmt::Display for ReplayedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = if self.read.is_empty() { "nothing" } else { &self.read.join(", ") };
        write!(f, "step {}: {read}; {}", self.number, self.end)
    }
}

/// Steps a recorded process again.
pub struct Replay<P: Process> {
    recording: Recording,
    codec: Arc<ProcessCodec<P>>,
    values: Values,
    body: Box<Body<Typed<P>>>,
    out: StepOutput,
    script: Arc<Mutex<Script>>,
    /// The byte at which the search for the next step begins.
    at: usize,
    next: u64,
    over: Option<ReplayError>,
}

impl Recording {
    /// Replays the recording from the start of the process. `process` makes it as the recorded program did.
    ///
    /// # Errors
    /// The recorder has another version, or does not know the type. The recording is of another type, is not whole, or
    /// begins with a snapshot.
    pub fn replay<P: Process>(
        self,
        recorder: &Recorder,
        process: impl FnOnce() -> P,
    ) -> Result<Replay<P>, ReplayError> {
        self.check::<P>(recorder)?;
        if self.begins_with_snapshot() {
            return Err(ReplayError::OtherBeginning { found: "a snapshot", asked: "the start of the process" });
        }
        match self.first_step().map_err(|error| ReplayError::of_file(&error))? {
            None => return Err(ReplayError::Empty),
            Some(0) => {}
            Some(first) => return Err(ReplayError::NotWhole { first }),
        }
        let rename = |name: &str| recorder.setup.renamed(name);
        let entry = match &self.about.entry {
            None => None,
            Some(bytes) => {
                let entry = take_entry(bytes, &recorder.setup.values, rename);
                Some(entry.map_err(|error| ReplayError::malformed(0, error))?)
            }
        };
        Replay::new(self, recorder, Typed::alone(process(), entry), 0)
    }

    /// Replays the recording from its snapshot.
    ///
    /// # Errors
    /// As [`replay`](Self::replay). The recording begins with the start of the process, or the snapshot cannot be
    /// restored.
    pub fn replay_snapshot<P: Snapshot>(self, recorder: &Recorder) -> Result<Replay<P>, ReplayError> {
        self.check::<P>(recorder)?;
        let (next, state) = match self.snapshot() {
            Some(snapshot) => snapshot.map_err(|error| ReplayError::of_file(&error))?,
            None => {
                let found = "the start of the process, or not at all";
                return Err(ReplayError::OtherBeginning { found, asked: "a snapshot" });
            }
        };
        let restored = crate::outcome::contain(|| P::restore(&mut Input::new(state)));
        let restored = restored.map_err(|panic| ReplayError::malformed(next, panic))?;
        let process = restored.map_err(|error| ReplayError::malformed(next, error))?;
        Replay::new(self, recorder, Typed::alone(process, None), next)
    }

    fn check<P: Process>(&self, recorder: &Recorder) -> Result<(), ReplayError> {
        let setup = &recorder.setup;
        if setup.renamed(self.version()) != setup.version {
            let (recorded, present) = (self.version().to_owned(), setup.version.clone());
            return Err(ReplayError::OtherVersion { recorded, present });
        }
        let types = [(self.process_type(), type_name::<P>()), (self.message_type(), type_name::<P::Message>())];
        for (recorded, present) in types {
            if setup.renamed(recorded) != present {
                let (recorded, present) = (recorded.to_owned(), present.to_owned());
                return Err(ReplayError::OtherType { recorded, present });
            }
        }
        Ok(())
    }
}

impl<P: Process> Replay<P> {
    fn new(recording: Recording, recorder: &Recorder, machine: Typed<P>, next: u64) -> Result<Replay<P>, ReplayError> {
        let codec = recorder.codec_of::<P>().ok_or(ReplayError::NotRegistered { process: type_name::<P>() })?;
        let (script, values, pid) = (Arc::default(), recorder.setup.values.clone(), recording.pid());
        let clock = Clock::default();
        let host = ReplayHost { script: Arc::clone(&script), pid, seed: recording.about.seed, clock };
        let setup = recorder.setup.clone();
        let source = ReplaySource {
            script: script.clone(),
            codec: codec.message.clone(),
            values: values.clone(),
            rename: Arc::new(move |name: &str| setup.renamed(name)),
        };
        let mut body = Box::new(Body { head: Head::new(pid), machine });
        body.machine.tap(|| Tap::Replay(Box::new(source)));
        let out = StepOutput::new(Arc::new(host));
        Ok(Replay { recording, codec, values, body, out, script, at: 0, next, over: None })
    }

    /// The recording.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The process, as it is after the last step.
    pub fn process(&self) -> Option<&P> {
        self.body.machine.process()
    }

    /// Steps the process once. `None`: the recording is over.
    ///
    /// A breakpoint in the process's `step` shows the state of each step. If the last step was stuck when the recording
    /// was saved, it may be stuck here, too.
    ///
    /// # Errors
    /// The step differs from the recorded one, or cannot be decoded. Then the replay is over: further calls return the
    /// same error, because what the process does from then on was never recorded.
    pub fn step(&mut self) -> Result<Option<ReplayedStep>, ReplayError> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        let step = self.try_step();
        if let Err(error) = &step {
            self.over = Some(error.clone());
        }
        step
    }

    /// Steps the process to the end of the recording. Returns the last step.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(&mut self) -> Result<Option<ReplayedStep>, ReplayError> {
        let mut last = None;
        while let Some(step) = self.step()? {
            last = Some(step);
        }
        Ok(last)
    }

    fn try_step(&mut self) -> Result<Option<ReplayedStep>, ReplayError> {
        let Some(recorded) = self.recording.step_from(&mut self.at) else { return Ok(None) };
        let number = self.next;
        let RecordedStep { before, items, end } = recorded.map_err(|error| ReplayError::malformed(number, error))?;
        if before.number != number {
            return Err(ReplayError::malformed(number, format!("step {} is in its place", before.number)));
        }
        self.next += 1;
        let read = items.iter().map(|item| item.kind()).collect();
        *lock(&self.script) = Script { items: items.into(), waits: before.waits, ..Script::default() };
        let head = &mut self.body.head;
        head.tags = before.tags;
        self.out.draws = Draws::of(head.pid, before.draws);
        self.out.stock = end.iter().flat_map(|end| end.spawned.iter().rev().copied()).collect();
        self.out.monitors = end.as_ref().map_or(0..0, |end| end.monitors.clone());
        let replayed = ReplayedReplies::new(end.as_ref().map(|end| end.replies.clone()).unwrap_or_default());
        let came = self.run_step(number);
        let replies = replayed.end();
        let yields = if matches!(came, StepEnd::Failed(_) | StepEnd::Panicked(_)) {
            0
        } else {
            digest_of(&self.out, &self.codec.codec_of_sent(&self.values), &self.values, &mut Buffers::default())
        };
        self.out.clear();
        drop_contained(self.out.failure.take());
        drop_contained(self.out.successor.take());
        let mut script = std::mem::take(&mut *lock(&self.script));
        if end.is_some() && !script.items.is_empty() {
            script.differ("it reads nothing more");
        }
        if let Some(why) = script.malformed {
            return Err(ReplayError::malformed(number, why));
        }
        let differs = script.differs.or_else(|| difference(end.as_ref()?, &came, yields, replies));
        match differs {
            Some(Differs { recorded, came }) => Err(ReplayError::Differs { step: number, recorded, came }),
            None => Ok(Some(ReplayedStep { number, read, end: came, was_unfinished: end.is_none() })),
        }
    }

    fn run_step(&mut self, number: u64) -> StepEnd {
        let Body { head, machine } = &mut *self.body;
        if number > 0 {
            let stepped = machine.step(head, &mut self.out, u32::MAX, None);
            return end_of(stepped.verdict, &self.out);
        }
        match machine.enter() {
            Ok(()) => {
                machine.start(head, &mut self.out);
                end_of_start(&self.out)
            }
            Err(exit) => failed(Some(&exit)),
        }
    }
}

/// The first difference between the recorded end of a step and what it has come to.
fn difference(end: &End, came: &StepEnd, yields: u64, (unsent, unrecorded): (usize, usize)) -> Option<Differs> {
    let differs = |recorded: String, came: String| Some(Differs { recorded, came });
    if end.end != *came {
        return differs(format!("it comes to {:?}", end.end.to_string()), format!("to {:?}", came.to_string()));
    }
    if unsent + unrecorded > 0 {
        let recorded = format!("it sends {} replies itself", end.replies.len());
        return differs(recorded, format!("it sends {}", end.replies.len() - unsent + unrecorded));
    }
    if end.yields != yields {
        let hint =
            "the program has changed, or it reads the order of a `HashMap`, the real clock, or a number of its own";
        return differs(format!("its yields have the digest {:016x}", end.yields), format!("{yields:016x}: {hint}"));
    }
    None
}

impl<P: Process> fmt::Debug for Replay<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("recording", &self.recording).field("next", &self.next).finish()
    }
}
