//! Groups and shared names between the nodes of a world.

mod order_tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::*;
use crate::Exit;
use crate::cluster::{Claim, ClaimEnd, ClusterNameError, GroupMember, MemberEvent, MemberEvents, Shared, Wire};
use crate::counts::counts;
use crate::pid::Address;
use crate::primitives::{AtomicUsize, Mutex, Ordering};
use crate::process::{DeadLetter, DeadLetterReason, Event, Events, Observer, Process, Step, StepOutput, StepResult};
use crate::runtime::Handle;
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(10);

/// Ends when it is asked to.
struct Idler;

impl Process for Idler {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

/// Bytes for all members.
#[derive(Clone, Serialize, Deserialize)]
struct News(Vec<u8>);

crate::remote!(News, "test::News", 1);

/// Adds up the numbers of bytes that it gets.
struct Reader(Arc<AtomicUsize>);

impl Process for Reader {
    type Message = News;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, News>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(News(bytes)) = event {
                self.0.fetch_add(bytes.len(), Ordering::Relaxed);
            }
        }
        Ok(Step::Idle)
    }
}

/// Counts the dead letters for nodes that are down.
struct Graves(Arc<AtomicUsize>);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let is_down = letter.reason == DeadLetterReason::NodeDown;
        self.0.fetch_add(usize::from(is_down), Ordering::Relaxed);
    }
}

/// A node of a world.
struct Member {
    name: &'static str,
    runtime: Runtime,
    node: Cluster,
    /// A subscriber to the group `g`, and what it knows.
    events: MemberEvents,
    seen: BTreeSet<String>,
    /// Each with its time.
    claims: Vec<(Duration, Pid, Claim)>,
    dead: Arc<AtomicUsize>,
}

fn member(world: &World, name: &'static str) -> Result<Member, BoxError> {
    let dead = Arc::new(AtomicUsize::new(0));
    let runtime = world.start(Runtime::builder().observer(Graves(dead.clone())))?;
    let node = world.start_node(Cluster::named(name, Wire::new().message::<News>()), &runtime)?;
    let events = node.group_events("g");
    Ok(Member { name, runtime, node, events, seen: BTreeSet::new(), claims: Vec::new(), dead })
}

fn three(world: &World) -> Result<Vec<Member>, BoxError> {
    let members = ["a", "b", "c"].into_iter().map(|name| member(world, name)).collect::<Result<Vec<_>, _>>()?;
    connect(world, &members)?;
    Ok(members)
}

/// Runs until each of these nodes sees all others.
fn connect(world: &World, members: &[Member]) -> Result<(), BoxError> {
    for _ in 0..1_000 {
        if members.iter().all(|member| member.node.nodes().len() == members.len() - 1) {
            return Ok(());
        }
        world.run_for(5 * MOMENT)?;
    }
    Err("the nodes are not connected".into())
}

impl Member {
    fn spawn(&self) -> Result<Handle<Idler>, BoxError> {
        Ok(self.runtime.spawn(Idler)?)
    }

    /// Joins the group `g` with a new process.
    fn join(&self, label: &str) -> Result<Handle<Idler>, BoxError> {
        let process = self.spawn()?;
        self.node.join_group("g", &self.label(label), &process)?;
        Ok(process)
    }

    /// Claims a name for a new process, unless another one has it.
    fn claim(&mut self, world: &World) -> Result<Handle<Idler>, BoxError> {
        let process = self.spawn()?;
        if let Ok(claim) = self.node.claim("name", &process) {
            self.claims.push((world.now(), process.pid(), claim));
        }
        Ok(process)
    }

