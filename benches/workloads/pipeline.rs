//! Items pass through stages. A slow stage holds up those before it: no mailbox grows beyond its bound.
//!
//! A step does not wait for room in a mailbox. So a stage sends only as many items as the next one has granted. The
//! next stage grants more when it has passed items on. Grants are messages, and they need room in the mailbox, too.

use std::collections::VecDeque;
use std::time::Instant;

use procession::spawn::Overflow;
use procession::{Address, Event, Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting, check};
use super::runtime::{done, finish};
use super::shape::{STAGE_BOUND, STAGES};

/// The most items on the way from one stage to the next. The rest of the bound is for grants.
const WINDOW: usize = STAGE_BOUND - 2;
/// How many items a stage passes on before it grants as many. So at most two grants wait in a mailbox.
const GRANT: usize = WINDOW / 2;

enum Part {
    Item(u64),
    /// The sender takes so many further items.
    Grant(usize),
}

/// The items that may be sent to the next stage.
struct Link {
    to: Address<Part>,
    granted: usize,
}

impl Link {
    fn new(to: Address<Part>) -> Link {
        Link { to, granted: WINDOW }
    }

    fn send(&mut self, item: u64, out: &mut StepOutput) {
        self.granted -= 1;
        out.send(self.to, Part::Item(item));
    }
}

/// Makes the items.
struct Source {
    next: Link,
    made: u64,
    of: u64,
}

impl Process for Source {
    type Message = Part;
    type Output = ();

    fn step(&mut self, events: &mut Events<Part>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Part::Grant(more)) => self.next.granted += more,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        while self.made < self.of && self.next.granted > 0 {
            self.next.send(self.made, out);
            self.made += 1;
        }
        Ok(Step::Idle)
    }
}

/// Adds one to each item, and passes it on. The last stage adds the items up.
struct Stage {
    next: Option<Link>,
    before: Option<Pid>,
    waiting: VecDeque<u64>,
    /// The items that were passed on since the last grant.
    passed: usize,
    sum: u64,
    to_come: u64,
}

impl Stage {
    fn pass_on(&mut self, out: &mut StepOutput) {
        while self.next.as_ref().is_none_or(|next| next.granted > 0)
            && let Some(item) = self.waiting.pop_front()
        {
            match &mut self.next {
                Some(next) => next.send(item + 1, out),
                None => self.sum += item + 1,
            }
            self.to_come -= 1;
            self.passed += 1;
        }
        if self.passed >= GRANT
            && let Some(before) = self.before
        {
            out.send(before, Part::Grant(std::mem::take(&mut self.passed)));
        }
    }
}

impl Process for Stage {
    type Message = Part;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Part>, out: &mut StepOutput) -> StepResult<u64> {
        while let Some(event) = events.next() {
            match event {
                Event::Message(Part::Item(item)) => {
                    self.before = events.sender();
                    self.waiting.push_back(item);
                }
                Event::Message(Part::Grant(more)) => {
                    if let Some(next) = &mut self.next {
                        next.granted += more;
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.sum)),
                _ => {}
            }
        }
        self.pass_on(out);
        let is_last = self.next.is_none();
        Ok(if is_last && self.to_come == 0 { Step::Done(self.sum) } else { Step::Idle })
    }
}

pub(crate) fn pipeline(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let bounded = || SpawnOptions::new().mailbox(STAGE_BOUND, Overflow::Refuse);
    let stage = |next| {
        let waiting = VecDeque::with_capacity(WINDOW);
        Stage { next, before: None, waiting, passed: 0, sum: 0, to_come: setting.n }
    };
    let last = runtime.spawn_with(stage(None), bounded())?;
    let mut first = last.address();
    for _ in 1..STAGES {
        first = runtime.spawn_with(stage(Some(Link::new(first))), bounded())?.address();
    }
    let began = Instant::now();
    runtime.spawn_with(Source { next: Link::new(first), made: 0, of: setting.n }, bounded())?;
    let sum = done(&last)?;
    let measured = Measured::since(began, setting.n);
    check("sum of the items", sum, setting.n * (setting.n - 1) / 2 + setting.n * STAGES)?;
    finish(&runtime)?;
    Ok(measured)
}
