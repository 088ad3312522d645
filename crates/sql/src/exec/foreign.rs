//! Foreign keys: the checks and the actions that row events stand for.
//!
//! The check of a row that references reads the referenced row as it is now and locks it FOR KEY
//! SHARE, which any number of transactions of any instance have at once. A delete, or a change of
//! the key, excludes that lock. So it waits for those whose rows reference the row, or they wait
//! for it; and once it has happened, all rows that reference the key are committed or its own.
//! Under REPEATABLE READ the referenced row is looked up by the transaction's snapshot, as in
//! PostgreSQL, and an action on a row that the snapshot does not see is 40001.

use std::sync::Arc;

use block::RowId;
use block::value::Datum;
use engine::{Isolation, LockOutcome, LockWait, RowLock, Snapshot};

use super::checks::check_row;
use super::events::{self, Cause, Event, What};
use super::foreign_rows::{
    key_bytes, lock_referenced, pairs, referenced, referenced_values, references, referencing, rows,
};
use super::row::decode;
use super::told::{hides_rows, shows, write_error};
use super::triggers::{self, Before};
use crate::bind::ParamTypes;
use crate::bind::names::quote;
use crate::dict::trigger::Op;
use crate::dict::{Action, ForeignKey, Table};
use crate::error::{Error, Result};
use crate::expr::Env;
use crate::parse::utility::TableLock;
use crate::pgtype;
use crate::plan::Planner;
use crate::session::Core;

/// Fires the events of the statement, and those that they cause.
pub fn fire(core: &mut Core) -> Result<()> {
    while let Some(event) = core.events.next() {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        happen(core, event, true)?;
    }
    core.events.transitions.clear();
    Ok(())
}

/// Makes the deferred checks that `wanted` picks.
pub fn fire_deferred(core: &mut Core, wanted: &dyn Fn(&Event) -> bool) -> Result<()> {
    let mut from = 0;
    while let Some((at, event)) = core.events.next_deferred(from, wanted) {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        happen(core, event, false)?;
        from = at + 1;
    }
    Ok(())
}

fn happen(core: &mut Core, event: Event, may_defer: bool) -> Result<()> {
    if let What::Shared(_) = event.what {
        return super::deferrable::happen(core, event, may_defer);
    }
    if let What::Trigger { .. } = event.what {
        return super::triggers::happen(core, event, may_defer);
    }
    let Some((child, key)) = found(core, &event) else {
        // The constraint was dropped since.
        return Ok(());
    };
    let action = match event.what {
        What::Referencing(_) | What::Shared(_) | What::Trigger { .. } => Action::NoAction,
        What::Deleted(_) => key.on_delete,
        What::Updated { .. } => key.on_update,
    };
    // Only checks wait for the end of the transaction.
    let deferred = key.deferrable && core.events.is_deferred(key.oid, key.initially_deferred);
    if may_defer && action == Action::NoAction && deferred {
        core.events.defer(event);
        return Ok(());
    }
    match &event.what {
        What::Referencing(values) => check_referencing(core, &child, &key, values),
        What::Deleted(old) => lost(core, &event, action, old, None),
        What::Updated { old, new } => lost(core, &event, action, old, Some(new)),
        What::Shared(_) | What::Trigger { .. } => Ok(()),
    }
}

fn found(core: &Core, event: &Event) -> Option<(Arc<Table>, ForeignKey)> {
    let child = core.dict().table_by_oid(event.table)?.clone();
    let key = child
        .foreign_keys
        .iter()
        .find(|k| k.oid == event.constraint)?
        .clone();
    Some((child, key))
}

/// The referenced table, locked against changes of its definition.
fn parent_of(core: &mut Core, key: &ForeignKey) -> Result<Arc<Table>> {
    core.lock_table(key.parent, TableLock::RowShare, false)?;
    let parent = core.dict().table_by_oid(key.parent).cloned();
    parent.ok_or_else(|| Error::internal("a referenced table is gone"))
}

