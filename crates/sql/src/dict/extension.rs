//! Extensions that were created, as they are stored.
//!
//! **Invariants.**
//! - What an extension has made names it ([`Function::extension`], [`UserType::extension`]), and is
//!   in its schema. It goes with the extension, and no other way.
//! - The number of an extension's library is its name: which of its functions are computed by
//!   which part of the program is known by [`crate::extensions`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::depend::{Address, Dependent};
use super::object::kind;
use super::{Dict, Function, Index, Object, UserType};
use crate::bind::names::quote;

/// The operator class of `pg_trgm` for GIN indexes.
pub const TRIGRAM_CLASS: &str = "gin_trgm_ops";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extension {
    pub oid: u32,
    pub name: String,
    /// Object id of the role that owns it.
    pub owner: u32,
    /// Object id of the schema that its functions and types are in.
    pub schema: u32,
    pub version: String,
    #[serde(default)]
    pub comment: Option<String>,
}

impl Dict {
    pub fn extensions(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.maps.of_kind(kind::EXTENSION).filter_map(|o| match o {
            Object::Extension(e) => Some(e),
            _ => None,
        })
    }

    pub fn extension(&self, name: &str) -> Option<&Arc<Extension>> {
        self.extensions().find(|e| e.name == name)
    }

    pub fn extension_by_oid(&self, oid: u32) -> Option<&Arc<Extension>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Extension(e) => Some(e),
            _ => None,
        }
    }

    /// The functions and the types that an extension has made.
    pub fn members_of_extension(&self, oid: u32) -> (Vec<Arc<Function>>, Vec<Arc<UserType>>) {
        let (mut functions, mut types) = (Vec::new(), Vec::new());
        for o in self.maps.needing(oid) {
            match o {
                Object::Function(f) if f.extension == Some(oid) => functions.push(f.clone()),
                Object::Type(t) if t.extension == Some(oid) => types.push(t.clone()),
                _ => {}
            }
        }
        (functions, types)
    }

    /// An operator class that an extension has, if the extension was created and the class can be
    /// had by this name.
    pub fn has_class(&self, schema: Option<&str>, class: &str) -> bool {
        let Some(extension) = self.extension_of_class(class) else {
            return false;
        };
        match schema {
            Some(schema) => self.schema_name(extension.schema) == schema,
            None => self.path.contains(&extension.schema),
        }
    }

    fn extension_of_class(&self, class: &str) -> Option<&Arc<Extension>> {
        match class {
            TRIGRAM_CLASS => self.extension("pg_trgm"),
            _ => None,
        }
    }

    /// The name of an operator class as it is written in SQL.
    pub fn shown_class(&self, class: &str) -> String {
        match self.extension_of_class(class) {
            Some(e) if !self.path.contains(&e.schema) => {
                format!("{}.{class}", quote(self.schema_name(e.schema)))
            }
            _ => class.to_string(),
        }
    }

    /// The operator class of an extension that an index has, as messages name it.
    pub fn describe_class(&self, table: u32, index: u32, extension: u32) -> Option<String> {
        let table = self.table_by_oid(table)?;
        let index = table.indexes.iter().find(|i| i.oid == index)?;
        let class = self.class_of(index, extension)?;
        let (class, method) = (self.shown_class(class), index.method.name());
        Some(format!("operator class {class} for access method {method}"))
    }

    fn class_of<'i>(&self, index: &'i Index, extension: u32) -> Option<&'i String> {
        let is_its = |class: &&String| {
            let extension_of = self.extension_of_class(class);
            extension_of.is_some_and(|e| e.oid == extension)
        };
        index.classes.iter().find(is_its)
    }

    /// The indexes that have an operator class of an extension.
    fn indexes_of_classes(&self, oid: u32) -> Vec<Address> {
        let all = self
            .tables()
            .flat_map(|t| t.indexes.iter().map(move |i| (t, i)));
        let all = all.filter(|(_, i)| self.class_of(i, oid).is_some());
        all.map(|(t, i)| Address::Index(t.oid, i.oid)).collect()
    }

    /// What goes with an extension, and what needs it.
    pub(super) fn extension_members(&self, oid: u32) -> Vec<Dependent> {
        let (functions, types) = self.members_of_extension(oid);
        let functions = functions.iter().map(|f| Address::Function(f.oid));
        let types = types.iter().map(|t| Address::Type(t.oid));
        let members = functions.chain(types);
        let members = members.map(|what| Dependent { what, auto: true });
        let indexes = self.indexes_of_classes(oid).into_iter();
        let indexes = indexes.map(|what| Dependent { what, auto: false });
        members.chain(indexes).collect()
    }
}
