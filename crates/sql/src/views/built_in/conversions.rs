//! The rows of `pg_conversion`: between UTF-8, in which everything is stored, and the encodings
//! that `charset` converts. They are made by no function of SQL.

use std::sync::LazyLock;

use block::value::Datum;
use charset::Encoding;

use super::super::describe::{OWNER, PG_CATALOG};
use super::super::value::{bool, int4, oid, text};
use super::{Fields, lines};

struct Conversion {
    oid: u32,
    name: &'static str,
    from: i64,
    to: i64,
    default: bool,
}

static KNOWN: LazyLock<Vec<Conversion>> = LazyLock::new(|| {
    lines(include_str!("conversions.tsv"), |mut f: Fields<'static>| {
        Some(Conversion {
            oid: f.number()?,
            name: f.text()?,
            from: f.number()?,
            to: f.number()?,
            default: f.yes()?,
        })
    })
});

fn is_there(c: &Conversion) -> bool {
    const UTF8: i64 = 6;
    let other = match (c.from, c.to) {
        (UTF8, other) | (other, UTF8) => other,
        _ => return false,
    };
    Encoding::from_number(other).is_some_and(Encoding::converts)
}

/// The rows of `pg_conversion`.
pub fn rows() -> Vec<Vec<Datum>> {
    let row = |c: &Conversion| {
        vec![
            oid(c.oid),
            text(c.name),
            oid(PG_CATALOG),
            oid(OWNER),
            int4(c.from),
            int4(c.to),
            oid(0),
            bool(c.default),
        ]
    };
    let there = KNOWN.iter().filter(|c| is_there(c));
    there.map(row).collect()
}
