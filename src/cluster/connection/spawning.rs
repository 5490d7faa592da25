//! Processes that one of the two nodes spawns on the other.
//!
//! `docs/cluster.md`, "Remote spawn", has the protocol and says why each process is ended whose spawner does not get
//! its PID.

use super::{BadFrame, Connection, Letter, put_head, why_not_sent, word};
use crate::cluster::codec::{self, Encoded, Opened};
use crate::cluster::frame::Head;
use crate::cluster::peer::Class;
use crate::cluster::questions::{Open, Relations};
use crate::cluster::remote::MAX_BYTES;
use crate::cluster::remote_spawn::{FarOptions, SpawnOrder};
use crate::cluster::wire::{NotEncoded, Takes};
use crate::outcome::{Failure, drop_contained};
use crate::pid::Pid;
use crate::primitives::lock;
use crate::process::no_such_process::NoSuchProcessError;
use crate::process::{CommandError, Completion, Monitor, NodeError, SendError};
use crate::runtime::Core;
use crate::sched::body::StartReport;
use crate::sched::non_local::AnyMessage;
use crate::sched::trace_marks::Context;

/// A process that was spawned here, and has not started.
pub(super) struct Starting {
    /// The number of the question at the other node.
    number: u64,
    relations: Relations,
}

/// Ends a process whose start cannot be reported.
pub(crate) fn end_unreported(core: &Core, completion: &Completion) {
    let mut has_started = false;
    completion.look(&mut |answer| has_started = answer.is_ok());
    if let Some(child) = completion.answered_by().filter(|_| has_started) {
        let _ = core.terminate(&mut core.executor(), child, false);
    }
}

impl Connection {
    /// Sends a message, or the order for a process. If it is not sent, it comes back with the reason. It needs no room
    /// if its sender `is_held` from now on.
    pub(in crate::cluster) fn post_or_spawn(
        &self,
        (from, to): (Option<Pid>, Pid),
        (message, trace): (AnyMessage, Option<&Context>),
        is_held: bool,
    ) -> Result<(), (AnyMessage, SendError)> {
        let posted = match message.downcast_ref::<SpawnOrder>() {
            None => self.post((from, to), (message, trace), is_held),
            Some(order) => match self.spawn((from, to), order, is_held) {
                Ok(()) => {
                    drop_contained(message);
                    Ok(())
                }
                Err(why) => Err((message, why)),
            },
        };
        posted.map_err(|(message, why)| (message, SendError::Node { pid: to, why }))
    }

    /// Spawns a process on the other node. The order of a process that `is_held` from now on needs no room.
    fn spawn(&self, (from, to): (Option<Pid>, Pid), order: &SpawnOrder, is_held: bool) -> Result<(), NodeError> {
        let is_related = order.options.link || order.options.monitor.is_some();
        if is_related && from.is_none_or(|from| from.node() != self.side.here) {
            return Err(NodeError::DurableSpawner);
        }
        let Some(ask) = order.reply.ask() else {
            return Err(NodeError::NotEncoded { why: "its reply has been used".into() });
        };
        let FarOptions { link, monitor, .. } = order.options;
        let relations = Relations { of: from.filter(|_| is_related), link, monitor };
        let number = self.side.questions.export_order(ask, word(from), order.read, relations);
        let letter = Letter { to, from, type_name: order.type_name, more: None };
        let sent = self.encode_spawn(from, number, order).map_err(|error| match error {
            NotEncoded::NotRemote => NodeError::NotRemoteProcess { type_name: order.type_name },
            other => why_not_sent(other),
        });
        let class = if is_held { Class::Held } else { Class::Message };
        let sent = sent.and_then(|encoded| Ok(self.offer(encoded, word(from), (Some(letter), class))?));
        if sent.is_err() {
            self.side.questions.take_back(number, ask);
        }
        sent
    }

    fn encode_spawn(&self, from: Option<Pid>, number: u64, order: &SpawnOrder) -> Result<Encoded, NotEncoded> {
        let outgoing = self.wire.outgoing_as(order.process, &self.taken)?;
        let head = Head::Spawn { number, from, kind: outgoing.index, options: order.options.clone() };
        let encoded = codec::encode(&self.side, (word(from), MAX_BYTES), |output| {
            put_head(&head, output)?;
            output.begin_value(outgoing.limit);
            outgoing.encode(&*order.argument, output)
        });
        encoded.map(|((), encoded)| encoded)
    }

