//! Distributed Erlang: the programs of `nodes.erl`, each in a node of its own. Nothing is left running: there is no
//! `epmd`.

use std::path::PathBuf;
use std::process::Command;

use crate::load::{Counts, Outcome};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/peers/nodes.erl");
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/erlang");

/// Compiles the programs, and returns the version. The error says why this is not possible.
pub(crate) fn prepare() -> Outcome<String> {
    std::fs::create_dir_all(BUILT)?;
    let compiled = Command::new("erlc").args(["-o", BUILT, SOURCE]).status();
    if !compiled.map_err(|problem| format!("erlc: {problem} (Debian: erlang-base)"))?.success() {
        return Err("nodes.erl was not compiled".into());
    }
    let show = "io:format(\"~s\", [erlang:system_info(otp_release)]), halt().";
    let version = Command::new("erl").args(["-noshell", "-eval", show]).output()?;
    Ok(format!("OTP {}", String::from_utf8_lossy(&version.stdout)))
}

/// A node with as many schedulers as the other peers have workers.
fn node(name: &str, port: u16) -> Command {
    let mut command = Command::new("erl");
    command.args(["-noshell", "+Bi", "+S", "2:2", "-setcookie", "nodes", "-start_epmd", "false"]);
    command.args(["-name", name, "-erl_epmd_port", &port.to_string()]).arg("-pa").arg(PathBuf::from(BUILT));
    command
}

/// The node that is asked.
pub(crate) fn serve(port: u16) -> Command {
    let mut command = node("b@127.0.0.1", port);
    command.args(["-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-run", "nodes", "serve"]);
    command
}

/// The node that sends, asks and measures.
pub(crate) fn measure(address: &str, port: u16, counts: Counts) -> Command {
    let mut command = node("a@127.0.0.1", port);
    command.args(["-dist_listen", "false", "-run", "nodes", "measure", address]).args(counts.arguments());
    command
}
