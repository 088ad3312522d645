//! ALTER COLUMN .. TYPE: every row is written anew, with the column's value converted, into
//! segments of its own; the old ones go at commit, as with TRUNCATE. Where the old form is the new
//! one too, only the definition changes.
//!
//! Nobody else uses the table meanwhile. A snapshot of before finds no rows in it afterwards, as
//! in PostgreSQL.

use std::sync::Arc;

use block::ObjectId;
use block::value::{Datum, DatumRef};
use engine::TableDef;
use sqlparser::ast;

use super::alter::{no_values, null_values};
use super::index::duplicate_in_build;
use super::index_expression;
use super::table::{check_defaults, column_type, drop_segments};
use crate::bind::numbered::{self, Shown};
use crate::bind::{Binder, ParamTypes, Scope, Typed};
use crate::dict::depend::Address;
use crate::dict::{Dict, ForeignKey, Object, Stats, Table};
use crate::error::{Error, Result};
use crate::exec::events::{Event, What};
use crate::exec::foreign;
use crate::exec::row::decode;
use crate::expr::{Env, Expr};
use crate::parse::utility::TableLock;
use crate::plan::{Planner, RowRules};
use crate::session::Core;
use crate::types::{SqlType, storage_type};

/// What a column becomes.
struct Change<'a> {
    at: usize,
    ty: SqlType,
    typmod: i32,
    using: Option<&'a ast::Expr>,
}

/// The table with the column's new type, its rows converted.
pub fn set_type(
    core: &mut Core,
    table: &Table,
    at: usize,
    (data_type, using): (&ast::DataType, Option<&ast::Expr>),
) -> Result<Table> {
    let (ty, typmod) = column_type(core, data_type)?;
    super::composite::check_column(&table.columns[at].name, ty)?;
    storage_type(ty)?;
    let change = Change {
        at,
        ty,
        typmod,
        using,
    };
    refuse_readers(core, table, at)?;
    if table.columns[at].generated && using.is_some() {
        let name = &table.columns[at].name;
        let message = "cannot specify USING when altering type of generated column";
        let detail = format!("Column \"{name}\" is a generated column.");
        return Err(Error::new("42611", message).detail(detail));
    }
    let mut next = table.clone();
    by_names(&core.dict(), &mut next, at)?;
    next.columns[at].default = default_of(core, table, &change)?;
    let column = &mut next.columns[at];
    if column.identity.is_some() && !matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Int8) {
        let message = "identity column type must be smallint, integer, or bigint";
        return Err(Error::new("22023", message));
    }
    column.retype(ty, typmod);
    if column.identity.is_some() {
        super::identity::follow_type(core, table, at, ty)?;
    }
    let column = &mut next.columns[at];
    // Without a clause of its own the new type has the default one.
    column.collation = None;
    check_defaults(&core.dict(), &next.columns[at..=at])?;
    let value = converted(core, table, &change)?;
    forget_statistics(core, table, at)?;
    if is_same_form(table, &change) {
        return next.finish();
    }
    let next = rewrite(core, table, next, at, &value)?;
    check_keys(core, &next, at)?;
    Ok(next)
}

/// Checks and indexes that name the column call the functions that fit its new type: their texts
/// name these again, as PostgreSQL's do.
fn by_names(dict: &Dict, table: &mut Table, at: usize) -> Result<()> {
    let column = table.columns[at].name.clone();
    let checks = table.checks.iter_mut().map(|c| &mut c.text);
    let indexes = table.indexes.iter_mut().flat_map(|i| {
        let texts = i.expressions.iter_mut().map(|e| &mut e.text);
        texts.chain(&mut i.predicate)
    });
    for text in checks.chain(indexes) {
        if super::alter::mentions(text, &column)? {
            *text = numbered::shown(text, Shown::Full(dict))?;
        }
    }
    Ok(())
}

