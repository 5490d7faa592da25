//! Unique names: a majority of a fixed list of voters grants leases. A plain machine, without threads, clock and I/O.
//!
//! `docs/cluster.md`, "Unique names", has the protocol, and says why a name has at most one holder.

mod voter;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::voter::{Answers, ClaimKey, Request, Voter};
use crate::outcome::BoxError;

/// How long a lease lasts by the clock of the voter, from the moment when it is granted.
const LEASE: Duration = Duration::from_secs(5);

/// How long a claimant counts on a lease by its own clock, from the moment when it has sent its request. It is 10 %
/// less than `LEASE`, for clocks whose rates differ by less than 5 % from true time.
const HOLD: Duration = Duration::from_millis(4_500);

/// A holder gives up this long before its lease ends.
const MARGIN: Duration = Duration::from_millis(250);

/// The longest time between two requests of a claim to its voters. A third of `HOLD`, so one lost request
/// does no harm.
const RENEW: Duration = Duration::from_millis(1_500);

/// Requests are sent at multiples of this time, so that those of many claims are sent together.
const BEAT: Duration = Duration::from_millis(50);

/// Tokens begin with the time by the wall clock, in microseconds. No honest node is so far ahead.
const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1_000_000;

/// In a split vote, a claim gives its votes back to an earlier one after this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a claim waits for connections to a majority of the voters.
pub(crate) const NO_MAJORITY_AFTER: Duration = Duration::from_secs(5);

/// The longest name, in bytes.
const LONGEST: usize = 255;

/// The most claims of one node.
pub(crate) const MOST: usize = 1_024;

/// A frame about unique names. `number` is that of the claim on its node. `sent` is the time of a request by the clock
/// of the claimant, which grows with each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LeaseFrame {
    /// A claimant asks for the name, or for its lease to be renewed. `since` is the time of the claim. The token is 0
    /// until a majority has granted.
    Request { name: String, number: u64, since: u64, sent: u64, token: u64 },
    /// A claimant gives its lease back to an earlier claim, and waits.
    Yield { name: String, number: u64, since: u64, sent: u64 },
    /// A claim has ended.
    Release { name: String, number: u64, since: u64 },
    /// A claim is over that may have counted on its leases. They last, but it does not wait any more.
    Lost { name: String, number: u64, since: u64 },
    /// A voter has granted the name, or has renewed the lease. `sent` is that of the last request that it has got. If
    /// the name is wanted, a claim waits that goes before this one.
    Granted { number: u64, sent: u64, token: u64, is_wanted: bool },
}

/// A consequence of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A frame for the connected node with this incarnation.
    Send(u64, LeaseFrame),
    /// The claim has the name until this moment, unless it is extended.
    Held { number: u64, token: u64, until: Duration },
    /// The claim has the name until this moment.
    Extended { number: u64, until: Duration },
    /// The claim has lost the name, and is over.
    Lost { number: u64 },
    /// No majority of the voters is connected. The claim is over.
    NoMajority { number: u64 },
}

/// The unique names of one node: its claims, and its votes if it is a voter.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The incarnation of this node.
    here: u64,
    /// The names of the voters.
    voters: Vec<String>,
    /// The connected nodes, and this one, each with its place among the voters.
    places: BTreeMap<u64, Option<usize>>,
    voter: Option<Voter>,
    claims: BTreeMap<u64, Claim>,
    next: u64,
    /// No claim is due before. `None` if nothing is due at all.
    due: Option<Duration>,
    /// The time of the start by the wall clock.
    start: u64,
    /// Frames of this node to itself.
    local: VecDeque<LeaseFrame>,
}

/// A claim of a process of this node.
#[derive(Debug)]
struct Claim {
    name: String,
    since: u64,
    /// When its last frame was sent.
    sent: u64,
    /// The next request is due then.
    renew_at: Duration,
    /// The token of the holding, or 0 if no majority has granted.
    token: u64,
    /// When the first request with the token was sent.
    confirmed_from: u64,
    is_held: bool,
    /// No majority is connected since then.
    alone_since: Option<Duration>,
    /// By the place of the voter, so that a voter counts once, whatever it has sent.
    votes: Vec<Vote>,
}

/// The vote of one voter for a claim.
#[derive(Clone, Debug, Default)]
struct Vote {
    /// The request that it has granted.
    sent: Option<u64>,
    /// Grants of requests before this one are void: they were given back.
    void_before: u64,
    token: u64,
    /// A claim that goes before this one waits since then.
    wanted_since: Option<Duration>,
}

impl Vote {
    /// How long the claimant may count on it.
    fn until(&self) -> Option<Duration> {
        self.sent.map(|sent| Duration::from_micros(sent) + HOLD)
    }
}

