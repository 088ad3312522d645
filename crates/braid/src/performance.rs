//! `braid report`, `braid ash` and `braid doctor`: asks an instance for what all of them have
//! counted, and has the crate `workload` make a report of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use workload::{Activity, By, Document, ROW_SOURCES, Snapshot, Span, Table};

use crate::Failure;
use crate::cli::{AshArgs, DataArgs, DoctorArgs, Format, ReportArgs, Shown, Source, TimelineArgs};
use crate::control::{State, Status};
use crate::demo::session::told;
use crate::user;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to an open instance.
struct Asked(Client);

impl Asked {
    fn connect(of: &Source) -> Result<Asked, Failure> {
        let data = &of.data.data;
        let all = Status::read_all(data)?;
        let is_open = |s: &&Status| s.is_running() && s.state == State::Open;
        let open = all.iter().find(is_open).ok_or_else(|| no_instance(data))?;
        let mut config = Config::new();
        config
            .host(&open.address.ip().to_string())
            .port(open.address.port())
            .user(of.user.as_deref().unwrap_or(&user::superuser()))
            .dbname("braid")
            .application_name("braid report")
            .connect_timeout(CONNECT_TIMEOUT);
        if let Ok(password) = std::env::var("PGPASSWORD") {
            config.password(password);
        }
        let client = config.connect(NoTls).map_err(|e| {
            let (instance, why) = (open.instance, told(&e));
            Failure(format!("cannot connect to instance {instance}: {why}"))
        })?;
        Ok(Asked(client))
    }

