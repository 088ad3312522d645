//! Objects by their names and numbers: what `regclass` and its kin mean.

use super::built_in::operators;
use super::describe;
use super::numbers::{view_by_oid, view_oid};
use super::procedures;
use super::user_functions;
use crate::bind::names::{self, Qualified};
use crate::bind::{TypeNames, parts};
use crate::dict::{Dict, Relation};
use crate::error::{Error, Result};
use crate::types::Reg;

/// The number of the object that a text names: `-` is none, digits are the number itself.
/// `database` is the name of the session's own, which may stand before a relation's.
pub fn find(dict: &Dict, database: &str, kind: Reg, text: &str) -> Result<u32> {
    // Of operators, `-` is one.
    if text == "-" && !matches!(kind, Reg::Oper | Reg::Operator) {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return crate::pgtype::parse_integer(text);
    }
    match kind {
        Reg::Class => relation(dict, database, text),
        Reg::Type => type_called(dict, text),
        Reg::Namespace => {
            let name = single(text)?;
            dict.schema(&name).ok_or_else(|| names::no_schema(&name))
        }
        Reg::Role => {
            let name = single(text)?;
            let role = dict.role(&name).map(|r| r.oid);
            role.ok_or_else(|| Error::new("42704", format!("role \"{name}\" does not exist")))
        }
        Reg::Proc => match user_functions::find(dict, &path(text)?, text)? {
            Some(number) => Ok(number),
            None => procedures::find(&unqualified(dict, text)?, text),
        },
        Reg::Procedure => procedures::find_with_arguments(dict, text),
        Reg::Oper => operators::find(dict, text),
        Reg::Operator => operators::find_with_types(dict, text),
    }
}

/// Like [`find`], but what is not there is no error, and a number names nothing.
pub fn find_if_any(dict: &Dict, database: &str, kind: Reg, text: &str) -> Result<Option<u32>> {
    let none = text == "-" && !matches!(kind, Reg::Oper | Reg::Operator);
    if none || !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(None);
    }
    match find(dict, database, kind, text) {
        Ok(number) => Ok(Some(number)),
        Err(e) if matches!(e.sqlstate(), "42P01" | "42704" | "42883" | "3F000") => Ok(None),
        Err(e) => Err(e),
    }
}

/// Names between dots, folded unless they are quoted.
pub fn path(text: &str) -> Result<Vec<String>> {
    let invalid = || Error::new("42602", "invalid name syntax");
    let mut path = Vec::new();
    let mut rest = text.trim_matches(is_space);
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_name(quoted).ok_or_else(invalid)?,
            None => {
                let end = rest.find(|c| c == '.' || is_space(c)).unwrap_or(rest.len());
                (rest[..end].to_lowercase(), &rest[end..])
            }
        };
        if name.is_empty() {
            return Err(invalid());
        }
        let cut = name.floor_char_boundary(crate::pgtype::NAME_MAX_BYTES);
        path.push(name[..cut].to_string());
        let after = after.trim_start_matches(is_space);
        match after.strip_prefix('.') {
            Some(next) => rest = next.trim_start_matches(is_space),
            None if after.is_empty() => return Ok(path),
            None => return Err(invalid()),
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// A name up to its closing quote, with what comes after it.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, rest)),
        }
    }
}

fn single(text: &str) -> Result<String> {
    let mut path = path(text)?;
    match (path.pop(), path.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(Error::new("42602", "invalid name syntax")),
    }
}

/// The name of what all schemas have that there are but those of users.
fn unqualified(dict: &Dict, text: &str) -> Result<String> {
    let mut path = path(text)?;
    let name = path.pop().unwrap_or_default();
    match path.as_slice() {
        [] => Ok(name),
        [schema] if schema == "pg_catalog" => Ok(name),
        [schema] if dict.schema(schema).is_some() => Err(procedures::missing(text)),
        [schema] => Err(names::no_schema(schema)),
        _ => Err(too_many_names(text)),
    }
}

fn too_many_names(text: &str) -> Error {
    Error::new(
        "42601",
        format!("improper relation name (too many dotted names): {text}"),
    )
}

