//! A report as it is put together: a head, notes, and tables with a sentence on how to read each.

/// A report.
#[derive(Clone, Default, Debug)]
pub struct Document {
    pub title: String,
    /// Facts of the head: name and value.
    pub head: Vec<(String, String)>,
    /// What the reader must know before believing a table.
    pub notes: Vec<String>,
    pub sections: Vec<Section>,
}

/// A table.
#[derive(Clone, Default, Debug)]
pub struct Section {
    pub title: String,
    /// How to read it.
    pub reading: String,
    /// Names of columns. Those that begin with `<` have their values at the left.
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub chart: Option<Chart>,
}

#[derive(Clone, Debug)]
pub enum Chart {
    /// Horizontal bars.
    Bars(Vec<Bar>),
    /// Layers over time, stacked.
    Layers {
        times: Vec<String>,
        layers: Vec<Layer>,
    },
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub shown: String,
}

#[derive(Clone, Debug)]
pub struct Layer {
    pub label: String,
    pub values: Vec<f64>,
}

impl Section {
    pub fn new(title: &str, reading: &str, columns: &[&str]) -> Section {
        Section {
            title: title.to_string(),
            reading: reading.to_string(),
            columns: columns.iter().map(|c| (*c).to_string()).collect(),
            ..Section::default()
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "{}", self.title);
        self.rows.push(row);
    }

    pub(crate) fn is_left(column: &str) -> bool {
        column.starts_with('<')
    }

    pub(crate) fn name(column: &str) -> &str {
        column.strip_prefix('<').unwrap_or(column)
    }
}

/// A number with thousands apart, and so many decimals.
pub fn number(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let is_negative = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    format!("{}{grouped}{rest}", if is_negative { "-" } else { "" })
}

pub fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1}", part / whole * 100.0),
        false => String::new(),
    }
}

/// A ratio; empty without anything to divide by.
pub fn per(part: f64, whole: f64, decimals: usize) -> String {
    match whole > 0.0 {
        true => number(part / whole, decimals),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(1234567.891, 1), "1,234,567.9");
        assert_eq!(number(-999.0, 0), "-999");
        assert_eq!(number(-0.001, 1), "0.0");
        assert_eq!(number(1000.0, 0), "1,000");
        assert_eq!(
            (percent(1.0, 0.0), per(3.0, 0.0, 1)),
            (String::new(), String::new())
        );
    }
}
