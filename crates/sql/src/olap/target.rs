//! The table that a write changes, as the query that supplies the write's rows reads it: with the row id as a column more, and by an index where
//! its filters fit one, or keys are known ([`lookup`]).

use std::fmt;
use std::sync::Arc;

use block::value::Datum;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr as DfExpr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use super::tables::{HeapTable, Opened};
use super::{filters, lookup};
use crate::dict::Table;
use crate::error::Result;
use crate::expr::{CmpOp, Expr};
use crate::plan::Path;
use crate::views::Context;

/// Schema under which a query finds tables with their row ids. No user can have one of that name.
pub const SCHEMA: &str = "braid$target";
/// Name of the column, after all others.
pub const ROW_ID: &str = "braid$row";

/// One row in so many is found by its key in the time that a scan takes to come to it.
const KEY_SHARE: usize = 10;
/// Keys that are looked up in whatever table.
const LEAST_KEYS: usize = 1000;

/// A handle: all copies are of one target.
#[derive(Clone)]
pub struct Target(Arc<Shared>);

struct Shared {
    heap: HeapTable,
    found_by: Mutex<FoundBy>,
}

/// What else is known of the rows that are wanted, beside the filters of the scan.
#[derive(Default)]
struct FoundBy {
    /// Of all.
    all: Vec<Expr>,
    /// And of each, one of these; `None`: nothing.
    one_of: Option<Vec<Vec<Expr>>>,
}

/// What an index would do for the terms it is asked about.
pub struct Reach {
    /// Its first columns for which there is a value, or a list.
    pub columns: usize,
    /// It finds one row at most for each.
    pub unique: bool,
}

impl Target {
    pub fn new(table: &Arc<Table>, context: &Arc<Context>, opened: Opened) -> Result<Target> {
        Ok(Target(Arc::new(Shared {
            heap: HeapTable::with_row_ids(table, context, opened)?,
            found_by: Mutex::default(),
        })))
    }

    fn table(&self) -> &Arc<Table> {
        self.0.heap.table()
    }

    /// From how many keys on a scan is better.
    pub fn most_keys(&self) -> usize {
        LEAST_KEYS.max(self.0.heap.rows() / KEY_SHARE)
    }

    /// What the scan's filters, and what has been said since, make known of the rows.
    pub fn known(&self, filters: &[DfExpr]) -> Vec<Expr> {
        let mut terms = self.0.heap.terms(filters);
        terms.extend(self.0.found_by.lock().all.iter().cloned());
        terms
    }

    pub fn reach(&self, terms: &[Expr]) -> Reach {
        let access = filters::access(self.0.heap.context(), self.table(), terms.to_vec());
        match access.path {
            Path::Full | Path::Keys { .. } => Reach {
                columns: 0,
                unique: false,
            },
            Path::Index {
                equal,
                any_of,
                unique,
                ..
            } => Reach {
                columns: equal.len() + usize::from(!any_of.is_empty()),
                unique,
            },
        }
    }

    /// A comparison of a column with a value that can be a key of it.
    pub fn term(&self, column: &str, op: CmpOp, value: Datum) -> Option<Expr> {
        let mut columns = self.table().live_columns();
        let (at, c) = columns.find(|(_, c)| c.name == column)?;
        let sides = (Expr::Column(at), Expr::Const(value));
        lookup::is_key_of(&sides.1, c.ty())
            .then(|| Expr::Compare(op, Box::new(sides.0), Box::new(sides.1)))
    }

    /// The rows that are wanted have one of these values in their columns.
    pub fn look_up(&self, keys: &[Vec<(String, Datum)>]) {
        let terms = |key: &Vec<(String, Datum)>| -> Vec<Expr> {
            let terms = key
                .iter()
                .filter_map(|(column, value)| self.term(column, CmpOp::Eq, value.clone()));
            terms.collect()
        };
        self.0.found_by.lock().one_of = Some(keys.iter().map(terms).collect());
    }

    /// The rows that are wanted meet these comparisons.
    pub fn also_where(&self, terms: &[(String, CmpOp, Datum)]) {
        let terms = terms
            .iter()
            .filter_map(|(column, op, value)| self.term(column, *op, value.clone()));
        self.0.found_by.lock().all.extend(terms);
    }
}

#[async_trait::async_trait]
impl TableProvider for Target {
    fn schema(&self) -> SchemaRef {
        self.0.heap.schema()
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    fn statistics(&self) -> Option<Statistics> {
        self.0.heap.statistics()
    }
    fn supports_filters_pushdown(
        &self,
        filters: &[&DfExpr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        self.0.heap.supports_filters_pushdown(filters)
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[DfExpr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let known = self.known(filters);
        let sets = match &self.0.found_by.lock().one_of {
            None => vec![known.clone()],
            Some(one_of) => one_of
                .iter()
                .map(|terms| known.iter().chain(terms).cloned().collect())
                .collect(),
        };
        self.0.heap.read(projection, known, &sets)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table().name)
    }
}
