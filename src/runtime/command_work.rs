//! Commands of processes that handlers and the pool work on: they are begun, limited and cancelled.

use std::any::Any;
use std::time::Duration;

use super::dispatch::Core;
use super::simulated::{BlockingFate, INJECTED};
use super::timed::Timed;
use crate::cancel::CancelToken;
use crate::outcome::{Reason, drop_contained};
use crate::primitives::Arc;
use crate::process::duty::{CommandCancel, Entrust};
use crate::process::future_output::TracedFuture;
use crate::process::handler::BoxedCommand;
use crate::process::propagation::in_trace;
use crate::process::{AnyHandler, CommandError, Duty, Pid};
use crate::sched::body::{Head, Rare, Ready, Stage, Work};
use crate::sched::open_work::OpenWork;
use crate::sched::polling::in_context;
use crate::sched::road::Executor;
use crate::sched::trace_marks::Context;

/// The context of a command that the process in hand has yielded.
fn trace_of(body: &mut Ready, tag: u64) -> Option<Context> {
    body.machine.mailbox().signals().as_ref()?.traces.as_ref()?.command(tag).cloned()
}

impl Core {
    /// The work of a process that others do for it. Its token is cancelled when the process has ended, or when its
    /// state machine has failed.
    fn work_of<'a>(&self, head: &'a mut Head) -> (&'a mut OpenWork, CancelToken) {
        let work = head.rare().work.get_or_insert_default();
        let cancel = work.cancel.get_or_insert_with(|| CancelToken::with_clock(self.road.clock.clone())).clone();
        (work, cancel)
    }

    /// Cancels the timers of a process, and asks its jobs and handlers to stop.
    pub(super) fn take_work_back(&self, pid: Pid, rare: &mut Rare) {
        for key in rare.timers.take() {
            self.timers.cancel(key.id());
        }
        if let Some(mut work) = rare.work.take() {
            work.take_commands().for_each(|duty| duty.forget_timer());
            if let Some(cancel) = &work.cancel {
                cancel.cancel(Reason::Ended);
            }
            for to in work.receivers() {
                self.road.withdraw_all(&mut self.executor(), *to, pid);
            }
        }
    }

    /// Gives a command to its handler.
    pub(super) fn command<H: Executor>(
        &self,
        body: &mut Ready,
        tag: u64,
        command: BoxedCommand,
        limit: Duration,
        executor: &mut H,
    ) {
        let refused = match (self.handlers.get(&command.kind()), self.shared()) {
            (Some(AnyHandler::Async(handler)), _) => {
                let (kind, context) = ((command.kind(), command.name), trace_of(body, tag));
                let mut future = in_trace(context.as_deref(), || handler.future(command.command));
                if let Some(context) = context {
                    future = Box::pin(TracedFuture { future, context });
                }
                let relayed = match &self.simulation {
                    None => Ok(future),
                    Some(simulation) => simulation.relay_future((body.head.pid, tag), kind, future),
                };
                return match relayed {
                    Ok(future) => self.host_future(body, tag, future, limit, executor),
                    Err(why) => self.road.answer_in_hand(executor, body, tag, Err(why)),
                };
            }
            (Some(AnyHandler::Call(handler)), Some(core)) => {
                let (pid, context) = (body.head.pid, trace_of(body, tag));
                let (work, cancel) = self.work_of(&mut body.head);
                let duty = Duty::new(core, pid, tag, cancel);
                work.note(&duty);
                let mut begun = self.limit_command(&duty, limit, executor).map(|()| duty.clone());
                if let (Ok(duty), Some(simulation)) = (&begun, &self.simulation) {
                    begun = simulation.relay(duty, (command.kind(), command.name));
                }
                match begun {
                    Ok(duty) => {
                        // The handler is user code on this thread.
                        executor.let_go();
                        return in_trace(context.as_deref(), || handler(command.command, duty));
                    }
                    Err(why) => {
                        duty.give_up();
                        why
                    }
                }
            }
            _ => CommandError::Unknown { name: command.name },
        };
        self.road.answer_in_hand(executor, body, tag, Err(refused));
        executor.let_go();
        drop_contained(command.command);
    }

    fn limit_command<H: Executor>(&self, duty: &Arc<Duty>, limit: Duration, executor: &H) -> Result<(), CommandError> {
        // Without a limit there is no timer, and the clock is not read.
        if limit < Duration::MAX {
            match self.timers.after(executor.number(), limit, Timed::Command(Arc::downgrade(duty))) {
                Ok(Some(key)) => duty.set_timer(key.id()),
                Ok(None) => {}
                Err(_) => return Err(CommandError::Cancelled(self.why_no_timer())),
            }
        }
        Ok(())
    }

    /// Answers an open command with `Cancelled`.
    pub(super) fn cancel_command<H: Executor>(&self, body: &mut Ready, tag: u64, executor: &mut H) {
        let Some(rare) = &body.head.rare else { return };
        let cancelled = || Err(CommandError::Cancelled(Reason::Cancelled));
        if let Some(duty) = rare.work.as_ref().and_then(|work| work.command(tag)) {
            if duty.give_up() {
                self.road.answer_in_hand(executor, body, tag, cancelled());
                // The callbacks of the token are user code.
                executor.let_go();
                duty.stop_work(Reason::Cancelled);
            }
        } else if self.withdraw_send(body.head.pid, rare, tag, executor) {
            // Its message comes back with the answer.
        } else if let Some(ask) = rare.asked.find(tag).cloned() {
            ask.give_up(CommandError::Cancelled(Reason::Cancelled));
        } else {
            self.cancel_timer(body, tag, executor);
            self.drop_future(body, tag, Reason::Cancelled, executor);
        }
    }

    /// Sets the limit of a child that the process runs. The child is spawned next.
    pub(super) fn begin_run<H: Executor>(&self, body: &mut Ready, duty: Arc<Duty>, limit: Duration, executor: &mut H) {
        body.head.rare().work.get_or_insert_default().note(&duty);
        if let Err(why) = self.limit_command(&duty, limit, executor)
            && duty.give_up()
        {
            self.road.answer_in_hand(executor, body, duty.tag(), Err(why));
        }
    }

    /// Ends a child whose output is not wanted any more.
    pub(super) fn end_child(&self, child: Pid, reason: Reason) {
        let executor = &mut self.executor();
        if self.road.table.cell(child).is_some_and(|cell| cell.traps_exits(child)) {
            drop(self.cancel(executor, child, reason, None));
        } else {
            drop(self.terminate(executor, child, false));
        }
    }

    /// Gives the duty to answer a command to a process that makes the attempts of a retry.
    pub(super) fn entrust(&self, head: &mut Head, tag: u64, entrust: Entrust) {
        let Some(core) = self.shared() else { return };
        let pid = head.pid;
        let (work, cancel) = self.work_of(head);
        let duty = Duty::new(core, pid, tag, cancel);
        work.note(&duty);
        entrust(duty);
    }

    /// Runs a blocking closure of a process on the pool.
    pub(super) fn block<H: Executor>(&self, head: &mut Head, tag: u64, work: Work, executor: &mut H) {
        let Some(core) = self.shared() else { return };
        // Work that is yielded with `Done` is cancelled by the shutdown of the runtime, not by the end of the process.
        let work = match &self.simulation {
            Some(simulation) if matches!(simulation.blocking_fate(head.pid), BlockingFate::Panics) => {
                drop_contained(work);
                Box::new(panics)
            }
            _ => work,
        };
        let duty = if head.stage == Stage::Done {
            Duty::new(core.clone(), head.pid, tag, self.over.child())
        } else {
            let pid = head.pid;
            let (work, cancel) = self.work_of(head);
            let duty = Duty::new(core.clone(), pid, tag, cancel);
            work.note(&duty);
            duty
        };
        let job = BlockingJob { core, duty, work: Some(work) };
        if let Some(simulation) = &self.simulation {
            return simulation.job(head.pid, Box::new(move || job.run()));
        }
        // A job that is refused is dropped, and its drop answers.
        if let Err(refused) = self.pool.execute(move || job.run()) {
            executor.let_go();
            drop(refused);
        }
    }
}

/// Runs in the place of a blocking closure that a simulation makes panic. The panic hook is not called.
fn panics(_: &CommandCancel) -> Box<dyn Any + Send> {
    std::panic::resume_unwind(Box::new(INJECTED))
}

/// A blocking closure of a process. It answers its command when it has run. If it is dropped before, its drop answers.
struct BlockingJob {
    core: Arc<Core>,
    duty: Arc<Duty>,
    work: Option<Work>,
}

impl BlockingJob {
    fn run(mut self) {
        let Some(work) = self.work.take() else { return };
        if !self.duty.is_open() {
            // The command was cancelled, and has its answer.
            return drop_contained(work);
        }
        let answer = match self.core.over.check().and_then(|()| self.duty.cancel().check()) {
            Ok(()) => in_context(&*self.core, || work(self.duty.cancel())),
            Err(reason) => Err(CommandError::Cancelled(reason)),
        };
        self.duty.answer(answer);
    }
}

impl Drop for BlockingJob {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            drop_contained(work);
            if self.duty.is_open() {
                self.duty.answer(Err(CommandError::Cancelled(self.core.why_no_job())));
            }
        }
    }
}
