//! Operator classes of an index's columns.
//!
//! All strings are compared byte by byte, so that the classes of patterns order them as the default
//! class does. They are kept to be shown, and anything else is refused.

use sqlparser::ast;

use crate::bind::names;
use crate::error::{Error, Result};
use crate::types::SqlType;

/// Classes that have the same order as another of the type: object id, name, type.
const OTHERS: &[(u32, &str, SqlType)] = &[
    (4217, "text_pattern_ops", SqlType::Text),
    (4218, "varchar_pattern_ops", SqlType::Text),
    (10_044, "varchar_ops", SqlType::Text),
    (4219, "bpchar_pattern_ops", SqlType::Char),
    (10_009, "cidr_ops", SqlType::Inet),
];

/// The class that PostgreSQL's B-trees take for a type by default.
fn default(ty: SqlType) -> (u32, &'static str) {
    match ty {
        SqlType::Bool => (10_003, "bool_ops"),
        SqlType::Bytea => (10_006, "bytea_ops"),
        SqlType::InternalChar => (10_007, "char_ops"),
        SqlType::Name => (10_028, "name_ops"),
        SqlType::Int2 => (1979, "int2_ops"),
        SqlType::Int4 => (1978, "int4_ops"),
        SqlType::Int8 => (3124, "int8_ops"),
        SqlType::Oid | SqlType::Reg(_) => (1981, "oid_ops"),
        SqlType::Float4 => (10_012, "float4_ops"),
        SqlType::Float8 => (3123, "float8_ops"),
        SqlType::Numeric => (3125, "numeric_ops"),
        SqlType::Text | SqlType::Varchar => (3126, "text_ops"),
        SqlType::Char => (10_004, "bpchar_ops"),
        SqlType::Date => (3122, "date_ops"),
        SqlType::Time => (10_038, "time_ops"),
        SqlType::Timestamp => (3128, "timestamp_ops"),
        SqlType::TimestampTz => (3127, "timestamptz_ops"),
        SqlType::Interval => (10_022, "interval_ops"),
        SqlType::Uuid => (10_065, "uuid_ops"),
        SqlType::Bit => (10_002, "bit_ops"),
        SqlType::Varbit => (10_043, "varbit_ops"),
        SqlType::Inet | SqlType::Cidr => (10_015, "inet_ops"),
        SqlType::MacAddr => (10_024, "macaddr_ops"),
        SqlType::MacAddr8 => (10_026, "macaddr8_ops"),
        SqlType::TimeTz => (10_041, "timetz_ops"),
        SqlType::Money => (10_047, "money_ops"),
        SqlType::Range(_) => (10_076, "range_ops"),
        SqlType::Multirange(_) => (10_080, "multirange_ops"),
        SqlType::Array(_) => (10_000, "array_ops"),
        SqlType::OidVector => (10_032, "oidvector_ops"),
        _ => (0, ""),
    }
}

/// Types that a class of a name is for, for messages about those that it is not for.
const TYPES: &[SqlType] = &[
    SqlType::Bool,
    SqlType::Bytea,
    SqlType::InternalChar,
    SqlType::Name,
    SqlType::Int2,
    SqlType::Int4,
    SqlType::Int8,
    SqlType::Oid,
    SqlType::Float4,
    SqlType::Float8,
    SqlType::Numeric,
    SqlType::Text,
    SqlType::Char,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Interval,
    SqlType::Uuid,
    SqlType::Bit,
    SqlType::Varbit,
    SqlType::Inet,
    SqlType::MacAddr,
    SqlType::MacAddr8,
    SqlType::TimeTz,
    SqlType::Money,
];

/// The object id of a column's class; an empty name is the default.
pub fn object_id(ty: SqlType, name: &str) -> u32 {
    let other = OTHERS.iter().find(|(_, known, _)| *known == name);
    other.map_or(default(ty).0, |(oid, ..)| *oid)
}

/// The class that a column of an index is given, as it is kept: empty if it is the default.
pub fn of(ty: SqlType, name: &ast::ObjectName) -> Result<String> {
    let name = names::Qualified::new(name)?.name;
    if default(ty).1 == name {
        return Ok(String::new());
    }
    let plain = match ty {
        SqlType::Varchar => SqlType::Text,
        SqlType::Cidr => SqlType::Inet,
        other => other,
    };
    let fits = |(_, known, of): &(u32, &str, SqlType)| *known == name && *of == plain;
    if OTHERS.iter().any(fits) {
        return Ok(name);
    }
    let known = OTHERS.iter().any(|(_, known, _)| *known == name)
        || TYPES.iter().any(|t| default(*t).1 == name)
        || name == "array_ops";
    let ty = ty.name();
    Err(match known {
        true => {
            let message = format!("operator class \"{name}\" does not accept data type {ty}");
            Error::new("42804", message)
        }
        false => {
            let message =
                format!("operator class \"{name}\" does not exist for access method \"btree\"");
            Error::new("42704", message)
        }
    })
}
