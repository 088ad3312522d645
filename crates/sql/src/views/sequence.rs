//! A sequence as a relation: its only row, as `SELECT * FROM sequence` reads it.

use block::sequence::SequenceState;
use block::value::Datum;

use super::value::{NULL, bool, int8};
use super::{Context, Rows, Source, VirtualTable};
use crate::bind::names::{self, Qualified};
use crate::dict::acl::{Kind, Privileges};
use crate::dict::{Relation, Sequence};
use crate::error::{Error, Result};
use crate::types::SqlType::{Bool, Int8};

/// The columns of every sequence.
pub static SEQUENCE: VirtualTable = VirtualTable {
    schema: "pg_catalog",
    name: "sequence",
    columns: &[("last_value", Int8), ("log_cnt", Int8), ("is_called", Bool)],
    rows: Source::Sequence,
};

/// The row of a sequence, or of the one that has its name by now.
pub fn row(cx: &Context, sequence: &Sequence) -> Result<Rows> {
    let found = match cx.dict.sequence_by_oid(sequence.oid) {
        Some(now) => now.clone(),
        None => {
            let name = Qualified {
                schema: Some(cx.dict.schema_name(sequence.schema).to_string()),
                name: sequence.name.clone(),
            };
            match cx.dict.relation(&name) {
                Some(Relation::Sequence(now)) => now,
                _ => return Err(names::no_relation(&name)),
            }
        }
    };
    let (_, state) = cx.database.engine().sequence_state(&found.engine())?;
    let (last, called) = stand(&found, state);
    // No values are logged ahead: the mark is durable before a value is given.
    Ok(vec![vec![int8(last), int8(0_i64), bool(called)]])
}

/// The last value, and whether it was given, such that `setval` of both leads here.
///
/// What is stored is the next value; `setval(.., false)` leaves the same as a value given before
/// it. So nothing counts as given where the next value is the one to start with, or where there is
/// none before it.
fn stand(s: &Sequence, state: SequenceState) -> (i64, bool) {
    if state.exhausted {
        return (state.mark, true);
    }
    let before = state.mark.checked_sub(s.increment);
    match before.filter(|b| (s.min..=s.max).contains(b)) {
        Some(before) if state.draw != 0 && state.mark != s.start => (before, true),
        _ => (state.mark, false),
    }
}

/// Whether the role may know how far a sequence is.
pub fn may_know(cx: &Context, s: &Sequence) -> bool {
    let any = Privileges::USAGE.and(Privileges::SELECT);
    let role = cx.authority.role;
    let held = cx.dict.privileges(role, Kind::Sequence, s.oid, s.role, any);
    !held.is_empty()
}

/// The last value that an instance has drawn or put into its cache: Oracle's `SEQ$.HIGHWATER`.
/// NULL while none was drawn.
pub fn last_value(cx: &Context, s: &Sequence) -> Result<Datum> {
    let (_, state) = cx.database.engine().sequence_state(&s.engine())?;
    Ok(match state {
        state if state.exhausted => int8(state.mark),
        state if state.draw == 0 => NULL,
        state => int8(state.mark.wrapping_sub(s.increment)),
    })
}

/// `pg_sequence_last_value` of a relation's number.
pub fn last_value_of(cx: &Context, number: u32) -> Result<Datum> {
    let Some(s) = cx.dict.sequence_by_oid(number) else {
        return Err(no_sequence(cx, number));
    };
    match may_know(cx, s) {
        true => last_value(cx, s),
        false => {
            let message = format!("permission denied for sequence {}", s.name);
            Err(Error::new("42501", message))
        }
    }
}

fn no_sequence(cx: &Context, number: u32) -> Error {
    match super::objects::relation_of(&cx.dict, number) {
        Some((_, name)) => Error::new("42809", format!("\"{name}\" is not a sequence")),
        None => {
            let message = format!("could not open relation with OID {number}");
            Error::new("XX000", message)
        }
    }
}
