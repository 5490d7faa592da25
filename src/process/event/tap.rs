//! The tap of a process whose steps are recorded or replayed.

use crate::pid::Pid;
use crate::process::reply::Completion;
use crate::sched::mailbox::{Control, Envelope};

/// Sees the events of the steps of one process, in the order in which they are taken. Or says what they are.
///
/// A tap lies beside the messages that were passed over. So a process without one does not look for it.
pub(crate) trait EventTap<M>: Send {
    /// Returns the next event of a replay. `None` if the tap records.
    fn replay(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Option<Replayed<M>>;

    /// A message was shown to the step. If it is `wanted`, the step takes it next. Otherwise it was passed over.
    fn shown(&mut self, message: &M, wanted: bool);

    /// The step takes the message that was shown last. It came from this process.
    fn taken(&mut self, from: Option<Pid>);

    fn completed(&mut self, completion: &Completion);

    fn control(&mut self, control: &Control);

    /// The step has asked for an event, and there was none.
    fn nothing(&mut self);
}

/// The next event of a replay.
pub(crate) enum Replayed<M> {
    Message(Envelope<M>),
    Completed(Completion),
    Control(Box<Control>),
    Nothing,
}