    /// Spawns a process here, because the other node wants it.
    pub(super) fn take_spawn(
        &self,
        opened: &Opened<'_>,
        bytes: &[u8],
        kind: u32,
        (number, from, options): (u64, Option<Pid>, FarOptions),
    ) -> Result<(), BadFrame> {
        let Some((Takes::Process(describe), type_name)) =
            self.wire.kind(kind).map(|kind| (&kind.takes, kind.type_name))
        else {
            return Err(BadFrame(format!("this node has no type of processes with the index {kind}").into()));
        };
        let is_related = options.link || options.monitor.is_some();
        let is_sound = match from {
            Some(from) => {
                if is_related {
                    from.node() == self.side.there
                } else {
                    self.there.has(from)
                }
            }
            None => !is_related,
        };
        if !is_sound {
            return Err(BadFrame("a process is to be spawned for one of another node".into()));
        }
        let here = Pid::new(self.side.here, 0, 1).unwrap_or(Pid::FIRST);
        let decoded = opened.decode(None, || describe(bytes));
        let imported = self.note_imported(opened);
        let decoded = match (self.core.upgrade(), decoded) {
            (Some(core), Ok(described)) => Ok((core, described)),
            (None, Ok(described)) => {
                drop_contained(described);
                Err(CommandError::NoSuchProcess(NoSuchProcessError::RuntimeEnded))
            }
            (_, Err(error)) => Err(self.bury_spoilt((from, here), (type_name, None), &*error)),
        };
        let (core, described) = match decoded {
            Ok(decoded) => decoded,
            Err(why) => {
                self.answer_missing(opened, &imported, (None, &why));
                self.send_no_answer(number, None, &why);
                return Ok(());
            }
        };
        self.answer_missing(opened, &imported, (None, &CommandError::Dropped));
        let relations = Relations { of: from.filter(|_| is_related), link: options.link, monitor: options.monitor };
        // The answer goes by the number of the node. The table says to whom.
        let to = from.or_else(|| Pid::new(self.side.there, 0, 1)).unwrap_or(Pid::FIRST);
        let spawned = core.spawn_from_elsewhere(|pid| {
            let mut ready = described(pid, options.here())?;
            ready.head.rare().begun = Some(StartReport { to, tag: number, answer: |_, _| Box::new(()) });
            lock(&self.starting).insert(pid, Starting { number, relations });
            Ok(ready)
        });
        if let Err(why) = spawned {
            self.send_no_answer(number, None, &CommandError::Failed(Failure::new(why)));
        }
        Ok(())
    }

    /// The asker of the question with this number waits no longer. If a process starts for it, that is ended.
    pub(super) fn end_starting(&self, number: u64) {
        let child = {
            let mut starting = lock(&self.starting);
            let child = starting.iter().find(|(_, starting)| starting.number == number).map(|(child, _)| *child);
            child.inspect(|child| _ = starting.remove(child))
        };
        if let (Some(child), Some(core)) = (child, self.core.upgrade()) {
            let _ = core.terminate(&mut core.executor(), child, false);
        }
    }

    /// The `init` of a process that the other node has spawned has returned, or it has failed. The caller has its body.
    pub(in crate::cluster) fn report_start(&self, core: &Core, completion: &Completion) {
        let child = completion.answered_by();
        let starting = child.and_then(|child| Some((child, lock(&self.starting).remove(&child)?)));
        let Some((child, Starting { number, relations })) = starting else {
            // It was spawned over an earlier connection.
            return end_unreported(core, completion);
        };
        let mut why = None;
        completion.look(&mut |answer| why = answer.err().cloned());
        match why {
            Some(why) => self.send_no_answer(number, Some(child), &why),
            None if self.relate_and_report(core, child, number, relations) => {}
            None => end_unreported(core, completion),
        }
    }

    /// Returns whether the start was reported.
    fn relate_and_report(&self, core: &Core, child: Pid, number: u64, relations: Relations) -> bool {
        let Relations { of, link, monitor } = relations;
        let report = || self.send_started(child, number, monitor);
        if monitor.is_some() {
            self.watch_here(core, child);
        }
        let Some(parent) = of.filter(|_| link) else { return report() };
        let mut is_linked = false;
        core.relations.linked_from_elsewhere(&*core.road, (parent, child), |lives| {
            is_linked = lives && self.relations.begin_link(child, parent, report);
            is_linked
        });
        is_linked
    }

    fn send_started(&self, child: Pid, number: u64, monitor: Option<u64>) -> bool {
        let encoded = codec::encode(&self.side, (child.to_word(), MAX_BYTES), |output| {
            put_head(&Head::Started { number, child }, output)?;
            output.encode(&(child, monitor)).map_err(NotEncoded::Failed)
        });
        encoded.is_ok_and(|((), encoded)| self.offer_control(encoded, child.to_word()).is_ok())
    }

    /// A process that this node has spawned has started there. Its relations are those that were ordered.
    pub(super) fn take_started(
        &self,
        opened: &Opened<'_>,
        bytes: &[u8],
        (number, child): (u64, Pid),
    ) -> Result<(), BadFrame> {
        if child.node() != self.there.node {
            return Err(BadFrame("a report has a process of another node".into()));
        }
        let Some(core) = self.core.upgrade() else { return Ok(()) };
        let is_known = match self.side.questions.take(number, Some(child)) {
            Some(order) => match order.spawned() {
                Some(relations) => self.tell_started(&core, opened, bytes, (order, child, relations)),
                None => {
                    order.give_up(CommandError::Dropped);
                    return Err(BadFrame("the start of a process is no answer to this question".into()));
                }
            },
            None => false,
        };
        if !is_known {
            self.send_control(0, &Head::Terminate { to: child, number: None });
        }
        Ok(())
    }

    /// Returns whether the spawner knows of the process now.
    fn tell_started(
        &self,
        core: &Core,
        opened: &Opened<'_>,
        bytes: &[u8],
        (order, child, relations): (Open, Pid, Relations),
    ) -> bool {
        let Relations { of, link, monitor } = relations;
        let (road, monitor) = (&*core.road, monitor.map(|id| Monitor::new(id, child)));
        // The relations are there before the asker knows of the process. Until it does, no other thread ends them.
        if of.is_some_and(|of| !core.relations.spawned_elsewhere(road, (of, child), (link, monitor))) {
            // The spawner has ended.
            order.give_up(CommandError::Dropped);
            return false;
        }
        let is_known = match opened.decode(None, || order.decode(bytes)) {
            Ok(answer) => order.answer(answer),
            Err(error) => {
                order.give_up(CommandError::Failed(Failure::from(error)));
                false
            }
        };
        if let Some(of) = of.filter(|_| !is_known) {
            core.relations.unlink(road, of, child);
            monitor.into_iter().for_each(|monitor| _ = core.relations.demonitor(road, of, monitor));
        }
        is_known
    }
}
