//! How values get into a recording, and out of it again.

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use super::silent_host::silent_reply;
use crate::clock::Clock;
use crate::outcome::{BoxError, contain};
use crate::primitives::{Arc, OnceLock};
use crate::process::{Address, Monitor, Pid, Process, Reply, Tag, TimerFired};

/// A type whose values can be in a recording.
///
/// It is implemented for numbers, text, lists, options, pairs, and for what messages of processes have: [`Pid`],
/// [`Address`], [`Tag`], [`Monitor`], [`Reply`], `Instant`. Implement it for the types of your messages field by field.
///
/// ```
/// use procession::recording::{DecodeError, Input, Recordable};
///
/// enum Order { Pay(u64), Cancel }
///
/// impl Recordable for Order {
///     fn encode(&self, to: &mut Vec<u8>) {
///         match self {
///             Order::Pay(amount) => (0_u8, *amount).encode(to),
///             Order::Cancel => 1_u8.encode(to),
///         }
///     }
///
///     fn decode(from: &mut Input<'_>) -> Result<Order, DecodeError> {
///         match from.take::<u8>()? {
///             0 => Ok(Order::Pay(from.take()?)),
///             1 => Ok(Order::Cancel),
///             _ => Err(DecodeError::new("no order has this number")),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    note = "implement `Recordable` for the type, or give a `Codec`, as `Recorder::process_with` takes one"
)]
pub trait Recordable: Sized {
    /// Appends the value. It may be large, but it should not be: a recording has a bounded number of bytes.
    fn encode(&self, to: &mut Vec<u8>);

    /// Takes a value from the front.
    ///
    /// # Errors
    /// The bytes are no value of this type. They may come from another version of the program.
    fn decode(from: &mut Input<'_>) -> Result<Self, DecodeError>;
}

/// The most values without a size that a list may have. More would only take time.
const MOST_EMPTY: usize = 1 << 16;

/// Why a value could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct DecodeError {
    why: Cow<'static, str>,
}

impl DecodeError {
    /// Makes an error with this text.
    pub fn new(why: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError { why: why.into() }
    }
}

/// The bytes that are left to decode.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of these bytes.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    /// Takes a value from the front.
    ///
    /// # Errors
    /// The bytes are no value of this type.
    pub fn take<T: Recordable>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Takes this many bytes from the front.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.bytes.split_at_checked(count).ok_or(DecodeError::new("the bytes end too early"))?;
        self.bytes = left;
        Ok(taken)
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Takes a list of bytes that begins with its length.
    pub(super) fn take_list(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.take::<usize>()?;
        self.take_bytes(count)
    }

    pub(super) fn take_str(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.take_list()?).map_err(|_| DecodeError::new("a text is not UTF-8"))
    }

    pub(super) fn take_pid(&mut self) -> Result<Option<Pid>, DecodeError> {
        let mut word = [0; 8];
        word.copy_from_slice(self.take_bytes(8)?);
        Ok(Pid::from_word(u64::from_le_bytes(word)))
    }
}

pub(super) fn put_list(bytes: &[u8], to: &mut Vec<u8>) {
    bytes.len().encode(to);
    to.extend_from_slice(bytes);
}

/// The last word of a list of bytes, which has fewer bytes than a word.
#[inline]
pub(super) fn last_word(bytes: &[u8]) -> u64 {
    // A copy of so few bytes would call `memcpy`.
    bytes.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte))
}

/// Appends a PID. It has large numbers, so it is always eight bytes.
pub(super) fn put_pid(pid: Option<Pid>, to: &mut Vec<u8>) {
    to.extend_from_slice(&pid.map_or(0, Pid::to_word).to_le_bytes());
}

/// Decodes a whole value: no byte may be left.
pub(super) fn decode_all<T: Recordable>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut input = Input::new(bytes);
    let value = input.take()?;
    if input.rest().is_empty() { Ok(value) } else { Err(DecodeError::new("bytes are left after the value")) }
}

/// Appends these numbers, one after the other. That is faster than each by itself.
#[inline]
pub(super) fn put_numbers<const N: usize>(numbers: [u64; N], to: &mut Vec<u8>) {
    // A number has at most ten bytes.
    let (mut bytes, mut count) = ([[0; 10]; N], 0);
    let bytes = bytes.as_flattened_mut();
    for number in numbers {
        let mut left = number;
        while left >= 0x80 {
            bytes[count] = left as u8 | 0x80;
            left >>= 7;
            count += 1;
        }
        bytes[count] = left as u8;
        count += 1;
    }
    to.extend_from_slice(&bytes[..count]);
}