    /// The claims that have not ended, as `holder` names their processes, each with its time.
    fn open_claims(&self) -> impl Iterator<Item = (Duration, (&'static str, u32, u32))> {
        let open = self.claims.iter().filter(|(.., claim)| claim.end().is_none());
        open.map(|(time, pid, _)| (*time, (self.name, pid.slot(), pid.generation())))
    }

    fn label(&self, label: &str) -> String {
        format!("{}/{label}", self.name)
    }

    /// The labels of the members, as this node sees them.
    fn labels(&self) -> Vec<String> {
        self.node.group_members("g").into_iter().map(|member| member.label).collect()
    }

    /// Takes the events of the subscriber. Each is news.
    fn hear(&mut self) {
        while let Ok(Some(event)) = self.events.recv_timeout(Duration::ZERO) {
            let key = |member: &GroupMember| format!("{} {}", member.label, member.pid);
            let is_news = match &event {
                MemberEvent::Joined(member) => self.seen.insert(key(member)),
                MemberEvent::Left(member) => self.seen.remove(&key(member)),
            };
            assert!(is_news, "{event:?} is told twice at {}", self.name);
        }
        let members = self.node.group_members("g");
        let now: BTreeSet<String> = members.iter().map(|member| format!("{} {}", member.label, member.pid)).collect();
        assert_eq!(self.seen, now, "the subscriber of {}", self.name);
    }

    /// The node of the holder of a name, and the number of its process there.
    fn holder(&self, members: &[Member]) -> Option<(&'static str, u32, u32)> {
        let pid = self.node.holder("name")?;
        let of = |other: &&Member| {
            other.name == self.name && pid.node() == other.runtime.core().road.table.node()
                || other.name != self.name && pid.node() == self.node.number_of(other.node.here().incarnation())
        };
        members.iter().find(of).map(|other| (other.name, pid.slot(), pid.generation()))
    }
}

#[test]
fn a_member_is_seen_by_all_nodes_at_once_and_until_it_leaves_or_ends() {
    Simulation::new(|world| {
        let mut members = three(world)?;
        let first = members[0].join("1")?;
        let second = members[0].join("2")?;
        members[0].node.join_group("g", "another label", &second)?;
        world.run_for(MOMENT)?;
        for member in &mut members {
            assert_eq!(member.labels(), ["a/1", "a/2", "another label"]);
            member.hear();
        }
        assert!(members[0].node.leave_group("g", &second) && !members[0].node.leave_group("g", &second));
        world.run_for(MOMENT)?;
        members.iter().for_each(|member| assert_eq!(member.labels(), ["a/1"]));
        members[0].node.join_group("g", "a/3", &second)?;
        members[0].runtime.terminate(&first)?;
        members[0].runtime.cancel(&second, "done")?;
        world.run_for(MOMENT)?;
        for member in &mut members {
            assert!(member.labels().is_empty(), "{:?}", member.labels());
            member.hear();
        }
        assert!(members[0].node.join_group("g", "a/4", &first).is_err(), "it has ended");
        Ok(())
    })
    .seeds(0..50)
    .check();
}

#[test]
fn a_member_whose_node_is_lost_goes_when_the_node_is_down_and_not_before() {
    Simulation::new(|world| {
        let mut members = three(world)?;
        let [_kept, _lost] = [members[0].join("1")?, members[2].join("1")?];
        world.run_for(MOMENT)?;
        let crashed = members.pop().ok_or("there are three")?;
        world.crash(&crashed.node, &crashed.runtime);
        for _ in 0..400 {
            world.run_for(MOMENT / 2)?;
            for member in &mut members {
                let is_up = member.node.nodes().len() == 2;
                let labels: &[&str] = if is_up { &["a/1", "c/1"] } else { &["a/1"] };
                assert_eq!(member.labels(), labels, "{is_up}");
                member.hear();
            }
        }
        assert_eq!(members[1].node.nodes().len(), 1);
        Ok(())
    })
    .seeds(0..50)
    .check();
}

#[test]
fn a_spoilt_table_is_repaired_within_a_second() {
    Simulation::new(|world| {
        let mut members = three(world)?;
        let processes = ["1", "2", "3"].map(|label| members[0].join(label));
        let _processes = processes.into_iter().collect::<Result<Vec<_>, _>>()?;
        world.run_for(MOMENT + world.random(0..1_000) as u32 * MOMENT / 10)?;
        members[1].hear();
        let dropped = members[1].node.spoil("g", members[0].node.here(), "invented");
        assert_eq!(members[1].labels(), ["a/2", "a/3", "invented"]);
        members[1].seen.retain(|seen| !seen.starts_with(&*dropped));
        let invented = members[1].node.group_members("g")[2].clone();
        members[1].seen.insert(format!("invented {}", invented.pid));
        world.run_for(SECOND)?;
        assert_eq!(members[1].labels(), ["a/1", "a/2", "a/3"]);
        members[1].hear();
        Ok(())
    })
    .seeds(0..50)
    .check();
}

#[test]
fn in_bad_weather_all_nodes_agree_and_each_change_is_told_once() {
    let faults = Faults::none()
        .lose_frames(0.02)
        .repeat_frames(0.02)
        .delay_frames(0.1, Duration::from_millis(400))
        .cut_nodes(0.005, 5 * SECOND)
        .until(20 * SECOND);
    Simulation::new(|world| {
        let mut members = three(world)?;
        let (mut processes, mut joined) = (Vec::new(), BTreeSet::new());
        for round in 0..40 {
            let at = world.random(0..3) as usize;
            match world.random(0..5) {
                0 | 1 => {
                    let label = members[at].label(&round.to_string());
                    processes.push((at, members[at].join(&round.to_string())?, label.clone()));
                    joined.insert(label);
                }
                2 if !processes.is_empty() => {
                    let random = world.random(0..processes.len() as u64) as usize;
                    let (at, process, label) = processes.swap_remove(random);
                    members[at].runtime.terminate(&process)?;
                    joined.remove(&label);
                }
                3 if !processes.is_empty() => {
                    let (at, process, label) = &processes[world.random(0..processes.len() as u64) as usize];
                    assert_eq!(members[*at].node.leave_group("g", process), joined.remove(label));
                }
                _ => processes.push((at, members[at].claim(world)?, String::new())),
            }
            world.run_for(world.random(0..1_000) as u32 * MOMENT / 10)?;
            members.iter_mut().for_each(Member::hear);
        }
        // Until the weather is over. Then there is a cut, and each side has changes of its own.
        world.run_for(20 * SECOND)?;
        ["b", "c"].into_iter().for_each(|other| world.network().cut("a", other));
        world.run_for(2 * SECOND)?;
        for member in &mut members {
            let _processes = [member.join("last")?, member.claim(world)?];
            joined.insert(member.label("last"));
            world.run_for(MOMENT)?;
        }
        let mut claims: Vec<_> = members.iter().flat_map(Member::open_claims).collect();
        claims.sort_unstable();
        assert_eq!(claims.len(), 2, "each side of the cut has a holder: {claims:?}");
        world.network().heal_all();
        world.run_for(SECOND)?;
        members.iter_mut().for_each(Member::hear);
        let holder = members[0].holder(&members);
        let is_first = |(time, claim): &(_, _)| *time == claims[0].0 && holder == Some(*claim);
        assert!(claims.iter().any(is_first), "{holder:?} of {claims:?}");
        for member in &members {
            assert!(member.labels().iter().eq(&joined), "{:?} instead of {joined:?}", member.labels());
            assert_eq!(member.holder(&members), holder);
            for key in 0..50 {
                let label = |at: &Member| {
                    let picked = at.node.pick::<()>("g", &key)?.pid();
                    at.node.group_members("g").into_iter().find(|member| member.pid == picked)
                };
                assert_eq!(label(member).map(|member| member.label), label(&members[0]).map(|member| member.label));
            }
            for (_, pid, claim) in &member.claims {
                let holds = holder == Some((member.name, pid.slot(), pid.generation()));
                assert_eq!(claim.end().is_none(), holds, "{:?}", claim.end());
            }
        }
        Ok(())
    })
    .faults(faults)
    .seeds(0..counts(200, 10_000))
    .check();
}

#[test]
fn both_sides_of_a_cut_have_a_holder_and_the_earliest_claim_stays() {
    Simulation::new(|world| {
        let members = three(world)?;
        let processes = members.iter().map(Member::spawn).collect::<Result<Vec<_>, _>>()?;
        world.network().cut("a", "b");
        world.network().cut("a", "c");
        world.run_for(2 * SECOND)?;
        let late = members[1].node.claim("name", &processes[1])?;
        world.run_for(MOMENT)?;
        assert!(members[2].node.claim("name", &processes[2]).is_err(), "it is known there");
        let later = members[0].node.claim("name", &processes[0])?;
        assert_eq!(members[0].holder(&members).map(|holder| holder.0), Some("a"));
        assert_eq!(members[2].holder(&members).map(|holder| holder.0), Some("b"));
        world.network().heal_all();
        world.run_for(SECOND)?;
        for member in &members {
            assert_eq!(member.holder(&members).map(|holder| holder.0), Some("b"), "at {}", member.name);
        }
        let far = members[0].node.holder("name").ok_or("it has a holder")?;
        assert_eq!((late.end(), later.end()), (None, Some(ClaimEnd::Lost { holder: far })));
        // The name is free when it is released, or when its process has ended.
        assert!(members[1].node.release("name", &processes[1]) && !members[1].node.release("name", &processes[1]));
        assert_eq!(late.end(), Some(ClaimEnd::Released));
        world.run_for(MOMENT)?;
        let again = members[2].node.claim("name", &processes[2])?;
        members[2].runtime.terminate(&processes[2])?;
        world.run_for(MOMENT)?;
        assert_eq!((again.end(), members[0].node.holder("name")), (Some(ClaimEnd::Released), None));
        Ok(())
    })
    .seeds(0..50)
    .check();
}

/// Sends to the holder of a name in its first step, and asks it to end in the next one.
struct Sender(Arc<AtomicUsize>);

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.send(Shared("reader"), News(vec![0; 10]));
        out.send(Shared("nobody"), News(Vec::new()));
        out.cancel(Shared("reader"), "read");
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let answers = events.filter(|event| matches!(event, Event::Completed(_))).count();
        self.0.fetch_add(answers, Ordering::Relaxed);
        Ok(Step::Idle)
    }
}

