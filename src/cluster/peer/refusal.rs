//! Why two nodes do not connect.

use std::fmt;

use super::frame::{Reader, put_text};

/// The longest text of a refusal that is sent, in bytes.
const LONGEST_TEXT: usize = 1024;

/// In what two nodes differ that keeps them from connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The names of their clusters.
    Cluster,
    /// The lists of voters.
    Voters,
    /// The time after which a silent node is down.
    DetectionTime,
    /// They have no version of the protocol in common.
    Protocols,
    /// They should have different names, and have the same.
    Name,
    /// A node of this name is connected, and lives.
    Incarnation,
    /// Something else, which the node's own part of the cluster found.
    Other,
}

impl Difference {
    const ALL: [Difference; 7] = [
        Difference::Cluster,
        Difference::Voters,
        Difference::DetectionTime,
        Difference::Protocols,
        Difference::Name,
        Difference::Incarnation,
        Difference::Other,
    ];

    fn name(self) -> &'static str {
        match self {
            Difference::Cluster => "the cluster",
            Difference::Voters => "the voters",
            Difference::DetectionTime => "the detection time",
            Difference::Protocols => "the range of protocols",
            Difference::Name => "the name of the node",
            Difference::Incarnation => "the incarnation of the node",
            Difference::Other => "the configuration",
        }
    }
}

/// Why a connection was refused: what differs, and what each side has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) difference: Difference,
    /// The value of the node that has this refusal.
    pub(crate) here: String,
    /// The value of the peer.
    pub(crate) there: String,
}

impl Refusal {
    pub(crate) fn new(difference: Difference, here: impl ToString, there: impl ToString) -> Refusal {
        Refusal { difference, here: here.to_string(), there: there.to_string() }
    }

    /// The refusal of a node that has found an error in what the peer has sent.
    pub(crate) fn other(error: &dyn std::error::Error) -> Refusal {
        Refusal::new(Difference::Other, error, "")
    }

    /// Writes the refusal as the peer will read it.
    pub(super) fn put(&self, frame: &mut Vec<u8>) {
        frame.push(self.difference as u8);
        put_text(frame, shortened(&self.there));
        put_text(frame, shortened(&self.here));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Refusal> {
        let difference = *Difference::ALL.get(usize::from(reader.byte()?))?;
        let (here, there) = (reader.text()?, reader.text()?);
        let is_short = here.len() <= LONGEST_TEXT && there.len() <= LONGEST_TEXT;
        is_short.then(|| Refusal::new(difference, here, there))
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { difference, here, there } = self;
        write!(f, "{} keeps two nodes from connecting: {here:?} here, {there:?} there", difference.name())
    }
}
