//! The recorded step that is stepped again: what it reads, and the first difference.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Instant, SystemTime};

use super::codec::Codec;
use super::item::Item;
use super::value::Values;
use crate::clock::Clock;
use crate::outcome::Reason;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::event::{EventSource, Replayed};
use crate::process::host::Host;
use crate::process::reply::{OnReplySent, on_reply_sent};
use crate::process::{Answer, Completion, DeadLetter, Pid, SpawnError};
use crate::sched::mailbox::Envelope;
use crate::timer::TimerId;

/// A difference between a recorded step and the same step now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) recorded: String,
    pub(super) came: String,
}

/// The items of one step that are left, and the first difference.
#[derive(Default)]
pub(super) struct Script {
    pub(super) items: VecDeque<Item>,
    /// Whether the step was given no messages. Then it was not recorded that it found no further event.
    pub(super) waits: bool,
    pub(super) differs: Option<Differs>,
    /// Why something cannot be decoded.
    pub(super) malformed: Option<String>,
}

impl Script {
    fn is_over(&self) -> bool {
        self.differs.is_some() || self.malformed.is_some()
    }

    /// Notes a difference, if it is the first.
    pub(super) fn differ(&mut self, came: impl Into<String>) {
        if !self.is_over() {
            let recorded = self.items.front().map_or("nothing more", Item::kind);
            self.differs = Some(Differs { recorded: format!("it reads {recorded}"), came: came.into() });
        }
    }

    fn malformed(&mut self, why: String) {
        if !self.is_over() {
            self.malformed = Some(why);
        }
    }

    /// Takes the next item, if it is what the step asks for. Otherwise that is a difference.
    fn read<T>(&mut self, what: &str, wanted: impl FnOnce(&Item) -> Option<T>) -> Option<T> {
        if self.is_over() {
            return None;
        }
        match self.items.front().and_then(wanted) {
            Some(read) => {
                self.items.pop_front();
                Some(read)
            }
            None => {
                self.differ(format!("it asks for {what}"));
                None
            }
        }
    }
}

/// Gives a replayed step the recorded events.
pub(super) struct ReplaySource<M> {
    pub(super) script: Arc<Mutex<Script>>,
    pub(super) codec: Codec<M>,
    pub(super) values: Values,
    pub(super) rename: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

impl<M> ReplaySource<M> {
    fn message(&self, bytes: &[u8]) -> Option<M> {
        let message = self.codec.get(bytes);
        message.map_err(|error| lock(&self.script).malformed(format!("a message: {error}"))).ok()
    }

    fn event(&self, wanted: &mut dyn FnMut(&M) -> bool) -> Option<Replayed<M>> {
        loop {
            let item = {
                let script = &mut *lock(&self.script);
                if script.is_over() {
                    return None;
                }
                match script.items.front() {
                    Some(
                        Item::Message { .. }
                        | Item::Passed { .. }
                        | Item::Completed { .. }
                        | Item::Control(_)
                        | Item::Nothing
                        | Item::Missing(_),
                    ) => script.items.pop_front()?,
                    _ if script.waits => return None,
                    _ => {
                        script.differ("it asks for a further event");
                        return None;
                    }
                }
            };
            // The script is not locked while the predicate runs, because that may ask for something, too.
            match item {
                Item::Passed { bytes } => {
                    if wanted(&self.message(&bytes)?) {
                        self.differ("it passes a message over", "it takes the message");
                        return None;
                    }
                }
                Item::Message { from, bytes } => {
                    let message = self.message(&bytes)?;
                    if !wanted(&message) {
                        self.differ("it takes a message", "it passes the message over");
                        return None;
                    }
                    return Some(Replayed::Message(Envelope { from, message }));
                }
                Item::Completed { tag, from, answer } => {
                    let answer = self.values.get_answer(&answer, |name| (self.rename)(name));
                    let answer = answer.map_err(|error| {
                        lock(&self.script).malformed(format!("the answer to command {tag}: {error}"));
                    });
                    return Some(Replayed::Completed(Completion::from(from, tag, answer.ok()?)));
                }
                Item::Control(control) => return Some(Replayed::Control(Box::new(control))),
                Item::Missing(what) => {
                    lock(&self.script).malformed(what);
                    return None;
                }
                _ => return None,
            }
        }
    }

    fn differ(&self, recorded: &str, came: &str) {
        let script = &mut *lock(&self.script);
        if !script.is_over() {
            script.differs = Some(Differs { recorded: recorded.to_owned(), came: came.to_owned() });
        }
    }
}

impl<M> EventSource<M> for ReplaySource<M> {
    fn next(&mut self, wanted: &mut dyn FnMut(&M) -> bool) -> Replayed<M> {
        self.event(wanted).unwrap_or(Replayed::Nothing)
    }
}

/// Answers the questions of replayed steps.
pub(super) struct ReplayHost {
    pub(super) script: Arc<Mutex<Script>>,
    pub(super) pid: Pid,
    pub(super) seed: u64,
    pub(super) clock: Clock,
}

impl ReplayHost {
    fn read<T>(&self, what: &str, wanted: impl FnOnce(&Item) -> Option<T>) -> Option<T> {
        lock(&self.script).read(what, wanted)
    }

