//! C. Asks that form a cycle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use procession::observe::ProcessState;
use procession::spawn::Overflow;
use procession::{
    Address, CommandError, Event, Events, Handle, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput,
    StepResult, Tag, Upgrade,
};

use crate::helpers::*;

/// The orders to a member.
enum Do {
    /// To ask these, and to wait for all answers, each no longer than this.
    Ask(Vec<(Address<Do>, How)>, Duration),
    /// To ask this one, and to wait for this closure as well.
    AskAndWork(Address<Do>, procession::sync::Latch<()>),
    /// A question that is kept until the member has waited, or is told to release it.
    Keep(Reply<u32>),
    /// One that is left to another, who keeps it; and whether that is said.
    Pass(Address<Do>, bool, Reply<u32>),
    Release,
    /// To ask this one, and to leave the waiting to a successor.
    Upgrade(Address<Do>),
    AskNamed(&'static str),
}

#[derive(Clone, Copy)]
enum How {
    Keep,
    Pass(Address<Do>, bool),
}

impl How {
    fn put(self, reply: Reply<u32>) -> Do {
        match self {
            How::Keep => Do::Keep(reply),
            How::Pass(to, says) => Do::Pass(to, says, reply),
        }
    }
}

/// The outcome of one ask of a member.
#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Value,
    Cycle(Vec<Pid>),
    Other(String),
}

struct Member {
    open: Vec<Tag<u32>>,
    work: Option<Tag<()>>,
    kept: Vec<Reply<u32>>,
    has_waited: bool,
    told: Told,
}

/// The records of all members.
#[derive(Clone, Default)]
struct Told {
    /// How often one was told to ask others, and did.
    asked: Arc<AtomicUsize>,
    heard: Log<(Pid, Heard)>,
}

impl Member {
    fn new(told: &Told) -> Member {
        Member { open: Vec::new(), work: None, kept: Vec::new(), has_waited: false, told: told.clone() }
    }

    fn asks(&mut self, to: Address<Do>, how: How, limit: Duration, out: &mut StepOutput) {
        self.open.push(out.ask(to, move |reply| how.put(reply), limit));
    }
}

