//! The questions of one process that may be open. They are needed at its end, and to find asks that form a cycle.

use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::reply::Ask;

/// The questions that a process has asked: all that are open, and some that are decided.
///
/// Most processes that ask have one open question. It is stored without an allocation.
#[derive(Default)]
pub(crate) struct OpenAsks {
    newest: Option<Arc<Ask>>,
    older: Option<Box<Older>>,
}

/// Oldest first.
#[derive(Default)]
struct Older {
    asks: Vec<Arc<Ask>>,
    // The number of questions at which to remove the decided ones.
    full: usize,
}

/// The most questions for which a process keeps a buffer from one busy time to the next.
const KEPT_OLDER: usize = 64;

/// The most decided questions that are kept.
const MOST_SPARE: usize = 256;

/// Decided questions, whose memory serves the next ones.
///
/// A process that asks and waits is mostly woken by the process that has just answered, on the same thread. It asks
/// its next question there. So no memory has to come from another processor.
#[derive(Default)]
pub(crate) struct SpareAsks(Vec<Arc<Ask>>);

impl SpareAsks {
    fn keep(&mut self, ask: Arc<Ask>) {
        if self.0.len() < MOST_SPARE {
            self.0.push(ask);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes a question in the memory of an old one, if the newest or the one before it is unshared.
    #[inline]
    pub(crate) fn renew<T: Send + 'static>(&mut self, asker: Pid, tag: u64, target: Pid) -> Option<Arc<Ask>> {
        let mut ask = self.0.pop()?;
        if let Some(unshared) = Arc::get_mut(&mut ask) {
            unshared.renew::<T>(asker, tag, target);
            return Some(ask);
        }
        // The step still has the completion of the newest one. It drops that when it returns.
        let older = self.0.pop();
        self.0.push(ask);
        let mut older = older?;
        Arc::get_mut(&mut older)?.renew::<T>(asker, tag, target);
        Some(older)
    }
}

impl OpenAsks {
    /// Records a question that was asked.
    #[inline]
    pub(crate) fn note(&mut self, ask: Arc<Ask>) {
        if let Some(older) = self.newest.replace(ask) {
            self.older.get_or_insert_default().note(older);
        }
    }

    /// Removes decided questions before each step, from the newest up to one that is open. So if the process rests,
    /// and the newest question is decided, its answer has not been taken yet.
    #[inline]
    pub(crate) fn forget_decided(&mut self, spares: &mut SpareAsks) {
        while let Some(decided) = self.newest.take_if(|ask| ask.is_decided()) {
            spares.keep(decided);
            self.newest = self.older.as_mut().and_then(|older| older.asks.pop());
        }
        // A process that has once asked very many questions at once must not keep the buffer for ever.
        if self.older.as_ref().is_some_and(|older| older.asks.is_empty() && older.asks.capacity() > KEPT_OLDER) {
            self.older = None;
        }
    }

    /// Returns the newest question, unless it is decided. If the process rests and one command is outstanding, it is
    /// this one: an open question is outstanding.
    #[inline]
    pub(crate) fn newest(&self) -> Option<&Arc<Ask>> {
        self.newest.as_ref().filter(|ask| !ask.is_decided())
    }

    /// Returns the question with this tag, if it may be open.
    pub(crate) fn find(&self, tag: u64) -> Option<&Arc<Ask>> {
        let older = self.older.iter().flat_map(|older| &older.asks);
        self.newest.iter().chain(older).find(|ask| ask.tag() == Some(tag))
    }

    /// The number of questions that are open.
    pub(crate) fn open(&self) -> usize {
        let older = self.older.iter().flat_map(|older| &older.asks);
        self.newest.iter().chain(older).filter(|ask| !ask.is_decided()).count()
    }

    /// Whether no question is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_none() && self.older.as_ref().is_none_or(|older| older.asks.is_empty())
    }

    /// Takes out the questions that are open, and some that are decided.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<Ask>> {
        let older = self.older.take().map(|older| older.asks);
        self.newest.take().into_iter().chain(older.into_iter().flatten())
    }
}

impl Older {
    /// Records a question. Now and then decided questions are removed. The cost for each question is constant.
    fn note(&mut self, ask: Arc<Ask>) {
        if self.asks.len() >= self.full {
            self.asks.retain(|ask| !ask.is_decided());
            self.full = (self.asks.len() * 2).max(16);
        }
        self.asks.push(ask);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::command::{CommandError, Tag};
    use crate::process::host::Clerk;
    use crate::process::reply::{Completion, Decided, Reply};

    fn ask(tag: u64) -> Arc<Ask> {
        Arc::new(Ask::of_process::<()>(Clerk::counted(), Pid::FIRST, tag, Pid::FIRST))
    }

    /// Answers a question as a step of another process of its runtime does.
    fn answer<T: Send + 'static>(ask: Arc<Ask>, value: T) -> Option<Completion> {
        let host = ask.host().clone();
        let reply = Reply::new(ask).delegate().pending(value);
        reply.send(&**host, Pid::FIRST, || ()).map(|(_, completion)| completion)
    }

