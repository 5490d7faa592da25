//! The shape of a type: a hash of the names and kinds of its fields and variants.
//!
//! The format of messages between nodes does not describe itself. A field that one node knows and the other does not
//! would be misread. So both compare the shapes of a type before they exchange its values.
//!
//! The shape comes from `Deserialize`: the type is decoded from a source that makes values up, and that notes what it
//! was asked for. An enum is decoded several times, until each of its variants was chosen once.
//!
//! A type that checks its values may refuse those that are made up. Then the parts behind that value are not in the
//! shape. So two types with the same shape are not proved to be equal: only the decoded parts were compared.

use std::any::type_name;
use std::collections::HashMap;
use std::fmt;

use crate::outcome::contain;
use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Visitor};

/// The shape of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Equal types have equal hashes, in every program on every machine.
    pub(crate) hash: u64,
    /// The type asks the format which value follows. Formats that do not describe themselves cannot say that. Examples
    /// are `#[serde(flatten)]` and `#[serde(untagged)]`.
    pub(crate) needs_description: bool,
}

/// The most times that a type is decoded. A type with more nested variants is seen in parts.
const ROUNDS: u32 = 4_096;
/// The most parts that are decoded in one round.
const PARTS: u32 = 100_000;
/// The deepest nesting that is followed.
const DEPTH: usize = 100;

impl Shape {
    pub(crate) fn of<T: DeserializeOwned>() -> Shape {
        let mut probe = Probe::default();
        for _ in 0..ROUNDS {
            (probe.parts, probe.is_complete, probe.has_advanced) = (0, true, false);
            // A type may panic at a value that it does not expect.
            let is_whole = contain(|| T::deserialize(&mut probe).is_ok()).unwrap_or(false);
            probe.note("round", &[if is_whole { "whole" } else { "part" }]);
            probe.nesting.clear();
            probe.enums_inside.clear();
            if probe.is_complete || !probe.has_advanced {
                break;
            }
        }
        Shape { hash: probe.hash.0, needs_description: probe.needs_description }
    }
}

/// The hash of Fowler, Noll and Vo, variant 1a with 64 bits. It is the same everywhere.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, text: &str) {
        // The end of each text is marked, so that two texts are not one.
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// How far a variant has been decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    New,
    /// An enum within it has variants that were not chosen yet.
    Partial,
    Complete,
}

/// The variants of one enum.
struct Variants {
    progress: Vec<Progress>,
    /// The first variant that does not contain the enum itself. It ends recursions.
    leaf: Option<usize>,
}

/// Tells enums apart: the name of the visitor, which has the parameters of generic types, and the list of variants.
/// Neither is a part of the shape.
type Key = (&'static str, usize, usize);

/// A source that makes values up.
#[derive(Default)]
struct Probe {
    hash: Hash,
    enums: HashMap<Key, Variants>,
    /// The visitors of the values with parts that are being decoded.
    nesting: Vec<&'static str>,
    /// The enums that are being decoded, with whether they were met again inside.
    enums_inside: Vec<(Key, bool)>,
    parts: u32,
    /// No enum with variants that were not chosen was left.
    is_complete: bool,
    /// A variant has advanced in this round.
    has_advanced: bool,
    needs_description: bool,
}

/// The error that ends a round. It is never returned to a caller.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the type has refused a value that was made up, or is too large")
    }
}

impl std::error::Error for Stopped {}

impl de::Error for Stopped {
    fn custom<T: fmt::Display>(_: T) -> Stopped {
        Stopped
    }
}

impl Probe {
    fn note(&mut self, kind: &str, names: &[&str]) {
        self.hash.add(kind);
        names.iter().for_each(|name| self.hash.add(name));
    }

    /// Notes a part of the type.
    fn part(&mut self, kind: &str, names: &[&str]) -> Result<(), Stopped> {
        self.note(kind, names);
        self.parts += 1;
        if self.parts > PARTS { Err(Stopped) } else { Ok(()) }
    }

