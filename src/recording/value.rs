//! Codecs of values whose type only their tag knows.

use std::any::{Any, TypeId, type_name};

use super::codec::{Codec, DecodeError, Input, Recordable, put_list};
use super::errors::{put_command_error, put_send_error, take_command_error, take_send_error};
use crate::outcome::{BoxError, Rejected};
use crate::primitives::Arc;
use crate::process::{Answer, CommandError, SendError};

type Put = dyn Fn(&dyn Any, &mut Vec<u8>) -> bool + Send + Sync;
type Get = dyn Fn(&[u8]) -> Result<Box<dyn Any + Send>, BoxError> + Send + Sync;

/// A codec for values whose type only their tag knows.
#[derive(Clone)]
pub(super) struct ValueCodec {
    of: TypeId,
    name: &'static str,
    put: Arc<Put>,
    get: Arc<Get>,
    /// The `Codec` of the type.
    typed: Arc<dyn Any + Send + Sync>,
}

impl ValueCodec {
    pub(super) fn new<T: Send + 'static>(codec: Codec<T>) -> ValueCodec {
        let (gets, typed) = (codec.clone(), Arc::new(codec.clone()));
        ValueCodec {
            of: TypeId::of::<T>(),
            name: type_name::<T>(),
            typed,
            put: Arc::new(move |value, to| value.downcast_ref().is_some_and(|value| codec.put(value, to))),
            get: Arc::new(move |bytes| gets.get(bytes).map(|value| Box::new(value) as _)),
        }
    }

    /// The answer to a send that waits for room: a message comes back if it was refused.
    pub(super) fn of_send<M: Send + 'static>(codec: Codec<M>) -> ValueCodec {
        type Sent<M> = Result<(), Rejected<M, SendError>>;
        let gets = codec.clone();
        let put = move |sent: &Sent<M>, to: &mut Vec<u8>| {
            sent.is_ok().encode(to);
            if let Err(refused) = sent {
                put_send_error(refused.reason(), to);
                // The panic is contained: the answer is missing in the recording.
                refused.look(|message| assert!(codec.put(message, to), "the message cannot be encoded"));
            }
        };
        let get = move |bytes: &[u8]| -> Result<Sent<M>, BoxError> {
            let mut input = Input::new(bytes);
            if input.take()? {
                return Ok(Ok(()));
            }
            let why = take_send_error(&mut input)?;
            Ok(Err(Rejected::new(gets.get(input.rest())?, why)))
        };
        ValueCodec::new(Codec::new(put, get))
    }
}

/// The codecs of all types that are known by their values.
#[derive(Clone, Default)]
pub(super) struct Values(Vec<ValueCodec>);

impl Values {
    /// Adds a codec. It replaces one for the same type.
    pub(super) fn add(&mut self, codec: ValueCodec) {
        self.0.retain(|other| other.of != codec.of);
        self.0.push(codec);
    }

    /// The codec of this type. Those that a program has added last are the codecs of its messages.
    fn of(&self, of: TypeId) -> Option<&ValueCodec> {
        self.0.iter().rfind(|codec| codec.of == of)
    }

    /// The codec of this type, if there is one.
    pub(super) fn codec_of<T: 'static>(&self) -> Option<&Codec<T>> {
        self.of(TypeId::of::<T>())?.typed.downcast_ref()
    }

    /// Appends the value. Returns `false` if there is no codec for its type, or if the codec panics. Then nothing is
    /// appended.
    pub(super) fn put(&self, value: &dyn Any, to: &mut Vec<u8>) -> bool {
        let of = value.type_id();
        let before = to.len();
        let is_put = self.of(of).is_some_and(|codec| (codec.put)(value, to));
        if !is_put {
            to.truncate(before);
        }
        is_put
    }

    /// Appends the name of the type and the value.
    pub(super) fn put_named(&self, value: &dyn Any, to: &mut Vec<u8>) -> bool {
        let Some(codec) = self.of(value.type_id()) else { return false };
        put_list(codec.name.as_bytes(), to);
        (codec.put)(value, to)
    }

    /// Appends the answer to a command. Returns `false` if that is impossible.
    pub(super) fn put_answer(&self, answer: Result<&dyn Any, &CommandError>, to: &mut Vec<u8>) -> bool {
        answer.is_ok().encode(to);
        match answer {
            Ok(value) => self.put_named(value, to),
            Err(error) => {
                put_command_error(error, to);
                true
            }
        }
    }

    /// Decodes an answer. `rename` returns the present name of a type.
    pub(super) fn get_answer(&self, bytes: &[u8], rename: impl Fn(&str) -> String) -> Result<Answer, BoxError> {
        let mut input = Input::new(bytes);
        if !input.take()? {
            return Ok(Err(take_command_error(&mut input)?));
        }
        let name = input.take_str()?;
        self.get_named(name, input.rest(), rename).map(|(value, _)| Ok(value))
    }

    /// Decodes a value of the type with this recorded name. Also returns its present name.
    pub(super) fn get_named(
        &self,
        name: &str,
        bytes: &[u8],
        rename: impl Fn(&str) -> String,
    ) -> Result<(Box<dyn Any + Send>, &'static str), BoxError> {
        let name = rename(name);
        let codec = self.0.iter().find(|codec| codec.name == name);
        let codec = codec.ok_or_else(|| DecodeError::new(format!("there is no codec for the type {name}")))?;
        Ok(((codec.get)(bytes)?, codec.name))
    }
}
