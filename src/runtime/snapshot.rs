//! All figures of a runtime at one moment.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::dispatch::Core;
use super::histogram::Histogram;
use super::inspect::{ExitCounts, ProcessState, Stats, state};
use super::part_stats::{ClusterStats, ShutdownStats, StoreStats};
use super::system::Runtime;
use crate::pid::Pid;
use crate::pool::PoolStats;
use crate::process::StuckStep;
use crate::sched::body::Kind;
use crate::sched::cell::Look;
use crate::sched::count::Count;
use crate::sched::figures::{Directory, Figures, MOST_TYPES, OTHER, Row};
use crate::shutdown::Report;
use crate::task::TaskStats;

/// The most mailboxes that a snapshot lists.
const MOST_MAILBOXES: usize = 100;

/// All figures of a runtime at one moment, as [`Runtime::snapshot`] returns them.
///
/// With the feature `serde` it can be written and read, for example as JSON. A reader ignores fields that it does not
/// know, and takes the default for those that are missing.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Snapshot {
    /// The time since the runtime was started.
    pub uptime: Duration,
    /// The counts of the runtime and of its workers.
    pub stats: Stats,
    /// The figures of each type of process that was seen, by name. Empty without
    /// [`RuntimeBuilder::metrics`](crate::config::RuntimeBuilder::metrics).
    pub types: Vec<TypeFigures>,
    /// The dead letters that count for no type. Their receivers never lived, are durable, are on other nodes, or are
    /// gone for so long that another process has their place. Zero without `metrics`.
    pub dead_without_type: u64,
    /// The processes with the largest mailboxes, largest first: at most 100. Processes with empty mailboxes are not
    /// listed.
    pub mailboxes: Vec<MailboxFigures>,
    /// The steps that are stuck, if there is a [`Watchdog`](crate::config::Watchdog).
    pub stuck: Vec<StuckProcess>,
    /// The counts of pools, by name: see [`with_pool`](Self::with_pool). That of the runtime, which runs blocking work,
    /// is there without being added, and is called `blocking`.
    pub pools: BTreeMap<String, PoolStats>,
    /// The counts of schedulers of tasks, by name: see [`with_tasks`](Self::with_tasks).
    pub tasks: BTreeMap<String, TaskStats>,
    /// The nodes of a shutdown tree by phase: see [`with_shutdown`](Self::with_shutdown).
    pub shutdown: Option<ShutdownStats>,
    /// The counts of a store of durable processes: see [`with_store`](Self::with_store).
    pub store: Option<StoreStats>,
    /// The counts of a node of a cluster: see [`with_cluster`](Self::with_cluster).
    pub cluster: Option<ClusterStats>,
}

/// The figures of a type of process since the runtime was started.
///
/// A type is its [name](crate::Process::type_name). The first 1,024 types are listed. All others together have the name
/// `other`.
///
/// While no step runs, `spawned + became = living + ended + left`.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct TypeFigures {
    /// The name of the type.
    pub type_name: String,
    /// The number of living processes.
    pub living: u64,
    /// The number of processes that were spawned.
    pub spawned: u64,
    /// The number of processes that have ended, by kind of exit.
    pub ended: ExitCounts,
    /// The number of times that a process has failed and was replaced in place.
    pub recovered: u64,
    /// The number of processes of other types that an upgrade or a recovery has made processes of this type.
    pub became: u64,
    /// The number of processes that an upgrade or a recovery has made processes of other types.
    pub left: u64,
    /// The number of steps that have returned.
    pub steps: u64,
    /// The number of messages that successful steps have taken.
    pub messages: u64,
    /// The number of dead letters whose receivers are or were of this type.
    pub dead: u64,
    /// The number of messages that wait in mailboxes now.
    pub waiting: u64,
    /// The longest mailbox now, and its process. `None` if no message waits.
    pub longest: Option<LongestMailbox>,
    /// The times of steps. Only some are measured:
    /// [`MetricsOptions::time_one_in`](crate::observe::MetricsOptions::time_one_in) says how many. The time is from the
    /// beginning of the step until it has returned. The first step of a process includes `init` and `start`. Steps on
    /// the pool are not timed.
    pub step_times: Histogram,
    /// How long messages have waited in the mailbox, from the moment at which they entered it to the beginning of the
    /// step that has taken them out. Only some are measured:
    /// [`MetricsOptions::wait_one_in`](crate::observe::MetricsOptions::wait_one_in) says how many. A message that a
    /// step [passes over](crate::Events::select) has waited until that step.
    pub wait_times: Histogram,
    /// The sums of [`StepOutput::count`](crate::StepOutput::count), by name. The first 256 names of a type are listed.
    /// All others together have the name `other`.
    pub counted: BTreeMap<String, u64>,
}