impl Recordable for u64 {
    // Small numbers are frequent: seven bits a byte, the highest bit says that more follow.
    #[inline]
    fn encode(&self, to: &mut Vec<u8>) {
        if *self < 0x80 { to.push(*self as u8) } else { put_numbers([*self], to) }
    }

    fn decode(from: &mut Input<'_>) -> Result<u64, DecodeError> {
        let mut number = 0;
        for place in 0..10 {
            let [byte] = *from.take_bytes(1)? else { break };
            if place == 9 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DecodeError::new("a number is too large"))
    }
}

macro_rules! small_numbers {
    ($($number:ty as $wide:ty),*) => {$(
        impl Recordable for $number {
            #[inline]
            fn encode(&self, to: &mut Vec<u8>) {
                (*self as $wide).encode(to);
            }

            fn decode(from: &mut Input<'_>) -> Result<$number, DecodeError> {
                let wide = from.take::<$wide>()?;
                <$number>::try_from(wide).map_err(|_| DecodeError::new("a number is out of range"))
            }
        }
    )*};
}

small_numbers!(u16 as u64, u32 as u64, usize as u64, i8 as i64, i16 as i64, i32 as i64, isize as i64);

impl Recordable for i64 {
    fn encode(&self, to: &mut Vec<u8>) {
        // Small negative numbers are short, too.
        (((self << 1) ^ (self >> 63)) as u64).encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<i64, DecodeError> {
        let bits = from.take::<u64>()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }
}

impl Recordable for u8 {
    #[inline]
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn decode(from: &mut Input<'_>) -> Result<u8, DecodeError> {
        Ok(from.take_bytes(1)?[0])
    }
}

impl Recordable for bool {
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn decode(from: &mut Input<'_>) -> Result<bool, DecodeError> {
        match from.take::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::new("a truth value is neither 0 nor 1")),
        }
    }
}

impl Recordable for f64 {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_bits().to_le_bytes());
    }

    fn decode(from: &mut Input<'_>) -> Result<f64, DecodeError> {
        let mut bits = [0; 8];
        bits.copy_from_slice(from.take_bytes(8)?);
        Ok(f64::from_bits(u64::from_le_bytes(bits)))
    }
}

macro_rules! empty_values {
    ($($type:ty: $value:expr),*) => {$(
        impl Recordable for $type {
            fn encode(&self, _: &mut Vec<u8>) {}

            fn decode(_: &mut Input<'_>) -> Result<$type, DecodeError> {
                Ok($value)
            }
        }
    )*};
}

empty_values!((): (), TimerFired: TimerFired);

impl Recordable for String {
    fn encode(&self, to: &mut Vec<u8>) {
        put_list(self.as_bytes(), to);
    }

    fn decode(from: &mut Input<'_>) -> Result<String, DecodeError> {
        from.take_str().map(str::to_owned)
    }
}

impl Recordable for Arc<str> {
    fn encode(&self, to: &mut Vec<u8>) {
        put_list(self.as_bytes(), to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Arc<str>, DecodeError> {
        from.take_str().map(Arc::from)
    }
}

impl<T: Recordable> Recordable for Vec<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.len().encode(to);
        self.iter().for_each(|one| one.encode(to));
    }

    fn decode(from: &mut Input<'_>) -> Result<Vec<T>, DecodeError> {
        let count = from.take::<usize>()?;
        // Damaged bytes must not take more memory than they have. Values without a size take none.
        let most = if size_of::<T>() == 0 { MOST_EMPTY } else { from.rest().len() };
        if count > most {
            return Err(DecodeError::new("a list ends too early"));
        }
        (0..count).map(|_| from.take()).collect()
    }
}

impl<T: Recordable> Recordable for Option<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.is_some().encode(to);
        self.iter().for_each(|value| value.encode(to));
    }

    fn decode(from: &mut Input<'_>) -> Result<Option<T>, DecodeError> {
        from.take::<bool>()?.then(|| from.take()).transpose()
    }
}

impl<T: Recordable> Recordable for Box<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        (**self).encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Box<T>, DecodeError> {
        from.take().map(Box::new)
    }
}

impl<A: Recordable, B: Recordable> Recordable for (A, B) {
    fn encode(&self, to: &mut Vec<u8>) {
        self.0.encode(to);
        self.1.encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<(A, B), DecodeError> {
        Ok((from.take()?, from.take()?))
    }
}

impl Recordable for Pid {
    fn encode(&self, to: &mut Vec<u8>) {
        put_pid(Some(*self), to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Pid, DecodeError> {
        from.take_pid()?.ok_or(DecodeError::new("a PID is zero"))
    }
}

impl<M> Recordable for Address<M> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.pid().encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Address<M>, DecodeError> {
        from.take::<Pid>().map(Pid::typed)
    }
}

impl<T> Recordable for Tag<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.id().encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Tag<T>, DecodeError> {
        from.take().map(Tag::new)
    }
}

impl Recordable for Monitor {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.id(), self.pid()).encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Monitor, DecodeError> {
        let (id, pid) = from.take()?;
        Ok(Monitor::new(id, pid))
    }
}

