//! Sets of tasks, which wait for any one of several tasks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::handle::TaskHandle;
use super::info::{Status, TaskInfo};
use super::shared::{Helped, Shared};
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, refuse_step_timeout};
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pool::CountsOnOthers;
use crate::primitives::{Arc, Condvar, Mutex, lock};

/// An ended task of a set: its snapshot and its result.
pub type Finished<T, E> = (TaskInfo, Exit<T, E>);

/// A set of task handles, which yields results in the order in which tasks end.
///
/// The cost of a task's end does not depend on the number of tasks in the set. Dropping the set drops the handles, but
/// cancels no task.
///
/// ```
/// use procession::task::{TaskSet, TaskScheduler};
///
/// let tasks = TaskScheduler::new();
/// let mut set = TaskSet::new();
/// for n in 1..=3 {
///     set.push(tasks.submit(move |_| Ok::<u32, String>(n))?);
/// }
/// let mut sum = 0;
/// while let Some((_, exit)) = set.wait_next()? {
///     sum += exit.into_result()?;
/// }
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskSet<T, E> {
    next: u64,
    tasks: BTreeMap<u64, TaskHandle<T, E>>,
    // By scheduler: tasks that had not begun when they were added. They have no bell yet that rings when they are in
    // their pool's queue.
    unbegun: Vec<(Arc<Shared>, BTreeSet<u64>)>,
    ready: Arc<Ready>,
    // The clock of the first task's scheduler.
    clock: Option<Clock>,
}

#[derive(Default)]
struct Ready {
    state: Mutex<ReadyState>,
    changed: Condvar,
}

#[derive(Default)]
struct ReadyState {
    numbers: VecDeque<u64>,
    // Tasks in the queues of their pools. A thread of the pool that waits for the set runs them.
    in_line: BTreeSet<u64>,
    // Whether a task has come into a queue since the waiting thread checked. Also whether a task in a queue will not
    // be run by the workers that the thread counts on.
    in_line_rung: bool,
    waker: Option<Waker>,
}

/// Rings when one task of a set has ended. Also rings when the task is in its pool's queue and no other thread will
/// run it.
struct Bell {
    number: u64,
    of_end: bool,
    ready: Arc<Ready>,
}

impl Bell {
    fn waker(ready: &Arc<Ready>, number: u64, of_end: bool) -> Waker {
        Waker::from(Arc::new(Bell { number, of_end, ready: ready.clone() }))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        let waker = {
            let mut state = lock(&self.ready.state);
            if self.of_end {
                state.numbers.push_back(self.number);
                state.waker.take()
            } else {
                state.in_line.insert(self.number);
                state.in_line_rung = true;
                None
            }
        };
        self.ready.changed.notify_one();
        if let Some(waker) = waker {
            // The latch that calls the bell contains a panic.
            waker.wake();
        }
    }
}

impl<T, E> TaskSet<T, E> {
    /// Returns an empty set.
    pub fn new() -> TaskSet<T, E> {
        TaskSet { next: 0, tasks: BTreeMap::new(), unbegun: Vec::new(), ready: Arc::default(), clock: None }
    }

    /// Adds a task.
    pub fn push(&mut self, mut task: TaskHandle<T, E>) {
        self.clock.get_or_insert_with(|| task.shared.clock.clone());
        self.next += 1;
        let number = self.next;
        let bell = Bell::waker(&self.ready, number, true);
        if Pin::new(&mut task.waiting).poll(&mut Context::from_waker(&bell)).is_ready() {
            lock(&self.ready.state).numbers.push_back(number);
        } else if task.status() == Status::Scheduled {
            self.unbegun_of(&task.shared).insert(number);
        }
        self.tasks.insert(number, task);
    }

    /// The tasks of this scheduler that have no bell yet.
    fn unbegun_of(&mut self, shared: &Arc<Shared>) -> &mut BTreeSet<u64> {
        let place = self.unbegun.iter().position(|(other, _)| Arc::ptr_eq(other, shared));
        let place = place.unwrap_or_else(|| {
            self.unbegun.push((shared.clone(), BTreeSet::new()));
            self.unbegun.len() - 1
        });
        &mut self.unbegun[place].1
    }

