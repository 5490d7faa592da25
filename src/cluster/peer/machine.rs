//! The machine of the connection to one peer. `docs/cluster.md` has its states and arrows.

use std::collections::VecDeque;
use std::time::Duration;

use super::connection::{Connection, HEARTBEAT, STALLED, Stage};
use super::effect::{DownReason, Effect};
use super::frame::{Ends, Kind, LONGEST_FRAME, Reader, begin};
use super::hello::{Hello, Identity, put_hello, read_hello};
use super::lanes::{Bound, Class, Item, NotOffered, Room};
use super::refusal::{Difference, Refusal};

/// How long nobody dials after a refusal.
const REFUSED: Duration = Duration::from_secs(5);

/// The longest time between two `Hello` frames to a peer that has never answered. Equal to the wait after a refusal.
const UNHEARD: Duration = Duration::from_secs(5);

/// How long nobody dials after a break.
const BROKEN: Duration = HEARTBEAT;

/// A node that is heard so long after a second one of its name has said `Hello` was not replaced by it. Frames that
/// were on their way then have arrived.
const RIVAL: Duration = Duration::from_millis(500);

/// The most frames outside of a connection that wait to be sent. They answer frames of the peer, which may send many.
const ANSWERS: usize = 16;

#[derive(Debug)]
enum State<T> {
    Idle { dial_at: Option<Duration> },
    Calling { nonce: u64, hello_at: Duration },
    Connected(Box<Connection<T>>),
    Left,
}

/// The connection to one peer.
///
/// All times are durations since one start, which the caller chooses. They must not go back. Each call that can have
/// effects appends them to a list of the caller, who carries them out in their order.
///
/// The caller
///
/// - calls [`dial`](Peer::dial) when [`dial_at`](Peer::dial_at) has come;
/// - passes each frame of the link to [`arrived`](Peer::arrived) when it arrives, and then to
///   [`receive`](Peer::receive);
/// - after each call, and when [`due`](Peer::due) has come, calls [`tick`](Peer::tick), and then
///   [`next_frame`](Peer::next_frame) until it returns false.
#[derive(Debug)]
pub(crate) struct Peer<T = u64> {
    identity: Identity,
    limit: usize,
    state: State<T>,
    /// Frames that belong to no connection.
    answers: VecDeque<Vec<u8>>,
    /// Until when nobody dials because of a refusal or a fault.
    refused_until: Option<Duration>,
    /// The incarnation of the peer that has a fault. Until `refused_until`, only another incarnation is dialled and
    /// paired.
    faulty: Option<u64>,
    last_tick: Duration,
    /// The time from one `Hello` to the next. It grows while the peer was never heard.
    again: Duration,
    /// Whether a frame of the peer has come, ever.
    is_heard: bool,
}

impl<T: Clone> Peer<T> {
    /// A machine without a connection. `limit` bounds the bytes of small messages that wait, and those of large ones.
    pub(crate) fn new(now: Duration, identity: Identity, limit: usize) -> Peer<T> {
        let state = State::Idle { dial_at: Some(now) };
        let (answers, refused_until, again) = (VecDeque::new(), None, HEARTBEAT);
        Peer { identity, limit, state, answers, refused_until, faulty: None, last_tick: now, again, is_heard: false }
    }

    /// The link can reach the peer, perhaps another incarnation of it. So the next `Hello` need not wait.
    pub(crate) fn found(&mut self, now: Duration) {
        self.again = HEARTBEAT;
        if let State::Calling { hello_at, .. } = &mut self.state {
            *hello_at = (*hello_at).min(now);
        }
    }

    /// Returns when the peer is to be dialled, if it is.
    pub(crate) fn dial_at(&self) -> Option<Duration> {
        match self.state {
            State::Idle { dial_at } => dial_at,
            _ => None,
        }
    }

    /// Begins an attempt to connect. The nonce has 64 random bits, is not zero, and was not used before.
    ///
    /// Returns whether an attempt has begun. It does not if it is too early.
    pub(crate) fn dial(&mut self, now: Duration, nonce: u64) -> bool {
        let may_dial = nonce != 0 && self.dial_at().is_some_and(|at| at <= now);
        if may_dial {
            if self.refused_until.is_some_and(|until| until <= now) {
                (self.refused_until, self.faulty) = (None, None);
            }
            self.state = State::Calling { nonce, hello_at: now };
        }
        may_dial
    }

