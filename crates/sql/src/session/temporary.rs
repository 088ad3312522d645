//! Temporary relations: a schema of the session's own, what its tables do at a commit, and how it
//! goes.
//!
//! The relations are ordinary ones. Their definitions are in the dictionary, so that savepoints,
//! plans and catalogs know them; what makes them temporary is their schema.
//!
//! **Invariants.**
//! - A session holds its temporary schema ([`engine::Session::hold_object`]) from before the schema
//!   is seen until the session has dropped it. Who gets hold of one that is there knows that its
//!   session is gone, of whichever instance, and drops it: [`sweep`].
//! - A look-up by name finds a temporary schema of the session alone: [`crate::dict::path`].

use std::sync::Arc;

use block::{ObjectId, RowId};

use super::{Core, SqlSession};
use crate::database::Database;
use crate::ddl::dependence::drop_dependents;
use crate::ddl::table;
use crate::dict::depend::Address;
use crate::dict::path::TEMPORARY;
use crate::dict::{Object, OnCommit, Schema, Table};
use crate::error::Result;

/// What a session knows of its temporary relations.
#[derive(Default)]
pub struct Temporary {
    /// The schema that it has made, also if that was rolled back.
    schema: Option<(u32, String)>,
    /// `search_path` does not name the schema: it is searched first, and nothing is made there
    /// unless it is meant.
    implicit: bool,
    /// Tables with something to be done at each commit. One that is gone stays until the next.
    at_commit: Vec<u32>,
}

impl Core {
    /// Puts the temporary schema where it belongs among the names that are searched.
    pub(super) fn place_temporary(&mut self) {
        let named = self.searched.iter().any(|name| name == TEMPORARY);
        self.temporary.implicit = !named;
        let Some((_, name)) = &self.temporary.schema else {
            return;
        };
        match named {
            false => self.searched.insert(0, name.clone()),
            true => {
                let meant = self.searched.iter_mut().filter(|n| *n == TEMPORARY);
                meant.for_each(|n| n.clone_from(name));
            }
        }
    }

    /// The schema of the session's temporary relations, if it is there.
    pub fn temporary_schema(&self) -> Option<u32> {
        let (oid, _) = self.temporary.schema.as_ref()?;
        self.dict().schema_by_oid(*oid).map(|s| s.oid)
    }

    /// Whether a new relation without a schema in its name does not go there.
    pub(crate) fn passes_over(&self, schema: u32) -> bool {
        let own = self.temporary.schema.as_ref();
        self.temporary.implicit && own.is_some_and(|(oid, _)| *oid == schema)
    }

    /// Whether `search_path` begins with `pg_temp`.
    pub(crate) fn creates_temporary(&self) -> bool {
        self.searched.first().is_some_and(|name| name == TEMPORARY)
    }

    /// The same schema, made if it is not there.
    pub(crate) fn own_temporary_schema(&mut self) -> Result<u32> {
        if let Some(oid) = self.temporary_schema() {
            return Ok(oid);
        }
        let oid = self.database.engine().allocate_object_id()?.0;
        self.engine.hold_object(ObjectId(oid))?;
        let name = format!("{TEMPORARY}_{oid}");
        let owner = self.owner()?;
        self.define(Object::Schema(Arc::new(Schema {
            oid,
            name: name.clone(),
            owner,
            comment: None,
            temporary: true,
            dropped: false,
        })))?;
        self.temporary.schema = Some((oid, name));
        self.follow_path();
        Ok(oid)
    }

    /// A table was made that has something done to it at each commit.
    pub(crate) fn note_at_commit(&mut self, table: &Table) {
        if table.on_commit != OnCommit::Preserve {
            self.temporary.at_commit.push(table.oid);
        }
    }

