//! CREATE, ALTER and DROP EXTENSION. What an extension has is in [`crate::extensions`]; `plpgsql`
//! is there, as in every database of PostgreSQL, and stays.
//!
//! **Invariant.** A new extension's name is claimed before it is looked up, and an extension is
//! changed or dropped under the exclusive lock of its object id.

use std::sync::Arc;

use super::Core;
use super::dependence::drop_dependents;
use crate::api::Tag;
use crate::bind::names::{Qualified, quote};
use crate::dict::acl::Privileges;
use crate::dict::depend::Address;
use crate::dict::function::Language;
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{Extension, Function, Object};
use crate::error::{Error, Result};
use crate::extensions::{self, Available};
use crate::parse::define::Definition;
use crate::parse::extension::{CreateExtension, ExtensionChange, ExtensionStatement};
use crate::parse::utility::{TableLock, Utility};
use crate::parse::{self, Command};
use crate::types::own::Kind;

/// The extension that every database has.
const PLPGSQL: &str = "plpgsql";

/// What stands in scripts for the schema of their extension.
const OWN_SCHEMA: &str = "@extschema@";

/// The extension whose script is run, for what its statements make.
pub struct Making {
    pub oid: u32,
    /// The role that owns what is made.
    pub owner: u32,
}

pub fn run(core: &mut Core, statement: &ExtensionStatement) -> Result<Tag> {
    match statement {
        ExtensionStatement::Create(new) => create(core, new)?,
        ExtensionStatement::Alter { name, change } => alter(core, name, change)?,
        ExtensionStatement::Drop {
            names,
            if_exists,
            cascade,
        } => drop(core, names, *if_exists, *cascade)?,
    }
    Ok(Tag::Plain(statement.command()))
}

fn create(core: &mut Core, new: &CreateExtension) -> Result<()> {
    let name = new.name.as_str();
    core.claim_name(&format!("extension {name}"))?;
    if name == PLPGSQL || core.dict().extension(name).is_some() {
        let message = format!("extension \"{name}\" already exists");
        if !new.if_not_exists {
            return Err(Error::new("42710", message));
        }
        core.notice("NOTICE", "42710", message + ", skipping");
        return Ok(());
    }
    let Some(available) = extensions::find(name) else {
        let message = format!("extension \"{name}\" is not available");
        let known: Vec<&str> = extensions::ALL.iter().map(|e| e.name).collect();
        let detail = format!("Braid has plpgsql, {}.", known.join(", "));
        return Err(Error::new("0A000", message).detail(detail));
    };
    check_may_create(core, available)?;
    let version = new.version.as_deref().unwrap_or(available.version);
    if version != available.version {
        let message = format!(
            "extension \"{name}\" has no installation script nor update path for version \
             \"{version}\""
        );
        return Err(Error::new("22023", message));
    }
    let schema = core.creation_schema(&Qualified {
        schema: new.schema.clone(),
        name: name.to_string(),
    })?;
    let oid = core.database.engine().allocate_object_id()?.0;
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    let owner = core.owner()?;
    core.define(Object::Extension(Arc::new(Extension {
        oid,
        name: name.to_string(),
        owner,
        schema,
        version: version.to_string(),
        comment: Some(available.comment.to_string()),
    })))?;
    let superuser = core.current_role()?.superuser;
    let making = Making {
        oid,
        owner: if superuser { owner } else { FIRST_SUPERUSER },
    };
    let schema = core.dict().schema_name(schema).to_string();
    for statement in available.statements() {
        make(core, statement, &schema, &making)?;
    }
    Ok(())
}

/// Refuses an extension to a role that may not make it: one that may make schemas may make those
/// that are trusted.
fn check_may_create(core: &Core, available: &Available) -> Result<()> {
    let message = format!(
        "permission denied to create extension \"{}\"",
        available.name
    );
    let hint = match available.trusted {
        true if core.check_database(Privileges::CREATE).is_ok() => return Ok(()),
        true => "Must have CREATE privilege on current database to create this extension.",
        false if core.current_role()?.superuser => return Ok(()),
        false => "Must be superuser to create this extension.",
    };
    Err(Error::new("42501", message).hint(hint))
}

/// Runs a statement of a script.
fn make(core: &mut Core, statement: &str, schema: &str, making: &Making) -> Result<()> {
    let unread = || Error::internal(format!("a script has {statement}"));
    if let Some(name) = statement.strip_prefix("create type ") {
        let kind = Kind::named(name).ok_or_else(unread)?;
        return super::types::make_own(core, schema, name, kind, making);
    }
    let text = statement.replace(OWN_SCHEMA, &quote(schema));
    let Command::Utility(utility) = parse::statement(&text)? else {
        return Err(unread());
    };
    match *utility {
        Utility::Define(definition) => match *definition {
            Definition::CreateFunction(mut new) => {
                new.name.schema = Some(schema.to_string());
                super::function::create_of(core, &new, Some(making))?;
                Ok(())
            }
            _ => Err(unread()),
        },
        _ => Err(unread()),
    }
}

