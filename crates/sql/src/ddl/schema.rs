//! CREATE, ALTER and DROP SCHEMA, and the schema that a new relation goes to.
//!
//! **Invariant.** Who makes a relation in a schema holds a shared lock on the schema until its
//! transaction ends, and who drops or renames the schema an exclusive one. `pg_catalog` and
//! `information_schema` are never dropped, and nobody makes anything there.

use std::sync::Arc;

use sqlparser::ast;

use super::Core;
use super::dependence::drop_dependents;
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::bind::numbered;
use crate::dict::acl::{Kind, Privileges};
use crate::dict::depend::Address;
use crate::dict::path::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, TEMPORARY};
use crate::dict::{Object, Schema};
use crate::error::{Error, Result};
use crate::parse::define::Change;
use crate::parse::role::RoleName;
use crate::parse::utility::TableLock;

/// The name of the schema, if it was made.
pub fn create(
    core: &mut Core,
    name: Option<&str>,
    owner: Option<&RoleName>,
    if_not_exists: bool,
) -> Result<Option<String>> {
    core.check_database(Privileges::CREATE)?;
    let own = core.owner()?;
    let owner = match owner {
        Some(role) => {
            let role = core.role_of(role)?;
            if !core.dict().is_member(core.roles.current, role.oid) {
                let message = format!("must be member of role \"{}\"", role.name);
                return Err(Error::new("42501", message));
            }
            core.new_owner(&RoleName::Is(role.name.clone()), own, 0, "schema")?
        }
        None => own,
    };
    let name = match name {
        Some(name) => name.to_string(),
        None => core
            .dict()
            .role_by_oid(owner)
            .map(|r| r.name.clone())
            .unwrap_or_default(),
    };
    check_name(&name)?;
    core.claim_name(&format!("schema {name}"))?;
    if core.dict().schema(&name).is_some() {
        let exists = exists(&name);
        if !if_not_exists {
            return Err(exists);
        }
        core.notice(
            "NOTICE",
            "42P06",
            format!("schema \"{name}\" already exists, skipping"),
        );
        return Ok(None);
    }
    let oid = core.database.engine().allocate_object_id()?.0;
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    core.define(Object::Schema(Arc::new(Schema {
        oid,
        name: name.clone(),
        owner,
        comment: None,
        temporary: false,
        dropped: false,
    })))?;
    core.give_defaults(Kind::Schema, oid, owner, 0)?;
    Ok(Some(name))
}

fn exists(name: &str) -> Error {
    Error::new("42P06", format!("schema \"{name}\" already exists"))
}

fn check_name(name: &str) -> Result<()> {
    match ["pg_", numbered::PREFIX]
        .iter()
        .find(|p| name.starts_with(*p))
    {
        None => Ok(()),
        Some(prefix) => {
            let detail = format!("The prefix \"{prefix}\" is reserved for system schemas.");
            let message = format!("unacceptable schema name \"{name}\"");
            Err(Error::new("42939", message).detail(detail))
        }
    }
}

pub fn alter(core: &mut Core, name: &str, change: &Change) -> Result<Tag> {
    let found = core.locked_schema(name, TableLock::AccessExclusive)?;
    let found = found.ok_or_else(|| names::no_schema(name))?;
    core.check_owner(found.owner, format!("schema {name}"))?;
    let mut next = Schema::clone(&found);
    match change {
        Change::Rename(to) => {
            core.check_database(Privileges::CREATE)?;
            core.claim_name(&format!("schema {to}"))?;
            if core.dict().schema(to).is_some() {
                return Err(exists(to));
            }
            check_name(to)?;
            let dict = core.dict();
            for s in dict.sequences().filter(|s| s.schema == next.oid) {
                super::sequence::rename_in_defaults(core, s, (to, &s.name))?;
            }
            next.name.clone_from(to);
        }
        Change::Owner(to) => {
            next.owner = core.new_owner(to, next.owner, 0, &format!("schema {name}"))?;
        }
        Change::RenameColumn(..)
        | Change::OfView(_)
        | Change::Options { .. }
        | Change::Schema(_)
        | Change::Logged(_)
        | Change::OfIndexColumn { .. }
        | Change::Attributes(_) => {
            return Err(Error::internal("a change that no schema has"));
        }
    }
    core.define(Object::Schema(Arc::new(next)))?;
    Ok(Tag::Plain("ALTER SCHEMA"))
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    let mut gone = Vec::with_capacity(names.len());
    for name in names {
        let parts = names::parts(name)?;
        let [name] = parts.as_slice() else {
            return Err(Error::unsupported("a name with its database"));
        };
        match core.locked_schema(name, TableLock::AccessExclusive)? {
            Some(schema) => {
                core.check_owner(schema.owner, format!("schema {name}"))?;
                gone.push(Address::Schema(schema.oid));
            }
            None if if_exists => core.notice(
                "NOTICE",
                "00000",
                format!("schema \"{name}\" does not exist, skipping"),
            ),
            None => return Err(names::no_schema(name)),
        }
    }
    drop_dependents(core, &gone, cascade)?;
    for schema in gone {
        if let Address::Schema(oid) = schema {
            drop_one(core, oid)?;
        }
    }
    Ok(Tag::Plain("DROP SCHEMA"))
}

