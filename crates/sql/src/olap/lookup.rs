//! Reads the table that a write changes by its index where the rest of the statement says which keys there can be.
//!
//! After a plan's optimization, and before its execution, the joins above the target are looked at, from the target upwards. If an index of the target fits
//! what a join equates, the join's other side is run by itself: when it gives few rows, these take its place in the plan, and the target is read by their
//! keys. A subquery that is compared with a column of the target is run in the same way, and its value takes its place.
//!
//! **Invariants.**
//! - The target gives a superset of the rows that the plan can use: joins and filters stay in the plan and are evaluated as ever.
//! - Between the target and the join there are only steps that look at each row of the target by itself, so that rows without a partner are missed by
//!   nobody.
//! - What has been run for its rows is not run again, whether it was of use or the plan goes another way; only one that gives too many rows begins anew.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use block::value::Datum;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, ScalarValue};
use datafusion::datasource::{MemTable, provider_as_source, source_as_provider};
use datafusion::error::Result as DfResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr as DfExpr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};

use super::arrow::{self, describe};
use super::filters;
use super::target::Target;
use crate::error::Result;
use crate::expr::{CmpOp, Expr};
use crate::types::SqlType;

/// Name under which rows that were found stand in the plan.
const SUPPLIED: &str = "braid$supplied";

/// Runs a plan if it gives at most so many rows; `None` if it gives more.
pub type Runner<'r> = dyn FnMut(&LogicalPlan, usize) -> Result<Option<Vec<RecordBatch>>> + 'r;

/// The plan with the sides that were run, and their keys told to the target.
pub fn restrict(
    plan: LogicalPlan,
    state: &SessionState,
    run: &mut Runner<'_>,
) -> Result<LogicalPlan> {
    restricted(plan, state, run).map_err(super::error::from_datafusion)
}

fn restricted(
    plan: LogicalPlan,
    state: &SessionState,
    run: &mut Runner<'_>,
) -> DfResult<LogicalPlan> {
    let plan = with_values(plan, run)?;
    let Some(path) = path(&plan) else {
        return Ok(plan);
    };
    let Some((target, known)) = path.last().and_then(|scan| known(scan)) else {
        return Ok(plan);
    };
    let without = target.reach(&known);
    if without.unique {
        return Ok(plan);
    }
    // From the target upwards, without its own scan.
    for at in (0..path.len() - 1).rev() {
        let side = path[at + 1];
        if let LogicalPlan::Join(join) = path[at]
            && let Some(pairs) = pairs(join, side)
            && target.reach(&with_any(&target, &known, &pairs)).columns > without.columns
        {
            let other = other_side(join, side);
            if let Some(rows) = run(other, target.most_keys())? {
                let keys = keys(state, other, &rows, &pairs)?;
                let supplied = supplied(other, rows)?;
                target.look_up(&keys);
                return replaced(&plan, other, &supplied);
            }
        }
        if !is_by_row(path[at], side) {
            break;
        }
    }
    Ok(plan)
}

/// The plan with a step in the place of another.
fn replaced(plan: &LogicalPlan, old: &LogicalPlan, new: &LogicalPlan) -> DfResult<LogicalPlan> {
    let one = |node: LogicalPlan| {
        Ok(match node == *old {
            true => Transformed::new(new.clone(), true, TreeNodeRecursion::Jump),
            false => Transformed::no(node),
        })
    };
    Ok(plan.clone().transform_down(one)?.data)
}

/// The nodes from the root to the target's scan.
fn path(plan: &LogicalPlan) -> Option<Vec<&LogicalPlan>> {
    if target_of(plan).is_some() {
        return Some(vec![plan]);
    }
    for input in plan.inputs() {
        if let Some(mut rest) = path(input) {
            rest.insert(0, plan);
            return Some(rest);
        }
    }
    None
}

/// The target, if it is what a step scans.
fn target_of(plan: &LogicalPlan) -> Option<Target> {
    let LogicalPlan::TableScan(scan) = plan else {
        return None;
    };
    let provider = source_as_provider(&scan.source).ok()?;
    (&*provider as &dyn Any).downcast_ref::<Target>().cloned()
}

/// The target that a step scans, and what is known of its rows there.
fn known(scan: &LogicalPlan) -> Option<(Target, Vec<Expr>)> {
    let target = target_of(scan)?;
    let LogicalPlan::TableScan(scan) = scan else {
        return None;
    };
    let known = target.known(&scan.filters);
    Some((target, known))
}

fn other_side<'j>(join: &'j Join, side: &LogicalPlan) -> &'j LogicalPlan {
    match std::ptr::eq(&*join.left, side) {
        true => &join.right,
        false => &join.left,
    }
}

