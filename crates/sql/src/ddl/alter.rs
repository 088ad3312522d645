//! ALTER TABLE.

use std::sync::Arc;

use block::value::DatumRef;
use datafusion::sql::sqlparser::ast::{
    self, AlterColumnOperation, AlterTable, AlterTableOperation, RenameTableNameKind,
    TableConstraint,
};

use super::index::{self, NewIndex};
use super::{Core, already_exists, name_of, skipping};
use crate::api::Tag;
use crate::bind::{Binder, ParamTypes, Scope, names};
use crate::dict::{Check, Object, Table};
use crate::error::{Error, Result};
use crate::exec::row::decode;
use crate::expr::{Env, Expr};
use crate::parse::utility::TableLock;
use crate::plan::dml::no_column;

pub fn table(core: &mut Core, a: &AlterTable) -> Result<Tag> {
    let tag = Tag::Plain("ALTER TABLE");
    let name = name_of(&a.name)?;
    let Some(mut table) = core.locked_table(&name, TableLock::AccessExclusive)? else {
        if a.if_exists {
            skipping(core, "relation", &name);
            return Ok(tag);
        }
        return Err(names::no_relation(&name));
    };
    for operation in &a.operations {
        if let Some(next) = apply(core, &table, operation)? {
            core.define(Object::Table(Arc::new(next.finish()?)))?;
        }
        let oid = table.oid;
        table = core
            .dict()
            .table_by_oid(oid)
            .cloned()
            .ok_or_else(|| names::no_relation(&name))?;
    }
    Ok(tag)
}

/// The table after one operation; `None` if the operation wrote it itself, or changed nothing.
fn apply(core: &mut Core, table: &Table, operation: &AlterTableOperation) -> Result<Option<Table>> {
    let mut next = table.clone();
    match operation {
        AlterTableOperation::AddConstraint {
            constraint,
            not_valid: false,
        } => add_constraint(core, &mut next, constraint)?,
        AlterTableOperation::AddColumn {
            if_not_exists,
            column_def,
            ..
        } => return add_column(core, next, *if_not_exists, column_def),
        AlterTableOperation::DropConstraint {
            if_exists, name, ..
        } => return drop_constraint(core, next, *if_exists, &names::ident(name)),
        AlterTableOperation::DropColumn {
            column_names,
            if_exists,
            ..
        } => {
            for name in column_names {
                drop_column(core, &mut next, *if_exists, &names::ident(name))?;
            }
        }
        AlterTableOperation::RenameColumn {
            old_column_name,
            new_column_name,
        } => {
            rename_column(
                &mut next,
                &names::ident(old_column_name),
                names::ident(new_column_name),
            )?;
        }
        AlterTableOperation::RenameTable {
            table_name: RenameTableNameKind::To(to) | RenameTableNameKind::As(to),
        } => {
            let to = name_of(to)?;
            core.claim_name(&to)?;
            if core.dict().relation(&to).is_some() {
                return Err(already_exists(&to));
            }
            next.name = to;
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            alter_column(core, &mut next, &names::ident(column_name), op)?
        }
        // There is one role, which owns everything.
        AlterTableOperation::OwnerTo { .. } => return Ok(None),
        other => return Err(Error::unsupported(format!("ALTER TABLE {other}"))),
    }
    Ok(Some(next))
}