    fn table(&mut self, name: &str, sql: &str) -> Result<Table, Failure> {
        let answers = (self.0.simple_query(sql))
            .map_err(|e| Failure(format!("cannot read {name}: {}", told(&e))))?;
        let mut table = Table {
            name: name.to_string(),
            ..Table::default()
        };
        for answer in answers {
            match answer {
                SimpleQueryMessage::RowDescription(columns) => {
                    table.columns = columns.iter().map(|c| c.name().to_string()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    let cells = (0..row.len()).map(|at| row.get(at).map(str::to_string));
                    table.rows.push(cells.collect());
                }
                _ => {}
            }
        }
        Ok(table)
    }

    /// A snapshot that was taken.
    fn snapshot(&mut self, id: i64) -> Result<Snapshot, Failure> {
        let head = format!(
            "select format, snap_time, extract(epoch from snap_time) as seconds, scn, missing \
             from perfstat.snapshot where snap_id = {id}"
        );
        let head = self.table("snapshot", &head)?;
        let Some(row) = head.rows().next() else {
            return Err(Failure(format!(
                "there is no snapshot {id}; braid report --list shows those that there are"
            )));
        };
        let mut snapshot = Snapshot {
            id,
            format: row.number("format")? as i64,
            time: row.text("snap_time")?.to_string(),
            seconds: row.number("seconds")?,
            scn: row.text("scn")?.to_string(),
            missing: row.text("missing")?.to_string(),
            tables: BTreeMap::new(),
        };
        if snapshot.format != workload::FORMAT {
            // Its tables may be other ones; the span says so.
            return Ok(snapshot);
        }
        for (name, _) in sql::snapshot_queries() {
            let sql = match name {
                "sqltext" => format!(
                    "select * from perfstat.sqltext where sql_id in (select sql_id from \
                     perfstat.sqlstats where snap_id = {id})"
                ),
                // They are for the history of sessions.
                "ash" => continue,
                name => format!("select * from perfstat.{name} where snap_id = {id}"),
            };
            let table = self.table(name, &sql)?;
            snapshot.tables.insert(name.to_string(), table);
        }
        Ok(snapshot)
    }

    /// What is counted now, without a snapshot of it.
    fn now(&mut self) -> Result<Snapshot, Failure> {
        let sql =
            "select clock_timestamp() as time, extract(epoch from clock_timestamp()) as seconds";
        let clock = self.table("clock", sql)?;
        let mut snapshot = Snapshot {
            format: workload::FORMAT,
            ..Snapshot::default()
        };
        if let Some(row) = clock.rows().next() {
            snapshot.time = row.text("time")?.to_string();
            snapshot.seconds = row.number("seconds")?;
        }
        for (name, query) in sql::snapshot_queries() {
            if name != "ash" {
                let table = self.table(name, &query)?;
                snapshot.tables.insert(name.to_string(), table);
            }
        }
        Ok(snapshot)
    }

    /// Whether there is a table of snapshots.
    fn has_snapshots(&mut self) -> Result<bool, Failure> {
        let sql = "select 1 as one from pg_tables where schemaname = 'perfstat' \
                   and tablename = 'snapshot'";
        Ok(!self.table("pg_tables", sql)?.rows.is_empty())
    }

    /// Whether the tables of snapshots are there and as this program reads them. A note says that
    /// they are passed over if they are not.
    fn can_read_snapshots(&mut self, notes: &mut Vec<String>) -> Result<bool, Failure> {
        if !self.has_snapshots()? {
            return Ok(false);
        }
        let sql = "select distinct format from perfstat.snapshot order by format";
        for row in self.table("snapshot", sql)?.rows() {
            let format = row.number("format")? as i64;
            if format != workload::FORMAT {
                notes.push(format!(
                    "the snapshots in schema perfstat have format {format}, and this program reads \
                     format {}: only samples in memory are counted",
                    workload::FORMAT
                ));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The snapshots, the oldest first.
    fn snapshots(&mut self) -> Result<Table, Failure> {
        if !self.has_snapshots()? {
            return Err(Failure(
                "there are no snapshots yet: one is taken every snapshot_interval, and by \
                 select create_snapshot()"
                    .to_string(),
            ));
        }
        let sql = "select snap_id, snap_time, scn, taken_by, took_micro, missing \
                   from perfstat.snapshot order by snap_id";
        self.table("snapshot", sql)
    }

    /// The snapshots between which a report is made: those that are named, or the last two.
    fn ends(&mut self, from: Option<i64>, to: Option<i64>) -> Result<(i64, i64), Failure> {
        let mut ids = Vec::new();
        for row in self.snapshots()?.rows() {
            ids.push(row.number("snap_id")? as i64);
        }
        let to = match to.or(ids.last().copied()) {
            Some(to) => to,
            None => return Err(Failure("there are no snapshots yet".to_string())),
        };
        let before = ids.iter().rev().find(|id| **id < to).copied();
        match from.or(before) {
            Some(from) => Ok((from, to)),
            None => Err(Failure(format!(
                "there is no snapshot before {to}, and a report is of the time between two: \
                 select create_snapshot() takes one"
            ))),
        }
    }

    fn span(&mut self, (from, to): (i64, i64), instance: Option<u16>) -> Result<Span, Failure> {
        let (begin, mut end) = (self.snapshot(from)?, self.snapshot(to)?);
        if end.format == workload::FORMAT {
            let steps = self.table(ROW_SOURCES, &row_sources(from, to))?;
            end.tables.insert(ROW_SOURCES.to_string(), steps);
        }
        Ok(Span::new(begin, end, instance)?)
    }
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

fn no_instance(data: &Path) -> Failure {
    let data = data.display();
    Failure(format!(
        "no instance of {data} is open here; braid status --data {data} shows them"
    ))
}

fn show(document: &Document, shown: &Shown) -> Result<ExitCode, Failure> {
    let text = match shown.format {
        Format::Text => workload::text(document),
        Format::Html => workload::html(document),
    };
    match &shown.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|e| Failure(format!("cannot write {}: {e}", path.display())))?,
        None => say!("{}", text.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `braid report`.
pub fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let mut asked = Asked::connect(&args.source)?;
    if args.list {
        for row in asked.snapshots()?.rows() {
            let (id, time) = (row.text("snap_id")?, row.text("snap_time")?);
            let (scn, by) = (row.text("scn")?, row.text("taken_by")?);
            let missing = match row.text("missing")? {
                "" => String::new(),
                missing => format!("  {}", missing.replace('\n', "; ")),
            };
            say!("{id:>6}  {time}  SCN {scn}  by instance {by}{missing}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ends = asked.ends(args.from, args.to)?;
    let span = asked.span(ends, args.instance)?;
    let document = match &args.diff {
        None => workload::report(&span)?,
        Some(second) => {
            let [from, to] = second[..] else {
                return Err(Failure(
                    "--diff takes two snapshots, as --diff 7,8".to_string(),
                ));
            };
            let second = asked.span((from, to), args.instance)?;
            workload::diff(&span, &second)?
        }
    };
    show(&document, &args.shown)
}

/// Runs `braid doctor`.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let mut asked = Asked::connect(&args.source)?;
    let span = match (args.from, args.to) {
        (None, None) => {
            let begin = asked.now()?;
            std::thread::sleep(Duration::from_secs(args.seconds.into()));
            Span::new(begin, asked.now()?, args.instance)?
        }
        (from, to) => {
            let ends = asked.ends(from, to)?;
            asked.span(ends, args.instance)?
        }
    };
    show(&workload::doctor::document(&span)?, &args.shown)
}

/// Does something, and gives the doctor's findings of that time besides.
pub fn findings_of<R>(
    data: &Path,
    work: impl FnOnce() -> Result<R, Failure>,
) -> Result<(R, Vec<workload::doctor::Finding>), Failure> {
    let source = Source {
        data: DataArgs {
            data: data.to_path_buf(),
        },
        user: None,
    };
    let mut asked = Asked::connect(&source)?;
    let begin = asked.now()?;
    let done = work()?;
    let span = Span::new(begin, asked.now()?, None)?;
    Ok((done, workload::doctor::findings(&span)?))
}

/// Columns of samples that the report counts by.
const SAMPLE: &str = "extract(epoch from sample_time) as at, inst_id, session_id, program, event, \
                      wait_class, sql_id, blocking_instance, blocking_session, object_name, \
                      transaction_id, p2, sql_plan_hash_value, sql_plan_line_id, \
                      sql_plan_operation";

/// Runs `braid ash`.
pub fn ash(args: &AshArgs) -> Result<ExitCode, Failure> {
    let mut asked = Asked::connect(&args.source)?;
    let quoted = |text: &str| format!("'{}'::timestamptz", text.replace('\'', "''"));
    let to = args
        .to
        .as_deref()
        .map_or("clock_timestamp()".to_string(), quoted);
    let from = match &args.from {
        Some(from) => quoted(from),
        None => format!("{to} - interval '{} minutes'", args.minutes),
    };
    let sql = format!(
        "select {from} as begin, {to} as end, extract(epoch from {from}) as from_seconds, \
         extract(epoch from {to}) as to_seconds"
    );
    let bounds = asked.table("the span", &sql)?;
    let bounds = bounds
        .rows()
        .next()
        .ok_or_else(|| Failure("no answer".to_string()))?;
    let (begin, end) = (bounds.text("begin")?, bounds.text("end")?);
    let mut of = format!(
        "session_type = 'USER' and sample_time >= '{begin}'::timestamptz \
         and sample_time <= '{end}'::timestamptz"
    );
    if let Some(k) = args.instance {
        of += &format!(" and inst_id = {k}");
    }
    let mut notes = Vec::new();
    let has_kept = asked.can_read_snapshots(&mut notes)?;
    let samples = samples(&mut asked, &of, has_kept)?;
    let texts = texts(&mut asked, has_kept)?;
    let holders = asked.table(
        "gv$session",
        "select inst_id, sid, program, status, transaction_id from gv$session \
         where transaction_id is not null",
    )?;
    let activity = Activity {
        samples: &samples,
        holders: &holders,
        texts: &texts,
        from: bounds.number("from_seconds")?,
        to: bounds.number("to_seconds")?,
        head: vec![
            ("Begin".to_string(), begin.to_string()),
            ("End".to_string(), end.to_string()),
        ],
        notes,
    };
    let by = match args.by.is_empty() {
        true => By::ALL.to_vec(),
        false => (args.by.iter())
            .map(|name| {
                By::of(name).ok_or_else(|| {
                    let known = By::ALL.map(By::name).join(", ");
                    Failure(format!("activity is counted by {known}, not by {name}"))
                })
            })
            .collect::<Result<_, _>>()?,
    };
    show(&workload::activity(&activity, &by)?, &args.shown)
}

/// Runs `braid timeline`.
pub fn timeline(args: &TimelineArgs) -> Result<ExitCode, Failure> {
    let mut asked = Asked::connect(&args.source)?;
    let mut sql = "select * from gv$wait_timeline where true".to_string();
    let wanted = [
        ("timeline#", args.number),
        ("sid", args.session.map(i64::from)),
        ("inst_id", args.instance.map(i64::from)),
    ];
    for (column, value) in wanted {
        if let Some(value) = value {
            sql += &format!(" and \"{column}\" = {value}");
        }
    }
    sql += " order by inst_id, \"timeline#\", sid, \"seq#\"";
    let rows = asked.table("gv$wait_timeline", &sql)?;
    show(&workload::timelines(&rows)?, &args.shown)
}

/// Samples in memory, each of a second, and those of snapshots from before, each of ten, if they
/// can be read.
fn samples(asked: &mut Asked, of: &str, has_kept: bool) -> Result<Table, Failure> {
    let live = format!("select 1 as weight, {SAMPLE} from gv$active_session_history where {of}");
    let mut samples = asked.table("gv$active_session_history", &live)?;
    if !has_kept {
        return Ok(samples);
    }
    let sql = "select inst_id, extract(epoch from min(sample_time)) as first \
               from gv$active_session_history group by inst_id";
    let mut first: BTreeMap<String, f64> = BTreeMap::new();
    for row in asked.table("gv$active_session_history", sql)?.rows() {
        first.insert(row.text("inst_id")?.to_string(), row.number("first")?);
    }
    let kept = format!("select 10 as weight, {SAMPLE} from perfstat.ash where {of}");
    let kept = asked.table("perfstat.ash", &kept)?;
    for (row, cells) in kept.rows().zip(&kept.rows) {
        let in_memory = first.get(row.text("inst_id")?);
        if in_memory.is_none_or(|first| row.number("at").is_ok_and(|at| at < *first)) {
            samples.rows.push(cells.clone());
        }
    }
    Ok(samples)
}

fn texts(asked: &mut Asked, has_kept: bool) -> Result<BTreeMap<String, String>, Failure> {
    let mut texts = BTreeMap::new();
    let mut queries = vec![
        "select sql_id, sql_text from gv$sqlstats",
        // Those that have not ended yet are in no statistics.
        "select distinct sql_id, sql_text from gv$active_session_history \
         where sql_id is not null",
    ];
    if has_kept {
        queries.push("select sql_id, sql_text from perfstat.sqltext");
    }
    for query in queries {
        for row in asked.table("texts", query)?.rows() {
            texts.insert(
                row.text("sql_id")?.to_string(),
                row.text("sql_text")?.to_string(),
            );
        }
    }
    Ok(texts)
}
