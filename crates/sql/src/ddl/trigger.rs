//! CREATE, ALTER, DROP, ENABLE and DISABLE TRIGGER. A trigger is a part of its table's definition,
//! and is changed under the table's exclusive lock.

use std::sync::Arc;

use sqlparser::ast;

use super::{Core, skipping, trigger_body};
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::acl::Privileges;
use crate::dict::trigger::{Constraint, Op, Trigger};
use crate::dict::{Function, Object, Relation, Table, View};
use crate::error::{Error, Result};
use crate::parse::trigger::{CreateTrigger, Runs};
use crate::parse::utility::TableLock;

/// What the role must have before it waits for the lock.
#[derive(Clone, Copy)]
enum Asked {
    Trigger,
    Owner,
    /// To be the owner, of whom PostgreSQL says no more than that of a relation.
    OwnerOfRelation,
}

/// The table, or the view as a table, that a trigger is made on or taken from.
fn locked(
    core: &mut Core,
    name: &Qualified,
    lock: TableLock,
    asked: Asked,
) -> Result<Option<Arc<Table>>> {
    let rights = core.rights();
    let check = |found: &Relation| match asked {
        Asked::Trigger => rights.check_relation(found, Privileges::TRIGGER),
        Asked::Owner => rights.check_owner_of(found),
        Asked::OwnerOfRelation => {
            rights.check_owner(found.owner(), format!("relation {}", name.name))
        }
    };
    core.locked_relation(name, lock, false, |found| match found {
        Relation::Table(table) if table.materialized.is_some() => {
            let message = format!("relation \"{}\" cannot have triggers", name.name);
            let detail = "This operation is not supported for materialized views.";
            Err(Error::new("42809", message).detail(detail))
        }
        Relation::Table(table) => {
            check(found)?;
            Ok(Some(table.clone()))
        }
        Relation::View(view) => {
            check(found)?;
            Ok(Some(Arc::new(view.as_table())))
        }
        _ => Err(Error::new(
            "42809",
            format!("relation \"{}\" cannot have triggers", name.name),
        )),
    })
}

/// Refuses what triggers of the kind of relation cannot be.
fn check_kind(table: &Table, new: &CreateTrigger) -> Result<()> {
    let name = &table.name;
    let refused = |kind: &str, detail: &str| {
        let message = format!("\"{name}\" is a {kind}");
        Err(Error::new("42809", message).detail(detail))
    };
    match (table.view.is_some(), new.instead) {
        (false, true) => refused("table", "Tables cannot have INSTEAD OF triggers."),
        (false, false) => Ok(()),
        (true, _) if new.ops.contains(&Op::Truncate) => {
            refused("view", "Views cannot have TRUNCATE triggers.")
        }
        (true, false) if new.row => refused(
            "view",
            "Views cannot have row-level BEFORE or AFTER triggers.",
        ),
        (true, true) if !new.row => {
            let message = "INSTEAD OF triggers must be FOR EACH ROW";
            Err(Error::new("0A000", message))
        }
        (true, true) if new.when.is_some() => {
            let message = "INSTEAD OF triggers cannot have WHEN conditions";
            Err(Error::new("0A000", message))
        }
        (true, _) => Ok(()),
    }
}

/// Puts the triggers of a table, or of a view as a table, into its definition.
pub fn define(core: &mut Core, next: Table) -> Result<()> {
    let Some(view) = &next.view else {
        return core.define(Object::Table(Arc::new(next.finish()?)));
    };
    let mut view = View::clone(view);
    view.triggers = next.triggers;
    core.define(Object::View(Arc::new(view)))
}

