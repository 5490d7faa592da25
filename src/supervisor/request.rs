//! Requests to a supervisor at run time.

use std::any::Any;
use std::sync::Arc;

use super::child::{Child, Goal};
use super::contained::{Contained, made};
use super::message::{ChildError, Request};
use super::process::{Life, Supervisor};
use super::spec::{ChildSpec, SpecError};
use crate::{Pid, Reply, StepOutput};

impl Supervisor {
    pub(super) fn request(&mut self, request: Request, out: &mut StepOutput) {
        match request {
            Request::Children(reply) => {
                let all = self.children.values();
                let is_delayed =
                    |child: &Child| self.batches.get(&child.batch).is_some_and(|batch| batch.delay.is_some());
                let infos = all.map(|child| child.info(is_delayed(child))).collect();
                out.reply(reply, infos);
            }
            Request::Started(reply) => match self.life {
                Life::Up => out.reply(reply, ()),
                Life::New | Life::Starting => self.starters.push(reply),
                Life::Ending(_) | Life::Failed(_) => {}
            },
            Request::Add(spec, reply) => match self.of_any_kind(&spec) {
                Ok(()) => self.add(spec, reply),
                Err(error) => out.reply(reply, Err(error)),
            },
            Request::AddOfKind(input, type_name, reply) => match self.of_kind(input, type_name) {
                Ok(spec) => self.add(spec, reply),
                Err(error) => out.reply(reply, Err(error)),
            },
            Request::Stop(id, reply) => self.stop_by_hand(&id, Goal::Stay, reply, out),
            Request::Delete(id, reply) => self.stop_by_hand(&id, Goal::Forget, reply, out),
            Request::Restart(id, reply) => self.restart_by_hand(&id, reply, out),
            Request::InPlaceFailed(failed) => self.failed_in_place(failed, out),
        }
    }

    fn may_add(&self) -> Result<(), ChildError> {
        if self.is_ending() {
            return Err(ChildError::Stopped);
        }
        match self.config.limit.filter(|limit| self.children.len() >= *limit) {
            Some(limit) => Err(ChildError::Limit { limit }),
            None => Ok(()),
        }
    }

    fn check(&self, spec: &ChildSpec) -> Result<(), ChildError> {
        spec.check(self.config.auto)?;
        if self.by_id.contains_key(&spec.id) {
            return Err(SpecError::TwoWithOneId { id: spec.id.clone() }.into());
        }
        Ok(())
    }

    fn of_any_kind(&self, spec: &ChildSpec) -> Result<(), ChildError> {
        self.may_add()?;
        if let Some(kind) = &self.config.kind {
            return Err(ChildError::WrongKind { reason: format!("it makes them from a {}", kind.input) });
        }
        self.check(spec)
    }

    fn of_kind(
        &mut self,
        input: Contained<Box<dyn Any + Send>>,
        type_name: &'static str,
    ) -> Result<ChildSpec, ChildError> {
        self.may_add()?;
        let number = self.number();
        let Some(kind) = &self.config.kind else {
            return Err(ChildError::WrongKind { reason: String::from("each has a specification of its own") });
        };
        let wrong = || format!("it makes them from a {}, and was given a {type_name}", kind.input);
        // The function that adjusts the specification is user code.
        let spec = made(|| (kind.make)(input.into_inner()?, number));
        let spec = spec.map_err(|message| ChildError::FactoryPanicked { message })?;
        let spec = spec.ok_or_else(|| ChildError::WrongKind { reason: wrong() })?;
        self.check(&spec)?;
        Ok(spec)
    }

    fn add(&mut self, spec: ChildSpec, reply: Reply<Result<Pid, ChildError>>) {
        let batch = self.number();
        self.insert(Child { is_new: true, starters: vec![reply], ..Child::new(spec, batch) });
    }

    fn stop_by_hand(&mut self, id: &Arc<str>, goal: Goal, reply: Reply<Result<(), ChildError>>, out: &mut StepOutput) {
        let Some(&key) = self.by_id.get(id) else {
            return out.reply(reply, Err(ChildError::NoSuchChild { id: id.clone() }));
        };
        // A child that is to end with the supervisor, or is to be forgotten, keeps that goal despite
        // other requests.
        let goal = if self.is_ending() || self.is_to_be_forgotten(key) { Goal::Forget } else { goal };
        if let Some(child) = self.children.get_mut(&key) {
            child.stoppers.push(reply);
            child.tell_up(&Err(ChildError::Stopped), out);
        }
        let batch = self.batch_of_one(key);
        self.want_stopped(key, batch, goal, out);
    }

    fn restart_by_hand(&mut self, id: &Arc<str>, reply: Reply<Result<Pid, ChildError>>, out: &mut StepOutput) {
        if self.is_ending() {
            return out.reply(reply, Err(ChildError::Stopped));
        }
        let Some(key) = self.by_id.get(id).copied().filter(|key| !self.is_to_be_forgotten(*key)) else {
            return out.reply(reply, Err(ChildError::NoSuchChild { id: id.clone() }));
        };
        let batch = self.batch_of_one(key);
        if let Some(child) = self.children.get_mut(&key) {
            child.starters.push(reply);
        }
        self.want_stopped(key, batch, Goal::Start, out);
    }

    /// Whether the child will be deleted.
    fn is_to_be_forgotten(&self, key: u64) -> bool {
        self.children.get(&key).is_some_and(|child| child.is_to_stop() && child.goal == Goal::Forget)
    }

    /// The batch for a request about one child. A child that is being stopped with others stays in its batch.
    fn batch_of_one(&mut self, key: u64) -> u64 {
        let batch = self.number();
        self.children.get(&key).filter(|child| child.is_to_stop()).map_or(batch, |child| child.batch)
    }
}
