//! Children whose output is the answer to a command.

use std::time::Duration;

use super::command::{CommandError, Tag};
use super::contract::Process;
use super::duty::Duty;
use super::output_answer::OutputAnswer;
use super::relation::Bond;
use super::spawn::{SpawnOptions, described_body};
use crate::outcome::{Failure, drop_contained};
use crate::sched::body::{StepOutput, Yield};

/// Children whose output is the answer to a command.
impl StepOutput {
    /// Runs another process as a child. The command is answered with the child's output.
    ///
    /// If the child ends in another way, the answer is [`CommandError::ChildExit`] with its exit. That also holds if
    /// its `init` fails. If the child cannot be spawned, the answer is a [`SpawnError`](super::SpawnError) in a
    /// [`CommandError::Failed`], and the child is dropped. In no case does the end of the child end this process.
    ///
    /// The child ends with this process. However this process ends, the child is terminated with
    /// [`Reason::Linked`](crate::Reason::Linked). The same happens if this process recovers from a failure. A child
    /// that [traps exits](SpawnOptions::trap_exits) is not terminated. It gets an [`Event::Exit`](super::Event::Exit)
    /// with the PID and the exit of this process, and should end soon. An upgrade of this process does not end the
    /// child. With [`SpawnOptions::parent_end`] the child is asked to stop instead, or left. To make a child that is
    /// yielded with [`Step::Done`](super::Step::Done), use [`spawn`](Self::spawn). A step may
    /// [cancel](Self::cancel_command) the command before the child has ended.
    ///
    /// This process may return [`Step::Wait`](super::Step::Wait) until the child has ended. Then it takes no messages.
    /// So the child must not ask it.
    ///
    /// ```
    /// use procession::{BoxError, CommandError, Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag};
    ///
    /// struct Square(u64);
    ///
    /// impl Process for Square {
    ///     type Message = ();
    ///     type Output = u64;
    ///
    ///     fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<u64> {
    ///         Ok(Step::Done(self.0.checked_mul(self.0).ok_or("too large")?))
    ///     }
    /// }
    ///
    /// struct Parent { square: Option<Tag<u64>> }
    ///
    /// impl Process for Parent {
    ///     type Message = ();
    ///     type Output = Result<u64, CommandError>;
    ///
    ///     fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
    ///         self.square = Some(out.run(Square(12)));
    ///         Ok(())
    ///     }
    ///
    ///     fn step(&mut self, events: &mut Events<()>, _: &mut StepOutput) -> StepResult<Self::Output> {
    ///         for event in events {
    ///             if let Event::Completed(done) = event && let Some(answer) = done.take(self.square) {
    ///                 return Ok(Step::Done(answer));
    ///             }
    ///         }
    ///         Ok(Step::Wait)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().workers(2).start()?;
    /// let parent = runtime.spawn(Parent { square: None })?;
    /// assert!(matches!(**parent.join()?.output().unwrap(), Ok(144)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<P: Process>(&mut self, process: P) -> Tag<P::Output> {
        self.run_with(process, SpawnOptions::new())
    }

    /// As [`run`](Self::run), with options for the child. The options that relate a child to its parent
    /// ([`link`](SpawnOptions::link), [`monitor`](SpawnOptions::monitor),
    /// [`report_started`](SpawnOptions::report_started)) are refused, because the command itself relates the two: the
    /// answer is a [`SpawnError`](super::SpawnError) in a [`CommandError::Failed`], and the child is dropped.
    pub fn run_with<P: Process>(&mut self, process: P, options: SpawnOptions) -> Tag<P::Output> {
        self.run_child(process, options, Duration::MAX)
    }

    /// As [`run`](Self::run), with a limit by the runtime's clock. When the limit is over, the command is answered with
    /// [`CommandError::TimedOut`] at once. Then the child is ended as if a step had
    /// [cancelled](Self::cancel_command) the command, with [`Reason::TimedOut`](crate::Reason::TimedOut).
    ///
    /// [`Duration::MAX`] is no limit. The limit begins when the yields of the step are performed. If the runtime has no
    /// thread for its timers, the child does not start, and the answer is [`CommandError::Cancelled`] with the reason.
    pub fn run_timeout<P: Process>(&mut self, process: P, limit: Duration) -> Tag<P::Output> {
        self.run_child(process, SpawnOptions::new(), limit)
    }

    fn run_child<P: Process>(&mut self, process: P, options: SpawnOptions, limit: Duration) -> Tag<P::Output> {
        let checked = options.check_unrelated().and_then(|()| options.check::<P>());
        let pid = match checked.and_then(|()| self.vacancy()) {
            Ok(pid) => pid,
            Err(why) => {
                drop_contained(process);
                return self.refused(CommandError::Failed(Failure::new(why)));
            }
        };
        if let Some(name) = &options.name {
            self.pending_names().give(name, pid);
        }
        let policy = options.parent_end;
        let mut body = described_body(process, pid, options, None);
        body.machine.keep_output();
        let tag: Tag<P::Output> = self.tag();
        let run = Some((self.new_number(), policy));
        let duty = Duty::of_run((*self.link).clone(), self.pid, tag.id(), pid);
        let rare = body.head.rare();
        rare.bond = Some(Bond { parent: self.pid, monitor: None, watcher: self.pid, link: false, run });
        rare.given.get_or_insert_default().answer = Some(OutputAnswer::new(duty.clone()));
        // Performed before the spawn, so that the limit is set before the child can answer.
        self.push(Yield::BeginRun { duty, limit });
        self.push(Yield::Spawn(body));
        tag
    }
}
