//! A durable process as it was read from the store, or as it begins.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::contract::Durable;
use super::core::{Made, StoreCore};
use super::journal::Position;
use super::machine::{DurableMachine, Stage};
use super::notice::end_of_parent;
use super::outside::OutsideSeen;
use super::residency::{Call, Kept, Resident};
use super::rows::{Order, Rest, StoredEvent, StoredHead};
use super::ties::Ties;
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::reply::{Completion, QuestionKey, ReplyKey};
use crate::process::step_activity::Sight;
use crate::process::{Answer, CommandError};
use crate::sched::body::Body;
use crate::sched::machine::{Typed, new_body};
use crate::sched::mailbox::{AnyMailbox, Control, Envelope, Signal};
use crate::sched::non_local::AnyMessage;

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
    /// The version of the state, as the store has it.
    pub(super) version: u32,
    pub(super) head: StoredHead,
    /// Its messages, in order.
    pub(super) mail: Vec<LoadedMail<P::Message>>,
    /// The classes of the timers and commands that are stored, by their tags.
    pub(super) open: BTreeMap<u64, u8>,
    /// The tags of its commands whose traces are stored.
    pub(super) traces: BTreeSet<u64>,
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
            version: P::VERSION,
            head,
            mail: Vec::new(),
            open: BTreeMap::new(),
            traces: BTreeSet::new(),
            ties: Ties::default(),
            events: Vec::new(),
            replies: Vec::new(),
            questions: Vec::new(),
            kept: BTreeMap::new(),
            rests_on,
        }
    }
}

/// Makes the body of a durable process, with its messages in its mailbox.
pub(super) fn body_of<P: Durable>(
    store: Arc<StoreCore>,
    resident: Arc<Resident>,
    loaded: Loaded<P>,
    (local, without): (Pid, &HashSet<u64>),
) -> Made {
    let Loaded { process, state, version, head: stored, mail, open, traces, ties, .. } = loaded;
    let Loaded { events, replies, questions, kept, rests_on, .. } = loaded;
    questions.iter().for_each(|(tag, _)| resident.questions.add(*tag));
    let body = new_body(process, local, None, None);
    let mut head = body.head;
    head.tags = stored.tags;
    head.waits = stored.rest == Rest::Wait;
    // They are set before the first turn.
    head.outstanding = open.len() as u32;
    let rare = head.rare();
    rare.known_as = Some(resident.pid);
    // Its steps decline events while it pauses.
    rare.warned = true;
    rare.draws = store.first_draw(stored.rest == Rest::New);
    resident.rest.set_limit(P::SLEEP_AFTER.or(store.keeper.limits.sleep_after));
    let mut typed = body.machine;
    typed.keep_output();
    let (mut queued, mut needless) = (0, Vec::<AnyMessage>::new());
    // The senders of messages that wait elsewhere are among them.
    let senders: HashSet<Pid> = mail.iter().filter_map(|mail| mail.kept.from).collect();
    {
        let mut all = lock(&resident.mail);
        for LoadedMail { number, kept, message } in mail {
            if without.contains(&number) {
                needless.push(Box::new((message, kept)));
                continue;
            }
            queued += 1;
            let (mut from, mut trace) = (kept.from, kept.trace.clone());
            if let Some(ticket) = store.ticket(number) {
                all.insert(number, kept);
                from = Some(ticket);
            }
            typed.waiting().messages.push(Envelope { from, message });
            trace.take().into_iter().for_each(|trace| typed.waiting().mark(trace));
        }
    }
    let answered = offer_events((&store, &resident), &mut typed, events, (&ties, &senders));
    let answered = answered.iter().filter(|tag| open.contains_key(tag)).count() as u32;
    head.outstanding = head.outstanding.saturating_sub(answered);
    for tag in &stored.open {
        typed.waiting().complete(Completion::from(None, *tag, Err(CommandError::Interrupted)));
    }
    let is_new = stored.rest == Rest::New;
    let machine = DurableMachine {
        typed,
        store,
        resident,
        state,
        version,
        stored,
        open,
        traces,
        ties,
        rests_on,
        rewound_at: None,
        held: VecDeque::new(),
        replies,
        kept,
        // A parked process is loaded only if the program has another version of it.
        stage: Stage::Open,
        is_entered: false,
        is_new,
        waits_for_room: false,
        waits_for_disk: Position::START,
        is_reported: false,
        next_kind: None,
        attempts: 0,
        offered: BTreeSet::new(),
        outside: OutsideSeen::default(),
        sleeper: None,
        failed: None,
        sight: Sight::of_nobody(),
    };
    Made { body: (Box::new(Body { head, machine }), queued), needless }
}

/// Puts stored events into the mailbox. `senders` have stored messages for the process. Returns the tags that are
/// answered.
fn offer_events<P: Durable>(
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
            (StoredEvent::Exit { .. }, _) => resident.note(Call::Ends),
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
