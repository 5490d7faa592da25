//! A voter: the leases that it has granted, and the claims that wait.
//!
//! A voter keeps nothing on disk. So it grants nothing for a lease after its start: by then, the leases that it may
//! have granted before have ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{LEASE, LeaseFrame, MOST};

/// A claim, in the order in which claims of a split vote give way to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimKey {
    /// The time of the claim, by the wall clock of its node.
    pub(super) since: u64,
    /// The incarnation of its node.
    pub(super) node: u64,
    /// The number of the claim on its node.
    pub(super) number: u64,
}

/// A lease that was granted.
#[derive(Debug)]
struct Lease {
    claim: ClaimKey,
    /// When the request was sent to which the voter has answered last, by the clock of the claimant.
    sent: u64,
    until: Duration,
    token: u64,
}

/// A claim that waits.
#[derive(Debug)]
struct Waiting {
    claim: ClaimKey,
    /// When its last request was sent, by the clock of the claimant.
    sent: u64,
    /// Its token, if a majority has granted it.
    token: u64,
}

/// A name that is claimed.
#[derive(Debug, Default)]
struct Votes {
    lease: Option<Lease>,
    /// In the order of their arrival.
    queue: VecDeque<Waiting>,
}

/// A request that has arrived.
pub(super) struct Request {
    pub(super) name: String,
    pub(super) claim: ClaimKey,
    pub(super) sent: u64,
    pub(super) token: u64,
}

/// The frames that a voter sends, with the incarnations of their receivers.
pub(super) type Answers = Vec<(u64, LeaseFrame)>;

/// Too many claims of one node wait.
#[derive(Debug)]
pub(super) struct TooMany;

#[derive(Debug)]
pub(super) struct Voter {
    /// It grants nothing before.
    opens_at: Duration,
    /// The greatest token that it has heard of, or the time of its start.
    token: u64,
    names: BTreeMap<String, Votes>,
    /// Nothing is due before. `None` if nothing is due at all.
    due: Option<Duration>,
    /// The number of claims of each node.
    counts: BTreeMap<u64, usize>,
}

impl Votes {
    /// Grants the name to a claim.
    fn grant(&mut self, now: Duration, next: Waiting, token: u64, answers: &mut Answers) {
        let Waiting { claim, sent, token: of_claim } = next;
        self.lease = Some(Lease { claim, sent, until: now + LEASE, token: of_claim });
        self.tell(token, answers);
    }

    /// Answers the claim that has the lease.
    fn tell(&self, token: u64, answers: &mut Answers) {
        let Some(Lease { claim, sent, token: of_claim, .. }) = &self.lease else { return };
        let is_wanted = self.queue.iter().any(|waiting| rank(waiting.claim, waiting.token) < rank(*claim, *of_claim));
        answers.push((claim.node, LeaseFrame::Granted { number: claim.number, sent: *sent, token, is_wanted }));
    }

    /// A claim waits. If it goes before the claim with the lease, that one is told.
    fn tell_if_wanted(&self, claim: ClaimKey, token: u64, answers: &mut Answers) {
        let Some(waiting) = self.place(claim).map(|at| &self.queue[at]) else { return };
        if self.lease.as_ref().is_some_and(|lease| rank(claim, waiting.token) < rank(lease.claim, lease.token)) {
            self.tell(token, answers);
        }
    }

    fn place(&self, claim: ClaimKey) -> Option<usize> {
        self.queue.iter().position(|waiting| waiting.claim == claim)
    }

    fn is_held_by(&self, claim: ClaimKey) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.claim == claim)
    }
}

impl Voter {
    /// A voter that starts now. `token` is the time by the wall clock.
    pub(super) fn new(now: Duration, token: u64) -> Voter {
        Voter { opens_at: now + LEASE, token, names: BTreeMap::new(), due: None, counts: BTreeMap::new() }
    }

    /// Takes the request of a claim: a new one, or that of a claim that waits or has the lease.
    pub(super) fn request(&mut self, now: Duration, request: Request, answers: &mut Answers) -> Result<(), TooMany> {
        let Request { name, claim, sent, token } = request;
        self.token = self.token.max(token);
        self.end_lease(now, &name);
        let votes = self.names.entry(name.clone()).or_default();
        match &mut votes.lease {
            Some(lease) if lease.claim == claim => {
                (lease.sent, lease.until, lease.token) = (sent, now + LEASE, token);
                votes.tell(self.token, answers);
            }
            _ => match votes.place(claim) {
                Some(at) => {
                    (votes.queue[at].sent, votes.queue[at].token) = (sent, token);
                    votes.tell_if_wanted(claim, self.token, answers);
                }
                None => {
                    let count = self.counts.entry(claim.node).or_default();
                    // Leases of claims that are lost last for a while.
                    if *count >= 2 * MOST {
                        return Err(TooMany);
                    }
                    *count += 1;
                    votes.queue.push_back(Waiting { claim, sent, token });
                    votes.tell_if_wanted(claim, self.token, answers);
                }
            },
        }
        self.grant_next(now, &name, answers);
        Ok(())
    }