    /// Notes that a frame has arrived. The time is that of its arrival, so that frames that wait for their decoding
    /// are signs of life.
    pub(crate) fn arrived(&mut self, at: Duration, frame: &[u8]) {
        if let State::Connected(connection) = &mut self.state
            && let Some((Kind::Batch | Kind::Beat, ends)) = Reader::new(frame).begin()
            && connection.is_mine(ends)
        {
            connection.last_heard = connection.last_heard.max(at);
        }
    }

    /// Takes a frame of the link.
    ///
    /// A frame that cannot be read, or that is of another connection, is dropped without an effect.
    pub(crate) fn receive(&mut self, now: Duration, frame: &[u8], effects: &mut Vec<Effect<T>>) {
        let mut reader = Reader::new(frame);
        let Some((kind, ends)) = reader.begin() else { return };
        self.is_heard = true;
        self.again = HEARTBEAT;
        match kind {
            Kind::Hello => {
                if let Some(hello) = read_hello(ends, &mut reader) {
                    self.hello(now, hello, effects);
                }
            }
            Kind::Refused => {
                if let Some(refusal) = Refusal::read(&mut reader).filter(|_| self.is_to_me(ends)) {
                    self.refused(now, refusal, effects);
                }
            }
            Kind::Who => {
                if let Some(known) = reader.word() {
                    self.who(now, ends, known, effects);
                }
            }
            Kind::Bye | Kind::Leaving | Kind::Batch | Kind::Beat => {
                let State::Connected(connection) = &mut self.state else { return };
                if !connection.is_mine(ends) {
                    return;
                }
                if frame.len() > LONGEST_FRAME {
                    self.fail(now, DownReason::Protocol, true, effects);
                } else if kind == Kind::Bye {
                    self.fail(now, reader.byte().map_or(DownReason::Protocol, DownReason::of_byte), false, effects);
                } else if kind == Kind::Leaving {
                    let is_complete = reader.word().is_some_and(|sequence| connection.is_complete(sequence));
                    let reason = if is_complete { DownReason::Left } else { DownReason::Gap };
                    self.fail(now, reason, !is_complete, effects);
                } else if let Err(reason) = connection.receive(now, kind, &mut reader, effects) {
                    self.fail(now, reason, true, effects);
                }
            }
        }
    }

    /// Accepts the peer that was greeted. Types and directory have at most [`ITEM_LIMIT`](super::ITEM_LIMIT) bytes
    /// together. Returns false if there is no such peer any more.
    pub(crate) fn accept(
        &mut self,
        now: Duration,
        types: Vec<u8>,
        directory: Vec<u8>,
        effects: &mut Vec<Effect<T>>,
    ) -> bool {
        match &mut self.state {
            State::Connected(connection) if connection.stage == Stage::Paired => {
                connection.accept(now, types, directory, effects);
                true
            }
            _ => false,
        }
    }

    /// Refuses the peer that was greeted, or that is up. Returns false if there is none.
    pub(crate) fn refuse(&mut self, now: Duration, refusal: Refusal, effects: &mut Vec<Effect<T>>) -> bool {
        let State::Connected(connection) = &self.state else { return false };
        let ends = connection.ends;
        self.say_refused(ends, &refusal);
        self.refused(now, refusal, effects);
        true
    }

    /// Takes an item for the peer. An item that is not taken is handed back.
    pub(crate) fn offer(&mut self, class: Class, item: Item<T>) -> Result<(), NotOffered<T>> {
        match &mut self.state {
            State::Connected(connection) if connection.stage == Stage::Up => connection.lanes.offer(class, item),
            _ => Err(NotOffered::NotUp(item)),
        }
    }

    /// Returns which messages are taken now. If it refuses some, `Effect::Room` follows, or the down.
    pub(crate) fn room(&mut self) -> Room {
        match &mut self.state {
            State::Connected(connection) if connection.stage == Stage::Up => connection.lanes.room(),
            _ => Room::Down,
        }
    }

