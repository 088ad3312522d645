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
    let statements = all.into_iter().map(|(id, values)| Statement {
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
    .collect()
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
         elapsed time."
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
            one.id.clone(),
            one.text.clone(),
        ]);
    }
    Ok(s)
}
