//! What a session has made for itself, and no other can see: its cursors and prepared statements.

use super::Source::Session;
use super::value::{bool, int4, int8, oids, optional, text};
use super::{Rows, VirtualTable};
use crate::session::Core;
use crate::types::SqlType::{self, Bool, Int4, Int8, Text, TimestampTz};
use block::value::Datum;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_cursors",
        columns: &[
            ("name", Text),
            ("statement", Text),
            ("is_holdable", Bool),
            ("is_binary", Bool),
            ("is_scrollable", Bool),
            ("creation_time", TimestampTz),
        ],
        rows: Session(cursors),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_prepared_statements",
        columns: &[
            ("name", Text),
            ("statement", Text),
            ("prepare_time", TimestampTz),
            ("parameter_types", SqlType::REGTYPES),
            ("from_sql", Bool),
            ("generic_plans", Int8),
            ("custom_plans", Int8),
        ],
        rows: Session(prepared_statements),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$mystat",
        columns: &[("sid", Int4), ("statistic#", Int4), ("value", Int8)],
        rows: Session(statistics),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$diag_info",
        columns: &[("inst_id", Int4), ("name", Text), ("value", Text)],
        rows: Session(diag_info),
    },
];

/// Where this session's trace file is.
fn diag_info(core: &Core) -> Rows {
    let (instance, params) = (core.database.engine().instance(), core.database.params());
    let file = crate::trace::path(params, instance, core.database.own_pid());
    let dir = params.dir().map(crate::trace::directory);
    let row = |name: &str, value: Option<String>| vec![int4(instance), text(name), optional(value)];
    vec![
        row("Diag Trace", dir.map(|d| d.display().to_string())),
        row("Default Trace File", file),
    ]
}

fn cursors(core: &Core) -> Rows {
    let row = |(name, declared): (&str, &crate::session::cursors::Declared)| {
        vec![
            text(name),
            text(&*declared.text),
            bool(declared.hold),
            bool(declared.binary),
            bool(declared.scroll),
            Datum::TimestampTz(declared.since),
        ]
    };
    core.cursors.list().map(row).collect()
}

fn prepared_statements(core: &Core) -> Rows {
    let row = |(name, named): (&str, &crate::prepared::Named)| {
        let statement = &named.statement;
        vec![
            text(name),
            text(&**named.declaration.as_ref().unwrap_or(statement.text())),
            Datum::TimestampTz(named.since),
            oids(statement.param_types().iter().copied()),
            bool(named.declaration.is_some()),
            // Every statement is planned once, for whatever values it is executed with.
            int8(named.bound),
            int8(0),
        ]
    };
    core.prepared.iter().map(row).collect()
}

fn statistics(_: &Core) -> Rows {
    let Some(own) = wait::session::current() else {
        return Rows::new();
    };
    let all = wait::views::session_stats(&own).into_iter();
    all.map(|(stat, value)| vec![int4(own.sid), int4(stat as i32), int8(value)])
        .collect()
}
