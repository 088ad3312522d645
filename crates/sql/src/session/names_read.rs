//! What the names of a statement meant when it was planned, so that it is seen when they mean
//! something else: another schema comes first on the search path, or has a table of the name now.

use std::sync::Arc;

use sqlparser::ast;

use crate::dict::{Dict, NameRef};
use crate::parse::mentioned;

#[derive(Clone)]
pub struct NamesRead {
    /// The schemas in which they were looked up.
    pub path: Arc<[u32]>,
    /// Names without a schema, and the entry of the dictionary that each was found in. That of a
    /// WITH query may be among them: then a table of its name has no effect but another planning.
    found: Vec<(String, Option<i64>)>,
}

impl NamesRead {
    pub fn none(dict: &Dict) -> NamesRead {
        NamesRead {
            path: dict.path().clone(),
            found: Vec::new(),
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
            path: dict.path().clone(),
        }
    }

    /// Whether they mean the same in another picture of the dictionary, through the same path.
    pub fn are_same(&self, dict: &Dict) -> bool {
        let found = self.found.iter();
        found
            .into_iter()
            .all(|(name, key)| dict.key_in(&self.path, NameRef::from(name)) == *key)
    }
}
