//! A connection to a peer that has paired: what was sent and received on it, and its times.

use std::time::Duration;

use super::assembly::{Arrived, Incoming};
use super::effect::{DownReason, Effect};
use super::frame::{Ends, Head, Kind, Reader, begin_with_head, finish};
use super::hello::Identity;
use super::lanes::Lanes;
use super::unacknowledged::Unacknowledged;

/// The longest time between two frames, if there is nothing to send. A sixth of the detection time.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(250);

/// How long an acknowledgement waits for a batch to travel with.
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(10);

/// How many batches may have arrived before they are acknowledged at once. They are an eighth of the window, or a third
/// if their items are small, so a peer that sends without end does not wait. If it were 2, a busy node would send
/// acknowledgements beside its answers.
const UNACKNOWLEDGED_BATCHES: u64 = 8;

/// How long a peer that is heard may acknowledge nothing, or grant no credit. A peer with slow decoders needs time.
pub(super) const STALLED: Duration = Duration::from_secs(30);

/// How long a part of the opening may take.
const OPENING: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The caller has not accepted the peer yet.
    Paired,
    /// The caller has accepted. The opening of the peer is not complete.
    Opening,
    Up,
}

#[derive(Debug)]
pub(super) struct Connection<T> {
    /// The nonces as our frames carry them.
    pub(super) ends: Ends,
    pub(super) peer: Identity,
    pub(super) protocol: u16,
    pub(super) stage: Stage,
    pub(super) lanes: Lanes<T>,
    pub(super) sent: Unacknowledged<T>,
    incoming: Incoming,
    /// The opening of the peer, if it came before the caller has accepted.
    opening: Option<(Vec<u8>, Vec<u8>)>,
    /// When a frame of this pair has arrived, and when one was sent.
    pub(super) last_heard: Duration,
    last_sent: Duration,
    /// No silence is found before this time, because this node has slept.
    grace_until: Duration,
    /// Since when nothing was acknowledged or granted that is waited for.
    stalled_since: Option<Duration>,
    opening_since: Duration,
    acknowledge_at: Option<Duration>,
    /// While batches come, the next tick is due soon. So a batch that may be acknowledged late wakes no thread.
    batches_until: Duration,
    tick_again_at: Option<Duration>,
    /// The acknowledgement and the grant that the peer was told last.
    told_sequence: u64,
    told_granted: u64,
    /// Another incarnation of the same name that has said `Hello`, and when it did so first.
    pub(super) rival: Option<(u64, Duration)>,
}

impl<T: Clone> Connection<T> {
    pub(super) fn new(now: Duration, ends: Ends, peer: Identity, protocol: u16, limit: usize) -> Connection<T> {
        Connection {
            ends,
            peer,
            protocol,
            stage: Stage::Paired,
            lanes: Lanes::new(limit),
            sent: Unacknowledged::default(),
            incoming: Incoming::default(),
            opening: None,
            last_heard: now,
            last_sent: now,
            grace_until: now,
            stalled_since: None,
            opening_since: now,
            acknowledge_at: None,
            batches_until: now,
            tick_again_at: None,
            told_sequence: 0,
            told_granted: 0,
            rival: None,
        }
    }

    /// Whether a frame with these nonces is of this connection.
    pub(super) fn is_mine(&self, ends: Ends) -> bool {
        ends == Ends { to: self.ends.from, from: self.ends.to }
    }

    pub(super) fn accept(&mut self, now: Duration, types: Vec<u8>, directory: Vec<u8>, effects: &mut Vec<Effect<T>>) {
        self.stage = Stage::Opening;
        self.opening_since = now;
        self.lanes.open_with(types, directory);
        self.go_up(effects);
    }

    /// Takes the step to up, if both the caller and the peer have done their part.
    fn go_up(&mut self, effects: &mut Vec<Effect<T>>) {
        if self.stage == Stage::Opening
            && let Some((types, directory)) = self.opening.take()
        {
            self.stage = Stage::Up;
            let peer = Box::new(self.peer.clone());
            let (protocol, nonce) = (self.protocol, self.ends.from);
            effects.push(Effect::Up { peer, protocol, nonce, types, directory });
        }
    }

