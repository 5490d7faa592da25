//! What overtakes messages, or does not count as one: the signals that wait for a process.
//!
//! The control lane overtakes every message, with one exception: that a process has ended is never told before what that
//! process had sent. Such a signal waits *behind* the last of those messages, and behind nothing else. (A step after
//! `Wait` is given no messages, so it is told at once.)

use std::collections::VecDeque;

use super::command::{CancelRequest, Completed};
use super::naming::GroupEvent;
use super::pid::Pid;
use super::relation::{Down, ExitSignal, Monitor};
use super::sight::{Doing, Sight};
use crate::outcome::{Linked, drop_contained};
use crate::sync::Arc;

/// What overtakes messages, or does not count as one.
pub(crate) enum Signal {
    Control(Control),
    Completed(Completed),
}

/// The control lane: never refused by a bound, never behind a message of somebody else's.
pub(crate) enum Control {
    Cancel(CancelRequest),
    Down(Down),
    Exit(ExitSignal),
    Group(GroupEvent),
}

impl Control {
    /// The process whose messages it must not overtake.
    pub(crate) fn follows(&self) -> Option<Pid> {
        match self {
            Control::Cancel(_) | Control::Group(_) => None,
            Control::Down(down) => Some(down.pid),
            Control::Exit(exit) => Some(exit.pid),
        }
    }

    /// What a step does that is told this.
    fn doing(&self) -> Doing {
        match self {
            Control::Cancel(_) => Doing::Cancel,
            Control::Down(down) => Doing::Down { pid: down.pid },
            Control::Exit(exit) => Doing::Exit { pid: exit.pid },
            Control::Group(_) => Doing::Group,
        }
    }
}

/// What a process does not want to be told any more.
#[derive(Clone, Copy)]
pub(crate) enum Unwanted {
    Down(Monitor),
    /// The exit signals of this process.
    Exit(Pid),
    /// What happens to a group, by the number of the subscription.
    Group(u64),
}

impl Unwanted {
    fn is(self, control: &Control) -> bool {
        match (self, control) {
            (Unwanted::Down(monitor), Control::Down(down)) => down.monitor == monitor,
            (Unwanted::Exit(pid), Control::Exit(exit)) => exit.pid == pid,
            (Unwanted::Group(id), Control::Group(event)) => event.subscription.id() == id,
            _ => false,
        }
    }
}

/// The signals that wait. Made with the first one, for most processes have none most of the time.
#[derive(Default)]
pub(crate) struct Signals {
    pub(crate) control: VecDeque<Control>,
    // Each with the number of messages, counted as `popped` is, that arrived before it: a process that listens to
    // everything sees completions and messages in the order of their arrival.
    pub(crate) completions: VecDeque<(u64, Completed)>,
    // Messages taken from the queue since this was made.
    pub(crate) popped: u64,
    related: Option<Box<Related>>,
    // Where the step that is being given these is looked at, if it is.
    sight: Option<Arc<Sight>>,
}

/// What only those have who are related to others.
#[derive(Default)]
struct Related {
    // Sorted; each with the number of messages, counted as `popped` is, that it comes behind.
    behind: VecDeque<(u64, Control)>,
    killer: Option<Linked>,
}

impl Signals {
    /// None wait: these are only there to be looked at.
    pub(crate) fn seen_at(sight: &Arc<Sight>) -> Box<Signals> {
        Box::new(Signals { sight: Some(sight.clone()), ..Signals::default() })
    }

    /// What the step does with these can be seen there from now on, or nowhere.
    pub(crate) fn look_at(&mut self, sight: Option<Arc<Sight>>) {
        self.sight = sight;
    }

    // The step takes an event. Not inlined: who does not look pays for the call, on a way that is not the usual one, and no more.

    #[inline(never)]
    pub(super) fn takes_message(&mut self, from: Option<Pid>) {
        self.popped += 1;
        self.note(Doing::Message { from });
    }

    #[inline(never)]
    pub(super) fn takes_kept(&self, from: Option<Pid>) {
        self.note(Doing::Message { from });
    }