fn relation(dict: &Dict, database: &str, text: &str) -> Result<u32> {
    let mut parts = path(text)?;
    let name = parts.pop().unwrap_or_default();
    let schema = parts.pop();
    let named = parts.pop();
    if !parts.is_empty() {
        return Err(too_many_names(text));
    }
    if let (Some(other), Some(schema)) = (named.filter(|n| n != database), &schema) {
        return Err(names::other_database(&[&other, schema, &name]));
    }
    if let Some(schema) = &schema
        && dict.schema(schema).is_none()
    {
        return Err(names::no_schema(schema));
    }
    let name = Qualified { schema, name };
    let found = match dict.relation(&name) {
        Some(Relation::Table(t)) => Some(t.oid),
        Some(Relation::Sequence(s)) => Some(s.oid),
        Some(Relation::Index(t, at)) => Some(t.indexes[at].oid),
        Some(Relation::View(v)) => Some(v.oid),
        None => {
            super::find(name.schema.as_deref(), &name.name).and_then(|v| view_oid(v.schema, v.name))
        }
    };
    found.ok_or_else(|| Error::new("42P01", format!("relation \"{name}\" does not exist")))
}

/// The number of a type that is written as SQL has it.
pub fn type_called(dict: &Dict, text: &str) -> Result<u32> {
    crate::parse::by_number::refuse(text)?;
    let no_type = || Error::new("42704", format!("type \"{text}\" does not exist"));
    let bare = text.strip_prefix("pg_catalog.").unwrap_or(text);
    if let Some((number, ..)) = describe::OTHER_TYPES.iter().find(|(_, n, _)| *n == bare) {
        return Ok(*number);
    }
    let cast = crate::parse::expression(&format!("null::{text}"));
    let syntax = || Error::new("42601", format!("syntax error at or near \"{text}\""));
    match cast.map_err(|_| syntax())? {
        sqlparser::ast::Expr::Cast { data_type, .. } => {
            match parts::data_type(&data_type, &TypeNames::of(dict)) {
                Ok((ty, _)) => Ok(ty.oid()),
                Err(e) if e.sqlstate() == "42704" => Err(no_type()),
                Err(e) => Err(e),
            }
        }
        _ => Err(syntax()),
    }
}

/// The name of an object as it may be read again; its number, if there is none.
pub fn name(dict: &Dict, kind: Reg, number: u32) -> String {
    if number == 0 {
        return match kind {
            Reg::Oper | Reg::Operator => "0".to_string(),
            _ => "-".to_string(),
        };
    }
    let known = match kind {
        Reg::Class => relation_name(dict, number),
        Reg::Type => describe::type_name(number, -1).or_else(|| dict.user_type_name(number)),
        Reg::Namespace => match dict.schema_name(number) {
            "" => None,
            name => Some(names::quote(name)),
        },
        Reg::Role => dict.role_by_oid(number).map(|r| names::quote(&r.name)),
        Reg::Proc => procedures::name(dict, number),
        Reg::Procedure => procedures::signature(dict, number),
        Reg::Oper => operators::name(number),
        Reg::Operator => operators::signature(number),
    };
    known.unwrap_or_else(|| number.to_string())
}

/// Schema and name of a relation that users made.
pub fn relation_of(dict: &Dict, number: u32) -> Option<(u32, String)> {
    if let Some(t) = dict.table_by_oid(number) {
        return Some((t.schema, t.name.clone()));
    }
    if let Some(s) = dict.sequence_by_oid(number) {
        return Some((s.schema, s.name.clone()));
    }
    if let Some(v) = dict.view_by_oid(number) {
        return Some((v.schema, v.name.clone()));
    }
    if let Some(t) = dict.composite_of_relation(number) {
        return Some((t.schema, t.name.clone()));
    }
    let t = dict.table_of_part(number)?;
    let index = t.indexes.iter().find(|i| i.oid == number)?;
    Some((t.schema, index.name.clone()))
}

/// Whether there is a relation of that number, made by a user or not.
pub fn is_relation(dict: &Dict, number: u32) -> bool {
    relation_of(dict, number).is_some() || view_by_oid(number).is_some()
}

/// With its schema, if that is not searched.
fn relation_name(dict: &Dict, number: u32) -> Option<String> {
    if let Some((schema, name)) = relation_of(dict, number) {
        return Some(dict.shown(schema, &name));
    }
    let view = view_by_oid(number)?;
    Some(match view.schema {
        "pg_catalog" => names::quote(view.name),
        schema => format!("{schema}.{}", names::quote(view.name)),
    })
}
