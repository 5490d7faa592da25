//! Random programs of requests to a supervisor, in simulations. The supervisor and its children have random
//! specifications, some of which are refused. The laws are about answers, delays before restarts, and lists of
//! children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use procession::clock::Clock;
use procession::observe::{Observer, ProcessIdentity};
use procession::simulation::{Simulation, World};
use procession::supervisor::{
    AutoShutdown, Backoff, ChildError, ChildInfo, ChildSpec, ChildState, Restart, Shutdown, SpecError,
    Strategy as Siblings, Supervisor, SupervisorMessage,
};
use procession::{
    Address, BoxError, CommandError, EntryArgs, Event, Events, Exit, InitResult, Pid, Process, SpawnOptions, Step,
    StepOutput, StepResult, Tag, Upgrade,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::managed_laws::{
    all_start, check_answers, check_delays, check_known, check_list, check_refused, check_restarts, check_timers,
    check_unanswered, is_counted, is_steady, is_to_end, most_in_window,
};
use crate::seeded::random_programs;
use crate::simulated::cases;

pub const SECOND: Duration = Duration::from_secs(1);

/// The most virtual time that the steps of one event take.
pub const SOON: Duration = Duration::from_millis(10);

/// The fate of one process of a child.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub starts: bool,
    /// After so many seconds it ends by itself. `true`: it fails.
    ends: Option<(u64, bool)>,
    /// It takes so many seconds to stop.
    slow: u64,
}

/// More restarts than any program has.
pub const UNLIMITED: usize = 1_000;

/// A life without an end of its own.
const LONG: Life = Life { starts: true, ends: None, slow: 0 };

/// How a child recovers from a failure without its supervisor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recovers {
    Not,
    Itself,
    /// Its spawn option replaces it. A child that is restarted in place has no such option of its own.
    ByOption,
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub id: usize,
    pub restart: Restart,
    /// Its time to stop, in seconds. Zero is refused.
    pub stops_within: u64,
    pub is_significant: bool,
    pub is_in_place: bool,
    pub recovers: Recovers,
    /// The lives of its first processes. All later ones are long.
    pub lives: Vec<Life>,
}

#[derive(Clone, Debug)]
pub enum Request {
    Add(Spec),
    Stop(usize),
    Restart(usize),
    Delete(usize),
    List,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub strategy: Siblings,
    pub auto: AutoShutdown,
    /// The most restarts within the window.
    pub most: usize,
    /// The length of the window of restarts, in seconds. Zero is refused.
    pub window: u64,
    pub limit: Option<usize>,
    /// The first delay, the longest one, and ten times the jitter.
    pub backoff: Option<(u64, u64, u64)>,
    pub children: Vec<Spec>,
    /// Each with its moment, in seconds.
    pub requests: Vec<(u64, Request)>,
    /// The moment at which the supervisor is asked to stop.
    pub ends_at: u64,
    pub seed: u64,
}

/// The process of a child: its id, and the moments at which it began and ended.
#[derive(Clone, Debug)]
pub struct Lived {
    pub id: usize,
    /// Known from its first step on.
    pub pid: Option<Pid>,
    pub began: Duration,
    pub ended: Option<Duration>,
    pub has_failed: bool,
    pub has_started: bool,
}

pub struct Records {
    pub clock: Clock,
    pub start: std::time::Instant,
    /// In the order in which they began.
    pub lived: Mutex<Vec<Lived>>,
    /// The answers, in order: the number of the request, and the answer.
    pub answers: Mutex<Vec<(usize, Answer)>>,
    pub lists: Mutex<Vec<Vec<ChildInfo>>>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Started(Pid),
    Stopped,
    Listed,
    Refused(ChildError),
    NotAnswered(CommandError),
}

impl Records {
    pub fn now(&self) -> Duration {
        self.clock.now().duration_since(self.start)
    }

