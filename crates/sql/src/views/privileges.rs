//! `has_table_privilege` and its kin. Who is asked about, what is asked about and the privileges
//! must be there. An object by a number that is none's is NULL.

use block::value::Datum;

use super::Context;
use super::objects;
use crate::dict::acl::{EVERYBODY, Item, Kind, Privileges};
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

/// The role that is asked about, the object and what comes after it.
fn arguments<'d>(cx: &Context, a: &'d [Datum], fewest: usize) -> Result<(u32, &'d [Datum])> {
    match a.len() > fewest {
        true => Ok((role(cx, &a[0])?, &a[1..])),
        false => Ok((cx.authority.role, a)),
    }
}

fn role(cx: &Context, role: &Datum) -> Result<u32> {
    match role {
        // Everybody is one, in these functions.
        Datum::Text(name) if name == "public" => Ok(EVERYBODY),
        Datum::Text(name) => {
            let found = cx.dict.role(name).map(|r| r.oid);
            found.ok_or_else(|| Error::new("42704", format!("role \"{name}\" does not exist")))
        }
        other => Ok(number(other)),
    }
}

/// A privilege that is asked for; with its grant option or without.
type Wanted = (Privileges, bool);

/// The privileges in a text, between commas, which must be of these.
fn wanted(privileges: &Datum, known: &[&str]) -> Result<Vec<Wanted>> {
    let Datum::Text(text) = privileges else {
        return Err(Error::internal(format!("{privileges:?} as privileges")));
    };
    let one = |one: &str| {
        let capitals = one.to_ascii_uppercase();
        let plain = capitals.strip_suffix(" WITH GRANT OPTION");
        let name = plain.unwrap_or(&capitals);
        if !known.contains(&name) {
            let message = format!("unrecognized privilege type: \"{one}\"");
            return Err(Error::new("22023", message));
        }
        // Rules are not there, and nobody may make one.
        let found = Privileges::named(name).unwrap_or(Privileges::NONE);
        Ok((found, plain.is_some()))
    };
    text.split(',').map(|p| one(p.trim())).collect()
}

/// Whether a role has one of the wanted privileges on an object as a whole.
fn has(cx: &Context, role: u32, kind: Kind, (oid, owner): (u32, u32), wanted: &[Wanted]) -> bool {
    wanted.iter().any(|(privilege, with_option)| {
        let held = match with_option {
            true => cx
                .dict
                .granted(kind, oid, owner)
                .grantable(role, *privilege),
            false => cx.dict.privileges(role, kind, oid, owner, *privilege),
        };
        !held.is_empty()
    })
}

/// Whether it has one of them on a column, or on any if `column` is none.
fn has_on_column(
    cx: &Context,
    role: u32,
    (oid, owner): (u32, u32),
    column: Option<i16>,
    wanted: &[Wanted],
) -> bool {
    let acl = cx.dict.acl(oid);
    let columns = acl.map_or(&[][..], |acl| acl.columns.as_slice());
    let mut columns = columns.iter().map(|(number, _)| *number);
    columns.any(|number| {
        let granted = cx.dict.granted_of_column(oid, number, owner);
        column.is_none_or(|c| c == number)
            && wanted.iter().any(|(privilege, with_option)| {
                let held = match with_option {
                    true => granted.grantable(role, *privilege),
                    false => granted.held(role, *privilege),
                };
                !held.is_empty()
            })
    })
}

/// The owner of a relation, and what kind its privileges are of.
fn owner_of(cx: &Context, relation: u32) -> (u32, Kind) {
    let dict = &cx.dict;
    let table = dict.table_by_oid(relation).map(|t| t.owner);
    let view = || dict.view_by_oid(relation).map(|v| v.owner);
    if let Some(owner) = table.or_else(view) {
        return (owner, Kind::Table);
    }
    match dict.sequence_by_oid(relation) {
        Some(s) => (s.role, Kind::Sequence),
        None => (super::describe::OWNER, Kind::Table),
    }
}

/// Everybody reads the catalogs, but for those with passwords.
fn is_open(cx: &Context, relation: u32, wanted: &[Wanted]) -> bool {
    let is_closed = |name: &&str| super::view_oid("pg_catalog", name) == Some(relation);
    let is_system = cx.dict.entry(relation.into()).is_none();
    let reads = |(privilege, option): &Wanted| *privilege == Privileges::SELECT && !option;
    is_system && wanted.iter().any(reads) && !CLOSED.iter().any(is_closed)
}

/// Catalogs that only superusers read.
const CLOSED: [&str; 3] = ["pg_authid", "pg_shadow", "pg_statistic"];

