//! Questions and replies.
//!
//! The asker and the owner of the reply share the question. The answer has its place in it, so it needs no memory of
//! its own. Three can decide a question: the reply, an error (a limit, an end, a cycle), and the drop of the reply. The
//! protocol:
//!
//! 1. The owner of the reply puts the answer into its place. A reply is used once. So no other thread ever writes
//!    there.
//! 2. A thread that wants to decide the question swaps `decided`. The first one *wins*.
//! 3. If the reply has won, the winner delivers the question itself: as the completion of a process, or by a latch. If
//!    an error has won, it delivers the error, which is not in the place.
//! 4. The asker takes the answer out of its place when the question was delivered to it. If it drops the completion
//!    instead, that drops the answer.
//! 5. If the reply has lost, or is dropped with an answer that a failed step has given, its owner drops the answer. The
//!    asker never looks into the place then, because an error was delivered.
//!
//! *The asker finds the answer.* It was put into its place before it was delivered, and the lock of the cell or of the
//! latch orders the two. *The answer is dropped once.* The place is emptied under its lock, and the answer is dropped
//! without the lock.
//!
//! The memory of a question serves the next one when nobody else shares it (`src/sched/open_asks.rs`). A reply that is
//! kept somewhere and a completion that was not dropped are shares. So neither can meet another question than its own.

use std::any::{Any, type_name};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use super::command::{Answer, AsTag, CommandError, INCARNATION_SHIFT};
#[cfg(feature = "cluster")]
use super::far_asker::{Exported, FarAsker};
use super::host::{CountedHost, Host};
use crate::latch::Latch;
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicBool, AtomicU64, Brief, Mutex, Ordering, enter, lock};
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
    pub(super) open: OpenReply,
    takes: PhantomData<fn(T)>,
}

/// The right to answer a question. If it is dropped, the asker gets an error.
pub(super) struct OpenReply(pub(super) Option<Arc<Ask>>);

impl Drop for OpenReply {
    fn drop(&mut self) {
        if let Some(ask) = self.0.take() {
            // The place of the answer belongs to the connection now.
            #[cfg(feature = "cluster")]
            if ask.is_exported() {
                return drop_contained(ask);
            }
            #[cfg(feature = "durable")]
            let is_stored = note_drop(&ask);
            #[cfg(not(feature = "durable"))]
            let is_stored = false;
            if !is_stored {
                ask.abandon();
            }
            // The step that has given the answer has failed.
            ask.discard_answer();
            drop_contained(ask);
        }
    }
}

/// Names a reply that is stored.
#[cfg(feature = "durable")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReplyKey {
    /// The asker ends with the run. Within the run, the reply has this number.
    Live(u64),
    /// The question is stored.
    Question(QuestionKey),
}

/// Names a question of one durable process to another that is stored.
#[cfg(feature = "durable")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) struct QuestionKey {
    /// No other question of the store has it.
    pub(crate) number: u64,
    /// The serial number of the asker.
    pub(crate) asker: u64,
    /// The tag of its command.
    pub(crate) tag: u64,
}

#[cfg(feature = "durable")]
thread_local! {
    /// The questions whose stored replies the step of this thread has dropped, and stored questions that it has
    /// answered with `Reply::send`.
    static DROPPED: std::cell::RefCell<Option<Vec<Arc<Ask>>>> = const { std::cell::RefCell::new(None) };
}

/// Calls a step. Also returns the questions whose stored replies it has dropped, and the stored questions that it has
/// answered with [`Reply::send`].
#[cfg(feature = "durable")]
pub(crate) fn note_dropped<R>(step: impl FnOnce() -> R) -> (R, Vec<Arc<Ask>>) {
    DROPPED.set(Some(Vec::new()));
    let result = step();
    (result, DROPPED.take().unwrap_or_default())
}

/// Whether the reply that is dropped is stored. A drop in a step is noted.
#[cfg(feature = "durable")]
fn note_drop(ask: &Arc<Ask>) -> bool {
    let is_stored = ask.stored_key().is_some();
    if is_stored {
        DROPPED.with_borrow_mut(|dropped| dropped.iter_mut().for_each(|dropped| dropped.push(ask.clone())));
    }
    is_stored
}

