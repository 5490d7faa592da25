//! Bugs of restarts: work that is lost, a window that is spent at once, a child that comes back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use procession::command::TimerFired;
use procession::simulation::{Faults, Simulation, ensure};
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{
    Address, BoxError, Event, Events, Monitor, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Tag,
};

use super::{PlantedBug, Version, start};
use crate::programs::SECOND;

/// Statement 33. A worker is restarted under a new PID. The dispatcher goes on with its next jobs, and forgets those
/// that waited for the old worker. The corrected one sends them again.
pub(super) const LOST_AT_RESTART: PlantedBug =
    PlantedBug { system: lost_at_restart, breaks: "every job is done", seeds: 500 };

#[test]
fn a_job_that_is_lost_at_a_restart_is_found() {
    LOST_AT_RESTART.is_found_in_each_batch();
}

#[test]
fn no_job_is_lost_if_it_is_sent_again() {
    LOST_AT_RESTART.is_not_found_when_corrected();
}

#[derive(Debug)]
struct Job {
    number: u32,
    from: Address<DispatcherMessage>,
}

/// Does jobs, each in a step.
struct Worker;

impl Process for Worker {
    type Message = Job;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Job>, out: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(job)) => out.send(job.from, DispatcherMessage::Done(job.number)),
            Some(Event::Cancel(_)) => return Ok(Step::Done(())),
            _ => {}
        }
        Ok(Step::Idle)
    }
}

#[derive(Debug)]
enum DispatcherMessage {
    Done(u32),
}

/// Gives jobs to the worker, three at a time.
struct Dispatcher {
    version: Version,
    queue: VecDeque<u32>,
    waiting: BTreeSet<u32>,
    done: BTreeSet<u32>,
    worker: Option<Monitor>,
    timer: Option<Tag<TimerFired>>,
}

impl Dispatcher {
    fn give(&mut self, me: Address<DispatcherMessage>, out: &mut StepOutput) {
        if self.worker.is_none() && self.timer.is_none() {
            match out.whereis("worker") {
                Some(worker) => self.worker = Some(out.monitor(worker)),
                None => self.timer = Some(out.after(Duration::from_millis(10))),
            }
        }
        let Some(worker) = self.worker else { return };
        while self.waiting.len() < 3 {
            let Some(number) = self.queue.pop_front() else { return };
            out.send(worker.pid(), Job { number, from: me });
            self.waiting.insert(number);
        }
    }
}

impl Process for Dispatcher {
    type Message = DispatcherMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, DispatcherMessage>, out: &mut StepOutput) -> StepResult<()> {
        let me = events.address();
        for event in events {
            match event {
                Event::Message(DispatcherMessage::Done(number)) => {
                    self.waiting.remove(&number);
                    self.done.insert(number);
                }
                Event::Down(_) => {
                    self.worker = None;
                    let waited = std::mem::take(&mut self.waiting);
                    if self.version.is_corrected() {
                        self.queue.extend(waited);
                    }
                }
                Event::Completed(done) if done.is(self.timer) => self.timer = None,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        self.give(me, out);
        Ok(Step::Idle)
    }
}

fn lost_at_restart(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let worker = ChildSpec::new("worker", || Worker).options(|| SpawnOptions::new().name("worker"));
        runtime.spawn(Supervisor::builder().intensity(5, SECOND).child(worker).build()?)?;
        let (queue, waiting, done) = ((0..6).collect(), BTreeSet::new(), BTreeSet::new());
        runtime.spawn(Dispatcher { version, queue, waiting, done, worker: None, timer: None })?;
        world.eventually("every job is done", 60 * SECOND, |state| {
            state.processes::<Dispatcher>().all(|(_, dispatcher)| dispatcher.done.len() == 6)
        });
        world.run()
    })
    .show::<Job>()
    .show::<DispatcherMessage>()
    .show::<String>()
    .faults(Faults::none().panic::<Worker>(0.1).at_most(2))
}

/// Statement 40. When the database is restarted, all who use it fail, and the window of their supervisor is spent. The
/// corrected users look for the new one.
pub(super) const RESTART_STORM: PlantedBug =
    PlantedBug { system: restart_storm, breaks: "the service is up again", seeds: 500 };

#[test]
fn a_restart_storm_is_found() {
    RESTART_STORM.is_found_in_each_batch();
}

#[test]
fn no_restart_storm_is_found_if_users_look_again() {
    RESTART_STORM.is_not_found_when_corrected();
}

#[derive(Debug)]
struct Query(Reply<u64>);

struct Database;

impl Process for Database {
    type Message = Query;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Query>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Query(reply)) => out.reply(reply, 1),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Uses the database.
struct User {
    version: Version,
    database: Option<Monitor>,
    asked: Option<Tag<u64>>,
    rows: u64,
    timer: Option<Tag<TimerFired>>,
}

impl User {
    fn new(version: Version) -> User {
        User { version, database: None, asked: None, rows: 0, timer: None }
    }

    fn is_up(&self) -> bool {
        self.rows >= 3
    }

    fn again(&mut self, out: &mut StepOutput) {
        self.timer = Some(out.after(Duration::from_millis(10)));
    }
}

impl Process for User {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Down(down) if self.database.is_some_and(|database| database == down.monitor) => {
                    if !self.version.is_corrected() {
                        return Err("the database is gone".into());
                    }
                    self.database = None;
                    self.again(out);
                }
                Event::Completed(done) if done.is(self.timer) => self.timer = None,
                Event::Completed(done) => {
                    let Some(answer) = self.asked.and_then(|tag| done.take(tag)) else { continue };
                    self.asked = None;
                    // An error is followed by the end of the database.
                    self.rows += answer.unwrap_or(0);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.database.is_none() && self.timer.is_none() {
            match out.whereis("database") {
                Some(database) => self.database = Some(out.monitor(database)),
                None => self.again(out),
            }
        }
        if let (Some(database), None, false) = (self.database, self.asked, self.is_up()) {
            self.asked = Some(out.ask(database.pid().typed(), Query, SECOND));
        }
        Ok(Step::Idle)
    }
}

