//! A deserializer with bounds, for bytes that a stranger may have made.
//!
//! A short message can claim three billion elements, or lists within lists as deep as the stack. This wrapper counts
//! the depth and the memory while a value is decoded, and gives up when a bound is passed.
//!
//! **Memory.** Each element of a list or a map is charged with the room that it takes in a collection that grows. A
//! collection reserves room for the elements that the bytes claim. Few are believed, and these are charged before the
//! first one is decoded. A value behind a pointer is charged with its size: it is larger than the place for which it is
//! decoded. Everything else lies within such values. An element without a size is charged as well. So the time has a
//! bound, too.

use std::any::type_name;
use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Visitor};

/// The deepest nesting of a value. The stack of a thread has room for it.
pub(crate) const MAX_DEPTH: u32 = 128;

/// The most bytes of all values that are open at a time, each within the one before. A decoder has several copies of
/// each on its stack.
const MAX_OPEN: usize = 128 << 10;

/// The memory, in bytes, that a value may take for each of its encoded bytes. Its texts are not counted. They take one
/// byte more.
const BYTES_EACH: u64 = 63;

/// The memory, in bytes, that any value may take.
const BYTES_FREE: u64 = 256 << 10;

/// The most elements for which a collection reserves room because the bytes claim them. It grows when they come.
const BELIEVED: usize = 256;

/// The least charge for an element, in bytes.
const LEAST: u64 = 8;

/// Why a value was not decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("{0}")]
    Format(postcard::Error),
    // The format does not keep the text.
    #[error("the `Deserialize` implementation of its type has refused the value")]
    Refused,
    #[error("the value is nested more than {MAX_DEPTH} levels deep, or its levels are too large")]
    TooDeep,
    #[error("the value would take more than {allowed} bytes of memory, which is the limit for {encoded} encoded bytes")]
    TooLarge { allowed: u64, encoded: usize },
    #[error("{left} bytes are left after the value")]
    Rest { left: usize },
}

/// The bounds of one value.
struct Bounds {
    depth: Cell<u32>,
    /// The size of all values that are open.
    open: Cell<usize>,
    memory: Cell<u64>,
    /// The bound that was passed.
    passed: Cell<Option<Passed>>,
}

#[derive(Clone, Copy)]
enum Passed {
    Depth,
    Memory,
}

/// Decodes a value within bounds. All bytes must belong to it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    match decode_first(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(DecodeError::Rest { left: rest.len() }),
    }
}

/// Decodes the value with which these bytes begin, within bounds. Also returns the bytes behind it.
pub(crate) fn decode_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    let allowed = BYTES_FREE + BYTES_EACH * bytes.len() as u64;
    let bounds =
        Bounds { depth: Cell::new(0), open: Cell::new(0), memory: Cell::new(allowed), passed: Cell::new(None) };
    let mut source = postcard::Deserializer::from_bytes(bytes);
    let decoded = T::deserialize(Guarded { inner: &mut source, bounds: &bounds, place: size_of::<T>() });
    match bounds.passed.get() {
        // A type may hide the error. Its value is not taken all the same.
        Some(Passed::Depth) => return Err(DecodeError::TooDeep),
        Some(Passed::Memory) => return Err(DecodeError::TooLarge { allowed, encoded: bytes.len() }),
        None => {}
    }
    let value = decoded.map_err(|error| match error {
        postcard::Error::SerdeDeCustom => DecodeError::Refused,
        other => DecodeError::Format(other),
    })?;
    Ok((value, source.finalize().map_err(DecodeError::Format)?))
}

impl Bounds {
    fn charge<E: de::Error>(&self, price: u64) -> Result<(), E> {
        match self.memory.get().checked_sub(price) {
            Some(left) => {
                self.memory.set(left);
                Ok(())
            }
            None => Err(self.pass(Passed::Memory)),
        }
    }

    fn pass<E: de::Error>(&self, bound: Passed) -> E {
        self.passed.set(Some(bound));
        E::custom(Out)
    }
}

/// The text is replaced by that of the bound.
struct Out;

impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bound was passed")
    }
}

/// A deserializer that counts.
struct Guarded<'b, D> {
    inner: D,
    bounds: &'b Bounds,
    /// The size of the place for which the value is decoded.
    place: usize,
}

/// The charge for the parts of a value.
#[derive(Clone, Copy)]
enum Price {
    /// They lie within the value.
    Nothing,
    /// They lie in a vector, which has up to twice as many places as elements.
    Vector,
    /// They lie in another collection. A table with hashes has two buffers while it grows, in all up to 3.5 times the
    /// size of its elements, and a byte for each place.
    Collection,
}

impl<'b, D> Guarded<'b, D> {
    /// Goes one level deeper, and charges for a value that does not fit into its place.
    fn enter<'de, V: Visitor<'de>, E: de::Error>(&self, visitor: V, price: Price) -> Result<Within<'b, V>, E> {
        let size = size_of::<V::Value>();
        if size > self.place {
            self.bounds.charge(size as u64)?;
        }
        let (depth, open) = (self.bounds.depth.get() + 1, self.bounds.open.get() + size);
        if depth > MAX_DEPTH || open > MAX_OPEN {
            return Err(self.bounds.pass(Passed::Depth));
        }
        self.bounds.depth.set(depth);
        self.bounds.open.set(open);
        Ok(Within { visitor, bounds: self.bounds, price, _level: Some(Level(self.bounds, size)) })
    }
}