    /// Whether a type is being decoded within itself. Then optional parts are left out, so that it ends.
    fn is_recursive(&self) -> bool {
        let recurs = |(at, visitor)| self.nesting[..at].contains(visitor);
        self.nesting.iter().enumerate().any(recurs)
    }

    /// Decodes the parts of a value. `decode` is told whether the value is within one of the same type.
    fn inside<'de, V: Visitor<'de>>(
        &mut self,
        decode: impl FnOnce(&mut Probe, bool) -> Result<V::Value, Stopped>,
    ) -> Result<V::Value, Stopped> {
        // A newtype or a pointer to itself never ends.
        if self.nesting.len() > DEPTH {
            return Err(Stopped);
        }
        self.nesting.push(type_name::<V>());
        let is_recursive = self.is_recursive();
        let value = decode(self, is_recursive);
        self.nesting.pop();
        value
    }

    /// Decodes the fields of a struct or a tuple.
    fn fields<'de, V: Visitor<'de>>(&mut self, count: usize, visitor: V) -> Result<V::Value, Stopped> {
        self.inside::<V>(|probe, _| visitor.visit_seq(Parts { probe, left: count }))
    }

    /// Chooses a variant. Prefers one that was not chosen yet, then one that is not complete.
    fn choose(&mut self, visitor: Key, count: usize) -> Option<usize> {
        let new = || Variants { progress: vec![Progress::New; count], leaf: None };
        let Variants { progress, leaf } = self.enums.entry(visitor).or_insert_with(new);
        let first = |wanted| progress.iter().position(|progress| *progress == wanted);
        let is_inside = self.enums_inside.iter_mut().find(|(inside, _)| *inside == visitor);
        match is_inside {
            // A variant that is being decoded is partial.
            Some((_, is_met)) => {
                *is_met = true;
                first(Progress::New).or(*leaf)
            }
            None => first(Progress::New).or_else(|| first(Progress::Partial)).or(*leaf).or(Some(0)),
        }
    }

    /// Decodes a variant, and notes how far that went.
    fn variant<'de, V: Visitor<'de>>(
        &mut self,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let name = (type_name::<V>(), variants.as_ptr() as usize, variants.len());
        let chosen = self.choose(name, variants.len()).filter(|_| !variants.is_empty()).ok_or(Stopped)?;
        if self.enums_inside.len() > DEPTH {
            return Err(Stopped);
        }
        self.note("variant", &[variants[chosen]]);
        let is_outermost = self.enums_inside.iter().all(|(inside, _)| *inside != name);
        let was_complete = std::mem::replace(&mut self.is_complete, true);
        let before = self.advance(name, chosen, Progress::Partial);
        self.enums_inside.push((name, false));
        let value = visitor.visit_enum(Variant { probe: self, chosen: chosen as u32 });
        let is_recursive = self.enums_inside.pop().is_some_and(|(_, is_met)| is_met);
        // The parts behind a refused value are never seen. So another round would not help.
        let is_complete = self.is_complete || value.is_err();
        let after = if is_complete { Progress::Complete } else { Progress::Partial };
        self.advance(name, chosen, after.max(before));
        if let Some(variants) = self.enums.get_mut(&name) {
            if !is_recursive && value.is_ok() {
                variants.leaf.get_or_insert(chosen);
            }
            // While the enum is being decoded further outside, its variants are chosen there.
            let is_done = variants.progress.iter().all(|progress| *progress == Progress::Complete);
            self.is_complete = was_complete && (is_done || !is_outermost);
        }
        value
    }

    /// Notes how far a variant has been decoded. Returns how far it was before.
    fn advance(&mut self, visitor: Key, chosen: usize, to: Progress) -> Progress {
        let Some(variants) = self.enums.get_mut(&visitor) else { return Progress::New };
        let before = std::mem::replace(&mut variants.progress[chosen], to);
        let before_or_to = before.max(to);
        variants.progress[chosen] = before_or_to;
        self.has_advanced |= before_or_to != before;
        before
    }
}

