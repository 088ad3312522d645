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

mod callers;
mod comments;
pub mod computed;
pub mod depend;
pub mod domain;
mod foreign;
pub mod function;
mod object;
pub mod path;
pub mod role;
mod statistics;
pub mod store;
pub mod trigger;
pub mod types;
pub mod view;

pub use comments::{
    Comment, CommentOn, Described, PG_AUTHID, PG_CLASS, PG_CONSTRAINT, PG_NAMESPACE, PG_TYPE,
};
pub use computed::IndexExpression;
pub use domain::{Domain, DomainConstraint};
pub use foreign::{Action, ForeignKey};
pub use function::Function;
pub use object::{Check, Column, Identity, Index, IndexKey, Object, Sequence, Table};
pub use path::{NameRef, Schema};
pub use statistics::{ColumnStats, Stats};
pub use types::{Label, UserType};
pub use view::{Source, View, ViewColumn};

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
    View(Arc<View>),
}

impl Relation {
    /// The object whose lock protects the relation: an index is protected by its table's.
    pub fn lock_oid(&self) -> u32 {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.oid,
            Relation::Sequence(sequence) => sequence.oid,
            Relation::View(view) => view.oid,
        }
    }

    pub fn schema(&self) -> u32 {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.schema,
            Relation::Sequence(sequence) => sequence.schema,
            Relation::View(view) => view.schema,
        }
    }
}

/// A picture of the dictionary, as it is seen through a search path.
#[derive(Clone)]
pub struct Dict {
    maps: Arc<Maps>,
    /// The schemas in which a name without one is looked up; of the committed picture that sessions
    /// share, `public`.
    path: Arc<[u32]>,
    /// Rises with every publication; a picture with uncommitted changes has that of the one it was made from.
    version: u64,
}

#[derive(Clone, Default)]
struct Maps {
    entries: HashMap<i64, Entry>,
    /// By schema, relation name to key of the entry that has it: tables, sequences, and indexes by
    /// their table's key.
    names: HashMap<u32, HashMap<String, i64>>,
    /// Object ids of the schemas that users made.
    schemas: HashMap<String, u32>,
    /// The keys of roles, whose names are apart.
    roles: HashMap<String, i64>,
    /// The keys of users' types, by their numbers and those of their arrays.
    types: HashMap<u32, i64>,
    /// The same by schema and name, which are apart from those of relations.
    type_names: HashMap<u32, HashMap<String, i64>>,
    /// The tables with foreign keys that reference a table, by its object id.
    referenced: HashMap<u32, Vec<u32>>,
    /// Object ids of the functions of a name, in any schema.
    functions: HashMap<String, Vec<u32>>,
}

