//! Bytes that a stranger has made are decoded within bounds of depth and memory.
//!
//! The decoder is private, so its file is a part of this program, too. The counting allocator only counts, and then
//! calls the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[path = "../../src/cluster/guarded.rs"]
mod guarded;

use guarded::{DecodeError, MAX_DEPTH, decode};

struct Counting;

thread_local! {
    /// The bytes that this thread has allocated and not freed, and the most of them.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends has no counts any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Decodes, and checks that the memory was within the bound that is promised.
fn decode_within<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let before = LIVE.get();
    PEAK.set(before);
    let decoded = decode::<T>(bytes);
    let (taken, allowed) = (PEAK.get() - before, 64 * bytes.len() as i64 + (1 << 20));
    assert!(taken <= allowed, "{taken} bytes for {} encoded ones, of which {allowed} are allowed", bytes.len());
    decoded
}

/// Lists in lists.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nest(Vec<Nest>);

/// Encodes lists in lists, so many deep.
fn nested(depth: usize) -> Vec<u8> {
    [vec![1; depth], vec![0]].concat()
}

/// A pointer to itself.
#[derive(Debug, Serialize, Deserialize)]
enum Chain {
    End,
    Next(Box<Chain>),
}

/// Has 4 KiB, and another one behind a pointer.
#[derive(Serialize, Deserialize)]
struct Inline {
    _room: [[u64; 32]; 16],
    next: Option<Box<Inline>>,
}

#[test]
fn a_value_is_nested_as_deep_as_the_bound_and_no_deeper() {
    // A struct around a list has two levels.
    let levels = MAX_DEPTH as usize / 2 - 1;
    assert!(decode_within::<Nest>(&nested(levels)).is_ok());
    let error = decode_within::<Nest>(&nested(levels + 1)).unwrap_err();
    let text = "the value is nested more than 128 levels deep, or its levels are too large";
    assert_eq!(error.to_string(), text);
    // Without the bound these would take the stack.
    assert!(matches!(decode_within::<Nest>(&nested(1_000_000)), Err(DecodeError::TooDeep)));
    assert!(matches!(decode_within::<Chain>(&vec![1; 1_000_000]), Err(DecodeError::TooDeep)));
    assert!(matches!(decode_within::<Option<Box<Nest>>>(&vec![1; 1_000_000]), Err(DecodeError::TooDeep)));
    // Few levels of large values take as much of the stack.
    let large = |depth| (0..depth).fold(None, |next, _| Some(Box::new(Inline { _room: [[0; 32]; 16], next })));
    assert!(decode_within::<Option<Box<Inline>>>(&postcard::to_stdvec(&large(10)).unwrap()).is_ok());
    let deep = postcard::to_stdvec(&large(40)).unwrap();
    assert!(matches!(decode_within::<Option<Box<Inline>>>(&deep), Err(DecodeError::TooDeep)));
    // Each value leaves its level.
    let wide = Nest(std::iter::repeat_with(|| Nest(Vec::new())).take(10_000).collect());
    assert_eq!(decode_within::<Nest>(&postcard::to_stdvec(&wide).unwrap()).unwrap(), wide);
}

thread_local! {
    static DECODED: Cell<u64> = const { Cell::new(0) };
}

/// Takes no byte and no memory.
#[derive(PartialEq, Eq, Hash)]
struct Nothing;

impl<'a> Deserialize<'a> for Nothing {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<Nothing, D::Error> {
        DECODED.set(DECODED.get() + 1);
        <()>::deserialize(from).map(|()| Nothing)
    }
}

#[test]
fn a_claim_of_three_billion_elements_is_not_believed() {
    let claim = postcard::to_stdvec(&3_000_000_000_u64).unwrap();
    assert_eq!(claim.len(), 5);
    assert!(decode_within::<Vec<u8>>(&claim).is_err());
    assert!(decode_within::<Vec<[u64; 32]>>(&claim).is_err());
    assert!(decode_within::<Vec<[[u64; 32]; 32]>>(&claim).is_err());
    assert!(decode_within::<String>(&claim).is_err());
    assert!(decode_within::<HashMap<u64, u64>>(&claim).is_err());
    assert!(decode_within::<BTreeMap<u64, u64>>(&claim).is_err());
    // Elements that take no byte never run out.
    assert!(matches!(decode_within::<Vec<Nothing>>(&claim), Err(DecodeError::TooLarge { encoded: 5, .. })));
    let decoded = DECODED.replace(0);
    assert!(decoded < 50_000, "{decoded} elements were decoded");
    // A claim at each level.
    let claims = claim.repeat(60);
    assert!(decode_within::<Vec<Vec<Vec<Vec<u64>>>>>(&claims).is_err());
    assert!(decode_within::<Nest>(&claims).is_err());
}

