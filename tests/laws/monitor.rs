//! A monitor of the notes of a simulated run: whether the run is one that real workers could have had.
//!
//! A simulation has one thread. So the processes of a random program can write what happens into one list, in the
//! order in which it happens. The monitor reads the list and knows nothing else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use procession::Pid;

use crate::acts::StepNumber;

/// Something that happened in a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A step begins at this virtual time. `waited` says that the step before has said `Wait`.
    Step {
        of: Pid,
        at: Duration,
        waited: bool,
    },
    /// The step in progress of this process takes an event.
    Took(Pid, Taken),
    /// The step has returned without an error.
    Stepped(Pid, Yields),
    /// The step has failed, or the simulation has made it fail after it returned.
    Failed(Pid),
    /// The code outside sends a letter.
    Sent(Pid, u64),
    /// The letter that the code outside has sent is handed back.
    Refused(u64),
    /// A letter is a dead letter.
    Dead(u64),
    /// A letter that a failed step has taken is a dead letter.
    DeadInStep(Pid),
    /// An effect of this step is seen: its command is carried out, its closure runs, its child begins.
    Carried(StepNumber),
    Ended(Pid),
    /// The code outside terminates a process, between two turns.
    Terminated {
        of: Pid,
        was_alive: bool,
        /// Whether the call says that the process lived.
        has_lived: bool,
    },
    /// A part of a process is gone.
    Gone(Pid, Part),
    /// A turn is over, and this many letters wait in mailboxes.
    Waiting(usize),
}

/// A part of a process that goes at its end or its recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `close` was called.
    Closed,
    /// One that is pending for ever.
    Future,
    /// An open command is cancelled.
    Command,
    /// The state machine is dropped.
    State,
}

/// An event that a step has taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taken {
    Letter {
        from: Option<Pid>,
        number: u64,
    },
    /// `fired` says that it is the answer of a timer that has elapsed.
    Answer {
        tag: u64,
        fired: bool,
    },
    /// A monitor reports the end of a process.
    End {
        of: Pid,
    },
    /// Any other signal of the control lane, and the process that it is about.
    Control {
        of: Option<Pid>,
    },
}

/// The yields of a step, as far as the monitor needs them.
#[derive(Clone, Debug, PartialEq)]
pub struct Yields {
    pub step: StepNumber,
    pub at: Duration,
    /// The receivers and the numbers of letters.
    pub sent: Vec<(Pid, u64)>,
    /// The tags of timers, and their delays.
    pub timers: Vec<(u64, Duration)>,
    /// The tags of questions, and the numbers of their letters.
    pub asks: Vec<(u64, u64)>,
    /// Askers, and the numbers of the letters that are answered.
    pub replies: Vec<(Pid, u64)>,
    /// The tags of commands that are answered when they are performed.
    pub at_once: Vec<u64>,
    /// Whether the state machine is closed before others see the yields.
    pub closes: bool,
}

