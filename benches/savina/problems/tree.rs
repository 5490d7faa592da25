//! UnbalancedCobwebbedTree: a tree grows at random, and is then visited from the root. A new actor asks the root
//! whether it may have children; it may, or not, with equal chance, as long as there is room for ten more.
//!
//! In the suite the root begins the visit when the first actor asks too late, whatever is still growing elsewhere,
//! and nobody hears what was visited. Here the root begins when everybody has asked, so that the tree is complete;
//! and each actor reports what is below it, so that there is an answer. The root draws when it is asked, from one
//! stream of random numbers. The speed of the actors decides which one gets which draw. It decides neither the number
//! of grants nor their work.
//!
//! Work is counted in rounds of [`work::rounds`](super::work::rounds): a hundred before an actor asks, and when it is
//! visited as many as were drawn for it and its nine siblings. Half of those who have children have an urgent child,
//! which is visited before its siblings.

use std::f64::consts::TAU;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Verdict, same};

/// The children of an actor that has any.
pub(crate) const CHILDREN: usize = 10;
/// The work of an actor before it asks.
pub(crate) const BEFORE: u32 = 100;

const MEAN: f64 = 500.0;
const DEVIATION: f64 = 100.0;
const URGENT: f64 = 0.5;
const SEED: u64 = 2;

/// The answer to an actor that may have children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The work of each child.
    pub(crate) work: u32,
    /// The child to be visited first.
    pub(crate) urgent: Option<usize>,
}

impl Grant {
    /// The children in the order in which they are to be visited.
    pub(crate) fn order(self) -> impl Iterator<Item = usize> {
        let urgent = self.urgent;
        urgent.into_iter().chain((0..CHILDREN).filter(move |child| Some(*child) != urgent))
    }
}

/// The state of the root while the tree grows.
pub(crate) struct Growth {
    random: Xoshiro256PlusPlus,
    most: u64,
    actors: u64,
    asked: u64,
}

impl Growth {
    /// Of a tree that is the root alone so far; and what the root's children are.
    pub(crate) fn new(most: u64) -> (Growth, Grant) {
        let mut growth = Growth { random: Xoshiro256PlusPlus::seed_from_u64(SEED), most, actors: 1, asked: 0 };
        let grant = growth.grant();
        (growth, grant)
    }

    /// An actor asks whether it may have children.
    pub(crate) fn ask(&mut self) -> Option<Grant> {
        self.asked += 1;
        let is_granted = self.actors + CHILDREN as u64 <= self.most && self.random.random_bool(0.5);
        is_granted.then(|| self.grant())
    }

    /// Whether all have asked; the root does not.
    pub(crate) fn is_finished(&self) -> bool {
        self.asked == self.actors - 1
    }

    fn grant(&mut self) -> Grant {
        self.actors += CHILDREN as u64;
        let work = self.normal();
        let urgent = self.random.random_bool(URGENT).then(|| self.random.random_range(0..CHILDREN));
        Grant { work, urgent }
    }

    /// A normal distribution, by the method of Box and Muller; what is less than one round is drawn again.
    fn normal(&mut self) -> u32 {
        loop {
            let (one, other) = (1.0 - self.random.random::<f64>(), self.random.random::<f64>());
            let drawn = MEAN + DEVIATION * (-2.0 * one.ln()).sqrt() * (TAU * other).cos();
            if drawn >= 0.5 {
                return drawn.round() as u32;
            }
        }
    }
}

/// The actors of a part of the tree, and the work that they have done when they were visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) actors: u64,
    pub(crate) work: u64,
}

impl Part {
    pub(crate) fn one(work: u32) -> Part {
        Part { actors: 1, work: u64::from(work) }
    }

    pub(crate) fn add(&mut self, other: Part) {
        self.actors += other.actors;
        self.work += other.work;
    }
}

/// How large the tree becomes, found without growing one: only how many may still ask matters.
pub(crate) fn size(most: u64) -> Part {
    let mut all = Part::one(0);
    let mut count = |grant: Grant| {
        (0..CHILDREN).for_each(|_| all.add(Part::one(grant.work)));
        CHILDREN as u64
    };
    let (mut growth, first) = Growth::new(most);
    let mut to_ask = count(first);
    while to_ask > 0 {
        to_ask -= 1;
        to_ask += growth.ask().map_or(0, &mut count);
    }
    all
}

pub(crate) fn check(visited: Part, most: u64) -> Verdict {
    same("the part of the tree that was visited", visited, size(most))
}
