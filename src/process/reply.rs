//! Ask and reply: the right to answer one question, once.

use std::any::{Any, type_name};
use std::fmt;
use std::task::{Context, Poll};

use super::command::{Answer, AnswerTo, CommandError};
use crate::latch::Latch;
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicBool, Mutex, OnceLock, Ordering, lock};
use crate::timer::TimerKey;

/// The right to answer a question, once. It comes inside the message that asks. It may be answered in a later step,
/// sent to another process, or moved to another thread. If it is dropped, the asker is told that no answer will come.
///
/// Until the question is answered, the asked process is presumed to be the one that will answer it. If that process
/// waits in turn, over others, for the asker, the asks form a cycle, and one of them is answered with
/// [`CommandError::Cycle`]. A process that leaves the answer to another one (or to a thread), and then asks and waits
/// itself, calls [`delegate`](Self::delegate) first. Without that the question still counts as its own, and an ask
/// may end with `CommandError::Cycle` although the other one would have answered.
#[must_use = "dropping this tells the asker that no answer will come"]
pub struct Reply<T> {
    ask: Option<Arc<dyn Ask<T>>>,
}

/// A question that waits for its answer.
pub(crate) trait Ask<T>: Send + Sync {
    /// Decides the question, if it is undecided.
    fn decide(&self, answer: Result<T, CommandError>) -> Decided;

    /// The error for the asker when the reply was dropped.
    fn abandoned(&self) -> CommandError;

    /// Notes that another than the asked process will answer.
    fn hand_on(&self);

    /// The answer of a step, which is sent when the step has succeeded.
    fn pending(self: Arc<Self>, answer: T) -> PendingReply;

    fn link(&self) -> &dyn AskLink;
}

/// The result of an attempt to decide a question.
#[must_use]
pub(crate) enum Decided {
    /// The question was decided before.
    Late,
    /// The question is answered.
    Answered,
    /// The question is decided. This answer must be delivered to the process that asked.
    Deliver { from: Pid, to: Pid, tag: u64, answer: Answer },
}

impl Decided {
    /// Delivers an answer that must be delivered. Returns whether the question was still open.
    fn settle(self, link: &dyn AskLink) -> bool {
        match self {
            Decided::Late => return false,
            Decided::Answered => {}
            Decided::Deliver { from, to, tag, answer } => link.answer_from(from, to, tag, answer),
        }
        true
    }
}

impl<T> Reply<T> {
    pub(crate) fn new(ask: Arc<dyn Ask<T>>) -> Reply<T> {
        Reply { ask: Some(ask) }
    }

    /// Sends the answer now, and returns whether the asker still waited. Inside a step, prefer
    /// [`StepOutput::reply`](super::StepOutput::reply), which answers only if the step succeeds. An answer that comes
    /// too late is discarded and counted.
    pub fn send(mut self, value: T) -> bool {
        let Some(ask) = self.ask.take() else { return false };
        let open = ask.decide(Ok(value)).settle(ask.link());
        // The asker may have ended. Then this drops the answer.
        drop_contained(ask);
        open
    }

    /// Declares that another process, a thread or a callback will answer, not the asked process. From now on the
    /// question is part of no cycle of asks, however the asked process waits. It ends with its answer or its limit.
    ///
    /// Call it in the step that passes the reply on, before that process asks others and waits. Otherwise it makes no
    /// difference.
    pub fn delegate(self) -> Reply<T> {
        if let Some(ask) = &self.ask {
            ask.hand_on();
        }
        self
    }
}

impl<T: Send + 'static> Reply<T> {
    /// The answer of a step. `None` for a reply that has been used.
    pub(crate) fn pending(mut self, value: T) -> Option<PendingReply> {
        Some(self.ask.take()?.pending(value))
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(ask) = self.ask.take() {
            ask.decide(Err(ask.abandoned())).settle(ask.link());
            drop_contained(ask);
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", type_name::<T>())
    }
}

