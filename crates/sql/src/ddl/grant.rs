//! GRANT and REVOKE of privileges on objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use crate::api::Tag;
use crate::bind::names;
use crate::dict::acl::{self, Acl, EVERYBODY, Granted, Item, Kind, Privileges};
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{Dict, Object, Relation};
use crate::error::{Error, Result};
use crate::parse::function::Routine;
use crate::parse::grant::{Give, Grant, Grantee, On, Wanted, privilege};
use crate::parse::utility::TableLock;
use crate::views::DATABASE;

/// An object whose privileges are to change.
struct Target {
    kind: Kind,
    oid: u32,
    owner: u32,
    /// Its name, and what messages call its kind.
    name: String,
    word: &'static str,
}

/// Privileges that are given or taken, with those of columns apart.
struct Change {
    give: Give,
    /// ALL was said, and not each by its name.
    all: bool,
    privileges: Privileges,
    columns: Vec<(String, Option<Privileges>)>,
    grantees: Vec<u32>,
}

pub fn privileges(core: &mut Core, g: &Grant) -> Result<Tag> {
    if let Some(by) = &g.by
        && core.role_of(by)?.oid != core.current_role()?.oid
    {
        return Err(Error::new("0A000", "grantor must be current user"));
    }
    let change = Change {
        give: g.give,
        all: g
            .wanted
            .iter()
            .any(|w| w.privilege.is_none() && w.columns.is_empty()),
        privileges: named(&g.wanted, &g.on)?,
        columns: of_columns(&g.wanted, &g.on)?,
        grantees: grantees(core, &g.grantees)?,
    };
    for target in targets(core, &g.on)? {
        grant(core, &target, &change)?;
    }
    Ok(Tag::Plain(match g.give {
        Give::Grant { .. } => "GRANT",
        Give::Revoke { .. } => "REVOKE",
    }))
}

/// None of the roles is dropped before the transaction ends.
pub fn grantees(core: &mut Core, list: &[Grantee]) -> Result<Vec<u32>> {
    let mut all = Vec::with_capacity(list.len());
    for grantee in list {
        all.push(match grantee {
            Grantee::Everybody => EVERYBODY,
            Grantee::Role(name) => core.staying_role(name)?,
        });
    }
    Ok(all)
}

/// The kind that a statement's privileges are judged by, and what messages call it.
fn kind_of(on: &On) -> (Kind, &'static str) {
    match on {
        On::Relations(_) | On::AllIn(Kind::Table, _) => (Kind::Table, "relation"),
        On::Sequences(_) | On::AllIn(Kind::Sequence, _) => (Kind::Sequence, "sequence"),
        On::Databases(_) => (Kind::Database, "database"),
        On::Schemas(_) => (Kind::Schema, "schema"),
        On::Functions(_) | On::AllIn(..) => (Kind::Function, "function"),
        On::Types(_) => (Kind::Type, "type"),
        On::LargeObjects(_) => (Kind::LargeObject, "large object"),
    }
}

/// The privileges that are on no columns alone.
fn named(wanted: &[Wanted], on: &On) -> Result<Privileges> {
    let (kind, word) = kind_of(on);
    check_named(wanted, kind, word)
}

/// The same of a kind, with what messages call it.
pub fn check_named(wanted: &[Wanted], kind: Kind, word: &str) -> Result<Privileges> {
    // A sequence may be called a table.
    let allowed = match (kind, word) {
        (Kind::Table, "relation") => kind.all().and(Kind::Sequence.all()),
        _ => kind.all(),
    };
    let mut all = Privileges::NONE;
    for one in wanted.iter().filter(|w| w.columns.is_empty()) {
        let Some(name) = &one.privilege else {
            all = all.and(kind.all());
            continue;
        };
        let found = privilege(name)?;
        if !allowed.has(found) {
            return Err(invalid(found, word));
        }
        all = all.and(found);
    }
    Ok(all)
}

fn invalid(privilege: Privileges, word: &str) -> Error {
    let name = privilege.each().next().map_or("", |(.., name)| name);
    Error::new("0LP01", format!("invalid privilege type {name} for {word}"))
}

