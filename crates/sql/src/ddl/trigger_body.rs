//! The bodies of triggers in Oracle's form: functions that are made with their trigger and go with
//! it.
//!
//! **Invariant.** A function with `trigger_of` is run by one trigger, which is a trigger of that
//! table or view.

use std::sync::Arc;

use super::Core;
use crate::bind::names::{Qualified, quote};
use crate::dict::function::{Function, Language, TRIGGER, Volatility};
use crate::dict::trigger::Trigger;
use crate::dict::{Object, Table, acl};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::pl;

/// PostgreSQL's limit for names.
const MAX_NAME_BYTES: usize = 63;

/// Defines the function of a trigger that has this body; the trigger that it replaces may have had
/// one, which then gets the body. Gives the function's object id.
pub fn define(
    core: &mut Core,
    table: &Table,
    trigger: &str,
    before: Option<&Trigger>,
    body: &str,
) -> Result<u32> {
    let old = before.and_then(|t| part_of(core, t));
    let made = match old {
        Some(old) => {
            check_replacer(core, table, &old)?;
            Function {
                body: body.to_string(),
                owner: core.owner()?,
                ..Function::clone(&old)
            }
        }
        None => new_function(core, table, trigger, body)?,
    };
    core.lock_table(made.oid, TableLock::AccessExclusive, false)?;
    let made = Arc::new(made);
    core.define(Object::Function(made.clone()))?;
    pl::check(core, &made, trigger)?;
    Ok(made.oid)
}

/// Refuses a new body from a role that has neither the rights of the function's owner nor those of
/// the table's. TRIGGER on the table is enough for a trigger of one's own.
fn check_replacer(core: &Core, table: &Table, old: &Function) -> Result<()> {
    let of_table = core.check_owner(table.owner, format!("table {}", table.name));
    of_table.or_else(|_| core.check_owner(old.owner, format!("function {}", old.name)))
}

fn new_function(core: &mut Core, table: &Table, trigger: &str, body: &str) -> Result<Function> {
    let mut name = Qualified {
        schema: Some(core.dict().schema_name(table.schema).to_string()),
        name: format!("{}_{trigger}", table.name),
    };
    let schema = core.creation_schema(&name)?;
    name.name = free_name(core, schema, &name.name)?;
    let oid = core.database.engine().allocate_object_id()?.0;
    let owner = core.owner()?;
    core.give_defaults(acl::Kind::Function, oid, owner, schema)?;
    Ok(Function {
        oid,
        schema,
        name: name.name,
        owner,
        procedure: false,
        arguments: Vec::new(),
        parameters: Vec::new(),
        result: TRIGGER,
        known_result: None,
        returns_set: false,
        row_of: None,
        rows: 0.0,
        language: Language::PlSql,
        volatility: Volatility::Volatile,
        strict: false,
        parallel: 'u',
        leakproof: false,
        security_definer: false,
        settings: Vec::new(),
        cost: 100.0,
        body: body.to_string(),
        trigger_of: Some(table.oid),
        comment: None,
        extension: None,
    })
}

/// A name that no function without arguments has in the schema: the wanted one, or with a number
/// behind it. It is claimed until the transaction ends.
fn free_name(core: &mut Core, schema: u32, wanted: &str) -> Result<String> {
    let mut number = 0;
    loop {
        let suffix = match number {
            0 => String::new(),
            number => number.to_string(),
        };
        let mut end = wanted.len().min(MAX_NAME_BYTES - suffix.len());
        while !wanted.is_char_boundary(end) {
            end -= 1;
        }
        let name = format!("{}{suffix}", &wanted[..end]);
        core.claim_name(&format!("function {schema} {name}"))?;
        if core.dict().function_in(schema, &name, &[]).is_none() {
            return Ok(name);
        }
        number += 1;
    }
}

/// The function that is the body of a trigger.
fn part_of(core: &Core, trigger: &Trigger) -> Option<Arc<Function>> {
    let function = core.dict().function_by_oid(trigger.function).cloned();
    function.filter(|f| f.trigger_of.is_some())
}

/// Drops the body of a trigger that is gone, if it had one of its own.
pub fn undefine(core: &mut Core, trigger: &Trigger) -> Result<()> {
    let Some(function) = part_of(core, trigger) else {
        return Ok(());
    };
    core.lock_table(function.oid, TableLock::AccessExclusive, false)?;
    core.undefine(function.oid.into())
}

/// The trigger whose body a function is, as messages call it.
fn trigger_with(core: &Core, function: &Function) -> Option<String> {
    let relation = core.dict().with_triggers(function.trigger_of?)?;
    let mut triggers = relation.triggers.iter();
    let trigger = triggers.find(|g| g.function == function.oid)?;
    let word = match relation.view.is_some() {
        true => "view",
        false => "table",
    };
    let name = quote(&trigger.name);
    Some(format!("trigger {name} on {word} {}", relation.name))
}

/// Refuses another use of a function that is the body of a trigger than as this: by another
/// trigger, or as something that ALTER FUNCTION and CREATE OR REPLACE FUNCTION change.
pub fn refuse_body(core: &Core, function: &Function) -> Result<()> {
    if function.trigger_of.is_none() {
        return Ok(());
    }
    let (name, trigger) = (function.signature(), trigger_with(core, function));
    let trigger = trigger.unwrap_or_else(|| "a trigger".to_string());
    let message = format!("function {name} is the body of {trigger}");
    Err(Error::new("42809", message).hint("CREATE OR REPLACE TRIGGER gives the trigger another."))
}

/// Refuses to drop a function that is the body of a trigger.
pub fn refuse_part(core: &Core, function: &Function) -> Result<()> {
    let Some(trigger) = trigger_with(core, function) else {
        return Ok(());
    };
    let message = format!(
        "cannot drop function {} because {trigger} requires it",
        function.signature()
    );
    let hint = format!("You can drop {trigger} instead.");
    Err(Error::new("2BP01", message).hint(hint))
}
