//! The text by which a run is run again: its seed, and for a shrunk run its tape.
//!
//! ```text
//! 4711              the run that the schedule makes of this seed
//! 4711:16111...     the run of this seed with these deviations and no others
//! ```
//!
//! The tape is a list of numbers. Each character has five bits: four bits of a number, the lowest ones first, and one
//! bit that says whether the number goes on. So most numbers are one character. The first number is the version of the
//! form. The last three characters are a checksum over the seed and all that is before.

use std::fmt;
use std::str::FromStr;

use super::decision::{Candidate, Item, Place};
use super::tape::{Deviation, Tape};
use crate::pid::Pid;

/// The version of the form. A change of [`Item`], [`Place`] or the meaning of a deviation needs a new one.
const VERSION: u64 = 1;

/// The digits, without those that are easily read as others: `i`, `l`, `o` and `u`.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The number of characters of the checksum.
const CHECKSUM: usize = 3;

/// A seed, and the tape of a shrunk run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplaySeed {
    pub(crate) seed: u64,
    pub(crate) tape: Option<Tape>,
}

/// The error when a text is not a seed, or not a seed with a tape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplaySeedError {
    #[error("{0:?} is not a seed: expected a whole number below 2^64, as in `4711`")]
    Seed(String),
    #[error("{0:?} is not the tape of a shrunk run: it has the character {1:?}; copy all of it, as it was printed")]
    Character(String, char),
    #[error("the tape {0:?} is damaged, or of another seed: its checksum differs; copy all of it, as it was printed")]
    Checksum(String),
    #[error("the tape {0:?} has version {1}, and this version of procession reads {VERSION}: run the seed alone")]
    Version(String, u64),
}

impl fmt::Display for ReplaySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        let Some(tape) = &self.tape else { return Ok(()) };
        let mut writer = Writer { digits: Vec::new(), node: 0 };
        writer.number(VERSION);
        tape.deviations.iter().for_each(|deviation| writer.deviation(deviation));
        let mut text = writer.digits;
        let checksum = checksum(self.seed, &text);
        text.extend((0..CHECKSUM).map(|place| (checksum >> (5 * place)) as u8 & 31));
        f.write_str(":")?;
        text.iter().try_for_each(|digit| write!(f, "{}", char::from(DIGITS[usize::from(*digit)])))
    }
}

impl FromStr for ReplaySeed {
    type Err = ReplaySeedError;

    fn from_str(text: &str) -> Result<ReplaySeed, ReplaySeedError> {
        let (seed, tape) = text.split_once(':').map_or((text, None), |(seed, tape)| (seed, Some(tape)));
        // `u64::from_str` would take a sign.
        let is_plain = seed.bytes().all(|byte| byte.is_ascii_digit());
        let number = Some(seed).filter(|_| is_plain).and_then(|seed| seed.parse().ok());
        let seed = number.ok_or_else(|| ReplaySeedError::Seed(text.chars().take(80).collect()))?;
        Ok(ReplaySeed { seed, tape: tape.map(|tape| parse_tape(seed, tape)).transpose()? })
    }
}

fn parse_tape(seed: u64, text: &str) -> Result<Tape, ReplaySeedError> {
    let mut digits = Vec::with_capacity(text.len());
    for character in text.chars() {
        let digit = DIGITS.iter().position(|digit| char::from(*digit) == character.to_ascii_lowercase());
        digits.push(digit.ok_or_else(|| ReplaySeedError::Character(text.into(), character))? as u8);
    }
    let damaged = || ReplaySeedError::Checksum(text.into());
    let at = digits.len().checked_sub(CHECKSUM).ok_or_else(damaged)?;
    let expected = digits[at..].iter().rev().fold(0, |sum, digit| sum << 5 | u16::from(*digit));
    digits.truncate(at);
    if checksum(seed, &digits) != expected {
        return Err(damaged());
    }
    let mut reader = Reader { digits: &digits, node: 0 };
    let version = reader.number().ok_or_else(damaged)?;
    if version != VERSION {
        return Err(ReplaySeedError::Version(text.into(), version));
    }
    let mut tape = Tape::default();
    while !reader.digits.is_empty() {
        tape.deviations.push(reader.deviation().ok_or_else(damaged)?);
    }
    Ok(tape)
}