pub fn create(core: &mut Core, new: &CreateTrigger) -> Result<Tag> {
    let lock = TableLock::ShareRowExclusive;
    let table = locked(core, &new.table, lock, Asked::Trigger)?;
    let table = table.ok_or_else(|| names::no_relation(&new.table))?;
    check_kind(&table, new)?;
    check_schema(core, &table, new)?;
    let named = match &new.runs {
        Runs::Function { name, arguments } => Some((named_function(core, name)?.oid, arguments)),
        Runs::Body(_) => None,
    };
    if new.row && new.ops.contains(&Op::Truncate) {
        let message = "TRUNCATE FOR EACH ROW triggers are not supported";
        return Err(Error::new("0A000", message));
    }
    check_transitions(new)?;
    let from = match new.constraint.as_ref().and_then(|c| c.from.as_ref()) {
        Some(from) => {
            let locked = core.locked_table(from, TableLock::AccessShare)?;
            locked.ok_or_else(|| names::no_relation(from))?.oid
        }
        None => 0,
    };
    core.engine.lock_definition(block::ObjectId(table.oid))?;
    core.refresh()?;
    let now = core.dict().with_triggers(table.oid);
    let mut next = Table::clone(now.as_ref().unwrap_or(&table));
    let old = next.trigger(&new.name);
    let mut before = None;
    let oid = match old {
        Some(_) if !new.or_replace => {
            let message = format!(
                "trigger \"{}\" for relation \"{}\" already exists",
                new.name, table.name
            );
            return Err(Error::new("42710", message));
        }
        Some(at) if next.triggers[at].constraint.is_some() => {
            let message = format!(
                "trigger \"{}\" for relation \"{}\" is a constraint trigger",
                new.name, table.name
            );
            return Err(Error::new("42710", message));
        }
        Some(at) => {
            let replaced = next.triggers.remove(at);
            let oid = replaced.oid;
            before = Some(replaced);
            oid
        }
        None => core.database.engine().allocate_object_id()?.0,
    };
    let constraint = match &new.constraint {
        Some(c) => Some(Constraint {
            oid: core.database.engine().allocate_object_id()?.0,
            deferrable: c.deferrable,
            initially_deferred: c.initially_deferred,
            from,
        }),
        None => None,
    };
    let (function, arguments) = match (&new.runs, named) {
        (Runs::Body(text), _) => {
            let function = trigger_body::define(core, &next, &new.name, before.as_ref(), text)?;
            (function, Vec::new())
        }
        (Runs::Function { .. }, Some((function, arguments))) => {
            if let Some(before) = &before {
                trigger_body::undefine(core, before)?;
            }
            (function, arguments.clone())
        }
        (Runs::Function { .. }, None) => {
            return Err(Error::internal("a trigger without a function"));
        }
    };
    let trigger = Trigger {
        oid,
        name: new.name.clone(),
        function,
        before: new.before,
        instead: new.instead,
        row: new.row,
        ops: new.ops.clone(),
        columns: columns(&next, &new.columns)?,
        old_table: new.old_table.clone(),
        new_table: new.new_table.clone(),
        constraint,
        when: new.when.clone(),
        arguments,
        enabled: if new.disabled { 'D' } else { 'O' },
        comment: None,
    };
    crate::pl::check_when(core, &table, &trigger)?;
    next.triggers.push(trigger);
    next.triggers.sort_by(|a, b| a.name.cmp(&b.name));
    define(core, next)?;
    Ok(Tag::Plain("CREATE TRIGGER"))
}

/// The function that EXECUTE FUNCTION names.
fn named_function(core: &Core, name: &Qualified) -> Result<Arc<Function>> {
    let found = core
        .dict()
        .functions_named(name.schema.as_deref(), &name.name);
    let mut found = found.into_iter();
    let function = found.find(|f| f.arguments.is_empty()).ok_or_else(|| {
        let message = format!("function {name}() does not exist");
        Error::new("42883", message)
    })?;
    core.check_execute(&function)?;
    if !function.is_trigger() {
        let message = format!("function {} must return type trigger", name.name);
        return Err(Error::new("42P17", message));
    }
    trigger_body::refuse_body(core, &function)?;
    Ok(function)
}

/// Refuses a trigger that is named with another schema than its table's.
fn check_schema(core: &Core, table: &Table, new: &CreateTrigger) -> Result<()> {
    match &new.schema {
        Some(schema) if core.dict().schema_name(table.schema) != schema => Err(Error::unsupported(
            "a trigger in another schema than its table",
        )),
        _ => Ok(()),
    }
}

/// The places of the columns of UPDATE OF.
fn columns(table: &Table, names: &[String]) -> Result<Vec<usize>> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let at = table.column(name).ok_or_else(|| {
            let message = format!(
                "column \"{name}\" of relation \"{}\" does not exist",
                table.name
            );
            Error::new("42703", message)
        })?;
        if found.contains(&at) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(Error::new("42701", message));
        }
        found.push(at);
    }
    Ok(found)
}

