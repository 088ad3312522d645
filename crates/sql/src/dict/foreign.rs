//! Foreign keys, as stored with the referencing table. Which tables reference a table is known to
//! [`super::Dict`], which derives it; so a definition never names one that is gone.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Object id of the constraint.
    pub oid: u32,
    pub name: String,
    /// Columns of the table that has the key.
    pub columns: Vec<usize>,
    /// Object id of the referenced table.
    pub parent: u32,
    /// Its columns, in the order of `columns`.
    pub parent_columns: Vec<usize>,
    /// Object id of the unique index over them.
    pub index: u32,
    pub on_delete: Action,
    pub on_update: Action,
    /// Columns that ON DELETE SET NULL or SET DEFAULT sets; none: all of the key.
    #[serde(default)]
    pub set_on_delete: Vec<usize>,
    /// MATCH FULL: all columns are NULL, or none is.
    #[serde(default)]
    pub full: bool,
    #[serde(default)]
    pub deferrable: bool,
    #[serde(default)]
    pub initially_deferred: bool,
    /// False after NOT VALID: rows that were there before are not known to meet it.
    pub validated: bool,
}

/// What happens to rows whose referenced row is deleted, or gets another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Action {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

impl Action {
    /// Its letter in `pg_constraint`.
    pub fn letter(self) -> &'static str {
        match self {
            Action::NoAction => "a",
            Action::Restrict => "r",
            Action::Cascade => "c",
            Action::SetNull => "n",
            Action::SetDefault => "d",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Action::NoAction => "NO ACTION",
            Action::Restrict => "RESTRICT",
            Action::Cascade => "CASCADE",
            Action::SetNull => "SET NULL",
            Action::SetDefault => "SET DEFAULT",
        }
    }
}
