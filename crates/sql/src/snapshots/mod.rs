//! Snapshots of the workload: what the `v$` views of all instances have counted, kept in the
//! database itself, so that a report can be made of the time between two of them.
//!
//! Owns the schema `perfstat`, which the first snapshot makes, and the thread `m000` of each
//! instance. A table of it has the columns of its view after the number of the snapshot; the report
//! (crate `report`) reads columns by name.
//!
//! **Invariants.**
//! - A snapshot is one transaction of one instance: all its rows, also those of other instances,
//!   have one commit SCN, or there are none of it.
//! - One instance at a time takes snapshots (an advisory lock of their own), so that an interval
//!   has one snapshot, however many instances there are.
//! - What an instance did not answer is missing from its rows, and `perfstat.snapshot` says so.

pub mod read;
mod report;

use std::sync::{Arc, Weak};
use std::time::Duration;

use block::value::Datum;
use parking_lot::{Condvar, Mutex};
use seam::thread::JoinHandle;
use wait::Event;

use crate::api::Params;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::session::{Keep, SqlSession, now_micros};

pub use report::texts;
pub(crate) use report::workload_report;

/// The layout of the tables. A report reads snapshots of this format alone.
const FORMAT: i64 = workload::FORMAT;
/// The advisory lock of who takes a snapshot: "perfstat" in ASCII.
const LOCK: u64 = 0x7065_7266_7374_6174;
/// How often `m000` looks whether a snapshot is due.
const LOOK: Duration = Duration::from_secs(1);
/// Statements of which a snapshot keeps the figures: those that took longest of the ones that ran
/// since the snapshot before.
const STATEMENTS: u32 = 400;
/// Segments of which a snapshot keeps the figures: those with the most.
const SEGMENTS: u32 = 2000;
/// Bytes of a statement's text that are kept.
const TEXT_BYTES: u32 = 4000;
/// Of ten samples of active sessions one is kept, as in the field's own.
const SAMPLES: u32 = 10;

