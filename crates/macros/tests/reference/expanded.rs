//! The code that `#[actor]` writes for the block in `block.rs`. The same file can be written by hand.

use std::collections::VecDeque;
use std::fmt::Display;

use procession::actor::Actions;
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

/// Handlers.
impl<T: Clone + Send + Sync + 'static, L: Display + Send + 'static, const N: usize> Queue<T, L, N>
where
    L: Clone,
{
    /// Adds a job.
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

    pub(crate) fn first(&self, r#type: &'static str) -> Result<(T, &'static str), &'static str> {
        Ok((self.jobs.front().cloned().ok_or("it is empty")?, r#type))
    }

    #[cfg(any())]
    pub(crate) fn never(&self) -> Nothing {}

    pub(crate) fn reset(&mut self) {
        self.jobs.clear();
    }

    fn start(&mut self, out: &mut Actions<Self>) {
        out.subscribe("queues");
        self.seen.push("start");
    }

    fn asked_to_stop(&mut self, out: &mut Actions<Self>, request: CancelRequest) {
        drop(request);
        self.seen.push("stop");
        out.stop();
    }

    fn somebody_ended(&mut self, down: Down) -> Result<(), BoxError> {
        self.seen.push("down");
        down.exit.into_result().map_err(BoxError::from)
    }

    fn linked(&mut self, _exit: ExitSignal) {}

    fn group(&mut self, event: GroupEvent, _: &mut Actions<Self>) {
        drop(event);
        self.seen.push("group");
    }

    fn rest(&mut self, _event: Event<QueueMessage<T>>) {}

    fn total(&mut self) -> Result<(Option<Pid>, Vec<&'static str>), std::convert::Infallible> {
        Ok((None, std::mem::take(&mut self.seen)))
    }
}

/// The messages of `Queue`.
pub(crate) enum QueueMessage<T: Clone + Send + Sync + 'static> {
    /// Adds a job.
    Push(T),
    /// Takes the next job, as soon as there is one.
    Take(Reply<T>),
    Len(::procession::Reply<usize>),
    /// Replaces all jobs. The old ones come back.
    ReplaceAll(Vec<T>, Vec<T>, ::procession::Reply<Result<Vec<T>, Vec<T>>>),
    First(&'static str, ::procession::Reply<(T, &'static str)>),
    #[cfg(any())]
    Never(::procession::Reply<Nothing>),
    Reset,
}

impl<T: Clone + Send + Sync + 'static, L: Display + Send + 'static, const N: usize> ::procession::actor::Actor
    for Queue<T, L, N>
where
    L: Clone,
{
    type Message = QueueMessage<T>;
    type Output = (Option<Pid>, Vec<&'static str>);

    const MESSAGES_A_STEP: usize = 2;

    fn receive(
        &mut self,
        message: QueueMessage<T>,
        out: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        match message {
            QueueMessage::Push(job) => Self::push(self, job, out)?,
            QueueMessage::Take(taker) => Self::take(self, taker, out),
            QueueMessage::Len(reply) => {
                let answer = Self::len(self);
                out.reply(reply, answer);
            }
            QueueMessage::ReplaceAll(first, rest, reply) => {
                let answer = Self::replace_all(self, first, rest);
                out.reply(reply, answer);
            }
            QueueMessage::First(r#type, reply) => {
                let answer = Self::first(self, r#type)?;
                out.reply(reply, answer);
            }
            #[cfg(any())]
            QueueMessage::Never(reply) => {
                let answer = Self::never(self);
                out.reply(reply, answer);
            }
            QueueMessage::Reset => Self::reset(self),
        }
        ::core::result::Result::Ok(())
    }

    fn start(
        &mut self,
        out: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        Self::start(self, out);
        ::core::result::Result::Ok(())
    }

    fn stop(
        &mut self,
        event: ::procession::command::CancelRequest,
        out: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        Self::asked_to_stop(self, out, event);
        ::core::result::Result::Ok(())
    }

    fn down(
        &mut self,
        event: ::procession::Down,
        _: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        Self::somebody_ended(self, event)?;
        ::core::result::Result::Ok(())
    }

    fn exit(
        &mut self,
        event: ::procession::exit::ExitSignal,
        _: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        Self::linked(self, event);
        ::core::result::Result::Ok(())
    }

    fn group(
        &mut self,
        event: ::procession::names::GroupEvent,
        out: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        Self::group(self, event, out);
        ::core::result::Result::Ok(())
    }

    fn other(
        &mut self,
        event: ::procession::Event<Self::Message>,
        _: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(), ::procession::BoxError> {
        Self::rest(self, event);
        ::core::result::Result::Ok(())
    }

    fn finish(
        &mut self,
        _: &mut ::procession::actor::Actions<Self>,
    ) -> ::core::result::Result<(Option<Pid>, Vec<&'static str>), ::procession::BoxError> {
        ::core::result::Result::Ok(Self::total(self)?)
    }
}

/// The calls of `Queue`: one for each of its messages.
#[allow(dead_code)]
pub(crate) trait QueueCalls<T: Clone + Send + Sync + 'static>:
    ::procession::actor::Reach<QueueMessage<T>>
{
    /// Adds a job.
    fn push(
        &self,
        job: T,
    ) -> ::core::result::Result<(), ::procession::Rejected<QueueMessage<T>, ::procession::SendError>> {
        ::procession::actor::Reach::reach_send(self, QueueMessage::Push(job))
    }

    /// Takes the next job, as soon as there is one.
    fn take(&self) -> ::procession::AskFuture<T> {
        ::procession::actor::Reach::reach_ask(self, |taker| QueueMessage::Take(taker), ::procession::actor::CALL_LIMIT)
    }

    fn len(&self) -> ::procession::AskFuture<usize> {
        ::procession::actor::Reach::reach_ask(self, |reply| QueueMessage::Len(reply), ::procession::actor::CALL_LIMIT)
    }

    /// Replaces all jobs. The old ones come back.
    fn replace_all(&self, first: Vec<T>, rest: Vec<T>) -> ::procession::AskFuture<Result<Vec<T>, Vec<T>>> {
        ::procession::actor::Reach::reach_ask(
            self,
            |reply| QueueMessage::ReplaceAll(first, rest, reply),
            ::procession::actor::CALL_LIMIT,
        )
    }

    fn first(&self, r#type: &'static str) -> ::procession::AskFuture<(T, &'static str)> {
        ::procession::actor::Reach::reach_ask(
            self,
            |reply| QueueMessage::First(r#type, reply),
            ::procession::actor::CALL_LIMIT,
        )
    }

    #[cfg(any())]
    fn never(&self) -> ::procession::AskFuture<Nothing> {
        ::procession::actor::Reach::reach_ask(self, |reply| QueueMessage::Never(reply), ::procession::actor::CALL_LIMIT)
    }

    fn reset(&self) -> ::core::result::Result<(), ::procession::Rejected<QueueMessage<T>, ::procession::SendError>> {
        ::procession::actor::Reach::reach_send(self, QueueMessage::Reset)
    }
}

impl<T: Clone + Send + Sync + 'static, R: ::procession::actor::Reach<QueueMessage<T>>> QueueCalls<T> for R {}
