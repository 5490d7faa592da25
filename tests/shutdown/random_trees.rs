//! Random trees against a model of the order: depth, diamonds, jobs that are done early or hang, errors.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;

use procession::ShutdownNode;
use procession::shutdown::{Counter, Job, JobGuard};
use proptest::prelude::*;

use crate::support::{LIMIT, Mutex, ZERO};
use crate::wait::wait;

/// A node over some of those made before it. The parent of a dependency closes after its children.
#[derive(Clone, Debug)]
enum Kind {
    Job,
    Merge,
    Held,
    Depends { parent: usize },
}

#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    children: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Act {
    Ask(usize),
    Done(usize),
    Fail(usize),
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let node = (0..6_u8, any::<u16>(), prop::collection::vec(any::<u16>(), 0..4));
    prop::collection::vec(node, 1..24).prop_map(|nodes| {
        let below = |number: usize, pick: u16| usize::from(pick) % number;
        let plan = |(number, (kind, parent, children)): (usize, (u8, u16, Vec<u16>))| {
            let kind = match kind {
                0 if number > 0 => Kind::Depends { parent: below(number, parent) },
                1 => Kind::Merge,
                2 => Kind::Held,
                _ => Kind::Job,
            };
            let children = if number == 0 { Vec::new() } else { children };
            Plan { kind, children: children.into_iter().map(|pick| below(number, pick)).collect() }
        };
        nodes.into_iter().enumerate().map(plan).collect()
    })
}

fn acts() -> impl Strategy<Value = Vec<(u8, u16)>> {
    prop::collection::vec((0..8_u8, any::<u16>()), 0..60)
}

fn act(nodes: usize, (kind, pick): (u8, u16)) -> Act {
    let node = usize::from(pick) % nodes;
    match kind {
        0 => Act::Ask(node),
        1 => Act::Fail(node),
        _ => Act::Done(node),
    }
}

enum Tail {
    Job(JobGuard),
    Held(Option<Counter>),
    None,
}

fn build(plans: &[Plan]) -> (Vec<ShutdownNode>, Vec<Tail>) {
    let (mut states, mut tails) = (Vec::<ShutdownNode>::new(), Vec::new());
    for (number, plan) in plans.iter().enumerate() {
        let children: Vec<ShutdownNode> = plan.children.iter().map(|child| states[*child].clone()).collect();
        let (state, tail) = match plan.kind {
            Kind::Job => {
                let (state, tail) = ShutdownNode::builder().name(number.to_string()).children(children).job();
                (state, Tail::Job(tail))
            }
            Kind::Merge => (ShutdownNode::merge(children), Tail::None),
            Kind::Held => {
                let (state, counter) = ShutdownNode::counted(children);
                (state, Tail::Held(Some(counter)))
            }
            Kind::Depends { parent } => (states[parent].depends_on(children), Tail::None),
        };
        states.push(state);
        tails.push(tail);
    }
    (states, tails)
}

/// The expected state. It is worked out anew after each act, by going round until nothing changes.
struct Model<'a> {
    plans: &'a [Plan],
    asked: Vec<bool>,
    told: Vec<bool>,
    own_done: Vec<bool>,
    closed: Vec<bool>,
    failed: Vec<bool>,
}

