//! CREATE, ALTER and DROP DOMAIN.
//!
//! **Invariant.** As with enums ([`super::types`]): who changes a domain holds the exclusive lock
//! on it and on every table that has a column of it, or of a domain over it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use super::alter::violates;
use super::types::{self, Made, claim, locked, no_type};
use crate::api::Tag;
use crate::bind::domain::scope_of_value;
use crate::bind::names::Qualified;
use crate::bind::{Binder, ParamTypes, Scope};
use crate::collate::{self, Collation};
use crate::dict::{DefaultName, Domain, DomainConstraint, Object, Table, UserType};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::domain::{CreateDomain, DomainChange, DomainStatement, NewConstraint, NewRule};
use crate::types::SqlType;

pub fn define(core: &mut Core, statement: &DomainStatement) -> Result<Tag> {
    match statement {
        DomainStatement::Create(new) => create(core, new)?,
        DomainStatement::Alter { name, change } => alter(core, name, change)?,
        DomainStatement::Drop {
            names,
            if_exists,
            cascade,
        } => {
            types::drop_named(core, names, *if_exists, *cascade, true)?;
        }
    }
    Ok(Tag::Plain(statement.command()))
}

fn create(core: &mut Core, new: &CreateDomain) -> Result<()> {
    let name = &new.name;
    let schema = core.creation_schema(name)?;
    claim(core, schema, &name.name)?;
    let (base, typmod) = super::table::column_type(core, &new.base)?;
    if matches!(base, SqlType::Void | SqlType::Expanded | SqlType::Unknown) {
        let message = format!("\"{}\" is not a valid base type for a domain", base.name());
        return Err(Error::new("42804", message));
    }
    if let SqlType::Composite(row) = base.element().unwrap_or(base) {
        let dict = core.dict();
        let made = dict.user_type_by_oid(row.def().oid);
        if made.is_none_or(|t| t.composite.is_none()) {
            let what = format!("a domain over {}", base.name());
            return Err(Error::unsupported(what));
        }
    }
    if let Some(collation) = &new.collation {
        check_collation(collation, base)?;
    }
    let below = match base {
        SqlType::Domain(d) => d.def().default.clone(),
        _ => None,
    };
    let mut made = Domain {
        base: base.oid(),
        typmod,
        not_null: false,
        default: below,
        checks: Vec::new(),
    };
    if let Some(text) = &new.default {
        made.default = default(core, text, (base, typmod), &name.name)?;
    }
    for constraint in &new.constraints {
        match &constraint.rule {
            NewRule::NotNull => made.not_null = true,
            NewRule::Null => {}
            NewRule::Check(text) => {
                add_check(core, &name.name, &mut made, constraint, (base, text))?;
            }
        }
    }
    let oid = core.database.engine().allocate_object_id()?.0;
    types::make(core, schema, &name.name, oid, Made::Domain(made))
}

fn check_collation(collation: &Qualified, base: SqlType) -> Result<()> {
    crate::bind::collation::check_collatable(base.base())?;
    match Collation::named(&collation.name) {
        None => Err(collate::missing(&collation.name)),
        Some(known) if known.is_by_bytes() => Ok(()),
        Some(_) => {
            let message = format!("collation {collation} of a domain");
            Err(Error::unsupported(message))
        }
    }
}

/// The text of a default, which the type below can have; `None`: it is NULL.
fn default(
    core: &Core,
    text: &str,
    (base, typmod): (SqlType, i32),
    name: &str,
) -> Result<Option<String>> {
    let params = ParamTypes::none(&core.dict());
    let scope = Scope::default();
    let binder = Binder::new(&scope, &params, "DEFAULT");
    let value = binder.expr(&crate::parse::expression(text)?)?;
    let is_null = matches!(&value.expr, Expr::Const(d) if d.is_null());
    binder.assign(value, base, typmod, name).map_err(|e| {
        let message = e
            .message()
            .replace("but expression is", "but default expression is");
        e.with_message(message)
    })?;
    Ok((!is_null).then(|| text.to_string()))
}

/// A domain's condition over rows in which the value has that place.
fn condition(core: &Core, text: &str, (base, at): (SqlType, usize)) -> Result<Expr> {
    let params = ParamTypes::none(&core.dict());
    let mut scope = scope_of_value(base.base(), base.domain_typmod());
    for column in &mut scope.columns {
        column.slot = at;
    }
    Binder::new(&scope, &params, "CHECK").condition(&crate::parse::expression(text)?)
}

fn add_check(
    core: &Core,
    domain: &str,
    made: &mut Domain,
    new: &NewConstraint,
    (base, text): (SqlType, &str),
) -> Result<()> {
    condition(core, text, (base, 0))?;
    let name = match &new.name {
        Some(name) if made.check(name).is_some() => {
            return Err(exists(name, domain));
        }
        Some(name) => name.clone(),
        None => free_name(domain, made),
    };
    let oid = core.database.engine().allocate_object_id()?.0;
    made.checks.push(DomainConstraint {
        oid,
        name,
        text: text.to_string(),
        validated: !new.not_valid,
    });
    made.checks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(())
}

fn free_name(domain: &str, made: &Domain) -> String {
    let base = DefaultName {
        first: domain,
        second: None,
        suffix: "check",
    };
    base.free(|n| made.check(n).is_none())
}

fn exists(constraint: &str, domain: &str) -> Error {
    let message = format!("constraint \"{constraint}\" for domain \"{domain}\" already exists");
    Error::new("42710", message)
}

