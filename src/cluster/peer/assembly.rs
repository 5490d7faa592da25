//! The incoming side: the sequence of batches, their parts, and large items that are put together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::effect::Payload;
use super::frame::{FRAGMENT, ITEM_LIMIT, Part, Reader};
use super::lanes::{Class, OPEN_LIMIT};

/// How many bytes of fragments the peer may send beyond those that have arrived. More would wait in the buffers of the
/// link, before all other items.
const CREDIT: u64 = 256 << 10;

/// A large item of which a part has arrived.
#[derive(Debug)]
struct Assembly {
    class: Class,
    length: usize,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Appends a fragment. Takes memory for what has arrived, and at most twice as much.
    fn append(&mut self, fragment: &[u8]) {
        let spare = self.bytes.capacity() - self.bytes.len();
        if spare < fragment.len() {
            let room = (self.bytes.len() * 2).clamp(self.bytes.len() + fragment.len(), self.length);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(fragment);
    }
}

/// The thing that a part of a batch has completed.
#[derive(Debug)]
pub(super) enum Arrived {
    Item(Class, Payload),
    /// The types and the directory are there.
    Opening {
        types: Vec<u8>,
        directory: Vec<u8>,
    },
    Piece,
}

/// The peer has sent what it must not send.
#[derive(Debug)]
pub(super) struct Violation;

#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The sequence of the last batch.
    pub(super) sequence: u64,
    large: HashMap<u64, Assembly>,
    /// The whole lengths of all items in `large`.
    open_bytes: usize,
    fragment_bytes: u64,
    types: Vec<u8>,
    has_types: bool,
    directory: Vec<u8>,
    has_opening: bool,
}

impl Incoming {
    /// How many bytes of fragments the peer may have sent in all.
    pub(super) fn granted(&self) -> u64 {
        self.fragment_bytes.saturating_add(CREDIT)
    }

    /// Whether the peer, told of this grant, has used half of its credit.
    pub(super) fn needs_grant(&self, told: u64) -> bool {
        self.granted() - told >= CREDIT / 2
    }

    /// Reads one part of a batch. `granted` is what the peer was told last.
    pub(super) fn part(&mut self, reader: &mut Reader<'_>, granted: u64) -> Result<Arrived, Violation> {
        let part = reader.byte().and_then(Part::of_byte).ok_or(Violation)?;
        match part {
            Part::Types | Part::Directory => return self.opening(part, reader).ok_or(Violation),
            _ if !self.has_opening => return Err(Violation),
            Part::Message => small(Class::Message, reader),
            Part::Control => small(Class::Control, reader),
            Part::LargeMessage => self.first_fragment(Class::Message, reader, granted),
            Part::LargeControl => self.first_fragment(Class::Control, reader, granted),
            Part::Fragment => self.next_fragment(reader, granted),
        }
        .ok_or(Violation)
    }

    fn opening(&mut self, part: Part, reader: &mut Reader<'_>) -> Option<Arrived> {
        let is_last = reader.byte()? == 1;
        let length = reader.length()?;
        let piece = reader.bytes(length)?;
        let is_in_turn = !self.has_opening && (part == Part::Directory) == self.has_types;
        if !is_in_turn || self.types.len() + self.directory.len() + length > ITEM_LIMIT {
            return None;
        }
        if part == Part::Types {
            self.types.extend_from_slice(piece);
            self.has_types = is_last;
            return Some(Arrived::Piece);
        }
        self.directory.extend_from_slice(piece);
        self.has_opening = is_last;
        if !is_last {
            return Some(Arrived::Piece);
        }
        Some(Arrived::Opening {
            types: std::mem::take(&mut self.types),
            directory: std::mem::take(&mut self.directory),
        })
    }

    fn first_fragment(&mut self, class: Class, reader: &mut Reader<'_>, granted: u64) -> Option<Arrived> {
        let number = reader.varint()?;
        let length = reader.length().filter(|length| (FRAGMENT + 1..=ITEM_LIMIT).contains(length))?;
        let fragment = self.fragment(reader, length, granted)?;
        let Entry::Vacant(entry) = self.large.entry(number) else { return None };
        if self.open_bytes + length > OPEN_LIMIT {
            return None;
        }
        self.open_bytes += length;
        entry.insert(Assembly { class, length, bytes: Vec::new() }).append(fragment);
        Some(Arrived::Piece)
    }

    fn next_fragment(&mut self, reader: &mut Reader<'_>, granted: u64) -> Option<Arrived> {
        let number = reader.varint()?;
        let large = self.large.get(&number)?;
        let fragment = self.fragment(reader, large.length - large.bytes.len(), granted)?;
        let Entry::Occupied(mut entry) = self.large.entry(number) else { return None };
        entry.get_mut().append(fragment);
        if entry.get().bytes.len() < entry.get().length {
            return Some(Arrived::Piece);
        }
        let large = entry.remove();
        self.open_bytes -= large.length;
        Some(Arrived::Item(large.class, Payload::Whole(large.bytes)))
    }

    /// Reads the bytes of a fragment. It is as long as the rest of its item, or as any fragment if that is less.
    fn fragment<'a>(&mut self, reader: &mut Reader<'a>, rest: usize, granted: u64) -> Option<&'a [u8]> {
        let length = reader.length().filter(|length| *length == rest.min(FRAGMENT))?;
        self.fragment_bytes += length as u64;
        if self.fragment_bytes > granted {
            return None;
        }
        reader.bytes(length)
    }
}

fn small(class: Class, reader: &mut Reader<'_>) -> Option<Arrived> {
    let length = reader.length().filter(|length| *length <= FRAGMENT)?;
    let begin = reader.place();
    reader.bytes(length)?;
    Some(Arrived::Item(class, Payload::At(begin..begin + length)))
}