/// The longest mailbox of a type of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LongestMailbox {
    /// The process.
    #[cfg_attr(feature = "serde", serde(with = "super::coded_figures::pid"))]
    pub pid: Pid,
    /// The number of messages in the mailbox.
    #[cfg_attr(feature = "serde", serde(default))]
    pub messages: u64,
}

/// A process with a large mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MailboxFigures {
    /// The process.
    #[cfg_attr(feature = "serde", serde(with = "super::coded_figures::pid"))]
    pub pid: Pid,
    /// Its oldest name, if it has one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: Option<String>,
    /// The type of the process.
    #[cfg_attr(feature = "serde", serde(default))]
    pub type_name: String,
    /// The state of the process. `None` if a later version has written a state that this one does not know.
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "known_state"))]
    pub state: Option<ProcessState>,
    /// The number of messages in its mailbox.
    #[cfg_attr(feature = "serde", serde(default))]
    pub messages: u64,
}

/// A step that is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct StuckProcess {
    /// The process that is being stepped.
    #[cfg_attr(feature = "serde", serde(with = "super::coded_figures::pid"))]
    pub pid: Pid,
    /// Its name, if it has one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: Option<String>,
    /// The type of the process.
    #[cfg_attr(feature = "serde", serde(default))]
    pub type_name: String,
    /// The event that the step had taken last when the watchdog found it stuck, in words.
    #[cfg_attr(feature = "serde", serde(default))]
    pub doing: String,
    /// The time for which the step has run.
    #[cfg_attr(feature = "serde", serde(default))]
    pub running_for: Duration,
}

/// Reads a state, if this version knows it.
#[cfg(feature = "serde")]
fn known_state<'a, D: serde::Deserializer<'a>>(from: D) -> Result<Option<ProcessState>, D::Error> {
    use serde::Deserialize as _;
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StringDeserializer};

    let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let name: StringDeserializer<Error> = name.into_deserializer();
    Ok(ProcessState::deserialize(name).ok())
}

impl From<StuckStep> for StuckProcess {
    fn from(step: StuckStep) -> StuckProcess {
        StuckProcess {
            pid: step.process.pid,
            name: step.process.name.map(|name| name.to_string()),
            type_name: step.process.type_name.to_string(),
            doing: step.doing.to_string(),
            running_for: step.running_for,
        }
    }
}

/// The mailboxes of one type.
#[derive(Clone, Default)]
struct Mailboxes {
    waiting: u64,
    longest: Option<LongestMailbox>,
}

