//! The connection to another node, above the frames: messages and answers go out and come in.
//!
//! **Out.** A message is encoded by the thread that sends it, with no lock held, and handed to the [`Carrier`]. If the
//! carrier does not take it, the replies in it are taken back, and the message goes back to its sender. If it does, the
//! message is dropped, and is accounted for on the other node from now on. When the connection breaks, the carrier says
//! which messages the other node has not confirmed. Each of them is a dead letter here.
//!
//! **In.** A frame is decoded by the thread that brings it, contained, and delivered as a message of this runtime would
//! be. A message that cannot be decoded is a dead letter here, and the askers of its questions are told. The frames
//! behind it are not disturbed.
//!
//! **Why each question is answered.** It is in the table of the asker's side from its encoding on. It leaves the table
//! with its answer, when its asker gives up, when its message is taken back, and when the connection is down. A later
//! question is taken back at once, because the carrier of a broken connection takes no frame.

mod answering;
mod broadcasting;
mod relating;
mod sharing;
mod spawning;

use std::any::Any;
use std::collections::BTreeMap;

use self::spawning::Starting;
pub(crate) use self::spawning::end_unreported;
use super::codec::{self, Encoded, Opened};
use super::events::NodeWatch;
use super::far_relations::FarRelations;
use super::frame::Head;
use super::groups::Groups;
use super::guarded;
use super::lives::Lives;
use super::output::Output;
use super::peer::{Bound, Class, Room};
use super::peer_limits::PeerLimits;
use super::questions::{AnswerTypes, Questions};
use super::remote::MAX_BYTES;
use super::scope::Side;
use super::unique::UniqueNames;
use super::wire::{NotEncoded, Taken, Takes, Wire};
use crate::outcome::{BoxError, Failure, drop_contained, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, OnceLock, Weak, lock};
use crate::process::command::why_dead;
use crate::process::far_asker::AnswersElsewhere;
use crate::process::host::{CountedHost, Host};
use crate::process::no_such_process::NoSuchProcessError;
use crate::process::propagation::{self, Propagator, TraceContext, tell_trace, with_trace};
use crate::process::{Ask, CommandError, DeadLetter, DeadLetterReason, NodeError};
use crate::runtime::{Core, ExitWatcher};
use crate::sched::non_local::AnyMessage;
use crate::sched::outbox::Outbox;
use crate::sched::trace_marks::{Context, MessageTrace};

/// A frame on its way out.
pub(crate) struct Item {
    pub(crate) bytes: Vec<u8>,
    /// The packed PID of the sender, or 0. Frames of one sender keep their order.
    pub(crate) sender: u64,
    /// The message in it, if it has one.
    pub(crate) letter: Option<Letter>,
    pub(crate) class: Class,
}

/// The properties of a message that was sent, for its dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) to: Pid,
    pub(crate) from: Option<Pid>,
    pub(crate) type_name: &'static str,
    /// `None` for most messages: they have one receiver, and no context that is kept.
    pub(crate) more: Option<Arc<LetterMore>>,
}

/// The rare properties of a [`Letter`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LetterMore {
    /// The other receivers of a broadcast.
    pub(crate) others: Box<[Pid]>,
    /// The context of its trace, as the propagator has written it. The context itself would be dropped under the lock
    /// of the peer when the other node has confirmed the message, and its destructor is the user's code.
    trace: Option<Box<[u8]>>,
}

impl Letter {
    /// The context of its trace, as the propagator has written it.
    fn trace(&self) -> Option<&[u8]> {
        self.more.as_ref()?.trace.as_deref()
    }

    /// Calls `bury` with the dead letter of each receiver. The connection is down.
    fn each(&self, bury: impl Fn(&DeadLetter<'_>)) {
        let (from, type_name) = (self.from, self.type_name);
        for to in std::iter::once(&self.to).chain(self.more.iter().flat_map(|more| &more.others)) {
            bury(&DeadLetter { from, type_name, ..DeadLetter::new(*to, DeadLetterReason::NodeDown) });
        }
    }
}

impl LetterMore {
    /// `None` if there is nothing in it.
    fn of(others: &[Pid], trace: Option<Vec<u8>>) -> Option<Arc<LetterMore>> {
        let is_empty = others.is_empty() && trace.is_none();
        (!is_empty).then(|| Arc::new(LetterMore { others: others.into(), trace: trace.map(Vec::into_boxed_slice) }))
    }
}

/// Why a carrier has not taken a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Busy,
    Down,
}

impl From<Refused> for NodeError {
    fn from(refused: Refused) -> NodeError {
        match refused {
            Refused::Busy => NodeError::Busy,
            Refused::Down => NodeError::NodeDown,
        }
    }
}

