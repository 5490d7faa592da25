//! Waiting for any of several tasks.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::handle::Task;
use super::shared::{Helped, Shared};
use super::status::{Status, TaskInfo};
use crate::clock::{Clock, Deadline};
use crate::outcome::{Exit, Reason, contain, drop_contained, tell_log};
use crate::pool::CountsOnOthers;
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
    // By scheduler: those that had not begun when they were looked at last, in the order in which they came. A thread of the
    // pool that waits for any of them runs them.
    unbegun: Vec<(Arc<Shared>, BTreeSet<u64>)>,
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
    // Those that have come into their pool's line while a thread of that pool was here, or wait there and are left by those
    // who were to come.
    in_line: Vec<u64>,
    waker: Option<Waker>,
}

/// Rings when one task of a set is over, or when it is in its pool's line and nobody comes to it.
struct Bell {
    number: u64,
    of_end: bool,
    ready: Arc<Ready>,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        let waker = {
            let mut state = lock(&self.ready.state);
            if self.of_end {
                state.numbers.push_back(self.number);
                state.waker.take()
            } else {
                // It may ring several times before somebody hears it.
                if state.in_line.last() != Some(&self.number) {
                    state.in_line.push(self.number);
                }
                None
            }
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
        TaskSet {
            next: 0,
            waiting: HashMap::new(),
            over: VecDeque::new(),
            unbegun: Vec::new(),
            ready: Arc::default(),
            clock: None,
        }
    }

    /// Adds a task.
    pub fn push(&mut self, mut task: Task<T, E>) {
        self.clock.get_or_insert_with(|| task.shared().clock.clone());
        self.next += 1;
        let number = self.next;
        let bell = self.bell(number, true);
        if task.is_over_or_rings(&mut Context::from_waker(&bell)) {
            self.over.push_back(task);
        } else {
            self.has_not_begun(number, &task);
            self.waiting.insert(number, task);
        }
    }

    fn bell(&self, number: u64, of_end: bool) -> Waker {
        Waker::from(Arc::new(Bell { number, of_end, ready: self.ready.clone() }))
    }

    fn has_not_begun(&mut self, number: u64, task: &Task<T, E>) {
        if task.status() != Status::Scheduled {
            return;
        }
        match self.unbegun.iter_mut().find(|(shared, _)| Arc::ptr_eq(shared, task.shared())) {
            Some((_, numbers)) => drop(numbers.insert(number)),
            None => self.unbegun.push((task.shared().clone(), BTreeSet::from([number]))),
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
    ///
    /// Called on a thread of the pool on which the tasks wait for one, it runs them itself, one after the other, as long as
    /// none is over and the pool has no other thread for all that waits there: so tasks can wait for those that they submit,
    /// however few threads there are. As long as it runs one it does not hear of the others.
    pub fn wait_next(&mut self) -> Option<(TaskInfo, Exit<T, E>)> {
        self.wait_until(Deadline::NEVER)
    }

    /// The same, but no longer than `limit`, by the clock of the first task's scheduler: nothing then, and the set is not
    /// empty. With a limit it only waits, and runs nothing.
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
        let task = self.waiting.remove(&number)?;
        for (_, numbers) in &mut self.unbegun {
            numbers.remove(&number);
        }
        self.unbegun.retain(|(_, numbers)| !numbers.is_empty());
        Some(finished(task))
    }

    /// If the calling thread is one of a pool's, runs the first of the tasks that wait there for one, or finds that another
    /// thread has it. Nothing if none waits, or others come to them; of those that may yet come to wait, and when the others do
    /// not come, the set will hear.
    fn help(&mut self, others: &mut Vec<CountsOnOthers>) -> Option<()> {
        others.clear();
        let in_line = std::mem::take(&mut lock(&self.ready.state).in_line);
        for number in in_line {
            if let Some(task) = self.waiting.remove(&number) {
                self.has_not_begun(number, &task);
                self.waiting.insert(number, task);
            }
        }
        for scheduler in 0..self.unbegun.len() {
            if !self.unbegun[scheduler].0.pool.is_inside() {
                continue;
            }
            while let Some(number) = self.unbegun[scheduler].1.pop_first() {
                let Some(task) = self.waiting.get(&number) else { continue };
                let bell = self.bell(number, false);
                // Those that others come to would only keep this thread from hearing of the first end.
                match task.run_if_inside(Some(bell.clone())) {
                    Helped::Done => return Some(()),
                    Helped::NotYet => task.ring_when_in_line(bell),
                    Helped::OthersCome(counts) => {
                        // They come to all that wait there, and so to those behind it, too.
                        others.push(counts);
                        self.unbegun[scheduler].1.insert(number);
                        break;
                    }
                }
            }
        }
        None
    }

    fn wait_until(&mut self, deadline: Deadline) -> Option<(TaskInfo, Exit<T, E>)> {
        if self.is_empty() {
            return None;
        }
        // Who has a limit would miss it in a task that takes long.
        let helps = deadline == Deadline::NEVER;
        let clock = self.clock.clone().unwrap_or_default();
        let ready = self.ready.clone();
        let (mut watch, mut others) = (None, Vec::new());
        loop {
            if let Some(finished) = self.try_next() {
                return Some(finished);
            }
            if helps && self.help(&mut others).is_some() {
                continue;
            }
            watch.get_or_insert_with(|| {
                let ready = ready.clone();
                clock.watch(move || {
                    let _state = lock(&ready.state);
                    ready.changed.notify_all();
                })
            });
            let mut state = lock(&ready.state);
            while state.numbers.is_empty() && (!helps || state.in_line.is_empty()) {
                if deadline.has_passed(&clock) {
                    return None;
                }
                state = clock.wait(&ready.changed, state, deadline);
            }
        }
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