/// The mailboxes of all processes.
#[derive(Default)]
struct Walk {
    queued: u64,
    /// By the place of the type.
    types: Vec<Mailboxes>,
    /// The smallest of the largest is on top.
    largest: BinaryHeap<Reverse<(u32, Pid)>>,
    /// The type that was seen last, and its place. Processes of one type often lie side by side.
    last: Option<(&'static Kind, usize)>,
}

impl Walk {
    fn visits(&mut self, pid: Pid, look: &Look, directory: Option<&Directory>) {
        if look.queued == 0 {
            return;
        }
        let messages = u64::from(look.queued);
        self.queued += messages;
        if self.largest.len() < MOST_MAILBOXES {
            self.largest.push(Reverse((look.queued, pid)));
        } else if let Some(mut least) = self.largest.peek_mut()
            && least.0.0 < look.queued
        {
            *least = Reverse((look.queued, pid));
        }
        let Some(directory) = directory else { return };
        let place = match self.last {
            Some((kind, place)) if std::ptr::eq(kind, look.kind) => place,
            _ => directory.place(look.kind),
        };
        self.last = Some((look.kind, place));
        if self.types.is_empty() {
            self.types = vec![Mailboxes::default(); MOST_TYPES + 1];
        }
        let mailboxes = &mut self.types[place];
        mailboxes.waiting += messages;
        if mailboxes.longest.is_none_or(|longest| longest.messages < messages) {
            mailboxes.longest = Some(LongestMailbox { pid, messages });
        }
    }
}

impl Core {
    /// The figures at this moment. The counts are read first. Then each cell is looked at, one after the other.
    pub(crate) fn snapshot(&self, stuck: Vec<StuckStep>) -> Snapshot {
        let (road, directory) = (&self.road, self.road.directory.as_deref());
        let figures: Vec<&Figures> = self.all_counters().filter_map(|counters| counters.figures.as_deref()).collect();
        // The dead letters of the types first: all of them are among those of the runtime, which are read next.
        let mut types = directory.map_or(Vec::new(), |directory| types(directory, &figures));
        let uptime = Duration::from_nanos(road.now_nanos());
        let mut stats = self.counts();
        let mut walk = Walk::default();
        for (slot, cell) in road.table.cells() {
            if let Some(look) = cell.look()
                && let Some(pid) = road.table.pid(slot, look.generation)
            {
                walk.visits(pid, &look, directory);
            }
        }
        stats.messages.queued = walk.queued;
        for (place, figures) in &mut types {
            if let Some(mailboxes) = walk.types.get(*place) {
                (figures.waiting, figures.longest) = (mailboxes.waiting, mailboxes.longest);
            }
        }
        let mut types: Vec<TypeFigures> = types.into_iter().map(|(_, figures)| figures).collect();
        types.sort_by(|one, other| one.type_name.cmp(&other.type_name));
        let with_type = types.iter().map(|figures| figures.dead).sum();
        let dead = if directory.is_some() { stats.messages.dead() } else { 0 };
        Snapshot {
            uptime,
            types,
            dead_without_type: dead.saturating_sub(with_type),
            mailboxes: self.mailboxes(walk.largest),
            stuck: stuck.into_iter().map(StuckProcess::from).collect(),
            stats,
            pools: BTreeMap::from([("blocking".to_string(), self.pool.stats())]),
            ..Snapshot::default()
        }
    }

