//! Random programs of supervised processes that have names, and that join groups and broadcast to them. They run in
//! simulations, under a schedule and with crashes. The laws are about names, groups and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use procession::names::{GroupChange, Subscription};
use procession::observe::{Observer, ProcessIdentity};
use procession::simulation::{Delivery, Faults, Simulation, World};
use procession::supervisor::{
    AutoShutdown, Backoff, ChildSpec, Restart, Shutdown, Strategy as Siblings, Supervisor, SupervisorMessage,
};
use procession::{
    BoxError, Event, Events, Exit, Handle, Pid, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Tag,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;
use crate::simulated::cases;
use crate::supervised_laws::{check_at_rest, check_end, check_turn};

pub const SECOND: Duration = Duration::from_secs(1);

pub const NAMES: [&str; 2] = ["leader", "clerk"];
pub const GROUPS: [&str; 2] = ["north", "south"];

#[derive(Clone, Copy, Debug)]
pub enum Act {
    Register(usize),
    /// Registers a process that has ended.
    RegisterEnded(usize),
    Join(usize),
    /// Lets a process join that has ended.
    JoinEnded(usize),
    Leave(usize),
    Broadcast(usize),
    Subscribe(usize),
    Unsubscribe(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Idle,
    Continue,
    Done,
    Fail,
    Panic,
}

#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps of the child. A restarted child goes on with the next one.
    pub steps: Vec<(Vec<Act>, Ending)>,
    pub restart: Restart,
    pub is_in_place: bool,
    pub is_significant: bool,
    /// Whether it ignores cancel requests. Then it has a limit.
    pub is_deaf: bool,
    pub stops_at_once: bool,
    pub is_named: bool,
    /// The group of its spawn options.
    pub group: Option<usize>,
}

/// A request to the supervisor about one child.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Stop(usize),
    Restart(usize),
    Delete(usize),
}

#[derive(Clone, Debug)]
pub struct Program {
    pub siblings: Siblings,
    /// The most restarts.
    pub most: usize,
    pub has_delays: bool,
    pub auto: AutoShutdown,
    pub plans: Vec<Plan>,
    pub requests: Vec<Request>,
    /// Whether the supervisor has a supervisor.
    pub is_nested: bool,
    pub seed: u64,
    /// The probability of a crash before a step.
    pub chance: f64,
    pub per_pair: bool,
}

/// A message to a group.
#[derive(Clone)]
pub struct Letter(pub u64);

pub struct Broadcast {
    pub number: u64,
    pub from: Pid,
    pub to: Vec<Pid>,
}

/// The records of all children, in the order of the run.
#[derive(Default)]
pub struct Records {
    pub moments: u64,
    /// How many steps of its plan each child has begun.
    pub at: Vec<usize>,
    /// The first steps of state machines: the child, its PID, and the moment.
    pub begins: Vec<(usize, Pid, u64)>,
    /// Steps that failed.
    pub failures: Vec<(usize, u64)>,
    pub done: BTreeSet<usize>,
    /// Names that a process was answered to have.
    pub named: BTreeSet<(String, Pid)>,
    /// The memberships that a process was answered to have.
    pub joined: BTreeMap<(usize, Pid), usize>,
    /// Those that it gave up.
    pub left: BTreeMap<(usize, Pid), usize>,
    /// The memberships that it asked for.
    pub joins: BTreeMap<(usize, Pid), usize>,
    pub broadcasts: Vec<Broadcast>,
    pub received: BTreeMap<(Pid, Pid), Vec<u64>>,
    /// The members of a group, as a subscriber was told.
    pub views: BTreeMap<(Pid, usize), Vec<Pid>>,
    /// Processes that have failed. A successor in place does not know what its predecessor took.
    pub failed: BTreeSet<Pid>,
    pub exits: Vec<Pid>,
    pub wrong: Option<String>,
}