    fn named<T>(&self, what: &str, name: &str, wanted: impl FnOnce(&Item) -> Option<(u32, T)>) -> Option<T> {
        let hash = crc32fast::hash(name.as_bytes());
        let of_name = |item: &Item| wanted(item).filter(|(of, _)| *of == hash).map(|(_, read)| read);
        self.read(&format!("{what} {name:?}"), of_name)
    }
}

impl Host for ReplayHost {
    fn now(&self) -> Instant {
        let now = self.read("the time", |item| if let Item::Now(now) = item { Some(*now) } else { None });
        now.unwrap_or_else(|| self.clock.now())
    }

    fn system_time(&self) -> SystemTime {
        let wanted = |item: &Item| if let Item::SystemTime(time) = item { Some(*time) } else { None };
        self.read("the wall-clock time", wanted).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn is_shutting_down(&self) -> bool {
        let wanted = |item: &Item| if let Item::ShuttingDown(is_so) = item { Some(*is_so) } else { None };
        self.read("whether the runtime shuts down", wanted).unwrap_or(false)
    }

    fn holder(&self, name: &str) -> Option<Pid> {
        let wanted = |item: &Item| if let Item::Holder(of, pid) = item { Some((*of, *pid)) } else { None };
        self.named("the holder of the name", name, wanted).flatten()
    }

    fn shared_holder(&self, name: &str) -> Option<Pid> {
        self.holder(name)
    }

    fn next_member(&self, group: &str) -> Option<Pid> {
        let wanted = |item: &Item| if let Item::Member(of, pid) = item { Some((*of, *pid)) } else { None };
        self.named("a member of the group", group, wanted).flatten()
    }

    fn group(&self, name: &str) -> Vec<Pid> {
        let wanted = |item: &Item| if let Item::Group(of, pids) = item { Some((*of, pids.clone())) } else { None };
        self.named("the members of the group", name, wanted).unwrap_or_default()
    }

    fn receivers(&self, group: &str) -> Option<Arc<[Pid]>> {
        let wanted = |item: &Item| if let Item::Receivers(of, pids) = item { Some((*of, pids.clone())) } else { None };
        self.named("the members of the group", group, wanted).flatten().map(Arc::from)
    }

    fn vacancies(&self, _: &mut Vec<Pid>) -> Result<(), SpawnError> {
        let wanted = |item: &Item| if let Item::NoVacancy(limit) = item { Some(*limit) } else { None };
        match self.read("the PID of a further process", wanted).flatten() {
            Some(limit) => Err(SpawnError::Limit { limit }),
            None => Err(SpawnError::ShuttingDown),
        }
    }

    fn monitor_numbers(&self) -> Range<u64> {
        let wanted = |item: &Item| if let Item::MonitorNumbers(range) = item { Some(range.clone()) } else { None };
        // Never empty, because a number is wanted.
        self.read("a number for a monitor", wanted).unwrap_or(1..u64::MAX)
    }

    fn answer_from(&self, _: Option<Pid>, _: Pid, _: u64, _: Answer) {}

    fn is_alive(&self, _: Pid) -> bool {
        true
    }

    fn late_reply(&self) {}

    fn bury_unsent(&self, _: &DeadLetter<'_>) {}

    fn discarded_answer(&self) {}

    fn forget_timer(&self, _: TimerId) {}

    fn end_run(&self, _: Pid, _: Reason) {}

    fn nobody(&self) -> Pid {
        Pid::nobody(self.pid.node()).unwrap_or(Pid::FIRST)
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn give_back_after(&self, _: Pid) {}
}

/// The results of the replies that the recorded step has sent itself, and how many more it sends now.
#[derive(Default)]
struct Replies {
    left: VecDeque<bool>,
    more: usize,
}

thread_local! {
    static REPLIES: RefCell<Replies> = const { RefCell::new(Replies { left: VecDeque::new(), more: 0 }) };
}

/// Replays the results of replies that the steps on this thread send themselves, until this is dropped.
///
/// A step that is recorded or replayed may itself replay a recording. Afterwards it goes on with its own results.
pub(super) struct ReplayedReplies {
    outer: Replies,
    on_reply_sent: Option<OnReplySent>,
}

impl ReplayedReplies {
    pub(super) fn new(results: Vec<bool>) -> ReplayedReplies {
        let outer = REPLIES.replace(Replies { left: results.into(), more: 0 });
        let on_reply_sent = on_reply_sent(Some(|sent| {
            REPLIES.with_borrow_mut(|replies| {
                replies.left.pop_front().unwrap_or_else(|| {
                    replies.more += 1;
                    sent
                })
            })
        }));
        ReplayedReplies { outer, on_reply_sent }
    }

    /// Ends the replay. Returns how many replies were recorded and not sent, and how many were sent and not recorded.
    pub(super) fn end(self) -> (usize, usize) {
        REPLIES.with_borrow(|Replies { left, more }| (left.len(), *more))
    }
}

impl Drop for ReplayedReplies {
    fn drop(&mut self) {
        REPLIES.set(std::mem::take(&mut self.outer));
        on_reply_sent(self.on_reply_sent);
    }
}
