//! A state machine that is traced: it does everything as the one in it, and notes the events of the process.
//!
//! The owner of the body puts it around the machine, and takes it off (`describing.rs`). So other processes pay
//! nothing, and the traced one is as before when its trace is over.

use std::any::Any;
use std::fmt::{self, Display};
use std::mem::replace;

use super::body::{
    Begun, Body, Head, Kind, LastWord, Machine, Ready, StepOutput, Stepped, Successor, TurnNote, Verdict,
};
use super::feeds::{AnyFeeds, AnyNewFeed, FeedHost};
use super::machine::new_body;
use super::mailbox::AnyMailbox;
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Weak};
use crate::process::process_trace::TraceSink;
use crate::process::step_activity::{Sight, StepActivity};
use crate::process::{Events, Process, Step, StepResult};

/// Stands in the place of a body that is moved.
struct Nobody;

impl Process for Nobody {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

struct Traced {
    inner: Ready,
    /// Empty when the machine is taken off, and the trace may go on.
    sink: Option<Arc<TraceSink>>,
    /// Keeps what a step takes.
    sight: Sight,
}

/// A body that is lost to a panic of the runtime takes its trace with it.
impl Drop for Traced {
    fn drop(&mut self) {
        self.sink.iter().for_each(|sink| sink.end());
    }
}

/// Moves the machine and the head out of the body.
fn take_out(body: &mut Ready) -> (Head, Ready) {
    let pid = body.head.pid;
    let head = replace(&mut body.head, Head::new(pid));
    (head, replace(body, new_body(Nobody, pid, None, None)))
}

/// Has the events of the process noted.
pub(super) fn trace(body: &mut Ready, sink: Arc<TraceSink>) {
    let (head, inner) = take_out(body);
    *body = Box::new(Body { head, machine: Traced { inner, sink: Some(sink), sight: Sight::with_log() } });
}

/// Makes the body as it was before it was traced. Returns where its events went.
pub(super) fn untrace(body: &mut Ready) -> Option<Arc<TraceSink>> {
    let traced = traced(body)?;
    let (sink, (_, mut inner)) = (traced.sink.take(), take_out(&mut traced.inner));
    inner.head = take_out(body).0;
    *body = inner;
    sink
}

/// The process has ended.
pub(super) fn note_end(sink: &TraceSink, exit: &Exit) {
    sink.note("ended", exit);
    sink.end();
}

/// Where the events of the process go, if it is traced.
pub(super) fn sink(body: &mut Ready) -> Option<&Arc<TraceSink>> {
    traced(body)?.sink.as_ref()
}

fn traced(body: &mut Ready) -> Option<&mut Traced> {
    (&mut body.machine as &mut dyn Any).downcast_mut()
}

impl Traced {
    fn note(&self, what: &'static str, text: &impl fmt::Display) {
        if let Some(sink) = &self.sink {
            sink.note(what, text);
        }
    }

    fn note_events(&self, watchdog: Option<&Sight>) {
        let mut events = Vec::new();
        self.sight.take_log(&mut events);
        for activity in events {
            watchdog.iter().for_each(|sight| sight.note(activity));
            let what = match activity {
                StepActivity::Message { .. } => "message",
                StepActivity::Completed { .. } => "answer",
                StepActivity::Init | StepActivity::Start | StepActivity::Step | StepActivity::AfterStep => continue,
                _ => "signal",
            };
            let text = fmt::from_fn(|f| match activity {
                StepActivity::Message { from: Some(from) } => write!(f, "{} of {from}", self.message()),
                StepActivity::Message { from: None } => write!(f, "{} from outside", self.message()),
                other => other.fmt(f),
            });
            self.note(what, &text);
        }
    }

    fn message(&self) -> &'static str {
        (self.inner.machine.kind().message_name)()
    }

    fn note_result(&self, stepped: Stepped, out: &StepOutput) {
        let next = match stepped.verdict {
            Verdict::Continue => "goes on",
            Verdict::Idle | Verdict::Declined => "rests",
            Verdict::Wait => "waits for answers",
            Verdict::Blocking => "goes on in the pool",
            Verdict::Done => "is done",
            Verdict::Upgrade => "is replaced",
            Verdict::Broken => {
                return out.failure.iter().for_each(|exit| self.note("failed", exit));
            }
        };
        let taken = stepped.taken;
        let messages = if taken == 1 { "message" } else { "messages" };
        self.note("step", &fmt::from_fn(|f| write!(f, "took {taken} {messages}, and {next}")));
    }
}

