//! The dictionary: what tables, indexes and sequences there are, and how that changes.
//!
//! Definitions are rows of one engine table (`engine::Engine::dictionary`), so that they are transactional and
//! recovered like everything else. A [`Dict`] is an immutable picture of all committed ones, shared by all sessions; a
//! session with uncommitted changes works on a picture of its own, made from theirs by [`Dict::with`].
//!
//! **Invariants.**
//! - A definition is changed only by a transaction that holds the table's exclusive lock, or a lock
//!   against writers and the definition's enqueue, or, for a new name, the name's enqueue. So two
//!   transactions never change the same entry at once.
//! - A picture is published before the locks of its transaction are released: who gets the lock sees the change.
//! - Object ids are never reused.

mod foreign;
mod object;
pub mod role;
mod statistics;
pub mod store;

pub use foreign::{Action, ForeignKey};
pub use object::{Check, Column, Identity, Index, IndexKey, Object, Sequence, Table};
pub use statistics::{ColumnStats, Stats};

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use block::RowId;
use role::{DOOR, Door, Role};

use crate::error::Result;

/// An entry and where the dictionary table has it.
#[derive(Clone)]
pub struct Entry {
    pub row: RowId,
    pub object: Object,
}

/// One change of a transaction: the new state of an entry, or none.
#[derive(Clone)]
pub struct Change {
    pub key: i64,
    pub entry: Option<Entry>,
}

/// What a relation name stands for.
#[derive(Clone)]
pub enum Relation {
    Table(Arc<Table>),
    Sequence(Arc<Sequence>),
    /// The table and the position of the index in it.
    Index(Arc<Table>, usize),
}

impl Relation {
    /// The object whose lock protects the relation: an index is protected by its table's.
    pub fn lock_oid(&self) -> u32 {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.oid,
            Relation::Sequence(sequence) => sequence.oid,
        }
    }
}

#[derive(Clone, Default)]
pub struct Dict {
    entries: HashMap<i64, Entry>,
    /// Relation name to key of the entry that has it: tables, sequences, and indexes by their table's key.
    names: HashMap<String, i64>,
    /// The same of roles, whose names are apart.
    roles: HashMap<String, i64>,
    /// The tables with foreign keys that reference a table, by its object id.
    referenced: HashMap<u32, Vec<u32>>,
    /// Rises with every publication; a picture with uncommitted changes has that of the one it was made from.
    version: u64,
}

/// Statistics of a table are an entry beside the table's, so that ANALYZE makes no plan stale.
pub fn stats_key(table: u32) -> i64 {
    -i64::from(table)
}

impl Dict {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The picture that follows this one.
    pub fn successor(&self, changes: &[Change]) -> Dict {
        let mut next = self.with(changes);
        next.version = self.version + 1;
        next
    }

    /// This picture, read from the dictionary's table, as the one after `before`. What has not
    /// changed is the same object, by which plans know that they are still good.
    pub fn following(mut self, before: &Dict) -> Result<Dict> {
        for (key, entry) in &mut self.entries {
            if let Some(known) = before.entries.get(key)
                && known.object.encode()? == entry.object.encode()?
            {
                entry.object = known.object.clone();
            }
        }
        self.version = before.version + 1;
        Ok(self)
    }

    /// The tables whose statistics were changed, if nothing else was.
    pub fn changed_statistics(changes: &[Change]) -> Option<HashSet<u32>> {
        let each = changes.iter().map(|c| match &c.entry {
            Some(Entry {
                object: Object::Stats(s),
                ..
            }) => Some(s.table),
            _ => None,
        });
        each.collect()
    }

