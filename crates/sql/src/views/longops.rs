//! How far long work has come: `v$session_longops`.

use std::collections::HashMap;

use block::value::Datum;
use wait::longop::{self, LongOpRow, Target};

use super::Source::Here;
use super::value::{NULL, int4, int8, optional, text, time};
use super::{Context, Rows, VirtualTable, segments};
use crate::error::Result;
use crate::trace::SqlId;
use crate::types::SqlType::{Int4, Int8, Text, TimestampTz};

pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "v$session_longops",
    columns: &[
        ("sid", Int4),
        ("serial#", Int8),
        ("opname", Text),
        ("target", Text),
        ("sofar", Int8),
        ("totalwork", Int8),
        ("units", Text),
        ("start_time", TimestampTz),
        ("last_update_time", TimestampTz),
        ("time_remaining", Int8),
        ("elapsed_seconds", Int8),
        ("message", Text),
        ("username", Text),
        ("sql_id", Text),
        ("sql_text", Text),
        ("status", Text),
        ("object_id", Int8),
    ],
    rows: Here(rows),
}];

fn rows(cx: &Context) -> Result<Rows> {
    let names = segments::named(cx);
    let tables = cx.dict.tables().map(|t| (t.segment, t.oid));
    let tables: HashMap<u32, u32> = tables.collect();
    let row = |r: LongOpRow| {
        let target = match &r.target {
            Target::Nothing => None,
            Target::Object(object) => Some(segments::name_of(&names, *object)),
            Target::Named(name) => Some(name.clone()),
        };
        let of_total = match r.total {
            0 => String::new(),
            total => format!(" out of {total}"),
        };
        let about = target
            .as_deref()
            .map_or(String::new(), |t| format!(" of {t}"));
        let message = format!("{}{about}: {}{of_total} {} done", r.name, r.done, r.units);
        vec![
            int4(r.sid),
            int8(r.serial),
            text(r.name),
            optional(target),
            int8(r.done),
            match r.total {
                0 => NULL,
                total => int8(total),
            },
            text(r.units),
            time(r.began),
            time(r.began + r.updated),
            r.remaining.map_or(NULL, |left| int8(left.as_secs())),
            int8(r.elapsed.as_secs()),
            text(message),
            match r.role {
                0 => NULL,
                role => text(cx.role_name(role)),
            },
            optional(r.sql.as_deref().map(|t| SqlId::of(t).to_string())),
            match &r.sql {
                Some(sql) => cx.shown_statement(r.role, Some(sql)),
                None => Datum::Null,
            },
            text(if r.is_over { "DONE" } else { "RUNNING" }),
            match &r.target {
                Target::Object(object) => tables.get(object).copied().map_or(NULL, int8),
                _ => NULL,
            },
        ]
    };
    Ok(longop::rows().into_iter().map(row).collect())
}