impl Machine for Traced {
    fn kind(&self) -> &'static Kind {
        self.inner.machine.kind()
    }

    fn mailbox(&mut self) -> &mut dyn AnyMailbox {
        self.inner.machine.mailbox()
    }

    fn enter(&mut self) -> Result<(), Exit> {
        self.inner.machine.enter()
    }

    fn begin(&mut self, head: &mut Head, out: &mut StepOutput, dooms: &AtomicUsize) -> Begun {
        self.inner.machine.begin(head, out, dooms)
    }

    fn start(&mut self, head: &mut Head, out: &mut StepOutput) -> Begun {
        self.inner.machine.start(head, out)
    }

    /// The watchdog learns of the events when the step is over.
    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped {
        // It may have one from before the trace.
        drop(self.inner.machine.turn_note());
        let stepped = self.inner.machine.step(head, out, budget, Some(&self.sight));
        self.note_events(sight);
        match self.inner.machine.turn_note() {
            Some(TurnNote { what, text, is_last }) => {
                self.note(what, &text);
                self.sink.iter().filter(|_| is_last).for_each(|sink| sink.end());
            }
            None => self.note_result(stepped, out),
        }
        stepped
    }

    fn release(&mut self, out: &mut StepOutput) -> bool {
        self.inner.machine.release(out)
    }

    fn is_due(&self) -> bool {
        self.inner.machine.is_due()
    }

    fn passes_hold(&self) -> bool {
        self.inner.machine.passes_hold()
    }

    fn held(&self) -> usize {
        self.inner.machine.held()
    }

    fn keeps_unseen(&self) -> bool {
        self.inner.machine.keeps_unseen()
    }

    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>> {
        self.inner.machine.push_out(most)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Box<Successor>> {
        self.inner.machine.recover(exit)
    }

    fn close(&mut self) {
        self.inner.machine.close();
    }

    fn take_output(&mut self) -> Option<Box<dyn Any + Send>> {
        self.inner.machine.take_output()
    }

    fn last_word(&mut self, exit: &Exit) -> Option<LastWord> {
        self.sink.iter().for_each(|sink| note_end(sink, exit));
        self.inner.machine.last_word(exit)
    }

    fn left(&mut self) -> &mut dyn AnyMailbox {
        self.inner.machine.left()
    }

    fn keep_stored(&mut self, inbox: &mut dyn AnyMailbox) {
        self.inner.machine.keep_stored(inbox);
    }

    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox> {
        self.inner.machine.take_mailbox()
    }

    fn clear(&mut self) {
        self.inner.machine.clear();
    }

    fn attach(&mut self, feed: Box<dyn AnyNewFeed>, host: Weak<dyn FeedHost>) {
        self.inner.machine.attach(feed, host);
    }

    fn feeds(&mut self) -> Option<&mut dyn AnyFeeds> {
        self.inner.machine.feeds()
    }

    fn take_feeds(&mut self) -> Option<Box<dyn AnyFeeds>> {
        self.inner.machine.take_feeds()
    }

    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>> {
        self.inner.machine.take_exit()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.machine.describe(f)
    }

    fn process(&self) -> Option<&dyn Any> {
        self.inner.machine.process()
    }

    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        self.inner.machine.show_messages(show);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::sched::mailbox::Signal;

    fn place(body: &Ready) -> *const () {
        (&raw const **body).cast()
    }

    #[test]
    fn a_body_is_the_same_after_its_trace() {
        use crate::process::Completion;
        let mut body: Ready = new_body(Nobody, Pid::FIRST, None, None);
        body.machine.mailbox().signal(Signal::Completed(Completion::from(None, 5, Ok(Box::new(())))));
        (body.head.tags, body.head.outstanding) = (7, 3);
        let before = place(&body);
        let sink_of_it = Arc::new(TraceSink::new(Clock::system(), std::time::Duration::MAX));
        trace(&mut body, sink_of_it.clone());
        assert_ne!(place(&body), before);
        assert!(sink(&mut body).is_some_and(|sink| Arc::ptr_eq(sink, &sink_of_it)));
        assert!(body.machine.mailbox().has_signals() && body.head.tags == 7);
        body.head.tags = 8;
        assert!(untrace(&mut body).is_some_and(|sink| Arc::ptr_eq(&sink, &sink_of_it)));
        assert_eq!((place(&body), body.head.tags, body.head.outstanding), (before, 8, 3));
        assert!(body.machine.mailbox().has_signals());
        assert!(sink(&mut body).is_none() && untrace(&mut body).is_none());
        assert_eq!(Arc::strong_count(&sink_of_it), 1);
        assert!(!sink_of_it.is_over(), "it may go on with a successor");
    }

    #[test]
    fn a_trace_is_over_when_its_body_is_lost() {
        let mut body: Ready = new_body(Nobody, Pid::FIRST, None, None);
        let sink = Arc::new(TraceSink::new(Clock::system(), std::time::Duration::MAX));
        trace(&mut body, sink.clone());
        assert!(!sink.is_over());
        drop(body);
        assert!(sink.is_over());
    }
}