#[test]
fn a_shared_name_is_a_target_on_every_node() {
    Simulation::new(|world| {
        let members = three(world)?;
        let (read, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let reader = members[0].runtime.spawn(Reader(read.clone()))?;
        let _claim = members[0].node.claim("reader", &reader)?;
        world.run_for(MOMENT)?;
        for member in &members {
            member.runtime.send(Shared("reader"), News(vec![0; 100]))?;
            let address = member.runtime.address::<News>(Shared("reader"))?;
            assert_eq!(member.node.holder("reader"), Some(address.pid()));
        }
        members[1].runtime.spawn(Sender(answers.clone()))?;
        world.run_for(MOMENT)?;
        assert_eq!((read.load(Ordering::Relaxed), answers.load(Ordering::Relaxed)), (310, 1));
        let refused = members[2].runtime.send(Shared("nobody"), News(Vec::new())).unwrap_err();
        assert_eq!(refused.to_string(), "no process has the shared name \"nobody\"");
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_process_of_another_node_joins_and_claims_on_its_own_node() {
    Simulation::new(|world| {
        let members = three(world)?;
        let process = members[1].join("1")?;
        world.run_for(MOMENT)?;
        let far = members[0].node.group_members("g")[0].pid;
        let refused = members[0].node.join_group("g", "label", far).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("{far} lives on the node \"b\", not on this node: join and claim on that node")
        );
        assert_eq!(members[0].node.claim("name", far).unwrap_err(), refused);
        assert!(!members[0].node.leave_group("g", far) && !members[0].node.release("name", far));
        let refused = members[1].node.join_group("", "label", &process).unwrap_err();
        assert_eq!(refused.to_string(), "the name of the group has 0 bytes: choose one of 1 to 255 bytes");
        assert!(members[1].node.join_group("g", &"x".repeat(256), &process).is_err());
        assert!(members[1].node.join_group("g", &"x".repeat(255), &process).is_ok());
        Ok(())
    })
    .seeds(0..1)
    .check();
}

#[test]
fn a_node_that_leaves_takes_its_members_with_it_and_ends_its_claims() {
    Simulation::new(|world| {
        let mut members = three(world)?;
        let process = members[2].join("1")?;
        let claim = members[2].node.claim("name", &process)?;
        world.run_for(MOMENT)?;
        assert!(members[0].holder(&members).is_some());
        assert!(members[2].runtime.shutdown(SECOND)?.is_clean());
        assert_eq!(claim.end(), Some(ClaimEnd::Released));
        let last = std::iter::from_fn(|| members[2].events.recv_timeout(Duration::ZERO).ok().flatten()).last();
        assert!(matches!(last, Some(MemberEvent::Left(_))), "{last:?}");
        assert!(members[2].events.recv_timeout(Duration::ZERO)?.is_none());
        world.run_for(MOMENT)?;
        assert!(members[0].labels().is_empty() && members[0].node.holder("name").is_none());
        Ok(())
    })
    .seeds(0..20)
    .check();
}

/// Takes its time when it is asked to end. In the middle of it, it sends a message.
struct Lingerer {
    to: Address<News>,
    is_told: bool,
}

impl Process for Lingerer {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Cancel(_) => drop(out.after(MOMENT * 2)),
                Event::Completed(_) if self.is_told => return Ok(Step::Done(7)),
                Event::Completed(_) => {
                    self.is_told = true;
                    out.send(self.to, News(Vec::new()));
                    out.after(MOMENT * 2);
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The members of the group `g` and whether a name has a holder, as a node sees it whenever it gets a message.
struct Witness(Cluster, Arc<Mutex<Vec<(usize, bool)>>>);

impl Process for Witness {
    type Message = News;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, News>, _: &mut StepOutput) -> StepResult<()> {
        for _ in events.filter(|event| matches!(event, Event::Message(_))) {
            lock(&self.1).push((self.0.group_members("g").len(), self.0.holder("name").is_some()));
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_node_that_shuts_down_gives_up_its_names_before_its_processes_end() {
    Simulation::new(|world| {
        let members = three(world)?;
        let seen = Arc::default();
        let witness = members[0].runtime.spawn(Witness(members[0].node.clone(), Arc::clone(&seen)))?;
        members[0].node.join_group("witnesses", "w", &witness)?;
        world.run_for(MOMENT)?;
        let to = members[2].node.group_members("witnesses")[0].pid.typed();
        let lingerer = members[2].runtime.spawn(Lingerer { to, is_told: false })?;
        members[2].node.join_group("g", "l", &lingerer)?;
        let claim = members[2].node.claim("name", &lingerer)?;
        world.run_for(MOMENT)?;
        let far = members[0].node.group_members("g")[0].pid;
        assert_eq!(members[0].node.holder("name"), Some(far));
        let watcher = members[0].runtime.watch(far);
        world.run_for(MOMENT)?;
        assert!(members[2].runtime.shutdown(SECOND)?.is_clean());
        world.run_for(MOMENT)?;
        assert_eq!(*lock(&seen), [(0, false)], "the process that had the names still lived");
        assert_eq!(claim.end(), Some(ClaimEnd::Released));
        let down = watcher.down().ok_or("the exit has not arrived")?;
        assert!(matches!(down.exit, Exit::Done(_)), "{down:?}");
        let late = members[2].node.join_group("g", "late", &lingerer);
        assert!(matches!(late, Err(ClusterNameError::Left | ClusterNameError::NoSuchProcess(_))), "{late:?}");
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_broadcast_reaches_each_member_once_and_is_accounted_for() {
    Simulation::new(|world| {
        let members = three(world)?;
        let got = Arc::new(AtomicUsize::new(0));
        for (at, label) in [(0, "1"), (1, "1"), (1, "2"), (1, "3"), (2, "1")] {
            let reader = members[at].runtime.spawn(Reader(got.clone()))?;
            members[at].node.join_group("readers", &members[at].label(label), &reader)?;
            members[at].node.join_group("readers", &members[at].label("another"), &reader)?;
        }
        world.run_for(MOMENT)?;
        assert_eq!(members[0].node.broadcast("readers", News(vec![7; 100])), 5);
        // Until they are acknowledged.
        world.run_for(SECOND)?;
        assert_eq!(got.swap(0, Ordering::Relaxed), 500);
        assert_eq!(members[0].node.broadcast("nobody", News(Vec::new())), 0);
        world.network().cut("a", "b");
        assert_eq!(members[0].node.broadcast("readers", News(vec![7])), 5);
        world.run_for(3 * SECOND)?;
        assert_eq!((got.load(Ordering::Relaxed), members[0].dead.load(Ordering::Relaxed)), (2, 3));
        assert_eq!(members[0].node.broadcast("readers", News(vec![7])), 2);
        Ok(())
    })
    .seeds(0..10)
    .check();
}
