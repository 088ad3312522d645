//! How the values of a column are distributed, from a sample of rows: as PostgreSQL's ANALYZE works
//! it out (`compute_scalar_stats`, `analyze_mcv_list`), so that its lists are the same of the same
//! sample.

use std::cmp::Ordering;

use block::folded::FoldedRef;
use block::value::{Datum, DatumRef};

use crate::dict::ColumnStats;
use crate::expr::compare;
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

/// Values wider than that are counted, but stand in no list.
const WIDEST: usize = 1024;

/// A column's value in a row of the sample.
#[derive(Clone)]
pub enum Cell {
    Null,
    /// Too wide to be kept: its width.
    Wide(usize),
    Value(Datum),
}

impl Cell {
    pub fn of(value: DatumRef<'_>) -> Cell {
        match value {
            DatumRef::Null => Cell::Null,
            v if width(v) > WIDEST => Cell::Wide(width(v)),
            v => Cell::Value(v.to_datum()),
        }
    }
}

/// Bytes that PostgreSQL stores for a value.
fn width(value: DatumRef<'_>) -> usize {
    let of_bytes = |n: usize| n + if n < 127 { 1 } else { 4 };
    match value {
        DatumRef::Null => 0,
        DatumRef::Bool(_) => 1,
        DatumRef::Int2(_) => 2,
        DatumRef::Int4(_) | DatumRef::Float4(_) | DatumRef::Date(_) => 4,
        DatumRef::Int8(_)
        | DatumRef::Float8(_)
        | DatumRef::Timestamp(_)
        | DatumRef::TimestampTz(_) => 8,
        DatumRef::Uuid(_) | DatumRef::Interval(_) => 16,
        DatumRef::Text(s) | DatumRef::Folded(FoldedRef(s)) => of_bytes(s.len()),
        DatumRef::Bytea(b) => of_bytes(b.len()),
        DatumRef::Array(a) => of_bytes(a.as_bytes().len()),
        DatumRef::Composite(row) => of_bytes(row.as_bytes().len()),
        DatumRef::Json(j) => of_bytes(j.as_bytes().len()),
        DatumRef::Numeric(n) => 3 + 2 * n.to_string().len().div_ceil(4),
    }
}

/// What a sample is of.
#[derive(Clone, Copy)]
pub struct Sample {
    pub rows: f64,
    /// Rows of the whole table.
    pub of: f64,
    /// `default_statistics_target`: the length of the lists.
    pub target: usize,
}

/// A value that the sample has: where it begins in the order of values, and how often it is there.
struct Group {
    start: usize,
    count: usize,
}

/// The statistics of a column whose cells are given in the order of the rows.
pub fn of_column(ty: SqlType, cells: impl Iterator<Item = Cell>, sample: Sample) -> ColumnStats {
    let mut values: Vec<(Datum, usize)> = Vec::new();
    let (mut nulls, mut wide, mut bytes) = (0usize, 0usize, 0usize);
    for cell in cells {
        match cell {
            Cell::Null => nulls += 1,
            Cell::Wide(width) => {
                wide += 1;
                bytes += width;
            }
            Cell::Value(v) => {
                bytes += width(v.borrow());
                let at = values.len();
                values.push((v, at));
            }
        }
    }
    let present = (values.len() + wide) as f64;
    let mut found = ColumnStats {
        null_fraction: share(nulls as f64, sample.rows),
        width: share(bytes as f64, present),
        ..ColumnStats::default()
    };
    if values.is_empty() {
        // Of wide values nobody has looked whether they are the same.
        found.distinct = if wide > 0 {
            found.null_fraction - 1.0
        } else {
            0.0
        };
        return found;
    }
    values.sort_by(|(a, at), (b, bt)| order(a, b).then(at.cmp(bt)));
    let groups = groups(&values);
    found.distinct = distinct(&groups, values.len() + wide, wide, &found, sample);
    let mut common: Vec<&Group> = groups.iter().filter(|g| g.count > 1).collect();
    common.sort_by_key(|g| (std::cmp::Reverse(g.count), g.start));
    let all = common.len() == groups.len() && wide == 0 && found.distinct > 0.0;
    if !(all && common.len() <= sample.target) {
        common.truncate(sample.target);
        let kept = worth_keeping(&common, &found, sample);
        common.truncate(kept);
    }
    let text = |at: usize| text(ty, &values[at].0);
    found.common = common.iter().map(|g| text(g.start)).collect();
    found.frequencies = common
        .iter()
        .map(|g| g.count as f64 / sample.rows)
        .collect();
    found.bounds = bounds(&groups, &common, sample.target)
        .into_iter()
        .map(text)
        .collect();
    found.correlation = correlation(&values);
    found
}

