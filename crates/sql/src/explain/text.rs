//! EXPLAIN's text: a line for each step, and lines for what is said of it.

use std::time::Duration;

use super::options::Options;
use super::step::{Actual, Entry, Step};

pub(super) fn lines(entries: &[Entry], options: &Options) -> impl Iterator<Item = String> {
    let note = |depth: usize, text: &str| format!("{}{text}", "  ".repeat(depth * 3 + 1));
    entries.iter().filter_map(move |entry| {
        Some(match entry {
            Entry::Step(step) => line(step, options),
            Entry::Note(n) => note(n.depth, &n.text),
            Entry::Heading(h) => note(h.depth, h.text.as_deref()?),
        })
    })
}

/// Whether something has a line of the text.
pub(super) fn has_line(entry: &Entry) -> bool {
    !matches!(entry, Entry::Heading(h) if h.text.is_none())
}

/// A step at its depth: the first bare, the others behind an arrow.
fn line(step: &Step, options: &Options) -> String {
    let took = step.actual.map(|a| actual(&a, options));
    let text = expected(step, options.costs) + &took.unwrap_or_default();
    match step.depth {
        0 => text,
        n => format!("{}->  {text}", "  ".repeat(n * 3 - 2)),
    }
}

/// A step with the rows that are expected of it.
pub(super) fn expected(step: &Step, costs: bool) -> String {
    match step.rows {
        Some(rows) if costs => format!("{}  (rows={rows:.0})", step.label),
        _ => step.label.clone(),
    }
}

/// What a step took, behind its name.
fn actual(a: &Actual, options: &Options) -> String {
    let mut text = format!("  (actual rows={}", a.rows);
    if a.loops > 1 {
        text += &format!(" loops={}", a.loops);
    }
    if options.timing {
        text += &format!(" time={}", milliseconds(a.took.time));
    }
    if options.buffers {
        text += &format!(" gets={} reads={}", a.took.gets, a.took.reads);
    }
    text + ")"
}

pub(super) fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
