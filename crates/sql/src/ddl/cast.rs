//! CREATE and DROP CAST.
//!
//! **Invariant.** Who makes a cast holds a shared lock on its types, and an exclusive one on its
//! function, until its transaction ends: none of them goes meanwhile.

use std::sync::Arc;

use sqlparser::ast::DataType;

use super::Core;
use crate::api::Tag;
use crate::bind::{TypeNames, parts};
use crate::dict::cast::{Cast, Happens, Method};
use crate::dict::{Function, Object};
use crate::error::{Error, Result};
use crate::parse::cast::{CastStatement, NewMethod, Pair};
use crate::parse::function::FunctionName;
use crate::parse::utility::TableLock;
use crate::types::SqlType;
use crate::views::built_in::casts;

pub fn run(core: &mut Core, statement: &CastStatement) -> Result<Tag> {
    match statement {
        CastStatement::Create {
            types,
            method,
            context,
        } => create(core, types, method, *context)?,
        CastStatement::Drop { types, if_exists } => drop(core, types, *if_exists)?,
    }
    Ok(Tag::Plain(statement.command()))
}

fn create(core: &mut Core, types: &Pair, method: &NewMethod, context: Happens) -> Result<()> {
    let (source, _) = super::table::column_type(core, &types.source)?;
    let (target, _) = super::table::column_type(core, &types.target)?;
    for (ty, which) in [(source, "source"), (target, "target")] {
        if matches!(ty, SqlType::Void | SqlType::Unknown) {
            let message = format!("{which} data type {} is a pseudo-type", ty.name());
            return Err(Error::new("42809", message));
        }
    }
    check_owner(core, source, target)?;
    for (ty, which) in [(source, "source"), (target, "target")] {
        if ty.is_domain() {
            let message = format!("cast will be ignored because the {which} data type is a domain");
            core.notice("WARNING", "42809", message);
        }
    }
    let method = match method {
        NewMethod::InOut => Method::InOut,
        NewMethod::Function(name) => Method::Function(function(core, name, source, target)?),
        NewMethod::WithoutFunction => return Err(without_function(core, source, target)),
    };
    if source.oid() == target.oid() {
        return Err(match method {
            Method::InOut => wrong("source data type and target data type are the same"),
            Method::Function(_) => Error::unsupported("a cast from a type to itself"),
        });
    }
    core.claim_name(&format!("cast {} {}", source.oid(), target.oid()))?;
    let is_taken = core
        .dict()
        .cast_between(source.oid(), target.oid())
        .is_some();
    if is_taken || casts::is_built_in(source.oid(), target.oid()) {
        let message = format!("{} already exists", shown(source, target));
        return Err(Error::new("42710", message));
    }
    let oid = core.database.engine().allocate_object_id()?.0;
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    core.define(Object::Cast(Arc::new(Cast {
        oid,
        source: source.oid(),
        target: target.oid(),
        method,
        context,
    })))
}

fn shown(source: SqlType, target: SqlType) -> String {
    format!("cast from type {} to type {}", source.name(), target.name())
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new("42P17", message)
}

/// Refuses who owns neither of the types.
fn check_owner(core: &Core, source: SqlType, target: SqlType) -> Result<()> {
    let dict = core.dict();
    let owns = |ty: SqlType| {
        let ty = ty.element().unwrap_or(ty).oid();
        let made = dict.user_type_by_oid(ty).map(|t| t.owner);
        let owner = made.or_else(|| dict.table_of_row_type(ty).map(|t| t.owner));
        owner.is_some_and(|owner| dict.has_rights_of(core.roles.current, owner))
    };
    match core.is_superuser() || owns(source) || owns(target) {
        true => Ok(()),
        false => {
            let (source, target) = (source.name(), target.name());
            let message = format!("must be owner of type {source} or type {target}");
            Err(Error::new("42501", message))
        }
    }
}

/// The function of a cast, which takes and gives what the cast does.
fn function(core: &mut Core, name: &FunctionName, source: SqlType, target: SqlType) -> Result<u32> {
    let Some(function) = core.locked_function(name)? else {
        return Err(missing(core, name)?);
    };
    let arguments: Vec<SqlType> = function.arguments.iter().map(|a| a.ty()).collect();
    let Some((first, more)) = arguments.split_first().filter(|(_, more)| more.len() < 3) else {
        return Err(wrong("cast function must take one to three arguments"));
    };
    if !is_alike(source, *first) {
        return Err(wrong(
            "argument of cast function must match or be binary-coercible from source data type",
        ));
    }
    let places = [("second", SqlType::Int4), ("third", SqlType::Bool)];
    for (given, (place, wanted)) in more.iter().zip(places) {
        if *given != wanted {
            let wanted = wanted.name();
            return Err(wrong(format!(
                "{place} argument of cast function must be type {wanted}"
            )));
        }
    }
    check_result(&function, target)?;
    Ok(function.oid)
}

