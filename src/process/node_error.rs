//! The errors of messages to processes on other nodes.

/// Why a message or a question did not reach a process on another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The node is not connected, or the connection broke before the node confirmed the message. A message that was
    /// sent before is *in doubt*: it may have been stepped there.
    #[error("its node is down")]
    NodeDown,
    /// The type of the message was not registered.
    #[error("{type_name} does not travel: implement `Remote` for it, and register it with `Wire::message`")]
    NotRemote {
        /// The type of the message.
        type_name: &'static str,
    },
    /// The type of the process was not registered.
    #[error(
        "{type_name} cannot be spawned on another node: implement `RemoteProcess` for it, and register it with \
         `Wire::process` on both nodes"
    )]
    NotRemoteProcess {
        /// The type of the process.
        type_name: &'static str,
    },
    /// A durable process has spawned a process on another node with a link or a monitor.
    #[error("a durable process cannot be linked to a process of another node: spawn it without `link` and `monitor`")]
    DurableSpawner,
    /// The receiving node did not register this version of the message type, or its definition there differs.
    #[error("its node does not take {type_name} as {name:?} in version {version}: {why}")]
    NotTaken {
        /// The type of the message.
        type_name: &'static str,
        /// The name of the type on all nodes.
        name: &'static str,
        /// The version of the type.
        version: u32,
        /// The difference.
        why: String,
    },
    /// The message is too large.
    #[error("the encoded message has {size} bytes, above the limit of {limit}: send a smaller message")]
    TooLarge {
        /// The size of the message, in bytes.
        size: usize,
        /// The limit of its type, in bytes.
        limit: usize,
    },
    /// The message cannot be encoded, for example because its `Serialize` implementation has failed.
    #[error("the message cannot be encoded: {why}")]
    NotEncoded {
        /// The error, or the panic.
        why: String,
    },
    /// The other node cannot decode the message.
    #[error("its node cannot decode the message: {why}")]
    NotDecoded {
        /// The error, or the panic.
        why: String,
    },
    /// Too many messages wait for the connection to the node.
    #[error("too many messages wait to be sent to its node: send it again later")]
    Busy,
}
