//! `pg_rewrite`: the rule that makes a view of a relation, by which dumps know what a view reads.
//!
//! Its number is the view's.

use super::Source::Here;
use super::value::{NULL, bool, oid, text};
use super::{Context, Rows, VirtualTable};
use crate::types::SqlType::{Bool, InternalChar, Name, Oid, Text};

pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "pg_rewrite",
    columns: &[
        ("oid", Oid),
        ("rulename", Name),
        ("ev_class", Oid),
        ("ev_type", InternalChar),
        ("ev_enabled", InternalChar),
        ("is_instead", Bool),
        ("ev_qual", Text),
        ("ev_action", Text),
    ],
    rows: Here(|cx| Ok(rows(cx))),
}];

fn rows(cx: &Context) -> Rows {
    let views = cx.views().map(|v| v.oid);
    let made = cx.tables().filter(|t| t.materialized.is_some());
    let all = views.chain(made.map(|t| t.oid));
    let row = |view: u32| {
        vec![
            oid(view),
            text("_RETURN"),
            oid(view),
            text("1"),
            text("O"),
            bool(true),
            text("<>"),
            NULL,
        ]
    };
    all.map(row).collect()
}
