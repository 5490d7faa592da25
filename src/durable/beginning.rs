//! Begins processes with ids.

use std::any::{TypeId, type_name};
use std::collections::HashMap;

use super::begin_options::BeginOptions;
use super::children::Installed;
use super::contract::Durable;
use super::core::{Id, StoreCore, why_refused};
use super::journal::{Change, EncodedRecord, NameRow, Record};
use super::loaded::Loaded;
use super::requests::TIMED_OUT;
use super::residency::Resident;
use super::rows::{self, StoredHead, WITH_REPLY, too_large};
use super::tail::{Refused, Waiter};
use crate::outcome::contain;
use crate::pid::Pid;

impl StoreCore {
    /// Encodes a process that is to be begun.
    pub(super) fn encode_new<P: Durable>(&self, process: P) -> Result<(Vec<u8>, P), (P, String)> {
        let limit = self.settings.largest_state;
        let (encoded, has_reply) = self.run.code(|| contain(|| P::FORMAT.encode(&process)));
        match encoded {
            Ok(Ok(_)) if has_reply => Err((process, WITH_REPLY.into())),
            Ok(Ok(state)) if state.len() > limit => Err((process, too_large(state.len(), limit))),
            Ok(Ok(state)) => Ok((state, process)),
            Ok(Err(error)) => Err((process, error.to_string())),
            Err(panic) => Err((process, panic.to_string())),
        }
    }

    /// Why nothing is begun when the runtime has ended.
    fn why_over(&self) -> &'static str {
        if self.tail.is_closing() { why_refused(Refused::Closed) } else { "the runtime has ended" }
    }

    /// Begins a process with an id that no process has. The lock of the ids is held.
    pub(super) fn begin<P: Durable>(
        &self,
        ids: &mut HashMap<String, Id>,
        (id, options): (&str, &BeginOptions),
        (state, process): (Vec<u8>, P),
        waiter: Waiter,
    ) -> Result<(Pid, Installed<P>), (P, String)> {
        let Some(core) = self.core() else {
            return Err((process, self.why_over().into()));
        };
        let head = StoredHead::new(P::FORMAT, Some(id.to_owned()), self.wall_millis());
        let life = self.tail.life();
        let serial = match self.number() {
            Ok(serial) => serial,
            Err(why) => return Err((process, why_refused(why).into())),
        };
        let Some(pid) = self.ticket(serial) else { return Err((process, "there are no more PIDs".into())) };
        let deadline = match options.deadline.map(|limit| self.deadline(limit)).transpose() {
            Ok(deadline) => deadline,
            Err(why) => return Err((process, why_refused(why).into())),
        };
        let record = head.row(P::NAME, P::VERSION, state.clone()).map_err(|error| error.to_string()).and_then(|row| {
            let name = NameRow { serial, body: P::NAME.as_bytes().to_vec() };
            let mut changes = vec![
                Change::Process { serial, row: Some(row) },
                Change::Name { class: rows::IDS, name: id.to_owned(), row: Some(name) },
            ];
            let deadline = deadline.as_ref().map(|(number, due)| rows::request(serial, *number, *due, &TIMED_OUT));
            changes.extend(deadline.transpose().map_err(|error| error.to_string())?);
            EncodedRecord::new(&Record { changes }).map_err(|error| error.to_string())
        });
        let record = match record {
            Ok(record) => record,
            Err(error) => return Err((process, error)),
        };
        let resident = Resident::new((serial, pid), life, (TypeId::of::<P::Message>(), type_name::<P::Message>));
        let residence = self.residency.of(serial);
        let position = match self.tail.append(life, &record, Some(waiter)) {
            Ok(position) => position,
            Err(why) => {
                self.residency.forget_unknown(serial);
                return Err((process, why_refused(why).into()));
            }
        };
        ids.insert(id.to_owned(), Id { serial, kind: P::NAME.into(), life, position });
        self.note_deadline(&resident, deadline);
        let loaded = Loaded::new(process, state, head, position);
        let installed = self.install_new(&core, resident, loaded, (None, position, residence));
        // A timer that rings before finds nobody to give the request to.
        if let Some((number, due)) = deadline {
            self.give_later(&core, serial, number, due.saturating_sub(self.wall_millis()));
        }
        Ok((pid, installed))
    }
}
