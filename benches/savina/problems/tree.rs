//! UnbalancedCobwebbedTree: a tree grows at random, and is then visited from the root. A new actor asks the root
//! whether it may have children. The root agrees with a chance of one half, while there is room for ten more.
//!
//! In the suite, the root begins the visit when the first actor asks too late, even if the tree still grows
//! elsewhere. No actor learns what was visited. Here the root begins when all actors have asked, so that the tree is
//! complete. Each actor reports the nodes below it, so that there is an answer. The root draws when it is asked, from
//! one stream of random numbers. The speed of the actors decides which one gets which draw. It decides neither the
//! number of grants nor their work.
//!
//! Work is counted in rounds of [`work::rounds`](super::work::rounds). An actor works a hundred rounds before it
//! asks. When it is visited, it works the number of rounds that was drawn for it and its nine siblings. Half of the
//! actors with children have an urgent child, which is visited before its siblings.

use std::f64::consts::TAU;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Verdict, same};

/// The number of children of an actor that has any.
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
    /// The children in the order of their visits.
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
    /// The growth of a tree that is only the root so far, and the grant for the root's children.
    pub(crate) fn new(most: u64) -> (Growth, Grant) {
        let mut growth = Growth { random: Xoshiro256PlusPlus::seed_from_u64(SEED), most, actors: 1, asked: 0 };
        let grant = growth.grant();
        (growth, grant)
    }

    /// Answers an actor that asks whether it may have children.
    pub(crate) fn ask(&mut self) -> Option<Grant> {
        self.asked += 1;
        let is_granted = self.actors + CHILDREN as u64 <= self.most && self.random.random_bool(0.5);
        is_granted.then(|| self.grant())
    }

    /// Whether all actors have asked. The root does not ask.
    pub(crate) fn is_finished(&self) -> bool {
        self.asked == self.actors - 1
    }

    fn grant(&mut self) -> Grant {
        self.actors += CHILDREN as u64;
        let work = self.normal();
        let urgent = self.random.random_bool(URGENT).then(|| self.random.random_range(0..CHILDREN));
        Grant { work, urgent }
    }

    /// A normal distribution, by the method of Box and Muller. Results of less than one round are drawn again.
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

/// The number of actors of a part of the tree, and their work when they were visited.
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

/// The final size of the tree, computed without growing one. Only the number of actors that may still ask matters.
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
