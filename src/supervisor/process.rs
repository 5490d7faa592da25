//! The supervisor: a process whose mail is other processes' exits.
//!
//! Every event only changes what is wanted of children: their phases, and the *batch* to which they belong. Then
//! [`carry_on`](Supervisor::carry_on) does whatever has become possible. In a batch, those that are to be stopped are
//! stopped in reverse, one after the other; when none is left, those that are to be started are started in order, one after
//! the other, and after the delay of the batch if it has one. Different batches know nothing of each other, so a child that
//! takes long, or waits for its delay, holds up only its own batch. And only a batch in which something has changed is
//! looked at, and in it only who is next: so what an event costs does not grow with the children.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::child::{Child, Goal, Moves, Phase};
use super::config::Config;
use super::message::{SupervisorError, SupervisorMessage};
use super::spec::ChildSpec;
use crate::Event;
use crate::Events;
use crate::Pid;
use crate::Process;
use crate::Reply;
use crate::Step;
use crate::StepOutput;
use crate::StepResult;
use crate::Tag;
use crate::TimerFired;

/// A process that starts other processes, restarts those that fail, and stops them when it ends.
///
/// Made with [`Supervisor::builder`], spawned like any process, told [`SupervisorMessage`]s. Asked to stop (with a cancel
/// request), it stops its children in reverse order of their start, each in its own time, and is done when the last has
/// ended. Terminated by force, it takes its children with it through their links.
pub struct Supervisor {
    pub(super) config: Config,
    /// By number, which is the order of their start.
    pub(super) children: BTreeMap<u64, Child>,
    pub(super) by_id: HashMap<Arc<str>, u64>,
    pub(super) by_pid: HashMap<Pid, u64>,
    /// Those who have a process that is not to be stopped.
    pub(super) running: BTreeSet<u64>,
    /// Those with whom something is to be done, by batch.
    pub(super) batches: HashMap<u64, Batch>,
    /// Batches in which something has changed since it was last looked what is possible.
    pub(super) changed: BTreeSet<u64>,
    /// Of the children that it has from the beginning, those that have not been up yet.
    pub(super) first: BTreeSet<u64>,
    /// Delays of batches.
    pub(super) gates: HashMap<u64, Tag<TimerFired>>,
    pub(super) timers: HashMap<u64, Timer>,
    /// Children whose begin is to be answered, by tag.
    pub(super) begins: HashMap<u64, u64>,
    pub(super) numbers: u64,
    pub(super) life: Life,
    /// Those who wait for all to have started.
    pub(super) starters: Vec<Reply<()>>,
}

pub(super) enum Life {
    New,
    Starting,
    Up,
    Ending(Option<SupervisorError>),
    /// It fails with its next step, for a step that fails has no effects, and the last one may have had some.
    Failed(Box<SupervisorError>),
}

/// Children that are stopped, and then started, one after the other.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) stopping: BTreeSet<u64>,
    pub(super) starting: BTreeSet<u64>,
}

impl Batch {
    pub(super) fn all(&self, from: u64) -> impl Iterator<Item = u64> {
        self.stopping.range(from..).chain(self.starting.range(from..)).copied()
    }

    /// Whether all come from this one on.
    pub(super) fn begins_at(&self, from: u64) -> bool {
        self.stopping.first().into_iter().chain(self.starting.first()).all(|first| *first >= from)
    }

    pub(super) fn len(&self) -> usize {
        self.stopping.len() + self.starting.len()
    }
}

#[derive(Clone, Copy)]
pub(super) enum Timer {
    /// The delay of a batch.
    Gate(u64),
    /// A child's time to stop.
    Limit(u64),
    /// The delay of a child that is restarted in place.
    InPlace(u64),
    /// Until a child that is a supervisor is asked again whether its children are up.
    Ask(u64, Pid, Tag<TimerFired>),
}

/// The batch in which all are started for the first time.
pub(super) const FIRST: u64 = 0;

