//! The signals that wait for a process: events that overtake messages, or do not count as messages.
//!
//! The control lane overtakes every message, with one exception. The end of a process is never reported before the
//! messages and answers that the process had sent. Such a signal waits *behind* the last of those messages and
//! answers, and behind nothing else. (A step after `Wait` is given no messages, so there it waits behind answers
//! only.)

use std::collections::{HashSet, VecDeque};

use crate::outcome::{LinkedExit, drop_contained};
use crate::pid::Pid;
use crate::process::command::CancelRequest;
use crate::process::names::GroupEvent;
use crate::process::relation::{Down, ExitSignal, LinkedBy, Monitor, Recovered};
use crate::process::reply::Completion;
use crate::process::step_activity::StepActivity;
use crate::sched::small_queue::SmallQueue;
use crate::sched::trace_marks::{Context, TraceMarks};
use crate::sched::wait_marks::WaitMarks;

/// An event that overtakes messages, or does not count as a message.
pub(crate) enum Signal {
    Control(Control),
    Completed(Completion),
}

/// A signal of the control lane. A bound never refuses it. It never waits behind messages of other processes.
pub(crate) enum Control {
    Cancel(CancelRequest),
    Down(Down),
    /// The end of a linked process, with the sides that had made the link.
    Exit(ExitSignal, LinkedBy),
    Recovered(Recovered),
    Group(GroupEvent),
}

impl Control {
    /// Returns the process whose messages the signal must not overtake.
    pub(crate) fn follows(&self) -> Option<Pid> {
        match self {
            Control::Cancel(_) | Control::Group(_) => None,
            Control::Down(down) => Some(down.pid),
            Control::Exit(exit, _) => Some(exit.pid),
            Control::Recovered(recovered) => Some(recovered.pid),
        }
    }

    /// Whether only the state machine wanted this signal.
    ///
    /// These are signals of monitors and subscriptions that it had begun, and of links that no other process has
    /// made. A request to stop is for the process. So is the exit of a process that had linked itself to this one.
    fn is_the_state_machines(&self) -> bool {
        match self {
            Control::Cancel(_) => false,
            Control::Exit(_, by) => !by.other,
            // A recovery is reported to the process that has made the link.
            Control::Down(_) | Control::Recovered(_) | Control::Group(_) => true,
        }
    }

    /// Returns the activity of a step that is given this signal.
    pub(crate) fn activity(&self) -> StepActivity {
        match self {
            Control::Cancel(_) => StepActivity::Cancel,
            Control::Down(down) => StepActivity::Down { pid: down.pid },
            Control::Exit(exit, _) => StepActivity::Exit { pid: exit.pid },
            Control::Recovered(recovered) => StepActivity::Recovered { pid: recovered.pid },
            Control::Group(_) => StepActivity::Group,
        }
    }
}

/// Signals that a process no longer wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Unwanted {
    Down(Monitor),
    /// The exit signals of this process, and its recoveries.
    Exit(Pid),
    /// The recoveries of this living process, and the exits that were delivered because of recoveries.
    Recovered(Pid),
    /// Changes of a group, by the number of the subscription.
    Group(u64),
}

impl Unwanted {
    /// Whether the set contains signals of a link to this process.
    pub(crate) fn concerns_link(unwanted: &HashSet<Unwanted>, to: Pid) -> bool {
        unwanted.contains(&Unwanted::Exit(to)) || unwanted.contains(&Unwanted::Recovered(to))
    }

    /// Whether the set contains this signal.
    fn includes(unwanted: &HashSet<Unwanted>, control: &Control) -> bool {
        match control {
            Control::Cancel(_) => false,
            Control::Down(down) => unwanted.contains(&Unwanted::Down(down.monitor)),
            Control::Exit(exit, by) if by.recovered => Unwanted::concerns_link(unwanted, exit.pid),
            Control::Exit(exit, _) => unwanted.contains(&Unwanted::Exit(exit.pid)),
            Control::Recovered(Recovered { pid, .. }) => Unwanted::concerns_link(unwanted, *pid),
            Control::Group(event) => unwanted.contains(&Unwanted::Group(event.subscription.id())),
        }
    }
}

/// The signals that wait. Made with the first one, because most processes have none most of the time.
// The fields that an answer needs stand together. An answer mostly comes from another processor, and each cache line
// that it needs must come from there.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Signals {
    // Each with the number of messages, counted as `popped` is, that arrived before it. A process that listens to
    // everything sees completions and messages in the order of their arrival.
    pub(crate) completions: SmallQueue<(u64, Completion)>,
    // The number of completions taken since this was made.
    answered: u64,
    // The number of messages taken from the queue since this was made.
    pub(crate) popped: u64,
    pub(crate) control: VecDeque<Control>,
    // The number of signals, from the front, that need not wait behind anything here.
    free: usize,
    // Whether messages were left out when `free` was determined.
    free_of_answers: bool,
    related: Option<Box<Related>>,
    // The last request to stop that a step has taken.
    asked_to_stop: Option<CancelRequest>,
    // Present if messages or commands are traced.
    pub(crate) traces: Option<Box<TraceMarks>>,
    // Those of messages whose waits are measured.
    pub(crate) waits: WaitMarks,
}

