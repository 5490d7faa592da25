//! A machine that records its steps.
//!
//! A process that is recorded has a machine of this type in the place of a `Typed`. So the others have the same code as
//! without a recorder.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use super::codec::{Codec, Input, put_list};
use super::digest::{Buffers, digest_of, spawned_by};
use super::file::SaveCause;
use super::item::{End, StepEnd, end_kinds};
use super::log::{Log, RecordedProcess, Writer};
use super::recordings::Recordings;
use super::tap::{RecordHost, RecordTap, note_reply, set_writer};
use super::value::Values;
use crate::outcome::{Exit, contain, drop_contained, tell_log};
use crate::primitives::{Arc, AtomicUsize, Weak};
use crate::process::entry::EntryPoint;
use crate::process::event::Tap;
use crate::process::host::Host;
use crate::process::reply::{OnReplySent, on_reply_sent};
use crate::process::step_activity::Sight;
use crate::process::{Pid, Process};
use crate::sched::body::{Begun, Body, Head, Kind, LastWord, Machine, Ready, StepOutput, Stepped, Successor, Verdict};
use crate::sched::feeds::{AnyFeeds, AnyNewFeed, FeedHost};
use crate::sched::machine::Typed;
use crate::sched::mailbox::{AnyMailbox, Signals};

/// How processes of one type are recorded.
pub(super) struct ProcessCodec<P: Process> {
    pub(super) message: Codec<P::Message>,
    pub(super) snapshot: Option<fn(&P, &mut Vec<u8>)>,
}

impl<P: Process> ProcessCodec<P> {
    /// The codec of sent messages of the same type. It is the codec that was registered last for the type, as for every
    /// sent message. It may differ from the codec of the process.
    pub(super) fn codec_of_sent(&self, values: &Values) -> Codec<P::Message> {
        values.codec_of().unwrap_or(&self.message).clone()
    }
}

/// A type of process that is recorded, with the type erased.
pub(super) trait RecordedType: Any + Send + Sync {
    /// Replaces the machine of the body by one that records.
    fn record(&self, body: &mut Ready, entry: Option<Vec<u8>>, recordings: &Arc<Recordings>);

    /// Encodes the entry of a process that has not begun. It is empty if that is impossible.
    fn entry_of(&self, body: &Body, values: &Values) -> Option<Vec<u8>>;
}

/// As `RecordedType`, with the type.
pub(super) struct TypeRecorder<P: Process>(pub(super) Arc<ProcessCodec<P>>);

impl<P: Process> RecordedType for TypeRecorder<P> {
    fn record(&self, body: &mut Ready, entry: Option<Vec<u8>>, recordings: &Arc<Recordings>) {
        let (pid, name) = (body.head.pid, body.head.name().cloned());
        let entry = entry.or_else(|| self.entry_of(body, &recordings.setup.values));
        let Some(typed) = (&mut body.machine as &mut dyn Any).downcast_mut::<Typed<P>>() else { return };
        let setup = &recordings.setup;
        let is_missing = entry.as_ref().is_some_and(Vec::is_empty);
        let (process, message) = (std::any::type_name::<P>(), std::any::type_name::<P::Message>());
        let process = RecordedProcess { pid, process, message, name, entry };
        let writer = Writer::new(process, &recordings.live, setup.ring, self.0.snapshot.is_some());
        if is_missing {
            writer.log().entry_is_missing();
        }
        let recorded = Recorded {
            log: writer.log().clone(),
            writer: Some(Box::new(writer)),
            recordings: recordings.clone(),
            codec: self.0.clone(),
            sent: self.0.codec_of_sent(&recordings.values),
            values: recordings.values.clone(),
            host: None,
            sight: Sight::of_nobody(),
            buffers: Buffers::default(),
            is_saved: false,
        };
        let machine = RecordedMachine { typed: typed.take_all(), recorded: Some(Box::new(recorded)) };
        let head = std::mem::replace(&mut body.head, Head::new(pid));
        let old = std::mem::replace(body, Box::new(Body { head, machine }));
        drop_contained(old);
    }