/// The calls that a question makes to the runtime.
pub(crate) trait AskLink: AnswerTo {
    fn is_alive(&self, pid: Pid) -> bool;
    fn late_reply(&self);
    fn forget_timer(&self, key: TimerKey);

    /// An address that identifies the runtime.
    fn runtime(&self) -> *const ();
}

/// The part that every question has, from a process or from outside.
pub(crate) struct Question {
    link: Arc<dyn AskLink>,
    target: Pid,
    // Decides between the reply, the time limit, and the drop of the reply. The first to set it answers.
    decided: AtomicBool,
    // Another than the target will answer.
    delegate: AtomicBool,
    // Set when the message could not be delivered. It is a better reason than that the reply was dropped with the
    // message.
    undelivered: Mutex<Option<CommandError>>,
}

impl Question {
    pub(crate) fn new(link: Arc<dyn AskLink>, target: Pid) -> Question {
        let (decided, delegate) = (AtomicBool::new(false), AtomicBool::new(false));
        Question { link, target, decided, delegate, undelivered: Mutex::new(None) }
    }

    fn renew(&mut self, target: Pid) {
        self.target = target;
        (self.decided, self.delegate) = (AtomicBool::new(false), AtomicBool::new(false));
        *lock(&self.undelivered) = None;
    }

    fn decide(&self) -> bool {
        // One read-modify-write wins. The answer itself travels under the asker's lock. Ordering: AcqRel, for
        // `is_decided_after_all`.
        !self.decided.swap(true, Ordering::AcqRel)
    }

    /// Whether the question is decided, exact after a write that the decider must undo. Of two threads that change
    /// the same word, the second sees all that the first wrote before. So either the caller sees that the question is
    /// decided, or the decider sees the value.
    fn is_decided_after_all(&self) -> bool {
        self.decided.fetch_or(false, Ordering::AcqRel)
    }

    fn is_decided(&self) -> bool {
        self.decided.load(Ordering::Relaxed)
    }

    fn hand_on(&self) {
        // Ordering: Relaxed: it is set in a step, and read when that step has ended. The lock of the cell orders the
        // two.
        self.delegate.store(true, Ordering::Relaxed);
    }

    fn is_handed_on(&self) -> bool {
        self.delegate.load(Ordering::Relaxed)
    }

    fn refuse(&self, why: CommandError) {
        *lock(&self.undelivered) = Some(why);
    }

    fn too_late<T>(&self, answer: Result<T, CommandError>) {
        if answer.is_ok() {
            self.link.late_reply();
        }
        drop_contained(answer);
    }

    fn abandoned(&self) -> CommandError {
        lock(&self.undelivered).take().unwrap_or_else(|| {
            if self.link.is_alive(self.target) { CommandError::Dropped } else { CommandError::Ended(self.target) }
        })
    }
}

/// A question of one process to another. Its answer is a completion.
pub(crate) struct ProcessAsk {
    question: Question,
    asker: Pid,
    tag: u64,
    timer: OnceLock<TimerKey>,
}

impl ProcessAsk {
    pub(crate) fn new(link: Arc<dyn AskLink>, asker: Pid, tag: u64, target: Pid) -> ProcessAsk {
        ProcessAsk { question: Question::new(link, target), asker, tag, timer: OnceLock::new() }
    }

    /// Makes another question of it. No other thread may know it yet.
    pub(crate) fn renew(&mut self, asker: Pid, tag: u64, target: Pid) {
        self.question.renew(target);
        (self.asker, self.tag, self.timer) = (asker, tag, OnceLock::new());
    }

    /// The number of the tag under which the asker waits.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Notes why the message cannot be delivered. When the message and the reply in it are dropped, the asker gets
    /// this reason.
    pub(crate) fn refuse(&self, why: CommandError) {
        self.question.refuse(why);
    }

    /// Notes the timer that ends the wait. If the question is decided already, the timer is taken back.
    pub(crate) fn set_timer(&self, key: TimerKey) {
        let _ = self.timer.set(key);
        if self.question.is_decided_after_all() {
            self.forget_timer();
        }
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.question.is_decided()
    }

