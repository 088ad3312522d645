//! The results of a lab, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Characters of the longest bar of a chart.
const BAR: f64 = 48.0;

#[derive(Serialize, Deserialize, Default)]
pub struct Report {
    pub lab: String,
    pub paper: String,
    pub sections: Vec<Section>,
    pub goals: Vec<Goal>,
    /// The figures by name, for programs.
    pub figures: BTreeMap<String, f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    Text(String),
    Table(Table),
    Chart(Chart),
}

#[derive(Serialize, Deserialize, Default)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
pub struct Chart {
    pub title: String,
    pub unit: String,
    pub bars: Vec<(String, f64)>,
}

/// A goal of a lab, and whether it was reached.
#[derive(Serialize, Deserialize)]
pub struct Goal {
    pub what: String,
    pub paper: String,
    pub asked: String,
    pub ours: String,
    pub met: bool,
}

impl Report {
    pub fn text(&mut self, text: impl Into<String>) {
        self.sections.push(Section::Text(text.into()));
    }

    pub fn table(&mut self, title: impl Into<String>, columns: &[&str], rows: Vec<Vec<String>>) {
        self.sections.push(Section::Table(Table {
            title: title.into(),
            columns: columns.iter().map(|c| c.to_string()).collect(),
            rows,
        }));
    }

    pub fn chart(&mut self, title: &str, unit: &str, bars: Vec<(String, f64)>) {
        self.sections.push(Section::Chart(Chart {
            title: title.to_string(),
            unit: unit.to_string(),
            bars,
        }));
    }

    /// Whether every goal was met.
    pub fn reached(&self) -> bool {
        self.goals.iter().all(|goal| goal.met)
    }

    pub fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.lab, "=".repeat(self.lab.chars().count()))?;
        writeln!(f, "{}", self.paper)?;
        for section in &self.sections {
            match section {
                Section::Text(text) => writeln!(f, "\n{text}")?,
                Section::Table(table) => write!(f, "\n{table}")?,
                Section::Chart(chart) => write!(f, "\n{chart}")?,
            }
        }
        if self.goals.is_empty() {
            return Ok(());
        }
        let row = |g: &Goal| {
            let met = if g.met { "yes" } else { "NO" };
            let all = [&g.what, &g.paper, &g.asked, &g.ours];
            all.map(String::clone)
                .into_iter()
                .chain([met.to_string()])
                .collect()
        };
        let columns = ["", "the paper", "asked of Braid", "here", "reached"];
        let table = Table {
            title: "In short".to_string(),
            columns: columns.map(str::to_string).to_vec(),
            rows: self.goals.iter().map(row).collect(),
        };
        write!(f, "\n{table}")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(i));
            let cells = cells.chain(self.columns.get(i));
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let is_number = |c: &str| c.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let line = |f: &mut fmt::Formatter<'_>, row: &[String]| {
            for (cell, width) in row.iter().zip(&widths) {
                match is_number(cell) {
                    true => write!(f, "  {cell:>width$}")?,
                    false => write!(f, "  {cell:<width$}")?,
                }
            }
            writeln!(f)
        };
        writeln!(f, "{}", self.title)?;
        line(f, &self.columns)?;
        let rules: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        writeln!(f, "  {}", rules.join("  "))?;
        self.rows.iter().try_for_each(|row| line(f, row))
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.title, self.unit)?;
        let longest = self.bars.iter().map(|(_, v)| *v).fold(0.0, f64::max);
        let labels = self.bars.iter().map(|(l, _)| l.chars().count());
        let width = labels.max().unwrap_or(0);
        for (label, value) in &self.bars {
            let share = if longest > 0.0 { value / longest } else { 0.0 };
            let bar = "#".repeat((share * BAR).round() as usize);
            writeln!(f, "  {label:<width$}  {bar} {value:.2}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_by_people() {
        let mut r = Report {
            lab: "lab".to_string(),
            paper: "what it is about".to_string(),
            ..Report::default()
        };
        let rows = vec![
            vec!["one".to_string(), "7.66".to_string()],
            vec!["both".to_string(), "81.23".to_string()],
        ];
        r.table("Times", &["instances", "s"], rows);
        r.chart(
            "Times",
            "s",
            vec![("one".to_string(), 1.0), ("two".to_string(), 2.0)],
        );
        r.goals.push(Goal {
            what: "ratio".to_string(),
            paper: "10.6".to_string(),
            asked: "at most 2".to_string(),
            ours: "1.50".to_string(),
            met: true,
        });
        let text = r.to_string();
        let table = "Times\n  instances  s    \n  ---------  -----\n  one         7.66\n  both       81.23\n";
        assert!(text.contains(table), "{text}");
        let chart = format!(
            "  one  {} 1.00\n  two  {} 2.00\n",
            "#".repeat(24),
            "#".repeat(48)
        );
        assert!(text.contains(&chart), "{text}");
        assert!(
            text.contains("ratio       10.6  at most 2       1.50  yes"),
            "{text}"
        );
    }
}
