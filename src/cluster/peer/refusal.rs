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
    /// A difference that only the peer knows, which speaks a newer version. It is never sent.
    Unknown,
}

impl Difference {
    /// The differences that travel, each at the place of its number.
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
            Difference::Unknown => "a difference that only a newer version names",
        }
    }

    /// The advice for users whose nodes differ so.
    fn advice(self) -> &'static str {
        match self {
            Difference::Cluster => "start both with the same name of the cluster, or on networks of their own",
            Difference::Voters => "start all nodes with the same voters",
            Difference::DetectionTime => "start all nodes with the same detection time",
            Difference::Protocols => {
                "a node speaks its version and the one before, so update the program with the older ones, one version \
                 after the other"
            }
            Difference::Name => "give each node a name of its own",
            Difference::Incarnation => "give the second node a name of its own, or stop the first one",
            Difference::Other => "compare the versions and the configuration of both nodes",
            Difference::Unknown => "see the log of the other node, or update this one",
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
    /// Whether the peer has refused this node.
    is_of_peer: bool,
}

impl Refusal {
    pub(crate) fn new(difference: Difference, here: impl ToString, there: impl ToString) -> Refusal {
        Refusal { difference, here: here.to_string(), there: there.to_string(), is_of_peer: false }
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

    /// Reads a refusal. Bytes behind it, and differences that this version does not know, are those of newer versions.
    /// If it were not read, this node would say `Hello` again and again.
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Refusal> {
        let difference = Difference::ALL.get(usize::from(reader.byte()?)).copied().unwrap_or(Difference::Unknown);
        let (here, there) = (reader.text()?, reader.text()?);
        Some(Refusal { is_of_peer: true, ..Refusal::new(difference, shortened(here), shortened(there)) })
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { difference, here, there, is_of_peer } = self;
        let (name, advice) = (difference.name(), difference.advice());
        // The texts may be those of a stranger, so they are quoted.
        match (difference, &**here, &**there) {
            (Difference::Other, why, "") | (Difference::Other, "", why) => {
                let who = if *is_of_peer { "the other node" } else { "this node" };
                write!(f, "{who} has refused the connection: {why:?}: {advice}")
            }
            _ => write!(f, "{name} keeps two nodes from connecting: {here:?} here, {there:?} there: {advice}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_both_values_and_says_what_to_do() {
        let refusal = Refusal::new(Difference::Protocols, "1 to 2", "3 to 4");
        let text = "the range of protocols keeps two nodes from connecting: \"1 to 2\" here, \"3 to 4\" there: a node \
                    speaks its version and the one before, so update the program with the older ones, one version \
                    after the other";
        assert_eq!(refusal.to_string(), text);
        let other = |here: &str, there: &str| Refusal::new(Difference::Other, here, there);
        let advice = "compare the versions and the configuration of both nodes";
        let text = format!("this node has refused the connection: \"it is odd\": {advice}");
        assert_eq!(other("it is odd", "").to_string(), text);
        // Also a peer that puts its text in the place of the other one.
        for of_peer in [other("it is odd", ""), other("", "it is odd")] {
            let text = format!("the other node has refused the connection: \"it is odd\": {advice}");
            assert_eq!(as_read(&of_peer).to_string(), text);
        }
    }

    /// As the peer reads it.
    fn as_read(refusal: &Refusal) -> Refusal {
        let mut frame = Vec::new();
        refusal.put(&mut frame);
        Refusal::read(&mut Reader::new(&frame)).unwrap()
    }

    #[test]
    fn the_text_of_a_stranger_forges_no_line_of_a_log() {
        let forged = "x\n2026-01-01 ERROR all is lost \u{1b}[2J\u{202e}\r";
        for difference in Difference::ALL {
            for (here, there) in [(forged, ""), ("", forged), (forged, forged)] {
                let text = as_read(&Refusal::new(difference, here, there)).to_string();
                let is_plain = |character: char| !character.is_control() && character != '\u{202e}';
                assert!(text.contains("all is lost") && text.chars().all(is_plain), "{text:?}");
            }
        }
    }

    /// A newer node may refuse for a reason that this version does not know, and may say more.
    #[test]
    fn a_refusal_of_a_newer_version_is_read() {
        let mut frame = Vec::new();
        Refusal::new(Difference::Other, "red", "blue").put(&mut frame);
        let read = |frame: &[u8]| Refusal::read(&mut Reader::new(frame));
        let of_peer = |difference| Refusal { is_of_peer: true, ..Refusal::new(difference, "blue", "red") };
        assert_eq!(read(&frame), Some(of_peer(Difference::Other)));
        frame[0] = 77;
        frame.extend_from_slice(b"more");
        let refusal = read(&frame).unwrap();
        assert_eq!(refusal, of_peer(Difference::Unknown));
        let text = refusal.to_string();
        assert!(text.contains("\"blue\" here, \"red\" there") && text.ends_with("or update this one"), "{text}");
        let mut long = Vec::new();
        Refusal::new(Difference::Voters, "ä".repeat(LONGEST_TEXT), "").put(&mut long);
        assert!(long.len() < LONGEST_TEXT + 10);
        (0..frame.len() - 4).for_each(|end| assert_eq!(read(&frame[..end]), None));
    }
}
