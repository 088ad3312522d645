//! What a picture of the dictionary is found by: names, numbers, kinds, and what needs what.
//!
//! Everything here but the entries themselves is derived from them, by [`Maps::put`] and
//! [`Maps::take`] alone. **Invariant.** The maps of a picture are the same in whatever order, and
//! by however many steps, its definitions came into it. A change costs what it changes, and a
//! logarithm: nothing here goes through all definitions.

use std::sync::Arc;

use super::map::Map;
use super::object::Object;
use super::{Entry, Table, View};
use crate::types::SqlType;

type Keys = Map<i64, ()>;
type Name = Arc<str>;

#[derive(Clone, Default)]
pub(super) struct Maps {
    pub entries: Map<i64, Entry>,
    /// The objects of each kind.
    pub kinds: Map<i16, Map<i64, Object>>,
    /// By schema, relation name to key of the entry that has it: tables, sequences, and indexes by
    /// their table's key.
    pub names: Map<u32, Map<Name, i64>>,
    /// Object ids of the schemas that users made.
    pub schemas: Map<Name, u32>,
    /// The keys of roles, whose names are apart.
    pub roles: Map<Name, i64>,
    /// The keys of users' types, by their numbers and those of their arrays.
    pub types: Map<u32, i64>,
    /// The same by schema and name, which are apart from those of relations.
    pub type_names: Map<u32, Map<Name, i64>>,
    /// Object ids of the functions of a name, in any schema.
    pub functions: Map<Name, Map<u32, ()>>,
    /// The keys of casts, by the numbers of the types that they are from and to.
    pub casts: Map<(u32, u32), i64>,
    /// The keys of privileges, by the object that they are on.
    pub acls: Map<u32, i64>,
    /// The keys of what needs an object, by its object id: [`Object::needs`].
    needed: Map<u32, Keys>,
    /// The keys of tables, by what their defaults draw values from, as it is written there.
    drawn: Map<Name, Keys>,
    /// The keys of tables, by the object ids of their indexes, constraints, triggers and policies.
    parts: Map<u32, i64>,
}

/// Adds to a map of maps.
fn add<K: Ord + Clone, L: Ord + Clone, V: Clone>(
    maps: &mut Map<K, Map<L, V>>,
    key: K,
    (inner, value): (L, V),
) {
    let mut map = maps.get(&key).cloned().unwrap_or_default();
    map.insert(inner, value);
    maps.insert(key, map);
}

/// Takes out of a map of maps, where no empty one stays.
fn cut<K: Ord + Clone, L: Ord + Clone, V: Clone>(maps: &mut Map<K, Map<L, V>>, key: &K, inner: &L) {
    let Some(mut map) = maps.get(key).cloned() else {
        return;
    };
    map.remove(inner);
    match map.is_empty() {
        true => maps.remove(key),
        false => maps.insert(key.clone(), map),
    };
}

impl Maps {
    /// Takes an entry out.
    pub fn take(&mut self, key: i64) -> Option<Entry> {
        let old = self.entries.remove(&key)?;
        let object = &old.object;
        cut(&mut self.kinds, &object.kind(), &key);
        for name in object.names() {
            cut(&mut self.names, &object.schema(), &Name::from(name));
        }
        for oid in object.needs() {
            cut(&mut self.needed, &oid, &key);
        }
        match object {
            Object::Role(role) => drop(self.roles.remove(&*role.name)),
            Object::Acl(acl) => drop(self.acls.remove(&acl.object)),
            Object::Cast(c) => drop(self.casts.remove(&(c.source, c.target))),
            Object::Schema(schema) if schema.dropped => {}
            Object::Schema(schema) => drop(self.schemas.remove(&*schema.name)),
            Object::Function(f) => cut(&mut self.functions, &Name::from(&*f.name), &f.oid),
            Object::Type(t) => {
                self.types.remove(&t.oid);
                self.types.remove(&t.array_oid);
                cut(&mut self.type_names, &t.schema, &Name::from(&*t.name));
            }
            Object::Table(t) => {
                for number in t.row_type {
                    self.types.remove(&number);
                }
                for oid in t.parts() {
                    self.parts.remove(&oid);
                }
                for text in t.drawn() {
                    cut(&mut self.drawn, &text, &key);
                }
            }
            Object::View(v) => {
                for oid in v.parts() {
                    self.parts.remove(&oid);
                }
            }
            _ => {}
        }
        Some(old)
    }

