//! Counts of what seeds meet: what no seed meets is not tested. A seed counts, writes the counts as
//! a line for the process that started it, and a campaign adds them up.

use std::collections::BTreeMap;

/// How often each thing was met.
pub type Met = BTreeMap<String, u64>;

/// The engine's own counts, over all instances.
pub fn statistics() -> impl Iterator<Item = (String, u64)> {
    let stats = wait::views::system_stats().into_iter();
    stats.map(|(stat, n)| (format!("stat {}", stat.name()), n))
}

const BEGINS: &str = "met: ";

pub fn line(met: &Met) -> String {
    let parts: Vec<String> = met
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(what, n)| format!("{what}={n}"))
        .collect();
    format!("{BEGINS}{}", parts.join("; "))
}

/// How often each thing was met in all, and in how many seeds.
#[derive(Default)]
pub struct Sums(BTreeMap<String, (u64, u64)>);

impl Sums {
    /// Adds the counts in the output of a seed.
    pub fn add(&mut self, said: &str) {
        let line = said.lines().rev().find_map(|l| l.strip_prefix(BEGINS));
        let parts = line.into_iter().flat_map(|l| l.split("; "));
        for (what, n) in parts.filter_map(|p| p.split_once('=')) {
            let sum = self.0.entry(what.to_string()).or_default();
            sum.0 += n.parse::<u64>().expect("a seed counts in numbers");
            sum.1 += 1;
        }
    }

    pub fn tell(&self) {
        for (what, (times, seeds)) in &self.0 {
            eprintln!("met in {seeds} seeds, {times} times: {what}");
        }
    }
}
