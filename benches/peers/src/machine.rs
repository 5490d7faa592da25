//! The machine, the tools and the versions behind a report.

use std::fmt::Write as _;

use crate::arguments::Options;
use crate::registry::Peer;

/// The lock file of this package, which has the versions of the peers.
const LOCK: &str = include_str!("../Cargo.lock");

/// The versions of those peers that are packages.
pub(crate) fn versions(peers: &[Peer]) -> Vec<(String, String)> {
    let packages = peers.iter().filter(|peer| !peer.is_script());
    packages.map(|peer| (peer.name.to_string(), version(peer.name).unwrap_or("?").to_string())).collect()
}

fn version(package: &str) -> Option<&'static str> {
    let entry = LOCK.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{package}\"\n")))?;
    entry.split("version = \"").nth(1)?.split('"').next()
}

/// The load averages of the last 1, 5 and 15 minutes. Linux only.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<_> = text.split(' ').take(3).collect();
    if three.len() == 3 { three.join(", ") } else { String::from("unknown") }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor").to_string()
}

fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {}", std::env::consts::OS, release.trim())
}

/// The head of the report.
pub(crate) fn describe(options: &Options, before: &str, after: &str, versions: &[(String, String)]) -> String {
    let processors = std::thread::available_parallelism().map_or(String::from("?"), |many| many.to_string());
    let mut text = format!("{} processors ({}), {}. ", processors, processor(), system());
    let _ = writeln!(
        text,
        "Load before: {before}; after: {after}. {} workers, {} round(s).",
        options.workers, options.runs
    );
    if options.smoke || options.n.is_some() || cfg!(debug_assertions) {
        text.push_str("**These are not the usual counts, or not an optimised build: the figures mean nothing.**\n");
    }
    let versions: Vec<_> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let _ = writeln!(text, "Versions: {}.", versions.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::versions;
    use crate::registry::peers;

    #[test]
    fn the_version_of_every_package_is_known() {
        let versions = versions(&peers());
        assert_eq!(versions.len(), 9);
        for (name, version) in versions {
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{name} {version}");
        }
    }
}
