//! Causes that are the clients' way to ask.

use super::{Cause, Finding};
use crate::document::{number, per};
use crate::sections::sql;
use crate::span::Span;
use crate::table::Error;

pub fn disconnects(span: &Span) -> Result<Option<Finding>, Error> {
    let logons = span.stat("logons cumulative")?;
    let rate = logons / span.seconds();
    let executed = span.time("sql execute elapsed time")? + span.time("parse time elapsed")?;
    let rest = (span.db_time()? - executed).max(0.0);
    if rate < 3.0 || logons < span.stat("execute count")? / 20.0 {
        return Ok(None);
    }
    Ok(Some(Finding {
        cause: Cause::Disconnects,
        title: "Clients connect and disconnect all the time".to_string(),
        seconds: rest,
        instance: None,
        subject: None,
        evidence: format!(
            "{} logons a second, one for each {} statements; {} s of DB time were neither parsing \
             nor execution",
            number(rate, 1),
            per(span.stat("execute count")?, logons, 1),
            number(rest, 1)
        ),
        remedy: "Have the clients keep their connections, with a pool between if need be."
            .to_string(),
    }))
}

/// Hard parses a second that are a habit: everybody has a statement for the first time now and
/// then.
const OFTEN: f64 = 20.0;

pub fn hard_parses(span: &Span) -> Result<Option<Finding>, Error> {
    let rate = span.stat("parse count (hard)")? / span.seconds();
    let seconds = span.time("hard parse elapsed time")?;
    Ok((rate > OFTEN).then(|| Finding {
        cause: Cause::HardParses,
        title: "Statements are planned again and again".to_string(),
        seconds,
        instance: None,
        subject: None,
        evidence: format!("{} hard parses a second", number(rate, 1)),
        remedy: "Send values as parameters, and create and drop no tables within the load."
            .to_string(),
    }))
}

/// Rows of a fetch from which on it is no small one.
const MANY_ROWS: f64 = 1000.0;
/// Milliseconds between two fetches that no near client takes.
const FAR_MS: f64 = 1.0;

/// Results are fetched in small pieces over a line whose round trips take longer than the pieces.
/// The sessions are idle meanwhile: the time is in no DB time, but the users wait for it.
pub fn small_fetches(span: &Span) -> Result<Option<Finding>, Error> {
    let keys = ["inst_id", "name"];
    let stats = span.delta("sysstat", &keys, "value")?;
    let of = |k: &str, name: &str| {
        let key = vec![k.to_string(), name.to_string()];
        stats.get(&key).copied().unwrap_or(0.0)
    };
    let mut worst: Option<(f64, f64, &String)> = None;
    for k in &span.instances {
        let seconds = of(k, FETCH_WAIT) / 1e9;
        if worst.is_none_or(|(most, ..)| seconds > most) {
            worst = Some((seconds, of(k, FETCHES), k));
        }
    }
    let Some((seconds, fetches, k)) = worst.filter(|(_, n, _)| *n > 0.0) else {
        return Ok(None);
    };
    // Of the statements that are fetched in pieces, the one with most of them.
    let all = sql::statements(span)?;
    let pieces = |s: &sql::Statement| match s.text.to_ascii_lowercase().starts_with("fetch ") {
        true => s.get("executions"),
        false => s.get("fetches") - s.get("executions"),
    };
    let most = all
        .iter()
        .filter(|s| pieces(s) > 0.0)
        .max_by(|a, b| pieces(a).total_cmp(&pieces(b)));
    let Some(statement) = most else {
        return Ok(None);
    };
    let rows = statement.get("rows_processed") / statement.get("fetches").max(1.0);
    let each_ms = seconds / fetches * 1000.0;
    if rows > MANY_ROWS || each_ms < FAR_MS {
        return Ok(None);
    }
    Ok(Some(Finding {
        cause: Cause::SmallFetches,
        title: "Results are fetched in small pieces over a long line".to_string(),
        seconds,
        instance: Some(k.clone()),
        subject: Some(format!("{}: {}", statement.id, statement.text)),
        evidence: format!(
            "{} times a session waited for its client to ask for the rest of a result, {} ms each; \
             a fetch gives {} rows",
            number(fetches, 0),
            number(each_ms, 1),
            number(rows, 1)
        ),
        remedy: "Have the client fetch more rows at once, all of them if it has the memory: each \
                 fetch costs a round trip."
            .to_string(),
    }))
}

/// How often a session was asked for the rest of a result, and how long it waited to be asked.
pub const FETCHES: &str = "fetches of the rest of a result";
pub const FETCH_WAIT: &str = "time between fetches of a result (nanoseconds)";