/// Carries frames to the other node.
pub(crate) trait Carrier: Send + Sync {
    /// Takes a frame. It never waits.
    fn offer(&self, item: Item) -> Result<(), Refused>;

    /// Returns which messages are taken now, of those whose sizes are not known. If some are not, the node is told when
    /// there is more room, or when it is down.
    fn room(&self) -> Room {
        Room::All
    }

    /// Returns whether items of this bound have room, or the connection is down. If they have none, the node is told
    /// when there is some, or when the connection is down.
    fn has_room_for(&self, bound: Bound) -> bool {
        let _ = bound;
        true
    }

    /// The bound of the last waiting message of a sender. `None` stands for a sender whose message was refused.
    fn needed_by(&self, sender: Option<u64>) -> Bound {
        let _ = sender;
        Bound::Small
    }
}

/// The numbers of one of the two nodes: its own, and that of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) node: u32,
    pub(crate) store: Option<u32>,
}

impl Numbers {
    /// Whether the process lives on the node.
    fn has(self, pid: Pid) -> bool {
        pid.node() == self.node || Some(pid.node()) == self.store
    }
}

/// The connection to another node, from its up to its down.
pub(crate) struct Connection {
    here: Numbers,
    there: Numbers,
    side: Arc<Side>,
    wire: Arc<Wire>,
    taken: Taken,
    carrier: Arc<dyn Carrier>,
    /// The version of the protocol in which frames are written and read.
    protocol: u16,
    core: Weak<Core>,
    /// The questions of the other node whose replies are here. `None` when the connection is down.
    imported: Mutex<Option<BTreeMap<u64, Weak<Ask>>>>,
    /// The processes that the other node has spawned here, and that have not started.
    starting: Mutex<BTreeMap<Pid, Starting>>,
    /// The monitors and links with processes of the other node.
    relations: FarRelations<ExitWatcher>,
    limits: Arc<PeerLimits>,
    /// Set before the first frame is taken.
    shared: OnceLock<Shared>,
    me: Weak<Connection>,
}

/// The groups, names and events of this node, and the incarnation of the other one.
struct Shared {
    groups: Weak<Groups<Connection>>,
    unique: Weak<UniqueNames<Connection>>,
    watch: Arc<NodeWatch>,
    peer: u64,
}

/// Takes the answers to questions of the other node.
struct Desk(Weak<Connection>);

impl AnswersElsewhere for Desk {
    fn answered(&self, number: u64, from: Option<Pid>, answer: Result<Box<dyn Any + Send>, CommandError>) {
        match self.0.upgrade() {
            Some(connection) => connection.send_answer(number, from, answer),
            // The connection is down, and the asker was told.
            None => drop_contained(answer),
        }
    }
}

/// A frame of the other node is not one that this node understands.
#[derive(Debug, thiserror::Error)]
#[error("a frame of the other node cannot be read: {0}")]
pub(crate) struct BadFrame(BoxError);

/// Has all messages that are put into an outbox be in one trace.
struct InTrace(MessageTrace);

impl Propagator for InTrace {
    fn current(&self) -> Option<Context> {
        self.0.get().cloned()
    }
}

impl Connection {
    /// Makes the connection to a node with this name that has sent this list of types. `here` and `there` are the
    /// numbers of the two.
    pub(crate) fn new(
        (here, there): (Numbers, Numbers),
        (peer, lives, limits): (Arc<str>, Arc<Lives>, Arc<PeerLimits>),
        (wire, list): (Arc<Wire>, &[u8]),
        (carrier, protocol): (Arc<dyn Carrier>, u16),
        core: Weak<Core>,
    ) -> Result<Arc<Connection>, BoxError> {
        let taken = wire.taken_by(list)?;
        Ok(Arc::new_cyclic(|me: &Weak<Connection>| {
            let (closes, host) = (me.clone(), core.clone());
            let closed = move |number, sender| {
                if let Some(connection) = closes.upgrade() {
                    connection.send_head(sender, &Head::Closed { number });
                }
            };
            let side = Side {
                lives,
                here: here.node,
                there: there.node,
                peer,
                questions: Questions::new(closed),
                answers: Arc::new(AnswerTypes::default()),
                desk: Arc::new(Desk(me.clone())),
                host: Box::new(move || Some(Arc::new(host.upgrade()? as Arc<dyn Host>) as CountedHost)),
            };
            let (side, imported, me) = (Arc::new(side), Mutex::new(Some(BTreeMap::new())), me.clone());
            let starting = Mutex::default();
            Connection {
                here,
                there,
                side,
                wire,
                taken,
                carrier,
                protocol,
                core,
                imported,
                starting,
                relations: FarRelations::new(limits.max_watched, limits.max_links),
                limits,
                shared: OnceLock::new(),
                me,
            }
        }))
    }