impl Supervisor {
    pub(super) fn with(config: Config, specs: Vec<ChildSpec>) -> Supervisor {
        let mut supervisor = Supervisor {
            config,
            children: BTreeMap::new(),
            by_id: HashMap::new(),
            by_pid: HashMap::new(),
            running: BTreeSet::new(),
            batches: HashMap::new(),
            changed: BTreeSet::new(),
            first: BTreeSet::new(),
            gates: HashMap::new(),
            timers: HashMap::new(),
            begins: HashMap::new(),
            numbers: FIRST,
            life: Life::New,
            starters: Vec::new(),
        };
        for spec in specs {
            let key = supervisor.insert(Child::new(spec, FIRST));
            supervisor.first.insert(key);
        }
        supervisor
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn insert(&mut self, child: Child) -> u64 {
        let key = self.number();
        self.by_id.insert(child.spec.id.clone(), key);
        self.file(key, child.batch, child.moves());
        self.children.insert(key, child);
        key
    }

    /// Notes with its batch that something is to be done with a child.
    fn file(&mut self, key: u64, batch: u64, moves: Moves) {
        match moves {
            Moves::Down => self.batches.entry(batch).or_default().stopping.insert(key),
            Moves::Up => self.batches.entry(batch).or_default().starting.insert(key),
            Moves::Not => return,
        };
        self.changed.insert(batch);
    }

    /// The other way round.
    fn unfile(&mut self, key: u64, batch: u64) {
        let Some(members) = self.batches.get_mut(&batch) else { return };
        if members.stopping.remove(&key) | members.starting.remove(&key) {
            self.changed.insert(batch);
        }
        if members.stopping.is_empty() && members.starting.is_empty() {
            self.batches.remove(&batch);
        }
    }

    /// Changes a child, and files it anew if it belongs elsewhere now.
    pub(super) fn change(&mut self, key: u64, change: impl FnOnce(&mut Child)) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let before = (child.batch, child.moves());
        change(child);
        let now = (child.batch, child.moves());
        if child.pid().is_some() && !child.is_to_stop() {
            self.running.insert(key);
        } else {
            self.running.remove(&key);
        }
        if matches!(child.phase, Phase::Up { .. } | Phase::Down) {
            self.first.remove(&key);
        }
        if now != before {
            self.unfile(key, before.0);
            self.file(key, now.0, now.1);
        }
    }

    pub(super) fn remove(&mut self, key: u64, out: &mut StepOutput) {
        if let Some(mut child) = self.children.remove(&key) {
            child.tell_down(out);
            self.by_id.remove(&child.spec.id);
            self.first.remove(&key);
            self.running.remove(&key);
            self.unfile(key, child.batch);
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.life, Life::Ending(_) | Life::Failed(_))
    }

    /// Changes where a child is.
    pub(super) fn set(&mut self, key: u64, phase: Phase) {
        self.change(key, |child| child.phase = phase);
    }

    /// Has a child stopped, if it is up, in this batch; what becomes of it then. One without a process has stopped already.
    pub(super) fn want_stopped(&mut self, key: u64, batch: u64, goal: Goal, out: &mut StepOutput) {
        self.forget_timer(self.children.get(&key).and_then(Child::delay), out);
        let (now, stable) = (out.now(), self.config.backoff.as_ref().map(|backoff| backoff.stable));
        self.change(key, |child| {
            (child.batch, child.goal) = (batch, goal);
            child.is_up_no_more(now, stable);
            if let (Some(pid), false) = (child.pid(), child.is_to_stop()) {
                child.phase = Phase::ToStop { pid };
            }
        });
        if self.children.get(&key).is_some_and(|child| child.pid().is_none()) {
            self.stopped(key, out);
        }
    }

    /// A child that was to be stopped has no process any more.
    pub(super) fn stopped(&mut self, key: u64, out: &mut StepOutput) {
        let Some(child) = self.children.get_mut(&key) else { return };
        match child.goal {
            Goal::Start => {
                child.tell_stopped(out);
                self.set(key, Phase::Queued);
            }
            Goal::Stay => {
                child.tell_down(out);
                child.is_new = false;
                self.set(key, Phase::Down);
            }
            Goal::Forget => self.remove(key, out),
        }
    }

