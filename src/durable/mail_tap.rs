//! Sees which messages and answers a step takes.

use super::core::StoreCore;
use super::residency::Resident;
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::event::EventTap;
use crate::process::reply::Completion;
use crate::sched::mailbox::Control;

/// Notes the messages and answers that a step takes.
pub(super) struct MailTap {
    pub(super) resident: Arc<Resident>,
    pub(super) store: Arc<StoreCore>,
}

impl<M> EventTap<M> for MailTap {
    fn passed(&mut self, _: &M) {}

    fn taken(&mut self, _: &M, from: Option<Pid>) -> Option<Pid> {
        // A question of a durable process is not stored, and has its sender there.
        let number = from.and_then(|from| self.store.number_of(from));
        let sender = number.and_then(|number| Some((number, lock(&self.resident.mail).get(&number)?.from)));
        let Some((number, sender)) = sender else { return from };
        lock(&self.resident.taken).mail.push(number);
        sender
    }

    fn completed(&mut self, completion: &Completion) {
        lock(&self.resident.taken).answers.push(completion.tag());
    }

    fn control(&mut self, control: &Control) {
        match control {
            Control::Cancel(request) => lock(&self.resident.taken).cancels.push(request.clone()),
            Control::Down(down) => lock(&self.resident.taken).downs.push(down.clone()),
            Control::Exit(exit, _) => lock(&self.resident.taken).exits.push(exit.clone()),
            Control::Group(event) => lock(&self.resident.taken).groups.push(event.clone()),
            Control::Recovered(_) => {}
        }
    }

    fn nothing(&mut self) {}

    fn is_over(&self) -> bool {
        let taken = lock(&self.resident.taken);
        taken.only_one && !(taken.mail.is_empty() && taken.answers.is_empty())
    }
}