fn check_referencing(
    core: &mut Core,
    child: &Arc<Table>,
    key: &ForeignKey,
    values: &[Datum],
) -> Result<()> {
    let parent = parent_of(core, key)?;
    let mixed = values.iter().any(Datum::is_null);
    if !mixed
        && let Some(wanted) = referenced_values(core, (child, &parent), key, values)?
        && lock_referenced(core, &parent, key, &wanted)?
    {
        return Ok(());
    }
    // The row may be gone, or have another key, by now.
    let snapshot = core.engine.newest_snapshot()?;
    if rows(core, child, &key.columns, values, &snapshot, 1)?.is_empty() {
        return Ok(());
    }
    Err(not_present(core, child, &parent, key, values))
}

/// The error for a row without the one that it references.
pub fn not_present(
    core: &Core,
    child: &Table,
    parent: &Table,
    key: &ForeignKey,
    values: &[Datum],
) -> Error {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        child.name, key.name
    );
    let detail = match values.iter().any(Datum::is_null) {
        true => "MATCH FULL does not allow mixing of null and nonnull key values.".to_string(),
        false => format!(
            "{} is not present in table \"{}\".",
            shown(core, child, &key.columns, values),
            parent.name
        ),
    };
    Error::new("23503", message)
        .detail(detail)
        .table(&child.name)
        .constraint(&key.name)
}

fn still_referenced(
    core: &Core,
    (child, parent): (&Table, &Table),
    key: &ForeignKey,
    values: &[Datum],
) -> Error {
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        parent.name, key.name, child.name
    );
    Error::new("23503", message)
        .detail(format!(
            "{} is still referenced from table \"{}\".",
            shown(core, parent, &key.parent_columns, values),
            child.name
        ))
        .table(&child.name)
        .constraint(&key.name)
}

/// `Key (a, b)=(1, 2)`; of a table whose rows are kept from the role, or of columns that it may not
/// read, no more than `Key`.
fn shown(core: &Core, table: &Table, columns: &[usize], values: &[Datum]) -> String {
    if hides_rows(table, core) || columns.iter().any(|at| !shows(table, core, *at)) {
        return "Key".to_string();
    }
    let names: Vec<&str> = columns
        .iter()
        .map(|&c| table.columns[c].name.as_str())
        .collect();
    let text = |(&column, value): (&usize, &Datum)| {
        let mut out = Vec::new();
        pgtype::text_out(
            table.columns[column].ty(),
            value.borrow(),
            &core.io,
            &mut out,
        );
        String::from_utf8_lossy(&out).into_owned()
    };
    let texts: Vec<String> = columns.iter().zip(values).map(text).collect();
    format!("Key ({})=({})", names.join(", "), texts.join(", "))
}

