//! The frames of a recording, and recordings with changes.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Once;

use procession::recording::{FORMAT, Recording, ReplayError};

use crate::panics::{is_on_purpose, quiet_panics};
use crate::walker::{Op, Saved, Walker, replayer, walk};

/// A recording of a few steps.
pub(crate) fn recorded() -> Vec<u8> {
    let saved = Saved::default();
    walk(saved.recorder().save_at_end(), [Op::Add(1), Op::Look, Op::Name(0), Op::Look, Op::Add(u64::MAX)]);
    saved.one()
}

/// The frames of a file: the bytes of each, and its kind.
pub(crate) fn frames(bytes: &[u8]) -> Vec<(Range<usize>, u8)> {
    let (mut at, mut frames) = (8, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        frames.push((at..at + 9 + length + 4, bytes[at + 4]));
        at += 9 + length + 4;
    }
    frames
}

/// A file with these frames. It computes the check sums.
pub(crate) fn sealed(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"PROCREC".to_vec();
    bytes.push(FORMAT);
    for (number, (kind, body)) in frames.iter().enumerate() {
        let length = body.len() as u32;
        let mut check = crc32fast::Hasher::new();
        check.update(&(number as u32).to_le_bytes());
        check.update(&length.to_le_bytes());
        check.update(&[*kind]);
        let check = check.finalize();
        bytes.extend(length.to_le_bytes());
        bytes.push(*kind);
        bytes.extend(check.to_le_bytes());
        bytes.extend(body);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&check.to_le_bytes());
        crc.update(body);
        bytes.extend(crc.finalize().to_le_bytes());
    }
    bytes
}

pub(crate) fn bodies(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    frames(bytes).into_iter().map(|(all, kind)| (kind, bytes[all.start + 9..all.end - 4].to_vec())).collect()
}

/// Replays as many steps as there are. Returns their number.
pub(crate) fn steps(recording: Recording) -> Result<usize, ReplayError> {
    let mut replay = recording.replay(&replayer(), Walker::new)?;
    let mut count = 0;
    while replay.step()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// The number of mutated files: 4,000, or that of `PROCESSION_MUTATED`.
pub(crate) fn mutated_count() -> usize {
    std::env::var("PROCESSION_MUTATED").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000)
}

/// How many mutated files were refused, and how the replays of the others have ended.
#[derive(Default)]
pub(crate) struct Mutated {
    pub(crate) refused: usize,
    pub(crate) differ: usize,
    pub(crate) same: usize,
}

thread_local! {
    /// The panics of this thread since it listens. Those of the walker, which are on purpose, are left out.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs code of this thread. Returns its result, and the panics in it that are not the walker's own. A replay contains
/// panics, so they are heard of by the hook.
fn with_panics<R>(run: impl FnOnce() -> R) -> (R, Vec<String>) {
    // The hook of all tests is set once. So it is set before this one.
    quiet_panics();
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let message = panic.payload_as_str().unwrap_or_default();
            if !is_on_purpose(message) {
                PANICS.with_borrow_mut(|panics| panics.iter_mut().for_each(|all| all.push(panic.to_string())));
            }
            next(panic);
        }));
    });
    PANICS.set(Some(Vec::new()));
    let result = run();
    (result, PANICS.take().unwrap_or_default())
}

/// Reads and replays this many mutated files. No panic but the walker's own is met.
pub(crate) fn read_mutated(count: usize) -> Mutated {
    let whole = recorded();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let mut mutated = Mutated::default();
    for number in 0..count {
        let bytes = if number % 4 == 0 {
            let mut bytes = whole.clone();
            let (from, length) = (random(bytes.len()), random(9));
            match random(3) {
                0 => bytes[from] = random(256) as u8,
                1 => drop(bytes.drain(from..(from + length).min(whole.len()))),
                _ => bytes.extend_from_slice(&whole[..from]),
            }
            bytes
        } else {
            // The check sums fit. So the content is decoded, and replayed.
            let mut all = bodies(&whole);
            for _ in 0..=random(3) {
                let frame = random(all.len());
                let body = &mut all[frame].1;
                let place = random(body.len());
                match random(5) {
                    0 if !body.is_empty() => drop(body.remove(place)),
                    1 => body.insert(place.min(body.len()), random(256) as u8),
                    2 => body.truncate(place),
                    3 => all[frame].0 = random(6) as u8,
                    _ if !body.is_empty() => body[place] = [0xff, 0x7f, 0, random(256) as u8][random(4)],
                    _ => {}
                }
            }
            sealed(&all)
        };
        let read = || match Recording::from_bytes(bytes) {
            Err(_) => mutated.refused += 1,
            Ok(recording) => match recording.begins_with_snapshot() {
                true => drop(recording.replay_snapshot::<Walker>(&replayer()).map(|mut replay| replay.run())),
                false => match steps(recording) {
                    Ok(_) => mutated.same += 1,
                    Err(_) => mutated.differ += 1,
                },
            },
        };
        let ((), panics) = with_panics(read);
        assert!(panics.is_empty(), "file {number}: {panics:?}");
    }
    mutated
}