    /// Returns whether items of this bound have room, or no connection is up. If they have none, `Effect::Room`
    /// follows, or the down.
    pub(crate) fn has_room_for(&mut self, bound: Bound) -> bool {
        match &mut self.state {
            State::Connected(connection) if connection.stage == Stage::Up => connection.lanes.has_room_for(bound),
            _ => true,
        }
    }

    /// The bound of the last waiting message of a sender. `None` stands for a sender whose message was refused.
    pub(crate) fn needed_by(&self, sender: Option<u64>) -> Bound {
        match &self.state {
            State::Connected(connection) => connection.lanes.needed_by(sender),
            _ => Bound::Small,
        }
    }

    /// The nonce of this node in the connection that is up.
    pub(crate) fn up(&self) -> Option<u64> {
        match &self.state {
            State::Connected(connection) if connection.stage == Stage::Up => Some(connection.ends.from),
            _ => None,
        }
    }

    /// Whether the connection is up.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_up(&self) -> bool {
        matches!(&self.state, State::Connected(connection) if connection.stage == Stage::Up)
    }

    /// The incarnation of the peer that is connected, or about to be.
    pub(crate) fn incarnation(&self) -> Option<u64> {
        match &self.state {
            State::Connected(connection) => Some(connection.peer.incarnation),
            _ => None,
        }
    }

    /// Whether the peer has acknowledged everything that was offered.
    pub(crate) fn is_drained(&self) -> bool {
        match &self.state {
            State::Connected(connection) => connection.lanes.is_empty() && connection.sent.is_empty(),
            _ => true,
        }
    }

    /// Whether batches were sent that the peer has not acknowledged.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        matches!(&self.state, State::Connected(connection) if !connection.sent.is_empty())
    }

    /// Writes the next frame into a buffer, whose content is replaced. Returns whether there is one.
    pub(crate) fn next_frame(&mut self, now: Duration, frame: &mut Vec<u8>, effects: &mut Vec<Effect<T>>) -> bool {
        if let Some(answer) = self.answers.pop_front() {
            frame.clear();
            frame.extend_from_slice(&answer);
            return true;
        }
        match &mut self.state {
            State::Calling { nonce, hello_at } if *hello_at <= now => {
                *hello_at = now + self.again;
                if !self.is_heard {
                    self.again = (2 * self.again).min(UNHEARD);
                }
                put_hello(frame, Ends { to: 0, from: *nonce }, false, &self.identity);
                true
            }
            State::Connected(connection) => {
                let has_frame = connection.next_frame(now, frame);
                let has_room = |bound: &Bound| connection.lanes.take_room(*bound);
                effects.extend(Bound::ALL.into_iter().filter(has_room).map(Effect::Room));
                has_frame
            }
            _ => false,
        }
    }

    /// Whether [`next_frame`](Self::next_frame) would write one now.
    pub(crate) fn has_frame(&self, now: Duration) -> bool {
        match &self.state {
            _ if !self.answers.is_empty() => true,
            State::Calling { hello_at, .. } => *hello_at <= now,
            State::Connected(connection) => connection.has_frame(now),
            _ => false,
        }
    }

    /// Whether there are items to send, and the window and the credit have room for them.
    pub(crate) fn has_batch(&self) -> bool {
        matches!(&self.state, State::Connected(connection) if connection.may_have_batch())
    }

    /// Checks the times. `frames_wait` says that frames have arrived and were not received. Then the peer counts as
    /// silent only after 30 s, because these frames come before the down.
    pub(crate) fn tick(&mut self, now: Duration, frames_wait: bool, effects: &mut Vec<Effect<T>>) {
        let silence = self.silence(frames_wait);
        let has_slept = now > self.last_tick + HEARTBEAT + HEARTBEAT;
        self.last_tick = now;
        if let State::Connected(connection) = &mut self.state
            && let Err(reason) = connection.tick(now, has_slept, silence)
        {
            self.fail(now, reason, true, effects);
        }
    }

    fn silence(&self, frames_wait: bool) -> Duration {
        let most = if frames_wait { STALLED } else { Duration::ZERO };
        self.identity.detection_time.max(most)
    }

    /// Returns when the machine is to be called next, if nothing else happens before. For `frames_wait`, see
    /// [`tick`](Self::tick).
    pub(crate) fn due(&self, frames_wait: bool) -> Option<Duration> {
        if !self.answers.is_empty() {
            return Some(self.last_tick);
        }
        match &self.state {
            State::Idle { dial_at } => *dial_at,
            State::Calling { hello_at, .. } => Some(*hello_at),
            // A late tick means that this node has slept, so there is one at least in each heartbeat.
            State::Connected(connection) => {
                Some(connection.due(self.silence(frames_wait)).min(self.last_tick + HEARTBEAT))
            }
            State::Left => None,
        }
    }

    /// Notes that the link to the peer has closed.
    pub(crate) fn close(&mut self, now: Duration, effects: &mut Vec<Effect<T>>) {
        self.answers.clear();
        match self.state {
            State::Connected(_) => self.fail(now, DownReason::Closed, false, effects),
            State::Calling { .. } => self.state = State::Idle { dial_at: Some(now + BROKEN) },
            State::Idle { .. } | State::Left => {}
        }
    }

    /// Leaves the cluster. The peer is told, unless there is no connection. Nothing connects afterwards.
    pub(crate) fn leave(&mut self, now: Duration, effects: &mut Vec<Effect<T>>) {
        if let State::Connected(connection) = &self.state {
            let mut frame = Vec::new();
            begin(&mut frame, Kind::Leaving, connection.ends);
            frame.extend_from_slice(&connection.sent.last_sequence().to_le_bytes());
            self.fail(now, DownReason::Left, false, effects);
            self.answer(frame);
        }
        self.state = State::Left;
    }

    fn answer(&mut self, frame: Vec<u8>) {
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(frame);
    }

    fn say_hello(&mut self, ends: Ends, has_paired: bool) {
        let mut frame = Vec::new();
        put_hello(&mut frame, ends, has_paired, &self.identity);
        self.answer(frame);
    }

    fn say_refused(&mut self, ends: Ends, refusal: &Refusal) {
        let mut frame = Vec::new();
        begin(&mut frame, Kind::Refused, ends);
        refusal.put(&mut frame);
        self.answer(frame);
    }

    fn say_bye(&mut self, ends: Ends, reason: DownReason) {
        let mut frame = Vec::new();
        begin(&mut frame, Kind::Bye, ends);
        frame.push(reason.to_byte());
        self.answer(frame);
    }

    fn hello(&mut self, now: Duration, hello: Hello, effects: &mut Vec<Effect<T>>) {
        let Ends { to, from } = hello.ends;
        if from == 0 {
            return;
        }
        match &mut self.state {
            State::Idle { dial_at } => {
                let is_repaired = self.faulty.is_some_and(|faulty| faulty != hello.identity.incarnation);
                if is_repaired || self.refused_until.is_none_or(|until| until <= now) {
                    *dial_at = Some(dial_at.map_or(now, |at| at.min(now)));
                } else if let Some(refusal) = self.identity.difference_from(&hello.identity) {
                    self.say_refused(Ends { to: from, from: 0 }, &refusal);
                }
                // Otherwise the difference has gone. An answer would refuse the peer for another 5 s, and the peer
                // could do the same to this node, for ever.
            }
            State::Calling { nonce, .. } if to != *nonce => {
                let ends = Ends { to: from, from: *nonce };
                self.say_hello(ends, false);
            }
            State::Calling { nonce, .. } => {
                let ends = Ends { to: from, from: *nonce };
                self.pair(now, ends, hello, effects);
            }
            State::Connected(_) => self.hello_while_connected(now, &hello, effects),
            State::Left => {}
        }
    }

    /// Takes a `Hello` that names our nonce: its sender has seen it, so it is not an old copy.
    fn pair(&mut self, now: Duration, ends: Ends, hello: Hello, effects: &mut Vec<Effect<T>>) {
        let is_faulty = self.faulty == Some(hello.identity.incarnation);
        if let Some(until) = self.refused_until.filter(|until| is_faulty && now < *until) {
            // A `Hello` of another incarnation, which may be an old copy, has ended the wait for this one.
            self.state = State::Idle { dial_at: Some(until) };
            return;
        }
        if let Some(refusal) = self.identity.difference_from(&hello.identity) {
            self.say_refused(ends, &refusal);
            self.refused(now, refusal, effects);
            return;
        }
        let Some(protocol) = self.identity.common_protocol(&hello.identity) else { return };
        if !hello.has_paired {
            self.say_hello(ends, true);
        }
        effects.push(Effect::Greeted(Box::new(hello.identity.clone())));
        let connection = Connection::new(now, ends, hello.identity, protocol, self.limit);
        self.state = State::Connected(Box::new(connection));
    }

    fn hello_while_connected(&mut self, now: Duration, hello: &Hello, effects: &mut Vec<Effect<T>>) {
        let State::Connected(connection) = &mut self.state else { return };
        let ends = connection.ends;
        let (other, incarnation) = (hello.ends.from, hello.identity.incarnation);
        if other == ends.to {
            if !hello.has_paired {
                self.say_hello(ends, true);
            }
        } else if incarnation == connection.peer.incarnation {
            let mut frame = Vec::new();
            begin(&mut frame, Kind::Who, Ends { to: other, from: ends.from });
            frame.extend_from_slice(&ends.to.to_le_bytes());
            self.answer(frame);
        } else if let Some((_, since)) =
            connection.rival.filter(|(rival, since)| *rival == incarnation && now < *since + REFUSED)
        {
            if connection.last_heard > since + RIVAL {
                connection.rival = None;
                let connected = format!("{:016x}", connection.peer.incarnation);
                let refusal = Refusal::new(Difference::Incarnation, connected, format!("{incarnation:016x}"));
                self.say_refused(Ends { to: other, from: 0 }, &refusal);
                effects.push(Effect::Refused(Box::new(refusal)));
            }
        } else {
            connection.rival = Some((incarnation, now));
        }
    }

    /// Answers a peer that has paired with an earlier nonce of ours, `known`, and has got a `Hello` with a newer one.
    fn who(&mut self, now: Duration, ends: Ends, known: u64, effects: &mut Vec<Effect<T>>) {
        let bye = Ends { to: ends.from, from: known };
        match &self.state {
            State::Calling { nonce, .. } if *nonce == ends.to => self.say_bye(bye, DownReason::Closed),
            State::Connected(connection) if connection.is_mine(ends) => {
                self.say_bye(bye, DownReason::Closed);
                self.fail(now, DownReason::Closed, false, effects);
            }
            _ => {}
        }
    }

    /// Whether a `Refused` is an answer to our nonce.
    fn is_to_me(&self, ends: Ends) -> bool {
        match &self.state {
            State::Calling { nonce, .. } => ends.to == *nonce,
            State::Connected(connection) => connection.is_mine(ends),
            State::Idle { .. } | State::Left => false,
        }
    }

    fn refused(&mut self, now: Duration, refusal: Refusal, effects: &mut Vec<Effect<T>>) {
        self.fail(now, DownReason::Refused, false, effects);
        self.state = State::Idle { dial_at: Some(now + REFUSED) };
        (self.refused_until, self.faulty) = (Some(now + REFUSED), None);
        effects.push(Effect::Refused(Box::new(refusal)));
    }

    /// Ends the connection, if there is one. There is a `Down` exactly if there was an up.
    ///
    /// A peer that has sent what it must not send will do so again. So both sides wait as after a refusal. A node that
    /// is started again may have another program, so nobody waits for that one.
    fn fail(&mut self, now: Duration, reason: DownReason, says_bye: bool, effects: &mut Vec<Effect<T>>) {
        let is_fault = reason == DownReason::Protocol;
        if let State::Connected(connection) = &self.state
            && is_fault
        {
            (self.refused_until, self.faulty) = (Some(now + REFUSED), Some(connection.peer.incarnation));
        }
        let dial_at = (reason != DownReason::Left).then_some(now + if is_fault { REFUSED } else { BROKEN });
        let state = std::mem::replace(&mut self.state, State::Idle { dial_at });
        let State::Connected(connection) = state else { return };
        if says_bye {
            self.say_bye(connection.ends, reason);
        }
        if connection.stage == Stage::Up {
            effects.push(Effect::Down(reason));
            effects.extend(connection.into_tokens().map(Effect::Undelivered));
        }
    }
}
