//! Foreign keys: the checks and the actions that row events stand for.
//!
//! The check of a row that references reads the referenced row as it is now and locks it FOR KEY
//! SHARE, which any number of transactions of any instance have at once. A delete, or a change of
//! the key, excludes that lock. So it waits for those whose rows reference the row, or they wait
//! for it; and once it has happened, all rows that reference the key are committed or its own.
//! Under REPEATABLE READ the referenced row is looked up by the transaction's snapshot, as in
//! PostgreSQL, and an action on a row that the snapshot does not see is 40001.

use std::ops::Bound;
use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{AskedAhead, IndexColumn, Isolation, LockOutcome, LockWait, RowLock, Snapshot};

use super::checks::check_row;
use super::events::{self, Cause, Event, What};
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
use crate::types::SqlType;

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
    if !mixed && lock_referenced(core, &parent, key, values)? {
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

/// A value of the referencing column as one of the referenced; `None` if that type has no such
/// value.
fn converted(value: &Datum, to: SqlType) -> Option<Datum> {
    let number = match value {
        Datum::Int2(n) => i64::from(*n),
        Datum::Int4(n) => i64::from(*n),
        Datum::Int8(n) => *n,
        other => return Some(other.clone()),
    };
    match to {
        SqlType::Int2 => i16::try_from(number).ok().map(Datum::Int2),
        SqlType::Int4 => i32::try_from(number).ok().map(Datum::Int4),
        SqlType::Int8 => Some(Datum::Int8(number)),
        _ => Some(value.clone()),
    }
}

/// Whether values of the two types are stored alike, so that one can be looked up among the others.
pub fn comparable(child: SqlType, parent: SqlType) -> bool {
    use SqlType::{Int2, Int4, Int8, Text, Varchar};
    child == parent
        || matches!((child, parent), (Int2 | Int4 | Int8, Int2 | Int4 | Int8))
        || matches!((child, parent), (Text | Varchar, Text | Varchar))
}

/// The referenced row that the snapshot sees, by the unique index.
pub fn referenced(
    core: &mut Core,
    parent: &Table,
    key: &ForeignKey,
    values: &[Datum],
    snapshot: &Snapshot,
    row: &mut Vec<u8>,
) -> Result<Option<RowId>> {
    let at = parent.indexes.iter().position(|i| i.oid == key.index);
    let at = at.ok_or_else(|| Error::internal("the index of a referenced key is gone"))?;
    let mut wanted = Vec::with_capacity(values.len());
    for k in &parent.indexes[at].keys {
        let place = key.parent_columns.iter().position(|c| *c == k.column);
        let place = place.ok_or_else(|| Error::internal("a referenced key has another index"))?;
        match converted(&values[place], parent.columns[k.column].ty()) {
            Some(value) => wanted.push(value),
            None => return Ok(None),
        }
    }
    let ahead = AskedAhead::default();
    let found = core
        .engine
        .get_unique(parent.engine(), at, &wanted, snapshot, &ahead, row);
    Ok(found?)
}

/// Locks the referenced row; false if there is none.
fn lock_referenced(
    core: &mut Core,
    parent: &Table,
    key: &ForeignKey,
    values: &[Datum],
) -> Result<bool> {
    let (mut row, mut newest) = (Vec::new(), Vec::new());
    loop {
        let snapshot = match core.engine.isolation() {
            Some(Isolation::RepeatableRead) => core.engine.snapshot()?,
            _ => core.engine.newest_snapshot()?,
        };
        let Some(rid) = referenced(core, parent, key, values, &snapshot, &mut row)? else {
            return Ok(false);
        };
        let how = (RowLock::KeyShare, LockWait::Wait);
        match core
            .engine
            .lock_row(parent.engine(), rid, &snapshot, how, &mut newest)?
        {
            LockOutcome::Locked => return Ok(true),
            // What it is now is looked up by its key.
            LockOutcome::Changed | LockOutcome::Gone | LockOutcome::Skipped => {}
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// The bytes that keys have in common exactly if they are equal, as in an index.
fn key_bytes<'d>(
    table: &Table,
    columns: &[usize],
    value: impl Fn(usize) -> DatumRef<'d>,
) -> Vec<u8> {
    let order = IndexColumn {
        column: 0,
        descending: false,
        nulls_first: false,
    }
    .order();
    let mut bytes = Vec::with_capacity(16);
    for (at, &column) in columns.iter().enumerate() {
        block::key::push_column(&mut bytes, table.engine().columns[column], order, value(at));
    }
    bytes
}

/// Whether two versions of a row have the same key.
pub fn same_key(table: &Table, columns: &[usize], a: &[DatumRef<'_>], b: &[DatumRef<'_>]) -> bool {
    key_bytes(table, columns, |at| a[columns[at]]) == key_bytes(table, columns, |at| b[columns[at]])
}

/// The rows of a table that have these values in these columns, `most` of them at most. `None` of
/// the values fits the columns' types: then there is none.
fn rows(
    core: &mut Core,
    table: &Arc<Table>,
    columns: &[usize],
    values: &[Datum],
    snapshot: &Snapshot,
    most: usize,
) -> Result<Vec<RowId>> {
    let mut own = Vec::with_capacity(values.len());
    for (&column, value) in columns.iter().zip(values) {
        match converted(value, table.columns[column].ty()) {
            Some(value) => own.push(value),
            None => return Ok(Vec::new()),
        }
    }
    let def = table.engine().clone();
    let mut found = Vec::new();
    let leads = |i: &crate::dict::Index| {
        let first: Vec<usize> = i
            .keys
            .iter()
            .take(columns.len())
            .map(|k| k.column)
            .collect();
        i.is_valid()
            && i.predicate.is_none()
            && first.len() == columns.len()
            && columns.iter().all(|c| first.contains(c))
    };
    // A snapshot of now is above the SCN of any index that others can see.
    if let Some(at) = table.indexes.iter().position(leads) {
        let keys = table.indexes[at].keys.iter().take(columns.len());
        let place = |k: &crate::dict::IndexKey| columns.iter().position(|c| *c == k.column);
        let low: Vec<Datum> = keys.filter_map(place).map(|p| own[p].clone()).collect();
        let (from, to) = (Bound::Included(&low[..]), Bound::Included(&low[..]));
        let mut scan = core.engine.index_range(&def, at, from, to, false)?;
        let mut row = Vec::new();
        while let Some(rid) = scan.next(&mut core.engine, snapshot, &mut row)? {
            found.push(rid);
            if found.len() == most {
                break;
            }
        }
        return Ok(found);
    }
    let wanted = key_bytes(table, columns, |at| own[at].borrow());
    let mut scan = core.engine.scan(&def);
    let mut failed = None;
    loop {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let more = scan.next_block(&mut core.engine, snapshot, &mut |rid, bytes| {
            let mut row = Vec::new();
            match decode(bytes, &def, def.columns.len(), &mut row) {
                Ok(()) if key_bytes(table, columns, |at| row[columns[at]]) == wanted => {
                    found.push(rid);
                }
                Ok(()) => {}
                Err(e) => failed = Some(e),
            }
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
        if !more || found.len() >= most {
            return Ok(found);
        }
    }
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
    let snapshot = core.engine.newest_snapshot()?;
    if matches!(action, Action::NoAction | Action::Restrict) {
        if rows(core, &child, &key.columns, old, &snapshot, 1)?.is_empty() {
            return Ok(());
        }
        let parent = parent_of(core, &key)?;
        // Another row may have the key by now.
        if action == Action::NoAction && lock_referenced(core, &parent, &key, old)? {
            return Ok(());
        }
        return Err(still_referenced(core, (&child, &parent), &key, old));
    }
    let found = rows(core, &child, &key.columns, old, &snapshot, usize::MAX)?;
    let columns = match new {
        None if !key.set_on_delete.is_empty() => &key.set_on_delete,
        _ => &key.columns,
    };
    let set = match action {
        Action::Cascade => match new {
            None => None,
            Some(new) => Some(cascaded(&child, &key, new)?),
        },
        Action::SetNull => Some(vec![Datum::Null; columns.len()]),
        _ => Some(defaults(core, &child, columns)?),
    };
    let set = set.as_deref().map(|values| (&columns[..], values));
    for rid in &found {
        write(core, &child, &key, (*rid, old), &snapshot, set)?;
    }
    // The default may be the very key that is gone: such a row's key has not changed.
    if action == Action::SetDefault && !found.is_empty() {
        let parent = parent_of(core, &key)?;
        let snapshot = core.engine.newest_snapshot()?;
        if !rows(core, &child, &key.columns, old, &snapshot, 1)?.is_empty()
            && !lock_referenced(core, &parent, &key, old)?
        {
            return Err(still_referenced(core, (&child, &parent), &key, old));
        }
    }
    Ok(())
}

/// The new key of a referenced row as values of the columns that reference it.
fn cascaded(child: &Table, key: &ForeignKey, new: &[Datum]) -> Result<Vec<Datum>> {
    let convert = |(&column, value): (&usize, &Datum)| {
        let c = &child.columns[column];
        let value = converted(value, c.ty())
            .ok_or_else(|| Error::new("22003", format!("{} out of range", c.ty().name())))?;
        match c.typmod >= 0 {
            true => pgtype::apply_typmod(c.ty(), c.typmod, value, false),
            false => Ok(value),
        }
    };
    key.columns.iter().zip(new).map(convert).collect()
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
    child: &Arc<Table>,
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
    let mut own = Vec::with_capacity(old.len());
    for (&column, value) in key.columns.iter().zip(old) {
        own.extend(converted(value, child.columns[column].ty()));
    }
    let wanted = key_bytes(child, &key.columns, |at| own[at].borrow());
    if own.len() < old.len() || key_bytes(child, &key.columns, |at| row[key.columns[at]]) != wanted
    {
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

/// Checks the rows that there are, when a foreign key is added. Nobody changes either table
/// meanwhile.
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
            if mixed || referenced(core, parent, key, &values, &snapshot, &mut found)?.is_none() {
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
