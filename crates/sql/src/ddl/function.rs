//! CREATE and DROP FUNCTION.
//!
//! **Invariant.** A new function's name is claimed before it is looked up, and a function is
//! replaced or dropped under the exclusive lock of its object id. Those who call it take no lock:
//! a call finds the function as it is when the call's statement is analysed or run.

use std::sync::Arc;

use sqlparser::ast::{DataType, ObjectName, ObjectNamePart};

use super::Core;
use super::dependence::drop_dependents;
use super::extension::Making;
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::bind::{TypeNames, parts};
use crate::dict::acl;
use crate::dict::depend::Address;
use crate::dict::function::{Argument, Language, Mode, Parameter, RECORD, TRIGGER};
use crate::dict::open_type::OpenType;
use crate::dict::{Function, Object, Relation};
use crate::error::{Error, Result};
use crate::parse::function::{CreateFunction, FunctionName, Parameter as Written, Routine};
use crate::parse::utility::TableLock;
use crate::pl;
use crate::types::SqlType;

/// Arguments of a function: PostgreSQL's limit.
const MAX_ARGUMENTS: usize = 100;

pub fn create(core: &mut Core, new: &CreateFunction) -> Result<Tag> {
    create_of(core, new, None)
}

/// CREATE FUNCTION, in the script of an extension too.
pub(super) fn create_of(
    core: &mut Core,
    new: &CreateFunction,
    making: Option<&Making>,
) -> Result<Tag> {
    let language = language(new.language.as_deref(), making.is_some())?;
    let arguments = arguments(core, new)?;
    let parameters = parameters(core, new)?;
    let (result, row_of) = result(core, new, &parameters)?;
    let schema = core.creation_schema(&new.name)?;
    core.claim_name(&format!("function {schema} {}", new.name.name))?;
    check_settled(&arguments, result, &parameters)?;
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
    let (oid, owner) = match (&old, making) {
        (Some(old), _) => (old.oid, old.owner),
        (None, None) => (
            core.database.engine().allocate_object_id()?.0,
            core.owner()?,
        ),
        (None, Some(making)) => (core.database.engine().allocate_object_id()?.0, making.owner),
    };
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    check_leakproof(core, new.leakproof)?;
    let mut settings = Vec::new();
    for clause in &new.settings {
        super::setting::apply(core, &mut settings, clause)?;
    }
    let made = Function {
        oid,
        schema,
        name: new.name.name.clone(),
        owner,
        procedure: new.procedure,
        arguments,
        parameters,
        result,
        known_result: core.dict().type_of(result),
        returns_set: new.returns_set,
        row_of,
        rows: new
            .rows
            .unwrap_or(if new.returns_set { 1000.0 } else { 0.0 }),
        language,
        volatility: new.volatility,
        strict: new.strict,
        parallel: new.parallel,
        leakproof: new.leakproof,
        security_definer: new.security_definer,
        settings,
        cost: new.cost.unwrap_or(match language {
            Language::C => 1.0,
            _ => 100.0,
        }),
        body: body(core, &new.body)?,
        trigger_of: None,
        comment: old.as_ref().and_then(|f| f.comment.clone()),
        extension: match making {
            Some(making) => Some(making.oid),
            None => old.as_ref().and_then(|f| f.extension),
        },
    };
    match &old {
        Some(old) => {
            core.check_owner(old.owner, format!("function {}", old.name))?;
            super::trigger_body::refuse_body(core, old)?;
            check_replacement(old, &made)?;
        }
        None => core.give_defaults(acl::Kind::Function, oid, owner, schema)?,
    }
    let made = Arc::new(made);
    core.define(Object::Function(made.clone()))?;
    if core.settings.get("check_function_bodies") != "off" {
        pl::check(core, &made, &made.name)?;
    }
    Ok(Tag::Plain(match new.procedure {
        true => "CREATE PROCEDURE",
        false => "CREATE FUNCTION",
    }))
}

/// A body as all sessions read it, whatever the settings of the one that makes it.
fn body(core: &mut Core, written: &str) -> Result<String> {
    let reread = core.reread(written)?;
    Ok(reread.map_or_else(|| written.to_string(), |read| read.text))
}

/// Refuses who may not say that a function tells nothing of its arguments.
pub(super) fn check_leakproof(core: &Core, leakproof: bool) -> Result<()> {
    match leakproof {
        true => core.require_superuser("only superuser can define a leakproof function"),
        false => Ok(()),
    }
}

