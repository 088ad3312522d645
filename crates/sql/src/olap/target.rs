//! The table that a write changes, as the query that supplies the write's rows reads it: with the row id as a column more, and by an index where
//! its filters fit one, or keys are known ([`lookup`]).

use std::fmt;
use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr as DfExpr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;

use super::arrow::{Builder, field};
use super::tables::{Opened, Reading};
use super::{filters, lookup};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::{CmpOp, Expr};
use crate::plan::Path;
use crate::types::SqlType;
use crate::views::Context;

/// Schema under which a query finds tables with their row ids. No user can have one of that name.
pub const SCHEMA: &str = "braid$target";
/// Name of the column, after all others.
pub const ROW_ID: &str = "braid$row";

/// Rows of a batch. Blocks are not divided, so some more may come.
const BATCH_ROWS: usize = 4096;
const BATCHES_AHEAD: usize = 2;
/// One row in so many is found by its key in the time that a scan takes to come to it.
const KEY_SHARE: usize = 10;
/// Keys that are looked up in whatever table.
const LEAST_KEYS: usize = 1000;

/// A handle: all copies are of one target.
#[derive(Clone)]
pub struct Target(Arc<Shared>);

struct Shared {
    table: Arc<Table>,
    schema: SchemaRef,
    context: Arc<Context>,
    rows: usize,
    /// Taken by the one execution that scans all.
    reading: Mutex<Option<Reading>>,
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
        let mut fields = Vec::new();
        for (at, c) in table.live_columns() {
            let origin = (table.oid, at as i16 + 1);
            fields.push(field(&c.name, c.ty(), c.typmod, origin)?);
        }
        fields.push(field(ROW_ID, SqlType::Int8, -1, (0, 0))?);
        let rows = super::tables::expected_rows(table, context, &opened)?;
        let reading = match opened {
            Opened::Read(reading) => Some(reading),
            Opened::Named | Opened::Shown { .. } => None,
        };
        Ok(Target(Arc::new(Shared {
            table: table.clone(),
            schema: Arc::new(Schema::new(fields)),
            context: context.clone(),
            rows,
            reading: Mutex::new(reading),
            found_by: Mutex::default(),
        })))
    }

    /// From how many keys on a scan is better.
    pub fn most_keys(&self) -> usize {
        LEAST_KEYS.max(self.0.rows / KEY_SHARE)
    }

    /// What the scan's filters, and what has been said since, make known of the rows.
    pub fn known(&self, filters: &[DfExpr]) -> Vec<Expr> {
        let said = self.0.found_by.lock().all.clone();
        let filters = filters
            .iter()
            .filter_map(|f| filters::term(f, &self.0.table, &self.0.schema));
        filters.chain(said).collect()
    }

    pub fn reach(&self, terms: &[Expr]) -> Reach {
        let access = filters::access(&self.0.context, &self.0.table, terms.to_vec());
        match access.path {
            Path::Full => Reach {
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
        let mut columns = self.0.table.live_columns();
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

    /// The rows as indexes find them, if they do.
    fn by_index(&self, filters: &[DfExpr]) -> Result<Option<Vec<RecordBatch>>> {
        let this = &*self.0;
        let known = self.known(filters);
        let sets = match &this.found_by.lock().one_of {
            None => vec![known],
            Some(one_of) => one_of
                .iter()
                .map(|terms| known.iter().chain(terms).cloned().collect())
                .collect(),
        };
        let snapshot = match &*this.reading.lock() {
            Some(reading) => reading.snapshot.snapshot(),
            None => return Err(Error::internal("the target of a write is scanned once")),
        };
        let mut rows = Rows::new(&this.schema, &this.table)?;
        let mut batches = Vec::new();
        let (context, table) = (&this.context, &this.table);
        let found = filters::find(
            context,
            table,
            &sets,
            &snapshot,
            this.rows,
            &mut |rid, row| {
                rows.add(rid, row)?;
                if rows.count >= BATCH_ROWS {
                    batches.extend(rows.take()?);
                }
                Ok(())
            },
        )?;
        batches.extend(rows.take()?);
        Ok(found.then_some(batches))
    }
}

#[async_trait::async_trait]
impl TableProvider for Target {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    fn statistics(&self) -> Option<Statistics> {
        Some(Statistics::new_unknown(&self.0.schema).with_num_rows(Precision::Inexact(self.0.rows)))
    }
    fn supports_filters_pushdown(
        &self,
        filters: &[&DfExpr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(filters::pushed(filters, &self.0.table, &self.0.schema))
    }
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[DfExpr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let schema = self.0.schema.clone();
        if let Some(batches) = self.by_index(filters)? {
            let exec = MemorySourceConfig::try_new_exec(&[batches], schema, projection.cloned());
            return exec.map(|e| e as Arc<dyn ExecutionPlan>);
        }
        let scan = Arc::new(Scan(self.clone()));
        let all = StreamingTable::try_new(schema, vec![scan])?;
        all.scan(state, projection, &[], limit).await
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.table.name)
    }
}

/// The scan of all of the target.
struct Scan(Target);

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seq Scan on {}", self.0.0.table.name)
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.0.0.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let target = &*self.0.0;
        let mut builder = RecordBatchReceiverStream::builder(target.schema.clone(), BATCHES_AHEAD);
        let reading = target.reading.lock().take();
        let (schema, table, sender) = (target.schema.clone(), target.table.clone(), builder.tx());
        builder.spawn_blocking(move || {
            let reading =
                reading.ok_or_else(|| Error::internal("the target of a write is scanned once"))?;
            let _session = wait::session::register(wait::session::Kind::Background, "p000");
            read(reading, &schema, &table, &sender)
        });
        builder.build()
    }
}