/// The tables with the queries that fill them. `$SNAP` stands for the snapshot's number, `$SINCE`
/// for the time of the one before.
const TABLES: &[(&str, &str)] = &[
    (
        "instance",
        "select $SNAP::bigint as snap_id, i.*, \
         extract(epoch from i.host_time)::float8 as host_seconds from gv$instance i",
    ),
    (
        "sysstat",
        "select $SNAP::bigint as snap_id, s.* from gv$sysstat s",
    ),
    (
        "system_event",
        "select $SNAP::bigint as snap_id, e.* from gv$system_event e",
    ),
    (
        "event_histogram",
        "select $SNAP::bigint as snap_id, h.* from gv$event_histogram h",
    ),
    (
        "time_model",
        "select $SNAP::bigint as snap_id, t.* from gv$sys_time_model t",
    ),
    (
        "osstat",
        "select $SNAP::bigint as snap_id, o.inst_id, o.stat_name, o.value from gv$osstat o",
    ),
    (
        "latch",
        "select $SNAP::bigint as snap_id, l.inst_id, l.name, l.gets, l.misses, l.sleeps, \
         l.wait_time_micro from gv$latch l",
    ),
    (
        "latch_children",
        "select $SNAP::bigint as snap_id, l.inst_id, l.name, l.\"child#\" as child, l.misses, l.sleeps, \
         l.wait_time_micro from gv$latch_children l where l.misses > 0",
    ),
    (
        "latch_misses",
        "select $SNAP::bigint as snap_id, m.inst_id, m.parent_name, m.location, m.sleep_count \
         from gv$latch_misses m",
    ),
    (
        "segment",
        "select $SNAP::bigint as snap_id, s.inst_id, s.owner, s.object_name, s.object_type, \
         sum(s.value) filter (where s.statistic_name = 'logical reads') as logical_reads, \
         sum(s.value) filter (where s.statistic_name = 'physical reads') as physical_reads, \
         sum(s.value) filter (where s.statistic_name = 'physical read time (microseconds)') \
         as read_micro, \
         sum(s.value) filter (where s.statistic_name = 'db block changes') as block_changes, \
         sum(s.value) filter (where s.statistic_name = 'buffer busy waits') as buffer_busy_waits, \
         sum(s.value) filter (where s.statistic_name = 'buffer busy wait time (microseconds)') \
         as buffer_busy_micro, \
         sum(s.value) filter (where s.statistic_name = 'row lock waits') as row_lock_waits, \
         sum(s.value) filter (where s.statistic_name = 'row lock wait time (microseconds)') \
         as row_lock_micro, \
         sum(s.value) filter (where s.statistic_name = 'gc waits') as gc_waits, \
         sum(s.value) filter (where s.statistic_name = 'gc wait time (microseconds)') as gc_micro \
         from gv$segment_statistics s group by s.inst_id, s.owner, s.object_name, s.object_type \
         order by sum(s.value) desc limit $SEGMENTS",
    ),
    (
        "cache_advice",
        "select $SNAP::bigint as snap_id, a.inst_id, a.size_for_estimate, a.size_factor, \
         a.buffers_for_estimate, a.estd_physical_reads from gv$db_cache_advice a",
    ),
    (
        "undostat",
        "select $SNAP::bigint as snap_id, u.* from gv$undostat u",
    ),
    (
        "rowcache",
        "select $SNAP::bigint as snap_id, r.inst_id, r.parameter, r.count, r.gets, r.getmisses, \
         r.modifications from gv$rowcache r",
    ),
    (
        "gc_latency",
        "select $SNAP::bigint as snap_id, g.* from gv$gc_latency g",
    ),
    (
        "gc_transfers",
        "select $SNAP::bigint as snap_id, g.*, (select min(c.relkind::text) from pg_class c \
         where c.relname = g.object_name) as relkind from gv$gc_transfers g",
    ),
    (
        "session",
        "select $SNAP::bigint as snap_id, s.inst_id, s.sid, s.username, s.program, s.status, \
         s.event, s.seconds_in_wait, s.transaction_id, substr(s.sql_text, 1, $TEXT_BYTES) as sql_text, \
         s.blocking_instance, s.blocking_session, s.service_name, \
         extract(epoch from clock_timestamp() - s.transaction_start)::float8 as transaction_seconds \
         from gv$session s where s.type = 'USER' and (s.transaction_id is not null \
         or s.blocking_session is not null or s.transaction_start is not null)",
    ),
    (
        "service",
        "select $SNAP::bigint as snap_id, s.inst_id, s.service_name, count(*) as sessions \
         from gv$session s where s.type = 'USER' and s.service_name is not null \
         group by s.inst_id, s.service_name",
    ),
    (
        "process",
        "select $SNAP::bigint as snap_id, p.inst_id, p.pname, \
         sum(p.cpu_used_micro)::bigint as cpu_used_micro, \
         sum(p.runnable_micro)::bigint as runnable_micro, \
         count(*) filter (where p.state = 'R') as runnable \
         from gv$bgprocess p group by p.inst_id, p.pname",
    ),
    (
        "remote_wait",
        "select $SNAP::bigint as snap_id, w.inst_id, w.remote_instance, w.event, \
         count(*) as sessions, sum(w.wait_time_micro)::bigint as time_waited_micro \
         from gv$session_wait w where w.remote_instance is not null \
         group by w.inst_id, w.remote_instance, w.event",
    ),
    (
        "parameter",
        "select $SNAP::bigint as snap_id, p.inst_id, p.name, p.display_value from gv$parameter p \
         where not p.isdefault",
    ),
    (
        "sqlstats",
        "select $SNAP::bigint as snap_id, s.inst_id, s.sql_id, s.plan_hash_value, s.executions, \
         s.fetches, s.failures, s.parse_calls, s.loads, s.rows_processed, s.elapsed_time, s.cpu_time, \
         s.runnable_time, s.application_wait_time, s.concurrency_wait_time, s.cluster_wait_time, \
         s.user_io_wait_time, s.commit_wait_time, s.network_wait_time, s.other_wait_time, \
         s.buffer_gets, s.disk_reads, s.redo_size, s.gc_blocks_received, \
         extract(epoch from s.first_load_time)::float8 as first_load \
         from gv$sqlstats s where s.last_active_time >= $SINCE::timestamptz \
         order by s.elapsed_time desc limit $STATEMENTS",
    ),
    (
        "sqltext",
        "select distinct on (s.sql_id) s.sql_id, substr(s.sql_text, 1, $TEXT_BYTES) as sql_text \
         from gv$sqlstats s where s.last_active_time >= $SINCE::timestamptz \
         and s.sql_id in (select h.sql_id from perfstat.sqlstats h where h.snap_id = $SNAP) \
         and s.sql_id not in (select t.sql_id from perfstat.sqltext t)",
    ),
    (
        "ash",
        "select $SNAP::bigint as snap_id, a.inst_id, a.sample_id, a.sample_time, a.session_id, \
         a.session_type, a.program, a.session_state, a.event, a.wait_class, a.p1, a.p2, a.p3, \
         a.time_waited, a.sql_id, a.transaction_id, a.blocking_instance, a.last_remote_instance, \
         a.\"current_obj#\" as current_obj, a.object_name, \
         a.blocking_session, a.sql_plan_hash_value, a.sql_plan_line_id, a.sql_plan_operation \
         from gv$active_session_history a \
         where a.sample_time >= $SINCE::timestamptz and a.sample_id % $SAMPLES = 0",
    ),
];