/// The referenced table has lost a key: by a deletion, or for a new one.
fn lost(
    core: &mut Core,
    event: &Event,
    action: Action,
    old: &[Datum],
    new: Option<&[Datum]>,
) -> Result<()> {
    let lock = match action {
        Action::NoAction | Action::Restrict => TableLock::RowShare,
        Action::Cascade | Action::SetNull | Action::SetDefault => TableLock::RowExclusive,
    };
    core.lock_table(event.table, lock, false)?;
    // Its columns may be others since the event was queued.
    let Some((child, key)) = found(core, event) else {
        return Ok(());
    };
    let parent = parent_of(core, &key)?;
    let tables = (&child, &*parent);
    let snapshot = core.engine.newest_snapshot()?;
    if matches!(action, Action::NoAction | Action::Restrict) {
        if referencing(core, tables, &key, old, &snapshot, 1)?.is_empty() {
            return Ok(());
        }
        // Another row may have the key by now.
        if action == Action::NoAction && lock_referenced(core, &parent, &key, old)? {
            return Ok(());
        }
        return Err(still_referenced(core, (&child, &parent), &key, old));
    }
    let found = referencing(core, tables, &key, old, &snapshot, usize::MAX)?;
    let columns = match new {
        None if !key.set_on_delete.is_empty() => &key.set_on_delete,
        _ => &key.columns,
    };
    let set = match action {
        Action::Cascade => match new {
            None => None,
            Some(new) => Some(cascaded(core, tables, &key, new)?),
        },
        Action::SetNull => Some(vec![Datum::Null; columns.len()]),
        _ => Some(defaults(core, &child, columns)?),
    };
    let set = set.as_deref().map(|values| (&columns[..], values));
    for rid in &found {
        write(core, tables, &key, (*rid, old), &snapshot, set)?;
    }
    // The default may be the very key that is gone: such a row's key has not changed.
    if action == Action::SetDefault && !found.is_empty() {
        let snapshot = core.engine.newest_snapshot()?;
        if !referencing(core, tables, &key, old, &snapshot, 1)?.is_empty()
            && !lock_referenced(core, &parent, &key, old)?
        {
            return Err(still_referenced(core, (&child, &parent), &key, old));
        }
    }
    Ok(())
}

/// The new key of a referenced row as values of the columns that reference it.
fn cascaded(
    core: &Core,
    (child, parent): (&Arc<Table>, &Table),
    key: &ForeignKey,
    new: &[Datum],
) -> Result<Vec<Datum>> {
    let pairs = pairs(child, parent, key)?;
    let columns = pairs.iter().zip(&key.columns).zip(new);
    columns
        .map(|((pair, &c), value)| pair.assigned(value, child.columns[c].typmod, &core.io))
        .collect()
}

fn defaults(core: &mut Core, child: &Table, columns: &[usize]) -> Result<Vec<Datum>> {
    let dict = core.dict();
    let params = ParamTypes::none(&dict);
    let planner = Planner::alone(&dict, &params);
    let value = |&c: &usize| {
        let default = planner.default(&child.columns[c])?;
        Ok(default.eval(&Env::EMPTY, core)?.into_datum())
    };
    columns.iter().map(value).collect()
}

/// Deletes a row that references, or sets these columns of it, if it still has that key.
fn write(
    core: &mut Core,
    (child, parent): (&Arc<Table>, &Table),
    key: &ForeignKey,
    (rid, old): (RowId, &[Datum]),
    snapshot: &Snapshot,
    set: Option<(&[usize], &[Datum])>,
) -> Result<()> {
    let def = child.engine().clone();
    let mut stored = Vec::new();
    if core.engine.isolation() == Some(Isolation::RepeatableRead) {
        let own = core.engine.snapshot()?;
        if !core.engine.fetch_version(&def, rid, &own, &mut stored)? {
            return Err(Error::new(
                "40001",
                "could not serialize access due to concurrent update",
            ));
        }
    }
    let lock = match set {
        None => RowLock::Update,
        Some(_) if child.columns.iter().any(|c| c.generated) => RowLock::Update,
        Some((columns, _)) => def.lock_of_update(columns.iter().copied()),
    };
    match core
        .engine
        .lock_row(&def, rid, snapshot, (lock, LockWait::Wait), &mut stored)?
    {
        LockOutcome::Gone | LockOutcome::Skipped => return Ok(()),
        LockOutcome::Changed => {}
        LockOutcome::Locked => {
            if !core.engine.fetch_current(&def, rid, &mut stored)? {
                return Ok(());
            }
        }
    }
    let mut row = Vec::with_capacity(def.columns.len());
    decode(&stored, &def, def.columns.len(), &mut row)?;
    let pairs = pairs(child, parent, key)?;
    if !references(&pairs, key, &row, old, &core.io)? {
        return Ok(());
    }
    let Some((to_set, values)) = set else {
        let before = triggers::before_row(core, child, Cause::of(Op::Delete), Some(&row), None)?;
        if let Before::Skip = before {
            return Ok(());
        }
        core.engine.delete(&def, rid, None)?;
        return events::deleted(core, child, &row);
    };
    let changed;
    let mut made = Vec::new();
    let rules = {
        let dict = core.dict();
        let params = ParamTypes::none(&dict);
        let planner = Planner::alone(&dict, &params);
        planner.rules(child)?
    };
    let columns = rules.changed(to_set);
    let mut new = row.clone();
    for (&column, value) in to_set.iter().zip(values) {
        new[column] = value.borrow();
    }
    let cause = Cause::update(&columns);
    match triggers::before_row(core, child, cause, Some(&row), Some(&new))? {
        Before::Same => {}
        Before::Skip => return Ok(()),
        Before::Row(now) => {
            changed = now;
            new = changed.iter().map(Datum::borrow).collect();
        }
    }
    super::generated::fill(&rules, core, &mut new, &mut made)?;
    check_row(child, &rules, core, &new)?;
    let done = core.engine.update(&def, rid, &new, None);
    done.map_err(|e| write_error(e, child, &new, core))?;
    events::updated(core, child, &columns, &row, &new)
}

