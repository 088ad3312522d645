//! What an instance has counted since its start or since it was reset, of tables and indexes
//! (`v$object_usage`) and of the database (`v$database_usage`). PostgreSQL's views are the sums
//! over all instances ([`super::pg_stat`]).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use block::ObjectId;
use block::value::Datum;
use wait::segment::SegmentStat::{
    self, LogicalReads, PhysicalReads, RowsDeleted, RowsFetched, RowsInserted, RowsRead,
    RowsUpdated, Scans,
};

use super::Source::Here;
use super::value::{NULL, int8};
use super::{Context, Rows, VirtualTable, everywhere};
use crate::dict::Table;
use crate::error::Result;
use crate::session::NOBODY;
use crate::types::SqlType::{self, Int8, TimestampTz};
use crate::usage::Group;

pub const OBJECTS: &str = "v$object_usage";
pub const DATABASE: &str = "v$database_usage";

/// Counts of an object, by the names of their columns.
const COUNTS: [(&str, SegmentStat); 8] = [
    ("scans", Scans),
    ("rows_read", RowsRead),
    ("rows_fetched", RowsFetched),
    ("rows_inserted", RowsInserted),
    ("rows_updated", RowsUpdated),
    ("rows_deleted", RowsDeleted),
    ("blocks_read", PhysicalReads),
    ("blocks_looked_at", LogicalReads),
];

/// Of tables: rows changed since all columns were last analyzed, and rows that there are more than
/// at the last analysis, by transactions that are committed.
const OF_TABLES: [&str; 2] = ["rows_changed", "new_rows"];
const ROWS_CHANGED: usize = COUNTS.len();
const NEW_ROWS: usize = COUNTS.len() + 1;

/// Sessions that there are: the last column of [`DATABASE`].
const BACKENDS: &str = "backends";

pub static VIEWS: LazyLock<[VirtualTable; 2]> = LazyLock::new(|| {
    let column = |name: &'static str| (name, Int8);
    let counts = COUNTS.iter().map(|(name, _)| column(name));
    // Of what the counts of a table are: the segment, and the analyses that the instance knows.
    let known = [
        column("object_id"),
        column("data_object_id"),
        ("analyzed", TimestampTz),
        ("all_analyzed", TimestampTz),
    ];
    let objects = known.into_iter().chain(counts);
    let objects = objects.chain(OF_TABLES.map(column));
    let since = ["since", "writer_since", "redo_since"];
    let groups = Group::ALL.iter().zip(since).flat_map(|(group, since)| {
        let names = group.names().iter().map(|name| column(name));
        [(since, TimestampTz)].into_iter().chain(names)
    });
    [
        view(OBJECTS, objects.collect(), objects_rows),
        view(
            DATABASE,
            groups.chain([column(BACKENDS)]).collect(),
            database_row,
        ),
    ]
});

/// Made once for the life of the process, as the others are.
fn view(
    name: &'static str,
    columns: Vec<(&'static str, SqlType)>,
    rows: fn(&Context) -> Result<Rows>,
) -> VirtualTable {
    VirtualTable {
        schema: "pg_catalog",
        name,
        columns: columns.leak(),
        rows: Here(rows),
    }
}

/// The analyses of a table that an instance knows of: by when the counts of what has changed since
/// began. An instance reads the dictionary when it has a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Analyzed {
    /// In microseconds from 2000; zero: never.
    last: i64,
    /// Of all columns.
    whole: i64,
}

impl Analyzed {
    fn of(cx: &Context, t: &Table) -> Analyzed {
        let stats = cx.dict.stats(t.oid);
        Analyzed {
            last: stats.map_or(0, |s| s.analyzed),
            whole: stats.map_or(0, |s| s.all_analyzed),
        }
    }

    fn columns(self) -> [Datum; 2] {
        [self.last, self.whole].map(|at| match at {
            0 => NULL,
            at => Datum::TimestampTz(at),
        })
    }
}

/// The tables, indexes and sequences of which anything was counted.
fn objects_rows(cx: &Context) -> Result<Rows> {
    let database = &cx.database;
    let counted = database.usage.of_objects();
    let mut rows = Rows::new();
    let mut add = |oid: u32, segment: ObjectId, of_table: Option<(Analyzed, [i64; 2])>| {
        let counts = counted.get(&segment.0);
        if counts.is_none() && of_table.is_none_or(|(_, n)| n == [0; 2]) {
            return;
        }
        let mut row = vec![int8(oid), int8(segment.0)];
        row.extend(of_table.map_or([NULL, NULL], |(of, _)| of.columns()));
        row.extend(COUNTS.map(|(_, stat)| int8(counts.map_or(0, |c| c.of(stat)))));
        row.extend(match of_table {
            Some((_, counts)) => counts.map(Datum::Int8),
            None => [NULL, NULL],
        });
        rows.push(row);
    };
    for t in cx.dict.tables() {
        let object = t.engine().object;
        let since = database.changes.of(object.0);
        let changed = i64::try_from(since.changed).unwrap_or(i64::MAX);
        let analyzed = Analyzed::of(cx, t);
        add(t.oid, object, Some((analyzed, [changed, since.live])));
        for (of, i) in t.engine().indexes.iter().zip(&t.indexes) {
            add(i.oid, of.object, None);
        }
    }
    for s in cx.dict.sequences() {
        add(s.oid, s.engine().object, None);
    }
    Ok(rows)
}

