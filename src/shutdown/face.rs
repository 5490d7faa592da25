//! What of a node never changes.

use std::fmt;
use std::time::Duration;

use super::key::Stored;
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::outcome::{contain, drop_contained};
use crate::sync::{Arc, OnceLock};

/// What sort of state a node of the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Nothing at all.
    Empty,
    /// Several in one.
    Merge,
    /// Several in one, which come and go.
    Group,
    /// Background work that is told to end and says when it is done.
    Job,
    /// Something that is counted, and waited for.
    Counted,
    /// Something that says when it is ready.
    Readiness,
    /// An error, or none.
    Error,
    /// A place for errors.
    Errors,
    /// A value under a key.
    Value,
    /// A name for what is below.
    Annotation,
    /// A state that closes after those that it depends on.
    Dependency,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Empty => "empty",
            Kind::Merge => "merge",
            Kind::Group => "group",
            Kind::Job => "job",
            Kind::Counted => "counted",
            Kind::Readiness => "readiness",
            Kind::Error => "error",
            Kind::Errors => "errors",
            Kind::Value => "value",
            Kind::Annotation => "annotation",
            Kind::Dependency => "dependency",
        })
    }
}

pub(super) type Detail = Arc<dyn Fn() -> Option<String> + Send + Sync>;

pub(super) type Inside = Arc<dyn Fn() -> bool + Send + Sync>;

pub(super) struct Face {
    pub(super) kind: Kind,
    pub(super) name: Option<Arc<str>>,
    pub(super) clock: Clock,
    pub(super) value: Option<Stored>,
    pub(super) job: Option<Arc<Signals>>,
    /// What it waits for, in the user's words.
    pub(super) detail: Option<Detail>,
    /// Whether the calling thread is one that it waits for.
    pub(super) inside: Option<Inside>,
    /// What is the same for all below, too.
    pub(super) nature: Nature,
}

/// What a node and all below it are by their nature, however much comes and goes.
#[derive(Clone, Copy)]
pub(super) struct Nature {
    /// None of them ever had anything to end.
    pub(super) inert: bool,
    /// One of them has a value.
    pub(super) valued: bool,
    /// One of them takes states in.
    pub(super) grows: bool,
    /// One of them is counted, or may come to be.
    pub(super) counts: bool,
    /// One of them can tell whether the calling thread is one that it waits for, or may come to.
    pub(super) asks_inside: bool,
}

impl Nature {
    pub(super) fn with(self, below: Nature) -> Nature {
        Nature {
            inert: self.inert && below.inert,
            valued: self.valued || below.valued,
            grows: self.grows || below.grows,
            counts: self.counts || below.counts,
            asks_inside: self.asks_inside || below.asks_inside,
        }
    }
}

/// What a job hears, and how long it may take to obey.
pub(super) struct Signals {
    pub(super) end: CancelToken,
    /// Made when somebody asks for it.
    cancel: OnceLock<CancelToken>,
    pub(super) cancel_after: Option<Duration>,
    pub(super) give_up_after: Option<Duration>,
}

impl Signals {
    pub(super) fn new(clock: &Clock, cancel_after: Option<Duration>, give_up_after: Option<Duration>) -> Signals {
        let end = CancelToken::with_clock(clock.clone());
        Signals { end, cancel: OnceLock::new(), cancel_after, give_up_after }
    }

    pub(super) fn cancel(&self, clock: &Clock) -> &CancelToken {
        self.cancel.get_or_init(|| CancelToken::with_clock(clock.clone()))
    }
}

impl Face {
    /// Runs code of the user's.
    pub(super) fn detail(&self) -> Option<String> {
        let detail = self.detail.as_ref()?;
        contain(|| detail()).unwrap_or_else(|panic| Some(panic.to_string()))
    }

    /// Whether the calling thread is one that it waits for.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.as_ref().is_some_and(|inside| contain(|| inside()).unwrap_or(false))
    }

    pub(super) fn has_limits(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.cancel_after.is_some() || job.give_up_after.is_some())
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        // Callbacks that were never called are the user's.
        drop_contained(self.job.take());
        drop_contained(self.detail.take());
        drop_contained(self.inside.take());
    }
}
