//! Frames that no honest peer sends: none of them panics, hangs, or takes memory that was not sent.

use std::time::Duration;

use super::frame::{FRAGMENT, Part, put_varint};
use super::lanes::OPEN_LIMIT;
use super::refusal::Difference;
use super::simulated_link::{Dice, identity};
use super::*;

/// How many frames a test takes: these few, or as many as `PROCESSION_FRAMES` says. The full number is that of the
/// contract.
pub(in crate::cluster) fn frames(few: usize) -> usize {
    let full = std::env::var_os("PROCESSION_FULL").map(|_| 10_000_000);
    number("PROCESSION_FRAMES").map(|count| count as usize).or(full).unwrap_or(few)
}

/// The seed of a test: this one, or what `PROCESSION_FRAMES_SEED` says.
pub(in crate::cluster) fn seed(usual: u64) -> u64 {
    number("PROCESSION_FRAMES_SEED").unwrap_or(usual)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")))
}

/// A machine that is up, and all that it was sent. `forge` gives its frames the right nonces and sequence.
struct Victim {
    peer: Peer,
    now: Duration,
    /// The nonces as our frames carry them.
    ends: [u64; 2],
    sequence: u64,
    granted: u64,
    effects: Vec<Effect>,
}

fn pump(now: Duration, from: &mut Peer, to: &mut Peer, effects: &mut Vec<Effect>) -> Vec<Vec<u8>> {
    let (mut frame, mut frames) = (Vec::new(), Vec::new());
    while from.next_frame(now, &mut frame, &mut Vec::new()) {
        to.arrived(now, &frame);
        to.receive(now, &frame, effects);
        frames.push(frame.clone());
    }
    frames
}

/// Connects two machines. Returns the frames that the second one has sent.
fn connect(now: Duration, a: &mut Peer, b: &mut Peer, nonces: [u64; 2]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    assert!(a.dial(now, nonces[0]) && b.dial(now, nonces[1]));
    for _ in 0..4 {
        let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
        pump(now, a, b, &mut to_b);
        frames.extend(pump(now, b, a, &mut to_a));
        for (peer, effects) in [(&mut *a, to_a), (&mut *b, to_b)] {
            if effects.iter().any(|effect| matches!(effect, Effect::Greeted(_))) {
                assert!(peer.accept(now, vec![1; 100], vec![2; 100], &mut Vec::new()));
            }
        }
    }
    assert!(a.is_up() && b.is_up());
    frames
}

fn two(now: Duration) -> (Peer, Peer) {
    (Peer::new(now, identity("a", 1), 8 << 20), Peer::new(now, identity("b", 2), 8 << 20))
}

impl Victim {
    fn new() -> Victim {
        let now = Duration::from_secs(1);
        let (mut a, mut b) = two(now);
        let frames = connect(now, &mut a, &mut b, [5, 6]);
        let sequence = frames.iter().filter(|frame| frame[0] == 0xC5).count() as u64;
        Victim { peer: a, now, ends: [5, 6], sequence, granted: 256 << 10, effects: Vec::new() }
    }

    /// A batch with these parts, the next sequence and the right length.
    fn batch(&self, parts: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xC5];
        let words = [self.ends[0], self.ends[1], self.sequence + 1, 0, 1 << 20];
        words.iter().for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
        frame.extend_from_slice(&(45 + parts.len() as u32).to_le_bytes());
        frame.extend_from_slice(parts);
        frame
    }

    /// Returns whether the machine is still up.
    fn take(&mut self, frame: &[u8]) -> bool {
        self.effects.clear();
        self.peer.arrived(self.now, frame);
        self.peer.receive(self.now, frame, &mut self.effects);
        self.sequence += 1;
        let mut answer = Vec::new();
        while self.peer.next_frame(self.now, &mut answer, &mut self.effects) {
            if answer[0] >= 0xC5 {
                self.granted = u64::from_le_bytes(answer[33..41].try_into().unwrap());
            }
        }
        self.peer.is_up()
    }
}

