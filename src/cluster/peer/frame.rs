//! The layout of frames: fixed fields at the head, parts with variable lengths behind it. All reads are checked.

/// The longest frame, in bytes. It is less than 64 KiB, so that a link can count its bytes with 16 bits.
pub(crate) const LONGEST_FRAME: usize = 60 << 10;

/// The longest payload of an item, in bytes: a message of 16 MiB, with its head and its tables.
pub(crate) const ITEM_LIMIT: usize = (16 << 20) + (64 << 10);

/// The bytes of a fragment of a large item. An item that is not longer is small. A fragment delays others by less than
/// 0.3 ms at 1 Gbit/s.
pub(super) const FRAGMENT: usize = 32 << 10;

/// The most bytes that the head of a part takes: a kind and three varints.
pub(super) const PART_HEAD: usize = 31;

/// The two ends of a connection: the nonces of the receiver and the sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) to: u64,
    pub(super) from: u64,
}

/// The first byte of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hello,
    Refused,
    Who,
    Bye,
    Leaving,
    Batch,
    Beat,
}

impl Kind {
    const ALL: [Kind; 7] = [Kind::Hello, Kind::Refused, Kind::Who, Kind::Bye, Kind::Leaving, Kind::Batch, Kind::Beat];

    fn to_byte(self) -> u8 {
        // No other protocol on the same port begins like this.
        0xC0 | self as u8
    }

    fn of_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.to_byte() == byte)
    }
}

/// The bytes of a kind and two nonces, with which each frame begins.
pub(super) const ENDS: usize = 17;

/// The bytes before the parts of a batch.
pub(super) const HEAD: usize = ENDS + 8 + 8 + 8 + 4;

/// The fields of each batch and each beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of this batch, or of the last one before a beat.
    pub(super) sequence: u64,
    /// The last batch of the receiver whose items were given to the caller.
    pub(super) acknowledged: u64,
    /// How many bytes of fragments the receiver may have sent in all.
    pub(super) granted: u64,
}

/// Whether a frame is a beat, as far as its first byte says so. A beat has no items.
pub(crate) fn is_beat(frame: &[u8]) -> bool {
    frame.first() == Some(&Kind::Beat.to_byte())
}

/// Begins a frame: clears the buffer, and writes the kind and the nonces.
pub(super) fn begin(frame: &mut Vec<u8>, kind: Kind, ends: Ends) {
    frame.clear();
    frame.push(kind.to_byte());
    frame.extend_from_slice(&ends.to.to_le_bytes());
    frame.extend_from_slice(&ends.from.to_le_bytes());
}

/// Begins a batch or a beat. The parts of a batch follow, and then [`finish`].
pub(super) fn begin_with_head(frame: &mut Vec<u8>, kind: Kind, ends: Ends, head: Head) {
    begin(frame, kind, ends);
    for word in [head.sequence, head.acknowledged, head.granted] {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame.extend_from_slice(&[0; 4]);
}

/// Writes the length of a batch or a beat, so that a torn one is seen.
pub(super) fn finish(frame: &mut [u8]) {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    if let Some(place) = frame.get_mut(HEAD - 4..HEAD) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

pub(super) fn put_varint(frame: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        frame.push(number as u8 | 0x80);
        number >>= 7;
    }
    frame.push(number as u8);
}

pub(super) fn put_text(frame: &mut Vec<u8>, text: &str) {
    put_varint(frame, text.len() as u64);
    frame.extend_from_slice(text.as_bytes());
}

/// The kind of a part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A small message: length, bytes.
    Message,
    /// A small control item: length, bytes.
    Control,
    /// The first fragment of a large message: number, whole length, length, bytes.
    LargeMessage,
    /// The first fragment of a large control item.
    LargeControl,
    /// Another fragment: number, length, bytes.
    Fragment,
    /// A piece of the types: whether it is the last (0 or 1), length, bytes.
    Types,
    /// A piece of the directory.
    Directory,
}

impl Part {
    const ALL: [Part; 7] = [
        Part::Message,
        Part::Control,
        Part::LargeMessage,
        Part::LargeControl,
        Part::Fragment,
        Part::Types,
        Part::Directory,
    ];

    pub(super) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(super) fn of_byte(byte: u8) -> Option<Part> {
        Part::ALL.get(usize::from(byte)).copied()
    }
}

/// The bytes of a frame that were not read yet. Each read returns nothing if there are not enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    frame: &'a [u8],
    place: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Reader<'a> {
        Reader { frame, place: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.place == self.frame.len()
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.frame.get(self.place..self.place.checked_add(count)?)?;
        self.place += count;
        Some(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(super) fn half_word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.length()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    /// Reads how each frame begins.
    pub(super) fn begin(&mut self) -> Option<(Kind, Ends)> {
        let kind = Kind::of_byte(self.byte()?)?;
        Some((kind, Ends { to: self.word()?, from: self.word()? }))
    }

    /// Reads the head of a batch or a beat. A frame of another length than it says is torn.
    pub(super) fn head(&mut self) -> Option<Head> {
        let head = Head { sequence: self.word()?, acknowledged: self.word()?, granted: self.word()? };
        (self.half_word()? as usize == self.frame.len()).then_some(head)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_torn_ones_do_not() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut frame = Vec::new();
            put_varint(&mut frame, number);
            assert_eq!(Reader::new(&frame).varint(), Some(number));
            frame.pop();
            assert_eq!(Reader::new(&frame).varint(), None);
        }
        assert_eq!(Reader::new(&[0xff; 12]).varint(), None);
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(Reader::new(&beyond).varint(), None);
    }

    #[test]
    fn kinds_have_bytes_of_their_own() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert_eq!(Kind::of_byte(kind.to_byte()), Some(kind));
        }
        for (place, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, place);
        }
        assert_eq!(Part::of_byte(7), None);
    }

    #[test]
    fn a_torn_head_is_seen() {
        let mut frame = Vec::new();
        let head = Head { sequence: 1, acknowledged: 2, granted: 3 };
        begin_with_head(&mut frame, Kind::Beat, Ends { to: 4, from: 5 }, head);
        frame.extend_from_slice(b"parts");
        finish(&mut frame);
        let read = |frame: &[u8]| {
            let mut reader = Reader::new(frame);
            reader.begin()?;
            reader.head()
        };
        assert_eq!(read(&frame), Some(head));
        (0..frame.len()).for_each(|end| assert_eq!(read(&frame[..end]), None));
        frame.push(0);
        assert_eq!(read(&frame), None);
    }
}