    /// Returns the number of tasks whose results have not been taken.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether all results have been taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the tasks whose results have not been taken.
    ///
    /// They come in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &TaskHandle<T, E>> {
        self.tasks.values()
    }

    /// Cancels all tasks of the set that have not ended. Returns how many this call ended.
    ///
    /// The set still yields their results.
    pub fn cancel_all(&self, reason: impl Into<Reason>) -> usize {
        let reason = reason.into();
        self.iter().filter(|task| task.cancel_because(reason.clone())).count()
    }

    /// Blocks until a task has ended, and returns its snapshot and its result.
    ///
    /// The call returns `None` if no task is left.
    ///
    /// If the caller is a thread of the tasks' pool, it runs tasks of the set itself, one after the other. It does so
    /// while no task of the set has ended and the pool has too few other threads for its waiting jobs. So tasks can
    /// wait for tasks that they submit, however few threads there are. While the thread runs one task, it does not
    /// notice the end of others.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]). Or all remaining tasks run on the calling thread, which would
    /// wait for itself ([`WaitError::Inside`]).
    pub fn wait_next(&mut self) -> Result<Option<Finished<T, E>>, WaitError> {
        self.wait_next_timeout(Duration::MAX)
    }

    /// As [`wait_next`](Self::wait_next), but waits at most `limit` and runs no task.
    ///
    /// The limit is measured by the clock of the first task's scheduler.
    ///
    /// # Errors
    /// As [`wait_next`](Self::wait_next). Or the limit has passed ([`WaitError::TimedOut`]).
    pub fn wait_next_timeout(&mut self, limit: Duration) -> Result<Option<Finished<T, E>>, WaitError> {
        refuse_step_timeout(limit)?;
        let deadline = self.clock.as_ref().map_or(Deadline::NEVER, |clock| clock.deadline(limit));
        if self.is_empty() {
            return Ok(None);
        }
        // If this thread ran a long task, the caller would miss its limit.
        let helps = deadline == Deadline::NEVER;
        let clock = self.clock.clone().unwrap_or_default();
        let ready = self.ready.clone();
        let (mut watch, mut others) = (None, None);
        loop {
            if let Some(finished) = self.try_next() {
                return Ok(Some(finished));
            }
            if helps && self.help(&mut others) {
                continue;
            }
            // One task that does not run here is enough to make this false.
            if helps && self.tasks.values().all(TaskHandle::runs_here) {
                return Err(WaitError::Inside);
            }
            watch.get_or_insert_with(|| {
                let ready = ready.clone();
                clock.watch(move || {
                    let _state = lock(&ready.state);
                    ready.changed.notify_all();
                })
            });
            let mut state = lock(&ready.state);
            while state.numbers.is_empty() && !(helps && state.in_line_rung) {
                if deadline.has_passed(&clock) {
                    return Err(WaitError::TimedOut);
                }
                state = clock.wait(&ready.changed, state, deadline);
            }
        }
    }

    /// As [`wait_next`](Self::wait_next), for use with [`std::future::poll_fn`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Finished<T, E>>> {
        // The waker is user code. It is cloned and dropped without the lock.
        let waker = cx.waker().clone();
        if self.is_empty() {
            return Poll::Ready(None);
        }
        let before = lock(&self.ready.state).waker.replace(waker);
        drop_contained(before);
        self.try_next().map_or(Poll::Pending, |finished| Poll::Ready(Some(finished)))
    }

    fn try_next(&mut self) -> Option<Finished<T, E>> {
        let number = {
            let mut state = lock(&self.ready.state);
            let number = state.numbers.pop_front()?;
            state.in_line.remove(&number);
            number
        };
        let mut task = self.tasks.remove(&number)?;
        for (_, unbegun) in &mut self.unbegun {
            unbegun.remove(&number);
        }
        self.unbegun.retain(|(_, unbegun)| !unbegun.is_empty());
        let info = task.info();
        Some((info, task.take()))
    }

    /// Runs the first of the set's tasks that wait in this thread's pool.
    ///
    /// Or it finds that another thread has that task. Returns `false` if the thread belongs to no pool, if no task
    /// waits, or if other threads will run the tasks. The set's bell rings when a task enters the queue later, or when
    /// the other threads will not run it.
    fn help(&mut self, others: &mut Option<CountsOnOthers>) -> bool {
        *others = None;
        for (shared, unbegun) in self.unbegun.iter_mut().filter(|(shared, _)| shared.pool.is_inside()) {
            // Each task needs a bell before the set counts on other threads. The threads that would run the queued
            // tasks may be gone, or wait for tasks that enter the queue later.
            for number in std::mem::take(unbegun) {
                if let Some(task) = self.tasks.get(&number) {
                    task.record.ring_when_in_line(shared, Bell::waker(&self.ready, number, false));
                }
            }
        }
        loop {
            let number = {
                let mut state = lock(&self.ready.state);
                state.in_line_rung = false;
                state.in_line.pop_first()
            };
            let Some(number) = number else { return false };
            let Some(task) = self.tasks.get(&number) else { continue };
            if !task.shared.pool.is_inside() {
                // A thread of that pool has waited for the set before. The next one sets a new bell.
                let shared = task.shared.clone();
                self.unbegun_of(&shared).insert(number);
                continue;
            }
            let bell = Bell::waker(&self.ready, number, false);
            // If other threads run the tasks, a bell would only delay the news of the first end.
            match task.record.run_if_inside(&task.shared.pool, Some(bell.clone())) {
                Helped::Done => return true,
                Helped::NotYet => task.record.ring_when_in_line(&task.shared, bell),
                Helped::OthersCome(counts) => {
                    // The other threads run all jobs in the queue, so also those behind this one. The number goes back
                    // to the list, because this wait may return before they come. The next wait asks again.
                    *others = Some(counts);
                    lock(&self.ready.state).in_line.insert(number);
                    return false;
                }
            }
        }
    }
}

impl<T, E> Default for TaskSet<T, E> {
    fn default() -> TaskSet<T, E> {
        TaskSet::new()
    }
}