    fn entry_of(&self, body: &Body, values: &Values) -> Option<Vec<u8>> {
        let entry = (&body.machine as &dyn Any).downcast_ref::<Typed<P>>()?.entry()?;
        let (input, _) = entry.input();
        let (mut bytes, mut value) = (Vec::new(), Vec::new());
        if values.put_named(input, &mut value) {
            put_list(entry.method.as_bytes(), &mut bytes);
            put_list(&value, &mut bytes);
        }
        Some(bytes)
    }
}

/// Decodes an entry. `rename` returns the present name of a type.
pub(super) fn take_entry(
    bytes: &[u8],
    values: &Values,
    rename: impl Fn(&str) -> String,
) -> Result<Box<EntryPoint>, crate::outcome::BoxError> {
    let mut input = Input::new(bytes);
    let method = input.take::<String>()?;
    let mut value = Input::new(input.take_list()?);
    let name = value.take_str()?;
    let (value, type_name) = values.get_named(name, value.rest(), rename)?;
    Ok(Box::new(EntryPoint::boxed(method, value, type_name)))
}

/// A machine that records its steps.
struct RecordedMachine<P: Process> {
    typed: Typed<P>,
    /// Present until the process has ended.
    recorded: Option<Box<Recorded<P>>>,
}

struct Recorded<P: Process> {
    log: Arc<Log>,
    /// Absent while a step runs.
    writer: Option<Box<Writer>>,
    recordings: Arc<Recordings>,
    codec: Arc<ProcessCodec<P>>,
    /// The codec of messages of the same type that the process sends.
    sent: Codec<P::Message>,
    values: Arc<Values>,
    /// Stands between the steps and the runtime. Made with the first step.
    host: Option<Arc<dyn Host>>,
    /// Given to steps that no watchdog looks at. A step with a sight tells the tap of its events.
    sight: Sight,
    buffers: Buffers,
    /// Whether the recording was saved because of a failure.
    is_saved: bool,
}

/// The text of a failure, or of a panic.
pub(super) fn failed(exit: Option<&Exit>) -> StepEnd {
    match exit {
        Some(Exit::Panicked(panic)) => StepEnd::Panicked(panic.message().to_owned()),
        // The error may be of a user's type.
        Some(Exit::Failed(failure)) => {
            StepEnd::Failed(contain(|| failure.to_string()).unwrap_or_else(|_| String::from("(no text)")))
        }
        Some(exit) => StepEnd::Failed(exit.to_string()),
        None => StepEnd::Failed(String::new()),
    }
}

/// The number of the end of a step with this verdict. `None` if it has failed.
#[inline]
fn kind_of(verdict: Verdict) -> Option<u8> {
    Some(match verdict {
        Verdict::Continue => end_kinds::CONTINUE,
        // Whether events were left depends on what has arrived, and not on the step.
        Verdict::Idle | Verdict::Declined => end_kinds::IDLE,
        Verdict::Wait => end_kinds::WAIT,
        Verdict::Blocking => end_kinds::BLOCKING,
        Verdict::Done => end_kinds::DONE,
        Verdict::Upgrade => end_kinds::UPGRADE,
        Verdict::Broken => return None,
    })
}

/// The number of the end of a `start`. `None` if it has failed.
#[inline]
fn kind_of_start(out: &StepOutput) -> Option<u8> {
    out.failure.is_none().then_some(end_kinds::STARTED)
}

fn end_of_kind(kind: Option<u8>, out: &StepOutput) -> StepEnd {
    kind.and_then(StepEnd::without_text).unwrap_or_else(|| failed(out.failure.as_ref()))
}

/// The end of a step with this verdict.
pub(super) fn end_of(verdict: Verdict, out: &StepOutput) -> StepEnd {
    end_of_kind(kind_of(verdict), out)
}

