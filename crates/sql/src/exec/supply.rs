//! UPDATE and DELETE of rows that a query of the tree lane finds.
//!
//! If under READ COMMITTED one of the rows has another committed version than the query saw, the statement is undone and begins
//! again with a new snapshot, as Oracle does it: joins and subqueries are then as consistent with the row as with each other.
//! PostgreSQL would look at the row's new version, and at the old ones of all others.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{LockOutcome, Snapshot, WriteOutcome};

use super::checks::{check_row, check_views};
use super::dml::{delete_row, written};
use super::drive::Flow;
use super::events::{self, Cause};
use super::generated;
use super::instead;
use super::policies::{self, Row};
use super::returning::Returned;
use super::row::decode;
use super::sort::Spool;
use super::told::write_error;
use super::triggers::{self, Before};
use crate::api::RowSink;
use crate::dict::trigger::Op;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, Val};
use crate::plan::SuppliedWrite;
use crate::plan::merge::MergeAction;
use crate::plan::supply::Change;
use crate::query;
use crate::query::run::lock::is_changed;
use crate::session::Core;

/// How often a statement begins again before it gives up.
pub const MAX_RESTARTS: u32 = 1000;

/// Runs the statement; returns how many rows it changed.
pub fn write(
    plan: &SuppliedWrite,
    core: &mut Core,
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<u64> {
    restarted(core, sink, &mut |core, snapshot, kept| {
        attempt(plan, core, params, &snapshot, kept)
    })
}

/// An attempt at a statement: how many rows it changed. `None`: a row has changed since the
/// snapshot.
type Attempt<'a> = dyn FnMut(&mut Core, Snapshot, &mut Spool) -> Result<Option<u64>> + 'a;

/// Runs a statement, each time with a new snapshot, until none of its rows has changed meanwhile.
pub fn restarted(
    core: &mut Core,
    sink: &mut dyn RowSink,
    attempt: &mut Attempt<'_>,
) -> Result<u64> {
    let mark = core.events.statement_mark();
    for _ in 0..MAX_RESTARTS {
        let before = core.engine.savepoint()?;
        let snapshot = core.engine.snapshot()?;
        // Rows go to the client only when it is sure that they stay.
        let mut kept = Spool::new(core);
        match attempt(core, snapshot, &mut kept) {
            Ok(Some(count)) => {
                kept.send(sink)?;
                return Ok(count);
            }
            Err(e) if !is_changed(&e) => return Err(e),
            Ok(None) | Err(_) => {}
        }
        wait::stat::add(wait::Stat::StatementRestarts, 1);
        core.engine.rollback_to(&before)?;
        core.events.back_to(&mark);
    }
    Err(Error::new(
        "40001",
        "could not serialize access due to concurrent update",
    ))
}

/// Writes once, with this snapshot; returns how many rows it changed. `None`: a row has changed
/// since the snapshot.
pub fn attempt(
    plan: &SuppliedWrite,
    core: &mut Core,
    params: &[Datum],
    snapshot: &Snapshot,
    kept: &mut dyn RowSink,
) -> Result<Option<u64>> {
    if plan.table.view.is_some() {
        return instead::write(plan, core, params, snapshot, kept).map(Some);
    }
    core.enter_step(plan.step());
    let (mut count, mut stored) = (0, Vec::new());
    let mut returned = Returned {
        plan,
        params,
        snapshot,
        run: None,
        sink: kept,
    };
    let mut done = written(plan.command(), &plan.table);
    let merges = matches!(plan.change, Change::Merge(_));
    let flow = query::Run::start(&plan.query, core, params, *snapshot)?.each(
        core,
        &mut |core, given| {
            done.step();
            let set = match action(plan, given)? {
                Wanted::Nothing => return Ok(Flow::More),
                Wanted::Insert(row) => {
                    count += u64::from(insert(plan, row, core, params, given)?);
                    return Ok(Flow::More);
                }
                Wanted::Update(set) => Some(set),
                Wanted::Delete => None,
            };
            let Some(DatumRef::Int8(id)) = given.first().copied() else {
                return Err(Error::internal("a row to be written has no id"));
            };
            let rid = RowId(id as u64);
            let engine = plan.table.engine();
            if !core
                .engine
                .fetch_version(engine, rid, snapshot, &mut stored)?
            {
                return Err(Error::internal("a row to be written is not there"));
            }
            match change(&mut returned, set, core, rid, &stored, given)? {
                WriteOutcome::Done => count += 1,
                WriteOutcome::Gone if merges => {
                    refuse_own(plan, core, rid)?;
                    return Ok(Flow::Stop);
                }
                // Deleted meanwhile, or found by the query more than once: the first time counts.
                WriteOutcome::Gone => {}
                WriteOutcome::Changed => return Ok(Flow::Stop),
            }
            Ok(Flow::More)
        },
    )?;
    Ok((flow == Flow::More).then_some(count))
}

/// What a row that the query gives calls for.
enum Wanted<'p> {
    Nothing,
    Insert(&'p [Expr]),
    Update(&'p [(usize, Expr)]),
    Delete,
}

fn action<'p>(plan: &'p SuppliedWrite, given: &[DatumRef<'_>]) -> Result<Wanted<'p>> {
    let actions = match &plan.change {
        Change::Update(set) => return Ok(Wanted::Update(set)),
        Change::Delete => return Ok(Wanted::Delete),
        Change::Merge(actions) => actions,
    };
    let number = match given.get(1).copied() {
        Some(DatumRef::Null) => return Ok(Wanted::Nothing),
        Some(DatumRef::Int4(number)) => usize::try_from(number).ok(),
        _ => None,
    };
    let action = number.and_then(|n| actions.get(n.checked_sub(1)?));
    match action.ok_or_else(|| Error::internal("an action of MERGE that is none"))? {
        MergeAction::Nothing => Ok(Wanted::Nothing),
        MergeAction::Update(set) => Ok(Wanted::Update(set)),
        MergeAction::Delete => Ok(Wanted::Delete),
        MergeAction::Insert(row) => Ok(Wanted::Insert(row)),
    }
}

/// The row of a source's row without a match.
fn insert(
    plan: &SuppliedWrite,
    row: &[Expr],
    core: &mut Core,
    params: &[Datum],
    given: &[DatumRef<'_>],
) -> Result<bool> {
    let table = &plan.table;
    let mut both = vec![DatumRef::Null; table.engine().columns.len()];
    both.extend_from_slice(given);
    let env = Env { row: &both, params };
    let mut values: Vec<Val<'_>> = Vec::with_capacity(row.len());
    for e in row {
        values.push(e.eval(&env, core)?);
    }
    let changed;
    let mut made = Vec::new();
    let mut new: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    match triggers::before_row(core, table, Cause::of(Op::Insert), None, Some(&new))? {
        Before::Same => {}
        Before::Skip => return Ok(false),
        Before::Row(now) => {
            changed = now;
            new = changed.iter().map(Datum::borrow).collect();
        }
    }
    generated::fill(&plan.rules, core, &mut new, &mut made)?;
    if let Some(merged) = &plan.policies {
        policies::check(table, &merged.inserted, core, &new, Row::New)?;
    }
    check_row(table, &plan.rules, core, &new)?;
    core.engine
        .insert(table.engine(), &new)
        .map_err(|e| write_error(e, table, &new, core))?;
    events::inserted(core, table, &new)?;
    Ok(true)
}

/// A row that this very statement has changed is not changed by it again: which of the two came
/// first would decide.
fn refuse_own(plan: &SuppliedWrite, core: &mut Core, rid: RowId) -> Result<()> {
    if !core.engine.is_changed_by_own(plan.table.engine(), rid)? {
        return Ok(());
    }
    let message = "MERGE command cannot affect row a second time";
    Err(Error::new("21000", message)
        .hint("Ensure that not more than one source row matches any one target row."))
}

/// Changes or deletes a row as it was seen.
fn change(
    returned: &mut Returned<'_>,
    set: Option<&[(usize, Expr)]>,
    core: &mut Core,
    rid: RowId,
    stored: &[u8],
    given: &[DatumRef<'_>],
) -> Result<WriteOutcome> {
    let Returned {
        plan,
        params,
        snapshot,
        ..
    } = *returned;
    let table = &plan.table;
    let def = table.engine();
    let columns = &def.columns;
    let mut both = Vec::with_capacity(columns.len() + given.len());
    decode(stored, def, columns.len(), &mut both)?;
    both.extend_from_slice(given);
    if let Some(merged) = &plan.policies {
        let asked = match set {
            Some(_) => &merged.updated,
            None => &merged.deleted,
        };
        policies::check(table, asked, core, &both[..columns.len()], Row::Target)?;
    }
    let Some(set) = set else {
        let row = &both[..columns.len()];
        let outcome = delete_row(core, table, rid, row, Some(snapshot))?;
        if outcome == WriteOutcome::Done {
            events::deleted(core, table, &both[..columns.len()])?;
            returned.give(core, rid, &both)?;
        }
        return Ok(outcome);
    };
    let env = Env { row: &both, params };
    let mut values: Vec<(usize, Val<'_>)> = Vec::with_capacity(set.len());
    for (column, e) in set {
        values.push((*column, e.eval(&env, core)?));
    }
    let mut seen = Some(snapshot);
    if table.has_triggers(Op::Update, true, true) {
        let set: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
        let how = def.lock_of_update(plan.rules.changed(&set).into_iter());
        match triggers::lock_first(core, table, (rid, how), snapshot)? {
            LockOutcome::Locked => seen = None,
            LockOutcome::Changed => return Ok(WriteOutcome::Changed),
            LockOutcome::Gone | LockOutcome::Skipped => return Ok(WriteOutcome::Gone),
        }
    }
    let changed;
    let mut computed = Vec::new();
    let mut row = both.clone();
    for (column, value) in &values {
        row[*column] = value.get();
    }
    let old = &both[..columns.len()];
    let made = &row[..columns.len()];
    let given = triggers::given_columns(table, &plan.rules, set);
    let cause = Cause::update(&given);
    match triggers::before_row(core, table, cause, Some(old), Some(made))? {
        Before::Same => {}
        Before::Skip => return Ok(WriteOutcome::Gone),
        Before::Row(now) => {
            changed = now;
            for (slot, value) in row.iter_mut().zip(&changed) {
                *slot = value.borrow();
            }
        }
    }
    let own = &mut row[..columns.len()];
    generated::fill(&plan.rules, core, own, &mut computed)?;
    let new = &row[..columns.len()];
    if let Some(merged) = &plan.policies {
        policies::check(table, &merged.changed, core, new, Row::New)?;
    }
    check_row(table, &plan.rules, core, new)?;
    let outcome = core
        .engine
        .update(table.engine(), rid, new, seen)
        .map_err(|e| write_error(e, table, new, core))?;
    if outcome == WriteOutcome::Done {
        events::updated(core, table, &given, &both[..columns.len()], new)?;
        check_views(table, &plan.rules, core, new)?;
        returned.give(core, rid, &row)?;
    }
    Ok(outcome)
}
