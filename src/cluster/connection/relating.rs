//! Requests to stop, monitors and links over a connection.
//!
//! `docs/cluster.md`, "Relations between nodes", has the protocol and says why it loses nothing.

use serde::Serialize;

use super::{BadFrame, Connection, put_head, word};
use crate::cluster::codec;
use crate::cluster::failures::{FarExit, FarReason};
use crate::cluster::far_relations::{Keeping, LinkRefused};
use crate::cluster::frame::Head;
use crate::cluster::remote::MAX_BYTES;
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, Weak};
use crate::process::no_such_process::NoSuchProcessError;
use crate::process::{Ask, CommandError, Down, NodeError, Recovered, RecoveredBy};
use crate::relations::{LinkEnd, Told};
use crate::runtime::Core;
use crate::sched::engine::Engine;
use crate::sched::non_local::Stop;

impl Connection {
    /// Sends a control frame. Returns whether it was sent.
    pub(super) fn send_control(&self, sender: u64, head: &Head) -> bool {
        let encoded = codec::encode(&self.side, (sender, MAX_BYTES), |output| put_head(head, output));
        encoded.is_ok_and(|((), encoded)| self.offer_control(encoded, sender).is_ok())
    }

    /// Sends a frame with an exit. An exit with a PID that is not known here is sent as a text.
    fn send_exit(&self, sender: Pid, exit: &FarExit, head: impl Fn(FarExit) -> Head) {
        let sender = sender.to_word();
        if !self.send_control(sender, &head(exit.clone())) {
            self.send_control(sender, &head(exit.as_text()));
        }
    }

    /// Asks a process of the other node to end. `asker` is the process that does, with its question. Returns whether
    /// that was sent.
    pub(crate) fn stop(&self, to: Pid, stop: Stop, asker: Option<(Pid, &Arc<Ask>)>) -> bool {
        let sender = word(asker.map(|(asker, _)| asker));
        let number = asker.map(|(_, ask)| self.side.questions.export::<bool>(ask, sender));
        let head = match stop {
            Stop::Cancel { reason, limit } => Head::Cancel { to, number, reason: FarReason::of(&reason), limit },
            Stop::Terminate => Head::Terminate { to, number },
        };
        let is_sent = self.send_control(sender, &head);
        if !is_sent && let Some(question) = number.and_then(|number| self.side.questions.take(number, None)) {
            question.give_up(CommandError::Node { pid: to, why: NodeError::NodeDown });
        }
        is_sent
    }

    /// Asks which process of the other node has this name.
    pub(crate) fn whereis(&self, name: &str, ask: &Arc<Ask>) {
        let number = self.side.questions.export::<Pid>(ask, 0);
        let is_sent = self.send_control(0, &Head::Whereis { number, name: name.into() });
        if !is_sent && let Some(question) = self.side.questions.take(number, None) {
            question.give_up(CommandError::Node { pid: ask.target(), why: NodeError::NodeDown });
        }
    }

    /// Watches a process of the other node. Returns whether the connection is up.
    pub(crate) fn watch(&self, far: Pid) -> bool {
        self.relations.watch(far, || _ = self.send_control(0, &Head::Watch { pid: far }))
    }

    pub(crate) fn unwatch(&self, far: Pid) {
        self.relations.unwatch(far, || _ = self.send_control(0, &Head::Unwatch { pid: far }));
    }

    /// Links a process of this node to one of the other. Returns whether the connection is up.
    pub(crate) fn link(&self, near: Pid, far: Pid) -> bool {
        let head = |number| Head::Link { from: near, to: far, number };
        self.relations.link(near, far, |number| _ = self.send_control(word(Some(near)), &head(number)))
    }

    /// Ends the link. If there is an exit, the state machine of the process of this node has failed.
    pub(crate) fn unlink(&self, near: Pid, far: Pid, exit: Option<&FarExit>) {
        self.relations.unlink(near, far, |number| match exit {
            Some(exit) => {
                self.send_exit(near, exit, |exit| Head::Unlink { from: near, to: far, number, exit: Some(exit) });
            }
            None => {
                let head = Head::Unlink { from: near, to: far, number, exit: None };
                self.send_control(word(Some(near)), &head);
            }
        });
    }

    /// The state machine of a process of this node has failed, and that process alone had made the link. The halves
    /// were taken out. If the other one has linked itself meanwhile, that was before it has learnt of the failure.
    pub(crate) fn recovered(&self, core: &Core, near: Pid, far: Pid, exit: &Exit) {
        let exit = FarExit::of(exit);
        self.end_link(core, (far, near), None, || {
            self.unlink(near, far, Some(&exit));
            LinkEnd::Whole
        });
    }