    /// The processes of a child, in order.
    pub fn of(&self, child: usize) -> Vec<Lived> {
        self.lived.lock().unwrap().iter().filter(|lived| lived.id == child).cloned().collect()
    }
}

struct Ends(Arc<Records>);

impl Observer for Ends {
    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        let mut all = self.0.lived.lock().unwrap();
        let mut lives = all.iter_mut().filter(|lived| lived.pid == Some(process.pid) && lived.ended.is_none());
        if let Some(lived) = lives.next() {
            (lived.ended, lived.has_failed) = (Some(self.0.now()), !exit.is_done());
        }
    }
}

struct Child {
    spec: Spec,
    life: Life,
    records: Arc<Records>,
    /// Of this process, among all.
    number: usize,
    is_new: bool,
    end: Option<Tag<procession::command::TimerFired>>,
}

impl Process for Child {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.life = self.spec.lives.get(self.records.of(self.spec.id).len()).copied().unwrap_or(LONG);
        let (began, has_started) = (self.records.now(), self.life.starts);
        let lived = &mut *self.records.lived.lock().unwrap();
        self.number = lived.len();
        // A process that does not start ends now.
        let ended = (!has_started).then_some(began);
        lived.push(Lived { id: self.spec.id, pid: None, began, ended, has_failed: !has_started, has_started });
        if has_started { Ok(()) } else { Err("it does not start".into()) }
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.is_new) {
            self.records.lived.lock().unwrap()[self.number].pid = Some(out.pid());
            self.end = self.life.ends.map(|(seconds, _)| out.after(seconds as u32 * SECOND));
        }
        for event in events {
            match event {
                Event::Cancel(_) if self.life.slow == 0 => return Ok(Step::Done(())),
                Event::Cancel(_) => {
                    self.life.ends = None;
                    self.end = Some(out.after(self.life.slow as u32 * SECOND));
                }
                Event::Completed(done) if done.is(self.end) => {
                    let fails = self.life.ends.is_some_and(|(_, fails)| fails);
                    if !fails {
                        return Ok(Step::Done(()));
                    }
                    // The process may go on with another state machine.
                    let lived = &mut self.records.lived.lock().unwrap()[self.number];
                    (lived.ended, lived.has_failed) = (Some(self.records.now()), true);
                    return Err("by plan".into());
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        (self.spec.recovers == Recovers::Itself).then(|| Upgrade::to(Child::new(&self.spec, &self.records)))
    }
}

impl Child {
    fn new(spec: &Spec, records: &Arc<Records>) -> Child {
        let (spec, records) = (spec.clone(), records.clone());
        Child { spec, life: LONG, records, number: 0, is_new: true, end: None }
    }
}

fn spec(spec: &Spec, records: &Arc<Records>) -> ChildSpec {
    let ((of, records), (of_option, records_of_option)) =
        ((spec.clone(), records.clone()), (spec.clone(), records.clone()));
    let make = move || Child::new(&of, &records);
    let made = match spec.is_in_place {
        true => ChildSpec::in_place(id(spec.id), make),
        false => ChildSpec::new(id(spec.id), make),
    };
    let made = made
        .options(move || match of_option.recovers {
            Recovers::ByOption => {
                let (spec, records) = (of_option.clone(), records_of_option.clone());
                SpawnOptions::new().recover_with(move |_| Some(Upgrade::to(Child::new(&spec, &records))))
            }
            _ => SpawnOptions::new(),
        })
        .restart(spec.restart)
        .shutdown(Shutdown::Within(spec.stops_within as u32 * SECOND));
    if spec.is_significant { made.significant() } else { made }
}

/// The last id is empty, and refused.
pub fn id(number: usize) -> String {
    if number == 5 { String::new() } else { format!("child-{number}") }
}

/// Whether a child may have this specification.
pub fn is_valid(spec: &Spec, auto: AutoShutdown) -> bool {
    let may_be_significant = spec.restart != Restart::Permanent && auto != AutoShutdown::Never;
    spec.id != 5 && spec.stops_within > 0 && (!spec.is_significant || may_be_significant)
}

fn supervisor(program: &Program, records: &Arc<Records>) -> Result<Supervisor, SpecError> {
    let mut builder =
        Supervisor::builder().intensity(program.most, program.window as u32 * SECOND).auto_shutdown(program.auto);
    builder = builder.strategy(program.strategy);
    if let Some(limit) = program.limit {
        builder = builder.limit(limit);
    }
    if let Some((first, cap, jitter)) = program.backoff {
        let backoff = Backoff::exponential(first as u32 * SECOND, cap as u32 * SECOND);
        builder = builder.backoff(backoff.jitter(jitter as f64 / 10.0));
    }
    program.children.iter().fold(builder, |builder, child| builder.child(spec(child, records))).build()
}

/// Whether a supervisor may have this specification.
fn is_buildable(program: &Program) -> bool {
    let ids: BTreeSet<usize> = program.children.iter().map(|child| child.id).collect();
    program.window > 0
        && program.limit.is_none_or(|limit| limit > 0 && program.children.len() <= limit)
        && program.backoff.is_none_or(|(first, cap, jitter)| first > 0 && first <= cap && jitter <= 10)
        && ids.len() == program.children.len()
        && program.children.iter().all(|child| is_valid(child, program.auto))
}

type PidAnswer = Result<Pid, ChildError>;

/// Makes the requests, each at its moment.
struct Client {
    program: Program,
    supervisor: Address<SupervisorMessage>,
    records: Arc<Records>,
    is_new: bool,
    due: BTreeMap<u64, usize>,
    pids: BTreeMap<u64, (usize, Tag<PidAnswer>)>,
    units: BTreeMap<u64, (usize, Tag<Result<(), ChildError>>)>,
    lists: BTreeMap<u64, (usize, Tag<Vec<ChildInfo>>)>,
}

impl Client {
    fn request(&mut self, number: usize, out: &mut StepOutput) {
        let (to, limit) = (self.supervisor, 1_000 * SECOND);
        match &self.program.requests[number].1 {
            Request::Add(child) => {
                let tag = out.ask(to, SupervisorMessage::add(spec(child, &self.records)), limit);
                self.pids.insert(tag.id(), (number, tag));
            }
            Request::Restart(child) => {
                let tag = out.ask(to, SupervisorMessage::restart(id(*child)), limit);
                self.pids.insert(tag.id(), (number, tag));
            }
            Request::Stop(child) => {
                let tag = out.ask(to, SupervisorMessage::stop(id(*child)), limit);
                self.units.insert(tag.id(), (number, tag));
            }
            Request::Delete(child) => {
                let tag = out.ask(to, SupervisorMessage::delete(id(*child)), limit);
                self.units.insert(tag.id(), (number, tag));
            }
            Request::List => {
                let tag = out.ask(to, SupervisorMessage::children, limit);
                self.lists.insert(tag.id(), (number, tag));
            }
        }
    }
}

fn answer<T>(answer: Result<Result<T, ChildError>, CommandError>, ok: impl FnOnce(T) -> Answer) -> Answer {
    match answer {
        Ok(Ok(value)) => ok(value),
        Ok(Err(error)) => Answer::Refused(error),
        Err(error) => Answer::NotAnswered(error),
    }
}

impl Process for Client {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.is_new) {
            for (number, (at, _)) in self.program.requests.iter().enumerate() {
                self.due.insert(out.after(*at as u32 * SECOND).id(), number);
            }
        }
        let records = self.records.clone();
        for event in events {
            let done = match event {
                Event::Completed(done) => done,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => continue,
            };
            let told = if let Some(number) = self.due.remove(&done.tag()) {
                self.request(number, out);
                continue;
            } else if let Some((number, tag)) = self.pids.remove(&done.tag()) {
                done.take(tag).map(|told| (number, answer(told, Answer::Started)))
            } else if let Some((number, tag)) = self.units.remove(&done.tag()) {
                done.take(tag).map(|told| (number, answer(told, |()| Answer::Stopped)))
            } else if let Some((number, tag)) = self.lists.remove(&done.tag()) {
                let list = |list| {
                    records.lists.lock().unwrap().push(list);
                    Answer::Listed
                };
                done.take(tag).map(|told| (number, answer(told.map(Ok), list)))
            } else {
                None
            };
            records.answers.lock().unwrap().extend(told);
        }
        Ok(Step::Idle)
    }
}

