//! Timers of many tasks, on raw tokio: each task sets one after the other. They fire, or they are cancelled long
//! before.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{TIMERS_EACH, Walk};
use crate::peers::{REPORTS, tokio_runtime_with_timers};

/// The delay of a timer that is cancelled. It never passes.
const LONG: Duration = Duration::from_secs(3_600);

/// Sleeps for several random durations.
async fn sleep_often(mut walk: Walk, timers: u64) -> u64 {
    for _ in 0..timers {
        sleep(walk.delay()).await;
    }
    timers
}

/// Gives something a time limit that is not reached. The timer is set because the task yields, and cancelled when it
/// goes on.
async fn cancel_often(timers: u64) -> u64 {
    let mut cancelled = 0;
    for _ in 0..timers {
        cancelled += u64::from(timeout(LONG, yield_now()).await.is_ok());
    }
    cancelled
}

pub(crate) fn fired(setting: &Setting) -> Outcome<Measured> {
    set_timers(setting, |task, timers| sleep_often(Walk::new(task), timers))
}

pub(crate) fn cancelled(setting: &Setting) -> Outcome<Measured> {
    set_timers(setting, |_, timers| cancel_often(timers))
}

/// Runs tasks that set timers. `timers` is the work of the task with this number, which sets so many.
fn set_timers<T: Future<Output = u64> + Send + 'static>(
    setting: &Setting,
    timers: impl Fn(u64, u64) -> T,
) -> Outcome<Measured> {
    let runtime = tokio_runtime_with_timers(setting)?;
    let tasks = (setting.n / TIMERS_EACH).max(1);
    let (mut begins, mut running) = (Vec::new(), Vec::new());
    for task in 0..tasks {
        let (begin, begun) = oneshot::channel::<()>();
        let timers = timers(task, setting.share(task, tasks));
        running.push(runtime.spawn(async move {
            // A begin that fails makes the number of timers wrong.
            let timers = if begun.await.is_ok() { timers.await } else { 0 };
            REPORTS.strike();
            timers
        }));
        begins.push(begin);
    }
    REPORTS.expect(tasks);
    let began = Instant::now();
    for begin in begins {
        let _ = begin.send(());
    }
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    let mut answered = 0;
    for task in running {
        answered += runtime.block_on(task)?;
    }
    check("timers answered", answered, setting.n)?;
    Ok(measured)
}
