//! Requests to a supervisor at run time.

use std::sync::Arc;

use super::child::{Child, Goal};
use super::contained::made;
use super::message::{ChildError, Request};
use super::process::{Kind, Life, Supervisor};
use super::spec::{ChildSpec, SpecError};
use crate::{Pid, Reply, StepOutput};

impl Supervisor {
    pub(super) fn request(&mut self, request: Request, out: &mut StepOutput) {
        match request {
            Request::Children(reply) => out.reply(reply, self.infos().collect()),
            #[cfg(feature = "console")]
            Request::Overview(reply) => {
                let infos = self.infos().collect();
                out.reply(reply, (self.config.strategy, infos));
            }
            Request::Started(reply) => match self.life {
                Life::Up => out.reply(reply, ()),
                Life::New | Life::Starting => self.starters.push(reply),
                Life::Ending(_) => {}
            },
            Request::Add(spec, reply) => self.add(reply, out, |kind, _| match kind {
                None => Ok(spec),
                Some(kind) => Err(format!("it makes them from a {}", kind.input)),
            }),
            Request::AddOfKind(input, type_name, reply) => self.add(reply, out, |kind, number| {
                let kind = kind.ok_or_else(|| String::from("each has a specification of its own"))?;
                let spec = input.into_inner().and_then(|input| (kind.make)(input, number));
                spec.ok_or_else(|| format!("it makes them from a {}, and was given a {type_name}", kind.input))
            }),
            Request::Stop(id, reply) => self.stop_by_hand(&id, Goal::Stay, reply, out),
            Request::Delete(id, reply) => self.stop_by_hand(&id, Goal::Forget, reply, out),
            Request::Restart(id, reply) => self.restart_by_hand(&id, reply, out),
            Request::InPlaceFailed(pid, exit, reply) => self.failed_in_place(pid, exit, reply, out),
        }
    }

    /// Adds a child. `spec` gets the kind of the supervisor's children, and a number for the id. Its error is the
    /// reason why this is no child of that kind.
    fn add(
        &mut self,
        reply: Reply<Result<Pid, ChildError>>,
        out: &mut StepOutput,
        spec: impl FnOnce(Option<&Kind>, u64) -> Result<ChildSpec, String>,
    ) {
        let number = self.number();
        match self.accept(|kind| spec(kind, number)) {
            Ok(spec) => {
                self.insert(Child { is_new: true, starters: vec![reply], ..Child::new(spec, number) });
            }
            Err(error) => out.reply(reply, Err(error)),
        }
    }

    /// Makes the specification of a child to be added, and checks it.
    fn accept(&self, spec: impl FnOnce(Option<&Kind>) -> Result<ChildSpec, String>) -> Result<ChildSpec, ChildError> {
        if self.is_ending() {
            return Err(ChildError::Stopped);
        }
        if let Some(limit) = self.config.limit.filter(|limit| self.children.len() >= *limit) {
            return Err(ChildError::Limit { limit });
        }
        // The function that adjusts the specification is user code.
        let spec =
            made(|| spec(self.config.kind.as_ref())).map_err(|message| ChildError::FactoryPanicked { message })?;
        let spec = spec.map_err(|reason| ChildError::WrongKind { reason })?;
        spec.check(self.config.auto)?;
        if self.by_id.contains_key(&spec.id) {
            return Err(SpecError::TwoWithOneId { id: spec.id.clone() }.into());
        }
        Ok(spec)
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