/// A view keeps the types of the columns that it reads, and a trigger of those that it names.
fn refuse_readers(core: &Core, table: &Table, at: usize) -> Result<()> {
    let dict = core.dict();
    let column = Address::Column(table.oid, at);
    let name = &table.columns[at].name;
    for d in dict.dependents(column) {
        let (message, reader) = match d.what {
            Address::View(_) => (
                "cannot alter type of a column used by a view or rule",
                format!("rule _RETURN on {}", dict.describe(d.what)),
            ),
            Address::Table(oid)
                if dict
                    .table_by_oid(oid)
                    .is_some_and(|t| t.materialized.is_some()) =>
            {
                (
                    "cannot alter type of a column used by a view or rule",
                    format!("rule _RETURN on {}", dict.describe(d.what)),
                )
            }
            Address::Policy(..) => (
                "cannot alter type of a column used in a policy definition",
                dict.describe(d.what),
            ),
            Address::Trigger(..) => (
                "cannot alter type of a column used in a trigger definition",
                dict.describe(d.what),
            ),
            _ => continue,
        };
        let detail = format!("{reader} depends on column \"{name}\"");
        return Err(Error::new("0A000", message).detail(detail));
    }
    Ok(())
}

/// The new value, over the old row.
fn converted(core: &Core, table: &Table, change: &Change<'_>) -> Result<Expr> {
    let dict = core.dict();
    let column = &table.columns[change.at];
    let scope = Scope::of_table(table, &table.name);
    let params = ParamTypes::none(&dict);
    let binder = Binder::new(&scope, &params, "transform expressions");
    let value = match change.using {
        Some(e) => binder.expr(e)?,
        None => Typed {
            expr: Expr::Column(change.at),
            ty: column.ty(),
            typmod: column.typmod,
            collation: column.collation(),
        },
    };
    let assigned = binder.assign(value, change.ty, change.typmod, &column.name);
    let assigned = assigned.map_err(|e| match e.sqlstate() {
        "42804" => {
            let (what, hint) = match change.using {
                None => (
                    String::new(),
                    format!(
                        "You might need to specify \"USING {}::{}\".",
                        crate::bind::names::quote(&column.name),
                        change.ty.format(change.typmod)
                    ),
                ),
                Some(_) => (
                    String::from("result of USING clause for "),
                    String::from("You might need to add an explicit cast."),
                ),
            };
            let message = format!(
                "{what}column \"{}\" cannot be cast automatically to type {}",
                column.name,
                change.ty.name()
            );
            Error::new("42804", message).hint(hint)
        }
        _ => e,
    })?;
    Ok(assigned.expr)
}

/// The default, which goes on giving what it gave, in the new type.
fn default_of(core: &mut Core, table: &Table, change: &Change<'_>) -> Result<Option<String>> {
    let column = &table.columns[change.at];
    let Some(text) = column.default.clone() else {
        return Ok(None);
    };
    // A serial column draws from its sequence whatever its type.
    if column.sequence.is_some() || column.identity.is_some() || column.generated {
        return Ok(Some(text));
    }
    let dict = core.dict();
    let params = ParamTypes::none(&dict);
    let planner = Planner::alone(&dict, &params);
    let before = planner.default(column)?;
    let scope = Scope::default();
    let binder = Binder::new(&scope, &params, "DEFAULT");
    let value = Typed {
        expr: before.clone(),
        ty: column.ty(),
        typmod: column.typmod,
        collation: Default::default(),
    };
    let message = || {
        let (name, ty) = (&column.name, change.ty.name());
        format!("default for column \"{name}\" cannot be cast automatically to type {ty}")
    };
    let assigned = binder.assign(value, change.ty, change.typmod, &column.name);
    let assigned = assigned.map_err(|e| match e.sqlstate() {
        "42804" => Error::new("42804", message()),
        _ => e,
    })?;
    let mut after = column.clone();
    after.retype(change.ty, change.typmod);
    // The same words mean the same in most cases.
    if let (false, Ok(plain)) = (before.is_volatile(), planner.default(&after)) {
        let (old, new) = (assigned.expr, plain);
        let old = old.eval(&Env::EMPTY, core)?.into_datum();
        if old == new.eval(&Env::EMPTY, core)?.into_datum() {
            return Ok(Some(text));
        }
    }
    Ok(Some(format!(
        "CAST({text} AS {})",
        column.ty().format(column.typmod)
    )))
}

