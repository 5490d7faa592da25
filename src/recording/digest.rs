//! A digest of the yields of a step, by which a replayed step is compared with the recorded one.

use std::any::{Any, type_name};

use super::codec::{Codec, Recordable, last_word};
use super::value::Values;
use crate::process::{Naming, Pid, Relate};
use crate::sched::body::{StepOutput, Yield};
use crate::sched::orders::Order;

/// Multiplier of the hash: the golden ratio times 2^64.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash that is the same on every machine.
struct Digest<'a> {
    hash: u64,
    values: &'a Values,
    /// Holds a value while it is hashed.
    bytes: &'a mut Vec<u8>,
}

/// Buffers that are kept from step to step.
#[derive(Default)]
pub(super) struct Buffers {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

/// The largest buffer, in bytes, that is kept.
const KEPT: usize = 4096;

/// Returns the digest of the yields that are not performed yet. The content of a message counts if its type has a
/// codec. Otherwise its type counts. `own` is the codec that `values` has for the type of the messages of the process.
#[inline]
pub(super) fn digest_of<M: Send + 'static>(
    out: &StepOutput,
    own: &Codec<M>,
    values: &Values,
    buffers: &mut Buffers,
) -> u64 {
    let orders = out.orders.newest();
    if orders.is_empty() {
        return 0;
    }
    if buffers.bytes.capacity() > KEPT {
        buffers.bytes = Vec::new();
    }
    // The usual case.
    if let [Order::Send { lane, count: 1, to }] = orders {
        let mut digest = Digest { hash: FACTOR, values, bytes: &mut buffers.bytes };
        digest.word(1);
        digest.pid(*to);
        digest.word(1);
        // The codec of the process's own type needs no search.
        match out.outbox.next_of::<M>(*lane) {
            Some(message) => digest.own(message, own),
            None => digest.message(out, *lane, 0, true),
        }
        return digest.hash;
    }
    digest_of_many(out, values, buffers)
}

/// As `digest_of`.
#[inline(never)]
fn digest_of_many(out: &StepOutput, values: &Values, buffers: &mut Buffers) -> u64 {
    let Buffers { bytes, places } = buffers;
    places.clear();
    let mut digest = Digest { hash: FACTOR, values, bytes };
    digest.word(out.orders.len() as u64);
    // If there are very many yields, only the number of the packed ones counts.
    let is_all = !out.orders.has_slices();
    let orders = out.orders.newest();
    let mut others =
        out.yields[out.yields.len() - orders.iter().filter(|order| **order == Order::Next).count()..].iter();
    let mut next_of = |lane: u32| {
        let lane = lane as usize;
        if places.len() <= lane {
            places.resize(lane + 1, 0);
        }
        places[lane] += 1;
        places[lane] - 1
    };
    for order in orders {
        match order {
            Order::Send { lane, count, to } => {
                digest.pid(*to);
                digest.word(u64::from(*count));
                for _ in 0..*count {
                    digest.message(out, *lane, next_of(*lane), is_all);
                }
            }
            Order::Next => {
                let Some(one) = others.next() else { continue };
                match one {
                    Yield::Ask { lane, .. } | Yield::SendNowhere { lane, .. } => {
                        digest.message(out, *lane, next_of(*lane), is_all);
                    }
                    Yield::Broadcast { lane, to } => {
                        to.iter().for_each(|_| digest.message(out, *lane, next_of(*lane), is_all))
                    }
                    _ => {}
                }
                digest.one(one);
            }
        }
    }
    digest.hash
}

/// The PIDs of the processes that the step has spawned.
pub(super) fn spawned_by(out: &StepOutput) -> Vec<Pid> {
    let spawned = |one: &Yield| if let Yield::Spawn(body) = one { Some(body.head.pid) } else { None };
    out.yields.iter().filter_map(spawned).collect()
}

