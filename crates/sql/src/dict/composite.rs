//! Composite types that users make: what is stored of them, and their state as a type of values.
//!
//! **Invariant.** The rows of tables have as many fields as their type had when it was made: what
//! would change that is refused while a column is of the type ([`crate::ddl::composite`]).

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::path::PUBLIC;
use super::{Column, Dict, Object, Table, UserType};
use crate::bind::names::quote;
use crate::types::SqlType;
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

/// Object ids of tables or types, with the places of columns or attributes in them.
type Places = Vec<(u32, usize)>;

impl Dict {
    /// The state of a composite type. `None`: a field's type is not there.
    pub(super) fn composite_state(
        &self,
        t: &UserType,
        composite: &Composite,
        name: String,
    ) -> Option<CompositeType> {
        let fields = composite.attributes.iter().map(|a| {
            let declared = self.type_of(a.type_oid)?;
            Some(Field {
                name: a.name.clone(),
                ty: declared.base(),
                typmod: a.typmod,
                declared,
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

    /// The table of whose rows, or of whose arrays, that is the number of the type.
    pub fn table_of_row_type(&self, oid: u32) -> Option<&Arc<Table>> {
        let key = self.maps.types.get(&oid)?;
        match &self.maps.entries.get(key)?.object {
            Object::Table(t) => Some(t),
            _ => None,
        }
    }

    /// The type of a table's rows.
    pub fn row_state(&self, table: &Table) -> CompositeType {
        let field = |(_, c): (usize, &Column)| Field::new(c.name.clone(), c.ty(), c.typmod);
        let name = match table.schema {
            PUBLIC => quote(&table.name),
            schema => self.full_name(schema, &table.name),
        };
        CompositeType::of(CompositeDef {
            oid: table.row_type[0],
            array_oid: table.row_type[1],
            names: [name.clone(), format!("{name}[]")],
            internal_names: [table.name.clone(), format!("_{}", table.name)],
            fields: Some(table.live_columns().map(field).collect()),
        })
    }

    /// The type of a table's rows, if it has these fields.
    pub fn row_type_of(
        &self,
        table: u32,
        fields: &[(String, SqlType, i32)],
    ) -> Option<CompositeType> {
        let table = self.table_by_oid(table).filter(|t| t.row_type[0] != 0)?;
        let ty = self.row_state(table);
        let own = ty.fields()?;
        let same = |(f, (name, ty, typmod)): (&Field, &(String, SqlType, i32))| {
            f.name == *name && f.ty == *ty && f.typmod == *typmod
        };
        (own.len() == fields.len() && own.iter().zip(fields).all(same)).then_some(ty)
    }

    /// Columns and attributes that have rows of a table in them: table or type, and the place.
    pub fn uses_of_rows(&self, table: &Table) -> (Places, Places) {
        match table.row_type {
            [0, _] => Default::default(),
            numbers => (
                self.columns_of_numbers(&numbers),
                self.attributes_of_numbers(&numbers),
            ),
        }
    }

    /// Composite types that have a field of a type, or of arrays of it: the type and the place.
    pub fn attributes_of_type(&self, oid: u32) -> Vec<(u32, usize)> {
        let Some(ty) = self.user_type_by_oid(oid) else {
            return Vec::new();
        };
        self.attributes_of_numbers(&[ty.oid, ty.array_oid])
    }

    fn attributes_of_numbers(&self, numbers: &[u32]) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        for t in self.user_types() {
            let attributes = t.composite.iter().flat_map(|c| &c.attributes).enumerate();
            let of_it = attributes.filter(|(_, a)| numbers.contains(&a.type_oid));
            found.extend(of_it.map(|(at, _)| (t.oid, at)));
        }
        found
    }

    /// A type, and all composite types, domains and ranges that have values of it, however deep.
    pub fn types_with(&self, oid: u32) -> HashSet<u32> {
        let mut found = HashSet::from([oid]);
        let mut open = vec![oid];
        while let Some(next) = open.pop() {
            let rows = self.attributes_of_type(next).into_iter();
            let rows = rows.map(|(ty, _)| ty);
            let others = self.domains_over(next).into_iter();
            for ty in rows.chain(others).chain(self.ranges_over(next)) {
                if found.insert(ty) {
                    open.push(ty);
                }
            }
        }
        found
    }

    /// The composite type whose number in `pg_class` that is.
    pub fn composite_of_relation(&self, relation: u32) -> Option<&UserType> {
        let is_it =
            |t: &&Arc<UserType>| t.composite.as_ref().is_some_and(|c| c.relation == relation);
        self.user_types().find(is_it).map(|t| &**t)
    }
}
