//! Correlated subqueries whose rows can be read once: of `exists (select .. where a = outer.b ..)`
//! all rows without that condition, by `a`.
//!
//! Whether that pays depends on how often the subquery is asked for, which is known only while the
//! statement runs. So both ways are planned, and the plan says after how many runs the second is
//! taken: when the runs have cost as much as reading all would have.

use std::collections::HashSet;

use super::conditions::{equality, registers};
use super::items::needs_of;
use super::uses::all_set_in;
use super::{Built, Planner};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::plan::path::conjoin;
use crate::query::analyze::tree::{Body, Grouping, Kind, Level, Select};
use crate::query::plan::{Keyed, Register};

/// Cost of a row that is put into the table, and of one that is looked up.
const BUILD_ROW: f64 = 2.0;
pub const PROBE: f64 = 1.0;

/// A subquery's conditions on what is around it, taken out of its level.
pub struct Split {
    /// Each side of an equality: over the inputs, and over the row.
    keys: Vec<(Expr, Expr)>,
    /// What else the inputs have to do with a row.
    residual: Vec<Expr>,
    /// An aggregate of all rows, which becomes one for each key: the registers of the keys.
    groups: Option<Vec<Register>>,
    /// What is read of a row when it was found.
    read: HashSet<Register>,
}

impl Split {
    /// Registers that the subquery's file has besides.
    pub fn new_registers(&self) -> &[Register] {
        self.groups.as_deref().unwrap_or_default()
    }
}

/// Takes the conditions on `inputs` out of a subquery's level, if nothing else in it depends on
/// them, and some are equalities to find rows by. `width`: the first register that is free.
pub fn split(
    level: &mut Level,
    kind: &Kind,
    inputs: &HashSet<Register>,
    width: usize,
) -> Option<Split> {
    if matches!(kind, Kind::Exists) && asks_for_a_row(level.limit.as_ref()) {
        level.limit = None;
    }
    let plain = level.limit.is_none()
        && level.offset.is_none()
        && level.locks.is_empty()
        && level.shared.is_empty();
    let own = own_registers(level);
    let Body::Select(select) = &mut level.body else {
        return None;
    };
    if !plain || !reads_nothing_around(select, inputs) {
        return None;
    }
    let mut read = HashSet::new();
    let mut groups = None;
    match kind {
        Kind::Exists => {
            select.columns.clear();
            select.distinct = None;
        }
        Kind::Compared { test, .. } => {
            read = registers(test);
            // A row that comes again changes nothing.
            select.distinct = None;
        }
        Kind::Scalar => {
            let value = &level.outputs.first()?.value.expr;
            read = registers(value);
            if select.group.is_some() && !read.is_disjoint(inputs) {
                return None;
            }
        }
    }
    level.order.clear();
    if select.distinct.is_some() || select.columns.iter().any(|(_, e)| is_on(e, inputs)) {
        return None;
    }
    let (mut keys, mut residual) = (Vec::new(), Vec::new());
    for condition in std::mem::take(&mut select.conditions) {
        if !is_on(&condition, inputs) {
            select.conditions.push(condition);
        } else if let Some((input, row)) = equality(&condition, inputs, &own) {
            keys.push((input.clone(), row.clone()));
        } else {
            super::uses::of_expr(&condition, &mut read);
            residual.push(condition);
        }
    }
    if keys.is_empty() {
        return None;
    }
    if let Some(group) = &mut select.group {
        if !matches!(kind, Kind::Scalar) || !residual.is_empty() || !is_of_all(group, inputs) {
            return None;
        }
        let fresh: Vec<Register> = (width..width + keys.len()).collect();
        let rows = keys.iter().map(|(_, row)| row.clone());
        group.keys = rows.zip(fresh.iter().copied()).collect();
        group.sets = vec![(0..fresh.len()).collect()];
        groups = Some(fresh);
    }
    read.retain(|r| !inputs.contains(r));
    Some(Split {
        keys,
        residual,
        groups,
        read,
    })
}

/// LIMIT that lets at least one row through.
fn asks_for_a_row(limit: Option<&Expr>) -> bool {
    matches!(limit, Some(Expr::Const(block::value::Datum::Int8(n))) if *n > 0)
}

fn own_registers(level: &Level) -> HashSet<Register> {
    let mut own = HashSet::new();
    all_set_in(level, &mut own);
    own
}

fn is_on(e: &Expr, inputs: &HashSet<Register>) -> bool {
    !registers(e).is_disjoint(inputs)
}

/// Whether a level does nothing but join and filter, or aggregates all that, and its relations have
/// nothing to do with the inputs.
fn reads_nothing_around(select: &Select, inputs: &HashSet<Register>) -> bool {
    let on_distinct = select.distinct.as_ref().is_some_and(|d| d.on);
    !select.from.is_empty()
        && select.having.is_none()
        && select.windows.is_empty()
        && select.series.is_empty()
        && !on_distinct
        && select.from.iter().all(|i| needs_of(i).is_disjoint(inputs))
}

/// Whether it is one group of all rows, whose aggregates have nothing to do with the inputs.
fn is_of_all(group: &Grouping, inputs: &HashSet<Register>) -> bool {
    let on = |keys: &[SortKey]| keys.iter().any(|k| is_on(&k.expr, inputs));
    group.keys.is_empty()
        && group.decided.is_empty()
        && group.grouping.is_empty()
        && matches!(group.sets.as_slice(), [set] if set.is_empty())
        && group.aggregates.iter().all(|a| {
            let mut args = a.args.iter().chain(&a.filter);
            !args.any(|e| is_on(e, inputs)) && !on(&a.order)
        })
}

impl Planner<'_> {
    /// The plan that reads all rows of a subquery, to be found by key. `each`: the plan of one run.
    pub(super) fn keyed(&mut self, level: &Level, split: Split, each: &Built) -> Result<Keyed> {
        self.uses.extend(split.new_registers());
        let (built, _) = self.level_ref(level)?;
        let cost = built.cost + built.rows * BUILD_ROW;
        let mut stored: Vec<Register> = split.read.iter().map(|r| self.at(*r)).collect();
        stored.sort_unstable();
        let (inputs, rows): (Vec<Expr>, Vec<Expr>) = split.keys.into_iter().unzip();
        let keys = match &split.groups {
            Some(fresh) => fresh.iter().map(|r| Expr::Column(*r)).collect(),
            None => rows,
        };
        Ok(Keyed {
            root: built.node,
            inputs: self.lower_all(inputs),
            keys: self.lower_all(keys),
            residual: conjoin(self.lower_all(split.residual)),
            registers: stored,
            grouped: split.groups.is_some(),
            after: (cost / each.cost.max(1.0)).ceil() as u64,
            cost,
        })
    }
}