/// Whether the answer of [`Reply::send`] is noted, because the question is stored and a step answers.
#[cfg(feature = "durable")]
fn note_answer(ask: &Arc<Ask>) -> bool {
    let noted = |dropped: &mut Option<Vec<Arc<Ask>>>| dropped.as_mut().map(|dropped| dropped.push(ask.clone()));
    ask.question().is_some() && DROPPED.with_borrow_mut(noted).is_some()
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

/// Gets the result of a reply that was sent, and returns the result that the sender gets.
pub(crate) type OnReplySent = fn(bool) -> bool;

thread_local! {
    /// Called with the result of each [`Reply::send`] of the thread. Set while a recorded or replayed step runs.
    static SENT: Cell<Option<OnReplySent>> = const { Cell::new(None) };
}

/// Sets the function that is called with the result of each [`Reply::send`] of the calling thread, and says what the
/// sender is told. Returns the one before it.
#[inline]
pub(crate) fn on_reply_sent(call: Option<OnReplySent>) -> Option<OnReplySent> {
    SENT.replace(call)
}

#[cfg(feature = "cluster")]
impl<T> Reply<T> {
    /// A reply that was used, and answers nobody.
    pub(crate) fn spent() -> Reply<T> {
        Reply { open: OpenReply(None), takes: PhantomData }
    }
}

impl<T: Send + 'static> Reply<T> {
    /// Sends the answer now. Returns whether the asker still waited. In a step, prefer
    /// [`StepOutput::reply`](super::StepOutput::reply), which answers only if the step succeeds. An answer that comes
    /// too late is discarded and counted.
    ///
    /// The answer to a stored question of a durable process is part of the record of the step that calls this. If no
    /// step of a durable process calls it, the answer comes too late.
    ///
    /// The answer counts as one of the asked process. If another process calls this and then ends, an asker that
    /// monitors it may be told of the end first. With `StepOutput::reply` the answer comes first.
    pub fn send(mut self, value: T) -> bool {
        let Some(ask) = self.open.0.take() else { return false };
        ask.put_answer(value);
        #[cfg(feature = "durable")]
        let is_noted = note_answer(&ask);
        #[cfg(not(feature = "durable"))]
        let is_noted = false;
        let open = is_noted || {
            let host = ask.host.clone();
            let open = ask.answer(|| ()).deliver(&**host);
            drop_contained(host);
            open
        };
        SENT.get().map_or(open, |sent| sent(open))
    }

    /// The answer of a step.
    pub(crate) fn pending(self, value: T) -> PendingReply {
        if let Some(ask) = &self.open.0 {
            ask.put_answer(value);
        }
        PendingReply(self.open)
    }
}

impl<T> Reply<T> {
    /// The asker, if a process asked, and the tag of its command.
    pub(crate) fn identity(&self) -> (Option<Pid>, u64) {
        self.open.0.as_ref().map_or((None, 0), |ask| ask.identity())
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", type_name::<T>())
    }
}

/// A reply that a step has yielded, before it is sent. Its answer is in its place. If it is dropped, the asker gets an
/// error.
pub(crate) struct PendingReply(pub(super) OpenReply);

impl PendingReply {
    /// The asker, if a process asked, and the tag of its command.
    pub(crate) fn identity(&self) -> (Option<Pid>, u64) {
        self.0.0.as_ref().map_or((None, 0), |ask| ask.identity())
    }

    /// Looks at the answer.
    pub(crate) fn look(&self, look: &mut dyn FnMut(&dyn Any)) {
        self.0.0.iter().for_each(|ask| ask.place.look(look));
    }