    /// Describes these processes, largest mailbox first. One that has ended meanwhile is left out.
    fn mailboxes(&self, largest: BinaryHeap<Reverse<(u32, Pid)>>) -> Vec<MailboxFigures> {
        let running = self.running();
        let described = largest.into_sorted_vec().into_iter().filter_map(|Reverse((queued, pid))| {
            let look = self.look(pid)?;
            Some(MailboxFigures {
                pid,
                name: self.names.of(pid).first().map(|name| name.to_string()),
                type_name: (look.kind.process)().to_string(),
                state: Some(state(look.rest, running.contains_key(&pid.to_word()))),
                messages: u64::from(queued),
            })
        });
        described.collect()
    }
}

/// The figures by type, of all writers together, with their places. Those of mailboxes are not there yet.
fn types(directory: &Directory, figures: &[&Figures]) -> Vec<(usize, TypeFigures)> {
    directory
        .types()
        .into_iter()
        .enumerate()
        .chain([(MOST_TYPES, OTHER)])
        .filter_map(|(place, name)| {
            let rows: Vec<&Row> = figures.iter().filter_map(|figures| figures.look(place)).collect();
            // All others have a line only if there are some.
            (place < MOST_TYPES || !rows.is_empty()).then(|| (place, of_type(name, &rows, &directory.names(place))))
        })
        .collect()
}

fn of_type(name: &str, rows: &[&Row], names: &[(&'static str, usize)]) -> TypeFigures {
    let sum = |which: fn(&Row) -> &Count| rows.iter().map(|row| which(row).get()).sum::<u64>();
    // Ends are read before spawns.
    let ended = ExitCounts {
        done: sum(|row| &row.done),
        failed: sum(|row| &row.failed),
        panicked: sum(|row| &row.panicked),
        terminated: sum(|row| &row.terminated),
    };
    let left = sum(|row| &row.left);
    let (spawned, became) = (sum(|row| &row.spawned), sum(|row| &row.became));
    let counted = names.iter().map(|(name, place)| {
        let of_row = |row: &&Row| row.counted.get().map_or(0, |counted| counted[*place].get());
        // A user's number may be large. It wraps, as in each row.
        ((*name).to_string(), rows.iter().map(of_row).fold(0, u64::wrapping_add))
    });
    TypeFigures {
        type_name: name.to_string(),
        living: (spawned + became).saturating_sub(ended.total() + left),
        spawned,
        ended,
        recovered: sum(|row| &row.recovered),
        became,
        left,
        steps: sum(|row| &row.steps),
        messages: sum(|row| &row.messages),
        dead: sum(|row| &row.dead),
        waiting: 0,
        longest: None,
        step_times: Histogram::add_up(rows.iter().map(|row| (&row.times, row.time.get()))),
        wait_times: Histogram::add_up(rows.iter().map(|row| (&row.waits, row.wait.get()))),
        counted: counted.filter(|(_, sum)| *sum > 0).collect(),
    }
}

impl Runtime {
    /// All figures of the runtime at this moment.
    ///
    /// It works on the calling thread and needs no worker, so it also works while all workers are stuck. It looks at
    /// each process, one after the other, for a moment. [`stats`](Self::stats) has the counts alone.
    /// [`RuntimeBuilder::metrics`](crate::config::RuntimeBuilder::metrics) adds the figures by type.
    ///
    /// ```
    /// use procession::Runtime;
    /// use procession::observe::MetricsOptions;
    ///
    /// let runtime = Runtime::builder().workers(1).metrics(MetricsOptions::new()).start()?;
    /// // For example the answer to a request for `/metrics`.
    /// let text = runtime.snapshot().to_openmetrics();
    /// assert!(text.ends_with("# EOF\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        self.core().snapshot(self.stuck_steps())
    }
}

impl Snapshot {
    /// Adds the counts of a pool. All pools of a snapshot have different names: one with the same name is replaced.
    ///
    /// ```
    /// use procession::pool::Pool;
    /// use procession::task::TaskScheduler;
    /// use procession::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let images = Pool::builder().max(2).build()?;
    /// let snapshot = runtime.snapshot().with_pool("images", images.stats());
    /// assert!(snapshot.to_openmetrics().contains("procession_pool_submitted_total{pool=\"images\"} 0"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_pool(mut self, name: impl Into<String>, stats: PoolStats) -> Snapshot {
        self.pools.insert(name.into(), stats);
        self
    }

    /// Adds the counts of a scheduler of tasks. One with the same name is replaced.
    #[must_use]
    pub fn with_tasks(mut self, name: impl Into<String>, stats: TaskStats) -> Snapshot {
        self.tasks.insert(name.into(), stats);
        self
    }

    /// Adds the number of nodes of a shutdown tree, by phase. A [report](crate::shutdown::ShutdownNode::report) visits
    /// all nodes of the tree.
    #[must_use]
    pub fn with_shutdown(mut self, report: &Report) -> Snapshot {
        self.shutdown = Some(report.into());
        self
    }

    /// Adds the counts of a store of durable processes.
    #[must_use]
    pub fn with_store(mut self, stats: StoreStats) -> Snapshot {
        self.store = Some(stats);
        self
    }

    /// Adds the counts of a node of a cluster.
    #[must_use]
    pub fn with_cluster(mut self, stats: ClusterStats) -> Snapshot {
        self.cluster = Some(stats);
        self
    }
}
