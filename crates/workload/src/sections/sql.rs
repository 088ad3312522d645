//! SQL ordered by what it takes.

use std::collections::BTreeMap;

use super::ROWS;
use crate::document::{Section, number, per, percent};
use crate::span::Span;
use crate::table::Error;

/// What a statement took over the span.
pub struct Statement {
    pub id: String,
    pub text: String,
    /// How many plans it ran with.
    plans: usize,
    values: BTreeMap<&'static str, f64>,
}

const COLUMNS: [&str; 14] = [
    "executions",
    "fetches",
    "rows_processed",
    "elapsed_time",
    "cpu_time",
    "runnable_time",
    "application_wait_time",
    "concurrency_wait_time",
    "cluster_wait_time",
    "user_io_wait_time",
    "commit_wait_time",
    "buffer_gets",
    "disk_reads",
    "loads",
];

impl Statement {
    pub fn get(&self, column: &str) -> f64 {
        self.values.get(column).copied().unwrap_or(0.0)
    }
}

/// The statements that ran in the span, as far as the snapshots have them.
pub fn statements(span: &Span) -> Result<Vec<Statement>, Error> {
    let mut texts = BTreeMap::new();
    for row in span.end.table("sqltext")?.rows() {
        texts.insert(row.text("sql_id")?, row.text("sql_text")?);
    }
    let mut all: BTreeMap<String, BTreeMap<&'static str, f64>> = BTreeMap::new();
    for column in COLUMNS {
        for (id, value) in span.named("sqlstats", "sql_id", column)? {
            // A statement that is in the first snapshot alone has not run since; one whose
            // counters fell made room for others and came back.
            *all.entry(id).or_default().entry(column).or_default() += value.max(0.0);
        }
    }
    let mut plans: BTreeMap<String, usize> = BTreeMap::new();
    let keys = ["sql_id", "plan_hash_value"];
    for (key, executions) in span.delta("sqlstats", &keys, "executions")? {
        if let ([id, _], true) = (key.as_slice(), executions > 0.0) {
            *plans.entry(id.clone()).or_default() += 1;
        }
    }
    let statements = all.into_iter().map(|(id, values)| Statement {
        plans: plans.get(&id).copied().unwrap_or_default(),
        text: texts
            .get(id.as_str())
            .unwrap_or(&"(text not kept)")
            .to_string(),
        id,
        values,
    });
    Ok(statements.filter(|s| s.get("elapsed_time") > 0.0).collect())
}

pub fn sections(span: &Span) -> Result<Vec<Section>, Error> {
    let all = statements(span)?;
    [
        ("elapsed_time", "SQL ordered by Elapsed Time", "What the users waited for."),
        ("cpu_time", "SQL ordered by CPU Time", "What the processors did."),
        ("buffer_gets", "SQL ordered by Gets", "Blocks looked at: too many for a row mean a missing index."),
        ("disk_reads", "SQL ordered by Reads", "Blocks read from disk."),
        ("cluster_wait_time", "SQL ordered by Cluster Wait Time", "Waits for other instances."),
        ("executions", "SQL ordered by Executions", "What runs most often: a row of it may be saved by asking for several at once."),
        ("loads", "SQL ordered by Hard Parses", "What is planned again and again: texts that differ in values, or definitions that change."),
    ]
    .into_iter()
    .map(|(column, title, reading)| ordered(span, &all, column, title, reading))
    .chain([row_sources(span, &all)])
    .collect()
}

/// The table of the span's end that has its samples by step of a plan.
pub const ROW_SOURCES: &str = "row_sources";

/// What sessions were seen doing in a step of a plan.
#[derive(Default)]
struct Source {
    seconds: f64,
    by_event: BTreeMap<String, f64>,
}

/// Which steps of the plans of which statements the time went to, as samples of sessions tell.
fn row_sources(span: &Span, all: &[Statement]) -> Result<Section, Error> {
    let mut s = Section::new(
        "Top SQL with Top Row Sources",
        "Steps of plans, by the lines of v$sql_plan, in which sessions of clients were seen, and \
         what most of them were at there. A sample of ten seconds stands for these: what took less \
         may be missing. Between steps is what belongs to none: planning, locks of tables, the \
         commit.",
        &[
            "Seconds",
            "% Activity",
            "<SQL Id",
            "Plan Hash",
            "Line",
            "<Row Source",
            "<Top Event",
            "% Event",
            "<SQL Text",
        ],
    );
    let mut total = 0.0;
    let mut sources: BTreeMap<[String; 4], Source> = BTreeMap::new();
    for row in span.at_end(ROW_SOURCES)? {
        let mut key = [String::new(), String::new(), String::new(), String::new()];
        let columns = [
            "sql_id",
            "sql_plan_hash_value",
            "sql_plan_line_id",
            "sql_plan_operation",
        ];
        for (part, column) in key.iter_mut().zip(columns) {
            *part = row.text(column)?.to_string();
        }
        let seconds = row.number("seconds")?;
        let event = match row.text("event")? {
            "" => "ON CPU",
            event => event,
        };
        total += seconds;
        let source = sources.entry(key).or_default();
        source.seconds += seconds;
        *source.by_event.entry(event.to_string()).or_default() += seconds;
    }
    let mut order: Vec<_> = sources.into_iter().collect();
    order.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    for ([id, plan, line, step], source) in order.into_iter().take(ROWS) {
        let mut events: Vec<_> = source.by_event.into_iter().collect();
        events.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (event, seconds) = events.into_iter().next().unwrap_or_default();
        let text = all.iter().find(|s| s.id == id).map_or("", |s| &s.text);
        s.row([
            number(source.seconds, 0),
            percent(source.seconds, total),
            id,
            plan,
            line,
            match step.is_empty() {
                true => "between steps".to_string(),
                false => step,
            },
            event,
            percent(seconds, source.seconds),
            text.to_string(),
        ]);
    }
    Ok(s)
}

fn ordered(
    span: &Span,
    all: &[Statement],
    column: &str,
    title: &str,
    reading: &str,
) -> Result<Section, Error> {
    let reading = format!(
        "{reading} Elapsed time is CPU, waits and run queue time; the shares of waits are of the \
         elapsed time. Plans: how many different ones ran."
    );
    let mut s = Section::new(
        title,
        &reading,
        &[
            "Elapsed (s)",
            "Executions",
            "Per Exec (ms)",
            "% DB time",
            "% CPU",
            "% Cluster",
            "% I/O",
            "% Commit",
            "% App",
            "Gets/Exec",
            "Reads",
            "Rows/Exec",
            "Plans",
            "<SQL Id",
            "<SQL Text",
        ],
    );
    let db = span.db_time()?;
    let mut order: Vec<&Statement> = all.iter().filter(|s| s.get(column) > 0.0).collect();
    order.sort_by(|a, b| b.get(column).total_cmp(&a.get(column)));
    for one in order.into_iter().take(ROWS) {
        let (elapsed, executions) = (one.get("elapsed_time"), one.get("executions"));
        let share = |column| percent(one.get(column), elapsed);
        s.row([
            number(elapsed / 1e6, 2),
            number(executions, 0),
            per(elapsed / 1000.0, executions, 2),
            percent(elapsed / 1e6, db),
            share("cpu_time"),
            share("cluster_wait_time"),
            share("user_io_wait_time"),
            share("commit_wait_time"),
            share("application_wait_time"),
            per(one.get("buffer_gets"), executions, 1),
            number(one.get("disk_reads"), 0),
            per(one.get("rows_processed"), executions, 1),
            one.plans.to_string(),
            one.id.clone(),
            one.text.clone(),
        ]);
    }
    Ok(s)
}