/// The number of the question. A replayed reply answers nobody.
impl<T: Send + 'static> Recordable for Reply<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        let (asker, tag) = self.identity();
        put_pid(asker, to);
        tag.encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Reply<T>, DecodeError> {
        Ok(silent_reply(from.take_pid()?, from.take()?))
    }
}

impl Recordable for Duration {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.as_secs(), self.subsec_nanos()).encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Duration, DecodeError> {
        let (seconds, nanos) = from.take::<(u64, u32)>()?;
        if nanos < 1_000_000_000 { Ok(Duration::new(seconds, nanos)) } else { Err(DecodeError::new("no duration")) }
    }
}

/// The distance to a moment at which the program began. So the order and the distances of moments are replayed.
impl Recordable for Instant {
    fn encode(&self, to: &mut Vec<u8>) {
        let begin = begin();
        self.checked_duration_since(begin).is_some().encode(to);
        self.max(&begin).duration_since(*self.min(&begin)).encode(to);
    }

    fn decode(from: &mut Input<'_>) -> Result<Instant, DecodeError> {
        let (is_after, distance) = from.take::<(bool, Duration)>()?;
        let begin = begin();
        let moment = if is_after { begin.checked_add(distance) } else { begin.checked_sub(distance) };
        moment.ok_or(DecodeError::new("no moment is so far away"))
    }
}

fn begin() -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    *BEGIN.get_or_init(|| Clock::system().now())
}

type Put<T> = dyn Fn(&T, &mut Vec<u8>) + Send + Sync;
type Get<T> = dyn Fn(&[u8]) -> Result<T, BoxError> + Send + Sync;

/// Two functions that put the values of a type into a recording, and get them out again.
pub struct Codec<T> {
    put: Arc<Put<T>>,
    get: Arc<Get<T>>,
}

impl<T> Codec<T> {
    /// Makes a codec of two functions. `put` appends the value, and `get` decodes it from these very bytes.
    pub fn new(
        put: impl Fn(&T, &mut Vec<u8>) + Send + Sync + 'static,
        get: impl Fn(&[u8]) -> Result<T, BoxError> + Send + Sync + 'static,
    ) -> Codec<T> {
        Codec { put: Arc::new(put), get: Arc::new(get) }
    }

    /// Encodes the value. Returns whether that has succeeded: the function may panic.
    pub(super) fn put(&self, value: &T, to: &mut Vec<u8>) -> bool {
        contain(|| (self.put)(value, to)).is_ok()
    }

    pub(super) fn get(&self, bytes: &[u8]) -> Result<T, BoxError> {
        contain(|| (self.get)(bytes)).map_err(BoxError::from)?
    }
}

impl<T: Recordable + 'static> Codec<T> {
    /// The codec of a type that is [`Recordable`].
    pub fn of() -> Codec<T> {
        Codec::new(T::encode, |bytes| decode_all(bytes).map_err(BoxError::from))
    }
}

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> {
    /// The codec of a type that `serde` knows. The format is that of `postcard`.
    pub fn serde() -> Codec<T> {
        let put = |value: &T, to: &mut Vec<u8>| match postcard::to_allocvec(value) {
            Ok(bytes) => to.extend_from_slice(&bytes),
            // The panic is contained: the value is missing in the recording.
            Err(error) => std::panic::panic_any(error.to_string()),
        };
        Codec::new(put, |bytes| postcard::from_bytes(bytes).map_err(BoxError::from))
    }
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Codec<T> {
        Codec { put: self.put.clone(), get: self.get.clone() }
    }
}

impl<T> fmt::Debug for Codec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codec({})", type_name::<T>())
    }
}

/// A process that can write its state down and begin again with it.
///
/// With snapshots, a recording that has lost its oldest steps begins with the state before the oldest one that is left.
/// So it can always be replayed.
pub trait Snapshot: Process {
    /// Appends the state. The runtime calls it between two steps. Replies that the process holds can be encoded: see
    /// [`Recordable`].
    fn snapshot(&self, to: &mut Vec<u8>);

    /// Makes a process with this state.
    ///
    /// # Errors
    /// The bytes are no state of this process.
    fn restore(from: &mut Input<'_>) -> Result<Self, DecodeError>;
}