/// `linked`: in the script of an extension, whose functions the program may compute.
fn language(name: Option<&str>, linked: bool) -> Result<Language> {
    match name {
        Some("c") if linked => Ok(Language::C),
        Some("plpgsql") => Ok(Language::PlPgSql),
        Some("plsql") => Ok(Language::PlSql),
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
    if new.parameters.len() > MAX_ARGUMENTS {
        let message = format!("functions cannot have more than {MAX_ARGUMENTS} arguments");
        return Err(Error::new("54023", message));
    }
    let mut list: Vec<Argument> = Vec::with_capacity(new.parameters.len());
    for parameter in new.parameters.iter().filter(|p| p.mode.is_input()) {
        let (type_oid, known) = parameter_type(core, new, &parameter.ty)?;
        let name = parameter.name.clone();
        let is_array = match known {
            Some(ty) => ty.base().element().is_some(),
            None => OpenType::of(type_oid).is_some_and(OpenType::is_array),
        };
        if parameter.mode == Mode::Variadic && !is_array {
            return Err(Error::new("42P13", "VARIADIC parameter must be an array"));
        }
        if parameter.default.is_none() && list.iter().any(|a| a.default.is_some()) {
            let message = "input parameters after one with a default value must also have defaults";
            return Err(Error::new("42P13", message));
        }
        list.push(Argument {
            name,
            type_oid,
            known,
            default: parameter.default.clone(),
        });
    }
    Ok(list)
}

/// A type of values, which stays until the transaction ends.
fn locked_type(core: &mut Core, ty: &DataType) -> Result<SqlType> {
    if let DataType::Custom(name, modifiers) = ty
        && let [asked] = modifiers.as_slice()
        && asked.starts_with('%')
    {
        return type_of_column(core, name, asked);
    }
    refuse_standing(ty)?;
    super::table::column_type(core, ty).map(|(ty, _)| ty)
}

/// The type that a column has now, which `table.column%TYPE` means.
fn type_of_column(core: &mut Core, name: &ObjectName, asked: &str) -> Result<SqlType> {
    if asked != "%type" {
        return Err(Error::unsupported("parameters and results of %ROWTYPE"));
    }
    let mut path = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        match part {
            ObjectNamePart::Identifier(part) => path.push(names::ident(part)),
            ObjectNamePart::Function(_) => return Err(Error::unsupported("this name of a type")),
        }
    }
    let (schema, table, column) = match path.as_slice() {
        [table, column] => (None, table, column),
        [schema, table, column] => (Some(schema.clone()), table, column),
        _ => {
            let message = format!("improper %TYPE reference (too few dotted names): {name}");
            return Err(Error::new("42601", message));
        }
    };
    let relation = Qualified {
        schema,
        name: table.clone(),
    };
    let found = core.locked_table(&relation, TableLock::AccessShare)?;
    let found = found.ok_or_else(|| names::no_relation(&relation))?;
    let at = found.column(column).ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
        Error::new("42703", message)
    })?;
    let ty = found.columns[at].ty();
    let message = format!(
        "type reference {}%TYPE converted to {}",
        path.join("."),
        ty.name()
    );
    core.notice("NOTICE", "00000", message);
    Ok(ty)
}

/// The number of a parameter's type, and the type, unless each call settles it.
fn parameter_type(
    core: &mut Core,
    new: &CreateFunction,
    ty: &DataType,
) -> Result<(u32, Option<SqlType>)> {
    let Some(open) = open_type(ty) else {
        let found = locked_type(core, ty)?;
        return Ok((found.oid(), Some(found)));
    };
    if open == OpenType::Record && new.language.as_deref() == Some("sql") {
        let message = "SQL functions cannot have arguments of type record";
        return Err(Error::new("42P13", message));
    }
    Ok((open.oid(), None))
}

fn open_type(ty: &DataType) -> Option<OpenType> {
    OpenType::named(&ty.to_string().to_lowercase())
}

/// The number and the name of the type of an argument.
fn named_type(core: &Core, ty: &DataType) -> Result<(u32, &'static str)> {
    if let Some(open) = open_type(ty) {
        return Ok((open.oid(), open.name()));
    }
    refuse_standing(ty)?;
    let (found, _) = parts::data_type(ty, &TypeNames::of(&core.dict()))?;
    Ok((found.oid(), found.name()))
}

/// Refuses types that stand for others.
fn refuse_standing(ty: &DataType) -> Result<()> {
    const STANDING: [&str; 5] = [
        "any",
        "anyrange",
        "anymultirange",
        "anycompatiblerange",
        "anycompatiblemultirange",
    ];
    let name = ty.to_string().to_lowercase();
    if STANDING.contains(&name.as_str()) {
        return Err(Error::unsupported(format!("functions of type {name}")));
    }
    Ok(())
}

