//! Filters that DataFusion offers to a scan, as terms of the direct lane: they may become the key of an index.

use std::collections::HashSet;
use std::sync::Arc;

use block::RowId;
use block::value::Datum;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr as DfExpr, Operator, TableProviderFilterPushDown};
use engine::Snapshot;

use super::arrow::{self, describe};
use super::bound::{self, Settings};
use super::members;
use super::scan::{Batches, Columns};
use crate::api::ColumnDesc;
use crate::bind::ParamTypes;
use crate::dict::Table;
use crate::error::Result;
use crate::exec::source::{as_slice, key_ranges};
use crate::expr::{CmpOp, Env, Expr};
use crate::plan::{self, Planner, TableAccess};
use crate::types::SqlType;
use crate::views::Context;

/// Rows read through an index at the time of planning. Beyond it, and beyond [`INDEX_SHARE`], the table is scanned.
const INDEX_ROWS: usize = 20_000;
/// A scan reads about fifty rows in the time that an index takes to lead to one.
pub const INDEX_SHARE: usize = 50;
/// What these rows may take of memory, as they are stored.
pub const INDEX_BYTES: usize = 16 << 20;

/// The filter as a term over the table's columns: a comparison of a column with a constant, or a list of constants.
pub fn term(filter: &DfExpr, table: &Table, schema: &Schema) -> Option<Expr> {
    match filter {
        DfExpr::BinaryExpr(b) if b.op == Operator::Or => {
            let (column, mut list) = alternatives(term(&b.left, table, schema)?)?;
            let (other, more) = alternatives(term(&b.right, table, schema)?)?;
            if plan::key_column(&column)? != plan::key_column(&other)? {
                return None;
            }
            list.extend(more);
            Some(Expr::in_list(column, list, false))
        }
        DfExpr::BinaryExpr(b) => {
            let op = comparison(b.op)?;
            match (&*b.left, &*b.right) {
                (column, DfExpr::Literal(v, _)) => {
                    let own = Own::new(column, table, schema)?;
                    let value = own.value(v)?;
                    Some(Expr::Compare(op, Box::new(own.column), Box::new(value)))
                }
                (DfExpr::Literal(v, _), column) => {
                    let own = Own::new(column, table, schema)?;
                    let value = own.value(v)?;
                    let (column, value) = (Box::new(own.column), Box::new(value));
                    Some(Expr::Compare(op.flip(), column, value))
                }
                _ => None,
            }
        }
        DfExpr::InList(l) if !l.negated => {
            let own = Own::new(&l.expr, table, schema)?;
            let mut list = Vec::with_capacity(l.list.len());
            for item in &l.list {
                let DfExpr::Literal(v, _) = item else {
                    return None;
                };
                list.push(own.value(v)?);
            }
            Some(Expr::in_list(own.column, list, false))
        }
        _ => {
            let (value, list) = members::called(filter)?;
            let own = Own::new(value, table, schema)?;
            let column = arrow::Column::new(list, own.field, &own.desc).ok()?;
            let values = (0..list.len()).map(|at| Expr::Const(column.get(at).to_datum()));
            own.fits(list)
                .then(|| Expr::in_list(own.column, values.collect(), false))
        }
    }
}

/// Which filters a scan may make use of; all are checked again above it.
pub fn pushed(
    filters: &[&DfExpr],
    table: &Table,
    schema: &Schema,
) -> Vec<TableProviderFilterPushDown> {
    let is_term = |f: &DfExpr| match members::called(f) {
        Some((value, list)) => Own::new(value, table, schema).is_some_and(|own| own.fits(list)),
        None => term(f, table, schema).is_some(),
    };
    let one = |f: &&DfExpr| match is_term(f) {
        true => TableProviderFilterPushDown::Inexact,
        false => TableProviderFilterPushDown::Unsupported,
    };
    filters.iter().map(one).collect()
}

/// The column and the values that it may equal.
fn alternatives(term: Expr) -> Option<(Expr, Vec<Expr>)> {
    match term {
        Expr::Compare(CmpOp::Eq, column, value) => Some((*column, vec![*value])),
        Expr::InList {
            expr,
            list,
            negated: false,
            ..
        } => Some((*expr, list)),
        _ => None,
    }
}

pub fn comparison(op: Operator) -> Option<CmpOp> {
    Some(match op {
        Operator::Eq => CmpOp::Eq,
        Operator::Lt => CmpOp::Lt,
        Operator::LtEq => CmpOp::Le,
        Operator::Gt => CmpOp::Gt,
        Operator::GtEq => CmpOp::Ge,
        _ => return None,
    })
}

/// A column of the table as a filter names it.
struct Own<'s> {
    /// By its place in stored rows. A blank-padded column is there as the text that it is compared as.
    column: Expr,
    field: &'s Field,
    desc: ColumnDesc,
}

