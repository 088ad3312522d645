//! `v$active_session_summary`: the samples of active sessions, added up in steps of five seconds.

use wait::{activity, views};

use super::activity::kind;
use super::value::{NULL, int8, optional, time};
use super::{Context, Rows, Source, VirtualTable};
use crate::error::Result;
use crate::trace::SqlId;
use crate::types::SqlType::{Int8, Text, TimestampTz};

pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "v$active_session_summary",
    columns: &[
        ("begin_time", TimestampTz),
        ("samplings", Int8),
        ("session_type", Text),
        ("event", Text),
        ("wait_class", Text),
        ("sql_id", Text),
        ("sessions", Int8),
    ],
    rows: Source::Here(summary),
}];

/// A row for each group of a step, and one for a step in which no session was active.
fn summary(_: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for step in views::active_session_summary() {
        let head = [time(step.begin), int8(step.samplings)];
        if step.groups.is_empty() {
            let rest = [NULL, NULL, NULL, NULL, int8(0)];
            rows.push(head.into_iter().chain(rest).collect());
            continue;
        }
        for (group, sessions) in step.groups {
            let activity::Group {
                kind: of,
                event,
                sql,
            } = group;
            let id = sql.as_deref().map(|text| SqlId::of(text).to_string());
            let rest = [
                kind(of),
                optional(event.map(|e| e.name())),
                optional(event.map(|e| e.class().name())),
                optional(id),
                int8(sessions),
            ];
            rows.push(head.iter().cloned().chain(rest).collect());
        }
    }
    Ok(rows)
}