fn restart_storm(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let database = ChildSpec::new("database", || Database).options(|| SpawnOptions::new().name("database"));
        let builder = Supervisor::builder().intensity(3, 5 * SECOND).child(database);
        let users = ["accounts", "billing", "search", "mail"];
        let builder = users
            .into_iter()
            .fold(builder, |builder, user| builder.child(ChildSpec::new(user, move || User::new(version))));
        runtime.spawn(builder.build()?)?;
        world.eventually("the service is up again", 30 * SECOND, |state| {
            let users: Vec<_> = state.processes::<User>().collect();
            state.holder("database").is_some() && users.len() == 4 && users.iter().all(|(_, user)| user.is_up())
        });
        world.run()
    })
    .show::<Query>()
    .show::<String>()
    .faults(Faults::none().panic::<Database>(0.1).at_most(1))
}

/// Statement 42. A supervisor that the user has written starts a failed child again after a delay. It is told to stop
/// the child during the delay. The corrected one forgets the timer.
pub(super) const BACK_FROM_THE_DEAD: PlantedBug =
    PlantedBug { system: back_from_the_dead, breaks: "a stopped child does not run", seeds: 1_000 };

#[test]
fn a_child_that_comes_back_is_found() {
    BACK_FROM_THE_DEAD.is_found_in_each_batch();
}

#[test]
fn no_child_comes_back_if_the_timer_is_forgotten() {
    BACK_FROM_THE_DEAD.is_not_found_when_corrected();
}

/// Records, now and then.
#[derive(Default)]
struct Camera {
    pictures: u32,
    timer: Option<Tag<TimerFired>>,
}

impl Process for Camera {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => {
                    self.timer = None;
                    self.pictures += 1;
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.timer.is_none() && self.pictures < 20 {
            self.timer = Some(out.after(Duration::from_millis(500)));
        }
        Ok(Step::Idle)
    }
}

#[derive(Debug)]
enum KeeperMessage {
    Stop(&'static str),
}

enum Kept {
    Runs(Monitor),
    Delayed(Tag<TimerFired>),
    Ends(Monitor),
    Stopped,
}

/// Keeps cameras running.
struct Keeper {
    version: Version,
    children: BTreeMap<&'static str, Kept>,
}

impl Keeper {
    fn begin(out: &mut StepOutput) -> Result<Kept, BoxError> {
        let camera = out.spawn_with(Camera::default(), SpawnOptions::new().monitor())?;
        Ok(camera.monitor.map_or(Kept::Stopped, Kept::Runs))
    }

    fn stop(&mut self, child: &'static str, out: &mut StepOutput) {
        let Some(kept) = self.children.get_mut(child) else { return };
        match *kept {
            Kept::Runs(monitor) => {
                out.cancel(monitor.pid(), "no more pictures");
                *kept = Kept::Ends(monitor);
            }
            // It does not run, so there seems to be nothing to do.
            Kept::Delayed(_) if !self.version.is_corrected() => {}
            Kept::Delayed(timer) => {
                out.cancel_timer(timer);
                *kept = Kept::Stopped;
            }
            Kept::Ends(_) | Kept::Stopped => {}
        }
    }
}

impl Process for Keeper {
    type Message = KeeperMessage;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        for name in ["door", "yard"] {
            self.children.insert(name, Keeper::begin(out)?);
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, KeeperMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(KeeperMessage::Stop(child)) => self.stop(child, out),
                Event::Down(down) => {
                    for kept in self.children.values_mut() {
                        match *kept {
                            Kept::Runs(monitor) if monitor == down.monitor => {
                                *kept = Kept::Delayed(out.after(2 * SECOND));
                            }
                            Kept::Ends(monitor) if monitor == down.monitor => *kept = Kept::Stopped,
                            _ => {}
                        }
                    }
                }
                Event::Completed(done) => {
                    for kept in self.children.values_mut() {
                        if matches!(kept, Kept::Delayed(timer) if done.is(*timer)) {
                            *kept = Keeper::begin(out)?;
                        }
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Has a camera stopped, some time later.
struct Visitor {
    keeper: Address<KeeperMessage>,
    timer: Option<Tag<TimerFired>>,
    has_asked: bool,
}

impl Process for Visitor {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.timer.is_none() {
            let delay = Duration::from_millis(out.random() % 8_000);
            self.timer = Some(out.after(delay));
        }
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => {
                    out.send(self.keeper, KeeperMessage::Stop("yard"));
                    self.has_asked = true;
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn back_from_the_dead(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let keeper = runtime.spawn(Keeper { version, children: BTreeMap::new() })?.address();
        let visitor = runtime.spawn(Visitor { keeper, timer: None, has_asked: false })?;
        let mut answered = None;
        world.invariant("a stopped child does not run", move |state| {
            // Once the keeper has taken the message, and has had time to stop the camera, one is left.
            let has_asked = state.process::<Visitor>(visitor.pid()).is_some_and(|visitor| visitor.has_asked);
            if has_asked && state.messages::<KeeperMessage>().next().is_none() {
                let since = *answered.get_or_insert(state.now());
                let count = state.processes::<Camera>().count();
                return ensure(count <= 1 || state.now() < since + SECOND, || {
                    format!("{count} run at {:?}", state.now())
                });
            }
            Ok(())
        });
        world.run()
    })
    .show::<KeeperMessage>()
    .show::<String>()
    .faults(Faults::none().crash::<Camera>(0.05).at_most(3))
}
