//! Who made sessions wait, and with which part of the work: waits for other instances taken apart, and blocks by object.

use std::collections::HashMap;

use block::value::Datum;
use wait::remote::{self, LatencyRow, PARTS, Part, RemoteWait, Sum};

use super::Source::Here;
use super::value::{NULL, int4, int8, optional, text};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Int4, Int8, Text};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$gc_latency",
        columns: &[
            ("event", Text),
            ("instance", Int4),
            ("part", Text),
            ("waits", Int8),
            ("time_waited_micro", Int8),
            ("average_wait_micro", Int8),
            ("p50_wait_micro", Int8),
            ("p99_wait_micro", Int8),
            ("max_wait_micro", Int8),
            ("percent", Int4),
        ],
        rows: Here(latencies),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$session_gc_latency",
        columns: &[
            ("sid", Int4),
            ("event", Text),
            ("instance", Int4),
            ("part", Text),
            ("total_waits", Int8),
            ("time_waited_micro", Int8),
        ],
        rows: Here(of_sessions),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$gc_latency_histogram",
        columns: &[
            ("event", Text),
            ("instance", Int4),
            ("part", Text),
            ("wait_time_below_micro", Int8),
            ("wait_count", Int8),
        ],
        rows: Here(histograms),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$gc_transfers",
        columns: &[
            ("object_id", Int8),
            ("object_name", Text),
            ("from_instance", Int4),
            ("to_instance", Int4),
            ("current_blocks", Int8),
            ("cr_blocks", Int8),
            ("two_way", Int8),
            ("three_way", Int8),
            ("busy", Int8),
            ("flush_waits", Int8),
            ("flush_micro", Int8),
            ("time_micro", Int8),
        ],
        rows: Here(transfers),
    },
];

/// The whole wait beside its parts.
const TOTAL: &str = "total";

/// The sums of a row, each with its name: the whole first.
fn sums(r: &LatencyRow) -> impl Iterator<Item = (&'static str, &Sum)> {
    let parts = Part::ALL.iter().map(|p| p.name()).zip(&r.parts);
    std::iter::once((TOTAL, &r.total)).chain(parts)
}

fn latencies(_: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for r in remote::latencies() {
        let (waits, total_ns) = (r.total.waits.max(1), r.total.time_ns.max(1));
        for (name, sum) in sums(&r) {
            // Of all waits, also of those in which this part took no time: so that the averages add up.
            rows.push(vec![
                text(r.event.name()),
                int4(r.instance),
                text(name),
                int8(sum.waits),
                int8(sum.time_ns / 1000),
                int8(sum.time_ns / waits / 1000),
                sum.histogram.percentile(50).map_or(NULL, int8),
                sum.histogram.percentile(99).map_or(NULL, int8),
                int8(sum.max_ns / 1000),
                int4(u128::from(sum.time_ns) * 100 / u128::from(total_ns)),
            ]);
        }
    }
    Ok(rows)
}

/// As the first, of the sessions that there are; a part's waits are all in which it could have been.
fn of_sessions(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for s in cx.sessions() {
        for r in s.remote_waits() {
            let parts = Part::ALL.iter().map(|p| p.name()).zip(r.parts_ns);
            rows.extend(
                std::iter::once((TOTAL, r.time_ns))
                    .chain(parts)
                    .map(|(part, ns)| {
                        vec![
                            int4(s.sid),
                            text(r.event.name()),
                            int4(r.instance),
                            text(part),
                            int8(r.waits),
                            int8(ns / 1000),
                        ]
                    }),
            );
        }
    }
    Ok(rows)
}

fn histograms(_: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for r in remote::latencies() {
        for (name, sum) in sums(&r) {
            rows.extend(sum.histogram.buckets().map(|(below_us, waits)| {
                vec![
                    text(r.event.name()),
                    int4(r.instance),
                    text(name),
                    int8(below_us),
                    int8(waits),
                ]
            }));
        }
    }
    Ok(rows)
}

fn transfers(cx: &Context) -> Result<Rows> {
    let me = cx.database.engine().instance();
    let names = object_names(cx);
    let row = |r: remote::TransferRow| {
        let name = r.object.map(|o| match names.get(&o) {
            Some(name) => name.clone(),
            None if o == block::ObjectId::NONE.0 => "(undo)".to_string(),
            None => format!("(object {o})"),
        });
        vec![
            optional_number(r.object),
            text(name.unwrap_or_else(|| "(others)".to_string())),
            int4(r.from),
            int4(me),
            int8(r.current_blocks),
            int8(r.cr_blocks),
            int8(r.two_way),
            int8(r.three_way),
            int8(r.busy),
            int8(r.flush_waits),
            int8(r.flush_ns / 1000),
            int8(r.time_ns / 1000),
        ]
    };
    Ok(remote::transfers().into_iter().map(row).collect())
}

fn optional_number(n: Option<u32>) -> Datum {
    n.map_or(NULL, int8)
}

/// By segment: the blocks of a table, of an index, of a sequence.
pub fn object_names(cx: &Context) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    let system = cx.database.engine().dictionary();
    names.insert(system.object.0, "(dictionary)".to_string());
    for i in &system.indexes {
        names.insert(i.object.0, "(dictionary index)".to_string());
    }
    for t in cx.dict.tables() {
        names.insert(t.engine().object.0, t.name.clone());
        for (of, i) in t.engine().indexes.iter().zip(&t.indexes) {
            names.insert(of.object.0, i.name.clone());
        }
    }
    for s in cx.dict.sequences() {
        names.insert(s.engine().object.0, s.name.clone());
    }
    names
}

/// What views of sessions say of waits for other instances: the instance asked, of the wait under way, and the last one that is over.
pub fn of_session(asked: Option<u16>, last: Option<(u64, RemoteWait)>) -> Vec<Datum> {
    let mut row = vec![asked.map_or(NULL, int4)];
    row.extend([
        last.map_or(NULL, |(seq, _)| int8(seq)),
        optional(last.map(|(_, w)| w.event.name())),
        last.map_or(NULL, |(_, w)| int4(w.instance)),
        last.map_or(NULL, |(_, w)| int8(w.total_ns / 1000)),
    ]);
    match last {
        Some((_, w)) => row.extend(micros(&w.parts_ns).map(int8)),
        None => row.extend([NULL; PARTS]),
    }
    row
}

/// Microseconds that add up to those of the whole: each part ends at the microsecond in which it ends.
fn micros(parts_ns: &[u64; PARTS]) -> [u64; PARTS] {
    let mut end_ns = 0;
    parts_ns.map(|ns| {
        let began_us = end_ns / 1000;
        end_ns += ns;
        end_ns / 1000 - began_us
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_add_up_too() {
        let parts = [1999, 0, 999, 1, 500, 500, 2001, 700];
        let total: u64 = parts.iter().sum();
        assert_eq!(micros(&parts).iter().sum::<u64>(), total / 1000);
        assert_eq!(micros(&[1000; PARTS]), [1; PARTS]);
    }
}
