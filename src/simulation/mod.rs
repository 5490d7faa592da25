//! Simulation: a whole program under a seed, with its order, its time and its faults chosen.
//!
//! A [`Simulation`] runs a *scenario* very often, each time in a new [`World`]. The scenario starts the program's own
//! runtime in the world, with the program's own start-up code. The processes, handlers and supervisors are those that
//! ship. The world has one thread. It decides by the seed which process is stepped next, when a timer fires, how many
//! events a step is given, and which faults are injected. So a run can be repeated.
//!
//! ```
//! use procession::simulation::{Simulation, ensure};
//! use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
//! use std::time::Duration;
//!
//! struct Account { balance: u64 }
//!
//! enum AccountMessage { Deposit(u64), Balance(Reply<u64>) }
//!
//! impl Process for Account {
//!     type Message = AccountMessage;
//!     type Output = ();
//!
//!     fn step(&mut self, events: &mut Events<AccountMessage>, out: &mut StepOutput) -> StepResult<()> {
//!         for event in events {
//!             match event {
//!                 Event::Message(AccountMessage::Deposit(amount)) => self.balance += amount,
//!                 Event::Message(AccountMessage::Balance(reply)) => out.reply(reply, self.balance),
//!                 Event::Cancel(_) => return Ok(Step::Done(())),
//!                 _ => {}
//!             }
//!         }
//!         Ok(Step::Idle)
//!     }
//! }
//!
//! Simulation::new(|world| {
//!     let runtime = world.start(Runtime::builder())?;
//!     let account = runtime.spawn(Account { balance: 0 })?;
//!     world.invariant("no money is lost", |state| {
//!         let waiting = state.messages::<AccountMessage>();
//!         let amount = |message: &_| if let AccountMessage::Deposit(amount) = message { *amount } else { 0 };
//!         let waiting: u64 = waiting.map(|one| amount(one.message)).sum();
//!         let balance: u64 = state.processes::<Account>().map(|(_, account)| account.balance).sum();
//!         ensure(balance + waiting <= 30, || format!("{balance} + {waiting}"))
//!     });
//!     for _ in 0..3 {
//!         runtime.send(&account, AccountMessage::Deposit(10))?;
//!     }
//!     // A call that would wait drives the world.
//!     let balance = runtime.ask(&account, AccountMessage::Balance, Duration::from_secs(1)).wait()?;
//!     assert_eq!(balance, 30);
//!     world.run()
//! })
//! .seeds(0..100)
//! .check();
//! ```
//!
//! # Failures
//!
//! - An [invariant](World::invariant) does not hold after a turn, or a [condition](World::eventually) did not hold in
//!   time.
//! - The scenario returns an error (`"the scenario succeeds"`) or panics (`"the scenario does not panic"`).
//! - One of the checks that are always made: `"no step panics"` (`init`, `start`, handlers, futures and blocking
//!   closures count, too, and injected panics do not), `"no process waits for what cannot come"`,
//!   `"every message is accounted for"`, `"every shutdown is clean"`, `"every wait ends"`, `"the run ends"`,
//!   `"no thread outside of the simulation"`, `"invariants change nothing"`, `"a seed is one run"`.
//!   [`Simulation::without`] says which of them can be switched off.
//!
//! # The report of a failure
//!
//! A failure is shrunk: decisions that do not matter are left out, one after the other, as long as the same check
//! fails. The report shows the turns that are left as a table. It marks a turn with `!` if others went before it
//! although it was older, or if it went before an older turn that never came. It marks a turn with `x` if a fault was
//! injected. Its last lines repeat the run: `PROCESSION_SEED=4711 cargo test NAME`. The failing seed is kept in
//! `simulation-regressions/NAME.txt`, and is tried first from then on.
//!
//! # Rules for programs
//!
//! The order of a `HashMap`, `Instant::now`, random numbers of its own and threads of its own are not decided by the
//! seed. Use a `BTreeMap`, the runtime's clock and timers, [`StepOutput::random`](crate::StepOutput::random),
//! [`StepOutput::system_time`](crate::StepOutput::system_time) and
//! [`StepOutput::blocking`](crate::StepOutput::blocking). A simulation runs some seeds twice, and names the turn in
//! which the two runs differ. Pools, tasks and tasklets that a program makes itself run on real threads, so a
//! simulation cannot decide about them.
//!
//! # The simulated parts
//!
//! The world runs the runtime's own turn. So mailboxes, bounds, relations, names, groups, questions and supervisors are
//! those of every runtime. Before each yield of a step is performed, others may have their turns, as on another worker.
//! A world has one thread. So a wait returns only when all waits that began later have ended: two closures cannot wait
//! for each other. With [`Delivery::PerPair`], a message may come later than messages to others, as between two
//! computers. If more than 256 turns are possible, the world chooses among the 256 that have been possible for the
//! longest time.

mod decision;
mod schedule;
mod tape;
mod replay_seed;
mod shrink;
mod coverage;
mod regressions;
mod trace;
mod report;
mod progress;
#[cfg(all(test, not(loom)))]
mod small_world;
mod decider;
mod fold;
mod failure;
mod failed_run;
mod faults;
mod trace_formatter;
mod delivery;
mod recorder;
mod entries;
mod state;
mod invariants;
mod kills;
#[cfg(feature = "cluster")]
mod frames;
mod shared;
mod executor;
mod delayed_delivery;
mod engine;
mod waits;
mod driving;
mod host;
mod trace_observer;
mod world;
mod program;
#[cfg(feature = "durable")]
mod stores;
#[cfg(feature = "cluster")]
mod network;
mod one_run;
#[cfg(feature = "cluster")]
mod pauses;
#[cfg(feature = "cluster")]
mod pausing;
mod trace_builder;
#[allow(clippy::module_inception)]
mod simulation;

pub use self::delivery::Delivery;
pub use self::failed_run::FailedRun;
pub use self::faults::{Fault, Faults, StepFault};
#[cfg(feature = "cluster")]
pub use self::network::WorldNetwork;
pub use self::schedule::Schedule;
pub use self::simulation::{DEFAULT_MAX_TIME, DEFAULT_MAX_TURNS, DEFAULT_SEEDS, Simulation, SimulationReport};
pub use self::state::{WaitingMessage, WorldState};
pub use self::world::{World, ensure};
