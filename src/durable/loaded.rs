//! A durable process as it was read from the store, or as it begins.

use std::collections::{BTreeMap, HashSet};

use super::contract::Durable;
use super::core::StoreCore;
use super::journal::Position;
use super::notice::end_of_parent;
use super::residency::{Call, Kept, Resident};
use super::rows::{Order, StoredEvent, StoredHead};
use super::ties::Ties;
use crate::pid::Pid;
use crate::primitives::lock;
use crate::process::Answer;
use crate::process::reply::{Completion, QuestionKey, ReplyKey};
use crate::sched::machine::Typed;
use crate::sched::mailbox::{AnyMailbox, Control, Signal};

/// A stored event, and the answer if it is one.
pub(super) type LoadedEvent = ((u8, u64), StoredEvent, Option<Answer>);

/// A stored message.
pub(super) struct LoadedMail<M> {
    pub(super) number: u64,
    pub(super) kept: Kept,
    pub(super) message: M,
}

/// A process as it was read from the store, or as it is begun.
pub(super) struct Loaded<P: Durable> {
    pub(super) process: P,
    pub(super) state: Vec<u8>,
    pub(super) head: StoredHead,
    /// Its messages, in order.
    pub(super) mail: Vec<LoadedMail<P::Message>>,
    /// The classes of the timers and commands that are stored, by their tags.
    pub(super) open: BTreeMap<u64, u8>,
    pub(super) ties: Ties,
    /// Stored events, with the answers among them.
    pub(super) events: Vec<LoadedEvent>,
    /// The replies that the state has.
    pub(super) replies: Vec<ReplyKey>,
    /// The tags of its stored questions, and the times at which their limits are over.
    pub(super) questions: Vec<(u64, Option<u64>)>,
    /// The replies to stored questions that its last record has, by the numbers of the questions.
    pub(super) kept: BTreeMap<u64, QuestionKey>,
    /// The last record that the state rests on.
    pub(super) rests_on: Position,
}

impl<P: Durable> Loaded<P> {
    /// A process that begins with this record.
    pub(super) fn new(process: P, state: Vec<u8>, head: StoredHead, rests_on: Position) -> Loaded<P> {
        Loaded {
            process,
            state,
            head,
            mail: Vec::new(),
            open: BTreeMap::new(),
            ties: Ties::default(),
            events: Vec::new(),
            replies: Vec::new(),
            questions: Vec::new(),
            kept: BTreeMap::new(),
            rests_on,
        }
    }
}

/// Puts stored events into the mailbox. `senders` have stored messages for the process. Returns the tags that are
/// answered.
pub(super) fn offer_events<P: Durable>(
    (store, resident): (&StoreCore, &Resident),
    typed: &mut Typed<P>,
    events: Vec<LoadedEvent>,
    (ties, senders): (&Ties, &HashSet<Pid>),
) -> Vec<u64> {
    let mut answered = Vec::new();
    for (key, event, answer) in events {
        match (&event, answer) {
            (StoredEvent::Answer(_), Some(answer)) => {
                answered.push(key.1);
                typed.waiting().complete(Completion::from(None, key.1, answer));
            }
            (StoredEvent::Order(Order::Terminate), _) => resident.note(Call::Terminate),
            (StoredEvent::Order(Order::Cancel), _) => {
                typed.waiting().signal(Signal::Control(Control::Cancel(end_of_parent())));
            }
            (StoredEvent::Exit { .. }, _) => resident.note(Call::Exits),
            (StoredEvent::Down { exit }, _) => {
                // One whose monitor was ended is not wanted.
                let Some(down) = ties.watches.get(&key.1).and_then(|noted| store.down(key.1, *noted, exit)) else {
                    continue;
                };
                match senders.contains(&down.pid) {
                    true => lock(&resident.deferred).push(down),
                    false => typed.waiting().signal(Signal::Control(Control::Down(down))),
                }
            }
            (
                StoredEvent::Order(Order::Leave)
                | StoredEvent::Answer(_)
                | StoredEvent::Watched { .. }
                | StoredEvent::Linked
                | StoredEvent::Request(_),
                _,
            ) => {}
        }
        lock(&resident.events).insert(key, event);
    }
    answered
}
