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
    AutoShutdown, Backoff, ChildError, ChildInfo, ChildSpec, ChildState, Restart, Shutdown, SpecError, Supervisor,
    SupervisorMessage,
};
use procession::{
    Address, BoxError, CommandError, EntryArgs, Event, Events, Exit, InitResult, Pid, Process, Step, StepOutput,
    StepResult, Tag,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;
use crate::simulated::cases;

const SECOND: Duration = Duration::from_secs(1);

/// The most virtual time that the steps of one event take.
const SOON: Duration = Duration::from_millis(10);

/// The fate of one process of a child.
#[derive(Clone, Copy, Debug)]
struct Life {
    starts: bool,
    /// After so many seconds it ends by itself. `true`: it fails.
    ends: Option<(u64, bool)>,
    /// It takes so many seconds to stop.
    slow: u64,
}

/// A life without an end of its own.
const LONG: Life = Life { starts: true, ends: None, slow: 0 };

#[derive(Clone, Debug)]
struct Spec {
    id: usize,
    restart: Restart,
    /// Its time to stop, in seconds. Zero is refused.
    stops_within: u64,
    is_significant: bool,
    /// The lives of its first processes. All later ones are long.
    lives: Vec<Life>,
}

#[derive(Clone, Debug)]
enum Request {
    Add(Spec),
    Stop(usize),
    Restart(usize),
    Delete(usize),
    List,
}

#[derive(Clone, Debug)]
struct Program {
    auto: AutoShutdown,
    /// The length of the window of restarts, in seconds. Zero is refused.
    window: u64,
    limit: Option<usize>,
    /// The first delay, the longest one, and ten times the jitter.
    backoff: Option<(u64, u64, u64)>,
    children: Vec<Spec>,
    /// Each with its moment, in seconds.
    requests: Vec<(u64, Request)>,
    /// The moment at which the supervisor is asked to stop.
    ends_at: u64,
    seed: u64,
}

/// The process of a child: its id, and the moments at which it began and ended.
#[derive(Clone, Debug)]
struct Lived {
    id: usize,
    /// Known from its first step on.
    pid: Option<Pid>,
    began: Duration,
    ended: Option<Duration>,
    has_failed: bool,
    has_started: bool,
}

struct Records {
    clock: Clock,
    start: std::time::Instant,
    /// In the order in which they began.
    lived: Mutex<Vec<Lived>>,
    /// The answers, in order: the number of the request, and the answer.
    answers: Mutex<Vec<(usize, Answer)>>,
    lists: Mutex<Vec<Vec<ChildInfo>>>,
}

#[derive(Clone, Debug)]
enum Answer {
    Started(Pid),
    Stopped,
    Listed,
    Refused(ChildError),
    NotAnswered(CommandError),
}

impl Records {
    fn now(&self) -> Duration {
        self.clock.now().duration_since(self.start)
    }

    /// The processes of a child, in order.
    fn of(&self, child: usize) -> Vec<Lived> {
        self.lived.lock().unwrap().iter().filter(|lived| lived.id == child).cloned().collect()
    }
}

struct Ends(Arc<Records>);

impl Observer for Ends {
    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        if let Some(lived) = self.0.lived.lock().unwrap().iter_mut().find(|lived| lived.pid == Some(process.pid)) {
            (lived.ended, lived.has_failed) = (Some(self.0.now()), !exit.is_done());
        }
    }
}

struct Child {
    id: usize,
    lives: Vec<Life>,
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
        self.life = self.lives.get(self.records.of(self.id).len()).copied().unwrap_or(LONG);
        let (began, has_started) = (self.records.now(), self.life.starts);
        let lived = &mut *self.records.lived.lock().unwrap();
        self.number = lived.len();
        // A process that does not start ends now.
        let ended = (!has_started).then_some(began);
        lived.push(Lived { id: self.id, pid: None, began, ended, has_failed: !has_started, has_started });
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
                    return if fails { Err("by plan".into()) } else { Ok(Step::Done(())) };
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn spec(spec: &Spec, records: &Arc<Records>) -> ChildSpec {
    let (of, records) = (spec.clone(), records.clone());
    let make = move || {
        let (lives, records) = (of.lives.clone(), records.clone());
        Child { id: of.id, lives, life: LONG, records, number: 0, is_new: true, end: None }
    };
    let made = ChildSpec::new(id(spec.id), make)
        .restart(spec.restart)
        .shutdown(Shutdown::Within(spec.stops_within as u32 * SECOND));
    if spec.is_significant { made.significant() } else { made }
}

/// The last id is empty, and refused.
fn id(number: usize) -> String {
    if number == 5 { String::new() } else { format!("child-{number}") }
}

/// Whether a child may have this specification.
fn is_valid(spec: &Spec, auto: AutoShutdown) -> bool {
    let may_be_significant = spec.restart != Restart::Permanent && auto != AutoShutdown::Never;
    spec.id != 5 && spec.stops_within > 0 && (!spec.is_significant || may_be_significant)
}

fn supervisor(program: &Program, records: &Arc<Records>) -> Result<Supervisor, SpecError> {
    let mut builder =
        Supervisor::builder().intensity(1_000, program.window as u32 * 1_000 * SECOND).auto_shutdown(program.auto);
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
        if program.auto == AutoShutdown::Never && all_start(program) {
            check_restarts(program, &list, &records)?;
        }
        records.lists.lock().unwrap().push(list);
    }
    let was_alive = runtime.is_alive(&top);
    if program.requests.is_empty() && was_alive && is_to_end(program, &records) {
        return Err("supervisors: significant children have ended, and the supervisor lives".into());
    }
    _ = runtime.cancel(&top, "closing time");
    let exit = top.join().map_err(|error| error.to_string())?;
    world.run().map_err(text)?;
    // Without significant children it ends by itself only with an error.
    let may_end = was_alive || program.auto != AutoShutdown::Never;
    if was_alive && !exit.is_done() && all_start(program) || exit.is_done() && !may_end {
        return Err(format!("supervisors: it was asked to stop: {exit}"));
    }
    if let Some(lived) = records.lived.lock().unwrap().iter().find(|lived| lived.ended.is_none()) {
        return Err(format!("supervisors: {lived:?} is left"));
    }
    records.lists.lock().unwrap().iter().try_for_each(|list| check_list(program, list))?;
    check_answers(program, &records)?;
    check_delays(program, &records)
}

