//! Views, as they are stored.
//!
//! **Invariant.** What a view reads it knows by object ids and numbers of columns: its text names
//! relation `n` of [`View::sources`] as `"braid$view"."n"`, and their columns by the names that
//! they had when the view was made. So neither a rename nor a new column below changes it.

use serde::{Deserialize, Serialize};

use super::comments::Comment;
use super::path;
use super::role::FIRST_SUPERUSER;
use crate::types::SqlType;

/// The schema under which a view's text names its relations. No user can have one of that name.
pub const SOURCES: &str = "braid$view";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    pub oid: u32,
    #[serde(default = "path::public")]
    pub schema: u32,
    pub name: String,
    #[serde(default = "first_superuser")]
    pub owner: u32,
    pub columns: Vec<ViewColumn>,
    /// Its query, in the text of the invariant.
    pub query: String,
    pub sources: Vec<Source>,
    #[serde(default)]
    pub comments: Vec<Comment>,
}

fn first_superuser() -> u32 {
    FIRST_SUPERUSER
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ViewColumn {
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
    /// As of [`super::Column::known`].
    #[serde(skip)]
    pub known: Option<SqlType>,
}

/// A relation that a view reads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Source {
    pub oid: u32,
    /// The columns that it had: number, from 1, and name.
    pub columns: Vec<(i16, String)>,
    /// The numbers of those that the view uses.
    pub used: Vec<i16>,
}

impl ViewColumn {
    pub fn ty(&self) -> SqlType {
        (self.known.or_else(|| SqlType::from_oid(self.type_oid))).unwrap_or(SqlType::Text)
    }
}

impl View {
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// Whether it reads a relation, or a column of it.
    pub fn reads(&self, oid: u32, column: Option<i16>) -> bool {
        self.sources
            .iter()
            .any(|s| s.oid == oid && column.is_none_or(|c| s.used.contains(&c)))
    }
}