impl<'s> Own<'s> {
    fn new(column: &DfExpr, table: &Table, schema: &'s Schema) -> Option<Own<'s>> {
        let (name, unpadded) = match column {
            DfExpr::Column(c) => (&c.name, false),
            DfExpr::ScalarFunction(f) if f.name() == bound::cast_name(SqlType::Text, -1) => {
                match f.args.as_slice() {
                    [DfExpr::Column(c)] => (&c.name, true),
                    _ => return None,
                }
            }
            _ => return None,
        };
        let field = schema.field_with_name(name).ok()?;
        let desc = describe(field).ok()?;
        if unpadded != (desc.ty == SqlType::Char) {
            return None;
        }
        let at = table.live_columns().find(|(_, c)| c.name == *name)?.0;
        let column = match unpadded {
            true => Expr::unpadded(Expr::Column(at)),
            false => Expr::Column(at),
        };
        Some(Own {
            column,
            field,
            desc,
        })
    }

    /// Whether the values of a list are of the column's type.
    fn fits(&self, list: &ArrayRef) -> bool {
        list.data_type() == self.field.data_type()
    }

    /// A value of the column's type.
    fn value(&self, value: &ScalarValue) -> Option<Expr> {
        if value.data_type() != *self.field.data_type() {
            return None;
        }
        // The usual ones of long lists need no array to be read from.
        let datum = match (value, self.desc.ty) {
            (ScalarValue::Int32(Some(v)), SqlType::Int4) => Datum::Int4(*v),
            (ScalarValue::Int64(Some(v)), SqlType::Int8) => Datum::Int8(*v),
            (ScalarValue::Utf8(Some(v)), SqlType::Text | SqlType::Varchar | SqlType::Char) => {
                Datum::Text(v.clone())
            }
            _ => {
                let array = value.to_array().ok()?;
                let column = arrow::Column::new(&array, self.field, &self.desc).ok()?;
                column.get(0).to_datum()
            }
        };
        Some(Expr::Const(datum))
    }
}

/// The rows that indexes find for any of the sets of terms, if they fit and the rows are few. DataFusion checks the filters again.
pub fn by_index(
    context: &Context,
    table: &Arc<Table>,
    sets: &[Vec<Expr>],
    snapshot: &Snapshot,
    (schema, columns): (&SchemaRef, &Columns),
    rows: usize,
) -> DfResult<Option<Vec<RecordBatch>>> {
    let mut batches = Batches::new(schema, columns)?;
    let mut done = Vec::new();
    let found = find(context, table, sets, snapshot, rows, &mut |id, row| {
        batches.add_one(id, row)?;
        if batches.is_full() {
            done.extend(batches.take().map_err(super::error::from_datafusion)?);
        }
        Ok(())
    })?;
    if !found {
        return Ok(None);
    }
    done.extend(batches.take()?);
    Ok(Some(done))
}

/// How a table of so many rows is read for terms.
pub fn access(context: &Context, table: &Arc<Table>, terms: Vec<Expr>) -> TableAccess {
    let params = ParamTypes::default();
    let planner = Planner {
        dict: &context.dict,
        params: &params,
    };
    planner.access(table, 0, terms, &[], false).0
}

/// From how many rows on a scan is better, in a table of so many.
pub fn most_rows(rows: usize) -> usize {
    INDEX_ROWS.max(rows / INDEX_SHARE)
}

/// From how many keys on a scan is better, in a table of so many rows of which so many have the same key.
pub fn most_looked_up(rows: usize, each: f64) -> usize {
    (rows as f64 / INDEX_SHARE as f64 / each.max(1.0)) as usize
}

/// Gives the rows that indexes find for any of the sets of terms, each once. False if no index fits one of them, or the rows are too many: what was
/// given then is no answer. `rows`: about how many the table has.
pub fn find(
    context: &Context,
    table: &Arc<Table>,
    sets: &[Vec<Expr>],
    snapshot: &Snapshot,
    rows: usize,
    give: &mut dyn FnMut(RowId, &[u8]) -> Result<()>,
) -> Result<bool> {
    let most = most_rows(rows);
    let engine = context.database.engine();
    let (mut count, mut bytes) = (0, 0);
    let mut row = Vec::new();
    let mut given = HashSet::new();
    for terms in sets {
        if terms.is_empty() {
            return Ok(false);
        }
        let access = access(context, table, terms.clone());
        let Some((index, ranges)) = key_ranges(&access, &mut Settings(context.io), &Env::EMPTY)?
        else {
            return Ok(false);
        };
        for (low, high) in &ranges {
            let (low, high) = (as_slice(low), as_slice(high));
            let mut scan = engine.index_range(table.engine(), index, low, high, false)?;
            while let Some(rid) = scan.next_of(snapshot, &mut row)? {
                (count, bytes) = (count + 1, bytes + row.len());
                if count > most || bytes > INDEX_BYTES {
                    return Ok(false);
                }
                wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                if sets.len() == 1 || given.insert(rid.0) {
                    give(rid, &row)?;
                }
            }
        }
    }
    wait::stat::add(wait::Stat::OlapIndexReads, 1);
    Ok(true)
}
