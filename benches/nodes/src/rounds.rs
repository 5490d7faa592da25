//! The rounds: each peer in turn, and in each round another one first.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child::Keeper;
use crate::idle::{self, Idle};
use crate::load::{Counts, Measured, Outcome};
use crate::peers::{Peer, erlang};

/// After this time a node that has not started counts as hung.
pub(crate) const START: Duration = Duration::from_secs(30);

/// After this time a measurement counts as hung.
const MEASUREMENT: Duration = Duration::from_secs(180);

/// One measurement.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Run {
    pub(crate) peer: String,
    pub(crate) round: u64,
    #[serde(flatten)]
    pub(crate) measured: Measured,
}

/// The four nodes of one idle round.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct IdleRun {
    pub(crate) round: u64,
    /// Ours: without a peer, and with one.
    pub(crate) alone: Idle,
    pub(crate) connected: Idle,
    /// The engine below it: without a peer, and with one.
    pub(crate) engine_alone: Idle,
    pub(crate) engine_connected: Idle,
}

/// The arguments of this program as the node of a peer that is asked, or that measures.
pub(crate) const SERVE: &str = "--serve";
pub(crate) const MEASURE: &str = "--measure";
pub(crate) const IDLE: &str = "--idle";

/// The peers in the order of this round.
pub(crate) fn order(peers: &[Peer], round: u64) -> Vec<Peer> {
    let mut order = peers.to_vec();
    let places = order.len().max(1);
    order.rotate_left((round % places as u64) as usize);
    order
}

/// Runs the two programs of a peer.
pub(crate) fn pair(keeper: &mut Keeper, peer: &Peer, counts: Counts) -> Outcome<Measured> {
    let port = free_port()?;
    let serve = if peer.is_erlang() { erlang::serve(port) } else { own(&[SERVE, peer.name, &port.to_string()])? };
    let asked = keeper.start(serve)?;
    let ready = keeper.line(&asked, START)?;
    let address = ready.strip_prefix("ready ").ok_or_else(|| format!("it said {ready:?}"))?;
    let counts = peer.counts(counts);
    let measure = if peer.is_erlang() {
        erlang::measure(address, port, counts)
    } else {
        let mut command = own(&[MEASURE, peer.name, address])?;
        command.args(counts.arguments());
        command
    };
    let measures = keeper.start(measure)?;
    Ok(serde_json::from_str(&keeper.line(&measures, MEASUREMENT)?)?)
}

/// Runs idle nodes, one after the other.
pub(crate) fn idle(keeper: &mut Keeper, round: u64, time: Duration) -> Outcome<IdleRun> {
    let mut measure = |kind: &str, is_connected: bool| -> Outcome<Idle> {
        let (here, there) = (free_port()?, free_port()?);
        let node = |name: &str, listen: u16, join: u16| {
            let join = if is_connected { join } else { 0 };
            own(&[
                &format!("{IDLE}={kind}"),
                name,
                &listen.to_string(),
                &join.to_string(),
                &time.as_millis().to_string(),
            ])
        };
        let measured = keeper.start(node("a", here, there)?)?;
        let other = is_connected.then(|| keeper.start(node("b", there, here)?)).transpose()?;
        let line = keeper.line(&measured, START + time)?;
        drop(other);
        Ok(serde_json::from_str(&line)?)
    };
    Ok(IdleRun {
        round,
        alone: measure(idle::NODE, false)?,
        connected: measure(idle::NODE, true)?,
        engine_alone: measure(idle::ENGINE, false)?,
        engine_connected: measure(idle::ENGINE, true)?,
    })
}

/// This program, with other arguments.
pub(crate) fn own(arguments: &[&str]) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(command)
}

/// A port that nobody uses. Another program could take it before ours does, and then the run fails.
pub(crate) fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::order;
    use crate::peers;

    #[test]
    fn another_peer_goes_first_in_each_round() {
        let peers = peers::all();
        let first = |round| order(&peers, round)[0].name;
        assert_eq!(first(0), "procession");
        assert_eq!(first(1), "erlang");
        assert_eq!(first(peers.len() as u64), "procession");
    }
}
