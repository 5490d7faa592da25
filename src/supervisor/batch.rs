//! Work on batches: stops or starts the next child of each batch.

use std::time::Duration;

use super::child::{Child, Moves};
use super::message::ChildState;
use super::process::{Awaited, Life, Supervisor};
use crate::StepOutput;

impl Supervisor {
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn insert(&mut self, child: Child) -> u64 {
        let key = self.number();
        self.by_id.insert(child.spec.id.clone(), key);
        self.file(key, child.batch, child.moves());
        self.children.insert(key, child);
        key
    }

    /// Records in its batch that a child is to be stopped or started.
    fn file(&mut self, key: u64, batch: u64, moves: Moves) {
        match moves {
            Moves::Down => self.batches.entry(batch).or_default().stopping.insert(key),
            Moves::Up => self.batches.entry(batch).or_default().starting.insert(key),
            Moves::Not => return,
        };
        self.changed.insert(batch);
    }

    /// Records in its batch that a child is neither to be stopped nor to be started.
    fn unfile(&mut self, key: u64, batch: u64) {
        let Some(members) = self.batches.get_mut(&batch) else { return };
        if members.stopping.remove(&key) | members.starting.remove(&key) {
            self.changed.insert(batch);
        }
    }

    /// Changes a child, and updates its batches if they are affected.
    pub(super) fn change(&mut self, key: u64, change: impl FnOnce(&mut Child)) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let before = (child.batch, child.moves());
        change(child);
        let now = (child.batch, child.moves());
        if child.has_process() && !child.is_to_stop() {
            self.running.insert(key);
        } else {
            self.running.remove(&key);
        }
        if matches!(child.state, ChildState::Up | ChildState::Down) {
            self.first.remove(&key);
        }
        if now != before {
            self.unfile(key, before.0);
            self.file(key, now.0, now.1);
        }
    }

    pub(super) fn remove(&mut self, key: u64, out: &mut StepOutput) {
        if let Some(mut child) = self.children.remove(&key) {
            child.tell_down(out);
            self.by_id.remove(&child.spec.id);
            self.first.remove(&key);
            self.running.remove(&key);
            self.unfile(key, child.batch);
        }
    }

    /// Sets the state of a child.
    pub(super) fn set(&mut self, key: u64, state: ChildState) {
        self.change(key, |child| child.state = state);
    }

    /// Makes the batch wait for this delay before it starts a child. An earlier delay of the batch is dropped.
    pub(super) fn delay(&mut self, number: u64, delay: Duration, out: &mut StepOutput) {
        let timer = (!delay.is_zero()).then(|| out.after(delay));
        // Without a delay, a batch that does not exist yet is made when a child joins it.
        let before = match timer {
            Some(timer) => {
                self.awaited.insert(timer.id(), Awaited::Delay(number));
                self.batches.entry(number).or_default().delay.replace(timer)
            }
            None => self.batches.get_mut(&number).and_then(|batch| batch.delay.take()),
        };
        self.forget_timer(before, out);
    }

    pub(super) fn carry_on(&mut self, out: &mut StepOutput) {
        for batch in std::mem::take(&mut self.changed) {
            self.carry_on_with(batch, out);
        }
        if matches!(self.life, Life::Starting) && self.first.is_empty() {
            self.life = Life::Up;
            std::mem::take(&mut self.starters).into_iter().for_each(|reply| out.reply(reply, ()));
        }
    }

    fn carry_on_with(&mut self, number: u64, out: &mut StepOutput) {
        let Some(batch) = self.batches.get(&number) else { return };
        let (delay, stops, starts) = (batch.delay, batch.stopping.last().copied(), batch.starting.first().copied());
        if stops.is_none() && starts.is_none() {
            self.batches.remove(&number);
            return self.forget_timer(delay, out);
        }
        // No child is started before all children of the batch that are to be stopped have stopped.
        let Some(key) = stops.or(starts.filter(|_| delay.is_none())) else { return };
        match self.children.get(&key).map(|child| (child.state, child.pid)) {
            Some((ChildState::ToStop, Some(pid))) => self.stop(key, pid, out),
            Some((ChildState::Queued, _)) => self.start(key, out),
            // The child is already being stopped or started.
            _ => {}
        }
    }
}
