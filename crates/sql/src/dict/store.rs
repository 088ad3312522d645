//! The dictionary's table: loading it at the start, writing definitions as rows of the session's transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{Engine, TableDef};

use super::acl::{Acl, DefaultPrivileges, with_owner};
use super::log::{Logged, is_slot, row_of};
use super::object::{Stored, kind};
use super::{Change, Dict, Entry, Object};
use crate::error::{Error, Result};
use crate::exec::row::decode;
use crate::session::Core;

/// Columns of the dictionary's table: id int4, kind int2, name text, definition bytea.
pub(super) const COLUMNS: usize = 4;

/// Reads all committed definitions.
pub fn load(engine: &Arc<Engine>) -> Result<Dict> {
    let table = engine.dictionary();
    let mut session = engine.session()?;
    session.begin(engine::Isolation::ReadCommitted)?;
    let snapshot = session.snapshot()?;
    let mut scan = session.scan(&table);
    let mut rows = Vec::new();
    while scan.next_block(&mut session, &snapshot, &mut |rid, bytes| {
        rows.push((rid, bytes.to_vec()))
    })? {}
    session.end_statement();
    session.commit()?;
    let mut definitions = Vec::with_capacity(rows.len());
    let mut read = 0;
    for (row, bytes) in &rows {
        let mut values = Vec::with_capacity(COLUMNS);
        decode(bytes, &table, COLUMNS, &mut values)?;
        let Some(DatumRef::Bytea(definition)) = values.get(3) else {
            return Err(no_definition());
        };
        match values.get(1) {
            Some(DatumRef::Int2(kind::CHANGES)) => {
                read = read.max(Logged::read(definition)?.number)
            }
            _ => definitions.push((*row, definition.to_vec())),
        }
    }
    let changes = decode_all(definitions, &Dict::default())?;
    Ok(Dict::default().successor(&changes, read))
}

pub(super) fn no_definition() -> Error {
    Error::new("XX001", "a row of the dictionary has no definition")
}

/// The definitions of rows, as changes of a picture. What the types of columns are is known from
/// that picture, and from the types among the definitions.
fn decode_all(definitions: Vec<(RowId, Vec<u8>)>, before: &Dict) -> Result<Vec<Change>> {
    let stored = definitions
        .into_iter()
        .map(|(row, definition)| Ok((row, Stored::read(&definition)?)));
    let stored = stored.collect::<Result<Vec<_>>>()?;
    let (firsts, others): (Vec<_>, Vec<_>) = stored.into_iter().partition(|(_, s)| s.is_of_types());
    let mut changes = Vec::with_capacity(firsts.len() + others.len());
    let mut types = before.clone();
    for (definitions, last) in [(firsts, false), (others, true)] {
        for (row, stored) in definitions {
            let object = stored.known(&|oid| types.type_of(oid))?;
            let entry = Some(Entry { row, object });
            let key = entry.as_ref().map_or(0, |e| e.object.key());
            changes.push(Change { key, entry });
        }
        if !last && !changes.is_empty() {
            types = before.with(&changes);
        }
    }
    Ok(changes)
}

/// The definitions of keys as they are now, as changes of a picture. What is as the picture has it
/// is no change, and stays the same object.
pub(super) fn read_keys(
    session: &mut engine::Session,
    snapshot: &engine::Snapshot,
    keys: BTreeSet<i64>,
    before: &Dict,
) -> Result<Vec<Change>> {
    let mut definitions = Vec::with_capacity(keys.len());
    let mut changes = Vec::new();
    for key in keys {
        let known = before.entry(key);
        match row_of(session, snapshot, row_key(key)?)? {
            Some((row, definition)) => {
                let same = match known {
                    Some(known) => known.row == row && known.object.encode()? == definition,
                    None => false,
                };
                if !same {
                    definitions.push((row, definition));
                }
            }
            None if known.is_some() => changes.push(Change { key, entry: None }),
            None => {}
        }
    }
    changes.extend(decode_all(definitions, before)?);
    Ok(changes)
}

fn row_key(key: i64) -> Result<i32> {
    let narrow = i32::try_from(key).ok().filter(|key| !is_slot(*key));
    narrow.ok_or_else(|| Error::internal("object id beyond the dictionary's key"))
}

