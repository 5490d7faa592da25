//! The curves: the quantity that varies, and the program of each point.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Outcome, Setting, Tally, check, megabytes, memory};
use super::runtime::{done, finish};
use super::shape::{BATCH, Walk};
use super::{births, messages};

/// One curve.
pub(crate) struct Curve {
    /// The quantity that varies.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) points: &'static [u64],
    pub(crate) figures: &'static [&'static str],
    /// Measures a point, and returns its figures.
    pub(crate) take: fn(u64) -> Outcome<Vec<f64>>,
}

/// The number of workers, where another quantity varies.
const WORKERS: usize = 2;
/// The number of messages of a point.
const MESSAGES: u64 = 2_000_000;

pub(crate) const CURVES: [Curve; 4] = [
    Curve {
        name: "processes",
        about: "So many processes live and wait. The cost to spawn one, the memory that it keeps, and the cost of a \
                message to any one of them costs (2,000,000, from one process, to receivers chosen at random).",
        points: &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        figures: &["ns a spawn", "bytes a process", "ns a message"],
        take: processes,
    },
    Curve {
        name: "workers",
        about: "The same work for more workers than this machine may have processors: `big`, `skynet`, and `fanin`.",
        points: &[1, 2, 3, 4, 8],
        figures: &["ns a ping and pong", "ns a process", "ns a message from one of 64"],
        take: workers,
    },
    Curve {
        name: "senders",
        about: "So many processes send 2,000,000 messages together to one, a hundred in a step (fewer where each has \
                fewer to send).",
        points: &[1, 10, 100, 1_000, 10_000],
        figures: &["ns a message", "peak MB"],
        take: senders,
    },
    Curve {
        name: "sizes",
        about: "Messages of so many bytes: two processes pass one to and fro; and one sends to another, a hundred in a \
                step.",
        points: &[8, 64, 256, 1_024, 4_096],
        figures: &["ns a message to and fro", "ns a message in a stream", "peak MB"],
        take: sizes,
    },
];

/// Counts the reports of a point.
static REPORTS: Tally = Tally::new();

/// Counts its messages, and waits for more.
struct Waiter;

impl Process for Waiter {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) => REPORTS.strike(),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Spawns waiters, and returns their addresses at its end.
struct Parent {
    left: u64,
    children: Vec<Address<()>>,
}

impl Process for Parent {
    type Message = ();
    type Output = Vec<Address<()>>;

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<Vec<Address<()>>> {
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            self.children.push(out.spawn(Waiter)?);
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(std::mem::take(&mut self.children)) } else { Step::Continue })
    }
}

/// Sends to receivers chosen at random.
struct Postman {
    to: Vec<Address<()>>,
    left: u64,
    walk: Walk,
}