/// Columns with the privileges on each; `None`: all.
fn of_columns(wanted: &[Wanted], on: &On) -> Result<Vec<(String, Option<Privileges>)>> {
    let mut all = Vec::new();
    for one in wanted.iter().filter(|w| !w.columns.is_empty()) {
        if !matches!(on, On::Relations(_)) {
            let message = "column privileges are only valid for relations";
            return Err(Error::new("0LP01", message));
        }
        let found = one.privilege.as_deref().map(privilege).transpose()?;
        if let Some(found) = found
            && !Kind::Column.all().has(found)
        {
            return Err(invalid(found, "column"));
        }
        all.extend(one.columns.iter().map(|c| (c.clone(), found)));
    }
    Ok(all)
}

fn targets(core: &mut Core, on: &On) -> Result<Vec<Target>> {
    let target = |kind, oid, owner, name: &str, word| Target {
        kind,
        oid,
        owner,
        name: name.to_string(),
        word,
    };
    let mut all = Vec::new();
    match on {
        On::Relations(names) | On::Sequences(names) => {
            for name in names {
                core.check_schema_usage(name.schema.as_deref())?;
                let found = core.dict().relation(name);
                let found = found.ok_or_else(|| super::no_relation(core, name))?;
                if let (On::Sequences(_), false) = (on, matches!(found, Relation::Sequence(_))) {
                    let message = format!("\"{}\" is not a sequence", name.name);
                    return Err(Error::new("42809", message));
                }
                all.push(match &found {
                    Relation::Table(t) => target(Kind::Table, t.oid, t.owner, &t.name, "table"),
                    Relation::View(v) => target(Kind::Table, v.oid, v.owner, &v.name, "view"),
                    Relation::Sequence(s) => {
                        target(Kind::Sequence, s.oid, s.role, &s.name, "sequence")
                    }
                    Relation::Index(..) => {
                        let message = format!("\"{}\" is an index", name.name);
                        return Err(Error::new("42809", message));
                    }
                });
            }
        }
        On::Databases(names) => {
            for name in names {
                if *name != core.database_name {
                    let message = format!("database \"{name}\" does not exist");
                    return Err(Error::new("3D000", message));
                }
                let owner = FIRST_SUPERUSER;
                all.push(target(Kind::Database, DATABASE, owner, name, "database"));
            }
        }
        On::Schemas(names) => {
            for name in names {
                let oid = core.dict().schema(name);
                let oid = oid.ok_or_else(|| names::no_schema(name))?;
                let owner = core.dict().schema_owner(oid);
                all.push(target(Kind::Schema, oid, owner, name, "schema"));
            }
        }
        On::Functions(names) => {
            for name in names {
                let found = core.function_of(name)?;
                let Some(f) = found else {
                    return Err(super::function::missing(core, Routine::Function, name)?);
                };
                all.push(target(Kind::Function, f.oid, f.owner, &f.name, "function"));
            }
        }
        On::Types(names) => {
            for name in names {
                let found = core.dict().user_type(name).cloned();
                let t = found.ok_or_else(|| {
                    Error::new("42704", format!("type \"{name}\" does not exist"))
                })?;
                all.push(target(Kind::Type, t.oid, t.owner, &t.name, "type"));
            }
        }
        On::LargeObjects(numbers) => {
            for oid in numbers {
                let (kind, name) = (Kind::LargeObject, format!("large object {oid}"));
                all.push(target(kind, *oid, 0, &name, "large object"));
            }
        }
        On::AllIn(kind, schemas) => {
            let dict = core.dict();
            for schema in schemas {
                let oid = dict
                    .schema(schema)
                    .ok_or_else(|| names::no_schema(schema))?;
                core.check_schema_usage(Some(schema))?;
                all.extend(all_in(core, *kind, oid));
            }
        }
    }
    Ok(all)
}

fn all_in(core: &Core, kind: Kind, schema: u32) -> Vec<Target> {
    let dict = core.dict();
    let target = |oid, owner, name: &str, word| Target {
        kind,
        oid,
        owner,
        name: name.to_string(),
        word,
    };
    match kind {
        Kind::Table => {
            let tables = dict.tables().filter(|t| t.schema == schema);
            let tables = tables.map(|t| target(t.oid, t.owner, &t.name, "table"));
            let views = dict.views().filter(|v| v.schema == schema);
            tables
                .chain(views.map(|v| target(v.oid, v.owner, &v.name, "view")))
                .collect()
        }
        Kind::Sequence => {
            let sequences = dict.sequences().filter(|s| s.schema == schema);
            sequences
                .map(|s| target(s.oid, s.role, &s.name, "sequence"))
                .collect()
        }
        _ => {
            let functions = dict.functions().filter(|f| f.schema == schema);
            functions
                .map(|f| target(f.oid, f.owner, &f.name, "function"))
                .collect()
        }
    }
}

