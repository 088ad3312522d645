//! ALTER TABLE.

use std::sync::Arc;

use block::value::DatumRef;
use sqlparser::ast::{
    self, AlterColumnOperation, AlterTable, AlterTableOperation, RenameTableNameKind,
    TableConstraint,
};

use super::dependence::drop_dependents;
use super::foreign::{self, NewKey};
use super::generated;
use super::index::{self, NewIndex};
use super::retype;
use super::storage;
use super::table::refuse_system_name;
use super::{Core, already_exists, name_of, no_relation, skipping, using_index};
use crate::api::Tag;
use crate::bind::{Binder, ParamTypes, Scope, names};
use crate::dict::depend::Address;
use crate::dict::{Check, Index, Object, Relation, Sequence, Table};
use crate::error::{Error, Result};
use crate::exec::row::decode;
use crate::exec::told::of_table;
use crate::expr::domain::DomainCheck;
use crate::expr::{Env, Expr};
use crate::parse::constraints;
use crate::parse::define::Change;
use crate::parse::forms::no_expression;
use crate::parse::role::RoleName;
use crate::parse::storage::{StorageChange, WHOLE_TABLE};
use crate::parse::{self, utility::TableLock};
use crate::pgtype::{self, IoSettings};
use crate::plan::Planner;
use crate::plan::dml::no_column;
use crate::plan::path::conjuncts;

pub fn table(core: &mut Core, a: &AlterTable) -> Result<Tag> {
    let tag = Tag::Plain("ALTER TABLE");
    let name = name_of(&a.name)?;
    let lock = a.operations.iter().map(lock_for).max();
    let lock = lock.unwrap_or(TableLock::AccessExclusive);
    let Some(mut table) = core.own_table(&name, lock)? else {
        if a.if_exists {
            skipping(core, "relation", &name);
            return Ok(tag);
        }
        let found = core.dict().relation(&name);
        return match found {
            Some(Relation::View(_)) => super::relation::alter_view(core, &name, a),
            Some(found) => match of_any_relation(&a.operations) {
                Some(change) => {
                    let kind = parse::define::Kind::Table;
                    super::relation::alter(core, "ALTER TABLE", kind, &name, false, &change)
                }
                None => Err(super::wrong_kind(&name, &found, "a table")),
            },
            None => Err(no_relation(core, &name)),
        };
    };
    match a.operations.iter().any(changes_type) {
        true => retype::refuse_queued(core, &table)?,
        false => retype::refuse_pending(core, &table, "ALTER TABLE")?,
    }
    refuse_materialized(&table, &a.operations)?;
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

/// The lock that an operation needs, PostgreSQL's. Who reads goes on while a foreign key is added
/// or a trigger turned on or off, and who writes, too, while parameters change, or rows are looked
/// at for a constraint that new ones meet already.
fn lock_for(operation: &AlterTableOperation) -> TableLock {
    use AlterTableOperation as Op;
    match stored(operation) {
        Some(StorageChange::Storage(_)) | None => {}
        Some(_) => return TableLock::ShareUpdateExclusive,
    }
    match operation {
        Op::AddConstraint {
            constraint: TableConstraint::ForeignKey(_),
            ..
        }
        | Op::EnableTrigger { .. }
        | Op::EnableAlwaysTrigger { .. }
        | Op::EnableReplicaTrigger { .. }
        | Op::DisableTrigger { .. } => TableLock::ShareRowExclusive,
        Op::ValidateConstraint { .. } => TableLock::ShareUpdateExclusive,
        _ => TableLock::AccessExclusive,
    }
}

fn changes_type(operation: &AlterTableOperation) -> bool {
    matches!(
        operation,
        AlterTableOperation::AlterColumn {
            op: AlterColumnOperation::SetDataType { .. },
            ..
        }
    )
}

/// What ALTER TABLE does to sequences, views and indexes, too.
fn of_any_relation(operations: &[AlterTableOperation]) -> Option<Change> {
    match operations {
        [AlterTableOperation::OwnerTo { new_owner }] => Some(Change::Owner(owner_named(new_owner))),
        [operation] if let Some(StorageChange::Options { given, reset }) = stored(operation) => {
            Some(Change::Options { given, reset })
        }
        [
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(to) | RenameTableNameKind::As(to),
            },
        ] => Some(Change::Rename(name_of(to).ok()?.name)),
        _ => None,
    }
}

