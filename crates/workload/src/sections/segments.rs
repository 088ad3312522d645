//! Tables and indexes by what was done with their blocks.

use std::collections::BTreeMap;

use super::ROWS;
use crate::document::{Section, number, percent};
use crate::span::Span;
use crate::table::Error;

/// What a segment is of: schema, name, kind.
type Of = (String, String, String);

/// The counters of the segments over the span.
struct Segments {
    all: BTreeMap<Of, BTreeMap<&'static str, f64>>,
}

const COLUMNS: [&str; 10] = [
    "logical_reads",
    "physical_reads",
    "read_micro",
    "block_changes",
    "buffer_busy_waits",
    "buffer_busy_micro",
    "row_lock_waits",
    "row_lock_micro",
    "gc_waits",
    "gc_micro",
];

impl Segments {
    fn of(span: &Span) -> Result<Segments, Error> {
        let keys = ["owner", "object_name", "object_type"];
        let mut all: BTreeMap<Of, BTreeMap<&'static str, f64>> = BTreeMap::new();
        for column in COLUMNS {
            for (key, value) in span.delta("segment", &keys, column)? {
                let [owner, name, kind] = &key[..] else {
                    continue;
                };
                let of = (owner.clone(), name.clone(), kind.clone());
                // A segment that made room for others in the first snapshot begins anew.
                all.entry(of).or_default().insert(column, value.max(0.0));
            }
        }
        Ok(Segments { all })
    }

    /// A table of those for which a counter rose most.
    fn ordered(
        &self,
        (title, reading): (&str, &str),
        by: &'static str,
        columns: &[(&'static str, &str)],
    ) -> Section {
        let mut names = vec!["<Owner", "<Object", "<Type"];
        names.extend(columns.iter().map(|(_, name)| *name));
        names.push("% Total");
        let mut s = Section::new(title, reading, &names);
        let value = |of: &BTreeMap<&str, f64>, column: &str| of.get(column).copied().unwrap_or(0.0);
        let total: f64 = self.all.values().map(|v| value(v, by)).sum();
        let mut rows: Vec<_> = self
            .all
            .iter()
            .filter(|(_, v)| value(v, by) > 0.0)
            .collect();
        rows.sort_by(|a, b| value(b.1, by).total_cmp(&value(a.1, by)));
        for ((owner, name, kind), values) in rows.into_iter().take(ROWS) {
            let cells = columns
                .iter()
                .map(|(column, _)| match column.ends_with("_micro") {
                    true => number(value(values, column) / 1e6, 3),
                    false => number(value(values, column), 0),
                });
            let head = [owner.clone(), name.clone(), kind.clone()];
            let share = percent(value(values, by), total);
            s.row(head.into_iter().chain(cells).chain([share]));
        }
        s
    }
}

pub fn sections(span: &Span) -> Result<Vec<Section>, Error> {
    let segments = Segments::of(span)?;
    let tables = [
        (
            (
                "Segments by Logical Reads",
                "Blocks that were looked at, with those of undo that their rows needed. An index \
                 that is looked at much is used; a table with far more than its indexes is scanned.",
            ),
            "logical_reads",
            &[
                ("logical_reads", "Logical Reads"),
                ("block_changes", "Block Changes"),
            ][..],
        ),
        (
            (
                "Segments by Physical Reads",
                "Blocks that came from disk. One that is read again and again has no room in the \
                 cache: see Buffer Cache Advice.",
            ),
            "physical_reads",
            &[
                ("physical_reads", "Physical Reads"),
                ("read_micro", "Time (s)"),
                ("logical_reads", "Logical Reads"),
            ][..],
        ),
        (
            (
                "Segments by Buffer Busy Waits",
                "Waits of sessions of one instance for the same block in memory. Spread the rows, \
                 or have fewer sessions change them.",
            ),
            "buffer_busy_waits",
            &[
                ("buffer_busy_waits", "Waits"),
                ("buffer_busy_micro", "Time (s)"),
            ][..],
        ),
        (
            (
                "Segments by Row Lock Waits",
                "Waits for rows that other transactions had changed. The application has them: \
                 shorter transactions, or fewer that want the same rows.",
            ),
            "row_lock_waits",
            &[("row_lock_waits", "Waits"), ("row_lock_micro", "Time (s)")][..],
        ),
        (
            (
                "Segments by Global Cache Waits",
                "Waits for blocks, and for the right to use them, of other instances.",
            ),
            "gc_waits",
            &[("gc_waits", "Waits"), ("gc_micro", "Time (s)")][..],
        ),
    ];
    let mut sections: Vec<Section> =
        (tables.map(|(told, by, columns)| segments.ordered(told, by, columns))).into();
    sections.push(cache_advice(span)?);
    Ok(sections)
}

/// What a cache of another size would have read in the span.
fn cache_advice(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Buffer Cache Advice",
        "Blocks that the same work would have read with a cache of another size, estimated from a \
         sample of the blocks. Where the line falls steeply, memory helps; where it is flat, it \
         does not.",
        &[
            "Inst",
            "Size (MB)",
            "Size Factor",
            "Buffers",
            "Est Reads",
            "Est Read Factor",
        ],
    );
    let keys = ["inst_id", "size_factor"];
    let reads = span.delta("cache_advice", &keys, "estd_physical_reads")?;
    for row in span.at_end("cache_advice")? {
        let of = |factor: &str| -> Result<f64, Error> {
            let key = vec![row.text("inst_id")?.to_string(), factor.to_string()];
            Ok(reads.get(&key).copied().unwrap_or(0.0).max(0.0))
        };
        let (own, here) = (of("1")?, of(row.text("size_factor")?)?);
        s.row([
            row.text("inst_id")?.to_string(),
            number(row.number("size_for_estimate")?, 0),
            number(row.number("size_factor")?, 1),
            number(row.number("buffers_for_estimate")?, 0),
            number(here, 0),
            crate::document::per(here, own, 2),
        ]);
    }
    Ok(s)
}
