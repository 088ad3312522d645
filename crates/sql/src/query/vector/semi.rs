//! Conditions on subqueries as joins: `EXISTS` that is found by key, and `IN` a hashed list.

use super::Stop;
use super::batch::Type;
use super::compile::Compiler;
use super::join::{Build, Join, Semi, Side};
use super::program::joined_keys;
use crate::exec::profile::StepKey;
use crate::expr::Expr;
use crate::query::plan::{Register, Subquery, SubqueryKind};
use crate::session::{Core, Vectorized};

/// How much cheaper it is to read a subquery's rows over batches than its plan by key says.
const CHEAPER: f64 = 4.0;

/// A subquery as a condition: its number, its inputs, and whether it must not hold.
pub struct Found<'e> {
    number: usize,
    inputs: &'e [Expr],
    negated: bool,
}

/// A condition that is nothing but a subquery.
pub fn of(condition: &Expr) -> Option<Found<'_>> {
    let (e, negated) = match condition {
        Expr::Not(e) => (&**e, true),
        e => (e, false),
    };
    match e {
        Expr::Subquery { number, inputs } => Some(Found {
            number: *number,
            inputs,
            negated,
        }),
        _ => None,
    }
}

/// What makes a row and one of a subquery partners.
pub struct SubqueryTest {
    pub number: usize,
    /// Over the columns around the subquery.
    keys: Vec<Expr>,
    /// Over the same columns and the subquery's registers.
    residual: Option<Expr>,
    pub registers: Vec<Register>,
    /// The number of the first of them as a column.
    pub first: usize,
    anti: bool,
    /// It is NOT IN.
    null_counts: bool,
    step: StepKey,
}

/// How a subquery's rows are found for `rows` rows, as estimated.
pub fn test(found: Found<'_>, rows: f64, core: &mut Core) -> Result<(SubqueryTest, Side), Stop> {
    let always = core.settings.hot().vectorized != Vectorized::Auto;
    let Some(subquery) = core.subquery_plan(found.number) else {
        // Nothing runs: the plan is only shown.
        return Err(Stop::Told);
    };
    match (&subquery.kind, &subquery.keyed) {
        (SubqueryKind::Exists, Some(keyed)) if always || rows * CHEAPER >= keyed.after as f64 => {
            let kept = &keyed.registers;
            let over = |e: &Expr| over_columns(e, &subquery, found.inputs, kept);
            let test = SubqueryTest {
                number: found.number,
                keys: keyed.inputs.iter().map(over).collect(),
                residual: keyed.residual.as_ref().map(over),
                registers: keyed.registers.clone(),
                first: 0,
                anti: found.negated,
                null_counts: false,
                step: StepKey::of(&*subquery),
            };
            let side = Side {
                node: keyed.root.clone(),
                keys: keyed.keys.clone(),
                registers: keyed.registers.clone(),
            };
            Ok((test, side))
        }
        (
            SubqueryKind::Compared {
                all,
                hashed: Some(hashed),
                ..
            },
            _,
        ) if hashed.rows.len() == 1 => {
            let keys = hashed.inputs.iter().map(|i| found.inputs.get(*i).cloned());
            let Some(keys) = keys.collect() else {
                return Err(crate::Error::internal("an input that is not there").into());
            };
            // `x <> ALL (..)` is hashed as the opposite of `x = ANY (..)`.
            let anti = *all != found.negated;
            let test = SubqueryTest {
                number: found.number,
                keys,
                residual: None,
                registers: Vec::new(),
                first: 0,
                anti,
                null_counts: anti,
                step: StepKey::of(&*subquery),
            };
            let side = Side {
                node: subquery.root.clone(),
                keys: hashed.rows.clone(),
                registers: Vec::new(),
            };
            Ok((test, side))
        }
        _ => Err(Stop::Refused("a subquery")),
    }
}

/// Columns from here on are those that are kept of the subquery's rows, before they have numbers.
const OF_ROW: usize = usize::MAX / 2;

/// An expression over a subquery's inputs and its rows as one over what the inputs are, and over
/// columns.
fn over_columns(e: &Expr, subquery: &Subquery, inputs: &[Expr], kept: &[Register]) -> Expr {
    let mut e = e.clone();
    e.replace(&mut |e| match e {
        Expr::Param(register) => {
            let place = |list: &[Register]| list.iter().position(|r| r == register);
            match place(&subquery.inputs) {
                Some(at) => inputs.get(at).cloned(),
                None => place(kept).map(|at| Expr::Column(OF_ROW + at)),
            }
        }
        _ => None,
    });
    e
}

impl SubqueryTest {
    pub fn compiled(
        self,
        build: Build,
        types: &[Type],
        compiler: &mut Compiler<'_>,
    ) -> Result<Semi, Stop> {
        let keys = joined_keys(self.keys.into_iter(), types, compiler)?;
        compiler.touched.clear();
        let first = self.first;
        let residual = self.residual.map(|mut e| {
            e.replace(&mut |e| match e {
                Expr::Column(at @ OF_ROW..) => Some(Expr::Column(first + at - OF_ROW)),
                _ => None,
            });
            e
        });
        let condition = residual.map(|e| compiler.condition(&e)).transpose()?;
        let mut join = Join::new(keys, build, self.step);
        join.null_counts = self.null_counts;
        join.one_each = condition.is_none() && self.registers.is_empty();
        Ok(Semi {
            join,
            subquery: self.number,
            condition,
            reads: compiler.touched.clone(),
            anti: self.anti,
        })
    }
}
