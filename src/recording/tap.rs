//! The taps of a recorded process: one at its events, one between its steps and the runtime.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::time::{Instant, SystemTime};

use super::codec::{Codec, Recordable, put_list, put_pid};
use super::item::{kinds, put_item_control, put_named_pid, put_no_vacancy, put_system_time};
use super::log::Writer;
use super::value::Values;
use crate::clock::Clock;
use crate::outcome::Reason;
use crate::primitives::Arc;
use crate::process::event::EventTap;
use crate::process::host::Host;
use crate::process::{Answer, Completion, DeadLetter, Pid, SpawnError};
use crate::sched::mailbox::Control;
use crate::timer::TimerId;

thread_local! {
    /// Writes the recording of the process that this thread steps, if it is recorded.
    ///
    /// A thread that ends has no writer, because it ends outside of steps. So the variable needs no destructor, and no
    /// access has to check whether the destructor has run.
    static WRITER: Cell<Option<ManuallyDrop<Box<Writer>>>> = const { Cell::new(None) };
}

/// Makes this the writer of the steps on this thread. Returns the one before it.
#[inline]
pub(super) fn set_writer(writer: Option<Box<Writer>>) -> Option<Box<Writer>> {
    WRITER.replace(writer.map(ManuallyDrop::new)).map(ManuallyDrop::into_inner)
}

/// Writes, if the step on this thread is recorded. Nothing is written between the steps.
#[inline]
fn write(write: impl FnOnce(&mut Writer)) {
    if let Some(writer) = WRITER.take() {
        // The writer is dropped if `write` panics.
        let mut writer = ManuallyDrop::into_inner(writer);
        write(&mut writer);
        let before = WRITER.replace(Some(ManuallyDrop::new(writer)));
        debug_assert!(before.is_none(), "a step began while another one was being written");
    }
}

/// Adds to the step on this thread, if it is recorded.
#[inline]
fn add(add: impl FnOnce(&mut Vec<u8>)) {
    let put = |to: &mut Vec<u8>| {
        add(to);
        Ok(())
    };
    write(|writer| writer.item(put));
}

/// Notes the results of the replies that the step on this thread sends itself.
pub(super) fn note_reply(sent: bool) -> bool {
    write(|writer| writer.replies.push(sent));
    sent
}

/// Records the events that a process takes.
pub(super) struct RecordTap<M> {
    pub(super) codec: Codec<M>,
    pub(super) values: Arc<Values>,
}

impl<M> EventTap<M> for RecordTap<M> {
    fn passed(&mut self, message: &M) {
        write(|writer| writer.message(None, |to| self.codec.put(message, to)));
    }

    fn taken(&mut self, message: &M, from: Option<Pid>) -> Option<Pid> {
        write(|writer| writer.message(Some(from), |to| self.codec.put(message, to)));
        from
    }

    fn completed(&mut self, completion: &Completion) {
        let tag = completion.tag();
        let put = |to: &mut Vec<u8>| {
            to.push(kinds::COMPLETED);
            tag.encode(to);
            put_pid(completion.answered_by(), to);
            let (mut bytes, mut is_encoded) = (Vec::new(), false);
            completion.look(&mut |answer| is_encoded = self.values.put_answer(answer, &mut bytes));
            put_list(&bytes, to);
            let what = || format!("the answer to command {tag} has a type without a codec: see `Recorder::answer`");
            is_encoded.then_some(()).ok_or_else(what)
        };
        write(|writer| writer.item(put));
    }

    fn control(&mut self, control: &Control) {
        add(|to| put_item_control(control, to));
    }

    fn nothing(&mut self) {
        write(Writer::nothing);
    }
}

/// Records what a process asks the runtime in its steps.
pub(super) struct RecordHost {
    pub(super) host: Arc<dyn Host>,
}

impl Host for RecordHost {
    fn now(&self) -> Instant {
        let now = self.host.now();
        add(|to| {
            to.push(kinds::NOW);
            now.encode(to);
        });
        now
    }

    fn system_time(&self) -> SystemTime {
        let time = self.host.system_time();
        add(|to| put_system_time(time, to));
        time
    }

    fn is_shutting_down(&self) -> bool {
        let is_shutting_down = self.host.is_shutting_down();
        add(|to| {
            to.push(kinds::SHUTTING_DOWN);
            is_shutting_down.encode(to);
        });
        is_shutting_down
    }

    fn holder(&self, name: &str) -> Option<Pid> {
        let holder = self.host.holder(name);
        add(|to| put_named_pid(kinds::HOLDER, name, holder, to));
        holder
    }

    fn shared_holder(&self, name: &str) -> Option<Pid> {
        let holder = self.host.shared_holder(name);
        add(|to| put_named_pid(kinds::HOLDER, name, holder, to));
        holder
    }

    fn next_member(&self, group: &str) -> Option<Pid> {
        let member = self.host.next_member(group);
        add(|to| put_named_pid(kinds::MEMBER, group, member, to));
        member
    }

    fn group(&self, name: &str) -> Vec<Pid> {
        let group = self.host.group(name);
        add(|to| {
            to.push(kinds::GROUP);
            crc32fast::hash(name.as_bytes()).encode(to);
            group.encode(to);
        });
        group
    }

    fn receivers(&self, group: &str) -> Option<Arc<[Pid]>> {
        let receivers = self.host.receivers(group);
        add(|to| {
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
            add(|to| put_no_vacancy(why, to));
        }
        vacancies
    }

    fn monitor_numbers(&self) -> Range<u64> {
        let numbers = self.host.monitor_numbers();
        add(|to| {
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