    /// A process of this node has recovered, and one of the other has linked itself to it.
    pub(crate) fn tell_recovered(&self, recovered: &Recovered, far: Pid) {
        let by_itself = recovered.by == RecoveredBy::Process;
        let head = |exit| Head::Recovered { from: recovered.pid, to: far, exit, by_itself };
        self.send_exit(recovered.pid, &FarExit::of(&recovered.exit), head);
    }

    /// A process of this node that is linked to one of the other has ended.
    pub(crate) fn exit(&self, near: Pid, far: Pid, exit: &Exit) -> bool {
        let exit = FarExit::of(exit);
        self.relations.exit(near, far, || self.send_exit(near, &exit, |exit| Head::Exit { from: near, to: far, exit }))
    }

    /// Takes a control frame of the other node.
    pub(super) fn take_control(&self, head: Head) -> Result<(), BadFrame> {
        let Some(core) = self.core.upgrade() else { return Ok(()) };
        match head {
            Head::Cancel { to, number, reason, limit } => {
                self.check_ours(to)?;
                self.answer_request(number, core.cancel(&mut core.executor(), to, reason.here(), limit));
            }
            Head::Terminate { to, number } => {
                self.check_ours(to)?;
                self.answer_request(number, core.terminate(&mut core.executor(), to, false));
            }
            Head::Watch { pid } => {
                self.check_ours(pid)?;
                self.watch_here(&core, pid);
            }
            Head::Unwatch { pid } => drop(self.relations.take_watcher(pid)),
            Head::Ended { pid, exit } => {
                self.check_theirs(pid)?;
                // Before the halves are taken: a thread that watches in between sends a `Watch` of its own.
                self.relations.ended(pid);
                core.tell_related(pid, &exit.here(), &mut core.executor());
            }
            Head::Link { from, to, number } => {
                self.check_pair(from, to)?;
                let head = |exit| Head::Exit { from: to, to: from, exit };
                let mut limit = None;
                core.relations.linked_from_elsewhere(&*core.road, (from, to), |lives| {
                    self.relations.link_arrived((to, from), number, lives, |why| {
                        let why = match why {
                            LinkRefused::NoSuchProcess => FarReason::NoSuchProcess,
                            LinkRefused::Full { is_first } => {
                                let links = self.limits.max_links;
                                let why = format!("its node has {links} links with this one, which is the limit");
                                limit = Some((why.clone(), is_first));
                                FarReason::Other(why)
                            }
                        };
                        self.send_exit(to, &FarExit::Terminated(why), head);
                    })
                });
                // The report calls the log of the user, so no lock is held.
                limit.into_iter().for_each(|(why, is_first)| self.relation_refused(&why, is_first));
            }
            Head::Unlink { from, to, number, exit } => {
                self.check_pair(from, to)?;
                let head = Head::Unlinked { from: to, to: from, number };
                let exit = exit.map(FarExit::here);
                self.end_link(&core, (from, to), exit.as_ref().map(|exit| (exit, true)), || {
                    let acknowledge = || _ = self.send_control(word(Some(to)), &head);
                    self.relations.unlink_arrived(to, from, number, acknowledge)
                });
                drop_contained(exit);
            }
            Head::Unlinked { from, to, number } => self.relations.unlinked_arrived(to, from, number),
            Head::Exit { from, to, exit } => {
                self.check_pair(from, to)?;
                let exit = exit.here();
                self.end_link(&core, (from, to), Some((&exit, false)), || {
                    if self.relations.exit(to, from, || ()) { LinkEnd::Whole } else { LinkEnd::Nothing }
                });
            }
            Head::IsUp { number, incarnation } => self.take_is_up(number, incarnation),
            Head::StillUp { number } => self.take_still_up(number),
            Head::Whereis { number, name } => {
                let found = core
                    .names
                    .holder(&name)
                    .or_else(|| core.road.named_elsewhere(&name))
                    .ok_or_else(|| NoSuchProcessError::Name(name.into()));
                self.answer_request(Some(number), found);
            }
            Head::Recovered { from, to, exit, by_itself } => {
                self.check_pair(from, to)?;
                let by = if by_itself { RecoveredBy::Process } else { RecoveredBy::SpawnOption };
                let recovered = Recovered { pid: from, exit: exit.here(), by };
                let told = core.relations.recovered_elsewhere(&*core.road, recovered, to);
                core.told(told, &mut core.executor());
            }
            Head::Share(share) => self.take_share(share)?,
            Head::Lease(frame) => self.take_lease_frame(frame)?,
            // They have a value, or concern a question.
            Head::Message { .. }
            | Head::Broadcast { .. }
            | Head::Answer { .. }
            | Head::NoAnswer { .. }
            | Head::Closed { .. }
            | Head::Spawn { .. }
            | Head::Started { .. } => {}
        }
        Ok(())
    }