impl Process for Member {
    type Message = Do;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Do>, out: &mut StepOutput) -> StepResult<()> {
        self.has_waited |= !self.open.is_empty();
        for event in events {
            match event {
                Event::Message(Do::Ask(all, limit)) => {
                    all.into_iter().for_each(|(to, how)| self.asks(to, how, limit, out));
                    self.told.asked.fetch_add(1, Ordering::SeqCst);
                    return Ok(Step::Wait);
                }
                Event::Message(Do::AskAndWork(to, gate)) => {
                    self.work = Some(out.blocking(move || gate.wait()));
                    self.asks(to, How::Keep, Duration::MAX, out);
                    return Ok(Step::Wait);
                }
                Event::Message(Do::AskNamed(name)) => {
                    self.open.push(out.ask(name, Do::Keep, Duration::MAX));
                    return Ok(Step::Wait);
                }
                Event::Message(Do::Upgrade(to)) => {
                    self.asks(to, How::Keep, Duration::MAX, out);
                    let open = std::mem::take(&mut self.open);
                    return Ok(Step::Upgrade(Upgrade::to(Member { open, ..Member::new(&self.told) })));
                }
                Event::Message(Do::Keep(reply)) => self.kept.push(reply),
                Event::Message(Do::Pass(to, true, reply)) => out.send(to, Do::Keep(reply.delegate())),
                Event::Message(Do::Pass(to, false, reply)) => out.send(to, Do::Keep(reply)),
                Event::Message(Do::Release) => self.kept.drain(..).for_each(|reply| out.reply(reply, 1)),
                Event::Completed(done) if done.is(self.work) => self.work = None,
                Event::Completed(done) => {
                    let place = self.open.iter().position(|tag| done.is(*tag)).unwrap();
                    self.told.heard.push((out.pid(), heard(done.take(self.open.remove(place)).unwrap())));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if !self.open.is_empty() || self.work.is_some() {
            return Ok(Step::Wait);
        }
        if self.has_waited {
            self.kept.drain(..).for_each(|reply| out.reply(reply, 1));
        }
        Ok(Step::Idle)
    }
}

fn heard(answer: Result<u32, CommandError>) -> Heard {
    match answer {
        Ok(_) => Heard::Value,
        Err(CommandError::Cycle(cycle)) => Heard::Cycle(cycle.pids().to_vec()),
        Err(other) => Heard::Other(other.to_string()),
    }
}

/// Members, and what all of them have heard.
struct Members {
    runtime: Runtime,
    all: Vec<Handle<Member>>,
    asked: Arc<AtomicUsize>,
    heard: Log<(Pid, Heard)>,
}

impl Members {
    fn new(workers: usize, count: usize) -> Members {
        Members::with(runtime(workers), count, SpawnOptions::new)
    }

    fn with(runtime: Runtime, count: usize, options: impl Fn() -> SpawnOptions) -> Members {
        let told = Told::default();
        let all = (0..count).map(|_| runtime.spawn_with(Member::new(&told), options()).unwrap()).collect();
        let members = Members { runtime, all, asked: told.asked, heard: told.heard };
        members.rest();
        members
    }

    fn pid(&self, which: usize) -> Pid {
        self.all[which].pid()
    }

    fn to(&self, which: usize) -> Address<Do> {
        self.all[which].address()
    }

    fn tell(&self, which: usize, what: Do) {
        self.runtime.send(self.to(which), what).unwrap();
    }

    /// Has one ask others. Returns when it waits, or has been answered, and the search for a cycle is over.
    fn ask(&self, who: usize, whom: &[(usize, How)]) {
        self.ask_with_limit(who, whom, Duration::MAX);
    }

    fn ask_with_limit(&self, who: usize, whom: &[(usize, How)], limit: Duration) {
        let before = self.asked.load(Ordering::SeqCst);
        self.tell(who, Do::Ask(whom.iter().map(|(whom, how)| (self.to(*whom), *how)).collect(), limit));
        until("it asks", || self.asked.load(Ordering::SeqCst) > before);
        self.turns_are_over();
    }

    /// Returns when each worker has finished the turn that it gives now. Then the processes put to rest in it have
    /// been looked after. Otherwise a process that came to rest earlier might find the cycle that another one closes.
    fn turns_are_over(&self) {
        let workers = self.runtime.stats().workers.len();
        let barrier = Arc::new(Barrier::new(workers));
        // They wait for each other, so each worker has to come to one of them.
        let all: Vec<_> = std::iter::repeat_with(|| {
            let barrier = barrier.clone();
            let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                barrier.wait();
                Ok(Step::Done(()))
            });
            self.runtime.spawn(process).unwrap()
        })
        .take(workers)
        .collect();
        all.iter().for_each(|one| drop(output(one)));
    }

    fn waits(&self, who: usize) -> bool {
        self.runtime.process_state(self.pid(who)) == Some(ProcessState::Blocked)
    }

    /// Returns the outcomes of all asks, when there are so many of them and all is at rest.
    fn heard(&self, count: usize) -> Vec<(Pid, Heard)> {
        until("all are answered", || self.heard.len() >= count);
        self.rest();
        self.heard.to_vec()
    }

    /// Waits until all have nothing to do, and wait for nothing.
    fn rest(&self) {
        until("all rest", || {
            self.all.iter().all(|one| self.runtime.process_state(one.pid()) == Some(ProcessState::Idle))
        });
    }
}

const K: How = How::Keep;

#[test]
fn the_asker_that_closes_a_cycle_gets_the_cycle_as_its_error() {
    for workers in [1, 2] {
        let members = Members::new(workers, 2);
        let (one, two) = (members.pid(0), members.pid(1));
        members.ask(0, &[(1, K)]);
        until("it waits", || members.waits(0));
        members.ask(1, &[(0, K)]);
        assert_eq!(members.heard(2), [(two, Heard::Cycle(vec![two, one])), (one, Heard::Value)]);
        assert_accounted(&members.runtime);
    }
}

#[test]
fn a_question_in_the_mailbox_is_part_of_a_cycle() {
    let members = Members::new(1, 3);
    let pid = |who| members.pid(who);
    members.ask(1, &[(2, K)]);
    until("it waits", || members.waits(1));
    members.ask(0, &[(1, K)]);
    until("it waits", || members.waits(0));
    assert_eq!(members.runtime.process(pid(1)).unwrap().mailbox, 1);
    members.ask(2, &[(0, K)]);
    let told = (pid(2), Heard::Cycle(vec![pid(2), pid(0), pid(1)]));
    assert_eq!(members.heard(3), [told, (pid(1), Heard::Value), (pid(0), Heard::Value)]);
}