/// The change of how things are stored that an operation stands for.
pub(super) fn stored(operation: &AlterTableOperation) -> Option<StorageChange> {
    match operation {
        AlterTableOperation::AlterColumn {
            op: AlterColumnOperation::SetDefault { value },
            ..
        } => StorageChange::of_default(value),
        _ => None,
    }
}

fn of_identity(table: &Table, column: &str) -> Error {
    let message = format!(
        "column \"{column}\" of relation \"{}\" is an identity column",
        table.name
    );
    Error::new("42601", message)
}

/// Refuses what a materialized view cannot be changed by.
fn refuse_materialized(table: &Table, operations: &[AlterTableOperation]) -> Result<()> {
    use AlterTableOperation::{OwnerTo, RenameColumn, RenameTable};
    let kept = |o: &AlterTableOperation| {
        matches!(o, OwnerTo { .. } | RenameColumn { .. } | RenameTable { .. })
            || stored(o).is_some()
    };
    let Some(refused) = operations.iter().find(|o| !kept(o)) else {
        return Ok(());
    };
    if table.materialized.is_none() {
        return Ok(());
    }
    let action = refused.to_string();
    let action: Vec<&str> = action.split_whitespace().take(2).collect();
    let message = format!(
        "ALTER action {} cannot be performed on relation \"{}\"",
        action.join(" "),
        table.name
    );
    let detail = "This operation is not supported for materialized views.";
    Err(Error::new("42809", message).detail(detail))
}

/// Whether rows have other columns after an operation, or columns other names.
fn is_of_columns(operation: &AlterTableOperation) -> bool {
    use AlterTableOperation::{AddColumn, AlterColumn, DropColumn, RenameColumn};
    match operation {
        AddColumn { .. } | DropColumn { .. } | RenameColumn { .. } => true,
        AlterColumn { op, .. } => matches!(op, AlterColumnOperation::SetDataType { .. }),
        _ => false,
    }
}

