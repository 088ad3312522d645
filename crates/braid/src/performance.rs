//! `braid report`, `braid ash` and `braid doctor`: asks an instance for what all of them have
//! counted, and has the crate `workload` make a report of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use sql::snapshots::read::{self, Source};
use workload::{Activity, By, Document, Span, Table};

use crate::Failure;
use crate::cli::{self, AshArgs, DataArgs, DoctorArgs, Format, ReportArgs, Shown, TimelineArgs};
use crate::control::{State, Status};
use crate::demo::session::told;
use crate::user;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to an open instance.
struct Asked {
    client: Client,
    warnings: Receiver<String>,
}

impl Asked {
    fn connect(of: &cli::Source) -> Result<Asked, Failure> {
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
        let (warned, warnings) = channel();
        config.notice_callback(move |notice| {
            if notice.severity() == "WARNING" {
                // Nobody listens any more once the connection is given up.
                let _ = warned.send(notice.message().to_string());
            }
        });
        let client = config.connect(NoTls).map_err(|e| {
            let (instance, why) = (open.instance, told(&e));
            Failure(format!("cannot connect to instance {instance}: {why}"))
        })?;
        Ok(Asked { client, warnings })
    }
}

impl Source for Asked {
    type Error = Failure;

    fn warnings(&mut self) -> String {
        let all: Vec<String> = self.warnings.try_iter().collect();
        all.join("\n")
    }

    fn table(&mut self, name: &str, sql: &str) -> Result<Table, Failure> {
        let answers = (self.client.simple_query(sql))
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
}

impl Asked {
    /// Whether the tables of snapshots are there and as this program reads them. A note says that
    /// they are passed over if they are not.
    fn can_read_snapshots(&mut self, notes: &mut Vec<String>) -> Result<bool, Failure> {
        if !read::are_there(self)? {
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
        for row in read::list(&mut asked)?.rows() {
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
    let ends = read::ends(&mut asked, args.from, args.to)?;
    let span = read::span(&mut asked, ends, args.instance)?;
    let document = match &args.diff {
        None => workload::report(&span)?,
        Some(second) => {
            let [from, to] = second[..] else {
                return Err(Failure(
                    "--diff takes two snapshots, as --diff 7,8".to_string(),
                ));
            };
            let second = read::span(&mut asked, (from, to), args.instance)?;
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
            let begin = read::now(&mut asked)?;
            std::thread::sleep(Duration::from_secs(args.seconds.into()));
            Span::new(begin, read::now(&mut asked)?, args.instance)?
        }
        (from, to) => {
            let ends = read::ends(&mut asked, from, to)?;
            read::span(&mut asked, ends, args.instance)?
        }
    };
    show(&workload::doctor::document(&span)?, &args.shown)
}

/// Does something, and gives the doctor's findings of that time besides.
pub fn findings_of<R>(
    data: &Path,
    work: impl FnOnce() -> Result<R, Failure>,
) -> Result<(R, Vec<workload::doctor::Finding>), Failure> {
    let source = cli::Source {
        data: DataArgs {
            data: data.to_path_buf(),
        },
        user: None,
    };
    let mut asked = Asked::connect(&source)?;
    let begin = read::now(&mut asked)?;
    let done = work()?;
    let span = Span::new(begin, read::now(&mut asked)?, None)?;
    Ok((done, workload::doctor::findings(&span)?))
}

/// Columns of samples that the report counts by.
const SAMPLE: &str = "inst_id, session_id, program, event, wait_class, sql_id, blocking_instance, \
                      blocking_session, object_name, transaction_id, p2, sql_plan_hash_value, \
                      sql_plan_line_id, sql_plan_operation";

/// Seconds by which the clock of an instance's host is ahead of that of the instance that is asked.
/// Samples have the time of their host.
struct Clocks(BTreeMap<String, f64>);

impl Clocks {
    /// Seconds that do not tell a clock from an answer that took long.
    const NEAR: f64 = 3.0;

    fn of(asked: &mut Asked, notes: &mut Vec<String>) -> Result<Clocks, Failure> {
        let sql = "select i.inst_id, extract(epoch from i.host_time - h.host_time) as ahead \
                   from gv$instance i, v$instance h where i.host_time is not null";
        let mut clocks = BTreeMap::new();
        for row in asked.table("gv$instance", sql)?.rows() {
            let (instance, ahead) = (row.text("inst_id")?, row.number("ahead")?);
            if ahead.abs() > Clocks::NEAR {
                notes.push(format!(
                    "the clock of the host of instance {instance} is {:.0} s {} that of the one \
                     that was asked, and its samples are told by the latter",
                    ahead.abs(),
                    if ahead > 0.0 { "ahead of" } else { "behind" },
                ));
                clocks.insert(instance.to_string(), ahead);
            }
        }
        Ok(Clocks(clocks))
    }

    /// The time of a sample by the clock of the instance that is asked, in SQL.
    fn of_samples(&self) -> String {
        let mut of = "sample_time".to_string();
        if !self.0.is_empty() {
            of += " - case inst_id";
            for (instance, ahead) in &self.0 {
                of += &format!(" when {instance} then interval '{ahead} seconds'");
            }
            of += " else interval '0' end";
        }
        format!("({of})")
    }
}

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
    let mut notes = Vec::new();
    let clocks = Clocks::of(&mut asked, &mut notes)?;
    let mut of = format!(
        "session_type = 'USER' and {at} >= '{begin}'::timestamptz and {at} <= '{end}'::timestamptz",
        at = clocks.of_samples()
    );
    if let Some(k) = args.instance {
        of += &format!(" and inst_id = {k}");
    }
    let has_kept = asked.can_read_snapshots(&mut notes)?;
    let samples = samples(&mut asked, &clocks, &of, has_kept)?;
    // What an instance that does not answer has in memory is not counted.
    notes.extend(asked.warnings().lines().map(str::to_string));
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
fn samples(asked: &mut Asked, clocks: &Clocks, of: &str, has_kept: bool) -> Result<Table, Failure> {
    let at = format!("extract(epoch from {})", clocks.of_samples());
    let live = format!(
        "select 1 as weight, {at} as at, {SAMPLE} from gv$active_session_history where {of}"
    );
    let mut samples = asked.table("gv$active_session_history", &live)?;
    if !has_kept {
        return Ok(samples);
    }
    let sql = format!(
        "select inst_id, min({at}) as first from gv$active_session_history group by inst_id"
    );
    let mut first: BTreeMap<String, f64> = BTreeMap::new();
    for row in asked.table("gv$active_session_history", &sql)?.rows() {
        first.insert(row.text("inst_id")?.to_string(), row.number("first")?);
    }
    let kept = format!("select 10 as weight, {at} as at, {SAMPLE} from perfstat.ash where {of}");
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
