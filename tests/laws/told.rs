//! Random programs of one process that is told of others, in simulations. The others send letters to it, ask it, answer
//! its questions, recover and end, some with errors whose destructors panic. It takes few events in each step, gives up
//! monitors and links, and may end before it has taken everything.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use procession::observe::{DeadLetter, Observer};
use procession::simulation::{Simulation, World};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, CommandError, Event, Events, Exit, Monitor, Pid, Process, Reply, SpawnOptions, Step, StepOutput,
    StepResult, Tag, Upgrade,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;
use crate::simulated::cases;
use crate::told_records::{Item, Overtaken, Shared, Told, Yielded};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
enum Say {
    Letter,
    /// A letter that is to be answered.
    Question,
    /// The answer to a question, if one is open.
    Answer,
    /// It fails, and recovers.
    Recovery,
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Done,
    Fails,
    /// It fails with an error whose destructor panics.
    Hostile,
}

#[derive(Clone, Copy, Debug)]
enum Who {
    /// It only wakes.
    Listener,
    One(usize),
    /// All of the others.
    All,
}

#[derive(Clone, Debug)]
struct Plan {
    says: Vec<Say>,
    /// Otherwise it lives on.
    end: Option<End>,
    is_linked: bool,
    is_monitored: bool,
    questions: usize,
}

#[derive(Clone, Debug)]
struct Program {
    plans: Vec<Plan>,
    /// How many events each step of the listener takes. Then it begins again.
    takes: Vec<usize>,
    bound: Option<(usize, Overflow)>,
    step_events: usize,
    /// The processes that go on, and how far. Then everything may come to rest.
    rounds: Vec<(Who, usize, bool)>,
    /// Steps in which the listener gives up its relations with a process.
    forgets: Vec<(usize, usize)>,
    /// The listener ends when it has taken so many events.
    ends_after: Option<usize>,
    seed: u64,
}

/// An error whose destructor panics.
#[derive(thiserror::Error)]
#[error("hostile")]
struct Hostile(Shared);

impl std::fmt::Debug for Hostile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hostile")
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.0.lock().unwrap().dropped += 1;
        panic!("on purpose");
    }
}

/// From another process, or from outside.
struct Letter {
    from: Option<Pid>,
    number: u64,
    reply: Option<Reply<()>>,
}

struct Letters(Shared);

impl Observer for Letters {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let number = letter.message::<Letter>().filter(|letter| letter.from.is_some()).map(|letter| letter.number);
        number.into_iter().for_each(|number| self.0.lock().unwrap().lost(number));
    }
}

enum ToTeller {
    Listener(Address<Letter>),
    Go(usize),
    Question(Reply<u64>),
}

struct Teller {
    plan: Plan,
    at: usize,
    /// So many steps of its plan follow.
    goes: usize,
    to: Option<Address<Letter>>,
    questions: VecDeque<Reply<u64>>,
    records: Shared,
}

