//! The unique names of a node: the machine of the leases with its lock, and the claims of its processes.
//!
//! Each call changes the machine, hands the frames to the connections, and tells the groups of this node's holdings,
//! under one lock. So all have the same order. Processes, watchers and wakers are left for the moment when the lock is
//! free.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use super::groups::{ClusterNameError, Groups, Shares, check_length};
use super::leases::{Effect, LeaseFrame, Leases, MOST};
use crate::clock::Clock;
use crate::inside::WaitError;
use crate::latch::{Latch, LatchFuture};
use crate::outcome::{BoxError, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, Weak, lock};
use crate::process::NoSuchProcessError;
use crate::process::host::Host as _;
use crate::runtime::timed::Timed;
use crate::runtime::{Core, ExitWatcher};
use crate::sched::lease::Lease;

/// Why a claim to a unique name has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum UniqueClaimEnd {
    /// No majority of the voters could be reached for 5 s.
    #[error("no majority of the voters was connected for 5 s: start the missing voters and claim the name again")]
    NoMajority,
    /// The process had the name, and its lease could not be renewed. The process was terminated.
    #[error("the unique name was lost, because no majority of the voters could be reached")]
    Lost,
    /// The claim was released, its process has ended, or its node has left the cluster.
    #[error("the claim was released, its process has ended, or its node has left the cluster")]
    Released,
}

/// A claim to a unique name. Made by [`Cluster::claim_unique`](super::Cluster::claim_unique).
///
/// It is a future that resolves when the process has the name, with the token of the holding. A process passes it to
/// [`StepOutput::future`](crate::StepOutput::future). Dropping this value does not release the name.
#[derive(Debug)]
pub struct UniqueClaim {
    held: LatchFuture<Result<u64, UniqueClaimEnd>>,
    end: Latch<UniqueClaimEnd>,
    clock: Clock,
}

impl UniqueClaim {
    /// The token of the holding. `None` until the process has the name.
    ///
    /// It is greater than the tokens of all earlier holdings of the name.
    pub fn token(&self) -> Option<u64> {
        self.held.latch().get()?.ok()
    }

    /// The reason why the claim has ended. `None` while the process waits for the name, or has it.
    pub fn end(&self) -> Option<UniqueClaimEnd> {
        self.end.get()
    }

    /// Blocks the calling thread until the process has the name, or the claim has ended. Returns the token.
    ///
    /// # Errors
    /// The outer error says that the limit is over, or that the caller is a step. The inner one says why the claim has
    /// ended.
    pub fn wait_timeout(&self, limit: Duration) -> Result<Result<u64, UniqueClaimEnd>, WaitError> {
        self.held.latch().join(&self.clock, limit)
    }
}

impl Future for UniqueClaim {
    type Output = Result<u64, UniqueClaimEnd>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.held).poll(context)
    }
}

/// The connection to another node.
pub(crate) trait LeaseFrames: Shares {
    /// Sends a frame, behind those before it. If the connection is down, nothing happens.
    fn lease_frame(&self, frame: &LeaseFrame);
}

/// The unique names of a node.
pub(crate) struct UniqueNames<C> {
    state: Mutex<State<C>>,
    clock: Clock,
    start: Instant,
    core: Weak<Core>,
    groups: Arc<Groups<C>>,
    me: Weak<UniqueNames<C>>,
}

struct State<C> {
    leases: Leases,
    /// The connections, by incarnation.
    connections: BTreeMap<u64, Arc<C>>,
    /// The claims of this node that have not ended, by number.
    claims: BTreeMap<u64, Own>,
    /// The processes that have claims.
    watchers: BTreeMap<Pid, ExitWatcher>,
    /// When the timer is due that is set.
    timer: Option<Duration>,
    /// Whether processes of this node claim no names any more.
    is_closed: bool,
    has_left: bool,
    /// Nothing is done, as if the program was stopped.
    #[cfg(all(test, not(loom)))]
    is_stopped: bool,
}

