//! Triggers, as they are stored: with their table's definition, in the order of their names.

use serde::{Deserialize, Serialize};

use super::{Dict, Table};
use crate::bind::names::quote;
use crate::bind::numbered::Shown;
use crate::exec::events::Cause;
use crate::views::definition;

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

/// What a constraint trigger has that others have not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Constraint {
    /// Object id of the constraint.
    pub oid: u32,
    pub deferrable: bool,
    pub initially_deferred: bool,
    /// Object id of the table that FROM names; zero: none.
    pub from: u32,
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
    /// UPDATE OF: the places of the columns; empty: of any.
    #[serde(default)]
    pub columns: Vec<usize>,
    /// The name by which its function reads the rows of the statement as they were.
    #[serde(default)]
    pub old_table: Option<String>,
    /// The name by which its function reads the rows of the statement as they are now.
    #[serde(default)]
    pub new_table: Option<String>,
    /// Set of a constraint trigger.
    #[serde(default)]
    pub constraint: Option<Constraint>,
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
    /// Whether it is fired, when it is one of these.
    fn is_one(&self, op: Op, before: bool, row: bool) -> bool {
        matches!(self.enabled, 'O' | 'A')
            && !self.instead
            && self.before == before
            && self.row == row
            && self.ops.contains(&op)
    }

    pub fn is_fired(&self, cause: Cause<'_>, before: bool, row: bool) -> bool {
        self.is_one(cause.op, before, row)
            && (cause.op != Op::Update
                || self.columns.is_empty()
                || self.columns.iter().any(|c| cause.columns.contains(c)))
    }

    /// Whether its function reads rows of the statement.
    pub fn has_transitions(&self) -> bool {
        self.old_table.is_some() || self.new_table.is_some()
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

    /// What `pg_get_triggerdef` says; if it is to be pretty, with the schema of the table only
    /// where the path does not lead to it.
    pub fn definition(&self, dict: &Dict, table: &Table, pretty: bool) -> String {
        let ops: Vec<String> = self
            .ops
            .iter()
            .map(|op| self.operation(*op, table))
            .collect();
        let when = match &self.when {
            Some(when) => {
                let how = Shown::AsNow(dict);
                let when = definition::condition_of_rows(how, table, when, pretty);
                format!(" WHEN ({when})")
            }
            None => String::new(),
        };
        let arguments = self.arguments.iter();
        let arguments = arguments.map(|a| format!("'{}'", a.replace('\'', "''")));
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let runs = |function: String| format!("EXECUTE FUNCTION {function}({arguments})");
        let runs = match dict.function_by_oid(self.function) {
            Some(f) if f.trigger_of.is_some() => format!("DO {}", in_dollars(&f.body)),
            Some(f) if crate::views::is_function_visible(dict, f) => runs(quote(&f.name)),
            Some(f) => runs(dict.full_name(f.schema, &f.name)),
            None => runs(self.function.to_string()),
        };
        format!(
            "CREATE {}TRIGGER {} {} {} ON {}{}{} FOR EACH {}{when} {runs}",
            if self.constraint.is_some() {
                "CONSTRAINT "
            } else {
                ""
            },
            quote(&self.name),
            self.timing(),
            ops.join(" OR "),
            match pretty {
                true => dict.shown(table.schema, &table.name),
                false => dict.full_name(table.schema, &table.name),
            },
            self.characteristics(dict),
            self.referencing(),
            if self.row { "ROW" } else { "STATEMENT" },
        )
    }

    fn operation(&self, op: Op, table: &Table) -> String {
        match op == Op::Update && !self.columns.is_empty() {
            true => {
                let names = self.columns.iter().map(|c| quote(&table.columns[*c].name));
                format!("UPDATE OF {}", names.collect::<Vec<_>>().join(", "))
            }
            false => op.name().to_string(),
        }
    }

    /// What a definition says of a constraint.
    fn characteristics(&self, dict: &Dict) -> String {
        let Some(constraint) = &self.constraint else {
            return String::new();
        };
        let from = match dict.table_by_oid(constraint.from) {
            Some(from) => format!(" FROM {}", dict.shown(from.schema, &from.name)),
            None => String::new(),
        };
        let not = if constraint.deferrable { "" } else { "NOT " };
        let initially = match constraint.initially_deferred {
            true => "DEFERRED",
            false => "IMMEDIATE",
        };
        format!("{from} {not}DEFERRABLE INITIALLY {initially}")
    }

    fn referencing(&self) -> String {
        if !self.has_transitions() {
            return String::new();
        }
        let table = |word: &str, name: &Option<String>| {
            let name = name.as_ref();
            name.map_or(String::new(), |name| {
                format!(" {word} TABLE AS {}", quote(name))
            })
        };
        let (old, new) = (table("OLD", &self.old_table), table("NEW", &self.new_table));
        format!(" REFERENCING{old}{new}")
    }
}

/// A text in dollar quotes, of a name that the text does not have.
fn in_dollars(text: &str) -> String {
    let mut quote = "$body$".to_string();
    while text.contains(&quote) {
        quote.insert(1, '_');
    }
    format!("{quote}{text}{quote}")
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
        self.triggers.iter().any(|t| t.is_one(op, before, row))
    }

    /// Whether the rows of such a statement are kept for its triggers.
    pub fn has_transitions(&self, op: Op) -> bool {
        let mut triggers = self.triggers.iter();
        triggers.any(|t| t.has_transitions() && t.is_one(op, false, t.row))
    }
}
