//! A link: it carries frames between the nodes of a cluster.
//!
//! A link knows nodes by their names. It carries frames between nodes of one cluster only. It keeps the order of the
//! frames from one node to another while both are seen. It may lose frames, and need not say so.

use std::time::Duration;

use crate::primitives::Arc;

/// How long a link may take to close.
pub(super) const CLOSE: Duration = Duration::from_millis(60);

/// The longest name of a node or a cluster, in bytes.
const LONGEST_NAME: usize = 64;

/// Whether a node or a cluster can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(is_allowed)
}

/// Carries frames between this node and others.
pub(crate) trait Link: Send + Sync {
    /// Opens the link. From now on it reports to `upward`.
    fn open(&self, upward: Arc<dyn Upward>) -> Result<(), LinkError>;

    /// Sends a frame to the node of this name. It may wait for 500 ms, so only the thread of the connection calls it.
    /// The frame is lost if nobody has this name.
    fn send(&self, to: &str, frame: &[u8]);

    /// Closes the link. It does not report any more, and nobody sees this node.
    fn close(&self);
}

/// How often a thread that steps processes has called a link, in all tests of this program. A link may wait, so the
/// tests expect 0.
#[cfg(all(test, not(loom)))]
pub(super) static CALLS_BY_WORKERS: crate::primitives::AtomicU64 = crate::primitives::AtomicU64::new(0);

/// Counts a call of a link, in tests.
pub(super) fn note_call() {
    #[cfg(all(test, not(loom)))]
    if crate::inside::is_step() {
        CALLS_BY_WORKERS.fetch_add(1, crate::primitives::Ordering::SeqCst);
    }
}

/// Takes the reports of a link. None of its calls waits, or calls the link.
pub(crate) trait Upward: Send + Sync {
    /// This node can be reached now: its name and its incarnation.
    fn seen(&self, name: &str, incarnation: u64);

    /// This node cannot be reached any more.
    fn gone(&self, name: &str, incarnation: u64);

    /// There is a node of another cluster: the names of the cluster and of the node.
    fn foreign(&self, cluster: &str, name: &str);

    /// A frame of the node with this name.
    fn frame(&self, from: &str, frame: Vec<u8>);
}

/// Why a link could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the link of the cluster could not be opened: {0}")]
pub struct LinkError(#[from] pub(crate) crate::outcome::BoxError);
