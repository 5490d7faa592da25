//! Trees of supervisors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::supervisor::{ChildSpec, ChildState, Strategy, Supervisor, SupervisorMessage, Tree};
use procession::{Event, Events, Pid, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

/// Fails, panics or is done as it is told.
struct Leaf {
    alive: Arc<AtomicUsize>,
}

impl Leaf {
    fn new(alive: &Arc<AtomicUsize>) -> Leaf {
        alive.fetch_add(1, Ordering::SeqCst);
        Leaf { alive: alive.clone() }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Process for Leaf {
    type Message = u8;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u8>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(0) => return Err("leaf".into()),
                Event::Message(1) => panic!("leaf"),
                Event::Message(_) | Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

const STRATEGIES: [Strategy; 3] = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];

/// A supervisor of so many leaves, every third of them restarted in place.
fn branch(alive: &Arc<AtomicUsize>, number: usize, leaves: usize, restarts: usize) -> Supervisor {
    let builder = Supervisor::builder().strategy(STRATEGIES[number % 3]).intensity(restarts, 1_000 * SECOND);
    let with_leaf = |builder: procession::supervisor::SupervisorBuilder, n: usize| {
        let alive = alive.clone();
        let make = move || Leaf::new(&alive);
        let id = format!("leaf-{n}");
        builder.child(if n.is_multiple_of(3) { ChildSpec::in_place(id, make) } else { ChildSpec::new(id, make) })
    };
    (0..leaves).fold(builder, with_leaf).build().unwrap()
}

/// Branches of leaves under one supervisor.
fn tree(runtime: &Runtime, alive: &Arc<AtomicUsize>, branches: usize, leaves: usize, restarts: usize) -> Boss {
    let with_branch = |builder: procession::supervisor::SupervisorBuilder, n: usize| {
        let alive = alive.clone();
        builder.child(ChildSpec::supervisor(format!("branch-{n}"), move || branch(&alive, n, leaves, restarts)))
    };
    let builder = Supervisor::builder().intensity(usize::MAX, SECOND);
    supervise(runtime, (0..branches).fold(builder, with_branch).build().unwrap())
}

fn whole(runtime: &Runtime, boss: &Boss, alive: &AtomicUsize, branches: usize, leaves: usize) {
    until("the whole tree stands", || {
        runtime.is_idle()
            && Tree::of(runtime, boss.handle.address(), LIMIT)
                .is_ok_and(|tree| tree.is_up() && tree.processes() == branches * (leaves + 1))
    });
    assert_eq!(alive.load(Ordering::SeqCst), branches * leaves, "no process too many");
    assert_eq!(runtime.stats().processes as usize, branches * (leaves + 1) + 1);
}

#[test]
fn a_leaf_that_exhausts_its_supervisor_restarts_the_branch() {
    let (runtime, alive) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let boss = tree(&runtime, &alive, 2, 4, 2);
    let before = Tree::of(&runtime, boss.handle.address(), LIMIT).unwrap();
    let pids = |tree: &Tree, branch: usize| -> Vec<Pid> {
        tree.children[branch].1.as_ref().unwrap().children.iter().map(|(info, _)| info.pid.unwrap()).collect()
    };
    for failure in 0..3 {
        let tree = Tree::of(&runtime, boss.handle.address(), LIMIT).unwrap();
        runtime.send(pids(&tree, 0)[1], failure % 2_u8).unwrap();
        whole(&runtime, &boss, &alive, 2, 4);
    }
    let after = Tree::of(&runtime, boss.handle.address(), LIMIT).unwrap();
    assert_eq!(after.children[0].0.restarts, 1, "the branch was restarted by the one above");
    assert_eq!(after.children[1].0.restarts, 0);
    assert_eq!(pids(&before, 1), pids(&after, 1), "the other branch has not noticed");
    assert!(pids(&before, 0).iter().all(|pid| !pids(&after, 0).contains(pid)), "every leaf of it is new");
    boss.stop();
    assert_eq!((alive.load(Ordering::SeqCst), runtime.stats().processes), (0, 0));
}

/// A thousand leaves, killed at random for a number of rounds, by seed. A branch may be killed, too.
#[test]
fn a_tree_of_a_thousand_leaves_stands_again_after_random_kills() {
    const BRANCHES: usize = 20;
    const LEAVES: usize = 50;
    for seed in [1_u64, 2] {
        let (runtime, alive) = (runtime(2), Arc::new(AtomicUsize::new(0)));
        let boss = tree(&runtime, &alive, BRANCHES, LEAVES, 20);
        whole(&runtime, &boss, &alive, BRANCHES, LEAVES);
        let mut random = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for _ in 0..10 {
            // As it is now, whatever is just being restarted.
            let Ok(tree) = Tree::of(&runtime, boss.handle.address(), LIMIT) else { panic!("the top has ended") };
            let leaves: Vec<Pid> = tree
                .children
                .iter()
                .filter_map(|(_, tree)| tree.as_ref())
                .flat_map(|tree| tree.children.iter().filter_map(|(info, _)| info.pid))
                .collect();
            for _ in 0..40 {
                if leaves.is_empty() {
                    break;
                }
                let leaf = leaves[next(leaves.len())];
                match next(4) {
                    3 => _ = runtime.terminate(leaf),
                    way => _ = runtime.send(leaf, way as u8),
                }
            }
            let branches: Vec<Pid> = tree.children.iter().filter_map(|(info, _)| info.pid).collect();
            if next(2) == 0 && !branches.is_empty() {
                let _ = runtime.terminate(branches[next(branches.len())]);
            }
        }
        whole(&runtime, &boss, &alive, BRANCHES, LEAVES);
        until("a quiet moment", || runtime.is_idle());
        assert_accounted(&runtime);
        boss.stop();
        assert_eq!((alive.load(Ordering::SeqCst), runtime.stats().processes), (0, 0));
    }
}

#[test]
fn a_supervisor_whose_mailbox_had_no_room_is_asked_again_whether_it_is_up() {
    assert!((0..1_000).any(|_| is_asked_again()), "the question never comes after the branch's first step");
}

/// The branch is stuck in the factory of its leaf while the question of the supervisor above is dropped from its
/// mailbox. Returns whether that happened. It does not if the question came before the step that is stuck, which then
/// has it in hand.
fn is_asked_again() -> bool {
    let manual = ManualClock::new();
    let runtime = builder().workers(2).clock(manual.clock()).start().unwrap();
    let blocker = Blocker::new();
    let branch = {
        let blocked = blocker.blocked();
        move || {
            let (blocked, alive) = (blocked.clone(), Arc::default());
            let leaf = ChildSpec::new("leaf", move || {
                blocked.wait();
                Leaf::new(&alive)
            });
            Supervisor::builder().child(leaf).build().unwrap()
        }
    };
    let spec = ChildSpec::supervisor("branch", branch)
        .options(|| SpawnOptions::new().name("the branch").mailbox(1, Overflow::DropOldest));
    let handle = runtime.spawn(Supervisor::builder().child(spec).build().unwrap()).unwrap();
    let boss = Boss { runtime: runtime.clone(), handle };
    blocker.wait_begun();
    let pid = boss.pid("branch");
    until("the one above has asked", || runtime.process(pid).is_some_and(|branch| branch.mailbox == 1));
    let (nobody, unheard) = procession::testing::question();
    runtime.send(pid.typed(), SupervisorMessage::children(nobody)).unwrap();
    let is_lost = runtime.stats().messages.dead_by_reason[&DeadLetterReason::DroppedOldest] == 1;
    blocker.release();
    if !is_lost {
        boss.ask(SupervisorMessage::started);
        boss.stop();
        return false;
    }
    until("it is up, and its answer is missing", || runtime.is_idle() && runtime.stats().timers == 1);
    drop(unheard);
    assert_eq!(boss.child("branch").unwrap().state, ChildState::Starting);
    manual.advance(Duration::from_millis(10));
    boss.ask(SupervisorMessage::started);
    assert_eq!(boss.child("branch").unwrap().state, ChildState::Up);
    boss.stop();
    true
}

#[test]
fn a_supervisor_without_children_is_up_at_once_and_stops_at_once() {
    let runtime = runtime(1);
    let boss = supervise(&runtime, Supervisor::builder().build().unwrap());
    boss.ask(SupervisorMessage::started);
    assert!(boss.children().is_empty());
    boss.stop();
}