fn no_constraint(constraint: &str, domain: &str) -> Error {
    let message = format!("constraint \"{constraint}\" of domain \"{domain}\" does not exist");
    Error::new("42704", message)
}

/// A locked type that is a domain.
fn locked_domain(core: &mut Core, name: &Qualified) -> Result<(Arc<UserType>, Domain)> {
    let found = locked(core, name)?.ok_or_else(|| no_type(core, name))?;
    match &found.domain {
        Some(domain) => Ok((found.clone(), domain.clone())),
        None => Err(Error::new("42809", format!("{name} is not a domain"))),
    }
}

pub fn not_a_domain(name: &Qualified) -> Error {
    Error::new("42809", format!("\"{name}\" is not a domain"))
}

fn alter(core: &mut Core, name: &Qualified, change: &DomainChange) -> Result<()> {
    let (found, mut made) = locked_domain(core, name)?;
    core.check_owner(found.owner, format!("type {}", found.name))?;
    let mut next = UserType::clone(&found);
    let below = core.dict().type_of(made.base);
    let below = below.ok_or_else(|| Error::internal("a domain without its base type"))?;
    match change {
        DomainChange::Common(change) => types::change(core, &mut next, change)?,
        DomainChange::Default(text) => {
            made.default = match text {
                Some(text) => default(core, text, (below, made.typmod), &found.name)?,
                None => None,
            };
        }
        DomainChange::NotNull(not_null) => {
            if *not_null && !made.not_null {
                for (table, at) in columns(core, &found)? {
                    require_no_nulls(core, &table, at)?;
                }
            }
            made.not_null = *not_null;
        }
        DomainChange::Add(constraint) => {
            let NewRule::Check(text) = &constraint.rule else {
                let what = "ALTER DOMAIN .. ADD NOT NULL";
                return Err(Error::unsupported(what).hint("Use ALTER DOMAIN .. SET NOT NULL."));
            };
            add_check(core, &found.name, &mut made, constraint, (below, text))?;
            if !constraint.not_valid {
                require_check(core, &found, below, text)?;
            }
        }
        DomainChange::Drop { name, if_exists } => match made.check(name) {
            Some(at) => drop(made.checks.remove(at)),
            None if *if_exists => {
                let message = no_constraint(name, &found.name).message().to_string();
                core.notice("NOTICE", "00000", format!("{message}, skipping"));
                return Ok(());
            }
            None => return Err(no_constraint(name, &found.name)),
        },
        DomainChange::RenameConstraint(from, to) => {
            let at = made.check(from);
            let at = at.ok_or_else(|| no_constraint(from, &found.name))?;
            if made.check(to).is_some() {
                return Err(exists(to, &found.name));
            }
            made.checks[at].name.clone_from(to);
            made.checks.sort_by(|a, b| a.name.cmp(&b.name));
        }
        DomainChange::Validate(name) => {
            let at = made.check(name);
            let at = at.ok_or_else(|| no_constraint(name, &found.name))?;
            if !made.checks[at].validated {
                let text = made.checks[at].text.clone();
                require_check(core, &found, below, &text)?;
                made.checks[at].validated = true;
            }
        }
    }
    next.domain = Some(made);
    core.define(Object::Type(Arc::new(next)))
}

/// The columns whose values are of a domain or of one over it. Those of arrays and rows are
/// refused, as in PostgreSQL, which does not look into them.
fn columns(core: &Core, domain: &UserType) -> Result<Vec<(Arc<Table>, usize)>> {
    let dict = core.dict();
    let mut found = Vec::new();
    // Those of rows with a field of it are refused, too.
    let types = dict.types_with(domain.oid).into_iter();
    let all: BTreeSet<_> = types.flat_map(|ty| dict.columns_of_type(ty)).collect();
    for (table, at) in all {
        let Some(table) = dict.table_by_oid(table) else {
            continue;
        };
        let column = &table.columns[at];
        if contains(&dict, column.type_oid, domain.oid) {
            let message = format!(
                "cannot alter type \"{}\" because column \"{}.{}\" uses it",
                domain.name, table.name, column.name
            );
            return Err(Error::new("0A000", message));
        }
        found.push((table.clone(), at));
    }
    Ok(found)
}

/// Whether values of a type have values of a domain in them, and are none themselves.
fn contains(dict: &crate::dict::Dict, mut ty: u32, domain: u32) -> bool {
    while ty != domain {
        let below = dict.user_type_by_oid(ty).and_then(|t| {
            let own = (ty == t.oid).then_some(t.domain.as_ref());
            own.flatten().map(|d| d.base)
        });
        match below {
            Some(below) => ty = below,
            None => return true,
        }
    }
    false
}

fn require_no_nulls(core: &mut Core, table: &Table, at: usize) -> Result<()> {
    let is_null = Expr::IsNull {
        expr: Box::new(Expr::Column(at)),
        negated: false,
    };
    if !violates(core, table, &is_null, Some(true))? {
        return Ok(());
    }
    let (column, table) = (&table.columns[at].name, &table.name);
    let message = format!("column \"{column}\" of table \"{table}\" contains null values");
    Err(Error::new("23502", message))
}

fn require_check(core: &mut Core, domain: &UserType, base: SqlType, text: &str) -> Result<()> {
    for (table, at) in columns(core, domain)? {
        let condition = condition(core, text, (base, at))?;
        if violates(core, &table, &condition, Some(false))? {
            let (column, table) = (&table.columns[at].name, &table.name);
            let message = format!(
                "column \"{column}\" of table \"{table}\" contains values that violate the new \
                 constraint"
            );
            return Err(Error::new("23514", message));
        }
    }
    Ok(())
}