fn add_constraint(core: &mut Core, table: &mut Table, constraint: &TableConstraint) -> Result<()> {
    match constraint {
        TableConstraint::PrimaryKey(p) => {
            if table.primary_key().is_some() {
                return Err(Error::new(
                    "42P16",
                    format!(
                        "multiple primary keys for table \"{}\" are not allowed",
                        table.name
                    ),
                ));
            }
            let columns = index::plain_columns(table, &p.columns)?;
            for &c in &columns {
                require_not_null(core, table, c)?;
                table.columns[c].not_null = true;
            }
            index::add_built(
                core,
                table,
                NewIndex::key(p.name.as_ref().map(names::ident), columns, true),
            )
        }
        TableConstraint::Unique(u) => {
            let columns = index::plain_columns(table, &u.columns)?;
            index::add_built(
                core,
                table,
                NewIndex::key(u.name.as_ref().map(names::ident), columns, false),
            )
        }
        TableConstraint::Check(c) => {
            let base = c
                .name
                .as_ref()
                .map_or(format!("{}_check", table.name), names::ident);
            if table.checks.iter().any(|k| k.name == base) {
                return Err(Error::new(
                    "42710",
                    format!(
                        "constraint \"{base}\" for relation \"{}\" already exists",
                        table.name
                    ),
                ));
            }
            let params = ParamTypes::default();
            let scope = Scope::of_table(table, &table.name);
            let condition = Binder::new(&scope, &params, "CHECK").condition(&c.expr)?;
            if violates(core, table, &condition, Some(false))? {
                return Err(Error::new(
                    "23514",
                    format!(
                        "check constraint \"{base}\" of relation \"{}\" is violated by some row",
                        table.name
                    ),
                ));
            }
            table.checks.push(Check {
                name: base,
                text: c.expr.to_string(),
            });
            Ok(())
        }
        TableConstraint::ForeignKey(_) => Err(Error::unsupported("FOREIGN KEY")),
        other => Err(Error::unsupported(format!("constraint {other}"))),
    }
}

/// Whether the condition has that truth for any row there is.
fn violates(core: &mut Core, table: &Table, condition: &Expr, truth: Option<bool>) -> Result<bool> {
    let def = table.engine().clone();
    let snapshot = core.engine.snapshot()?;
    let mut scan = core.engine.scan(&def);
    let mut rows: Vec<Vec<u8>> = Vec::new();
    loop {
        rows.clear();
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        if !scan.next_block(&mut core.engine, &snapshot, &mut |_, bytes| {
            rows.push(bytes.to_vec())
        })? {
            return Ok(false);
        }
        for row in &rows {
            let mut values: Vec<DatumRef<'_>> = Vec::with_capacity(def.columns.len());
            decode(row, &def.columns, def.columns.len(), &mut values)?;
            if condition.test(
                &Env {
                    row: &values,
                    params: &[],
                },
                core,
            )? == truth
            {
                return Ok(true);
            }
        }
    }
}

fn require_not_null(core: &mut Core, table: &Table, column: usize) -> Result<()> {
    if table.columns[column].not_null {
        return Ok(());
    }
    let is_null = Expr::IsNull {
        expr: Box::new(Expr::Column(column)),
        negated: false,
    };
    if violates(core, table, &is_null, Some(true))? {
        let name = &table.columns[column].name;
        return Err(Error::new(
            "23502",
            format!(
                "column \"{name}\" of relation \"{}\" contains null values",
                table.name
            ),
        ));
    }
    Ok(())
}

/// Rows there are do not get the new column: they are shorter, and read as NULL there. A default other than NULL would
/// have to be written to each of them.
fn add_column(
    core: &mut Core,
    mut table: Table,
    if_not_exists: bool,
    def: &ast::ColumnDef,
) -> Result<Option<Table>> {
    let name = names::ident(&def.name);
    if table.column(&name).is_some() {
        if if_not_exists {
            core.notice(
                "NOTICE",
                "42701",
                format!(
                    "column \"{name}\" of relation \"{}\" already exists, skipping",
                    table.name
                ),
            );
            return Ok(None);
        }
        return Err(Error::new(
            "42701",
            format!(
                "column \"{name}\" of relation \"{}\" already exists",
                table.name
            ),
        ));
    }
    let at = table.columns.len();
    let (column, sequence) = super::table::column(core, &table, at, name, def)?;
    super::table::check_defaults(std::slice::from_ref(&column))?;
    let any = Expr::Const(block::value::Datum::Bool(true));
    if (column.not_null || column.default.is_some()) && violates(core, &table, &any, Some(true))? {
        return Err(Error::unsupported(
            "ADD COLUMN with DEFAULT or NOT NULL on a table that has rows",
        ));
    }
    if let Some(s) = sequence {
        core.define(Object::Sequence(Arc::new(s)))?;
    }
    table.columns.push(column);
    let keyed = def.options.iter().any(|o| {
        matches!(
            o.option,
            ast::ColumnOption::PrimaryKey(_)
                | ast::ColumnOption::Unique(_)
                | ast::ColumnOption::Check(_)
                | ast::ColumnOption::ForeignKey(_)
        )
    });
    if keyed {
        return Err(Error::unsupported("ADD COLUMN with a constraint")
            .hint("Add the constraint by a statement of its own."));
    }
    Ok(Some(table))
}

