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

/// The right to answer a question, once. It comes inside the message that asks, and may be answered in a later step,
/// handed to another process, or taken to another thread. Dropping it tells the asker that no answer will come.
///
/// As long as the question is open, the process that was asked is presumed to be the one that will answer it. If that
/// process waits in turn, over others, for the asker, the asks form a cycle, and one of them is answered with
/// [`CommandError::Cycle`]. A process that leaves the answer to another one (or to a thread), and then asks and waits itself,
/// calls [`delegate`](Self::delegate) first. Without that the question still counts as its own, and an ask may
/// end with `CommandError::Cycle` although the other one would have answered.
#[must_use = "dropping this tells the asker that no answer will come"]
pub struct Reply<T> {
    ask: Option<Arc<dyn Ask<T>>>,
}

/// A question that waits for its answer.
pub(crate) trait Ask<T>: Send + Sync {
    /// Decides the question, if nothing has decided it before.
    fn decide(&self, answer: Result<T, CommandError>) -> Decided;

    /// The reply was dropped: why there is no answer.
    fn abandoned(&self) -> CommandError;

    /// Somebody else than who was asked will answer.
    fn hand_on(&self);

    /// The answer of a step, to be sent when that has succeeded.
    fn pending(self: Arc<Self>, answer: T) -> PendingReply;

    fn link(&self) -> &dyn AskLink;
}

/// What came of deciding a question.
#[must_use]
pub(crate) enum Decided {
    /// It was decided before.
    Late,
    /// It is answered.
    Answered,
    /// It is decided, and this is to be delivered to the process that asked.
    Deliver { from: Pid, to: Pid, tag: u64, answer: Answer },
}

impl Decided {
    /// Delivers what is to be delivered. Whether the question was still open.
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

    /// Answers now. Inside a step, prefer [`StepOutput::reply`](super::StepOutput::reply), which answers only if the
    /// step succeeds. Whether the asker still waited: an answer that comes too late is discarded (and counted).
    pub fn send(mut self, value: T) -> bool {
        let Some(ask) = self.ask.take() else { return false };
        let open = ask.decide(Ok(value)).settle(ask.link());
        // Whoever asked may be gone by now, and then the answer goes with this.
        drop_contained(ask);
        open
    }

    /// Says that another process, a thread or a callback will answer, and not the process that was asked. From here on
    /// the question is part of no cycle of asks, whatever the process that was asked waits for. It ends with its answer or
    /// its limit.
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
    /// The answer of a step. Nothing for a reply that has been used up.
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

/// What a question needs from the runtime.
pub(crate) trait AskLink: AnswerTo {
    fn is_alive(&self, pid: Pid) -> bool;
    fn late_reply(&self);
    fn forget_timer(&self, key: TimerKey);

    /// Tells one runtime from another.
    fn runtime(&self) -> *const ();
}

/// What every question has, whoever asks.
pub(crate) struct Question {
    link: Arc<dyn AskLink>,
    target: Pid,
    // Decides between the reply, the time limit, and the reply's being dropped: the first to set it answers.
    decided: AtomicBool,
    // Somebody else than the target will answer.
    delegate: AtomicBool,
    // Known when the message could not be delivered: a better reason than that the reply was dropped with it.
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
        // One read-modify-write wins; the answer itself travels under the asker's lock.
        // Ordering: AcqRel, for `is_decided_after_all`.
        !self.decided.swap(true, Ordering::AcqRel)
    }

    /// The same for somebody who has just written down what whoever decides has to undo. Of two who change the same word
    /// the second sees all that the first wrote before: either this one sees that it is decided, or who decides sees what
    /// was written.
    fn is_decided_after_all(&self) -> bool {
        self.decided.fetch_or(false, Ordering::AcqRel)
    }

    fn is_decided(&self) -> bool {
        self.decided.load(Ordering::Relaxed)
    }