/// The end of a `start`.
pub(super) fn end_of_start(out: &StepOutput) -> StepEnd {
    end_of_kind(kind_of_start(out), out)
}

/// The values that a recorded step replaces. The destructor puts them back when the step ends or unwinds.
struct Replaced<'a> {
    /// The writer of the step, at its end.
    writer: &'a mut Option<Box<Writer>>,
    outer: Option<Box<Writer>>,
    on_reply_sent: Option<OnReplySent>,
    out: &'a mut StepOutput,
    /// The host of the runtime, while the step has this one.
    host: &'a mut Arc<dyn Host>,
}

impl<'a> Replaced<'a> {
    #[inline]
    fn by(writer: &'a mut Option<Box<Writer>>, out: &'a mut StepOutput, host: &'a mut Arc<dyn Host>) -> Replaced<'a> {
        std::mem::swap(&mut out.reads, host);
        let on_reply_sent = on_reply_sent(Some(note_reply));
        let outer = set_writer(writer.take());
        Replaced { writer, outer, on_reply_sent, out, host }
    }
}

impl Drop for Replaced<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.writer = set_writer(self.outer.take());
        on_reply_sent(self.on_reply_sent);
        std::mem::swap(&mut self.out.reads, self.host);
    }
}

impl<P: Process> Recorded<P> {
    /// Records a step, or the start. `kind` returns the number of its end, unless it has failed.
    #[inline]
    fn step<R>(
        &mut self,
        typed: &mut Typed<P>,
        (head, out): (&mut Head, &mut StepOutput),
        run: impl FnOnce(&mut Typed<P>, &mut Head, &mut StepOutput, &Sight) -> R,
        kind: impl FnOnce(&R, &StepOutput) -> Option<u8>,
    ) -> R {
        let Some(mut writer) = self.writer.take() else { return run(typed, head, out, &self.sight) };
        let host = self.host.get_or_insert_with(|| {
            writer.log().set_seed(out.reads.seed());
            Arc::new(RecordHost { host: out.reads.clone() })
        });
        typed.tap(|| {
            Tap::Record(Box::new(RecordTap { codec: self.codec.message.clone(), values: self.values.clone() }))
        });
        writer.begin(head.tags, head.rare.as_ref().map_or(0, |rare| rare.draws), head.waits);
        let monitors = out.monitors.clone();
        // If the runtime panics, this drops the writer.
        let mut writer = Some(writer);
        let result = {
            let replaced = Replaced::by(&mut writer, out, host);
            run(typed, head, replaced.out, &self.sight)
        };
        // There is none if a call panicked while it wrote.
        let Some(mut writer) = writer else { return result };
        let has_monitors = monitors != out.monitors;
        match kind(&result, out) {
            Some(kind) if !has_monitors && writer.replies.is_empty() && out.yields.is_empty() => {
                let yields = digest_of(out, &self.sent, &self.values, &mut self.buffers);
                if writer.end_plainly(kind, yields) {
                    self.snapshot_after(kind, &mut writer, typed);
                }
            }
            kind => self.end(kind, if has_monitors { monitors } else { 0..0 }, &mut writer, (typed, out)),
        }
        self.writer = Some(writer);
        result
    }

    /// Ends a step that is not of the usual kind. `kind` is the number of its end, unless it has failed.
    #[cold]
    #[inline(never)]
    fn end(
        &mut self,
        kind: Option<u8>,
        monitors: Range<u64>,
        writer: &mut Writer,
        (typed, out): (&Typed<P>, &StepOutput),
    ) {
        let yields = kind.map_or(0, |_| digest_of(out, &self.sent, &self.values, &mut self.buffers));
        let (end, replies) = (end_of_kind(kind, out), std::mem::take(&mut writer.replies));
        let cause = if matches!(end, StepEnd::Panicked(_)) { SaveCause::Panicked } else { SaveCause::Failed };
        let wants_snapshot = writer.end(&End { end, yields, spawned: spawned_by(out), monitors, replies });
        match kind {
            Some(kind) if wants_snapshot => self.snapshot_after(kind, writer, typed),
            Some(_) => {}
            None => {
                self.is_saved = true;
                drop(self.recordings.save(&self.log, cause));
            }
        }
    }

