//! The taps of a recorded process: one at its events, one between its steps and the runtime.

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Instant, SystemTime};

use super::codec::{Codec, Recordable, put_pid};
use super::item::{kinds, put_item_control, put_named_pid, put_no_vacancy, put_system_time};
use super::log::Log;
use super::value::Values;
use crate::clock::Clock;
use crate::outcome::Reason;
use crate::primitives::Arc;
use crate::process::event::{EventTap, Replayed};
use crate::process::host::Host;
use crate::process::reply::on_reply_sent;
use crate::process::{Answer, Completion, DeadLetter, Pid, SpawnError};
use crate::sched::mailbox::Control;
use crate::timer::TimerId;

/// The largest buffer, in bytes, that a process keeps for the encoding of one message.
const KEPT: usize = 4096;

/// Records the events that a process takes.
pub(super) struct RecordTap<M> {
    pub(super) log: Arc<Log>,
    pub(super) codec: Codec<M>,
    pub(super) values: Arc<Values>,
    /// The message that the step takes next.
    pub(super) bytes: Vec<u8>,
    pub(super) is_encoded: bool,
}

impl<M> EventTap<M> for RecordTap<M> {
    fn replay(&mut self, _: &mut dyn FnMut(&M) -> bool) -> Option<Replayed<M>> {
        None
    }

    fn shown(&mut self, message: &M, wanted: bool) {
        self.bytes.clear();
        self.is_encoded = self.codec.put(message, &mut self.bytes);
        if !wanted {
            if self.is_encoded {
                self.log.add_bytes(kinds::PASSED, |_| (), &self.bytes);
            } else {
                self.log.add_missing(format!("the codec of {} panicked", self.log.process.message));
            }
        }
    }

    fn taken(&mut self, from: Option<Pid>) {
        if !self.is_encoded {
            return self.log.add_missing(format!("the codec of {} panicked", self.log.process.message));
        }
        self.log.add_bytes(kinds::MESSAGE, |to| put_pid(from, to), &self.bytes);
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let tag = completion.tag();
        let mut is_encoded = false;
        self.bytes.clear();
        completion.look(&mut |answer| is_encoded = self.values.put_answer(answer, &mut self.bytes));
        if !is_encoded {
            let what = format!("the answer to command {tag} has a type without a codec: see `Recorder::answer`");
            return self.log.add_missing(what);
        }
        let head = |to: &mut Vec<u8>| {
            tag.encode(to);
            put_pid(completion.answered_by(), to);
        };
        self.log.add_bytes(kinds::COMPLETED, head, &self.bytes);
    }

    fn control(&mut self, control: &Control) {
        self.log.add(|to| put_item_control(control, to));
    }

    fn nothing(&mut self) {
        self.log.add(|to| to.push(kinds::NOTHING));
    }
}

/// Records what a process asks the runtime in its steps.
pub(super) struct RecordHost {
    pub(super) host: Arc<dyn Host>,
    pub(super) log: Arc<Log>,
}

impl Host for RecordHost {
    fn now(&self) -> Instant {
        let now = self.host.now();
        self.log.add(|to| {
            to.push(kinds::NOW);
            now.encode(to);
        });
        now
    }

    fn system_time(&self) -> SystemTime {
        let time = self.host.system_time();
        self.log.add(|to| put_system_time(time, to));
        time
    }

    fn is_shutting_down(&self) -> bool {
        let is_shutting_down = self.host.is_shutting_down();
        self.log.add(|to| {
            to.push(kinds::SHUTTING_DOWN);
            is_shutting_down.encode(to);
        });
        is_shutting_down
    }

    fn holder(&self, name: &str) -> Option<Pid> {
        let holder = self.host.holder(name);
        self.log.add(|to| put_named_pid(kinds::HOLDER, name, holder, to));
        holder
    }

    fn next_member(&self, group: &str) -> Option<Pid> {
        let member = self.host.next_member(group);
        self.log.add(|to| put_named_pid(kinds::MEMBER, group, member, to));
        member
    }

    fn group(&self, name: &str) -> Vec<Pid> {
        let group = self.host.group(name);
        self.log.add(|to| {
            to.push(kinds::GROUP);
            crc32fast::hash(name.as_bytes()).encode(to);
            group.encode(to);
        });
        group
    }

    fn receivers(&self, group: &str) -> Option<Arc<[Pid]>> {
        let receivers = self.host.receivers(group);
        self.log.add(|to| {
            to.push(kinds::RECEIVERS);
            crc32fast::hash(group.as_bytes()).encode(to);
            receivers.as_ref().map(|receivers| receivers.to_vec()).encode(to);
        });
        receivers
    }

    fn vacancies(&self, stock: &mut Vec<Pid>) -> Result<(), SpawnError> {
        // The PIDs that are given are known from the spawned processes.
        let vacancies = self.host.vacancies(stock);
        if let Err(why) = &vacancies {
            self.log.add(|to| put_no_vacancy(why, to));
        }
        vacancies
    }

    fn monitor_numbers(&self) -> Range<u64> {
        let numbers = self.host.monitor_numbers();
        self.log.add(|to| {
            to.push(kinds::MONITOR_NUMBERS);
            (numbers.start, numbers.end).encode(to);
        });
        numbers
    }

    fn answer_from(&self, from: Option<Pid>, to: Pid, tag: u64, answer: Answer) {
        self.host.answer_from(from, to, tag, answer);
    }

    fn is_alive(&self, pid: Pid) -> bool {
        self.host.is_alive(pid)
    }

    fn late_reply(&self) {
        self.host.late_reply();
    }

    fn bury_unsent(&self, letter: &DeadLetter<'_>) {
        self.host.bury_unsent(letter);
    }

    fn surround(&self, run: &mut dyn FnMut()) {
        self.host.surround(run);
    }

    fn discarded_answer(&self) {
        self.host.discarded_answer();
    }

    fn forget_timer(&self, timer: TimerId) {
        self.host.forget_timer(timer);
    }

    fn end_run(&self, child: Pid, reason: Reason) {
        self.host.end_run(child, reason);
    }

    fn nobody(&self) -> Pid {
        self.host.nobody()
    }

    fn clock(&self) -> &Clock {
        self.host.clock()
    }

    fn seed(&self) -> u64 {
        self.host.seed()
    }

    fn give_back_after(&self, pid: Pid) {
        self.host.give_back_after(pid);
    }
}

thread_local! {
    /// The results of the replies that the recorded step on this thread has sent itself.
    static REPLIES: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

/// Begins to note the results of replies on this thread.
#[inline]
pub(super) fn note_replies() {
    on_reply_sent(Some(|sent| {
        REPLIES.with_borrow_mut(|replies| replies.push(sent));
        sent
    }));
}

/// Ends that, and returns them.
#[inline]
pub(super) fn noted_replies() -> Vec<bool> {
    on_reply_sent(None);
    REPLIES.with_borrow_mut(std::mem::take)
}