    /// Takes a batch or a beat. Its nonces were read and are right.
    pub(super) fn receive(
        &mut self,
        now: Duration,
        kind: Kind,
        reader: &mut Reader<'_>,
        effects: &mut Vec<Effect<T>>,
    ) -> Result<(), DownReason> {
        let head = reader.head().ok_or(DownReason::Gap)?;
        let expected = self.incoming.sequence + u64::from(kind == Kind::Batch);
        if head.sequence != expected {
            return Err(DownReason::Gap);
        }
        let is_acknowledged = self.sent.acknowledge(head.acknowledged).ok_or(DownReason::Protocol)?;
        if self.lanes.grant(head.granted) || is_acknowledged {
            self.stalled_since = self.is_waiting().then_some(now);
        }
        if kind == Kind::Beat {
            return if reader.is_at_end() { Ok(()) } else { Err(DownReason::Protocol) };
        }
        while !reader.is_at_end() {
            let arrived = self.incoming.part(reader, self.told_granted).map_err(|_| DownReason::Protocol)?;
            if self.stage != Stage::Up {
                self.opening_since = now;
            }
            match arrived {
                Arrived::Opening { types, directory } => {
                    self.opening = Some((types, directory));
                    self.go_up(effects);
                }
                Arrived::Item(class, payload) if self.stage == Stage::Up => {
                    effects.push(Effect::Deliver { class, payload });
                }
                Arrived::Item(..) => return Err(DownReason::Protocol),
                Arrived::Piece => {}
            }
        }
        self.incoming.sequence = head.sequence;
        let is_urgent = self.incoming.sequence - self.told_sequence >= UNACKNOWLEDGED_BATCHES
            || self.incoming.needs_grant(self.told_granted);
        self.batches_until = now + 2 * ACKNOWLEDGEMENT_DELAY;
        let at = if is_urgent { now } else { now + ACKNOWLEDGEMENT_DELAY };
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |before| before.min(at)));
        Ok(())
    }

    /// Whether a `Leaving` with this sequence follows all batches.
    pub(super) fn is_complete(&self, sequence: u64) -> bool {
        sequence == self.incoming.sequence
    }

    fn is_waiting(&self) -> bool {
        !self.sent.is_empty() || self.lanes.needs_credit()
    }

    /// Looks at the times. Returns why the connection is down, if it is. `silence` is how long the peer may be silent.
    pub(super) fn tick(&mut self, now: Duration, has_slept: bool, silence: Duration) -> Result<(), DownReason> {
        self.tick_again_at = (now < self.batches_until).then_some(now + ACKNOWLEDGEMENT_DELAY);
        if !self.is_waiting() {
            self.stalled_since = None;
        } else if has_slept || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        if has_slept {
            self.grace_until = now + HEARTBEAT;
            self.opening_since = now;
        }
        if now >= self.silent_at(silence) {
            return Err(DownReason::Silent);
        }
        let is_over = |since: Duration, limit| now >= since + limit;
        // Its decoders may be slow, so it is no fault.
        if self.stalled_since.is_some_and(|since| is_over(since, STALLED)) {
            return Err(DownReason::Silent);
        }
        if self.stage != Stage::Up && is_over(self.opening_since, OPENING) {
            return Err(DownReason::Silent);
        }
        Ok(())
    }

    fn silent_at(&self, silence: Duration) -> Duration {
        (self.last_heard + silence).max(self.grace_until)
    }

    /// Returns when the next tick or the next frame is due.
    pub(super) fn due(&self, silence: Duration) -> Duration {
        let heartbeat = self.beat_at();
        let times = [Some(heartbeat), Some(self.silent_at(silence)), self.acknowledge_at, self.tick_again_at];
        times.into_iter().flatten().fold(heartbeat, Duration::min)
    }

    pub(super) fn may_have_batch(&self) -> bool {
        self.stage != Stage::Paired && self.sent.has_room() && self.lanes.has_part()
    }

    /// When the next beat is due, a multiple of [`HEARTBEAT`]. So those of all connections of a node are due together,
    /// and the threads of the node and of the link wake together.
    fn beat_at(&self) -> Duration {
        let interval = HEARTBEAT.as_nanos();
        Duration::from_nanos_u128((self.last_sent.as_nanos() / interval + 1) * interval)
    }

    fn is_beat_due(&self, now: Duration) -> bool {
        now >= self.beat_at() || self.acknowledge_at.is_some_and(|at| at <= now)
    }

    /// Whether there is a batch or a beat to write.
    pub(super) fn has_frame(&self, now: Duration) -> bool {
        self.may_have_batch() || self.is_beat_due(now)
    }

    /// Writes the next batch or beat. Returns whether there is one.
    pub(super) fn next_frame(&mut self, now: Duration, frame: &mut Vec<u8>) -> bool {
        let kind = Kind::Batch;
        let head = self.head(self.sent.last_sequence() + 1);
        if self.may_have_batch() {
            begin_with_head(frame, kind, self.ends, head);
            if self.lanes.fill(frame, &mut self.sent) {
                self.sent.end_batch();
                self.has_sent(now, head, frame);
                return true;
            }
        }
        if now >= self.beat_at() {
            self.lanes.shrink();
            self.sent.shrink();
        }
        if self.is_beat_due(now) {
            let head = self.head(self.sent.last_sequence());
            begin_with_head(frame, Kind::Beat, self.ends, head);
            self.has_sent(now, head, frame);
            return true;
        }
        false
    }

    fn head(&self, sequence: u64) -> Head {
        Head { sequence, acknowledged: self.incoming.sequence, granted: self.incoming.granted() }
    }

    fn has_sent(&mut self, now: Duration, head: Head, frame: &mut [u8]) {
        finish(frame);
        self.told_sequence = head.acknowledged;
        self.told_granted = head.granted;
        self.acknowledge_at = None;
        self.last_sent = now;
        if self.stalled_since.is_none() && self.is_waiting() {
            self.stalled_since = Some(now);
        }
    }

    /// Returns the tokens of all items that are not acknowledged.
    pub(super) fn into_tokens(self) -> impl Iterator<Item = T> {
        self.sent.into_tokens().chain(self.lanes.into_tokens())
    }
}