impl Process for Teller {
    type Message = ToTeller;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ToTeller>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(ToTeller::Listener(to)) => self.to = Some(to),
                Event::Message(ToTeller::Go(steps)) => self.goes += steps,
                Event::Message(ToTeller::Question(reply)) => self.questions.push_back(reply),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        let (Some(to), true) = (self.to, self.goes > 0) else { return Ok(Step::Idle) };
        let records = &mut *self.records.lock().unwrap();
        let me = out.pid();
        self.goes -= 1;
        self.at += 1;
        match (self.plan.says.get(self.at - 1), self.plan.end) {
            (Some(Say::Letter), _) => {
                let number = records.says(me, Yielded::Letter);
                out.send(to, Letter { from: Some(me), number, reply: None });
            }
            (Some(Say::Question), _) => {
                let number = records.says(me, Yielded::Question);
                let letter = move |reply| Letter { from: Some(me), number, reply: Some(reply) };
                out.ask(to, letter, 1_000_000 * SECOND);
            }
            (Some(Say::Answer), _) => {
                if let Some(reply) = self.questions.pop_front() {
                    out.reply(reply, records.says(me, Yielded::Answer));
                }
            }
            (Some(Say::Recovery), _) => {
                let told = records.told.entry(me).or_default();
                told.items.extend(told.is_linked.then_some(Item::Recovery));
                return Err("on purpose".into());
            }
            (Some(Say::Nothing), _) | (None, None) => {}
            (None, Some(end)) => {
                records.end(me);
                return match end {
                    End::Done => Ok(Step::Done(())),
                    End::Fails => Err("on purpose".into()),
                    End::Hostile => {
                        records.made += 1;
                        Err(Hostile(self.records.clone()).into())
                    }
                };
            }
        }
        Ok(if self.goes > 0 { Step::Continue } else { Step::Idle })
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let is_over = self.at > self.plan.says.len();
        let questions = std::mem::take(&mut self.questions);
        let (plan, records) = (self.plan.clone(), self.records.clone());
        let next = Teller { plan, at: self.at, goes: self.goes, to: self.to, questions, records };
        (!is_over).then(|| Upgrade::to(next))
    }
}

struct Listener {
    program: Program,
    tellers: Vec<Address<ToTeller>>,
    steps: usize,
    taken: usize,
    asked: Vec<(Pid, Tag<u64>)>,
    /// Questions to which no step has replied.
    open: Vec<Reply<()>>,
    monitors: BTreeMap<Pid, Monitor>,
    records: Shared,
}

impl Listener {
    fn begin(&mut self, out: &mut StepOutput) {
        let me = out.own_address::<Listener>();
        let records = &mut *self.records.lock().unwrap();
        for (teller, plan) in self.tellers.iter().zip(&self.program.plans) {
            let told = records.told.entry(teller.pid()).or_default();
            (told.is_linked, told.is_monitored) = (plan.is_linked, plan.is_monitored);
            if plan.is_linked {
                out.link(*teller);
            }
            if plan.is_monitored {
                self.monitors.insert(teller.pid(), out.monitor(*teller));
            }
            out.send(*teller, ToTeller::Listener(me));
            told.questions = plan.questions;
            let asked = (0..plan.questions).map(|_| out.ask(*teller, ToTeller::Question, 1_000_000 * SECOND));
            self.asked.extend(asked.map(|tag| (teller.pid(), tag)));
        }
    }

    /// Takes an event. Returns whether it is a request to stop.
    fn take(&mut self, event: &mut Event<Letter>, sender: Option<Pid>, out: &mut StepOutput) -> bool {
        let takes = |of, item| self.records.lock().unwrap().takes(of, item);
        match event {
            Event::Message(letter) => {
                letter.from.into_iter().for_each(|from| takes(from, Item::Letter(letter.number)));
                if letter.from != sender {
                    self.records.lock().unwrap().wrong(format!("{sender:?} has sent a letter of {:?}", letter.from));
                }
                // It replies at once, later, or never.
                match letter.number % 3 {
                    0 => letter.reply.take().into_iter().for_each(|reply| out.reply(reply, ())),
                    1 => self.open.extend(letter.reply.take()),
                    _ => {}
                }
            }
            Event::Down(down) => takes(down.pid, Item::Down),
            Event::Exit(exit) => takes(exit.pid, Item::Exit),
            Event::Recovered(recovered) => takes(recovered.pid, Item::Recovery),
            Event::Cancel(_) => return true,
            _ => {}
        }
        false
    }

    /// Takes an answer. That of a process which has ended is an error.
    fn answer(&self, of: Pid, answer: Result<u64, CommandError>) {
        let records = &mut *self.records.lock().unwrap();
        if let Ok(number) = answer {
            records.takes(of, Item::Answer(number));
        }
        records.told.entry(of).or_default().questions -= 1;
    }