    /// Answers. `from` is the process that replies. `before_calls` is called before wakers of an asker outside, if
    /// there are any.
    ///
    /// If a process of the runtime `here` has asked, this returns the receiver and the completion. The caller then
    /// delivers it faster than the host of the question could. A question of another runtime is answered by its host.
    pub(crate) fn send(mut self, here: &dyn Host, from: Pid, before_calls: impl FnOnce()) -> Option<(Pid, Completion)> {
        let ask = self.0.0.take()?;
        if !std::ptr::addr_eq(Arc::as_ptr(&*ask.host), here) {
            let host = ask.host.clone();
            ask.answer(before_calls).deliver(&**host);
            // This may be the last owner of the other runtime, which is then dropped. A panic of that drop must not
            // reach the answering process.
            drop_contained(host);
            return None;
        }
        // Ordering: Relaxed: it is read with the completion, and the lock of the asker's cell orders the two.
        ask.answered_by.store(from.to_word(), Ordering::Relaxed);
        match ask.answer(before_calls) {
            Decided::Deliver { to, completion } => Some((to, completion)),
            Decided::Late | Decided::Answered => None,
        }
    }
}

/// The answer to one command. Take it with the tag of the command.
pub struct Completion {
    inside: Inside,
}

// Two words, of which the first is free for most values. So an event that is a message is hardly larger than the
// message.
enum Inside {
    Boxed(Box<Boxed>),
    /// The answer to this question, which has its place there.
    Asked(Arc<Ask>),
}

struct Boxed {
    tag: u64,
    /// The process that has answered, if a process has. The event of its end comes after the answer.
    from: Option<Pid>,
    answer: Cell<Option<Answer>>,
}

impl Completion {
    /// Makes a completion. `from` is the process that has answered, if a process has.
    pub(crate) fn from(from: Option<Pid>, tag: u64, answer: Answer) -> Completion {
        Completion { inside: Inside::Boxed(Box::new(Boxed { tag, from, answer: Cell::new(Some(answer)) })) }
    }

    /// Makes the completion of a process's question, whose answer is in its place.
    pub(crate) fn of_ask(ask: Arc<Ask>) -> Completion {
        Completion { inside: Inside::Asked(ask) }
    }

    /// The incarnation of the process to which the command belongs.
    pub(crate) fn incarnation(&self) -> u16 {
        (self.tag() >> INCARNATION_SHIFT) as u16
    }

    /// The process that has answered, if a process has.
    pub(crate) fn answered_by(&self) -> Option<Pid> {
        match &self.inside {
            Inside::Boxed(boxed) => boxed.from,
            Inside::Asked(ask) => ask.answered_by(),
        }
    }

    /// Looks at the answer, if it was not taken.
    pub(crate) fn look(&self, look: &mut dyn FnMut(Result<&dyn Any, &CommandError>)) {
        match &self.inside {
            Inside::Asked(ask) => ask.place.look(&mut |answer| look(Ok(answer))),
            Inside::Boxed(boxed) => {
                let answer = boxed.answer.take();
                match &answer {
                    Some(Ok(value)) => look(Ok(&**value)),
                    Some(Err(error)) => look(Err(error)),
                    None => {}
                }
                boxed.answer.set(answer);
            }
        }
    }

    /// The number of the tag.
    pub fn tag(&self) -> u64 {
        match &self.inside {
            Inside::Boxed(boxed) => boxed.tag,
            Inside::Asked(ask) => ask.tag().unwrap_or_default(),
        }
    }

    /// The process that has answered, the tag and the answer, to be delivered in another way.
    fn into_parts(self) -> (Option<Pid>, u64, Answer) {
        let answer = match &self.inside {
            Inside::Boxed(boxed) => boxed.answer.take(),
            Inside::Asked(ask) => ask.place.take().map(Ok),
        };
        (self.answered_by(), self.tag(), answer.unwrap_or(Err(CommandError::Dropped)))
    }

    /// Whether this is the answer to the command with this [`Tag`](super::Tag). Returns `false` for `None`.
    pub fn is(&self, tag: impl AsTag) -> bool {
        tag.id() == Some(self.tag())
    }

    /// Takes the answer, if `tag` is the tag of its command. Returns `None` if this is the answer to another command,
    /// or if the answer was taken before.
    pub fn take<K: AsTag>(&self, tag: K) -> Option<Result<K::Answer, CommandError>> {
        if !self.is(tag) {
            return None;
        }
        let boxed = match &self.inside {
            Inside::Asked(ask) => return ask.take_answer().map(Ok),
            Inside::Boxed(boxed) => boxed,
        };
        match boxed.answer.take()? {
            Ok(value) => match value.downcast::<K::Answer>() {
                Ok(value) => Some(Ok(*value)),
                Err(value) => {
                    boxed.answer.set(Some(Ok(value)));
                    None
                }
            },
            Err(error) => Some(Err(error)),
        }
    }
}