impl Process for Postman {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            out.send(self.to[self.walk.next(self.to.len())], ());
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

fn ns_each(began: Instant, many: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / many as f64
}

fn processes(many: u64) -> Outcome<Vec<f64>> {
    let runtime = Setting { n: many, workers: WORKERS, store: false, metrics: false }.runtime()?;
    let children = Vec::with_capacity(many as usize);
    let before = memory("VmRSS");
    let began = Instant::now();
    let to = done(&runtime.spawn(Parent { left: many, children })?)?;
    while !runtime.is_idle() {
        std::thread::yield_now();
    }
    let spawn = ns_each(began, many);
    let after = memory("VmRSS");
    check("addresses", to.len() as u64, many)?;
    // The list of addresses belongs to this program alone.
    let list = (size_of::<Address<()>>() * to.len()) as u64;
    let kept =
        before.zip(after).map_or(0.0, |(before, after)| after.saturating_sub(before + list) as f64 / many as f64);
    REPORTS.expect(MESSAGES);
    let began = Instant::now();
    done(&runtime.spawn(Postman { to, left: MESSAGES, walk: Walk::new(7) })?)?;
    REPORTS.wait()?;
    let message = ns_each(began, MESSAGES);
    check("processes that end when asked to", finish(&runtime)?, many)?;
    Ok(vec![spawn, kept, message])
}

fn workers(workers: u64) -> Outcome<Vec<f64>> {
    let of = |n| Setting { n, workers: workers as usize, store: false, metrics: false };
    Ok(vec![
        messages::big(&of(1_024_000))?.ns_per_op(),
        births::skynet(&of(1_000_000))?.ns_per_op(),
        messages::fanin(&of(MESSAGES))?.ns_per_op(),
    ])
}

fn senders(many: u64) -> Outcome<Vec<f64>> {
    let measured = messages::stream(&Setting { n: MESSAGES, workers: WORKERS, store: false, metrics: false }, many)?;
    Ok(vec![measured.ns_per_op(), measured.peak.map_or(0.0, megabytes)])
}

/// A message with `SIZE` bytes.
enum Parcel<const SIZE: usize> {
    /// The receiver of the next parcel.
    Meet(Address<Parcel<SIZE>>),
    Bytes([u8; SIZE]),
}

/// Sends each parcel back, a given number of times.
struct Player<const SIZE: usize> {
    other: Option<Address<Parcel<SIZE>>>,
    left: u64,
    /// Whether it keeps the last parcel.
    keeps: bool,
}

impl<const SIZE: usize> Process for Player<SIZE> {
    type Message = Parcel<SIZE>;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Parcel<SIZE>>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Parcel::Meet(other)) => self.other = Some(other),
                Event::Message(Parcel::Bytes(bytes)) => {
                    self.left -= 1;
                    if let Some(other) = self.other.filter(|_| self.left > 0 || !self.keeps) {
                        out.send(other, Parcel::Bytes(bytes));
                    }
                    if self.left == 0 {
                        return Ok(Step::Done(0));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(self.left)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sends parcels without waiting.
struct Shipper<const SIZE: usize> {
    to: Address<Parcel<SIZE>>,
    left: u64,
}

impl<const SIZE: usize> Process for Shipper<SIZE> {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<()> {
        let batch = self.left.min(BATCH);
        for _ in 0..batch {
            out.send(self.to, Parcel::Bytes([1; SIZE]));
        }
        self.left -= batch;
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Continue })
    }
}

fn sizes(bytes: u64) -> Outcome<Vec<f64>> {
    match bytes {
        8 => of_size::<8>(),
        64 => of_size::<64>(),
        256 => of_size::<256>(),
        1_024 => of_size::<1_024>(),
        4_096 => of_size::<4_096>(),
        other => Err(format!("there is no point of {other} bytes").into()),
    }
}

fn of_size<const SIZE: usize>() -> Outcome<Vec<f64>> {
    let setting = Setting { n: MESSAGES, workers: WORKERS, store: false, metrics: false };
    let runtime = setting.runtime()?;
    let left = MESSAGES / 2;
    let one = runtime.spawn(Player::<SIZE> { other: None, left, keeps: false })?;
    let two = runtime.spawn(Player::<SIZE> { other: None, left, keeps: true })?;
    runtime.send(one.address(), Parcel::Meet(two.address()))?;
    runtime.send(two.address(), Parcel::Meet(one.address()))?;
    let began = Instant::now();
    runtime.send(one.address(), Parcel::Bytes([1; SIZE]))?;
    check("parcels left", done(&two)?, 0)?;
    let to_and_fro = ns_each(began, MESSAGES);
    check("parcels left", done(&one)?, 0)?;

    let counted = runtime.spawn(Receiver::<SIZE> { left: MESSAGES })?;
    let began = Instant::now();
    done(&runtime.spawn(Shipper { to: counted.address(), left: MESSAGES })?)?;
    done(&counted)?;
    let streamed = ns_each(began, MESSAGES);
    finish(&runtime)?;
    Ok(vec![to_and_fro, streamed, memory("VmHWM").map_or(0.0, megabytes)])
}

/// Ends after a given number of parcels.
struct Receiver<const SIZE: usize> {
    left: u64,
}

impl<const SIZE: usize> Process for Receiver<SIZE> {
    type Message = Parcel<SIZE>;
    type Output = ();

    fn step(&mut self, events: &mut Events<Parcel<SIZE>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Parcel::Bytes(bytes)) => self.left -= u64::from(bytes[SIZE - 1]),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Idle })
    }
}
