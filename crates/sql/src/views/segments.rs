//! What sessions did with the blocks of each table and index (`v$segment_statistics`), and what the
//! cache would read if it had another size (`v$db_cache_advice`).

use std::collections::HashMap;

use block::value::Datum;
use wait::segment::{self, SegmentStat};

use super::Source::Here;
use super::value::{NULL, int4, int8, text};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Float8, Int4, Int8, Text};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$segment_statistics",
        columns: &[
            ("owner", Text),
            ("object_name", Text),
            ("object_type", Text),
            ("obj#", Int8),
            ("statistic_name", Text),
            ("statistic#", Int4),
            ("value", Int8),
        ],
        rows: Here(statistics),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$db_cache_advice",
        columns: &[
            ("size_for_estimate", Int8),
            ("size_factor", Float8),
            ("buffers_for_estimate", Int8),
            ("estd_physical_read_factor", Float8),
            ("estd_physical_reads", Int8),
        ],
        rows: Here(advice),
    },
];

/// Sizes in MB; a size of factor 1 is the cache's own.
fn advice(cx: &Context) -> Result<Rows> {
    let all = cx.database.engine().cache().advice();
    let own = all.iter().find(|r| r.tenths == 10).map_or(0, |r| r.reads);
    let rows = all.iter().map(|r| {
        vec![
            int8((r.blocks as u64 * block::BLOCK_SIZE as u64) >> 20),
            Datum::Float8(r.tenths as f64 / 10.0),
            int8(r.blocks),
            match own {
                0 => NULL,
                own => Datum::Float8(r.reads as f64 / own as f64),
            },
            int8(r.reads),
        ]
    });
    Ok(rows.collect())
}

/// What a segment is of.
pub struct Named {
    /// Its schema, as the field names what an object belongs to.
    pub owner: String,
    pub name: String,
    pub kind: &'static str,
}

/// What each segment is of: a table, an index, a sequence.
pub fn named(cx: &Context) -> HashMap<u32, Named> {
    let mut all = HashMap::new();
    let mut add = |object: block::ObjectId, owner: &str, name: &str, kind| {
        let (owner, name) = (owner.to_string(), name.to_string());
        all.insert(object.0, Named { owner, name, kind });
    };
    let system = cx.database.engine().dictionary();
    add(system.object, "pg_catalog", "(dictionary)", "TABLE");
    for i in &system.indexes {
        add(i.object, "pg_catalog", "(dictionary index)", "INDEX");
    }
    for t in cx.dict.tables() {
        let owner = cx.dict.schema_name(t.schema);
        add(t.engine().object, owner, &t.name, "TABLE");
        for (of, i) in t.engine().indexes.iter().zip(&t.indexes) {
            add(of.object, owner, &i.name, "INDEX");
        }
    }
    for s in cx.dict.sequences() {
        let owner = cx.dict.schema_name(s.schema);
        add(s.engine().object, owner, &s.name, "SEQUENCE");
    }
    all
}

/// The name of a segment that may be gone, or of what has none.
pub fn name_of(names: &HashMap<u32, Named>, object: u32) -> String {
    match names.get(&object) {
        Some(named) => named.name.clone(),
        None if object == segment::OTHERS => "(others)".to_string(),
        None if object == segment::GONE => "(dropped)".to_string(),
        None if object == block::ObjectId::NONE.0 => "(undo)".to_string(),
        None => format!("(object {object})"),
    }
}

fn statistics(cx: &Context) -> Result<Rows> {
    let names = named(cx);
    let mut rows = Rows::new();
    for r in segment::rows() {
        let of = names.get(&r.object);
        for (at, stat) in SegmentStat::ALL.iter().enumerate() {
            if r.values[at] == 0 {
                continue;
            }
            rows.push(vec![
                of.map_or(NULL, |n| text(&*n.owner)),
                text(name_of(&names, r.object)),
                of.map_or(NULL, |n| text(n.kind)),
                match r.object {
                    segment::OTHERS | segment::GONE => NULL,
                    object => Datum::Int8(object.into()),
                },
                text(stat.name()),
                int4(at),
                int8(r.values[at]),
            ]);
        }
    }
    Ok(rows)
}