    /// Takes a timer back.
    pub(super) fn forget_timer(&mut self, timer: Option<Tag<TimerFired>>, out: &mut StepOutput) {
        let Some(timer) = timer else { return };
        if let Some(Timer::Gate(batch)) = self.timers.remove(&timer.id()) {
            self.gates.remove(&batch);
        }
        out.cancel_timer(timer);
    }

    /// If the runtime shuts down, the supervisor ends, though it may not have been told yet: there will be no children any
    /// more, and nobody is to blame for those who have ended, or have not begun.
    pub(super) fn ends_with_the_runtime(&mut self, out: &mut StepOutput) -> bool {
        let ends = out.is_shutting_down();
        if ends {
            self.end(None, out);
        }
        ends
    }

    /// The supervisor is to end: with its first reason.
    pub(super) fn end(&mut self, why: Option<SupervisorError>, out: &mut StepOutput) {
        if self.is_ending() {
            return;
        }
        self.life = Life::Ending(why);
        // Whoever waits for all to be up learns that they will not be.
        self.starters.clear();
        for timer in self.gates.values().copied().collect::<Vec<_>>() {
            self.forget_timer(Some(timer), out);
        }
        let batch = self.number();
        for key in self.children.keys().copied().collect::<Vec<_>>() {
            self.want_stopped(key, batch, Goal::Forget, out);
        }
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.children.values().map(|child| &child.spec.id);
        f.debug_struct("Supervisor")
            .field("strategy", &self.config.strategy)
            .field("children", &ids.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Process for Supervisor {
    type Message = SupervisorMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, SupervisorMessage>, out: &mut StepOutput) -> StepResult<()> {
        match std::mem::replace(&mut self.life, Life::Starting) {
            Life::New => out.trap_exits(true),
            Life::Failed(error) => return Err(error),
            life => self.life = life,
        }
        let mut let_go = Vec::new();
        for event in events {
            match event {
                Event::Exit(signal) => match self.by_pid.remove(&signal.pid) {
                    Some(key) => self.ended(key, signal.into_inner().exit, out),
                    None if signal.exit.is_done() || let_go.contains(&signal.pid) => {}
                    None => {
                        let (pid, exit) = (signal.pid, signal.into_inner().exit);
                        self.end(Some(SupervisorError::Linked { pid, exit }), out);
                    }
                },
                // Of one that is being stopped, and has perhaps taken its link away. If not, its exit is no news any more: no
                // later step is told of it, but this one may be.
                Event::Down(down) => {
                    if let Some(key) = self.by_pid.remove(&down.pid) {
                        out.unlink(down.pid);
                        let_go.push(down.pid);
                        self.ended(key, down.into_inner().exit, out);
                    }
                }
                Event::Recovered(recovered) => self.recovered(recovered.into_inner(), out),
                Event::Cancel(_) => self.end(None, out),
                Event::Completed(done) => {
                    if let Some(key) = self.begins.remove(&done.tag()) {
                        self.begun(key, &done, out);
                    } else if let Some(timer) = self.timers.remove(&done.tag()) {
                        self.elapsed(timer, &done, out);
                    }
                }
                Event::Message(message) => self.order(message.order, out),
                _ => {}
            }
        }
        self.carry_on(out);
        match &mut self.life {
            Life::Ending(why) if self.children.is_empty() => match why.take() {
                None => Ok(Step::Done(())),
                Some(error) => {
                    self.life = Life::Failed(Box::new(error));
                    Ok(Step::Continue)
                }
            },
            // What was done may have made more possible: a child that could not be spawned makes room for what comes then.
            _ if !self.changed.is_empty() => Ok(Step::Continue),
            _ => Ok(Step::Idle),
        }
    }
}