/// Whether every stored value is the new type's as it stands.
fn is_same_form(table: &Table, change: &Change<'_>) -> bool {
    let column = &table.columns[change.at];
    let (from, to) = (column.ty(), change.ty);
    let same = (from, column.typmod) == (to, change.typmod);
    let string = |ty| matches!(ty, SqlType::Text | SqlType::Varchar);
    let longer = column.typmod >= 0 && change.typmod >= column.typmod;
    let wider = string(from) && string(to) && (change.typmod < 0 || longer);
    change.using.is_none() && (same || wider)
}

/// Statistics are of values of the old type.
fn forget_statistics(core: &mut Core, table: &Table, at: usize) -> Result<()> {
    let Some(stats) = core.dict().stats(table.oid).cloned() else {
        return Ok(());
    };
    let mut stats = Stats::clone(&stats);
    match stats.columns.get_mut(at) {
        Some(column) if column.is_some() => *column = None,
        _ => return Ok(()),
    }
    core.define(Object::Stats(Arc::new(stats)))
}

/// Writes all rows into new segments.
fn rewrite(
    core: &mut Core,
    table: &Table,
    mut next: Table,
    at: usize,
    value: &Expr,
) -> Result<Table> {
    let engine = core.database.engine().clone();
    let object = engine.allocate_object_id()?;
    next.segment = object.0;
    next.header = core.engine.create_heap(object)?.0;
    for column in &mut next.columns {
        column.missing = None;
    }
    let mut indexes = std::mem::take(&mut next.indexes);
    let mut next = next.finish()?;
    for index in &mut indexes {
        index_expression::renew(&core.dict(), &next, index)?;
    }
    let rules = rules(core, &next)?;
    convert(core, (table, &next), at, value, &rules)?;
    let def: Arc<TableDef> = next.engine().clone();
    let memory = core.settings.kilobytes("maintenance_work_mem");
    for mut index in indexes {
        let object = engine.allocate_object_id()?;
        index.segment = object.0;
        index.header = core.engine.create_index_segment(ObjectId(index.segment))?.0;
        index.bind(&next)?;
        // Of these rows there are no versions but this transaction's.
        index.created = 0;
        core.engine
            .build_index(&def, &index.engine(), memory)
            .map_err(|e| duplicate_in_build(core, e, &next, &index))?;
        next.indexes.push(index);
    }
    drop_segments(core, table)?;
    next.finish()
}

/// What rows must meet, which no condition of before may fail to say in the new type.
fn rules(core: &Core, table: &Table) -> Result<RowRules> {
    let dict = core.dict();
    let params = ParamTypes::none(&dict);
    let planner = Planner::alone(&dict, &params);
    planner.rules(table)
}

fn convert(
    core: &mut Core,
    (from, to): (&Table, &Table),
    at: usize,
    value: &Expr,
    rules: &RowRules,
) -> Result<()> {
    let (old, new) = (from.engine().clone(), to.engine().clone());
    let snapshot = core.engine.newest_snapshot()?;
    let mut scan = core.engine.scan(&old);
    let mut rows: Vec<Vec<u8>> = Vec::new();
    loop {
        rows.clear();
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let keep = &mut |_, bytes: &[u8]| rows.push(bytes.to_vec());
        if !scan.next_block(&mut core.engine, &snapshot, keep)? {
            return Ok(());
        }
        for row in &rows {
            let mut values: Vec<DatumRef<'_>> = Vec::with_capacity(old.columns.len());
            decode(row, &old, old.columns.len(), &mut values)?;
            let env = Env {
                row: &values,
                params: &[],
            };
            let made: Datum = value.eval(&env, core)?.into_datum();
            values[at] = made.borrow();
            for (place, column) in from.columns.iter().enumerate() {
                if column.dropped {
                    values[place] = DatumRef::Null;
                }
            }
            check(core, to, rules, &values)?;
            core.engine.insert_moved(&new, &values)?;
        }
    }
}