/// A claim of a process of this node.
struct Own {
    name: String,
    pid: Pid,
    /// The token, when a majority has confirmed it.
    token: u64,
    /// Whether the owner of the body has the lease. Only then does the process hold the name.
    is_held: bool,
    lease: Arc<Lease>,
    held: Latch<Result<u64, UniqueClaimEnd>>,
    end: Latch<UniqueClaimEnd>,
}

/// The calls and drops that wait until the lock is free.
#[derive(Default)]
struct Later {
    leased: Vec<(Pid, Arc<Lease>)>,
    terminated: Vec<Pid>,
    held: Vec<(Latch<Result<u64, UniqueClaimEnd>>, u64)>,
    ended: Vec<(Own, UniqueClaimEnd)>,
    watchers: Vec<ExitWatcher>,
    /// The names of which there is no room to tell others.
    untold: Vec<(String, Pid)>,
    /// Processes that have ended.
    gone: Vec<Pid>,
}

impl<C> State<C> {
    /// Whether the node does nothing at all.
    fn is_stopped(&self) -> bool {
        #[cfg(all(test, not(loom)))]
        return self.is_stopped;
        #[cfg(not(all(test, not(loom))))]
        false
    }

    /// The number of the claim of a process to a name.
    fn number(&self, name: &str, pid: Pid) -> Option<u64> {
        self.claims.iter().find(|(_, own)| own.pid == pid && own.name == name).map(|(number, _)| *number)
    }
}