fn large(number: u64, length: usize, fragment: usize) -> Vec<u8> {
    let mut part = vec![Part::LargeMessage.to_byte()];
    [number, length as u64, fragment as u64].into_iter().for_each(|n| put_varint(&mut part, n));
    part.resize(part.len() + fragment, 7);
    part
}

fn fragment(number: u64, length: usize) -> Vec<u8> {
    let mut part = vec![Part::Fragment.to_byte()];
    [number, length as u64].into_iter().for_each(|n| put_varint(&mut part, n));
    part.resize(part.len() + length, 7);
    part
}

#[test]
fn parts_that_nobody_may_send_end_the_connection() {
    let full = FRAGMENT;
    let small = |part: Part, length: u64| {
        let mut bytes = vec![part.to_byte()];
        put_varint(&mut bytes, length);
        bytes
    };
    let wrong: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("an unknown part", vec![vec![99]]),
        ("a message longer than its frame", vec![small(Part::Message, 100)]),
        ("a message of the longest length", vec![small(Part::Control, u64::MAX)]),
        ("a length that does not end", vec![vec![0, 0xff, 0xff]]),
        ("types after the opening", vec![vec![Part::Types.to_byte(), 1, 0]]),
        ("a directory after the opening", vec![vec![Part::Directory.to_byte(), 1, 0]]),
        ("a fragment of nothing", vec![fragment(9, 100)]),
        ("a large item that is small", vec![large(1, full, full)]),
        ("a large item that is too large", vec![large(1, ITEM_LIMIT + 1, full)]),
        ("a first fragment that is short", vec![large(1, full * 3, full - 1)]),
        ("a first fragment that is empty", vec![large(1, full * 3, 0)]),
        ("a number that is used", vec![large(1, full * 3, full), large(1, full * 3, full)]),
        ("a fragment beyond the end", vec![large(1, full + 5, full), fragment(1, 6)]),
        ("a fragment that is short", vec![large(1, full * 3, full), fragment(1, 6)]),
        ("a fragment after the end", vec![large(1, full + 5, full), fragment(1, 5), fragment(1, 5)]),
    ];
    for (what, batches) in wrong {
        let mut victim = Victim::new();
        for (place, parts) in batches.iter().enumerate() {
            let is_up = victim.take(&victim.batch(parts));
            assert_eq!(is_up, place + 1 < batches.len(), "{what}");
        }
        assert_eq!(victim.effects[0], Effect::Down(DownReason::Protocol), "{what}");
    }
}

#[test]
fn a_frame_that_is_too_long_ends_the_connection() {
    let mut victim = Victim::new();
    let parts = large(1, FRAGMENT * 3, FRAGMENT).into_iter().chain([0; 40_000]).collect::<Vec<u8>>();
    assert!(!victim.take(&victim.batch(&parts)));
    assert_eq!(victim.effects, [Effect::Down(DownReason::Protocol)]);
}

/// Items that are begun and never completed. The peer keeps to its credit, and claims the longest items.
#[test]
fn half_items_take_no_more_memory_than_the_bound() {
    for length in [FRAGMENT + 1, 100_000, 1 << 20, ITEM_LIMIT] {
        let mut victim = Victim::new();
        let (mut items, mut sent) = (0, 0);
        while victim.take(&victim.batch(&large(items, length, FRAGMENT))) {
            items += 1;
            sent += FRAGMENT as u64;
            assert!(sent + FRAGMENT as u64 <= victim.granted, "the machine grants what it has taken");
            assert!(items < 1000, "there is no bound");
        }
        assert_eq!(victim.effects, [Effect::Down(DownReason::Protocol)]);
        assert_eq!(items as usize, OPEN_LIMIT / length);
    }
}

