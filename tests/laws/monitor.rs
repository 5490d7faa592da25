//! A monitor of the notes of a simulated run: whether the run is one that real workers could have had.
//!
//! A simulation has one thread. So the processes of a random program can write what happens into one list, in the
//! order in which it happens. The monitor reads the list and knows nothing else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use procession::Pid;
use procession::observe::DeadLetterReason;

use crate::acts::StepNumber;
use crate::ends::{EndYields, Ends};
use crate::rooms::Rooms;

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
    Stepped(Pid, Box<Yields>),
    /// The step has failed, or the simulation has made it fail after it returned.
    Failed(Pid),
    /// The code outside sends a letter.
    Sent(Pid, u64),
    /// The letter is handed back to its sender.
    Refused {
        number: u64,
        /// Whether there was no room when it was sent.
        is_full: bool,
    },
    /// A letter is a dead letter.
    Dead {
        number: u64,
        reason: DeadLetterReason,
    },
    /// The mailbox of this process holds at most this many letters. Noted before the process begins.
    Bound(Pid, usize),
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
    /// The tags of sends that may wait for room, and the numbers of their letters.
    pub rooms: Vec<(u64, u64)>,
    pub ends: EndYields,
    /// Whether the step has taken whatever it was given.
    pub takes_all: bool,
    /// Whether the process waits for something new.
    pub rests: bool,
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
            rooms: Vec::new(),
            ends: EndYields::default(),
            takes_all: false,
            rests: false,
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
    rooms: Rooms,
    ends: Ends,
    /// The processes that wait for something new.
    resting: HashSet<Pid>,
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
    /// The processes that are closed, and a command of which was cancelled since.
    cancelled: HashSet<Pid>,
    /// The processes whose last step says that they end, or are replaced.
    finishes: HashSet<Pid>,
    /// The processes whose last state machine is gone, and whose next one was not closed yet. If such a process ends
    /// before it calls `init`, it is not closed. From its first step on, it is closed first.
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
                self.replaced.remove(of);
                self.ends.steps(*of);
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
                let was_resting = self.resting.remove(of);
                ensure(!was_resting || !yields.takes_all || !self.taken.is_empty(), || {
                    format!("{of} rests, and is stepped for nothing")
                })?;
                if yields.rests {
                    self.resting.insert(*of);
                }
                _ = if yields.closes { self.finishes.insert(*of) } else { self.finishes.remove(of) };
                let closes = self.closes.get(of).copied().unwrap_or(0) + 1;
                for (to, number) in &yields.sent {
                    let tag = yields.rooms.iter().find(|room| room.1 == *number);
                    tag.into_iter().for_each(|room| self.rooms.waits((*of, *to), *room));
                    self.send(*to, Some(*of), *number)?;
                    if yields.closes {
                        self.closing.insert(*number, (*of, closes));
                    }
                }
                self.last = Some(LastStep { of: *of, yields: Some(Yields::clone(yields)) });
            }
            Note::Failed(of) => {
                self.inside = None;
                let last = self.last.take().filter(|last| last.of == *of);
                if let Some(yields) = last.and_then(|last| last.yields) {
                    self.succeeded.remove(&yields.step);
                    for (to, number) in &yields.sent {
                        self.letters.remove(number);
                        self.goes(*to, *number);
                    }
                }
                self.finishes.remove(of);
                self.resting.remove(of);
                self.ends.lost(*of);
                self.asks.retain(|(asker, _), _| asker != of);
                self.answered.retain(|(asker, _), _| asker != of);
                // The next incarnation gets no answer to a question of this one.
                self.replies.retain(|(_, asker), _| asker != of);
                self.last = Some(LastStep { of: *of, yields: None });
            }
            Note::Sent(to, number) => self.send(*to, None, *number)?,
            Note::Refused { number, is_full } => {
                let was = self.letters.remove(number);
                let was = was.filter(|letter| letter.2 == Letter::Waits);
                let to = was.ok_or(format!("{number} is handed back"))?.0;
                self.goes(to, *number);
                if *is_full {
                    self.rooms.check_full(to, DeadLetterReason::Full)?;
                }
            }
            Note::Bound(of, limit) => self.rooms.set_bound(*of, *limit),
            Note::Dead { number, reason } => {
                let letter =
                    self.letters.get_mut(number).ok_or(format!("letter {number} is dead, and nobody sent it"))?;
                let was = std::mem::replace(&mut letter.2, Letter::Dead);
                let to = letter.0;
                ensure(was == Letter::Waits, || format!("letter {number} is dead, and was {was:?} before"))?;
                self.goes(to, *number);
                self.rooms.check_full(to, *reason)?;
            }
            Note::DeadInStep(of) => {
                let is_last = self.last.as_ref().is_some_and(|last| last.of == *of);
                ensure(is_last, || format!("a step of {of} loses a letter, and is not the last one"))?;
                self.dead_in_step += 1;
            }
            Note::Carried(step) => {
                ensure(self.succeeded.contains(step), || format!("{step:?} has an effect, and has not succeeded"))?;
            }
            Note::Ended(of) => {
                ensure(self.ended.insert(*of), || format!("{of} ends twice"))?;
                self.ends.ended(*of);
            }
            Note::Terminated { of, was_alive, has_lived } => {
                self.terminated.insert(*of);
                ensure(was_alive == has_lived, || {
                    format!("{of} has lived: {was_alive}, and the call says {has_lived}")
                })?;
            }
            Note::Gone(of, part) => self.gone(*of, *part)?,
            Note::Waiting(count) => {
                self.settle()?;
                self.ends.turn_is_over(&self.ended);
                self.turn += 1;
                let outside = if self.rooms.are_all_inside() { 0 } else { self.outside() };
                ensure((*count..=count + outside).contains(&self.waiting), || {
                    format!("{} letters were sent and are neither taken nor dead, and {count} wait", self.waiting)
                })?;
                self.rooms.turn_is_over(self.sent.is_some())?;
            }
        }
        Ok(())
    }

    /// A process is closed before its parts go, and its futures go before its commands. If its last step says that it
    /// ends, or is replaced, the commands of that step are carried out after the process is closed.
    fn gone(&mut self, of: Pid, part: Part) -> Result<(), String> {
        match part {
            Part::Closed => {
                *self.closes.entry(of).or_default() += 1;
                self.closed.insert(of);
                self.cancelled.remove(&of);
                self.replaced.remove(&of);
            }
            Part::Command => {
                if self.closed.contains(&of) && !self.finishes.contains(&of) {
                    self.cancelled.insert(of);
                }
            }
            Part::Future | Part::State => {
                let is_late = part == Part::Future && self.cancelled.contains(&of);
                ensure(!is_late, || format!("a command of {of} is cancelled before its futures are dropped"))?;
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
        self.rooms.comes(to);
        // A letter that waits for room arrives later, and so do those behind it.
        if !from.is_some_and(|from| self.rooms.is_waiting(from, to)) {
            self.sent.iter_mut().for_each(|sent| _ = sent.insert(number, self.turn));
        }
        let before = self.letters.insert(number, (to, from, Letter::Waits));
        ensure(before.is_none(), || format!("letter {number} is sent twice"))
    }

    /// A letter waits no longer.
    fn goes(&mut self, to: Pid, number: u64) {
        self.waiting -= 1;
        self.rooms.goes(to, number);
    }

    /// The number of letters that may wait outside of the mailboxes.
    fn outside(&self) -> usize {
        let waits = self.letters.values().filter(|letter| letter.2 == Letter::Waits);
        waits.filter(|letter| letter.1.is_some_and(|from| self.rooms.is_waiting(from, letter.0))).count()
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
                ensure(!self.waited, || format!("{me} takes letter {number} in a step after `Wait`"))?;
                self.no_end_waits(me, || format!("letter {number}"))?;
                let letter = self.letters.get_mut(&number);
                let letter = letter.filter(|letter| (letter.0, letter.1) == (me, from));
                let letter = letter.ok_or(format!("{me} takes letter {number} of {from:?}, which no step has sent"))?;
                let was = std::mem::replace(&mut letter.2, Letter::Taken);
                ensure(was == Letter::Waits, || format!("letter {number} is taken, and was {was:?} before"))?;
                self.goes(me, number);
                self.rooms.takes(me);
                let newest = self.newest.insert((me, from), number);
                ensure(newest.is_none_or(|newest| newest < number), || {
                    format!("{me} takes letter {number} of {from:?} after {newest:?}")
                })?;
                self.letter_is_not_early(me, number)
            }
            Taken::Answer { tag, fired } => {
                self.no_end_waits(me, || format!("the answer to {tag}"))?;
                self.ends.answers(me, tag);
                self.rooms.answers(me, tag);
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
                self.ends.takes(me, of);
                self.is_not_before(me, Some(of))?;
                let open = self.replies.get(&(of, me)).and_then(|letters| letters.first());
                ensure(open.is_none(), || format!("{me} is told of the end of {of} before its answer to {open:?}"))?;
                // A letter without room may go back to a sender that has ended. Then the letter is lost.
                let are_inside = !self.rooms.is_waiting(of, me);
                let waits = |(_, letter): &(&u64, &_)| **letter == (me, Some(of), Letter::Waits);
                let left = self.letters.iter().filter(|_| are_inside).find(waits);
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
        let earlier = self.answered.range((me, 0)..(me, tag)).find(|(_, of)| **of <= turn);
        ensure(earlier.is_none(), || format!("{me} takes the answer to {tag} before {earlier:?}"))?;
        let Some(sent) = self.sent.as_ref().filter(|_| !self.waited) else { return Ok(()) };
        let waits = |number: &u64| self.letters.get(number).is_some_and(|one| one.0 == me && one.2 == Letter::Waits);
        let first = sent.iter().find(|(number, of)| **of < turn && waits(number));
        ensure(first.is_none(), || format!("{me} takes the answer to {tag} before a letter that came earlier"))
    }

    /// No end waits that could have been taken before: its process has no letter and no answer in front of it.
    fn no_end_waits(&self, me: Pid, what: impl FnOnce() -> String) -> Result<(), String> {
        // A step after `Wait` has other rules. A letter that was pushed out may leave an end behind.
        if self.waited || self.sent.is_none() || self.rooms.has_bound(me) {
            return Ok(());
        }
        let is_first = |of: &Pid| {
            let waits = |letter: &(Pid, Option<Pid>, Letter)| *letter == (me, Some(*of), Letter::Waits);
            let asks = |((asker, letter), _): (&(Pid, u64), &u64)| {
                *asker == me && self.letters.get(letter).is_none_or(|letter| letter.0 == *of)
            };
            !self.letters.values().any(waits) && !self.asks.iter().any(asks)
        };
        match self.ends.waiting(me).find(is_first) {
            Some(of) => Err(format!("{me} takes {} before the end of {of}", what())),
            None => Ok(()),
        }
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
        self.ends.yields(last.of, &yields.ends);
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
