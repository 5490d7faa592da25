//! The processes of a random program: they carry out their plans, and write down what they did.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::helpers::Mutex;
use procession::{
    Command, Entry, Event, Events, InitResult, Pid, Process, Reply, Step, StepOutput, StepResult, Tag, Upgrade,
};

/// One thing that a step yields. Numbers choose among the processes that are known at that moment.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Send(usize),
    Spawn(usize),
    Ask(usize),
    Timer(u8),
    Blocking { panics: bool },
    Command(Outcome),
    Cancel(usize),
    Terminate(usize),
}

/// What the handler does with a command.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    AtOnce,
    Elsewhere,
    Fails,
    Panics,
    Drops,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Continue,
    Idle,
    Wait,
    Blocking,
    Done,
    Fail,
    Panic,
    Upgrade,
}

pub type Plan = Vec<(Vec<Act>, Ending)>;

pub struct Do(pub Outcome);

impl Command for Do {
    type Output = u32;
}

/// A message says whom it is for, who it is from, and which of theirs it is.
pub struct Letter {
    pub to: Pid,
    pub from: Option<Pid>,
    pub number: u64,
    pub effective: bool,
    pub reply: Option<Reply<u32>>,
}

/// The numbers of letters, in order, by receiver and sender.
pub type Letters = HashMap<(Pid, Option<Pid>), Vec<u64>>;

/// What everybody writes down.
#[derive(Default)]
pub struct World {
    pub plans: Vec<Plan>,
    pub known: Mutex<Vec<Pid>>,
    pub sent: Mutex<Letters>,
    pub received: Mutex<Letters>,
    pub lost_in_steps: Mutex<HashMap<Pid, usize>>,
    pub asked: Mutex<HashSet<(Pid, u64)>>,
    pub answered: Mutex<Vec<(Pid, u64)>>,
    pub numbers: AtomicUsize,
    pub inits: AtomicUsize,
    pub closes: AtomicUsize,
    pub violations: Mutex<Vec<String>>,
}

impl World {
    pub fn choose(&self, which: usize) -> Option<Pid> {
        let known = self.known.lock().unwrap();
        known.get(which % known.len().max(1)).copied()
    }

    fn violated(&self, law: String) {
        self.violations.lock().unwrap().push(law);
    }

    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) as u64
    }
}

pub struct Actor {
    world: Arc<World>,
    plan: usize,
    at: usize,
    me: Option<Pid>,
    inside: AtomicBool,
    // Plain fields: law 1 says that no lock is needed.
    steps_begun: u64,
    steps_ended: u64,
    outstanding: HashMap<u64, Pending>,
}

enum Pending {
    Number(Tag<u32>),
    Truth(Tag<bool>),
    Time(Tag<procession::Elapsed>),
}

impl Actor {
    pub fn new(world: &Arc<World>, plan: usize) -> Actor {
        Actor {
            world: world.clone(),
            plan,
            at: 0,
            me: None,
            inside: AtomicBool::new(false),
            steps_begun: 0,
            steps_ended: 0,
            outstanding: HashMap::new(),
        }
    }

    fn take(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput, got: &mut Vec<Letter>) -> bool {
        let mut cancelled = false;
        while let Some(event) = events.next() {
            match event {
                Event::Message(letter) => {
                    if letter.to != out.pid() || letter.from != events.sender() {
                        self.world.violated(format!("law 5: a letter to {} came to {}", letter.to, out.pid()));
                    }
                    got.push(letter);
                }
                Event::Completed(done) => {
                    let taken = match self.outstanding.remove(&done.tag()) {
                        Some(Pending::Number(tag)) => done.take(tag).is_some(),
                        Some(Pending::Truth(tag)) => done.take(tag).is_some(),
                        Some(Pending::Time(tag)) => done.take(tag).is_some(),
                        None => false,
                    };
                    if !taken {
                        self.world.violated(format!("law 6: tag {} of {} answered twice", done.tag(), out.pid()));
                    }
                    self.world.answered.lock().unwrap().push((out.pid(), done.tag()));
                }
                Event::Cancel(_) => cancelled = true,
                _ => {}
            }
        }
        cancelled
    }