/// Changes the privileges on one large object, with which they are kept.
fn grant_large(core: &mut Core, target: &Target, change: &Change) -> Result<()> {
    if !change.columns.is_empty() {
        let message = "column privileges are only valid for relations";
        return Err(Error::new("0LP01", message));
    }
    let wanted = match change.all {
        true => target.kind.all(),
        false => change.privileges,
    };
    crate::large::grant(core, target.oid, |core, granted| {
        let (by, may) = permitted(core, granted, wanted, change, target, None)?;
        apply(granted, by, may, change)
    })
}

/// Changes the privileges on one object.
fn grant(core: &mut Core, target: &Target, change: &Change) -> Result<()> {
    if target.kind == Kind::LargeObject {
        return grant_large(core, target, change);
    }
    core.claim_name(&format!("privileges on {}", target.oid))?;
    // It is not dropped meanwhile. What every database has never is.
    let stays = [
        crate::dict::path::PG_CATALOG,
        crate::dict::path::INFORMATION_SCHEMA,
        DATABASE,
    ];
    if !stays.contains(&target.oid) {
        core.lock_table(target.oid, TableLock::AccessShare, false)?;
    }
    let dict = core.dict();
    let mut stored = match dict.acl(target.oid) {
        Some(acl) => Acl::clone(acl),
        None => Acl {
            oid: core.database.engine().allocate_object_id()?.0,
            object: target.oid,
            items: None,
            columns: Vec::new(),
        },
    };
    let mut wanted = match change.all {
        true => target.kind.all(),
        false => change.privileges,
    };
    if !target.kind.all().has(wanted) {
        let Kind::Sequence = target.kind else {
            let odd = wanted.without(target.kind.all());
            return Err(invalid(odd, "table"));
        };
        let what = format!(
            "sequence \"{}\" only supports USAGE, SELECT, and UPDATE privileges",
            target.name
        );
        core.notice("WARNING", "0LP01", what);
        wanted = wanted.common(Kind::Sequence.all());
    }
    if !wanted.is_empty() || change.columns.is_empty() {
        let mut granted = dict.granted(target.kind, target.oid, target.owner);
        let (by, may) = permitted(core, &granted, wanted, change, target, None)?;
        apply(&mut granted, by, may, change)?;
        stored.items = Some(granted.items);
    }
    grant_columns(core, target, change, &mut stored, wanted)?;
    core.define(Object::Acl(Arc::new(stored)))
}

/// Changes the privileges on single columns. With those on all of a relation, REVOKE takes those on
/// its columns.
fn grant_columns(
    core: &mut Core,
    target: &Target,
    change: &Change,
    stored: &mut Acl,
    wanted: Privileges,
) -> Result<()> {
    if target.kind != Kind::Table {
        return match change.columns.is_empty() {
            true => Ok(()),
            false => Err(Error::new(
                "0LP01",
                "column privileges are only valid for relations",
            )),
        };
    }
    let dict = core.dict();
    let mut each: Vec<(i16, Privileges)> = Vec::new();
    for (name, privileges) in &change.columns {
        let number = column_number(&dict, target, name)?;
        each.push((number, privileges.unwrap_or(Kind::Column.all())));
    }
    if let Give::Revoke { .. } = change.give {
        let of_all = wanted.common(Kind::Column.all());
        let numbers = stored.columns.iter().map(|(number, _)| *number);
        each.extend(numbers.map(|number| (number, of_all)));
    }
    let numbers: BTreeSet<i16> = each.iter().map(|(number, _)| *number).collect();
    for number in numbers {
        let same = each.iter().filter(|(n, _)| *n == number);
        let wanted = same.fold(Privileges::NONE, |all, (_, p)| all.and(*p));
        let at = stored.columns.iter().position(|(n, _)| *n == number);
        let own = at.map_or(Vec::new(), |at| stored.columns[at].1.clone());
        // Who may grant on the whole relation may on each column.
        let mut all = dict.granted(Kind::Table, target.oid, target.owner);
        all.items.extend(own.iter().copied());
        let name = column_name(&dict, target.oid, number);
        let (by, may) = permitted(core, &all, wanted, change, target, Some(&name))?;
        let mut granted = Granted {
            dict: &dict,
            owner: target.owner,
            items: own,
        };
        apply(&mut granted, by, may, change)?;
        match at {
            Some(at) => stored.columns[at].1 = granted.items,
            None => stored.columns.push((number, granted.items)),
        }
    }
    stored.columns.retain(|(_, items)| !items.is_empty());
    stored.columns.sort_by_key(|(number, _)| *number);
    Ok(())
}