    fn end_link(&self, core: &Core, pair: (Pid, Pid), exit: Option<(&Exit, bool)>, accept: impl FnOnce() -> LinkEnd) {
        let told: Told = core.relations.unlinked_from_elsewhere(&*core.road, pair, exit, accept);
        core.told(told, &mut core.executor());
    }

    fn check_ours(&self, pid: Pid) -> Result<(), BadFrame> {
        if self.here.has(pid) { Ok(()) } else { Err(BadFrame("a request has a process of another node".into())) }
    }

    pub(super) fn check_theirs(&self, pid: Pid) -> Result<(), BadFrame> {
        if self.there.has(pid) { Ok(()) } else { Err(BadFrame("a report has a process of another node".into())) }
    }

    pub(super) fn check_pair(&self, from: Pid, to: Pid) -> Result<(), BadFrame> {
        // Links of durable processes do not reach over nodes.
        let is_pair = from.node() == self.there.node && to.node() == self.here.node;
        if is_pair { Ok(()) } else { Err(BadFrame("a link has a process of another node".into())) }
    }

    /// Answers a request of the other node: whether a process lived that was to end, or which one has a name.
    fn answer_request<T: Serialize>(&self, number: Option<u64>, answer: Result<T, NoSuchProcessError>) {
        let Some(number) = number else { return };
        match answer {
            Ok(answer) => {
                let encoded = codec::encode(&self.side, (0, MAX_BYTES), |output| {
                    put_head(&Head::Answer { number, from: None }, output)?;
                    output.encode(&answer).map_err(super::NotEncoded::Failed)
                });
                // A connection that is down has told the asker.
                drop(encoded.map(|((), encoded)| self.offer_control(encoded, 0)));
            }
            Err(error) => {
                let why = self.far_error(&CommandError::NoSuchProcess(error));
                self.send_control(0, &Head::NoAnswer { number, from: None, why });
            }
        }
    }

    /// Watches a process of this node for the other one.
    pub(super) fn watch_here(&self, core: &Core, pid: Pid) {
        let watcher = core.watch(&pid);
        let latch = watcher.latch().clone();
        // It is kept before its end can be told. The end takes it out.
        let (dropped, keeping) = self.relations.keep_watcher(pid, watcher);
        match keeping {
            Keeping::Kept => {
                let me: Weak<Connection> = self.me.clone();
                let told = move |down: &Down| me.upgrade().into_iter().for_each(|me| me.tell_ended(pid, &down.exit));
                latch.on_set(told).keep();
            }
            Keeping::Full { is_first } => {
                // One that has ended takes no room.
                let exit = latch.get().map_or_else(
                    || {
                        let watched = self.limits.max_watched;
                        let why = format!("its node lets one node monitor {watched} processes at most");
                        self.relation_refused(&why, is_first);
                        FarExit::Terminated(FarReason::Other(why))
                    },
                    |down| FarExit::of(&down.exit),
                );
                self.send_exit(pid, &exit, |exit| Head::Ended { pid, exit });
            }
            Keeping::Down => {}
        }
        drop(dropped);
    }

    fn relation_refused(&self, why: &str, is_first: bool) {
        self.limits.relation_refused(&self.side.peer, why, is_first);
    }

    fn tell_ended(&self, pid: Pid, exit: &Exit) {
        let watcher = self.relations.take_watcher(pid);
        if watcher.is_some() {
            self.send_exit(pid, &FarExit::of(exit), |exit| Head::Ended { pid, exit });
        }
        drop(watcher);
    }

    /// The store with this number, which was that of the other node, is one of a third node now.
    pub(in crate::cluster) fn store_has_gone(&self, store: u32) {
        let Some(core) = self.core.upgrade() else { return };
        for pid in self.relations.take_watching(store) {
            core.tell_related(pid, &Exit::Terminated(Reason::NodeDown), &mut core.executor());
        }
    }

    /// The connection is down. All that watch a process of the other node, or are linked to one, are told.
    pub(super) fn end_relations(&self) {
        let (far, watchers) = self.relations.down();
        drop(watchers);
        let Some(core) = self.core.upgrade() else { return };
        for pid in far {
            core.tell_related(pid, &Exit::Terminated(Reason::NodeDown), &mut core.executor());
        }
    }
}