    /// Sends a message. If it is not sent, it comes back with the reason. That of a process that `is_held` from now on
    /// needs no room.
    pub(crate) fn post(
        &self,
        (from, to): (Option<Pid>, Pid),
        (message, trace): (AnyMessage, Option<&Context>),
        is_held: bool,
    ) -> Result<(), (AnyMessage, NodeError)> {
        let (letter, encoded) = match self.encode((from, to), &*message, trace) {
            Ok(encoded) => encoded,
            Err(why) => return Err((message, why)),
        };
        let class = if is_held { Class::Held } else { Class::Message };
        match self.offer(encoded, word(from), (Some(letter), class)) {
            Ok(()) => {
                // The replies in it belong to the connection now.
                drop_contained(message);
                Ok(())
            }
            Err(refused) => Err((message, refused.into())),
        }
    }

    /// Whether the other node takes messages of a type that was registered here.
    pub(crate) fn takes(&self, id: std::any::TypeId) -> bool {
        self.taken.takes(id)
    }

    /// Why the other node takes no messages of this type, if it does not.
    pub(crate) fn why_not_taken(&self, id: std::any::TypeId) -> Option<NodeError> {
        self.wire.outgoing_as(id, &self.taken).err().map(why_not_sent)
    }

    fn encode(
        &self,
        (from, to): (Option<Pid>, Pid),
        message: &dyn Any,
        trace: Option<&Context>,
    ) -> Result<(Letter, Encoded), NodeError> {
        let trace = trace.and_then(trace_header);
        let encode = || {
            let outgoing = self.wire.outgoing(message, &self.taken)?;
            let limits = (word(from), MAX_BYTES);
            let (_, encoded) = codec::encode_in_trace(&self.side, limits, trace.as_deref(), |output| {
                put_head(&Head::Message { to, from, kind: outgoing.index }, output)?;
                output.begin_value(outgoing.limit);
                outgoing.encode(message, output)
            })?;
            Ok((outgoing.type_name, encoded))
        };
        let (type_name, encoded) = encode().map_err(why_not_sent)?;
        Ok((Letter { to, from, type_name, more: LetterMore::of(&[], trace) }, encoded))
    }

    /// Knows what has room.
    pub(crate) fn carrier(&self) -> &dyn Carrier {
        &*self.carrier
    }

    fn offer(&self, encoded: Encoded, sender: u64, (letter, class): (Option<Letter>, Class)) -> Result<(), Refused> {
        let (bytes, exports) = encoded.into_parts();
        match self.carrier.offer(Item { bytes, sender, letter, class }) {
            Ok(()) => {
                // Their askers have given up since they were exported. If that was said, it was said too early.
                let given_up = exports.numbers().into_iter().filter(|number| !self.side.questions.is_open(*number));
                given_up.for_each(|number| _ = self.send_head(sender, &Head::Closed { number }));
                Ok(())
            }
            Err(refused) => {
                exports.take_back();
                Err(refused)
            }
        }
    }

    /// Offers a frame that passes the frames of other senders.
    fn offer_control(&self, encoded: Encoded, sender: u64) -> Result<(), Refused> {
        let (bytes, _) = encoded.into_parts();
        self.carrier.offer(Item { bytes, sender, letter: None, class: Class::Control })
    }

    /// Sends a frame without a value. Returns whether it was encoded.
    pub(in crate::cluster) fn send_head(&self, sender: u64, head: &Head) -> bool {
        let encoded = codec::encode(&self.side, (sender, MAX_BYTES), |output| put_head(head, output));
        encoded.map(|((), encoded)| _ = self.offer(encoded, sender, (None, Class::Notice))).is_ok()
    }