impl<T, E> FromIterator<TaskHandle<T, E>> for TaskSet<T, E> {
    fn from_iter<I: IntoIterator<Item = TaskHandle<T, E>>>(tasks: I) -> TaskSet<T, E> {
        let mut set = TaskSet::new();
        set.extend(tasks);
        set
    }
}

impl<T, E> Extend<TaskHandle<T, E>> for TaskSet<T, E> {
    fn extend<I: IntoIterator<Item = TaskHandle<T, E>>>(&mut self, tasks: I) {
        tasks.into_iter().for_each(|task| self.push(task));
    }
}

impl<T, E> fmt::Debug for TaskSet<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet").field("len", &self.len()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::options::TaskOptions;
    use super::super::scheduler::TaskScheduler;
    use super::*;
    use crate::clock::ManualClock;
    use crate::latch::Latch;
    use crate::pool::Pool;
    use crate::primitives::{AtomicUsize, Ordering};
    use crate::wait::{until, wait};

    #[test]
    fn a_set_runs_a_task_that_is_queued_while_it_counts_on_others() {
        let manual = ManualClock::new();
        let (starts, go) = (AtomicUsize::new(0), Latch::new());
        let gate = go.clone();
        let second_thread_waits = move || {
            if starts.fetch_add(1, Ordering::Relaxed) == 1 {
                wait(&gate);
            }
        };
        let pool = Pool::builder().max(2).clock(manual.clock()).on_start(second_thread_waits).build().unwrap();
        let (tasks, submits) = (TaskScheduler::on(&pool), TaskScheduler::on(&pool));
        let (began, ran) = (Latch::new(), Latch::new());
        let (begins, runs) = (began.clone(), ran.clone());
        let outer = tasks.submit(move |_| {
            let first = submits.submit(move |_| {
                let _ = began.set(());
                wait(&ran);
                Ok::<_, String>(1)
            });
            let delayed = TaskOptions::new().after(Duration::from_secs(1));
            let second = submits.submit_with(delayed, move |_| {
                let _ = runs.set(());
                Ok(2)
            });
            let mut set = TaskSet::from_iter([first.unwrap(), second.unwrap()]);
            let mut others = None;
            assert!(!set.help(&mut others) && others.is_some(), "another thread comes for the first");
            let _ = go.set(());
            wait(&begins);
            // By now this thread sleeps. Only this thread can run the second task, for which the first one waits.
            manual.advance(Duration::from_secs(1));
            assert!(lock(&set.ready.state).in_line_rung, "it is told that the second one is there");
            let sum = (0..2).map(|_| *set.wait_next().unwrap().unwrap().1.output().unwrap()).sum();
            Ok::<u32, String>(sum)
        });
        assert_eq!(wait(outer.unwrap()).output(), Some(&3));
    }

    #[test]
    fn a_set_runs_a_task_for_which_another_thread_came_when_it_last_waited() {
        let (starts, go) = (AtomicUsize::new(0), Latch::new());
        let gate = go.clone();
        let second_thread_waits = move || {
            if starts.fetch_add(1, Ordering::Relaxed) == 1 {
                wait(&gate);
            }
        };
        let pool = Pool::builder().max(2).on_start(second_thread_waits).build().unwrap();
        let (tasks, submits) = (TaskScheduler::on(&pool), TaskScheduler::on(&pool));
        let outer = tasks.submit(move |_| {
            let mut set = TaskSet::from_iter([submits.submit(|_| Ok::<(), String>(())).unwrap()]);
            let mut others = None;
            let other_thread_comes = !set.help(&mut others) && others.is_some();
            // The wait returns here if another task of the set ends. After that, more jobs wait than threads come.
            drop(others);
            let one_more = submits.submit(|_| Ok::<(), String>(())).unwrap();
            let runs_it_here = set.help(&mut None);
            let _ = go.set(());
            Ok::<_, String>((other_thread_comes, runs_it_here, wait(one_more).output().is_some()))
        });
        assert_eq!(wait(outer.unwrap()).output(), Some(&(true, true, true)));
    }

    #[test]
    fn a_task_that_waits_for_a_set_of_only_itself_gets_an_error() {
        let tasks = TaskScheduler::new();
        let (own, told) = (Latch::<Mutex<Option<TaskHandle<(), String>>>>::new(), Latch::new());
        let (comes, tell, submits) = (own.clone(), told.clone(), tasks.clone());
        let outer = tasks.submit(move |_| {
            until("the handle is there", || comes.is_set());
            let own = comes.take().and_then(|own| lock(&own).take());
            let mut set = TaskSet::from_iter(own.into_iter().chain([submits.submit(|_| Ok(())).unwrap()]));
            let ends: Vec<_> = (0..3).map(|_| set.wait_next().map(|end| end.is_some())).collect();
            let _ = tell.set((ends, set.len()));
            Ok(())
        });
        assert!(own.set(Mutex::new(Some(outer.unwrap()))).is_ok());
        assert_eq!(wait(&told), (vec![Ok(true), Err(WaitError::Inside), Err(WaitError::Inside)], 1));
    }
}
