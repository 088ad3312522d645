//! Deferrable unique keys: queued when a written row's key has other entries, checked at the end of
//! the statement or of the transaction ([`super::events`]).

use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::events::{Event, What, values};
use super::foreign_rows::same_key;
use super::told::{self, hides_key, of_table};
use crate::dict::{Index, Table};
use crate::error::{Error, Result};
use crate::session::Core;

/// Queues the checks that a row just written makes necessary. `old` is the version that it
/// replaced.
pub fn written(
    core: &mut Core,
    table: &Table,
    old: Option<&[DatumRef<'_>]>,
    row: &[DatumRef<'_>],
) -> Result<()> {
    let def = table.engine();
    for (at, index) in table.indexes.iter().enumerate() {
        if !index.deferrable {
            continue;
        }
        let columns: Vec<usize> = index.keys.iter().map(|k| k.column).collect();
        if old.is_some_and(|old| same_key(table, &columns, old, row)) {
            continue;
        }
        let index_def = &def.indexes[at];
        if core.engine.may_have_several_rows(def, index_def, row)? {
            core.events.queue(Event {
                table: table.oid,
                constraint: index.constraint,
                what: What::Shared(values(row, &columns)),
            });
        }
    }
    Ok(())
}

/// Checks that one row at most has a key, or leaves it to the end of the transaction.
pub fn happen(core: &mut Core, event: Event, may_defer: bool) -> Result<()> {
    let Some((table, at)) = found(core, &event) else {
        // The constraint was dropped since.
        return Ok(());
    };
    let index = &table.indexes[at];
    let deferred = core
        .events
        .is_deferred(index.constraint, index.initially_deferred);
    if may_defer && deferred {
        core.events.defer(event);
        return Ok(());
    }
    let What::Shared(key) = &event.what else {
        return Err(Error::internal("an event of another kind of constraint"));
    };
    let def = table.engine().clone();
    let refs: Vec<DatumRef<'_>> = key.iter().map(Datum::borrow).collect();
    match core
        .engine
        .has_several_rows(&def, &def.indexes[at], &refs)?
    {
        true => Err(duplicate(core, &table, index, &refs)),
        false => Ok(()),
    }
}

fn found(core: &Core, event: &Event) -> Option<(Arc<Table>, usize)> {
    let table = core.dict().table_by_oid(event.table)?.clone();
    let at = (table.indexes.iter()).position(|i| i.constraint == event.constraint)?;
    Some((table, at))
}

fn duplicate(core: &Core, table: &Table, index: &Index, key: &[DatumRef<'_>]) -> Error {
    let message = format!(
        "duplicate key value violates unique constraint \"{}\"",
        index.name
    );
    let e = of_table(Error::new("23505", message), table, core).constraint(&index.name);
    match hides_key(table, index, core) {
        true => e,
        false => {
            let key = told::key(table, index, key.iter().copied(), core);
            e.detail(format!("{key} already exists."))
        }
    }
}