    /// The only process that can answer. `None` if the question is decided or delegated.
    pub(crate) fn waits_for(&self) -> Option<Pid> {
        (!self.is_decided() && !self.is_handed_on()).then_some(self.question.target)
    }

    pub(crate) fn is_handed_on(&self) -> bool {
        self.question.is_handed_on()
    }

    /// Whether it is open at this moment. It may be decided at once afterwards.
    pub(crate) fn is_open_now(&self) -> bool {
        !self.question.is_decided_after_all()
    }

    /// Ends the wait with an error, if the question is undecided.
    pub(crate) fn give_up(&self, why: CommandError) {
        self.decide_with(Err(why)).settle(&*self.question.link);
    }

    /// Takes the timer back.
    pub(crate) fn forget_timer(&self) {
        if let Some(key) = self.timer.get() {
            self.question.link.forget_timer(*key);
        }
    }

    /// Decides the question, if it is undecided. This does not deliver the answer.
    pub(crate) fn decide_with(&self, answer: Answer) -> Decided {
        if self.question.decide() {
            self.forget_timer();
            // A delegate may have answered, but mostly the asked process has.
            return Decided::Deliver { from: self.question.target, to: self.asker, tag: self.tag, answer };
        }
        self.question.too_late(answer);
        Decided::Late
    }
}

impl<T: Send + 'static> Ask<T> for ProcessAsk {
    fn decide(&self, answer: Result<T, CommandError>) -> Decided {
        self.decide_with(answer.map(|value| Box::new(value) as _))
    }

    fn abandoned(&self) -> CommandError {
        self.question.abandoned()
    }

    fn hand_on(&self) {
        self.question.hand_on();
    }

    fn pending(self: Arc<Self>, answer: T) -> PendingReply {
        PendingReply::Process { ask: Unanswered(Some(self)), answer: Box::new(answer) }
    }

    fn link(&self) -> &dyn AskLink {
        &*self.question.link
    }
}

/// A question from outside. The asker waits at the latch.
pub(crate) struct OutsideAsk<T> {
    question: Question,
    // The answer has a lock of its own, because threads cannot share every answer.
    pub(crate) answer: Latch<OneAnswer<T>>,
}

pub(crate) type OneAnswer<T> = Mutex<Option<Result<T, CommandError>>>;

impl<T: Send + 'static> OutsideAsk<T> {
    pub(crate) fn new(link: Arc<dyn AskLink>, target: Pid) -> OutsideAsk<T> {
        OutsideAsk { question: Question::new(link, target), answer: Latch::new() }
    }

    /// See [`ProcessAsk::refuse`].
    pub(crate) fn refuse(&self, why: CommandError) {
        self.question.refuse(why);
    }

    /// The answer, once, if there is one.
    pub(crate) fn take(&self) -> Option<Result<T, CommandError>> {
        let answer = self.answer.take()?;
        lock(&answer).take()
    }

    /// Polls for the answer. `place` belongs to the future.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, place: &mut Option<u64>) -> Poll<Result<T, CommandError>> {
        let answer = self.answer.poll_take(cx, place);
        answer.map(|answer| lock(&answer).take().unwrap_or(Err(CommandError::Dropped)))
    }

    /// Ends the wait with an error, if the question is undecided.
    pub(crate) fn give_up(&self, why: CommandError) {
        let _ = self.decide(Err(why));
    }

    fn decide_before(&self, answer: Result<T, CommandError>, before_calls: impl FnOnce()) -> Decided {
        if self.question.decide() {
            let _ = self.answer.set_with(Mutex::new(Some(answer)), before_calls);
            return Decided::Answered;
        }
        self.question.too_late(answer);
        Decided::Late
    }
}

