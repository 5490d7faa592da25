//! Unique names between the nodes of a world.

use super::*;
use crate::cluster::{UniqueClaim, UniqueClaimEnd, Wire};
use crate::counts::counts;
use crate::outcome::{Exit, Reason};
use crate::primitives::Mutex;
use crate::process::{Event, Events, Process, SpawnOptions, Step, StepOutput, StepResult, Tag};
use crate::runtime::Handle;
use crate::simulation::{Faults, Simulation, StepFault};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_secs(5);

/// The steps of holders, in the order in which they begin: the node and the token.
type Steps = Arc<Mutex<Vec<(usize, u64)>>>;

enum Work {
    Claim(UniqueClaim),
    Step,
}

/// Steps each 10 ms while it has a name, unless it is quiet.
struct Holder {
    at: usize,
    steps: Steps,
    is_quiet: bool,
    claim: Option<Tag<Result<u64, UniqueClaimEnd>>>,
    token: Option<u64>,
}

impl Process for Holder {
    type Message = Work;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Work>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(token) = self.token {
            lock(&self.steps).push((self.at, token));
            if !self.is_quiet {
                out.after(MOMENT);
            }
        }
        for event in events {
            match event {
                Event::Message(Work::Claim(claim)) => self.claim = Some(out.future(claim)),
                Event::Completed(done) if self.claim.is_some_and(|claim| done.is(claim)) => {
                    if let Some(claim) = self.claim.take() {
                        self.token = done.take(claim).and_then(Result::ok).and_then(Result::ok);
                        out.after(MOMENT);
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Notes the end of a process to which it is linked.
struct Friend(Pid, Arc<Mutex<Vec<Exit>>>);

impl Process for Friend {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.link(self.0);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Exit(signal) = event {
                lock(&self.1).push(signal.exit.clone());
            }
        }
        Ok(Step::Idle)
    }
}

struct Nodes {
    runtimes: Vec<Runtime>,
    nodes: Vec<Cluster>,
    steps: Steps,
}

impl Nodes {
    /// Nodes that are connected, and all vote.
    fn new(world: &World) -> Result<Nodes, BoxError> {
        let (mut runtimes, mut nodes) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c"] {
            let runtime = world.start(Runtime::builder())?;
            nodes.push(world.start_node(Cluster::named(name, Wire::new()).voters(["c", "a", "b"]), &runtime)?);
            runtimes.push(runtime);
        }
        world.run_for(LEASE)?;
        while !nodes.iter().all(|node| node.nodes().len() == 2) {
            world.run_for(5 * MOMENT)?;
        }
        Ok(Nodes { runtimes, nodes, steps: Steps::default() })
    }

    /// Claims the name for a new process of a node.
    fn claim(&self, at: usize) -> Result<Handle<Holder>, BoxError> {
        self.claim_for(at, false)
    }

    fn claim_for(&self, at: usize, is_quiet: bool) -> Result<Handle<Holder>, BoxError> {
        let process = Holder { at, steps: self.steps.clone(), is_quiet, claim: None, token: None };
        let process = self.runtimes[at].spawn(process)?;
        let claim = self.nodes[at].claim_unique("name", &process)?;
        self.runtimes[at].send(&process, Work::Claim(claim))?;
        Ok(process)
    }

    /// The PID at a node of a process of the node `of`.
    fn far(&self, at: usize, pid: Pid, of: usize) -> Option<Pid> {
        if at == of {
            return Some(pid);
        }
        Pid::new(self.nodes[at].number_of(self.nodes[of].here().incarnation()), pid.slot(), pid.generation())
    }

    fn has_stepped(&self, at: usize) -> bool {
        lock(&self.steps).iter().any(|(node, _)| *node == at)
    }

    /// Runs until a holder of this node has had a step. Returns the time.
    fn until_stepped(&self, world: &World, at: usize, limit: Duration) -> Result<Duration, BoxError> {
        let start = world.now();
        while world.now() < start + limit {
            if self.has_stepped(at) {
                return Ok(world.now() - start);
            }
            world.run_for(MOMENT)?;
        }
        Err(format!("no holder of node {at} has had a step").into())
    }

    fn check(&self) {
        let steps = lock(&self.steps);
        let in_turn = |pair: &[(usize, u64)]| pair[0].1 < pair[1].1 || pair[0] == pair[1];
        assert!(steps.windows(2).all(in_turn), "two processes have the name");
    }

    /// Cuts a node from the others.
    fn cut(&self, world: &World, at: usize) {
        let names = ["a", "b", "c"];
        names.iter().filter(|name| **name != names[at]).for_each(|other| world.network().cut(names[at], other));
    }
}

/// A holder gets no event about its loss. So a process that is to be notified lets another process hold the name.
#[test]
fn a_process_that_is_linked_to_a_holder_is_told_of_the_loss_of_its_name() {
    Simulation::new(|world| {
        let nodes = Nodes::new(world)?;
        let holder = nodes.claim(0)?;
        nodes.until_stepped(world, 0, SECOND / 2)?;
        let told = Arc::default();
        let friend = Friend(holder.pid(), Arc::clone(&told));
        let friend = nodes.runtimes[0].spawn_with(friend, SpawnOptions::new().trap_exits())?;
        nodes.cut(world, 0);
        world.run_for(LEASE)?;
        assert!(matches!(lock(&told)[..], [Exit::Terminated(Reason::NameLost)]), "{:?}", lock(&told));
        assert!(nodes.runtimes[0].is_alive(&friend));
        Ok(())
    })
    .run();
}

#[test]
fn the_next_claimant_has_the_name_soon_and_all_nodes_see_the_holder() {
    Simulation::new(|world| {
        let nodes = Nodes::new(world)?;
        let first = nodes.claim(0)?;
        nodes.until_stepped(world, 0, SECOND / 2)?;
        let second = nodes.claim(1)?;
        // In this order at all voters.
        world.run_for(MOMENT)?;
        let third = nodes.claim(2)?;
        world.run_for(20 * SECOND)?;
        nodes.check();
        assert!(!nodes.has_stepped(1) && !nodes.has_stepped(2));
        assert_eq!(nodes.nodes[0].unique_holder("name"), Some(first.pid()));
        for other in [1, 2] {
            assert_eq!(nodes.nodes[other].unique_holder("name"), nodes.far(other, first.pid(), 0));
        }
        nodes.runtimes[0].cancel(&first, "done")?;
        nodes.until_stepped(world, 1, SECOND / 2)?;
        assert!(nodes.nodes[1].release_unique("name", &second) && !nodes.nodes[1].release_unique("name", &second));
        nodes.until_stepped(world, 2, SECOND / 2)?;
        // It goes on without the name.
        world.run_for(LEASE + SECOND)?;
        assert!(!second.is_finished());
        nodes.runtimes[1].terminate(&second)?;
        assert_eq!(nodes.nodes[2].unique_holder("name"), Some(third.pid()));
        nodes.runtimes[2].terminate(&third)?;
        world.run_for(MOMENT)?;
        assert!(nodes.nodes.iter().all(|node| node.unique_holder("name").is_none()));
        assert!(matches!(third.join_timeout(SECOND)?, Exit::Terminated(Reason::Terminated)));
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_holder_that_is_cut_off_is_terminated_before_another_has_the_name() {
    Simulation::new(|world| {
        let nodes = Nodes::new(world)?;
        let first = nodes.claim(0)?;
        nodes.until_stepped(world, 0, SECOND / 2)?;
        let second = nodes.claim(1)?;
        world.run_for(world.random(1..3_000) as u32 * MOMENT / 10)?;
        let sees_first = |at: usize| nodes.nodes[at].unique_holder("name") == nodes.far(at, first.pid(), 0);
        assert!((0..3).all(sees_first));
        nodes.cut(world, 0);
        // An answer was right less than 2 s ago.
        world.run_for(2 * SECOND)?;
        assert_eq!([1, 2].map(|at| nodes.nodes[at].unique_holder("name")), [None; 2]);
        let waited = nodes.until_stepped(world, 1, LEASE - 2 * SECOND + SECOND / 2)?;
        assert!(waited > SECOND, "{waited:?}");
        world.run_for(MOMENT)?;
        for at in [1, 2] {
            assert_eq!(nodes.nodes[at].unique_holder("name"), nodes.far(at, second.pid(), 1));
        }
        assert!(matches!(first.join_timeout(Duration::ZERO)?, Exit::Terminated(Reason::NameLost)));
        let refused = nodes.claim(0)?;
        world.run_for(LEASE + SECOND)?;
        assert!(nodes.nodes[0].unique_holder("name").is_none() && !refused.is_finished());
        nodes.check();
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_node_that_was_stopped_and_goes_on_steps_no_stale_holder() {
    Simulation::new(|world| {
        let nodes = Nodes::new(world)?;
        let is_quiet = world.random(0..2) == 0;
        let first = nodes.claim_for(0, is_quiet)?;
        nodes.until_stepped(world, 0, SECOND / 2)?;
        let _second = nodes.claim(1)?;
        world.run_for(SECOND)?;
        // It has no turn, no tick and no frame, as if its program was stopped.
        nodes.nodes[0].stop_names(true);
        nodes.cut(world, 0);
        nodes.until_stepped(world, 1, LEASE + SECOND / 2)?;
        world.run_for(world.random(0..30) as u32 * SECOND)?;
        world.network().heal_all();
        // The process has work to do before the node knows that it has slept.
        assert_eq!(nodes.runtimes[0].send(&first, Work::Step).is_ok(), is_quiet);
        world.run_for(MOMENT)?;
        assert!(matches!(first.join_timeout(Duration::ZERO)?, Exit::Terminated(Reason::NameLost)));
        nodes.nodes[0].stop_names(false);
        world.run_for(3 * SECOND)?;
        nodes.check();
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_node_that_was_paused_and_goes_on_steps_no_stale_holder() {
    Simulation::new(|world| {
        let nodes = Nodes::new(world)?;
        let first = nodes.claim_for(0, world.random(0..2) == 0)?;
        nodes.until_stepped(world, 0, SECOND / 2)?;
        let second = nodes.claim(1)?;
        world.run_for(world.random(1..3_000) as u32 * MOMENT / 10)?;
        let pause = world.random(1..60) as u32 * SECOND;
        world.network().pause("a", pause);
        // All that waits for the node comes at the end of the pause, in any order: the work of the process, timers,
        // frames, and the silence of the others.
        let _ = nodes.runtimes[0].send(&first, Work::Step);
        let claim = nodes.nodes[0].claim_unique("name", &first)?;
        world.run_for(pause - MOMENT)?;
        assert!(claim.end().is_none(), "no timer of the node has fired");
        world.run_for(SECOND + MOMENT)?;
        nodes.check();
        // A lease lasts 5 s from its last renewal, and the silence of a node 1.75 s.
        match pause.as_secs() {
            0..3 => assert!(!first.is_finished() && !nodes.has_stepped(1)),
            6.. => {
                assert!(matches!(first.join_timeout(Duration::ZERO)?, Exit::Terminated(Reason::NameLost)));
                assert!(nodes.has_stepped(1) && !second.is_finished());
            }
            _ => {}
        }
        world.run_for(5 * SECOND)?;
        nodes.check();
        assert!(nodes.nodes.iter().all(|node| node.nodes().len() == 2), "all see each other again");
        Ok(())
    })
    .seeds(0..40)
    .check();
}

#[test]
fn a_lease_that_is_over_before_the_process_has_it_counts_for_nothing() {
    Simulation::new(|world| {
        let nodes = Nodes::new(world)?;
        // Its first step is held up, and with it the lease.
        let first = nodes.claim(0)?;
        world.run_for(SECOND)?;
        assert!(nodes.nodes[0].unique_holder("name").is_none());
        nodes.nodes[0].stop_names(true);
        nodes.cut(world, 0);
        world.run_for(8 * SECOND)?;
        assert!(!first.is_finished() && !nodes.has_stepped(0));
        nodes.nodes[0].stop_names(false);
        world.network().heal_all();
        world.run_for(10 * SECOND)?;
        assert!(!first.is_finished() && !nodes.has_stepped(0));
        // It may claim the name again.
        let again = nodes.nodes[0].claim_unique("name", &first)?;
        world.run_for(SECOND)?;
        assert!(again.token().is_some());
        Ok(())
    })
    .faults(Faults::none().at::<Holder>(1, StepFault::Stall(8 * SECOND)))
    .seeds(0..20)
    .check();
}

#[test]
fn in_bad_weather_a_name_has_at_most_one_holder_and_always_one_again() {
    let faults = Faults::none()
        .lose_frames(0.01)
        .repeat_frames(0.01)
        .delay_frames(0.05, Duration::from_millis(400))
        .cut_nodes(0.003, 8 * SECOND)
        .stall::<Holder>(0.002, 10 * SECOND)
        .pause_nodes(0.0005, 20 * SECOND)
        .until(60 * SECOND);
    Simulation::new(|world| {
        let mut nodes = Nodes::new(world)?;
        let mut claims: Vec<(usize, Handle<Holder>)> = Vec::new();
        for _ in 0..60 {
            let at = world.random(0..3) as usize;
            match world.random(0..6) {
                0..3 if claims.len() < 6 => claims.push((at, nodes.claim(at)?)),
                3 if !claims.is_empty() => {
                    let (at, process) = claims.swap_remove(world.random(0..claims.len() as u64) as usize);
                    let _ = nodes.runtimes[at].terminate(&process);
                }
                _ => {}
            }
            world.run_for(world.random(1..150) as u32 * MOMENT)?;
            nodes.check();
            claims.retain(|(_, process)| !process.is_finished());
        }
        // The faults are over. The last pause may have begun at their end.
        while world.now() < 92 * SECOND {
            world.run_for(SECOND)?;
        }
        nodes.check();
        claims.into_iter().for_each(|(at, process)| _ = nodes.runtimes[at].terminate(&process));
        world.run_for(LEASE + SECOND)?;
        nodes.steps = Steps::default();
        nodes.claim(0)?;
        nodes.until_stepped(world, 0, SECOND / 2)?;
        Ok(())
    })
    .faults(faults)
    .seeds(0..counts(6, 1_000))
    .check();
}

#[test]
fn without_voters_or_a_majority_a_claim_is_refused() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let node = world.start_node(Cluster::named("a", Wire::new()), &runtime)?;
        let process =
            runtime.spawn(Holder { at: 0, steps: Steps::default(), is_quiet: true, claim: None, token: None })?;
        let refused = node.claim_unique("name", &process).unwrap_err();
        assert!(matches!(refused, crate::cluster::ClusterNameError::NoMajority), "{refused}");
        assert!(node.claim_unique("", &process).is_err());

        let runtime = world.start(Runtime::builder())?;
        let node = world.start_node(Cluster::named("b", Wire::new()).voters(["b", "c"]), &runtime)?;
        let process =
            runtime.spawn(Holder { at: 0, steps: Steps::default(), is_quiet: true, claim: None, token: None })?;
        let claim = node.claim_unique("name", &process)?;
        world.run_for(LEASE - MOMENT)?;
        assert_eq!((claim.token(), claim.end()), (None, None));
        world.run_for(2 * MOMENT)?;
        assert_eq!((claim.token(), claim.end()), (None, Some(UniqueClaimEnd::NoMajority)));
        assert!(runtime.process(&process).is_some());
        let claim = node.claim_unique("name", &process)?;
        assert!(runtime.shutdown(SECOND)?.is_clean());
        assert_eq!(claim.end(), Some(UniqueClaimEnd::Released));
        Ok(())
    })
    .seeds(0..3)
    .check();
}
