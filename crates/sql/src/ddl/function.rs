//! CREATE and DROP FUNCTION.
//!
//! **Invariant.** A new function's name is claimed before it is looked up, and a function is
//! replaced or dropped under the exclusive lock of its object id. Those who call it take no lock:
//! a call finds the function as it is when the call's statement is analysed or run.

use std::sync::Arc;

use sqlparser::ast::DataType;

use super::Core;
use super::dependence::drop_dependents;
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::bind::{TypeNames, parts};
use crate::dict::depend::Address;
use crate::dict::function::{Argument, Language, TRIGGER};
use crate::dict::{Function, Object};
use crate::error::{Error, Result};
use crate::parse::function::{CreateFunction, FunctionName};
use crate::parse::utility::TableLock;
use crate::pl;
use crate::types::SqlType;

/// Arguments of a function: PostgreSQL's limit.
const MAX_ARGUMENTS: usize = 100;

pub fn create(core: &mut Core, new: &CreateFunction) -> Result<Tag> {
    let language = language(new.language.as_deref())?;
    let arguments = arguments(core, new)?;
    let result = result(core, &new.result)?;
    let schema = core.creation_schema(&new.name)?;
    core.claim_name(&format!("function {schema} {}", new.name.name))?;
    let types: Vec<u32> = arguments.iter().map(|a| a.type_oid).collect();
    let old = core
        .dict()
        .function_in(schema, &new.name.name, &types)
        .cloned();
    if old.is_some() && !new.or_replace {
        let message = format!(
            "function \"{}\" already exists with same argument types",
            new.name.name
        );
        return Err(Error::new("42723", message));
    }
    let (oid, owner) = match &old {
        Some(old) => (old.oid, old.owner),
        None => (
            core.database.engine().allocate_object_id()?.0,
            core.owner()?,
        ),
    };
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    let made = Function {
        oid,
        schema,
        name: new.name.name.clone(),
        owner,
        arguments,
        result,
        known_result: core.dict().type_of(result),
        language,
        volatility: new.volatility,
        strict: new.strict,
        parallel: new.parallel,
        leakproof: new.leakproof,
        cost: new.cost.unwrap_or(100.0),
        body: new.body.clone(),
        comment: old.as_ref().and_then(|f| f.comment.clone()),
    };
    if let Some(old) = &old {
        check_replacement(old, &made)?;
    }
    let made = Arc::new(made);
    core.define(Object::Function(made.clone()))?;
    pl::check(core, &made)?;
    Ok(Tag::Plain("CREATE FUNCTION"))
}

fn language(name: Option<&str>) -> Result<Language> {
    match name {
        Some("plpgsql") => Ok(Language::PlPgSql),
        Some("sql") => Ok(Language::Sql),
        Some(name @ ("c" | "internal")) => Err(Error::unsupported(format!("language {name}"))),
        Some(name) => {
            let message = format!("language \"{name}\" does not exist");
            Err(Error::new("42704", message))
        }
        None => Err(Error::new("42P13", "no language specified")),
    }
}

fn arguments(core: &mut Core, new: &CreateFunction) -> Result<Vec<Argument>> {
    if new.arguments.len() > MAX_ARGUMENTS {
        let message = format!("functions cannot have more than {MAX_ARGUMENTS} arguments");
        return Err(Error::new("54023", message));
    }
    let mut list: Vec<Argument> = Vec::with_capacity(new.arguments.len());
    for parameter in &new.arguments {
        let ty = locked_type(core, &parameter.ty)?;
        let name = parameter.name.clone();
        if !name.is_empty() && list.iter().any(|a| a.name == name) {
            let message = format!("parameter name \"{name}\" used more than once");
            return Err(Error::new("42P13", message));
        }
        if parameter.default.is_none() && list.iter().any(|a| a.default.is_some()) {
            let message = "input parameters after one with a default value must also have defaults";
            return Err(Error::new("42P13", message));
        }
        list.push(Argument {
            name,
            type_oid: ty.oid(),
            known: Some(ty),
            default: parameter.default.clone(),
        });
    }
    Ok(list)
}

/// A type of values, which stays until the transaction ends.
fn locked_type(core: &mut Core, ty: &DataType) -> Result<SqlType> {
    refuse_standing(ty)?;
    super::table::column_type(core, ty).map(|(ty, _)| ty)
}

fn value_type(core: &Core, ty: &DataType) -> Result<SqlType> {
    refuse_standing(ty)?;
    parts::data_type(ty, &TypeNames::of(&core.dict())).map(|(ty, _)| ty)
}

/// Refuses types that stand for others.
fn refuse_standing(ty: &DataType) -> Result<()> {
    const STANDING: [&str; 9] = [
        "anyelement",
        "anyarray",
        "anynonarray",
        "anyenum",
        "anyrange",
        "anycompatible",
        "anycompatiblearray",
        "record",
        "refcursor",
    ];
    let name = ty.to_string().to_lowercase();
    if STANDING.contains(&name.as_str()) {
        return Err(Error::unsupported(format!("functions of type {name}")));
    }
    Ok(())
}

