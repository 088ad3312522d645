//! What may be done to a relation, for `pg_relation_is_updatable` and the views of
//! `information_schema`.

use std::collections::BTreeSet;

use crate::dict::trigger::Op;
use crate::dict::{Dict, View};
use crate::error::Result;
use crate::plan::updatable::Shape;

/// The bits of the commands, as PostgreSQL numbers them.
pub const UPDATE: i32 = 1 << 2;
pub const INSERT: i32 = 1 << 3;
pub const DELETE: i32 = 1 << 4;
const ALL: i32 = UPDATE | INSERT | DELETE;

/// What may be done to a relation, of these columns if some are given; with `triggers` also by
/// INSTEAD OF triggers.
pub fn events(
    dict: &Dict,
    oid: u32,
    triggers: bool,
    columns: Option<&BTreeSet<i16>>,
) -> Result<i32> {
    let Some(view) = dict.view_by_oid(oid) else {
        return Ok(match dict.table_by_oid(oid) {
            Some(t) if t.materialized.is_none() => ALL,
            _ => 0,
        });
    };
    let by_triggers = match triggers {
        true => instead(view),
        false => 0,
    };
    Ok(by_triggers | automatic(dict, view, triggers, columns)?)
}

/// What INSTEAD OF triggers do.
pub fn instead(view: &View) -> i32 {
    let each = [
        (Op::Update, UPDATE),
        (Op::Insert, INSERT),
        (Op::Delete, DELETE),
    ];
    let done = each
        .iter()
        .filter(|(op, _)| view.triggers.iter().any(|t| t.is_instead(*op)));
    done.fold(0, |all, (_, bit)| all | bit)
}

fn automatic(
    dict: &Dict,
    view: &View,
    triggers: bool,
    columns: Option<&BTreeSet<i16>>,
) -> Result<i32> {
    let Ok(shape) = Shape::of(dict, view)? else {
        return Ok(0);
    };
    let Some(source) = view.sources.get(shape.source) else {
        return Ok(0);
    };
    let wanted = (0..view.columns.len()).filter(|at| {
        let number = i16::try_from(at + 1).unwrap_or(i16::MAX);
        columns.is_none_or(|columns| columns.contains(&number))
    });
    let below = wanted.filter_map(|at| shape.column(at, &source.columns).ok());
    let below: BTreeSet<i16> = below.collect();
    let own = match below.is_empty() {
        true => DELETE,
        false => ALL,
    };
    // Of a table every column may be written.
    match dict.view_by_oid(source.oid) {
        None => Ok(own & events(dict, source.oid, triggers, None)?),
        Some(_) => Ok(own & events(dict, source.oid, triggers, Some(&below))?),
    }
}
