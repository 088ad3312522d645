//! Triggers in the catalogs.

use block::value::Datum;

use super::Context;
use super::value::{NULL, bool, int2, int2vector, oid, text};
use crate::bind::numbered;
use crate::dict::Dict;
use crate::dict::trigger::{Constraint, Op, Trigger};

/// The bits of `tgtype`.
fn bits(trigger: &Trigger) -> u16 {
    let mut bits = u16::from(trigger.row) | u16::from(trigger.before) << 1;
    bits |= u16::from(trigger.instead) << 6;
    for op in &trigger.ops {
        bits |= match op {
            Op::Insert => 4,
            Op::Delete => 8,
            Op::Update => 16,
            Op::Truncate => 32,
        };
    }
    bits
}

/// What `pg_get_triggerdef` says.
pub fn definition(dict: &Dict, number: u32, pretty: bool) -> Option<String> {
    let table = dict.relation_of_trigger(number)?;
    let found = table.triggers.iter().find(|t| t.oid == number)?;
    Some(found.definition(dict, &table, pretty))
}

/// The rows of `pg_trigger`.
pub fn rows(cx: &Context) -> Vec<Vec<Datum>> {
    let each = cx
        .tables()
        .flat_map(|table| table.triggers.iter().map(|t| row(&cx.dict, table.oid, t)));
    let of_views = cx
        .views()
        .flat_map(|view| view.triggers.iter().map(|t| row(&cx.dict, view.oid, t)));
    each.chain(of_views).collect()
}

/// The arguments, each with a zero byte behind it.
fn arguments(t: &Trigger) -> Vec<u8> {
    let each = t.arguments.iter();
    each.flat_map(|a| a.bytes().chain([0])).collect()
}

fn row(dict: &Dict, table: u32, t: &Trigger) -> Vec<Datum> {
    let constraint = t.constraint.as_ref();
    let number = |of: fn(&Constraint) -> u32| oid(constraint.map_or(0, of));
    vec![
        oid(t.oid),
        oid(table),
        oid(0),
        text(&t.name),
        oid(t.function),
        int2(bits(t)),
        text(t.enabled.to_string()),
        bool(false),
        number(|c| c.from),
        oid(0),
        number(|c| c.oid),
        bool(constraint.is_some_and(|c| c.deferrable)),
        bool(constraint.is_some_and(|c| c.initially_deferred)),
        int2(t.arguments.len()),
        int2vector(t.columns.iter().map(|c| c + 1)),
        Datum::Bytea(arguments(t)),
        t.when
            .as_ref()
            .map_or(NULL, |when| text(numbered::shown_now(dict, when))),
        t.old_table.as_ref().map_or(NULL, text),
        t.new_table.as_ref().map_or(NULL, text),
    ]
}
