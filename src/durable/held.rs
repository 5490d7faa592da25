//! Yields that wait until the record of their step is on disk.

use std::mem::take;
use std::time::Duration;

use super::core::StoreCore;
use super::journal::Position;
use super::letter::Letter;
use super::new_child::NewChild;
use super::open_questions::NewQuestion;
use super::replies::GoneReply;
use crate::outcome::Reason;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::reply::Ask;
use crate::process::{CommandError, Duty, Monitor, Naming, Relate, Subscription};
use crate::sched::body::{StepOutput, Yield};
use crate::sched::orders::Order;
use crate::sched::outbox::Outbox;

/// Yields that wait for the disk.
#[derive(Default)]
pub(super) struct Held {
    pub(super) rests_on: Position,
    pub(super) orders: Vec<Order>,
    pub(super) yields: Vec<Yield>,
    outbox: Outbox,
    /// Replies that the state has no more.
    pub(super) replies: Vec<GoneReply>,
}

/// A request of a step to a process.
pub(super) enum Asked {
    /// To stop, for this reason and within this time.
    Stop(Reason, Option<Duration>),
    End,
}

/// The sorted yields of a step.
#[derive(Default)]
pub(super) struct Sorted {
    /// Messages to processes of the store.
    pub(super) inside: Vec<Letter>,
    pub(super) held: Held,
    /// New timers: the tags of their commands, and their delays.
    pub(super) timers: Vec<(u64, Duration)>,
    /// The places of commands among the held yields.
    pub(super) commands: Vec<usize>,
    /// Durable children that begin.
    pub(super) children: Vec<NewChild>,
    /// Stored questions, whose messages are inside.
    pub(super) questions: Vec<NewQuestion>,
    /// Questions that end with the run, with their limits. Their messages are in `inside`.
    pub(super) asked: Vec<(Arc<Ask>, Duration)>,
    /// Stored questions that are answered.
    pub(super) replies: Vec<Arc<Ask>>,
    /// The tags of commands that are cancelled.
    pub(super) cancelled: Vec<u64>,
    /// Changes of names and groups that concern this process, with the tags of their commands.
    pub(super) namings: Vec<(u64, Naming)>,
    /// Requests to processes of the store: the tags of their commands, the processes, and the requests.
    pub(super) requests: Vec<(u64, Pid, Asked)>,
    /// Monitors that begin or end, in order.
    pub(super) monitors: Vec<(Monitor, bool)>,
    /// Subscriptions that begin or end, in order. They are also held.
    pub(super) subscriptions: Vec<(Subscription, bool)>,
    /// Links to other processes of the store that begin or end, in order.
    pub(super) links: Vec<(Pid, bool)>,
    /// Links to ordinary processes that begin or end, in order. They are also held.
    pub(super) outside: Vec<(Pid, bool)>,
    /// Whether the process traps exits from now on, if it has said so.
    pub(super) traps: Option<bool>,
    /// Whether a receiver sees who has sent.
    pub(super) names_sender: bool,
}