/// Whether a step gives for each row of its input, in which the target is, what it would give were it the only one.
fn is_by_row(step: &LogicalPlan, input: &LogicalPlan) -> bool {
    match step {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => true,
        LogicalPlan::Join(join) if std::ptr::eq(&*join.left, input) => matches!(
            join.join_type,
            JoinType::Inner
                | JoinType::Left
                | JoinType::LeftSemi
                | JoinType::LeftAnti
                | JoinType::LeftMark
        ),
        LogicalPlan::Join(join) => matches!(
            join.join_type,
            JoinType::Inner
                | JoinType::Right
                | JoinType::RightSemi
                | JoinType::RightAnti
                | JoinType::RightMark
        ),
        _ => false,
    }
}

/// A column of the target, by its name, and what it equals: an expression over the other side.
struct Pair {
    column: String,
    value: DfExpr,
}

/// What the join equates columns of the target with, if rows of the target without a partner do not come out of it.
fn pairs(join: &Join, side: &LogicalPlan) -> Option<Vec<Pair>> {
    use JoinType::{Inner, Left, LeftSemi, Right, RightSemi};
    let left = std::ptr::eq(&*join.left, side);
    let drops = match left {
        true => matches!(join.join_type, Inner | LeftSemi | Right),
        false => matches!(join.join_type, Inner | RightSemi | Left),
    };
    if !drops || join.null_equality != NullEquality::NullEqualsNothing {
        return None;
    }
    let pairs = join.on.iter().filter_map(|(l, r)| {
        let (own, value) = if left { (l, r) } else { (r, l) };
        let column = own_column(own, side)?;
        let value = value.clone();
        Some(Pair { column, value })
    });
    Some(pairs.collect())
}

/// The column of the target that an expression over a step's rows is, be it compared as a wider integer.
fn own_column(e: &DfExpr, step: &LogicalPlan) -> Option<String> {
    match e {
        DfExpr::Column(c) => {
            let at = step.schema().index_of_column(c).ok()?;
            base_column(step, at)
        }
        DfExpr::Cast(cast) => {
            let DfExpr::Column(c) = &*cast.expr else {
                return None;
            };
            let at = step.schema().index_of_column(c).ok()?;
            let narrow = step.schema().field(at).data_type();
            let wide = cast.field.data_type();
            let integers = [DataType::Int16, DataType::Int32, DataType::Int64];
            let size = |t: &DataType| integers.iter().position(|i| i == t);
            let widened = size(narrow)? < size(wide)?;
            widened.then(|| base_column(step, at))?
        }
        _ => None,
    }
}

/// The target's column that comes out of a step at a place.
fn base_column(step: &LogicalPlan, at: usize) -> Option<String> {
    match step {
        LogicalPlan::TableScan(scan) => {
            target_of(step)?;
            Some(scan.projected_schema.field(at).name().clone())
        }
        LogicalPlan::SubqueryAlias(alias) => base_column(&alias.input, at),
        LogicalPlan::Filter(filter) => base_column(&filter.input, at),
        LogicalPlan::Projection(projection) => {
            let mut e = projection.expr.get(at)?;
            while let DfExpr::Alias(alias) = e {
                e = &alias.expr;
            }
            let DfExpr::Column(c) = e else { return None };
            let at = projection.input.schema().index_of_column(c).ok()?;
            base_column(&projection.input, at)
        }
        LogicalPlan::Join(join) => {
            let split = match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => 0,
                _ => join.left.schema().fields().len(),
            };
            match at < split {
                true => base_column(&join.left, at),
                false => base_column(&join.right, at - split),
            }
        }
        _ => None,
    }
}

/// What is known of the target's rows for each row of the other side.
fn with_any(target: &Target, known: &[Expr], pairs: &[Pair]) -> Vec<Expr> {
    let equal = |p: &Pair| target.term(&p.column, CmpOp::Eq, Datum::Null);
    let equal = pairs.iter().filter_map(equal);
    known.iter().cloned().chain(equal).collect()
}

/// The terms by which the target's rows are found for each row of the other side, each once.
fn keys(
    state: &SessionState,
    other: &LogicalPlan,
    rows: &[RecordBatch],
    pairs: &[Pair],
) -> DfResult<Vec<Vec<(String, Datum)>>> {
    let values = pairs
        .iter()
        .map(|p| state.create_physical_expr(p.value.clone(), other.schema()))
        .collect::<DfResult<Vec<_>>>()?;
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    for batch in rows {
        let mut columns = Vec::with_capacity(values.len());
        for value in &values {
            let array = value.evaluate(batch)?.into_array(batch.num_rows())?;
            let field = value.return_field(&batch.schema())?;
            let desc = describe(&field)?;
            columns.push(arrow::Column::new(&array, &field, &desc)?);
        }
        for row in 0..batch.num_rows() {
            let key: Vec<Datum> = columns.iter().map(|c| c.get(row).to_datum()).collect();
            // NULL equals nothing.
            if key.iter().any(Datum::is_null) || !seen.insert(format!("{key:?}")) {
                continue;
            }
            let names = pairs.iter().map(|p| p.column.clone());
            keys.push(names.zip(key).collect());
        }
    }
    Ok(keys)
}