fn result(core: &mut Core, ty: &DataType) -> Result<u32> {
    match ty.to_string().to_lowercase().as_str() {
        "void" => Ok(SqlType::Void.oid()),
        "trigger" => Ok(TRIGGER),
        "event_trigger" => Err(Error::unsupported("event triggers")),
        _ => locked_type(core, ty).map(SqlType::oid),
    }
}

fn check_replacement(old: &Function, new: &Function) -> Result<()> {
    let hint = format!("Use DROP FUNCTION {} first.", old.signature());
    if old.result != new.result {
        let message = "cannot change return type of existing function";
        return Err(Error::new("42P13", message).hint(hint));
    }
    for (before, after) in old.arguments.iter().zip(&new.arguments) {
        if !before.name.is_empty() && before.name != after.name {
            let message = format!("cannot change name of input parameter \"{}\"", before.name);
            return Err(Error::new("42P13", message).hint(hint));
        }
        if before.default.is_some() && after.default.is_none() {
            let message = "cannot remove parameter defaults from existing function";
            return Err(Error::new("42P13", message).hint(hint));
        }
    }
    Ok(())
}

pub fn drop(
    core: &mut Core,
    names: &[FunctionName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    let mut gone = Vec::with_capacity(names.len());
    for name in names {
        match core.locked_function(name)? {
            Some(function) => gone.push(function.oid),
            None if if_exists => {
                let message = format!("function {} does not exist, skipping", shown(core, name)?);
                core.notice("NOTICE", "00000", message);
            }
            None => return Err(missing(core, name)?),
        }
    }
    let roots: Vec<Address> = gone.iter().map(|oid| Address::Function(*oid)).collect();
    drop_dependents(core, &roots, cascade)?;
    gone.iter()
        .try_for_each(|oid| core.undefine(i64::from(*oid)))?;
    Ok(Tag::Plain("DROP FUNCTION"))
}

/// COMMENT ON FUNCTION.
pub fn comment(core: &mut Core, name: &FunctionName, text: Option<&str>) -> Result<()> {
    let found = core.locked_function(name)?;
    let mut next = Function::clone(&*found.map_or_else(|| Err(missing(core, name)?), Ok)?);
    next.comment = text.map(str::to_string);
    core.define(Object::Function(Arc::new(next)))
}

/// As messages show it.
fn shown(core: &Core, name: &FunctionName) -> Result<String> {
    let types = name.types.as_deref().unwrap_or_default();
    let types = types.iter().map(|t| Ok(value_type(core, t)?.name()));
    let types: Vec<&str> = types.collect::<Result<_>>()?;
    Ok(format!("{}({})", name.name, types.join(",")))
}

fn missing(core: &Core, name: &FunctionName) -> Result<Error> {
    let message = match &name.types {
        Some(_) => format!("function {} does not exist", shown(core, name)?),
        None => format!("could not find a function named \"{}\"", name.name),
    };
    Ok(Error::new("42883", message))
}

impl Core {
    /// The function that a statement names, if there is one.
    pub(super) fn function_of(&self, name: &FunctionName) -> Result<Option<Arc<Function>>> {
        let Qualified { schema, name: bare } = &name.name;
        if let Some(schema) = schema
            && self.dict().schema(schema).is_none()
        {
            return Err(names::no_schema(schema));
        }
        let found = self.dict().functions_named(schema.as_deref(), bare);
        match (&name.types, found.as_slice()) {
            (Some(types), _) => {
                let types = types.iter().map(|t| Ok(value_type(self, t)?.oid()));
                let types = types.collect::<Result<Vec<u32>>>()?;
                let mut found = found.into_iter();
                Ok(found.find(|f| f.argument_types() == types))
            }
            (None, []) => Ok(None),
            (None, [one]) => Ok(Some(one.clone())),
            (None, _) => {
                let message = format!("function name \"{}\" is not unique", name.name);
                Err(Error::new("42725", message)
                    .hint("Specify the argument list to select the function unambiguously."))
            }
        }
    }

    /// The same under its exclusive lock.
    fn locked_function(&mut self, name: &FunctionName) -> Result<Option<Arc<Function>>> {
        loop {
            let Some(found) = self.function_of(name)? else {
                return Ok(None);
            };
            let mark = self.engine.table_locks();
            self.lock_table(found.oid, TableLock::AccessExclusive, false)?;
            match self.function_of(name)? {
                Some(now) if now.oid == found.oid => return Ok(Some(now)),
                _ => self.engine.unlock_table(block::ObjectId(found.oid), mark),
            }
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
    }
}