impl Progress {
    fn max(self, other: Progress) -> Progress {
        match (self, other) {
            (Progress::Complete, _) | (_, Progress::Complete) => Progress::Complete,
            (Progress::Partial, _) | (_, Progress::Partial) => Progress::Partial,
            _ => Progress::New,
        }
    }
}

/// Parts that follow each other: elements, fields, or keys and values.
struct Parts<'p> {
    probe: &'p mut Probe,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Parts<'_> {
    type Error = Stopped;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stopped> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.probe).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_> {
    type Error = Stopped;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stopped> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stopped> {
        seed.deserialize(&mut *self.probe)
    }
}

/// A variant that was chosen.
struct Variant<'p> {
    probe: &'p mut Probe,
    chosen: u32,
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = Stopped;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Stopped> {
        let chosen = seed.deserialize(U32Deserializer::<Stopped>::new(self.chosen))?;
        Ok((chosen, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = Stopped;

    fn unit_variant(self) -> Result<(), Stopped> {
        self.probe.part("unit variant", &[])
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Stopped> {
        self.probe.part("newtype variant", &[])?;
        seed.deserialize(self.probe)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stopped> {
        self.probe.part("tuple variant", &[&len.to_string()])?;
        self.probe.fields(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Stopped> {
        self.probe.part("struct variant", fields)?;
        self.probe.fields(fields.len(), visitor)
    }
}

/// Values without parts. Numbers are 1, because some types refuse 0.
macro_rules! made_up {
    ($($method:ident, $visit:ident, $value:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
            self.part(stringify!($method), &[])?;
            visitor.$visit($value)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Probe {
    type Error = Stopped;

    made_up! {
        deserialize_bool, visit_bool, false;
        deserialize_i8, visit_i8, 1;
        deserialize_i16, visit_i16, 1;
        deserialize_i32, visit_i32, 1;
        deserialize_i64, visit_i64, 1;
        deserialize_i128, visit_i128, 1;
        deserialize_u8, visit_u8, 1;
        deserialize_u16, visit_u16, 1;
        deserialize_u32, visit_u32, 1;
        deserialize_u64, visit_u64, 1;
        deserialize_u128, visit_u128, 1;
        deserialize_f32, visit_f32, 1.0;
        deserialize_f64, visit_f64, 1.0;
        deserialize_char, visit_char, '1';
        deserialize_str, visit_str, "1";
        deserialize_string, visit_string, "1".to_owned();
        deserialize_bytes, visit_bytes, b"1";
        deserialize_byte_buf, visit_byte_buf, b"1".to_vec();
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.part("unit", &[])?;
        visitor.visit_unit()
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stopped> {
        self.needs_description = true;
        Err(Stopped)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.deserialize_any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.part("option", &[])?;
        self.inside::<V>(
            |probe, is_recursive| if is_recursive { visitor.visit_none() } else { visitor.visit_some(probe) },
        )
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Stopped> {
        self.part("unit struct", &[name])?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Stopped> {
        self.part("newtype struct", &[name])?;
        self.inside::<V>(|probe, _| visitor.visit_newtype_struct(probe))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.part("sequence", &[])?;
        self.inside::<V>(|probe, is_recursive| visitor.visit_seq(Parts { probe, left: usize::from(!is_recursive) }))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.part("map", &[])?;
        self.inside::<V>(|probe, is_recursive| visitor.visit_map(Parts { probe, left: usize::from(!is_recursive) }))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stopped> {
        self.part("tuple", &[&len.to_string()])?;
        self.fields(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.part("tuple struct", &[name, &len.to_string()])?;
        self.fields(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.part("struct", &[name])?;
        self.part("fields", fields)?;
        self.fields(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.part("enum", &[name])?;
        self.part("variants", variants)?;
        self.variant(variants, visitor)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
