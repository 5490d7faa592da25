//! Calls that need the type of the answers to stored questions.

use std::any::{Any, TypeId};
use std::collections::HashMap;

use super::coding::Format;
use super::contract::Stored;
use crate::outcome::BoxError;

/// Reads an answer.
type DecodeFn = fn(&[u8]) -> Result<Box<dyn Any + Send>, BoxError>;

/// Calls that need the type of an answer. Answers are JSON.
#[derive(Clone, Copy)]
pub(super) struct AnswerType {
    pub(super) name: &'static str,
    pub(super) encode: fn(&dyn Any) -> Result<Vec<u8>, BoxError>,
    pub(super) decode: DecodeFn,
}

/// The types of answers that the program has named.
pub(super) type AnswerTypes = HashMap<TypeId, AnswerType>;

impl AnswerType {
    pub(super) fn of<T: Stored + Send + 'static>(name: &'static str) -> AnswerType {
        AnswerType {
            name,
            encode: |answer| match answer.downcast_ref::<T>() {
                Some(answer) => Format::Json.encode(answer),
                None => Err("it has another type".into()),
            },
            decode: |bytes| Ok(Box::new(Format::Json.decode::<T>(bytes)?)),
        }
    }
}