    fn hand_on(&self) {
        // Ordering: Relaxed: it is said in a step, and read when that has ended, which the lock of the cell carries over.
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

/// A question of one process to another; its answer is a completion.
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

    /// Makes another question of it, which nobody knows yet.
    pub(crate) fn renew(&mut self, asker: Pid, tag: u64, target: Pid) {
        self.question.renew(target);
        (self.asker, self.tag, self.timer) = (asker, tag, OnceLock::new());
    }

    /// The number of the tag under which the asker waits.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Notes why the message cannot be delivered; dropping it, and the reply in it, then says so to the asker.
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

    /// Who alone can answer it, if it is open and was not handed on.
    pub(crate) fn waits_for(&self) -> Option<Pid> {
        (!self.is_decided() && !self.is_handed_on()).then_some(self.question.target)
    }

    pub(crate) fn is_handed_on(&self) -> bool {
        self.question.is_handed_on()
    }

    /// Whether it is open at this very moment: who decides it comes later.
    pub(crate) fn is_open_now(&self) -> bool {
        !self.question.is_decided_after_all()
    }

    /// Ends the wait with an error, if nothing has decided it before.
    pub(crate) fn give_up(&self, why: CommandError) {
        self.decide_with(Err(why)).settle(&*self.question.link);
    }

    /// Takes the timer back.
    pub(crate) fn forget_timer(&self) {
        if let Some(key) = self.timer.get() {
            self.question.link.forget_timer(*key);
        }
    }

    /// Decides it, if nothing has before. The answer is not delivered yet.
    pub(crate) fn decide_with(&self, answer: Answer) -> Decided {
        if self.question.decide() {
            self.forget_timer();
            // Whoever it was handed to may answer, but mostly it is the one that was asked.
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

/// A question from outside; whoever asked waits at the latch.
pub(crate) struct OutsideAsk<T> {
    question: Question,
    // In a lock of its own, for the sake of answers that threads cannot share.
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

    /// Polls for the answer. `place` is the future's own.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, place: &mut Option<u64>) -> Poll<Result<T, CommandError>> {
        let answer = self.answer.poll_take(cx, place);
        answer.map(|answer| lock(&answer).take().unwrap_or(Err(CommandError::Dropped)))
    }

    /// Ends the wait with an error, if nothing has decided it before.
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

/// A reply that a step has yielded and that is not sent yet. Dropped, it tells the asker that no answer will come.
pub(crate) enum PendingReply {
    /// To a process. The answer is in the box in which it will travel.
    Process { ask: Unanswered, answer: Box<dyn Any + Send> },
    /// To somebody outside.
    Outside(Outward),
}

/// Answers somebody outside. Given what is to be done before wakers of whoever has asked are called, if there are any.
pub(crate) type Outward = Box<dyn FnOnce(&mut dyn FnMut()) + Send>;

/// A question of a process. Dropped, it is decided.
pub(crate) struct Unanswered(Option<Arc<ProcessAsk>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(ask) = self.0.take() {
            ask.give_up(ask.question.abandoned());
            // The answer goes next. Whatever goes with the question must not be on its way up then: two destructors that
            // panic at once end the program.
            drop_contained(ask);
        }
    }
}

impl PendingReply {
    /// Answers. What is to be delivered in the runtime `here` is left to `deliver`, which knows a shorter way than the
    /// question's own link; a question of another runtime is answered there.
    pub(crate) fn send(self, here: &dyn AskLink, deliver: impl FnOnce(Pid, u64, Answer)) {
        let (mut ask, answer) = match self {
            PendingReply::Process { ask, answer } => (ask, answer),
            PendingReply::Outside(send) => return send(&mut || ()),
        };
        let Some(ask) = ask.0.take() else { return };
        let is_here = ask.question.link.runtime() == here.runtime();
        match ask.decide_with(Ok(answer)) {
            Decided::Deliver { to, tag, answer, .. } if is_here => {
                // Let go of first: whoever is woken by the answer finds its question its own.
                drop(ask);
                deliver(to, tag, answer);
            }
            decided => {
                decided.settle(&*ask.question.link);
                // It may be the last that knows of another runtime, and then that goes with it: whoever answers must not
                // pay for what panics there.
                drop_contained(ask);
            }
        }
    }
}

/// Stands for a runtime whose answers are delivered by hand, and counts the timers that are taken back.
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
            // A place for the other thread to come before the timer is noted.
            let _ = ask.is_decided();
            ask.set_timer(TimerKey::for_models());
            replier.join().unwrap();
            assert!(clerk.taken_back.load(Ordering::Relaxed) > 0);
        });
    }
}
