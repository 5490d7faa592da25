//! Random trees with limits and groups against a model: jobs that are cancelled and given up, and nodes that come and
//! go.

use std::collections::BTreeSet;
use std::time::Duration;

use procession::ShutdownNode;
use procession::clock::ManualClock;
use procession::shutdown::{Group, JobGuard};
use proptest::prelude::*;

use crate::support::ZERO;

/// Seconds after the end signal.
type Limit = Option<u64>;

/// A node over some of those made before it. The parent of a dependency closes after its children.
#[derive(Clone, Debug)]
enum Kind {
    Job { cancel_after: Limit, give_up_after: Limit },
    Merge,
    Group,
    Depends { parent: usize },
}

#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    children: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Ask(u16),
    Done(u16),
    /// A group takes in a job with a job below it.
    Add(u16, [(Limit, Limit); 2]),
    DropGroup(u16),
    Later(u64),
}

fn limit() -> impl Strategy<Value = Limit> {
    prop::option::of(0..4_u64)
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let node = (0..8_u8, any::<u16>(), prop::collection::vec(any::<u16>(), 0..4), limit(), limit());
    prop::collection::vec(node, 1..12).prop_map(|nodes| {
        let below = |number: usize, pick: u16| usize::from(pick) % number;
        let plan = |(number, (kind, parent, children, cancel_after, give_up_after))| {
            let (kind, children): (u8, Vec<u16>) = (kind, children);
            let kind = match kind {
                0 if number > 0 => Kind::Depends { parent: below(number, parent) },
                1 => Kind::Merge,
                2 | 3 => Kind::Group,
                _ => Kind::Job { cancel_after, give_up_after },
            };
            let children = if number == 0 { Vec::new() } else { children };
            Plan { kind, children: children.into_iter().map(|pick| below(number, pick)).collect() }
        };
        nodes.into_iter().enumerate().map(plan).collect()
    })
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        2 => any::<u16>().prop_map(Act::Ask),
        5 => any::<u16>().prop_map(Act::Done),
        3 => (any::<u16>(), (limit(), limit()), (limit(), limit()))
            .prop_map(|(group, one, two)| Act::Add(group, [one, two])),
        1 => any::<u16>().prop_map(Act::DropGroup),
        3 => (1..4_u64).prop_map(Act::Later),
    ];
    prop::collection::vec(act, 0..60)
}

/// The real thing: a state and its tail for each node.
struct Tree {
    clock: ManualClock,
    states: Vec<ShutdownNode>,
    tails: Vec<Option<JobGuard>>,
    groups: Vec<Option<Group>>,
}

impl Tree {
    fn new(plans: &[Plan]) -> Tree {
        let mut tree = Tree { clock: ManualClock::new(), states: Vec::new(), tails: Vec::new(), groups: Vec::new() };
        plans.iter().for_each(|plan| tree.make(plan));
        tree
    }

    fn make(&mut self, plan: &Plan) {
        let children: Vec<ShutdownNode> = plan.children.iter().map(|child| self.states[*child].clone()).collect();
        let builder = ShutdownNode::builder().name(self.states.len().to_string()).clock(self.clock.clock());
        let (mut tail, mut group) = (None, None);
        let state = match plan.kind {
            Kind::Job { cancel_after, give_up_after } => {
                let mut builder = builder.children(children);
                if let Some(limit) = cancel_after {
                    builder = builder.cancel_after(Duration::from_secs(limit));
                }
                if let Some(limit) = give_up_after {
                    builder = builder.give_up_after(Duration::from_secs(limit));
                }
                let (state, job) = builder.job();
                tail = Some(job);
                state
            }
            Kind::Merge => builder.children(children).merge(),
            Kind::Group => {
                let (state, takes_in) = builder.children(children).group();
                group = Some(takes_in);
                state
            }
            Kind::Depends { parent } => self.states[parent].depends_on(children),
        };
        self.states.push(state);
        self.tails.push(tail);
        self.groups.push(group);
    }
}