/// Checks the rows that there are, as of one moment. Nobody changes either table meanwhile, or all
/// who do check what they write.
pub fn validate(
    core: &mut Core,
    child: &Arc<Table>,
    parent: &Table,
    key: &ForeignKey,
) -> Result<()> {
    let def = child.engine().clone();
    let snapshot = core.engine.newest_snapshot()?;
    let mut scan = core.engine.scan(&def);
    let (mut stored, mut found) = (Vec::<Vec<u8>>::new(), Vec::new());
    let mut last: Option<Vec<u8>> = None;
    loop {
        stored.clear();
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        if !scan.next_block(&mut core.engine, &snapshot, &mut |_, bytes| {
            stored.push(bytes.to_vec())
        })? {
            return Ok(());
        }
        for bytes in &stored {
            let mut row = Vec::with_capacity(def.columns.len());
            decode(bytes, &def, def.columns.len(), &mut row)?;
            if !events::matters(key, &row) {
                continue;
            }
            let this = key_bytes(child, &key.columns, |at| row[key.columns[at]]);
            if last.as_ref() == Some(&this) {
                continue;
            }
            let values = events::values(&row, &key.columns);
            let mixed = values.iter().any(Datum::is_null);
            let wanted = match mixed {
                true => None,
                false => referenced_values(core, (child, parent), key, &values)?,
            };
            let is_there = match wanted {
                None => false,
                Some(wanted) => {
                    referenced(core, parent, key, &wanted, &snapshot, &mut found)?.is_some()
                }
            };
            if !is_there {
                return Err(not_present(core, child, parent, key, &values));
            }
            last = Some(this);
        }
    }
}

/// The definition, as `pg_get_constraintdef` writes it; `name`: the parent's, with its schema if
/// it is to be shown.
pub fn definition(child: &Table, (name, parent): (&str, &Table), key: &ForeignKey) -> String {
    let list = |t: &Table, columns: &[usize]| {
        let names: Vec<String> = columns.iter().map(|&c| quote(&t.columns[c].name)).collect();
        names.join(", ")
    };
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {}({})",
        list(child, &key.columns),
        name,
        list(parent, &key.parent_columns)
    );
    if key.full {
        text.push_str(" MATCH FULL");
    }
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != Action::NoAction {
            text.push_str(&format!(" ON {event} {}", action.name()));
            if event == "DELETE" && !key.set_on_delete.is_empty() {
                text.push_str(&format!(" ({})", list(child, &key.set_on_delete)));
            }
        }
    }
    if key.deferrable {
        text.push_str(" DEFERRABLE");
    }
    if key.initially_deferred {
        text.push_str(" INITIALLY DEFERRED");
    }
    if !key.validated {
        text.push_str(" NOT VALID");
    }
    text
}
