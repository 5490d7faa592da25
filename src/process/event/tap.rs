//! The tap of a process whose steps are recorded or replayed.

use crate::pid::Pid;
use crate::process::reply::Completion;
use crate::sched::mailbox::{Control, Envelope};

/// Sees or decides the events of one process.
///
/// A tap lies beside the messages that were passed over. So a process without one does not look for it.
pub(crate) enum Tap<M> {
    Record(Box<dyn EventTap<M>>),
    Replay(Box<dyn EventSource<M>>),
}

/// Sees the events of the steps of a recorded process, in the order in which they are taken.
pub(crate) trait EventTap<M>: Send {
    /// A message was shown to the step, and passed over.
    fn passed(&mut self, message: &M);

    /// The step takes this message, which came from this process. Returns the sender that the step is shown.
    fn taken(&mut self, message: &M, from: Option<Pid>) -> Option<Pid>;

    fn completed(&mut self, completion: &Completion);

    fn control(&mut self, control: &Control);

    /// The step has asked for an event, and there was none.
    fn nothing(&mut self);

    /// Whether the step gets no more of what earlier steps have left.
    fn is_over(&self) -> bool {
        false
    }
}

/// Decides the events of the steps of a replayed process.
pub(crate) trait EventSource<M>: Send {
    /// Returns the next event. Shows the messages before it to the predicate.
    fn next(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Replayed<M>;
}

/// The next event of a replay.
pub(crate) enum Replayed<M> {
    Message(Envelope<M>),
    Completed(Completion),
    Control(Box<Control>),
    Nothing,
}
