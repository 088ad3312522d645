//! Triggers, as they are stored: with their table's definition, in the order of their names.

use serde::{Deserialize, Serialize};

use super::{Dict, Table};
use crate::bind::names::quote;

/// What is done to rows, or to a whole table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    Insert,
    Update,
    Delete,
    Truncate,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Insert => "INSERT",
            Op::Update => "UPDATE",
            Op::Delete => "DELETE",
            Op::Truncate => "TRUNCATE",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trigger {
    pub oid: u32,
    pub name: String,
    /// Object id of its function.
    pub function: u32,
    pub before: bool,
    /// INSTEAD OF, of a view; then it is neither before nor after.
    #[serde(default)]
    pub instead: bool,
    /// For each row, or else for the statement.
    pub row: bool,
    pub ops: Vec<Op>,
    /// SQL text of WHEN.
    #[serde(default)]
    pub when: Option<String>,
    #[serde(default)]
    pub arguments: Vec<String>,
    /// `O`, `D`, `A` or `R`, as PostgreSQL has it; what is `D` or `R` is not fired.
    pub enabled: char,
    #[serde(default)]
    pub comment: Option<String>,
}

impl Trigger {
    pub fn is_fired(&self, op: Op, before: bool, row: bool) -> bool {
        matches!(self.enabled, 'O' | 'A')
            && !self.instead
            && self.before == before
            && self.row == row
            && self.ops.contains(&op)
    }

    /// Whether it is fired in the place of a write to its view.
    pub fn is_instead(&self, op: Op) -> bool {
        self.instead && self.ops.contains(&op)
    }

    /// When it is fired, as definitions have it.
    pub fn timing(&self) -> &'static str {
        match (self.instead, self.before) {
            (true, _) => "INSTEAD OF",
            (false, true) => "BEFORE",
            (false, false) => "AFTER",
        }
    }

    /// What `pg_get_triggerdef` says.
    pub fn definition(&self, dict: &Dict, table: &Table) -> String {
        let ops: Vec<&str> = self.ops.iter().map(|op| op.name()).collect();
        let when = match &self.when {
            Some(when) => format!(" WHEN (({when}))"),
            None => String::new(),
        };
        let function = match dict.function_by_oid(self.function) {
            Some(f) if crate::views::is_function_visible(dict, f) => quote(&f.name),
            Some(f) => dict.full_name(f.schema, &f.name),
            None => self.function.to_string(),
        };
        let arguments = self.arguments.iter();
        let arguments = arguments.map(|a| format!("'{}'", a.replace('\'', "''")));
        format!(
            "CREATE TRIGGER {} {} {} ON {} FOR EACH {}{when} EXECUTE FUNCTION {function}({})",
            quote(&self.name),
            self.timing(),
            ops.join(" OR "),
            dict.full_name(table.schema, &table.name),
            if self.row { "ROW" } else { "STATEMENT" },
            arguments.collect::<Vec<_>>().join(", "),
        )
    }
}

impl Table {
    pub fn trigger(&self, name: &str) -> Option<usize> {
        self.triggers.iter().position(|t| t.name == name)
    }

    /// Whether triggers do such a write in the place of the view that it is to.
    pub fn has_instead(&self, op: Op) -> bool {
        self.triggers.iter().any(|t| t.is_instead(op))
    }

    /// Whether such triggers are fired.
    pub fn has_triggers(&self, op: Op, before: bool, row: bool) -> bool {
        self.triggers.iter().any(|t| t.is_fired(op, before, row))
    }
}