impl Records {
    fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// How often the processes are in a group at least.
    pub fn members(&self, group: usize) -> impl Iterator<Item = (Pid, usize)> {
        let left = |of: &(usize, Pid)| self.left.get(of).copied().unwrap_or(0);
        let joined = self.joined.iter().map(move |(of, count)| (of, count.saturating_sub(left(of))));
        joined.filter(move |(of, count)| of.0 == group && *count > 0).map(|(of, count)| (of.1, count))
    }

    pub fn pids(&self, child: usize) -> BTreeSet<Pid> {
        self.begins.iter().filter(|begin| begin.0 == child).map(|begin| begin.1).collect()
    }

    /// When this process had its first step.
    pub fn start(&self, pid: Pid) -> Option<u64> {
        self.begins.iter().find(|begin| begin.1 == pid).map(|begin| begin.2)
    }
}

pub type Shared = Arc<Mutex<Records>>;

struct Exits(Shared);

impl Observer for Exits {
    fn exited(&self, process: &ProcessIdentity, _: &Exit) {
        self.0.lock().unwrap().exits.push(process.pid);
    }
}

pub struct Member {
    child: usize,
    plan: Plan,
    records: Shared,
    has_begun: bool,
    registers: BTreeMap<u64, (usize, Tag<()>)>,
    joins: BTreeMap<u64, (usize, Tag<()>)>,
    /// Acts on a process that has ended.
    vain: BTreeMap<u64, Tag<()>>,
    subscribed: BTreeMap<usize, Subscription>,
}

impl Member {
    fn new(child: usize, plan: &Plan, records: &Shared) -> Member {
        Member {
            child,
            plan: plan.clone(),
            records: records.clone(),
            has_begun: false,
            registers: BTreeMap::new(),
            joins: BTreeMap::new(),
            vain: BTreeMap::new(),
            subscribed: BTreeMap::new(),
        }
    }