fn run(program: &Program) -> Result<(), String> {
    let of_scenario = program.clone();
    let report = Simulation::new(move |world| run_in(world, &of_scenario).map_err(BoxError::from))
        .name("random requests")
        .seeds(program.seed..program.seed + 1)
        .threads(1)
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

fn run_in(world: &World, program: &Program) -> Result<(), String> {
    let text = |error: BoxError| error.to_string();
    let (clock, start) = (world.clock(), world.clock().now());
    let records =
        Arc::new(Records { clock, start, lived: Mutex::default(), answers: Mutex::default(), lists: Mutex::default() });
    let built = supervisor(program, &records);
    if built.is_ok() != is_buildable(program) {
        return Err(format!("supervisors: {:?}", built.map(drop)));
    }
    let Ok(supervisor) = built else { return Ok(()) };
    let runtime = world.start(builder().observer(Ends(records.clone()))).map_err(|error| error.to_string())?;
    let top = runtime.spawn(supervisor).map_err(|error| error.to_string())?;
    let client = Client {
        program: program.clone(),
        supervisor: top.address(),
        records: records.clone(),
        is_new: true,
        due: BTreeMap::new(),
        pids: BTreeMap::new(),
        units: BTreeMap::new(),
        lists: BTreeMap::new(),
    };
    runtime.spawn(client).map_err(|error| error.to_string())?;
    world.run_for(program.ends_at as u32 * SECOND + SECOND / 2).map_err(text)?;
    let list = runtime.ask(&top, SupervisorMessage::children, 100 * SECOND).wait();
    if let Ok(list) = list {
        // Otherwise it may be about to end.
        if is_steady(program) {
            check_restarts(program, &list, &records)?;
            check_refused(program, &list, &records)?;
            check_unanswered(program, &records)?;
        }
        check_timers(program, &list, &records, runtime.stats().timers)?;
        let is_ending = list.iter().any(|info| matches!(info.state, ChildState::ToStop | ChildState::Stopping));
        if is_counted(program) && !is_ending && most_in_window(program, &records, false) > program.most {
            return Err("supervisors: there were too many restarts, and the supervisor lives".into());
        }
        if !is_ending {
            // One that ends forgets the children that it has stopped.
            check_known(program, &records)?;
        }
        records.lists.lock().unwrap().push(list);
    }
    let was_alive = runtime.is_alive(&top);
    if !was_alive && is_counted(program) && most_in_window(program, &records, true) <= program.most {
        return Err("supervisors: there were few restarts, and the supervisor has ended".into());
    }
    if program.requests.is_empty() && was_alive && is_to_end(program, &records) {
        return Err("supervisors: significant children have ended, and the supervisor lives".into());
    }
    _ = runtime.cancel(&top, "closing time");
    let exit = top.join().map_err(|error| error.to_string())?;
    world.run().map_err(text)?;
    // Without significant children it ends by itself only with an error.
    let may_not_fail = all_start(program) && program.most == UNLIMITED;
    let may_end = was_alive || program.auto != AutoShutdown::Never;
    if was_alive && !exit.is_done() && may_not_fail || exit.is_done() && !may_end {
        return Err(format!("supervisors: it was asked to stop: {exit}"));
    }
    if let Some(lived) = records.lived.lock().unwrap().iter().find(|lived| lived.ended.is_none()) {
        return Err(format!("supervisors: {lived:?} is left"));
    }
    records.lists.lock().unwrap().iter().try_for_each(|list| check_list(program, list))?;
    check_answers(program, &records)?;
    check_delays(program, &records)
}

fn child() -> impl Strategy<Value = Spec> {
    let ends = prop::option::weighted(0.6, (0..4_u64, any::<bool>()));
    let life = (prop::bool::weighted(0.8), ends, prop_oneof![2 => Just(0), 1 => 1..3_u64])
        .prop_map(|(starts, ends, slow)| Life { starts, ends, slow });
    let restart =
        prop_oneof![2 => Just(Restart::Permanent), 1 => Just(Restart::Transient), 1 => Just(Restart::Temporary)];
    let id = prop_oneof![40 => 0..5_usize, 1 => Just(5)];
    let stops_within = prop_oneof![40 => 1..4_u64, 1 => Just(0)];
    let recovers = prop_oneof![6 => Just(Recovers::Not), 1 => Just(Recovers::Itself), 1 => Just(Recovers::ByOption)];
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), recovers);
    (id, restart, stops_within, flags, prop::collection::vec(life, 0..4)).prop_map(
        |(id, restart, stops_within, (is_significant, is_in_place, recovers), lives)| Spec {
            id,
            restart,
            stops_within,
            is_significant,
            is_in_place,
            recovers: if is_in_place && recovers == Recovers::ByOption { Recovers::Not } else { recovers },
            lives,
        },
    )
}