/// The rows of a plan, in its place.
fn supplied(plan: &LogicalPlan, rows: Vec<RecordBatch>) -> DfResult<LogicalPlan> {
    let mut fields: Vec<Field> = Vec::new();
    for (i, (_, field)) in plan.schema().iter().enumerate() {
        let field = field.as_ref().clone();
        fields.push(field.with_name(format!("c{i}")).with_nullable(true));
    }
    let schema = Arc::new(Schema::new(fields));
    let rows = rows
        .iter()
        .map(|b| {
            let options = RecordBatchOptions::new().with_row_count(Some(b.num_rows()));
            RecordBatch::try_new_with_options(schema.clone(), b.columns().to_vec(), &options)
        })
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let table = MemTable::try_new(schema, vec![rows])?;
    let names = plan.schema().iter().enumerate().map(|(i, (table, field))| {
        let column = Column::new(Some(SUPPLIED), format!("c{i}"));
        DfExpr::Column(column).alias_qualified(table.cloned(), field.name())
    });
    let names: Vec<DfExpr> = names.collect();
    LogicalPlanBuilder::scan(SUPPLIED, provider_as_source(Arc::new(table)), None)?
        .project(names)?
        .build()
}

/// The plan with the values of subqueries that are compared with columns of the target, and these told to the target.
fn with_values(plan: LogicalPlan, run: &mut Runner<'_>) -> DfResult<LogicalPlan> {
    let Some(path) = path(&plan) else {
        return Ok(plan);
    };
    let Some((target, _)) = path.last().and_then(|scan| known(scan)) else {
        return Ok(plan);
    };
    for at in (0..path.len() - 1).rev() {
        if let LogicalPlan::Filter(filter) = path[at]
            && let Some((predicate, values)) = compared(filter, run)?
        {
            let mut with = filter.clone();
            with.predicate = predicate;
            let with = LogicalPlan::Filter(with);
            target.also_where(&values);
            return replaced(&plan, path[at], &with);
        }
        if !is_by_row(path[at], path[at + 1]) {
            break;
        }
    }
    Ok(plan)
}

type Compared = (DfExpr, Vec<(String, CmpOp, Datum)>);

/// The condition of a filter with the values of such subqueries, and what they say of the target's columns.
fn compared(filter: &Filter, run: &mut Runner<'_>) -> DfResult<Option<Compared>> {
    let mut found = Vec::new();
    let mut conjuncts = Vec::new();
    for term in split_conjunction(&filter.predicate) {
        conjuncts.push(term.clone());
        let DfExpr::BinaryExpr(b) = term else {
            continue;
        };
        let Some(op) = filters::comparison(b.op) else {
            continue;
        };
        let (own, op, subquery) = match (&*b.left, &*b.right) {
            (own, DfExpr::ScalarSubquery(s)) => (own, op, s),
            (DfExpr::ScalarSubquery(s), own) => (own, op.flip(), s),
            _ => continue,
        };
        let Some(column) = own_column(own, &filter.input) else {
            continue;
        };
        if !subquery.outer_ref_columns.is_empty() {
            continue;
        }
        let Some(rows) = run(&subquery.subquery, 1)? else {
            continue;
        };
        let mut value = ScalarValue::try_new_null(subquery.subquery.schema().field(0).data_type())?;
        for batch in rows.iter().filter(|b| b.num_rows() > 0) {
            value = ScalarValue::try_from_array(batch.column(0), 0)?;
        }
        let array = value.to_array()?;
        let field = subquery.subquery.schema().field(0);
        let datum = arrow::Column::new(&array, field, &describe(field)?)?;
        found.push((column, op, datum.get(0).to_datum()));
        let value = DfExpr::Literal(value, None);
        let sides = match std::ptr::eq(own, &*b.left) {
            true => (own.clone(), value),
            false => (value, own.clone()),
        };
        conjuncts.pop();
        conjuncts.push(datafusion::logical_expr::binary_expr(
            sides.0, b.op, sides.1,
        ));
    }
    if found.is_empty() {
        return Ok(None);
    }
    Ok(conjunction(conjuncts).map(|predicate| (predicate, found)))
}

/// Whether a value of one type can be a key of a column of another: integers, whatever their size; anything else as the same type.
pub fn is_key_of(value: &Expr, column: SqlType) -> bool {
    let Expr::Const(value) = value else {
        return false;
    };
    use SqlType::{Int2, Int4, Int8, Oid};
    match value {
        Datum::Null => column != SqlType::Char,
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => {
            matches!(column, Int2 | Int4 | Int8 | Oid)
        }
        Datum::Float4(_) => column == SqlType::Float4,
        Datum::Float8(_) => column == SqlType::Float8,
        Datum::Numeric(_) => column == SqlType::Numeric,
        Datum::Text(_) => matches!(column, SqlType::Text | SqlType::Varchar),
        Datum::Bytea(_) => column == SqlType::Bytea,
        Datum::Date(_) => column == SqlType::Date,
        Datum::Timestamp(_) => column == SqlType::Timestamp,
        Datum::TimestampTz(_) => column == SqlType::TimestampTz,
        Datum::Uuid(_) => column == SqlType::Uuid,
        Datum::Bool(_) => column == SqlType::Bool,
    }
}