/// Looks over what REFERENCING says.
fn check_transitions(new: &CreateTrigger) -> Result<()> {
    if new.old_table.is_none() && new.new_table.is_none() {
        return Ok(());
    }
    let wrong = |what: &str| Err(Error::new("42P17", what));
    let refused = |what: &str| Err(Error::new("0A000", what));
    if new.before {
        return wrong("transition table name can only be specified for an AFTER trigger");
    }
    if new.ops.contains(&Op::Truncate) {
        return refused("TRUNCATE triggers with transition tables are not supported");
    }
    if new.ops.len() != 1 {
        return refused(
            "transition tables cannot be specified for triggers with more than one event",
        );
    }
    if !new.columns.is_empty() {
        return refused("transition tables cannot be specified for triggers with column lists");
    }
    if new.new_table.is_some() && new.ops.contains(&Op::Delete) {
        return wrong("NEW TABLE can only be specified for an INSERT or UPDATE trigger");
    }
    if new.old_table.is_some() && new.ops.contains(&Op::Insert) {
        return wrong("OLD TABLE can only be specified for a DELETE or UPDATE trigger");
    }
    match new.old_table == new.new_table {
        true => wrong("OLD TABLE name and NEW TABLE name cannot be the same"),
        false => Ok(()),
    }
}

/// ALTER TRIGGER .. RENAME.
pub fn rename(core: &mut Core, name: &str, on: &Qualified, to: &str) -> Result<Tag> {
    let table = locked(core, on, TableLock::AccessExclusive, Asked::Owner)?;
    let table = table.ok_or_else(|| names::no_relation(on))?;
    let at = table
        .trigger(name)
        .ok_or_else(|| missing(name, &table.name))?;
    if table.trigger(to).is_some_and(|other| other != at) {
        let message = format!(
            "trigger \"{to}\" for relation \"{}\" already exists",
            table.name
        );
        return Err(Error::new("42710", message));
    }
    let mut next = Table::clone(&table);
    next.triggers[at].name = to.to_string();
    next.triggers.sort_by(|a, b| a.name.cmp(&b.name));
    define(core, next)?;
    Ok(Tag::Plain("ALTER TRIGGER"))
}

fn missing(name: &str, table: &str) -> Error {
    let message = format!("trigger \"{name}\" for table \"{table}\" does not exist");
    Error::new("42704", message)
}

/// DROP TRIGGER in Oracle's form, which does not say of which table.
pub fn drop_named(core: &mut Core, name: &Qualified) -> Result<Tag> {
    let dict = core.dict();
    let in_sight = |schema: u32| match &name.schema {
        Some(wanted) => dict.schema_name(schema) == wanted,
        None => dict.path().contains(&schema),
    };
    let of_tables = dict.tables().map(|t| (t.schema, &t.name, &t.triggers));
    let of_views = dict.views().map(|v| (v.schema, &v.name, &v.triggers));
    let all = of_tables.chain(of_views);
    let named = all.filter(|(schema, _, triggers)| {
        in_sight(*schema) && triggers.iter().any(|t| t.name == name.name)
    });
    let mut found = named.map(|(schema, table, _)| Qualified {
        schema: Some(dict.schema_name(schema).to_string()),
        name: table.clone(),
    });
    match (found.next(), found.next()) {
        (None, _) => {
            let message = format!("trigger \"{}\" does not exist", name.name);
            Err(Error::new("42704", message))
        }
        (Some(_), Some(_)) => {
            let message = format!("trigger name \"{}\" is not unique", name.name);
            Err(Error::new("42725", message).hint("Name its table: DROP TRIGGER .. ON .."))
        }
        (Some(table), None) => drop(core, &name.name, &table, false),
    }
}

pub fn drop(core: &mut Core, name: &str, on: &Qualified, if_exists: bool) -> Result<Tag> {
    let tag = Tag::Plain("DROP TRIGGER");
    let table = locked(core, on, TableLock::AccessExclusive, Asked::OwnerOfRelation)?;
    let Some(table) = table else {
        if if_exists {
            skipping(core, "relation", on);
            return Ok(tag);
        }
        return Err(names::no_relation(on));
    };
    let Some(at) = table.trigger(name) else {
        if if_exists {
            let message =
                format!("trigger \"{name}\" for relation \"{on}\" does not exist, skipping");
            core.notice("NOTICE", "00000", message);
            return Ok(tag);
        }
        return Err(missing(name, &table.name));
    };
    let mut next = Table::clone(&table);
    let gone = next.triggers.remove(at);
    define(core, next)?;
    trigger_body::undefine(core, &gone)?;
    Ok(tag)
}

/// ALTER TABLE .. ENABLE or DISABLE TRIGGER.
pub fn set_enabled(table: &mut Table, name: &ast::Ident, enabled: char) -> Result<()> {
    let all = name.quote_style.is_none() && ["all", "user"].contains(&&*name.value.to_lowercase());
    let name = names::ident(name);
    if !all && table.trigger(&name).is_none() {
        return Err(missing(&name, &table.name));
    }
    for trigger in &mut table.triggers {
        if all || trigger.name == name {
            trigger.enabled = enabled;
        }
    }
    Ok(())
}