#[test]
fn the_time_limits_of_a_cycle_need_not_be_waited_for_and_are_taken_back() {
    let manual = procession::clock::ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let answer = runtime.spawn(script({
        let mut tag: Option<Tag<()>> = None;
        move |events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
            for event in events {
                if let Event::Completed(done) = event {
                    return Ok(Step::Done(done.take(tag.unwrap()).unwrap().unwrap_err().to_string()));
                }
            }
            tag = Some(out.ask(out.pid().typed(), |reply: Reply<()>| reply, Duration::from_secs(5)));
            Ok(Step::Wait)
        }
    }));
    let answer = answer.unwrap();
    assert_eq!(*output(&answer), format!("the asks form a cycle: {} waits for itself", answer.pid()));
    assert_eq!(runtime.stats().timers, 0);
}

/// So many processes may be in a cycle that is found; see `docs/guarantees/process-runtime.md`.
const LONGEST: usize = 1_000;

#[test]
fn a_cycle_of_a_thousand_is_found_however_it_was_built() {
    for forward in [true, false] {
        let members = Members::new(2, LONGEST);
        let ask = |who: usize| members.tell(who, Do::Ask(vec![(members.to((who + 1) % LONGEST), K)], Duration::MAX));
        if forward {
            (0..LONGEST - 1).for_each(ask);
        } else {
            (0..LONGEST - 1).rev().for_each(ask);
        }
        until("all but one wait", || (0..LONGEST - 1).all(|who| members.waits(who)));
        assert_eq!(members.heard.len(), 0);
        members.turns_are_over();
        ask(LONGEST - 1);
        until("all are answered", || members.heard.len() == LONGEST);
        let all = members.heard.to_vec();
        let in_order = (0..LONGEST).map(|who| members.pid((LONGEST - 1 + who) % LONGEST)).collect();
        assert_eq!(all[0], (members.pid(LONGEST - 1), Heard::Cycle(in_order)), "the one that closed it goes on first");
        assert!(all[1..].iter().all(|(_, heard)| *heard == Heard::Value));
    }
}

#[test]
fn a_cycle_that_is_longer_than_a_thousand_ends_by_its_limits() {
    let manual = procession::clock::ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let members = Members::with(runtime, LONGEST + 1, SpawnOptions::new);
    for who in 0..=LONGEST {
        members.ask_with_limit(who, &[((who + 1) % (LONGEST + 1), K)], Duration::from_secs(5));
    }
    until("all wait", || (0..=LONGEST).all(|who| members.waits(who)));
    members.turns_are_over();
    assert_eq!(members.heard.len(), 0);
    manual.advance(Duration::from_secs(5));
    assert!(members.heard(LONGEST + 1).iter().all(|(_, heard)| !matches!(heard, Heard::Cycle(_))));
}

#[test]
fn a_process_that_waits_for_anything_else_as_well_is_not_given_an_error() {
    let members = Members::new(2, 2);
    let gate = procession::sync::Latch::new();
    members.tell(0, Do::AskAndWork(members.to(1), gate.clone()));
    until("it waits", || members.waits(0));
    members.ask(1, &[(0, K)]);
    until("both wait", || members.waits(0) && members.waits(1));
    // While the work is outstanding there is hope. When it is done there is none any more.
    assert_eq!(members.heard.len(), 0);
    gate.set(()).unwrap();
    let (one, two) = (members.pid(0), members.pid(1));
    assert_eq!(members.heard(2), [(one, Heard::Cycle(vec![one, two])), (two, Heard::Value)]);
}

#[test]
fn no_asker_gets_an_error_while_one_asked_process_may_answer() {
    let members = Members::new(1, 3);
    // The last one keeps the question, and does not wait.
    members.ask(0, &[(2, K), (1, K)]);
    members.ask(1, &[(0, K)]);
    until("both wait", || members.waits(0) && members.waits(1));
    assert_eq!(members.heard.len(), 0);
    members.tell(2, Do::Release);
    // Answered by one, the first waits for the other: now there is a cycle, and it has closed it.
    let (one, two) = (members.pid(0), members.pid(1));
    until("all are answered", || members.heard.len() == 3);
    assert_eq!(members.heard.to_vec(), [(one, Heard::Value), (one, Heard::Cycle(vec![one, two])), (two, Heard::Value)]);
}

