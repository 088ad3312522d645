//! Comments, as definitions have them.

use serde::{Deserialize, Serialize};

use super::{Dict, Table, path};
use crate::views::describe;
use crate::views::extensions::{PLPGSQL, PLPGSQL_COMMENT};

/// Object ids of the catalogs that comments are on rows of.
pub const PG_PROC: u32 = 1255;
pub const PG_TRIGGER: u32 = 2620;
pub const PG_POLICY: u32 = 3256;
pub const PG_TYPE: u32 = 1247;
pub const PG_CLASS: u32 = 1259;
pub const PG_AUTHID: u32 = 1260;
pub const PG_CONSTRAINT: u32 = 2606;
pub const PG_NAMESPACE: u32 = 2615;
pub const PG_EXTENSION: u32 = 3079;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comment {
    pub on: CommentOn,
    pub text: String,
}

/// What of a table or view a comment is on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CommentOn {
    Relation,
    /// A column by its place, from 0.
    Column(usize),
    Index(u32),
    Constraint(String),
}

/// A row of `pg_description`: object, catalog, column, text.
pub type Described = (u32, u32, i32, String);

impl Table {
    /// Names of its constraints.
    pub fn constraint_names(&self) -> impl Iterator<Item = &str> {
        let keys = self.indexes.iter().filter(|i| i.constraint != 0);
        let keys = keys.map(|i| i.name.as_str());
        let checks = self.checks.iter().map(|c| c.name.as_str());
        let foreign = self.foreign_keys.iter().map(|k| k.name.as_str());
        keys.chain(checks).chain(foreign)
    }

    /// Lets go the comments on what it does not have any more, so that nothing new of the same name
    /// has them.
    pub(super) fn prune_comments(&mut self) {
        let mut comments = std::mem::take(&mut self.comments);
        comments.retain(|c| match &c.on {
            CommentOn::Relation => true,
            CommentOn::Column(at) => self.columns.get(*at).is_some_and(|c| !c.dropped),
            CommentOn::Index(oid) => self.indexes.iter().any(|i| i.oid == *oid),
            CommentOn::Constraint(name) => self.constraint_names().any(|n| n == name),
        });
        self.comments = comments;
    }

    fn described(&self, c: &Comment) -> Option<Described> {
        let text = c.text.clone();
        Some(match &c.on {
            CommentOn::Relation => (self.oid, PG_CLASS, 0, text),
            CommentOn::Column(at) => (self.oid, PG_CLASS, *at as i32 + 1, text),
            CommentOn::Index(oid) => (*oid, PG_CLASS, 0, text),
            CommentOn::Constraint(name) => {
                let key = self
                    .indexes
                    .iter()
                    .find(|i| i.constraint != 0 && i.name == *name);
                let check = self.checks.iter().position(|c| c.name == *name);
                let check = check.map(|at| describe::check_oid(self.oid, at));
                let foreign = self.foreign_keys.iter().find(|k| k.name == *name);
                let known = key.map(|i| i.constraint).or(check);
                let known = known.or(foreign.map(|k| k.oid))?;
                (known, PG_CONSTRAINT, 0, text)
            }
        })
    }
}

impl Dict {
    /// All comments of this database.
    pub fn descriptions(&self) -> Vec<Described> {
        let tables = self.tables();
        let mut all: Vec<Described> = tables
            .flat_map(|t| t.comments.iter().filter_map(|c| t.described(c)))
            .collect();
        let triggers = self.tables().flat_map(|t| &t.triggers);
        for t in triggers.chain(self.views().flat_map(|v| &v.triggers)) {
            all.extend(t.comment.clone().map(|c| (t.oid, PG_TRIGGER, 0, c)));
        }
        for p in self.tables().flat_map(|t| &t.policies) {
            all.extend(p.comment.clone().map(|c| (p.oid, PG_POLICY, 0, c)));
        }
        for f in self.functions() {
            all.extend(f.comment.clone().map(|c| (f.oid, PG_PROC, 0, c)));
        }
        for v in self.views() {
            all.extend(v.comments.iter().map(|c| {
                let column = match c.on {
                    CommentOn::Column(at) => at as i32 + 1,
                    _ => 0,
                };
                (v.oid, PG_CLASS, column, c.text.clone())
            }));
        }
        for e in self.extensions() {
            all.extend(e.comment.clone().map(|c| (e.oid, PG_EXTENSION, 0, c)));
        }
        let sequences = self.sequences();
        all.extend(sequences.filter_map(|s| Some((s.oid, PG_CLASS, 0, s.comment.clone()?))));
        let schemas = self.schemas();
        let types = self.user_types();
        all.extend(types.filter_map(|t| Some((t.oid, PG_TYPE, 0, t.comment.clone()?))));
        all.push((PLPGSQL, PG_EXTENSION, 0, PLPGSQL_COMMENT.into()));
        if self.schema_by_oid(path::PUBLIC).is_none()
            && let Some(comment) = self
                .changeable_schema(path::PUBLIC)
                .and_then(|s| s.comment.clone())
        {
            all.push((path::PUBLIC, PG_NAMESPACE, 0, comment));
        }
        all.extend(schemas.filter_map(|s| Some((s.oid, PG_NAMESPACE, 0, s.comment.clone()?))));
        all
    }

    /// The comment on an object, or on a column of it; `catalog`: of which kind it is, if that is
    /// known.
    pub fn description(&self, oid: u32, catalog: Option<u32>, column: i32) -> Option<String> {
        let all = self.descriptions().into_iter();
        let mut found = all.filter(|(object, class, sub, _)| {
            *object == oid && *sub == column && catalog.is_none_or(|c| c == *class)
        });
        found.next().map(|(_, _, _, text)| text)
    }

    /// The comment on a role.
    pub fn role_description(&self, oid: u32) -> Option<String> {
        self.role_by_oid(oid)?.comment.clone()
    }
}
