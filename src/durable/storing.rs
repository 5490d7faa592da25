//! Stores the steps of a durable process that have succeeded.

use std::collections::HashSet;
use std::mem::take;
use std::time::Duration;

use super::contract::Durable;
use super::core::StepError;
use super::held::{Held, Sorted};
use super::journal::{Change, Position, Record};
use super::letter::Letter;
use super::machine::DurableMachine;
use super::naming::Named;
use super::new_child::NewChild;
use super::notice::Notice;
use super::residency::{Kept, Taken};
use super::rows::{self, DownExit, Rest, StoredExit, StoredHead};
use super::ties::Ties;
use super::trail::Traced;
use crate::outcome::{BoxError, Failure, contain, drop_contained};
use crate::primitives::lock;
use crate::process::CommandError;
use crate::sched::body::{Head, Machine, StepOutput};

impl<P: Durable> DurableMachine<P> {
    /// Stores a step that has succeeded. Its yields go on, or are held.
    pub(super) fn store_step(
        &mut self,
        head: &mut Head,
        out: &mut StepOutput,
        taken: &Taken,
        rest: Rest,
        exit: Option<StoredExit>,
    ) -> Result<(), StepError> {
        let is_over = exit.is_some();
        let (state, replies) = match &self.next_kind {
            _ if is_over => Default::default(),
            // A state with a reply was refused.
            Some(next) => (next.state.clone(), Vec::new()),
            None => self.encoded()?,
        };
        let mut sorted = Sorted::of(&self.store, self.resident.local.get().copied(), out);
        if is_over {
            // They would end with this process.
            sorted.children.drain(..).for_each(|child| drop(child.refused(out, CommandError::Dropped)));
        }
        let mut performed: Vec<u64> = sorted.requests.iter().map(|(tag, ..)| *tag).collect();
        let requested = self.request_notices(take(&mut sorted.requests), is_over);
        let encoded = self.store.encode_letters(&mut sorted.inside);
        let settled = encoded.and_then(|()| self.settle_replies(taken, &mut sorted, (&replies, is_over)));
        let commands = if is_over { Ok(Vec::new()) } else { self.new_commands(&sorted) };
        let commands = settled.and_then(|settled| Ok((commands?, settled)));
        let traces = self.changed_traces(taken, out, is_over);
        let changes = self.changed_entries(taken, &mut sorted, is_over);
        let stored = commands.and_then(|(commands, settled)| Ok((self.with_commands(changes?, commands)?, settled)));
        let stored = stored.and_then(|stored| Ok((stored, requested?)));
        let (((mut changes, commands), mut settled), requested) = match stored {
            Ok(stored) => stored,
            Err(error) => {
                // They are dropped as those of any failed step.
                self.store.forget_children(&sorted.children);
                sorted.held.put_back(sorted.children);
                sorted.held.put_into(out);
                return Err(error);
            }
        };
        // Most steps change no ties, and there may be many.
        let changes_ties = sorted.traps.is_some()
            || !(sorted.namings.is_empty() && sorted.monitors.is_empty() && taken.downs.is_empty())
            || !sorted.subscriptions.is_empty()
            || !(sorted.outside.is_empty() && (self.ties.outside.is_empty() || taken.exits.is_empty()));
        let is_tied = changes_ties && !is_over;
        let mut named = if is_tied { self.change_names(&mut sorted) } else { Named::default() };
        let cancelled = if is_over { Vec::new() } else { self.with_cancelled(&mut changes, &sorted.cancelled) };
        if is_tied {
            named.ties.traps = sorted.traps.unwrap_or(self.ties.traps);
            self.change_monitors(&mut named.ties, taken, &sorted);
            named.ties.subscribe(&sorted.subscriptions);
            let changed = self.change_outside(&mut named.ties, taken, &sorted.outside);
            let tied = changed.and_then(|()| Ok(named.ties.changes(&self.ties, self.resident.serial)?));
            match tied {
                Ok(tied) => changes.extend(tied),
                Err(error) => {
                    self.undo((&cancelled, named), (sorted.held, sorted.children), out);
                    return Err(error);
                }
            }
        }
        changes.append(&mut settled.changes);
        changes.extend(traces);
        let mut notices = self.notices(taken, &sorted.cancelled, exit.as_ref());
        notices.extend(self.watch_notices(is_tied.then_some(&named.ties), is_over));
        performed.extend(named.answers.iter().map(|answer| answer.key.1));
        notices.append(&mut named.answers);
        notices.extend(requested);
        notices.append(&mut settled.notices);
        let links = take(&mut sorted.links);
        notices.extend(self.link_notices(&links, is_over));
        let mut events = self.taken_events(taken);
        // The notices settle those of a link that this step ends, or makes anew.
        let anew: HashSet<u64> = links.iter().filter_map(|(pid, _)| self.store.number_of(*pid)).collect();
        events.retain(|(class, other)| !(matches!(*class, rows::LINKS | rows::EXITS) && anew.contains(other)));
        let Sorted {
            inside, mut held, names_sender, children, questions, asked, monitors, subscriptions, outside, ..
        } = sorted;
        // A set: a step may have very many timers, commands and children.
        let stored_tags: HashSet<u64> = performed.into_iter().chain(changes.iter().filter_map(entry_of)).collect();
        let mut open = self.stored.open.clone();
        if !open.is_empty() {
            open.retain(|tag| !taken.answers.contains(tag));
        }
        open.extend(
            (self.stored.tags + 1..=head.tags).filter(|tag| !taken.answers.contains(tag) && !stored_tags.contains(tag)),
        );
        let traced = match rest {
            _ if is_over => Traced::Ended,
            Rest::New | Rest::Idle => Traced::Idle,
            Rest::Wait => Traced::Wait,
            Rest::Continue => Traced::Continue,
            Rest::Blocking => Traced::Blocking,
        };
        let mut stored = StoredHead {
            format: self.next_kind.as_ref().map_or(P::FORMAT, |next| next.format),
            rest,
            tags: head.tags,
            open: if is_over { Vec::new() } else { open },
            parked: None,
            exit,
            id: self.stored.id.clone(),
            begun: self.stored.begun,
            trail: self.stored.trail.clone(),
            parent: self.wanted_by(),
        };
        changes.extend(self.renamed());
        let version = self.next_kind.as_ref().map_or(P::VERSION, |next| next.version);
        let is_same_state = self.next_kind.is_none() && version == self.version && state == self.state;
        let is_same = is_same_state && stored == self.stored && changes.is_empty();
        let requests = self.resident.taken_requests(&taken.cancels);
        let now = self.store.wall_millis();
        if !requests.is_empty() {
            stored.trail.note(now, Traced::Cancelled, (0, 0));
        }
        stored.trail.note(now, traced, (taken.mail.len(), taken.answers.len()));
        let takes_nothing = taken.mail.is_empty() && requests.is_empty();
        if !is_over {
            questions.iter().for_each(|question| self.resident.questions.add(question.tag));
        }
        if !(is_same && inside.is_empty() && notices.is_empty() && takes_nothing)
            && let Err(error) = self.append((stored, (version, state)), taken, (inside, notices), changes)
        {
            drop(self.resident.questions.remove(questions.iter().map(|question| &question.tag)));
            self.undo((&cancelled, named), (held, children), out);
            return Err(error);
        }
        if is_tied {
            self.ties = named.ties;
        }
        self.keep_replies(replies, &taken.dropped, &mut held);
        self.settle_questions(taken, questions, settled, is_over);
        self.limit_asks(head, asked);
        self.settle_children(children, &taken.answers, &events);
        // Dropped without the lock: a context of a trace is a user's value.
        let stepped: Vec<Kept> = {
            let mut mail = lock(&self.resident.mail);
            taken.mail.iter().filter_map(|number| mail.remove(number)).collect()
        };
        drop(stepped);
        if is_over {
            self.resident.set_gone();
        }
        lock(&self.resident.requests).retain(|one| !requests.contains(&one.number));
        self.begin_commands(taken, (&mut held, out), commands);
        events.iter().filter(|(class, _)| *class == rows::EXITS).for_each(|(_, other)| _ = self.offered.remove(other));
        self.forget_downs(&monitors);
        let ended = subscriptions.into_iter().filter(|(_, begins)| !begins);
        self.end_subscriptions(&ended.map(|(one, _)| one).collect::<Vec<_>>());
        self.forget_exits(&links);
        self.settle_outside(taken, &outside, is_over);
        self.offer_downs();
        if held.is_empty() && !is_over {
            return Ok(());
        }
        self.rests_on = self.rests_on.max(self.resident.told());
        held.rests_on = self.rests_on;
        if !names_sender && !is_over && self.held.is_empty() && self.is_released(self.rests_on) {
            self.forget_replies(&mut held);
            held.put_into(out);
            return Ok(());
        }
        self.held.push_back(held);
        self.store.when_released(&self.resident, self.rests_on);
        Ok(())
    }

