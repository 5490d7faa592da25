//! Questions and replies.

use std::any::{Any, type_name};
use std::fmt;
use std::marker::PhantomData;

use super::command::{Answer, CommandError};
use super::host::{CountedHost, Host};
use crate::latch::Latch;
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::timer::{Place, TimerId};

/// Answers one question, once. The message that asks contains it. The process may keep it for a later step, send it to
/// another process, or move it to another thread. If it is dropped, the asker gets an error.
///
/// The runtime presumes that the asked process itself will answer. If that process waits for the asker, directly or
/// through other processes, the asks form a cycle. One of them is then answered with [`CommandError::Cycle`]. A
/// process may pass the `Reply` to another process or to a thread, and then ask and wait itself. It must call
/// [`delegate`](Self::delegate) first. Otherwise an ask may end with `CommandError::Cycle`, although the other process
/// or the thread would have answered.
#[must_use = "dropping this tells the asker that no answer will come"]
pub struct Reply<T> {
    open: OpenReply,
    takes: PhantomData<fn(T)>,
}

/// The right to answer a question. If it is dropped, the asker gets an error.
struct OpenReply(Option<Arc<Ask>>);

impl Drop for OpenReply {
    fn drop(&mut self) {
        if let Some(ask) = self.0.take() {
            ask.abandon();
            // A pending answer is dropped next. A panic of the question must not unwind then, because two destructors
            // that panic at once abort the program.
            drop_contained(ask);
        }
    }
}

impl<T> Reply<T> {
    pub(crate) fn new(ask: Arc<Ask>) -> Reply<T> {
        Reply { open: OpenReply(Some(ask)), takes: PhantomData }
    }

    /// Declares that another process, a thread or a callback will answer. From now on the question is part of no cycle
    /// of asks. It ends with its answer or its limit.
    ///
    /// Call it in the step that passes the reply on, before the process asks and waits itself. If the process does not
    /// ask and wait, the call makes no difference.
    pub fn delegate(self) -> Reply<T> {
        if let Some(ask) = &self.open.0 {
            // Ordering: Relaxed: it is set in a step, and read when that step has ended. The lock of the cell orders
            // the two.
            ask.delegated.store(true, Ordering::Relaxed);
        }
        self
    }
}

impl<T: Send + 'static> Reply<T> {
    /// Sends the answer now. Returns whether the asker still waited. In a step, prefer
    /// [`StepOutput::reply`](super::StepOutput::reply), which answers only if the step succeeds. An answer that comes
    /// too late is discarded and counted.
    pub fn send(mut self, value: T) -> bool {
        let Some(ask) = self.open.0.take() else { return false };
        let open = ask.deliver(ask.decide(Ok(Box::new(value)), || ()));
        // The asker may have ended. Then this drops the answer.
        drop_contained(ask);
        open
    }

    /// The answer of a step.
    pub(crate) fn pending(self, value: T) -> PendingReply {
        PendingReply { open: self.open, answer: Box::new(value) }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", type_name::<T>())
    }
}

/// A reply that a step has yielded, before it is sent. If it is dropped, the asker gets an error.
pub(crate) struct PendingReply {
    open: OpenReply,
    /// The answer, already in the box in which it is delivered.
    answer: Box<dyn Any + Send>,
}

impl PendingReply {
    /// Answers. `before_calls` is called before wakers of an asker outside, if there are any.
    ///
    /// If a process of the runtime `here` has asked, this returns the receiver, the tag and the answer. The caller
    /// then delivers the answer faster than the host of the question could. A question of another runtime is answered
    /// by its host.
    pub(crate) fn send(mut self, here: &dyn Host, before_calls: impl FnOnce()) -> Option<(Pid, u64, Answer)> {
        let ask = self.open.0.take()?;
        let is_here = std::ptr::addr_eq(Arc::as_ptr(&*ask.host), here);
        match ask.decide(Ok(self.answer), before_calls) {
            Decided::Deliver { to, tag, answer } if is_here => {
                // Dropped first, so that the process that the answer wakes is the only owner of its question.
                drop(ask);
                return Some((to, tag, answer));
            }
            decided => ask.deliver(decided),
        };
        // The question may be the last owner of another runtime, which is then dropped with it. A panic of that drop
        // must not reach the answering process.
        drop_contained(ask);
        None
    }
}