// In bytes. Each question, and each message whose wait is measured, may allocate one.
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Signals>() <= 184);

/// Fields that only processes with links or monitors need.
#[derive(Default)]
struct Related {
    // Sorted.
    behind: VecDeque<(Place, Control)>,
    killer: Option<LinkedExit>,
}

/// The place that a signal waits behind: a number of messages, counted as `popped` is, and of completions, as
/// `answered` is.
///
/// The default waits behind nothing. Completions and messages stand in one order, so a smaller place is due first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    // Also those in front of the answer, so that the places stand in the order in which they are reached.
    messages: u64,
    answers: u64,
    // Those that must be taken themselves. A step after `Wait` takes an answer without the messages in front of it.
    needed: u64,
}

impl Place {
    /// Whether everything in front of this place has been taken.
    fn is_due(self, popped: u64, answered: u64) -> bool {
        self.needed <= popped && self.answers <= answered
    }

    fn and(self, other: Place) -> Place {
        Place {
            messages: self.messages.max(other.messages),
            answers: self.answers.max(other.answers),
            needed: self.needed.max(other.needed),
        }
    }

    /// Returns the place among messages that are counted otherwise.
    fn moved(self, answers: u64, messages: impl Fn(u64) -> u64) -> Place {
        let needed = if self.needed == 0 { 0 } else { messages(self.needed) };
        Place { messages: messages(self.messages), answers, needed }
    }
}

/// A queue of messages, as far as their senders matter.
pub(crate) trait Senders {
    fn len(&self) -> usize;

    fn sender(&self, place: usize) -> Option<Pid>;
}

impl Signals {
    pub(crate) fn is_empty(&self) -> bool {
        self.completions.is_empty() && !self.has_control()
    }

