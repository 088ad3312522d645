//! `pg_type`: the types of values, and those that only catalogs mention.

use block::value::Datum;

use super::describe::{self, DEFAULT_COLLATION, OWNER, PG_CATALOG};
use super::value::{NULL, bool, int2, int4, oid, text};
use super::{Context, Rows};
use crate::error::Result;
use crate::types::SqlType;

/// What pg_type says of one type.
struct Type<'a> {
    oid: u32,
    name: &'a str,
    len: i16,
    category: &'a str,
    element: u32,
    array: u32,
    collation: u32,
}

impl Type<'_> {
    fn row(self) -> Vec<Datum> {
        let by_value = matches!(self.len, 1 | 2 | 4 | 8);
        let function = |suffix: &str| text(format!("{}{suffix}", self.name));
        let kind = if self.category == "P" { "p" } else { "b" };
        vec![
            oid(self.oid),
            text(self.name),
            oid(PG_CATALOG),
            oid(OWNER),
            int2(self.len),
            bool(by_value),
            text(kind),
            text(self.category),
            bool(false),
            bool(true),
            text(","),
            oid(0),
            text(if self.category == "A" {
                "array_subscript_handler"
            } else {
                "-"
            }),
            oid(self.element),
            oid(self.array),
            if self.category == "A" {
                text("array_in")
            } else {
                function("in")
            },
            if self.category == "A" {
                text("array_out")
            } else {
                function("out")
            },
            if self.category == "A" {
                text("array_recv")
            } else {
                function("recv")
            },
            if self.category == "A" {
                text("array_send")
            } else {
                function("send")
            },
            bool(false),
            oid(0),
            int4(-1),
            int4(0),
            oid(self.collation),
            NULL,
        ]
    }
}

fn category(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Bool => "B",
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => "D",
        SqlType::Interval => "T",
        SqlType::Bytea | SqlType::Uuid | SqlType::Json | SqlType::Jsonb => "U",
        SqlType::Unknown => "X",
        SqlType::Void => "P",
        t if t.is_number() => "N",
        _ => "S",
    }
}

pub fn rows(_: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for ty in SqlType::ALL {
        let collation = if ty.is_string() && ty != SqlType::Unknown {
            DEFAULT_COLLATION
        } else {
            0
        };
        let name = ty.internal_name();
        let array = describe::array_of(ty);
        rows.push(
            Type {
                oid: ty.oid(),
                name,
                len: ty.typlen(),
                category: category(ty),
                element: 0,
                array,
                collation,
            }
            .row(),
        );
    }
    for (number, name, _) in describe::OTHER_TYPES {
        let element = SqlType::ALL
            .into_iter()
            .find(|t| describe::array_of(*t) == *number)
            .map_or(0, SqlType::oid);
        let category = if name.starts_with('_') { "A" } else { "U" };
        rows.push(
            Type {
                oid: *number,
                name,
                len: -1,
                category,
                element,
                array: 0,
                collation: 0,
            }
            .row(),
        );
    }
    Ok(rows)
}
