//! Definitions of foreign keys, and what else their tables' definitions may not lose.

use std::sync::Arc;

use sqlparser::ast::{
    ConstraintReferenceMatchKind, ForeignKeyConstraint, Ident, ReferentialAction,
};

use super::index::characteristics;
use super::{Core, name_of, no_relation};
use crate::bind::names::{self, Qualified};
use crate::dict::{Action, DefaultName, Dict, ForeignKey, Index, OnCommit, Table};
use crate::error::{Error, Result};
use crate::exec::{foreign, meeting::Pair};
use crate::parse::constraints::Clauses;
use crate::parse::utility::TableLock;

/// A foreign key while its statement is read.
pub struct NewKey<'a> {
    pub name: Option<String>,
    pub columns: Vec<usize>,
    pub syntax: &'a ForeignKeyConstraint,
    pub not_valid: bool,
    clauses: Clauses,
}

impl<'a> NewKey<'a> {
    /// Of a column's definition.
    pub fn of_column(
        name: Option<String>,
        column: usize,
        syntax: &'a ForeignKeyConstraint,
        clauses: Clauses,
    ) -> NewKey<'a> {
        NewKey {
            name,
            columns: vec![column],
            syntax,
            not_valid: false,
            clauses,
        }
    }

    /// Of a table's constraint.
    pub fn of_table(
        table: &Table,
        syntax: &'a ForeignKeyConstraint,
        not_valid: bool,
    ) -> Result<NewKey<'a>> {
        Ok(NewKey {
            name: syntax.name.as_ref().map(names::ident),
            columns: columns_of(table, &syntax.columns)?,
            syntax,
            not_valid,
            clauses: Clauses::of_foreign(syntax)?,
        })
    }
}

fn columns_of(table: &Table, names: &[Ident]) -> Result<Vec<usize>> {
    let column = |name: &Ident| {
        let name = names::ident(name);
        table.column(&name).ok_or_else(|| {
            let message =
                format!("column \"{name}\" referenced in foreign key constraint does not exist");
            Error::new("42703", message)
        })
    };
    names.iter().map(column).collect()
}

/// The columns that ON DELETE SET NULL or SET DEFAULT names.
fn columns_set(table: &Table, new: &NewKey<'_>) -> Result<Vec<usize>> {
    let names: Vec<Ident> = new
        .clauses
        .set
        .iter()
        .map(|n| Ident::with_quote('"', n))
        .collect();
    let mut columns = columns_of(table, &names)?;
    if let Some(other) = columns.iter().find(|c| !new.columns.contains(c)) {
        let name = &table.columns[*other].name;
        let message = format!(
            "column \"{name}\" referenced in ON DELETE SET action must be part of foreign key"
        );
        return Err(Error::new("42P10", message));
    }
    let mut seen = Vec::with_capacity(columns.len());
    columns.retain(|c| {
        let is_new = !seen.contains(c);
        seen.push(*c);
        is_new
    });
    Ok(columns)
}