    /// Undoes the changes that a step has made before its record was refused. Its yields are dropped as those of any
    /// failed step.
    fn undo(
        &self,
        (cancelled, named): (&[u64], Named),
        (mut held, children): (Held, Vec<NewChild>),
        out: &mut StepOutput,
    ) {
        self.reopen_commands(cancelled);
        named.undo(&self.store, self.resident.pid);
        self.store.forget_children(&children);
        held.put_back(children);
        held.put_into(out);
    }

    /// Whether this record is on disk. If it is, the resident knows so from now on, also before the writer tells it.
    pub(super) fn is_released(&self, position: Position) -> bool {
        if self.resident.has_released(position) {
            return true;
        }
        let is_released = self.store.tail.is_released(self.resident.life, position);
        if is_released {
            self.resident.note_released(position);
        }
        is_released
    }

    /// Appends the record of a step, and sends the messages that stay in the store.
    pub(super) fn append(
        &mut self,
        (stored, (version, state)): (StoredHead, (u32, Vec<u8>)),
        taken: &Taken,
        inside: (Vec<Letter>, Vec<Notice>),
        entries: Vec<Change>,
    ) -> Result<(), StepError> {
        let serial = self.resident.serial;
        let name = self.next_kind.as_ref().map_or(P::NAME, |next| next.name);
        let mut changes = vec![Change::Process { serial, row: Some(stored.row(name, version, state.clone())?) }];
        let mut open = self.open.clone();
        for change in &entries {
            if let Change::Entry { class, number, row, .. } = change
                && rows::is_open(*class)
            {
                if row.is_some() {
                    open.insert(*number, *class)
                } else {
                    open.remove(number)
                };
            }
        }
        let traces = self.traces_after(&entries);
        changes.extend(entries);
        changes.extend(taken.mail.iter().map(|number| rows::taken(serial, *number)));
        if stored.exit.is_none() {
            let requests = self.resident.taken_requests(&taken.cancels);
            changes.extend(requests.iter().map(|number| rows::answered(serial, rows::REQUESTS, *number)));
        }
        let over = stored.exit.as_ref().map(DownExit::of);
        self.rests_on = self.store.append_step(&self.resident, Record { changes }, inside, over)?;
        (self.stored, self.version, self.state) = (stored, version, state);
        (self.open, self.traces) = (open, traces);
        self.is_new = false;
        Ok(())
    }