    /// Yields what the plan says. What was sent, to be written down if the step succeeds.
    fn act(&mut self, acts: &[Act], effective: bool, out: &mut StepOutput) -> Vec<(Pid, u64)> {
        let mut sent = Vec::new();
        let (world, me) = (self.world.clone(), out.pid());
        let letter = |to, reply| {
            let number = world.number();
            (number, Letter { to, from: Some(me), number, effective, reply })
        };
        let mut tags = Vec::new();
        for act in acts {
            match *act {
                Act::Send(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let (number, letter) = letter(to, None);
                    sent.push((to, number));
                    out.send_to(to, letter);
                }
                Act::Spawn(plan) => {
                    let plan = plan % self.world.plans.len();
                    if self.world.known.lock().unwrap().len() > 60 {
                        continue;
                    }
                    if let Ok(child) = out.spawn(Actor::new(&self.world, plan)) {
                        if effective {
                            self.world.known.lock().unwrap().push(child.pid());
                        }
                        let (number, letter) = letter(child.pid(), None);
                        sent.push((child.pid(), number));
                        out.send(child, letter);
                    }
                }
                Act::Ask(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let mut number = 0;
                    let tag = out.ask(
                        to.typed(),
                        |reply| {
                            let (n, letter) = letter(to, Some(reply));
                            number = n;
                            letter
                        },
                        Duration::from_secs(5),
                    );
                    sent.push((to, number));
                    tags.push((tag.id(), Pending::Number(tag)));
                }
                Act::Timer(seconds) => {
                    let tag = out.after(Duration::from_secs(seconds.into()));
                    tags.push((tag.id(), Pending::Time(tag)));
                }
                Act::Blocking { panics } => {
                    let tag = out.blocking(move || if panics { panic!("in a job") } else { 1 });
                    tags.push((tag.id(), Pending::Number(tag)));
                }
                Act::Command(outcome) => {
                    let tag = out.command(Do(outcome));
                    tags.push((tag.id(), Pending::Number(tag)));
                }
                Act::Cancel(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let tag = out.cancel(to, "by plan");
                    tags.push((tag.id(), Pending::Truth(tag)));
                }
                Act::Terminate(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let tag = out.terminate(to);
                    tags.push((tag.id(), Pending::Truth(tag)));
                }
            }
        }
        if effective {
            let mut asked = self.world.asked.lock().unwrap();
            asked.extend(tags.iter().map(|(tag, _)| (me, *tag)));
        }
        self.outstanding.extend(tags);
        sent
    }
}

impl Process for Actor {
    type Message = Letter;
    type Output = ();

    fn init(&mut self, _: Entry) -> InitResult {
        self.world.inits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        if self.inside.swap(true, Ordering::Relaxed) || self.steps_begun != self.steps_ended {
            self.world.violated(format!("law 1: {} is stepped twice at once", out.pid()));
        }
        self.steps_begun += 1;
        let me = *self.me.get_or_insert(out.pid());
        assert_eq!(me, out.pid());
        let mut got = Vec::new();
        let cancelled = self.take(events, out, &mut got);
        // After its plan, a process does nothing but listen.
        let next = self.world.plans[self.plan].get(self.at).cloned();
        let (acts, mut ending) = next.unwrap_or((Vec::new(), Ending::Idle));
        self.at += 1;
        if cancelled {
            ending = Ending::Done;
        }
        let effective = !matches!(ending, Ending::Fail | Ending::Panic);
        let sent = self.act(&acts, effective, out);
        if ending == Ending::Wait && self.outstanding.is_empty() {
            ending = Ending::Idle;
        }
        if effective {
            for (to, number) in sent {
                self.world.sent.lock().unwrap().entry((to, Some(me))).or_default().push(number);
            }
            for letter in got {
                if !letter.effective {
                    self.world.violated(format!("law 4: {me} got a letter of a step that failed"));
                }
                self.world.received.lock().unwrap().entry((me, letter.from)).or_default().push(letter.number);
                match letter.reply {
                    Some(reply) if letter.number % 3 == 0 => out.reply(reply, 1),
                    Some(reply) if letter.number % 3 == 1 => drop(reply.send(2)),
                    _ => {}
                }
            }
        } else {
            *self.world.lost_in_steps.lock().unwrap().entry(me).or_default() += got.len();
        }
        self.steps_ended += 1;
        self.inside.store(false, Ordering::Relaxed);
        match ending {
            Ending::Continue => Ok(Step::Continue),
            Ending::Idle => Ok(Step::Idle),
            Ending::Wait => Ok(Step::Wait),
            Ending::Blocking => Ok(Step::Blocking),
            Ending::Done => Ok(Step::Done(())),
            Ending::Fail => Err("by plan".into()),
            Ending::Panic => panic!("by plan"),
            Ending::Upgrade => {
                let mut next = Actor::new(&self.world, self.plan + 1);
                next.plan %= self.world.plans.len();
                next.at = self.at;
                next.outstanding = std::mem::take(&mut self.outstanding);
                Ok(Step::Upgrade(Upgrade::to(next)))
            }
        }
    }

    fn close(&mut self) {
        self.world.closes.fetch_add(1, Ordering::SeqCst);
    }
}