/// Adds a foreign key to a table's definition. Its rows, if there may be any, are checked.
pub fn add(core: &mut Core, table: &mut Table, new: NewKey<'_>, has_rows: bool) -> Result<()> {
    let syntax = new.syntax;
    let parent_name = name_of(&syntax.foreign_table)?;
    let parent = match is_own(&core.dict(), table, &parent_name) {
        true => Arc::new(table.clone().finish()?),
        false => core
            .locked_table(&parent_name, TableLock::ShareRowExclusive)?
            .ok_or_else(|| no_relation(core, &parent_name))?,
    };
    if parent.materialized.is_some() {
        let message = format!("referenced relation \"{}\" is not a table", parent.name);
        return Err(Error::new("42809", message));
    }
    refuse_mixed(&core.dict(), table, &parent)?;
    let name = name_for(table, &new)?;
    let (parent_columns, index) = referenced_key(&parent, &syntax.referred_columns)?;
    if parent.oid != table.oid {
        core.check_references(&parent, &parent_columns)?;
    }
    if parent_columns.len() != new.columns.len() {
        return Err(Error::new(
            "42830",
            "number of referencing and referenced columns for foreign key disagree",
        ));
    }
    check_types(table, &parent, &name, &new.columns, &parent_columns)?;
    let full = match syntax.match_kind {
        Some(ConstraintReferenceMatchKind::Full) => true,
        Some(ConstraintReferenceMatchKind::Partial) => {
            return Err(Error::new("0A000", "MATCH PARTIAL not yet implemented"));
        }
        Some(ConstraintReferenceMatchKind::Simple) | None => false,
    };
    refuse_generated(table, &new.columns, syntax)?;
    let (deferrable, initially_deferred) = characteristics(syntax.characteristics.as_ref())?;
    let set_on_delete = columns_set(table, &new)?;
    let key = ForeignKey {
        oid: core.database.engine().clone().allocate_object_id()?.0,
        name,
        columns: new.columns,
        parent: parent.oid,
        parent_columns,
        index,
        on_delete: action(syntax.on_delete),
        on_update: action(syntax.on_update),
        set_on_delete,
        full,
        deferrable,
        initially_deferred,
        validated: !new.not_valid,
    };
    if has_rows && !new.not_valid {
        let child = Arc::new(table.clone().finish()?);
        foreign::validate(core, &child, &parent, &key)?;
    }
    table.foreign_keys.push(key);
    Ok(())
}

/// Refuses a key between tables of which one may go, or lose its rows, without the other.
fn refuse_mixed(dict: &Dict, table: &Table, parent: &Table) -> Result<()> {
    let temporary = |t: &Table| dict.is_temporary(t.schema);
    let message = match (temporary(table), temporary(parent)) {
        (true, false) => "constraints on temporary tables may reference only temporary tables",
        (false, true) => "constraints on permanent tables may reference only permanent tables",
        _ => {
            let loses = |t: &Table| t.on_commit == OnCommit::DeleteRows;
            if !loses(parent) || loses(table) {
                return Ok(());
            }
            let (table, parent) = (&table.name, &parent.name);
            let message = "unsupported ON COMMIT and foreign key combination";
            return Err(Error::new("0A000", message).detail(format!(
                "Table \"{table}\" references \"{parent}\", but they do not have the same ON COMMIT \
                 setting."
            )));
        }
    };
    Err(Error::new("42P16", message))
}

/// Refuses actions that would write to a generated column.
fn refuse_generated(table: &Table, columns: &[usize], syntax: &ForeignKeyConstraint) -> Result<()> {
    if !columns.iter().any(|c| table.columns[*c].generated) {
        return Ok(());
    }
    let on_update = matches!(
        syntax.on_update,
        Some(
            ReferentialAction::SetNull | ReferentialAction::SetDefault | ReferentialAction::Cascade
        )
    );
    let on_delete = matches!(
        syntax.on_delete,
        Some(ReferentialAction::SetNull | ReferentialAction::SetDefault)
    );
    let which = match (on_update, on_delete) {
        (true, _) => "ON UPDATE",
        (false, true) => "ON DELETE",
        (false, false) => return Ok(()),
    };
    let message =
        format!("invalid {which} action for foreign key constraint containing generated column");
    Err(Error::new("42601", message))
}

/// Whether a name is that of the table itself, which may be about to be made.
fn is_own(dict: &Dict, table: &Table, name: &Qualified) -> bool {
    let schema = match &name.schema {
        Some(schema) => dict.schema(schema),
        None => {
            let mut path = dict.path().iter().copied();
            path.find(|s| *s == table.schema || dict.is_taken(*s, &name.name))
        }
    };
    name.name == table.name && schema == Some(table.schema)
}

