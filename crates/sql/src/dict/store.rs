//! The dictionary's table: loading it at the start, writing definitions as rows of the session's transaction.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::{Engine, TableDef};

use super::acl::{Acl, DefaultPrivileges, with_owner};
use super::{Change, Dict, Entry, Object};
use crate::error::{Error, Result};
use crate::exec::row::decode;
use crate::session::Core;

/// Columns of the dictionary's table: id int4, kind int2, name text, definition bytea.
const COLUMNS: usize = 4;
/// Kinds of definitions.
const SCHEMA: i16 = 6;
const TYPE: i16 = 9;

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
    let mut changes = Vec::with_capacity(rows.len());
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    for (row, bytes) in &rows {
        let mut values = Vec::with_capacity(COLUMNS);
        decode(bytes, &table, COLUMNS, &mut values)?;
        let Some(DatumRef::Bytea(definition)) = values.get(3) else {
            return Err(Error::new(
                "XX001",
                "a row of the dictionary has no definition",
            ));
        };
        match values.get(1) {
            Some(DatumRef::Int2(SCHEMA | TYPE)) => firsts.push((*row, definition.to_vec())),
            _ => others.push((*row, definition.to_vec())),
        }
    }
    // What the types of columns are says the rest.
    let mut types = Dict::default();
    for (definitions, last) in [(firsts, false), (others, true)] {
        for (row, definition) in definitions {
            let object = Object::decode(&definition, &|oid| types.type_of(oid))?;
            changes.push(Change {
                key: object.key(),
                entry: Some(Entry { row, object }),
            });
        }
        if !last {
            types = types.with(&changes);
        }
    }
    Ok(Dict::default().successor(&changes))
}

/// The row of a definition.
fn encode(object: &Object) -> Result<[Datum; COLUMNS]> {
    let key = i32::try_from(object.key())
        .map_err(|_| Error::internal("object id beyond the dictionary's key"))?;
    let kind = match object {
        Object::Table(_) => 1,
        Object::Sequence(_) => 2,
        Object::Stats(_) => 3,
        Object::Role(_) => 4,
        Object::Door(_) => 5,
        Object::Schema(_) => SCHEMA,
        Object::View(_) => 7,
        Object::Function(_) => 8,
        Object::Type(_) => TYPE,
        Object::Acl(_) => 20,
        Object::DefaultPrivileges(_) => 21,
    };
    let name = match object {
        Object::Role(role) => role.name.clone(),
        Object::Function(function) => function.name.clone(),
        Object::Type(t) => t.name.clone(),
        other => other
            .names()
            .first()
            .map_or(String::new(), |n| n.to_string()),
    };
    Ok([
        Datum::Int4(key),
        Datum::Int2(kind),
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
        self.follow_owner(&object)?;
        let def = table(self);
        let values = encode(&object)?;
        let row = values.each_ref().map(Datum::borrow);
        let key = object.key();
        let rid = match self.dict().entry(key) {
            None => self.engine.insert(&def, &row)?,
            Some(entry) => {
                let rid = entry.row;
                self.written(|engine, snapshot| engine.update(&def, rid, &row, Some(snapshot)))?;
                rid
            }
        };
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