#[test]
fn fragments_without_credit_end_the_connection() {
    let mut victim = Victim::new();
    let mut frames = 0;
    loop {
        let parts = if frames == 0 { large(1, ITEM_LIMIT, FRAGMENT) } else { fragment(1, FRAGMENT) };
        // The machine has no chance to grant more.
        let frame = victim.batch(&parts);
        victim.peer.receive(victim.now, &frame, &mut victim.effects);
        victim.sequence += 1;
        if !victim.peer.is_up() {
            break;
        }
        frames += 1;
        assert!(frames < 1000, "there is no bound");
    }
    assert_eq!(frames, 8, "256 KiB");
    assert_eq!(victim.effects, [Effect::Down(DownReason::Protocol)]);
}

#[test]
fn an_opening_is_bounded() {
    let now = Duration::from_secs(1);
    let (mut a, mut b) = two(now);
    assert!(a.dial(now, 5) && b.dial(now, 6));
    let mut effects = Vec::new();
    for _ in 0..3 {
        pump(now, &mut b, &mut a, &mut effects);
        pump(now, &mut a, &mut b, &mut Vec::new());
    }
    assert!(a.accept(now, Vec::new(), Vec::new(), &mut effects));
    let mut parts = vec![Part::Types.to_byte(), 0];
    put_varint(&mut parts, 50_000);
    parts.resize(parts.len() + 50_000, 0);
    let mut victim = Victim { peer: a, now, ends: [5, 6], sequence: 0, granted: 0, effects };
    let mut batches = 0;
    loop {
        victim.peer.receive(now, &victim.batch(&parts), &mut victim.effects);
        victim.sequence += 1;
        if victim.peer.dial_at().is_some() {
            break;
        }
        batches += 1;
        assert!(batches < 1000, "there is no bound");
    }
    assert_eq!(batches, ITEM_LIMIT / 50_000);
}

/// The answers that wait are bounded, and each frame has one at most.
#[test]
fn a_flood_of_hellos_leaves_few_answers() {
    let now = Duration::from_secs(1);
    let (mut a, mut b) = two(now);
    assert!(a.dial(now, 5));
    let mut frame = Vec::new();
    for nonce in 10..1000 {
        assert!(b.dial(now, nonce));
        assert!(b.next_frame(now, &mut frame, &mut Vec::new()));
        a.receive(now, &frame, &mut Vec::new());
        b = two(now).1;
    }
    let mut answers = 0;
    while a.next_frame(now, &mut frame, &mut Vec::new()) {
        answers += 1;
    }
    assert_eq!(answers, 17, "16 answers and its own hello");
}

/// Real frames: a hello, the opening, small and large items, control items, a beat, a refusal, a bye.
fn real_frames() -> Vec<Vec<u8>> {
    let mut now = Duration::from_secs(1);
    let (mut a, mut b) = two(now);
    let mut frames = connect(now, &mut a, &mut b, [5, 6]);
    for length in [0, 1, 64, 100, 5000, 40_000, 70_000] {
        for class in [Class::Message, Class::Control] {
            for token in 0..3 {
                b.offer(class, Item { sender: token, token, payload: vec![3; length] }).unwrap();
            }
        }
        frames.extend(pump(now, &mut b, &mut a, &mut Vec::new()));
        now += Duration::from_millis(250);
        pump(now, &mut a, &mut b, &mut Vec::new());
    }
    frames.extend(pump(now, &mut b, &mut a, &mut Vec::new()));
    let refusal = Refusal::new(Difference::Voters, "a,b", "a");
    b.refuse(now, refusal, &mut Vec::new());
    frames.extend(pump(now, &mut b, &mut a, &mut Vec::new()));
    let (mut a, mut b) = two(now);
    connect(now, &mut a, &mut b, [5, 6]);
    b.leave(now, &mut Vec::new());
    frames.extend(pump(now, &mut b, &mut a, &mut Vec::new()));
    let kinds: std::collections::BTreeSet<u8> = frames.iter().map(|frame| frame[0]).collect();
    assert!(kinds.len() >= 5, "{kinds:?}");
    frames
}

