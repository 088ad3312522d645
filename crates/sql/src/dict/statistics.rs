//! What ANALYZE found out about a table: how many rows, and how the values of its columns are
//! distributed. Values stand as text, in the form that no session's settings change.
//!
//! **Invariant.** Statistics decide on costs, never on answers: a plan is right whatever they say.

use std::sync::OnceLock;

use block::value::Datum;
use serde::{Deserialize, Serialize};

use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    pub table: u32,
    /// The segment that the table had; zero if that is not known.
    #[serde(default)]
    pub segment: u32,
    pub rows: f64,
    pub blocks: u64,
    /// By position; none for a column that was not analyzed.
    pub columns: Vec<Option<ColumnStats>>,
    /// When, in microseconds from 2000.
    #[serde(default)]
    pub analyzed: i64,
    /// When all columns were last analyzed at once, likewise.
    #[serde(default)]
    pub all_analyzed: i64,
    #[serde(default)]
    pub by_command: Analyses,
    /// By `abp0`.
    #[serde(default)]
    pub by_itself: Analyses,
}

impl Stats {
    /// The rows that were found where the table has its rows now.
    pub fn rows_in(&self, segment: u32) -> f64 {
        match [0, segment].contains(&self.segment) {
            true => self.rows,
            false => 0.0,
        }
    }
}

/// How often a table was analyzed in one way.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Analyses {
    pub count: u64,
    /// When it was last, in microseconds from 2000; zero: never.
    pub last: i64,
}

impl Analyses {
    /// When the last one was; NULL if there was none.
    pub fn when(self) -> Datum {
        match self.last {
            0 => Datum::Null,
            last => Datum::TimestampTz(last),
        }
    }

    /// With one more.
    pub fn and_at(self, when: i64) -> Analyses {
        Analyses {
            count: self.count + 1,
            last: when,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ColumnStats {
    /// Distinct values, as PostgreSQL writes it: their number, or, if that grows with the table,
    /// minus their share in the rows.
    pub distinct: f64,
    pub null_fraction: f64,
    /// Average width of a value in bytes.
    #[serde(default)]
    pub width: f64,
    /// The most common values with their shares in the rows, the most common first.
    #[serde(default)]
    pub common: Vec<String>,
    #[serde(default)]
    pub frequencies: Vec<f64>,
    /// Bounds of groups of about as many rows each, of the values that are not among the most
    /// common.
    #[serde(default)]
    pub bounds: Vec<String>,
    /// How far the order of the rows is that of the values: from -1 to 1.
    #[serde(default)]
    pub correlation: Option<f64>,
    /// The values of the lists, once they were wanted.
    #[serde(skip)]
    pub(crate) values: OnceLock<Values>,
}

#[derive(Clone, Debug, Default)]
pub struct Values {
    pub common: Vec<Datum>,
    pub bounds: Vec<Datum>,
}

impl Stats {
    pub fn column(&self, at: usize) -> Option<&ColumnStats> {
        self.columns.get(at)?.as_ref()
    }
}

impl ColumnStats {
    /// Distinct values in so many rows.
    pub fn distinct_of(&self, rows: f64) -> f64 {
        let count = match self.distinct < 0.0 {
            true => -self.distinct * rows,
            false => self.distinct,
        };
        count.min(rows)
    }

    /// The values of the lists. Both lists are empty if the column has another type by now.
    pub fn values(&self, ty: SqlType) -> &Values {
        self.values.get_or_init(|| {
            let parsed = |list: &[String]| {
                let parse = |text: &String| pgtype::text_in(ty, text, &IoSettings::default()).ok();
                list.iter().map(parse).collect::<Option<Vec<Datum>>>()
            };
            let both = parsed(&self.common).zip(parsed(&self.bounds));
            let (common, bounds) = both.unwrap_or_default();
            Values { common, bounds }
        })
    }
}