    fn forget(&mut self, which: usize, out: &mut StepOutput) {
        let of = self.tellers[which % self.tellers.len()].pid();
        self.monitors.remove(&of).into_iter().for_each(|monitor| out.demonitor(monitor));
        out.unlink(of);
        self.records.lock().unwrap().forget(of);
    }
}

impl Process for Listener {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        self.steps += 1;
        if self.steps == 1 {
            self.begin(out);
            return Ok(Step::Idle);
        }
        let takes_all = self.records.lock().unwrap().takes_all;
        let most = self.program.takes[self.steps % self.program.takes.len()];
        let mut left = if takes_all || out.is_shutting_down() { usize::MAX } else { most };
        self.open.pop().into_iter().for_each(|reply| out.reply(reply, ()));
        while left > 0
            && let Some(mut event) = events.next()
        {
            left -= 1;
            self.taken += 1;
            if let Event::Completed(done) = &event
                && let Some((of, answer)) = self.asked.iter().find_map(|(of, tag)| Some((*of, done.take(*tag)?)))
            {
                self.answer(of, answer);
            }
            let is_cancelled = self.take(&mut event, events.sender(), out);
            // The event may have the last copy of a hostile error.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(event)));
            if is_cancelled || self.program.ends_after.is_some_and(|most| self.taken >= most) {
                return Ok(Step::Done(()));
            }
        }
        let forgets = self.program.forgets.iter().filter(|(step, _)| *step == self.steps).map(|(_, which)| *which);
        forgets.collect::<Vec<_>>().into_iter().for_each(|which| self.forget(which, out));
        Ok(Step::Idle)
    }
}