/// A level of nesting. Its drop leaves the level.
struct Level<'b>(&'b Bounds, usize);

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
        self.0.open.set(self.0.open.get() - self.1);
    }
}

/// Values without parts, which take no memory but their own and their text.
macro_rules! plain {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        })*
    };
}

/// Values with parts.
macro_rules! nested {
    ($($method:ident($($name:ident: $type:ty),*) $price:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let within = self.enter(visitor, $price)?;
            self.inner.$method($($name,)* within)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Guarded<'_, D> {
    type Error = D::Error;

    plain! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_unit deserialize_identifier deserialize_any deserialize_ignored_any
    }

    nested! {
        deserialize_option() Price::Nothing;
        deserialize_unit_struct(name: &'static str) Price::Nothing;
        deserialize_newtype_struct(name: &'static str) Price::Nothing;
        deserialize_tuple(len: usize) Price::Nothing;
        deserialize_tuple_struct(name: &'static str, len: usize) Price::Nothing;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) Price::Nothing;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) Price::Nothing;
        // The name of the visitor of a vector is one of `serde`. If it changes, vectors are charged more.
        deserialize_seq() if type_name::<V>().contains("VecVisitor") { Price::Vector } else { Price::Collection };
        deserialize_map() Price::Collection;
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The visitor of a value with parts.
struct Within<'b, V> {
    visitor: V,
    bounds: &'b Bounds,
    price: Price,
    _level: Option<Level<'b>>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Within<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let (bounds, place) = (self.bounds, size_of::<V::Value>());
        self.visitor.visit_some(Guarded { inner, bounds, place })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let (bounds, place) = (self.bounds, size_of::<V::Value>());
        self.visitor.visit_newtype_struct(Guarded { inner, bounds, place })
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let believed = inner.size_hint().map(|claimed| claimed.min(BELIEVED));
        self.visitor.visit_seq(Parts { inner, bounds: self.bounds, price: self.price, believed, charged: 0, key: 0 })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let believed = inner.size_hint().map(|claimed| claimed.min(BELIEVED));
        self.visitor.visit_map(Parts { inner, bounds: self.bounds, price: self.price, believed, charged: 0, key: 0 })
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Choice { inner, bounds: self.bounds })
    }
}

/// The elements, fields or entries of a value.
struct Parts<'b, A> {
    inner: A,
    bounds: &'b Bounds,
    price: Price,
    /// The number of parts for which room may have been reserved.
    believed: Option<usize>,
    /// The number of parts that were charged and were not decoded yet.
    charged: usize,
    /// The size of the key, which is charged with its value.
    key: usize,
}

impl<A> Parts<'_, A> {
    /// Charges for a part with this size.
    fn charge<E: de::Error>(&mut self, size: usize) -> Result<(), E> {
        let size = size as u64;
        let each = match self.price {
            Price::Nothing => return Ok(()),
            Price::Vector => (2 * size).max(LEAST),
            Price::Collection => 4 * (size + 1),
        };
        if self.charged == 0 {
            self.charged = self.believed.take().unwrap_or(1).max(1);
            self.bounds.charge(each.saturating_mul(self.charged as u64))?;
        }
        self.charged -= 1;
        Ok(())
    }
}

impl<'de, A: de::SeqAccess<'de>> de::SeqAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        if self.inner.size_hint() != Some(0) {
            self.charge(size_of::<S::Value>())?;
        }
        self.inner.next_element_seed(Seed { seed, bounds: self.bounds })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|claimed| claimed.min(BELIEVED))
    }
}

impl<'de, A: de::MapAccess<'de>> de::MapAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.key = size_of::<S::Value>();
        self.inner.next_key_seed(Seed { seed, bounds: self.bounds })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.charge(self.key + size_of::<S::Value>())?;
        self.inner.next_value_seed(Seed { seed, bounds: self.bounds })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|claimed| claimed.min(BELIEVED))
    }
}

/// The variant of an enum.
struct Choice<'b, A> {
    inner: A,
    bounds: &'b Bounds,
}

impl<'b, 'de, A: de::EnumAccess<'de>> de::EnumAccess<'de> for Choice<'b, A> {
    type Error = A::Error;
    type Variant = Choice<'b, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, inner) = self.inner.variant_seed(seed)?;
        Ok((value, Choice { inner, bounds: self.bounds }))
    }
}

impl<'de, A: de::VariantAccess<'de>> de::VariantAccess<'de> for Choice<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Seed { seed, bounds: self.bounds })
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let Choice { inner, bounds } = self;
        inner.tuple_variant(len, Within { visitor, bounds, price: Price::Nothing, _level: None })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Choice { inner, bounds } = self;
        inner.struct_variant(fields, Within { visitor, bounds, price: Price::Nothing, _level: None })
    }
}

/// The place for a part, with its size.
struct Seed<'b, S> {
    seed: S,
    bounds: &'b Bounds,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Guarded { inner, bounds: self.bounds, place: size_of::<S::Value>() })
    }
}
