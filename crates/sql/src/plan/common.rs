//! The choice of several indexes for conditions that are joined by AND: the rows that all of them
//! lead to are found before any is read.
//!
//! **Invariant.** The conditions stay in the filter: an index has entries of versions that the
//! statement does not see.

use super::estimate::Estimate;
use super::path::{ENTERED, IndexPart, ROW_ANYWHERE};

/// What an entry costs whose row is not read, in rows that a scan of the whole table looks at.
const ENTRY: f64 = 0.7;

/// Entries of an index, the columns of which they say something, and how many they are.
pub struct Part {
    pub part: IndexPart,
    pub columns: Vec<usize>,
    /// Which of the conditions they say all of.
    pub said: Vec<usize>,
    pub rows: f64,
}

/// What several indexes would do together.
pub struct Common {
    pub parts: Vec<IndexPart>,
    pub said: Vec<usize>,
    /// Rows that all of them lead to.
    pub rows: f64,
    pub cost: f64,
}

/// The indexes that cost the least together, if there are at least two: the one that leads to the
/// fewest rows, and each further one that says something of other columns and spares more than it
/// costs. What they say is taken to be independent of each other, as in PostgreSQL.
pub fn best(known: &Estimate<'_>, mut parts: Vec<Part>) -> Option<Common> {
    parts.sort_by(|a, b| a.rows.total_cmp(&b.rows));
    let all = known.rows();
    let mut columns: Vec<usize> = Vec::new();
    let mut common = Common {
        parts: Vec::new(),
        said: Vec::new(),
        rows: all,
        cost: 0.0,
    };
    for next in parts {
        if next.columns.iter().any(|c| columns.contains(c)) {
            continue;
        }
        let entered = ENTERED * next.part.any_of.len().max(1) as f64;
        let entries = entered + next.rows * ENTRY;
        let rows = common.rows * (next.rows / all).min(1.0);
        let spared = (common.rows - rows) * ROW_ANYWHERE;
        if !common.parts.is_empty() && spared <= entries {
            continue;
        }
        common.cost += entries;
        common.rows = rows;
        columns.extend(next.columns);
        common.said.extend(next.said);
        common.parts.push(next.part);
    }
    common.rows = common.rows.max(1.0);
    common.cost += common.rows * ROW_ANYWHERE;
    (common.parts.len() > 1).then_some(common)
}
