//! Reads snapshots of the workload for a report: those that are kept, and what is counted now.
//!
//! Whoever gives the rows is a [`Source`]: a client's connection (`braid report`), or a session of
//! the instance ([`super::report`], the console).

use workload::{ROW_SOURCES, Snapshot, Span, Table};

use super::{SHARED, queries};

/// Gives the rows of queries.
pub trait Source {
    type Error: From<workload::Error>;

    /// The rows of a query as texts. `name` is what the table is called in errors.
    fn table(&mut self, name: &str, sql: &str) -> Result<Table, Self::Error>;

    /// The warnings since this was called last, a line for each.
    fn warnings(&mut self) -> String;
}

fn refused<T, E: From<workload::Error>>(why: impl Into<String>) -> Result<T, E> {
    Err(workload::Error::Span(why.into()).into())
}

/// A snapshot that is kept.
fn kept<S: Source>(source: &mut S, id: i64) -> Result<Snapshot, S::Error> {
    let head = format!(
        "select format, snap_time, extract(epoch from snap_time) as seconds, scn, missing \
         from perfstat.snapshot where snap_id = {id}"
    );
    let head = source.table("snapshot", &head)?;
    let Some(row) = head.rows().next() else {
        return refused(format!(
            "there is no snapshot {id}; braid report --list shows those that there are"
        ));
    };
    let mut snapshot = Snapshot {
        id,
        format: row.number("format")? as i64,
        time: row.text("snap_time")?.to_string(),
        seconds: row.number("seconds")?,
        scn: row.text("scn")?.to_string(),
        missing: row.text("missing")?.to_string(),
        ..Snapshot::default()
    };
    if snapshot.format != workload::FORMAT {
        // Its tables may be other ones; the span says so.
        return Ok(snapshot);
    }
    for (name, _) in queries() {
        let sql = match name {
            SHARED => format!(
                "select * from perfstat.{SHARED} where sql_id in (select sql_id from \
                 perfstat.sqlstats where snap_id = {id})"
            ),
            // They are for the history of sessions.
            "ash" => continue,
            name => format!("select * from perfstat.{name} where snap_id = {id}"),
        };
        let table = source.table(name, &sql)?;
        snapshot.tables.insert(name.to_string(), table);
    }
    Ok(snapshot)
}

/// What is counted now, without a snapshot of it.
pub fn now<S: Source>(source: &mut S) -> Result<Snapshot, S::Error> {
    source.warnings();
    let sql = "select clock_timestamp() as time, extract(epoch from clock_timestamp()) as seconds";
    let clock = source.table("clock", sql)?;
    let mut snapshot = Snapshot {
        format: workload::FORMAT,
        ..Snapshot::default()
    };
    if let Some(row) = clock.rows().next() {
        snapshot.time = row.text("time")?.to_string();
        snapshot.seconds = row.number("seconds")?;
    }
    for (name, query) in queries() {
        if name != "ash" {
            let table = source.table(name, &query)?;
            snapshot.tables.insert(name.to_string(), table);
        }
    }
    snapshot.missing = source.warnings();
    Ok(snapshot)
}

/// Whether there is a table of snapshots.
pub fn are_there<S: Source>(source: &mut S) -> Result<bool, S::Error> {
    let sql = "select 1 as one from pg_tables where schemaname = 'perfstat' \
               and tablename = 'snapshot'";
    Ok(!source.table("pg_tables", sql)?.rows.is_empty())
}

/// The snapshots, the oldest first.
pub fn list<S: Source>(source: &mut S) -> Result<Table, S::Error> {
    if !are_there(source)? {
        return refused(
            "there are no snapshots yet: one is taken every snapshot_interval, and by \
             select create_snapshot()",
        );
    }
    let sql = "select snap_id, snap_time, scn, taken_by, took_micro, missing \
               from perfstat.snapshot order by snap_id";
    source.table("snapshot", sql)
}

/// The snapshots between which a report is made: those that are named, or the last two.
pub fn ends<S: Source>(
    source: &mut S,
    from: Option<i64>,
    to: Option<i64>,
) -> Result<(i64, i64), S::Error> {
    let mut ids = Vec::new();
    for row in list(source)?.rows() {
        ids.push(row.number("snap_id")? as i64);
    }
    let Some(to) = to.or(ids.last().copied()) else {
        return refused("there are no snapshots yet");
    };
    let before = ids.iter().rev().find(|id| **id < to).copied();
    match from.or(before) {
        Some(from) => Ok((from, to)),
        None => refused(format!(
            "there is no snapshot before {to}, and a report is of the time between two: \
             select create_snapshot() takes one"
        )),
    }
}

/// The span between two snapshots, of one instance or all.
pub fn span<S: Source>(
    source: &mut S,
    (from, to): (i64, i64),
    instance: Option<u16>,
) -> Result<Span, S::Error> {
    let (begin, mut end) = (kept(source, from)?, kept(source, to)?);
    if end.format == workload::FORMAT {
        let steps = source.table(ROW_SOURCES, &row_sources(from, to))?;
        end.tables.insert(ROW_SOURCES.to_string(), steps);
    }
    Ok(Span::new(begin, end, instance)?)
}

/// Samples of clients' sessions between two snapshots, by step of a plan and event. A kept sample
/// stands for ten seconds.
fn row_sources(from: i64, to: i64) -> String {
    let by = "inst_id, sql_id, sql_plan_hash_value, sql_plan_line_id, sql_plan_operation, event";
    format!(
        "select {by}, count(*) * 10 as seconds from perfstat.ash where snap_id > {from} and \
         snap_id <= {to} and session_type = 'USER' and sql_id is not null group by {by}"
    )
}
