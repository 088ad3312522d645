//! Filters that DataFusion offers to a scan, as terms of the direct lane: they may become the key of an index.

use std::sync::Arc;

use block::value::Datum;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr as DfExpr, Operator};
use engine::Snapshot;

use super::arrow::{self, describe};
use super::bound::Settings;
use super::scan::{Batches, Columns};
use crate::bind::ParamTypes;
use crate::dict::Table;
use crate::error::Result;
use crate::exec::source::{as_slice, key_ranges};
use crate::expr::{CmpOp, Expr};
use crate::plan::Planner;
use crate::views::Context;

/// Rows read through an index at the time of planning. Beyond it, and beyond [`INDEX_SHARE`], the table is scanned.
const INDEX_ROWS: usize = 20_000;
/// A scan reads about fifty rows in the time that an index takes to lead to one.
const INDEX_SHARE: usize = 50;
/// What these rows may take of memory, as they are stored.
const INDEX_BYTES: usize = 16 << 20;

/// The filter as a term over the table's columns: a comparison of a column with a constant, or a list of constants.
pub fn term(filter: &DfExpr, table: &Table, schema: &Schema) -> Option<Expr> {
    match filter {
        DfExpr::BinaryExpr(b) if b.op == Operator::Or => {
            let (column, mut list) = alternatives(term(&b.left, table, schema)?)?;
            let (other, more) = alternatives(term(&b.right, table, schema)?)?;
            let (Expr::Column(l), Expr::Column(r)) = (&column, &other) else {
                return None;
            };
            if l != r {
                return None;
            }
            list.extend(more);
            Some(Expr::InList {
                expr: Box::new(column),
                list,
                negated: false,
            })
        }
        DfExpr::BinaryExpr(b) => {
            let op = comparison(b.op)?;
            match (&*b.left, &*b.right) {
                (DfExpr::Column(c), DfExpr::Literal(v, _)) => {
                    let (column, value) = operands(&c.name, v, table, schema)?;
                    Some(Expr::Compare(op, Box::new(column), Box::new(value)))
                }
                (DfExpr::Literal(v, _), DfExpr::Column(c)) => {
                    let (column, value) = operands(&c.name, v, table, schema)?;
                    Some(Expr::Compare(op.flip(), Box::new(column), Box::new(value)))
                }
                _ => None,
            }
        }
        DfExpr::InList(l) if !l.negated => {
            let DfExpr::Column(c) = &*l.expr else {
                return None;
            };
            let mut expr = None;
            let mut list = Vec::with_capacity(l.list.len());
            for item in &l.list {
                let DfExpr::Literal(v, _) = item else {
                    return None;
                };
                let (column, value) = operands(&c.name, v, table, schema)?;
                expr = Some(column);
                list.push(value);
            }
            Some(Expr::InList {
                expr: Box::new(expr?),
                list,
                negated: false,
            })
        }
        _ => None,
    }
}

/// The column and the values that it may equal.
fn alternatives(term: Expr) -> Option<(Expr, Vec<Expr>)> {
    match term {
        Expr::Compare(CmpOp::Eq, column, value) => Some((*column, vec![*value])),
        Expr::InList {
            expr,
            list,
            negated: false,
        } => Some((*expr, list)),
        _ => None,
    }
}

fn comparison(op: Operator) -> Option<CmpOp> {
    Some(match op {
        Operator::Eq => CmpOp::Eq,
        Operator::Lt => CmpOp::Lt,
        Operator::LtEq => CmpOp::Le,
        Operator::Gt => CmpOp::Gt,
        Operator::GtEq => CmpOp::Ge,
        _ => return None,
    })
}

/// The column, by its place in stored rows, and a value of its type.
fn operands(
    name: &str,
    value: &ScalarValue,
    table: &Table,
    schema: &Schema,
) -> Option<(Expr, Expr)> {
    let field = schema.field_with_name(name).ok()?;
    if value.data_type() != *field.data_type() {
        return None;
    }
    let at = table.live_columns().find(|(_, c)| c.name == name)?.0;
    let array = value.to_array().ok()?;
    let column = arrow::Column::new(&array, field, &describe(field).ok()?).ok()?;
    let datum: Datum = column.get(0).to_datum();
    Some((Expr::Column(at), Expr::Const(datum)))
}

/// The rows that an index finds for the terms, if one fits them and they are few. DataFusion checks the filters again.
pub fn by_index(
    context: &Context,
    table: &Arc<Table>,
    terms: Vec<Expr>,
    snapshot: &Snapshot,
    (schema, columns): (&SchemaRef, &Columns),
    rows: usize,
) -> DfResult<Option<Vec<RecordBatch>>> {
    Ok(read(
        context,
        table,
        terms,
        snapshot,
        (schema, columns),
        rows,
    )?)
}

fn read(
    context: &Context,
    table: &Arc<Table>,
    terms: Vec<Expr>,
    snapshot: &Snapshot,
    (schema, columns): (&SchemaRef, &Columns),
    rows: usize,
) -> Result<Option<Vec<RecordBatch>>> {
    if terms.is_empty() {
        return Ok(None);
    }
    let params = ParamTypes::default();
    let planner = Planner {
        dict: &context.dict,
        params: &params,
    };
    let (access, _) = planner.access(table, 0, terms, &[], false);
    let Some((index, ranges)) = key_ranges(&access, &mut Settings(context.io))? else {
        return Ok(None);
    };
    let most = INDEX_ROWS.max(rows / INDEX_SHARE);
    let engine = context.database.engine();
    let mut batches = Batches::new(schema, columns)?;
    let mut done = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    let mut row = Vec::new();
    for (low, high) in &ranges {
        let (low, high) = (as_slice(low), as_slice(high));
        let mut scan = engine.index_range(table.engine(), index, low, high, false)?;
        while scan.next_of(snapshot, &mut row)?.is_some() {
            (count, bytes) = (count + 1, bytes + row.len());
            if count > most || bytes > INDEX_BYTES {
                return Ok(None);
            }
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
            batches.add(&[&row])?;
            if batches.is_full() {
                done.extend(batches.take().map_err(super::error::from_datafusion)?);
            }
        }
    }
    done.extend(batches.take().map_err(super::error::from_datafusion)?);
    wait::stat::add(wait::Stat::OlapIndexReads, 1);
    Ok(Some(done))
}