impl Sorted {
    /// Sorts the yields of a step: messages to processes of the store, its children, and all others. `local` is the PID
    /// of the process in this run.
    pub(super) fn of(store: &StoreCore, local: Option<Pid>, out: &mut StepOutput) -> Sorted {
        let mut sorted = Sorted::default();
        // The command that the next process answers.
        let mut run: Option<(Arc<Duty>, Duration)> = None;
        // No other process of this worker sees the names of this step before they are on disk.
        out.pending_names = None;
        let orders: Vec<Order> = out.orders.take_slices().flatten().collect();
        let mut yields = take(&mut out.yields).into_iter();
        for order in orders {
            let Sorted {
                inside,
                held,
                timers,
                commands,
                children,
                questions,
                asked,
                replies,
                cancelled,
                requests,
                namings,
                monitors,
                subscriptions,
                links,
                outside,
                traps,
                names_sender,
            } = &mut sorted;
            let order = match order {
                Order::Send { lane, count, to } if to.node() == store.run.store => {
                    let letters = (0..count).map_while(|_| out.outbox.lane(lane).pop());
                    inside.extend(letters.map(|popped| Letter::new(to, popped, None)));
                    continue;
                }
                Order::Send { lane, count, to } => {
                    *names_sender = true;
                    let lane = out.outbox.lane(lane).forward(count as usize, &mut held.outbox);
                    Order::Send { lane, count, to }
                }
                Order::Next => {
                    let Some(mut one) = yields.next() else { continue };
                    // They were noted when the step ended.
                    if matches!(one, Yield::Drawn) {
                        continue;
                    }
                    match (one, run.take()) {
                        (Yield::BeginRun { duty, limit }, _) => {
                            run = Some((duty, limit));
                            continue;
                        }
                        (Yield::Spawn(ready), Some((duty, limit))) => match store.child_type(&ready) {
                            Some(kind) => {
                                let child = NewChild::new(duty.tag(), ready);
                                match child.refusal(kind.child, limit) {
                                    None => {
                                        children.push(child);
                                        continue;
                                    }
                                    Some(why) => one = child.refused(out, CommandError::failed(why)),
                                }
                            }
                            None => {
                                held.orders.push(Order::Next);
                                held.yields.push(Yield::BeginRun { duty, limit });
                                one = Yield::Spawn(ready);
                            }
                        },
                        (Yield::CancelCommand { tag }, _) => match children.iter().position(|child| child.tag == tag) {
                            Some(place) => {
                                let why = CommandError::Cancelled(Reason::Cancelled);
                                one = children.swap_remove(place).refused(out, why);
                            }
                            None => {
                                cancelled.push(tag);
                                one = Yield::CancelCommand { tag };
                            }
                        },
                        (Yield::Cancel { tag, to, request }, _) if store.takes_requests(to) => {
                            requests.push((tag, to, Asked::Stop(request.0, request.1)));
                            continue;
                        }
                        (Yield::Terminate { tag, to }, _) if store.takes_requests(to) => {
                            requests.push((tag, to, Asked::End));
                            continue;
                        }
                        (Yield::Ask { lane, to, ask, limit }, _) if to.node() == store.run.store => {
                            if let Some((question, letter)) = store.new_question((to, &ask, limit), (lane, out)) {
                                questions.push(question);
                                inside.push(letter);
                                continue;
                            }
                            if let Some(letter) = store.question_in_memory(to, &ask, (lane, out)) {
                                asked.push((ask, limit));
                                inside.push(letter);
                                continue;
                            }
                            one = Yield::Ask { lane, to, ask, limit };
                        }
                        // The copies for members of the store are part of the record.
                        (Yield::Broadcast { lane, to }, _) if to.iter().any(|to| to.node() == store.run.store) => {
                            let (mine, others): (Vec<Pid>, Vec<Pid>) =
                                to.iter().partition(|to| to.node() == store.run.store);
                            let letters = mine.iter().map_while(|to| Some((*to, out.outbox.lane(lane).pop()?)));
                            let mut letters = letters.map(|(to, popped)| Letter::new(to, popped, None));
                            inside.extend(letters.next());
                            let is_small = inside.last().is_none_or(|one| store.fits(one, mine.len()));
                            let rest = if is_small { [].as_slice() } else { &mine[1..] };
                            if is_small {
                                inside.extend(letters);
                            }
                            let to: Arc<[Pid]> = rest.iter().chain(&others).copied().collect();
                            if to.is_empty() {
                                continue;
                            }
                            one = Yield::Broadcast { lane, to };
                        }
                        (Yield::Reply(reply), _) => match reply.stored() {
                            Ok(ask) => {
                                replies.push(ask);
                                continue;
                            }
                            Err(reply) => one = Yield::Reply(reply),
                        },
                        (Yield::Naming { tag, naming }, _) if store.concerns(&naming, out.pid) => {
                            namings.push((tag, *naming));
                            continue;
                        }
                        (Yield::Relate(relate), _) => {
                            match &relate {
                                Relate::Link(to) | Relate::Unlink(to)
                                    if *to != out.pid && to.node() == store.run.store =>
                                {
                                    links.push((*to, matches!(relate, Relate::Link(_))));
                                    continue;
                                }
                                Relate::Link(to) | Relate::Unlink(to) if *to != out.pid => {
                                    outside.push((*to, matches!(relate, Relate::Link(_))));
                                }
                                // It is not the cell that decides.
                                Relate::TrapExits(trap) => {
                                    *traps = Some(*trap);
                                    continue;
                                }
                                Relate::Subscribe(one) => subscriptions.push((one.clone(), true)),
                                Relate::Unsubscribe(one) => subscriptions.push((one.clone(), false)),
                                _ => {}
                            }
                            let (monitor, begins) = match &relate {
                                Relate::Monitor(monitor) => (Some(*monitor), true),
                                Relate::Demonitor(monitor) => (Some(*monitor), false),
                                _ => (None, false),
                            };
                            let monitor = monitor.filter(|monitor| monitor.pid() != out.pid);
                            monitors.extend(monitor.map(|monitor| (monitor, begins)));
                            if monitor.is_some_and(|monitor| monitor.pid().node() == store.run.store) {
                                continue;
                            }
                            one = Yield::Relate(relate);
                        }
                        (other, _) => one = other,
                    }
                    if let Yield::Spawn(ready) = &mut one
                        && let Some(bond) = ready.head.rare.as_mut().and_then(|rare| rare.bond.as_mut())
                    {
                        outside.extend(bond.link.then_some((ready.head.pid, true)));
                        monitors.extend(bond.monitor.map(|monitor| (monitor, true)));
                        bond.watcher = local.unwrap_or(bond.watcher);
                    }
                    let letters = match &mut one {
                        Yield::Ask { lane, .. } | Yield::SendNowhere { lane, .. } => Some((lane, 1)),
                        Yield::Broadcast { lane, to } => Some((lane, to.len())),
                        Yield::Command { .. } | Yield::CommandTimeout(_) => {
                            commands.push(held.yields.len());
                            None
                        }
                        Yield::Timer { tag, delay } => {
                            timers.push((*tag, *delay));
                            None
                        }
                        _ => None,
                    };
                    if let Some((lane, count)) = letters {
                        *names_sender = true;
                        *lane = out.outbox.lane(*lane).forward(count, &mut held.outbox);
                    }
                    held.yields.push(one);
                    Order::Next
                }
            };
            held.orders.push(order);
        }
        sorted
    }
}

impl StoreCore {
    /// Whether a process is one of the store, and is not known to have ended.
    fn takes_requests(&self, pid: Pid) -> bool {
        self.number_of(pid).is_some_and(|serial| !self.has_ended(serial))
    }

    /// Whether a change of names is one of this process, and concerns itself.
    fn concerns(&self, naming: &Naming, me: Pid) -> bool {
        match naming {
            Naming::Register { pid, .. } | Naming::Join { pid, .. } | Naming::Leave { pid, .. } => *pid == me,
            Naming::Unregister { name } => self.core().is_some_and(|core| core.names.holder(name) == Some(me)),
        }
    }
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.replies.is_empty()
    }

    /// Moves the yields into an output, which is empty.
    pub(super) fn put_into(self, out: &mut StepOutput) {
        let Held { orders, yields, outbox, .. } = self;
        orders.into_iter().for_each(|order| out.orders.push(order));
        out.yields = yields;
        out.outbox.replace_lanes(outbox);
    }

    /// Adds children that do not begin, so that they are dropped as those of any failed step.
    pub(super) fn put_back(&mut self, children: Vec<NewChild>) {
        for child in children {
            self.orders.push(Order::Next);
            self.yields.push(Yield::Spawn(child.ready));
        }
    }
}
