//! A block for `#[actor]` that uses most of what the attribute knows. `expanded.rs` has the code that it writes.

use std::collections::VecDeque;
use std::fmt::Display;

use procession::actor::{Actions, actor};
use procession::command::CancelRequest;
use procession::exit::ExitSignal;
use procession::names::GroupEvent;
use procession::{BoxError, Down, Event, Pid, Reply};

/// A queue of jobs.
pub(crate) struct Queue<T, L, const N: usize> {
    pub(crate) jobs: VecDeque<T>,
    pub(crate) takers: VecDeque<Reply<T>>,
    pub(crate) label: L,
    pub(crate) seen: Vec<&'static str>,
}

#[actor(messages_a_step = 2)]
/// Handlers.
impl<T: Clone + Send + Sync + 'static, L: Display + Send + 'static, const N: usize> Queue<T, L, N>
where
    L: Clone,
{
    /// Adds a job.
    #[fails]
    pub(crate) fn push(&mut self, job: T, out: &mut Actions<Self>) -> Result<(), BoxError> {
        if self.jobs.len() == N {
            return Err(format!("{} of {} is full", out.pid(), self.label).into());
        }
        match self.takers.pop_front() {
            Some(taker) => out.reply(taker, job),
            None => self.jobs.push_back(job),
        }
        Ok(())
    }

    /// Takes the next job, as soon as there is one.
    pub(crate) fn take(&mut self, taker: Reply<T>, out: &mut Actions<Self>) {
        match self.jobs.pop_front() {
            Some(job) => out.reply(taker, job),
            None => self.takers.push_back(taker),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Replaces all jobs. The old ones come back.
    pub(crate) fn replace_all(&mut self, mut first: Vec<T>, rest: Vec<T>) -> Result<Vec<T>, Vec<T>> {
        first.extend(rest);
        if first.len() > N {
            return Err(first);
        }
        Ok(std::mem::replace(&mut self.jobs, first.into()).into())
    }

    #[fails]
    pub(crate) fn first(&self, r#type: &'static str) -> Result<(T, &'static str), &'static str> {
        Ok((self.jobs.front().cloned().ok_or("it is empty")?, r#type))
    }

    #[cfg(any())]
    pub(crate) fn never(&self) -> Nothing {}

    pub(crate) fn reset(&mut self) {
        self.jobs.clear();
    }

    #[on(start)]
    fn start(&mut self, out: &mut Actions<Self>) {
        out.subscribe("queues");
        self.seen.push("start");
    }

    #[on(stop)]
    fn asked_to_stop(&mut self, out: &mut Actions<Self>, request: CancelRequest) {
        drop(request);
        self.seen.push("stop");
        out.stop();
    }

    #[on(down)]
    #[fails]
    fn somebody_ended(&mut self, down: Down) -> Result<(), BoxError> {
        self.seen.push("down");
        down.exit.into_result().map_err(BoxError::from)
    }

    #[on(exit)]
    fn linked(&mut self, _exit: ExitSignal) {}

    #[on(group)]
    fn group(&mut self, event: GroupEvent, _: &mut Actions<Self>) {
        drop(event);
        self.seen.push("group");
    }

    #[on(other)]
    fn rest(&mut self, _event: Event<QueueMessage<T>>) {}

    #[on(finish)]
    #[fails]
    fn total(&mut self) -> Result<(Option<Pid>, Vec<&'static str>), std::convert::Infallible> {
        Ok((None, std::mem::take(&mut self.seen)))
    }
}