/// All parameters, if they are not only inputs.
fn parameters(core: &mut Core, new: &CreateFunction) -> Result<Vec<Parameter>> {
    let mut list: Vec<Parameter> = Vec::with_capacity(new.parameters.len());
    for (at, parameter) in new.parameters.iter().enumerate() {
        let Written { mode, name, .. } = parameter;
        // A name may stand for an input and an output of the same function in SQL only.
        let is_sql = |l: &str| l.eq_ignore_ascii_case("sql");
        let is_sql = new.language.as_deref().is_some_and(is_sql);
        let same = |p: &Parameter| p.name == *name && (!is_sql || shares(p.mode, *mode));
        if !name.is_empty() && list.iter().any(same) {
            let message = format!("parameter name \"{name}\" used more than once");
            return Err(Error::new("42P13", message));
        }
        if *mode == Mode::Variadic && new.parameters[at + 1..].iter().any(|p| p.mode.is_input()) {
            let message = "VARIADIC parameter must be the last input parameter";
            return Err(Error::new("42P13", message));
        }
        if parameter.default.is_some() && !mode.is_input() {
            let message = "only input parameters can have default values";
            return Err(Error::new("42P13", message));
        }
        let (type_oid, known) = parameter_type(core, new, &parameter.ty)?;
        if mode.is_output() && type_oid == RECORD && known.is_none() {
            return Err(Error::unsupported("parameters of type record that go out"));
        }
        list.push(Parameter {
            mode: *mode,
            name: name.clone(),
            type_oid,
            known,
        });
    }
    match list.iter().all(|p| p.mode == Mode::In) {
        true => Ok(Vec::new()),
        false => Ok(list),
    }
}

/// Refuses a result that each call would settle, but no argument tells how.
fn check_settled(arguments: &[Argument], result: u32, parameters: &[Parameter]) -> Result<()> {
    let outputs = parameters.iter().filter(|p| !p.mode.is_input());
    for oid in outputs.map(|p| p.type_oid).chain([result]) {
        let Some(open) = OpenType::of_result(oid) else {
            continue;
        };
        let mut given = arguments
            .iter()
            .filter_map(|a| OpenType::of_result(a.type_oid));
        if given.any(|given| given.is_compatible() == open.is_compatible()) {
            continue;
        }
        let kin = match open.is_compatible() {
            false => "anyelement, anyarray, anynonarray, anyenum, anyrange, or anymultirange",
            true => {
                "anycompatible, anycompatiblearray, anycompatiblenonarray, anycompatiblerange, or \
                 anycompatiblemultirange"
            }
        };
        let detail = format!(
            "A result of type {} requires at least one input of type {kin}.",
            open.name()
        );
        return Err(Error::new("42P13", "cannot determine result data type").detail(detail));
    }
    Ok(())
}

/// Whether two parameters of these modes need different names.
fn shares(a: Mode, b: Mode) -> bool {
    a.is_input() && b.is_input() || a.is_output() && b.is_output()
}

/// The type of the result, and the table whose rows it is, if it is that.
fn result(
    core: &mut Core,
    new: &CreateFunction,
    parameters: &[Parameter],
) -> Result<(u32, Option<u32>)> {
    let outputs: Vec<&Parameter> = parameters.iter().filter(|p| p.mode.is_output()).collect();
    let of_outputs = match outputs.as_slice() {
        [] => None,
        [one] if !new.procedure => Some(one.type_oid),
        _ => Some(RECORD),
    };
    let Some(ty) = &new.result else {
        return Ok((of_outputs.unwrap_or(SqlType::Void.oid()), None));
    };
    let (said, row_of) = said_result(core, ty)?;
    match of_outputs {
        Some(out) if out != said => {
            let name = match core.dict().type_of(out) {
                Some(ty) => ty.name(),
                None => "record",
            };
            let message = format!("function result type must be {name} because of OUT parameters");
            Err(Error::new("42P13", message))
        }
        _ => Ok((said, row_of)),
    }
}