/// Whether each child starts for the first time. Otherwise the supervisor ends, and its other children may take long.
fn all_start(program: &Program) -> bool {
    program.children.iter().all(|child| child.lives.first().is_none_or(|life| life.starts))
}

/// Whether significant children have ended by themselves, so that the supervisor has to end.
fn is_to_end(program: &Program, records: &Records) -> bool {
    let has_ended = |child: &Spec| {
        // The other children have some seconds to stop.
        let is_long_ago = |ended: Duration| records.now() > ended + 4 * SECOND;
        let last = records.of(child.id).pop().filter(|last| last.ended.is_some_and(is_long_ago));
        last.is_some_and(|last| child.restart == Restart::Temporary || !last.has_failed)
    };
    let mut significant = program.children.iter().filter(|child| child.is_significant).peekable();
    match program.auto {
        AutoShutdown::AnySignificant => significant.any(has_ended),
        AutoShutdown::AllSignificant => significant.peek().is_some() && significant.all(has_ended),
        _ => false,
    }
}

/// The requests that name this child, or add it.
fn requests_about(program: &Program, child: usize) -> impl Iterator<Item = (usize, &(u64, Request))> {
    program.requests.iter().enumerate().filter(move |(_, (_, request))| match request {
        Request::Add(spec) => spec.id == child,
        Request::Stop(of) | Request::Restart(of) | Request::Delete(of) => *of == child,
        Request::List => false,
    })
}

/// A list has each child once, and no more than the limit allows. Only a child with a process has a PID.
fn check_list(program: &Program, list: &[ChildInfo]) -> Result<(), String> {
    let ids: BTreeSet<&str> = list.iter().map(|info| &*info.id).collect();
    if ids.len() != list.len() || program.limit.is_some_and(|limit| list.len() > limit) {
        return Err(format!("supervisors: the list is {list:?}"));
    }
    let is_right = |info: &ChildInfo| match info.state {
        ChildState::Up | ChildState::Starting | ChildState::ToStop | ChildState::Stopping => info.pid.is_some(),
        ChildState::Delayed => info.pid.is_none() && program.backoff.is_some(),
        _ => info.pid.is_none(),
    };
    match list.iter().find(|info| !is_right(info)) {
        Some(info) => Err(format!("supervisors: {info:?} is listed")),
        None => Ok(()),
    }
}

/// A child that no request is about has been restarted as often as it has begun again. While it waits for its delay,
/// it has been restarted once more.
fn check_restarts(program: &Program, list: &[ChildInfo], records: &Records) -> Result<(), String> {
    for child in program.children.iter().filter(|child| requests_about(program, child.id).next().is_none()) {
        let began = records.of(child.id);
        let info = list.iter().find(|info| *info.id == *id(child.id));
        let what = || format!("supervisors: {child:?} has begun {} times, and is {info:?}", began.len());
        let Some(info) = info else {
            // Only a temporary child is deleted.
            if child.restart == Restart::Temporary { continue } else { return Err(what()) }
        };
        let again = began.len() as u64 - u64::from(!began.is_empty());
        let waits = u64::from(info.state == ChildState::Delayed);
        let lives = began.last().and_then(|last| last.pid.filter(|_| last.ended.is_none()));
        let is_up = info.state == ChildState::Up;
        if info.restarts != again + waits || is_up != lives.is_some() || is_up && info.pid != lives {
            return Err(what());
        }
    }
    Ok(())
}

