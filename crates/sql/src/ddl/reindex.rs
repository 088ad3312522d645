//! REINDEX: an index is made again from the rows.
//!
//! Without CONCURRENTLY the table is locked against everybody. With it a second index is made
//! beside the writers ([`super::online`]), the two exchange their segments, and the second one,
//! which has the old entries then, is dropped. The index keeps its object id.

use std::sync::Arc;

use block::ObjectId;

use super::index::duplicate_in_build;
use super::{Core, Error, Result, SqlSession, TableLock, missing_schema, no_relation};
use crate::api::Tag;
use crate::bind::names;
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{DefaultName, Object, Relation, Stage, Table};
use crate::parse::define::{Reindex, Reindexed};

const TAG: Tag = Tag::Plain("REINDEX");

impl SqlSession {
    /// REINDEX as the client's own statement.
    pub(crate) fn reindex(&mut self, reindex: &Reindex) -> Result<Tag> {
        self.core.refuse_if_read_only("REINDEX")?;
        let of_many = match reindex.what {
            Reindexed::Index | Reindexed::Table => None,
            Reindexed::Schema => Some("REINDEX SCHEMA"),
            Reindexed::Database => Some("REINDEX DATABASE"),
        };
        let Some(command) = of_many else {
            if !reindex.concurrently {
                return self.core.reindex(reindex);
            }
            self.refuse_in_block("REINDEX CONCURRENTLY")?;
            let (table, only) = self
                .core
                .named_by(reindex, TableLock::ShareUpdateExclusive)?;
            self.reindex_concurrently(&table, only)?;
            return Ok(TAG);
        };
        self.refuse_in_block(command)?;
        for table in self.core.tables_to_reindex(reindex)? {
            self.end(true)?;
            self.ensure_transaction()?;
            let lock = match reindex.concurrently {
                true => TableLock::ShareUpdateExclusive,
                false => TableLock::AccessExclusive,
            };
            self.core.lock_table(table, lock, false)?;
            // Another session may have dropped it.
            let Some(table) = self.core.dict().table_by_oid(table).cloned() else {
                continue;
            };
            match reindex.concurrently {
                true => self.reindex_concurrently(&table, None)?,
                false => self.core.rebuild(&table, None)?,
            }
        }
        Ok(TAG)
    }

    /// Makes the indexes of a table, which is locked, again, or only the one at a place.
    fn reindex_concurrently(&mut self, table: &Table, only: Option<usize>) -> Result<()> {
        if self.core.dict().is_temporary(table.schema) {
            // Nobody else uses it.
            self.core
                .lock_table(table.oid, TableLock::AccessExclusive, false)?;
            return self.core.rebuild(table, only);
        }
        let mut done = false;
        for (at, index) in table.indexes.iter().enumerate() {
            if only.is_some_and(|only| only != at) {
                continue;
            }
            if only.is_none() && !index.is_valid() {
                let full = self.core.dict().full_name(table.schema, &index.name);
                let message =
                    format!("cannot reindex invalid index \"{full}\" concurrently, skipping");
                self.core.notice("WARNING", "0A000", message);
                continue;
            }
            if index.deferrable {
                let what = "REINDEX CONCURRENTLY of a deferrable constraint's index";
                return Err(Error::unsupported(what));
            }
            self.ensure_transaction()?;
            let second = self.core.define_second((table.oid, index.oid))?;
            self.end(true)?;
            let (segment, from) = self.fill_index(second)?;
            self.core
                .exchange((table.oid, index.oid), second, |index| {
                    if index.segment == segment {
                        index.created = from.0;
                    }
                })?;
            self.end(true)?;
            self.finish_drop(second)?;
            self.end(true)?;
            done = true;
        }
        if !done && only.is_none() {
            let name = &table.name;
            let message =
                format!("table \"{name}\" has no indexes that can be reindexed concurrently");
            self.core.notice("NOTICE", "00000", message);
        }
        self.ensure_transaction()
    }
}

impl Core {
    /// REINDEX of an index or a table under a lock against everybody, in the transaction there is.
    pub(crate) fn reindex(&mut self, reindex: &Reindex) -> Result<Tag> {
        let (table, only) = self.named_by(reindex, TableLock::AccessExclusive)?;
        if table.indexes.is_empty() {
            let message = format!("table \"{}\" has no indexes to reindex", table.name);
            self.notice("NOTICE", "00000", message);
            return Ok(TAG);
        }
        self.rebuild(&table, only)?;
        Ok(TAG)
    }