fn said_result(core: &mut Core, ty: &DataType) -> Result<(u32, Option<u32>)> {
    match ty.to_string().to_lowercase().as_str() {
        "void" => return Ok((SqlType::Void.oid(), None)),
        "trigger" => return Ok((TRIGGER, None)),
        "record" => return Ok((RECORD, None)),
        "event_trigger" => return Err(Error::unsupported("event triggers")),
        _ => {}
    }
    if let Some(open) = open_type(ty) {
        return Ok((open.oid(), None));
    }
    match (locked_type(core, ty), ty) {
        (Ok(SqlType::Composite(row)), _) => {
            let dict = core.dict();
            match dict.table_of_row_type(row.def().oid) {
                Some(table) => Ok((RECORD, Some(table.oid))),
                None => Ok((row.def().oid, None)),
            }
        }
        (Ok(found), _) => Ok((found.oid(), None)),
        // The name of a table is that of the type of its rows.
        (Err(e), DataType::Custom(name, modifiers)) if modifiers.is_empty() => {
            let name = Qualified::new(name)?;
            match core.dict().relation(&name) {
                Some(Relation::Table(table)) => Ok((RECORD, Some(table.oid))),
                _ => Err(e),
            }
        }
        (Err(e), _) => Err(e),
    }
}

fn check_replacement(old: &Function, new: &Function) -> Result<()> {
    let hint = format!("Use DROP FUNCTION {} first.", old.signature());
    if old.procedure != new.procedure {
        let kind = if old.procedure {
            "procedure"
        } else {
            "function"
        };
        let detail = format!("\"{}\" is a {kind}.", old.name);
        return Err(Error::new("42809", "cannot change routine kind").detail(detail));
    }
    let columns = |f: &Function| -> Vec<(Mode, String, u32)> {
        let each = f.outputs().map(|p| (p.mode, p.name.clone(), p.type_oid));
        each.collect()
    };
    let rows = |f: &Function| (f.result, f.row_of, f.returns_set);
    if rows(old) != rows(new) {
        let message = "cannot change return type of existing function";
        return Err(Error::new("42P13", message).hint(hint));
    }
    if columns(old) != columns(new) {
        return Err(
            Error::new("42P13", "cannot change return type of existing function")
                .detail("Row type defined by OUT parameters is different.")
                .hint(hint),
        );
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
    kind: Routine,
    names: &[FunctionName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    let mut gone = Vec::with_capacity(names.len());
    for name in names {
        match core.locked_function(name)? {
            Some(function) if !kind.fits(function.procedure) => {
                let message = format!("{} is not a {}", function.signature(), kind.word());
                return Err(Error::new("42809", message));
            }
            Some(function) => {
                let what = format!("{} {}", kind.word(), function.name);
                core.check_owner(function.owner, what)?;
                super::trigger_body::refuse_part(core, &function)?;
                let member = Address::Function(function.oid);
                super::extension::refuse_member(core, function.extension, member)?;
                gone.push(function.oid);
            }
            None if if_exists => {
                let word = kind.word();
                let message = match &name.types {
                    Some(_) => format!("{word} {} does not exist, skipping", shown(core, name)?),
                    None => format!("{word} {}() does not exist, skipping", name.name),
                };
                core.notice("NOTICE", "00000", message);
            }
            None => return Err(missing(core, kind, name)?),
        }
    }
    let roots: Vec<Address> = gone.iter().map(|oid| Address::Function(*oid)).collect();
    drop_dependents(core, &roots, cascade)?;
    gone.iter()
        .try_for_each(|oid| core.undefine(i64::from(*oid)))?;
    Ok(Tag::Plain(kind.drop_command()))
}

/// COMMENT ON FUNCTION.
pub fn comment(
    core: &mut Core,
    kind: Routine,
    name: &FunctionName,
    text: Option<&str>,
) -> Result<()> {
    let found = core.locked_function(name)?;
    let found = found.map_or_else(|| Err(missing(core, kind, name)?), Ok)?;
    if !kind.fits(found.procedure) {
        let message = format!("{} is not a {}", found.signature(), kind.word());
        return Err(Error::new("42809", message));
    }
    core.check_owner(found.owner, format!("{} {}", kind.word(), found.name))?;
    let mut next = Function::clone(&*found);
    next.comment = text.map(str::to_string);
    core.define(Object::Function(Arc::new(next)))
}

/// As messages show it.
fn shown(core: &Core, name: &FunctionName) -> Result<String> {
    let types = name.types.as_deref().unwrap_or_default();
    let types = types.iter().map(|t| Ok(named_type(core, t)?.1));
    let types: Vec<&str> = types.collect::<Result<_>>()?;
    Ok(format!("{}({})", name.name, types.join(",")))
}

pub(super) fn missing(core: &Core, kind: Routine, name: &FunctionName) -> Result<Error> {
    let word = kind.word();
    let message = match &name.types {
        Some(_) => format!("{word} {} does not exist", shown(core, name)?),
        None => format!("could not find a {word} named \"{}\"", name.name),
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
                let types = types.iter().map(|t| Ok(named_type(self, t)?.0));
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
    pub(super) fn locked_function(&mut self, name: &FunctionName) -> Result<Option<Arc<Function>>> {
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