/// Each request has one answer, which fits to what has happened.
fn check_answers(program: &Program, records: &Records) -> Result<(), String> {
    let answers = records.answers.lock().unwrap();
    let is_of = |pid: &Pid, child| records.of(child).iter().any(|one| one.pid == Some(*pid) && one.has_started);
    let place = |number| answers.iter().position(|(of, _)| *of == number);
    for (number, (at, request)) in program.requests.iter().enumerate() {
        let count = answers.iter().filter(|(of, _)| *of == number).count();
        let Some((_, answer)) = place(number).map(|place| &answers[place]).filter(|_| count == 1) else {
            return Err(format!("supervisors: {request:?} was answered {count} times"));
        };
        let is_right = match (request, answer) {
            (Request::Add(spec), Answer::Started(pid)) => is_valid(spec, program.auto) && is_of(pid, spec.id),
            (Request::Restart(child), Answer::Started(pid)) => is_of(pid, *child),
            // The supervisor has ended before or meanwhile.
            (_, Answer::NotAnswered(error)) => matches!(error, CommandError::Ended(_) | CommandError::NoSuchProcess(_)),
            (Request::Add(spec), Answer::Refused(ChildError::Spec(SpecError::TwoWithOneId { .. }))) => {
                is_valid(spec, program.auto)
                    && (program.children.iter().any(|child| child.id == spec.id)
                        || requests_about(program, spec.id).any(|(other, _)| other != number))
            }
            (Request::Add(spec), Answer::Refused(ChildError::Spec(_))) => !is_valid(spec, program.auto),
            (Request::Add(_), Answer::Refused(ChildError::Limit { limit })) => program.limit == Some(*limit),
            _ => true,
        };
        if !is_right {
            return Err(format!("supervisors: {request:?} was answered {answer:?}"));
        }
        // A stop and a later restart of the same child are answered in this order. A supervisor that is ending refuses
        // a restart at once, and so does one that is to delete the child.
        let Request::Stop(child) = request else { continue };
        let later = requests_about(program, *child).filter(|(_, (after, _))| after > at && *after < program.ends_at);
        for (other, (_, request)) in later.filter(|_| program.auto == AutoShutdown::Never && all_start(program)) {
            let answered = place(other).map(|place| &answers[place].1);
            let is_refused =
                matches!(answered, Some(Answer::Refused(ChildError::Stopped | ChildError::NoSuchChild { .. })));
            if matches!(request, Request::Restart(_)) && place(other) < place(number) && !is_refused {
                return Err(format!("supervisors: {request:?} was answered before the stop {number}: {answers:?}"));
            }
        }
    }
    Ok(())
}

/// A child that no request is about is started again after its delay.
fn check_delays(program: &Program, records: &Records) -> Result<(), String> {
    for child in program.children.iter().filter(|child| requests_about(program, child.id).next().is_none()) {
        let mut failures = 0;
        for pair in records.of(child.id).windows(2) {
            let Some(ended) = pair[0].ended else { return Err(format!("supervisors: two of one child: {pair:?}")) };
            let (up, delay) = (ended - pair[0].began, pair[1].began.saturating_sub(ended));
            let (shortest, longest) = match program.backoff {
                None => (Duration::ZERO, Duration::ZERO),
                Some((first, cap, jitter)) => {
                    let cap = cap as u32 * SECOND;
                    let backoff = Backoff::exponential(first as u32 * SECOND, cap);
                    // At this moment, either may be.
                    let is_unclear = pair[0].has_started && up.abs_diff(cap) < SOON;
                    if is_unclear {
                        break;
                    }
                    failures = if pair[0].has_started && up > cap { 1 } else { failures + 1 };
                    let longest = backoff.delay(failures);
                    (longest.mul_f64(1.0 - jitter as f64 / 10.0), longest)
                }
            };
            if delay + SOON < shortest || delay > longest + SOON {
                return Err(format!("supervisors: after {failures} failures {delay:?}, of {longest:?}: {pair:?}"));
            }
            if child.restart == Restart::Temporary || child.restart == Restart::Transient && !pair[0].has_failed {
                return Err(format!("supervisors: {child:?} was restarted"));
            }
        }
    }
    Ok(())
}

fn child() -> impl Strategy<Value = Spec> {
    let ends = prop::option::weighted(0.6, (0..4_u64, any::<bool>()));
    let life = (prop::bool::weighted(0.8), ends, prop_oneof![2 => Just(0), 1 => 1..3_u64])
        .prop_map(|(starts, ends, slow)| Life { starts, ends, slow });
    let restart =
        prop_oneof![2 => Just(Restart::Permanent), 1 => Just(Restart::Transient), 1 => Just(Restart::Temporary)];
    let id = prop_oneof![40 => 0..5_usize, 1 => Just(5)];
    let stops_within = prop_oneof![40 => 1..4_u64, 1 => Just(0)];
    (id, restart, stops_within, prop::bool::weighted(0.1), prop::collection::vec(life, 0..4)).prop_map(
        |(id, restart, stops_within, is_significant, lives)| Spec { id, restart, stops_within, is_significant, lives },
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
    let window = prop_oneof![30 => Just(1_u64), 1 => Just(0)];
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
    (auto, window, limit, backoff, children, requests, 2..12_u64, any::<u32>()).prop_map(
        |(auto, window, limit, backoff, children, requests, ends_at, seed)| Program {
            auto,
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
