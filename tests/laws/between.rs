//! Random programs of processes on two nodes, in simulations. They spawn each other, with and without relations,
//! monitor and link each other, recover and end. One node may have processes in a store. Some are watched from outside.
//! The laws are those of relations, the same as on one node.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use procession::cluster::{Cluster, RemoteProcess, Wire};
use procession::config::RuntimeBuilder;
use procession::simulation::{Simulation, World};
use procession::spawn::Spawned;
use procession::{
    BoxError, Event, Events, Exit, Monitor, Pid, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Tag,
    Upgrade,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::outside_watchers::{self, Kept, Watchers};
use crate::relations::Relations;
use crate::seeded::random_programs;
use crate::simulated::cases;

const SECOND: Duration = Duration::from_secs(1);

const NODES: [&str; 2] = ["a", "b"];

/// Numbers choose among the processes that are known at that moment.
#[derive(Clone, Copy, Debug)]
enum Act {
    Spawn {
        node: usize,
        plan: usize,
        links: bool,
        monitors: bool,
    },
    Monitor(usize),
    /// One of the monitors that it has.
    Demonitor(usize),
    Link(usize),
    Unlink(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Idle,
    Continue,
    Done,
    Fail,
}

#[derive(Clone, Debug)]
struct Plan {
    /// A step of the plan follows each message.
    steps: Vec<(Vec<Act>, Ending)>,
    traps: bool,
    /// So many times it recovers.
    recovers: usize,
}

/// An act from outside on a process.
#[derive(Clone, Copy, Debug)]
enum Outside {
    Wakes,
    Terminates,
    /// This node watches it.
    Watches(usize),
}

#[derive(Clone, Debug)]
struct Program {
    plans: Vec<Plan>,
    /// Processes that are there from the beginning: their nodes and their plans.
    roots: Vec<(usize, usize)>,
    /// So many processes are in the store of the first node.
    stored: usize,
    /// The process, and the act. Before it, everything may come to rest.
    outside: Vec<(usize, Outside, bool)>,
    seed: u64,
}

/// The records of all processes.
struct Records {
    program: Program,
    nodes: Vec<Node>,
    known: Vec<Pid>,
    wrong: Option<String>,
}

#[derive(Clone)]
struct Node {
    runtime: Runtime,
    cluster: Cluster,
    watcher: Watcher,
    kept: Kept,
}

impl Node {
    /// Whether this process lives here.
    fn has(&self, pid: Pid) -> bool {
        (self.kept.pids.contains(&pid) || self.watcher.spawned.to_vec().contains(&pid)) && self.runtime.is_alive(pid)
    }
}

#[derive(Clone)]
struct Shared(Arc<(Mutex<Records>, Relations)>);

thread_local! {
    /// A process that travels brings no references with it.
    static SHARED: RefCell<Option<Shared>> = const { RefCell::new(None) };
}

struct Member {
    shared: Shared,
    plan: Plan,
    at: usize,
    me: Option<Pid>,
    recovers: usize,
    spawns: BTreeMap<u64, (Tag<Spawned<()>>, bool)>,
    /// Those of which it was told nothing yet.
    monitors: Vec<Monitor>,
}

impl RemoteProcess for Member {
    const NAME: &'static str = "test::Member";
    const VERSION: u32 = 1;
    type Argument = usize;

    fn begin(plan: usize) -> Result<Member, BoxError> {
        let shared = SHARED.with_borrow(Clone::clone).ok_or("there is no program")?;
        Ok(Member::new(&shared, plan))
    }
}

impl Member {
    fn new(shared: &Shared, plan: usize) -> Member {
        let plan = shared.0.0.lock().unwrap().program.plans[plan].clone();
        let recovers = plan.recovers;
        let (spawns, monitors) = (BTreeMap::new(), Vec::new());
        Member { shared: shared.clone(), plan, at: 0, me: None, recovers, spawns, monitors }
    }

    /// Takes an event. Returns whether it is a request to stop.
    fn take(&mut self, event: &Event<()>, me: Pid) -> bool {
        let relations = &self.shared.0.1;
        match event {
            Event::Completed(done) => {
                let Some((tag, links)) = self.spawns.remove(&done.tag()) else { return false };
                let Some(Ok(spawned)) = done.take(tag) else { return false };
                if links {
                    relations.links(me, spawned.address.pid());
                }
                if let Some(monitor) = spawned.monitor {
                    relations.monitors(me, monitor);
                    self.monitors.push(monitor);
                }
            }
            Event::Down(down) => {
                match self.monitors.iter().position(|monitor| *monitor == down.monitor) {
                    Some(place) => _ = self.monitors.swap_remove(place),
                    None => self.wrong(format!("monitors: {me} was told of {} twice, or unasked", down.pid)),
                }
                relations.down(me, down.monitor, &down.exit);
            }
            Event::Exit(exit) => {
                self.traps(me);
                relations.exit(me, exit.pid, &exit.exit);
            }
            Event::Recovered(recovered) => {
                self.traps(me);
                relations.recovery(me, recovered.pid);
            }
            Event::Cancel(_) => return true,
            _ => {}
        }
        false
    }

    fn wrong(&self, what: String) {
        self.shared.0.0.lock().unwrap().wrong.get_or_insert(what);
    }

    fn traps(&self, me: Pid) {
        if !self.plan.traps {
            self.wrong(format!("links: {me} does not trap exits, and was told of one"));
        }
    }

    fn act(&mut self, act: Act, out: &mut StepOutput) {
        let (me, shared) = (out.pid(), self.shared.clone());
        let (records, relations) = (&mut *shared.0.0.lock().unwrap(), &shared.0.1);
        let choose = |which: usize| records.known[which % records.known.len()];
        match act {
            Act::Spawn { node, plan, links, monitors } => {
                if records.known.len() > 30 {
                    return;
                }
                let plan = plan % records.program.plans.len();
                let options = options(&records.program.plans[plan]);
                let options = if links { options.link() } else { options };
                let options = if monitors { options.monitor() } else { options };
                let here = records.nodes.iter().find(|node| node.has(me));
                let Some(cluster) = here.map(|node| node.cluster.clone()) else { return };
                if links {
                    relations.links_at_far_birth(me);
                }
                let tag = out.spawn_on::<Member>(&cluster, NODES[node], plan, options, 100 * SECOND);
                self.spawns.insert(tag.id(), (tag, links));
            }
            Act::Monitor(which) => {
                let monitor = out.monitor(choose(which));
                relations.monitors(me, monitor);
                self.monitors.push(monitor);
            }
            Act::Demonitor(which) => {
                let place = which % self.monitors.len().max(1);
                if place < self.monitors.len() {
                    let monitor = self.monitors.swap_remove(place);
                    out.demonitor(monitor);
                    relations.demonitors(me, monitor);
                }
            }
            Act::Link(which) => {
                let other = choose(which);
                if other != me {
                    out.link(other);
                    relations.links(me, other);
                }
            }
            Act::Unlink(which) => {
                let other = choose(which);
                if other != me {
                    out.unlink(other);
                    relations.unlinks(me, other);
                }
            }
        }
    }
}

impl Process for Member {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        if self.me.replace(me).is_none() {
            self.shared.0.1.begins(me, self.plan.traps);
            self.shared.0.0.lock().unwrap().known.push(me);
        }
        let (mut is_woken, mut is_cancelled) = (self.at == 0, false);
        for event in events {
            is_woken |= matches!(event, Event::Message(()));
            is_cancelled |= self.take(&event, me);
        }
        if is_cancelled {
            return Ok(Step::Done(()));
        }
        if !is_woken {
            return Ok(Step::Idle);
        }
        let (acts, ending) = self.plan.steps.get(self.at).cloned().unwrap_or((Vec::new(), Ending::Idle));
        self.at += 1;
        if ending == Ending::Fail {
            return Err("by plan".into());
        }
        acts.into_iter().for_each(|act| self.act(act, out));
        Ok(match ending {
            Ending::Idle | Ending::Fail => Step::Idle,
            Ending::Continue => Step::Continue,
            Ending::Done => Step::Done(()),
        })
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let recovers = self.recovers.checked_sub(1)?;
        self.shared.0.1.recovers(self.me?);
        let (shared, plan) = (self.shared.clone(), self.plan.clone());
        let (spawns, monitors) = (BTreeMap::new(), Vec::new());
        Some(Upgrade::to(Member { shared, plan, at: self.at, me: self.me, recovers, spawns, monitors }))
    }
}

fn options(plan: &Plan) -> SpawnOptions {
    if plan.traps { SpawnOptions::new().trap_exits() } else { SpawnOptions::new() }
}

fn run(program: &Program) -> Result<(), String> {
    let (of_scenario, outside) = (program.clone(), Arc::<Mutex<Option<(Watchers, Ended)>>>::default());
    let of_run = outside.clone();
    let report = Simulation::new(move |world| {
        let watchers = Watchers::default();
        let outcome = run_in(world, &of_scenario, &watchers);
        SHARED.set(None);
        *of_run.lock().unwrap() = Some((watchers, outcome?));
        Ok(())
    })
    .name("random nodes")
    .seeds(program.seed..program.seed + 1)
    .threads(1)
    .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))?;
    outside.lock().unwrap().as_ref().map_or(Ok(()), |(watchers, ended)| watchers.check_at_end(ended))
}

