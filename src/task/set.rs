//! Waiting for any of several tasks.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::handle::Task;
use super::status::TaskInfo;
use crate::clock::{Clock, Deadline};
use crate::outcome::{Exit, Reason, contain, drop_contained, tell_log};
use crate::sync::{Arc, Condvar, Mutex, lock};

/// Handles of several tasks, whose results come in the order in which the tasks end.
///
/// Each end costs the same, however many tasks are waited for. Dropping the set drops the handles, and cancels nothing.
///
/// ```
/// use procession::task::{TaskSet, Tasks};
///
/// let tasks = Tasks::new();
/// let mut set = TaskSet::new();
/// for n in 1..=3 {
///     set.push(tasks.submit(move |_| Ok::<u32, String>(n))?);
/// }
/// let mut sum = 0;
/// while let Some((_, exit)) = set.wait_next() {
///     sum += exit.into_result()?;
/// }
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskSet<T, E> {
    next: u64,
    waiting: HashMap<u64, Task<T, E>>,
    // Those that were over when they came.
    over: VecDeque<Task<T, E>>,
    ready: Arc<Ready>,
    // The first task's scheduler's.
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
    waker: Option<Waker>,
}

/// Rings when one task of a set is over.
struct Bell {
    number: u64,
    ready: Arc<Ready>,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        let waker = {
            let mut state = lock(&self.ready.state);
            state.numbers.push_back(self.number);
            state.waker.take()
        };
        self.ready.changed.notify_one();
        if let Some(waker) = waker
            && let Err(panic) = contain(|| waker.wake())
        {
            tell_log(|| tracing::error!(%panic, "a waker panicked"));
        }
    }
}

impl<T, E> TaskSet<T, E> {
    /// A set of none.
    pub fn new() -> TaskSet<T, E> {
        TaskSet { next: 0, waiting: HashMap::new(), over: VecDeque::new(), ready: Arc::default(), clock: None }
    }

    /// Adds a task.
    pub fn push(&mut self, mut task: Task<T, E>) {
        self.clock.get_or_insert_with(|| task.clock().clone());
        self.next += 1;
        let number = self.next;
        let bell = Waker::from(Arc::new(Bell { number, ready: self.ready.clone() }));
        if task.is_over_or_rings(&mut Context::from_waker(&bell)) {
            self.over.push_back(task);
        } else {
            self.waiting.insert(number, task);
        }
    }

    /// How many tasks are in it whose results have not been had.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.over.len()
    }

    /// Whether all results have been had.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tasks whose results have not been had, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Task<T, E>> {
        self.over.iter().chain(self.waiting.values())
    }

    /// Cancels all that are not over. How many this call decided; their results come like the others'.
    pub fn cancel_all(&self, reason: impl Into<Reason>) -> usize {
        let reason = reason.into();
        self.iter().filter(|task| task.cancel_because(reason.clone())).count()
    }

    /// Blocks the calling thread until a task is over; what is known of it, and its result. Nothing if there is none
    /// left.
    pub fn wait_next(&mut self) -> Option<(TaskInfo, Exit<T, E>)> {
        self.wait_until(Deadline::NEVER)
    }

    /// The same, but no longer than `limit`, by the clock of the first task's scheduler: nothing then, and the set is not
    /// empty.
    pub fn wait_next_within(&mut self, limit: Duration) -> Option<(TaskInfo, Exit<T, E>)> {
        let deadline = self.clock.as_ref().map_or(Deadline::NEVER, |clock| clock.deadline(limit));
        self.wait_until(deadline)
    }

    /// The same as a future, to be used with [`std::future::poll_fn`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(TaskInfo, Exit<T, E>)>> {
        // Cloned and dropped without the lock: a waker is code of whoever waits.
        let waker = cx.waker().clone();
        if self.is_empty() {
            return Poll::Ready(None);
        }
        let before = lock(&self.ready.state).waker.replace(waker);
        drop_contained(before);
        self.try_next().map_or(Poll::Pending, |finished| Poll::Ready(Some(finished)))
    }

    fn try_next(&mut self) -> Option<(TaskInfo, Exit<T, E>)> {
        if let Some(task) = self.over.pop_front() {
            return Some(finished(task));
        }
        let number = lock(&self.ready.state).numbers.pop_front()?;
        self.waiting.remove(&number).map(finished)
    }

    fn wait_until(&mut self, deadline: Deadline) -> Option<(TaskInfo, Exit<T, E>)> {
        if self.is_empty() {
            return None;
        }
        if let Some(finished) = self.try_next() {
            return Some(finished);
        }
        let clock = self.clock.clone().unwrap_or_default();
        let ready = self.ready.clone();
        let _watch = clock.watch(move || {
            let _state = lock(&ready.state);
            ready.changed.notify_all();
        });
        let mut state = lock(&self.ready.state);
        while state.numbers.is_empty() {
            if deadline.has_passed(&clock) {
                return None;
            }
            state = clock.wait(&self.ready.changed, state, deadline);
        }
        drop(state);
        self.try_next()
    }
}

fn finished<T, E>(task: Task<T, E>) -> (TaskInfo, Exit<T, E>) {
    let info = task.info();
    (info, task.wait())
}

impl<T, E> Default for TaskSet<T, E> {
    fn default() -> TaskSet<T, E> {
        TaskSet::new()
    }
}

impl<T, E> FromIterator<Task<T, E>> for TaskSet<T, E> {
    fn from_iter<I: IntoIterator<Item = Task<T, E>>>(tasks: I) -> TaskSet<T, E> {
        let mut set = TaskSet::new();
        set.extend(tasks);
        set
    }
}

impl<T, E> Extend<Task<T, E>> for TaskSet<T, E> {
    fn extend<I: IntoIterator<Item = Task<T, E>>>(&mut self, tasks: I) {
        tasks.into_iter().for_each(|task| self.push(task));
    }
}

impl<T, E> fmt::Debug for TaskSet<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet").field("waiting", &self.waiting.len()).field("over", &self.over.len()).finish()
    }
}
