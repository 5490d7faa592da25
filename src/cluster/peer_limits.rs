//! The requests that a node has refused because a peer has reached a limit.

use crate::outcome::tell_log;
use crate::primitives::{AtomicU64, OnceLock, Ordering};

/// Is told the name of a peer that has reached a limit, and which limit that is.
type Report = Box<dyn Fn(&str, &str) + Send + Sync>;

/// The most processes of this node that one peer monitors. A monitored one takes about 1 KiB more, and must live. So a
/// peer can make the processes of this node take three times their memory, and not more.
const MAX_WATCHED: usize = 1 << 20;

/// The most links between this node and one peer. The peer may invent the processes of its side. A link takes about
/// 700 bytes, so all of them take about 90 MiB.
const MAX_LINKS: usize = 1 << 17;

/// Has the limits of monitors and links, counts the refused requests of all peers, and reports each limit once.
pub(crate) struct PeerLimits {
    /// The most processes of this node that one peer monitors.
    pub(crate) max_watched: usize,
    /// The most links with one peer. Those that processes of this node make are not bound by it.
    pub(crate) max_links: usize,
    /// Lives that got no number.
    lives: AtomicU64,
    /// Monitors and links with processes of this node.
    relations: AtomicU64,
    report: OnceLock<Report>,
}

impl Default for PeerLimits {
    fn default() -> PeerLimits {
        PeerLimits::of(MAX_WATCHED, MAX_LINKS)
    }
}

impl PeerLimits {
    /// These limits of processes that are monitored, and of links.
    pub(crate) fn of(max_watched: usize, max_links: usize) -> PeerLimits {
        let (lives, relations) = (AtomicU64::new(0), AtomicU64::new(0));
        PeerLimits { max_watched, max_links, lives, relations, report: OnceLock::new() }
    }

    /// Sets the receiver of the reports.
    pub(crate) fn report_to(&self, report: Report) {
        let _ = self.report.set(report);
    }

    /// A life got no number. `is_first` says that it is the first one for this reason.
    pub(crate) fn life_refused(&self, peer: &str, why: &str, is_first: bool) {
        // Ordering: Relaxed. It is a count.
        self.lives.fetch_add(1, Ordering::Relaxed);
        if is_first {
            self.report(peer, why);
        }
    }

    /// A monitor or a link was refused. `is_first` says that it is the first one of a connection.
    pub(crate) fn relation_refused(&self, peer: &str, why: &str, is_first: bool) {
        self.relations.fetch_add(1, Ordering::Relaxed);
        if is_first {
            self.report(peer, why);
        }
    }

    /// How many lives, and how many monitors and links, were refused.
    pub(crate) fn refused(&self) -> (u64, u64) {
        (self.lives.load(Ordering::Relaxed), self.relations.load(Ordering::Relaxed))
    }

    fn report(&self, peer: &str, why: &str) {
        tell_log(|| tracing::warn!(peer, why, "a node has reached a limit"));
        if let Some(report) = self.report.get() {
            report(peer, why);
        }
    }
}
