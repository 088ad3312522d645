//! Types that users make, as they are stored, and what a number of a type means.
//!
//! **Invariant.** A column knows its type, not only the number: [`Dict`] gives the tables and views
//! whose columns are of a type the type's newest state, as other definitions, so that plans made
//! with an older state are not used any more.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::composite::Composite;
use super::domain::Domain;
use super::object::kind;
use super::path::{NameRef, PUBLIC};
use super::range::Range;
use super::{Change, Dict, Object, Table, View};
use crate::bind::names::quote;
use crate::types::SqlType;
use crate::types::enums::{EnumDef, EnumType};
use crate::types::own::{Kind, OwnDef, OwnType};

/// An enum, a composite type, a domain, or a type of ranges or multiranges.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserType {
    pub oid: u32,
    /// Of its arrays.
    pub array_oid: u32,
    pub schema: u32,
    pub name: String,
    pub owner: u32,
    #[serde(default)]
    pub comment: Option<String>,
    /// Of an enum, in their order.
    pub labels: Vec<Label>,
    /// Of a domain, which has no labels.
    #[serde(default)]
    pub domain: Option<Domain>,
    #[serde(default)]
    pub composite: Option<Composite>,
    #[serde(default)]
    pub range: Option<Range>,
    /// Of a type of multiranges: the number of that of the ranges.
    #[serde(default)]
    pub multirange_of: Option<u32>,
    /// Of a type that an extension brings: what the program knows it as.
    #[serde(default)]
    pub own: Option<Kind>,
    /// The extension that has made it.
    #[serde(default)]
    pub extension: Option<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Label {
    pub oid: u32,
    pub name: String,
    /// What is stored for it: see [`crate::types::enums`].
    pub position: i64,
    /// PostgreSQL's number of its place, which only `pg_enum` shows.
    pub sort: f32,
}

impl UserType {
    pub fn label(&self, name: &str) -> Option<usize> {
        self.labels.iter().position(|l| l.name == name)
    }

    /// The catalog's name of its arrays.
    pub fn array_name(&self) -> String {
        format!("_{}", self.name)
    }

    /// As messages have it.
    pub(super) fn shown_name(&self, schema: &str) -> String {
        match self.schema {
            PUBLIC => quote(&self.name),
            _ => format!("{}.{}", quote(schema), quote(&self.name)),
        }
    }

    fn own_state(&self, kind: Kind, name: String) -> OwnType {
        OwnType::of(OwnDef {
            oid: self.oid,
            array_oid: self.array_oid,
            kind,
            names: [name.clone(), format!("{name}[]")],
            internal_names: [self.name.clone(), self.array_name()],
        })
    }

    fn state(&self, name: String) -> EnumType {
        let labels = self.labels.iter();
        EnumType::of(EnumDef {
            oid: self.oid,
            array_oid: self.array_oid,
            names: [name.clone(), format!("{name}[]")],
            internal_names: [self.name.clone(), self.array_name()],
            labels: labels.map(|l| (l.position, l.name.clone())).collect(),
        })
    }
}

impl Dict {
    /// The type of a number, which may be that of its arrays.
    pub fn user_type_by_oid(&self, oid: u32) -> Option<&Arc<UserType>> {
        let key = self.maps.types.get(&oid)?;
        match &self.maps.entries.get(key)?.object {
            Object::Type(t) => Some(t),
            _ => None,
        }
    }

    /// The type of a name: the first on the path, if the name has no schema.
    pub fn user_type<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<&Arc<UserType>> {
        let NameRef { schema, name } = name.into();
        match schema {
            Some(schema) => self.type_in(self.schema(schema)?, name),
            None => self.path.iter().find_map(|s| self.type_in(*s, name)),
        }
    }

    pub fn type_in(&self, schema: u32, name: &str) -> Option<&Arc<UserType>> {
        let key = self.maps.type_names.get(&schema)?.get(name)?;
        match &self.maps.entries.get(key)?.object {
            Object::Type(t) => Some(t),
            _ => None,
        }
    }

    pub fn user_types(&self) -> impl Iterator<Item = &Arc<UserType>> {
        self.maps.of_kind(kind::TYPE).filter_map(|o| match o {
            Object::Type(t) => Some(t),
            _ => None,
        })
    }

    /// What a number of a type means now.
    pub fn type_of(&self, oid: u32) -> Option<SqlType> {
        SqlType::from_oid(oid).or_else(|| {
            if let Some(table) = self.table_of_row_type(oid) {
                let ty = SqlType::Composite(self.row_state(table));
                return match oid == table.row_type[0] {
                    true => Some(ty),
                    false => ty.array(),
                };
            }
            let t = self.user_type_by_oid(oid)?;
            let name = t.shown_name(self.schema_name(t.schema));
            let ty = match (&t.domain, &t.composite) {
                _ if let Some(kind) = t.own => SqlType::Own(t.own_state(kind, name)),
                _ if t.range.is_some() => SqlType::Range(self.range_state(t)?),
                _ if t.multirange_of.is_some() => SqlType::Multirange(self.range_state(t)?),
                (Some(domain), _) => self.domain_state(t, domain, &name)?,
                (None, Some(c)) => SqlType::Composite(self.composite_state(t, c, name)?),
                (None, None) => SqlType::Enum(t.state(name)),
            };
            match oid == t.oid {
                true => Some(ty),
                false => ty.array(),
            }
        })
    }

