//! CREATE, ALTER and DROP POLICY, and ALTER TABLE .. ROW LEVEL SECURITY. A policy is a part of its
//! table's definition, and is changed under the table's exclusive lock.
//!
//! Its expressions are kept as a view's query is ([`super::view`]), as `SELECT expression FROM
//! table`.

use std::sync::Arc;

use sqlparser::ast;

use super::view::{described, pinned_between};
use super::{Core, no_relation, skipping};
use crate::api::{Notice, Tag};
use crate::bind::names::Qualified;
use crate::dict::acl::EVERYBODY;
use crate::dict::policy::{Policy, PolicyFor};
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{Object, Source, Table};
use crate::error::{Error, Result};
use crate::parse::policy::{NewPolicy, PolicyName, PolicyParts, PolicyRole, PolicyStatement};
use crate::parse::utility::TableLock;
use crate::parse::{self, Command};
use crate::query::analyze;
use crate::types::SqlType;

pub fn run(core: &mut Core, statement: &PolicyStatement) -> Result<Tag> {
    match statement {
        PolicyStatement::Create(new) => create(core, new)?,
        PolicyStatement::Alter(policy, parts) => alter(core, policy, parts)?,
        PolicyStatement::Rename(policy, to) => rename(core, policy, to)?,
        PolicyStatement::Drop { policy, if_exists } => drop(core, policy, *if_exists)?,
    }
    Ok(Tag::Plain(statement.command()))
}

/// A table that is the role's own, locked, of which a part is dropped.
fn own_relation(core: &mut Core, name: &Qualified) -> Result<Arc<Table>> {
    own_table(core, name).map_err(|e| match e.message() {
        m if m.starts_with("must be owner of table") => {
            let message = format!("must be owner of relation {}", name.name);
            Error::new("42501", message)
        }
        _ => e,
    })
}

/// A table that is the role's own, locked.
fn own_table(core: &mut Core, name: &Qualified) -> Result<Arc<Table>> {
    if let Some(table) = core.own_table(name, TableLock::AccessExclusive)?
        && table.materialized.is_none()
    {
        return Ok(table);
    }
    Err(match core.dict().relation(name) {
        Some(_) => Error::new("42809", format!("\"{}\" is not a table", name.name)),
        None => no_relation(core, name),
    })
}

fn missing(name: &str, table: &str) -> Error {
    let message = format!("policy \"{name}\" for table \"{table}\" does not exist");
    Error::new("42704", message)
}

fn taken(name: &str, table: &str) -> Error {
    let message = format!("policy \"{name}\" for table \"{table}\" already exists");
    Error::new("42710", message)
}

/// The roles of TO, which stay until the transaction ends.
fn roles(core: &mut Core, named: &[PolicyRole]) -> Result<Vec<u32>> {
    if named.iter().any(|r| matches!(r, PolicyRole::Everybody)) {
        if named.len() > 1 {
            core.tell(Notice {
                severity: "WARNING",
                sqlstate: "22023".into(),
                message: "ignoring specified roles other than PUBLIC".into(),
                detail: None,
                hint: Some("All roles are members of the PUBLIC role.".into()),
            });
        }
        return Ok(vec![EVERYBODY]);
    }
    let mut found = Vec::with_capacity(named.len());
    for role in named {
        let PolicyRole::Role(name) = role else {
            continue;
        };
        let oid = core.role_of(name)?.oid;
        if oid != FIRST_SUPERUSER {
            core.lock_table(oid, TableLock::AccessShare, false)?;
            core.role_of(name)?;
        }
        found.push(oid);
    }
    Ok(found)
}

/// What an expression is kept as; what it reads is added to the sources.
fn kept(
    core: &mut Core,
    table: &Table,
    policy: u32,
    text: Option<&str>,
    sources: &mut Vec<Source>,
) -> Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    let text = format!(
        "{text} FROM {}",
        core.dict().full_name(table.schema, &table.name)
    );
    let unexpected = || Error::unsupported("this expression in a policy");
    let Command::Sql(statement) = parse::statement(&text)? else {
        return Err(unexpected());
    };
    let ast::Statement::Query(query) = *statement else {
        return Err(unexpected());
    };
    let (columns, notes) = described(core, &query).map_err(Error::without_place)?;
    match columns.as_slice() {
        [column] if column.ty() == SqlType::Bool => {}
        [column] => {
            let message = format!(
                "argument of POLICY must be type boolean, not type {}",
                column.ty().format(-1)
            );
            return Err(Error::new("42804", message));
        }
        _ => return Err(unexpected()),
    }
    let kept = pinned_between((&text, (0, text.len())), policy, notes, sources)?;
    let expression = kept.trim_start_matches("SELECT").trim_start();
    Ok(Some(format!("SELECT {expression}")))
}

/// Whether the texts of a policy mean what its statement did: where they do not, it is refused.
fn define(core: &mut Core, mut next: Table, oid: u32) -> Result<()> {
    next.policies.sort_by(|a, b| a.name.cmp(&b.name));
    let table = next.oid;
    core.define(Object::Table(Arc::new(next.finish()?)))?;
    analyze::policy::check(&core.dict(), table, oid)
}

