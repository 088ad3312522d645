//! Running a statement whose WITH has parts that write.
//!
//! **Invariants.**
//! - All parts work with one snapshot: none sees what another has written. Of two changes of one
//!   row the first one stands.
//! - An item of WITH is computed once. One that writes runs to its end when its rows are first
//!   asked for, or after the main statement; one that reads gives its rows as they are asked for.
//! - If a row to be written has changed since the snapshot and its part cannot judge the new version
//!   alone, everything is undone and begins again with a new snapshot ([`super::supply`]).

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::drive::Flow;
use super::{dml, supply};
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::plan::with::{Part, WithPlan};
use crate::query;
use crate::query::run::lock::changed;
use crate::query::run::store::{RowStore, put_value};
use crate::session::Core;

/// A statement under way, with the rows of its items so far.
pub struct WithRun {
    plan: Arc<WithPlan>,
    params: Vec<Datum>,
    snapshot: Snapshot,
    items: Vec<ItemRun>,
}

struct ItemRun {
    rows: RowStore,
    state: State,
}

enum State {
    Waiting,
    /// Computing its rows, or some of them.
    Running,
    Query(Box<query::Run>),
    Done,
}

/// Runs the statement; returns how many rows the main one gave or changed.
pub fn run(
    plan: &Arc<WithPlan>,
    core: &mut Core,
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<u64> {
    supply::restarted(core, sink, &mut |core, snapshot, kept| {
        let items = plan.items.iter().map(|_| ItemRun {
            rows: RowStore::new(core),
            state: State::Waiting,
        });
        let run = WithRun {
            plan: plan.clone(),
            params: params.to_vec(),
            snapshot,
            items: items.collect(),
        };
        let around = core.with.replace(Box::new(run));
        let done = attempt(plan, core, params, snapshot, kept);
        core.with = around;
        done.map(Some)
    })
}

/// The main statement, and then the items that write and that nobody has read, the last one first.
fn attempt(
    plan: &WithPlan,
    core: &mut Core,
    params: &[Datum],
    snapshot: Snapshot,
    kept: &mut dyn RowSink,
) -> Result<u64> {
    let count = run_part(&plan.main, core, params, snapshot, kept)?;
    for (number, item) in plan.items.iter().enumerate().rev() {
        if item.part.target().is_some() {
            advance(core, number)?;
        }
    }
    Ok(count)
}

fn run_part(
    part: &Part,
    core: &mut Core,
    params: &[Datum],
    snapshot: Snapshot,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    match part {
        Part::Query(plan) => {
            let (sent, _) = query::Run::start(plan, core, params, snapshot)?.run(core, 0, sink)?;
            Ok(sent)
        }
        Part::Transition(number) => transition(core, *number, sink),
        Part::Insert(plan) => dml::insert(plan, core, params, snapshot, sink),
        Part::Update(plan) => dml::update(plan, core, params, snapshot, sink),
        Part::Delete(plan) => dml::delete(plan, core, params, snapshot, sink),
        Part::Supplied(plan) => {
            let done = supply::attempt(plan, core, params, &snapshot, sink)?;
            done.ok_or_else(changed)
        }
    }
}

fn running(core: &mut Core) -> Result<&mut WithRun> {
    let missing = || Error::internal("an item of WITH is read outside of its statement");
    core.with.as_deref_mut().ok_or_else(missing)
}

/// The rows of an item so far.
pub fn rows(core: &mut Core, number: usize) -> Result<&RowStore> {
    Ok(&running(core)?.items[number].rows)
}

/// Computes one row more of an item, or all of them; false if there are no more.
pub fn advance(core: &mut Core, number: usize) -> Result<bool> {
    let run = running(core)?;
    let plan = run.plan.clone();
    let mut query = match std::mem::replace(&mut run.items[number].state, State::Running) {
        State::Running => return Err(Error::internal("an item of WITH reads itself")),
        State::Done => {
            run.items[number].state = State::Done;
            return Ok(false);
        }
        State::Query(query) => query,
        State::Waiting => {
            let (params, snapshot) = (run.params.clone(), run.snapshot);
            match &plan.items[number].part {
                Part::Query(plan) => Box::new(query::Run::start(plan, core, &params, snapshot)?),
                other => {
                    let mut keep = Keep {
                        rows: RowStore::new(core),
                        row: Vec::new(),
                    };
                    run_part(other, core, &params, snapshot, &mut keep)?;
                    let any = !keep.rows.is_empty();
                    let item = &mut running(core)?.items[number];
                    (item.rows, item.state) = (keep.rows, State::Done);
                    return Ok(any);
                }
            }
        }
    };
    let mut row = Vec::new();
    let flow = query.each(core, &mut |_, values| {
        values.iter().for_each(|v| put_value(*v, &mut row));
        Ok(Flow::Stop)
    })?;
    let item = &mut running(core)?.items[number];
    if flow == Flow::More {
        item.state = State::Done;
        return Ok(false);
    }
    item.state = State::Query(query);
    item.rows.push_bytes(&row)?;
    Ok(true)
}

/// Gives the rows of a transition table.
fn transition(core: &mut Core, number: usize, sink: &mut dyn RowSink) -> Result<u64> {
    let missing = || Error::internal("a transition table is read outside of its trigger");
    let table = core.pl.transitions.get(number).ok_or_else(missing)?;
    let rows = table.rows.clone();
    for row in rows.iter() {
        let row: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
        sink.row(&row)?;
    }
    Ok(rows.len() as u64)
}

/// Keeps what a write returns, or a transition table has.
struct Keep {
    rows: RowStore,
    row: Vec<u8>,
}

impl RowSink for Keep {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        self.row.clear();
        row.iter().for_each(|v| put_value(*v, &mut self.row));
        self.rows.push_bytes(&self.row)
    }
}