impl Claim {
    /// The time of the next frame.
    fn send(&mut self, now: Duration) -> u64 {
        self.sent = (now.as_micros() as u64).max(self.sent + 1);
        self.sent
    }

    fn request(&mut self, now: Duration, number: u64) -> LeaseFrame {
        let sent = self.send(now);
        LeaseFrame::Request { name: self.name.clone(), number, since: self.since, sent, token: self.token }
    }

    /// Until when a majority has granted requests that were sent at this time or later.
    fn until(&self, from: u64) -> Duration {
        let granted = self.votes.iter().filter(|vote| vote.sent.is_some_and(|sent| sent >= from));
        let mut until: Vec<Duration> = granted.filter_map(Vote::until).collect();
        until.sort_unstable_by(|one, other| other.cmp(one));
        until.get(self.votes.len() / 2).copied().unwrap_or_default()
    }

    /// Until when the name is held.
    fn held_until(&self) -> Duration {
        self.until(self.confirmed_from)
    }
}

impl Leases {
    /// Makes the machine of a node. `start` is the time by the wall clock, in microseconds.
    pub(crate) fn new(now: Duration, here: (u64, &str), voters: &[String], start: u64) -> Leases {
        let place = voters.iter().position(|voter| voter == here.1);
        let places = BTreeMap::from([(here.0, place)]);
        let voter = place.map(|_| Voter::new(now, start));
        let (voters, claims, local) = (voters.to_vec(), BTreeMap::new(), VecDeque::new());
        Leases { here: here.0, voters, places, voter, claims, next: 1, due: None, start, local }
    }

    pub(crate) fn has_voters(&self) -> bool {
        !self.voters.is_empty()
    }

    /// Whether a claim holds its name.
    pub(crate) fn holds(&self, now: Duration, number: u64) -> bool {
        self.claims.get(&number).is_some_and(|claim| claim.is_held && claim.held_until() > now)
    }

    /// Claims a name for a process of this node. Returns the number of the claim.
    pub(crate) fn claim(&mut self, now: Duration, name: &str, since: u64, effects: &mut Vec<Effect>) -> u64 {
        let number = self.next;
        self.next += 1;
        let claim = Claim {
            name: name.into(),
            since,
            sent: 0,
            renew_at: now,
            token: 0,
            confirmed_from: 0,
            is_held: false,
            alone_since: None,
            votes: vec![Vote::default(); self.voters.len()],
        };
        self.claims.insert(number, claim);
        self.review(now, number, effects);
        self.settle(now, effects);
        number
    }

    /// Ends a claim.
    pub(crate) fn release(&mut self, now: Duration, number: u64, effects: &mut Vec<Effect>) {
        if let Some(Claim { name, since, .. }) = self.claims.remove(&number) {
            self.send_to_voters(&LeaseFrame::Release { name, number, since }, effects);
        }
        self.settle(now, effects);
    }

    /// A claim of a process that may go on for a while has ended. If it may count on leases, the voters keep them.
    pub(crate) fn abandon(&mut self, now: Duration, number: u64, effects: &mut Vec<Effect>) {
        match self.claims.get(&number) {
            Some(claim) if claim.token > 0 => self.lose(number, effects),
            _ => self.release(now, number, effects),
        }
        self.settle(now, effects);
    }

    /// A claim is over, and its leases may last.
    fn lose(&mut self, number: u64, effects: &mut Vec<Effect>) {
        if let Some(Claim { name, since, .. }) = self.claims.remove(&number) {
            self.send_to_voters(&LeaseFrame::Lost { name, number, since }, effects);
        }
    }

    /// A node is connected.
    pub(crate) fn up(&mut self, now: Duration, peer: (u64, &str), effects: &mut Vec<Effect>) {
        let place = self.voters.iter().position(|voter| voter == peer.1);
        self.places.insert(peer.0, place);
        if place.is_some() {
            // The new voter is asked at once.
            self.claims.values_mut().for_each(|claim| claim.renew_at = now);
        }
        self.tick(now, effects);
    }

    /// A node is not connected any more.
    pub(crate) fn down(&mut self, now: Duration, peer: u64, effects: &mut Vec<Effect>) {
        if let Some(Some(place)) = self.places.remove(&peer) {
            // A vote cannot be given back to it. When it is up again, it says anew that the vote is wanted.
            self.claims.values_mut().for_each(|claim| claim.votes[place].wanted_since = None);
        }
        self.voter.iter_mut().for_each(|voter| voter.down(peer));
        self.tick(now, effects);
    }

