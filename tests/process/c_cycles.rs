//! C. Asks that form a cycle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use procession::{
    Address, CommandError, Event, Events, Handle, Overflow, Pid, Process, ProcessState, Reply, Runtime, SpawnOptions,
    Step, StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;

/// What a member can be told.
enum Do {
    /// To ask these, and to wait for all answers.
    Ask(Vec<(Address<Do>, How)>),
    /// To ask this one, and to wait for this closure as well.
    AskAndWork(Address<Do>, procession::Latch<()>),
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

/// What a member has been answered.
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

/// What all members have done and heard.
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

    fn asks(&mut self, to: Address<Do>, how: How, out: &mut StepOutput) {
        self.open.push(out.ask(to, move |reply| how.put(reply), Duration::MAX));
    }
}

impl Process for Member {
    type Message = Do;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Do>, out: &mut StepOutput) -> StepResult<()> {
        self.has_waited |= !self.open.is_empty();
        for event in events {
            match event {
                Event::Message(Do::Ask(all)) => {
                    all.into_iter().for_each(|(to, how)| self.asks(to, how, out));
                    self.told.asked.fetch_add(1, Ordering::SeqCst);
                    return Ok(Step::Wait);
                }
                Event::Message(Do::AskAndWork(to, gate)) => {
                    self.work = Some(out.blocking(move || gate.wait()));
                    self.asks(to, How::Keep, out);
                    return Ok(Step::Wait);
                }
                Event::Message(Do::AskNamed(name)) => {
                    self.open.push(out.named(name).ask(Do::Keep, Duration::MAX)?);
                    return Ok(Step::Wait);
                }
                Event::Message(Do::Upgrade(to)) => {
                    self.asks(to, How::Keep, out);
                    let open = std::mem::take(&mut self.open);
                    return Ok(Step::Upgrade(Upgrade::to(Member { open, ..Member::new(&self.told) })));
                }
                Event::Message(Do::Keep(reply)) => self.kept.push(reply),
                Event::Message(Do::Pass(to, true, reply)) => out.send(to, Do::Keep(reply.handed_on())),
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

    /// Has one ask others, and comes back when it waits (or has been answered), and it was looked whether that closes a cycle.
    fn ask(&self, who: usize, whom: &[(usize, How)]) {
        let before = self.asked.load(Ordering::SeqCst);
        self.tell(who, Do::Ask(whom.iter().map(|(whom, how)| (self.to(*whom), *how)).collect()));
        until("it asks", || self.asked.load(Ordering::SeqCst) > before);
        self.turns_are_over();
    }

    /// Comes back when each worker is through with the turn that it gives now: who was put to rest in it has been looked after.
    /// Otherwise one who came to rest earlier might be the one who finds the cycle that another closes.
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

    /// What was heard, when so many have heard something.
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
fn who_closes_a_cycle_is_told_of_it_and_who_waits_for_whom_without_any_limit() {
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
fn a_question_that_still_is_in_the_mailbox_is_part_of_a_cycle_like_one_that_was_taken() {
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

#[test]
fn a_chain_of_ten_thousand_that_is_closed_late_is_found_whichever_way_it_was_built() {
    const LENGTH: usize = 10_000;
    for forward in [true, false] {
        let members = Members::new(2, LENGTH);
        let ask = |who: usize| members.tell(who, Do::Ask(vec![(members.to((who + 1) % LENGTH), K)]));
        if forward {
            (0..LENGTH - 1).for_each(ask);
        } else {
            (0..LENGTH - 1).rev().for_each(ask);
        }
        until("all but one wait", || (0..LENGTH - 1).all(|who| members.waits(who)));
        assert_eq!(members.heard.len(), 0);
        ask(LENGTH - 1);
        until("all are answered", || members.heard.len() == LENGTH);
        let all = members.heard.to_vec();
        // Whose wait was given up: with so long a way any of them.
        let (told, Heard::Cycle(cycle)) = &all[0] else { panic!("the first to go on is told why") };
        let told = (0..LENGTH).find(|who| members.pid(*who) == *told).unwrap();
        let in_order = (0..LENGTH).map(|who| members.pid((told + who) % LENGTH));
        assert!(cycle.iter().copied().eq(in_order));
        assert!(all[1..].iter().all(|(_, heard)| *heard == Heard::Value));
    }
}

#[test]
fn a_process_that_waits_for_anything_else_as_well_is_not_given_an_error() {
    let members = Members::new(2, 2);
    let gate = procession::Latch::new();
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
fn as_long_as_one_of_those_who_were_asked_may_answer_nobody_is_given_an_error() {
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
fn a_knot_in_which_one_waits_for_two_is_untied_thread_by_thread() {
    let members = Members::new(1, 3);
    let pid = |who| members.pid(who);
    members.ask(0, &[(1, K), (2, K)]);
    members.ask(1, &[(0, K)]);
    until("both wait", || members.waits(0) && members.waits(1));
    members.ask(2, &[(0, K)]);
    let expected = [
        (pid(2), Heard::Cycle(vec![pid(2), pid(0)])),
        (pid(0), Heard::Value),
        (pid(0), Heard::Cycle(vec![pid(0), pid(1)])),
        (pid(1), Heard::Value),
    ];
    assert_eq!(members.heard(4), expected);
}

/// More than a worker looks at.
#[test]
fn a_knot_in_which_one_waits_for_more_than_a_thousand_is_untied_elsewhere() {
    const WIDTH: usize = 1_100;
    let members = Members::new(2, WIDTH + 1);
    members.ask(0, &(1..=WIDTH).map(|who| (who, K)).collect::<Vec<_>>());
    for who in 1..=WIDTH {
        members.tell(who, Do::Ask(vec![(members.to(0), K)]));
    }
    let all = members.heard(2 * WIDTH);
    // Of each two that wait for each other one is told, and then answers the other.
    let cycles: Vec<_> = all.iter().filter(|(_, heard)| *heard != Heard::Value).collect();
    assert_eq!((all.len(), cycles.len()), (2 * WIDTH, WIDTH));
    for (told, heard) in cycles {
        let Heard::Cycle(cycle) = heard else { panic!("{heard:?}") };
        assert!(cycle.len() == 2 && cycle[0] == *told && cycle.contains(&members.pid(0)), "{cycle:?}");
    }
}

#[test]
fn the_cycle_that_is_named_is_a_shortest_one() {
    let members = Members::new(1, 5);
    let pid = |who| members.pid(who);
    // From 0 over 1, 2 and 3, or over 4 alone.
    members.ask(1, &[(2, K)]);
    members.ask(2, &[(3, K)]);
    members.ask(3, &[(0, K)]);
    members.ask(4, &[(0, K)]);
    members.ask(0, &[(1, K), (4, K)]);
    until("all are answered", || members.heard.len() == 6);
    let cycles: Vec<_> = members.heard.to_vec().into_iter().filter(|(_, heard)| *heard != Heard::Value).collect();
    let expected =
        [(pid(0), Heard::Cycle(vec![pid(0), pid(4)])), (pid(0), Heard::Cycle(vec![pid(0), pid(1), pid(2), pid(3)]))];
    assert_eq!(cycles, expected);
}

#[test]
fn who_only_leads_into_a_cycle_is_answered_by_those_who_are_in_it() {
    let members = Members::new(1, 3);
    let (gate, pid) = (procession::Latch::new(), |who| members.pid(who));
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
fn a_question_that_was_handed_on_is_part_of_no_cycle_and_one_that_was_passed_on_in_silence_is() {
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
fn asks_by_name_and_asks_to_mailboxes_with_a_bound_form_cycles_like_others() {
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