/// Has 280 bytes, and others of its sort.
#[derive(Debug, Deserialize)]
struct Wide {
    _room: [u64; 32],
    _inner: Vec<Wide>,
}

#[test]
fn claims_at_each_level_reserve_little_room() {
    // Each level reserves room for its elements before the next one is decoded.
    // The claim is below the number of bytes that follow, so the format believes it.
    let claim = postcard::to_stdvec(&200_u64).unwrap();
    let levels = [vec![0; 32], claim].concat().repeat(40);
    let error = decode_within::<Wide>(&levels).unwrap_err();
    assert!(matches!(error, DecodeError::TooLarge { .. }), "{error}");
}

/// A value that is much larger in memory than it is when it is encoded.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Blown {
    Small,
    Large([u64; 32]),
}

#[test]
fn a_short_message_does_not_become_a_large_value() {
    let many = 1_000_000;
    let error = decode_within::<Vec<Blown>>(&postcard::to_stdvec(&vec![Blown::Small; many]).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("the value would take more than "), "{error}");
    // Behind a pointer the size of the element does not show.
    let boxed: Vec<Box<Blown>> = std::iter::repeat_with(|| Box::new(Blown::Small)).take(many).collect();
    let bytes = postcard::to_stdvec(&boxed).unwrap();
    assert!(matches!(decode_within::<Vec<Box<Blown>>>(&bytes), Err(DecodeError::TooLarge { .. })));
    assert!(decode_within::<Vec<(u8, u8, Option<Box<Blown>>)>>(&vec![1; many]).is_err());
    assert!(decode_within::<BTreeMap<u32, Blown>>(&bytes).is_err());
    // A table has two buffers while it grows. (The first number has three bytes.)
    let set: HashSet<(u32, Option<[u64; 13]>)> = (1 << 14..(1 << 14) + 114_689).map(|key| (key, None)).collect();
    let bytes = postcard::to_stdvec(&set).unwrap();
    assert!(matches!(decode_within::<HashSet<(u32, Option<[u64; 13]>)>>(&bytes), Err(DecodeError::TooLarge { .. })));
    let map: HashMap<u32, Option<[u64; 13]>> = set.into_iter().collect();
    let bytes = postcard::to_stdvec(&map).unwrap();
    assert!(matches!(decode_within::<HashMap<u32, Option<[u64; 13]>>>(&bytes), Err(DecodeError::TooLarge { .. })));
    assert!(matches!(decode_within::<BTreeMap<u32, Option<[u64; 13]>>>(&bytes), Err(DecodeError::TooLarge { .. })));
    // Common values may be many: a list of empty lists, of empty texts, and of numbers.
    assert_eq!(
        decode_within::<Vec<Vec<u64>>>(&postcard::to_stdvec(&vec![Vec::<u64>::new(); many]).unwrap()).unwrap().len(),
        many
    );
    assert_eq!(decode_within::<Vec<String>>(&postcard::to_stdvec(&vec![""; many]).unwrap()).unwrap().len(), many);
    assert_eq!(decode_within::<Vec<u64>>(&postcard::to_stdvec(&vec![7_u64; many]).unwrap()).unwrap(), vec![7; many]);
    let map: BTreeMap<u64, u64> = (0..many as u64).map(|key| (key, key)).collect();
    assert_eq!(decode_within::<BTreeMap<u64, u64>>(&postcard::to_stdvec(&map).unwrap()).unwrap(), map);
    let map: HashMap<u64, u64> = map.into_iter().collect();
    assert_eq!(decode_within::<HashMap<u64, u64>>(&postcard::to_stdvec(&map).unwrap()).unwrap(), map);
}

