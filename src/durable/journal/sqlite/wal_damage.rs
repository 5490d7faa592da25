//! Finds damage in a WAL. SQLite takes damage for the end of the file.
//!
//! SQLite reads a WAL up to the first invalid frame, and takes that frame for a torn write. The check sum of a frame
//! continues the check sum that is stored in the frame before it. So a frame can be checked although an earlier one is
//! invalid.
//!
//! *Damage.* Each transaction is synced before the next one is written. So if the frame behind the last frame of a
//! transaction is valid, this transaction and all earlier ones were on disk. An invalid frame in them is damaged.
//!
//! *A torn write* is one transaction. Only its last frame says that it is the last. Behind it may be frames of a longer
//! transaction that was torn earlier, or of an earlier content of the WAL. The first of these frames is invalid,
//! because its check sum does not continue the one before it. Earlier contents have other salts.
//!
//! So damage of the last transaction looks like a torn write. Damage of the last frame of the transaction before it may
//! look like one, too.
//!
//! If the write of a new head was torn, the WAL was about to begin anew, and all of its pages are in the main file. A
//! new head has another counter and other salts than the frames. So a head with one flipped bit and with the salts of
//! the first frame is damaged. There is one exception: the flipped bit of the counter may be the one by which a new
//! head differs.
//!
//! An opening cuts off everything behind the last transaction that SQLite reads, and syncs that, before anybody writes.
//! Otherwise a later transaction could be written over the first frames of a torn one, and be torn itself: its last
//! frame could have a new mark of the end, and the check sum that the rest of the old transaction continues. That would
//! look like damage.

use std::io::{BufReader, Read};

/// The length of the head of a WAL, in bytes, as SQLite writes it.
const HEAD: usize = 32;

/// The length of the head of a frame, in bytes. A page follows it.
const FRAME_HEAD: usize = 24;

/// The length of one read of the file, in bytes. A WAL of some MiB then takes few system calls.
const CHUNK: usize = 1 << 20;

/// A check sum: two words that depend on all bytes before.
type Sum = [u32; 2];

/// The head of a WAL.
struct Head {
    is_big_endian: bool,
    page: usize,
    /// How often the WAL has begun anew.
    counter: u32,
    salts: [u8; 8],
    sum: Sum,
}

impl Head {
    /// Reads a head. Returns `None` if it is invalid.
    fn read(bytes: &[u8; HEAD]) -> Option<Head> {
        let is_big_endian = match word(bytes, 0) {
            0x377f_0682 => false,
            0x377f_0683 => true,
            _ => return None,
        };
        let sum = sum(is_big_endian, [0, 0], &bytes[..24]);
        let page = word(bytes, 8) as usize;
        let salts = bytes[16..24].try_into().ok()?;
        let is_valid = sum == pair(bytes, 24) && page.is_power_of_two() && (512..=65_536).contains(&page);
        is_valid.then(|| Head { is_big_endian, page, counter: word(bytes, 12), salts, sum })
    }

    /// Whether these bytes are a head with these salts in which one bit was flipped.
    fn is_flipped(bytes: &[u8; HEAD], salts: [u8; 8]) -> bool {
        (0..8 * HEAD).any(|bit| {
            let mut before = *bytes;
            before[bit / 8] ^= 1 << (bit % 8);
            let next = |head: &Head| head.counter.wrapping_add(1) == word(bytes, 12);
            Head::read(&before).is_some_and(|head| head.salts == salts && !next(&head))
        })
    }
}

/// The length of a WAL with so many frames, as its head says.
pub(super) fn length(wal: &mut impl Read, frames: u64) -> std::io::Result<Option<u64>> {
    let mut bytes = [0; HEAD];
    let head = if fill(wal, &mut bytes)? { Head::read(&bytes) } else { None };
    Ok(head.map(|head| HEAD as u64 + frames * (FRAME_HEAD + head.page) as u64))
}

/// Returns where the first damaged frame of a WAL begins, or 0 if its head is damaged. Returns `None` if no damage is
/// found.
pub(super) fn find(wal: impl Read) -> std::io::Result<Option<u64>> {
    let mut wal = BufReader::with_capacity(CHUNK, wal);
    let mut bytes = [0; HEAD];
    if !fill(&mut wal, &mut bytes)? {
        return Ok(None);
    }
    let Some(head) = Head::read(&bytes) else {
        let mut frame = [0; FRAME_HEAD];
        let is_there = fill(&mut wal, &mut frame)?;
        let salts = frame[8..16].try_into().unwrap_or_default();
        return Ok((is_there && Head::is_flipped(&bytes, salts)).then_some(0));
    };
    let (mut before, mut is_last, mut at, mut invalid) = (head.sum, false, HEAD as u64, None);
    let mut frame = vec![0; FRAME_HEAD + head.page];
    while fill(&mut wal, &mut frame)? {
        let seed = sum(head.is_big_endian, before, &frame[..8]);
        let is_valid = sum(head.is_big_endian, seed, &frame[FRAME_HEAD..]) == pair(&frame, 16);
        if !(is_valid && frame[8..16] == head.salts) {
            invalid = invalid.or(Some(at));
        } else if is_last && invalid.is_some() {
            return Ok(invalid);
        }
        // The last frame of a transaction has the size of the file.
        (before, is_last, at) = (pair(&frame, 16), word(&frame, 4) != 0, at + frame.len() as u64);
    }
    Ok(None)
}

/// Fills a buffer. Returns `false` if the file ends before the buffer is full.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(buffer) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        filled => filled.map(|()| true),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn pair(bytes: &[u8], at: usize) -> Sum {
    [word(bytes, at), word(bytes, at + 4)]
}

/// Continues a check sum with these bytes.
fn sum(is_big_endian: bool, before: Sum, bytes: &[u8]) -> Sum {
    let read = |bytes: &[u8]| if is_big_endian { word(bytes, 0) } else { word(bytes, 0).swap_bytes() };
    bytes.chunks_exact(8).fold(before, |[one, two], eight| {
        let one = one.wrapping_add(read(&eight[..4])).wrapping_add(two);
        [one, two.wrapping_add(read(&eight[4..])).wrapping_add(one)]
    })
}
