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
//! - A picture costs what it differs in from the one before: it shares the rest ([`map`]), and
//!   another instance reads what was changed and nothing else ([`log`]).
//!
//! A new kind of object is a variant of [`Object`] and of what is stored, with its number
//! ([`Object::kind`]), its names ([`Object::names`]) and what it needs (`needs` in [`maps`]), by
//! which it is found from what it depends on. The rest is the same for all kinds.

pub mod acl;
mod callers;
pub mod cast;
pub mod check;
mod comments;
pub mod composite;
pub mod computed;
mod default_name;
pub mod depend;
pub mod domain;
pub mod extension;
mod foreign;
pub mod function;
mod heirs;
pub mod inverted;
pub mod log;
mod map;
mod maps;
pub mod membership;
mod method;
mod object;
pub mod open_type;
pub mod path;
pub mod policy;
pub mod range;
pub mod role;
mod statistics;
pub mod store;
mod texts;
pub mod trigger;
pub mod trigrams;
pub mod types;
pub mod view;

pub use comments::{
    Comment, CommentOn, Described, PG_AUTHID, PG_CLASS, PG_CONSTRAINT, PG_EXTENSION, PG_NAMESPACE,
    PG_POLICY, PG_PROC, PG_TRIGGER, PG_TYPE,
};
pub use computed::IndexExpression;
pub use domain::{Domain, DomainConstraint};
pub use extension::Extension;
pub use foreign::{Action, ForeignKey};
pub use function::Function;
pub use heirs::Heir;
pub use method::Method;
pub use object::{
    Check, Column, Identity, Index, IndexKey, Object, OnCommit, Sequence, Stage, Storing, Table,
};
pub use path::{NameRef, Schema};
pub use statistics::{ColumnStats, Stats};
pub use types::{Label, UserType};
pub use view::{Source, View, ViewColumn};

pub use default_name::DefaultName;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

use block::RowId;
use maps::Maps;
use object::kind;
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

    /// The role that owns it; an index is its table's owner's.
    pub fn owner(&self) -> u32 {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.owner,
            Relation::Sequence(sequence) => sequence.role,
            Relation::View(view) => view.owner,
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
    /// Up to which commit of the log the picture has everything: [`log`].
    read: u64,
}

/// Which picture of the dictionary something was made from. It keeps nothing of the picture alive.
#[derive(Clone, Debug)]
pub struct Picture(Weak<Maps>);

impl Default for Dict {
    fn default() -> Dict {
        Dict {
            maps: Arc::default(),
            path: Arc::new([path::PUBLIC]),
            version: 0,
            read: 0,
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

    pub fn picture(&self) -> Picture {
        Picture(Arc::downgrade(&self.maps))
    }

    /// Whether this is that picture, through whichever search path it is seen.
    pub fn is(&self, picture: &Picture) -> bool {
        std::ptr::eq(picture.0.as_ptr(), Arc::as_ptr(&self.maps))
    }

    /// The picture that follows this one. `logged`: the last commit of the log that is in it.
    pub fn successor(&self, changes: &[Change], logged: u64) -> Dict {
        let mut next = self.with(changes);
        next.version = self.version + 1;
        next.read = logged;
        next
    }

    /// The picture that follows this one by what was committed here under a number of the log. One
    /// that does not have the commit before does not count as having this one.
    pub fn published(&self, changes: &[Change], number: Option<u64>) -> Dict {
        let logged = match number {
            Some(number) if number == self.read + 1 => number,
            _ => self.read,
        };
        self.successor(changes, logged)
    }

    /// What was read as a whole, as changes of the picture before it: what has not changed is the
    /// same object, by which plans know that they are still good.
    pub fn changes_to(&self, whole: &Dict) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for key in self.maps.entries.keys() {
            if !whole.maps.entries.contains_key(key) {
                changes.push(Change {
                    key: *key,
                    entry: None,
                });
            }
        }
        for (key, entry) in whole.maps.entries.iter() {
            let same = match self.maps.entries.get(key) {
                Some(known) => {
                    known.row == entry.row && known.object.encode()? == entry.object.encode()?
                }
                None => false,
            };
            if !same {
                changes.push(Change {
                    key: *key,
                    entry: Some(entry.clone()),
                });
            }
        }
        Ok(changes)
    }

    /// The last commit of the log that is in the picture.
    pub fn logged(&self) -> u64 {
        self.read
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

    /// The tables of which changes have statistics.
    pub fn statistics_among(changes: &[Change]) -> HashSet<u32> {
        let objects = changes.iter().filter_map(|c| c.entry.as_ref());
        let tables = objects.filter_map(|entry| match &entry.object {
            Object::Stats(s) => Some(s.table),
            _ => None,
        });
        tables.collect()
    }

    /// This picture through another search path.
    pub fn seen_by(&self, path: Arc<[u32]>) -> Dict {
        Dict {
            maps: self.maps.clone(),
            path,
            version: self.version,
            read: self.read,
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
            Some(schema) => {
                let schema = self.schema(schema)?;
                // Temporary relations of other sessions are nobody's business.
                let is_strange = self.is_temporary(schema) && !path.contains(&schema);
                match is_strange {
                    true => None,
                    false => key(&schema),
                }
            }
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
            Object::Schema(s) if !s.dropped => Some(s),
            _ => None,
        }
    }

    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> {
        self.maps.of_kind(kind::SCHEMA).filter_map(|o| match o {
            Object::Schema(s) if !s.dropped => Some(s),
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

    /// The table of an object id, or the view of it as a table.
    pub fn with_triggers(&self, oid: u32) -> Option<Arc<Table>> {
        let table = self.table_by_oid(oid).cloned();
        table.or_else(|| Some(Arc::new(self.view_by_oid(oid)?.as_table())))
    }

    /// The foreign keys that reference a table, each with the table that has it.
    pub fn referencing(&self, table: u32) -> Vec<(u32, ForeignKey)> {
        let keys = self.maps.needing(table).filter_map(|o| match o {
            Object::Table(t) => Some(t.foreign_keys.iter().map(|k| (t.oid, k))),
            _ => None,
        });
        let keys = keys.flatten();
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
            Object::Cast(_)
            | Object::Extension(_)
            | Object::Acl(_)
            | Object::DefaultPrivileges(_) => None,
        }
    }

    pub fn view_by_oid(&self, oid: u32) -> Option<&Arc<View>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::View(v) => Some(v),
            _ => None,
        }
    }

    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.maps.of_kind(kind::VIEW).filter_map(|o| match o {
            Object::View(v) => Some(v),
            _ => None,
        })
    }

    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        let Some(key) = self.maps.roles.get(name) else {
            return membership::predefined().iter().find(|r| r.name == name);
        };
        match &self.maps.entries.get(key)?.object {
            Object::Role(r) => Some(r),
            _ => None,
        }
    }