/// The expected state. It is worked out anew after each act, by going round until nothing changes.
#[derive(Default)]
struct Model {
    now: u64,
    nodes: Vec<Node>,
}

#[derive(Clone, PartialEq)]
struct Node {
    kind: u8,
    limits: (Limit, Limit),
    parent: Option<usize>,
    children: Vec<usize>,
    /// Taken in by a group: they leave.
    members: Vec<usize>,
    asked: bool,
    told: Option<u64>,
    cancelled: bool,
    given_up: bool,
    own_done: bool,
    closed: bool,
}

const JOB: u8 = 0;
const GROUP: u8 = 1;
const OTHER: u8 = 2;

impl Model {
    fn make(&mut self, plan: &Plan) {
        let (kind, limits, parent) = match plan.kind {
            Kind::Job { cancel_after, give_up_after } => (JOB, (cancel_after, give_up_after), None),
            Kind::Group => (GROUP, (None, None), None),
            Kind::Merge => (OTHER, (None, None), None),
            Kind::Depends { parent } => (OTHER, (None, None), Some(parent)),
        };
        let children = plan.children.clone();
        self.nodes.push(Node {
            kind,
            limits,
            parent,
            children,
            members: Vec::new(),
            asked: false,
            told: None,
            cancelled: false,
            given_up: false,
            own_done: false,
            closed: false,
        });
    }

    fn settle(&mut self) {
        loop {
            let before = self.nodes.clone();
            for number in 0..self.nodes.len() {
                let node = self.nodes[number].clone();
                let below = || node.children.iter().chain(&node.members).copied();
                let children_closed = below().all(|child| self.nodes[child].closed);
                if node.asked && !node.closed {
                    below().for_each(|child| self.nodes[child].asked |= !self.nodes[child].closed);
                    if let Some(parent) = node.parent.filter(|_| children_closed) {
                        self.nodes[parent].asked |= !self.nodes[parent].closed;
                    }
                }
                let own_closed = match node.kind {
                    JOB => node.own_done || node.given_up,
                    GROUP => node.own_done || node.asked,
                    _ => node.parent.is_none_or(|parent| self.nodes[parent].closed),
                };
                let now = self.now;
                let node = &mut self.nodes[number];
                if node.kind == JOB && node.asked && children_closed && !node.own_done && node.told.is_none() {
                    node.told = Some(now);
                }
                let is_finished = |limit: Limit| node.told.zip(limit).is_some_and(|(told, limit)| told + limit <= now);
                let (cancels, gives_up) = (is_finished(node.limits.0), is_finished(node.limits.1));
                if !node.own_done && !node.given_up {
                    node.cancelled |= cancels || gives_up;
                    node.given_up |= gives_up;
                }
                node.closed |= children_closed && own_closed;
            }
            if before == self.nodes {
                return;
            }
        }
    }

    /// Told to end, and not ended.
    fn hangs(&self, node: usize) -> bool {
        self.nodes[node].told.is_some() && !self.nodes[node].own_done
    }

    /// All that is there from this node down, each once.
    fn there(&self, top: usize) -> BTreeSet<usize> {
        let (mut there, mut ahead) = (BTreeSet::new(), vec![top]);
        while let Some(number) = ahead.pop() {
            if there.insert(number) {
                let node = &self.nodes[number];
                ahead.extend(node.children.iter().chain(&node.parent));
                // A member leaves when all of it has ended, and not when it is given up.
                ahead.extend(node.members.iter().filter(|member| !self.has_left(**member)));
            }
        }
        there
    }

    fn has_left(&self, member: usize) -> bool {
        self.nodes[member].closed && !self.there(member).into_iter().any(|node| self.hangs(node))
    }

    fn hanging(&self, top: usize) -> BTreeSet<usize> {
        self.there(top).into_iter().filter(|node| self.hangs(*node)).collect()
    }
}