/// The row of a definition.
fn encode(object: &Object) -> Result<[Datum; COLUMNS]> {
    let key = row_key(object.key())?;
    let name = match object {
        Object::Role(role) => role.name.clone(),
        Object::Function(function) => function.name.clone(),
        Object::Type(t) => t.name.clone(),
        Object::Extension(e) => e.name.clone(),
        other => other
            .names()
            .first()
            .map_or(String::new(), |n| n.to_string()),
    };
    Ok([
        Datum::Int4(key),
        Datum::Int2(object.kind()),
        Datum::Text(name),
        Datum::Bytea(object.encode()?),
    ])
}

fn table(core: &Core) -> Arc<TableDef> {
    core.database.engine().dictionary()
}

impl Core {
    /// Adds or replaces a definition, in this transaction.
    pub fn define(&mut self, object: Object) -> Result<()> {
        let object = crate::ddl::numbers::given(self, object)?;
        self.follow_owner(&object)?;
        let key = object.key();
        let old = self.dict().entry(key).map(|e| e.row);
        let rid = self.write_row(old, &encode(&object)?)?;
        self.changed(Change {
            key,
            entry: Some(Entry { row: rid, object }),
        });
        Ok(())
    }

    /// The privileges on an object that gets another owner are that one's from now on.
    fn follow_owner(&mut self, object: &Object) -> Result<()> {
        let (dict, key) = (self.dict(), object.key());
        let before = dict.entry(key).and_then(|e| e.object.owner());
        let acl = u32::try_from(key).ok().and_then(|oid| dict.acl(oid));
        let (Some(from), Some(to), Some(acl)) = (before, object.owner(), acl) else {
            return Ok(());
        };
        if from == to {
            return Ok(());
        }
        let mut next = Acl::clone(acl);
        next.items = next.items.map(|items| with_owner(&items, from, to));
        for (_, items) in &mut next.columns {
            *items = with_owner(items, from, to);
        }
        self.define(Object::Acl(Arc::new(next)))
    }

    /// Writes a row of the dictionary's table anew, or one more.
    pub(super) fn write_row(
        &mut self,
        old: Option<RowId>,
        values: &[Datum; COLUMNS],
    ) -> Result<RowId> {
        let def = table(self);
        let row = values.each_ref().map(Datum::borrow);
        match old {
            None => Ok(self.engine.insert(&def, &row)?),
            Some(rid) => {
                self.written(|engine, snapshot| engine.update(&def, rid, &row, Some(snapshot)))?;
                Ok(rid)
            }
        }
    }

    /// Removes a definition, in this transaction.
    pub fn undefine(&mut self, key: i64) -> Result<()> {
        let def = table(self);
        let Some(rid) = self.dict().entry(key).map(|e| e.row) else {
            return Ok(());
        };
        self.written(|engine, snapshot| engine.delete(&def, rid, Some(snapshot)))?;
        self.changed(Change { key, entry: None });
        // What a schema's new objects are to have goes with it, and with any object the privileges
        // on it.
        let of_schema = |d: &&Arc<DefaultPrivileges>| i64::from(d.schema) == key;
        let dict = self.dict();
        let defaults = dict.default_privileges().filter(of_schema).map(|d| d.oid);
        for oid in defaults.collect::<Vec<_>>() {
            self.undefine(oid.into())?;
        }
        let object = u32::try_from(key).ok();
        let acl = object.and_then(|oid| self.dict().acl(oid).map(|acl| acl.oid));
        match acl {
            Some(acl) => self.undefine(acl.into()),
            None => Ok(()),
        }
    }

    /// A write to a row that the table's lock protects from everybody else. The row is the newest
    /// one, also where the transaction has an older snapshot.
    fn written(
        &mut self,
        write: impl FnOnce(
            &mut engine::Session,
            &engine::Snapshot,
        ) -> engine::Result<engine::WriteOutcome>,
    ) -> Result<()> {
        let snapshot = self.engine.newest_snapshot()?;
        match write(&mut self.engine, &snapshot)? {
            engine::WriteOutcome::Done => Ok(()),
            _ => Err(Error::new(
                "40001",
                "could not serialize access due to concurrent change of the dictionary",
            )),
        }
    }
}
