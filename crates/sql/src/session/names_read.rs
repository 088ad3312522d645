//! What the names of a statement meant when it was planned, so that it is seen when they mean
//! something else: another schema comes first on the search path, or has a table of the name now.

use std::sync::Arc;

use sqlparser::ast;

use crate::bind::sight::Sight;
use crate::dict::cast::Cast;
use crate::dict::{Dict, Function, NameRef};
use crate::parse::mentioned;
use crate::types::SqlType;

#[derive(Clone)]
pub struct NamesRead {
    /// The schemas in which they were looked up.
    pub path: Arc<[u32]>,
    /// Names without a schema, and the entry of the dictionary that each was found in. That of a
    /// WITH query may be among them: then a table of its name has no effect but another planning.
    found: Vec<(String, Option<i64>)>,
    /// The functions of users that it calls.
    functions: Vec<Arc<Function>>,
    /// The types of which it makes values, and which can change: domains and rows.
    types: Vec<SqlType>,
    /// All casts of users that there are: another one may convert what it converts.
    casts: Vec<Arc<Cast>>,
}

impl NamesRead {
    pub fn none(dict: &Dict) -> NamesRead {
        NamesRead {
            path: dict.path().clone(),
            found: Vec::new(),
            functions: Vec::new(),
            types: Vec::new(),
            casts: dict.casts().cloned().collect(),
        }
    }

    pub fn of(statement: &ast::Statement, dict: &Dict) -> NamesRead {
        let names = mentioned::tables(statement).into_iter();
        let names = names.filter(|(name, _)| name.schema.is_none());
        let found = names.map(|(name, _)| {
            let key = dict.key_in(dict.path(), NameRef::from(&name.name));
            (name.name, key)
        });
        NamesRead {
            found: found.collect(),
            functions: Vec::new(),
            types: Vec::new(),
            casts: dict.casts().cloned().collect(),
            path: dict.path().clone(),
        }
    }

    /// Adds the functions that are called and the types, as the analysis has found them.
    pub fn using(self, sight: &Sight) -> NamesRead {
        NamesRead {
            functions: sight.called(),
            types: sight.types(),
            ..self
        }
    }

    pub fn called(&self) -> &[Arc<Function>] {
        &self.functions
    }

    /// Whether it calls functions of users, or makes values of types that can change.
    pub fn uses_definitions(&self) -> bool {
        !self.functions.is_empty() || !self.types.is_empty()
    }

    /// Whether they mean the same in another picture of the dictionary, through the same path.
    pub fn are_same(&self, dict: &Dict) -> bool {
        let mut found = self.found.iter();
        let mut functions = self.functions.iter();
        let mut types = self.types.iter();
        let mut casts = self.casts.iter();
        found.all(|(name, key)| dict.key_in(&self.path, NameRef::from(name)) == *key)
            && functions.all(|f| {
                let now = dict.function_by_oid(f.oid);
                now.is_some_and(|now| Arc::ptr_eq(now, f))
            })
            && dict
                .casts()
                .all(|now| casts.next().is_some_and(|c| Arc::ptr_eq(now, c)))
            && casts.next().is_none()
            && types.all(|ty| dict.type_of(ty.oid()).is_some_and(|now| now.is_state(*ty)))
    }
}
