//! The peers. Each has a node that is asked, and a node that sends, asks and measures, in programs of their own.

pub(crate) mod erlang;
pub(crate) mod ours;
#[cfg(any(feature = "kameo", feature = "ractor"))]
mod tasks;
#[cfg(feature = "kameo")]
mod with_kameo;
#[cfg(feature = "ractor")]
mod with_ractor;

use std::io::Write as _;

use crate::load::{Counts, Measured, Outcome};

/// A peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The two programs. `None` if they are not in Rust.
    programs: Option<Programs>,
    /// It is much slower than the others, so it does less.
    is_slow: bool,
}

/// The node that is asked, at this port, and the node that measures, with the address of the other one.
#[derive(Clone, Copy, Debug)]
struct Programs {
    serve: fn(u16) -> Outcome<()>,
    measure: fn(&str, Counts) -> Outcome<Measured>,
}

/// The name of ours.
pub(crate) const OURS: &str = "procession";

/// All peers that this program was built with.
pub(crate) fn all() -> Vec<Peer> {
    vec![
        Peer { name: OURS, programs: Some(Programs { serve: ours::serve, measure: ours::measure }), is_slow: false },
        Peer { name: "erlang", programs: None, is_slow: false },
        #[cfg(feature = "ractor")]
        Peer {
            name: "ractor",
            programs: Some(Programs { serve: with_ractor::serve, measure: with_ractor::measure }),
            is_slow: false,
        },
        #[cfg(feature = "kameo")]
        Peer {
            name: "kameo",
            programs: Some(Programs { serve: with_kameo::serve, measure: with_kameo::measure }),
            is_slow: true,
        },
    ]
}

impl Peer {
    pub(crate) fn is_erlang(&self) -> bool {
        self.programs.is_none()
    }

    pub(crate) fn counts(&self, counts: Counts) -> Counts {
        if self.is_slow { counts.slower() } else { counts }
    }

    /// Runs the node that is asked, in this program.
    pub(crate) fn serve(&self, port: u16) -> Outcome<()> {
        (self.here()?.serve)(port)
    }

    /// Runs the node that measures, in this program.
    pub(crate) fn measure(&self, address: &str, counts: Counts) -> Outcome<Measured> {
        (self.here()?.measure)(address, counts)
    }

    fn here(&self) -> Outcome<Programs> {
        self.programs.ok_or_else(|| format!("{} is no program in Rust", self.name).into())
    }
}

/// Says that a node can be reached at an address. Returns when the input of this program ends: the other program that
/// has started it is done, or has ended.
pub(crate) fn until_the_end(address: &str) -> Outcome<()> {
    println!("ready {address}");
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