fn share(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

/// Values of one column can always be compared.
fn order(a: &Datum, b: &Datum) -> Ordering {
    compare(a.borrow(), b.borrow()).unwrap_or(Ordering::Equal)
}

fn text(ty: SqlType, value: &Datum) -> String {
    let mut out = Vec::new();
    pgtype::text_out(ty, value.borrow(), &IoSettings::default(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn groups(values: &[(Datum, usize)]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (at, (value, _)) in values.iter().enumerate() {
        match groups.last_mut() {
            Some(g) if order(&values[g.start].0, value).is_eq() => g.count += 1,
            _ => groups.push(Group {
                start: at,
                count: 1,
            }),
        }
    }
    groups
}

/// Distinct values of the table, by the estimator of Haas and Stokes: n*d / (n - f1 + f1*n/N), with
/// f1 the values that were seen exactly once.
fn distinct(
    groups: &[Group],
    present: usize,
    wide: usize,
    found: &ColumnStats,
    sample: Sample,
) -> f64 {
    let often = groups.iter().filter(|g| g.count > 1).count();
    let once = (groups.len() - often + wide) as f64;
    let seen = (groups.len() + wide) as f64;
    if often == 0 {
        return found.null_fraction - 1.0;
    }
    let n = present as f64;
    let total = sample.of * (1.0 - found.null_fraction);
    let estimate = match (once > 0.0, total > 0.0) {
        // Whatever there is comes again and again: it has been seen.
        (false, _) => seen,
        (true, true) => {
            let estimate = n * seen / ((n - once) + once * n / total);
            (estimate.max(seen).min(total) + 0.5).floor()
        }
        (true, false) => 0.0,
    };
    // It is taken to grow with the table.
    match estimate > 0.1 * sample.of {
        true => -(estimate / sample.of),
        false => estimate,
    }
}

/// How many of the most common values are that much more common than the others that it is no
/// accident of the sample.
fn worth_keeping(common: &[&Group], found: &ColumnStats, sample: Sample) -> usize {
    let (n, total) = (sample.rows, sample.of);
    if n >= total || total <= 1.0 {
        return common.len();
    }
    let distinct = found.distinct_of(total);
    let mut kept = common.len();
    let mut others: f64 = common.iter().map(|g| g.count as f64).sum();
    while kept > 0 {
        let count = common[kept - 1].count as f64;
        others -= count;
        let mut rest = (1.0 - others / n - found.null_fraction).clamp(0.0, 1.0);
        let values_of_rest = distinct - (kept - 1) as f64;
        if values_of_rest > 1.0 {
            rest /= values_of_rest;
        }
        // The deviation of a count in a sample without replacement.
        let with_value = total * count / n;
        let variance =
            n * with_value * (total - with_value) * (total - n) / (total * total * (total - 1.0));
        if count > rest * n + 2.0 * variance.sqrt() + 0.5 {
            break;
        }
        kept -= 1;
    }
    kept
}

/// Where, in the order of values, the bounds of groups of equal size are, of what is not among the
/// most common.
fn bounds(groups: &[Group], common: &[&Group], target: usize) -> Vec<usize> {
    let is_common = |g: &Group| common.iter().any(|c| c.start == g.start);
    let rest: Vec<&Group> = groups.iter().filter(|g| !is_common(g)).collect();
    let wanted = rest.len().min(target + 1);
    if wanted < 2 {
        return Vec::new();
    }
    let rows: Vec<usize> = rest
        .iter()
        .flat_map(|g| g.start..g.start + g.count)
        .collect();
    let last = rows.len() - 1;
    (0..wanted).map(|i| rows[i * last / (wanted - 1)]).collect()
}

/// The correlation of the places of values in their order and of their rows in the table.
fn correlation(values: &[(Datum, usize)]) -> Option<f64> {
    let n = values.len() as f64;
    if n < 2.0 {
        return None;
    }
    let products: f64 = values
        .iter()
        .enumerate()
        .map(|(place, (_, row))| place as f64 * *row as f64)
        .sum();
    // Both run from 0 to n - 1.
    let sum = (n - 1.0) * n / 2.0;
    let squares = (n - 1.0) * n * (2.0 * n - 1.0) / 6.0;
    Some((n * products - sum * sum) / (n * squares - sum * sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[Option<i32>], total: f64) -> ColumnStats {
        let cells = values
            .iter()
            .map(|v| v.map_or(Cell::Null, |v| Cell::Value(Datum::Int4(v))));
        let sample = Sample {
            rows: values.len() as f64,
            of: total,
            target: 4,
        };
        of_column(SqlType::Int4, cells, sample)
    }

    #[test]
    fn values_that_are_each_there_once_are_a_share_of_the_rows() {
        let values: Vec<_> = (0..8).map(|v| (v % 4 != 3).then_some(v)).collect();
        let found = of(&values, 80.0);
        assert_eq!(found.distinct, -0.75);
        assert_eq!(found.null_fraction, 0.25);
        assert_eq!(found.width, 4.0);
        assert_eq!(found.correlation, Some(1.0));
        assert!(found.common.is_empty());
        assert_eq!(found.bounds, ["0", "1", "2", "4", "6"]);
    }

    #[test]
    fn few_values_are_all_listed_the_most_common_first() {
        let values: Vec<_> = (0..12).map(|v| Some(i32::from(v % 3 != 0))).collect();
        let found = of(&values, 1200.0);
        assert_eq!(found.distinct, 2.0);
        assert_eq!(found.common, ["1", "0"]);
        assert_eq!(found.frequencies, [8.0 / 12.0, 4.0 / 12.0]);
        assert!(found.bounds.is_empty());
    }

    #[test]
    fn a_value_is_common_only_if_that_is_no_accident() {
        let mut values: Vec<_> = (0..200).map(Some).collect();
        values.extend([Some(7), Some(9)]);
        values.extend([Some(500); 100]);
        let found = of(&values, 30_200.0);
        assert_eq!(found.common, ["500"]);
        assert_eq!(found.bounds.first().map(String::as_str), Some("0"));
        assert_eq!(found.bounds.last().map(String::as_str), Some("199"));
    }

    #[test]
    fn many_values_for_the_rows_are_a_share_of_them() {
        let found = of(&[Some(1); 3], 3.0);
        assert_eq!(found.distinct, -1.0 / 3.0);
        assert_eq!(found.common, ["1"]);
    }

    #[test]
    fn falling_values_have_the_correlation_of_their_opposite() {
        let values: Vec<_> = (0..9).rev().map(Some).collect();
        assert_eq!(of(&values, 9.0).correlation, Some(-1.0));
    }
}