fn database_row(cx: &Context) -> Result<Rows> {
    let mut row = Vec::new();
    for group in Group::ALL {
        let (since, counts) = cx.database.usage.of_group(group);
        row.push(Datum::TimestampTz(since));
        row.extend(counts.into_iter().map(int8));
    }
    let is_client = |s: &&Arc<wait::session::Session>| {
        s.kind == wait::session::Kind::User && s.identity().role != NOBODY
    };
    row.push(int8(wait::session::list().iter().filter(is_client).count()));
    Ok(vec![row])
}

/// The counts of an object on all instances.
#[derive(Clone, Default)]
pub struct Object([i64; COUNTS.len() + OF_TABLES.len()]);

impl Object {
    pub fn of(&self, stat: SegmentStat) -> i64 {
        let at = COUNTS.iter().position(|(_, of)| *of == stat);
        at.map_or(0, |at| self.0[at])
    }

    /// Looks at blocks that found them in the cache.
    pub fn hits(&self) -> i64 {
        (self.of(LogicalReads) - self.of(PhysicalReads)).max(0)
    }

    pub fn rows_changed(&self) -> i64 {
        self.0[ROWS_CHANGED]
    }

    pub fn new_rows(&self) -> i64 {
        self.0[NEW_ROWS]
    }
}

/// The counts of all objects on all instances, by the relation's number. An instance that has not
/// heard yet of an analysis or of another segment has changed nothing since.
pub fn objects(cx: &Context) -> Result<HashMap<u32, Object>> {
    let mut all: HashMap<u32, Object> = HashMap::new();
    for row in everywhere::rows_of(OBJECTS, cx)? {
        // Behind the numbers of the instance and of the object.
        let [
            _,
            Datum::Int8(oid),
            Datum::Int8(segment),
            last,
            whole,
            counts @ ..,
        ] = row.as_slice()
        else {
            continue;
        };
        let oid = u32::try_from(*oid).unwrap_or(0);
        let table = cx.dict.table_by_oid(oid);
        let [of_last, of_whole] = table.map_or([NULL, NULL], |t| Analyzed::of(cx, t).columns());
        let is_here = table.is_some_and(|t| i64::from(t.segment) == *segment);
        let sums = all.entry(oid).or_default();
        for (at, (sum, count)) in sums.0.iter_mut().zip(counts).enumerate() {
            let counts = match at {
                ROWS_CHANGED => *whole == of_whole,
                NEW_ROWS => *last == of_last && is_here,
                _ => true,
            };
            if let (Datum::Int8(n), true) = (count, counts) {
                *sum = sum.saturating_add(*n);
            }
        }
    }
    Ok(all)
}

/// The counts of a group on all instances, and since when each of them has counted.
pub struct Sums {
    /// The latest such time, in microseconds from 2000.
    pub since: i64,
    /// Sessions of clients that there are.
    pub backends: i64,
    group: Group,
    counts: Vec<i64>,
}

impl Sums {
    pub fn of(&self, name: &str) -> i64 {
        let at = self.group.names().iter().position(|n| *n == name);
        let at = at.unwrap_or_else(|| panic!("invariant: {name} is counted"));
        self.counts[at]
    }
}

pub fn sums(cx: &Context, group: Group) -> Result<Sums> {
    let width = |g: &Group| 1 + g.names().len();
    let before = Group::ALL.iter().take_while(|g| **g != group);
    // Behind the number of the instance and the groups before.
    let from = 1 + before.map(width).sum::<usize>();
    let mut sums = Sums {
        since: 0,
        backends: 0,
        group,
        counts: vec![0; group.names().len()],
    };
    for row in everywhere::rows_of(DATABASE, cx)? {
        if let Some(Datum::Int8(n)) = row.last() {
            sums.backends = sums.backends.saturating_add(*n);
        }
        let mut own = row.iter().skip(from);
        if let Some(Datum::TimestampTz(since)) = own.next() {
            sums.since = sums.since.max(*since);
        }
        for (sum, count) in sums.counts.iter_mut().zip(own) {
            if let Datum::Int8(n) = count {
                *sum = sum.saturating_add(*n);
            }
        }
    }
    Ok(sums)
}