/// An extension under its exclusive lock; `None`: there is none of the name.
fn locked(core: &mut Core, name: &str) -> Result<Option<Arc<Extension>>> {
    loop {
        let Some(found) = core.dict().extension(name).cloned() else {
            return Ok(None);
        };
        let mark = core.engine.table_locks();
        core.lock_table(found.oid, TableLock::AccessExclusive, false)?;
        match core.dict().extension(name) {
            Some(now) if now.oid == found.oid => return Ok(Some(now.clone())),
            _ => core.engine.unlock_table(block::ObjectId(found.oid), mark),
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

fn missing(name: &str) -> Error {
    let message = format!("extension \"{name}\" does not exist");
    Error::new("42704", message)
}

/// An extension that the role owns.
fn own(core: &mut Core, name: &str, command: &str) -> Result<Arc<Extension>> {
    if name == PLPGSQL {
        return Err(Error::unsupported(format!("{command} plpgsql")));
    }
    let found = locked(core, name)?.ok_or_else(|| missing(name))?;
    core.check_owner(found.owner, format!("extension {name}"))?;
    Ok(found)
}

fn alter(core: &mut Core, name: &str, change: &ExtensionChange) -> Result<()> {
    match change {
        ExtensionChange::Update(to) => {
            let version = match name == PLPGSQL {
                true => "1.0".to_string(),
                false => own(core, name, "ALTER EXTENSION")?.version.clone(),
            };
            // There has been one version of each.
            if let Some(to) = to.as_ref().filter(|to| **to != version) {
                let message = format!(
                    "extension \"{name}\" has no update path from version \"{version}\" to \
                     version \"{to}\""
                );
                return Err(Error::new("22023", message));
            }
            let message =
                format!("version \"{version}\" of extension \"{name}\" is already installed");
            core.notice("NOTICE", "00000", message);
            Ok(())
        }
        ExtensionChange::Schema(to) => {
            let found = own(core, name, "ALTER EXTENSION")?;
            let schema = core.creation_schema(&Qualified {
                schema: Some(to.clone()),
                name: name.to_string(),
            })?;
            match schema == found.schema {
                true => Ok(()),
                false => move_to(core, &found, schema),
            }
        }
    }
}

/// Moves an extension, and what it has made.
fn move_to(core: &mut Core, extension: &Extension, schema: u32) -> Result<()> {
    let movable = extensions::find(&extension.name).is_some_and(|e| e.relocatable);
    if !movable {
        let message = format!(
            "extension \"{}\" does not support SET SCHEMA",
            extension.name
        );
        return Err(Error::new("0A000", message));
    }
    let dict = core.dict();
    let (functions, types) = dict.members_of_extension(extension.oid);
    let qualifier = |schema: u32| format!("{}.", quote(dict.schema_name(schema)));
    let (from, to) = (qualifier(extension.schema), qualifier(schema));
    for f in functions {
        core.lock_table(f.oid, TableLock::AccessExclusive, false)?;
        let mut next = Function::clone(&f);
        next.schema = schema;
        if f.language == Language::Sql {
            next.body = f.body.replace(&from, &to);
        }
        super::alter_function::check_move(core, &f, &next)?;
        core.define(Object::Function(Arc::new(next)))?;
    }
    for t in types {
        super::types::move_to(core, &t, schema)?;
    }
    let mut next = extension.clone();
    next.schema = schema;
    core.define(Object::Extension(Arc::new(next)))
}

fn drop(core: &mut Core, names: &[String], if_exists: bool, cascade: bool) -> Result<()> {
    let mut gone = Vec::with_capacity(names.len());
    for name in names {
        if name != PLPGSQL && if_exists && locked(core, name)?.is_none() {
            let message = format!("extension \"{name}\" does not exist, skipping");
            core.notice("NOTICE", "00000", message);
            continue;
        }
        gone.push(Address::Extension(own(core, name, "DROP EXTENSION")?.oid));
    }
    drop_dependents(core, &gone, cascade)?;
    for what in gone {
        super::dependence::drop_one(core, what)?;
    }
    Ok(())
}

/// COMMENT ON EXTENSION.
pub fn comment(core: &mut Core, name: &str, text: Option<&str>) -> Result<()> {
    let found = own(core, name, "COMMENT ON EXTENSION")?;
    let mut next = Extension::clone(&found);
    next.comment = text.map(str::to_string);
    core.define(Object::Extension(Arc::new(next)))
}

/// Refuses to drop a part of an extension.
pub(super) fn refuse_member(core: &Core, extension: Option<u32>, what: Address) -> Result<()> {
    let dict = core.dict();
    let Some(extension) = extension.and_then(|oid| dict.extension_by_oid(oid)) else {
        return Ok(());
    };
    let name = &extension.name;
    let message = format!(
        "cannot drop {} because extension {name} requires it",
        dict.describe(what)
    );
    let hint = format!("You can drop extension {name} instead.");
    Err(Error::new("2BP01", message).hint(hint))
}
