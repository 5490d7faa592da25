//! Network namespaces that are connected by a switch, and the cuts between them.

use std::process::{Command, Output};

/// Three namespaces with a network of their own, and a fourth one with the switch between them. They end with it.
pub(super) struct Place {
    /// The beginning of all names: those of two tests differ.
    prefix: String,
}

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

impl Place {
    /// Makes the namespaces. The error says why there are none: for example, the rights are missing.
    pub(super) fn new() -> Result<Place, String> {
        let place = Place { prefix: format!("procession{}", std::process::id()) };
        let switch = place.namespace("switch");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "switch", "up"])?;
        for (at, name) in NAMES.iter().enumerate() {
            let space = place.namespace(name);
            ip(&["netns", "add", &space])?;
            let port = ["peer", "name", name, "netns", &switch];
            ip(&[&["-n", &space, "link", "add", "eth0", "type", "veth"][..], &port].concat())?;
            ip(&["-n", &switch, "link", "set", "dev", name, "master", "switch", "up"])?;
            ip(&["-n", &space, "addr", "add", &format!("{}/24", address(at)), "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
        }
        Ok(place)
    }

    pub(super) fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Has the switch drop all frames from and to a node, or none.
    pub(super) fn cut(&self, node: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        ip(&["-n", &self.namespace("switch"), "link", "set", "dev", NAMES[node], state])
            .expect("a port can be switched");
    }

    /// Has all frames of a node to another one go to a machine that is not there, or not.
    pub(super) fn cut_one_way(&self, (from, to): (usize, usize), is_cut: bool) {
        let (space, to) = (self.namespace(NAMES[from]), address(to));
        let neighbour = ["-n", &space, "neigh", if is_cut { "replace" } else { "del" }, &to, "dev", "eth0"];
        let nobody = ["lladdr", "02:00:00:00:00:99", "nud", "permanent"];
        let options = if is_cut { &nobody[..] } else { &[] };
        ip(&[&neighbour[..], options].concat()).expect("the address of a neighbour can be set");
    }

    /// Has a node send at most one megabit in a second, or as fast as it can. Returns whether the system can do that.
    pub(super) fn slow(&self, node: usize, is_slow: bool) -> bool {
        let space = self.namespace(NAMES[node]);
        let what = if is_slow { "add" } else { "del" };
        let rate = ["tbf", "rate", "1mbit", "burst", "10kb", "latency", "100ms"];
        let mut tc = Command::new("tc");
        tc.args(["-n", &space, "qdisc", what, "dev", "eth0", "root"]);
        tc.args(if is_slow { &rate[..] } else { &[] });
        tc.output().is_ok_and(|output| output.status.success())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in NAMES.iter().chain(&["switch"]) {
            let _ = ip(&["netns", "del", &self.namespace(name)]);
        }
    }
}

/// The address of a node.
pub(super) fn address(node: usize) -> String {
    format!("10.77.0.{}", node + 1)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(arguments).output();
    let Output { status, stderr, .. } = ran.map_err(|error| format!("the program `ip` cannot be started: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&stderr).trim()))
}
