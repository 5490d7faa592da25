//! The acts, and the checks of their results.

use std::fmt::Display;
use std::time::{Duration, Instant};

use procession::pool::{JobHandle, Pacer, Pool};
use procession::{BoxError, CancelToken};

/// The amount of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) jobs: u64,
    pub(crate) takes: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { jobs: 40, takes: Duration::from_millis(20) }
    }
}

/// An act. It returns the line to print.
type Act = fn(&Pool, &Plan, &CancelToken) -> Result<String, BoxError>;

/// The interval between the jobs of act four, and the number of these jobs.
const EVERY: Duration = Duration::from_millis(40);
const PACED: u64 = 8;

/// The pool at this moment, in one line.
pub(crate) fn seen(pool: &Pool) -> String {
    let stats = pool.stats();
    format!(
        "{} of {} workers, {} running, {} waiting, {} finished{}",
        stats.workers,
        stats.max,
        stats.running,
        stats.waiting,
        stats.finished,
        if pool.is_paused() { ", paused" } else { "" }
    )
}

/// Runs all acts, or those before `stop` was cancelled. Each reports its result. A wrong result is an error.
pub(crate) fn play(pool: &Pool, plan: &Plan, stop: &CancelToken, mut tell: impl FnMut(&str)) -> Result<(), BoxError> {
    for act in [submit as Act, resize, pause, pace, panic] {
        if stop.is_cancelled() {
            return Ok(());
        }
        let line = act(pool, plan, stop)?;
        // A job that was asked to stop returns early, so its result proves nothing.
        if stop.is_cancelled() {
            return Ok(());
        }
        tell(&line);
    }
    Ok(())
}

/// Submits jobs that each take some time and return their number. When asked to stop, a job returns at once.
fn jobs(pool: &Pool, plan: &Plan, stop: &CancelToken) -> Result<Vec<JobHandle<u64>>, BoxError> {
    let (takes, stop) = (plan.takes, stop.clone());
    let job = move |number| {
        let stop = stop.clone();
        move || {
            let _ = stop.sleep(takes);
            number
        }
    };
    (0..plan.jobs).map(|number| Ok(pool.spawn(job(number))?)).collect()
}

fn sum(handles: Vec<JobHandle<u64>>) -> Result<u64, BoxError> {
    handles.into_iter().try_fold(0, |sum, handle| Ok(sum + handle.wait()?))
}

fn expect<T: PartialEq + Display>(what: &str, is: T, must_be: T) -> Result<(), BoxError> {
    if is == must_be { Ok(()) } else { Err(format!("{what}: {is}, and it must be {must_be}").into()) }
}

fn submit(pool: &Pool, plan: &Plan, stop: &CancelToken) -> Result<String, BoxError> {
    let handles = jobs(pool, plan, stop)?;
    let cancelled = handles.last().is_some_and(JobHandle::cancel);
    let (workers, jobs) = (pool.stats().workers, handles.len());
    expect("workers beyond the maximum", workers.saturating_sub(pool.stats().max), 0)?;
    let done = handles.into_iter().filter_map(|handle| handle.wait().ok()).count();
    expect("jobs done", done, jobs - usize::from(cancelled))?;
    let last = if cancelled { "; the last was cancelled before it began" } else { "" };
    Ok(format!("submitted {jobs} jobs, and {workers} workers came for them{last}"))
}

fn resize(pool: &Pool, plan: &Plan, stop: &CancelToken) -> Result<String, BoxError> {
    let handles = jobs(pool, plan, stop)?;
    pool.resize(0, 6)?;
    let most = pool.stats().workers;
    expect("sum of the values", sum(handles)?, plan.jobs * (plan.jobs - 1) / 2)?;
    pool.resize(0, 3)?;
    Ok(format!("resized from 2 to 6 while jobs waited: {most} workers; now at most 3"))
}

