//! COMMENT ON: kept with the definition that it is on, and gone with it.

use std::sync::Arc;

use super::{Core, no_relation};
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::role::Role;
use crate::dict::{Comment, CommentOn, Object, Relation, Schema, Sequence, Table, View};
use crate::error::{Error, Result};
use crate::parse::define::{Commented, Kind};
use crate::parse::utility::TableLock;

/// An empty text takes the comment away, as NULL does.
pub fn set(core: &mut Core, on: &Commented, text: Option<&str>) -> Result<Tag> {
    let text = text.filter(|t| !t.is_empty());
    match on {
        Commented::Relation(kind, name) => {
            let found = locked(core, *kind, name)?;
            on_relation(core, &found, text)?;
        }
        Commented::Column(name, column) => match locked_of_part(core, name)? {
            Relation::Table(table) => {
                let at = table.column(column);
                let at = at.ok_or_else(|| crate::plan::dml::no_column(column, &table.name))?;
                on_table(core, table.oid, CommentOn::Column(at), text)?;
            }
            Relation::View(view) => {
                let at = view.column(column);
                let at = at.ok_or_else(|| crate::plan::dml::no_column(column, &view.name))?;
                on_view(core, &view, CommentOn::Column(at), text)?;
            }
            _ => {
                let message = format!("cannot set comment on relation \"{}\"", name.name);
                return Err(Error::new("42809", message));
            }
        },
        Commented::Constraint(constraint, name) => {
            let Relation::Table(table) = locked_of_part(core, name)? else {
                return Err(Error::new(
                    "42809",
                    format!("\"{}\" is not a table", name.name),
                ));
            };
            if !table.constraint_names().any(|n| n == constraint) {
                return Err(Error::new(
                    "42704",
                    format!(
                        "constraint \"{constraint}\" for table \"{}\" does not exist",
                        table.name
                    ),
                ));
            }
            let on = CommentOn::Constraint(constraint.clone());
            on_table(core, table.oid, on, text)?;
        }
        Commented::Schema(name) => {
            let found = core.locked_schema(name, TableLock::AccessExclusive)?;
            let mut next = Schema::clone(&*found.ok_or_else(|| names::no_schema(name))?);
            core.check_owner(next.owner, format!("schema {name}"))?;
            next.comment = text.map(str::to_string);
            core.define(Object::Schema(Arc::new(next)))?;
        }
        Commented::Type(name) => super::types::comment(core, name, text)?,
        Commented::Function(kind, name) => super::function::comment(core, *kind, name, text)?,
        Commented::Trigger(name, table) => on_trigger(core, name, table, text)?,
        Commented::Policy(name, table) => super::policy::comment(core, name, table, text)?,
        Commented::Extension(name) => super::extension::comment(core, name, text)?,
        Commented::Role(name) => {
            let role = super::role::locked(core, name)?;
            let role = role.ok_or_else(|| super::role::no_role(name))?;
            let by = core.current_role()?;
            let may = by.superuser || by.create_role && !role.superuser;
            if !may {
                let whom = match role.superuser {
                    true => "must be superuser to comment on superusers".to_string(),
                    false => "must have CREATEROLE privilege".to_string(),
                };
                return Err(Error::new("42501", whom));
            }
            let mut next = Role::clone(&role);
            next.comment = text.map(str::to_string);
            core.define(Object::Role(Arc::new(next)))?;
        }
    }
    Ok(Tag::Plain("COMMENT"))
}

/// The same for a comment on a part of it, where messages call it a relation.
fn locked_of_part(core: &mut Core, name: &Qualified) -> Result<Relation> {
    locked(core, Kind::Table, name).map_err(|e| {
        let whole = e.message().strip_prefix("must be owner of ");
        let named = whole.and_then(|of| of.split_once(' '));
        match named {
            Some((_, name)) => Error::new("42501", format!("must be owner of relation {name}")),
            None => e,
        }
    })
}