/// What does not belong to one snapshot, and goes when nothing refers to it any more.
const SHARED: &str = "sqltext";

/// A session that works for the instance.
struct Work(SqlSession);

impl Work {
    fn begin(database: &Arc<Database>) -> Result<Work> {
        let mut work = Work(SqlSession::of_instance(database)?);
        work.run("begin")?;
        // A table of somebody's in `public` would come before the view of its name.
        work.run("set local search_path = pg_catalog")?;
        Ok(work)
    }

    fn run(&mut self, sql: &str) -> Result<Vec<Vec<Datum>>> {
        let session = &mut self.0;
        let statement = session.parse(sql, &[])?;
        let mut portal = session.bind(&statement, Params::default())?;
        let mut kept = Keep::default();
        session.execute(&mut portal, 0, &mut kept)?;
        session.sync()?;
        Ok(kept.rows)
    }

    fn value(&mut self, sql: &str) -> Result<Option<Datum>> {
        let rows = self.run(sql)?;
        Ok(rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next()))
    }

    fn number(&mut self, sql: &str) -> Result<i64> {
        match self.value(sql)? {
            Some(Datum::Int8(n)) => Ok(n),
            Some(Datum::Null) | None => Ok(0),
            other => Err(Error::internal(format!("{sql}: {other:?} is no number"))),
        }
    }
}

/// Takes a snapshot. None if `if_older` is given and there is a younger one, or another instance
/// takes one now.
pub(crate) fn take(database: &Arc<Database>, if_older: Option<Duration>) -> Result<Option<i64>> {
    let began = now_micros();
    let mut work = Work::begin(database)?;
    let lock = match if_older {
        Some(_) => "try_advisory_xact_lock",
        None => "advisory_xact_lock",
    };
    let got = work.value(&format!("select pg_{lock}({LOCK})"))?;
    if got == Some(Datum::Bool(false)) {
        return Ok(None);
    }
    make_tables(&mut work)?;
    let format = work.number("select max(format)::bigint from perfstat.snapshot")?;
    if format != 0 && format != FORMAT {
        let message = format!(
            "the snapshots in schema perfstat have format {format}, and this program writes {FORMAT}"
        );
        let error = Error::new("55000", message);
        return Err(error.hint("Drop the schema perfstat, or keep it under another name."));
    }
    let newest = "select (extract(epoch from max(snap_time)) * 1000000)::bigint \
                  from perfstat.snapshot";
    let newest = work.number(newest)?;
    let unix = began + UNIX_TO_PG_MICROS;
    if let Some(age) = if_older
        && newest != 0
        && unix.saturating_sub(newest) < age.as_micros() as i64
    {
        return Ok(None);
    }
    let number = work.number("select max(snap_id) from perfstat.snapshot")? + 1;
    let since = work.value("select max(snap_time)::text from perfstat.snapshot")?;
    let since = match since {
        Some(Datum::Text(time)) => time,
        _ => "2000-01-01".to_string(),
    };
    for (table, query) in TABLES {
        let query = filled(query, number, &since);
        work.run(&format!("insert into perfstat.{table} {query}"))?;
    }
    let missing = warnings(&mut work.0);
    let scn = database.engine().scn().0;
    let took = now_micros() - began;
    work.run(&format!(
        "insert into perfstat.snapshot values ({number}, {FORMAT}, clock_timestamp(), {scn}, {}, \
         {took}, '{}')",
        database.engine().instance(),
        missing.replace('\'', "''"),
    ))?;
    let days = database.params().int("snapshot_retention");
    remove_older(&mut work, days)?;
    work.run("commit")?;
    Ok(Some(number))
}