    /// The rows of timers, commands and children that a step has yielded, and of those that were answered.
    fn changed_entries(&self, taken: &Taken, new: &mut Sorted, is_over: bool) -> Result<Vec<Change>, StepError> {
        let serial = self.resident.serial;
        let over = self.open.iter().filter(|(tag, _)| is_over || taken.answers.contains(tag));
        let mut changes: Vec<Change> = over.map(|(tag, class)| rows::answered(serial, *class, *tag)).collect();
        if is_over {
            changes.extend(Ties::default().changes(&self.ties, serial)?);
            return Ok(changes);
        }
        changes.extend(self.taken_events(taken).iter().map(|(class, number)| rows::answered(serial, *class, *number)));
        changes.extend(self.begin_children(&mut new.children)?);
        if !new.timers.is_empty() {
            let now = self.store.wall_millis();
            let due = |delay: &Duration| now.saturating_add(delay.as_millis() as u64).min(i64::MAX as u64);
            changes.extend(new.timers.iter().map(|(tag, delay)| rows::timer(serial, *tag, due(delay))));
        }
        Ok(changes)
    }

    /// The output of a process that is done.
    pub(super) fn output(&mut self) -> Result<Vec<u8>, StepError> {
        let output = self.typed.take_output().and_then(|output| output.downcast::<P::Output>().ok());
        let Some(output) = output else { return Err(StepError::Failed(Failure::from(BoxError::from("no output")))) };
        let (encoded, _) = self.store.run.code(|| contain(|| P::FORMAT.encode(&*output)));
        drop_contained(output);
        Ok(encoded.map_err(Failure::new)??)
    }
}

/// The tag of a timer, a command or a child that begins.
fn entry_of(change: &Change) -> Option<u64> {
    match change {
        Change::Entry { class, number, row: Some(_), .. } if rows::is_open(*class) => Some(*number),
        _ => None,
    }
}
