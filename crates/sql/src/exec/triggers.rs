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

use super::events::{Cause, Event, What};
use super::lock::lock;
use crate::dict::Table;
use crate::dict::trigger::{Op, Trigger};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::pl::{self, Occasion};
use crate::plan::RowRules;
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
    cause: Cause<'_>,
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
) -> Result<Before> {
    let wanted = |t: &Trigger| t.is_fired(cause, true, true);
    for_row(core, (table, cause), old, new, &wanted)
}

/// Fires the INSTEAD OF triggers of a view for a row: what they say the row is now, or that was
/// deleted. `None`: one of them says that nothing was done.
pub fn instead_of(
    core: &mut Core,
    view: &Arc<Table>,
    cause: Cause<'_>,
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
) -> Result<Option<Vec<Datum>>> {
    let row = new.or(old).unwrap_or_default();
    Ok(
        match for_row(core, (view, cause), old, new, &|t| t.is_instead(cause.op))? {
            Before::Same => Some(row.iter().map(DatumRef::to_datum).collect()),
            Before::Row(now) => Some(now),
            Before::Skip => None,
        },
    )
}

/// Fires the wanted triggers for a row, each with what the one before has made of it.
fn for_row(
    core: &mut Core,
    (table, cause): (&Arc<Table>, Cause<'_>),
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
    wanted: &dyn Fn(&Trigger) -> bool,
) -> Result<Before> {
    let mut now: Option<Vec<Datum>> = None;
    let mut fired = false;
    for trigger in table.triggers.iter().filter(|t| wanted(t)) {
        let refs: Option<Vec<DatumRef<'_>>> = match &now {
            Some(row) if new.is_some() => Some(row.iter().map(Datum::borrow).collect()),
            _ => new.map(<[_]>::to_vec),
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
            op: cause.op,
            columns: cause.columns,
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
        Some(row) if fired && cause.op != Op::Delete => Before::Row(row),
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

/// The columns to which an UPDATE gives values, with those that are made of them, if the table has
/// triggers, which may ask for them.
pub fn given_columns(table: &Table, rules: &RowRules, set: &[(usize, Expr)]) -> Vec<usize> {
    if table.triggers.is_empty() {
        return Vec::new();
    }
    let set: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
    let mut columns = rules.changed(&set);
    // A before trigger may change what any generated column is made of.
    let changes = |t: &Trigger| t.before && t.row && t.ops.contains(&Op::Update);
    if table.triggers.iter().any(changes) {
        let generated = table.live_columns().filter(|(_, c)| c.generated);
        columns.extend(generated.map(|(at, _)| at));
    }
    columns
}

/// Queues the after-row triggers of a row whose conditions hold now, and keeps the row for those
/// that read it later.
pub fn after_row(
    core: &mut Core,
    table: &Table,
    cause: Cause<'_>,
    old: Option<&[DatumRef<'_>]>,
    new: Option<&[DatumRef<'_>]>,
) -> Result<()> {
    if table.triggers.is_empty() {
        return Ok(());
    }
    core.events.transitions.keep(table, cause.op, old, new);
    let keep = |row: Option<&[DatumRef<'_>]>| -> Option<Vec<Datum>> {
        row.map(|row| row.iter().map(DatumRef::to_datum).collect())
    };
    for trigger in &table.triggers {
        if !trigger.is_fired(cause, false, true) {
            continue;
        }
        if trigger.when.is_some() {
            let Some(table) = core.dict().table_by_oid(table.oid).cloned() else {
                continue;
            };
            let on = Occasion {
                table: &table,
                trigger,
                op: cause.op,
                columns: cause.columns,
                old,
                new,
            };
            if !pl::is_wanted(core, &on)? {
                continue;
            }
        }
        core.events.queue(Event {
            table: table.oid,
            constraint: trigger.oid,
            what: What::Trigger {
                op: cause.op,
                columns: cause.columns.to_vec(),
                old: keep(old),
                new: keep(new),
            },
        });
    }
    Ok(())
}

/// Fires the triggers of a statement, or queues them.
pub fn statement(
    core: &mut Core,
    table: &Arc<Table>,
    cause: Cause<'_>,
    before: bool,
) -> Result<()> {
    let op = cause.op;
    for trigger in &table.triggers {
        if !trigger.is_fired(cause, before, false) {
            continue;
        }
        let on = Occasion {
            table,
            trigger,
            op,
            columns: cause.columns,
            old: None,
            new: None,
        };
        if !pl::is_wanted(core, &on)? {
            continue;
        }
        if before {
            pl::fire(core, &on)?;
            continue;
        }
        core.events.queue(Event {
            table: table.oid,
            constraint: trigger.oid,
            what: What::Trigger {
                op,
                columns: cause.columns.to_vec(),
                old: None,
                new: None,
            },
        });
    }
    Ok(())
}

/// Fires the trigger that an event is of, if it is still there, or leaves it to the end of the
/// transaction.
pub fn happen(core: &mut Core, event: Event, may_defer: bool) -> Result<()> {
    let Some(table) = core.dict().with_triggers(event.table) else {
        return Ok(());
    };
    let found = table.triggers.iter().find(|t| t.oid == event.constraint);
    let Some(trigger) = found else {
        return Ok(());
    };
    if let Some(c) = trigger.constraint.as_ref().filter(|c| c.deferrable)
        && may_defer
        && core.events.is_deferred(c.oid, c.initially_deferred)
    {
        core.events.defer(event);
        return Ok(());
    }
    let What::Trigger {
        op,
        columns,
        old,
        new,
    } = &event.what
    else {
        return Err(Error::internal("an event of another kind than a trigger's"));
    };
    let (old, new) = (old.as_deref().map(refs), new.as_deref().map(refs));
    let on = Occasion {
        table: &table,
        trigger,
        op: *op,
        columns,
        old: old.as_deref(),
        new: new.as_deref(),
    };
    pl::fire(core, &on).map(drop)
}

fn refs(row: &[Datum]) -> Vec<DatumRef<'_>> {
    row.iter().map(Datum::borrow).collect()
}