    /// Records the state, unless the step was the last one.
    #[cold]
    fn snapshot_after(&self, kind: u8, writer: &mut Writer, typed: &Typed<P>) {
        if matches!(kind, end_kinds::DONE | end_kinds::UPGRADE) {
            return;
        }
        let (Some(snapshot), Some(process)) = (self.codec.snapshot, typed.process()) else { return };
        let mut state = Vec::new();
        match contain(|| snapshot(process, &mut state)) {
            Ok(()) => writer.snapshot(&state),
            Err(panic) => {
                let RecordedProcess { pid, process, .. } = self.log.process;
                tell_log(|| tracing::error!(%pid, process, %panic, "`snapshot` panicked"));
            }
        }
    }

    fn save_end(&mut self, exit: &Exit) {
        let is_failed = matches!(exit, Exit::Failed(_) | Exit::Panicked(_));
        let cause = match exit {
            Exit::Panicked(_) => SaveCause::Panicked,
            Exit::Failed(_) => SaveCause::Failed,
            Exit::Done(()) | Exit::Terminated(_) => SaveCause::Ended,
        };
        if !self.is_saved && (is_failed || self.recordings.setup.saves_at_end) {
            drop(self.recordings.save(&self.log, cause));
        }
    }
}

impl<P: Process> Machine for RecordedMachine<P> {
    fn kind(&self) -> &'static Kind {
        self.typed.kind()
    }

    fn mailbox(&mut self) -> &mut dyn AnyMailbox {
        self.typed.mailbox()
    }

    fn signals(&mut self) -> &mut Option<Box<Signals>> {
        self.typed.signals()
    }

    fn enter(&mut self) -> Result<(), Exit> {
        let entered = self.typed.enter();
        if let (Err(exit), Some(recorded)) = (&entered, &mut self.recorded)
            && let Some(writer) = &mut recorded.writer
        {
            writer.begin(0, 0, false);
            let end = failed(Some(exit));
            writer.end(&End { end, yields: 0, spawned: Vec::new(), monitors: 0..0, replies: Vec::new() });
        }
        entered
    }

    /// Calls `init` alone. The turn calls `start` then.
    fn begin(&mut self, _: &mut Head, out: &mut StepOutput, _: &AtomicUsize) -> Begun {
        match self.enter() {
            Ok(()) => Begun::Entered,
            Err(exit) => {
                out.failure = Some(exit);
                Begun::NotEntered
            }
        }
    }

    fn start(&mut self, head: &mut Head, out: &mut StepOutput) -> Begun {
        let Some(recorded) = &mut self.recorded else { return self.typed.start(head, out) };
        let run = |typed: &mut Typed<P>, head: &mut Head, out: &mut StepOutput, _: &_| typed.start(head, out);
        recorded.step(&mut self.typed, (head, out), run, |_, out| kind_of_start(out))
    }

    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped {
        let Some(recorded) = &mut self.recorded else { return self.typed.step(head, out, budget, sight) };
        let run = |typed: &mut Typed<P>, head: &mut Head, out: &mut StepOutput, own: &_| {
            typed.step(head, out, budget, sight.or(Some(own)))
        };
        recorded.step(&mut self.typed, (head, out), run, |stepped, _| kind_of(stepped.verdict))
    }

    fn release(&mut self, out: &mut StepOutput) -> bool {
        self.typed.release(out)
    }

    fn is_due(&self) -> bool {
        self.typed.is_due()
    }

    fn passes_hold(&self) -> bool {
        self.typed.passes_hold()
    }

    fn keep_stored(&mut self, inbox: &mut dyn AnyMailbox) {
        self.typed.keep_stored(inbox);
    }

    fn keeps_unseen(&self) -> bool {
        self.typed.keeps_unseen()
    }

    fn held(&self) -> usize {
        self.typed.held()
    }

    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>> {
        self.typed.push_out(most)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Box<Successor>> {
        self.typed.recover(exit)
    }

    fn close(&mut self) {
        self.typed.close();
    }

    fn take_output(&mut self) -> Option<Box<dyn Any + Send>> {
        self.typed.take_output()
    }

    fn last_word(&mut self, exit: &Exit) -> Option<LastWord> {
        self.recorded.iter_mut().for_each(|recorded| recorded.save_end(exit));
        self.typed.last_word(exit)
    }

    fn left(&mut self) -> &mut dyn AnyMailbox {
        self.typed.left()
    }

    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox> {
        self.typed.take_mailbox()
    }

    fn clear(&mut self) {
        self.recorded = None;
        self.typed.clear();
    }

    fn attach(&mut self, feed: Box<dyn AnyNewFeed>, host: Weak<dyn FeedHost>) {
        self.typed.attach(feed, host);
    }

    fn feeds(&mut self) -> Option<&mut dyn AnyFeeds> {
        self.typed.feeds()
    }

    fn take_feeds(&mut self) -> Option<Box<dyn AnyFeeds>> {
        self.typed.take_feeds()
    }

    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>> {
        self.typed.take_exit()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.typed.describe(f)
    }

    fn process(&self) -> Option<&dyn Any> {
        Machine::process(&self.typed)
    }

    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        self.typed.show_messages(show);
    }
}