impl Default for Dict {
    fn default() -> Dict {
        Dict {
            maps: Arc::default(),
            path: Arc::new([path::PUBLIC]),
            version: 0,
        }
    }
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
        for (key, entry) in &mut Arc::make_mut(&mut self.maps).entries {
            if let Some(known) = before.maps.entries.get(key)
                && known.object.encode()? == entry.object.encode()?
                && known.object.has_types_of(&entry.object)
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
        for (key, entry) in &self.maps.entries {
            let known = before.maps.entries.get(key).map(|e| &e.object);
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
        let gone = before
            .maps
            .entries
            .keys()
            .any(|k| !self.maps.entries.contains_key(k));
        (!gone).then_some(tables)
    }

    /// This picture through another search path.
    pub fn seen_by(&self, path: Arc<[u32]>) -> Dict {
        Dict {
            maps: self.maps.clone(),
            path,
            version: self.version,
        }
    }

    /// The schemas in which a name without one is looked up.
    pub fn path(&self) -> &Arc<[u32]> {
        &self.path
    }

    fn has_name(&self, schema: u32, name: &str) -> bool {
        let names = self.maps.names.get(&schema);
        names.is_some_and(|names| names.contains_key(name))
    }

    /// The object of a relation's name: the first on the path, if the name has no schema.
    fn named<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<&Object> {
        let key = self.key_in(&self.path, name.into())?;
        Some(&self.maps.entries.get(&key)?.object)
    }

    /// The key of the entry that has a name, looked up through a path.
    pub fn key_in(&self, path: &[u32], name: NameRef<'_>) -> Option<i64> {
        let key = |schema: &u32| self.maps.names.get(schema)?.get(name.name).copied();
        match name.schema {
            Some(schema) => key(&self.schema(schema)?),
            None => path.iter().find_map(key),
        }
    }

    /// The table of a name in a schema.
    pub fn table_in(&self, schema: u32, name: &str) -> Option<&Arc<Table>> {
        let key = self.maps.names.get(&schema)?.get(name)?;
        match &self.maps.entries.get(key)?.object {
            Object::Table(t) if t.name == name => Some(t),
            _ => None,
        }
    }

    /// The table or view of a name in a schema.
    pub fn table_or_view(&self, schema: u32, name: &str) -> Option<Relation> {
        let key = self.maps.names.get(&schema)?.get(name)?;
        match &self.maps.entries.get(key)?.object {
            Object::Table(t) if t.name == name => Some(Relation::Table(t.clone())),
            Object::View(v) => Some(Relation::View(v.clone())),
            _ => None,
        }
    }

    /// Whether a schema has a relation of that name.
    pub fn is_taken(&self, schema: u32, name: &str) -> bool {
        self.has_name(schema, name)
    }

    pub fn schema_by_oid(&self, oid: u32) -> Option<&Arc<Schema>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Schema(s) => Some(s),
            _ => None,
        }
    }

    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> {
        self.maps.entries.values().filter_map(|e| match &e.object {
            Object::Schema(s) => Some(s),
            _ => None,
        })
    }

    pub fn table<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<&Arc<Table>> {
        let name = name.into();
        match self.named(name)? {
            Object::Table(t) if t.name == name.name => Some(t),
            _ => None,
        }
    }

    pub fn table_by_oid(&self, oid: u32) -> Option<&Arc<Table>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Table(t) => Some(t),
            _ => None,
        }
    }

    /// The foreign keys that reference a table, each with the table that has it.
    pub fn referencing(&self, table: u32) -> Vec<(u32, ForeignKey)> {
        let Some(children) = self.maps.referenced.get(&table) else {
            return Vec::new();
        };
        let tables = children.iter().filter_map(|oid| self.table_by_oid(*oid));
        let keys = tables.flat_map(|t| t.foreign_keys.iter().map(|k| (t.oid, k)));
        keys.filter(|(_, k)| k.parent == table)
            .map(|(oid, k)| (oid, k.clone()))
            .collect()
    }

    pub fn sequence<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<&Arc<Sequence>> {
        match self.named(name)? {
            Object::Sequence(s) => Some(s),
            _ => None,
        }
    }

    pub fn sequence_by_oid(&self, oid: u32) -> Option<&Arc<Sequence>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Sequence(s) => Some(s),
            _ => None,
        }
    }

    pub fn relation<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<Relation> {
        let name = name.into();
        match self.named(name)? {
            Object::Table(t) if t.name == name.name => Some(Relation::Table(t.clone())),
            Object::Table(t) => {
                let at = t.indexes.iter().position(|i| i.name == name.name)?;
                Some(Relation::Index(t.clone(), at))
            }
            Object::Sequence(s) => Some(Relation::Sequence(s.clone())),
            Object::View(v) => Some(Relation::View(v.clone())),
            Object::Stats(_) | Object::Role(_) | Object::Door(_) => None,
            Object::Schema(_) | Object::Function(_) | Object::Type(_) => None,
        }
    }

    pub fn view_by_oid(&self, oid: u32) -> Option<&Arc<View>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::View(v) => Some(v),
            _ => None,
        }
    }

    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.maps.entries.values().filter_map(|e| match &e.object {
            Object::View(v) => Some(v),
            _ => None,
        })
    }

    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        match &self.maps.entries.get(self.maps.roles.get(name)?)?.object {
            Object::Role(r) => Some(r),
            _ => None,
        }
    }

    pub fn role_by_oid(&self, oid: u32) -> Option<&Arc<Role>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Role(r) => Some(r),
            _ => None,
        }
    }

    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.maps.entries.values().filter_map(|e| match &e.object {
            Object::Role(r) => Some(r),
            _ => None,
        })
    }

    pub fn door(&self) -> Option<&Arc<Door>> {
        match &self.maps.entries.get(&i64::from(DOOR))?.object {
            Object::Door(d) => Some(d),
            _ => None,
        }
    }

    pub fn stats(&self, table: u32) -> Option<&Arc<Stats>> {
        match &self.maps.entries.get(&stats_key(table))?.object {
            Object::Stats(s) => Some(s),
            _ => None,
        }
    }

    pub fn entry(&self, key: i64) -> Option<&Entry> {
        self.maps.entries.get(&key)
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
                Object::Stats(_)
                | Object::Role(_)
                | Object::Door(_)
                | Object::Schema(_)
                | Object::Function(_)
                | Object::Type(_)
                | Object::View(_) => Vec::new(),
            }
        };
        self.maps
            .entries
            .values()
            .flat_map(of_entry)
            .map(block::ObjectId)
            .collect()
    }

    /// All objects that can be locked or have space of their own.
    pub fn objects(&self) -> std::collections::BTreeSet<block::ObjectId> {
        let mut all = self.segments();
        let locked = self
            .maps
            .entries
            .keys()
            .filter_map(|&k| u32::try_from(k).ok());
        all.extend(locked.map(block::ObjectId));
        all
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.maps.entries.values().filter_map(|e| match &e.object {
            Object::Table(t) => Some(t),
            _ => None,
        })
    }

    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.maps.entries.values().filter_map(|e| match &e.object {
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
        next.retype(changes);
        next
    }

    fn apply(&mut self, change: &Change) {
        let maps = Arc::make_mut(&mut self.maps);
        if let Some(old) = maps.entries.remove(&change.key) {
            for name in old.object.names() {
                if let Some(names) = maps.names.get_mut(&old.object.schema()) {
                    names.remove(name);
                }
            }
            match &old.object {
                Object::Role(role) => drop(maps.roles.remove(&role.name)),
                Object::Schema(schema) => drop(maps.schemas.remove(&schema.name)),
                Object::Function(function) => {
                    if let Some(named) = maps.functions.get_mut(&function.name) {
                        named.retain(|oid| *oid != function.oid);
                        if named.is_empty() {
                            maps.functions.remove(&function.name);
                        }
                    }
                }
                Object::Type(t) => {
                    maps.types.remove(&t.oid);
                    maps.types.remove(&t.array_oid);
                    if let Some(names) = maps.type_names.get_mut(&t.schema) {
                        names.remove(&t.name);
                    }
                }
                _ => {}
            }
            if let Object::Table(t) = &old.object {
                for key in &t.foreign_keys {
                    if let Some(children) = maps.referenced.get_mut(&key.parent) {
                        children.retain(|child| *child != t.oid);
                        if children.is_empty() {
                            maps.referenced.remove(&key.parent);
                        }
                    }
                }
            }
        }
        if let Some(entry) = &change.entry {
            for name in entry.object.names() {
                let names = maps.names.entry(entry.object.schema()).or_default();
                names.insert(name.to_string(), change.key);
            }
            match &entry.object {
                Object::Role(role) => drop(maps.roles.insert(role.name.clone(), change.key)),
                Object::Schema(schema) => {
                    maps.schemas.insert(schema.name.clone(), schema.oid);
                }
                Object::Function(function) => {
                    let named = maps.functions.entry(function.name.clone()).or_default();
                    named.push(function.oid);
                }
                Object::Type(t) => {
                    maps.types.insert(t.oid, change.key);
                    maps.types.insert(t.array_oid, change.key);
                    let names = maps.type_names.entry(t.schema).or_default();
                    names.insert(t.name.clone(), change.key);
                }
                _ => {}
            }
            if let Object::Table(t) = &entry.object {
                for key in &t.foreign_keys {
                    let children = maps.referenced.entry(key.parent).or_default();
                    if !children.contains(&t.oid) {
                        children.push(t.oid);
                    }
                }
            }
            maps.entries.insert(change.key, entry.clone());
        }
    }

    /// A name in a schema for an object that was not given one, `table_column_suffix` as PostgreSQL
    /// makes it, not taken yet.
    pub fn free_name(&self, schema: u32, base: &str, taken: &dyn Fn(&str) -> bool) -> String {
        let is_free = |name: &str| !self.has_name(schema, name) && !taken(name);
        if is_free(base) {
            return base.to_string();
        }
        (1..)
            .map(|n: u64| format!("{base}{n}"))
            .find(|name| is_free(name))
            .unwrap_or_default()
    }
}