fn run(program: &Program, overtaken: &Arc<Overtaken>) -> Result<(), String> {
    quiet_panics();
    overtaken.count();
    let (of_scenario, overtaken) = (program.clone(), overtaken.clone());
    let report = Simulation::new(move |world| run_in(world, &of_scenario, &overtaken).map_err(BoxError::from))
        .name("random signals")
        .seeds(program.seed..program.seed + 1)
        .threads(1)
        .without("no step panics")
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

/// Everything comes to rest, and all that was said has arrived. The questions stay open.
fn rest(world: &World, records: &Shared) -> Result<(), String> {
    world.run_for(SECOND).map_err(|error| error.to_string())?;
    records.lock().unwrap().told.values_mut().for_each(|told| told.arrived = told.items.len());
    Ok(())
}

fn run_in(world: &World, program: &Program, overtaken: &Overtaken) -> Result<(), String> {
    let records = Shared::default();
    // The last of the others only answers one question at the end. No mailbox is too full for that.
    let last = Plan { says: vec![Say::Answer], end: None, is_linked: false, is_monitored: false, questions: 1 };
    let program = &Program { plans: program.plans.iter().cloned().chain([last]).collect(), ..program.clone() };
    records.lock().unwrap().is_bounded = program.bound.is_some();
    let builder = builder().observer(Letters(records.clone()));
    let runtime = world.start(builder).map_err(|error| error.to_string())?;
    let spawn = |plan: &Plan| {
        let (plan, records) = (plan.clone(), records.clone());
        let teller = Teller { plan, at: 0, goes: 0, to: None, questions: VecDeque::new(), records };
        runtime.spawn(teller).map(|handle| handle.address()).map_err(|error| error.to_string())
    };
    let tellers = program.plans.iter().map(spawn).collect::<Result<Vec<_>, _>>()?;
    let options = SpawnOptions::new().trap_exits().step_events(program.step_events);
    let options = program.bound.iter().fold(options, |options, (limit, full)| options.mailbox(*limit, *full));
    let listener = Listener {
        program: program.clone(),
        tellers: tellers.clone(),
        steps: 0,
        taken: 0,
        asked: Vec::new(),
        open: Vec::new(),
        monitors: BTreeMap::new(),
        records: records.clone(),
    };
    let listener = runtime.spawn_with(listener, options).map_err(|error| error.to_string())?;
    rest(world, &records)?;
    // The last one goes on at the end.
    let others = &tellers[..tellers.len() - 1];
    for (who, count, rests) in &program.rounds {
        match who {
            // A full mailbox may refuse it, and the listener may have ended.
            Who::Listener => _ = runtime.send(&listener, Letter { from: None, number: 0, reply: None }),
            Who::One(who) => _ = runtime.send(others[who % others.len()], ToTeller::Go(*count)),
            Who::All => others.iter().for_each(|one| _ = runtime.send(*one, ToTeller::Go(*count))),
        }
        if *rests {
            rest(world, &records)?;
        } else {
            world.run_for(Duration::from_micros(world.random(0..20))).map_err(|error| error.to_string())?;
        }
    }
    rest(world, &records)?;
    records.lock().unwrap().takes_all = true;
    runtime.send(tellers[tellers.len() - 1], ToTeller::Go(1)).map_err(|error| error.to_string())?;
    rest(world, &records)?;
    let is_alive = runtime.is_alive(&listener);
    if let Some(wrong) = records.lock().unwrap().wrong.take() {
        return Err(wrong);
    }
    let is_left = |(_, told): &(&Pid, &Told)| is_alive && !told.items.is_empty();
    if let Some((of, told)) = records.lock().unwrap().told.iter().find(is_left) {
        return Err(format!("the listener was not told {:?} of {of}", told.items));
    }
    let report = runtime.shutdown(3_600 * SECOND).map_err(|error| error.to_string())?;
    let exit = listener.join().map_err(|error| error.to_string())?;
    if !exit.is_done() || !report.stuck.is_empty() {
        return Err(format!("the listener has ended: {exit}, {report}"));
    }
    drop((exit, runtime));
    let records = records.lock().unwrap();
    overtaken.note(&records);
    if records.made != records.dropped {
        return Err(format!("{} hostile errors of {} were dropped", records.dropped, records.made));
    }
    Ok(())
}

fn program() -> impl Strategy<Value = Program> {
    let say = prop_oneof![
        8 => Just(Say::Letter),
        6 => Just(Say::Question),
        7 => Just(Say::Answer),
        7 => Just(Say::Recovery),
        1 => Just(Say::Nothing),
    ];
    let end = prop_oneof![1 => Just(End::Done), 1 => Just(End::Fails), 4 => Just(End::Hostile)];
    let plan = (
        prop::collection::vec(say, 0..80),
        prop::option::weighted(0.9, end),
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.7),
        0..20_usize,
    )
        .prop_map(|(says, end, is_linked, is_monitored, questions)| Plan {
            says,
            end,
            is_linked,
            is_monitored,
            questions,
        });
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::DropOldest), Just(Overflow::DropNewest)];
    let bound = prop::option::weighted(0.4, (1..12_usize, overflow));
    let who = prop_oneof![
        1 => Just(Who::Listener),
        4 => any::<usize>().prop_map(Who::One),
        2 => Just(Who::All),
    ];
    (
        prop::collection::vec(plan, 1..7),
        prop::collection::vec(prop_oneof![1 => Just(0), 1 => Just(1), 1 => 1..4_usize], 1..6),
        bound,
        prop_oneof![1 => 1..4_usize, 1 => Just(64)],
        prop::collection::vec((who, 1..8_usize, prop::bool::weighted(0.1)), 1..150),
        prop::collection::vec((2..60_usize, any::<usize>()), 0..4),
        prop::option::weighted(0.4, 1..150_usize),
        any::<u32>(),
    )
        .prop_map(|(plans, takes, bound, step_events, rounds, forgets, ends_after, seed)| Program {
            plans,
            takes,
            bound,
            step_events,
            rounds,
            forgets,
            ends_after,
            seed: seed.into(),
        })
}

#[test]
fn simulated_programs_of_one_listener_keep_the_laws() {
    let overtaken = Arc::<Overtaken>::default();
    random_programs(cases(25_000), Config::default(), program(), |program| run(program, &overtaken));
    overtaken.check();
}