    fn begin(&mut self, me: Pid) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let records = &mut *self.records.lock().unwrap();
        let (is_new, moment) = (records.start(me).is_none(), records.moment());
        records.begins.push((self.child, me, moment));
        // A state machine that replaces another one has the names and the groups of its process.
        if is_new && self.plan.is_named {
            records.named.insert((own_name(self.child), me));
        }
        if let Some(group) = self.plan.group.filter(|_| is_new) {
            *records.joined.entry((group, me)).or_default() += 1;
            *records.joins.entry((group, me)).or_default() += 1;
        }
    }

    /// Takes an event. Returns whether it is a request to stop.
    fn take(&mut self, event: Event<Letter>, sender: Option<Pid>, me: Pid) -> bool {
        let records = &mut *self.records.lock().unwrap();
        match event {
            Event::Message(Letter(number)) => {
                let Some(from) = sender else { return false };
                records.received.entry((me, from)).or_default().push(number);
            }
            Event::Completed(done) => {
                if let Some((name, tag)) = self.registers.remove(&done.tag()) {
                    if let Some(Ok(())) = done.take(tag) {
                        records.named.insert((NAMES[name].into(), me));
                    }
                } else if let Some((group, tag)) = self.joins.remove(&done.tag())
                    && let Some(Ok(())) = done.take(tag)
                {
                    *records.joined.entry((group, me)).or_default() += 1;
                } else if let Some(tag) = self.vain.remove(&done.tag())
                    && let Some(Ok(())) = done.take(tag)
                {
                    records.wrong = Some(format!("names and groups: {me} has given one to a process that has ended"));
                }
            }
            Event::Group(event) => {
                let group = GROUPS.iter().position(|group| *group == event.subscription.group()).unwrap();
                if self.subscribed.get(&group) != Some(&event.subscription) {
                    records.wrong = Some(format!("groups: {me} is told of {event:?}, and has not subscribed"));
                }
                let view = records.views.entry((me, group)).or_default();
                match &event.change {
                    GroupChange::Members(members) => view.clone_from(members),
                    GroupChange::Joined(pid) => view.push(*pid),
                    GroupChange::Left(pid) => match view.iter().position(|one| one == pid) {
                        Some(place) => drop(view.swap_remove(place)),
                        None => records.wrong = Some(format!("groups: {me} is told that {pid} left, which never came")),
                    },
                    _ => {}
                }
            }
            Event::Cancel(_) => return true,
            _ => {}
        }
        false
    }

    /// This step fails, so it has no other effect.
    fn fail(&self, me: Pid) {
        let records = &mut *self.records.lock().unwrap();
        let moment = records.moment();
        records.failures.push((self.child, moment));
        records.failed.insert(me);
        // A successor in place has only what the spawn options gave to the process.
        let own = self.plan.is_named.then(|| own_name(self.child));
        records.named.retain(|(name, pid)| *pid != me || own.as_ref() == Some(name));
        let group = self.plan.group;
        let left = &records.left;
        records.joined.retain(|of, _| of.1 != me || Some(of.0) == group && !left.contains_key(of));
        records.joined.iter_mut().filter(|(of, _)| of.1 == me).for_each(|(_, count)| *count = 1);
    }

    fn act(&mut self, act: Act, out: &mut StepOutput) {
        let me = out.pid();
        let ended = self.records.lock().unwrap().exits.first().copied();
        match act {
            Act::RegisterEnded(name) => {
                let tag = ended.map(|pid| out.register(NAMES[name], pid));
                self.vain.extend(tag.map(|tag| (tag.id(), tag)));
            }
            Act::JoinEnded(group) => {
                let tag = ended.map(|pid| out.join_group(GROUPS[group], pid));
                self.vain.extend(tag.map(|tag| (tag.id(), tag)));
            }
            Act::Register(name) => {
                let tag = out.register(NAMES[name], me);
                self.registers.insert(tag.id(), (name, tag));
            }
            Act::Join(group) => {
                let tag = out.join_group(GROUPS[group], me);
                self.joins.insert(tag.id(), (group, tag));
                *self.records.lock().unwrap().joins.entry((group, me)).or_default() += 1;
            }
            Act::Leave(group) => {
                out.leave_group(GROUPS[group], me);
                *self.records.lock().unwrap().left.entry((group, me)).or_default() += 1;
            }
            Act::Broadcast(group) => {
                let records = &mut *self.records.lock().unwrap();
                let number = records.moment();
                let to = records.members(group).map(|(pid, _)| pid).collect();
                records.broadcasts.push(Broadcast { number, from: me, to });
                out.broadcast(GROUPS[group], Letter(number));
            }
            Act::Subscribe(group) => {
                self.subscribed.entry(group).or_insert_with(|| out.subscribe(GROUPS[group]));
            }
            Act::Unsubscribe(group) => {
                if let Some(subscription) = self.subscribed.remove(&group) {
                    out.unsubscribe(subscription);
                    self.records.lock().unwrap().views.remove(&(me, group));
                }
            }
        }
    }
}

impl Process for Member {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        self.begin(me);
        let at = {
            let records = &mut *self.records.lock().unwrap();
            records.at[self.child] += 1;
            records.at[self.child] - 1
        };
        let (acts, ending) = self.plan.steps.get(at).cloned().unwrap_or((Vec::new(), Ending::Idle));
        if let Ending::Fail | Ending::Panic = ending {
            self.fail(me);
            if ending == Ending::Fail {
                return Err("by plan".into());
            }
            panic!("on purpose");
        }
        let mut is_cancelled = false;
        while let Some(event) = events.next() {
            is_cancelled |= self.take(event, events.sender(), me);
        }
        if is_cancelled {
            return Ok(if self.plan.is_deaf { Step::Idle } else { Step::Done(()) });
        }
        acts.into_iter().for_each(|act| self.act(act, out));
        match ending {
            Ending::Continue => Ok(Step::Continue),
            Ending::Done => {
                self.records.lock().unwrap().done.insert(self.child);
                Ok(Step::Done(()))
            }
            _ => Ok(Step::Idle),
        }
    }
}