    /// Whether anything but completions waits.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
            || self.related.as_ref().is_some_and(|related| !related.behind.is_empty() || related.killer.is_some())
    }

    /// Whether nothing waits, and nothing has to be remembered.
    pub(crate) fn is_needless(&self) -> bool {
        self.has_only_waits() && self.waits.is_empty()
    }

    /// Whether nothing waits, and nothing has to be remembered but the marks of messages whose waits are measured.
    pub(crate) fn has_only_waits(&self) -> bool {
        self.is_empty() && self.asked_to_stop.is_none() && self.traces.as_ref().is_none_or(|traces| traces.is_empty())
    }

    pub(crate) fn add(&mut self, signal: Signal, arrived: u64) {
        match signal {
            Signal::Control(control) => self.control.push_back(control),
            Signal::Completed(completed) => self.completions.push((arrived, completed)),
        }
    }

    /// Takes the next completion. With messages, takes it only if it is due among them.
    pub(crate) fn next_completion(&mut self, messages: bool) -> Option<Completion> {
        let popped = self.popped;
        self.completions.front().filter(|(arrived, _)| !messages || *arrived <= popped)?;
        let (arrived, completed) = self.completions.pop()?;
        self.answered += 1;
        if arrived > popped {
            self.answered_early();
        }
        Some(completed)
    }

    /// An answer was taken without the messages in front of it. Signals behind the answer must not wait for them.
    #[cold]
    fn answered_early(&mut self) {
        let Some(related) = &mut self.related else { return };
        let answered = self.answered;
        let waited = |behind: &Place| behind.messages > behind.needed && behind.answers <= answered;
        let mut moved = false;
        for (behind, _) in related.behind.iter_mut().filter(|(behind, _)| waited(behind)) {
            (behind.messages, moved) = (behind.needed, true);
        }
        if moved {
            related.behind.make_contiguous().sort_by_key(|(behind, _)| *behind);
        }
    }

    /// Takes the next signal of the control lane. The end of a process waits behind the last answer of that process. If
    /// the step `gives_messages`, it also waits behind its last message.
    pub(crate) fn next_control(&mut self, messages: &dyn Senders, gives_messages: bool) -> Option<Control> {
        let control = self.take_next(messages, gives_messages)?;
        if let Control::Cancel(request) = &control {
            self.asked_to_stop = Some(request.clone());
        }
        Some(control)
    }

    fn take_next(&mut self, messages: &dyn Senders, gives_messages: bool) -> Option<Control> {
        let (popped, answered) = (self.popped, self.answered);
        let popped = if gives_messages { popped } else { u64::MAX };
        if let Some(related) = &mut self.related
            && let Some((_, control)) = related.behind.pop_front_if(|(place, _)| place.is_due(popped, answered))
        {
            return Some(control);
        }
        if self.free_of_answers && gives_messages {
            (self.free, self.free_of_answers) = (0, false);
        }
        if self.free == 0 && !self.control.is_empty() {
            self.sort_out(messages, gives_messages);
        }
        self.free = self.free.checked_sub(1)?;
        self.control.pop_front()
    }

    /// Puts new signals of the control lane behind what they must not overtake.
    ///
    /// It handles all new signals at once: there may be thousands of ends while many messages wait, and the messages
    /// are searched once. A step that is given no messages needs their places, too: an end that waits behind an answer
    /// may be taken by a later step, which is given them.
    fn sort_out(&mut self, messages: &dyn Senders, gives_messages: bool) {
        let mut places = self.ends();
        if !places.is_empty() {
            find_messages(&mut places, messages, self.popped);
            self.find_waiting(&mut places);
        }
        if !gives_messages {
            // The others wait behind messages only. One comes after a signal of its process that waits already.
            let waiting = self.related.iter().flat_map(|related| &related.behind);
            let waiting: HashSet<Pid> = waiting.filter_map(|(_, control)| control.follows()).collect();
            places.retain(|(pid, place)| place.answers > 0 || waiting.contains(pid));
        }
        self.move_behind(&places);
        (self.free, self.free_of_answers) = (self.control.len(), !gives_messages);
    }

    /// As `sort_out`, for messages that have not come over with the signals: `arrived` messages come before them.
    pub(crate) fn wait_behind(&mut self, arrived: u64, messages: &dyn Senders) {
        let mut places = self.ends();
        if places.is_empty() || messages.len() == 0 {
            return;
        }
        find_messages(&mut places, messages, arrived);
        // The others are independent of these messages, and are sorted with the messages here.
        places.retain(|(_, place)| *place != Place::default());
        self.find_waiting(&mut places);
        self.move_behind(&places);
    }

    /// Returns the processes whose ends are in the control lane, each once and in order.
    ///
    /// Each comes with an empty place to wait behind.
    fn ends(&self) -> Vec<(Pid, Place)> {
        let mut ends: Vec<_> =
            self.control.iter().filter_map(Control::follows).map(|pid| (pid, Place::default())).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Finds the last answer of each process, and its last signal that waits already. A later signal comes after it.
    fn find_waiting(&self, places: &mut [(Pid, Place)]) {
        let answers = self.completions.iter().enumerate().filter_map(|(number, (arrived, completed))| {
            let answers = self.answered + number as u64 + 1;
            Some((completed.answered_by()?, Place { messages: *arrived, answers, needed: 0 }))
        });
        let waiting = self.related.iter().flat_map(|related| &related.behind);
        let waiting = waiting.filter_map(|(place, control)| Some((control.follows()?, *place)));
        for (from, behind) in answers.chain(waiting) {
            if let Some(place) = find(places, from) {
                *place = place.and(behind);
            }
        }
    }

    fn move_behind(&mut self, places: &[(Pid, Place)]) {
        let place_of = |control: &Control| {
            let place = places.binary_search_by_key(&control.follows()?, |(pid, _)| *pid).ok()?;
            Some(places[place].1).filter(|place| *place != Place::default())
        };
        if places.iter().all(|(_, place)| *place == Place::default()) {
            return;
        }
        let free = self.free;
        for (number, control) in std::mem::take(&mut self.control).into_iter().enumerate() {
            match place_of(&control) {
                None => self.control.push_back(control),
                Some(place) => {
                    self.put_behind(place, control);
                    self.free -= usize::from(number < free);
                }
            }
        }
    }

    fn put_behind(&mut self, behind: Place, control: Control) {
        let waiting = &mut self.related.get_or_insert_default().behind;
        waiting.insert(waiting.partition_point(|(other, _)| *other <= behind), (behind, control));
    }

    /// Puts signals that waited elsewhere behind the signals here. `place` maps their old places among the messages
    /// to the new ones. Returns how many completions came over.
    pub(crate) fn absorb(&mut self, mut theirs: Signals, place: impl Fn(u64) -> u64) -> u32 {
        let completions = theirs.completions.len() as u32;
        let place = |arrived: u64| place(arrived.saturating_sub(theirs.popped));
        let before = self.answered + self.completions.len() as u64;
        self.control.append(&mut theirs.control);
        self.completions.extend(theirs.completions.take_all().map(|(arrived, one)| (place(arrived), one)));
        if let Some(related) = theirs.related {
            for (behind, control) in related.behind {
                let answers = behind.answers.checked_sub(theirs.answered).filter(|answers| *answers > 0);
                let answers = answers.map_or(0, |answers| before + answers);
                self.put_behind(behind.moved(answers, place), control);
            }
            related.killer.into_iter().for_each(|killer| self.kill(killer));
        }
        self.asked_to_stop = theirs.asked_to_stop.or(self.asked_to_stop.take());
        if let Some(mut traces) = theirs.traces {
            traces.move_messages(|old| (old >= theirs.popped).then(|| place(old)));
            self.traces.get_or_insert_default().absorb(*traces);
        }
        if !theirs.waits.is_empty() {
            theirs.waits.move_messages(|old| (old >= theirs.popped).then(|| place(old)));
            self.waits.absorb(theirs.waits, self.popped);
        }
        completions
    }

    /// As `absorb`, if there are no signals to put these behind. Mostly these stay where they are.
    pub(crate) fn moved(mut self: Box<Signals>, place: impl Fn(u64) -> u64) -> Box<Signals> {
        if self.related.is_some() {
            let mut all = Box::<Signals>::default();
            all.absorb(*self, place);
            return all;
        }
        let popped = std::mem::take(&mut self.popped);
        (self.answered, self.free, self.free_of_answers) = (0, 0, false);
        self.completions.iter_mut().for_each(|(arrived, _)| *arrived = place(arrived.saturating_sub(popped)));
        if let Some(traces) = &mut self.traces {
            traces.move_messages(|old| (old >= popped).then(|| place(old - popped)));
        }
        self.waits.move_messages(|old| (old >= popped).then(|| place(old - popped)));
        self
    }

    /// Records that this many messages are gone that have not come over: the ones that would have come first after the
    /// `held` messages here.
    pub(crate) fn lose(&mut self, held: u64, lost: u64) {
        let arrived = self.popped + held;
        let place = |old: u64| if old > arrived { arrived.max(old.saturating_sub(lost)) } else { old };
        self.completions.iter_mut().for_each(|(arrived, _)| *arrived = place(*arrived));
        if let Some(related) = &mut self.related {
            related.behind.iter_mut().for_each(|(behind, _)| *behind = behind.moved(behind.answers, place));
            // Some wait for as many messages now, and for other answers.
            related.behind.make_contiguous().sort_by_key(|(behind, _)| *behind);
        }
    }

    /// Records that this many messages have come in front of all signals here.
    pub(crate) fn shift(&mut self, messages: u64) {
        self.completions.iter_mut().for_each(|(arrived, _)| *arrived += messages);
        if let Some(related) = &mut self.related {
            related
                .behind
                .iter_mut()
                .for_each(|(behind, _)| *behind = behind.moved(behind.answers, |old| old + messages));
        }
        if let Some(traces) = &mut self.traces {
            traces.move_messages(|old| Some(old + messages));
        }
        self.waits.move_messages(|old| Some(old + messages));
    }

    pub(crate) fn kill(&mut self, by: LinkedExit) {
        self.related.get_or_insert_default().killer = Some(by);
    }

    pub(crate) fn take_killer(&mut self) -> Option<LinkedExit> {
        self.related.as_mut()?.killer.take()
    }

    /// Takes out unwanted signals. It looks through all signals once, however many are unwanted.
    pub(crate) fn forget(&mut self, unwanted: &HashSet<Unwanted>) -> Vec<Control> {
        self.take_control(|control| Unwanted::includes(unwanted, control))
    }

    /// Takes the signals for which `is_unwanted` is true out of the control lane.
    fn take_control(&mut self, is_unwanted: impl Fn(&Control) -> bool) -> Vec<Control> {
        let mut out = Vec::new();
        if self.control.iter().any(&is_unwanted) {
            let free = self.free;
            for (number, control) in std::mem::take(&mut self.control).into_iter().enumerate() {
                if is_unwanted(&control) {
                    self.free -= usize::from(number < free);
                    out.push(control);
                } else {
                    self.control.push_back(control);
                }
            }
        }
        if let Some(related) = &mut self.related
            && related.behind.iter().any(|(_, control)| is_unwanted(control))
        {
            let (gone, kept): (Vec<_>, _) =
                std::mem::take(&mut related.behind).into_iter().partition(|(_, control)| is_unwanted(control));
            related.behind = kept.into();
            out.extend(gone.into_iter().map(|(_, control)| control));
        }
        out
    }

    /// Whether the process was asked to stop: the request waits, or a step has taken it.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.asked_to_stop.is_some() || self.control.iter().any(|control| matches!(control, Control::Cancel(_)))
    }

    /// Takes out the signals that only the failed state machine wanted, including its answers.
    pub(crate) fn take_of_failed(&mut self) -> Vec<Signal> {
        let control = self.take_control(Control::is_the_state_machines);
        // The remaining signals need not wait behind answers any longer.
        if let Some(related) = &mut self.related {
            related.behind.iter_mut().for_each(|(behind, _)| (behind.answers, behind.messages) = (0, behind.needed));
            related.behind.make_contiguous().sort_by_key(|(behind, _)| *behind);
        }
        if let Some(traces) = &mut self.traces {
            traces.forget_commands();
        }
        let completions = self.completions.take_all().map(|(_, completed)| completed);
        control.into_iter().map(Signal::Control).chain(completions.map(Signal::Completed)).collect()
    }

    /// Puts signals that a step has taken in front of all others, to be taken again.
    pub(crate) fn give_back(&mut self, given_back: Vec<Control>) {
        let (popped, answered) = (self.popped, self.answered);
        if let Some(related) = &mut self.related {
            // These need not wait any longer, and would be taken before the control lane.
            let due = related.behind.partition_point(|(place, _)| place.is_due(popped, answered));
            related.behind.drain(..due).rev().for_each(|(_, control)| self.control.push_front(control));
        }
        given_back.into_iter().rev().for_each(|control| self.control.push_front(control));
        // The step may have been given no messages. The messages that must come first are searched again.
        self.free = 0;
    }

    /// Puts the request to stop that a step has taken in front of the control lane, to be taken again.
    pub(crate) fn ask_to_stop_again(&mut self) {
        if let Some(request) = self.asked_to_stop.take() {
            self.control.push_front(Control::Cancel(request));
            // A request waits behind nothing.
            self.free += 1;
        }
    }

    #[cold]
    pub(crate) fn drop_each(mut self) {
        self.completions.take_all().for_each(drop_contained);
        self.control.into_iter().for_each(drop_contained);
        if let Some(related) = self.related {
            related.behind.into_iter().for_each(drop_contained);
            drop_contained(related.killer);
        }
        if let Some(traces) = self.traces {
            traces.drop_each();
        }
    }

    /// Marks the message at this place, which is the last one.
    #[cold]
    pub(crate) fn mark(&mut self, place: u64, context: Context) {
        self.traces.get_or_insert_default().mark(place, context);
    }

    /// Has the wait of a message measured. It is `behind` so many others here, which are all before it.
    #[cold]
    pub(crate) fn mark_wait(&mut self, behind: u64, accepted: u64) {
        let popped = self.popped;
        self.waits.mark(popped + behind, accepted, popped);
    }

    /// Whether messages are marked.
    pub(crate) fn has_marks(&self) -> bool {
        self.traces.is_some() || !self.waits.is_empty()
    }

    /// Whether the next message is traced.
    #[cold]
    pub(crate) fn is_marked(&mut self) -> bool {
        let place = self.popped;
        self.traces.as_mut().is_some_and(|traces| traces.is_marked(place))
    }

    /// The tag of the next completion. With messages, only if the completion is due among them.
    #[cold]
    pub(crate) fn next_tag(&self, messages: bool) -> Option<u64> {
        let (arrived, completed) = self.completions.front()?;
        (!messages || *arrived <= self.popped).then(|| completed.tag())
    }

    /// Takes out the marks of the messages behind the next `count`, which are moved to another mailbox. The result is
    /// for the mailbox that they leave.
    #[cold]
    pub(crate) fn split_marks(&mut self, count: u64) -> Option<Box<Signals>> {
        // The places of the others stay, because so many messages count as taken there.
        let popped = self.popped.saturating_add(count);
        let traces = self.traces.as_mut().and_then(|traces| traces.split_off(popped));
        self.traces.take_if(|traces| traces.is_empty());
        let waits = self.waits.split_off(popped);
        let has_marks = traces.is_some() || !waits.is_empty();
        has_marks.then(|| Box::new(Signals { popped, traces, waits, ..Signals::default() }))
    }

    /// Marks messages that have come in front of all others.
    #[cold]
    pub(crate) fn put_marks_in_front(&mut self, marks: Vec<(u64, Context)>) {
        self.traces.get_or_insert_default().put_in_front(marks);
    }

    /// Takes the context of the message that was taken last.
    #[cold]
    pub(crate) fn take_last_mark(&mut self) -> Option<Context> {
        self.traces.as_mut()?.take(self.popped.checked_sub(1)?)
    }

    /// Takes the context of the next message.
    #[cold]
    pub(crate) fn take_mark(&mut self) -> Option<Context> {
        self.traces.as_mut()?.take(self.popped)
    }
}

