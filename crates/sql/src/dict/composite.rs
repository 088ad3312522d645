//! Composite types that users make: what is stored of them, and their state as a type of values.
//!
//! **Invariant.** The rows of tables have as many fields as their type had when it was made: what
//! would change that is refused while a column is of the type ([`crate::ddl::composite`]).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{Dict, UserType};
use crate::types::composite::{CompositeDef, CompositeType, Field};

/// A field of a composite type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribute {
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
}

/// What a composite type has besides what all types have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Composite {
    /// The number that `pg_class` has for it.
    pub relation: u32,
    pub attributes: Vec<Attribute>,
}

impl Dict {
    /// The state of a composite type. `None`: a field's type is not there.
    pub(super) fn composite_state(
        &self,
        t: &UserType,
        composite: &Composite,
        name: String,
    ) -> Option<CompositeType> {
        let fields = composite.attributes.iter().map(|a| {
            Some(Field {
                name: a.name.clone(),
                ty: self.type_of(a.type_oid)?,
                typmod: a.typmod,
            })
        });
        Some(CompositeType::of(CompositeDef {
            oid: t.oid,
            array_oid: t.array_oid,
            names: [name.clone(), format!("{name}[]")],
            internal_names: [t.name.clone(), t.array_name()],
            fields: Some(fields.collect::<Option<_>>()?),
        }))
    }

    /// Composite types that have a field of a type, or of arrays of it: the type and the place.
    pub fn attributes_of_type(&self, oid: u32) -> Vec<(u32, usize)> {
        let Some(ty) = self.user_type_by_oid(oid) else {
            return Vec::new();
        };
        let numbers = [ty.oid, ty.array_oid];
        let mut found = Vec::new();
        for t in self.user_types() {
            let attributes = t.composite.iter().flat_map(|c| &c.attributes).enumerate();
            let of_it = attributes.filter(|(_, a)| numbers.contains(&a.type_oid));
            found.extend(of_it.map(|(at, _)| (t.oid, at)));
        }
        found
    }

    /// A type, and all composite types that have values of it, however deep.
    pub fn types_with(&self, oid: u32) -> HashSet<u32> {
        let mut found = HashSet::from([oid]);
        let mut open = vec![oid];
        while let Some(next) = open.pop() {
            for (ty, _) in self.attributes_of_type(next) {
                if found.insert(ty) {
                    open.push(ty);
                }
            }
        }
        found
    }

    /// The composite type whose number in `pg_class` that is.
    pub fn composite_of_relation(&self, relation: u32) -> Option<&UserType> {
        let is_it = |t: &&std::sync::Arc<UserType>| {
            t.composite.as_ref().is_some_and(|c| c.relation == relation)
        };
        self.user_types().find(is_it).map(|t| &**t)
    }
}