fn create(core: &mut Core, new: &NewPolicy) -> Result<()> {
    let PolicyParts {
        roles: to,
        using,
        check,
    } = &new.parts;
    if check.is_some() && matches!(new.command, PolicyFor::Select | PolicyFor::Delete) {
        let message = "WITH CHECK cannot be applied to SELECT or DELETE";
        return Err(Error::new("42601", message));
    }
    if using.is_some() && new.command == PolicyFor::Insert {
        let message = "only WITH CHECK expression allowed for INSERT";
        return Err(Error::new("42601", message));
    }
    let roles = match to.as_slice() {
        [] => vec![EVERYBODY],
        to => roles(core, to)?,
    };
    let table = own_table(core, &new.policy.table)?;
    let name = &new.policy.name;
    let oid = core.database.engine().allocate_object_id()?.0;
    let mut sources = Vec::new();
    let using = kept(core, &table, oid, using.as_deref(), &mut sources)?;
    let check = kept(core, &table, oid, check.as_deref(), &mut sources)?;
    let mut next = Table::clone(core.dict().table_by_oid(table.oid).unwrap_or(&table));
    if next.policy(name).is_some() {
        return Err(taken(name, &table.name));
    }
    next.policies.push(Policy {
        oid,
        name: name.clone(),
        permissive: new.permissive,
        command: new.command,
        roles,
        using,
        check,
        sources,
        comment: None,
    });
    define(core, next, oid)
}

fn alter(core: &mut Core, policy: &PolicyName, parts: &PolicyParts) -> Result<()> {
    let roles = match parts.roles.as_slice() {
        [] => None,
        to => Some(roles(core, to)?),
    };
    let table = own_table(core, &policy.table)?;
    let found = table.policy(&policy.name).map(|at| &table.policies[at]);
    let old = found.ok_or_else(|| missing(&policy.name, &table.name))?;
    let only = match old.command {
        PolicyFor::Select | PolicyFor::Delete if parts.check.is_some() => {
            "only USING expression allowed for SELECT, DELETE"
        }
        PolicyFor::Insert if parts.using.is_some() => {
            "only WITH CHECK expression allowed for INSERT"
        }
        _ => "",
    };
    if !only.is_empty() {
        return Err(Error::new("42601", only));
    }
    let mut changed = old.clone();
    if let Some(roles) = roles {
        changed.roles = roles;
    }
    // What an expression that goes has read stays among the sources, as long as the other is there.
    let (using, check) = (parts.using.as_deref(), parts.check.as_deref());
    let all = |given: Option<&str>, old: &Option<String>| given.is_some() || old.is_none();
    if all(using, &old.using) && all(check, &old.check) && (using.is_some() || check.is_some()) {
        changed.sources.clear();
    }
    if let Some(kept) = kept(core, &table, old.oid, using, &mut changed.sources)? {
        changed.using = Some(kept);
    }
    if let Some(kept) = kept(core, &table, old.oid, check, &mut changed.sources)? {
        changed.check = Some(kept);
    }
    let mut next = Table::clone(core.dict().table_by_oid(table.oid).unwrap_or(&table));
    let oid = changed.oid;
    next.policies.retain(|p| p.oid != oid);
    next.policies.push(changed);
    define(core, next, oid)
}

fn rename(core: &mut Core, policy: &PolicyName, to: &str) -> Result<()> {
    let table = own_table(core, &policy.table)?;
    if table.policy(to).is_some() {
        return Err(taken(to, &table.name));
    }
    let at = table.policy(&policy.name);
    let at = at.ok_or_else(|| missing(&policy.name, &table.name))?;
    let mut next = Table::clone(&table);
    next.policies[at].name = to.to_string();
    let oid = next.policies[at].oid;
    define(core, next, oid)
}

fn drop(core: &mut Core, policy: &PolicyName, if_exists: bool) -> Result<()> {
    let PolicyName { name, table: on } = policy;
    if if_exists && core.dict().relation(on).is_none() {
        skipping(core, "relation", on);
        return Ok(());
    }
    let table = own_relation(core, on)?;
    let Some(at) = table.policy(name) else {
        if !if_exists {
            return Err(missing(name, &table.name));
        }
        let message = format!("policy \"{name}\" for relation \"{on}\" does not exist, skipping");
        core.notice("NOTICE", "00000", message);
        return Ok(());
    };
    let mut next = Table::clone(&table);
    next.policies.remove(at);
    core.define(Object::Table(Arc::new(next.finish()?)))
}

/// COMMENT ON POLICY.
pub fn comment(core: &mut Core, name: &str, on: &Qualified, text: Option<&str>) -> Result<()> {
    let table = own_table(core, on)?;
    let at = table.policy(name);
    let at = at.ok_or_else(|| missing(name, &table.name))?;
    let mut next = Table::clone(&table);
    next.policies[at].comment = text.map(str::to_string);
    core.define(Object::Table(Arc::new(next.finish()?)))
}

/// Takes a role out of the policies that name it; those that name no other go. DROP OWNED.
pub fn forget_role(core: &mut Core, role: u32) -> Result<()> {
    let dict = core.dict();
    let names = |t: &&Arc<Table>| t.policies.iter().any(|p| p.roles.contains(&role));
    let tables: Vec<u32> = dict.tables().filter(names).map(|t| t.oid).collect();
    for oid in tables {
        core.lock_table(oid, TableLock::AccessExclusive, false)?;
        let Some(table) = core.dict().table_by_oid(oid).cloned() else {
            continue;
        };
        let mut next = Table::clone(&table);
        for policy in &mut next.policies {
            policy.roles.retain(|r| *r != role);
        }
        next.policies.retain(|p| !p.roles.is_empty());
        core.define(Object::Table(Arc::new(next.finish()?)))?;
    }
    Ok(())
}
