//! Load profile, top timed events, time model.

use crate::document::{Bar, Chart, Section, number, per, percent};
use crate::span::{Deltas, Span};
use crate::table::Error;

pub fn load(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Load Profile",
        "What the instances did, per second and per transaction. DB time per second is the number \
         of sessions that were at work on average.",
        &["<", "Per Second", "Per Transaction", "Per Exec", "Per Call"],
    );
    let stat = |name| span.stat(name);
    let transactions = stat("user commits")? + stat("user rollbacks")?;
    let (executions, calls) = (stat("execute count")?, stat("user calls")?);
    let gets = stat("consistent gets")? + stat("db block gets")?;
    let rows = [
        ("DB Time (s)", span.db_time()?, 2),
        ("DB CPU (s)", span.time("DB CPU")?, 2),
        ("Redo size (bytes)", stat("redo size (bytes)")?, 1),
        ("Logical reads (blocks)", gets, 1),
        ("Block changes", stat("db block changes")?, 1),
        ("Physical reads (blocks)", stat("physical reads")?, 1),
        ("Physical writes (blocks)", stat("physical writes")?, 1),
        ("User calls", calls, 1),
        ("Parses", stat("parse count (total)")?, 1),
        ("Hard parses", stat("parse count (hard)")?, 1),
        ("Logons", stat("logons cumulative")?, 2),
        ("Executes", executions, 1),
        ("Rollbacks", stat("user rollbacks")?, 1),
        ("Transactions", transactions, 1),
    ];
    for (name, value, decimals) in rows {
        s.row([
            name.to_string(),
            number(value / span.seconds(), decimals),
            per(value, transactions, decimals),
            per(value, executions, decimals + 1),
            per(value, calls, decimals + 1),
        ]);
    }
    Ok(s)
}

pub fn efficiency(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Instance Efficiency Percentages",
        "Hints, not goals: a high hit ratio says nothing about statements that read too much.",
        &["<", "%"],
    );
    let stat = |name| span.stat(name);
    let gets = stat("consistent gets")? + stat("db block gets")?;
    let parses = stat("parse count (total)")?;
    let remote = stat("gc current blocks received")? + stat("gc cr blocks received")?;
    let local = (gets - stat("physical reads")? - remote).max(0.0);
    let rows = [
        (
            "Buffer hits, without any I/O or other instance",
            percent(local, gets),
        ),
        ("Blocks from other instances", percent(remote, gets)),
        (
            "Soft parses",
            percent(parses - stat("parse count (hard)")?, parses),
        ),
        (
            "Executions without a parse",
            percent(
                (stat("execute count")? - parses).max(0.0),
                stat("execute count")?,
            ),
        ),
        (
            "DB CPU of DB time",
            percent(span.time("DB CPU")?, span.db_time()?),
        ),
    ];
    for (name, value) in rows {
        s.row([name.to_string(), value]);
    }
    Ok(s)
}

/// Waits for an event over the span.
pub struct Waited {
    pub event: String,
    pub class: String,
    /// Of all threads.
    pub waits: f64,
    pub seconds: f64,
    /// Of users' sessions.
    pub of_users: Part,
}

/// A part of the waits for an event.
#[derive(Clone, Copy)]
pub struct Part {
    pub waits: f64,
    pub seconds: f64,
}

impl Waited {
    /// Those of the instances' own threads.
    pub fn of_background(&self) -> Part {
        Part {
            waits: (self.waits - self.of_users.waits).max(0.0),
            seconds: (self.seconds - self.of_users.seconds).max(0.0),
        }
    }
}