impl<T: Send + 'static> Ask<T> for OutsideAsk<T> {
    fn decide(&self, answer: Result<T, CommandError>) -> Decided {
        self.decide_before(answer, || ())
    }

    fn abandoned(&self) -> CommandError {
        self.question.abandoned()
    }

    fn hand_on(&self) {
        self.question.hand_on();
    }

    fn pending(self: Arc<Self>, answer: T) -> PendingReply {
        let mut reply = Reply { ask: Some(self.clone() as Arc<dyn Ask<T>>) };
        PendingReply::Outside(Box::new(move |before_calls| {
            let _ = self.decide_before(Ok(answer), before_calls);
            drop_contained((reply.ask.take(), self));
        }))
    }

    fn link(&self) -> &dyn AskLink {
        &*self.question.link
    }
}

/// A reply that a step has yielded and that is not sent yet. If it is dropped, the asker is told that no answer will
/// come.
pub(crate) enum PendingReply {
    /// To a process. The answer is already in the box in which it will travel.
    Process { ask: Unanswered, answer: Box<dyn Any + Send> },
    /// To an asker outside.
    Outside(Outward),
}

/// Answers an asker outside. The argument is called before wakers of the asker, if there are any.
pub(crate) type Outward = Box<dyn FnOnce(&mut dyn FnMut()) + Send>;

/// A question of a process. If it is dropped, it is decided.
pub(crate) struct Unanswered(Option<Arc<ProcessAsk>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(ask) = self.0.take() {
            ask.give_up(ask.question.abandoned());
            // The answer is dropped next. No panic of the question may unwind then: two destructors that panic at
            // once abort the program.
            drop_contained(ask);
        }
    }
}

impl PendingReply {
    /// Answers. `deliver` delivers the answer in the runtime `here`, in a shorter way than the question's own link. A
    /// question of another runtime is answered by its link.
    pub(crate) fn send(self, here: &dyn AskLink, deliver: impl FnOnce(Pid, u64, Answer)) {
        let (mut ask, answer) = match self {
            PendingReply::Process { ask, answer } => (ask, answer),
            PendingReply::Outside(send) => return send(&mut || ()),
        };
        let Some(ask) = ask.0.take() else { return };
        let is_here = ask.question.link.runtime() == here.runtime();
        match ask.decide_with(Ok(answer)) {
            Decided::Deliver { to, tag, answer, .. } if is_here => {
                // Dropped first, so that the process that the answer wakes is the only owner of its question.
                drop(ask);
                deliver(to, tag, answer);
            }
            decided => {
                decided.settle(&*ask.question.link);
                // It may be the last owner of another runtime, and then that is dropped with it. A panic there must
                // not reach the answering process.
                drop_contained(ask);
            }
        }
    }
}

/// A runtime whose answers are delivered by hand. It counts the timers that are taken back.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Clerk {
    taken_back: crate::primitives::AtomicUsize,
}

#[cfg(test)]
impl AnswerTo for Clerk {
    fn answer(&self, _: Pid, _: u64, _: Answer) {}
}

#[cfg(test)]
impl AskLink for Clerk {
    fn is_alive(&self, _: Pid) -> bool {
        true
    }

    fn late_reply(&self) {}

    fn forget_timer(&self, _: TimerKey) {
        self.taken_back.fetch_add(1, Ordering::Relaxed);
    }

    fn runtime(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitives::thread;

    #[test]
    fn a_timer_that_is_noted_while_its_question_is_decided_is_taken_back() {
        loom::model(|| {
            let clerk = Arc::new(Clerk::default());
            let ask = Arc::new(ProcessAsk::new(clerk.clone(), Pid::FIRST, 1, Pid::FIRST));
            let decides = ask.clone();
            let replier = thread::spawn(move || {
                assert!(matches!(decides.decide_with(Err(CommandError::Dropped)), Decided::Deliver { .. }));
            });
            // Lets the other thread run before the timer is noted.
            let _ = ask.is_decided();
            ask.set_timer(TimerKey::for_models());
            replier.join().unwrap();
            assert!(clerk.taken_back.load(Ordering::Relaxed) > 0);
        });
    }
}
