//! The queue: it runs the jobs, a window at a time, and counts those that are done.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use indicatif::ProgressBar;
use procession::command::{Command, Retry};
use procession::prelude::*;
use procession::{BoxError, CommandError};

use crate::Options;
use crate::storage::{Hash, Read, Write};

/// The most jobs at a time. A call should not wait long for its turn, because that counts as a part of its limit.
const WINDOW: usize = 64;

/// A call that takes longer is given up, and repeated.
const LIMIT: Duration = Duration::from_millis(250);

/// Performs a command, and repeats it if it fails.
async fn call<C: Command + Clone>(command: C, context: &Context<()>) -> Result<C::Output, CommandError> {
    let retry = Retry::new().attempts(20).first_pause(Duration::from_millis(1)).cap(Duration::from_millis(500));
    context.perform(|out| out.retry(retry, move |out, _attempt| out.command_timeout(command.clone(), LIMIT))).await
}

/// Three stages, one after the other. If one fails in spite of all attempts, the job fails.
async fn job(context: Context<()>, number: u64) -> Result<(), BoxError> {
    let block = call(Read(number), &context).await?;
    let hash = call(Hash(block), &context).await?;
    Ok(call(Write(number, hash), &context).await?)
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
        write!(f, "{} done, {} failed, {} not done", self.done, self.failed, self.jobs - self.done - self.failed)?;
        self.last_error.iter().try_for_each(|error| write!(f, "; the last error: {error}"))?;
        self.stopped.iter().try_for_each(|reason| write!(f, "; stopped: {reason}"))
    }
}

/// Runs the jobs. Those that run when it ends, end with it.
pub(crate) async fn queue(context: Context<()>, options: Options) -> Result<Report, BoxError> {
    let bar = ProgressBar::new(options.jobs);
    let (mut report, mut begun) = (Report { jobs: options.jobs, ..Report::default() }, 0);
    let mut running = HashMap::new();
    let deadline = context.out(|out| out.after(Duration::from_secs(options.deadline)));
    while report.stopped.is_none() && report.done + report.failed < report.jobs {
        while running.len() < WINDOW && begun < report.jobs {
            let job = context.out(|out| out.run(async_process(move |context| job(context, begun))));
            running.insert(job.id(), job);
            begun += 1;
        }
        match context.receive().await {
            Event::Cancel(request) => report.stopped = Some(request.into_inner().reason),
            Event::Completed(fired) if fired.is(deadline) => report.stopped = Some(Reason::TimedOut),
            Event::Completed(ended) => match running.remove(&ended.tag()).and_then(|job| ended.take(job)) {
                Some(Err(error)) => (report.failed, report.last_error) = (report.failed + 1, Some(error.to_string())),
                Some(Ok(())) => report.done += 1,
                None => {}
            },
            _ => {}
        }
        bar.set_position(report.done + report.failed);
    }
    bar.finish_and_clear();
    Ok(report)
}