    /// Takes a frame of a connected node.
    ///
    /// # Errors
    /// The frame is not one that an honest node sends.
    pub(crate) fn receive(
        &mut self,
        now: Duration,
        peer: u64,
        frame: LeaseFrame,
        effects: &mut Vec<Effect>,
    ) -> Result<(), BoxError> {
        self.take(now, peer, frame, effects)?;
        self.settle(now, effects);
        Ok(())
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let mut answers = Vec::new();
        self.voter.iter_mut().for_each(|voter| voter.tick(now, &mut answers));
        self.answer(answers, effects);
        self.due = None;
        let numbers: Vec<u64> = self.claims.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.review(now, number, effects));
        self.settle(now, effects);
    }

    /// When `tick` is to be called. Nothing may be due then any more, because leases were renewed.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.voter.as_ref().and_then(Voter::due).into_iter().chain(self.due).min()
    }

    fn note_due(&mut self, number: u64) {
        let due = self.claims.get(&number).map(Leases::claim_due);
        self.due = self.due.into_iter().chain(due).min();
    }

    fn claim_due(claim: &Claim) -> Duration {
        if claim.is_held {
            return claim.renew_at.min(claim.held_until().saturating_sub(MARGIN));
        }
        let gives_up = claim.alone_since.map(|since| since + NO_MAJORITY_AFTER);
        let yields = claim.votes.iter().filter_map(|vote| vote.wanted_since.map(|since| since + PATIENCE)).min();
        // Votes that are wanted are not given back while a majority has granted.
        let yields = yields.filter(|_| claim.token == 0);
        [gives_up, yields].into_iter().flatten().fold(claim.renew_at, Duration::min)
    }

    /// Whether a majority of the voters is connected.
    fn has_majority(&self) -> bool {
        self.places.values().flatten().count() > self.voters.len() / 2
    }

    /// Sends a frame to all voters that are connected.
    fn send_to_voters(&mut self, frame: &LeaseFrame, effects: &mut Vec<Effect>) {
        let voters = self.places.iter().filter(|(_, place)| place.is_some()).map(|(peer, _)| *peer);
        for peer in voters {
            if peer == self.here {
                self.local.push_back(frame.clone());
            } else {
                effects.push(Effect::Send(peer, frame.clone()));
            }
        }
    }

    fn answer(&mut self, answers: Answers, effects: &mut Vec<Effect>) {
        for (peer, frame) in answers {
            if peer == self.here {
                self.local.push_back(frame);
            } else if self.places.contains_key(&peer) {
                effects.push(Effect::Send(peer, frame));
            }
        }
    }

    /// Takes the frames of this node to itself.
    fn settle(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        while let Some(frame) = self.local.pop_front() {
            // This node sends no bad frames.
            let _ = self.take(now, self.here, frame, effects);
        }
    }

    fn take(&mut self, now: Duration, peer: u64, frame: LeaseFrame, effects: &mut Vec<Effect>) -> Result<(), BoxError> {
        let key = |since, number| ClaimKey { since, node: peer, number };
        let mut answers = Vec::new();
        if let LeaseFrame::Granted { token, .. } | LeaseFrame::Request { token, .. } = &frame
            && *token > self.start.saturating_add(CENTURY)
        {
            return Err("a token of another node is far too great".into());
        }
        match (frame, &mut self.voter) {
            (LeaseFrame::Granted { number, sent, token, is_wanted }, _) => {
                let place = self.places.get(&peer).copied().flatten().ok_or("a node that is no voter has voted")?;
                return self.granted(now, (number, place), (sent, token, is_wanted), effects);
            }
            (_, None) => return Err("this node is no voter".into()),
            (LeaseFrame::Request { name, number, since, sent, token }, Some(voter)) => {
                if name.is_empty() || name.len() > LONGEST {
                    return Err("a name of another node is empty or too long".into());
                }
                let request = Request { name, claim: key(since, number), sent, token };
                voter.request(now, request, &mut answers).map_err(|_| "a node has too many claims to unique names")?;
            }
            (LeaseFrame::Yield { name, number, since, sent }, Some(voter)) => {
                voter.yielded(now, (&name, key(since, number)), sent, &mut answers);
            }
            (LeaseFrame::Lost { name, number, since }, Some(voter)) => voter.lost(&name, key(since, number)),
            (LeaseFrame::Release { name, number, since }, Some(voter)) => {
                voter.released(now, &name, key(since, number), &mut answers);
            }
        }
        self.answer(answers, effects);
        Ok(())
    }

    /// A voter has granted.
    fn granted(
        &mut self,
        now: Duration,
        (number, place): (u64, usize),
        (sent, token, is_wanted): (u64, u64, bool),
        effects: &mut Vec<Effect>,
    ) -> Result<(), BoxError> {
        // First, so that a majority that has ended in the meantime does not go on.
        self.review(now, number, effects);
        // A claim that has ended has told its voters. Its leases may last.
        let Some(claim) = self.claims.get_mut(&number) else { return Ok(()) };
        if sent > claim.sent {
            return Err("a voter has granted a request that was not sent".into());
        }
        let vote = &mut claim.votes[place];
        if sent < vote.void_before {
            return Ok(());
        }
        (vote.sent, vote.token) = (Some(sent), token);
        vote.wanted_since = if is_wanted { vote.wanted_since.or(Some(now)) } else { None };
        if claim.is_held {
            effects.push(Effect::Extended { number, until: claim.held_until() });
        }
        self.review(now, number, effects);
        Ok(())
    }

    /// Draws the conclusions from the votes for a claim, and from the time.
    fn review(&mut self, now: Duration, number: u64, effects: &mut Vec<Effect>) {
        self.conclude(now, number, effects);
        self.note_due(number);
    }

    fn conclude(&mut self, now: Duration, number: u64, effects: &mut Vec<Effect>) {
        let has_majority = self.has_majority();
        let Some(claim) = self.claims.get_mut(&number) else { return };
        if claim.is_held {
            let until = claim.held_until();
            if until.saturating_sub(MARGIN) <= now {
                // Nobody has the name before the leases have ended, whatever the process does in the meantime.
                self.lose(number, effects);
                return effects.push(Effect::Lost { number });
            }
        } else {
            if !has_majority {
                return self.alone(now, number, effects);
            }
            claim.alone_since = None;
            let is_granted = claim.until(0) > now + MARGIN;
            if !is_granted {
                // The votes that have come so far are no majority any more. Another process may have had the name. The
                // voters are told at once, because a claim with a token goes before others.
                if std::mem::take(&mut claim.token) > 0 {
                    claim.renew_at = now;
                }
                self.give_back(now, number, effects);
            } else if claim.token == 0 {
                claim.token = claim.votes.iter().map(|vote| vote.token).max().unwrap_or_default().saturating_add(1);
                let frame = claim.request(now, number);
                (claim.confirmed_from, claim.renew_at) = (claim.sent, next_request(now));
                return self.send_to_voters(&frame, effects);
            } else if claim.held_until() > now + MARGIN {
                claim.is_held = true;
                effects.push(Effect::Held { number, token: claim.token, until: claim.held_until() });
            }
        }
        let Some(claim) = self.claims.get_mut(&number) else { return };
        if claim.renew_at <= now {
            claim.renew_at = next_request(now);
            let frame = claim.request(now, number);
            self.send_to_voters(&frame, effects);
        }
    }

    /// A claim that is not held can have no majority now. It is in nobody's way.
    fn alone(&mut self, now: Duration, number: u64, effects: &mut Vec<Effect>) {
        let Some(claim) = self.claims.get_mut(&number) else { return };
        claim.renew_at = now + NO_MAJORITY_AFTER;
        match claim.alone_since {
            None => {
                claim.alone_since = Some(now);
                claim.token = 0;
                let void_before = claim.send(now) + 1;
                claim.votes.fill(Vote { void_before, ..Vote::default() });
                let (name, since) = (claim.name.clone(), claim.since);
                self.send_to_voters(&LeaseFrame::Release { name, number, since }, effects);
            }
            Some(since) if since + NO_MAJORITY_AFTER <= now => {
                self.claims.remove(&number);
                effects.push(Effect::NoMajority { number });
            }
            Some(_) => {}
        }
    }

    /// Gives back the votes that earlier claims have wanted for a while.
    fn give_back(&mut self, now: Duration, number: u64, effects: &mut Vec<Effect>) {
        let places: Vec<(u64, usize)> =
            self.places.iter().filter_map(|(peer, place)| place.map(|place| (*peer, place))).collect();
        for (peer, place) in places {
            let Some(claim) = self.claims.get_mut(&number) else { return };
            if claim.votes[place].wanted_since.is_some_and(|since| since + PATIENCE <= now) {
                let sent = claim.send(now);
                claim.votes[place] = Vote { void_before: sent, ..Vote::default() };
                let frame = LeaseFrame::Yield { name: claim.name.clone(), number, since: claim.since, sent };
                if peer == self.here {
                    self.local.push_back(frame);
                } else {
                    effects.push(Effect::Send(peer, frame));
                }
            }
        }
    }
}

/// When a claim asks its voters again that asks them now.
fn next_request(now: Duration) -> Duration {
    let at = (now + RENEW).as_micros();
    Duration::from_micros((at - at % BEAT.as_micros()) as u64)
}

#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod true_time;
