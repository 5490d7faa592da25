//! The processes of a random program: they carry out their plans, and write down what they did.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::acts::{Ending, Letter, Start, StepNumber, Takes};
use crate::monitor::{Note, Part, Taken};
use crate::observations::Owned;
use crate::records::{World, WrittenAs};
use procession::exit::ExitSignal;
use procession::{
    BoxError, CommandError, Down, EntryArgs, Event, Events, Exit, InitResult, Monitor, Pid, Process, Rejected,
    SendError, Step, StepOutput, StepResult, Tag, Upgrade,
};

pub struct Actor {
    pub world: Arc<World>,
    plan: usize,
    pub at: usize,
    pub me: Option<Pid>,
    inside: AtomicBool,
    // Plain fields: law 1 says that no lock is needed.
    steps_begun: u64,
    steps_ended: u64,
    pub outstanding: BTreeMap<u64, Pending>,
    /// Of its birth, whatever plan it has now.
    traps: bool,
    pub recovers: usize,
    /// Those of which it was told nothing yet.
    pub monitors: Vec<Monitor>,
    /// Those that can have sent nothing that it has not been given.
    ended: HashSet<Pid>,
    /// The last step has said `Wait`, so this one is given no messages.
    pub waited: bool,
    /// The step that has spawned it.
    pub born_of: Option<StepNumber>,
    /// Notes the drop of a state machine. The processes that are written otherwise have none.
    state: Option<Owned>,
}

/// The answer to a send that waits for room.
pub type SendResult = Result<(), Rejected<Letter, SendError>>;

/// A letter that may wait for room.
#[derive(Clone, Copy, Debug)]
pub struct PendingLetter {
    pub to: Pid,
    pub number: u64,
}

#[derive(Clone, Copy)]
pub enum Pending {
    Number(Tag<u32>),
    Ask(Tag<u32>),
    Run(Tag<()>),
    Truth(Tag<bool>),
    Time(Tag<procession::command::TimerFired>),
    Room(Tag<SendResult>, PendingLetter),
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
            outstanding: BTreeMap::new(),
            traps: world.plans[plan].traps,
            recovers: world.plans[plan].recovers,
            monitors: Vec::new(),
            ended: HashSet::new(),
            waited: false,
            born_of: None,
            state: None,
        }
    }

    /// The child of this step.
    pub fn born_of(step: StepNumber, child: Actor) -> Actor {
        Actor { born_of: Some(step), ..child }
    }

    /// The same process, if it does not trap exits.
    pub fn without_traps(self) -> Actor {
        Actor { traps: false, ..self }
    }

    fn take(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput, got: &mut Vec<Letter>) -> bool {
        let step = self.world.plans[self.plan].steps.get(self.at);
        let most = match step.map(|step| step.0) {
            Some(Takes::Few(most)) => most,
            Some(Takes::Nothing) if self.world.simulated.is_some() && !out.is_shutting_down() => 0,
            _ => usize::MAX,
        };
        self.world.takes(out.pid(), most > 0);
        let mut cancelled = false;
        for _ in 0..most {
            let Some(event) = events.next() else { break };
            cancelled |= self.take_one(event, events.sender(), out.pid(), got);
        }
        cancelled
    }

    /// Takes an event. Returns whether it is a request to stop.
    pub fn take_one(&mut self, event: Event<Letter>, sender: Option<Pid>, me: Pid, got: &mut Vec<Letter>) -> bool {
        match event {
            Event::Message(letter) => {
                if letter.to != me || letter.from != sender {
                    self.world.violated(format!("law 5: a letter to {} came to {me}", letter.to));
                }
                if letter.from.is_some_and(|from| self.ended.contains(&from)) {
                    self.world.violated(format!("monitors: a letter of {:?} came after its end", letter.from));
                }
                self.world.note(|| Note::Took(me, Taken::Letter { from: letter.from, number: letter.number }));
                self.world.observe(|seen| seen.takes(me, letter.stamp, || format!("letter {}", letter.number)));
                got.push(letter);
            }
            Event::Completed(done) => {
                let mut fired = false;
                let taken = match self.outstanding.remove(&done.tag()) {
                    Some(Pending::Number(tag) | Pending::Ask(tag)) => done.take(tag).is_some(),
                    Some(Pending::Run(tag)) => done.take(tag).map(|output| self.world.ran(me, output)).is_some(),
                    Some(Pending::Truth(tag)) => done.take(tag).is_some(),
                    Some(Pending::Room(tag, room)) => {
                        done.take(tag).map(|answer| self.send_answered(answer, room)).is_some()
                    }
                    Some(Pending::Time(tag)) => {
                        let elapsed = done.take(tag);
                        fired = matches!(elapsed, Some(Ok(_)));
                        elapsed.is_some()
                    }
                    None => false,
                };
                self.world.note(|| Note::Took(me, Taken::Answer { tag: done.tag(), fired }));
                self.world.observe(|seen| seen.answered(me, done.tag()));
                self.answered(done.tag(), taken, me);
            }
            Event::Cancel(_) => {
                self.world.note(|| Note::Took(me, Taken::Control { of: None }));
                return true;
            }
            event => self.related(&event, me),
        }
        false
    }

    /// A letter was accepted, or comes back.
    pub fn send_answered(&self, answer: Result<SendResult, CommandError>, room: PendingLetter) {
        self.world.forget_room(room.number);
        if let (Ok(Err(_)), Some(me)) = (answer, self.me) {
            self.world.note_handed_back(room, me);
        }
    }

    /// A command was answered, and the answer was taken or not.
    pub fn answered(&mut self, tag: u64, taken: bool, me: Pid) {
        if !taken {
            self.world.violated(format!("law 6: tag {tag} of {me} answered twice"));
        }
        self.world.answered.lock().unwrap().push((me, tag));
    }

    /// Something is told of another process.
    fn related(&mut self, event: &Event<Letter>, me: Pid) {
        match event {
            Event::Down(down) => self.down(down, me),
            Event::Exit(exit) => self.exit(exit, me),
            Event::Recovered(recovered) => {
                self.world.note(|| Note::Took(me, Taken::Control { of: Some(recovered.pid) }));
                self.traps(me);
                self.world.recovery(me, recovered.pid);
            }
            _ => {}
        }
    }

    pub fn down(&mut self, down: &Down, me: Pid) {
        self.world.note(|| Note::Took(me, Taken::End { of: down.pid }));
        let Some(at) = self.monitors.iter().position(|monitor| *monitor == down.monitor) else {
            self.world.violated(format!("monitors: {me} was told of {} twice, or unasked", down.pid));
            return;
        };
        self.monitors.swap_remove(at);
        // Of one that waited the messages come after all signals.
        if !self.waited {
            self.ended.insert(down.pid);
        }
        self.world.relations.down(me, down.monitor, &down.exit);
    }

    pub fn exit(&mut self, exit: &ExitSignal, me: Pid) {
        self.world.note(|| Note::Took(me, Taken::Control { of: Some(exit.pid) }));
        self.traps(me);
        self.world.relations.exit(me, exit.pid, &exit.exit);
    }

    fn traps(&self, me: Pid) {
        if !self.traps {
            self.world.violated(format!("links: {me} does not trap exits, and was told of one"));
        }
    }
}

