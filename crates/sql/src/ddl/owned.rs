//! What a role owns and has been granted: REASSIGN OWNED, DROP OWNED, and what keeps it from being
//! dropped.

use std::sync::Arc;

use super::role::denied;
use super::{Core, dependence, grant};
use crate::api::Tag;
use crate::dict::acl::{Acl, DefaultPrivileges, Kind};
use crate::dict::depend::Address;
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{Dict, Function, Object, Schema, Sequence, Table, UserType, View};
use crate::error::{Error, Result};
use crate::parse::role::RoleName;
use crate::parse::utility::TableLock;
use crate::views::DATABASE;

/// What a role owns, the oldest first. A sequence of a table's column goes with the table.
fn owned(dict: &Dict, role: u32) -> Vec<(u32, Address)> {
    let own = |owner: u32| owner == role;
    let tables = dict.tables().filter(|t| own(t.owner));
    let mut all: Vec<_> = tables.map(|t| (t.oid, Address::Table(t.oid))).collect();
    let views = dict.views().filter(|v| own(v.owner));
    all.extend(views.map(|v| (v.oid, Address::View(v.oid))));
    let sequences = dict
        .sequences()
        .filter(|s| own(s.role) && s.owner.is_none());
    all.extend(sequences.map(|s| (s.oid, Address::Sequence(s.oid))));
    let schemas = dict.schemas().filter(|s| own(s.owner));
    all.extend(schemas.map(|s| (s.oid, Address::Schema(s.oid))));
    let types = dict.user_types().filter(|t| own(t.owner));
    all.extend(types.map(|t| (t.oid, Address::Type(t.oid))));
    let functions = dict.functions().filter(|f| own(f.owner));
    all.extend(functions.map(|f| (f.oid, Address::Function(f.oid))));
    all.sort_by_key(|(oid, _)| *oid);
    all
}

/// What keeps a role from being dropped, in the words of PostgreSQL, a line each.
pub fn reasons(dict: &Dict, database: &str, role: u32) -> Vec<String> {
    let mut all: Vec<((u32, usize, bool), String)> = Vec::new();
    for (oid, what) in owned(dict, role) {
        all.push(((oid, 0, true), format!("owner of {}", dict.describe(what))));
    }
    for acl in dict.acls() {
        let on = |column: usize| match address(dict, acl.object) {
            Some(Address::Table(oid)) if column > 0 => {
                dict.describe(Address::Column(oid, column - 1))
            }
            Some(what) => dict.describe(what),
            None if acl.object == DATABASE => format!("database {database}"),
            None => format!("schema {}", dict.schema_name(acl.object)),
        };
        let owner = address(dict, acl.object).and_then(|what| owner_of(dict, what));
        let named = |items: &[crate::dict::acl::Item]| {
            items
                .iter()
                .any(|i| [i.grantee, i.grantor].contains(&role) && owner != Some(role))
        };
        if acl.items.as_deref().is_some_and(named) {
            all.push(((acl.object, 0, false), format!("privileges for {}", on(0))));
        }
        for (number, items) in &acl.columns {
            let column = usize::try_from(*number).unwrap_or(0);
            if named(items) {
                let line = format!("privileges for {}", on(column));
                all.push(((acl.object, column, false), line));
            }
        }
    }
    for t in dict.tables() {
        for p in t.policies.iter().filter(|p| p.roles.contains(&role)) {
            let policy = dict.describe(Address::Policy(t.oid, p.oid));
            all.push(((p.oid, 0, false), format!("target of {policy}")));
        }
    }
    for d in dict.default_privileges() {
        let owner = dict.role_by_oid(d.role).map_or("", |r| &r.name);
        let on = match d.kind {
            Kind::Table => "relations",
            Kind::Sequence => "sequences",
            Kind::Function => "functions",
            Kind::Type => "types",
            _ => "schemas",
        };
        let within = match d.schema {
            0 => String::new(),
            schema => format!(" in schema {}", dict.schema_name(schema)),
        };
        let line = format!("default privileges on new {on} belonging to role {owner}{within}");
        if d.role == role {
            all.push(((d.oid, 0, true), format!("owner of {line}")));
        } else if d.items.iter().any(|i| i.grantee == role) {
            all.push(((d.oid, 0, false), format!("privileges for {line}")));
        }
    }
    all.sort();
    all.into_iter().map(|(_, line)| line).collect()
}

/// The object of an object id; none for what every database has.
fn address(dict: &Dict, oid: u32) -> Option<Address> {
    match &dict.entry(oid.into())?.object {
        Object::Table(_) => Some(Address::Table(oid)),
        Object::View(_) => Some(Address::View(oid)),
        Object::Sequence(_) => Some(Address::Sequence(oid)),
        Object::Schema(_) => Some(Address::Schema(oid)),
        Object::Type(_) => Some(Address::Type(oid)),
        Object::Function(_) => Some(Address::Function(oid)),
        _ => None,
    }
}

fn owner_of(dict: &Dict, what: Address) -> Option<u32> {
    match what {
        Address::Table(oid)
        | Address::View(oid)
        | Address::Sequence(oid)
        | Address::Schema(oid)
        | Address::Type(oid)
        | Address::Function(oid) => dict.entry(oid.into())?.object.owner(),
        _ => None,
    }
}