fn find(places: &mut [(Pid, Place)], pid: Pid) -> Option<&mut Place> {
    let place = places.binary_search_by_key(&pid, |(pid, _)| *pid).ok()?;
    Some(&mut places[place].1)
}

/// Finds the last message of each process, from the back: a process that has just ended has sent its last message
/// recently.
fn find_messages(places: &mut [(Pid, Place)], messages: &dyn Senders, arrived: u64) {
    let mut wanted = places.len();
    for number in (0..messages.len()).rev() {
        if let Some(place) = messages.sender(number).and_then(|from| find(places, from))
            && place.messages == 0
        {
            let messages = arrived + number as u64 + 1;
            *place = place.and(Place { messages, answers: 0, needed: messages });
            wanted -= 1;
            if wanted == 0 {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::outcome::{Exit, Reason};
    use crate::process::RecoveredBy;
    use crate::sched::mailbox::{Envelope, Queue};

    fn pid(slot: u32) -> Pid {
        Pid::new(1, slot, 1).unwrap()
    }

    fn down(of: Pid) -> Signal {
        Signal::Control(Control::Down(Down { monitor: Monitor::new(0, of), pid: of, exit: Exit::Done(()) }))
    }

    fn answer(from: Pid, tag: u64) -> Signal {
        Signal::Completed(Completion::from(Some(from), tag, Ok(Box::new(()))))
    }

    /// A queue that counts how many messages are looked at. Each message is from the process with its number.
    struct Counted {
        len: usize,
        looked_at: Cell<usize>,
    }

    impl Senders for Counted {
        fn len(&self) -> usize {
            self.len
        }

        fn sender(&self, place: usize) -> Option<Pid> {
            self.looked_at.set(self.looked_at.get() + 1);
            Some(pid(place as u32))
        }
    }

    #[test]
    fn many_ends_at_once_look_through_the_messages_once() {
        let (mut signals, messages) = (Signals::default(), Counted { len: 10_000, looked_at: Cell::new(0) });
        // Half of them have sent something, and half have not.
        (5_000..15_000).for_each(|slot| signals.add(down(pid(slot)), 10_000));
        let told = std::iter::from_fn(|| signals.next_control(&messages, true));
        assert_eq!(
            told.map(|told| told.follows()).collect::<Vec<_>>(),
            (10_000..15_000).map(|n| Some(pid(n))).collect::<Vec<_>>()
        );
        assert_eq!(messages.looked_at.get(), 10_000);
        // The others come when the messages that they wait behind have been taken.
        for popped in 1..=10_000 {
            signals.popped = popped;
            let told = signals.next_control(&messages, true).and_then(|told| told.follows());
            assert_eq!(told, (popped > 5_000).then(|| pid(popped as u32 - 1)));
        }
        assert!(signals.is_empty());
        assert_eq!(messages.looked_at.get(), 10_000);
    }

    #[test]
    fn an_end_does_not_wait_for_an_answer_of_another_when_messages_are_lost() {
        let mut signals = Signals::default();
        for (of, messages, answers) in [(1, 3, 1), (2, 4, 0)] {
            let Signal::Control(control) = down(pid(of)) else { unreachable!("an end is a control signal") };
            signals.put_behind(Place { messages, answers, needed: messages }, control);
        }
        // Two messages are here. The two behind them are lost, and both ends wait for as many now.
        signals.lose(2, 2);
        signals.popped = 2;
        let messages = Counted { len: 0, looked_at: Cell::new(0) };
        assert_eq!(signals.next_control(&messages, true).and_then(|told| told.follows()), Some(pid(2)));
        assert!(signals.next_control(&messages, true).is_none(), "this one waits for an answer");
    }

    #[test]
    fn an_end_waits_behind_the_answer_and_the_message_that_came_before() {
        let messages = Counted { len: 4, looked_at: Cell::new(0) };
        for shown in [true, false] {
            let mut signals = Signals::default();
            // The fourth message is from number 3; its answer came after the second.
            signals.add(answer(pid(9), 1), 2);
            signals.add(answer(pid(3), 2), 2);
            signals.add(down(pid(3)), 4);
            signals.add(down(pid(9)), 4);
            signals.add(down(pid(7)), 4);
            let mut told = Vec::new();
            while told.len() < 5 {
                if let Some(control) = signals.next_control(&messages, shown) {
                    told.push(format!("down {}", control.follows().unwrap().slot()));
                } else if let Some(completed) = signals.next_completion(shown) {
                    told.push(format!("answer {}", completed.tag()));
                } else {
                    signals.popped += 1;
                }
            }
            let last = if shown { 4 } else { 0 };
            assert_eq!(told, ["down 7", "answer 1", "down 9", "answer 2", "down 3"]);
            assert_eq!(signals.popped, last);
        }
    }

    /// A step after `Wait` takes an answer and leaves the messages that came before it.
    #[test]
    fn an_end_waits_behind_no_message_of_others_if_its_answer_was_taken_early() {
        let (mut signals, messages) = (Signals::default(), Counted { len: 3, looked_at: Cell::new(0) });
        // Three messages came before the answer of number 7.
        signals.add(answer(pid(7), 1), 3);
        signals.add(down(pid(7)), 3);
        // The last message is from number 2, and waits. Its end comes after it.
        signals.add(down(pid(2)), 3);
        let follows = |control: Option<Control>| control.and_then(|control| control.follows());
        assert_eq!(follows(signals.next_control(&messages, true)), None);
        assert!(signals.next_completion(false).is_some());
        assert_eq!(follows(signals.next_control(&messages, true)), Some(pid(7)));
        assert_eq!(follows(signals.next_control(&messages, true)), None);
        signals.popped = 3;
        assert_eq!(follows(signals.next_control(&messages, true)), Some(pid(2)));
    }

    #[test]
    fn an_end_that_a_step_after_wait_has_left_still_waits_behind_its_message() {
        let (mut signals, here) = (Signals::default(), message_of(pid(7)));
        signals.add(answer(pid(7), 1), 1);
        signals.add(down(pid(7)), 1);
        assert!(signals.next_control(&here, false).is_none());
        assert!(signals.next_completion(false).is_some());
        assert!(signals.next_control(&here, true).is_none(), "the message comes first");
        signals.popped = 1;
        assert!(signals.next_control(&here, true).is_some());
    }

    #[test]
    fn an_end_behind_messages_alone_does_not_wait_for_an_answer_after_wait() {
        let (mut signals, messages) = (Signals::default(), Counted { len: 3, looked_at: Cell::new(0) });
        signals.add(answer(pid(7), 1), 0);
        signals.add(down(pid(7)), 3);
        signals.add(down(pid(2)), 3);
        let next = |signals: &mut Signals| signals.next_control(&messages, false)?.follows();
        assert_eq!((next(&mut signals), next(&mut signals)), (Some(pid(2)), None));
        assert!(signals.next_completion(false).is_some());
        assert_eq!(next(&mut signals), Some(pid(7)));
    }

    /// The exit of a process that had made the link itself stays when the state machine is replaced.
    #[test]
    fn an_end_whose_answer_went_with_a_machine_waits_behind_its_message() {
        let (mut signals, here) = (Signals::default(), message_of(pid(7)));
        let exit = ExitSignal { pid: pid(7), exit: Exit::Terminated(Reason::Terminated) };
        let by = LinkedBy::OTHER;
        signals.add(answer(pid(7), 1), 1);
        signals.add(Signal::Control(Control::Exit(exit, by)), 1);
        assert!(signals.next_control(&here, false).is_none());
        assert_eq!(signals.take_of_failed().len(), 1, "the answer");
        assert!(signals.next_control(&here, true).is_none(), "the message comes first");
        signals.popped = 1;
        assert!(signals.next_control(&here, true).is_some());
    }

    #[test]
    fn a_place_behind_answers_is_kept_when_signals_come_over() {
        let (mut mine, mut theirs) = (Signals::default(), Signals::default());
        let nothing = Counted { len: 0, looked_at: Cell::new(0) };
        mine.add(answer(pid(1), 1), 0);
        theirs.add(answer(pid(2), 2), 0);
        theirs.add(answer(pid(3), 3), 0);
        theirs.add(down(pid(3)), 0);
        // One is taken, and the end has its place, before they come over.
        assert!(theirs.next_control(&nothing, true).is_none());
        assert!(theirs.next_completion(true).is_some());
        assert_eq!(mine.absorb(theirs, |place| place), 1);
        for tag in [1, 3] {
            assert!(mine.next_control(&nothing, true).is_none(), "before {tag}");
            assert_eq!(mine.next_completion(true).unwrap().tag(), tag);
        }
        assert!(mine.next_control(&nothing, true).is_some() && mine.is_empty());
    }

    fn message_of(from: Pid) -> Queue<()> {
        Queue::One(Envelope { from: Some(from), message: () })
    }

    #[test]
    fn an_end_comes_after_a_recovery_that_has_waited_behind_an_answer() {
        let (mut signals, message) = (Signals::default(), message_of(pid(7)));
        let exit = Exit::Terminated(Reason::Terminated);
        signals.add(answer(pid(7), 1), 0);
        let recovery = Control::Recovered(Recovered { pid: pid(7), exit, by: RecoveredBy::Process });
        signals.add(Signal::Control(recovery), 0);
        // The message has not come over. When it does, the answer has been taken.
        signals.wait_behind(0, &message);
        assert!(signals.next_completion(true).is_some());
        signals.add(down(pid(7)), 1);
        assert!(signals.next_control(&message, true).is_none(), "the message comes first");
        signals.popped = 1;
        let mut next = || signals.next_control(&Queue::<()>::Empty, true);
        assert!(matches!(next(), Some(Control::Recovered(_))));
        assert!(matches!(next(), Some(Control::Down(_))));
    }

    #[test]
    fn an_end_comes_after_a_recovery_in_a_step_that_is_given_no_messages() {
        let (mut signals, mut messages) = (Signals::default(), Queue::<()>::Empty);
        [6, 7].into_iter().for_each(|from| messages.push(Envelope { from: Some(pid(from)), message: () }));
        let exit = Exit::Terminated(Reason::Terminated);
        signals.add(answer(pid(8), 1), 1);
        signals.add(down(pid(8)), 1);
        let recovery = Control::Recovered(Recovered { pid: pid(7), exit, by: RecoveredBy::Process });
        signals.add(Signal::Control(recovery), 2);
        assert!(signals.next_control(&messages, true).is_none(), "a message and an answer come first");
        assert!(messages.pop().is_some());
        signals.popped = 1;
        signals.add(down(pid(7)), 2);
        assert!(signals.next_control(&messages, false).is_none(), "the recovery waits behind the other end");
        assert!(signals.next_completion(false).is_some());
        let mut next = || signals.next_control(&messages, false);
        assert!(matches!(next(), Some(Control::Down(one)) if one.pid == pid(8)));
        assert!(matches!(next(), Some(Control::Recovered(_))));
        assert!(matches!(next(), Some(Control::Down(one)) if one.pid == pid(7)));
    }

    #[test]
    fn an_end_comes_after_a_recovery_whose_message_has_been_taken() {
        let (mut signals, message) = (Signals::default(), message_of(pid(7)));
        let exit = Exit::Terminated(Reason::Terminated);
        signals.add(answer(pid(7), 1), 1);
        let recovery = Control::Recovered(Recovered { pid: pid(7), exit, by: RecoveredBy::Process });
        signals.add(Signal::Control(recovery), 1);
        assert!(signals.next_control(&message, true).is_none(), "the message comes first");
        signals.popped = 1;
        signals.add(down(pid(7)), 1);
        let next = |signals: &mut Signals| signals.next_control(&Queue::<()>::Empty, true);
        assert!(next(&mut signals).is_none(), "the answer comes first");
        assert!(signals.next_completion(true).is_some());
        assert!(matches!(next(&mut signals), Some(Control::Recovered(_))));
        assert!(matches!(next(&mut signals), Some(Control::Down(_))));
    }

    #[test]
    fn what_is_given_back_comes_first_and_in_order_but_overtakes_no_message() {
        let [one, two, three, four] = [1, 2, 3, 4].map(|slot| Pid::new(1, slot, 1).unwrap());
        let down = |pid| {
            Control::Down(Down { monitor: Monitor::new(0, pid), pid, exit: Exit::Terminated(Reason::Terminated) })
        };
        let mut signals = Signals::default();
        [one, two].into_iter().for_each(|pid| signals.add(Signal::Control(down(pid)), 0));
        // From now on it is known that the second follows no message.
        assert_eq!(signals.next_control(&Queue::<()>::Empty, true).and_then(|told| told.follows()), Some(one));
        signals.give_back([three, one, four].map(down).into());
        let here = message_of(three);
        for (popped, expected) in [(0, vec![one, four, two]), (1, vec![three])] {
            signals.popped = popped;
            let next = || signals.next_control(&here, true)?.follows();
            assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), expected);
        }
        assert!(signals.is_empty());
    }

    #[test]
    fn what_is_given_back_comes_before_an_end_whose_message_was_taken() {
        let [ended, taken] = [1, 2].map(|slot| Pid::new(1, slot, 1).unwrap());
        let down = |pid| {
            Control::Down(Down { monitor: Monitor::new(0, pid), pid, exit: Exit::Terminated(Reason::Terminated) })
        };
        let mut signals = Signals::default();
        [taken, ended].into_iter().for_each(|pid| signals.add(Signal::Control(down(pid)), 0));
        // A step takes the first. From now on it is known that the second waits behind the message that is here.
        let next = |signals: &mut Signals| signals.next_control(&message_of(ended), true)?.follows();
        assert_eq!((next(&mut signals), next(&mut signals)), (Some(taken), None));
        signals.popped = 1;
        signals.give_back(vec![down(taken)]);
        let next = || signals.next_control(&Queue::<()>::Empty, true)?.follows();
        assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), [taken, ended]);
    }

    #[test]
    fn a_postponed_recovery_lets_no_down_overtake_a_message() {
        let [recovered, ended] = [1, 2].map(|slot| Pid::new(1, slot, 1).unwrap());
        let exit = || Exit::Terminated(Reason::Terminated);
        let down = |pid| Control::Down(Down { monitor: Monitor::new(0, pid), pid, exit: exit() });
        let cancel = Control::Cancel(CancelRequest { reason: Reason::Terminated, deadline: None });
        let recovery = Control::Recovered(Recovered { pid: recovered, exit: exit(), by: RecoveredBy::Process });
        let mut signals = Signals::default();
        signals.add(Signal::Control(cancel), 0);
        signals.add(Signal::Control(recovery), 0);
        // A step takes one signal. From now on it is known that the recovery follows no message.
        let here = message_of(ended);
        assert!(matches!(signals.next_control(&here, true), Some(Control::Cancel(_))));
        // Then both processes end. The last message of one is here. The last message of the other has not come over.
        [recovered, ended].into_iter().for_each(|pid| signals.add(Signal::Control(down(pid)), 1));
        signals.wait_behind(1, &message_of(recovered));
        assert!(signals.next_control(&here, true).is_none(), "the message that is here comes first");
        for (popped, expected) in [(1, vec![ended]), (2, vec![recovered, recovered])] {
            signals.popped = popped;
            let next = || signals.next_control(&Queue::<()>::Empty, true)?.follows();
            assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), expected);
        }
        assert!(signals.is_empty());
    }
}