    /// Takes a frame of the other node.
    ///
    /// # Errors
    ///
    /// The frame is not one that this node understands. The connection cannot go on.
    pub(crate) fn receive(&self, bytes: &[u8]) -> Result<(), BadFrame> {
        let opened = codec::open(&self.side, bytes).map_err(BadFrame)?;
        let mut rest = opened.value;
        let head = opened.decode(None, || {
            let (head, value) = guarded::decode_first(rest)?;
            rest = value;
            Ok(head)
        });
        match head.map_err(BadFrame)? {
            Head::Message { to, from, kind } => {
                let propagator = self.trace_of(opened.trace);
                self.take_message((&opened, propagator.as_ref()), rest, (from, to), kind)
            }
            Head::Broadcast { to, from, kind } => self.take_broadcast(&opened, rest, (from, &to), kind),
            Head::Answer { number, from } => self.take_answer(&opened, rest, number, from),
            Head::NoAnswer { number, from, why } => {
                if let Some(question) = self.side.questions.take(number, from) {
                    question.give_up(why.here());
                }
                Ok(())
            }
            Head::Closed { number } => {
                match self.forget_imported(number) {
                    Some(ask) => ask.close(),
                    None => self.end_starting(number),
                }
                Ok(())
            }
            Head::Spawn { number, from, kind, options } => {
                self.take_spawn(&opened, rest, kind, (number, from, options))
            }
            Head::Started { number, child } => self.take_started(&opened, rest, (number, child)),
            control => self.take_control(control),
        }
    }

    fn take_answer(&self, opened: &Opened<'_>, bytes: &[u8], number: u64, from: Option<Pid>) -> Result<(), BadFrame> {
        // If the asker has given up, nobody takes the replies in the answer.
        let question = self.side.questions.take(number, from);
        if question.as_ref().is_some_and(|question| question.spawned().is_some()) {
            question.into_iter().for_each(|order| order.give_up(CommandError::Dropped));
            return Err(BadFrame("the answer to the order for a process is a report of its start".into()));
        }
        let decoded = question.map(|question| {
            let decoded = opened.decode(None, || question.decode(bytes));
            (question, decoded)
        });
        let imported = self.note_imported(opened);
        self.answer_missing(opened, &imported, (from, &CommandError::Dropped));
        match decoded {
            // Behind the scope of the value: wakers and callbacks run now.
            Some((question, Ok(answer))) => _ = question.answer(answer),
            Some((question, Err(error))) => question.give_up(CommandError::Failed(Failure::from(error))),
            None => {}
        }
        Ok(())
    }

    /// Answers the questions whose replies a value has, but which were not decoded.
    fn answer_missing(
        &self,
        opened: &Opened<'_>,
        imported: &[(u64, Arc<Ask>)],
        (from, why): (Option<Pid>, &CommandError),
    ) {
        let is_missing = |number: &&u64| !imported.iter().any(|(imported, _)| imported == *number);
        opened.asks().iter().filter(is_missing).for_each(|number| self.send_no_answer(*number, from, why));
    }

    /// The trace that a frame or a letter names, once for all its receivers.
    fn trace_of(&self, trace: Option<&[u8]>) -> Option<Arc<InTrace>> {
        let propagator = self.core.upgrade()?.road.propagator.clone()?;
        let context = propagation::decode(&*propagator, trace?)?;
        Some(Arc::new(InTrace(MessageTrace::new(Some(context)))))
    }

