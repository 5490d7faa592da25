//! `docs/dashboard.json`: a dashboard for Grafana over the names of the OpenMetrics text.

use std::collections::BTreeSet;

use crate::node::*;
use crate::openmetrics::program;
use crate::parser::Metrics;
use crate::parts::add_parts;

const DASHBOARD: &str = include_str!("../../docs/dashboard.json");

/// All names of series in the dashboard.
fn shown() -> BTreeSet<&'static str> {
    let begins = DASHBOARD.match_indices("procession_").map(|(place, _)| &DASHBOARD[place..]);
    begins
        .map(|rest| &rest[..rest.find(|letter: char| letter != '_' && !letter.is_ascii_lowercase()).unwrap()])
        .collect()
}

#[test]
fn the_dashboard_shows_each_figure_and_no_other() {
    let (runtime, _manual) = program();
    let metrics = Metrics::parse(&add_parts(quiet(&runtime)).to_openmetrics());
    let series: BTreeSet<_> =
        metrics.0.values().flat_map(|family| &family.samples).map(|sample| &sample.name[..]).collect();
    for name in shown() {
        assert!(series.contains(name), "the dashboard shows {name}, and the text does not have it");
    }
    for name in series {
        assert!(shown().contains(name), "the text has {name}, and the dashboard does not show it");
    }
}

/// Of a gauge there is no rate. A counter as such says nothing on a chart.
#[test]
fn the_dashboard_takes_rates_of_counters_alone() {
    let counts = |name: &str| ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix));
    for name in shown() {
        let uses = DASHBOARD.matches(&format!("{name}{{")).count();
        let rates = DASHBOARD.matches(&format!("rate({name}{{")).count();
        assert!(if counts(name) { rates == uses } else { rates == 0 }, "{name}: {rates} rates of {uses} uses");
    }
}

#[cfg(feature = "durable")]
#[test]
fn the_dashboard_is_json_and_its_panels_have_numbers_of_their_own() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len());
}
