//! Rows as a database gives them: texts under the names of their columns.

use std::collections::BTreeMap;

/// Why no report can be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{table} has no column {column}: it is of another version of the program")]
    NoColumn { table: String, column: String },
    #[error("{table}.{column} is {value:?}, which is no number")]
    NoNumber {
        table: String,
        column: String,
        value: String,
    },
    #[error("the snapshot has no table {0}: it is of another version of the program")]
    NoTable(String),
    #[error("{0}")]
    Span(String),
}

/// A table by the names of its columns.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Table {
    pub name: String,
    pub columns: Vec<String>,
    /// Null is none.
    pub rows: Vec<Vec<Option<String>>>,
}

/// A row that knows its table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'t> {
    table: &'t Table,
    cells: &'t [Option<String>],
}

impl Table {
    pub fn new(name: &str, columns: &[&str], rows: &[&[&str]]) -> Table {
        let cell = |c: &&str| (!c.is_empty()).then(|| (*c).to_string());
        Table {
            name: name.to_string(),
            columns: columns.iter().map(|c| (*c).to_string()).collect(),
            rows: rows.iter().map(|r| r.iter().map(cell).collect()).collect(),
        }
    }

    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells })
    }

    fn at(&self, column: &str) -> Result<usize, Error> {
        let at = self.columns.iter().position(|c| c == column);
        at.ok_or_else(|| Error::NoColumn {
            table: self.name.clone(),
            column: column.to_string(),
        })
    }

    /// Sums of a column by the values of others.
    pub fn sums(
        &self,
        keys: &[&str],
        value: &str,
        wanted: impl Fn(&Row<'_>) -> Result<bool, Error>,
    ) -> Result<BTreeMap<Vec<String>, f64>, Error> {
        let mut sums = BTreeMap::new();
        for row in self.rows() {
            if !wanted(&row)? {
                continue;
            }
            let key: Vec<String> = keys
                .iter()
                .map(|k| row.text(k).map(str::to_string))
                .collect::<Result<_, _>>()?;
            *sums.entry(key).or_insert(0.0) += row.number(value)?;
        }
        Ok(sums)
    }
}

impl<'t> Row<'t> {
    /// The value of a column; empty for null.
    pub fn text(&self, column: &str) -> Result<&'t str, Error> {
        let at = self.table.at(column)?;
        Ok(self.cells.get(at).and_then(Option::as_deref).unwrap_or(""))
    }

    /// The value as a number; zero for null.
    pub fn number(&self, column: &str) -> Result<f64, Error> {
        let text = self.text(column)?;
        if text.is_empty() {
            return Ok(0.0);
        }
        text.parse().map_err(|_| Error::NoNumber {
            table: self.table.name.clone(),
            column: column.to_string(),
            value: text.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_column_is_named_and_a_wrong_number_too() {
        let t = Table::new("latch", &["name", "gets"], &[&["redo", "7"], &["lru", "x"]]);
        let mut rows = t.rows();
        let first = rows.next().unwrap();
        assert_eq!(
            (first.text("name"), first.number("gets")),
            (Ok("redo"), Ok(7.0))
        );
        let missing = first.text("misses").unwrap_err().to_string();
        assert!(missing.contains("latch has no column misses"), "{missing}");
        let wrong = rows.next().unwrap().number("gets").unwrap_err().to_string();
        assert!(
            wrong.contains("latch.gets") && wrong.contains("\"x\""),
            "{wrong}"
        );
    }
}