fn program() -> impl Strategy<Value = Program> {
    let request = prop_oneof![
        2 => child().prop_map(Request::Add),
        2 => (0..5_usize).prop_map(Request::Stop),
        2 => (0..5_usize).prop_map(Request::Restart),
        1 => (0..5_usize).prop_map(Request::Delete),
        1 => Just(Request::List),
    ];
    let auto = prop_oneof![
        3 => Just(AutoShutdown::Never),
        1 => Just(AutoShutdown::AnySignificant),
        1 => Just(AutoShutdown::AllSignificant),
    ];
    let siblings =
        prop_oneof![4 => Just(Siblings::OneForOne), 1 => Just(Siblings::OneForAll), 1 => Just(Siblings::RestForOne)];
    let most = prop_oneof![3 => Just(UNLIMITED), 1 => 0..4_usize];
    let window = prop_oneof![30 => 1..8_u64, 1 => Just(0)];
    let backoff = prop::option::of((0..3_u64, 1..6_u64, prop_oneof![9 => 0..=10_u64, 1 => Just(11)]));
    // Each child has its own id, mostly.
    let children = prop::collection::vec(child(), 0..4).prop_flat_map(|children| {
        prop::bool::weighted(0.9).prop_map(move |are_distinct| {
            let distinct = |(number, child): (usize, &Spec)| match child.id {
                5 => child.clone(),
                _ => Spec { id: number, lives: first_starts(&child.lives), ..child.clone() },
            };
            if are_distinct { children.iter().enumerate().map(distinct).collect() } else { children.clone() }
        })
    });
    let limit = prop::option::weighted(0.3, prop_oneof![1 => Just(0), 20 => 2..6_usize]);
    let requests = prop::collection::vec((0..8_u64, request), 0..6);
    (auto, (siblings, most, window), limit, backoff, children, requests, 2..12_u64, any::<u32>()).prop_map(
        |(auto, (strategy, most, window), limit, backoff, children, requests, ends_at, seed)| Program {
            strategy,
            auto,
            most,
            window,
            limit,
            backoff,
            children,
            requests,
            ends_at,
            seed: seed.into(),
        },
    )
}

/// If the first start of a first child fails, the supervisor fails. So most of them succeed.
fn first_starts(lives: &[Life]) -> Vec<Life> {
    let mut lives = lives.to_vec();
    lives.first_mut().into_iter().for_each(|first| first.starts = true);
    lives
}

#[test]
fn simulated_programs_of_requests_to_supervisors_keep_the_laws() {
    random_programs(cases(25_000), Config::default(), program(), run);
}
