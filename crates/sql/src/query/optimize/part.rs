//! Parts of a table that are read instead of it: a sample, and the blocks of some `ctid`s.

use std::sync::Arc;

use block::value::Datum;

use super::Planner;
use super::access::{LISTED_ROWS, LOOKUP, MOST_LISTED};
use crate::dict::Table;
use crate::error::Result;
use crate::expr::{CmpOp, Expr};
use crate::query::analyze::system::SystemColumn;
use crate::query::plan::{Part, Sample, SubqueryKind};

/// Share of a table that a sample of unknown size is taken for: PostgreSQL's guess.
const GUESSED_SHARE: f64 = 0.1;

impl Planner<'_> {
    /// The part of a table that is enough for the conditions, what reading it costs, and about how
    /// many rows it has. The conditions are over the table's row.
    pub(super) fn part(
        &self,
        table: &Arc<Table>,
        sample: Option<&Sample>,
        terms: &[Expr],
    ) -> Result<Option<(Part, f64, f64)>> {
        if let Some(sample) = sample {
            let share = match &sample.percent {
                Expr::Const(Datum::Float8(percent)) => (percent / 100.0).clamp(0.0, 1.0),
                _ => GUESSED_SHARE,
            };
            let total = self.rows_of(table)?;
            let cost = if sample.blocks { total * share } else { total };
            let lowered = Sample {
                blocks: sample.blocks,
                percent: self.lower(sample.percent.clone()),
                seed: sample.seed.clone().map(|e| self.lower(e)),
            };
            return Ok(Some((
                Part::Sample(lowered),
                cost,
                (total * share).max(1.0),
            )));
        }
        let ctid = table.columns.len() + SystemColumn::Ctid as usize;
        let found = terms.iter().find_map(|term| self.tids(term, ctid));
        Ok(found.map(|part| {
            let rows = match &part {
                Part::Tids(list) => list.len() as f64,
                _ => LISTED_ROWS,
            };
            (part, LOOKUP * rows, rows.max(1.0))
        }))
    }

    /// The rows that a condition leaves, if it names them.
    fn tids(&self, term: &Expr, ctid: usize) -> Option<Part> {
        let fixed = |e: &Expr| !has_columns(e) && !e.is_volatile();
        match term {
            Expr::Compare(CmpOp::Eq, left, right) => match (&**left, &**right) {
                (Expr::Column(c), value) | (value, Expr::Column(c))
                    if *c == ctid && fixed(value) =>
                {
                    Some(Part::Tids(vec![value.clone()]))
                }
                _ => None,
            },
            Expr::InList {
                expr,
                list,
                negated: false,
                ..
            } if **expr == Expr::Column(ctid) && list.iter().all(fixed) => {
                Some(Part::Tids(list.clone()))
            }
            Expr::Subquery { number, inputs } if *inputs == [Expr::Column(ctid)] => {
                let subquery = self.subqueries.get(*number)?;
                let SubqueryKind::Compared {
                    all: false,
                    hashed: Some(hashed),
                    ..
                } = &subquery.kind
                else {
                    return None;
                };
                (hashed.inputs.len() == 1).then_some(Part::TidsOf {
                    subquery: *number,
                    most: MOST_LISTED,
                })
            }
            _ => None,
        }
    }
}

/// Whether an expression depends on the row that the conditions are over.
fn has_columns(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= matches!(e, Expr::Column(_)));
    found
}