/// A question that waits for its answer.
pub(crate) struct Ask {
    host: CountedHost,
    target: Pid,
    // Decides between the reply, the time limit, and the drop of the reply. The first to set it answers.
    decided: AtomicBool,
    // Another process or a thread will answer, not the target.
    delegated: AtomicBool,
    // Set if the message could not be delivered. The asker gets this reason, and not that the reply was dropped with
    // the message.
    undelivered: Mutex<Option<CommandError>>,
    asker: Asker,
}

enum Asker {
    /// A process. The answer is a completion with this tag. The timer ends the wait.
    Process {
        pid: Pid,
        tag: u64,
        timer: NotedTimer,
    },
    Outside(Latch<OneAnswer>),
}

/// The timer of a question, once it is set. Two words, because no atomic holds both.
#[derive(Default)]
struct NotedTimer {
    /// Zero while there is none.
    order: AtomicU64,
    place: AtomicU64,
}

impl NotedTimer {
    fn set(&self, id: TimerId) {
        self.place.store(id.place.to_word(), Ordering::Relaxed);
        // Ordering: Release: a thread that finds the order finds the place, too.
        self.order.store(id.order, Ordering::Release);
    }

    fn get(&self) -> Option<TimerId> {
        let order = self.order.load(Ordering::Acquire);
        (order != 0).then(|| TimerId { order, place: Place::from_word(self.place.load(Ordering::Relaxed)) })
    }
}

/// The answer to a question from outside. It has a lock, because threads cannot share every answer.
pub(crate) struct OneAnswer(Mutex<Answer>);

impl OneAnswer {
    /// The answer with its type, which the future of the question knows.
    pub(crate) fn typed<T: 'static>(self) -> Result<T, CommandError> {
        let answer = std::mem::replace(&mut *lock(&self.0), Err(CommandError::Dropped));
        answer?.downcast().map(|value| *value).map_err(|_| CommandError::Dropped)
    }
}

/// The result of an attempt to decide a question.
#[must_use]
pub(crate) enum Decided {
    /// The question was decided before.
    Late,
    /// The question is answered.
    Answered,
    /// The question is decided. This answer must be delivered to the process that asked.
    Deliver { to: Pid, tag: u64, answer: Answer },
}

impl Ask {
    /// A question of the process `asker`.
    pub(crate) fn of_process(host: CountedHost, asker: Pid, tag: u64, target: Pid) -> Ask {
        Ask::new(host, Asker::Process { pid: asker, tag, timer: NotedTimer::default() }, target)
    }

    /// A question from outside. The asker waits at the latch.
    pub(crate) fn from_outside(host: CountedHost, answer: Latch<OneAnswer>, target: Pid) -> Ask {
        Ask::new(host, Asker::Outside(answer), target)
    }

    fn new(host: CountedHost, asker: Asker, target: Pid) -> Ask {
        let (decided, delegated) = (AtomicBool::new(false), AtomicBool::new(false));
        Ask { host, target, decided, delegated, undelivered: Mutex::new(None), asker }
    }

    /// Makes another question of it. No other thread may have a reference to it.
    pub(crate) fn renew(&mut self, asker: Pid, tag: u64, target: Pid) {
        self.target = target;
        self.asker = Asker::Process { pid: asker, tag, timer: NotedTimer::default() };
        (self.decided, self.delegated) = (AtomicBool::new(false), AtomicBool::new(false));
        *lock(&self.undelivered) = None;
    }

    /// The number of the tag under which a process waits.
    pub(crate) fn tag(&self) -> Option<u64> {
        match &self.asker {
            Asker::Process { tag, .. } => Some(*tag),
            Asker::Outside(_) => None,
        }
    }

    /// Records why the message cannot be delivered. When the message and the reply in it are dropped, the asker gets
    /// this reason.
    pub(crate) fn refuse(&self, why: CommandError) {
        *lock(&self.undelivered) = Some(why);
    }