/// Microseconds between 1970 and 2000.
const UNIX_TO_PG_MICROS: i64 = 946_684_800_000_000;

fn filled(query: &str, number: i64, since: &str) -> String {
    query
        .replace("$SNAP", &number.to_string())
        .replace("$SINCE", &format!("'{since}'"))
        .replace("$STATEMENTS", &STATEMENTS.to_string())
        .replace("$TEXT_BYTES", &TEXT_BYTES.to_string())
        .replace("$SEGMENTS", &SEGMENTS.to_string())
        .replace("$SAMPLES", &SAMPLES.to_string())
}

/// The tables of a snapshot, each with the query that gives its rows now.
fn queries() -> Vec<(&'static str, String)> {
    let of = |(table, query): &(&'static str, &str)| {
        let query = match *table {
            SHARED => "select distinct on (s.sql_id) s.sql_id, s.sql_text from gv$sqlstats s",
            _ => query,
        };
        (*table, filled(query, 0, "2000-01-01"))
    };
    TABLES.iter().map(of).collect()
}

fn make_tables(work: &mut Work) -> Result<()> {
    let there = "select count(*) from pg_namespace where nspname = 'perfstat'";
    if work.number(there)? != 0 {
        return check_owners(work);
    }
    work.run("create schema perfstat")?;
    work.run(
        "create table perfstat.snapshot(snap_id bigint primary key, format int not null, \
         snap_time timestamptz not null, scn bigint not null, taken_by int not null, \
         took_micro bigint not null, missing text not null)",
    )?;
    // The text of a statement is looked for in a table that is not there yet.
    work.run("create table perfstat.sqltext(sql_id text primary key, sql_text text)")?;
    for (table, query) in TABLES.iter().filter(|(table, _)| *table != SHARED) {
        let query = filled(query, 0, "2000-01-01");
        work.run(&format!(
            "create table perfstat.{table} as {query} with no data"
        ))?;
        work.run(&format!(
            "create index {table}_snap on perfstat.{table}(snap_id)"
        ))?;
    }
    Ok(())
}

/// Refuses a schema `perfstat`, or a relation in it, that somebody else has made: what is written to
/// its tables is written with the rights of a superuser, whose triggers would run with them.
fn check_owners(work: &mut Work) -> Result<()> {
    let others = "select count(*) from \
         (select nspowner as owner from pg_namespace where nspname = 'perfstat' \
          union all select c.relowner from pg_class c join pg_namespace n on n.oid = c.relnamespace \
          where n.nspname = 'perfstat') made \
         join pg_roles r on r.oid = made.owner where not r.rolsuper";
    match work.number(others)? {
        0 => Ok(()),
        _ => {
            let message = "the schema perfstat, or something in it, belongs to a role that is no \
                           superuser";
            let error = Error::new("42501", message);
            Err(error.hint("Drop the schema perfstat, or give it another name."))
        }
    }
}