    fn decide(ask: &Ask) {
        assert!(matches!(ask.decide(CommandError::Dropped), Decided::Deliver { .. }));
    }

    #[test]
    fn a_question_serves_again_when_nobody_knows_of_it_and_then_it_is_as_new() {
        let (mut asked, mut spares) = (OpenAsks::default(), SpareAsks::default());
        let old = ask(1);
        let memory = Arc::as_ptr(&old);
        old.refuse(CommandError::TimedOut);
        asked.note(old.clone());
        asked.forget_decided(&mut spares);
        assert!(spares.0.is_empty(), "it is open");
        let done = answer(old, ()).unwrap();
        asked.forget_decided(&mut spares);
        assert!(done.take(Tag::<()>::new(1)).is_some() && done.take(Tag::<()>::new(1)).is_none());
        drop(done);
        let other = Pid::new(0, 7, 3).unwrap();
        let new = spares.renew::<()>(other, 2, other).unwrap();
        assert_eq!((Arc::as_ptr(&new), new.tag(), new.waits_for()), (memory, Some(2), Some(other)));
        let why = new.abandoned();
        assert!(matches!(why, CommandError::Dropped), "why the old one was refused is forgotten: {why}");
        let Decided::Deliver { to, completion } = new.decide(CommandError::Dropped) else { panic!("it is open") };
        assert_eq!((to, completion.tag(), completion.answered_by()), (other, 2, Some(other)));
    }

    #[test]
    fn a_question_whose_reply_is_still_somewhere_does_not_serve_again() {
        let (mut asked, mut spares) = (OpenAsks::default(), SpareAsks::default());
        let late = ask(1);
        let reply = Reply::<()>::new(late.clone());
        decide(&late);
        asked.note(late);
        asked.forget_decided(&mut spares);
        assert_eq!(spares.0.len(), 1);
        assert!(spares.renew::<()>(Pid::FIRST, 2, Pid::FIRST).is_none());
        let free = ask(2);
        let memory = Arc::as_ptr(&free);
        spares.0.insert(0, free);
        let new = spares.renew::<()>(Pid::FIRST, 3, Pid::FIRST).unwrap();
        assert_eq!(Arc::as_ptr(&new), memory, "the one before it serves");
        let held = Reply::<()>::new(new.clone());
        spares.0.insert(0, new);
        assert!(spares.renew::<()>(Pid::FIRST, 4, Pid::FIRST).is_none());
        assert_eq!(spares.0.len(), 1, "of two whose replies are somewhere, the older one is dropped");
        drop(held);
        assert!(!reply.send(()), "it comes too late for the question that it belongs to");
    }

    #[test]
    fn a_question_serves_again_for_an_answer_of_another_type() {
        let mut spares = SpareAsks(vec![ask(1)]);
        let memory = Arc::as_ptr(&spares.0[0]);
        let new = spares.renew::<String>(Pid::FIRST, 2, Pid::FIRST).unwrap();
        assert_eq!(Arc::as_ptr(&new), memory);
        let done = answer(new, String::from("yes")).unwrap();
        assert_eq!(done.take(Tag::<String>::new(2)).unwrap().unwrap(), "yes");
    }

    #[test]
    fn decided_asks_are_forgotten_and_open_ones_are_kept() {
        let (mut asked, mut spares) = (OpenAsks::default(), SpareAsks::default());
        let open = ask(0);
        asked.note(open.clone());
        for tag in 1..10_000 {
            let one = ask(tag);
            asked.note(one.clone());
            decide(&one);
            let older = asked.older.as_ref().unwrap().asks.len();
            assert!(older <= 16, "{older} after {tag}");
        }
        let newest = ask(10_000);
        asked.note(newest.clone());
        asked.forget_decided(&mut spares);
        assert!(spares.0.is_empty(), "those below one that is open wait for it");
        decide(&newest);
        asked.forget_decided(&mut spares);
        assert!(Arc::ptr_eq(asked.newest().unwrap(), &open) && asked.older.as_ref().unwrap().asks.is_empty());
        let many: Vec<_> = (0..1_000).map(ask).collect();
        many.iter().for_each(|one| asked.note(one.clone()));
        assert!(asked.older.as_ref().unwrap().asks.capacity() >= 1_000);
        many.iter().for_each(|one| decide(one));
        assert!(asked.newest().is_none(), "it is decided");
        asked.forget_decided(&mut spares);
        assert!(asked.older.is_none(), "what was there for many is gone with them");
        let many: Vec<_> = (0..2 * MOST_SPARE as u64).map(ask).collect();
        many.iter().for_each(|one| decide(one));
        many.into_iter().for_each(|one| spares.keep(one));
        assert_eq!(spares.0.len(), MOST_SPARE);
    }
}
