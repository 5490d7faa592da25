//! Answers to the questions of the other node, and the reasons why there is none.

use std::any::Any;

use super::{Connection, NotEncoded, Refused, put_head, word};
use crate::cluster::codec::{self, Encoded};
use crate::cluster::failures::FarCommandError;
use crate::cluster::frame::Head;
use crate::cluster::peer::Class;
use crate::cluster::remote::MAX_BYTES;
use crate::outcome::{BoxError, drop_contained};
use crate::pid::Pid;
use crate::process::{CommandError, NodeError};

impl Connection {
    pub(super) fn send_answer(
        &self,
        number: u64,
        from: Option<Pid>,
        answer: Result<Box<dyn Any + Send>, CommandError>,
    ) {
        self.forget_imported(number);
        let why = match &answer {
            Ok(value) => self.offer_answer(number, from, &**value).err(),
            Err(why) => Some(why.clone()),
        };
        drop_contained(answer);
        why.into_iter().for_each(|why| self.send_no_answer(number, from, &why));
    }

    /// Offers an answer. If there is no room for it, it is offered again as one that needs no room, and the process
    /// that has answered is held, if it may be held.
    fn offer_answer(&self, number: u64, from: Option<Pid>, answer: &(dyn Any + Send)) -> Result<(), CommandError> {
        let offer = |class| {
            let encoded = self.encode_answer(number, from, answer);
            encoded.map(|encoded| self.offer(encoded, word(from), (None, class))).map_err(CommandError::failed)
        };
        if offer(Class::Answer)? != Err(Refused::Busy) {
            // If the connection is down, the asker was told at the down.
            return Ok(());
        }
        let offered = offer(Class::HeldAnswer);
        if let (Some(core), Some(from), Some(there)) = (self.core.upgrade(), from, Pid::new(self.there.node, 0, 1)) {
            core.road.hold_for_answers(from, there);
        }
        match offered? {
            Err(Refused::Busy) => {
                // The asker knows the asked process by its PID.
                let pid = from.or_else(|| Pid::new(self.here.node, 0, 1));
                Err(pid.map_or(CommandError::Dropped, |pid| CommandError::Node { pid, why: NodeError::Busy }))
            }
            Ok(()) | Err(Refused::Down) => Ok(()),
        }
    }

    fn encode_answer(&self, number: u64, from: Option<Pid>, answer: &(dyn Any + Send)) -> Result<Encoded, BoxError> {
        // Each answer has the type of a reply that was decoded.
        let write = self.side.answers.of(answer).ok_or("the type of the answer is not known")?;
        let encoded = codec::encode(&self.side, (word(from), MAX_BYTES), |output| {
            put_head(&Head::Answer { number, from }, output)?;
            output.begin_value(MAX_BYTES);
            write(answer, output).map_err(NotEncoded::Failed)
        });
        encoded.map(|(_, encoded)| encoded).map_err(|error| format!("the answer cannot be sent: {error}").into())
    }

    pub(super) fn send_no_answer(&self, number: u64, from: Option<Pid>, why: &CommandError) {
        let head = |why| Head::NoAnswer { number, from, why };
        // A PID in the error may be one that this node does not know.
        if !self.send_head(word(from), &head(self.far_error(why))) {
            self.send_head(0, &Head::NoAnswer { number, from: None, why: FarCommandError::Dropped });
        }
    }

    /// Converts an error for the version of the protocol that both nodes speak.
    pub(super) fn far_error(&self, why: &CommandError) -> FarCommandError {
        FarCommandError::of(why, self.protocol)
    }
}
