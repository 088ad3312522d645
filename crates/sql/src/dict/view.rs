//! Views, as they are stored.
//!
//! **Invariant.** What a view reads it knows by object ids and numbers of columns: its text names
//! relation `n` of [`View::sources`] as `"braid$view"."n"`, and their columns by the names that
//! they had when the view was made. So neither a rename nor a new column below changes it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::comments::Comment;
use super::role::FIRST_SUPERUSER;
use super::trigger::Trigger;
use super::{Column, OnCommit, Storing, Table, path};
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
    /// What WITH and WITH CHECK OPTION say, as `pg_class` shows it.
    #[serde(default)]
    pub options: Vec<(String, String)>,
    /// In the order of their names.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
}

/// Which new rows WITH CHECK OPTION refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckOption {
    /// Those that the view does not show.
    Local,
    /// Those that it or a view below it does not show.
    Cascaded,
}

fn first_superuser() -> u32 {
    FIRST_SUPERUSER
}

/// What the rows of a materialized view come from, beside the table that has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Materialized {
    /// As of [`View::query`].
    pub query: String,
    pub sources: Vec<Source>,
    /// It has rows, were it none: there was data to go with it.
    pub populated: bool,
}

impl Materialized {
    /// Whether its query reads a relation, or a column of it.
    pub fn reads(&self, oid: u32, column: Option<i16>) -> bool {
        reads(&self.sources, oid, column)
    }
}

fn reads(sources: &[Source], oid: u32, column: Option<i16>) -> bool {
    let mut sources = sources.iter();
    sources.any(|s| s.oid == oid && column.is_none_or(|c| s.used.contains(&c)))
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ViewColumn {
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
    /// SQL text of the default that new rows through the view have.
    #[serde(default)]
    pub default: Option<String>,
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

impl Table {
    /// The query of a materialized view as a view, for what writes it out.
    pub fn as_view(&self) -> Option<View> {
        let made = self.materialized.as_ref()?;
        let column = |c: &Column| ViewColumn {
            name: c.name.clone(),
            type_oid: c.type_oid,
            typmod: c.typmod,
            default: None,
            known: c.known,
        };
        Some(View {
            oid: self.oid,
            schema: self.schema,
            name: self.name.clone(),
            owner: self.owner,
            columns: self.columns.iter().map(column).collect(),
            query: made.query.clone(),
            sources: made.sources.clone(),
            comments: Vec::new(),
            options: Vec::new(),
            triggers: Vec::new(),
        })
    }

    /// What messages call it.
    pub fn word(&self) -> &'static str {
        match self.materialized {
            None => "table",
            Some(_) => "materialized view",
        }
    }
}

impl View {
    fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(option, _)| option == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn check_option(&self) -> Option<CheckOption> {
        self.option("check_option").map(|value| match value {
            "local" => CheckOption::Local,
            _ => CheckOption::Cascaded,
        })
    }

    /// Whether conditions that may tell of rows must not see those that the view leaves out.
    pub fn is_barrier(&self) -> bool {
        self.option("security_barrier").and_then(boolean) == Some(true)
    }

    /// Whether what it reads is read by the rights of who reads the view.
    pub fn is_invoker(&self) -> bool {
        self.option("security_invoker").and_then(boolean) == Some(true)
    }

    /// The view as a table of its columns, for what names columns and makes rows of them. The
    /// engine has no such table.
    pub fn as_table(self: &Arc<View>) -> Table {
        let column = |c: &ViewColumn| Column {
            name: c.name.clone(),
            type_oid: c.type_oid,
            typmod: c.typmod,
            known: c.known,
            not_null: false,
            default: c.default.clone(),
            identity: None,
            sequence: None,
            generated: false,
            dropped: false,
            missing: None,
            collation: None,
            storing: Storing::default(),
        };
        Table {
            oid: self.oid,
            schema: self.schema,
            name: self.name.clone(),
            columns: self.columns.iter().map(column).collect(),
            checks: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            triggers: self.triggers.clone(),
            row_security: false,
            force_row_security: false,
            unlogged: false,
            policies: Vec::new(),
            segment: 0,
            header: 0,
            options: Vec::new(),
            comments: Vec::new(),
            on_commit: OnCommit::Preserve,
            owner: self.owner,
            row_type: [0; 2],
            materialized: None,
            view: Some(self.clone()),
            def: None,
        }
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// Whether it reads a relation, or a column of it.
    pub fn reads(&self, oid: u32, column: Option<i16>) -> bool {
        reads(&self.sources, oid, column)
    }
}

/// A truth value as options have it: its word, or as much of it as no other word begins with.
pub fn boolean(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    match () {
        () if begins("true", 1) || begins("yes", 1) || value == "on" || value == "1" => Some(true),
        () if begins("false", 1) || begins("no", 1) || begins("off", 2) || value == "0" => {
            Some(false)
        }
        () => None,
    }
}