    /// Puts an entry in, where there is none of its key.
    pub fn put(&mut self, key: i64, entry: Entry) {
        let object = &entry.object;
        add(&mut self.kinds, object.kind(), (key, object.clone()));
        for name in object.names() {
            add(&mut self.names, object.schema(), (name.into(), key));
        }
        for oid in object.needs() {
            add(&mut self.needed, oid, (key, ()));
        }
        match object {
            Object::Role(role) => drop(self.roles.insert(role.name.as_str().into(), key)),
            Object::Acl(acl) => drop(self.acls.insert(acl.object, key)),
            Object::Cast(c) => drop(self.casts.insert((c.source, c.target), key)),
            Object::Schema(schema) if schema.dropped => {}
            Object::Schema(schema) => {
                self.schemas.insert(schema.name.as_str().into(), schema.oid);
            }
            Object::Function(f) => {
                add(&mut self.functions, f.name.as_str().into(), (f.oid, ()));
            }
            Object::Type(t) => {
                self.types.insert(t.oid, key);
                self.types.insert(t.array_oid, key);
                add(
                    &mut self.type_names,
                    t.schema,
                    (t.name.as_str().into(), key),
                );
            }
            Object::Table(t) => {
                for number in t.row_type.into_iter().filter(|number| *number != 0) {
                    self.types.insert(number, key);
                }
                for oid in t.parts() {
                    self.parts.insert(oid, key);
                }
                for text in t.drawn() {
                    add(&mut self.drawn, text, (key, ()));
                }
            }
            Object::View(v) => {
                for oid in v.parts() {
                    self.parts.insert(oid, key);
                }
            }
            _ => {}
        }
        self.entries.insert(key, entry);
    }

    /// Puts another state of an object in its place, which has the same names and needs.
    pub fn restate(&mut self, key: i64, object: Object) {
        if let Some(mut entry) = self.entries.get(&key).cloned() {
            add(&mut self.kinds, object.kind(), (key, object.clone()));
            entry.object = object;
            self.entries.insert(key, entry);
        }
    }

    /// The objects of a kind, by object id.
    pub fn of_kind(&self, kind: i16) -> impl Iterator<Item = &Object> {
        self.kinds.get(&kind).into_iter().flat_map(Map::values)
    }

    /// What needs an object, by its object id.
    pub fn needing(&self, oid: u32) -> impl Iterator<Item = &Object> {
        self.of_keys(self.needed.get(&oid))
    }

    /// The tables with a default that draws from what is written so.
    pub fn drawing(&self, text: &str) -> impl Iterator<Item = &Object> {
        self.of_keys(self.drawn.get(text))
    }

    /// The table that has an index, constraint, trigger or policy.
    pub fn whole(&self, part: u32) -> Option<&Object> {
        Some(&self.entries.get(self.parts.get(&part)?)?.object)
    }

    /// All that objects are found by, one line each.
    pub fn found_by(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = |text: String| lines.push(text);
        for (kind, objects) in self.kinds.iter() {
            let of_entries = |key: &i64, o: &Object| {
                let entry = self.entries.get(key);
                entry.is_some_and(|e| e.object.is(o))
            };
            objects
                .iter()
                .for_each(|(key, o)| line(format!("kind {kind} {key} {}", of_entries(key, o))));
        }
        for (what, names) in [("relation", &self.names), ("type", &self.type_names)] {
            for (schema, names) in names.iter() {
                let each = names.iter();
                each.for_each(|(name, key)| line(format!("{what} {schema} {name} {key}")));
            }
        }
        let schemas = self.schemas.iter();
        schemas.for_each(|(name, oid)| line(format!("schema {name} {oid}")));
        let roles = self.roles.iter();
        roles.for_each(|(name, key)| line(format!("role {name} {key}")));
        for (what, numbers) in [
            ("type", &self.types),
            ("part", &self.parts),
            ("privileges", &self.acls),
        ] {
            let each = numbers.iter();
            each.for_each(|(oid, key)| line(format!("{what} {oid} {key}")));
        }
        let casts = self.casts.iter();
        casts.for_each(|(of, key)| line(format!("cast {of:?} {key}")));
        for (name, oids) in self.functions.iter() {
            let each = oids.keys();
            each.for_each(|oid| line(format!("function {name} {oid}")));
        }
        for (oid, keys) in self.needed.iter() {
            keys.keys()
                .for_each(|key| line(format!("{key} needs {oid}")));
        }
        for (text, keys) in self.drawn.iter() {
            keys.keys()
                .for_each(|key| line(format!("{key} draws from {text}")));
        }
        lines
    }

    fn of_keys<'m>(&'m self, keys: Option<&'m Keys>) -> impl Iterator<Item = &'m Object> {
        let keys = keys.into_iter().flat_map(Map::keys);
        keys.filter_map(|key| Some(&self.entries.get(key)?.object))
    }
}