    /// The table that REINDEX names, locked, or that of the index, and then the index's place.
    fn named_by(
        &mut self,
        reindex: &Reindex,
        lock: TableLock,
    ) -> Result<(Arc<Table>, Option<usize>)> {
        let name = &reindex.name;
        let rights = self.rights();
        let is_index = reindex.what == Reindexed::Index;
        let found = self.maintained_relation(name, lock, false, |found| match found {
            Relation::Index(table, at) if is_index => {
                rights.check_owner_of(found)?;
                Ok(Some((table.clone(), Some(*at))))
            }
            Relation::Table(table) if !is_index => {
                rights.check_owner_of(found)?;
                Ok(Some((table.clone(), None)))
            }
            _ if is_index => Err(Error::new(
                "42809",
                format!("\"{}\" is not an index", name.name),
            )),
            _ => {
                let message = format!("\"{}\" is not a table or materialized view", name.name);
                Err(Error::new("42809", message))
            }
        })?;
        found.ok_or_else(|| no_relation(self, name))
    }

    /// The numbers of the tables of a schema, or of all.
    fn tables_to_reindex(&self, reindex: &Reindex) -> Result<Vec<u32>> {
        let dict = self.dict();
        let name = &reindex.name;
        let schema = match reindex.what {
            Reindexed::Schema => {
                if let Some(missing) = missing_schema(self, name) {
                    return Err(names::no_schema(missing));
                }
                let schema = name.schema.as_deref().and_then(|n| dict.schema(n));
                if let Some(schema) = schema {
                    self.check_owner(dict.schema_owner(schema), format!("schema {}", name.name))?;
                }
                schema
            }
            _ if name.name != self.database_name => {
                let message = "can only reindex the currently open database";
                return Err(Error::new("0A000", message));
            }
            _ => {
                self.check_owner(FIRST_SUPERUSER, format!("database {}", name.name))?;
                None
            }
        };
        let is_meant = |t: &&Arc<Table>| {
            schema.map_or(!dict.is_temporary(t.schema), |schema| schema == t.schema)
                && !t.indexes.is_empty()
        };
        Ok(dict.tables().filter(is_meant).map(|t| t.oid).collect())
    }

    /// Makes the indexes of a table again, or only the one at a place, in new segments. The table
    /// is locked against everybody.
    fn rebuild(&mut self, table: &Table, only: Option<usize>) -> Result<()> {
        let engine = self.database.engine().clone();
        let def = Arc::clone(table.engine());
        let memory = self.settings.kilobytes("maintenance_work_mem");
        let mut next = Table::clone(table);
        for (at, index) in next.indexes.iter_mut().enumerate() {
            if only.is_some_and(|only| only != at) {
                continue;
            }
            let old = (index.segment, index.header);
            let object = engine.allocate_object_id()?;
            index.segment = object.0;
            index.header = self.engine.create_index_segment(object)?.0;
            let created = self
                .engine
                .build_index(&def, &index.engine(), memory)
                .map_err(|e| duplicate_in_build(self, e, table, index))?;
            index.created = match self.is_own_segment(table) {
                true => 0,
                false => created.0,
            };
            index.stage = Stage::Valid;
            self.engine
                .drop_segment_at_commit(ObjectId(old.0), block::Dba(old.1))?;
        }
        self.define(Object::Table(Arc::new(next.finish()?)))
    }

    /// Defines an invalid index that is as another one, under a name of its own.
    fn define_second(&mut self, which: (u32, u32)) -> Result<(u32, u32)> {
        let (table, at) = self.locked_index(which)?;
        let mut second = table.indexes[at].clone();
        let first = second.name.clone();
        let base = DefaultName {
            first: &first,
            second: None,
            suffix: "ccnew",
        };
        let own = |n: &str| table.indexes.iter().any(|i| i.name == n);
        second.name = self.claim_free_name(table.schema, base, &own)?;
        let object = self.database.engine().clone().allocate_object_id()?;
        (second.oid, second.segment) = (object.0, object.0);
        second.header = self.engine.create_index_segment(object)?.0;
        (second.constraint, second.primary, second.created) = (0, false, 0);
        second.stage = Stage::Invalid;
        let made = (table.oid, second.oid);
        let mut next = Table::clone(&table);
        next.indexes.push(second);
        self.define(Object::Table(Arc::new(next.finish()?)))?;
        Ok(made)
    }

    /// Gives an index the entries of the second one, and that one the old entries, as what is
    /// written and not read. `usable` notes in the index from when on it may be used.
    fn exchange(
        &mut self,
        which: (u32, u32),
        second: (u32, u32),
        usable: impl FnOnce(&mut crate::dict::Index),
    ) -> Result<()> {
        let (_, from) = self.locked_index(second)?;
        let (table, at) = self.locked_index(which)?;
        let mut next = Table::clone(&table);
        let (old, new) = (next.indexes[at].clone(), next.indexes[from].clone());
        let index = &mut next.indexes[at];
        (index.segment, index.header, index.created) = (new.segment, new.header, new.created);
        index.stage = Stage::Valid;
        usable(index);
        let index = &mut next.indexes[from];
        (index.segment, index.header, index.created) = (old.segment, old.header, old.created);
        index.stage = Stage::Invalid;
        self.define(Object::Table(Arc::new(next.finish()?)))
    }
}
