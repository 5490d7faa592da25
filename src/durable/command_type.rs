//! Calls that need the type of a stored command, of its output, or of its error.

use std::any::{Any, type_name};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::coding::Format;
use super::contract::DurableCommand;
use super::rows::StoredAnswer;
use crate::outcome::{BoxError, Failure, Panic, Reason};
use crate::process::handler::BoxedCommand;
use crate::process::{Answer, Attempt, CommandError, CommandKey, Retry};

/// The text of an error. Use it as the [`Error`](DurableCommand::Error) of a command that has no error type of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct ErrorText(pub String);

type DecodeValue = fn(&[u8]) -> Result<Box<dyn Any + Send>, BoxError>;

/// Calls that need the type of a command.
#[derive(Clone, Copy)]
pub(super) struct CommandType {
    pub(super) name: &'static str,
    /// The name of its Rust type.
    pub(super) type_name: fn() -> &'static str,
    pub(super) encode: fn(&dyn Any) -> Result<Vec<u8>, BoxError>,
    pub(super) decode: fn(&[u8]) -> Result<BoxedCommand, BoxError>,
    pub(super) retry: fn(&dyn Any) -> Retry,
    pub(super) begin_attempt: fn(&mut dyn Any, &Attempt),
    pub(super) encode_answer: fn(&Answer) -> Result<StoredAnswer, BoxError>,
    decode_value: DecodeValue,
    decode_error: fn(&[u8]) -> Result<BoxError, BoxError>,
}

impl CommandType {
    pub(super) fn of<C: DurableCommand>() -> CommandType {
        CommandType {
            name: C::NAME,
            type_name: type_name::<C>,
            encode: |command| match command.downcast_ref::<C>() {
                Some(command) => Format::Json.encode(command),
                None => Err("it has another type".into()),
            },
            decode: |bytes| Ok(BoxedCommand::new(Format::Json.decode::<C>(bytes)?)),
            retry: |command| command.downcast_ref::<C>().map_or_else(|| Retry::new().attempts(1), C::retry),
            begin_attempt: |command, attempt| {
                if let Some(command) = command.downcast_mut::<C>() {
                    command.begin_attempt(attempt);
                }
            },
            encode_answer: encode_answer::<C>,
            decode_value: |bytes| Ok(Box::new(Format::Json.decode::<C::Output>(bytes)?)),
            decode_error: |bytes| Ok(Box::new(Format::Json.decode::<C::Error>(bytes)?)),
        }
    }

    /// The answer that was stored so.
    pub(super) fn decode_answer(&self, stored: &StoredAnswer) -> Result<Answer, BoxError> {
        Ok(Err(match stored {
            StoredAnswer::Value(bytes) => return Ok(Ok((self.decode_value)(bytes)?)),
            StoredAnswer::Failed(bytes) => CommandError::Failed(Failure::from((self.decode_error)(bytes)?)),
            StoredAnswer::Text(text) => CommandError::failed(ErrorText(text.clone())),
            StoredAnswer::Panicked(message) => CommandError::Panicked(Panic::new(Box::new(message.clone()))),
            StoredAnswer::Dropped => CommandError::Dropped,
            StoredAnswer::TimedOut => CommandError::TimedOut,
            StoredAnswer::Cancelled => CommandError::Cancelled(Reason::Cancelled),
            StoredAnswer::Unknown => CommandError::Unknown { name: (self.type_name)() },
        }))
    }
}

fn encode_answer<C: DurableCommand>(answer: &Answer) -> Result<StoredAnswer, BoxError> {
    Ok(match answer {
        Ok(value) => match value.downcast_ref::<C::Output>() {
            Some(value) => StoredAnswer::Value(Format::Json.encode(value)?),
            None => return Err("the answer has another type".into()),
        },
        Err(CommandError::Failed(failure)) => match failure.error().downcast_ref::<C::Error>() {
            Some(error) => StoredAnswer::Failed(Format::Json.encode(error)?),
            None => StoredAnswer::Text(failure.to_string()),
        },
        Err(CommandError::Panicked(panic)) => StoredAnswer::Panicked(panic.message().to_owned()),
        Err(CommandError::Dropped) => StoredAnswer::Dropped,
        Err(CommandError::TimedOut) => StoredAnswer::TimedOut,
        Err(CommandError::Cancelled(_)) => StoredAnswer::Cancelled,
        Err(CommandError::Unknown { .. }) => StoredAnswer::Unknown,
        Err(other) => StoredAnswer::Text(other.to_string()),
    })
}

/// A key means the same command in every run, so it can be written anywhere. It is written as its text.
impl Serialize for CommandKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'a> Deserialize<'a> for CommandKey {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<CommandKey, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