/// Drops an answer that was not taken. The question itself may live on.
impl Drop for Completion {
    fn drop(&mut self) {
        if let Inside::Asked(ask) = &self.inside {
            drop(ask.place.take());
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("tag", &self.tag()).finish_non_exhaustive()
    }
}

/// A question that waits for its answer.
// The fields that every question needs come first, because the asker and the owner of the reply mostly run on different
// processors.
#[repr(C)]
pub(crate) struct Ask {
    host: CountedHost,
    pub(super) target: Pid,
    // The packed PID of the process that has replied, if it is known. Otherwise that of the target.
    pub(super) answered_by: AtomicU64,
    // Decides between the reply, the time limit, and the drop of the reply. The first to set it answers.
    pub(super) decided: AtomicBool,
    // Another process or a thread will answer, not the target.
    delegated: AtomicBool,
    pub(super) place: Box<dyn AnyPlace>,
    asker: Asker,
    pub(super) special: Mutex<Option<Special>>,
}

/// A question that needs another treatment when its reply is dropped.
pub(super) enum Special {
    /// The message could not be delivered. The asker gets this reason, and not that the reply was dropped with it.
    Refused(CommandError),
    /// The reply is stored, and may be read again.
    #[cfg(feature = "durable")]
    Stored(ReplyKey),
    /// The reply was sent to another node, from where it is answered.
    #[cfg(feature = "cluster")]
    Exported(Exported),
}

/// The place for the answer to a question, with its type erased. The type is that of the question's reply.
pub(super) trait AnyPlace: Any + Send + Sync {
    /// Takes the answer, if there is one. An answer that is taken with its type needs no box.
    fn take(&self) -> Option<Box<dyn Any + Send>>;

    /// Looks at the answer, if there is one. The place is locked meanwhile.
    fn look(&self, look: &mut dyn FnMut(&dyn Any));

    /// The type of the answer.
    #[cfg(feature = "durable")]
    fn answer_type(&self) -> std::any::TypeId;
}

pub(super) struct AnswerPlace<T>(Brief<Option<T>>);

impl<T: Send + 'static> AnswerPlace<T> {
    fn boxed() -> Box<dyn AnyPlace> {
        Box::new(AnswerPlace::<T>(Brief::new(None)))
    }
}

impl<T: Send + 'static> AnyPlace for AnswerPlace<T> {
    fn take(&self) -> Option<Box<dyn Any + Send>> {
        let answer = enter(&self.0).take();
        answer.map(|answer| Box::new(answer) as _)
    }

    fn look(&self, look: &mut dyn FnMut(&dyn Any)) {
        enter(&self.0).iter().for_each(|answer| look(answer));
    }

    #[cfg(feature = "durable")]
    fn answer_type(&self) -> std::any::TypeId {
        std::any::TypeId::of::<T>()
    }
}

pub(super) enum Asker {
    /// A process. The answer is a completion with this tag. The timer ends the wait.
    Process { pid: Pid, tag: u64, timer: NotedTimer },
    /// A thread or a future. If the question is answered, the answer is in its place when the latch is set.
    Outside(Latch<Result<(), CommandError>>),
    /// Another node.
    #[cfg(feature = "cluster")]
    Elsewhere(FarAsker),
}

/// The timer of a question, once it is set. Two words, because no atomic holds both.
#[derive(Default)]
pub(super) struct NotedTimer {
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

/// The result of an attempt to decide a question.
#[must_use]
pub(crate) enum Decided {
    /// The question was decided before.
    Late,
    /// The question is answered.
    Answered,
    /// The question is decided. This completion must be delivered to the process that asked.
    Deliver { to: Pid, completion: Completion },
}

impl Decided {
    /// Delivers the completion by its host, if there is one. Returns whether the question was still open.
    fn deliver(self, host: &dyn Host) -> bool {
        match self {
            Decided::Late => return false,
            Decided::Answered => {}
            Decided::Deliver { to, completion } => {
                let (from, tag, answer) = completion.into_parts();
                host.answer_from(from, to, tag, answer);
            }
        }
        true
    }
}

impl Ask {
    /// A question of the process `asker`, with an answer of type `T`.
    pub(crate) fn of_process<T: Send + 'static>(host: CountedHost, asker: Pid, tag: u64, target: Pid) -> Ask {
        Ask::new::<T>(host, Asker::Process { pid: asker, tag, timer: NotedTimer::default() }, target)
    }