/// The table after one operation; `None` if the operation wrote it itself, or changed nothing.
fn apply(core: &mut Core, table: &Table, operation: &AlterTableOperation) -> Result<Option<Table>> {
    let mut next = table.clone();
    if is_of_columns(operation) {
        super::composite::refuse_used_rows(core, table)?;
    }
    match operation {
        AlterTableOperation::AddConstraint {
            constraint,
            not_valid: false,
        } => add_constraint(core, &mut next, constraint)?,
        AlterTableOperation::AddConstraint {
            constraint: TableConstraint::ForeignKey(f),
            not_valid: true,
        } => {
            let new = NewKey::of_table(&next, f, true)?;
            foreign::add(core, &mut next, new, true)?;
        }
        AlterTableOperation::AddConstraint {
            constraint: TableConstraint::Check(c),
            not_valid: true,
        } => {
            let name = c.name.as_ref().map(names::ident);
            add_check(core, &mut next, name, &c.expr, false)?;
        }
        AlterTableOperation::AddConstraint {
            constraint,
            not_valid: true,
        } => return Err(never_not_valid(constraint)),
        AlterTableOperation::ValidateConstraint { name } => {
            let name = names::ident(name);
            if !validate_check(core, &mut next, &name)?
                && !foreign::validate(core, &mut next, &name)?
            {
                return Err(not_to_validate(&next, &name));
            }
        }
        AlterTableOperation::AddColumn {
            if_not_exists,
            column_def,
            ..
        } => return add_column(core, next, *if_not_exists, column_def),
        AlterTableOperation::DropConstraint {
            if_exists,
            name,
            drop_behavior,
        } => {
            let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
            return drop_constraint(core, next, *if_exists, &names::ident(name), cascade);
        }
        AlterTableOperation::DropColumn {
            column_names,
            if_exists,
            drop_behavior,
            ..
        } => {
            let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
            for name in column_names {
                let name = names::ident(name);
                if let Some(at) = next.column(&name) {
                    let column = Address::Column(table.oid, at);
                    drop_dependents(core, &[column], cascade)?;
                    // Among them may have been defaults of this table.
                    if let Some(now) = core.dict().table_by_oid(table.oid) {
                        next = Table::clone(now);
                    }
                }
                drop_column(core, &mut next, *if_exists, &name)?;
                next = next.finish()?;
                core.define(Object::Table(Arc::new(next.clone())))?;
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
            let to = name_of(to)?.name;
            core.claim_relation_name(table.schema, &to)?;
            if core.dict().is_taken(table.schema, &to) {
                return Err(already_exists(&to));
            }
            next.name = to;
        }
        AlterTableOperation::RenameConstraint { old_name, new_name } => {
            let names = (names::ident(old_name), names::ident(new_name));
            super::constraint::rename(core, &mut next, &names.0, names.1)?;
        }
        AlterTableOperation::AlterColumn {
            column_name,
            op: AlterColumnOperation::SetDefault { value },
        } if let Some(change) = parse::alter_constraint::change_of(value) => {
            super::constraint::alter(&mut next, &names::ident(column_name), change)?;
        }
        AlterTableOperation::AlterColumn { column_name, .. }
            if column_name.value == WHOLE_TABLE =>
        {
            if let Some(StorageChange::Options { given, reset }) = stored(operation) {
                storage::change(storage::Of::Table, &mut next.options, &given, reset)?;
            }
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            alter_column(core, &mut next, &names::ident(column_name), op)?
        }
        AlterTableOperation::OwnerTo { new_owner } => give(core, &mut next, new_owner)?,
        AlterTableOperation::EnableRowLevelSecurity => next.row_security = true,
        AlterTableOperation::DisableRowLevelSecurity => next.row_security = false,
        AlterTableOperation::ForceRowLevelSecurity => next.force_row_security = true,
        AlterTableOperation::NoForceRowLevelSecurity => next.force_row_security = false,
        AlterTableOperation::EnableTrigger { name } => {
            super::trigger::set_enabled(&mut next, name, 'O')?;
        }
        AlterTableOperation::EnableAlwaysTrigger { name } => {
            super::trigger::set_enabled(&mut next, name, 'A')?;
        }
        AlterTableOperation::EnableReplicaTrigger { name } => {
            super::trigger::set_enabled(&mut next, name, 'R')?;
        }
        AlterTableOperation::DisableTrigger { name } => {
            super::trigger::set_enabled(&mut next, name, 'D')?;
        }
        other => return Err(Error::unsupported(format!("ALTER TABLE {other}"))),
    }
    Ok(Some(next))
}

pub(super) fn owner_named(to: &ast::Owner) -> RoleName {
    match to {
        ast::Owner::Ident(name) => RoleName::Is(names::ident(name)),
        ast::Owner::CurrentRole | ast::Owner::CurrentUser => RoleName::CurrentUser,
        ast::Owner::SessionUser => RoleName::SessionUser,
    }
}

/// Gives a table, and the sequences of its columns, to another role.
fn give(core: &mut Core, table: &mut Table, to: &ast::Owner) -> Result<()> {
    let to = owner_named(to);
    table.owner = core.new_owner(
        &to,
        table.owner,
        table.schema,
        &format!("table {}", table.name),
    )?;
    for sequence in core.dict().owned_sequences(table.oid) {
        let mut next = Sequence::clone(&sequence);
        next.role = table.owner;
        core.define(Object::Sequence(Arc::new(next)))?;
    }
    Ok(())
}

fn add_constraint(core: &mut Core, table: &mut Table, constraint: &TableConstraint) -> Result<()> {
    match constraint {
        TableConstraint::PrimaryKey(p) => {
            let key = index::NewKey::primary(table, p)?;
            add_key(core, table, key)
        }
        TableConstraint::Unique(u) => {
            let key = index::NewKey::unique(table, u)?;
            add_key(core, table, key)
        }
        TableConstraint::UniqueUsingIndex(u) => using_index::add(core, table, u, false).map(|_| ()),
        TableConstraint::PrimaryKeyUsingIndex(u) => {
            let has_one = table.primary_key().is_some();
            let columns = using_index::add(core, table, u, true)?;
            if has_one {
                return Err(several_primary_keys(table));
            }
            set_not_null(core, table, &columns)
        }
        TableConstraint::Check(c) => {
            let name = c.name.as_ref().map(names::ident);
            add_check(core, table, name, &c.expr, true)
        }
        TableConstraint::ForeignKey(f) => {
            let new = NewKey::of_table(table, f, false)?;
            foreign::add(core, table, new, true)
        }
        other => Err(Error::unsupported(format!("constraint {other}"))),
    }
}

fn add_key(core: &mut Core, table: &mut Table, key: index::NewKey) -> Result<()> {
    if key.primary {
        if table.primary_key().is_some() {
            return Err(several_primary_keys(table));
        }
        set_not_null(core, table, &key.columns)?;
    }
    index::check_may_add(core, table)?;
    index::add_built(core, table, NewIndex::key(key))
}

fn several_primary_keys(table: &Table) -> Error {
    let name = &table.name;
    let message = format!("multiple primary keys for table \"{name}\" are not allowed");
    Error::new("42P16", message)
}

fn set_not_null(core: &mut Core, table: &mut Table, columns: &[usize]) -> Result<()> {
    for &c in columns {
        require_not_null(core, table, c)?;
        table.columns[c].not_null = true;
    }
    Ok(())
}

fn add_check(
    core: &mut Core,
    table: &mut Table,
    name: Option<String>,
    expr: &ast::Expr,
    validated: bool,
) -> Result<()> {
    let base = name.unwrap_or_else(|| super::check_name(table, expr));
    if table.checks.iter().any(|k| k.name == base)
        || table.foreign_keys.iter().any(|k| k.name == base)
    {
        return Err(Error::new(
            "42710",
            format!(
                "constraint \"{base}\" for relation \"{}\" already exists",
                table.name
            ),
        ));
    }
    let params = ParamTypes::none(&core.dict());
    let scope = Scope::of_table(table, &table.name);
    let condition = Binder::new(&scope, &params, "CHECK").condition(expr)?;
    if validated && violates(core, table, &condition, Some(false))? {
        return Err(no_values(core, table, &base));
    }
    table.checks.push(Check {
        name: base,
        text: unqualified(expr).to_string(),
        unvalidated: !validated,
    });
    Ok(())
}

/// VALIDATE CONSTRAINT of a check; false if the table has none of the name. Others write meanwhile:
/// who adds a check waits for those that write without it, so that all rows but those of before
/// meet it already.
fn validate_check(core: &mut Core, table: &mut Table, name: &str) -> Result<bool> {
    let Some(at) = table.checks.iter().position(|c| c.name == name) else {
        return Ok(false);
    };
    if table.checks[at].unvalidated {
        let condition = condition_of(core, table, &table.checks[at])?;
        if violates(core, table, &condition, Some(false))? {
            return Err(no_values(core, table, name));
        }
        table.checks[at].unvalidated = false;
    }
    Ok(true)
}

fn condition_of(core: &Core, table: &Table, check: &Check) -> Result<Expr> {
    let params = ParamTypes::none(&core.dict()).of_stored();
    let scope = Scope::of_table(table, &table.name);
    let binder = Binder::new(&scope, &params, "CHECK");
    binder.condition(&parse::expression(&check.text)?)
}

/// The error of NOT VALID where an index makes the constraint.
fn never_not_valid(constraint: &TableConstraint) -> Error {
    let word = match constraint {
        TableConstraint::PrimaryKey(_) | TableConstraint::PrimaryKeyUsingIndex(_) => "PRIMARY KEY",
        TableConstraint::Unique(_) | TableConstraint::UniqueUsingIndex(_) => "UNIQUE",
        other => return Error::unsupported(format!("constraint {other} NOT VALID")),
    };
    let message = format!("{word} constraints cannot be marked NOT VALID");
    Error::new("0A000", message)
}

/// Why VALIDATE CONSTRAINT has nothing to look at.
fn not_to_validate(table: &Table, name: &str) -> Error {
    let is_key = table
        .indexes
        .iter()
        .any(|i| i.constraint != 0 && i.name == name);
    let message = match is_key {
        true => format!(
            "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
            table.name
        ),
        false => return no_constraint(table, name),
    };
    Error::new("42809", message)
}

/// Whether the condition has that truth for any row there is.
pub(super) fn violates(
    core: &mut Core,
    table: &Table,
    condition: &Expr,
    truth: Option<bool>,
) -> Result<bool> {
    let def = table.engine().clone();
    let snapshot = core.engine.newest_snapshot()?;
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
            decode(row, &def, def.columns.len(), &mut values)?;
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
    if table.columns[column].not_null || is_checked_not_null(core, table, column)? {
        return Ok(());
    }
    let is_null = Expr::IsNull {
        expr: Box::new(Expr::Column(column)),
        negated: false,
    };
    match violates(core, table, &is_null, Some(true))? {
        true => Err(null_values(core, table, column)),
        false => Ok(()),
    }
}

/// Whether a check says already that a column is not NULL, so that no row has to be looked at.
fn is_checked_not_null(core: &Core, table: &Table, column: usize) -> Result<bool> {
    let wanted = Expr::IsNull {
        expr: Box::new(Expr::Column(column)),
        negated: true,
    };
    for check in table.checks.iter().filter(|c| !c.unvalidated) {
        let condition = condition_of(core, table, check)?;
        if conjuncts(Some(condition)).contains(&wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The rows that there are do not get the new column: they are shorter, and the definition says
/// what they have there, the value of the default as it is now. Only a default that is another for
/// each row is written to each.
fn add_column(
    core: &mut Core,
    mut table: Table,
    if_not_exists: bool,
    def: &ast::ColumnDef,
) -> Result<Option<Table>> {
    let name = names::ident(&def.name);
    refuse_system_name(&name)?;
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
    if at >= super::table::MAX_COLUMNS {
        return Err(super::table::too_many_columns());
    }
    let (column, sequence) = super::table::column(core, &table, at, name, def)?;
    super::table::check_defaults(&core.dict(), std::slice::from_ref(&column))?;
    if let Some(s) = sequence {
        core.define(Object::Sequence(Arc::new(s)))?;
    }
    table.columns.push(column);
    generated::check(core, &table)?;
    fill_column(core, &mut table, at)?;
    // What follows looks at the rows through the definition.
    table = table.finish()?;
    for (option, clauses) in constraints::of_column(&def.options) {
        let name = option.name.as_ref().map(names::ident);
        if let Some(key) = index::NewKey::of_column(&table, at, option, &clauses)? {
            add_key(core, &mut table, key)?;
        }
        match &option.option {
            ast::ColumnOption::Check(c) => add_check(core, &mut table, name, &c.expr, true)?,
            ast::ColumnOption::ForeignKey(f) => {
                let new = NewKey::of_column(name, at, f, clauses);
                foreign::add(core, &mut table, new, true)?;
            }
            _ => {}
        }
    }
    Ok(Some(table))
}

/// Gives the rows there are their value of a new column.
fn fill_column(core: &mut Core, table: &mut Table, at: usize) -> Result<()> {
    let dict = core.dict();
    let params = ParamTypes::none(&dict);
    let planner = Planner::alone(&dict, &params);
    let c = &table.columns[at];
    let computed = planner.rules(table)?.generated;
    if let Some(computed) = computed.iter().find(|g| g.column == at) {
        return write_column(core, table, at, &computed.value);
    }
    let default = planner.default(c)?;
    let rules: Vec<DomainCheck> = planner.rules(table)?.of_column(at);
    if default.is_volatile() {
        let checked = rules.into_iter().fold(default, |value, rule| {
            Expr::Domain(Box::new(rule), Box::new(value))
        });
        return write_column(core, table, at, &checked);
    }
    let value = default.eval(&Env::EMPTY, core)?.into_datum();
    let any = Expr::Const(block::value::Datum::Bool(true));
    if !rules.is_empty() && violates(core, table, &any, Some(true))? {
        for rule in &rules {
            rule.check(value.borrow(), core)?;
        }
    }
    if !value.is_null() {
        let mut text = Vec::new();
        pgtype::text_out(c.ty(), value.borrow(), &IoSettings::default(), &mut text);
        let text = String::from_utf8(text)
            .map_err(|e| Error::internal(format!("a value whose text is no text: {e}")))?;
        table.columns[at].missing = Some(text);
        return Ok(());
    }
    if c.not_null && violates(core, table, &any, Some(true))? {
        return Err(null_values(core, table, at));
    }
    Ok(())
}

/// Writes a value of its own into the new column of each row. Nobody else uses the table.
fn write_column(core: &mut Core, table: &Table, at: usize, default: &Expr) -> Result<()> {
    let table = table.clone().finish()?;
    let def = table.engine();
    let snapshot = core.engine.newest_snapshot()?;
    let mut scan = core.engine.scan(def);
    let mut rows: Vec<(block::RowId, Vec<u8>)> = Vec::new();
    loop {
        rows.clear();
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        if !scan.next_block(&mut core.engine, &snapshot, &mut |rid, bytes| {
            rows.push((rid, bytes.to_vec()))
        })? {
            return Ok(());
        }
        for (rid, row) in &rows {
            let mut values: Vec<DatumRef<'_>> = Vec::with_capacity(def.columns.len());
            decode(row, def, def.columns.len(), &mut values)?;
            let env = Env {
                row: &values,
                params: &[],
            };
            let value = default.eval(&env, core)?.into_datum();
            if value.is_null() && table.columns[at].not_null {
                return Err(null_values(core, &table, at));
            }
            values[at] = value.borrow();
            core.engine.update(def, *rid, &values, None)?;
        }
    }
}

/// Rows do not meet a check.
pub(super) fn no_values(core: &Core, table: &Table, check: &str) -> Error {
    let message = format!(
        "check constraint \"{check}\" of relation \"{}\" is violated by some row",
        table.name
    );
    of_table(Error::new("23514", message), table, core).constraint(check)
}

pub(super) fn null_values(core: &Core, table: &Table, at: usize) -> Error {
    let name = &table.columns[at].name;
    let message = format!(
        "column \"{name}\" of relation \"{}\" contains null values",
        table.name
    );
    of_table(Error::new("23502", message), table, core).column(name)
}

fn drop_constraint(
    core: &mut Core,
    mut table: Table,
    if_exists: bool,
    name: &str,
    cascade: bool,
) -> Result<Option<Table>> {
    if let Some(at) = table.foreign_keys.iter().position(|k| k.name == name) {
        table.foreign_keys.remove(at);
        return Ok(Some(table));
    }
    if let Some(at) = table.checks.iter().position(|c| c.name == name) {
        table.checks.remove(at);
        return Ok(Some(table));
    }
    if let Some(at) = table
        .indexes
        .iter()
        .position(|i| i.constraint != 0 && i.name == name)
    {
        let index = Address::Index(table.oid, table.indexes[at].oid);
        drop_dependents(core, &[index], cascade)?;
        // The table may reference itself.
        let now = core.dict().table_by_oid(table.oid).cloned();
        let now = now.ok_or_else(|| Error::internal("a locked table is gone"))?;
        index::remove(core, &now, at)?;
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
    Err(no_constraint(&table, name))
}

pub(super) fn no_constraint(table: &Table, name: &str) -> Error {
    Error::new(
        "42704",
        format!(
            "constraint \"{name}\" of relation \"{}\" does not exist",
            table.name
        ),
    )
}

/// A dropped column keeps its place in the rows; its values stay until the rows are written again.
/// Drops a column whose type goes.
pub(super) fn drop_dependent_column(core: &mut Core, table: u32, at: usize) -> Result<()> {
    let dict = core.dict();
    let Some(table) = dict.table_by_oid(table) else {
        return Ok(());
    };
    let mut next = Table::clone(table);
    let name = next.columns[at].name.clone();
    drop_column(core, &mut next, true, &name)?;
    core.define(Object::Table(Arc::new(next.finish()?)))
}

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
    // Its own foreign keys that name the column go with it, on either side.
    let oid = table.oid;
    table.foreign_keys.retain(|k| {
        let references_it = k.parent == oid && k.parent_columns.contains(&at);
        !k.columns.contains(&at) && !references_it
    });
    // Indexes and checks that name the column go with it.
    while let Some(i) = table.indexes.iter().position(|i| i.uses(at)) {
        let segment = block::ObjectId(table.indexes[i].segment);
        let header = block::Dba(table.indexes[i].header);
        core.engine.drop_segment_at_commit(segment, header)?;
        table.indexes.remove(i);
    }
    let mut kept = Vec::new();
    for check in std::mem::take(&mut table.checks) {
        if !mentions(&check.text, name)? {
            kept.push(check);
        }
    }
    table.checks = kept;
    if let Some(sequence) = table.columns[at].sequence
        && let Some(s) = core.dict().sequence_by_oid(sequence).cloned()
    {
        super::sequence::drop_one(core, s.oid)?;
    }
    let column = &mut table.columns[at];
    column.dropped = true;
    column.not_null = false;
    column.default = None;
    column.generated = false;
    column.identity = None;
    column.sequence = None;
    column.missing = None;
    // Its type may go, but what is in the rows stays.
    let stored = column.ty().stored_as();
    (column.type_oid, column.known) = (stored.oid(), Some(stored));
    column.name = format!("........pg.dropped.{}........", at + 1);
    Ok(())
}

pub(super) fn rename_column(table: &mut Table, from: &str, to: String) -> Result<()> {
    let at = table
        .column(from)
        .ok_or_else(|| Error::new("42703", format!("column \"{from}\" does not exist")))?;
    refuse_system_name(&to)?;
    if table.column(&to).is_some() {
        return Err(Error::new(
            "42701",
            format!(
                "column \"{to}\" of relation \"{}\" already exists",
                table.name
            ),
        ));
    }
    for check in &mut table.checks {
        check.text = renamed(&check.text, from, &to)?;
    }
    let generated = table.columns.iter_mut().filter(|c| c.generated);
    for text in generated.filter_map(|c| c.default.as_mut()) {
        *text = renamed(text, from, &to)?;
    }
    for text in table.indexes.iter_mut().flat_map(Index::texts_mut) {
        *text = renamed(text, from, &to)?;
    }
    for text in table.triggers.iter_mut().filter_map(|t| t.when.as_mut()) {
        *text = super::trigger_condition::renamed(text, from, &to)?;
    }
    table.columns[at].name = to;
    Ok(())
}

/// The parts of an expression that name a column.
fn column_names(e: &mut ast::Expr, each: &mut dyn FnMut(&mut ast::Ident)) {
    let _ = ast::visit_expressions_mut(e, |e| {
        match e {
            ast::Expr::Identifier(name) => each(name),
            ast::Expr::CompoundIdentifier(path) => {
                if let Some(name) = path.last_mut() {
                    each(name);
                }
            }
            _ => {}
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
}

/// An expression over the columns of one table without the table's name before them, which can
/// change.
pub(super) fn unqualified(e: &ast::Expr) -> ast::Expr {
    let mut e = e.clone();
    let _ = ast::visit_expressions_mut(&mut e, |e| {
        if let ast::Expr::CompoundIdentifier(path) = e
            && let Some(mut name) = path.pop()
        {
            // Alone it would be a function without parentheses.
            if names::is_bare_function(&name) {
                name.quote_style = Some('"');
            }
            *e = ast::Expr::Identifier(name);
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    e
}

/// Whether the text of an expression names a column.
pub(super) fn mentions(text: &str, column: &str) -> Result<bool> {
    let mut found = false;
    column_names(&mut parse::expression(text)?, &mut |name| {
        found |= names::ident(name) == column;
    });
    Ok(found)
}

/// The columns that the text of an expression names.
pub fn mentioned(table: &Table, text: &str) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    column_names(&mut parse::expression(text)?, &mut |name| {
        let at = table.column(&names::ident(name));
        found.extend(at.filter(|at| !found.contains(at)));
    });
    Ok(found)
}

/// The text of an expression with another name for a column.
fn renamed(text: &str, from: &str, to: &str) -> Result<String> {
    let mut e = parse::expression(text)?;
    column_names(&mut e, &mut |name| {
        if names::ident(name) == from {
            *name = ast::Ident::with_quote('"', to);
        }
    });
    Ok(e.to_string())
}

fn alter_column(
    core: &mut Core,
    table: &mut Table,
    name: &str,
    op: &AlterColumnOperation,
) -> Result<()> {
    let at = table.column(name).ok_or_else(|| match op {
        AlterColumnOperation::SetDefault { value }
            if names::is_system_column(name) && StorageChange::of_default(value).is_some() =>
        {
            Error::new("0A000", format!("cannot alter system column \"{name}\""))
        }
        _ => no_column(name, &table.name),
    })?;
    if let AlterColumnOperation::SetDefault { value } = op
        && let Some(change) = StorageChange::of_default(value)
    {
        return storage::change_column(core, table, at, &change);
    }
    generated::refuse_change(table, at, op)?;
    if let AlterColumnOperation::SetDefault { value } = op
        && let Some(change) = parse::identity::change_of(value)?
    {
        return super::identity::change(core, table, at, &change);
    }
    match op {
        AlterColumnOperation::SetDefault { value }
            if let Some(if_exists) = no_expression(value) =>
        {
            generated::drop_expression(core, table, at, if_exists)?;
        }
        AlterColumnOperation::SetNotNull => {
            require_not_null(core, table, at)?;
            table.columns[at].not_null = true;
        }
        AlterColumnOperation::DropNotNull if table.columns[at].identity.is_some() => {
            return Err(of_identity(table, name));
        }
        AlterColumnOperation::SetDefault { .. } if table.columns[at].identity.is_some() => {
            return Err(of_identity(table, name));
        }
        AlterColumnOperation::DropDefault if table.columns[at].identity.is_some() => {
            let hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.";
            return Err(of_identity(table, name).hint(hint));
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
            table.columns[at].default = Some(super::sequence::pinned(core, value)?);
            super::table::check_defaults(&core.dict(), &table.columns[at..=at])?;
        }
        AlterColumnOperation::DropDefault => table.columns[at].default = None,
        AlterColumnOperation::SetDataType {
            data_type, using, ..
        } => *table = retype::set_type(core, table, at, (data_type, using.as_ref()))?,
        other => return Err(Error::unsupported(format!("ALTER COLUMN {other}"))),
    }
    Ok(())
}