impl Process for Actor {
    type Message = Letter;
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.world.inits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        match self.world.plans[self.plan].start {
            Start::Silent => return Ok(()),
            Start::Counts => self.world.counts(),
            Start::Fails => {}
        }
        out.count("starts", 1);
        if let Start::Fails = self.world.plans[self.plan].start { Err("by plan".into()) } else { Ok(()) }
    }

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        out.count("steps", 1);
        let ending = self.step_with(out, |actor, out, got| actor.take(events, out, got));
        self.end_of_step(ending)
    }

    /// It goes on with its plan, and with nothing else.
    fn recover(&mut self, why: &Exit) -> Option<Upgrade<()>> {
        self.me.into_iter().for_each(|me| {
            self.world.waits(me, false);
            self.world.failed(me, why);
        });
        self.recovered().map(Upgrade::to)
    }

    fn close(&mut self) {
        self.world.closes.fetch_add(1, Ordering::SeqCst);
        self.me.into_iter().for_each(|me| self.world.note(|| Note::Gone(me, Part::Closed)));
    }
}

/// The same process, of another type.
pub struct Twin(Actor);

impl Process for Twin {
    type Message = Letter;
    type Output = ();

    fn init(&mut self, args: EntryArgs) -> InitResult {
        self.0.init(args)
    }

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        self.0.step(events, out)
    }

    fn recover(&mut self, why: &Exit) -> Option<Upgrade<()>> {
        self.0.recover(why)
    }

    fn close(&mut self) {
        self.0.close();
    }
}