pub fn own_name(child: usize) -> String {
    format!("child-{child}")
}

fn supervisor(program: &Program, records: &Shared) -> Supervisor {
    let mut builder = Supervisor::builder()
        .strategy(program.siblings)
        .intensity(program.most, 100_000 * SECOND)
        .auto_shutdown(program.auto);
    if program.has_delays {
        builder = builder.backoff(Backoff::exponential(SECOND, 10 * SECOND));
    }
    for (child, plan) in program.plans.iter().cloned().enumerate() {
        let (records, of_options) = (records.clone(), plan.clone());
        let options = move || {
            let options = SpawnOptions::new();
            let options = if of_options.is_named { options.name(own_name(child)) } else { options };
            of_options.group.into_iter().fold(options, |options, group| options.group(GROUPS[group]))
        };
        let of_make = plan.clone();
        let make = move || Member::new(child, &of_make, &records);
        let id = child.to_string();
        let spec = if plan.is_in_place { ChildSpec::in_place(id, make) } else { ChildSpec::new(id, make) };
        let shutdown = if plan.stops_at_once { Shutdown::AtOnce } else { Shutdown::Within(3 * SECOND) };
        let spec = spec.options(options).restart(plan.restart).shutdown(shutdown);
        let is_significant = plan.is_significant && program.auto != AutoShutdown::Never;
        let is_significant = is_significant && plan.restart != Restart::Permanent;
        builder = builder.child(if is_significant { spec.significant() } else { spec });
    }
    builder.build().unwrap()
}