impl Object {
    /// The objects that this one's definition names, by object id: what the graph of dependences is
    /// made of.
    fn needs(&self) -> Vec<u32> {
        let mut needs = match self {
            Object::Table(t) => t.needs(),
            Object::View(v) => v.needs(),
            Object::Sequence(s) => s.owner.iter().map(|(table, _)| *table).collect(),
            Object::Function(f) => {
                let types = f.arguments.iter().map(|a| a.type_oid);
                let types = types.chain(f.parameters.iter().map(|p| p.type_oid));
                let types = types.chain([f.result]).filter(|oid| is_made(*oid));
                types.chain([f.schema]).chain(f.extension).collect()
            }
            // The types of its attributes, or the one below it, or that of its bounds.
            Object::Type(t) => {
                let attributes = t.composite.iter().flat_map(|c| &c.attributes);
                let types = attributes.map(|a| a.type_oid);
                let types = types.chain(t.domain.iter().map(|d| d.base));
                let types = types.chain(t.range.iter().map(|r| r.subtype));
                let types = types.chain(t.multirange_of);
                let types = types.filter(|oid| is_made(*oid));
                let difference = t.range.iter().map(|r| r.difference);
                types.chain(difference).chain(t.extension).collect()
            }
            Object::Extension(e) => vec![e.schema],
            Object::Cast(c) => {
                let types = [c.source, c.target].into_iter();
                let types = types.filter(|oid| is_made(*oid));
                types.chain([c.function()]).collect()
            }
            Object::Stats(_) | Object::Role(_) => Vec::new(),
            Object::Door(_) | Object::Schema(_) => Vec::new(),
            Object::Acl(_) | Object::DefaultPrivileges(_) => Vec::new(),
        };
        needs.push(self.schema());
        needs.extend(self.named_by_number());
        needs.retain(|oid| *oid != 0);
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}

/// Whether it is no type that every database has.
fn is_made(type_oid: u32) -> bool {
    SqlType::from_oid(type_oid).is_none()
}

impl Table {
    fn needs(&self) -> Vec<u32> {
        let types = self.columns.iter().map(|c| c.type_oid);
        let types = types.filter(|oid| is_made(*oid));
        let sequences = self.columns.iter().filter_map(|c| c.sequence);
        let parents = self.foreign_keys.iter().map(|k| k.parent);
        let functions = self.triggers.iter().map(|g| g.function);
        let from = self.triggers.iter().filter_map(|g| g.constraint.as_ref());
        let from = from.map(|c| c.from).filter(|oid| *oid != 0);
        let functions = functions.chain(from);
        let policies = self.policies.iter().flat_map(|p| &p.sources);
        let read = policies.map(|s| s.oid).filter(|oid| *oid != self.oid);
        let all = types.chain(sequences).chain(parents).chain(functions);
        let made = self.materialized.iter().flat_map(|m| &m.sources);
        all.chain(read).chain(made.map(|s| s.oid)).collect()
    }

    /// Object ids of what is defined with it.
    fn parts(&self) -> Vec<u32> {
        let indexes = self.indexes.iter().flat_map(|i| [i.oid, i.constraint]);
        let keys = self.foreign_keys.iter().map(|k| k.oid);
        let triggers = self.triggers.iter();
        let triggers = triggers.flat_map(|g| [g.oid, g.constraint.as_ref().map_or(0, |c| c.oid)]);
        let policies = self.policies.iter().map(|p| p.oid);
        let all = indexes.chain(keys).chain(triggers).chain(policies);
        all.filter(|oid| *oid != 0).collect()
    }

    /// What its defaults draw values from, as they write it.
    fn drawn(&self) -> Vec<Name> {
        let defaults = self.live_columns().filter_map(|(_, c)| c.default.as_ref());
        let mut found: Vec<Name> = Vec::new();
        for default in defaults {
            for call in default.split("nextval('").skip(1) {
                let text = literal(call);
                if !found.iter().any(|known| **known == *text) {
                    found.push(text.into());
                }
            }
        }
        found
    }
}

/// A literal from after its quote up to the one that ends it.
fn literal(text: &str) -> &str {
    let mut at = 0;
    while let Some(quote) = text[at..].find('\'') {
        at += quote;
        if !text[at + 1..].starts_with('\'') {
            return &text[..at];
        }
        at += 2;
    }
    text
}

impl View {
    fn needs(&self) -> Vec<u32> {
        let types = self.columns.iter().map(|c| c.type_oid);
        let types = types.filter(|oid| is_made(*oid));
        let functions = self.triggers.iter().map(|g| g.function);
        let sources = self.sources.iter().map(|s| s.oid);
        types.chain(sources).chain(functions).collect()
    }

    /// Object ids of what is defined with it.
    fn parts(&self) -> Vec<u32> {
        self.triggers.iter().map(|g| g.oid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn a_literal_ends_at_a_quote_that_is_none_of_a_pair() {
        assert_eq!(literal("a.b')"), "a.b");
        assert_eq!(literal("it''s'::regclass)"), "it''s");
        assert_eq!(literal("'''"), "''");
        assert_eq!(literal("open"), "open");
    }
}
