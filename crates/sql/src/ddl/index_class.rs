//! Operator classes of an index's columns.
//!
//! All strings are compared byte by byte, so that the classes of patterns order them as the default
//! class does. They are kept to be shown. What the classes of a GIN index make of a value is in
//! [`crate::dict::inverted`]. Any class that is not there is refused.

use sqlparser::ast;

use crate::bind::{check_comparable, names};
use crate::dict::{Dict, Method};
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

fn of_method(method: Method) -> impl Iterator<Item = &'static Class> {
    classes::all().filter(move |c| c.method == method)
}

/// The class that PostgreSQL takes for a type by default.
fn default(method: Method, ty: SqlType) -> Option<&'static Class> {
    let number = class_type(ty);
    of_method(method).find(|c| c.default && c.of == number)
}

/// Whether PostgreSQL has a class for a type by default.
pub fn has_default(method: Method, ty: SqlType) -> bool {
    default(method, ty).is_some()
}

/// The object id of a column's class; an empty name is the default.
pub fn object_id(method: Method, ty: SqlType, name: &str) -> u32 {
    let named = of_method(method).find(|c| c.name == name);
    named.or_else(|| default(method, ty)).map_or(0, |c| c.oid)
}

/// Refuses a column of a type that has no class, if none is named, and what has one whose elements
/// cannot be compared. What B-trees refuse is known when the index is made.
pub fn check(method: Method, ty: SqlType, name: &str) -> Result<()> {
    if method.is_ordered() {
        return Ok(());
    }
    if name.is_empty() && default(method, ty).is_none() {
        return Err(method.no_default_class(ty));
    }
    if let (Method::Gin, Some(element)) = (method, ty.element())
        && check_comparable(element, "comparison").is_err()
    {
        let name = element.name();
        let message = format!("could not identify a comparison function for type {name}");
        return Err(Error::new("42883", message));
    }
    Ok(())
}

/// The class that a column of an index is given, as it is kept: empty if it is the default.
pub fn of(dict: &Dict, method: Method, ty: SqlType, name: &ast::ObjectName) -> Result<String> {
    let names::Qualified { schema, name } = names::Qualified::new(name)?;
    if method == Method::Gin && dict.has_class(schema.as_deref(), &name) {
        return match method.key_class(ty, &name) {
            Ok(_) => Ok(name),
            Err(_) => Err(refuses(&name, ty)),
        };
    }
    let number = class_type(ty);
    let mut named = of_method(method).filter(|c| c.name == name).peekable();
    let known = named.peek().is_some();
    // A text is a `character` without another form, but not the other way around.
    let stands_for = |class: &Class| {
        class.of == number || class.of == SqlType::Char.oid() && number == SqlType::Text.oid()
    };
    if let Some(class) = named.find(|c| stands_for(c)) {
        return Ok(match class.default && class.of == number {
            true => String::new(),
            false => name,
        });
    }
    Err(match known {
        true => refuses(&name, ty),
        false => {
            let method = method.name();
            let message =
                format!("operator class \"{name}\" does not exist for access method \"{method}\"");
            Error::new("42704", message)
        }
    })
}

/// Whether a class has equal values where the type has none: as `character` has, of text that ends
/// in blanks.
pub fn equates_more(ty: SqlType, name: &str) -> bool {
    ty != SqlType::Char && name.starts_with("bpchar_")
}

fn refuses(class: &str, ty: SqlType) -> Error {
    let ty = ty.name();
    let message = format!("operator class \"{class}\" does not accept data type {ty}");
    Error::new("42804", message)
}