/// Saves the recording of a living process.
pub(super) fn save_of(
    recordings: &Recordings,
    pid: Pid,
    cause: SaveCause,
) -> Result<Option<std::path::PathBuf>, super::recordings::SaveError> {
    let log = recordings.live.of(pid).ok_or(super::recordings::SaveError::NotRecorded(pid))?;
    recordings.save(&log, cause)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use super::super::recordings::{Setup, Sink};
    use super::super::silent_host::SilentHost;
    use super::*;
    use crate::process::{Events, Step, StepResult};

    struct Idle;

    impl Process for Idle {
        type Message = u64;
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    #[test]
    fn a_panic_of_the_runtime_in_a_step_leaves_nothing_on_the_thread() {
        let recordings = Arc::new(Recordings::new(Setup {
            sink: Sink::Call(Arc::new(drop)),
            version: String::new(),
            ring: 1_000,
            total: 1_000,
            most_files: 1,
            saves_at_end: false,
            values: Values::default(),
            renames: HashMap::new(),
            on_save: None,
        }));
        let mut body: Ready = Box::new(Body { head: Head::new(Pid::FIRST), machine: Typed::alone(Idle, None) });
        let codec = ProcessCodec::<Idle> { message: Codec::of(), snapshot: None };
        TypeRecorder(Arc::new(codec)).record(&mut body, None, &recordings);
        let Body { head, machine } = &mut *body;
        let machine = (machine as &mut dyn Any).downcast_mut::<RecordedMachine<Idle>>().unwrap();
        let recorded = machine.recorded.as_mut().unwrap();
        let host: Arc<dyn Host> = Arc::new(SilentHost::default());
        let mut out = StepOutput::new(host.clone());
        // The call of a step around this one.
        on_reply_sent(Some(|sent| !sent));
        let run = |_: &mut Typed<Idle>, _: &mut Head, out: &mut StepOutput, _: &Sight| {
            assert!(!Arc::ptr_eq(&out.reads, &host) && on_reply_sent(Some(note_reply)).unwrap()(true));
            panic!("as a bug of the runtime would");
        };
        let stepped = contain(|| recorded.step(&mut machine.typed, (head, &mut out), run, |(), _| None));
        assert!(stepped.is_err());
        assert!(set_writer(None).is_none() && recorded.writer.is_none(), "it is no longer recorded");
        assert!(!on_reply_sent(None).unwrap()(true), "it is that of the step around");
        assert!(Arc::ptr_eq(&out.reads, &host));
    }
}