/// What the session was warned of: instances that did not answer.
fn warnings(session: &mut SqlSession) -> String {
    let notices = session.take_messages().notices;
    let warnings: Vec<String> = notices
        .into_iter()
        .filter(|n| n.severity == "WARNING")
        .map(|n| n.message)
        .collect();
    warnings.join("\n")
}

fn remove_older(work: &mut Work, days: i64) -> Result<()> {
    let newest = format!(
        "select max(snap_id) from perfstat.snapshot \
         where snap_time < clock_timestamp() - interval '{days} days'"
    );
    let newest = work.number(&newest)?;
    if newest == 0 {
        return Ok(());
    }
    let own = TABLES
        .iter()
        .map(|(table, _)| *table)
        .filter(|t| *t != SHARED);
    for table in own.chain(["snapshot"]) {
        work.run(&format!(
            "delete from perfstat.{table} where snap_id <= {newest}"
        ))?;
    }
    work.run(
        "delete from perfstat.sqltext t where not exists \
         (select 1 from perfstat.sqlstats s where s.sql_id = t.sql_id)",
    )?;
    Ok(())
}

/// Takes a snapshot for a session, on a thread of its own: what the session's transaction does is
/// no part of it.
pub(crate) fn take_beside(database: &Arc<Database>) -> Result<i64> {
    let taken = beside(database, "m001", |database| take(database, None))?;
    taken.ok_or_else(|| Error::internal("a snapshot that was asked for was not taken"))
}

/// Does something for a session on a thread of its own.
fn beside<R: Send + 'static>(
    database: &Arc<Database>,
    name: &str,
    work: impl FnOnce(&Arc<Database>) -> Result<R> + Send + 'static,
) -> Result<R> {
    let database = database.clone();
    let (send, done) = std::sync::mpsc::channel();
    wait::thread::spawn_named(name, move || {
        // The session waits for it.
        let _ = send.send(work(&database));
    })
    .map_err(|e| Error::internal(format!("no thread {name}: {e}")))?;
    let done = wait::during(Event::PxDeqMessage, [0; 3], || done.recv());
    done.map_err(|_| Error::internal(format!("the thread {name} has gone")))?
}

/// The thread `m000`.
pub struct Snapshots {
    bell: Arc<Bell>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Bell {
    stop: Mutex<bool>,
    rung: Condvar,
}

impl Snapshots {
    pub fn start(database: &Arc<Database>) -> std::io::Result<Snapshots> {
        let bell = Arc::new(Bell::default());
        let (weak, of_thread) = (Arc::downgrade(database), bell.clone());
        let thread = wait::thread::spawn_named("m000", move || run(&weak, &of_thread))?;
        Ok(Snapshots { bell, thread })
    }

    /// Returns once the thread has ended.
    pub fn stop(self) {
        *self.bell.stop.lock() = true;
        self.bell.rung.notify_all();
        // A panic in it has ended the process.
        let _ = self.thread.join();
    }
}

fn run(database: &Weak<Database>, bell: &Bell) {
    let mut since_last = Duration::ZERO;
    let mut trouble = String::new();
    loop {
        {
            let mut stop = bell.stop.lock();
            let parameters = [LOOK.as_millis() as u64, 0, 0];
            wait::during(Event::RdbmsIpcMessage, parameters, || {
                bell.rung.wait_while_for(&mut stop, |stop| !*stop, LOOK)
            });
            if *stop {
                return;
            }
        }
        let Some(database) = database.upgrade() else {
            return;
        };
        since_last += LOOK;
        let seconds = database.params().int("snapshot_interval");
        let interval = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        if interval.is_zero() || since_last < interval {
            continue;
        }
        since_last = Duration::ZERO;
        // An instance that looks a moment early would wait for a whole interval more.
        let now = match take(&database, Some(interval.mul_f64(0.9))) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        if now != trouble && !now.is_empty() {
            tracing::warn!("no snapshot of the workload could be taken: {now}");
        }
        trouble = now;
    }
}
