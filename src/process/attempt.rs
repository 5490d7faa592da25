//! The attempts of a stored command: its key, and their numbers.

use std::fmt;
use std::str::FromStr;

/// Names one command of a durable process, in every store and in every run.
///
/// The world outside knows a command again by its key: the key is the same in each attempt. It is printed as
/// `<store>.<process>.<tag>`, in lower-case hexadecimal digits, and can be read from this text.
///
/// ```
/// use procession::command::CommandKey;
///
/// let key: CommandKey = "00c0ffee.2a.1".parse()?;
/// assert_eq!(key.to_string(), "0000000000c0ffee.2a.1");
/// # Ok::<(), procession::command::ParseCommandKeyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandKey {
    store: u64,
    serial: u64,
    tag: u64,
}

impl CommandKey {
    #[cfg(feature = "durable")]
    pub(crate) fn new(store: u64, serial: u64, tag: u64) -> CommandKey {
        CommandKey { store, serial, tag }
    }

    /// The random number of the store.
    #[cfg(feature = "durable")]
    pub(crate) fn store(self) -> u64 {
        self.store
    }

    /// The serial number of the process, and the tag of the command.
    #[cfg(feature = "durable")]
    pub(crate) fn place(self) -> (u64, u64) {
        (self.serial, self.tag)
    }
}

impl fmt::Display for CommandKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:x}.{:x}", self.store, self.serial, self.tag)
    }
}

/// A text is not a [`CommandKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the key of a command: expected `<store>.<process>.<tag>` in hexadecimal digits")]
pub struct ParseCommandKeyError {
    text: String,
}

impl FromStr for CommandKey {
    type Err = ParseCommandKeyError;

    fn from_str(text: &str) -> Result<CommandKey, ParseCommandKeyError> {
        parse(text).ok_or_else(|| ParseCommandKeyError { text: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<CommandKey> {
    // `from_str_radix` would take a sign.
    let mut numbers = text.split('.').map(|number| match number.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => u64::from_str_radix(number, 16).ok(),
        false => None,
    });
    let key = CommandKey { store: numbers.next()??, serial: numbers.next()??, tag: numbers.next()?? };
    numbers.next().is_none().then_some(key)
}

/// One attempt of a stored command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The key of the command. It is the same in each attempt.
    pub key: CommandKey,
    /// The number of the attempt. The first one has 1. An attempt during which the program was killed counts.
    pub number: u32,
}

/// The error with which the handler of a stored command says that the answer comes later, in this run or in another.
///
/// [`Responder::later`](super::Responder::later) answers with it. The future of an asynchronous handler returns it.
/// The handler is not called again for this command. `procession::durable::Store::answer` answers it. A command that
/// is not stored fails with this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer comes later, but the command is not stored")]
pub struct AnsweredLater;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_printed_and_other_texts_are_not() {
        let key = CommandKey { store: u64::MAX, serial: 0, tag: 1 << 63 };
        assert_eq!(key.to_string().parse(), Ok(key));
        for text in ["", "1.2", "1.2.3.4", "1.2.", "+1.2.3", "1.2.g", "10000000000000000.1.1", "1.-2.3"] {
            assert!(text.parse::<CommandKey>().is_err(), "{text:?}");
        }
    }
}
