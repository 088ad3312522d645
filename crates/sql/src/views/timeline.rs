//! Waits one by one, in the order in which they passed: `v$wait_timeline`.

use std::sync::Arc;

use block::value::Datum;
use wait::timeline::{self, Kept, Noted};
use wait::trace::TracedWait;

use super::Source::Here;
use super::value::{NULL, int4, int8, optional, text, time};
use super::{Context, Rows, VirtualTable, segments};
use crate::error::Result;
use crate::trace::SqlId;
use crate::types::SqlType::{Int4, Int8, Text, TimestampTz};

pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "v$wait_timeline",
    columns: &[
        ("timeline#", Int8),
        ("reason", Text),
        ("sid", Int4),
        ("serial#", Int8),
        ("program", Text),
        ("lost", Int8),
        ("seq#", Int8),
        ("start_time", TimestampTz),
        ("offset_nano", Int8),
        ("elapsed_nano", Int8),
        ("activity", Text),
        ("event", Text),
        ("wait_class", Text),
        ("p1", Int8),
        ("p2", Int8),
        ("p3", Int8),
        ("object_name", Text),
        ("instance", Int4),
        ("message_out_nano", Int8),
        ("queue_nano", Int8),
        ("in_use_nano", Int8),
        ("build_nano", Int8),
        ("flush_nano", Int8),
        ("other_nano", Int8),
        ("message_back_nano", Int8),
        ("wakeup_nano", Int8),
        ("sql_id", Text),
        ("sql_text", Text),
    ],
    rows: Here(rows),
}];

/// Columns from the event to the statement.
const OF_WAIT: usize = 15;

fn rows(cx: &Context) -> Result<Rows> {
    let names = segments::named(cx);
    let mut rows = Rows::new();
    for kept in timeline::all() {
        // What a session runs and waits for is for those who may watch it.
        if !cx.authority.may_watch(&cx.dict, kept.role) {
            continue;
        }
        let mut of = OfOne {
            kept: &kept,
            rows: &mut rows,
            at_ns: kept.from_ns,
            number: 0,
            statement: None,
        };
        for noted in &kept.entries {
            of.note(noted, |object| segments::name_of(&names, object));
        }
        // A session that goes on has been on a processor since its last wait, or waits.
        if kept.number != 0 {
            of.on_cpu(kept.to_ns);
        }
    }
    Ok(rows)
}

/// The rows of one timeline as they are made.
struct OfOne<'a> {
    kept: &'a Kept,
    rows: &'a mut Rows,
    /// Up to where it has been told.
    at_ns: u64,
    number: u64,
    statement: Option<Arc<str>>,
}

impl OfOne<'_> {
    fn note(&mut self, noted: &Noted, name: impl Fn(u32) -> String) {
        match noted {
            Noted::Statement { text: sql, at_ns } => {
                self.on_cpu(*at_ns);
                self.statement = Some(sql.clone());
                self.row(*at_ns, 0, "STATEMENT", Vec::new());
            }
            Noted::Wait(wait) => {
                let began_ns = wait.ended_ns.saturating_sub(wait.elapsed_ns);
                self.on_cpu(began_ns);
                self.row(began_ns, wait.elapsed_ns, "WAIT", of_wait(wait, name));
                self.at_ns = self.at_ns.max(wait.ended_ns);
            }
        }
    }

    /// Between waits the session was on a processor, or could have been.
    fn on_cpu(&mut self, until_ns: u64) {
        if until_ns > self.at_ns {
            let (from, ns) = (self.at_ns, until_ns - self.at_ns);
            self.row(from, ns, "ON CPU", Vec::new());
            self.at_ns = until_ns;
        }
    }

    fn row(&mut self, at_ns: u64, elapsed_ns: u64, activity: &str, mut of_wait: Vec<Datum>) {
        self.number += 1;
        let k = self.kept;
        let mut row = vec![
            int8(k.number),
            text(&*k.why),
            int4(k.sid),
            int8(k.serial),
            text(&*k.program),
            int8(k.lost),
            int8(self.number),
            time(wait::wall_clock_of(at_ns)),
            int8(at_ns.saturating_sub(k.from_ns)),
            int8(elapsed_ns),
            text(activity),
        ];
        of_wait.resize(OF_WAIT, NULL);
        row.append(&mut of_wait);
        let id = self.statement.as_deref().map(|t| SqlId::of(t).to_string());
        row.push(optional(id));
        row.push(optional(self.statement.as_deref()));
        self.rows.push(row);
    }
}

fn of_wait(wait: &TracedWait, name: impl Fn(u32) -> String) -> Vec<Datum> {
    let [p1, p2, p3] = wait.params.map(|p| Datum::Int8(p as i64));
    let mut row = vec![
        text(wait.event.name()),
        text(wait.event.class().name()),
        p1,
        p2,
        p3,
        optional(wait.object.map(name)),
    ];
    if let Some(remote) = &wait.remote {
        row.push(int4(remote.instance));
        row.extend(remote.parts_ns.map(int8));
    }
    row
}
