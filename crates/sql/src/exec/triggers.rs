//! Triggers of tables: before rows are written, and after, by the events that the writes queue.
//!
//! **Invariants.**
//! - Triggers of a table are fired in the order of their names; each before-row trigger sees what
//!   the one before it has made of the row.
//! - Where a row is changed or deleted, it is locked before its before-row triggers are fired, so
//!   that each is fired once.

use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{LockOutcome, LockWait, RowLock, Snapshot};

use super::events::{Event, What};
use super::lock::lock;
use crate::dict::Table;
use crate::dict::trigger::{Op, Trigger};
use crate::error::Result;
use crate::pl::{self, Occasion};
use crate::session::Core;

/// What before-row triggers have come to.
pub enum Before {
    /// The row is as it was.
    Same,
    /// It is this one now.
    Row(Vec<Datum>),
    /// The row is not to be written.
    Skip,
}

/// Fires the before-row triggers of a table.
pub fn before_row(
    core: &mut Core,
    table: &Arc<Table>,
    op: Op,
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
) -> Result<Before> {
    for_row(core, (table, op), old, new, &|t| t.is_fired(op, true, true))
}

/// Fires the INSTEAD OF triggers of a view for a row: what they say the row is now, or that was
/// deleted. `None`: one of them says that nothing was done.
pub fn instead_of(
    core: &mut Core,
    view: &Arc<Table>,
    op: Op,
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
) -> Result<Option<Vec<Datum>>> {
    let row = new.or(old).unwrap_or_default();
    Ok(
        match for_row(core, (view, op), old, new, &|t| t.is_instead(op))? {
            Before::Same => Some(row.iter().map(DatumRef::to_datum).collect()),
            Before::Row(now) => Some(now),
            Before::Skip => None,
        },
    )
}

/// Fires the wanted triggers for a row, each with what the one before has made of it.
fn for_row(
    core: &mut Core,
    (table, op): (&Arc<Table>, Op),
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
    wanted: &dyn Fn(&Trigger) -> bool,
) -> Result<Before> {
    let mut now: Option<Vec<Datum>> = None;
    let mut fired = false;
    for trigger in table.triggers.iter().filter(|t| wanted(t)) {
        let refs: Option<Vec<DatumRef<'_>>> = match &now {
            Some(row) => Some(row.iter().map(Datum::borrow).collect()),
            None => new.map(<[_]>::to_vec),
        };
        // What is generated is not known yet.
        let refs = refs.map(|mut row| {
            for (at, _) in table.live_columns().filter(|(_, c)| c.generated) {
                row[at] = DatumRef::Null;
            }
            row
        });
        let on = Occasion {
            table,
            trigger,
            op,
            old,
            new: refs.as_deref(),
        };
        if !pl::is_wanted(core, &on)? {
            continue;
        }
        let Some(row) = pl::fire(core, &on)? else {
            return Ok(Before::Skip);
        };
        fired = true;
        now = Some(row);
    }
    Ok(match now {
        Some(row) if fired && op != Op::Delete => Before::Row(row),
        _ => Before::Same,
    })
}

/// Locks a row whose before-row triggers are about to be fired; false if it has changed since the
/// snapshot, or is gone.
pub fn lock_first(
    core: &mut Core,
    table: &Table,
    (rid, how): (RowId, RowLock),
    snapshot: &Snapshot,
) -> Result<LockOutcome> {
    let mut newest = Vec::new();
    lock(
        core,
        table,
        rid,
        snapshot,
        (how, LockWait::Wait),
        &mut newest,
    )
}

/// Queues the after-row triggers of a row.
pub fn after_row(
    core: &mut Core,
    table: &Table,
    op: Op,
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
) {
    if table.triggers.is_empty() {
        return;
    }
    let keep = |row: Option<&[DatumRef<'_>]>| -> Option<Vec<Datum>> {
        row.map(|row| row.iter().map(DatumRef::to_datum).collect())
    };
    for trigger in &table.triggers {
        if trigger.is_fired(op, false, true) {
            core.events.queue(Event {
                table: table.oid,
                constraint: trigger.oid,
                what: What::Trigger {
                    op,
                    old: keep(old),
                    new: keep(new),
                },
            });
        }
    }
}

/// Fires the triggers of a statement, or queues them.
pub fn statement(core: &mut Core, table: &Arc<Table>, op: Op, before: bool) -> Result<()> {
    for trigger in &table.triggers {
        if !trigger.is_fired(op, before, false) {
            continue;
        }
        let what = What::Trigger {
            op,
            old: None,
            new: None,
        };
        let event = Event {
            table: table.oid,
            constraint: trigger.oid,
            what,
        };
        match before {
            true => happen(core, &event)?,
            false => core.events.queue(event),
        }
    }
    Ok(())
}

/// Fires the trigger that an event is of, if it is still there.
pub fn happen(core: &mut Core, event: &Event) -> Result<()> {
    let What::Trigger { op, old, new } = &event.what else {
        return Ok(());
    };
    let Some(table) = core.dict().with_triggers(event.table) else {
        return Ok(());
    };
    let found = table.triggers.iter().find(|t| t.oid == event.constraint);
    let Some(trigger) = found else {
        return Ok(());
    };
    let (old, new) = (old.as_deref().map(refs), new.as_deref().map(refs));
    let on = Occasion {
        table: &table,
        trigger,
        op: *op,
        old: old.as_deref(),
        new: new.as_deref(),
    };
    if pl::is_wanted(core, &on)? {
        pl::fire(core, &on)?;
    }
    Ok(())
}

fn refs(row: &[Datum]) -> Vec<DatumRef<'_>> {
    row.iter().map(Datum::borrow).collect()
}