    /// A claim gives its lease back to an earlier one, and waits.
    pub(super) fn yielded(&mut self, now: Duration, (name, claim): (&str, ClaimKey), sent: u64, answers: &mut Answers) {
        let Some(votes) = self.names.get_mut(name).filter(|votes| votes.is_held_by(claim)) else { return };
        votes.lease = None;
        votes.queue.push_back(Waiting { claim, sent, token: 0 });
        let first = (0..votes.queue.len()).min_by_key(|at| rank(votes.queue[*at].claim, votes.queue[*at].token));
        if let Some(first) = first.and_then(|first| votes.queue.remove(first)) {
            votes.grant(now, first, self.token, answers);
            self.note_due(now + LEASE);
        }
    }

    /// A claim is over that may have counted on a lease. It does not wait, and its lease lasts.
    pub(super) fn lost(&mut self, name: &str, claim: ClaimKey) {
        let Some(votes) = self.names.get_mut(name) else { return };
        if let Some(at) = votes.place(claim) {
            votes.queue.remove(at);
            forget(&mut self.counts, claim.node);
        }
    }

    /// A claim has ended.
    pub(super) fn released(&mut self, now: Duration, name: &str, claim: ClaimKey, answers: &mut Answers) {
        let Some(votes) = self.names.get_mut(name) else { return };
        if votes.is_held_by(claim) {
            votes.lease = None;
        } else if let Some(at) = votes.place(claim) {
            votes.queue.remove(at);
        } else {
            return;
        }
        forget(&mut self.counts, claim.node);
        self.grant_next(now, name, answers);
    }

    /// A node is not connected any more. Its claims do not wait. The leases that it has remain, because it may count on
    /// them.
    pub(super) fn down(&mut self, node: u64) {
        for votes in self.names.values_mut() {
            let before = votes.queue.len();
            votes.queue.retain(|waiting| waiting.claim.node != node);
            (votes.queue.len()..before).for_each(|_| forget(&mut self.counts, node));
        }
        self.names.retain(|_, votes| votes.lease.is_some() || !votes.queue.is_empty());
    }

    /// Ends the leases whose time is over.
    pub(super) fn tick(&mut self, now: Duration, answers: &mut Answers) {
        let is_due = |votes: &Votes| match &votes.lease {
            Some(lease) => lease.until <= now,
            None => self.opens_at <= now,
        };
        let due: Vec<String> =
            self.names.iter().filter(|(_, votes)| is_due(votes)).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.end_lease(now, &name);
            self.grant_next(now, &name, answers);
        }
        self.due =
            self.names.values().map(|votes| votes.lease.as_ref().map_or(self.opens_at, |lease| lease.until)).min();
    }

    /// When the next lease ends, or the first is granted. It may be later by then, because leases are renewed.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    fn note_due(&mut self, at: Duration) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn end_lease(&mut self, now: Duration, name: &str) {
        if let Some(votes) = self.names.get_mut(name)
            && let Some(lease) = votes.lease.take_if(|lease| lease.until <= now)
        {
            forget(&mut self.counts, lease.claim.node);
        }
    }

    /// Grants a name that is free to the claim that has waited longest. One that has a majority goes first, so that it
    /// does not lose its votes one by one to a claim that waits.
    fn grant_next(&mut self, now: Duration, name: &str, answers: &mut Answers) {
        let Some(votes) = self.names.get_mut(name) else { return };
        if votes.lease.is_none() && self.opens_at <= now {
            let first = votes.queue.iter().position(|waiting| waiting.token > 0).unwrap_or(0);
            match votes.queue.remove(first) {
                Some(first) => {
                    votes.grant(now, first, self.token, answers);
                    self.note_due(now + LEASE);
                }
                None => _ = self.names.remove(name),
            }
        } else if votes.lease.is_none() && votes.queue.is_empty() {
            self.names.remove(name);
        } else if votes.lease.is_none() {
            self.note_due(self.opens_at);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.counts.is_empty()
    }
}

/// The order in which claims give way to each other: one that has a majority is first, and then an earlier one.
fn rank(claim: ClaimKey, token: u64) -> (bool, ClaimKey) {
    (token == 0, claim)
}

/// A claim of this node is not counted any more.
fn forget(counts: &mut BTreeMap<u64, usize>, node: u64) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}