fn start(world: &World, name: &str, builder: RuntimeBuilder, stored: usize) -> Result<Node, BoxError> {
    let watcher = Watcher::new();
    let builder = builder.observer(watcher.clone());
    let (runtime, kept) = match stored {
        0 => (world.start(builder)?, Kept::default()),
        count => outside_watchers::start(world, builder, count)?,
    };
    let wire = Wire::new().process::<Member>();
    Ok(Node { cluster: world.start_node(Cluster::named(name, wire), &runtime)?, runtime, watcher, kept })
}

/// Starts both nodes. A store draws the number of its node, and the other number is far from it.
fn start_both(world: &World, stored: usize) -> Result<Vec<Node>, BoxError> {
    let first = start(world, NODES[0], builder(), stored)?;
    let number = (first.runtime.node() + 1_000) % (Pid::MAX_NODE + 1);
    Ok(vec![first, start(world, NODES[1], builder().node(number), 0)?])
}

/// Runs a program. Returns how its processes have ended.
fn run_in(world: &World, program: &Program, watchers: &Watchers) -> Result<Ended, String> {
    let text = |error: BoxError| error.to_string();
    let nodes = start_both(world, program.stored).map_err(text)?;
    // Until they are connected.
    world.run_for(SECOND).map_err(text)?;
    let records = Records { program: program.clone(), nodes: nodes.clone(), known: Vec::new(), wrong: None };
    let shared = Shared(Arc::new((Mutex::new(records), Relations::default())));
    SHARED.set(Some(shared.clone()));
    for (node, plan) in &program.roots {
        let plan = plan % program.plans.len();
        let spawned = nodes[*node].runtime.spawn_with(Member::new(&shared, plan), options(&program.plans[plan]));
        spawned.map_err(|error| error.to_string())?;
    }
    for (which, act, rests) in &program.outside {
        if *rests {
            world.run_for(SECOND).map_err(text)?;
        } else {
            world.run_for(Duration::from_micros(world.random(0..2_000))).map_err(text)?;
        }
        let mut known = shared.0.0.lock().unwrap().known.clone();
        known.extend(&nodes[0].kept.pids);
        let Some(pid) = known.get(which % known.len().max(1)).copied() else { continue };
        let home = nodes.iter().find(|node| node.has(pid));
        match (act, home) {
            (Outside::Wakes, Some(home)) => {
                home.runtime.send(pid.typed::<()>(), ()).map_err(|error| error.to_string())?;
            }
            (Outside::Terminates, Some(home)) => {
                home.runtime.terminate(pid).map_err(|error| error.to_string())?;
            }
            // A process in a store is watched by its own node.
            (Outside::Watches(_), _) if nodes[0].kept.pids.contains(&pid) => {
                watchers.watch(&nodes[0].runtime, pid, true);
            }
            (Outside::Watches(by), _) => {
                let is_here = nodes[*by].watcher.spawned.to_vec().contains(&pid);
                watchers.watch(&nodes[*by].runtime, pid, is_here);
            }
            (_, None) => {}
        }
    }
    world.run_for(10 * SECOND).map_err(text)?;
    check(&nodes, &shared)?;
    watchers.check_at_rest(|pid| nodes.iter().any(|node| node.has(pid)))?;
    // The processes hold what holds the nodes.
    shared.0.0.lock().unwrap().nodes.clear();
    for node in &nodes {
        let report = node.runtime.shutdown(100 * SECOND).map_err(|error| error.to_string())?;
        if !report.stuck.is_empty() || node.runtime.stats().processes != 0 {
            return Err(format!("shutdown: {report}"));
        }
    }
    Ok(ended(&nodes))
}