    /// A question from outside. The asker waits at the latch.
    pub(crate) fn from_outside<T: Send + 'static>(
        host: CountedHost,
        decided: Latch<Result<(), CommandError>>,
        target: Pid,
    ) -> Ask {
        Ask::new::<T>(host, Asker::Outside(decided), target)
    }

    pub(super) fn new<T: Send + 'static>(host: CountedHost, asker: Asker, target: Pid) -> Ask {
        Ask {
            host,
            target,
            answered_by: AtomicU64::new(target.to_word()),
            decided: AtomicBool::new(false),
            delegated: AtomicBool::new(false),
            special: Mutex::new(None),
            asker,
            place: AnswerPlace::<T>::boxed(),
        }
    }

    /// Makes another question of it. No other thread may have a reference to it.
    pub(crate) fn renew<T: Send + 'static>(&mut self, asker: Pid, tag: u64, target: Pid) {
        self.target = target;
        self.answered_by = AtomicU64::new(target.to_word());
        self.asker = Asker::Process { pid: asker, tag, timer: NotedTimer::default() };
        (self.decided, self.delegated) = (AtomicBool::new(false), AtomicBool::new(false));
        if lock(&self.special).is_some() {
            self.special = Mutex::new(None);
        }
        if self.place::<T>().is_none() {
            self.place = AnswerPlace::<T>::boxed();
        }
    }

    pub(super) fn place<T: 'static>(&self) -> Option<&AnswerPlace<T>> {
        (&*self.place as &dyn Any).downcast_ref()
    }

    /// Puts the answer into its place. Only the owner of the reply may call it, once, before it decides the question.
    fn put_answer<T: Send + 'static>(&self, value: T) {
        // The place has this type, because the reply was made with the question.
        if let Some(place) = self.place() {
            *enter(&place.0) = Some(value);
        }
    }

    /// Takes the answer out of its place, if it is there and has this type.
    pub(crate) fn take_answer<T: 'static>(&self) -> Option<T> {
        enter(&self.place()?.0).take()
    }

    /// The answer of a question from outside, when it is decided.
    pub(crate) fn answered<T: 'static>(&self, decided: Result<(), CommandError>) -> Result<T, CommandError> {
        decided.and_then(|()| self.take_answer().ok_or(CommandError::Dropped))
    }

    /// Drops the answer, if it is in its place. A panic of its destructor is contained.
    fn discard_answer(&self) {
        drop_contained(self.place.take());
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn host(&self) -> &CountedHost {
        &self.host
    }

    /// The asker, if a process asked, and the tag of its command.
    fn identity(&self) -> (Option<Pid>, u64) {
        match &self.asker {
            Asker::Process { pid, tag, .. } => (Some(*pid), *tag),
            Asker::Outside(_) => (None, 0),
            #[cfg(feature = "cluster")]
            Asker::Elsewhere(_) => (None, 0),
        }
    }

    /// The number of the tag under which a process waits.
    pub(crate) fn tag(&self) -> Option<u64> {
        match &self.asker {
            Asker::Process { tag, .. } => Some(*tag),
            Asker::Outside(_) => None,
            #[cfg(feature = "cluster")]
            Asker::Elsewhere(_) => None,
        }
    }

    /// Records why the message cannot be delivered. When the message and the reply in it are dropped, the asker gets
    /// this reason.
    pub(crate) fn refuse(&self, why: CommandError) {
        *lock(&self.special) = Some(Special::Refused(why));
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

    /// The process that has answered. It is presumed to be the asked process, if that is not known.
    pub(crate) fn answered_by(&self) -> Option<Pid> {
        Pid::from_word(self.answered_by.load(Ordering::Relaxed))
    }

    /// Decides the question with the answer in its place, if it is undecided. A completion is not delivered.
    /// `before_calls` is called before wakers of an asker outside, if there are any.
    fn answer(self: Arc<Ask>, before_calls: impl FnOnce()) -> Decided {
        if self.decided.swap(true, Ordering::AcqRel) {
            self.host.late_reply();
            self.discard_answer();
            drop_contained(self);
            return Decided::Late;
        }
        match &self.asker {
            Asker::Process { pid, .. } => {
                self.forget_timer();
                Decided::Deliver { to: *pid, completion: Completion::of_ask(self) }
            }
            Asker::Outside(latch) => {
                let _ = latch.set_with(Ok(()), before_calls);
                // The asker may have ended. Then this drops the answer.
                drop_contained(self);
                Decided::Answered
            }
            #[cfg(feature = "cluster")]
            Asker::Elsewhere(asker) => {
                // The answer is encoded, which calls user code.
                before_calls();
                asker.answered(self.answered_by(), self.place.take().ok_or(CommandError::Dropped));
                Decided::Answered
            }
        }
    }

    /// Decides the question with an error, if it is undecided. A completion is not delivered.
    pub(crate) fn decide(&self, why: CommandError) -> Decided {
        if self.decided.swap(true, Ordering::AcqRel) {
            return Decided::Late;
        }
        #[cfg(feature = "cluster")]
        self.close_export();
        match &self.asker {
            Asker::Process { pid, tag, .. } => {
                self.forget_timer();
                // A delegate may have given it up, but mostly the asked process has.
                let completion = Completion::from(Some(self.target), *tag, Err(why));
                Decided::Deliver { to: *pid, completion }
            }
            Asker::Outside(latch) => {
                let _ = latch.set(Err(why));
                Decided::Answered
            }
            #[cfg(feature = "cluster")]
            Asker::Elsewhere(asker) => {
                asker.answered(Some(self.target), Err(why));
                Decided::Answered
            }
        }
    }

    /// Ends the wait with an error, if the question is undecided.
    pub(crate) fn give_up(&self, why: CommandError) {
        self.decide(why).deliver(&**self.host);
    }

    /// Ends the wait because no reply will come, if the question is undecided.
    pub(crate) fn abandon(&self) {
        if !self.is_decided() {
            self.give_up(self.abandoned());
        }
    }

    /// The error for the asker when no reply will come.
    pub(crate) fn abandoned(&self) -> CommandError {
        match lock(&self.special).take() {
            Some(Special::Refused(why)) => why,
            _ if self.host.is_alive(self.target) => CommandError::Dropped,
            _ => CommandError::Ended(self.target),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::command::Tag;
    use super::*;

    #[test]
    fn an_answer_is_taken_once_and_only_with_its_own_tag() {
        let done = Completion::from(None, 3, Ok(Box::new(7_u32)));
        assert!(done.take(Tag::<u32>::new(2)).is_none());
        assert!(done.take(Tag::<String>::new(3)).is_none(), "a tag of another type takes nothing");
        assert_eq!(done.take(Tag::<u32>::new(3)).unwrap().unwrap(), 7);
        assert!(done.take(Tag::<u32>::new(3)).is_none());
        assert!(done.is(Some(Tag::<u32>::new(3))) && !done.is(None::<Tag<u32>>));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::command::Tag;
    use super::super::host::Clerk;
    use super::*;
    use crate::primitives::thread;

    /// An answer that counts its drops.
    struct Counted(Arc<Mutex<u32>>);

    impl Drop for Counted {
        fn drop(&mut self) {
            *lock(&self.0) += 1;
        }
    }

    /// Fails if two can win, if a late reply is not counted or is delivered, or if its answer stays.
    #[test]
    fn a_process_is_answered_while_its_question_is_given_up() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (clerk, drops) = (Arc::new(Clerk::default()), Arc::new(Mutex::new(0)));
            let host: Arc<dyn Host> = clerk.clone();
            let ask = Arc::new(Ask::of_process::<Counted>(Arc::new(host), Pid::FIRST, 1, Pid::FIRST));
            let (reply, value) = (Reply::new(ask.clone()), Counted(drops.clone()));
            // The question outlives its decision, as it does in the records of the asker.
            let _asked = ask.clone();
            let (mailbox, here) = (Arc::new(Mutex::new(Vec::new())), ask.host.clone());
            let deliver = |decided, mailbox: &Mutex<Vec<Completion>>| match decided {
                Decided::Deliver { completion, .. } => lock(mailbox).push(completion),
                Decided::Late | Decided::Answered => {}
            };
            let (replied, gives_up) = (mailbox.clone(), mailbox.clone());
            let replier = thread::spawn(move || {
                let sent = reply.pending(value).send(&**here, Pid::FIRST, || ());
                let in_time = sent.is_some();
                lock(&replied).extend(sent.map(|(_, completion)| completion));
                in_time
            });
            let limit = thread::spawn(move || deliver(ask.decide(CommandError::TimedOut), &gives_up));
            let mut taken = Vec::new();
            let mut take = || {
                let delivered = std::mem::take(&mut *lock(&mailbox));
                let answers = delivered.into_iter().map(|done| done.take(Tag::<Counted>::new(1)).unwrap().is_ok());
                taken.extend(answers);
            };
            take();
            let in_time = replier.join().unwrap();
            limit.join().unwrap();
            take();
            assert_eq!(taken, [in_time], "one answer, and the replier knows whether it is the reply");
            assert_eq!((*lock(&clerk.late_replies), *lock(&drops)), (u32::from(!in_time), 1));
        });
    }

    /// Fails as the model for a process does, and if the answer is put into its place after its delivery.
    #[test]
    fn an_asker_outside_is_answered_while_it_gives_up() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (clerk, drops) = (Arc::new(Clerk::default()), Arc::new(Mutex::new(0)));
            let (host, decided): (Arc<dyn Host>, _) = (clerk.clone(), Latch::new());
            let ask = Arc::new(Ask::from_outside::<Counted>(Arc::new(host), decided.clone(), Pid::FIRST));
            let (reply, value) = (Reply::new(ask.clone()), Counted(drops.clone()));
            let replier = thread::spawn(move || reply.send(value));
            let is_answered = |decided| ask.answered::<Counted>(decided).is_ok();
            let early = decided.take().map(is_answered);
            ask.give_up(CommandError::TimedOut);
            let late = decided.take().map(is_answered);
            let in_time = replier.join().unwrap();
            let answers: Vec<bool> = early.into_iter().chain(late).chain(decided.take().map(is_answered)).collect();
            assert_eq!(answers, [in_time], "one answer, and the replier knows whether it is the reply");
            assert_eq!((*lock(&clerk.late_replies), *lock(&drops)), (u32::from(!in_time), 1));
        });
    }

    /// Fails if a pending reply that is dropped leaves its answer, or puts it where the asker looks.
    #[test]
    fn a_failed_step_drops_its_reply_while_the_question_is_given_up() {
        loom::model(|| {
            let (clerk, drops) = (Arc::new(Clerk::default()), Arc::new(Mutex::new(0)));
            let host: Arc<dyn Host> = clerk.clone();
            let ask = Arc::new(Ask::of_process::<Counted>(Arc::new(host), Pid::FIRST, 1, Pid::FIRST));
            let pending = Reply::new(ask.clone()).pending(Counted(drops.clone()));
            let replier = thread::spawn(move || drop(pending));
            ask.give_up(CommandError::TimedOut);
            replier.join().unwrap();
            let delivered = std::mem::take(&mut *lock(&clerk.answers));
            assert!(matches!(delivered.as_slice(), [(1, Err(_))]), "one answer");
            assert_eq!((*lock(&clerk.late_replies), *lock(&drops)), (0, 1), "an error is never late");
        });
    }

    #[test]
    fn a_timer_that_is_noted_while_its_question_is_decided_is_taken_back() {
        loom::model(|| {
            let clerk = Arc::new(Clerk::default());
            let host: Arc<dyn Host> = clerk.clone();
            let ask = Arc::new(Ask::of_process::<()>(Arc::new(host), Pid::FIRST, 1, Pid::FIRST));
            let decides = ask.clone();
            let replier = thread::spawn(move || {
                assert!(matches!(decides.decide(CommandError::Dropped), Decided::Deliver { .. }));
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