/// Drops a schema, which is locked, and has nothing in it any more.
pub fn drop_one(core: &mut Core, oid: u32) -> Result<()> {
    if oid != PUBLIC {
        return core.undefine(oid.into());
    }
    // That there is no `public` follows from no entry that is missing.
    let dict = core.dict();
    let missing = || Error::internal("a schema that is gone is dropped");
    let mut gone = Schema::clone(&*dict.changeable_schema(PUBLIC).ok_or_else(missing)?);
    (gone.dropped, gone.comment) = (true, None);
    if let Some(acl) = dict.acl(PUBLIC) {
        core.undefine(acl.oid.into())?;
    }
    core.define(Object::Schema(Arc::new(gone)))
}

impl Core {
    /// A schema that a user made, locked, as it is once the lock is held. `None`: there is none.
    pub(super) fn locked_schema(
        &mut self,
        name: &str,
        lock: TableLock,
    ) -> Result<Option<Arc<Schema>>> {
        loop {
            let Some(oid) = self.dict().schema(name) else {
                return Ok(None);
            };
            if self.dict().changeable_schema(oid).is_none() {
                let message = format!("permission denied for schema {name}");
                return Err(Error::new("42501", message));
            }
            let mark = self.engine.table_locks();
            self.lock_table(oid, lock, false)?;
            match self.dict().schema(name) {
                Some(now) if now == oid => return Ok(self.dict().changeable_schema(oid)),
                _ => self.engine.unlock_table(block::ObjectId(oid), mark),
            }
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
    }

    /// The schema where a new relation of this name goes. It stays until the transaction ends.
    pub(crate) fn creation_schema(&mut self, name: &Qualified) -> Result<u32> {
        let temporary = match &name.schema {
            Some(schema) => schema == TEMPORARY,
            None => self.creates_temporary(),
        };
        if temporary {
            self.own_temporary_schema()?;
        }
        loop {
            let wanted = self.wanted_schema(name)?;
            if wanted == PG_CATALOG && self.may_change_system() {
                return Ok(wanted);
            }
            if [PG_CATALOG, INFORMATION_SCHEMA].contains(&wanted) {
                let schema = self.dict().schema_name(wanted).to_string();
                let message = format!("permission denied to create \"{schema}.{}\"", name.name);
                return Err(Error::new("42501", message)
                    .detail("System catalog modifications are currently disallowed."));
            }
            self.check_schema(wanted, Privileges::CREATE)?;
            let mark = self.engine.table_locks();
            self.lock_table(wanted, TableLock::AccessShare, false)?;
            match self.wanted_schema(name) {
                Ok(now) if now == wanted => return Ok(wanted),
                // It was dropped or renamed, or another one comes before it now.
                _ => self.engine.unlock_table(block::ObjectId(wanted), mark),
            }
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
    }

    /// Whether a relation of this name is there already, where a new one would go.
    pub(crate) fn is_name_taken(&self, name: &Qualified, temporary: bool) -> Result<bool> {
        let of_session = match &name.schema {
            Some(schema) => schema == TEMPORARY,
            None => temporary || self.creates_temporary(),
        };
        let schema = match of_session {
            true => self.temporary_schema(),
            false => Some(self.wanted_schema(name)?),
        };
        Ok(schema.is_some_and(|schema| self.dict().is_taken(schema, &name.name)))
    }

    fn wanted_schema(&self, name: &Qualified) -> Result<u32> {
        let dict = self.dict();
        match &name.schema {
            Some(schema) => dict.schema(schema).ok_or_else(|| names::no_schema(schema)),
            None => dict
                .path()
                .iter()
                .find(|schema| !self.passes_over(**schema))
                .copied()
                .ok_or_else(|| Error::new("3F000", "no schema has been selected to create in")),
        }
    }
}