    pub fn role_by_oid(&self, oid: u32) -> Option<&Arc<Role>> {
        let Some(entry) = self.maps.entries.get(&i64::from(oid)) else {
            return membership::predefined().iter().find(|r| r.oid == oid);
        };
        match &entry.object {
            Object::Role(r) => Some(r),
            _ => None,
        }
    }

    /// All roles, those that every database has included.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        let stored = self.maps.of_kind(kind::ROLE).filter_map(|o| match o {
            Object::Role(r) => Some(r),
            _ => None,
        });
        stored.chain(membership::predefined())
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
        let entries = self.maps.entries.values();
        entries.flat_map(|e| e.object.segments()).collect()
    }

    /// The segments that these changes leave nothing of.
    pub fn gone_by(&self, changes: &[Change]) -> Vec<block::ObjectId> {
        let mut gone = Vec::new();
        for change in changes {
            let Some(old) = self.entry(change.key) else {
                continue;
            };
            let now = change.entry.as_ref().map(|e| e.object.segments());
            let now = now.unwrap_or_default();
            let segments = old.object.segments().into_iter();
            gone.extend(segments.filter(|s| !now.contains(s)));
        }
        gone
    }

    /// The objects that have a relation of this name, in any schema.
    fn with_name<'d>(&'d self, name: &'d str) -> impl Iterator<Item = &'d Object> + 'd {
        let names = self.maps.names.values();
        let keys = names.filter_map(move |names| names.get(name));
        keys.filter_map(|key| Some(&self.maps.entries.get(key)?.object))
    }

    /// The tables of this name, or with an index of it.
    pub fn tables_with_name<'d>(&'d self, name: &'d str) -> impl Iterator<Item = &'d Arc<Table>> {
        self.with_name(name).filter_map(|o| match o {
            Object::Table(t) => Some(t),
            _ => None,
        })
    }

    pub fn views_with_name<'d>(&'d self, name: &'d str) -> impl Iterator<Item = &'d Arc<View>> {
        self.with_name(name).filter_map(|o| match o {
            Object::View(v) => Some(v),
            _ => None,
        })
    }

    pub fn sequences_with_name<'d>(
        &'d self,
        name: &'d str,
    ) -> impl Iterator<Item = &'d Arc<Sequence>> {
        self.with_name(name).filter_map(|o| match o {
            Object::Sequence(s) => Some(s),
            _ => None,
        })
    }

    /// How many definitions there are.
    pub fn definitions(&self) -> usize {
        self.maps.entries.len()
    }

    /// The table that has an index, a constraint or a trigger of this object id.
    pub fn table_of_part(&self, oid: u32) -> Option<&Arc<Table>> {
        match self.maps.whole(oid)? {
            Object::Table(t) => Some(t),
            _ => None,
        }
    }

    /// The table, or the view as a table, that has a trigger of this object id.
    pub fn relation_of_trigger(&self, oid: u32) -> Option<Arc<Table>> {
        match self.maps.whole(oid)? {
            Object::Table(t) => Some(t.clone()),
            Object::View(v) => Some(Arc::new(v.as_table())),
            _ => None,
        }
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.maps.of_kind(kind::TABLE).filter_map(|o| match o {
            Object::Table(t) => Some(t),
            _ => None,
        })
    }

    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.maps.of_kind(kind::SEQUENCE).filter_map(|o| match o {
            Object::Sequence(s) => Some(s),
            _ => None,
        })
    }

    /// Sequences that live and die with a table.
    pub fn owned_sequences(&self, table: u32) -> Vec<Arc<Sequence>> {
        let owned = self.maps.needing(table).filter_map(|o| match o {
            Object::Sequence(s) if s.owner.is_some_and(|(t, _)| t == table) => Some(s.clone()),
            _ => None,
        });
        owned.collect()
    }

    /// The picture after the given changes.
    pub fn with(&self, changes: &[Change]) -> Dict {
        let mut next = self.clone();
        let maps = Arc::make_mut(&mut next.maps);
        // Two objects may have changed names with each other: all old ones are let go first.
        for change in changes {
            maps.take(change.key);
        }
        for change in changes {
            maps.take(change.key);
            if let Some(entry) = &change.entry {
                maps.put(change.key, entry.clone());
            }
        }
        next.retype(changes);
        next
    }

    /// A name in a schema for an object that was not given one, not taken yet.
    pub fn free_name(
        &self,
        schema: u32,
        base: DefaultName<'_>,
        taken: &dyn Fn(&str) -> bool,
    ) -> String {
        base.free(|name| !self.has_name(schema, name) && !taken(name))
    }
}
