//! `has_table_privilege` and its kin. Who is asked about, what is asked about and the privileges
//! must be there; what nobody is refused is allowed. An object by a number that is none's is NULL.

use block::value::Datum;

use super::Context;
use super::objects;
use crate::error::{Error, Result};
use crate::types::Reg;

const TABLE: &[&str] = &[
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFERENCES",
    "TRIGGER",
    "RULE",
];
const COLUMN: &[&str] = &["SELECT", "INSERT", "UPDATE", "REFERENCES"];
const SEQUENCE: &[&str] = &["USAGE", "SELECT", "UPDATE"];
const DATABASE: &[&str] = &["CREATE", "TEMPORARY", "TEMP", "CONNECT"];
const SCHEMA: &[&str] = &["CREATE", "USAGE"];

/// The object and what comes after it; the role, if one is named, is looked up first.
fn arguments<'d>(cx: &Context, a: &'d [Datum], fewest: usize) -> Result<&'d [Datum]> {
    match a.len() > fewest {
        true => {
            role(cx, &a[0])?;
            Ok(&a[1..])
        }
        false => Ok(a),
    }
}

fn role(cx: &Context, role: &Datum) -> Result<()> {
    match role {
        // Everybody is one, in these functions.
        Datum::Text(name) if name != "public" => {
            let found = cx.dict.role(name);
            found
                .map(|_| ())
                .ok_or_else(|| Error::new("42704", format!("role \"{name}\" does not exist")))
        }
        _ => Ok(()),
    }
}

/// The privileges in a text, between commas, must be of these.
fn check(privileges: &Datum, known: &[&str]) -> Result<()> {
    let Datum::Text(text) = privileges else {
        return Err(Error::internal(format!("{privileges:?} as privileges")));
    };
    for one in text.split(',').map(str::trim) {
        let capitals = one.to_ascii_uppercase();
        let plain = capitals.strip_suffix(" WITH GRANT OPTION");
        if !known.contains(&plain.unwrap_or(&capitals)) {
            let message = format!("unrecognized privilege type: \"{one}\"");
            return Err(Error::new("22023", message));
        }
    }
    Ok(())
}

/// The number of a relation, which may be no relation's.
fn relation(cx: &Context, object: &Datum) -> Result<u32> {
    match object {
        Datum::Text(name) => objects::find(&cx.dict, Reg::Class, name),
        other => Ok(number(other)),
    }
}

fn number(d: &Datum) -> u32 {
    match d {
        Datum::Int8(n) => u32::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

fn allowed(is_there: bool) -> Datum {
    match is_there {
        true => Datum::Bool(true),
        false => Datum::Null,
    }
}

pub fn of_table(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    let relation = relation(cx, &a[0])?;
    check(&a[1], TABLE)?;
    Ok(allowed(objects::is_relation(&cx.dict, relation)))
}

pub fn of_any_column(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    let relation = relation(cx, &a[0])?;
    check(&a[1], COLUMN)?;
    Ok(allowed(objects::is_relation(&cx.dict, relation)))
}

pub fn of_sequence(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    let relation = relation(cx, &a[0])?;
    check(&a[1], SEQUENCE)?;
    let found = cx.dict.sequence_by_oid(relation).is_some();
    if let (false, Datum::Text(_)) = (found, &a[0]) {
        let name = objects::name(&cx.dict, Reg::Class, relation);
        return Err(Error::new("42809", format!("\"{name}\" is not a sequence")));
    }
    Ok(allowed(found))
}

pub fn of_column(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 3)?;
    let relation = relation(cx, &a[0])?;
    let table = cx.dict.table_by_oid(relation);
    let found = match (&a[1], table) {
        (Datum::Text(column), Some(table)) if table.column(column).is_none() => {
            let message = format!(
                "column \"{column}\" of relation \"{}\" does not exist",
                table.name
            );
            return Err(Error::new("42703", message));
        }
        (Datum::Int8(at), Some(table)) => {
            let at = usize::try_from(*at).ok().and_then(|at| at.checked_sub(1));
            let column = at.and_then(|at| table.columns.get(at));
            column.is_some_and(|c| !c.dropped)
        }
        _ => objects::is_relation(&cx.dict, relation),
    };
    check(&a[2], COLUMN)?;
    Ok(allowed(found))
}

pub fn of_schema(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    let found = match &a[0] {
        Datum::Text(name) => {
            let found = cx.dict.schema(name);
            found.ok_or_else(|| crate::bind::names::no_schema(name))?;
            true
        }
        other => !cx.dict.schema_name(number(other)).is_empty(),
    };
    check(&a[1], SCHEMA)?;
    Ok(allowed(found))
}

pub fn of_database(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    let found = match &a[0] {
        Datum::Text(name) if *name != cx.database_name => {
            return Err(Error::new(
                "3D000",
                format!("database \"{name}\" does not exist"),
            ));
        }
        Datum::Text(_) => true,
        other => number(other) == super::describe::DATABASE,
    };
    check(&a[1], DATABASE)?;
    Ok(allowed(found))
}

pub fn of_function(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    let function = match &a[0] {
        Datum::Text(signature) => objects::find(&cx.dict, Reg::Procedure, signature)?,
        other => number(other),
    };
    check(&a[1], &["EXECUTE"])?;
    Ok(allowed(
        super::procedures::name(&cx.dict, function).is_some(),
    ))
}

pub fn of_tablespace(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    if let Datum::Text(name) = &a[0]
        && name != "pg_default"
    {
        return Err(Error::new(
            "42704",
            format!("tablespace \"{name}\" does not exist"),
        ));
    }
    check(&a[1], &["CREATE"])?;
    Ok(Datum::Bool(true))
}

pub fn of_role(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let a = arguments(cx, a, 2)?;
    if let Datum::Text(name) = &a[0]
        && cx.dict.role(name).is_none()
    {
        return Err(Error::new(
            "42704",
            format!("role \"{name}\" does not exist"),
        ));
    }
    let Datum::Text(text) = &a[1] else {
        return Err(Error::internal("a membership without its kind"));
    };
    // WITH ADMIN OPTION is asked for in the same words.
    let plain = text.to_ascii_uppercase().replace(" WITH ADMIN OPTION", "");
    let kinds = plain.replace(" WITH GRANT OPTION", "");
    for one in kinds.split(',').map(str::trim) {
        if !matches!(one, "MEMBER" | "USAGE") {
            let message = format!("unrecognized privilege type: \"{text}\"");
            return Err(Error::new("22023", message));
        }
    }
    Ok(Datum::Bool(true))
}