    /// A type's name, with its schema if the path does not lead to it.
    pub fn shown_type(&self, t: &UserType) -> String {
        match self.is_type_visible(t) {
            true => quote(&t.name),
            false => self.full_name(t.schema, &t.name),
        }
    }

    pub fn is_type_visible(&self, t: &UserType) -> bool {
        let found = self.user_type(t.name.as_str());
        found.is_some_and(|found| found.oid == t.oid)
    }

    /// What `format_type` says of a type that a user made.
    pub fn user_type_name(&self, oid: u32) -> Option<String> {
        if let Some(table) = self.table_of_row_type(oid) {
            let name = self.shown(table.schema, &table.name);
            return Some(match oid == table.row_type[0] {
                true => name,
                false => format!("{name}[]"),
            });
        }
        let t = self.user_type_by_oid(oid)?;
        let name = self.shown_type(t);
        Some(match oid == t.oid {
            true => name,
            false => format!("{name}[]"),
        })
    }

    /// Gives columns the newest state of their types, after these changes.
    pub(super) fn retype(&mut self, changes: &[Change]) {
        let is_table =
            |c: &Change| matches!(c.entry.as_ref().map(|e| &e.object), Some(Object::Table(_)));
        if self.maps.types.is_empty() && !changes.iter().any(is_table) {
            return;
        }
        let mut touched: HashSet<u32> = HashSet::new();
        for change in changes {
            match change.entry.as_ref().map(|e| &e.object) {
                Some(Object::Type(t)) => touched.extend([t.oid, t.array_oid]),
                Some(Object::Table(t)) => {
                    let mut numbers = t.row_type.iter();
                    if numbers.any(|oid| self.maps.needing(*oid).next().is_some()) {
                        touched.extend(t.row_type);
                    }
                }
                // The names of its types are others.
                Some(Object::Schema(s)) => {
                    let own = self.user_types().filter(|t| t.schema == s.oid);
                    touched.extend(own.flat_map(|t| [t.oid, t.array_oid]));
                }
                _ => {}
            }
        }
        let mut keys: BTreeSet<i64> = changes.iter().map(|c| c.key).collect();
        // What is of a domain has the state of what the domain is over, and a row those of its
        // fields.
        let own: Vec<u32> = touched.iter().copied().collect();
        let with = own.iter().flat_map(|oid| self.types_with(*oid));
        let with: Vec<u32> = with.chain(own.iter().copied()).collect();
        let domains = with.iter().flat_map(|oid| self.domains_over(*oid));
        let over: Vec<u32> = domains.chain(with.iter().copied()).collect();
        for t in over
            .into_iter()
            .filter_map(|oid| self.user_type_by_oid(oid))
        {
            touched.extend([t.oid, t.array_oid]);
        }
        for oid in touched {
            keys.extend(self.maps.needing(oid).map(Object::key));
        }
        let retyped: Vec<(i64, Object)> = keys
            .into_iter()
            .filter_map(|key| Some((key, self.retyped(&self.maps.entries.get(&key)?.object)?)))
            .collect();
        let maps = Arc::make_mut(&mut self.maps);
        for (key, object) in retyped {
            maps.restate(key, object);
        }
    }

    /// A definition with its columns' types of now, if it has others.
    fn retyped(&self, object: &Object) -> Option<Object> {
        let now = |oid: u32, known: Option<SqlType>| -> Option<SqlType> {
            let made = self.maps.types.contains_key(&oid);
            let ty = made.then(|| self.type_of(oid)).flatten()?;
            (!known.is_some_and(|known| known.is_state(ty))).then_some(ty)
        };
        match object {
            Object::Table(t) if t.columns.iter().any(|c| now(c.type_oid, c.known).is_some()) => {
                let mut next = Table::clone(t);
                for c in &mut next.columns {
                    c.known = now(c.type_oid, c.known).or(c.known);
                }
                Some(Object::Table(Arc::new(next)))
            }
            Object::Function(f) => {
                let next = f.retyped(&|oid| self.type_of(oid));
                next.map(|next| Object::Function(Arc::new(next)))
            }
            Object::View(v) if v.columns.iter().any(|c| now(c.type_oid, c.known).is_some()) => {
                let mut next = View::clone(v);
                for c in &mut next.columns {
                    c.known = now(c.type_oid, c.known).or(c.known);
                }
                Some(Object::View(Arc::new(next)))
            }
            _ => None,
        }
    }
}

impl Object {
    /// Whether its columns are of the same states of types.
    pub(super) fn has_types_of(&self, other: &Object) -> bool {
        let same = |a: Option<SqlType>, b: Option<SqlType>| match (a, b) {
            (Some(a), Some(b)) => a.is_state(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        match (self, other) {
            (Object::Table(a), Object::Table(b)) => {
                let mut both = a.columns.iter().zip(&b.columns);
                both.all(|(a, b)| same(a.known, b.known))
            }
            (Object::View(a), Object::View(b)) => {
                let mut both = a.columns.iter().zip(&b.columns);
                both.all(|(a, b)| same(a.known, b.known))
            }
            (Object::Function(a), Object::Function(b)) => a.has_types_of(b),
            _ => true,
        }
    }
}