fn mutate(dice: &mut Dice, frame: &mut Vec<u8>) {
    for _ in 0..=dice.below(4) {
        let place = dice.below(frame.len().max(1) as u64) as usize;
        match dice.below(6) {
            0 => frame.truncate(place),
            1 => frame.extend((0..dice.below(20)).map(|n| n as u8)),
            2 if place < frame.len() => frame.insert(place, dice.next() as u8),
            3 if place < frame.len() => drop(frame.remove(place)),
            4 if place < frame.len() => frame[place] = 0xff,
            _ if place < frame.len() => frame[place] ^= 1 << dice.below(8),
            _ => {}
        }
        // Most faults are near the beginning.
        if frame.len() > 60 && dice.once_in(2) {
            let place = 45 + dice.below(12) as usize;
            frame[place] = dice.next() as u8;
        }
    }
}

/// Gives a frame the right nonces, sequence and length, so that the reading goes on to its parts.
fn repair(victim: &Victim, frame: &mut [u8]) {
    let length = frame.len() as u32;
    let words = [(1, victim.ends[0]), (9, victim.ends[1]), (17, victim.sequence + 1)];
    for (place, word) in words {
        if let Some(bytes) = frame.get_mut(place..place + 8) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
    if let Some(bytes) = frame.get_mut(41..45) {
        bytes.copy_from_slice(&length.to_le_bytes());
    }
}

fn bytes_of(effects: &[Effect], frame: &[u8]) -> usize {
    let bytes = |effect: &Effect| match effect {
        Effect::Deliver { payload, .. } => payload.bytes(frame).len(),
        _ => 0,
    };
    effects.iter().map(bytes).sum()
}

#[test]
fn mutated_frames_do_no_harm() {
    let real = real_frames();
    let (count, mut dice) = (frames(20_000), Dice::new(seed(1)));
    let (mut victim, mut ended, mut delivered, mut arrived) = (Victim::new(), 0, 0, 0);
    for _ in 0..count {
        let mut frame = real[dice.below(real.len() as u64) as usize].clone();
        mutate(&mut dice, &mut frame);
        if !dice.once_in(8) {
            repair(&victim, &mut frame);
        }
        arrived += frame.len();
        let is_up = victim.take(&frame);
        if victim.effects.is_empty() {
            victim.sequence -= 1;
        }
        delivered += bytes_of(&victim.effects, &frame);
        assert!(victim.effects.len() <= frame.len() + 2);
        if !is_up {
            ended += 1;
            (victim, arrived, delivered) = (Victim::new(), 0, 0);
        }
        assert!(delivered <= arrived, "no more comes out than has come in");
    }
    println!("{count} frames, and {ended} connections that they have ended");
    assert!(ended > count / 10 && ended < count * 9 / 10, "{ended}");
}

#[test]
fn random_bytes_do_no_harm() {
    let mut dice = Dice::new(seed(2));
    for round in 0..frames(20_000) / 100 {
        let mut victim = Victim::new();
        for _ in 0..100 {
            let length = dice.below(300) as usize;
            let mut frame: Vec<u8> = (0..length).map(|_| dice.next() as u8).collect();
            if let Some(kind) = frame.first_mut().filter(|_| round % 2 == 0) {
                *kind = 0xC0 | dice.below(7) as u8;
                repair(&victim, &mut frame);
            }
            victim.take(&frame);
        }
    }
}

/// The same frames to a machine that has no connection yet.
#[test]
fn mutated_frames_do_no_harm_while_calling() {
    let real = real_frames();
    let mut dice = Dice::new(seed(3));
    let now = Duration::from_secs(1);
    let mut effects = Vec::new();
    let mut peer = two(now).0;
    for _ in 0..frames(20_000) {
        peer.dial(now, 5);
        let mut frame = real[dice.below(real.len().min(4) as u64) as usize].clone();
        mutate(&mut dice, &mut frame);
        peer.receive(now, &frame, &mut effects);
        if peer.dial_at().is_some() || dice.once_in(100) {
            peer = two(now).0;
        }
        assert!(effects.len() <= 2, "{effects:?}");
        effects.clear();
    }
}
