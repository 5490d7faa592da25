//! The contract of types that travel between nodes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::outcome::BoxError;
use crate::process::Process;

/// The most bytes that a message may have when it is encoded, unless its type says less.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A type of messages that travel between nodes. The macro [`remote!`](crate::remote) implements it.
///
/// Messages within a node need nothing of this.
pub trait Remote: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the type on all nodes. It stays the same when the type is renamed.
    const NAME: &'static str;

    /// The version of the type. Increase it with each change of the type, because the encoding does not describe
    /// itself. A node takes a message only if it knows the type in the same version. See
    /// [`Wire::accepts`](super::Wire::accepts).
    const VERSION: u32;

    /// The most bytes of a message when it is encoded: at most 16 MiB. A larger message is refused where it is sent.
    const MAX_BYTES: usize = MAX_BYTES;
}

/// A process that other nodes can spawn. It is registered by [`Wire::process`](super::Wire::process), on the node that
/// spawns it and on the one where it runs.
///
/// The process itself does not travel. Its argument does, and the other node makes the process of that.
pub trait RemoteProcess: Process {
    /// The name of the process on all nodes. It stays the same when the type is renamed.
    const NAME: &'static str;

    /// The version of the argument. Increase it with each change of that type.
    const VERSION: u32;

    /// The argument of [`begin`](Self::begin), which travels to the other node.
    type Argument: Serialize + DeserializeOwned + Send + 'static;

    /// Makes the process from its argument.
    ///
    /// It is called as a part of `init`, on the node where the process runs. There a worker calls it. If
    /// [`Cluster::spawn`](super::Cluster::spawn) names its own node, the caller's thread calls it.
    ///
    /// # Errors
    /// If it returns an error, the process is not started. The spawner gets the error as its answer.
    fn begin(argument: Self::Argument) -> Result<Self, BoxError>;
}

/// Implements [`Remote`] for a type, with its name and version on all nodes. `max_bytes` is
/// the most bytes of an encoded message, if that is less than 16 MiB.
///
/// ```
/// use procession::{Address, Reply, remote};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// enum Ball {
///     Hit(u64, Address<Ball>),
///     Score(Reply<u64>),
/// }
///
/// remote!(Ball, "game::Ball", 1);
///
/// #[derive(Serialize, Deserialize)]
/// struct Line(String);
///
/// remote!(Line, "game::Line", 3, max_bytes = 64 << 10);
/// ```
#[macro_export]
macro_rules! remote {
    ($type:ty, $name:expr, $version:expr $(, max_bytes = $limit:expr)? $(,)?) => {
        impl $crate::cluster::Remote for $type {
            const NAME: &'static str = $name;
            const VERSION: u32 = $version;
            $(const MAX_BYTES: usize = $limit;)?
        }
    };
}
