//! Calls by which a program says how its store works.

use std::any::TypeId;
use std::fmt;

use super::answer_type::AnswerType;
use super::contract::Stored;
use super::query::Shown;
use super::store::StoreBuilder;
use crate::outcome::BoxError;

impl StoreBuilder {
    /// Names a type of answers. A question between two processes of the store is stored if its answer has such a type.
    ///
    /// A stored question survives the end of the program, and gets exactly one answer: the value, that the asked
    /// process has ended, that the reply was dropped, or that its limit is over. Both processes may sleep meanwhile.
    /// The limit is a time of the wall clock. Taking a stored question writes a record, also if the step changes
    /// nothing.
    ///
    /// A question whose answer has another type is in memory only. If the program ends before its answer is taken, the
    /// asker gets [`CommandError::Interrupted`](crate::CommandError::Interrupted) in the next run. The same is true for
    /// a message that also has a reply to a question from outside the store.
    ///
    /// A process answers a stored question with [`StepOutput::reply`](crate::StepOutput::reply), in this step or in a
    /// later one. It may keep the [`Reply`](crate::Reply) in its state, or send it to another process of the store. If
    /// it moves the reply elsewhere, for example into a thread or a message to an ordinary process, the asker gets
    /// [`CommandError::Dropped`](crate::CommandError::Dropped).
    ///
    /// The name is stored with each answer. A later program must give the type the same name. Answers are stored as
    /// JSON.
    #[must_use]
    pub fn answers<T: Stored + Send + 'static>(mut self, name: &'static str) -> StoreBuilder {
        if self.answers.values().any(|other| other.name == name) {
            self.same_name = Some(name);
        }
        self.answers.insert(TypeId::of::<T>(), AnswerType::of::<T>(name));
        self
    }

    /// Sets whether a process goes on before its last step is on disk. The default is `true`.
    ///
    /// With `false` a process takes no step until everything that it rests on is on disk: its last step, and the
    /// messages, answers, requests and notices that it was given. So a message between two processes of the store waits
    /// for a commit. The promises are the same, and everything is slower. Use it to find out whether a fault depends on
    /// steps that do not wait.
    ///
    /// With `false` some effects come later, because a process whose step is not on disk does not look at its mail, its
    /// timers or a request to stop.
    #[must_use]
    pub fn ahead(mut self, ahead: bool) -> StoreBuilder {
        self.settings.ahead = ahead;
        self
    }

    /// Sets the largest size of a state, in bytes. The default is 1 MiB. A larger state fails its step, and a process
    /// with a larger state is not begun.
    ///
    /// A step writes the whole state. From 64 KiB on, one warning is logged for each process in each run. A record
    /// has at most 8 MiB, whatever the limit is.
    #[must_use]
    pub fn largest_state(mut self, bytes: usize) -> StoreBuilder {
        self.settings.largest_state = bytes;
        self
    }

    /// Sets the number of stored messages that may wait for one process. The default is 100,000. A process whose mail
    /// was stored under a higher limit takes all of it.
    ///
    /// A message to a full process is refused with [`SendError::Full`](crate::SendError::Full), and comes back. If the
    /// sender is a durable process, the message becomes a dead letter with that reason.
    #[must_use]
    pub fn mailbox_limit(mut self, messages: usize) -> StoreBuilder {
        self.settings.mailbox_limit = messages;
        self
    }

    /// Has each process that has ended given to `sink` before it is removed, for an archive outside of the store.
    /// [`keep`](Self::keep) says when that is.
    ///
    /// A thread of the pool calls the sink, with one process at a time. Each process is given at least once. It is
    /// given again if the program is killed between the call and the removal. If the sink returns an error, the process
    /// stays, and is given again after a minute. A damaged process is neither given nor removed.
    ///
    /// ```no_run
    /// use std::io::Write;
    ///
    /// use procession::durable::Store;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let archive = std::fs::File::options().append(true).create(true).open("ended.jsonl")?;
    /// let store = Store::open("orders").sink(move |ended| {
    ///     let mut line = serde_json::to_vec(ended)?;
    ///     line.push(b'\n');
    ///     (&archive).write_all(&line)?;
    ///     Ok(archive.sync_data()?)
    /// });
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sink(mut self, sink: impl Fn(&Shown) -> Result<(), BoxError> + Send + Sync + 'static) -> StoreBuilder {
        self.sink = Some(Box::new(sink));
        self
    }
}

impl fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreBuilder").field("kinds", &self.kinds.keys()).finish_non_exhaustive()
    }
}