pub fn is_closed(view: &str) -> bool {
    CLOSED.contains(&view)
}

/// The number of a relation, which may be no relation's.
fn relation(cx: &Context, object: &Datum) -> Result<u32> {
    match object {
        Datum::Text(name) => objects::find(&cx.dict, &cx.database_name, Reg::Class, name),
        other => Ok(number(other)),
    }
}

fn number(d: &Datum) -> u32 {
    match d {
        Datum::Int8(n) => u32::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

/// The answer about an object, if it is there.
fn answer(is_there: bool, has: impl FnOnce() -> bool) -> Datum {
    match is_there {
        true => Datum::Bool(has()),
        false => Datum::Null,
    }
}

pub fn of_table(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let relation = relation(cx, &a[0])?;
    let wanted = wanted(&a[1], TABLE)?;
    Ok(answer(objects::is_relation(&cx.dict, relation), || {
        let (owner, kind) = owner_of(cx, relation);
        has(cx, role, kind, (relation, owner), &wanted) || is_open(cx, relation, &wanted)
    }))
}

pub fn of_any_column(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let relation = relation(cx, &a[0])?;
    let wanted = wanted(&a[1], COLUMN)?;
    Ok(answer(objects::is_relation(&cx.dict, relation), || {
        let (owner, kind) = owner_of(cx, relation);
        has(cx, role, kind, (relation, owner), &wanted)
            || has_on_column(cx, role, (relation, owner), None, &wanted)
            || is_open(cx, relation, &wanted)
    }))
}

pub fn of_sequence(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let relation = relation(cx, &a[0])?;
    let wanted = wanted(&a[1], SEQUENCE)?;
    let found = cx.dict.sequence_by_oid(relation).is_some();
    if let (false, Datum::Text(_)) = (found, &a[0]) {
        let name = objects::name(&cx.dict, Reg::Class, relation);
        return Err(Error::new("42809", format!("\"{name}\" is not a sequence")));
    }
    Ok(answer(found, || {
        let (owner, kind) = owner_of(cx, relation);
        has(cx, role, kind, (relation, owner), &wanted)
    }))
}

pub fn of_column(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 3)?;
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
    let number = match (&a[1], table) {
        (Datum::Text(column), Some(table)) => table.column(column).map(|at| at as i16 + 1),
        (Datum::Text(column), None) => {
            let view = cx.dict.view_by_oid(relation);
            view.and_then(|v| v.column(column)).map(|at| at as i16 + 1)
        }
        (other, _) => i16::try_from(number(other)).ok(),
    };
    let wanted = wanted(&a[2], COLUMN)?;
    Ok(answer(found, || {
        let (owner, kind) = owner_of(cx, relation);
        has(cx, role, kind, (relation, owner), &wanted)
            || has_on_column(cx, role, (relation, owner), number.or(Some(0)), &wanted)
            || is_open(cx, relation, &wanted)
    }))
}

pub fn of_schema(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let schema = match &a[0] {
        Datum::Text(name) => {
            let found = cx.dict.schema(name);
            found.ok_or_else(|| crate::bind::names::no_schema(name))?
        }
        other => number(other),
    };
    let found = !cx.dict.schema_name(schema).is_empty();
    let wanted = wanted(&a[1], SCHEMA)?;
    let on = (schema, cx.dict.schema_owner(schema));
    Ok(answer(found, || has(cx, role, Kind::Schema, on, &wanted)))
}

pub fn of_database(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
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
    let wanted = wanted(&a[1], DATABASE)?;
    let on = (super::describe::DATABASE, super::describe::OWNER);
    Ok(answer(found, || has(cx, role, Kind::Database, on, &wanted)))
}

pub fn of_function(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let function = match &a[0] {
        Datum::Text(signature) => {
            objects::find(&cx.dict, &cx.database_name, Reg::Procedure, signature)?
        }
        other => number(other),
    };
    let wanted = wanted(&a[1], &["EXECUTE"])?;
    let owner = cx.dict.function_by_oid(function).map(|f| f.owner);
    let on = (function, owner.unwrap_or(super::describe::OWNER));
    let found = super::procedures::name(&cx.dict, function).is_some();
    Ok(answer(found, || has(cx, role, Kind::Function, on, &wanted)))
}

pub fn of_type(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let ty = match &a[0] {
        Datum::Text(name) => objects::find(&cx.dict, &cx.database_name, Reg::Type, name)?,
        other => number(other),
    };
    let wanted = wanted(&a[1], &["USAGE"])?;
    let owner = cx.dict.user_type_by_oid(ty).map(|t| t.owner);
    let rows = || cx.dict.tables().find(|t| t.row_type.contains(&ty));
    let owner = owner.or_else(|| rows().map(|t| t.owner));
    let found = owner.is_some() || cx.dict.type_of(ty).is_some();
    let on = (ty, owner.unwrap_or(super::describe::OWNER));
    Ok(answer(found, || has(cx, role, Kind::Type, on, &wanted)))
}

/// Everybody uses the languages that there are.
pub fn of_language(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let languages = super::user_functions::languages();
    let mut languages = languages.iter();
    let found = match &a[0] {
        Datum::Text(name) => {
            let found = languages.any(|row| matches!(&row[1], Datum::Text(n) if n == name));
            if !found {
                let message = format!("language \"{name}\" does not exist");
                return Err(Error::new("42704", message));
            }
            true
        }
        other => languages.any(|row| row[0] == *other),
    };
    let wanted = wanted(&a[1], &["USAGE"])?;
    let with_option = wanted.iter().all(|(_, option)| *option);
    Ok(answer(found, || !with_option || cx.dict.is_superuser(role)))
}

/// Of foreign-data wrappers and servers, of which there are none.
pub fn of_none(cx: &Context, a: &[Datum], what: &str) -> Result<Datum> {
    let (_, a) = arguments(cx, a, 2)?;
    wanted(&a[1], &["USAGE"])?;
    match &a[0] {
        Datum::Text(name) => {
            let message = format!("{what} \"{name}\" does not exist");
            Err(Error::new("42704", message))
        }
        _ => Ok(Datum::Null),
    }
}

/// Nobody can be granted that: superusers have it, and nobody else.
pub fn of_parameter(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    let Datum::Text(privileges) = &a[1] else {
        return Err(Error::internal("a parameter without its privileges"));
    };
    for one in privileges.split(',').map(str::trim) {
        let capitals = one.to_ascii_uppercase();
        let plain = capitals.strip_suffix(" WITH GRANT OPTION");
        if !["SET", "ALTER SYSTEM"].contains(&plain.unwrap_or(&capitals)) {
            let message = format!("unrecognized privilege type: \"{one}\"");
            return Err(Error::new("22023", message));
        }
    }
    Ok(Datum::Bool(cx.dict.is_superuser(role)))
}

/// `makeaclitem`: grantee, grantor, privileges, and whether they can be granted.
pub fn item(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let known: Vec<&str> = crate::dict::acl::ALL
        .iter()
        .map(|(.., name)| *name)
        .collect();
    let known: Vec<&str> = known.into_iter().chain(["TEMP", "RULE"]).collect();
    let grantable = a[3] == Datum::Bool(true);
    let all = wanted(&a[2], &known)?.into_iter();
    let privileges = all.fold(Privileges::NONE, |all, (one, _)| all.and(one));
    let item = Item {
        grantee: number(&a[0]),
        grantor: number(&a[1]),
        privileges,
        grantable: if grantable {
            privileges
        } else {
            Privileges::NONE
        },
    };
    Ok(Datum::Text(super::acl::written(cx, &item)))
}

pub fn of_tablespace(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (role, a) = arguments(cx, a, 2)?;
    if let Datum::Text(name) = &a[0]
        && name != "pg_default"
    {
        return Err(Error::new(
            "42704",
            format!("tablespace \"{name}\" does not exist"),
        ));
    }
    wanted(&a[1], &["CREATE"])?;
    // There is one, and it is the first superuser's.
    Ok(Datum::Bool(cx.dict.is_superuser(role)))
}

pub fn of_role(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (asked, a) = arguments(cx, a, 2)?;
    let of = role(cx, &a[0])?;
    let Datum::Text(text) = &a[1] else {
        return Err(Error::internal("a membership without its kind"));
    };
    let mut has = false;
    for one in text.split(',').map(str::trim) {
        let capitals = one.to_ascii_uppercase();
        // WITH ADMIN OPTION is asked for in the same words.
        let option = [" WITH ADMIN OPTION", " WITH GRANT OPTION"];
        let plain = option
            .iter()
            .find_map(|option| capitals.strip_suffix(option));
        has |= match (plain, plain.unwrap_or(&capitals)) {
            (Some(_), "MEMBER" | "USAGE") => cx.dict.is_admin(asked, of),
            (None, "MEMBER") => cx.dict.is_member(asked, of),
            (None, "USAGE") => cx.dict.has_rights_of(asked, of),
            _ => {
                let message = format!("unrecognized privilege type: \"{one}\"");
                return Err(Error::new("22023", message));
            }
        };
    }
    Ok(Datum::Bool(has))
}