impl Yields {
    pub fn new(step: StepNumber, at: Duration) -> Yields {
        Yields {
            step,
            at,
            sent: Vec::new(),
            timers: Vec::new(),
            asks: Vec::new(),
            replies: Vec::new(),
            at_once: Vec::new(),
            closes: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Letter {
    Waits,
    Taken,
    Dead,
}

#[derive(Default)]
struct Monitor {
    /// The process whose step has begun and has not returned.
    inside: Option<Pid>,
    /// The events of the step in progress, or of the last one.
    taken: Vec<Taken>,
    waited: bool,
    /// The last step that has returned, until it is known to have succeeded.
    last: Option<LastStep>,
    /// The dead letters of the last step.
    dead_in_step: usize,
    /// By their numbers, with the receiver and the sender.
    letters: HashMap<u64, (Pid, Option<Pid>, Letter)>,
    waiting: usize,
    /// The newest letter that was taken, by receiver and sender.
    newest: HashMap<(Pid, Option<Pid>), u64>,
    succeeded: HashSet<StepNumber>,
    /// By process and tag.
    timers: HashMap<(Pid, u64), Duration>,
    /// Open questions, by asker and letter.
    asks: HashMap<(Pid, u64), u64>,
    /// Answers that a process has sent to another one and that were not taken, by replier and asker.
    replies: HashMap<(Pid, Pid), Vec<u64>>,
    ended: HashSet<Pid>,
    terminated: HashSet<Pid>,
    /// The processes that are closed, and whose state machines are not dropped yet.
    closed: HashSet<Pid>,
    /// The processes whose last state machine is gone, and whose next one was not closed yet. If such a process ends
    /// before it calls `init`, it is not closed.
    replaced: HashSet<Pid>,
    /// How often the state machines of a process were closed.
    closes: HashMap<Pid, u32>,
    /// Letters that are not taken before their sender was closed so often.
    closing: HashMap<u64, (Pid, u32)>,
    /// The number of the turn. Another process may be stepped within it.
    turn: u64,
    /// The turns in which letters were sent, if they arrive when they are sent.
    sent: Option<HashMap<u64, u64>>,
    /// The turns in which commands were answered, by process and tag.
    answered: BTreeMap<(Pid, u64), u64>,
}

struct LastStep {
    of: Pid,
    yields: Option<Yields>,
}

/// Checks that the run is one that real workers could have had. Letters may arrive after they are sent.
pub fn check(notes: &[Note], letters_are_late: bool) -> Result<(), String> {
    let sent = (!letters_are_late).then(HashMap::new);
    let mut monitor = Monitor { sent, ..Monitor::default() };
    for (place, note) in notes.iter().enumerate() {
        monitor.note(note).map_err(|what| {
            let before: Vec<String> =
                notes[place.saturating_sub(12)..=place].iter().map(|note| format!("  {note:?}")).collect();
            format!("monitor: {what}\n{}", before.join("\n"))
        })?;
    }
    monitor.settle()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Monitor {
    fn note(&mut self, note: &Note) -> Result<(), String> {
        match note {
            Note::Step { of, at, waited } => {
                self.settle()?;
                ensure(self.inside.is_none(), || format!("{of} is stepped inside of a step of {:?}", self.inside))?;
                ensure(!self.ended.contains(of), || format!("{of} is stepped after its end"))?;
                ensure(!self.terminated.contains(of), || format!("{of} is stepped after it was terminated"))?;
                (self.inside, self.waited) = (Some(*of), *waited);
                self.taken.clear();
                self.last = None;
                self.fires_from(*of, *at);
            }
            Note::Took(of, taken) => {
                ensure(self.inside == Some(*of), || format!("{of} takes {taken:?} outside of a step"))?;
                self.took(*of, *taken)?;
                self.taken.push(*taken);
            }
            Note::Stepped(of, yields) => {
                self.inside = None;
                self.succeeded.insert(yields.step);
                let closes = self.closes.get(of).copied().unwrap_or(0) + 1;
                for (to, number) in &yields.sent {
                    self.send(*to, Some(*of), *number)?;
                    if yields.closes {
                        self.closing.insert(*number, (*of, closes));
                    }
                }
                self.last = Some(LastStep { of: *of, yields: Some(yields.clone()) });
            }
            Note::Failed(of) => {
                self.inside = None;
                let last = self.last.take().filter(|last| last.of == *of);
                if let Some(yields) = last.and_then(|last| last.yields) {
                    self.succeeded.remove(&yields.step);
                    for (_, number) in &yields.sent {
                        self.letters.remove(number);
                        self.waiting -= 1;
                    }
                }
                self.asks.retain(|(asker, _), _| asker != of);
                self.answered.retain(|(asker, _), _| asker != of);
                // The next incarnation gets no answer to a question of this one.
                self.replies.retain(|(_, asker), _| asker != of);
                self.last = Some(LastStep { of: *of, yields: None });
            }
            Note::Sent(to, number) => self.send(*to, None, *number)?,
            Note::Refused(number) => {
                let was = self.letters.remove(number);
                ensure(was.is_some_and(|letter| letter.2 == Letter::Waits), || format!("{number} is handed back"))?;
                self.waiting -= 1;
            }
            Note::Dead(number) => {
                let letter =
                    self.letters.get_mut(number).ok_or(format!("letter {number} is dead, and nobody sent it"))?;
                let was = std::mem::replace(&mut letter.2, Letter::Dead);
                ensure(was == Letter::Waits, || format!("letter {number} is dead, and was {was:?} before"))?;
                self.waiting -= 1;
            }
            Note::DeadInStep(of) => {
                let is_last = self.last.as_ref().is_some_and(|last| last.of == *of);
                ensure(is_last, || format!("a step of {of} loses a letter, and is not the last one"))?;
                self.dead_in_step += 1;
            }
            Note::Carried(step) => {
                ensure(self.succeeded.contains(step), || format!("{step:?} has an effect, and has not succeeded"))?;
            }
            Note::Ended(of) => ensure(self.ended.insert(*of), || format!("{of} ends twice"))?,
            Note::Terminated { of, was_alive, has_lived } => {
                self.terminated.insert(*of);
                ensure(was_alive == has_lived, || {
                    format!("{of} has lived: {was_alive}, and the call says {has_lived}")
                })?;
            }
            Note::Gone(of, part) => self.gone(*of, *part)?,
            Note::Waiting(count) => {
                self.settle()?;
                self.turn += 1;
                ensure(self.waiting == *count, || {
                    format!("{} letters were sent and are neither taken nor dead, and {count} wait", self.waiting)
                })?;
            }
        }
        Ok(())
    }

    /// A process is closed before its parts go. A command of its last step is carried out when it is closed, so futures
    /// and commands go in any order.
    fn gone(&mut self, of: Pid, part: Part) -> Result<(), String> {
        match part {
            Part::Closed => {
                *self.closes.entry(of).or_default() += 1;
                self.closed.insert(of);
                self.replaced.remove(&of);
            }
            Part::Command => {}
            Part::Future | Part::State => {
                let may_go = self.closed.contains(&of) || self.replaced.contains(&of);
                ensure(may_go, || format!("{of} loses its {part:?}, and was not closed"))?;
            }
        }
        if part == Part::State {
            self.closed.remove(&of);
            self.replaced.insert(of);
        }
        Ok(())
    }

    fn send(&mut self, to: Pid, from: Option<Pid>, number: u64) -> Result<(), String> {
        self.waiting += 1;
        self.sent.iter_mut().for_each(|sent| _ = sent.insert(number, self.turn));
        let before = self.letters.insert(number, (to, from, Letter::Waits));
        ensure(before.is_none(), || format!("letter {number} is sent twice"))
    }

    /// A step of this process sees this time.
    fn fires_from(&mut self, of: Pid, at: Duration) {
        self.timers.insert((of, u64::MAX), at);
    }

    fn took(&mut self, me: Pid, taken: Taken) -> Result<(), String> {
        match taken {
            Taken::Letter { from, number } => {
                if let Some((sender, closes)) = self.closing.remove(&number) {
                    let is_closed = self.closes.get(&sender).is_some_and(|times| *times >= closes);
                    ensure(is_closed, || format!("{me} takes letter {number} before {sender} is closed"))?;
                }
                let letter = self.letters.get_mut(&number);
                let letter = letter.filter(|letter| (letter.0, letter.1) == (me, from));
                let letter = letter.ok_or(format!("{me} takes letter {number} of {from:?}, which no step has sent"))?;
                let was = std::mem::replace(&mut letter.2, Letter::Taken);
                ensure(was == Letter::Waits, || format!("letter {number} is taken, and was {was:?} before"))?;
                self.waiting -= 1;
                let newest = self.newest.insert((me, from), number);
                ensure(newest.is_none_or(|newest| newest < number), || {
                    format!("{me} takes letter {number} of {from:?} after {newest:?}")
                })?;
                self.letter_is_not_early(me, number)
            }
            Taken::Answer { tag, fired } => {
                self.answer_is_not_early(me, tag)?;
                let now = self.timers.get(&(me, u64::MAX)).copied();
                let due = self.timers.remove(&(me, tag)).filter(|_| fired);
                let letter = self.asks.iter().find(|((asker, _), open)| *asker == me && **open == tag);
                if let Some((key, _)) = letter.map(|(key, tag)| (*key, *tag)) {
                    self.asks.remove(&key);
                    self.replies.iter_mut().for_each(|(_, letters)| letters.retain(|letter| *letter != key.1));
                }
                ensure(due.is_none_or(|due| now.is_some_and(|now| now >= due)), || {
                    format!("timer {tag} of {me} fires early")
                })
            }
            Taken::End { of } => {
                self.is_not_before(me, Some(of))?;
                let open = self.replies.get(&(of, me)).and_then(|letters| letters.first());
                ensure(open.is_none(), || format!("{me} is told of the end of {of} before its answer to {open:?}"))?;
                let left = self.letters.iter().find(|(_, letter)| **letter == (me, Some(of), Letter::Waits));
                ensure(self.waited || left.is_none(), || {
                    format!("{me} is told of the end of {of} before letter {:?}", left.map(|left| left.0))
                })
            }
            Taken::Control { of } => self.is_not_before(me, of),
        }
    }

    /// Letters and answers come in the order in which they have arrived, as far as that is known.
    fn letter_is_not_early(&self, me: Pid, number: u64) -> Result<(), String> {
        let Some(sent) = self.sent.as_ref().and_then(|sent| sent.get(&number)) else { return Ok(()) };
        let mut answers = self.answered.range((me, 0)..=(me, u64::MAX));
        let first = answers.find(|(_, turn)| *turn < sent);
        ensure(first.is_none(), || format!("{me} takes letter {number} before the answer {first:?}"))
    }

    fn answer_is_not_early(&mut self, me: Pid, tag: u64) -> Result<(), String> {
        let Some(turn) = self.answered.remove(&(me, tag)) else { return Ok(()) };
        let Some(sent) = self.sent.as_ref().filter(|_| !self.waited) else { return Ok(()) };
        let waits = |number: &u64| self.letters.get(number).is_some_and(|one| one.0 == me && one.2 == Letter::Waits);
        let first = sent.iter().find(|(number, of)| **of < turn && waits(number));
        ensure(first.is_none(), || format!("{me} takes the answer to {tag} before a letter that came earlier"))
    }

    /// The control lane comes first. Only what the process itself has sent, whose end a signal reports, comes before.
    fn is_not_before(&self, me: Pid, of: Option<Pid>) -> Result<(), String> {
        let others = self.taken.iter().rev().find(|one| !matches!(one, Taken::End { .. } | Taken::Control { .. }));
        let is_first = match others {
            None => true,
            Some(Taken::Letter { from, .. }) => from.is_some() && *from == of,
            // An answer may be of this process.
            Some(_) => of.is_some(),
        };
        ensure(is_first || self.waited, || format!("{me} takes a signal about {of:?} after {others:?}"))
    }

    /// The last step is over, and so is all that follows if it has failed.
    fn settle(&mut self) -> Result<(), String> {
        let Some(last) = self.last.take() else { return Ok(()) };
        let taken = self.taken.iter().filter(|one| matches!(one, Taken::Letter { .. })).count();
        let dead = std::mem::take(&mut self.dead_in_step);
        let expected = if last.yields.is_some() { 0 } else { taken };
        ensure(dead == expected, || {
            format!("{dead} of {taken} letters of the last step of {} are dead: {expected} are to be", last.of)
        })?;
        self.taken.clear();
        let Some(yields) = last.yields else { return Ok(()) };
        self.timers.extend(yields.timers.iter().map(|(tag, delay)| ((last.of, *tag), yields.at + *delay)));
        self.answered.extend(yields.at_once.iter().map(|tag| ((last.of, *tag), self.turn)));
        self.asks.extend(yields.asks.iter().map(|(tag, letter)| ((last.of, *letter), *tag)));
        for (asker, letter) in yields.replies {
            if self.asks.contains_key(&(asker, letter)) {
                self.replies.entry((last.of, asker)).or_default().push(letter);
            }
        }
        Ok(())
    }
}

/// Runs that real workers could not have had. The monitor finds each.
mod broken_runs {
    use super::*;

    fn pid(number: u32) -> Pid {
        format!("<1.{number}.1>").parse().unwrap()
    }

    fn begins(of: u32, at: u64) -> Note {
        Note::Step { of: pid(of), at: Duration::from_secs(at), waited: false }
    }

    fn stepped(of: u32, step: u64, change: impl FnOnce(&mut Yields)) -> Note {
        let mut yields = Yields::new(StepNumber(step), Duration::ZERO);
        change(&mut yields);
        Note::Stepped(pid(of), yields)
    }

    fn takes(of: u32, from: u32, number: u64) -> Note {
        Note::Took(pid(of), Taken::Letter { from: Some(pid(from)), number })
    }

    /// Process 1 sends these letters to process 2.
    fn sends(numbers: &[u64]) -> Vec<Note> {
        let sent = numbers.iter().map(|number| (pid(2), *number)).collect();
        vec![begins(1, 0), stepped(1, 1, |yields| yields.sent = sent)]
    }

    fn is_found(notes: impl IntoIterator<Item = Note>, what: &str) {
        let notes: Vec<Note> = notes.into_iter().collect();
        let found = check(&notes, false).expect_err(what);
        assert!(found.contains(what), "{found}");
    }

    #[test]
    fn a_run_of_real_workers_passes() {
        let ends = [
            Note::Waiting(2),
            begins(2, 0),
            takes(2, 1, 7),
            takes(2, 1, 8),
            Note::Took(pid(2), Taken::End { of: pid(1) }),
            stepped(2, 2, |yields| yields.timers.push((1, Duration::from_secs(3)))),
            Note::Waiting(0),
            begins(2, 3),
            Note::Took(pid(2), Taken::Answer { tag: 1, fired: true }),
            stepped(2, 3, |_| ()),
            Note::Carried(StepNumber(3)),
            Note::Ended(pid(2)),
        ];
        assert_eq!(check(&[sends(&[7, 8]), ends.into()].concat(), false), Ok(()));
    }

    #[test]
    fn two_steps_at_once_are_found() {
        is_found([begins(1, 0), begins(1, 0)], "is stepped inside of a step");
        is_found([begins(1, 0), begins(2, 0)], "is stepped inside of a step");
        is_found([Note::Ended(pid(1)), begins(1, 0)], "is stepped after its end");
    }

    #[test]
    fn a_step_after_a_termination_is_found() {
        let terminated = |was_alive, has_lived| Note::Terminated { of: pid(1), was_alive, has_lived };
        is_found([terminated(true, true), begins(1, 0)], "is stepped after it was terminated");
        is_found([terminated(false, true)], "has lived");
    }

    #[test]
    fn letters_out_of_order_are_found() {
        let takes = [begins(2, 0), takes(2, 1, 8), takes(2, 1, 7)];
        is_found([sends(&[7, 8]), takes.into()].concat(), "takes letter 7");
    }

    #[test]
    fn letters_that_come_twice_or_from_nowhere_are_found() {
        is_found([sends(&[7]), vec![begins(2, 0), takes(2, 1, 7), takes(2, 1, 7)]].concat(), "was Taken before");
        is_found([sends(&[7]), vec![begins(2, 0), takes(2, 3, 7)]].concat(), "which no step has sent");
        is_found([sends(&[7]), vec![Note::Dead(7), Note::Dead(7)]].concat(), "was Dead before");
        is_found([begins(2, 0), takes(2, 1, 7)], "which no step has sent");
    }

    #[test]
    fn lost_letters_are_found() {
        is_found([sends(&[7]), vec![Note::Waiting(0)]].concat(), "neither taken nor dead");
        let fails = [begins(2, 0), takes(2, 1, 7), Note::Failed(pid(2)), Note::Waiting(0)];
        is_found([sends(&[7]), fails.into()].concat(), "0 of 1 letters");
    }

    #[test]
    fn effects_of_a_failed_step_are_found() {
        let is_broken = [sends(&[7]), vec![Note::Failed(pid(1))]].concat();
        is_found([is_broken.clone(), vec![begins(2, 0), takes(2, 1, 7)]].concat(), "which no step has sent");
        is_found([is_broken, vec![Note::Carried(StepNumber(1))]].concat(), "has not succeeded");
        is_found([begins(2, 0), stepped(2, 2, |_| ()), Note::DeadInStep(pid(2)), Note::Waiting(0)], "1 of 0 letters");
    }

    #[test]
    fn an_end_before_a_letter_is_found() {
        let end = Note::Took(pid(2), Taken::End { of: pid(1) });
        is_found([sends(&[7]), vec![begins(2, 0), end]].concat(), "before letter Some(7)");
    }

    #[test]
    fn an_end_before_an_answer_is_found() {
        let asks = stepped(2, 1, |yields| (yields.asks, yields.sent) = (vec![(4, 9)], vec![(pid(1), 9)]));
        let answers = stepped(1, 2, |yields| yields.replies.push((pid(2), 9)));
        let end = Note::Took(pid(2), Taken::End { of: pid(1) });
        is_found(
            [begins(2, 0), asks, begins(1, 0), takes(1, 2, 9), answers, begins(2, 0), end],
            "before its answer to Some(9)",
        );
    }

    #[test]
    fn an_answer_to_a_state_machine_that_failed_is_not_waited_for() {
        let asks = stepped(2, 1, |yields| (yields.asks, yields.sent) = (vec![(4, 9)], vec![(pid(1), 9)]));
        let answers = stepped(1, 2, |yields| yields.replies.push((pid(2), 9)));
        let end = Note::Took(pid(2), Taken::End { of: pid(1) });
        let before = vec![begins(2, 0), asks, begins(1, 0), takes(1, 2, 9), answers];
        let fails = vec![begins(2, 0), Note::Failed(pid(2)), begins(2, 0), end];
        assert_eq!(check(&[before, fails].concat(), false), Ok(()));
    }

    #[test]
    fn a_signal_after_a_letter_is_found() {
        for of in [None, Some(pid(3))] {
            let control = Note::Took(pid(2), Taken::Control { of });
            is_found([sends(&[7]), vec![begins(2, 0), takes(2, 1, 7), control]].concat(), "takes a signal about");
        }
    }

    #[test]
    fn a_part_that_goes_before_its_process_is_closed_is_found() {
        let gone = |part| Note::Gone(pid(1), part);
        is_found([gone(Part::Future)], "was not closed");
        is_found([gone(Part::State)], "was not closed");
        let ends = stepped(1, 1, |yields| (yields.sent, yields.closes) = (vec![(pid(2), 7)], true));
        is_found([begins(1, 0), ends, begins(2, 0), takes(2, 1, 7)], "before <1.1.1> is closed");
    }

    #[test]
    fn an_answer_before_an_earlier_letter_is_found() {
        let commands = stepped(2, 2, |yields| yields.at_once.push(4));
        let answer = Note::Took(pid(2), Taken::Answer { tag: 4, fired: false });
        let begin = [sends(&[7]), vec![Note::Waiting(1), begins(2, 0), commands, Note::Waiting(1)]].concat();
        is_found([begin.clone(), vec![begins(2, 0), answer]].concat(), "before a letter that came earlier");
        let later = vec![begins(1, 0), stepped(1, 3, |yields| yields.sent.push((pid(2), 8))), Note::Waiting(2)];
        let takes = vec![begins(2, 0), takes(2, 1, 7), takes(2, 1, 8)];
        is_found([begin, later, takes].concat(), "takes letter 8 before the answer");
    }

    #[test]
    fn an_early_timer_is_found() {
        let sets = stepped(1, 1, |yields| yields.timers.push((1, Duration::from_secs(3))));
        let fires = Note::Took(pid(1), Taken::Answer { tag: 1, fired: true });
        is_found([begins(1, 0), sets, begins(1, 2), fires], "fires early");
    }
}