    fn take_message(
        &self,
        (opened, trace): (&Opened<'_>, Option<&Arc<InTrace>>),
        bytes: &[u8],
        (from, to): (Option<Pid>, Pid),
        kind: u32,
    ) -> Result<(), BadFrame> {
        let Some((Takes::Message(decode), type_name)) = self.wire.kind(kind).map(|kind| (&kind.takes, kind.type_name))
        else {
            return Err(BadFrame(format!("this node has no type of messages with the index {kind}").into()));
        };
        if !self.here.has(to) || from.is_some_and(|from| !self.there.has(from)) {
            return Err(BadFrame("a message has a sender or a receiver of another node".into()));
        }
        let core = self.core.upgrade();
        let context = trace.and_then(|trace| trace.0.get()).map(|context| &**context);
        let mut outbox = Outbox::with_traces(trace.map(|trace| trace.clone() as Arc<dyn Propagator>));
        let decoded = opened.decode(Some(to), || decode(bytes, &mut outbox));
        let imported = self.note_imported(opened);
        let (Some(core), Ok(lane)) = (core, &decoded) else {
            let why = match decoded {
                Ok(_) => CommandError::NoSuchProcess(NoSuchProcessError::RuntimeEnded),
                Err(error) => self.bury_spoilt((from, to), (type_name, context), &*error),
            };
            // Those that were decoded before the error have told their askers.
            self.answer_missing(opened, &imported, (Some(to), &why));
            drop_contained(outbox);
            return Ok(());
        };
        self.answer_missing(opened, &imported, (Some(to), &CommandError::Dropped));
        core.road.deliver_from_elsewhere(outbox.lane(*lane), (from, to), |letter| {
            // The drop of the message answers its questions with this reason.
            imported.iter().for_each(|(_, ask)| why_dead(letter).into_iter().for_each(|why| ask.refuse(why)));
        });
        Ok(())
    }

    /// The version of the protocol that both nodes speak.
    pub(crate) fn protocol(&self) -> u16 {
        self.protocol
    }

    /// The numbers of the other node.
    pub(crate) fn there(&self) -> Numbers {
        self.there
    }

    /// Reports a message that cannot be decoded. Returns the error for its askers.
    fn bury_spoilt(
        &self,
        (from, to): (Option<Pid>, Pid),
        (type_name, context): (&'static str, Option<&dyn TraceContext>),
        error: &(dyn std::error::Error + Send + Sync),
    ) -> CommandError {
        let why = error.to_string();
        tell_log(|| tracing::warn!(%to, message = type_name, %why, "a message cannot be decoded"));
        if let Some(core) = self.core.upgrade() {
            let letter = DeadLetter { from, type_name, ..DeadLetter::new(to, DeadLetterReason::NotDecoded) };
            with_trace(context, &letter, |letter| core.bury_unsent(letter));
        }
        CommandError::Node { pid: to, why: NodeError::NotDecoded { why } }
    }

    /// Keeps the questions whose replies are here, so that their askers can give them up.
    fn note_imported(&self, opened: &Opened<'_>) -> Vec<(u64, Arc<Ask>)> {
        let imported = opened.imported();
        for (number, ask) in &imported {
            let is_up = match &mut *lock(&self.imported) {
                Some(imported) => {
                    imported.insert(*number, Arc::downgrade(ask));
                    true
                }
                None => false,
            };
            if !is_up {
                ask.close();
            } else if !ask.is_open_now() {
                // It was answered before it was noted.
                self.forget_imported(*number);
            }
        }
        imported
    }

    fn forget_imported(&self, number: u64) -> Option<Arc<Ask>> {
        lock(&self.imported).as_mut()?.remove(&number)?.upgrade()
    }

    /// The connection is down. The carrier takes no frame any more. `unconfirmed` are the messages that the other node
    /// has not confirmed.
    pub(crate) fn down(&self, unconfirmed: impl IntoIterator<Item = Letter>) {
        let mut traced = Vec::new();
        if let Some(core) = self.core.upgrade() {
            for letter in unconfirmed {
                letter.each(|dead| core.bury_unsent(dead));
                traced.extend(letter.trace().is_some().then_some(letter));
            }
        }
        self.end_relations();
        self.side.questions.answer_all(|pid| CommandError::Node { pid, why: NodeError::NodeDown });
        let imported = lock(&self.imported).take();
        imported
            .into_iter()
            .flat_map(BTreeMap::into_values)
            .filter_map(|ask| ask.upgrade())
            .for_each(|ask| ask.close());
        // Traces are notified last, because their contexts are read here, and there may be very many.
        for letter in traced {
            let trace = self.trace_of(letter.trace());
            let context = trace.as_ref().and_then(|trace| trace.0.get()).map(|context| &**context);
            letter.each(|dead| tell_trace(context, dead));
        }
    }

    /// The numbers of processes that are watched there and here, and of links.
    #[cfg(test)]
    pub(crate) fn relations(&self) -> (usize, usize, usize) {
        self.relations.len()
    }

    /// The number of processes that start here for the other node.
    #[cfg(test)]
    pub(crate) fn starting(&self) -> usize {
        lock(&self.starting).len()
    }

    /// The numbers of open questions of this node, and of the other one.
    #[cfg(test)]
    pub(crate) fn open_questions(&self) -> (usize, usize) {
        (self.side.questions.len(), lock(&self.imported).as_ref().map_or(0, BTreeMap::len))
    }
}

/// The header with the context of a message, if the propagator can write it. Otherwise, the letter does not keep the
/// context: no bound would count its bytes.
fn trace_header(trace: &Context) -> Option<Vec<u8>> {
    propagation::encode(&**trace)
}

fn why_not_sent(error: NotEncoded) -> NodeError {
    match error {
        NotEncoded::NotRemote => NodeError::NotRemote { type_name: "the message" },
        NotEncoded::NotTaken { type_name, name, version, why } => {
            NodeError::NotTaken { type_name, name, version, why: why.to_string() }
        }
        NotEncoded::TooLarge(error) => NodeError::TooLarge { size: error.size, limit: error.limit },
        NotEncoded::Failed(error) => NodeError::NotEncoded { why: error.to_string() },
    }
}

fn word(pid: Option<Pid>) -> u64 {
    pid.map_or(0, Pid::to_word)
}

fn put_head(head: &Head, output: &mut Output) -> Result<(), NotEncoded> {
    output.encode(head).map_err(NotEncoded::Failed)
}