fn pause(pool: &Pool, plan: &Plan, stop: &CancelToken) -> Result<String, BoxError> {
    let before = jobs(pool, plan, stop)?;
    let pause = pool.pause()?;
    expect(
        "jobs from before the pause that are over",
        before.iter().filter(|job| job.status().is_finished()).count(),
        before.len(),
    )?;
    let kept = jobs(pool, plan, stop)?;
    let (running, waiting) = (pool.stats().running, pool.stats().waiting);
    expect("jobs that run in a pause", running, 0)?;
    pause.resume();
    expect("sum of the values", sum(kept)?, plan.jobs * (plan.jobs - 1) / 2)?;
    Ok(format!("paused: {} jobs from before were run, {waiting} that came were kept, and then run", before.len()))
}

fn pace(pool: &Pool, _: &Plan, stop: &CancelToken) -> Result<String, BoxError> {
    let began = Instant::now();
    let pacer = Pacer::new(EVERY);
    let mut handles = Vec::new();
    for _ in 0..PACED {
        handles.push(pacer.spawn(pool, || ())?);
    }
    let _released = stop.on_cancel({
        let pacer = pacer.clone();
        move |_| {
            pacer.stop();
        }
    });
    let mut begins = Vec::new();
    for handle in handles {
        handle.wait_finished()?;
        begins.extend(handle.times().began);
    }
    // The first job of a pair may have been delayed, but the last one cannot begin early.
    let took = begins.last().map_or(Duration::ZERO, |last| *last - began);
    if took < EVERY * (PACED as u32 - 1) && !stop.is_cancelled() {
        return Err(format!("the last of {PACED} paced jobs began after {took:?}").into());
    }
    Ok(format!("paced: {} jobs, one every {EVERY:?}", begins.len()))
}

fn panic(pool: &Pool, _: &Plan, _: &CancelToken) -> Result<String, BoxError> {
    let before = pool.stats().panicked;
    let error = pool.spawn(|| panic!("as planned"))?.wait().err().map(|error| error.to_string()).unwrap_or_default();
    expect("what the handle of a panicking job says", error.as_str(), "the job panicked: as planned")?;
    expect("panics that were counted", pool.stats().panicked - before, 1)?;
    Ok(format!("{error:?} was one job's end, and nobody else's: {} is the next one's value", pool.run(|| 42)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(jobs: u64) -> Plan {
        Plan { jobs, takes: Duration::ZERO }
    }

    #[test]
    fn every_act_is_played_and_everything_adds_up() {
        std::panic::set_hook(Box::new(|_| {}));
        for jobs in [1, 10] {
            let pool = Pool::new(2).unwrap();
            let mut lines = Vec::new();
            play(&pool, &plan(jobs), &CancelToken::new(), |line| lines.push(line.to_string())).unwrap();
            assert_eq!(lines.len(), 5, "{lines:?}");
            assert!(lines[2].contains(&format!("{jobs} that came were kept")), "{lines:?}");
            pool.drain().unwrap();
            let stats = pool.stats();
            assert_eq!(stats.submitted, stats.finished + stats.withdrawn);
            assert_eq!(stats.panicked, 1);
        }
    }

    #[test]
    fn a_stop_request_ends_running_jobs_and_begins_no_more() {
        let (pool, stop) = (Pool::new(2).unwrap(), CancelToken::new());
        let long = Plan { jobs: 3, takes: Duration::MAX };
        std::thread::scope(|scope| {
            let played = scope.spawn(|| play(&pool, &long, &stop, |line| panic!("{line}")));
            while pool.stats().running == 0 {
                std::thread::yield_now();
            }
            stop.cancel("test");
            played.join().unwrap().unwrap();
        });
        pool.drain().unwrap();
        assert!(play(&Pool::new(1).unwrap(), &plan(1), &stop, |line| panic!("{line}")).is_ok());
    }

    #[test]
    fn the_line_says_what_the_pool_does() {
        // Its worker stays, however long no job arrives.
        let pool = Pool::builder().max(3).idle_period(None).build().unwrap();
        assert_eq!(seen(&pool), "0 of 3 workers, 0 running, 0 waiting, 0 finished");
        let pause = pool.pause().unwrap();
        let job = pool.spawn(|| ()).unwrap();
        assert_eq!(seen(&pool), "0 of 3 workers, 0 running, 1 waiting, 0 finished, paused");
        drop(pause);
        job.wait().unwrap();
        assert!(pool.wait_idle().is_ok());
        assert_eq!(seen(&pool), "1 of 3 workers, 0 running, 0 waiting, 1 finished");
    }
}
