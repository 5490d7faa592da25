//! The bytes of a value that is encoded, up to a limit.

use postcard::ser_flavors::Flavor;
use serde::Serialize;

use crate::outcome::BoxError;

/// The most bytes of the head before a value of the largest size. The tables behind the value have room, too.
const HEAD: usize = 32 << 10;

/// Takes the bytes of a value. It keeps no more than its limit, and counts the others.
pub(crate) struct Output {
    bytes: Vec<u8>,
    limit: usize,
    /// The size of the value, without the head before it.
    size: usize,
    /// The limit of the head and the value together, and the size of the head.
    whole: usize,
    head: usize,
}

/// A value is larger than its limit when it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has {size} bytes when it is encoded, and the limit is {limit}")]
pub(crate) struct TooLarge {
    pub(crate) size: usize,
    pub(crate) limit: usize,
}

impl Output {
    pub(crate) fn new(limit: usize) -> Output {
        Output { bytes: Vec::new(), limit, size: 0, whole: limit, head: 0 }
    }

    pub(crate) fn encode<T: Serialize>(&mut self, value: &T) -> Result<(), BoxError> {
        // The format does not keep the text.
        let no_text = "its `Serialize` implementation returned an error";
        postcard::serialize_with_flavor(value, Bytes(self)).map_err(|error| match error {
            postcard::Error::SerdeSerCustom => no_text.into(),
            other => other.into(),
        })
    }

    /// Begins the value. Its limit holds without the bytes before it.
    pub(crate) fn begin_value(&mut self, limit: usize) {
        (self.limit, self.head, self.size) = (limit, self.size, 0);
    }

    /// The bytes, unless there were too many.
    pub(crate) fn finish(self) -> Result<Vec<u8>, TooLarge> {
        let Output { bytes, limit, size, whole, head } = self;
        if size > limit {
            return Err(TooLarge { size, limit });
        }
        // Names and groups of a process are in the head of its order.
        let size = head.saturating_add(size);
        if head > whole || size > whole.saturating_add(HEAD) {
            return Err(TooLarge { size, limit: whole });
        }
        Ok(bytes)
    }
}

struct Bytes<'o>(&'o mut Output);

impl Flavor for Bytes<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        let output = &mut *self.0;
        output.size = output.size.saturating_add(data.len());
        if output.size <= output.limit {
            output.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.try_extend(&[data])
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