/// A CRC of 15 bits. Any change of up to three characters in a row is found, as is all but one of 32,768 others.
fn checksum(seed: u64, digits: &[u8]) -> u16 {
    let of_seed = (0..13).map(|place| (seed >> (5 * place)) as u8 & 31);
    let mut sum: u16 = 0x7fff;
    for digit in of_seed.chain(digits.iter().copied()) {
        for bit in (0..5).rev() {
            let carry = (sum >> 14 ^ u16::from(digit >> bit)) & 1;
            sum = sum << 1 & 0x7fff;
            if carry == 1 {
                // The polynomial of CRC-15-CAN.
                sum ^= 0x4599;
            }
        }
    }
    sum
}

/// The kinds of deviations. Those that are most usual have the numbers of one character. An order constraint has the
/// kinds of its two items in its number.
const FAULT: u64 = 0;
const PAUSE: u64 = 1;
const EVENTS: u64 = 2;
const HOLD: u64 = 3;
const VALUE: u64 = 4;
const TIME: u64 = 5;
const BEFORE: u64 = 6;

/// The number of kinds of items.
const ITEMS: u64 = 4;

struct Writer {
    digits: Vec<u8>,
    /// The node of the last PID.
    node: u32,
}

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number > 15 {
            self.digits.push((number & 15 | 16) as u8);
            number >>= 4;
        }
        self.digits.push(number as u8);
    }

    fn pid(&mut self, pid: Pid) {
        self.number(pid.slot().into());
        // The first generation of the last node is zero.
        let is_of_other_node = pid.node() != self.node;
        self.number(u64::from(pid.generation() - 1) << 1 | u64::from(is_of_other_node));
        if is_of_other_node {
            self.node = pid.node();
            self.number(self.node.into());
        }
    }

    fn candidate(&mut self, candidate: &Candidate) {
        match candidate.item {
            Item::Turn(of) => self.pid(of),
            Item::Timer(number) | Item::Job(number) => self.number(number),
            Item::Delivery(from, to) => {
                self.pid(from);
                self.pid(to);
            }
        }
        self.number(candidate.nth.into());
    }

    fn deviation(&mut self, deviation: &Deviation) {
        match *deviation {
            Deviation::Before { first, head } => {
                self.number(BEFORE + kind_of(&first.item) * ITEMS + kind_of(&head.item));
                self.candidate(&first);
                self.candidate(&head);
            }
            Deviation::Answer { place, answer } => {
                self.place(place);
                // A tape has no dull answers.
                self.number(answer.wrapping_sub(1));
            }
        }
    }

    fn place(&mut self, place: Place) {
        match place {
            Place::Fault { rule, of, nth } => {
                self.number(FAULT);
                self.number(rule.into());
                self.pid(of);
                self.number(nth.into());
            }
            Place::Pause { of, nth, index } => {
                self.number(PAUSE);
                self.pid(of);
                self.number(nth.into());
                self.number(index.into());
            }
            Place::Events { of, nth } => {
                self.number(EVENTS);
                self.pid(of);
                self.number(nth.into());
            }
            Place::Hold { from, to, nth } => {
                self.number(HOLD);
                self.pid(from);
                self.pid(to);
                self.number(nth.into());
            }
            Place::Value { nth } => {
                self.number(VALUE);
                self.number(nth.into());
            }
            Place::Time { turn } => {
                self.number(TIME);
                self.number(turn.into());
            }
        }
    }
}

fn kind_of(item: &Item) -> u64 {
    match item {
        Item::Turn(_) => 0,
        Item::Timer(_) => 1,
        Item::Job(_) => 2,
        Item::Delivery(..) => 3,
    }
}

