//! ALTER FUNCTION, PROCEDURE and ROUTINE: name, owner, schema, and how it is called.

use std::sync::Arc;

use super::Core;
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::{Function, Object};
use crate::error::{Error, Result};
use crate::parse::define::Change;
use crate::parse::function::{Attributes, FunctionName, Routine};

pub fn alter(core: &mut Core, kind: Routine, name: &FunctionName, change: &Change) -> Result<Tag> {
    let found = core.locked_function(name)?;
    let Some(function) = found else {
        return Err(super::function::missing(core, kind, name)?);
    };
    if !kind.fits(function.procedure) {
        let message = format!("{} is not a {}", function.signature(), kind.word());
        return Err(Error::new("42809", message));
    }
    let what = format!("{} {}", kind.word(), function.name);
    core.check_owner(function.owner, what)?;
    super::trigger_body::refuse_body(core, &function)?;
    let mut next = Function::clone(&function);
    match change {
        Change::Rename(to) => next.name.clone_from(to),
        Change::Owner(to) => {
            let what = format!("{} {}", kind.word(), function.name);
            next.owner = core.new_owner(to, function.owner, function.schema, &what)?;
        }
        Change::Schema(to) => {
            if core.dict().schema(to).is_none() {
                return Err(names::no_schema(to));
            }
            next.schema = core.creation_schema(&Qualified {
                schema: Some(to.clone()),
                name: String::new(),
            })?;
        }
        Change::Attributes(a) => attributes(core, &mut next, a)?,
        Change::RenameColumn(..)
        | Change::Logged(_)
        | Change::OfView(_)
        | Change::OfIndexColumn { .. }
        | Change::Options { .. } => {
            return Err(Error::internal("a change that no function has"));
        }
    }
    if (next.schema, &next.name) != (function.schema, &function.name) {
        check_move(core, &function, &next)?;
    }
    core.define(Object::Function(Arc::new(next)))?;
    Ok(Tag::Plain(kind.alter_command()))
}

fn attributes(core: &Core, f: &mut Function, a: &Attributes) -> Result<()> {
    let of_functions = a.strict.is_some() || a.volatility.is_some() || a.parallel.is_some();
    let of_functions = of_functions || a.leakproof.is_some() || a.cost.is_some();
    if f.procedure && (of_functions || a.rows.is_some()) {
        let message = "invalid attribute in procedure definition";
        return Err(Error::new("42P13", message));
    }
    if a.rows.is_some() && !f.returns_set {
        let message = "ROWS is not applicable when function does not return a set";
        return Err(Error::new("22023", message));
    }
    super::function::check_leakproof(core, a.leakproof == Some(true))?;
    f.volatility = a.volatility.unwrap_or(f.volatility);
    f.strict = a.strict.unwrap_or(f.strict);
    f.leakproof = a.leakproof.unwrap_or(f.leakproof);
    f.security_definer = a.security_definer.unwrap_or(f.security_definer);
    f.parallel = a.parallel.unwrap_or(f.parallel);
    f.cost = a.cost.unwrap_or(f.cost);
    f.rows = a.rows.unwrap_or(f.rows);
    for clause in &a.settings {
        super::setting::apply(core, &mut f.settings, clause)?;
    }
    Ok(())
}

/// Refuses a name that is taken, and a change of the name that texts of definitions have.
pub(super) fn check_move(core: &mut Core, old: &Function, next: &Function) -> Result<()> {
    let (schema, name) = (next.schema, &next.name);
    core.claim_name(&format!("function {schema} {name}"))?;
    let dict = core.dict();
    if dict
        .function_in(schema, name, &next.argument_types())
        .is_some()
    {
        let message = format!(
            "function {} already exists in schema \"{}\"",
            next.signature(),
            dict.schema_name(schema)
        );
        return Err(Error::new("42723", message));
    }
    match !dict.calling_by_name(old).is_empty() {
        true => Err(Error::unsupported(
            "another name or schema for a function that definitions call",
        )),
        false => Ok(()),
    }
}
