//! What stands in for the runtime under a [`Driver`](super::Driver).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;

use crate::clock::{Clock, ManualClock};
use crate::outcome::Failure;
use crate::process::{
    Answer, AnswerTo, AskLink, CommandError, INCARNATION_SHIFT, NameError, Naming, OutsideAsk, Pid, Reply,
};
use crate::sched::body::{Host, NoVacancy};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, lock};
use crate::timer::{TimerKey, Timers};

/// A process may have so many children before their PIDs are those of the children of the next one.
const CHILDREN: usize = 1_000;

/// Keeps answers until the driver takes them, and hands out PIDs.
pub(super) struct Bench {
    clock: Clock,
    pub(super) timers: Timers,
    answers: Mutex<VecDeque<(u64, Answer)>>,
    node: u32,
    next_slot: AtomicUsize,
    pub(super) shuts_down: AtomicBool,
    /// Of the process. Answers to commands of an earlier one are dropped.
    pub(super) incarnation: AtomicUsize,
    named: Mutex<NamesAndGroups>,
}

#[derive(Default)]
struct NamesAndGroups {
    names: HashMap<Arc<str>, Pid>,
    // Sorted, as in a runtime.
    groups: HashMap<Arc<str>, Vec<Pid>>,
}

impl Bench {
    /// For the process with this PID.
    pub(super) fn new(manual: &ManualClock, pid: Pid) -> Bench {
        let clock = manual.clock();
        let timers = Timers::new(clock.clone(), "testing-timers");
        Bench {
            clock,
            timers,
            answers: Mutex::default(),
            node: pid.node(),
            next_slot: AtomicUsize::new(pid.slot() as usize * CHILDREN % Pid::MAX_SLOT as usize + 1),
            shuts_down: AtomicBool::new(false),
            incarnation: AtomicUsize::new(0),
            named: Mutex::default(),
        }
    }

    /// Does what a process wants done with names or groups. All processes are alive here.
    pub(super) fn name(&self, naming: Naming) -> Answer {
        let NamesAndGroups { names, groups } = &mut *lock(&self.named);
        let empty = || Err(CommandError::Failed(Failure::new(NameError::Empty)));
        match naming {
            Naming::Register { name, .. } | Naming::Join { group: name, .. } if name.is_empty() => empty(),
            Naming::Register { name, pid } => match names.get(&name) {
                Some(holder) if *holder != pid => {
                    let taken = NameError::Taken { name, holder: *holder };
                    Err(CommandError::Failed(Failure::new(taken)))
                }
                _ => {
                    names.insert(name, pid);
                    Ok(Box::new(()))
                }
            },
            Naming::Unregister { name } => Ok(Box::new(names.remove(&name))),
            Naming::Join { group, pid } => {
                let members = groups.entry(group).or_default();
                members.insert(members.partition_point(|other| *other <= pid), pid);
                Ok(Box::new(()))
            }
            Naming::Leave { group, pid } => {
                let members = groups.entry(group).or_default();
                let place = members.iter().position(|other| *other == pid);
                place.map(|place| members.remove(place));
                Ok(Box::new(place.is_some()))
            }
        }
    }

    pub(super) fn take_answers(&self) -> VecDeque<(u64, Answer)> {
        std::mem::take(&mut *lock(&self.answers))
    }
}

impl AnswerTo for Bench {
    fn answer(&self, _: Pid, tag: u64, answer: Answer) {
        if (tag >> INCARNATION_SHIFT) as usize == self.incarnation.load(Ordering::Relaxed) {
            lock(&self.answers).push_back((tag, answer));
        }
    }
}

impl AskLink for Bench {
    fn is_alive(&self, _: Pid) -> bool {
        true
    }

    fn late_reply(&self) {}

    fn forget_timer(&self, key: TimerKey) {
        self.timers.cancel(key);
    }

    fn runtime(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }
}

impl crate::process::Directory for Bench {
    fn holder(&self, name: &str) -> Option<Pid> {
        lock(&self.named).names.get(name).copied()
    }

    fn next_member(&self, group: &str) -> Option<Pid> {
        // Always the first: a test that wants another puts it there.
        self.group(group).first().copied()
    }
}

impl Host for Bench {
    fn nobody(&self) -> Pid {
        Pid::nobody(self.node).unwrap_or(Pid::FIRST)
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn vacancies(&self, stock: &mut Vec<Pid>) -> Result<(), NoVacancy> {
        if self.is_shutting_down() {
            return Err(NoVacancy::ShuttingDown);
        }
        let slot = self.next_slot.fetch_add(1, Ordering::Relaxed) as u32;
        stock.push(Pid::new(self.node, slot, 1).ok_or(NoVacancy::Limit(slot))?);
        Ok(())
    }

    fn give_back_after(&self, _: Pid) {}

    fn is_shutting_down(&self) -> bool {
        self.shuts_down.load(Ordering::Relaxed)
    }

    fn group(&self, name: &str) -> Vec<Pid> {
        lock(&self.named).groups.get(name).cloned().unwrap_or_default()
    }

    fn monitor_numbers(&self) -> Range<u64> {
        // One driver has one output, which asks once.
        1..u64::MAX
    }
}

/// A question to put into a message, and where its answer comes.
///
/// ```
/// let (reply, asked) = procession::testing::question::<u64>();
/// reply.send(7);
/// assert_eq!(asked.answer().unwrap().unwrap(), 7);
/// ```
pub fn question<T: Send + 'static>() -> (Reply<T>, Asked<T>) {
    let bench = Arc::new(Bench::new(&ManualClock::new(), Pid::FIRST));
    let ask = Arc::new(OutsideAsk::new(bench, Pid::FIRST));
    (Reply::new(ask.clone()), Asked { ask })
}

/// Where the answer to a [`question`] comes.
pub struct Asked<T> {
    ask: Arc<OutsideAsk<T>>,
}

impl<T: Send + 'static> Asked<T> {
    /// The answer, once, if there is one yet: the value, or [`CommandError::Dropped`].
    pub fn answer(&self) -> Option<Result<T, CommandError>> {
        self.ask.take()
    }
}

impl<T> fmt::Debug for Asked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("answered", &self.ask.answer.is_set()).finish()
    }
}
