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
use super::{Dict, Function, Object, UserType};

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

    /// What goes with an extension.
    pub(super) fn extension_members(&self, oid: u32) -> Vec<Dependent> {
        let (functions, types) = self.members_of_extension(oid);
        let functions = functions.iter().map(|f| Address::Function(f.oid));
        let types = types.iter().map(|t| Address::Type(t.oid));
        let all = functions.chain(types);
        all.map(|what| Dependent { what, auto: true }).collect()
    }
}