/// How each process has ended.
type Ended = HashMap<Pid, String>;

fn ended(nodes: &[Node]) -> Ended {
    nodes.iter().flat_map(|node| node.watcher.exits.to_vec()).collect()
}

fn check(nodes: &[Node], shared: &Shared) -> Result<(), String> {
    if let Some(wrong) = shared.0.0.lock().unwrap().wrong.take() {
        return Err(wrong);
    }
    let spawned: HashSet<Pid> = nodes.iter().flat_map(|node| node.watcher.spawned.to_vec()).collect();
    let ended = ended(nodes);
    let alive = spawned.iter().filter(|pid| !ended.contains_key(pid)).copied().collect();
    shared.0.1.check(&spawned, &ended)?;
    shared.0.1.check_at_rest(&alive, &ended)
}

fn program() -> impl Strategy<Value = Program> {
    let spawn = (0..2_usize, any::<usize>(), any::<bool>(), any::<bool>())
        .prop_map(|(node, plan, links, monitors)| Act::Spawn { node, plan, links, monitors });
    let act = prop_oneof![
        4 => spawn,
        2 => any::<usize>().prop_map(Act::Monitor),
        1 => any::<usize>().prop_map(Act::Demonitor),
        2 => any::<usize>().prop_map(Act::Link),
        1 => any::<usize>().prop_map(Act::Unlink),
    ];
    let ending = prop_oneof![
        4 => Just(Ending::Idle),
        2 => Just(Ending::Continue),
        1 => Just(Ending::Done),
        2 => Just(Ending::Fail),
    ];
    let step = (prop::collection::vec(act, 0..4), ending);
    let plan = (prop::collection::vec(step, 1..5), prop::bool::weighted(0.7), 0..3_usize)
        .prop_map(|(steps, traps, recovers)| Plan { steps, traps, recovers });
    let outside = prop_oneof![
        8 => Just(Outside::Wakes),
        1 => Just(Outside::Terminates),
        2 => (0..2_usize).prop_map(Outside::Watches),
    ];
    (
        prop::collection::vec(plan, 1..4),
        prop::collection::vec((0..2_usize, any::<usize>()), 1..4),
        prop_oneof![2 => Just(0), 1 => 1..4_usize],
        prop::collection::vec((any::<usize>(), outside, prop::bool::weighted(0.2)), 1..30),
        any::<u32>(),
    )
        .prop_map(|(plans, roots, stored, outside, seed)| Program {
            plans,
            roots,
            stored,
            outside,
            seed: seed.into(),
        })
}

#[test]
fn simulated_programs_of_two_nodes_keep_the_laws() {
    random_programs(cases(10_000), Config::default(), program(), run);
}
