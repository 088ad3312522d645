//! Waits of a session one by one, as a picture of the time: what `v$wait_timeline` has.

use std::collections::BTreeMap;

use crate::document::{Document, Section, number, percent};
use crate::table::{Error, Row, Table};

/// Characters of a timeline's picture.
const WIDTH: f64 = 60.0;
/// Rows of a timeline that are shown: its longest, in their order.
const ROWS: usize = 200;

/// Parts of a wait for another instance: columns and names.
const PARTS: [(&str, &str); 8] = [
    ("message_out_nano", "message out"),
    ("queue_nano", "queue"),
    ("in_use_nano", "in use"),
    ("build_nano", "build"),
    ("flush_nano", "log flush"),
    ("other_nano", "other"),
    ("message_back_nano", "message back"),
    ("wakeup_nano", "wake up"),
];

/// The timelines of these rows, each in the order of its `seq#`.
pub fn timelines(rows: &Table) -> Result<Document, Error> {
    let mut all: BTreeMap<(String, i64, i64), Vec<Row<'_>>> = BTreeMap::new();
    for row in rows.rows() {
        let instance = row.text("inst_id")?.to_string();
        let key = (
            instance,
            row.number("timeline#")? as i64,
            row.number("sid")? as i64,
        );
        all.entry(key).or_default().push(row);
    }
    if all.is_empty() {
        return Err(Error::Span(
            "nobody's waits are kept: set wait_timeline = on, session_timeline_enable(sid, \
             serial#), wait_timeline_statements or wait_timeline_slower begin a timeline"
                .to_string(),
        ));
    }
    let mut sections = vec![list(&all)?];
    for (key, rows) in &all {
        sections.push(one(key, rows)?);
    }
    Ok(Document {
        title: "Waits one by one".to_string(),
        head: Vec::new(),
        notes: Vec::new(),
        sections,
    })
}

type Key = (String, i64, i64);

fn name((instance, timeline, sid): &Key) -> String {
    match timeline {
        0 => format!("Instance {instance}, session {sid}, goes on"),
        n => format!("Instance {instance}, timeline {n}"),
    }
}