fn check_result(function: &Function, target: SqlType) -> Result<()> {
    if !is_alike(function.result_type(), target) {
        return Err(wrong(
            "return data type of cast function must match or be binary-coercible to target data type",
        ));
    }
    if function.procedure {
        return Err(wrong("cast function must be a normal function"));
    }
    match function.returns_set {
        true => Err(wrong("cast function must not return a set")),
        false => Ok(()),
    }
}

/// Why no function of users is of this name: there is none, or it is PostgreSQL's own.
fn missing(core: &Core, name: &FunctionName) -> Result<Error> {
    let built_in = name
        .name
        .schema
        .as_deref()
        .is_none_or(|s| s == "pg_catalog");
    if built_in && !crate::expr::func::overloads(&name.name.name).is_empty() {
        let what = format!("casts by the function {}", name.name);
        return Ok(Error::unsupported(what));
    }
    super::function::missing(core, crate::parse::function::Routine::Function, name)
}

/// Whether values of a type are values of another one as they are.
fn is_alike(a: SqlType, b: SqlType) -> bool {
    let text = |t: SqlType| matches!(t, SqlType::Text | SqlType::Varchar);
    a.base() == b.base() || text(a) && text(b)
}

/// Why a cast without function is refused: pairs of types that are alike have casts already.
fn without_function(core: &Core, source: SqlType, target: SqlType) -> Error {
    if !core.is_superuser() {
        let message = "must be superuser to create a cast WITHOUT FUNCTION";
        return Error::new("42501", message);
    }
    let is = |wanted: &dyn Fn(SqlType) -> bool| wanted(source) || wanted(target);
    if is(&|t| matches!(t, SqlType::Composite(_))) {
        return wrong("composite data types are not binary-compatible");
    }
    if is(&|t| matches!(t, SqlType::Enum(_))) {
        return wrong("enum data types are not binary-compatible");
    }
    if is(&|t| t.element().is_some()) {
        return wrong("array data types are not binary-compatible");
    }
    if is(&SqlType::is_domain) {
        return wrong("domain data types must not be marked binary-compatible");
    }
    if source.oid() == target.oid() {
        return wrong("source data type and target data type are the same");
    }
    match casts::is_built_in(source.oid(), target.oid()) {
        true => Error::new("42710", format!("{} already exists", shown(source, target))),
        false => Error::unsupported("CREATE CAST WITHOUT FUNCTION"),
    }
}

/// A type that DROP CAST names; `None`: there is none, which IF EXISTS passes over.
fn found(core: &mut Core, ty: &DataType, if_exists: bool) -> Result<Option<SqlType>> {
    let names = TypeNames::of(&core.dict());
    match parts::data_type(ty, &names) {
        Ok((ty, _)) => Ok(Some(ty)),
        Err(e) if if_exists && matches!(e.sqlstate(), "42704" | "3F000") => {
            let message = format!("{}, skipping", e.message());
            core.notice("NOTICE", "00000", message);
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn drop(core: &mut Core, types: &Pair, if_exists: bool) -> Result<()> {
    let Some(source) = found(core, &types.source, if_exists)? else {
        return Ok(());
    };
    let Some(target) = found(core, &types.target, if_exists)? else {
        return Ok(());
    };
    core.claim_name(&format!("cast {} {}", source.oid(), target.oid()))?;
    let oid = core
        .dict()
        .cast_between(source.oid(), target.oid())
        .map(|cast| cast.oid);
    let Some(oid) = oid else {
        if casts::is_built_in(source.oid(), target.oid()) {
            let (source, target) = (source.name(), target.name());
            let message = format!(
                "cannot drop cast from {source} to {target} because it is required by the \
                 database system"
            );
            return Err(Error::new("2BP01", message));
        }
        let message = format!("{} does not exist", shown(source, target));
        if !if_exists {
            return Err(Error::new("42704", message));
        }
        core.notice("NOTICE", "00000", message + ", skipping");
        return Ok(());
    };
    check_owner(core, source, target)?;
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    core.undefine(oid.into())
}