#[test]
fn bytes_behind_a_value_are_an_error() {
    let bytes = postcard::to_stdvec(&(7_u64, "seven")).unwrap();
    assert_eq!(decode_within::<(u64, String)>(&bytes).unwrap(), (7, "seven".into()));
    let error = decode_within::<(u64, String)>(&[&bytes[..], &[0, 0]].concat()).unwrap_err();
    assert_eq!(error.to_string(), "2 bytes are left after the value");
    assert!(matches!(decode_within::<(u64, String)>(&bytes[..bytes.len() - 1]), Err(DecodeError::Format(_))));
}

/// Hides the errors of its inner value.
struct Lenient;

impl<'a> Deserialize<'a> for Lenient {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<Lenient, D::Error> {
        let _ = Nest::deserialize(from);
        Ok(Lenient)
    }
}

#[test]
fn a_type_that_hides_an_error_does_not_hide_a_bound() {
    assert!(matches!(decode_within::<Lenient>(&nested(1_000)), Err(DecodeError::TooDeep)));
}

/// A message with parts of every kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Message {
    Nothing,
    Number(u64),
    Text(String),
    Parts { list: Vec<Message>, map: BTreeMap<String, Option<Message>>, pair: (i32, char) },
    Boxed(Box<Message>),
    Bytes(Vec<u8>, [u16; 4]),
    Table(HashMap<u8, Vec<(f64, bool)>>),
}

fn message(random: &mut Xoshiro256PlusPlus, depth: u32) -> Message {
    match random.random_range(0..if depth == 0 { 3 } else { 7 }) {
        0 => Message::Nothing,
        1 => Message::Number(random.random()),
        2 => Message::Text("text ".repeat(random.random_range(0..20))),
        3 => Message::Parts {
            list: (0..random.random_range(0..4)).map(|_| message(random, depth - 1)).collect(),
            map: (0..random.random_range(0..4))
                .map(|key| (format!("key {key}"), Some(message(random, depth - 1))))
                .collect(),
            pair: (random.random(), 'p'),
        },
        4 => Message::Boxed(Box::new(message(random, depth - 1))),
        5 => Message::Bytes(vec![7; random.random_range(0..300)], random.random()),
        _ => Message::Table((0..random.random_range(0..5)).map(|key| (key, vec![(0.5, true); 3])).collect()),
    }
}

/// Spoils a frame in a way that a stranger might choose.
fn spoil(bytes: &mut Vec<u8>, random: &mut Xoshiro256PlusPlus) {
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.random_range(0..6) {
            0 if !bytes.is_empty() => bytes[at] = random.random(),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.random_range(0..8),
            2 => bytes.truncate(at),
            // A length of three billion, or an endless number.
            3 => _ = bytes.splice(at..at, postcard::to_stdvec(&3_000_000_000_u64).unwrap_or_default()),
            4 => _ = bytes.splice(at..at, [0xff; 12]),
            _ => {
                let part = bytes[at..].to_vec();
                bytes.extend(part);
            }
        }
    }
}

#[test]
fn frames_that_are_spoilt_are_decoded_or_refused_within_the_bounds() {
    // The whole count is that of the contract.
    let full = std::env::var_os("PROCESSION_FULL").map(|_| 10_000_000);
    let number = |variable| std::env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let count = number("PROCESSION_FRAMES").or(full).unwrap_or(100_000);
    let seed = number("PROCESSION_FRAMES_SEED").unwrap_or(7);
    println!("{count} frames with the seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..count {
        let message = message(&mut random, 4);
        let mut bytes = postcard::to_stdvec(&message).unwrap();
        assert_eq!(decode_within::<Message>(&bytes).unwrap(), message);
        spoil(&mut bytes, &mut random);
        match decode_within::<Message>(&bytes) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
        // The same bytes as another type.
        let _ = decode_within::<Nest>(&bytes);
        let _ = decode_within::<Vec<Box<Blown>>>(&bytes);
        let _ = decode_within::<BTreeMap<String, Vec<Chain>>>(&bytes);
    }
    assert!(taken > count / 100 && refused > count / 10, "{taken} were taken, {refused} refused");
}