/// Nanoseconds from the first row's begin to the last one's end.
fn length(rows: &[Row<'_>]) -> Result<f64, Error> {
    let mut end: f64 = 0.0;
    for row in rows {
        end = end.max(row.number("offset_nano")? + row.number("elapsed_nano")?);
    }
    Ok(end)
}

fn list(all: &BTreeMap<Key, Vec<Row<'_>>>) -> Result<Section, Error> {
    let mut s = Section::new(
        "Timelines",
        "What is kept: by whom it was asked for, or which execution was slow. Entries that were \
         lost are those for which there was no room.",
        &[
            "<Timeline",
            "Session",
            "<Program",
            "<Begin",
            "Time (ms)",
            "Entries",
            "Lost",
            "<Reason",
        ],
    );
    for (key, rows) in all {
        let Some(first) = rows.first() else {
            continue;
        };
        s.row([
            name(key),
            key.2.to_string(),
            first.text("program")?.to_string(),
            first.text("start_time")?.to_string(),
            number(length(rows)? / 1e6, 3),
            rows.len().to_string(),
            number(first.number("lost")?, 0),
            first.text("reason")?.to_string(),
        ]);
    }
    Ok(s)
}

fn one(key: &Key, rows: &[Row<'_>]) -> Result<Section, Error> {
    let mut s = Section::new(
        &name(key),
        "Each wait and each time between two waits, with its place in the whole. On CPU is on a \
         processor, or waiting for one. The parts of a wait for another instance follow each \
         other.",
        &["Begin (ms)", "Time (ms)", "%", "<When", "<What", "<Of what"],
    );
    let whole = length(rows)?.max(1.0);
    // What is shorter than the longest that have room is left out, and counted.
    let mut lengths = Vec::new();
    for row in rows {
        lengths.push(row.number("elapsed_nano")?);
    }
    lengths.sort_by(|a, b| b.total_cmp(a));
    let least = lengths.get(ROWS).copied().unwrap_or(0.0);
    let (mut left_out, mut left_out_nano) = (0u32, 0.0);
    for row in rows {
        let (at, time) = (row.number("offset_nano")?, row.number("elapsed_nano")?);
        if time <= least && lengths.len() > ROWS && row.text("activity")? != "STATEMENT" {
            left_out += 1;
            left_out_nano += time;
            continue;
        }
        s.row([
            number(at / 1e6, 3),
            number(time / 1e6, 3),
            percent(time, whole),
            bar(at, time, whole),
            what(row)?,
            of_what(row)?,
        ]);
    }
    if left_out > 0 {
        s.row([
            String::new(),
            number(left_out_nano / 1e6, 3),
            percent(left_out_nano, whole),
            String::new(),
            format!("{left_out} shorter ones"),
            String::new(),
        ]);
    }
    Ok(s)
}

fn bar(at: f64, time: f64, whole: f64) -> String {
    let begin = (at / whole * WIDTH).min(WIDTH - 1.0) as usize;
    let width = (time / whole * WIDTH).round().max(1.0) as usize;
    let width = width.min(WIDTH as usize - begin);
    // A table's text has no run of blanks.
    format!("{}{}", ".".repeat(begin), "#".repeat(width))
}

fn what(row: &Row<'_>) -> Result<String, Error> {
    Ok(match row.text("activity")? {
        "WAIT" => row.text("event")?.to_string(),
        "STATEMENT" => format!("statement {}", row.text("sql_id")?),
        other => other.to_lowercase().replace("cpu", "CPU"),
    })
}

/// The statement, or the object and the parts of a wait.
fn of_what(row: &Row<'_>) -> Result<String, Error> {
    if row.text("activity")? == "STATEMENT" {
        return Ok(row.text("sql_text")?.to_string());
    }
    let mut told = Vec::new();
    let object = row.text("object_name")?;
    if !object.is_empty() {
        told.push(object.to_string());
    }
    let instance = row.text("instance")?;
    if !instance.is_empty() {
        let mut parts = Vec::new();
        for (column, part) in PARTS {
            let nano = row.number(column)?;
            if nano >= 1000.0 {
                parts.push(format!("{part} {} us", number(nano / 1000.0, 0)));
            }
        }
        told.push(format!("instance {instance}: {}", parts.join(", ")));
    }
    Ok(told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 23] = [
        "inst_id",
        "timeline#",
        "sid",
        "program",
        "reason",
        "lost",
        "start_time",
        "offset_nano",
        "elapsed_nano",
        "activity",
        "event",
        "object_name",
        "instance",
        "message_out_nano",
        "queue_nano",
        "in_use_nano",
        "build_nano",
        "flush_nano",
        "other_nano",
        "message_back_nano",
        "wakeup_nano",
        "sql_id",
        "sql_text",
    ];

    fn row<'a>(at: &'a str, time: &'a str, activity: &'a str, rest: [&'a str; 13]) -> Vec<&'a str> {
        let head = [
            "1", "3", "42", "app", "slow", "0", "then", at, time, activity,
        ];
        head.into_iter().chain(rest).collect()
    }

    #[test]
    fn a_timeline_shows_when_what_was_waited_for() {
        let mut wait = [""; 13];
        (wait[0], wait[1], wait[2]) = ("gc current block busy", "t", "2");
        (wait[7], wait[10]) = ("4000000", "500000");
        let mut statement = [""; 13];
        (statement[11], statement[12]) = ("id1", "update t");
        let rows = [
            row("0", "0", "STATEMENT", statement),
            row("0", "5000000", "ON CPU", [""; 13]),
            row("5000000", "5000000", "WAIT", wait),
        ];
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let document = timelines(&Table::new("timeline", &COLUMNS, &rows)).unwrap();
        assert_eq!(document.sections[0].rows[0][0], "Instance 1, timeline 3");
        let shown = &document.sections[1].rows;
        assert_eq!(shown[0][4..], ["statement id1", "update t"]);
        assert_eq!(shown[1][3], "#".repeat(30));
        assert_eq!(shown[1][4], "on CPU");
        assert_eq!(shown[2][3], format!("{}{}", ".".repeat(30), "#".repeat(30)));
        assert_eq!(
            shown[2][5],
            "t; instance 2: log flush 4,000 us, wake up 500 us"
        );
    }

    #[test]
    fn what_has_no_room_is_counted_and_nothing_is_an_error_that_helps() {
        let short: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let rows: Vec<Vec<&str>> = short
            .iter()
            .map(|n| row("0", n, "ON CPU", [""; 13]))
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let document = timelines(&Table::new("timeline", &COLUMNS, &rows)).unwrap();
        let shown = &document.sections[1].rows;
        assert_eq!(shown.len(), ROWS + 1);
        assert_eq!(shown[ROWS][4], "100 shorter ones");
        let none = timelines(&Table::new("timeline", &COLUMNS, &[])).unwrap_err();
        assert!(
            none.to_string().contains("set wait_timeline = on"),
            "{none}"
        );
    }
}