impl Digest<'_> {
    #[inline]
    fn word(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }

    fn pid(&mut self, pid: Pid) {
        self.word(pid.to_word());
    }

    fn text(&mut self, text: &str) {
        bytes_into(&mut self.hash, text.as_bytes());
    }

    fn value(&mut self, value: &dyn Any) -> bool {
        self.bytes.clear();
        let is_known = self.values.put(value, self.bytes);
        if is_known {
            bytes_into(&mut self.hash, self.bytes);
        }
        is_known
    }

    #[inline]
    fn own<M>(&mut self, message: &M, codec: &Codec<M>) {
        self.bytes.clear();
        if codec.put(message, self.bytes) {
            bytes_into(&mut self.hash, self.bytes);
        } else {
            self.text(type_name::<M>());
        }
    }

    fn message(&mut self, out: &StepOutput, lane: u32, place: usize, is_all: bool) {
        let Some((message, type_name)) = out.outbox.look(lane, place).filter(|_| is_all) else { return };
        if !self.value(message) {
            self.text(type_name);
        }
    }

    fn one(&mut self, one: &Yield) {
        let nanos = |limit: &std::time::Duration| limit.as_nanos() as u64;
        match one {
            Yield::Ask { to, ask, limit, .. } => {
                self.words(&[1, to.to_word(), ask.tag().unwrap_or_default(), nanos(limit)]);
            }
            Yield::Broadcast { to, .. } => {
                self.word(2);
                to.iter().for_each(|to| self.pid(*to));
            }
            Yield::SendNowhere { .. } => self.word(3),
            Yield::Refused { tag, .. } => self.words(&[4, *tag]),
            Yield::Reply(reply) => {
                let (asker, tag) = reply.identity();
                self.words(&[5, asker.map_or(0, Pid::to_word), tag]);
                reply.look(&mut |answer| _ = self.value(answer));
            }
            Yield::Spawn(body) => {
                self.words(&[6, body.head.pid.to_word()]);
                self.text((body.machine.kind().process)());
                self.text(body.head.name().map_or("", |name| name));
            }
            Yield::Blocking { tag, .. } => self.words(&[7, *tag]),
            Yield::Timer { tag, delay } => self.words(&[8, *tag, nanos(delay)]),
            Yield::CancelTimer { tag } => self.words(&[9, *tag]),
            Yield::Command { tag, command } => {
                self.words(&[10, *tag]);
                self.text(command.name);
                self.value(&*command.command);
            }
            Yield::CommandTimeout(limited) => {
                self.words(&[11, limited.tag, nanos(&limited.limit)]);
                self.text(limited.command.name);
                self.value(&*limited.command.command);
            }
            Yield::CancelCommand { tag } => self.words(&[12, *tag]),
            Yield::SendTimeout(send) => {
                let to = send.to.as_ref().map_or(0, |to| to.to_word());
                self.words(&[13, send.send.number(), to, nanos(&send.limit)]);
            }
            Yield::BeginRun { duty, limit } => self.words(&[14, duty.tag(), nanos(limit)]),
            Yield::Entrust { tag, .. } => self.words(&[15, *tag]),
            Yield::Future { tag, limit, .. } => self.words(&[16, *tag, nanos(limit)]),
            Yield::CancelFuture { tag } => self.words(&[17, *tag]),
            Yield::Feed(_) => self.word(18),
            Yield::Cancel { tag, to, request } => {
                self.words(&[19, *tag, to.to_word(), request.1.as_ref().map_or(0, nanos)]);
                let mut bytes = Vec::new();
                request.0.to_string().encode(&mut bytes);
                bytes_into(&mut self.hash, &bytes);
            }
            Yield::Terminate { tag, to } => self.words(&[20, *tag, to.to_word()]),
            Yield::Relate(relate) => self.relate(relate),
            Yield::Naming { tag, naming } => {
                self.words(&[28, *tag]);
                match &**naming {
                    Naming::Register { name, pid } => self.named(1, name, Some(*pid)),
                    Naming::Unregister { name } => self.named(2, name, None),
                    Naming::Join { group, pid } => self.named(3, group, Some(*pid)),
                    Naming::Leave { group, pid } => self.named(4, group, Some(*pid)),
                }
            }
            Yield::Drawn | Yield::Performed => {}
        }
    }

    fn relate(&mut self, relate: &Relate) {
        match relate {
            Relate::Monitor(monitor) => self.words(&[21, monitor.id(), monitor.pid().to_word()]),
            Relate::Demonitor(monitor) => self.words(&[22, monitor.id()]),
            Relate::Link(pid) => self.words(&[23, pid.to_word()]),
            Relate::Unlink(pid) => self.words(&[24, pid.to_word()]),
            Relate::TrapExits(trap) => self.words(&[25, u64::from(*trap)]),
            Relate::Subscribe(subscription) => {
                self.words(&[26, subscription.id()]);
                self.text(subscription.group());
            }
            Relate::Unsubscribe(subscription) => self.words(&[27, subscription.id()]),
        }
    }

    fn named(&mut self, kind: u64, name: &str, pid: Option<Pid>) {
        self.words(&[kind, pid.map_or(0, Pid::to_word)]);
        self.text(name);
    }
}

#[inline]
fn bytes_into(hash: &mut u64, bytes: &[u8]) {
    let mut word = |word: u64| *hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    word(bytes.len() as u64);
    let (eights, rest) = bytes.as_chunks::<8>();
    eights.iter().for_each(|eight| word(u64::from_le_bytes(*eight)));
    word(last_word(rest));
}