    /// What ON COMMIT of the session's tables asks for.
    pub(super) fn settle_temporary(&mut self) -> Result<()> {
        if self.temporary.at_commit.is_empty() {
            return Ok(());
        }
        let dict = self.dict();
        let tables = std::mem::take(&mut self.temporary.at_commit);
        for oid in tables {
            let Some(table) = dict.table_by_oid(oid) else {
                continue;
            };
            match table.on_commit {
                OnCommit::Preserve => {}
                OnCommit::DeleteRows => {
                    self.temporary.at_commit.push(oid);
                    delete_rows(self, table)?;
                }
                OnCommit::Drop => {
                    drop_dependents(self, &[Address::Table(oid)], true)?;
                    if let Some(table) = self.dict().table_by_oid(oid).cloned() {
                        table::drop_one(self, &table)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops all temporary relations of the session; the schema stays.
    pub(super) fn discard_temporary(&mut self) -> Result<()> {
        match self.temporary_schema() {
            Some(schema) => drop_quietly(self, schema),
            None => Ok(()),
        }
    }
}

/// Nobody but the session has seen the rows, and the next transaction has none.
fn delete_rows(core: &mut Core, table: &Table) -> Result<()> {
    let def = table.engine();
    let snapshot = core.engine.newest_snapshot()?;
    let mut scan = core.engine.scan(def);
    let mut rows: Vec<RowId> = Vec::new();
    loop {
        rows.clear();
        let more = scan.next_block(&mut core.engine, &snapshot, &mut |rid, _| rows.push(rid))?;
        if !more {
            return Ok(());
        }
        for rid in &rows {
            core.engine.delete(def, *rid, None)?;
        }
    }
}

/// Drops what is in a temporary schema, without a word of what depends on what.
fn drop_quietly(core: &mut Core, schema: u32) -> Result<()> {
    let told = core.messages.notices.len();
    let done = drop_dependents(core, &[Address::Schema(schema)], true);
    core.messages.notices.truncate(told);
    done
}

fn drop_schema(core: &mut Core, schema: u32) -> Result<()> {
    drop_quietly(core, schema)?;
    core.undefine(schema.into())
}

impl SqlSession {
    /// The session ends: its temporary relations go. What cannot be dropped is left to [`sweep`].
    pub(super) fn end_temporary(&mut self) {
        let Some(schema) = self.core.temporary_schema() else {
            return;
        };
        // What ended the session is not to end this.
        wait::session::clear_cancel();
        if let Err(e) = self.drop_temporary(schema) {
            tracing::info!("temporary relations of a session are left for later: {e}");
            // Its transaction goes with the session in any case.
            let _ = self.end(false);
        }
    }

    fn drop_temporary(&mut self, schema: u32) -> Result<()> {
        self.ensure_transaction()?;
        self.core.refresh()?;
        drop_schema(&mut self.core, schema)?;
        self.end(true)
    }
}

/// Drops the temporary schemas whose sessions are gone: those of instances that have died, above
/// all.
pub(crate) fn sweep(database: &Arc<Database>) -> Result<()> {
    database.refresh()?;
    let dict = database.dict();
    let left: Vec<u32> = dict
        .schemas()
        .filter(|s| s.temporary)
        .map(|s| s.oid)
        .collect();
    for schema in left {
        let mut session = SqlSession::of_instance(database)?;
        session.ensure_transaction()?;
        if !session.core.engine.hold_object(ObjectId(schema))? {
            continue;
        }
        session.core.refresh()?;
        if session.core.dict().schema_by_oid(schema).is_some() {
            drop_schema(&mut session.core, schema)?;
        }
        session.end(true)?;
    }
    Ok(())
}

impl Core {
    /// Whether a name may be that of a temporary relation: without a schema, or with its own.
    pub(crate) fn may_be_temporary(&self, schema: Option<&str>) -> bool {
        let own = self.temporary.schema.as_ref();
        let is_own = |name: &str| own.is_some_and(|(_, own)| own == name);
        schema.is_none_or(|name| name == TEMPORARY || is_own(name))
    }
}