/// Reads what a [`Writer`] wrote. Each function returns `None` if the text has something else.
struct Reader<'a> {
    digits: &'a [u8],
    node: u32,
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(4) {
            let (digit, rest) = self.digits.split_first()?;
            self.digits = rest;
            number |= u64::from(digit & 15) << shift;
            if digit & 16 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn short(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn pid(&mut self) -> Option<Pid> {
        let (slot, generation) = (self.short()?, self.short()?);
        if generation & 1 == 1 {
            self.node = self.short()?;
        }
        Pid::new(self.node, slot, (generation >> 1) + 1)
    }

    fn candidate(&mut self, kind: u64) -> Option<Candidate> {
        let item = match kind {
            0 => Item::Turn(self.pid()?),
            1 => Item::Timer(self.number()?),
            2 => Item::Job(self.number()?),
            _ => Item::Delivery(self.pid()?, self.pid()?),
        };
        Some(Candidate { item, nth: self.short()? })
    }

    fn deviation(&mut self) -> Option<Deviation> {
        let place = match self.number()? {
            FAULT => Place::Fault { rule: self.short()?, of: self.pid()?, nth: self.short()? },
            PAUSE => Place::Pause { of: self.pid()?, nth: self.short()?, index: self.short()? },
            EVENTS => Place::Events { of: self.pid()?, nth: self.short()? },
            HOLD => Place::Hold { from: self.pid()?, to: self.pid()?, nth: self.short()? },
            VALUE => Place::Value { nth: self.short()? },
            TIME => Place::Time { turn: self.short()? },
            kind if kind < BEFORE + ITEMS * ITEMS => {
                let kinds = kind - BEFORE;
                let first = self.candidate(kinds / ITEMS)?;
                return Some(Deviation::Before { first, head: self.candidate(kinds % ITEMS)? });
            }
            _ => return None,
        };
        Some(Deviation::Answer { place, answer: self.number()?.wrapping_add(1) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::simulation::small_world::pid;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    fn turn(me: u32, nth: u32) -> Candidate {
        Candidate { item: Item::Turn(pid(me)), nth }
    }

    fn example() -> ReplaySeed {
        let fault = Place::Fault { rule: 1, of: pid(2), nth: 1 };
        let deviations = vec![
            Deviation::Before { first: turn(1, 2), head: turn(5, 3) },
            Deviation::Answer { place: fault, answer: 1 },
        ];
        ReplaySeed { seed: 4711, tape: Some(Tape { deviations }) }
    }

    #[test]
    fn the_form_of_a_shrunk_run_is_short_and_stays_the_same() {
        assert_eq!(example().to_string(), "4711:161112503012010zj4");
        assert_eq!(ReplaySeed { seed: 4711, tape: None }.to_string(), "4711");
        assert_eq!(example().to_string().to_uppercase().parse(), Ok(example()));
    }

    fn draw_pid(random: &mut Xoshiro256PlusPlus) -> Pid {
        let node = if random.random() { 1 } else { random.random_range(0..=Pid::MAX_NODE) };
        let (fewer_slots, fewer_generations) = (random.random_range(0..26), random.random_range(0..24));
        let slot = random.random_range(0..=Pid::MAX_SLOT >> fewer_slots);
        let generation = random.random_range(1..=Pid::MAX_GENERATION >> fewer_generations);
        Pid::new(node, slot, generation).unwrap()
    }

    fn draw_number(random: &mut Xoshiro256PlusPlus) -> u64 {
        random.random::<u64>() >> random.random_range(0..64)
    }

    fn draw_short(random: &mut Xoshiro256PlusPlus) -> u32 {
        random.random::<u32>() >> random.random_range(0..32)
    }

    fn draw_candidate(random: &mut Xoshiro256PlusPlus) -> Candidate {
        let item = match random.random_range(0..4) {
            0 => Item::Turn(draw_pid(random)),
            1 => Item::Timer(draw_number(random)),
            2 => Item::Job(draw_number(random)),
            _ => Item::Delivery(draw_pid(random), draw_pid(random)),
        };
        Candidate { item, nth: draw_short(random) }
    }

    fn draw_deviation(random: &mut Xoshiro256PlusPlus) -> Deviation {
        let (of, to, nth, other) = (draw_pid(random), draw_pid(random), draw_short(random), draw_short(random));
        let place = match random.random_range(0..9) {
            0 => Place::Fault { rule: other, of, nth },
            1 => Place::Pause { of, nth, index: other },
            2 => Place::Events { of, nth },
            3 => Place::Hold { from: of, to, nth },
            4 => Place::Value { nth },
            5 => Place::Time { turn: nth },
            _ => return Deviation::Before { first: draw_candidate(random), head: draw_candidate(random) },
        };
        Deviation::Answer { place, answer: draw_number(random).max(1) }
    }

    #[test]
    fn each_tape_is_read_as_it_was_written() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..2_000 {
            let length = random.random_range(0..20);
            let tape = Tape { deviations: (0..length).map(|_| draw_deviation(&mut random)).collect() };
            let one = ReplaySeed { seed: draw_number(&mut random), tape: Some(tape) };
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        for seed in [0, 1, u64::MAX] {
            assert_eq!(seed.to_string().parse(), Ok(ReplaySeed { seed, tape: None }));
        }
    }

    /// Each character replaced by each other, each one left out, and each two exchanged.
    #[test]
    fn a_tape_with_a_mistake_is_refused() {
        let text = example().to_string();
        let (seed, tape) = text.split_once(':').unwrap();
        let parse = |tape: &[u8]| format!("{seed}:{}", String::from_utf8_lossy(tape)).parse::<ReplaySeed>();
        for place in 0..tape.len() {
            let mut changed = tape.as_bytes().to_vec();
            for digit in DIGITS.iter().filter(|digit| **digit != tape.as_bytes()[place]) {
                changed[place] = *digit;
                assert!(matches!(parse(&changed), Err(ReplaySeedError::Checksum(_))), "{place} {digit}");
            }
            changed.remove(place);
            assert!(parse(&changed).is_err(), "{place}");
            let mut exchanged = tape.as_bytes().to_vec();
            exchanged.swap(place, (place + 1) % tape.len());
            assert!(exchanged == tape.as_bytes() || parse(&exchanged).is_err(), "{place}");
        }
        assert!((0..tape.len()).all(|end| parse(&tape.as_bytes()[..end]).is_err()));
        assert!(format!("4712:{tape}").parse::<ReplaySeed>().is_err());
    }

    #[test]
    fn an_error_says_what_is_wrong() {
        let error = |text: &str| text.parse::<ReplaySeed>().unwrap_err().to_string();
        for text in ["", "+1", "-1", "1 ", "0x10", "18446744073709551616", ":1"] {
            assert!(error(text).contains("is not a seed: expected a whole number"), "{text}");
        }
        assert!(error("1:ab-c").contains("it has the character '-'"));
        assert!(error("1:").contains("damaged"));
        let mut digits = vec![2];
        let sum = checksum(1, &digits);
        digits.extend((0..CHECKSUM).map(|place| (sum >> (5 * place)) as u8 & 31));
        let later: String = digits.iter().map(|digit| char::from(DIGITS[usize::from(*digit)])).collect();
        assert!(error(&format!("1:{later}")).contains("has version 2, and this version of procession reads 1"));
    }

    /// A text whose checksum is right can still have anything in it. No text makes the reader panic.
    #[test]
    fn no_text_is_read_with_a_panic() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut digits: Vec<u8> = (0..random.random_range(0..12)).map(|_| random.random_range(0..32)).collect();
            digits.insert(0, VERSION as u8);
            let sum = checksum(1, &digits);
            digits.extend((0..CHECKSUM).map(|place| (sum >> (5 * place)) as u8 & 31));
            let text: String = digits.iter().map(|digit| char::from(DIGITS[usize::from(*digit)])).collect();
            read += u32::from(format!("1:{text}").parse::<ReplaySeed>().is_ok());
        }
        assert!(read > 100, "{read}");
    }
}
