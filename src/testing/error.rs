//! What a test asks of a driven process in vain.

use crate::process::Pid;

/// Why [`Driver::sent`](super::Driver::sent) has no message of the type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SentError {
    /// The process has sent nothing, or all of it has been taken.
    #[error("the process has sent no message that was not taken")]
    Nothing,
    /// The oldest message is of another type.
    #[error("the oldest message that the process has sent, to {to}, is of type {found}, and not of type {expected}")]
    OtherType {
        /// The receiver of the message.
        to: Pid,
        /// The type of the message.
        found: &'static str,
        /// The type that was asked for.
        expected: &'static str,
    },
}
