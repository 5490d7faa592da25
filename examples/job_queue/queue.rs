//! The queue: it runs the jobs, a window at a time, and counts those that are done.

use std::fmt;
use std::time::Duration;

use indicatif::ProgressBar;
use procession::command::{CancelRequest, Command, Retry};
use procession::prelude::*;

use crate::storage::{Hash, Read, Write};

/// The most jobs at a time. A call should not wait long for its turn, because that counts as a part of its limit.
const WINDOW: u64 = 64;

/// A call that takes longer is given up, and repeated.
const LIMIT: Duration = Duration::from_millis(250);

/// Yields a command, and repeats it if it fails.
fn call<C: Command + Clone>(command: C, out: &mut StepOutput) -> Tag<C::Output> {
    let retry = Retry::new().attempts(20).first_pause(Duration::from_millis(1)).cap(Duration::from_millis(500));
    out.retry(retry, move |out, _attempt| out.command_timeout(command.clone(), LIMIT))
}

/// Three stages, one after the other. If one fails in spite of all attempts, the job fails.
struct Job(u64);

#[actor]
impl Job {
    #[on(start)]
    fn begin(&mut self, out: &mut Actions<Self>) {
        call(Read(self.0), out).then(out, |_, block, out| {
            call(Hash(block?), out).then(out, |job, hash, out| {
                call(Write(job.0, hash?), out).then(out, |_, written, out| {
                    out.stop();
                    Ok(written?)
                });
                Ok(())
            });
            Ok(())
        });
    }
}

/// The state of the jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) jobs: u64,
    pub(crate) done: u64,
    failed: u64,
    last_error: Option<String>,
    /// Why the queue ended before its jobs.
    pub(crate) stopped: Option<Reason>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { jobs, done, failed, .. } = self;
        write!(f, "{done} done, {failed} failed, {} not done", jobs - done - failed)?;
        self.last_error.iter().try_for_each(|error| write!(f, "; the last error: {error}"))?;
        self.stopped.iter().try_for_each(|reason| write!(f, "; stopped: {reason}"))
    }
}

struct Queue {
    report: Report,
    begun: u64,
    deadline: Duration,
    bar: ProgressBar,
}

/// A process that runs the jobs.
pub(crate) fn queue(jobs: u64, deadline: Duration, bar: ProgressBar) -> impl Process<Output = Report> {
    actor(Queue { report: Report { jobs, ..Report::default() }, begun: 0, deadline, bar })
}

impl Queue {
    /// Runs the next job. Its end runs another one.
    fn next(&mut self, out: &mut Actions<Self>) {
        if self.begun == self.report.jobs {
            return;
        }
        out.run(actor(Job(self.begun))).then(out, |queue, ended, out| {
            match ended {
                Ok(()) => queue.report.done += 1,
                Err(error) => {
                    queue.report.failed += 1;
                    queue.report.last_error = Some(error.to_string());
                }
            }
            queue.bar.inc(1);
            if queue.report.done + queue.report.failed == queue.report.jobs {
                out.stop();
            }
            queue.next(out);
            Ok(())
        });
        self.begun += 1;
    }
}

#[actor]
impl Queue {
    #[on(start)]
    fn begin(&mut self, out: &mut Actions<Self>) {
        (0..WINDOW).for_each(|_| self.next(out));
        let me = out.address();
        out.after(self.deadline).then(out, move |_, _, out| {
            out.cancel(me, Reason::TimedOut);
            Ok(())
        });
    }

    /// The jobs that run end with the queue.
    #[on(stop)]
    fn stop(&mut self, request: CancelRequest, out: &mut Actions<Self>) {
        self.report.stopped = Some(request.reason);
        out.stop();
    }

    #[on(finish)]
    fn report(&mut self) -> Report {
        self.bar.finish_and_clear();
        std::mem::take(&mut self.report)
    }
}
