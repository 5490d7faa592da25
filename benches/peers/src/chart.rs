//! The report as a picture. Each group has a panel, and each workload and peer has a bar. Its height is the ratio to
//! Procession's figure.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::ours::measure::Outcome;
use crate::registry::{Group, Peer, US, peers};
use crate::results::Report;

const WIDTH: u32 = 1_200;
const HEIGHT_OF_PANEL: u32 = 480;
/// The part of a workload's width that its bars take.
const FILLED: f64 = 0.84;
/// The longest name, in characters, that has room beside the next. After a longer one, the next name is a line lower.
const SHORT: usize = 10;
/// The distance of the names from the bars, for the upper and the lower line.
const LINES: [i32; 2] = [8, 24];
/// The position of the legend, to the right of the bars, where it hides none.
const LEGEND: f64 = 1.1;

/// One colour for each peer. They are also distinguishable with colour blindness (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(240, 228, 66),
    RGBColor(90, 90, 90),
];

/// Draws all groups that have figures. Without Procession's figures there is no ratio, and no chart.
pub(crate) fn draw(to: &Path, groups: &[Group], report: &Report) -> Outcome<()> {
    let peers = peers();
    let panels: Vec<_> = groups.iter().filter(|group| !bars(group, &peers, report).is_empty()).collect();
    if panels.is_empty() {
        return Ok(());
    }
    let root = SVGBackend::new(to, (WIDTH, HEIGHT_OF_PANEL * panels.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, group) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
        panel(area, group, &bars(group, &peers, report))?;
    }
    root.present()?;
    Ok(())
}

/// The ratio of one peer in one workload, and its position.
struct Ratio {
    row: usize,
    peer: &'static str,
    color: RGBColor,
    ratio: f64,
}

fn bars(group: &Group, peers: &[Peer], report: &Report) -> Vec<Ratio> {
    let mut bars = Vec::new();
    for (row, one) in group.rows.iter().enumerate() {
        for (peer, color) in peers.iter().filter(|peer| peer.name != US).zip(COLORS.into_iter().cycle()) {
            if let Some(ratio) = report.ratio(peer.name, one) {
                bars.push(Ratio { row, peer: peer.name, color, ratio });
            }
        }
    }
    bars
}

fn panel<B: DrawingBackend>(area: &DrawingArea<B, plotters::coord::Shift>, group: &Group, bars: &[Ratio]) -> Outcome<()>
where
    B::ErrorType: 'static,
{
    let ends = bars.iter().fold((1.0_f64, 1.0_f64), |(least, most), bar| (least.min(bar.ratio), most.max(bar.ratio)));
    let (rows, heights) = (group.rows.len() as f64, (ends.0 / 1.3).min(0.8)..ends.1 * 1.5);
    let title = format!("{}: how many times ours (1 = Procession; higher is slower, or larger)", group.title);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..rows * LEGEND, heights.clone().log_scale())?;
    chart.configure_mesh().disable_x_mesh().disable_x_axis().y_label_formatter(&|y| format!("{y}")).draw()?;
    let centered = ("sans-serif", 13).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    let below = |row: usize| EmptyElement::at((row as f64 + 0.5, heights.start));
    let lines = if group.rows.iter().all(|row| row.workload.len() <= SHORT) { 1 } else { LINES.len() };
    let name = |row: usize| Text::new(group.rows[row].workload, (0, LINES[row % lines]), &centered);
    chart.draw_series((0..group.rows.len()).map(|row| below(row) + name(row)))?;
    let mut names: Vec<_> = bars.iter().map(|bar| (bar.peer, bar.color)).collect();
    names.sort_by_key(|(name, _)| peers().iter().position(|peer| peer.name == *name));
    names.dedup_by_key(|(name, _)| *name);
    let width = FILLED / names.len() as f64;
    for (place, (name, color)) in names.into_iter().enumerate() {
        let mine = || bars.iter().filter(|bar| bar.peer == name);
        let left = |bar: &Ratio| bar.row as f64 + (1.0 - FILLED) / 2.0 + place as f64 * width;
        let series =
            mine().map(|bar| Rectangle::new([(left(bar), 1.0), (left(bar) + width * 0.92, bar.ratio)], color.filled()));
        chart
            .draw_series(series)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()));
        let labels = mine().map(|bar| {
            let above = if bar.ratio < 1.0 { 1.0 } else { bar.ratio };
            EmptyElement::at((left(bar), above)) + Text::new(format!("{:.1}", bar.ratio), (0, -14), ("sans-serif", 9))
        });
        chart.draw_series(labels)?;
    }
    chart.draw_series([PathElement::new([(0.0, 1.0), (rows, 1.0)], BLACK)])?;
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()?;
    Ok(())
}
