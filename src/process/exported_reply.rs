//! Replies that travel between nodes.
//!
//! **The asker's side.** A message with a [`Reply`] is encoded, sent, and dropped. From then on the connection answers
//! the question, by its number. So the drop of the emptied reply tells the asker nothing: the question is *exported*.
//! An encoder that fails, or a message that is handed back, takes the export back.
//!
//! **The other side.** The reply that is decoded there has a question of its own, whose asker is the number.
//!
//! **Why the other side is told when the asker gives up.** The thread that exports writes this into the question, and
//! then looks whether the question is decided. A thread that decides it looks for the export afterwards. Both change
//! the same word in between, so at least one thread sees the change of the other.

use super::far_asker::{Exported, FarAsker};
use super::host::CountedHost;
use super::reply::{Ask, Asker, Reply, Special};
use crate::pid::Pid;
use crate::primitives::{Arc, Ordering, lock};

impl Ask {
    /// Whether the reply is on another node. That node answers it.
    pub(crate) fn is_exported(&self) -> bool {
        matches!(&*lock(&self.special), Some(Special::Exported(_)))
    }

    /// Exports the question. Tells the connection if the asker has given up already.
    pub(crate) fn export(&self, exported: Exported) {
        *lock(&self.special) = Some(Special::Exported(exported));
        if !self.is_open_now() {
            self.close_export();
        }
    }

    /// Decides the question, because its asker on another node waits no longer.
    pub(crate) fn close(&self) {
        if !self.decided.swap(true, Ordering::AcqRel) {
            self.close_export();
        }
    }

    /// Notes the process of another node that has answered.
    pub(crate) fn set_answered_by(&self, pid: Option<Pid>) {
        if let Some(pid) = pid {
            // Ordering: Relaxed: it is read with the completion, and the lock of the asker's cell orders the two.
            self.answered_by.store(pid.to_word(), Ordering::Relaxed);
        }
    }

    /// The process that was asked.
    pub(crate) fn target(&self) -> Pid {
        self.target
    }

    /// Takes the export back, because the reply was not sent.
    pub(crate) fn take_export_back(&self) {
        let mut special = lock(&self.special);
        if matches!(&*special, Some(Special::Exported(_))) {
            *special = None;
        }
    }

    /// Tells the connection that the question is decided, if its reply is on another node.
    pub(super) fn close_export(&self) {
        let exported = match &*lock(&self.special) {
            Some(Special::Exported(exported)) => exported.clone(),
            _ => return,
        };
        if let Some(desk) = exported.desk.upgrade() {
            desk.closed(exported.number);
        }
    }
}

impl<T: Send + 'static> Reply<T> {
    /// The reply to a question of another node.
    pub(crate) fn to_elsewhere(asker: FarAsker, host: CountedHost, target: Pid) -> Reply<T> {
        Reply::new(Arc::new(Ask::new::<T>(host, Asker::Elsewhere(asker), target)))
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitives::{Mutex, Weak, thread};
    use crate::process::CommandError;
    use crate::process::far_asker::ClosesElsewhere;
    use crate::process::host::{Clerk, Host};

    /// Counts how often it was told.
    #[derive(Default)]
    struct Desk(Mutex<u32>);

    impl ClosesElsewhere for Desk {
        fn closed(&self, _: u64) {
            *lock(&self.0) += 1;
        }
    }

    /// Fails if the thread that exports looks for the decision before it writes the mark, or looks with a plain load,
    /// and if the thread that decides does not look for the mark.
    #[test]
    fn a_reply_is_exported_while_its_asker_gives_up() {
        loom::model(|| {
            let (clerk, desk) = (Arc::new(Clerk::default()), Arc::new(Desk::default()));
            let host: Arc<dyn Host> = clerk;
            let ask = Arc::new(Ask::of_process::<u64>(Arc::new(host), Pid::FIRST, 1, Pid::FIRST));
            let gives_up = ask.clone();
            let limit = thread::spawn(move || gives_up.give_up(CommandError::TimedOut));
            let weak = Arc::downgrade(&desk) as Weak<dyn ClosesElsewhere>;
            ask.export(Exported { desk: weak, number: 3 });
            limit.join().unwrap();
            assert!(*lock(&desk.0) >= 1, "the other node keeps a reply that nobody waits for");
        });
    }
}
