//! The results of the runs, and the median of several.

use serde::{Deserialize, Serialize};

use crate::registry::{Against, Bar, Figure, Limit, Peer, Row, US};
use crate::rounds::Ending;

/// The line that a program printed, and what the parent knows besides.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) peer: String,
    pub(crate) workload: String,
    pub(crate) n: u64,
    #[serde(default)]
    pub(crate) workers: usize,
    #[serde(default)]
    pub(crate) round: u64,
    pub(crate) secs: f64,
    pub(crate) ns_per_op: f64,
    pub(crate) rss_mb: Option<f64>,
    pub(crate) bytes_per_actor: Option<f64>,
}

impl Run {
    /// Reads the output of a program. It must match the request, and have a figure.
    pub(crate) fn read(output: &str, round: u64, workers: usize, asked: (&str, &str, u64)) -> Result<Run, String> {
        let run: Run =
            serde_json::from_str(output.trim()).map_err(|problem| format!("printed {output:?}: {problem}"))?;
        if (run.peer.as_str(), run.workload.as_str(), run.n) != asked || run.ns_per_op <= 0.0 {
            return Err(format!("was asked for {asked:?}, and printed {output:?}"));
        }
        Ok(Run { round, workers, ..run })
    }
}

pub(crate) struct Failure {
    pub(crate) peer: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) problem: String,
}

/// The median of several figures, with the least and the most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` if there are no figures. Of an even number of figures, it is the mean of the two in the middle.
    pub(crate) fn of(mut figures: Vec<f64>) -> Option<Spread> {
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let (one, other) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
        Some(Spread { median: f64::midpoint(one, other), min, max })
    }
}

/// The result of a bar: the ratio, the peer or the other workload, and whether the bar is reached.
pub(crate) struct Verdict {
    pub(crate) ratio: f64,
    pub(crate) fastest: &'static str,
    pub(crate) is_met: bool,
}

pub(crate) struct Report {
    pub(crate) runs: Vec<Run>,
    pub(crate) failures: Vec<Failure>,
    /// The versions of the peers that took part.
    pub(crate) versions: Vec<(String, String)>,
    pub(crate) ending: Ending,
}

impl Report {
    pub(crate) fn new(versions: Vec<(String, String)>) -> Report {
        Report { runs: Vec::new(), failures: Vec::new(), versions, ending: Ending::Complete }
    }

    pub(crate) fn has_failed(&self, peer: &str, workload: &str) -> bool {
        self.failures.iter().any(|failure| failure.peer == peer && failure.workload == workload)
    }

    fn figures(&self, peer: &str, workload: &str, figure: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        let those = self.runs.iter().filter(|run| run.peer == peer && run.workload == workload);
        Spread::of(those.filter_map(figure).collect())
    }

    /// The subject of a row of the table.
    pub(crate) fn spread(&self, peer: &str, row: &Row) -> Option<Spread> {
        self.spread_in(peer, row.workload, row.figure)
    }

    fn spread_in(&self, peer: &str, workload: &str, figure: Figure) -> Option<Spread> {
        self.figures(peer, workload, |run| match figure {
            Figure::Time => Some(run.ns_per_op),
            Figure::Bytes => run.bytes_per_actor,
        })
    }

    pub(crate) fn peak(&self, peer: &str, row: &Row) -> Option<Spread> {
        self.figures(peer, row.workload, |run| run.rss_mb)
    }

    /// A peer's median divided by ours.
    pub(crate) fn ratio(&self, peer: &str, row: &Row) -> Option<f64> {
        Some(self.spread(peer, row)?.median / self.spread(US, row)?.median)
    }

    /// Compares Procession's median with the best of those that a bar is about. `None` if either was not measured.
    pub(crate) fn verdict(&self, bar: &Bar, row: &Row, peers: &[Peer]) -> Option<Verdict> {
        let is_meant = |peer: &&Peer| match bar.against {
            Against::All => peer.name != US,
            Against::Rust => peer.name != US && !peer.is_script(),
            Against::One(name) => peer.name == name,
            Against::Ourselves(_) => false,
        };
        let medians =
            peers.iter().filter(is_meant).filter_map(|peer| Some((peer.name, self.spread(peer.name, row)?.median)));
        let (fastest, median) = match bar.against {
            Against::Ourselves(workload) => (workload, self.spread_in(US, workload, row.figure)?.median),
            _ => medians.min_by(|(_, one), (_, other)| one.total_cmp(other))?,
        };
        let ratio = self.spread(US, row)?.median / median;
        let is_met = match bar.limit {
            Limit::AtMost(most) => ratio <= most,
            Limit::Below(bound) => ratio < bound,
        };
        Some(Verdict { ratio, fastest, is_met })
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, Spread};

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![3.0, 9.0, 1.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn a_line_about_something_else_is_refused() {
        let line =
            r#"{"peer":"go","workload":"ring","n":5,"secs":0.1,"ns_per_op":20.0,"rss_mb":1.5,"bytes_per_actor":null}"#;
        let run = Run::read(line, 2, 4, ("go", "ring", 5)).unwrap();
        assert_eq!((run.round, run.workers, run.rss_mb), (2, 4, Some(1.5)));
        assert!(Run::read(line, 2, 4, ("go", "ring", 6)).is_err());
        assert!(Run::read("", 2, 4, ("go", "ring", 5)).is_err());
    }
}
