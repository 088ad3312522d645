//! Charts as SVG. Colours are told apart by the colour-blind, and by their order in the legend.

use std::fmt::Write;

use crate::document::{Bar, Chart, Layer};
use crate::html::escaped;

/// Okabe and Ito's palette.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#666666",
];
const WIDTH: f64 = 760.0;
const ROW: f64 = 20.0;
const LABEL: f64 = 260.0;
const HEIGHT: f64 = 180.0;
const AXIS: f64 = 44.0;

pub fn svg(chart: &Chart) -> String {
    match chart {
        Chart::Bars(bars) => of_bars(bars),
        Chart::Layers { times, layers } => of_layers(times, layers),
    }
}

fn of_bars(bars: &[Bar]) -> String {
    let most = bars.iter().map(|b| b.value).fold(0.0, f64::max);
    let height = ROW * bars.len() as f64;
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for (at, bar) in bars.iter().enumerate() {
        let y = ROW * at as f64;
        let length = match most > 0.0 {
            true => bar.value / most * (WIDTH - LABEL - 110.0),
            false => 0.0,
        };
        let (text, middle) = (escaped(&bar.label), y + 14.0);
        let colour = COLOURS[at % COLOURS.len()];
        let _ = write!(
            out,
            "<text x=\"{x:.0}\" y=\"{middle:.0}\" text-anchor=\"end\">{text}</text>\
             <rect x=\"{LABEL}\" y=\"{top:.0}\" width=\"{length:.1}\" height=\"14\" fill=\"{colour}\"/>\
             <text x=\"{end:.1}\" y=\"{middle:.0}\">{shown}</text>",
            x = LABEL - 8.0,
            top = y + 3.0,
            end = LABEL + length + 6.0,
            shown = escaped(&bar.shown),
        );
    }
    out + "</svg>"
}

fn of_layers(times: &[String], layers: &[Layer]) -> String {
    let sum = |at: usize| -> f64 { layers.iter().filter_map(|l| l.values.get(at)).sum() };
    let most = (0..times.len()).map(sum).fold(0.0, f64::max);
    let legend = 16.0 * layers.len().div_ceil(3) as f64;
    let total = HEIGHT + AXIS + legend;
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {total}\" role=\"img\">");
    if most <= 0.0 || times.is_empty() {
        return out + "</svg>";
    }
    let x = |at: usize| AXIS + (WIDTH - AXIS) / times.len() as f64 * at as f64;
    let y = |value: f64| 10.0 + (HEIGHT - 10.0) * (1.0 - value / most);
    let mut below = vec![0.0; times.len()];
    for (n, layer) in layers.iter().enumerate() {
        let above: Vec<f64> = (below.iter().enumerate())
            .map(|(at, b)| b + layer.values.get(at).copied().unwrap_or(0.0))
            .collect();
        // Steps, as a sample says nothing of what is between it and the next.
        let mut points = String::new();
        for (at, value) in above.iter().enumerate() {
            let _ = write!(
                points,
                "{:.1},{:.1} {:.1},{:.1} ",
                x(at),
                y(*value),
                x(at + 1),
                y(*value)
            );
        }
        for (at, value) in below.iter().enumerate().rev() {
            let _ = write!(
                points,
                "{:.1},{:.1} {:.1},{:.1} ",
                x(at + 1),
                y(*value),
                x(at),
                y(*value)
            );
        }
        let colour = COLOURS[n % COLOURS.len()];
        let _ = write!(
            out,
            "<polygon points=\"{}\" fill=\"{colour}\"/>",
            points.trim_end()
        );
        let (lx, ly) = (
            AXIS + 240.0 * (n % 3) as f64,
            HEIGHT + AXIS - 10.0 + 16.0 * (n / 3) as f64,
        );
        let _ = write!(
            out,
            "<rect x=\"{lx}\" y=\"{top}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{tx}\" y=\"{base}\">{label}</text>",
            top = ly,
            tx = lx + 15.0,
            base = ly + 10.0,
            label = escaped(&layer.label),
        );
        below = above;
    }
    let _ = write!(
        out,
        "<text x=\"{l}\" y=\"18\" text-anchor=\"end\">{most:.1}</text>\
         <text x=\"{l}\" y=\"{HEIGHT}\" text-anchor=\"end\">0</text>\
         <text x=\"{AXIS}\" y=\"{b}\">{first}</text>\
         <text x=\"{WIDTH}\" y=\"{b}\" text-anchor=\"end\">{last}</text>",
        l = AXIS - 6.0,
        b = HEIGHT + 16.0,
        first = escaped(&times[0]),
        last = escaped(&times[times.len() - 1]),
    );
    out + "</svg>"
}