impl<C: LeaseFrames + 'static> UniqueNames<C> {
    /// Makes the unique names of a node with this incarnation and name.
    pub(crate) fn new(
        (here, name): (u64, &str),
        voters: &[String],
        core: &Arc<Core>,
        groups: &Arc<Groups<C>>,
    ) -> Arc<UniqueNames<C>> {
        let clock = core.road.clock.clone();
        let (start, wall) = (clock.now(), core.system_time());
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let leases = Leases::new(Duration::ZERO, (here, name), voters, wall);
        let (connections, claims, watchers) = Default::default();
        let state = State {
            leases,
            connections,
            claims,
            watchers,
            timer: None,
            is_closed: false,
            has_left: false,
            #[cfg(all(test, not(loom)))]
            is_stopped: false,
        };
        let (core, groups) = (Arc::downgrade(core), groups.clone());
        Arc::new_cyclic(|me| UniqueNames { state: Mutex::new(state), clock, start, core, groups, me: me.clone() })
    }

    /// Changes the machine, and carries out the effects.
    fn change<R>(&self, change: impl FnOnce(&mut State<C>, Duration, &mut Vec<Effect>, &mut Later) -> R) -> R {
        let (mut effects, mut later) = (Vec::new(), Later::default());
        let (result, timer) = {
            let state = &mut *lock(&self.state);
            // Read under the lock, so that the machine sees no time twice.
            let now = self.clock.now().saturating_duration_since(self.start);
            let result = change(state, now, &mut effects, &mut later);
            effects.into_iter().for_each(|effect| self.carry_out(state, effect, &mut later));
            let due = state.leases.due().filter(|due| !state.has_left && state.timer.is_none_or(|timer| timer > *due));
            state.timer = due.or(state.timer);
            (result, due.map(|due| (due, due.saturating_sub(now))))
        };
        if let Some(core) = self.core.upgrade() {
            if let Some((due, delay)) = timer {
                let me = self.me.clone();
                let tick = Box::new(move || me.upgrade().into_iter().for_each(|me| me.tick(due)));
                if core.timers.after(0, delay, Timed::Run(tick)).is_err() {
                    // The runtime shuts down, or there is no thread for timers. The next call tries again.
                    lock(&self.state).timer = None;
                }
            }
            for pid in later.terminated {
                let _ = core.terminate(&mut core.executor(), pid, false);
            }
            later.leased.into_iter().for_each(|(pid, lease)| core.road.give_lease(pid, lease));
            later.gone.into_iter().for_each(|pid| drop(core.road.new_leases.take(pid)));
        }
        later.held.into_iter().for_each(|(held, token)| _ = held.set(Ok(token)));
        for (own, end) in later.ended {
            let _ = own.held.set(Err(end));
            let _ = own.end.set(end);
        }
        for (name, pid) in later.untold {
            tell_log(|| tracing::error!(name, %pid, "the table of groups is full: other nodes do not see the holder"));
        }
        drop(later.watchers);
        result
    }

    fn carry_out(&self, state: &mut State<C>, effect: Effect, later: &mut Later) {
        match effect {
            Effect::Send(peer, frame) => {
                state.connections.get(&peer).into_iter().for_each(|connection| connection.lease_frame(&frame));
            }
            Effect::Held { number, token, until } => {
                if let Some(own) = state.claims.get_mut(&number) {
                    own.token = token;
                    own.lease.extend(until);
                    later.leased.push((own.pid, own.lease.clone()));
                }
            }
            Effect::Extended { number, until } => {
                state.claims.get(&number).into_iter().for_each(|own| own.lease.extend(until));
            }
            Effect::Lost { number } => {
                let Some(own) = state.claims.get(&number) else { return };
                if own.is_held {
                    own.lease.lose();
                    later.terminated.push(own.pid);
                } else {
                    own.lease.release();
                }
                self.end(state, number, UniqueClaimEnd::Lost, later);
            }
            Effect::NoMajority { number } => self.end(state, number, UniqueClaimEnd::NoMajority, later),
        }
    }

    /// A claim has ended, and the machine knows it.
    fn end(&self, state: &mut State<C>, number: u64, end: UniqueClaimEnd, later: &mut Later) {
        let Some(own) = state.claims.remove(&number) else { return };
        if own.is_held {
            self.groups.holds_no_more(&own.name, own.pid);
        }
        if state.claims.values().all(|other| other.pid != own.pid) {
            later.watchers.extend(state.watchers.remove(&own.pid));
        }
        later.ended.push((own, end));
    }

    /// The timer for this moment is due.
    fn tick(&self, due: Duration) {
        self.change(|state, now, effects, _| {
            // Otherwise an earlier one was set since, and goes on.
            if !state.is_stopped() && state.timer.take_if(|timer| *timer == due).is_some() {
                state.leases.tick(now, effects);
            }
        });
    }

    /// The owner of the body has the lease of a claim.
    fn taken(&self, number: u64) {
        self.change(|state, now, _, later| {
            let holds = state.leases.holds(now, number);
            match state.claims.get_mut(&number) {
                Some(own) if holds => {
                    own.is_held = true;
                    if !self.groups.holds(&own.name, own.pid, own.token) {
                        later.untold.push((own.name.clone(), own.pid));
                    }
                    later.held.push((own.held.clone(), own.token));
                }
                // The process was busy for longer than the lease. It has not held the name, and the claim is about to
                // end.
                Some(own) => own.lease.release(),
                None => {}
            }
        });
    }

    /// Has a process of this node claim a name.
    pub(crate) fn claim(&self, core: &Core, name: &str, pid: Pid) -> Result<UniqueClaim, ClusterNameError> {
        check_length("name", name)?;
        if !core.road.is_alive(pid) {
            return Err(NoSuchProcessError::Pid(pid).into());
        }
        let since = core.system_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let watcher = core.watch(&pid);
        let ended = watcher.latch().clone();
        let (claim, is_watched) = self.change(|state, now, effects, later| {
            // Not dropped under the lock, whatever comes.
            later.watchers.push(watcher);
            if state.is_closed || state.has_left {
                return Err(ClusterNameError::Left);
            }
            if !state.leases.has_voters() {
                return Err(ClusterNameError::NoMajority);
            }
            let number = match state.number(name, pid) {
                Some(number) => number,
                None if state.claims.len() >= MOST => return Err(ClusterNameError::TooManyClaims),
                None => {
                    let number = state.leases.claim(now, name, since, effects);
                    let me = self.me.clone();
                    let taken = move || me.upgrade().into_iter().for_each(|me| me.taken(number));
                    let lease = Lease::new(self.start, taken);
                    let (name, held, end) = (name.into(), Latch::new(), Latch::new());
                    state.claims.insert(number, Own { name, pid, token: 0, is_held: false, lease, held, end });
                    number
                }
            };
            let watcher = if state.watchers.contains_key(&pid) { None } else { later.watchers.pop() };
            let is_watched = watcher.is_some();
            state.watchers.extend(watcher.map(|watcher| (pid, watcher)));
            let own = &state.claims[&number];
            let held = LatchFuture::new(own.held.clone());
            Ok((UniqueClaim { held, end: own.end.clone(), clock: self.clock.clone() }, is_watched))
        })?;
        if is_watched {
            // If it has ended in between, its claims end now.
            let me = self.me.clone();
            ended.on_set(move |_| me.upgrade().into_iter().for_each(|me| me.process_ended(pid))).keep();
        }
        Ok(claim)
    }

    /// Releases a name. Returns whether this process had a claim to it.
    pub(crate) fn release(&self, name: &str, pid: Pid) -> bool {
        self.change(|state, now, effects, later| {
            let number = state.number(name, pid);
            number.into_iter().for_each(|number| self.release_claim(state, now, number, effects, later));
            number.is_some()
        })
    }

    fn release_claim(
        &self,
        state: &mut State<C>,
        now: Duration,
        number: u64,
        effects: &mut Vec<Effect>,
        later: &mut Later,
    ) {
        // First, so that it is no holder any more when another one may be.
        state.claims.get(&number).into_iter().for_each(|own| own.lease.release());
        self.end(state, number, UniqueClaimEnd::Released, later);
        state.leases.release(now, number, effects);
    }

    fn release_all(
        &self,
        state: &mut State<C>,
        now: Duration,
        is_meant: impl Fn(&Own) -> bool,
        (effects, later): (&mut Vec<Effect>, &mut Later),
    ) {
        let meant = state.claims.iter().filter(|(_, own)| is_meant(own)).map(|(number, _)| *number);
        for number in meant.collect::<Vec<_>>() {
            self.release_claim(state, now, number, effects, later);
        }
    }

    fn process_ended(&self, pid: Pid) {
        self.change(|state, now, effects, later| {
            self.release_all(state, now, |own| own.pid == pid, (effects, later));
            later.gone.push(pid);
        });
    }

    /// A node is connected.
    pub(crate) fn up(&self, peer: (u64, &str), connection: &Arc<C>) {
        self.change(|state, now, effects, _| {
            if state.connections.insert(peer.0, connection.clone()).is_some() {
                state.leases.down(now, peer.0, effects);
            }
            state.leases.up(now, peer, effects);
        });
    }

    /// This connection to a node is down.
    pub(crate) fn down(&self, peer: u64, connection: &Arc<C>) {
        self.change(|state, now, effects, _| {
            if state.connections.get(&peer).is_some_and(|up| Arc::ptr_eq(up, connection)) {
                state.connections.remove(&peer);
                state.leases.down(now, peer, effects);
            }
        });
    }

    /// Takes a frame of another node.
    pub(crate) fn receive(&self, peer: u64, connection: &C, frame: LeaseFrame) -> Result<(), BoxError> {
        self.change(|state, now, effects, _| {
            if !state.is_stopped() && state.connections.get(&peer).is_some_and(|up| std::ptr::eq(&**up, connection)) {
                state.leases.receive(now, peer, frame, effects)
            } else {
                Ok(())
            }
        })
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn stop(&self, is_stopped: bool) {
        self.change(|state, now, effects, _| {
            state.is_stopped = is_stopped;
            if !is_stopped {
                state.timer = None;
                state.leases.tick(now, effects);
            }
        });
    }

    /// This node begins to shut down. Its processes claim no names any more, and those that wait for one are told. The
    /// holders keep theirs until they end.
    pub(crate) fn close(&self) {
        self.change(|state, now, effects, later| {
            state.is_closed = true;
            self.release_all(state, now, |own| !own.is_held, (effects, later));
        });
    }

    /// This node has left the cluster.
    pub(crate) fn left(&self) {
        self.change(|state, now, effects, later| {
            // Processes that have ended have no claims any more. One that is stuck in a step may go on with it, so its
            // leases last.
            for number in state.claims.keys().copied().collect::<Vec<_>>() {
                self.end(state, number, UniqueClaimEnd::Released, later);
                state.leases.abandon(now, number, effects);
            }
            state.has_left = true;
        });
    }
}