#[test]
fn a_knot_in_which_one_waits_for_two_ends_by_its_limits() {
    let manual = procession::clock::ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let members = Members::with(runtime, 3, SpawnOptions::new);
    let pid = |who| members.pid(who);
    members.ask_with_limit(0, &[(1, K), (2, K)], Duration::from_secs(5));
    members.ask_with_limit(1, &[(0, K)], Duration::from_secs(3));
    members.ask_with_limit(2, &[(0, K)], Duration::from_secs(9));
    until("all wait", || (0..3).all(|who| members.waits(who)));
    assert_eq!(members.heard.len(), 0);
    // The second gives up and answers the first. That waits for the third only, now, which waits for it.
    manual.advance(Duration::from_secs(3));
    let all = members.heard(4);
    let expected = [
        (pid(1), Heard::Other(CommandError::TimedOut.to_string())),
        (pid(0), Heard::Value),
        (pid(0), Heard::Cycle(vec![pid(0), pid(2)])),
        (pid(2), Heard::Value),
    ];
    assert_eq!(all, expected);
}

#[test]
fn who_only_leads_into_a_cycle_is_answered_by_those_who_are_in_it() {
    let members = Members::new(1, 3);
    let (gate, pid) = (procession::sync::Latch::new(), |who| members.pid(who));
    // The cycle of 0 and 1 is closed when the work of 0 is done; 2 waits for 0.
    members.tell(0, Do::AskAndWork(members.to(1), gate.clone()));
    until("it waits", || members.waits(0));
    members.ask(1, &[(0, K)]);
    members.ask(2, &[(0, K)]);
    gate.set(()).unwrap();
    let mut heard = members.heard(3);
    assert_eq!(heard.remove(0), (pid(0), Heard::Cycle(vec![pid(0), pid(1)])));
    assert!(heard.contains(&(pid(1), Heard::Value)) && heard.contains(&(pid(2), Heard::Value)));
}

#[test]
fn a_question_is_part_of_a_cycle_unless_it_was_delegated() {
    for says in [true, false] {
        let members = Members::new(1, 3);
        let (one, two) = (members.pid(0), members.pid(1));
        members.ask(0, &[(1, How::Pass(members.to(2), says))]);
        until("it was passed on", || members.runtime.process(members.pid(2)).unwrap().steps >= 2);
        members.ask(1, &[(0, K)]);
        if says {
            until("both wait", || members.waits(0) && members.waits(1));
        } else {
            until("the cycle is told", || members.heard.len() == 1);
        }
        members.tell(2, Do::Release);
        let expected = if says {
            vec![(one, Heard::Value), (two, Heard::Value)]
        } else {
            vec![(two, Heard::Cycle(vec![two, one])), (one, Heard::Value)]
        };
        assert_eq!(members.heard(2), expected);
    }
}

#[test]
fn asks_by_name_and_to_bounded_mailboxes_form_cycles() {
    let bounded = || SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let members = Members::with(runtime(2), 2, bounded);
    let (one, two) = (members.pid(0), members.pid(1));
    members.runtime.register("first", one).unwrap();
    let before = members.runtime.process(two).unwrap().steps;
    members.ask(0, &[(1, K)]);
    // There is room for one message.
    until("the question is taken", || members.runtime.process(two).unwrap().steps > before);
    until("it waits", || members.waits(0));
    members.tell(1, Do::AskNamed("first"));
    assert_eq!(members.heard(2), [(two, Heard::Cycle(vec![two, one])), (one, Heard::Value)]);
}

#[test]
fn the_questions_of_a_process_that_was_replaced_are_still_its_own() {
    let members = Members::new(1, 2);
    let (one, two) = (members.pid(0), members.pid(1));
    members.tell(0, Do::Upgrade(members.to(1)));
    until("it waits", || members.waits(0));
    members.ask(1, &[(0, K)]);
    assert_eq!(members.heard(2), [(two, Heard::Cycle(vec![two, one])), (one, Heard::Value)]);
}

#[test]
fn a_member_that_ends_opens_the_cycle_for_good() {
    let members = Members::new(1, 3);
    let (one, two) = (members.pid(0), members.pid(1));
    members.ask(0, &[(1, K)]);
    members.ask(1, &[(2, K)]);
    until("both wait", || members.waits(0) && members.waits(1));
    members.runtime.terminate(two).unwrap();
    until("it is told", || members.heard.len() == 1);
    members.ask(2, &[(0, K)]);
    until("all are answered", || members.heard.len() == 2);
    let ended = Heard::Other(format!("{two} ended before it replied"));
    assert_eq!(members.heard.to_vec(), [(one, ended), (members.pid(2), Heard::Value)]);
}