fn roles(core: &Core, names: &[RoleName], verb: &str) -> Result<Vec<u32>> {
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let role = core.role_of(name)?;
        if !core.dict().has_rights_of(core.roles.current, role.oid) {
            return Err(denied(format!("permission denied to {verb} objects")));
        }
        if role.oid == FIRST_SUPERUSER {
            let message = format!(
                "cannot {verb} objects owned by role {} because they are required by the database \
                 system",
                role.name
            );
            return Err(Error::new("2BP01", message));
        }
        all.push(role.oid);
    }
    Ok(all)
}

pub fn reassign(core: &mut Core, from: &[RoleName], to: &RoleName) -> Result<Tag> {
    let from = roles(core, from, "reassign")?;
    let to = core.role_of(to)?.oid;
    if !core.dict().has_rights_of(core.roles.current, to) {
        return Err(denied("permission denied to reassign objects"));
    }
    if to != FIRST_SUPERUSER {
        core.lock_table(to, TableLock::AccessShare, false)?;
        core.dict()
            .role_by_oid(to)
            .ok_or_else(|| Error::new("42704", "the role was dropped meanwhile"))?;
    }
    for role in from {
        for (oid, _) in owned(&core.dict(), role) {
            core.lock_table(oid, TableLock::AccessExclusive, false)?;
            set_owner(core, oid, role, to)?;
        }
        crate::large::reassign(core, role, to)?;
    }
    Ok(Tag::Plain("REASSIGN OWNED"))
}

/// Gives an object, which is locked, to another role, if it is still the one's.
fn set_owner(core: &mut Core, oid: u32, from: u32, to: u32) -> Result<()> {
    let dict = core.dict();
    let Some(entry) = dict.entry(oid.into()) else {
        return Ok(());
    };
    if entry.object.owner() != Some(from) {
        return Ok(());
    }
    let next = match &entry.object {
        Object::Table(t) => {
            for s in dict.owned_sequences(oid) {
                core.lock_table(s.oid, TableLock::AccessExclusive, false)?;
                let mut next = Sequence::clone(&s);
                next.role = to;
                core.define(Object::Sequence(Arc::new(next)))?;
            }
            let mut next = Table::clone(t);
            next.owner = to;
            Object::Table(Arc::new(next.finish()?))
        }
        Object::View(v) => Object::View(Arc::new(View {
            owner: to,
            ..View::clone(v)
        })),
        Object::Sequence(s) => Object::Sequence(Arc::new(Sequence {
            role: to,
            ..Sequence::clone(s)
        })),
        Object::Schema(s) => Object::Schema(Arc::new(Schema {
            owner: to,
            ..Schema::clone(s)
        })),
        Object::Type(t) => Object::Type(Arc::new(UserType {
            owner: to,
            ..UserType::clone(t)
        })),
        Object::Function(f) => Object::Function(Arc::new(Function {
            owner: to,
            ..Function::clone(f)
        })),
        _ => return Ok(()),
    };
    core.define(next)
}

pub fn drop(core: &mut Core, of: &[RoleName], cascade: bool) -> Result<Tag> {
    let roles = roles(core, of, "drop")?;
    for &role in &roles {
        take_privileges(core, role)?;
        crate::large::drop_owned(core, role)?;
        super::policy::forget_role(core, role)?;
    }
    let dict = core.dict();
    let roots = roles.iter().flat_map(|role| owned(&dict, *role));
    let roots: Vec<(u32, Address)> = roots.collect();
    for (oid, _) in &roots {
        core.lock_table(*oid, TableLock::AccessExclusive, false)?;
    }
    let dict = core.dict();
    let still = |(_, what): &(u32, Address)| {
        owner_of(&dict, *what).is_some_and(|owner| roles.contains(&owner))
    };
    let roots: Vec<Address> = roots
        .into_iter()
        .filter(still)
        .map(|(_, what)| what)
        .collect();
    dependence::drop_dependents(core, &roots, cascade)?;
    // The newest first: what a schema has goes before the schema.
    for what in roots.into_iter().rev() {
        if owner_of(&core.dict(), what).is_some() {
            dependence::drop_one(core, what)?;
        }
    }
    Ok(Tag::Plain("DROP OWNED"))
}

/// Takes away what a role has been granted, and what it has said of its new objects.
fn take_privileges(core: &mut Core, role: u32) -> Result<()> {
    let dict = core.dict();
    let objects: Vec<u32> = dict.acls().map(|acl| acl.object).collect();
    for object in objects {
        core.claim_name(&format!("privileges on {object}"))?;
        let Some(acl) = core.dict().acl(object).cloned() else {
            continue;
        };
        let mut next = Acl::clone(&acl);
        next.items = next.items.map(|items| grant::without_role(&items, role));
        for (_, items) in &mut next.columns {
            *items = grant::without_role(items, role);
        }
        next.columns.retain(|(_, items)| !items.is_empty());
        if next.items != acl.items || next.columns != acl.columns {
            core.define(Object::Acl(Arc::new(next)))?;
        }
    }
    let dict = core.dict();
    for d in dict.default_privileges() {
        if d.role == role {
            core.undefine(d.oid.into())?;
        } else if d.items.iter().any(|i| i.grantee == role) {
            let items = grant::without_role(&d.items, role);
            core.define(Object::DefaultPrivileges(Arc::new(DefaultPrivileges {
                items,
                ..DefaultPrivileges::clone(d)
            })))?;
        }
    }
    Ok(())
}