    /// Records the timer that ends the wait. If the question is already decided, the timer is cancelled.
    pub(crate) fn set_timer(&self, id: TimerId) {
        if let Asker::Process { timer, .. } = &self.asker {
            timer.set(id);
        }
        if !self.is_open_now() {
            self.forget_timer();
        }
    }

    /// Cancels the timer.
    pub(crate) fn forget_timer(&self) {
        if let Asker::Process { timer, .. } = &self.asker
            && let Some(id) = timer.get()
        {
            self.host.forget_timer(id);
        }
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.decided.load(Ordering::Relaxed)
    }

    /// Whether the question is undecided at this moment. It may be decided immediately afterwards.
    ///
    /// Call it after a write that the deciding thread must undo. Both threads change the same word. The second one
    /// sees everything that the first one wrote before. So either the caller sees that the question is decided, or the
    /// deciding thread sees the write.
    pub(crate) fn is_open_now(&self) -> bool {
        !self.decided.fetch_or(false, Ordering::AcqRel)
    }

    /// The process that is presumed to answer. `None` if the question is decided or delegated.
    pub(crate) fn waits_for(&self) -> Option<Pid> {
        (!self.is_decided() && !self.delegated.load(Ordering::Relaxed)).then_some(self.target)
    }

    /// Decides the question, if it is undecided. An answer to a process is not delivered. `before_calls` is called
    /// before wakers of an asker outside, if there are any.
    pub(crate) fn decide(&self, answer: Answer, before_calls: impl FnOnce()) -> Decided {
        // One read-modify-write wins. The answer itself travels under the asker's lock. Ordering: AcqRel, for
        // `is_open_now`.
        if self.decided.swap(true, Ordering::AcqRel) {
            if answer.is_ok() {
                self.host.late_reply();
            }
            drop_contained(answer);
            return Decided::Late;
        }
        match &self.asker {
            Asker::Process { pid, tag, .. } => {
                self.forget_timer();
                Decided::Deliver { to: *pid, tag: *tag, answer }
            }
            Asker::Outside(latch) => {
                let _ = latch.set_with(OneAnswer(Mutex::new(answer)), before_calls);
                Decided::Answered
            }
        }
    }

    /// Delivers an answer that must be delivered. Returns whether the question was still open.
    fn deliver(&self, decided: Decided) -> bool {
        match decided {
            Decided::Late => return false,
            Decided::Answered => {}
            // A delegate may have answered, but mostly the asked process has.
            Decided::Deliver { to, tag, answer } => self.host.answer_from(Some(self.target), to, tag, answer),
        }
        true
    }

    /// Ends the wait with an error, if the question is undecided.
    pub(crate) fn give_up(&self, why: CommandError) {
        self.deliver(self.decide(Err(why), || ()));
    }

    /// Ends the wait because no reply will come, if the question is undecided.
    pub(crate) fn abandon(&self) {
        if !self.is_decided() {
            self.give_up(self.abandoned());
        }
    }

    /// The error for the asker when no reply will come.
    pub(crate) fn abandoned(&self) -> CommandError {
        lock(&self.undelivered).take().unwrap_or_else(|| {
            if self.host.is_alive(self.target) { CommandError::Dropped } else { CommandError::Ended(self.target) }
        })
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::host::Clerk;
    use super::*;
    use crate::primitives::thread;

    #[test]
    fn a_timer_that_is_noted_while_its_question_is_decided_is_taken_back() {
        loom::model(|| {
            let clerk = Arc::new(Clerk::default());
            let host: Arc<dyn Host> = clerk.clone();
            let ask = Arc::new(Ask::of_process(Arc::new(host), Pid::FIRST, 1, Pid::FIRST));
            let decides = ask.clone();
            let replier = thread::spawn(move || {
                assert!(matches!(decides.decide(Err(CommandError::Dropped), || ()), Decided::Deliver { .. }));
            });
            // Lets the other thread run before the timer is noted.
            let _ = ask.is_decided();
            let timer = TimerId { order: 7, place: Place::from_word(1 << 32 | 3) };
            ask.set_timer(timer);
            replier.join().unwrap();
            let taken_back = lock(&clerk.taken_back);
            assert!(!taken_back.is_empty() && taken_back.iter().all(|one| *one == timer), "{taken_back:?}");
        });
    }
}