fn drop_constraint(
    core: &mut Core,
    mut table: Table,
    if_exists: bool,
    name: &str,
) -> Result<Option<Table>> {
    if let Some(at) = table.checks.iter().position(|c| c.name == name) {
        table.checks.remove(at);
        return Ok(Some(table));
    }
    if let Some(at) = table
        .indexes
        .iter()
        .position(|i| i.constraint != 0 && i.name == name)
    {
        index::remove(core, &table, at)?;
        return Ok(None);
    }
    if if_exists {
        core.notice(
            "NOTICE",
            "00000",
            format!(
                "constraint \"{name}\" of relation \"{}\" does not exist, skipping",
                table.name
            ),
        );
        return Ok(None);
    }
    Err(Error::new(
        "42704",
        format!(
            "constraint \"{name}\" of relation \"{}\" does not exist",
            table.name
        ),
    ))
}

/// A dropped column keeps its place in the rows; its values stay until the rows are written again.
fn drop_column(core: &mut Core, table: &mut Table, if_exists: bool, name: &str) -> Result<()> {
    let Some(at) = table.column(name) else {
        if if_exists {
            core.notice(
                "NOTICE",
                "00000",
                format!(
                    "column \"{name}\" of relation \"{}\" does not exist, skipping",
                    table.name
                ),
            );
            return Ok(());
        }
        return Err(no_column(name, &table.name));
    };
    let in_index = table
        .indexes
        .iter()
        .any(|i| i.keys.iter().any(|k| k.column == at));
    if in_index || !table.checks.is_empty() {
        return Err(Error::unsupported(
            "DROP COLUMN of a table with checks, or of an indexed column",
        ));
    }
    if let Some(sequence) = table.columns[at].sequence
        && let Some(s) = core.dict().sequence_by_oid(sequence).cloned()
    {
        super::sequence::drop_one(core, &s)?;
    }
    let column = &mut table.columns[at];
    column.dropped = true;
    column.not_null = false;
    column.default = None;
    column.identity = None;
    column.sequence = None;
    column.name = format!("........pg.dropped.{}........", at + 1);
    Ok(())
}

fn rename_column(table: &mut Table, from: &str, to: String) -> Result<()> {
    let at = table
        .column(from)
        .ok_or_else(|| no_column(from, &table.name))?;
    if table.column(&to).is_some() {
        return Err(Error::new(
            "42701",
            format!(
                "column \"{to}\" of relation \"{}\" already exists",
                table.name
            ),
        ));
    }
    if !table.checks.is_empty() {
        return Err(Error::unsupported("RENAME COLUMN of a table with checks"));
    }
    table.columns[at].name = to;
    Ok(())
}

fn alter_column(
    core: &mut Core,
    table: &mut Table,
    name: &str,
    op: &AlterColumnOperation,
) -> Result<()> {
    let at = table
        .column(name)
        .ok_or_else(|| no_column(name, &table.name))?;
    match op {
        AlterColumnOperation::SetNotNull => {
            require_not_null(core, table, at)?;
            table.columns[at].not_null = true;
        }
        AlterColumnOperation::DropNotNull => {
            if table
                .primary_key()
                .is_some_and(|p| p.keys.iter().any(|k| k.column == at))
            {
                return Err(Error::new(
                    "42P16",
                    format!("column \"{name}\" is in a primary key"),
                ));
            }
            table.columns[at].not_null = false;
        }
        AlterColumnOperation::SetDefault { value } => {
            table.columns[at].default = Some(value.to_string());
            super::table::check_defaults(&table.columns[at..=at])?;
        }
        AlterColumnOperation::DropDefault => table.columns[at].default = None,
        other => return Err(Error::unsupported(format!("ALTER COLUMN {other}"))),
    }
    Ok(())
}