    /// The tables whose statistics are others than in a picture that this one follows, if nothing
    /// else is.
    pub fn only_statistics_since(&self, before: &Dict) -> Option<HashSet<u32>> {
        let mut tables = HashSet::new();
        for (key, entry) in &self.entries {
            let known = before.entries.get(key).map(|e| &e.object);
            match &entry.object {
                Object::Stats(s) => {
                    if !known.is_some_and(|k| k.is(&entry.object)) {
                        tables.insert(s.table);
                    }
                }
                other => {
                    known.filter(|k| k.is(other))?;
                }
            }
        }
        let gone = before.entries.keys().any(|k| !self.entries.contains_key(k));
        (!gone).then_some(tables)
    }

    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        match &self.entries.get(self.names.get(name)?)?.object {
            Object::Table(t) if t.name == name => Some(t),
            _ => None,
        }
    }

    pub fn table_by_oid(&self, oid: u32) -> Option<&Arc<Table>> {
        match &self.entries.get(&i64::from(oid))?.object {
            Object::Table(t) => Some(t),
            _ => None,
        }
    }

    /// The foreign keys that reference a table, each with the table that has it.
    pub fn referencing(&self, table: u32) -> Vec<(u32, ForeignKey)> {
        let Some(children) = self.referenced.get(&table) else {
            return Vec::new();
        };
        let tables = children.iter().filter_map(|oid| self.table_by_oid(*oid));
        let keys = tables.flat_map(|t| t.foreign_keys.iter().map(|k| (t.oid, k)));
        keys.filter(|(_, k)| k.parent == table)
            .map(|(oid, k)| (oid, k.clone()))
            .collect()
    }

    pub fn sequence(&self, name: &str) -> Option<&Arc<Sequence>> {
        match &self.entries.get(self.names.get(name)?)?.object {
            Object::Sequence(s) => Some(s),
            _ => None,
        }
    }

    pub fn sequence_by_oid(&self, oid: u32) -> Option<&Arc<Sequence>> {
        match &self.entries.get(&i64::from(oid))?.object {
            Object::Sequence(s) => Some(s),
            _ => None,
        }
    }

    pub fn relation(&self, name: &str) -> Option<Relation> {
        match &self.entries.get(self.names.get(name)?)?.object {
            Object::Table(t) if t.name == name => Some(Relation::Table(t.clone())),
            Object::Table(t) => {
                let at = t.indexes.iter().position(|i| i.name == name)?;
                Some(Relation::Index(t.clone(), at))
            }
            Object::Sequence(s) => Some(Relation::Sequence(s.clone())),
            Object::Stats(_) | Object::Role(_) | Object::Door(_) => None,
        }
    }

    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        match &self.entries.get(self.roles.get(name)?)?.object {
            Object::Role(r) => Some(r),
            _ => None,
        }
    }

    pub fn role_by_oid(&self, oid: u32) -> Option<&Arc<Role>> {
        match &self.entries.get(&i64::from(oid))?.object {
            Object::Role(r) => Some(r),
            _ => None,
        }
    }

    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.entries.values().filter_map(|e| match &e.object {
            Object::Role(r) => Some(r),
            _ => None,
        })
    }

    pub fn door(&self) -> Option<&Arc<Door>> {
        match &self.entries.get(&i64::from(DOOR))?.object {
            Object::Door(d) => Some(d),
            _ => None,
        }
    }

    pub fn stats(&self, table: u32) -> Option<&Arc<Stats>> {
        match &self.entries.get(&stats_key(table))?.object {
            Object::Stats(s) => Some(s),
            _ => None,
        }
    }

    pub fn entry(&self, key: i64) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// All objects that have space of their own.
    pub fn segments(&self) -> std::collections::BTreeSet<block::ObjectId> {
        let of_table = |t: &Table| {
            std::iter::once(t.segment)
                .chain(t.indexes.iter().map(|i| i.segment))
                .collect()
        };
        let of_entry = |e: &Entry| -> Vec<u32> {
            match &e.object {
                Object::Table(t) => of_table(t),
                Object::Sequence(s) => vec![s.engine().object.0],
                Object::Stats(_) | Object::Role(_) | Object::Door(_) => Vec::new(),
            }
        };
        self.entries
            .values()
            .flat_map(of_entry)
            .map(block::ObjectId)
            .collect()
    }

    /// All objects that can be locked or have space of their own.
    pub fn objects(&self) -> std::collections::BTreeSet<block::ObjectId> {
        let mut all = self.segments();
        let locked = self.entries.keys().filter_map(|&k| u32::try_from(k).ok());
        all.extend(locked.map(block::ObjectId));
        all
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.entries.values().filter_map(|e| match &e.object {
            Object::Table(t) => Some(t),
            _ => None,
        })
    }

    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.entries.values().filter_map(|e| match &e.object {
            Object::Sequence(s) => Some(s),
            _ => None,
        })
    }

    /// Sequences that live and die with a table.
    pub fn owned_sequences(&self, table: u32) -> Vec<Arc<Sequence>> {
        self.sequences()
            .filter(|s| s.owner.is_some_and(|(t, _)| t == table))
            .cloned()
            .collect()
    }

    /// The picture after the given changes.
    pub fn with(&self, changes: &[Change]) -> Dict {
        let mut next = self.clone();
        for change in changes {
            next.apply(change);
        }
        next
    }

    fn apply(&mut self, change: &Change) {
        if let Some(old) = self.entries.remove(&change.key) {
            for name in old.object.names() {
                self.names.remove(name);
            }
            if let Object::Role(role) = &old.object {
                self.roles.remove(&role.name);
            }
            if let Object::Table(t) = &old.object {
                for key in &t.foreign_keys {
                    if let Some(children) = self.referenced.get_mut(&key.parent) {
                        children.retain(|child| *child != t.oid);
                        if children.is_empty() {
                            self.referenced.remove(&key.parent);
                        }
                    }
                }
            }
        }
        if let Some(entry) = &change.entry {
            for name in entry.object.names() {
                self.names.insert(name.to_string(), change.key);
            }
            if let Object::Role(role) = &entry.object {
                self.roles.insert(role.name.clone(), change.key);
            }
            if let Object::Table(t) = &entry.object {
                for key in &t.foreign_keys {
                    let children = self.referenced.entry(key.parent).or_default();
                    if !children.contains(&t.oid) {
                        children.push(t.oid);
                    }
                }
            }
            self.entries.insert(change.key, entry.clone());
        }
    }

    /// A name for an object that was not given one, `table_column_suffix` as PostgreSQL makes it, not taken yet.
    pub fn free_name(&self, base: &str, taken: &dyn Fn(&str) -> bool) -> String {
        let is_free = |name: &str| !self.names.contains_key(name) && !taken(name);
        if is_free(base) {
            return base.to_string();
        }
        (1..)
            .map(|n: u64| format!("{base}{n}"))
            .find(|name| is_free(name))
            .unwrap_or_default()
    }
}
