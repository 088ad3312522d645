//! Operator classes of an index's columns.
//!
//! All strings are compared byte by byte, so that the classes of patterns order them as the default
//! class does. They are kept to be shown, and anything else is refused.

use sqlparser::ast;

use crate::bind::names;
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::views::built_in::classes::{self, Class};

/// Numbers of the types that classes are for which stand for several.
const ANY_ARRAY: u32 = 2277;
const ANY_ENUM: u32 = 3500;
const RECORD: u32 = 2249;
const ANY_RANGE: u32 = 3831;
const ANY_MULTIRANGE: u32 = 4537;

/// The number of the type whose classes a type has.
fn class_type(ty: SqlType) -> u32 {
    match ty.base() {
        SqlType::Varchar => SqlType::Text.oid(),
        SqlType::Cidr => SqlType::Inet.oid(),
        SqlType::Reg(_) => SqlType::Oid.oid(),
        SqlType::Array(_) => ANY_ARRAY,
        SqlType::Enum(_) => ANY_ENUM,
        SqlType::Composite(_) => RECORD,
        SqlType::Range(_) => ANY_RANGE,
        SqlType::Multirange(_) => ANY_MULTIRANGE,
        // Their own classes are not in the catalog: those of what they are stored like.
        ty if ty.is_citext() => SqlType::Text.oid(),
        ty if ty.is_hstore() => SqlType::Jsonb.oid(),
        ty => ty.oid(),
    }
}

/// The class that PostgreSQL's B-trees take for a type by default.
fn default(ty: SqlType) -> Option<&'static Class> {
    let number = class_type(ty);
    classes::all().find(|c| c.default && c.of == number)
}

/// The object id of a column's class; an empty name is the default.
pub fn object_id(ty: SqlType, name: &str) -> u32 {
    let named = classes::all().find(|c| c.name == name);
    named.or_else(|| default(ty)).map_or(0, |c| c.oid)
}

/// The class that a column of an index is given, as it is kept: empty if it is the default.
pub fn of(ty: SqlType, name: &ast::ObjectName) -> Result<String> {
    let name = names::Qualified::new(name)?.name;
    let number = class_type(ty);
    let mut named = classes::all().filter(|c| c.name == name).peekable();
    let known = named.peek().is_some();
    if let Some(class) = named.find(|c| c.of == number) {
        return Ok(match class.default {
            true => String::new(),
            false => name,
        });
    }
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
