//! PIDs and addresses. A PID names a process. An address is a PID with a type of message.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::str::FromStr;

/// The identifier of one process. It is never given to another process of the same runtime.
///
/// A PID is printed and parsed as `<node.slot.generation>`. The *node* is the number of the runtime. The *slot* is a
/// place in the runtime's table of processes. Later processes may have the same slot, each with a new *generation*.
/// When a slot has had all its generations, it is not used again.
///
/// ```
/// use procession::Pid;
///
/// let pid: Pid = "<7.12.3>".parse()?;
/// assert_eq!(pid.to_string(), "<7.12.3>");
/// # Ok::<(), procession::names::ParsePidError>(())
/// ```
// The node, the slot and the generation in one word, from the highest bits to the lowest. So a PID travels in a
// register. The generation is not zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(NonZeroU64);

const NODE_BITS: u32 = 14;
const SLOT_BITS: u32 = 26;
const GENERATION_BITS: u32 = 24;

impl Pid {
    /// The greatest node number.
    pub const MAX_NODE: u32 = (1 << NODE_BITS) - 1;
    /// The PID with the lowest numbers: node 0, slot 0, generation 1.
    pub(crate) const FIRST: Pid = Pid(NonZeroU64::MIN);
    pub(crate) const MAX_SLOT: u32 = (1 << SLOT_BITS) - 1;
    pub(crate) const MAX_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

    /// Makes a PID. Returns `None` if a number is out of range, or if the generation is zero.
    pub(crate) fn new(node: u32, slot: u32, generation: u32) -> Option<Pid> {
        if node > Pid::MAX_NODE || slot > Pid::MAX_SLOT || generation > Pid::MAX_GENERATION || generation == 0 {
            return None;
        }
        let word = u64::from(node) << (SLOT_BITS + GENERATION_BITS)
            | u64::from(slot) << GENERATION_BITS
            | u64::from(generation);
        NonZeroU64::new(word).map(Pid)
    }

    /// A PID that no process of a real program gets. It is the last PID of the last slot.
    pub(crate) fn nobody(node: u32) -> Option<Pid> {
        Pid::new(node, Pid::MAX_SLOT, Pid::MAX_GENERATION)
    }

    /// The number of the runtime.
    #[inline]
    pub fn node(self) -> u32 {
        (self.0.get() >> (SLOT_BITS + GENERATION_BITS)) as u32
    }

    /// The place in the runtime's table of processes.
    #[inline]
    pub fn slot(self) -> u32 {
        (self.0.get() >> GENERATION_BITS) as u32 & Pid::MAX_SLOT
    }

    /// The number of the process among the processes that have had this slot. The first one has 1.
    #[inline]
    pub fn generation(self) -> u32 {
        self.0.get() as u32 & Pid::MAX_GENERATION
    }

    /// The PID of the next process in the same slot, if there can be one.
    pub(crate) fn successor(self) -> Option<Pid> {
        Pid::new(self.node(), self.slot(), self.generation() + 1)
    }

    /// The whole PID in one word, which is never 0.
    pub(crate) fn to_word(self) -> u64 {
        self.0.get()
    }

    /// Makes a PID from such a word. `None` for 0.
    pub(crate) fn from_word(word: u64) -> Option<Pid> {
        NonZeroU64::new(word).map(Pid)
    }

    /// Returns the address of a process that takes messages of type `M`, with this PID. The type is checked when a
    /// message is delivered.
    pub fn typed<M>(self) -> Address<M> {
        Address { pid: self, takes: PhantomData }
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}.{}.{}>", self.node(), self.slot(), self.generation())
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error when a text is not a PID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a PID: expected `<node.slot.generation>` in decimal, the generation not zero, as in `<1.42.7>`"
)]
pub struct ParsePidError {
    text: String,
}

impl FromStr for Pid {
    type Err = ParsePidError;

    fn from_str(text: &str) -> Result<Pid, ParsePidError> {
        parse(text).ok_or_else(|| ParsePidError { text: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<Pid> {
    let mut numbers = text.strip_prefix('<')?.strip_suffix('>')?.split('.').map(|number| {
        // `u32::from_str` would take a sign, and then the text would not be what the PID prints.
        let plain = number.bytes().all(|byte| byte.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
        plain.then(|| number.parse().ok()).flatten()
    });
    let pid = Pid::new(numbers.next()??, numbers.next()??, numbers.next()??)?;
    numbers.next().is_none().then_some(pid)
}

/// A PID with the type of the messages that the process takes. The compiler checks the type of each message that is
/// sent to an address.
///
/// ```compile_fail,E0277
/// # fn main() {}
/// fn greet(runtime: &procession::Runtime, to: procession::Address<u32>) {
///     let _ = runtime.send(to, "hello"); // A `u32` would compile.
/// }
/// ```
pub struct Address<M> {
    pid: Pid,
    takes: PhantomData<fn(M)>,
}

impl<M> Address<M> {
    /// The PID without the type.
    #[inline]
    pub fn pid(self) -> Pid {
        self.pid
    }
}

/// Makes an identifier type `Copy`, `Eq` and `Hash` for every type parameter. A `derive` would require these traits of
/// the parameter.
macro_rules! plain_value {
    ($type:ident, $field:ident) => {
        impl<T> Clone for $type<T> {
            fn clone(&self) -> $type<T> {
                *self
            }
        }

        impl<T> Copy for $type<T> {}

        impl<T> PartialEq for $type<T> {
            fn eq(&self, other: &$type<T>) -> bool {
                self.$field == other.$field
            }
        }

        impl<T> Eq for $type<T> {}

        impl<T> std::hash::Hash for $type<T> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.$field.hash(state);
            }
        }
    };
}
pub(crate) use plain_value;

plain_value!(Address, pid);

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taking {}", self.pid, std::any::type_name::<M>())
    }
}

impl<M> From<Address<M>> for Pid {
    fn from(address: Address<M>) -> Pid {
        address.pid
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pid_is_small_and_reads_back_what_it_prints() {
        assert_eq!(size_of::<Pid>(), 8);
        assert_eq!(size_of::<Option<Pid>>(), 8);
        for text in ["<0.0.1>", "<1.42.7>", "<16383.67108863.16777215>"] {
            assert_eq!(text.parse::<Pid>().unwrap().to_string(), text);
        }
        let (early, late): (Pid, Pid) = ("<1.2.3>".parse().unwrap(), "<1.2.4>".parse().unwrap());
        assert!(early < late);
        assert_eq!(early.successor(), Some(late));
        assert_eq!("<1.2.16777215>".parse::<Pid>().unwrap().successor(), None);
    }

    #[test]
    fn a_text_that_is_not_a_pid_is_refused_with_the_text_and_the_form() {
        for text in [
            "",
            "1.2.3",
            "<1.2>",
            "<1.2.3.4>",
            "<1.2.0>",
            "<1.2.x>",
            "<+1.2.3>",
            "<01.2.3>",
            "<16384.0.1>",
            "<0.67108864.1>",
            "<0.0.16777216>",
            "<4294967296.0.1>",
            "< 1.2.3>",
        ] {
            let error = text.parse::<Pid>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a PID: expected `<node.slot.generation>`")), "{error}");
        }
    }
}