/// Rows with their ids on their way into batches.
struct Rows<'t> {
    schema: &'t SchemaRef,
    table: &'t Table,
    live: Vec<usize>,
    builders: Vec<Builder>,
    count: usize,
}

impl<'t> Rows<'t> {
    fn new(schema: &'t SchemaRef, table: &'t Table) -> Result<Rows<'t>> {
        let builders = schema
            .fields()
            .iter()
            .map(|f| Builder::new(f.data_type(), BATCH_ROWS + 1024))
            .collect::<Result<Vec<_>>>()?;
        Ok(Rows {
            schema,
            table,
            live: table.live_columns().map(|(at, _)| at).collect(),
            builders,
            count: 0,
        })
    }

    fn add(&mut self, rid: RowId, row: &[u8]) -> Result<()> {
        let def = self.table.engine();
        let mut values = Vec::with_capacity(def.columns.len());
        crate::exec::row::decode(row, def, def.columns.len(), &mut values)?;
        let id = DatumRef::Int8(rid.0 as i64);
        let wanted = self.live.iter().map(|at| values[*at]).chain([id]);
        self.count += 1;
        self.builders
            .iter_mut()
            .zip(wanted)
            .try_for_each(|(b, v)| b.push(v))
    }

    /// What came together since the last batch.
    fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.count == 0 {
            return Ok(None);
        }
        self.count = 0;
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), arrays);
        batch
            .map(Some)
            .map_err(|e| super::error::from_datafusion(e.into()))
    }
}

/// Sends all rows, until nobody wants them any more.
fn read(
    mut reading: Reading,
    schema: &SchemaRef,
    table: &Table,
    sender: &Sender<DfResult<RecordBatch>>,
) -> DfResult<()> {
    let snapshot = reading.snapshot.snapshot();
    let mut rows = Rows::new(schema, table)?;
    let mut failed = Ok(());
    loop {
        let more = reading.scan.next_block_of(&snapshot, &mut |rid, row| {
            if failed.is_ok() {
                failed = rows.add(rid, row);
            }
        });
        let more = more.map_err(Error::from)?;
        std::mem::replace(&mut failed, Ok(()))?;
        if (rows.count >= BATCH_ROWS || !more)
            && let Some(batch) = rows.take()?
            && sender.blocking_send(Ok(batch)).is_err()
        {
            return Ok(());
        }
        if !more {
            return Ok(());
        }
    }
}
