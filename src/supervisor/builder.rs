//! Builds supervisors, and reports every error in a specification.

use std::any::{Any, type_name};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::contained::Contained;
use super::intensity::RestartWindow;
use super::process::{Config, Kind, Supervisor};
use super::spec::{AutoShutdown, ChildSpec, Shutdown, SpecError, Strategy};
use crate::{Process, SpawnError};

/// The default limit of restarts: 3 within 5 seconds.
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
    /// One child of the dynamic kind. `build` checks it.
    template: Option<ChildSpec>,
    children: Vec<ChildSpec>,
}

impl Supervisor {
    /// Returns a builder for a supervisor.
    pub fn builder() -> SupervisorBuilder {
        let config = Config {
            strategy: Strategy::default(),
            auto: AutoShutdown::default(),
            intensity: RestartWindow::new(RESTARTS, WITHIN),
            backoff: None,
            limit: None,
            kind: None,
        };
        SupervisorBuilder { config, template: None, children: Vec::new() }
    }
}

impl ChildSpec {
    /// Describes a child that is a supervisor. It has unlimited time to stop.
    pub fn supervisor(id: impl Into<Arc<str>>, make: impl Fn() -> Supervisor + Send + Sync + 'static) -> ChildSpec {
        ChildSpec { supervises: true, shutdown: Shutdown::Unlimited, ..ChildSpec::new(id, make) }
    }
}

impl SupervisorBuilder {
    /// Sets which other children are restarted with a failed one. The default is [`Strategy::OneForOne`].
    pub fn strategy(mut self, strategy: Strategy) -> SupervisorBuilder {
        self.config.strategy = strategy;
        self
    }

    /// Limits restarts to this number within any period of this length.
    ///
    /// If one more restart is needed, the supervisor fails. Its error lists the restarts. With 0 the first failure ends
    /// the supervisor. With [`usize::MAX`] there is no limit. The default is 3 restarts within 5 seconds.
    pub fn intensity(mut self, restarts: usize, within: Duration) -> SupervisorBuilder {
        self.config.intensity = RestartWindow::new(restarts, within);
        self
    }

    /// Sets the delays before restarts. By default there are none.
    pub fn backoff(mut self, backoff: Backoff) -> SupervisorBuilder {
        self.config.backoff = Some(backoff);
        self
    }

    /// Sets whether the supervisor ends when significant children have ended by themselves. The default is
    /// [`AutoShutdown::Never`].
    pub fn auto_shutdown(mut self, auto: AutoShutdown) -> SupervisorBuilder {
        self.config.auto = auto;
        self
    }

    /// Limits the number of children. By default there is no limit.
    pub fn limit(mut self, children: usize) -> SupervisorBuilder {
        self.config.limit = Some(children);
        self
    }

    /// Adds a child. It starts after the children that were added before it.
    pub fn child(mut self, spec: ChildSpec) -> SupervisorBuilder {
        self.children.push(spec);
        self
    }

    /// Makes the supervisor *dynamic*. Its children are of one kind and are added at run time.
    ///
    /// A child is added with [`SupervisorMessage::add_of_kind`](super::SupervisorMessage::add_of_kind). `make` makes
    /// each child from an input. When the child is restarted, `make` makes it again from the same input. The id of a
    /// child is `id`, a slash and a number. `adjust` changes the defaults of its [`ChildSpec`]. If a child has ended
    /// and is not restarted, the supervisor removes it. Such a supervisor takes no other children.
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
        let only_looked_at = ChildSpec::starting(id.clone(), Box::new(|_, _| Err(SpawnError::OutsideStep)));
        self.template = Some(adjust(only_looked_at));
        let adjust = Contained::new(adjust);
        let of_input = move |input: Box<dyn Any + Send>, number: u64| {
            let make = make.clone();
            // An input of another type is contained as well: its destructor may panic.
            let input = Contained::new(*input.downcast::<I>().map_err(Contained::new).ok()?);
            Some(adjust.get()(ChildSpec::new(format!("{id}/{number}"), move || make.get()(input.get()))))
        };
        self.config.kind = Some(Kind { input: type_name::<I>(), make: Box::new(of_input) });
        self
    }

    /// Builds the supervisor. It is spawned like any process.
    ///
    /// # Errors
    /// Returns the first error in the specification of the supervisor or of a child.
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