fn action(syntax: Option<ReferentialAction>) -> Action {
    match syntax {
        None | Some(ReferentialAction::NoAction) => Action::NoAction,
        Some(ReferentialAction::Restrict) => Action::Restrict,
        Some(ReferentialAction::Cascade) => Action::Cascade,
        Some(ReferentialAction::SetNull) => Action::SetNull,
        Some(ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

fn name_for(table: &Table, new: &NewKey<'_>) -> Result<String> {
    let taken = |name: &str| {
        table.checks.iter().any(|c| c.name == name)
            || table.foreign_keys.iter().any(|k| k.name == name)
            || table
                .indexes
                .iter()
                .any(|i| i.constraint != 0 && i.name == name)
    };
    match &new.name {
        Some(name) if taken(name) => Err(Error::new(
            "42710",
            format!(
                "constraint \"{name}\" for relation \"{}\" already exists",
                table.name
            ),
        )),
        Some(name) => Ok(name.clone()),
        None => {
            let columns: Vec<&str> = new
                .columns
                .iter()
                .map(|&c| table.columns[c].name.as_str())
                .collect();
            let base = DefaultName {
                first: &table.name,
                second: Some(&columns.join("_")),
                suffix: "fkey",
            };
            Ok(base.free(|n| !taken(n)))
        }
    }
}

/// The referenced columns, and the object id of the unique index that makes them a key.
fn referenced_key(parent: &Table, names: &[Ident]) -> Result<(Vec<usize>, u32)> {
    if names.is_empty() {
        let primary = parent.primary_key().ok_or_else(|| {
            let name = &parent.name;
            Error::new(
                "42704",
                format!("there is no primary key for referenced table \"{name}\""),
            )
        })?;
        refuse_deferrable(parent, primary, "primary key")?;
        return Ok((primary.keys.iter().map(|k| k.column).collect(), primary.oid));
    }
    let columns = columns_of(parent, names)?;
    if (1..columns.len()).any(|at| columns[..at].contains(&columns[at])) {
        return Err(Error::new(
            "42830",
            "foreign key referenced-columns list must not contain duplicates",
        ));
    }
    let is_key = |i: &&Index| {
        i.unique
            && i.is_valid()
            && i.bound.is_none()
            && i.keys.len() == columns.len()
            && i.keys.iter().all(|k| columns.contains(&k.column))
    };
    let mut keys = parent.indexes.iter().filter(is_key);
    let first = keys.clone().next();
    let index = keys.find(|i| !i.deferrable).or(first).ok_or_else(|| {
        let name = &parent.name;
        let message = format!(
            "there is no unique constraint matching given keys for referenced table \"{name}\""
        );
        Error::new("42830", message)
    })?;
    refuse_deferrable(parent, index, "unique constraint")?;
    let index = index.oid;
    Ok((columns, index))
}

fn refuse_deferrable(parent: &Table, index: &Index, what: &str) -> Result<()> {
    if !index.deferrable {
        return Ok(());
    }
    let name = &parent.name;
    let message = format!("cannot use a deferrable {what} for referenced table \"{name}\"");
    Err(Error::new("55000", message))
}

pub(super) fn check_types(
    child: &Table,
    parent: &Table,
    name: &str,
    columns: &[usize],
    parent_columns: &[usize],
) -> Result<()> {
    for (&c, &p) in columns.iter().zip(parent_columns) {
        let (c, p) = (&child.columns[c], &parent.columns[p]);
        if Pair::new(c.ty(), p.ty()).is_some() {
            continue;
        }
        let message = format!("foreign key constraint \"{name}\" cannot be implemented");
        return Err(Error::new("42804", message).detail(format!(
            "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
            c.name,
            p.name,
            c.ty().name(),
            p.ty().name()
        )));
    }
    Ok(())
}

/// VALIDATE CONSTRAINT; false if the table has no foreign key of the name. Others write to both
/// tables meanwhile, and check each what they write.
pub fn validate(core: &mut Core, table: &mut Table, name: &str) -> Result<bool> {
    let Some(at) = table.foreign_keys.iter().position(|k| k.name == name) else {
        return Ok(false);
    };
    let key = table.foreign_keys[at].clone();
    if !key.validated {
        core.lock_table(key.parent, TableLock::RowShare, false)?;
        let parent = core.dict().table_by_oid(key.parent).cloned();
        let parent = parent.ok_or_else(|| Error::internal("a referenced table is gone"))?;
        let child = Arc::new(table.clone().finish()?);
        foreign::validate(core, &child, &parent, &key)?;
        table.foreign_keys[at].validated = true;
    }
    Ok(true)
}
