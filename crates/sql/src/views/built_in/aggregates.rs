//! The rows of `pg_aggregate`: the aggregates that `pg_proc` lists.
//!
//! Braid's aggregates are not put together from functions of SQL, so that the columns of transition
//! functions and their states name none.

use std::sync::LazyLock;

use block::value::Datum;

use super::super::procedures;
use super::super::value::{NULL, bool, int2, int4, oid, text};
use super::{Fields, lines, operators};

struct Aggregate {
    function: u32,
    kind: &'static str,
    direct: u16,
    order: u32,
}

static KNOWN: LazyLock<Vec<Aggregate>> = LazyLock::new(|| {
    lines(include_str!("aggregates.tsv"), |mut f: Fields<'static>| {
        Some(Aggregate {
            function: f.number()?,
            kind: f.text()?,
            direct: f.number()?,
            order: f.number()?,
        })
    })
});

/// The rows of `pg_aggregate`.
pub fn rows() -> Vec<Vec<Datum>> {
    let row = |a: &Aggregate| {
        let order = operators::by_number(a.order).map_or(0, |o| o.oid);
        let mut row = vec![oid(a.function), text(a.kind), int2(a.direct)];
        // Functions of transition, end, combination, and those of moving windows.
        row.extend(std::iter::repeat_n(oid(0), 8));
        row.extend([bool(false), bool(false), text("r"), text("r"), oid(order)]);
        row.extend([oid(0), int4(0), oid(0), int4(0), NULL, NULL]);
        row
    };
    let there = KNOWN.iter().filter(|a| procedures::is_there(a.function));
    there.map(row).collect()
}