fn check(tree: &Tree, model: &Model, top: usize, act: &str) -> Result<(), TestCaseError> {
    for (number, node) in model.nodes.iter().enumerate() {
        let state = &tree.states[number];
        prop_assert_eq!(state.is_closed(), node.closed, "closed {} after {}", number, act);
        if !node.closed {
            prop_assert_eq!(state.is_shutting_down(), node.asked, "asked {} after {}", number, act);
        }
        if let Some(tail) = &tree.tails[number] {
            prop_assert_eq!(tail.end().is_cancelled(), node.told.is_some(), "told {} after {}", number, act);
            prop_assert_eq!(tail.cancel().is_cancelled(), node.cancelled, "cancelled {} after {}", number, act);
        }
        if let Some(group) = &tree.groups[number] {
            let open = node.members.iter().filter(|member| !model.nodes[**member].closed).count();
            prop_assert_eq!(group.len(), open, "members of {} after {}", number, act);
        }
        let there = model.there(number).len();
        prop_assert_eq!(state.report().nodes().len(), there, "what is there from {} down after {}", number, act);
    }
    if model.nodes[top].asked {
        let (hanging, open) = match tree.states[top].shutdown_timeout(ZERO) {
            Ok(()) => (BTreeSet::new(), true),
            Err(error) => {
                let open = error.open().iter();
                let names = open.clone().map(|open| open.names().last().unwrap().parse().unwrap()).collect();
                let given_up = open.clone().all(|open| {
                    let number: usize = open.names().last().unwrap().parse().unwrap();
                    open.was_given_up() == model.nodes[number].given_up
                });
                (names, given_up)
            }
        };
        prop_assert_eq!(hanging, model.hanging(top), "what hangs after {}", act);
        prop_assert!(open, "the given-up jobs after {}", act);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_trees_with_limits_and_groups_do_what_the_model_says(plans in plans(), acts in acts()) {
        let (mut tree, mut model) = (Tree::new(&plans), Model::default());
        plans.iter().for_each(|plan| model.make(plan));
        model.settle();
        let top = plans.len() - 1;
        for act in acts.into_iter().chain([Act::Ask(top as u16)]) {
            let pick = |pick: u16| usize::from(pick) % tree.states.len();
            match act {
                Act::Ask(node) => {
                    let node = if usize::from(node) == top { top } else { pick(node) };
                    tree.states[node].request_shutdown();
                    model.nodes[node].asked |= !model.nodes[node].closed;
                }
                Act::Done(node) => {
                    let Some(tail) = &tree.tails[pick(node)] else { continue };
                    tail.job().done();
                    model.nodes[pick(node)].own_done = true;
                }
                Act::Add(node, limits) => {
                    let node = pick(node);
                    if tree.groups[node].is_none() {
                        continue;
                    }
                    let first = tree.states.len();
                    for (number, (cancel_after, give_up_after)) in limits.into_iter().enumerate() {
                        let children = if number == 0 { Vec::new() } else { vec![first] };
                        let plan = Plan { kind: Kind::Job { cancel_after, give_up_after }, children };
                        tree.make(&plan);
                        model.make(&plan);
                    }
                    let member = tree.states[first + 1].clone();
                    let taken = tree.groups[node].as_ref().is_some_and(|group| group.add(member).is_ok());
                    prop_assert_eq!(taken, !model.nodes[node].closed, "taken in by {}", node);
                    if taken {
                        model.nodes[node].members.push(first + 1);
                    }
                }
                Act::DropGroup(node) => {
                    let node = pick(node);
                    if tree.groups[node].take().is_none() {
                        continue;
                    }
                    model.nodes[node].own_done = true;
                }
                Act::Later(seconds) => {
                    tree.clock.advance(Duration::from_secs(seconds));
                    for _ in 0..seconds {
                        model.now += 1;
                        model.settle();
                    }
                }
            }
            model.settle();
            check(&tree, &model, top, &format!("{act:?}"))?;
        }
        for node in 0..tree.states.len() {
            let Some(tail) = tree.tails[node].take() else { continue };
            drop(tail);
            model.nodes[node].own_done = true;
            model.settle();
            check(&tree, &model, top, &format!("the end of {node}"))?;
        }
        prop_assert!(tree.states[top].is_closed());
        tree.states[top].shutdown_timeout(ZERO).unwrap();
    }
}
