//! Building a supervisor: everything that can be wrong is said then.

use std::any::{Any, type_name};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::config::{Config, Kind};
use super::contained::Contained;
use super::intensity::RestartWindow;
use super::process::Supervisor;
use super::spec::{AutoShutdown, ChildSpec, Shutdown, SpecError, Strategy};
use crate::Process;

/// Restarts within the window, where nothing is said: 3 in 5 seconds.
const RESTARTS: usize = 3;
const WITHIN: Duration = Duration::from_secs(5);

/// Options of a [`Supervisor`].
///
/// ```
/// use procession::supervisor::{Backoff, ChildSpec, Strategy, Supervisor};
/// # use procession::{Events, Process, Step, StepOutput, StepResult};
/// use std::time::Duration;
/// # struct Clerk;
/// # impl Process for Clerk {
/// #     type Message = (); type Output = ();
/// #     fn step(&mut self, _: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> { Ok(Step::Idle) }
/// # }
///
/// let supervisor = Supervisor::builder()
///     .strategy(Strategy::RestForOne)
///     .intensity(5, Duration::from_secs(10))
///     .backoff(Backoff::exponential(Duration::from_millis(50), Duration::from_secs(2)).jitter(0.2))
///     .child(ChildSpec::new("clerk", || Clerk))
///     .child(ChildSpec::in_place("cashier", || Clerk))
///     .build()?;
/// # drop(supervisor);
/// # Ok::<(), procession::supervisor::SpecError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct SupervisorBuilder {
    config: Config,
    /// One child of the kind, to be checked.
    template: Option<ChildSpec>,
    children: Vec<ChildSpec>,
}

impl Supervisor {
    /// Options of a supervisor.
    pub fn builder() -> SupervisorBuilder {
        SupervisorBuilder::new()
    }
}

impl ChildSpec {
    /// A child that is a supervisor itself: it has all the time it needs to stop.
    pub fn supervisor(id: impl Into<Arc<str>>, make: impl Fn() -> Supervisor + Send + Sync + 'static) -> ChildSpec {
        ChildSpec { supervises: true, shutdown: Shutdown::Unlimited, ..ChildSpec::new(id, make) }
    }
}

impl SupervisorBuilder {
    fn new() -> SupervisorBuilder {
        SupervisorBuilder {
            config: Config {
                strategy: Strategy::default(),
                auto: AutoShutdown::default(),
                intensity: RestartWindow::new(RESTARTS, WITHIN),
                backoff: None,
                limit: None,
                kind: None,
            },
            template: None,
            children: Vec::new(),
        }
    }

    /// Which other children are restarted with a failed one. The default is [`Strategy::OneForOne`].
    pub fn strategy(mut self, strategy: Strategy) -> SupervisorBuilder {
        self.config.strategy = strategy;
        self
    }

    /// At most so many restarts within any so long; with one more the supervisor ends, and its error lists them. None
    /// at all is allowed: then the first failure ends it; and with [`usize::MAX`] it never ends for that. 3 within 5
    /// seconds, where nothing is said.
    pub fn intensity(mut self, restarts: usize, within: Duration) -> SupervisorBuilder {
        self.config.intensity = RestartWindow::new(restarts, within);
        self
    }

    /// Delays before restarts; none, where nothing is said.
    pub fn backoff(mut self, backoff: Backoff) -> SupervisorBuilder {
        self.config.backoff = Some(backoff);
        self
    }

    /// Whether the supervisor ends when significant children have ended by themselves.
    pub fn auto_shutdown(mut self, auto: AutoShutdown) -> SupervisorBuilder {
        self.config.auto = auto;
        self
    }

    /// The most children there may be; any number, where nothing is said.
    pub fn limit(mut self, children: usize) -> SupervisorBuilder {
        self.config.limit = Some(children);
        self
    }

    /// A further child: started behind those that are here.
    pub fn child(mut self, spec: ChildSpec) -> SupervisorBuilder {
        self.children.push(spec);
        self
    }

    /// Children of one kind, added at run time with
    /// [`SupervisorMessage::add_of_kind`](super::SupervisorMessage::add_of_kind) and no others: each made from an
    /// input, of which it is made again when it is restarted. Their ids are `id` with a number; `adjust` says what is
    /// not the default of a [`ChildSpec`]. Those that are not restarted are forgotten.
    pub fn dynamic<I, P>(
        mut self,
        id: impl Into<Arc<str>>,
        make: impl Fn(&I) -> P + Send + Sync + 'static,
        adjust: impl Fn(ChildSpec) -> ChildSpec + Send + 'static,
    ) -> SupervisorBuilder
    where
        I: Send + Sync + 'static,
        P: Process,
    {
        let (id, make): (Arc<str>, _) = (id.into(), Arc::new(Contained::new(make)));
        let template = || -> P { unreachable!("it is only looked at") };
        let template = ChildSpec::starting(id.clone(), Arc::new(Contained::new(template)));
        self.template = Some(adjust(template));
        let adjust = Contained::new(adjust);
        let of_input = move |input: Box<dyn Any + Send>, number: u64| {
            let make = make.clone();
            // One of another type goes here, too.
            let input = Contained::new(*input.downcast::<I>().map_err(Contained::new).ok()?);
            Some(adjust.get()(ChildSpec::new(format!("{id}/{number}"), move || make.get()(input.get()))))
        };
        self.config.kind = Some(Kind { input: type_name::<I>(), make: Box::new(of_input) });
        self
    }

    /// The supervisor, to be spawned.
    ///
    /// # Errors
    /// Something in the specification is wrong.
    pub fn build(self) -> Result<Supervisor, SpecError> {
        let SupervisorBuilder { config, template, children } = self;
        if config.intensity.is_empty() {
            return Err(SpecError::NoWindow);
        }
        if config.limit == Some(0) {
            return Err(SpecError::NoRoom);
        }
        config.backoff.as_ref().map_or(Ok(()), Backoff::check)?;
        let mut ids = HashSet::new();
        for spec in children.iter().chain(&template) {
            spec.check(config.auto)?;
            if !ids.insert(spec.id.clone()) {
                return Err(SpecError::TwoWithOneId { id: spec.id.clone() });
            }
        }
        if let Some(limit) = config.limit.filter(|limit| children.len() > *limit) {
            return Err(SpecError::TooMany { children: children.len(), limit });
        }
        if config.kind.is_some() && !children.is_empty() {
            return Err(SpecError::KindAndOthers);
        }
        Ok(Supervisor::with(config, children))
    }
}

impl fmt::Debug for SupervisorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorBuilder")
            .field("strategy", &self.config.strategy)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}