fn run(program: &Program) -> Result<(), String> {
    quiet_panics();
    let of_scenario = program.clone();
    let report = Simulation::new(move |world| run_in(world, &of_scenario).map_err(BoxError::from))
        .name("random supervisors")
        .seeds(program.seed..program.seed + 1)
        .threads(1)
        .faults(Faults::none().crash::<Member>(program.chance).stall::<Member>(program.chance, 5 * SECOND))
        .delivery(if program.per_pair { Delivery::PerPair } else { Delivery::Immediate })
        .without("no step panics")
        .max_turns(20_000)
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

fn run_in(world: &World, program: &Program) -> Result<(), String> {
    let text = |error: BoxError| error.to_string();
    let records = Shared::default();
    records.lock().unwrap().at = vec![0; program.plans.len()];
    let runtime = world.start(builder().observer(Exits(records.clone()))).map_err(|error| error.to_string())?;
    let seen = records.clone();
    let children = program.plans.len();
    world.invariant("names, groups and children", move |state| check_turn(state, &seen.lock().unwrap(), children));
    let top = if program.is_nested {
        let (inner, records) = (program.clone(), records.clone());
        let inner = ChildSpec::supervisor("inner", move || supervisor(&inner, &records));
        runtime.spawn(Supervisor::builder().child(inner).build().unwrap())
    } else {
        runtime.spawn(supervisor(program, &records))
    };
    let top = top.map_err(|error| error.to_string())?;
    let mut stopped = BTreeSet::new();
    for request in program.requests.iter().filter(|_| !program.is_nested) {
        world.run_for(Duration::from_micros(world.random(0..300))).map_err(text)?;
        ask(*request, (&runtime, &top), &records, &mut stopped)?;
    }
    world.run().map_err(text)?;
    check_at_rest(world, program, (&runtime, &top), &records, &stopped)?;
    check_end(program, (&runtime, &top), &records)?;
    runtime.shutdown(SECOND).map_err(|error| error.to_string())?;
    Ok(())
}

/// Makes a request, and waits for its answer.
fn ask(
    request: Request,
    (runtime, top): (&Runtime, &Handle<Supervisor>),
    records: &Shared,
    stopped: &mut BTreeSet<usize>,
) -> Result<(), String> {
    let id = |child: usize| child.to_string();
    let is_alive = |pid: &Pid| runtime.is_alive(*pid);
    match request {
        Request::Restart(child) => {
            let asked = runtime.ask(top, SupervisorMessage::restart(id(child)), 100 * SECOND).wait();
            if let Ok(Ok(_)) = asked {
                stopped.remove(&child);
            }
        }
        Request::Stop(child) | Request::Delete(child) => {
            let asked = match request {
                Request::Delete(_) => runtime.ask(top, SupervisorMessage::delete(id(child)), 100 * SECOND).wait(),
                _ => runtime.ask(top, SupervisorMessage::stop(id(child)), 100 * SECOND).wait(),
            };
            if let Ok(Ok(())) = asked {
                stopped.insert(child);
                if let Some(pid) = records.lock().unwrap().pids(child).iter().find(|pid| is_alive(pid)) {
                    return Err(format!("supervisors: {pid} lives, and {request:?} was answered"));
                }
            }
        }
    }
    Ok(())
}

fn plan() -> impl Strategy<Value = Plan> {
    let which = 0..2_usize;
    let act = prop_oneof![
        1 => which.clone().prop_map(Act::Register),
        1 => which.clone().prop_map(Act::RegisterEnded),
        2 => which.clone().prop_map(Act::Join),
        1 => which.clone().prop_map(Act::JoinEnded),
        1 => which.clone().prop_map(Act::Leave),
        3 => which.clone().prop_map(Act::Broadcast),
        2 => which.clone().prop_map(Act::Subscribe),
        1 => which.clone().prop_map(Act::Unsubscribe),
    ];
    let ending = prop_oneof![
        4 => Just(Ending::Idle),
        4 => Just(Ending::Continue),
        1 => Just(Ending::Done),
        2 => Just(Ending::Fail),
        1 => Just(Ending::Panic),
    ];
    let step = (prop::collection::vec(act, 0..4), ending);
    let restart =
        prop_oneof![3 => Just(Restart::Permanent), 1 => Just(Restart::Transient), 1 => Just(Restart::Temporary)];
    let flags = (prop::bool::weighted(0.3), prop::bool::weighted(0.3), prop::bool::weighted(0.1), any::<bool>());
    (prop::collection::vec(step, 0..6), restart, flags, prop::bool::weighted(0.2), prop::option::of(which)).prop_map(
        |(steps, restart, (is_in_place, is_significant, is_deaf, is_named), stops_at_once, group)| Plan {
            steps,
            restart,
            is_in_place,
            is_significant,
            is_deaf,
            stops_at_once,
            is_named,
            group,
        },
    )
}

fn program() -> impl Strategy<Value = Program> {
    let siblings = prop_oneof![Just(Siblings::OneForOne), Just(Siblings::OneForAll), Just(Siblings::RestForOne)];
    let auto = prop_oneof![
        4 => Just(AutoShutdown::Never),
        1 => Just(AutoShutdown::AnySignificant),
        1 => Just(AutoShutdown::AllSignificant),
    ];
    let most = prop_oneof![1 => 0..4_usize, 2 => Just(1_000)];
    let request = (0..3_u8, 0..5_usize).prop_map(|(kind, child)| match kind {
        0 => Request::Stop(child),
        1 => Request::Restart(child),
        _ => Request::Delete(child),
    });
    let requests = prop_oneof![Just(Vec::new()), prop::collection::vec(request, 1..4)];
    let chance = prop_oneof![2 => Just(0.0), 1 => Just(0.02)];
    let run = (any::<u32>(), chance, any::<bool>(), prop::bool::weighted(0.2));
    (siblings, auto, most, any::<bool>(), prop::collection::vec(plan(), 1..5), requests, run).prop_map(
        |(siblings, auto, most, has_delays, plans, requests, (seed, chance, per_pair, is_nested))| Program {
            siblings,
            most,
            has_delays,
            auto,
            plans,
            requests,
            is_nested,
            seed: seed.into(),
            chance,
            per_pair,
        },
    )
}

#[test]
fn simulated_programs_of_supervisors_names_and_groups_keep_the_laws() {
    random_programs(cases(25_000), Config::default(), program(), run);
}