fn check(core: &mut Core, table: &Table, rules: &RowRules, row: &[DatumRef<'_>]) -> Result<()> {
    for (column, domain) in &rules.domains {
        domain.check(row[*column], core)?;
    }
    if let Some(null) = rules.not_null.iter().find(|c| row[**c].is_null()) {
        return Err(null_values(core, table, *null));
    }
    for (name, condition) in &rules.checks {
        // Rows of before are not looked at for it.
        if table
            .checks
            .iter()
            .any(|c| c.unvalidated && c.name == *name)
        {
            continue;
        }
        if condition.test(&Env { row, params: &[] }, core)? == Some(false) {
            return Err(no_values(core, table, name));
        }
    }
    Ok(())
}

/// Foreign keys of the column, on either side, must hold for the new values too.
fn check_keys(core: &mut Core, table: &Table, at: usize) -> Result<()> {
    let own = table.foreign_keys.iter();
    let own: Vec<ForeignKey> = own.filter(|k| k.columns.contains(&at)).cloned().collect();
    let table = Arc::new(table.clone());
    for key in own {
        let parent = match key.parent == table.oid {
            true => table.clone(),
            false => locked(core, key.parent)?,
        };
        check_key(core, &table, &parent, &key)?;
    }
    let to_it = core.dict().referencing(table.oid).into_iter();
    let to_it: Vec<_> = to_it
        .filter(|(child, k)| *child != table.oid && k.parent_columns.contains(&at))
        .collect();
    for (child, key) in to_it {
        let child = locked(core, child)?;
        check_key(core, &child, &table, &key)?;
    }
    Ok(())
}

fn locked(core: &mut Core, oid: u32) -> Result<Arc<Table>> {
    core.lock_table(oid, TableLock::ShareRowExclusive, false)?;
    let table = core.dict().table_by_oid(oid).cloned();
    table.ok_or_else(|| Error::internal("the other table of a foreign key is gone"))
}

fn check_key(core: &mut Core, child: &Arc<Table>, parent: &Table, key: &ForeignKey) -> Result<()> {
    super::foreign::check_types(child, parent, &key.name, &key.columns, &key.parent_columns)?;
    match key.validated {
        true => foreign::validate(core, child, parent, key),
        false => Ok(()),
    }
}

/// Refuses to change a table for which this transaction still has checks of rows to make.
pub fn refuse_pending(core: &Core, table: &Table, command: &str) -> Result<()> {
    refuse_events(core, table, command, &|e| {
        core.events.is_deferred(e.constraint, true)
    })
}

/// Refuses to change the types of a table of which this transaction has queued checks of keys: one
/// that SET CONSTRAINTS has had made is made again, by the key as it was.
pub fn refuse_queued(core: &Core, table: &Table) -> Result<()> {
    refuse_events(core, table, "ALTER TABLE", &|_| true)
}

fn refuse_events(
    core: &Core,
    table: &Table,
    command: &str,
    wanted: &dyn Fn(&Event) -> bool,
) -> Result<()> {
    let dict = core.dict();
    let keys = dict.referencing(table.oid);
    let concerns = |e: &Event| {
        let parent = keys.iter().any(|(_, key)| key.oid == e.constraint);
        (e.table == table.oid || parent) && wanted(e) && is_there(&dict, e)
    };
    if !core.events.deferred.iter().any(concerns) {
        return Ok(());
    }
    let name = &table.name;
    let message = format!("cannot {command} \"{name}\" because it has pending trigger events");
    Err(Error::new("55006", message))
}

/// Whether the constraint of an event has not been dropped since.
fn is_there(dict: &Dict, e: &Event) -> bool {
    let Some(table) = dict.table_by_oid(e.table) else {
        return false;
    };
    let is_key = || table.indexes.iter().any(|i| i.constraint == e.constraint);
    matches!(e.what, What::Trigger { .. }) || table.foreign_key(e.constraint).is_some() || is_key()
}