fn column_number(dict: &Dict, target: &Target, name: &str) -> Result<i16> {
    let at = match (dict.table_by_oid(target.oid), dict.view_by_oid(target.oid)) {
        (Some(table), _) => table.column(name),
        (_, Some(view)) => view.column(name),
        _ => None,
    };
    at.map(|at| at as i16 + 1).ok_or_else(|| {
        let of = &target.name;
        let message = format!("column \"{name}\" of relation \"{of}\" does not exist");
        Error::new("42703", message)
    })
}

fn column_name(dict: &Dict, relation: u32, number: i16) -> String {
    let at = usize::try_from(number - 1).unwrap_or(0);
    match (dict.table_by_oid(relation), dict.view_by_oid(relation)) {
        (Some(table), _) => table.columns.get(at).map(|c| c.name.clone()),
        (_, Some(view)) => view.columns.get(at).map(|c| c.name.clone()),
        _ => None,
    }
    .unwrap_or_default()
}

/// In whose name the current role changes privileges, and which of them. Those that it may not are
/// warned of; if it has nothing to do with the object at all, that is an error.
fn permitted(
    core: &mut Core,
    granted: &Granted<'_>,
    wanted: Privileges,
    change: &Change,
    target: &Target,
    column: Option<&str>,
) -> Result<(u32, Privileges)> {
    let role = core.current_role()?.oid;
    let (by, may) = granted.best_grantor(role, wanted);
    if may.is_empty() && !wanted.is_empty() {
        let all = match column {
            Some(_) => Kind::Column.all(),
            None => target.kind.all(),
        };
        let has = granted.held(by, all).and(granted.grantable(by, all));
        if has.is_empty() {
            let message = match column {
                Some(column) => format!(
                    "permission denied for column \"{column}\" of relation \"{}\"",
                    target.name
                ),
                None => format!("permission denied for {} {}", target.word, target.name),
            };
            return Err(Error::new("42501", message));
        }
    }
    let on = match column {
        Some(column) => format!("column \"{column}\" of relation \"{}\"", target.name),
        None => format!("\"{}\"", target.name),
    };
    let (code, verb) = match change.give {
        Give::Grant { .. } => ("01007", "were granted"),
        Give::Revoke { .. } => ("01006", "could be revoked"),
    };
    if may.is_empty() && !wanted.is_empty() {
        core.notice("WARNING", code, format!("no privileges {verb} for {on}"));
    } else if may != wanted && !change.all {
        let what = format!("not all privileges {verb} for {on}");
        core.notice("WARNING", code, what);
    }
    Ok((by, may))
}

fn apply(granted: &mut Granted<'_>, by: u32, may: Privileges, change: &Change) -> Result<()> {
    if may.is_empty() {
        return Ok(());
    }
    for grantee in &change.grantees {
        give(granted, *grantee, by, may, change.give)?;
    }
    Ok(())
}

/// Gives privileges to one grantee, or takes them.
pub fn give(
    granted: &mut Granted<'_>,
    grantee: u32,
    grantor: u32,
    privileges: Privileges,
    give: Give,
) -> Result<()> {
    let with = |privileges, grantable| acl::Grant {
        grantee,
        grantor,
        privileges,
        grantable,
    };
    match give {
        Give::Grant { option: true } if grantee == EVERYBODY => Err(Error::new(
            "0LP01",
            "grant options can only be granted to roles",
        )),
        Give::Grant { option: true } => granted.add(with(privileges, privileges)),
        Give::Grant { option: false } => granted.add(with(privileges, Privileges::NONE)),
        Give::Revoke { option, cascade } => {
            let all = if option { Privileges::NONE } else { privileges };
            granted.remove(with(all, privileges), cascade)
        }
    }
}

/// Takes away all that a role has on an object, and, if `own` says so, what it has granted there.
pub fn without_role(items: &[Item], role: u32) -> Vec<Item> {
    let stays = |i: &&Item| i.grantee != role && i.grantor != role;
    items.iter().filter(stays).copied().collect()
}