/// A relation, locked against other changes of its definition but not against its use.
fn locked(core: &mut Core, kind: Kind, name: &Qualified) -> Result<Relation> {
    let wrong = |what: &str| {
        let message = format!("\"{}\" is not {what}", name.name);
        Err(Error::new("42809", message))
    };
    let wanted = |found: &Relation| match (kind, found) {
        (Kind::Table, Relation::Table(_) | Relation::View(_))
        | (Kind::View, Relation::View(_))
        | (Kind::Sequence, Relation::Sequence(_))
        | (Kind::Index, Relation::Index(..)) => Ok(Some(found.clone())),
        (Kind::Table, _) => wrong("a table"),
        (Kind::MaterializedView, Relation::Table(t)) if t.materialized.is_some() => {
            Ok(Some(found.clone()))
        }
        (Kind::View, _) => wrong("a view"),
        (Kind::MaterializedView, _) => wrong("a materialized view"),
        (Kind::Sequence, _) => wrong("a sequence"),
        (Kind::Index, _) => wrong("an index"),
    };
    let lock = TableLock::ShareUpdateExclusive;
    let rights = core.rights();
    let own = |found: &Relation| {
        let found = wanted(found)?;
        if let Some(found) = &found {
            rights.check_owner_of(found)?;
        }
        Ok(found)
    };
    let found = core.locked_relation(name, lock, false, own)?;
    found.ok_or_else(|| no_relation(core, name))
}

fn on_relation(core: &mut Core, found: &Relation, text: Option<&str>) -> Result<()> {
    match found {
        Relation::Table(table) => on_table(core, table.oid, CommentOn::Relation, text),
        Relation::Index(table, at) => {
            let on = CommentOn::Index(table.indexes[*at].oid);
            on_table(core, table.oid, on, text)
        }
        Relation::View(view) => on_view(core, view, CommentOn::Relation, text),
        Relation::Sequence(s) => {
            core.engine.lock_definition(block::ObjectId(s.oid))?;
            core.refresh()?;
            let dict = core.dict();
            let now = dict.sequence_by_oid(s.oid);
            let mut next = Sequence::clone(now.unwrap_or(s));
            next.comment = text.map(str::to_string);
            core.define(Object::Sequence(Arc::new(next)))
        }
    }
}

fn on_table(core: &mut Core, oid: u32, on: CommentOn, text: Option<&str>) -> Result<()> {
    let mut next = core.claim_definition(oid)?;
    put(&mut next.comments, on, text);
    core.define(Object::Table(Arc::new(next.finish()?)))
}

fn on_trigger(core: &mut Core, name: &str, table: &Qualified, text: Option<&str>) -> Result<()> {
    let table = match locked(core, Kind::Table, table)? {
        Relation::Table(table) => table,
        Relation::View(view) => Arc::new(view.as_table()),
        _ => {
            let message = format!(
                "trigger \"{name}\" for table \"{}\" does not exist",
                table.name
            );
            return Err(Error::new("42704", message));
        }
    };
    core.engine.lock_definition(block::ObjectId(table.oid))?;
    core.refresh()?;
    let now = core.dict().with_triggers(table.oid);
    let mut next = Table::clone(now.as_ref().unwrap_or(&table));
    let at = next.trigger(name).ok_or_else(|| {
        let message = format!(
            "trigger \"{name}\" for table \"{}\" does not exist",
            table.name
        );
        Error::new("42704", message)
    })?;
    next.triggers[at].comment = text.map(str::to_string);
    super::trigger::define(core, next)
}

fn on_view(core: &mut Core, view: &View, on: CommentOn, text: Option<&str>) -> Result<()> {
    core.engine.lock_definition(block::ObjectId(view.oid))?;
    core.refresh()?;
    let dict = core.dict();
    let mut next = View::clone(dict.view_by_oid(view.oid).map_or(view, |v| v));
    put(&mut next.comments, on, text);
    core.define(Object::View(Arc::new(next)))
}

fn put(comments: &mut Vec<Comment>, on: CommentOn, text: Option<&str>) {
    comments.retain(|c| c.on != on);
    comments.extend(text.map(|text| Comment {
        on,
        text: text.to_string(),
    }));
}