    #[inline(never)]
    pub(super) fn takes_completion(&self, tag: u64) {
        self.note(Doing::Completed { tag });
    }

    #[inline(never)]
    pub(super) fn takes_control(&self, control: &Control) {
        self.note(control.doing());
    }

    fn note(&self, doing: Doing) {
        if let Some(sight) = &self.sight {
            sight.note(doing);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.control.is_empty()
            && self.completions.is_empty()
            && self.related.as_ref().is_none_or(|related| related.behind.is_empty() && related.killer.is_none())
    }

    /// The next of the control lane. With `last_from`, which finds the place of a process's last message in the queue, what
    /// tells of an end waits behind that message.
    pub(crate) fn next_control(&mut self, last_from: Option<impl Fn(Pid) -> Option<usize>>) -> Option<Control> {
        if let Some(related) = &mut self.related
            && let Some((_, control)) =
                related.behind.pop_front_if(|(behind, _)| last_from.is_none() || *behind <= self.popped)
        {
            return Some(control);
        }
        while let Some(control) = self.control.pop_front() {
            let place = last_from.as_ref().and_then(|last_from| last_from(control.follows()?));
            match place {
                None => return Some(control),
                Some(place) => self.put_behind(self.popped + place as u64 + 1, control),
            }
        }
        None
    }

    /// The same for messages that have not come over with the signals: `arrived` messages come before them.
    pub(super) fn wait_behind(&mut self, arrived: u64, last_from: impl Fn(Pid) -> Option<usize>) {
        for _ in 0..self.control.len() {
            let Some(control) = self.control.pop_front() else { return };
            match control.follows().and_then(&last_from) {
                None => self.control.push_back(control),
                Some(place) => self.put_behind(arrived + place as u64 + 1, control),
            }
        }
    }

    fn put_behind(&mut self, behind: u64, control: Control) {
        let waiting = &mut self.related.get_or_insert_default().behind;
        waiting.insert(waiting.partition_point(|(other, _)| *other <= behind), (behind, control));
    }

    /// Puts signals that waited elsewhere behind those that are here. `place` says where among the messages they are now,
    /// of where they were. How many completions came over.
    pub(super) fn absorb(&mut self, mut theirs: Signals, place: impl Fn(u64) -> u64) -> u32 {
        let completions = theirs.completions.len() as u32;
        let place = |arrived: u64| place(arrived.saturating_sub(theirs.popped));
        self.control.append(&mut theirs.control);
        self.completions.extend(theirs.completions.into_iter().map(|(arrived, one)| (place(arrived), one)));
        if let Some(related) = theirs.related {
            related.behind.into_iter().for_each(|(behind, control)| self.put_behind(place(behind), control));
            related.killer.into_iter().for_each(|killer| self.kill(killer));
        }
        completions
    }

    /// So many messages have come in front of all that are here.
    pub(super) fn shift(&mut self, messages: u64) {
        self.completions.iter_mut().for_each(|(arrived, _)| *arrived += messages);
        if let Some(related) = &mut self.related {
            related.behind.iter_mut().for_each(|(behind, _)| *behind += messages);
        }
    }

    pub(super) fn kill(&mut self, by: Linked) {
        self.related.get_or_insert_default().killer = Some(by);
    }

    pub(super) fn take_killer(&mut self) -> Option<Linked> {
        self.related.as_mut()?.killer.take()
    }

    pub(super) fn forget(&mut self, unwanted: Unwanted) -> Vec<Control> {
        let mut out = Vec::new();
        while let Some(place) = self.control.iter().position(|control| unwanted.is(control)) {
            out.extend(self.control.remove(place));
        }
        if let Some(related) = &mut self.related {
            while let Some(place) = related.behind.iter().position(|(_, control)| unwanted.is(control)) {
                out.extend(related.behind.remove(place).map(|(_, control)| control));
            }
        }
        out
    }

    #[cold]
    pub(super) fn drop_each(self) {
        self.completions.into_iter().for_each(drop_contained);
        self.control.into_iter().for_each(drop_contained);
        if let Some(related) = self.related {
            related.behind.into_iter().for_each(drop_contained);
            drop_contained(related.killer);
        }
    }
}