/// Events that were waited for, without idle ones, the longest first.
pub fn waited(span: &Span) -> Result<Vec<Waited>, Error> {
    let keys = ["event", "wait_class"];
    let of = |column| span.delta("system_event", &keys, column);
    let (waits, times) = (of("total_waits")?, of("time_waited_micro")?);
    let (users_waits, users_times) = (of("total_waits_fg")?, of("time_waited_micro_fg")?);
    let value = |of: &Deltas, key: &Vec<String>| of.get(key).copied().unwrap_or(0.0);
    let mut all: Vec<Waited> = waits
        .iter()
        .filter(|(key, waits)| **waits > 0.0 && key[1] != "Idle")
        .map(|(key, waits)| Waited {
            event: key[0].clone(),
            class: key[1].clone(),
            waits: *waits,
            seconds: value(&times, key) / 1e6,
            of_users: Part {
                waits: value(&users_waits, key),
                seconds: value(&users_times, key) / 1e6,
            },
        })
        .collect();
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(all)
}

pub fn timed_events(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Top Timed Events by DB Time",
        "Where the sessions' time went. Work at what is at the top; a long average says that each \
         wait is slow, many waits with a short average that there are too many. Time waiting for a \
         CPU is in no event: run queue time.",
        &[
            "<Event",
            "Waits",
            "Total Wait (s)",
            "Avg Wait (ms)",
            "% DB time",
            "<Wait Class",
        ],
    );
    let db = span.db_time()?;
    let mut rows = vec![
        (
            span.time("DB CPU")?,
            None,
            "DB CPU".to_string(),
            String::new(),
        ),
        (
            span.time("run queue time")?,
            None,
            "run queue time".to_string(),
            String::new(),
        ),
    ];
    for w in waited(span)? {
        if w.of_users.waits > 0.0 {
            let Part { waits, seconds } = w.of_users;
            rows.push((seconds, Some(waits), w.event, w.class));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.truncate(15);
    let bars = rows.iter().map(|(seconds, _, event, _)| Bar {
        label: event.clone(),
        value: *seconds,
        shown: format!("{} s", number(*seconds, 2)),
    });
    s.chart = Some(Chart::Bars(bars.collect()));
    for (seconds, waits, event, class) in rows {
        s.row([
            event,
            waits.map_or(String::new(), |n| number(n, 0)),
            number(seconds, 2),
            waits.map_or(String::new(), |n| number(seconds / n * 1000.0, 2)),
            percent(seconds, db),
            class,
        ]);
    }
    Ok(s)
}

pub fn classes(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Wait Classes by Total Wait Time",
        "The same, by class. Cluster: for blocks and locks of other instances; Application: for \
         what other sessions of the application hold; System I/O: a session that writes the log \
         for its commit itself.",
        &[
            "<Wait Class",
            "Waits",
            "Total Wait (s)",
            "Avg Wait (ms)",
            "% DB time",
        ],
    );
    let mut classes: Vec<(String, f64, f64)> = Vec::new();
    for w in waited(span)?.into_iter().filter(|w| w.of_users.waits > 0.0) {
        let own = w.of_users;
        match classes.iter_mut().find(|(class, ..)| *class == w.class) {
            Some((_, waits, seconds)) => {
                *waits += own.waits;
                *seconds += own.seconds;
            }
            None => classes.push((w.class, own.waits, own.seconds)),
        }
    }
    classes.sort_by(|a, b| b.2.total_cmp(&a.2));
    let db = span.db_time()?;
    for (class, waits, seconds) in classes {
        s.row([
            class,
            number(waits, 0),
            number(seconds, 2),
            number(seconds / waits * 1000.0, 2),
            percent(seconds, db),
        ]);
    }
    Ok(s)
}

pub fn time_model(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Time Model Statistics",
        "DB time is CPU outside of waits, waits, and run queue time; what is left is unaccounted, \
         and should be a per cent or two. Parsing and execution overlap with these.",
        &["<Statistic", "Time (s)", "% DB time"],
    );
    let db = span.db_time()?;
    let mut all: Vec<(String, f64)> = span
        .named("time_model", "stat_name", "value")?
        .into_iter()
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, us) in all {
        let share = match name.starts_with("background") {
            true => String::new(),
            false => percent(us / 1e6, db),
        };
        s.row([name, number(us / 1e6, 2), share]);
    }
    Ok(s)
}