impl<'a> Model<'a> {
    fn new(plans: &'a [Plan]) -> Model<'a> {
        let no = || vec![false; plans.len()];
        let mut model = Model { plans, asked: no(), told: no(), own_done: no(), closed: no(), failed: no() };
        model.settle();
        model
    }

    fn settle(&mut self) {
        loop {
            let before = (self.asked.clone(), self.told.clone(), self.closed.clone());
            for (number, plan) in self.plans.iter().enumerate() {
                let children_closed = plan.children.iter().all(|child| self.closed[*child]);
                if self.asked[number] && !self.closed[number] {
                    for child in &plan.children {
                        self.asked[*child] |= !self.closed[*child];
                    }
                }
                let is_asked = self.asked[number];
                let own_closed = match plan.kind {
                    Kind::Merge => true,
                    Kind::Held => self.own_done[number] || is_asked,
                    Kind::Depends { parent } => {
                        if is_asked && children_closed && !self.closed[parent] {
                            self.asked[parent] = true;
                        }
                        self.closed[parent]
                    }
                    Kind::Job => {
                        self.told[number] |= is_asked && children_closed && !self.own_done[number];
                        self.own_done[number]
                    }
                };
                self.closed[number] |= children_closed && own_closed;
            }
            if before == (self.asked.clone(), self.told.clone(), self.closed.clone()) {
                return;
            }
        }
    }

    /// From the top, then from the left, each once.
    fn walk(&self, top: usize) -> Vec<usize> {
        let (mut order, mut ahead) = (Vec::new(), vec![top]);
        while let Some(node) = ahead.pop() {
            if order.contains(&node) {
                continue;
            }
            order.push(node);
            ahead.extend(self.plans[node].children.iter().rev());
            if let Kind::Depends { parent } = self.plans[node].kind {
                ahead.push(parent);
            }
        }
        order
    }

    fn first_error(&self, top: usize) -> Option<usize> {
        self.walk(top).into_iter().find(|node| self.failed[*node])
    }

    fn hanging(&self, top: usize) -> BTreeSet<usize> {
        self.walk(top).into_iter().filter(|node| self.told[*node] && !self.own_done[*node]).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_trees_close_in_the_order_of_the_model(plans in plans(), acts in acts()) {
        let (states, mut tails) = build(&plans);
        let mut model = Model::new(&plans);
        let nodes = plans.len();
        let last = [Act::Ask(nodes - 1)];
        let finish = (0..nodes).map(Act::Done);
        let acts: Vec<Act> = acts.into_iter().map(|one| act(nodes, one)).chain(last).chain(finish).collect();
        for act in acts {
            match act {
                Act::Ask(node) => {
                    states[node].request_shutdown();
                    model.asked[node] |= !model.closed[node];
                }
                Act::Done(node) => {
                    match &mut tails[node] {
                        Tail::Job(tail) => tail.job().done(),
                        Tail::Held(counter) => *counter = None,
                        Tail::None => continue,
                    }
                    model.own_done[node] = true;
                }
                Act::Fail(node) => {
                    let Tail::Job(tail) = &tails[node] else { continue };
                    tail.fail(format!("error of {node}"));
                    model.failed[node] = true;
                }
            }
            model.settle();
            for node in 0..nodes {
                prop_assert_eq!(states[node].is_closed(), model.closed[node], "closed {} after {:?}", node, act);
                if !model.closed[node] {
                    // A node that closes at the same moment may do so before it is asked, or after.
                    let asked = states[node].is_shutting_down();
                    prop_assert_eq!(asked, model.asked[node], "asked {} after {:?}", node, act);
                }
                if let Tail::Job(tail) = &tails[node] {
                    prop_assert_eq!(tail.end().is_cancelled(), model.told[node], "told {} after {:?}", node, act);
                }
                let error = states[node].err().map(|error| error.error().to_string());
                prop_assert_eq!(error, model.first_error(node).map(|node| format!("error of {node}")));
            }
            let top = nodes - 1;
            if model.asked[top] {
                let open: BTreeSet<usize> = match states[top].shutdown_timeout(ZERO) {
                    Ok(()) => BTreeSet::new(),
                    Err(error) => error
                        .open()
                        .iter()
                        .map(|open| open.names().last().unwrap().parse().unwrap())
                        .collect(),
                };
                prop_assert_eq!(open, model.hanging(top));
            }
        }
        prop_assert!(states[nodes - 1].is_closed());
        states[nodes - 1].shutdown_timeout(ZERO).unwrap();
    }

    #[test]
    fn random_trees_close_in_order_when_many_threads_end_the_jobs(
        plans in plans(),
        early in prop::collection::vec(any::<bool>(), 24),
    ) {
        let (states, tails) = build(&plans);
        let (sender, receiver) = mpsc::channel::<Option<(usize, Job)>>();
        let receiver = Arc::new(Mutex::new(receiver));
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut callbacks = Vec::new();
        let mut early_done = Vec::new();
        for (node, tail) in tails.iter().enumerate() {
            let Tail::Job(tail) = tail else { continue };
            let (log, sender, job) = (log.clone(), sender.clone(), tail.job());
            callbacks.push(tail.end().on_cancel(move |_| {
                log.lock().unwrap().push((node, "told"));
                let _ = sender.send(Some((node, job)));
            }));
            if early[node] {
                early_done.push((node, tail.job()));
            }
        }
        let top = states[plans.len() - 1].clone();
        let result = std::thread::scope(|scope| {
            // Each is joined by hand: the sanitizer does not see how a scope waits for its threads.
            let mut threads = Vec::new();
            for _ in 0..3 {
                let (receiver, log) = (receiver.clone(), log.clone());
                threads.push(scope.spawn(move || loop {
                    let next = wait(&*receiver.lock().unwrap());
                    let Ok(Some((node, job))) = next else { return };
                    log.lock().unwrap().push((node, "done"));
                    job.done();
                }));
            }
            threads.push(scope.spawn(|| {
                for (_, job) in &early_done {
                    job.done();
                }
            }));
            let result = top.shutdown_timeout(LIMIT);
            for _ in 0..3 {
                sender.send(None).unwrap();
            }
            threads.into_iter().for_each(|thread| wait(thread).unwrap());
            result
        });
        prop_assert!(result.is_ok(), "{result:?}");
        let log = log.lock().unwrap();
        let place = |event: (usize, &'static str)| log.iter().position(|seen| *seen == event);
        let model = Model::new(&plans);
        for (node, tail) in tails.iter().enumerate() {
            if !matches!(tail, Tail::Job(_)) {
                continue;
            }
            let times = log.iter().filter(|(other, what)| *other == node && *what == "told").count();
            prop_assert!(times <= 1, "{node} was told {times} times");
            let Some(told) = place((node, "told")) else { continue };
            // All jobs that close before it were done before it was told. (The log does not have those that were done
            // early.)
            for child in plans[node].children.iter().flat_map(|child| model.walk(*child)) {
                if let Some(done) = place((child, "done")).filter(|_| !early[child]) {
                    prop_assert!(done < told, "{child} is done before {node} is told");
                }
            }
        }
    }
}