impl Actor {
    /// Takes events, and does what its plan says. Returns how the plan ends the step.
    pub fn step_with(
        &mut self,
        out: &mut StepOutput,
        take: impl FnOnce(&mut Actor, &mut StepOutput, &mut Vec<Letter>) -> bool,
    ) -> Ending {
        if self.inside.swap(true, Ordering::Relaxed) || self.steps_begun != self.steps_ended {
            self.world.violated(format!("law 1: {} is stepped twice at once", out.pid()));
        }
        self.steps_begun += 1;
        self.world.waits(out.pid(), false);
        self.world.settle_last();
        self.world.note(|| Note::Step { of: out.pid(), at: self.world.elapsed(out.now()), waited: self.waited });
        // So some commands are open when a step fails.
        if self.world.number().is_multiple_of(4) {
            self.world.answer_open();
        }
        self.world.observe(|seen| seen.balance(false));
        if self.world.plans[self.plan].recovers > 0 {
            let number = out.random();
            self.world.observe(|seen| seen.draws(out.pid(), number));
        }
        if self.me.is_none() {
            self.world.relations.begins(out.pid(), self.traps);
            self.born_of.into_iter().for_each(|step| self.world.note(|| Note::Carried(step)));
            // Until here there was nobody with its PID: a step that succeeds spawns when it is over.
            self.world.known.lock().unwrap().push(out.pid());
        }
        let me = *self.me.get_or_insert(out.pid());
        assert_eq!(me, out.pid());
        if let (WrittenAs::Machine, Some(_)) = (self.world.written_as, &self.world.simulated) {
            self.state.get_or_insert_with(|| Owned::new(&self.world, me, Part::State));
        }
        let mut got = Vec::new();
        let cancelled = take(self, out, &mut got);
        self.waited = false;
        // After its plan, a process does nothing but listen.
        let next = self.world.plans[self.plan].steps.get(self.at).cloned();
        let (takes, acts, mut ending) = next.unwrap_or((Takes::All, Vec::new(), Ending::Idle));
        self.at += 1;
        if cancelled {
            ending = Ending::Done;
        }
        let effective = !matches!(ending, Ending::Fail | Ending::Panic);
        let world = self.world.clone();
        let mut act = || self.act(&acts, effective, out);
        let (mut effects, mut yields) = match world.observations() {
            Some(seen) => seen.in_trace(world.number(), act),
            None => act(),
        };
        yields.closes = matches!(ending, Ending::Done | Ending::Upgrade);
        if ending == Ending::Wait && self.outstanding.is_empty() {
            ending = Ending::Idle;
        }
        (yields.takes_all, yields.rests) = (matches!(takes, Takes::All), ending == Ending::Idle);
        if effective {
            if let WrittenAs::Machine = self.world.written_as {
                effects.push(Box::new(|world| world.counts()));
            }
            let sent = yields.sent.clone();
            effects.push(Box::new(move |world| {
                for (to, number) in sent {
                    world.sent.lock().unwrap().entry((to, Some(me))).or_default().push(number);
                }
            }));
            for letter in got {
                if !letter.effective {
                    self.world.violated(format!("law 4: {me} got a letter of a step that failed"));
                }
                let (from, number) = (letter.from, letter.number);
                effects.push(Box::new(move |world| {
                    world.received.lock().unwrap().entry((me, from)).or_default().push(number);
                }));
                match letter.reply {
                    Some(reply) if number % 3 == 0 => {
                        yields.replies.extend(from.map(|from| (from, number)));
                        out.reply(reply, 1);
                    }
                    Some(reply) if number % 3 == 1 => {
                        yields.replies.extend(from.map(|from| (from, number)));
                        reply.send(2);
                    }
                    _ => {}
                }
            }
            self.world.note(|| Note::Stepped(me, Box::new(yields)));
            self.world.settle(me, effects);
        } else {
            self.world.note(|| Note::Failed(me));
            self.world.observe(|seen| {
                seen.stepped(true);
                Ok(())
            });
        }
        self.steps_ended += 1;
        self.inside.store(false, Ordering::Relaxed);
        ending
    }

    fn end_of_step(&mut self, ending: Ending) -> StepResult<()> {
        match ending {
            Ending::Continue => Ok(Step::Continue),
            Ending::Idle => Ok(Step::Idle),
            Ending::Wait => {
                self.waited = true;
                self.me.into_iter().for_each(|me| self.world.waits(me, true));
                Ok(Step::Wait)
            }
            Ending::Blocking => Ok(Step::Blocking),
            Ending::Done => Ok(Step::Done(())),
            Ending::Fail => Err("by plan".into()),
            Ending::Panic => panic!("on purpose"),
            Ending::Upgrade => {
                let mut next = Actor::new(&self.world, (self.plan + 1) % self.world.plans.len());
                next.at = self.at;
                // It has what its predecessor had.
                next.me = self.me;
                (next.traps, next.recovers) = (self.traps, self.recovers);
                next.outstanding = std::mem::take(&mut self.outstanding);
                (next.monitors, next.ended) = (std::mem::take(&mut self.monitors), std::mem::take(&mut self.ended));
                // Its type changes now and then.
                Ok(Step::Upgrade(if next.at.is_multiple_of(2) { Upgrade::to(Twin(next)) } else { Upgrade::to(next) }))
            }
        }
    }

    /// The one that goes on after a failure.
    pub fn recovered(&mut self) -> Option<Actor> {
        let recovers = self.recovers.checked_sub(1)?;
        let mut next = Actor::new(&self.world, self.plan);
        (next.at, next.me, next.traps, next.recovers) = (self.at, self.me, self.traps, recovers);
        let (me, world) = (self.me?, &self.world);
        world.relations.recovers(me);
        let mut asked = world.asked.lock().unwrap();
        let abandoned: Vec<_> = asked.extract_if(|question| question.0 == me).collect();
        world.abandoned.lock().unwrap().extend(abandoned);
        drop(asked);
        Some(next)
    }
}
